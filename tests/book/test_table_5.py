"""Chapter 12's many federations side by side against `fedlib.fit`, one by one."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from twins import start_of

import fedlib
from book.experiments import fedsgcnn_tables as chapter
from book.experiments import tabular
from fedlib.algorithms import FedSGCNN, LGFedAvg, LocalOnly

SETTINGS = chapter.SMALL | {"epochs": 15}
ONE, GROUPS = torch.zeros(6, dtype=torch.int64), torch.tensor([0, 1, 2, 0, 1, 1])


@pytest.fixture(scope="module", params=[("diabetes", "boston"), ("wine", "obesity")], ids=["regression", "classes"])
def task(request):
    table, like = request.param
    small = replace(tabular.SETTINGS[like], clients=6, rows=15, share=0.5, epochs=2, groups=2)
    return chapter.in_double(chapter.task_of(small, tabular.table(table), True, 3, 40))


def test_side_by_side_is_one_after_another(task):
    each = torch.arange(6)
    arms = {"+ clusters": GROUPS, "Standalone": each, "LG-FedAvg": ONE, "+ MMD": ONE, "alone": each}
    curves = chapter.side_by_side(task, arms, start_of(task.net, 3), 3, 3)
    of_pairs = {"+ clusters": {"assignment": GROUPS}, "+ MMD": {}, "alone": {"assignment": each}}
    rules = {name: LGFedAvg(task.loss, mmd=0.5, **more, **task.how) for name, more in of_pairs.items()}
    rules |= {"Standalone": LocalOnly(task.loss, **task.how), "LG-FedAvg": LGFedAvg(task.loss, **task.how)}
    sets = {"own": task.clients.validation, "hold-out": task.clients.test}
    for name, rule in rules.items():
        how = {"eval_data": sets, "seed": 3, "progress": False}
        history = fedlib.fit(rule, start_of(task.net, 3), task.clients.train, 3, 3, **how).history
        for where in sets:
            expected = history[f"{where}_{task.score}"].dropna().to_numpy()
            np.testing.assert_allclose(curves[name][where].of(), expected, atol=1e-10)
    scores = [curve["hold-out"].error.sum() for curve in curves.values()]
    assert len(np.unique(np.round(scores, 6))) > 2, "the arms differ"


def test_distances_and_clusters_are_those_of_fedsgcnn(task):
    learn = partial(chapter.model_graph.train_siamese, epochs=15)
    rule = FedSGCNN(task.loss, pair_rounds=2, learn=learn, **task.how)
    state = fedlib.fit(rule, start_of(task.net, 3), task.clients.train, 1, seed=3, progress=False).state
    torch.testing.assert_close(chapter.distances(task, start_of(task.net, 3), SETTINGS, 3)["loss"], state.distance)


def test_another_rounding_moves_the_last_place(task):
    start = start_of(task.net, 3)
    single = {name: p.float() for name, p in start.items()}
    for params, eps in ((start, 2.0**-52), (single, 2.0**-23)):
        other = chapter.nudged(params, 0)
        moved = torch.cat([((other[name] - p) / p).flatten() for name, p in params.items()])
        moved = moved[moved.isfinite()]
        assert moved.min() < 0 < moved.max() and moved.abs().max() <= 3 * eps
    found, distance = chapter.rounding(task, start, SETTINGS, 3), chapter.distances(task, start, SETTINGS, 3)
    first = distance["loss"][torch.triu_indices(6, 6, 1).unbind()]
    assert found["as it is"]["mean distance"] == pytest.approx(float(first.mean()))
    for name, gains in {"all rounded otherwise": True, "networks rounded otherwise": False}.items():
        assert (found[name]["largest change of a gain"] > 0) == gains
        assert 0 < found[name]["median change of a distance"] < 1e-9, "two rounds amplify little"
