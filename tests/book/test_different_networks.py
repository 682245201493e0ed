"""Clients of two architectures: whose means pull whom, and on which images a client is scored."""

from itertools import combinations

import numpy as np
import pytest
import torch

import fedlib
from book.experiments import different_networks as experiment
from book.experiments.worlds import EXACT, loss_of
from fedlib.algorithms import FedProto, LocalOnly
from fedlib.client.prototype_net import PrototypeNet

SETTINGS = experiment.SETTINGS | {"clients": 6, "digits": 20, "test": 30}
FEW = experiment.FEW | {"clients": 6, "test": 30}


@pytest.mark.parametrize("arm, lr", [("alone", 0.3), ("alone, half the rate", 0.15), ("small outputs, weight 3", 0.3)])
def test_alone_no_means_pull(arm, lr):
    def loss(params, batch):
        said, square = net(params, batch[0]), torch.tensor(3.0 * arm.startswith("small outputs"))
        return loss_of(net)(params, batch) + square * (said.square().mean(1) * batch[2]).sum() / batch[2].sum()

    data, x, *_ = experiment.deal(SETTINGS, 1)
    found = experiment.predictions(arm, data, x.double(), 2, 1, **EXACT)
    for first, net in enumerate(experiment.networks()):
        rule = LocalOnly(loss, **experiment.TRAINING | {"lr": lr})
        state = fedlib.fit(rule, net.init(1), data[first::2], 2, seed=1, **EXACT).state
        for k in range(3):
            params = {name: p[0] for name, p in rule.client_params(state, torch.tensor([k])).items()}
            assert (net(params, x.double()) - found[2 * k + first]).abs().max() < 1e-9


@pytest.mark.parametrize("method, together", [("FedProto", [range(6)]), ("own prototypes", [[k] for k in range(6)])])
def test_pulls_are_those_of_fedproto_among_fewer_clients(method, together):
    data, x, *_ = experiment.deal(FEW, 2)
    found = experiment.predictions(method, data, x.double(), 3, 1, **EXACT)
    both = PrototypeNet(experiment.networks())
    rule = FedProto(loss_of(both), net=both, architecture=(0, 1), **experiment.TRAINING)
    for ids in map(list, together):
        state = fedlib.fit(rule, both.init(1), data[ids], 3, seed=1, **EXACT).state
        params = rule.client_params(state, torch.arange(len(ids)))
        assert (torch.vmap(both, in_dims=(0, None))(params, x.double()) - found[ids]).abs().max() < 1e-9


def test_each_pull_is_another():
    """Round 1 has no targets, except frozen ones."""
    data, x, *_ = experiment.deal(FEW, 2)
    arms = [*experiment.METHODS, *experiment.CONTROLS[:4]]
    for rounds, apart in ((1, False), (2, True)):
        found = [experiment.predictions(m, data, x.double(), rounds, 1, **EXACT) for m in arms]
        gaps = [(a - b).abs().amax((1, 2)) for a, b in combinations(found, 2)]
        assert all(float(gap.min()) > 1e-6 if apart else float(gap.max()) < 1e-9 for gap in gaps)
    assert experiment.who_pulls("other design", 4).int().tolist() == [[0, 1, 0, 1], [1, 0, 1, 0]] * 2


@pytest.fixture
def sent(monkeypatch):
    """What pulls the clients in each round, and whether it does."""
    found, targets = [], experiment.Pulled.targets
    monkeypatch.setattr(experiment.Pulled, "targets", lambda *now: found.append(targets(*now)) or found[-1])
    return found


def rounds_of(method, sent, rounds=2):
    data, x, *_ = experiment.deal(FEW, 2)
    experiment.predictions(method, data, x.double(), rounds, 1, **EXACT)
    found = sent[-rounds:]
    sent.clear()
    return found


def test_fixed_targets_stay_and_pull_from_the_first_round_on(sent):
    fixed = {}
    for method in (experiment.FROZEN, experiment.SWAPPED, experiment.DRAWN, experiment.ZERO):
        (fixed[method], known), (later, _) = rounds_of(method, sent)
        assert known.min() == 1 and torch.equal(fixed[method], later)
    frozen, swapped, drawn, zero = fixed.values()
    assert torch.allclose(swapped, frozen.roll(-1, 1)) and torch.pdist(frozen[0]).min() > 1e-6
    assert (frozen == frozen[0]).all() and not zero.any()
    assert (torch.pdist(drawn.flatten(1)) > 0.1).all(), "each client draws its own"
    assert torch.allclose(drawn.norm(dim=2), torch.ones(()).double(), atol=1e-6) and drawn.mean(1).abs().max() < 1e-6
    assert torch.pdist(drawn[0]).std() < 1e-6


def test_short_and_long_own_means_are_own_means_stretched(sent):
    _, (own, _) = rounds_of("own prototypes", sent)
    for method, scale in experiment.SCALES.items():
        (_, known), (stretched, _) = rounds_of(method, sent)
        assert known.max() == 0, "round 1 has no means"
        away, before = (t - t.mean(1, keepdim=True) for t in (stretched, own))
        assert torch.allclose(stretched.mean(1), own.mean(1))
        assert torch.allclose(away.square().sum(2).mean(1).sqrt(), torch.tensor(scale).double())
        assert torch.allclose(torch.nn.functional.normalize(away, dim=2), torch.nn.functional.normalize(before, dim=2))


def test_few_images_of_each_digit():
    data, *_ = experiment.deal(FEW, 3)
    for k, labels in enumerate(data.y):
        assert np.bincount(labels[: data.n[k]], minlength=10).tolist() == [2] * 10
    x, *_ = data.all_rows(torch.float64)
    assert len(x.flatten(2).flatten(0, 1).unique(dim=0)) == 120, "no image is dealt twice"


def test_scores_count_images_of_own_classes_and_clients_of_one_architecture(monkeypatch):
    data, x, y, own = experiment.deal(SETTINGS, 2)
    for k, row in enumerate(data.y):
        held = set(row[: data.n[k]].tolist())
        assert own[k].tolist() == [c in held for c in y.tolist()]
    answers = torch.randn(6, len(x), 10, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(experiment, "predictions", lambda *_, **__: answers)
    shares = [np.mean([answers[k, i].argmax() == y[i] for i in range(len(x)) if own[k, i]]) for k in range(6)]
    found = experiment.scores("alone", 7, SETTINGS, 2)
    assert found["dense, 7"] == pytest.approx(np.mean(shares[0::2]), abs=1e-4)
    assert found["convolutional, 7"] == pytest.approx(np.mean(shares[1::2]), abs=1e-4)
