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


@pytest.mark.parametrize("method, more", [("alone", {}), ("alone, half the rate", {"lr": 0.15})])
def test_alone_no_means_pull(method, more):
    data, x, *_ = experiment.deal(SETTINGS, 1)
    found = experiment.predictions(method, data, x.double(), 2, 1, **EXACT)
    for first, net in enumerate(experiment.networks()):
        rule = LocalOnly(loss_of(net), **experiment.TRAINING | more)
        state = fedlib.fit(rule, net.init(1), data[first::2], 2, seed=1, **EXACT).state
        for k in range(3):
            params = {name: p[0] for name, p in rule.client_params(state, torch.tensor([k])).items()}
            assert (net(params, x.double()) - found[2 * k + first]).abs().max() < 1e-9


@pytest.mark.parametrize(
    "method, together",
    [
        ("FedProto", [range(6)]),
        ("own design", [range(0, 6, 2), range(1, 6, 2)]),
        ("own prototypes", [[k] for k in range(6)]),
    ],
)
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
    arms = [*experiment.METHODS, *experiment.CONTROLS[:3]]
    for rounds, apart in ((1, False), (2, True)):
        found = [experiment.predictions(m, data, x.double(), rounds, 1, **EXACT) for m in arms]
        gaps = [(a - b).abs().amax((1, 2)) for a, b in combinations(found, 2)]
        assert all(float(gap.min()) > 1e-6 if apart else float(gap.max()) < 1e-9 for gap in gaps)
    assert experiment.who_pulls("other design", 4).int().tolist() == [[0, 1, 0, 1], [1, 0, 1, 0]] * 2


def test_frozen_targets_stay_and_swapped_ones_are_the_next_digits(monkeypatch):
    data, x, *_ = experiment.deal(FEW, 2)
    given, targets = [], experiment.Pulled.targets

    def watch(self, *now):
        target, known = targets(self, *now)
        if self.given is not None:
            assert known.min() == 1 and (target == target[0]).all()
            given.append(target[0])
        return target, known

    monkeypatch.setattr(experiment.Pulled, "targets", watch)
    for method in (experiment.FROZEN, experiment.SWAPPED):
        experiment.predictions(method, data, x.double(), 2, 1, **EXACT)
    right, swapped = given[0], given[2]  # two rounds of each
    assert torch.equal(given[1], right) and torch.equal(given[3], swapped)
    assert torch.equal(swapped[:-1], right[1:]) and torch.equal(swapped[-1], right[0])
    assert torch.pdist(right).min() > 1e-6


def test_turned_targets_keep_distances_and_change_places():
    last = torch.randn(10, 32, generator=torch.Generator().manual_seed(0)).double()
    turned, other = (experiment.targets(experiment.TURNED, last, seed) for seed in (0, 1))
    assert torch.allclose(torch.pdist(turned), torch.pdist(last)) and torch.allclose(turned.mean(0), last.mean(0))
    assert all((torch.cdist(turned, targets) > 1).all() for targets in (last, other))


def test_equidistant_targets_have_the_mean_and_spread_of_the_last_or_one_length():
    last = torch.randn(10, 32, generator=torch.Generator().manual_seed(0)).double() + 3
    common = experiment.targets(experiment.EQUIDISTANT, last, 0)
    assert torch.allclose(common.mean(0), last.mean(0)) and torch.allclose(common.var(0).sum(), last.var(0).sum())
    for name, length in experiment.DRAWN.items():
        alone, other = (experiment.targets(name, last, seed) for seed in (0, 1))
        assert torch.allclose(alone.norm(dim=1), torch.full((10,), float(length)).double())
        assert alone.mean(0).abs().max() < 1e-9 and (alone - other).abs().max() > 0.1
        assert torch.pdist(alone).std() < 1e-9
    assert torch.pdist(common).std() < 1e-9


def test_targets_drawn_alone_differ_from_client_to_client_and_own_ones_are_spread(monkeypatch):
    data, x, *_ = experiment.deal(FEW, 2)
    sent, targets = [], experiment.Pulled.targets
    monkeypatch.setattr(experiment.Pulled, "targets", lambda *now: sent.append(targets(*now)) or sent[-1])
    experiment.predictions("drawn alone, length 1", data, x.double(), 2, 1, **EXACT)
    experiment.predictions(experiment.SPREAD, data, x.double(), 2, 1, **EXACT)
    (drawn, known), _, (_, unknown), (spread, _) = sent
    assert (torch.pdist(drawn.flatten(1)) > 0.1).all() and known.min() == 1 and unknown.max() == 0
    assert torch.allclose(spread.norm(dim=2), torch.ones(()).double()) and torch.pdist(spread.flatten(1)).min() > 1e-6


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
