"""Clients of two architectures: what an arm trains with, and on which images a client is scored."""

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


@pytest.mark.parametrize("arm, lam", [("FedProto", 1.0), ("FedProto, weight 3", 3.0)])
def test_the_pull_is_fedprotos(arm, lam):
    data, x, *_ = experiment.deal(FEW, 2)
    both = PrototypeNet(experiment.networks())
    rule = FedProto(loss_of(both), net=both, architecture=(0, 1), lam=lam, **experiment.TRAINING)
    state = fedlib.fit(rule, both.init(1), data, 3, seed=1, **EXACT).state
    said = torch.vmap(both, in_dims=(0, None))(rule.client_params(state, torch.arange(6)), x.double())
    assert (said - experiment.predictions(arm, data, x.double(), 3, 1, **EXACT)).abs().max() < 1e-9


@pytest.mark.parametrize("averaged", [experiment.LAST, [["0.1.weight"], ["1.0.bias"]]])
def test_parameters_of_one_or_both_designs_become_their_mean(averaged):
    data, *_ = experiment.deal(FEW, 2)
    both = PrototypeNet(experiment.networks())
    how = {"net": both, "architecture": (0, 1), "lam": 0.0, **experiment.TRAINING}
    rules = [experiment.Averaged(loss_of(both), averaged=names, **how) for names in ((), averaged)]
    before, after = (fedlib.fit(rule, both.init(1), data, 1, seed=1, **EXACT).state.local for rule in rules)
    for names in averaged:
        mean = torch.cat([before[name][int(name[0]) :: 2] for name in names]).mean(0)
        assert all((after[name] - mean).abs().max() < 1e-12 for name in names)
    assert (after["0.1.bias"] == before["0.1.bias"]).all()


def test_each_arm_is_another():
    """Round 1 has no prototypes, so nothing pulls."""
    data, x, *_ = experiment.deal(FEW, 2)
    for rounds, alike in ((1, set(combinations((*experiment.METHODS, experiment.OWN), 2))), (2, set())):
        arms = (*experiment.METHODS, *experiment.CONTROLS[:5])
        found = {m: experiment.predictions(m, data, x.double(), rounds, 1, **EXACT) for m in arms}
        assert {(a, b) for a, b in combinations(arms, 2) if (found[a] - found[b]).abs().max() < 1e-6} == alike


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
