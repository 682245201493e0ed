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


@pytest.mark.parametrize("arm", ["alone", "alone, rate 0.4", "small outputs, weight 3", "small embeddings"])
def test_alone_no_means_pull(arm):
    def loss(params, batch):
        x, _, w = batch
        size, lam = {"small outputs, weight 3": (net(params, x), 3.0), "small embeddings": (embed(params, x), 1.0)}.get(
            arm, (x.flatten(1), 0.0)
        )
        return loss_of(net)(params, batch) + lam * (size.square().mean(1) * w).sum() / w.sum()

    def embed(params, x):
        return PrototypeNet((net,)).embed({f"0.{name}": p for name, p in params.items()}, x)

    data, x, *_ = experiment.deal(SETTINGS, 1)
    found = experiment.predictions(arm, data, x.double(), 2, 1, **EXACT)
    lr = 0.4 if arm.endswith("rate 0.4") else 0.3
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


@pytest.mark.parametrize("averaged", [experiment.LAST, [["0.1.weight"], ["1.0.bias"]]])
def test_parameters_of_one_or_both_designs_become_their_mean(averaged):
    data, *_ = experiment.deal(FEW, 2)
    both, alone = PrototypeNet(experiment.networks()), torch.zeros(6, 6)
    how = {"net": both, "architecture": (0, 1), "lam": 0.0, "of": alone, **experiment.TRAINING}
    rules = [experiment.Pulled(loss_of(both), averaged=names, **how) for names in ((), averaged)]
    before, after = (fedlib.fit(rule, both.init(1), data, 1, seed=1, **EXACT).state.local for rule in rules)
    for names in averaged:
        mean = torch.cat([before[name][int(name[0]) :: 2] for name in names]).mean(0)
        assert all((after[name] - mean).abs().max() < 1e-12 for name in names)
    assert (after["0.1.bias"] == before["0.1.bias"]).all()


def test_each_pull_is_another():
    """Round 1 has no targets."""
    data, x, *_ = experiment.deal(FEW, 2)
    arms = [*experiment.METHODS, experiment.OWN, experiment.RESCALED]
    for rounds, apart in ((1, False), (2, True)):
        found = [experiment.predictions(m, data, x.double(), rounds, 1, **EXACT) for m in arms]
        gaps = [(a - b).abs().amax((1, 2)) for a, b in combinations(found, 2)]
        assert all(float(gap.min()) > 1e-6 if apart else float(gap.max()) < 1e-9 for gap in gaps)


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


def test_rescaled_own_means_are_as_far_apart_as_fedprotos(sent):
    def spread(targets):
        return (targets - targets.mean(1, keepdim=True)).square().sum(2).mean(1).sqrt()

    _, (fedprotos, _) = rounds_of("FedProto", sent)
    _, (own, _) = rounds_of(experiment.OWN, sent)
    (_, known), (rescaled, _) = rounds_of(experiment.RESCALED, sent)
    assert known.max() == 0, "round 1 has no means"
    assert torch.allclose(spread(rescaled), spread(fedprotos)) and not torch.allclose(spread(own), spread(fedprotos))
    assert torch.allclose(rescaled.mean(1), own.mean(1))
    away, before = (torch.nn.functional.normalize(t - t.mean(1, keepdim=True), dim=2) for t in (rescaled, own))
    assert torch.allclose(away, before)


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
