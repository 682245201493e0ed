"""Clients with a dense or a convolutional network: each alone, FedProto, and FedAvg among those with equal networks.

The federation of chapter 13, experiment 1: twenty clients with thirty digits each, mostly of three classes, have the
two architectures in turn. The learning rate is 0.3 for all. Each client is scored on the test images of its own
classes, after 20 rounds as in the chapter, and after 60. With "own prototypes", a client is pulled as by FedProto, but
towards the means of its own images, with "FedProto by architecture" towards those of its architecture, and with
"FedProto from dense" towards those of the dense clients, which for dense clients is the same as before. After 20
rounds, clients alone are also scored with half and with twice the rate. Where FedAvg's model is fine-tuned, the last
round's epochs are each client's own. Preset ``full`` takes a quarter of an hour on one core.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

import fedlib
from book.experiments import running
from book.experiments.worlds import EXACT, ON_CPU, enter, loss_of, seeds_of
from fedlib import ClientData, datasets, models, partition
from fedlib.algorithms import FedAvg, FedProto, FineTunedFedAvg
from fedlib.client.prototype_net import PrototypeNet
from fedlib.params import Params

KINDS = "dense", "convolutional"
TUNED = "FedAvg by architecture, fine-tuned"
RATES = {"alone, half the rate": 0.15, "alone, twice the rate": 0.6}
PULLED = "FedProto", "own prototypes", "FedProto by architecture", "FedProto from dense"
METHODS = "alone", *PULLED, "FedAvg by architecture", TUNED, *RATES
TRAINING = {"lr": 0.3, "epochs": 2, "batch_size": 10}
SETTINGS = {"clients": 20, "digits": 30, "test": 400, "rounds": [20, 60], "seed": 100, "seeds": 10}


class FromDense(FedProto):
    """FedProto in which the prototypes of dense clients alone count for the global ones."""

    def local_prototypes(self, local: Params, data: ClientData) -> tuple[Tensor, Tensor]:
        """As in FedProto, but convolutional clients send that they have no images."""
        mean, count = super().local_prototypes(local, data)
        return mean, count * local["architecture"][:, :1]


def networks() -> tuple[models.Model, ...]:
    """The dense and the convolutional network, both with an embedding of 32 numbers."""
    ends = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.Linear(32, 10))
    conv = [nn.Conv2d(1, 8, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()]
    conv += [nn.Conv2d(8, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()]
    return models.Model(ends), models.Model(nn.Sequential(*conv, *deepcopy(ends)))


def deal(settings: dict[str, Any], seed: int) -> tuple[ClientData, Tensor, Tensor, Tensor]:
    """The clients, the test images with their labels, and which of these are of a client's own classes (K, images)."""
    images = datasets.load("digits")
    order = np.random.RandomState(seed).permutation(len(images.y))
    train, test = order[: settings["clients"] * settings["digits"]], order[-settings["test"] :]
    labels = images.y[train]
    own = partition.pathological(labels, settings["clients"], shards_per_client=3, seed=seed)
    classes = torch.stack([one_hot(torch.tensor(labels[rows]), 10).any(0) for rows in own.rows])
    y = torch.tensor(images.y[test])
    return own.clients(images.x[train], labels, classes=10), torch.tensor(images.x[test]) / 255, y, classes[:, y]


def predictions(method: str, data: ClientData, x: Tensor, rounds: int, seed: int, **how: Any) -> Tensor:
    """What each client's network says of the images, of shape (K, images, 10)."""
    said = x.new_empty(len(data), len(x), 10)
    if method in ("own prototypes", "FedProto by architecture"):  # a federation of each client or architecture
        step = len(data) if method == "own prototypes" else 2
        for first in range(step):
            said[first::step] = predictions("FedProto", data[first::step], x, rounds, seed, **how)
        return said
    nets = networks()
    if method in ("FedAvg by architecture", TUNED):
        for kind, net in enumerate(nets):
            rule = FedAvg(loss_of(net), **TRAINING)
            if method == TUNED:
                epochs = TRAINING["epochs"]
                rule = FineTunedFedAvg(loss_of(net), fedavg_rounds=rounds - 1, finetune_epochs=epochs, **TRAINING)
            end = fedlib.fit(rule, net.init(seed), data[kind::2], rounds, seed=seed, **how)
            params = rule.client_params(end.state, torch.arange(len(data[kind::2])))
            said[kind::2] = torch.vmap(net, in_dims=(0, None))(params, x)
        return said
    both = PrototypeNet(nets)
    training = TRAINING | {"lr": RATES.get(method, TRAINING["lr"])}
    kind = FromDense if method == "FedProto from dense" else FedProto
    rule = kind(loss_of(both), net=both, architecture=(0, 1), lam=float(method in PULLED), **training)
    end = fedlib.fit(rule, both.init(seed), data, rounds, seed=seed, **how)
    return torch.vmap(both, in_dims=(0, None))(rule.client_params(end.state, torch.arange(len(data))), x)


def scores(method: str, rounds: int, settings: dict[str, Any], seed: int) -> dict[str, float]:
    """The mean accuracy of the clients of each architecture."""
    data, x, y, own = deal(settings, seed)
    right = (predictions(method, data, x, rounds, seed, **ON_CPU).argmax(2) == y) & own
    accuracy = right.sum(1) / own.sum(1)
    return {f"{kind}, {rounds}": round(float(accuracy[k::2].mean()), 4) for k, kind in enumerate(KINDS)}


def measure(settings: dict[str, Any], keep: running.Keep, arms: Sequence[str]) -> dict[str, Any]:
    """Method -> architecture and rounds -> seed; the other rates after the first number of rounds alone."""
    figures: dict[str, Any] = {}
    for t in settings["rounds"]:
        for method in arms:
            if method in RATES and t != settings["rounds"][0]:
                continue
            for seed in seeds_of(settings):
                found = keep(f"{method}, {t}, {seed}", scores, method, t, settings, seed, arms=(method,))
                enter(figures, seed, {method: found})
    return figures


def probe() -> running.Probe:
    """Two rounds of six clients."""
    data, x, _, own = deal(SETTINGS | {"clients": 6, "digits": 10, "test": 20}, 0)
    found = {m: predictions(m, data, x.double(), 2, 0, **EXACT) for m in METHODS}
    return {m: (said.double() * own[..., None]).sum((1, 2)).tolist() for m, said in found.items()}


PRESETS = {"full": running.Experiment("different_networks", SETTINGS, measure, probe, ("digits",), by_arm=True)}
