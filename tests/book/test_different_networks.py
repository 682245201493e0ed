"""Clients of two architectures: who is trained with whom, and on which images a client is scored."""

from itertools import combinations

import numpy as np
import pytest
import torch

import fedlib
from book.experiments import different_networks as experiment
from book.experiments.worlds import EXACT, loss_of
from fedlib.algorithms import FedAvg, FineTunedFedAvg, LocalOnly

SETTINGS = experiment.SETTINGS | {"clients": 6, "digits": 20, "test": 30}


@pytest.mark.parametrize(
    "method, kind, more",
    [
        ("alone", LocalOnly, {}),
        ("alone, half the rate", LocalOnly, {"lr": 0.15}),
        ("FedAvg by architecture", FedAvg, {}),
        ("FedAvg by architecture, fine-tuned", FineTunedFedAvg, {"fedavg_rounds": 1, "finetune_epochs": 2}),
    ],
)
def test_a_client_trains_with_none_or_with_those_of_its_architecture(method, kind, more):
    data, x, *_ = experiment.deal(SETTINGS, 1)
    found = experiment.predictions(method, data, x.double(), 2, 1, **EXACT)
    for first, net in enumerate(experiment.networks()):
        rule = kind(loss_of(net), **experiment.TRAINING | more)
        state = fedlib.fit(rule, net.init(1), data[first::2], 2, seed=1, **EXACT).state
        for k in range(3):
            params = {name: p[0] for name, p in rule.client_params(state, torch.tensor([k])).items()}
            assert (net(params, x.double()) - found[2 * k + first]).abs().max() < 1e-9


def test_each_pull_is_another():
    """To nothing, all prototypes, one's own, or those of an architecture or of dense clients; round 1 has none."""
    data, x, *_ = experiment.deal(SETTINGS, 2)  # each shares a class with one of its architecture
    for rounds, apart in ((1, False), (2, True)):
        found = [experiment.predictions(m, data, x.double(), rounds, 1, **EXACT) for m in experiment.METHODS[:5]]
        assert (found[3] - found[4])[::2].abs().max() < 1e-9, "dense clients are of one architecture"
        gaps = [(found[i] - found[j]).abs().amax((1, 2))[1::2] for i, j in combinations(range(5), 2)]
        gaps += [(found[i] - found[j]).abs().amax((1, 2))[::2] for i, j in combinations(range(4), 2)]
        assert all(float(gap.min()) > 1e-6 if apart else float(gap.max()) < 1e-9 for gap in gaps)


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
