"""CFL's candidate whose tests add up: what it sums, and whom it parts."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import fedlib
from book.experiments import cfl_rule as chapter
from fedlib import partition
from fedlib.algorithms import CFL
from fedlib.params import to_matrix


@pytest.fixture(scope="module")
def model():
    return chapter.network("digits", "linear")


def clients(groups, rows=30):
    x, y = (a[np.random.RandomState(0).permutation(5000)[: 8 * rows]] for a in chapter.rows_of("digits")[:2])
    dealt = partition.iid(y, 8)
    return (partition.label_permutation(dealt, groups=groups) if groups > 1 else dealt).clients(x, y, classes=10)


def test_cosines_of_two_tests_by_hand(model):
    """Of halves that train for three times the epochs, from the model of their round."""
    data, loss, params = clients(2), chapter.loss_of(model), model.init(0)
    local = {"lr": 0.1, "batch_size": 5, "rest": 1, "level": 1e-30}

    def fitted(algorithm, rounds):
        return fedlib.fit(algorithm, params, data, rounds, seed=3, dtype=torch.float64, device="cpu", progress=False)

    wanted = torch.zeros(3, 8, 8).double()
    for t in (1, 2):
        start = fitted(CFL(loss, **local | {"level": 0.0}), t - 1).state.models if t > 1 else None
        start = start or {name: p[None].double() for name, p in params.items()}
        start = {name: p.expand(8, *p.shape[1:]) for name, p in start.items()}
        long = CFL(loss, epochs=3, **local)
        halves = long.trained_on_halves(start, data, fedlib.Key(3, t))
        first, second = (
            F.normalize(to_matrix({n: p - start[n] for n, p in h.items()}), dim=1) for h in halves.values()
        )
        wanted += torch.stack([first @ first.T, second @ second.T, first @ second.T])
    state = fitted(chapter.Summed(loss, longer=3, **local), 2).state
    assert torch.allclose(state.cosines, wanted, atol=1e-8) and not state.splits


@pytest.mark.parametrize("groups", [1, 2])
def test_groups_are_parted_and_clients_that_agree_are_not(model, groups):
    algorithm = chapter.Summed(chapter.loss_of(model), lr=0.1, batch_size=10, longer=5, rest=5)
    state = fedlib.fit(algorithm, model.init(0), clients(groups), 20, seed=0, progress=False).state
    found = partition.label_permutation(partition.iid(np.zeros(240), 8), groups=2).group if groups == 2 else [0] * 8
    assert len({(a, b) for a, b in zip(state.assignment.tolist(), found, strict=True)}) == groups
    assert (state.norms[:, 6] < 1e-3).any() == (groups == 2)
