"""What is averaged in the arms of rare domains."""

from types import SimpleNamespace

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


def test_what_a_rare_domain_takes_is_named_by_its_angle_to_the_others(monkeypatch):
    angle = torch.tensor(experiment.TURNS["rare twins"]["degrees"])
    monkeypatch.setattr(experiment, "domain_adjacency", lambda V: (angle[:, None] - angle).double() ** 2)
    tiny = experiment.SETTINGS | {"digits": 80, "clients": 20, "rounds": [1]}
    monkeypatch.setattr(experiment, "reads", lambda *run: (angle[:, None] - angle).double().abs())
    found = experiment.taken("modules", "rare twins", tiny, 0)
    assert found == {"neighbour": 10**2, "opposite": (170**2 + 190**2) / 2, "other rare": 180**2} | {
        f"{kind}, read": gap for kind, gap in {"neighbour": 10, "opposite": 180, "other rare": 180}.items()
    }


def test_reads_is_the_share_of_a_domain_s_images_with_a_module():
    """Where module j says class j of every image, it is the share of that class."""
    data, _, group = experiment.deal(
        experiment.SETTINGS | {"digits": 200, "clients": 10}, experiment.TURNS["four turns"], 0
    )
    arm = SimpleNamespace(client_params=lambda *_: {}, predict=lambda params, x, w: w)
    for i, shares in enumerate(experiment.reads(arm, None, data, group).tolist()):
        labels = data.y[torch.as_tensor(group == i)][data.real[torch.as_tensor(group == i)]]
        assert shares == pytest.approx([float((labels == j).double().mean()) for j in range(4)])
