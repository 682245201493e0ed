"""Figures show the numbers they are given."""

import re
from pathlib import Path
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex

import fedlib
from book import figures
from fedlib import plotting, statistics


@pytest.fixture(autouse=True)
def style():
    with plt.rc_context():
        plotting.use_style()
        yield
        plt.close("all")


def test_curves_draw_mean_and_interval():
    runs = pd.DataFrame({"round": [2, 4, 2, 4], "score": [0.1, 0.3, 0.2, 0.7], "seed": [0, 0, 1, 1]})
    holes = pd.DataFrame({"round": [1, 2, 3], "score": [np.nan, 0.5, np.nan]})
    ax = plotting.curves({"a": runs, "one seed": runs[:2], "rounds without a score": holes}, "score")
    assert [line.get_label() for line in ax.lines] == ["a", "one seed", "rounds without a score"]
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[2, 0.15], [4, 0.5]])
    assert ax.lines[2].get_xydata().tolist() == [[2, 0.5]]
    mean, half = statistics.interval([0.3, 0.7])
    corners = ax.collections[0].get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx(mean + half) and ax.get_legend() is not None


def test_label_counts_leave_padding_out():
    data = fedlib.stack_clients([np.zeros((3, 1)), np.zeros((1, 1))], [[0, 2, 2], [1]])
    assert plotting.label_counts(data, 3).tolist() == [[1, 0, 2], [0, 1, 0]]
    image = plotting.label_map(data, 3, title="t").images[0]
    assert image.get_array().tolist() == [[1, 0], [0, 1], [2, 0]]


def split(round, model, new, members, part, objective=-0.123):
    members, part = torch.tensor(list(members)), torch.tensor(part)
    return SimpleNamespace(round=round, model=model, new=new, members=members, part=part, objective=objective, gap=0.5)


GROUPS = np.array([0, 1, 2, 0, 1, 2])
SPLITS = (split(50, 0, 1, range(6), [0, 1, 1, 0, 1, 1]), split(90, 1, 2, [1, 2, 4, 5], [0, 1, 0, 1], 0.25))


def texts(things):
    return [t.get_text() for t in things]


def places(labels, axis):
    """Where texts stand on this axis, and what they say."""
    return [(t.get_position()[axis], t.get_text()) for t in labels]


def dotted(ax):
    lines = [line for line in ax.lines if line.get_linestyle() == ":" and line.get_color() == "0.35"]
    return sorted({line.get_xdata()[0] for line in lines})


def band(ax, i):
    """Lowest and highest value of a band at each of its places."""
    points = np.concatenate([path.vertices for path in ax.collections[i].get_paths()])
    return {x: (points[points[:, 0] == x, 1].min(), points[points[:, 0] == x, 1].max()) for x in points[:, 0]}


def test_similarity_map_orders_clients_and_marks_clusters_and_groups():
    alpha, order = np.arange(36).reshape(6, 6) / 36, [2, 5, 0, 3, 1, 4]
    ax = plotting.similarity_map(alpha, [1, 1, 0, 1, 1, 0], GROUPS, title="t")
    shown, off = ax.images[0].get_array(), ~np.eye(6, dtype=bool)
    np.testing.assert_array_equal(shown[off], alpha[np.ix_(order, order)][off])
    assert shown.mask.diagonal().all()  # a vector's cosine with itself is no news
    assert ax.images[0].get_clim() == (-1, 1) and ax.get_title() == "t" and len(ax.figure.axes) == 1
    across, down = ax.lines
    assert set(across.get_ydata()) == {1.5} and set(down.get_xdata()) == {1.5}  # clusters of 2 and 4 clients
    assert [(p.get_y(), p.get_height()) for p in ax.patches] == [(-0.5, 2), (1.5, 2), (3.5, 2)]
    assert [to_hex(p.get_facecolor()).upper() for p in ax.patches] == [plotting.COLOURS[g] for g in (2, 0, 1)]
    assert all(p.get_x() + p.get_width() < -0.5 and p.get_x() >= ax.get_xlim()[0] for p in ax.patches)
    assert places(ax.get_yticklabels(), 1) == [(0.5, "C"), (2.5, "A"), (4.5, "B")]
    assert places(ax.get_xticklabels(), 0) == [(0.5, "0"), (3.5, "1")]


def test_cosines_have_the_colours_of_the_figures_that_move():
    text = (Path(figures.__file__).parent / "common.css").read_text(encoding="utf8")
    ends = [re.search(rf"--{name}: (#\w+)", text)[1] for name in ("minus", "plus")]
    assert [to_hex(plotting.SIGNED(v)) for v in (0.0, 1.0)] == ends and to_hex(plotting.SIGNED(0.5)) > "#fe"
    image = plotting.cosine_map(torch.tensor([[1, -0.5], [-0.5, 1]])).images[0]
    assert image.cmap == plotting.SIGNED and image.get_clim() == (-1, 1)


def test_group_curves_draw_mean_and_range_of_each_group():
    scores = np.arange(18).reshape(3, 6) ** 2 / 400
    ax = plotting.group_curves([10, 50, 90], scores, GROUPS, SPLITS)
    for g in range(3):
        own = scores[:, g::3]
        np.testing.assert_allclose(ax.lines[g].get_xydata(), np.stack([[10, 50, 90], own.mean(1)], 1))
        for t, (low, high) in enumerate(band(ax, g)[x] for x in (10, 50, 90)):
            assert (low, high) == (own[t].min(), own[t].max())
    assert texts(ax.get_legend().texts) == ["group A", "group B", "group C"]
    assert len({str(line.get_linestyle()) for line in ax.lines[:3]}) == 3 and ax.get_ylabel() == "test accuracy"
    assert dotted(ax) == [50, 90]
    (top,) = ax.child_axes
    assert places(top.get_xticklabels(), 0) == [(50, "1"), (90, "2")]


def test_numbers_of_splits_close_together_share_a_label():
    splits = [SimpleNamespace(round=t) for t in (20, 60, 60, 61, 90)]
    ax = plotting.group_curves(range(100), np.zeros((100, 1)), [0], splits)
    assert dotted(ax) == [20, 60, 61, 90]
    assert texts(ax.child_axes[0].get_xticklabels()) == ["1", "2, 3, 4", "5"]


def test_cosines_over_rounds_are_of_three_sorts():
    groups, assignments = [0, 0, 1, 1], [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1]]
    alpha = np.random.default_rng(0).uniform(-1, 1, (3, 4, 4))
    alpha[0, 0, 2] = np.nan
    ax = plotting.cosines_over_rounds([1, 2, 3], alpha, groups, assignments, SPLITS[:1])
    pairs = [
        {1: [(0, 1), (2, 3)], 2: [(0, 1)]},
        {1: [(0, 3), (1, 2), (1, 3)], 2: [(0, 2), (1, 2)]},  # (0, 2) is NaN in round 1
        {3: [(0, 1), (2, 3)]},
    ]
    for n, by_round in enumerate(pairs):
        want = {t: [alpha[t - 1, i, j] for i, j in by_round.get(t, [])] for t in (1, 2, 3)}
        means = [np.mean(values) if values else np.nan for values in want.values()]
        np.testing.assert_allclose(ax.lines[n].get_ydata(), means)
        assert {t: band(ax, n)[t] for t in by_round} == {t: (min(want[t]), max(want[t])) for t in by_round}
    assert len({str(line.get_linestyle()) for line in ax.lines[:3]}) == 3 and dotted(ax) == [50]
    assert texts(ax.get_legend().texts) == ["same group", "different groups", "same group, already separated"]
    plt.figure()
    ax = plotting.cosines_over_rounds([1, 2], np.ones((2, 2, 2)), [0, 0], np.zeros((2, 2)), ())
    ax.figure.canvas.draw()
    assert [np.isnan(line.get_ydata()).all() for line in ax.lines] == [True, True, False]  # two sorts never occur


def test_value_map_writes_legible_values():
    index, columns = pd.Index(["a", "b"], name="method"), pd.Index([0, 1, 2], name="group")
    table = pd.DataFrame([[0.0, 0.5, 1.0], [0.7, 0.75, 0.9]], index, columns)
    ax = plotting.value_map(table, title="t")
    assert texts(ax.texts) == ["0.00", "0.50", "1.00", "0.70", "0.75", "0.90"]
    assert [t.get_position() for t in ax.texts] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    image = ax.images[0]
    np.testing.assert_array_equal(image.get_array(), table)
    rgb = image.to_rgba(image.get_array())[..., :3]
    luminance = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
    contrast = {"white": 1.05 / (luminance + 0.05), "black": (luminance + 0.05) / 0.05}  # of WCAG
    best = np.where(contrast["white"] > contrast["black"], "white", "black").ravel().tolist()
    assert [t.get_color() for t in ax.texts] == best and set(best) == {"white", "black"}
    assert texts(ax.get_xticklabels()) == ["0", "1", "2"] and ax.get_xlabel() == "group"
    assert texts(ax.get_yticklabels()) == ["a", "b"] and ax.get_ylabel() == "method"
    assert ax.get_title() == "t" and image.get_clim() == (0, 1)
    other = plotting.value_map(table, plt.figure().gca(), vmin=-1, vmax=2)
    assert other.images[0].get_clim() == (-1, 2) and other.texts[2].get_color() == "black"


def test_the_style_leaves_a_plain_script_alone(run_python, tmp_path):
    """Opening a shell would take over __main__, and a state class of the script could not be stored any more."""
    begin = "import sys\nfrom fedlib import plotting\nbefore = sys.modules['__main__']\nplotting.use_style()\n"
    (tmp_path / "own.py").write_text(f"{begin}print(sys.modules['__main__'] is before and before.plotting is plotting)")
    assert run_python(tmp_path / "own.py", cwd=tmp_path) == "True\n"
