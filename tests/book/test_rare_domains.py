"""What is averaged in the arms of rare domains."""

import numpy as np
import pytest
import torch

import fedlib
from book.experiments import rare_domains as experiment
from book.experiments.worlds import EXACT
from fedlib.client.domain_net import part
from fedlib.params import row, to_matrix
from fedlib.server.domain_graph import domain_adjacency


def test_a_module_of_own_clients_is_what_these_clients_reach():
    """After a round with one client of each domain, in a mean over all it has a quarter of the way behind it."""
    data, _, _ = experiment.deal(experiment.SETTINGS | {"digits": 80, "clients": 4}, experiment.TURNS["four turns"], 0)
    found = {}
    for name in ("modules", experiment.OWN_CLIENTS):
        algorithm = experiment.method(name, data, np.arange(4), 99)
        start = algorithm.predict.init(0)
        end = fedlib.fit(algorithm, start, data, 1, **EXACT).state
        before = to_matrix(part(start, "V")).double()
        found[name] = to_matrix(row(end.modules, 0)) - before
    torch.testing.assert_close(found[experiment.OWN_CLIENTS], 4 * found["modules"])
    assert found["modules"].abs().max() > 1e-6


def test_random_domains_are_as_many_as_true_ones():
    data, _, group = experiment.deal(experiment.SETTINGS | {"digits": 400}, experiment.TURNS["four turns"], 0)
    assert (experiment.weights(data, group, True).sum((0, 1)) / data.n.sum() - 0.25).abs().max() < 0.1


def moved(gcn, V, A, target):
    """The modules in use before and after a step of SGD towards the target."""
    V = V.clone().requires_grad_()
    out = gcn.propagate({}, V, A)
    (gradient,) = torch.autograd.grad((out - target).square().sum(), V)
    return out.detach(), gcn.propagate({}, V.detach() - 0.1 * gradient, A)


@pytest.mark.parametrize("seed", range(4))
def test_modules_that_are_not_mixed_move_as_mixed_ones_do(seed):
    V, target = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(seed)).double()
    A = domain_adjacency(V)
    plain = moved(experiment.Pace(), V, torch.eye(5).double(), target)
    for full in (False, True):
        mixed = moved(experiment.Pace(full=full), torch.linalg.solve(A, V), A, target)
        alike = moved(experiment.Pace(mixed=False, full=full), V, A, target)
        torch.testing.assert_close(mixed, alike)
        assert (alike[1] - plain[1]).norm() > 0.1 * (plain[1] - plain[0]).norm()


@pytest.mark.parametrize("turns", ["rare twins", "rare strangers"])
def test_what_a_rare_domain_takes_is_named_by_its_angle_to_the_others(turns, monkeypatch):
    angle = torch.tensor(experiment.TURNS[turns]["degrees"])
    gap = (angle[:, None] - angle).double()
    monkeypatch.setattr(experiment, "domain_adjacency", lambda V: gap**2)
    monkeypatch.setattr(experiment, "cosine_similarity", lambda change: 1 - gap.abs() / 100)  # 10 degrees are alike
    monkeypatch.setattr(torch, "cdist", lambda a, b: gap.abs())
    found = experiment.taken("modules", turns, experiment.SETTINGS | {"digits": 80, "clients": 20, "rounds": [1]}, 0)
    near, far = (10, 170) if turns == "rare twins" else (90, 90)
    gaps = {"neighbour": (near, near), "opposite": (far, 180 + near), "other rare": (180, 180)}
    squares = {kind: np.square(two).mean() for kind, two in gaps.items()}
    alike = {f"{kind}, cosine": 1 - np.mean(two) / 100 for kind, two in gaps.items()}
    apart = {f"{kind}, {what} apart": np.mean(two) for kind, two in gaps.items() for what in ("changes", "starts")}
    assert min(found.pop("common, moved"), found.pop("rare, moved")) > 0
    assert found == pytest.approx(squares | alike | apart | {"rule": 1.0, "found": 1.0})
