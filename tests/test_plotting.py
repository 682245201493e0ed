"""Figures show the numbers they are given."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import fedlib
from fedlib import evaluation, plotting


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_curves_draw_mean_and_interval():
    runs = pd.DataFrame({"round": [2, 4, 2, 4], "accuracy": [0.1, 0.3, 0.2, 0.7], "seed": [0, 0, 1, 1]})
    ax = plotting.curves({"a": runs, "one seed": runs[:2]}, "accuracy")
    assert [line.get_label() for line in ax.lines] == ["a", "one seed"]
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[2, 0.15], [4, 0.5]])
    mean, half = evaluation.interval([0.3, 0.7])
    corners = ax.collections[0].get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx(mean + half) and ax.get_legend() is not None


def test_rounds_without_a_score_are_left_out():
    runs = pd.DataFrame({"round": [1, 2, 3], "accuracy": [np.nan, 0.5, np.nan]})
    assert plotting.curves({"a": runs}, "accuracy").lines[0].get_xydata().tolist() == [[2, 0.5]]


def test_client_spread_is_the_distribution_function():
    table = pd.DataFrame({"accuracy": [0.9, 0.5, 0.7, 0.7]})
    line = plotting.client_spread({"a": table}).lines[0]
    x, y = line.get_data()

    def share(score):
        return y[np.searchsorted(x, score, side="right") - 1]

    assert [share(s) for s in (0.4, 0.5, 0.6, 0.7, 0.9, 1.0)] == [0, 0.25, 0.25, 0.75, 1, 1]


def test_label_counts_leave_padding_out():
    data = fedlib.stack_clients([np.zeros((3, 1)), np.zeros((1, 1))], [[0, 2, 2], [1]])
    assert plotting.label_counts(data, 3).tolist() == [[1, 0, 2], [0, 1, 0]]
    image = plotting.label_map(data, 3, title="t").images[0]
    assert image.get_array().tolist() == [[1, 0], [0, 1], [2, 0]]


def test_images_and_style():
    with plt.rc_context():
        plotting.use_style()
        plotting.images(np.zeros((3, 4, 4)), titles=["a", "b", "c"])
        assert [ax.get_title() for ax in plt.gcf().axes] == ["a", "b", "c"]
