"""Chapter 12's many federations side by side against `fedlib.fit`, one by one, and its readings against plain loops."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import fedlib
from book.experiments import fedsgcnn_side_by_side as many
from book.experiments import fedsgcnn_tables as chapter
from book.experiments import tabular
from fedlib.algorithms import FedSGCNN, LGFedAvg, LocalOnly
from fedlib.client.mmd import mmd
from fedlib.server.transfer import positive_transfer

SETTINGS = chapter.SMALL | {"epochs": 15}
ONE, GROUPS = torch.zeros(6, dtype=torch.int64), torch.tensor([0, 1, 2, 0, 1, 1])


@pytest.fixture(scope="module", params=[("diabetes", "boston"), ("wine", "obesity")], ids=["regression", "classes"])
def task(request):
    table, like = request.param
    small = replace(tabular.SETTINGS[like], clients=6, rows=15, share=0.5, epochs=2, groups=2)
    return chapter.in_double(chapter.task_of(small, tabular.table(table), True, 3, 40))


def start_of(task):
    return {name: p.double() for name, p in task.net.init(3).items()}


def test_mmd_and_its_gradient():
    random = torch.Generator().manual_seed(0)
    pool = torch.randn(4, 9, 3, generator=random, dtype=torch.float64)
    q = torch.randn(4, 5, 3, generator=random, dtype=torch.float64).requires_grad_()
    pool[2], q.data[2] = pool[2, 0], pool[2, 0]  # all rows equal
    i, j = torch.triu_indices(9, 9, 1)
    ours = many.Mmd.apply(q, pool, (pool[:, i] - pool[:, j]).square().sum(2))
    theirs = torch.stack([mmd(a, b) for a, b in zip(q, pool, strict=True)])
    weight = torch.tensor([1.0, 0.0, 2.0, -3.0])
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad((weight * v).sum(), q)[0] for v in (ours, theirs)]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-9)
    assert gradients[0].abs().max() > 0.01


def test_side_by_side_is_one_after_another(task):
    each = torch.arange(6)
    arms = {"+ clusters": GROUPS, "Standalone": each, "LG-FedAvg": ONE, "+ MMD": ONE, "alone": each}
    curves = chapter.side_by_side(task, arms, start_of(task), 3, 3)
    of_pairs = {"+ clusters": {"assignment": GROUPS}, "+ MMD": {}, "alone": {"assignment": each}}
    rules = {name: LGFedAvg(task.loss, mmd=0.5, **more, **task.how) for name, more in of_pairs.items()}
    rules |= {"Standalone": LocalOnly(task.loss, **task.how), "LG-FedAvg": LGFedAvg(task.loss, **task.how)}
    sets = {"own": task.clients.validation, "hold-out": task.clients.test}
    for name, rule in rules.items():
        how = {"eval_data": sets, "seed": 3, "progress": False}
        history = fedlib.fit(rule, start_of(task), task.clients.train, 3, 3, **how).history
        for where in sets:
            expected = history[f"{where}_{task.score}"].dropna().to_numpy()
            np.testing.assert_allclose(curves[name][where].of(), expected, atol=1e-10)
    scores = [curve["hold-out"].error.sum() for curve in curves.values()]
    assert len(np.unique(np.round(scores, 6))) > 2, "the arms differ"


def test_distances_and_clusters_are_those_of_fedsgcnn(task):
    learn = partial(chapter.model_graph.train_siamese, epochs=15)
    rule = FedSGCNN(task.loss, pair_rounds=2, learn=learn, **task.how)
    state = fedlib.fit(rule, start_of(task), task.clients.train, 1, seed=3, progress=False).state
    torch.testing.assert_close(chapter.distances(task, start_of(task), SETTINGS, 3)["loss"], state.distance)


def test_another_rounding_moves_the_last_place(task):
    start = start_of(task)
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


def test_one_run_of_all_pairs_gives_positive_transfer_by_each_score(task):
    train, check = task.clients.train, task.clients.test
    run = chapter.pair_run(task, start_of(task), train, 2, 5)
    for score in ("loss", task.score):
        rule = LGFedAvg(task.loss, **task.how)
        expected = positive_transfer(rule, [start_of(task)], train, check, 2, score=score, seed=5).gain[0]
        torch.testing.assert_close(run(check, score), expected)


def test_readings_by_loops():
    random = np.random.RandomState(0)
    error, spread, centre = random.rand(7, 6), np.array([1, 2, 1, 3, 1, 2.0]), random.randn(6)
    own, test = (many.Curve(e, spread, centre) for e in (error, error[::-1] ** 2))

    def together(curve, clients, t):
        middle = np.mean([centre[c] for c in clients])
        return 1 - sum(curve.error[t, c] for c in clients) / sum(spread[c] + (centre[c] - middle) ** 2 for c in clients)

    members = [np.flatnonzero(g == GROUPS) for g in range(3)]
    found = chapter.readings({"own": own, "hold-out": test}, GROUPS)
    for name, curve in (("own rows", own), ("hold-out", test)):
        best = sum(len(m) * max(together(curve, m, t) for t in range(7)) for m in members) / 6
        assert found[f"each cluster, {name}"] == pytest.approx(best)
        single = np.mean([max(1 - curve.error[t, c] / spread[c] for t in range(7)) for c in range(6)])
        assert found["paper" if name == "own rows" else "each client, hold-out"] == pytest.approx(single)
    everybody = [together(test, range(6), t) for t in range(7)]
    chosen = np.argmax([together(own, range(6), t) for t in range(7)])
    assert found["all, hold-out"] == pytest.approx(max(everybody))
    assert found["sound"] == pytest.approx(everybody[chosen]) and found["last round"] == pytest.approx(everybody[-1])
