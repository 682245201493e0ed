"""Clients with a dense or a convolutional network: alone, with FedProto, with penalties, and with averaged weights.

The federations of chapter 13, twenty clients with the two architectures in turn. With preset ``full``, each client has
thirty digits, mostly of three classes (experiment 1); with ``few``, two images of each of the ten digits (experiment
2). The learning rate is 0.3 if an arm names no other. Each client is scored on the test images of its own classes.

In ``full``, clients also train with both penalties; all other controls are in ``few`` alone, after its first number of
rounds. "FedAvg within a design" averages the networks of each architecture, "LG-FedAvg across designs" the last two
layers of all networks. With "own prototypes", each client is a federation with FedProto for itself. With "small
embeddings" or "small outputs", the mean square of these numbers is added to the loss, in place of a pull or to
FedProto's. The pull and both penalties also have a third of the weight, or three times as much. Clients alone,
FedProto, own prototypes and both penalties also train at other rates. That preset takes an hour on one core.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

import fedlib
from book.experiments import running
from book.experiments.worlds import EXACT, ON_CPU, enter, loss_of, seeds_of
from fedlib import ClientData, Key, datasets, models, partition
from fedlib.algorithms import FedProto
from fedlib.client.prototype_net import PrototypeNet
from fedlib.losses import weighted_mean
from fedlib.params import Params

KINDS = "dense", "convolutional"
METHODS = "alone", "FedProto"
EMBEDDINGS, OUTPUTS, OWN = "small embeddings", "small outputs", "own prototypes"
WITHIN, ACROSS = "FedAvg within a design", "LG-FedAvg across designs"
RATES = [f"{m}, rate {r}" for m in (*METHODS, EMBEDDINGS, OUTPUTS, OWN) for r in ("0.03", "0.1", "0.2", "0.4")]
WEIGHTS = f"FedProto, {OUTPUTS}", *(f"{m}, weight {w}" for m in ("FedProto", EMBEDDINGS, OUTPUTS) for w in ("0.3", "3"))
CONTROLS = WITHIN, ACROSS, OWN, EMBEDDINGS, OUTPUTS, *WEIGHTS, *RATES
LAST = [[f"{i}.{kind}" for i in two] for two in (("0.3", "1.9"), ("0.4", "1.10")) for kind in ("weight", "bias")]
TRAINING = {"lr": 0.3, "epochs": 2, "batch_size": 10}
SETTINGS = {"clients": 20, "digits": 30, "test": 400, "rounds": [20, 60], "seed": 100, "seeds": 10}
FEW = {"clients": 20, "each": 2, "test": 400, "rounds": [60, 120], "seed": 100, "seeds": 10}


@dataclass(frozen=True)
class Averaged(FedProto):
    """FedProto, after whose rounds some parameters of all clients become their mean."""

    averaged: Sequence[Sequence[str]] = ()  # names in one or both architectures

    def train_networks(self, local: Params, prototypes: Params, data: ClientData, key: Key) -> tuple[Params, Tensor]:
        """As in FedProto."""
        local, loss = super().train_networks(local, prototypes, data, key)
        for names in self.averaged:
            mean = torch.cat([local[n][local["architecture"][:, int(n[0])] == 1] for n in names]).mean(0)
            local = local | {name: mean.expand_as(local[name]) for name in names}
        return local, loss


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
    test, clients = order[-settings["test"] :], settings["clients"]
    if "each" in settings:  # so many images of each digit
        pool = order[: -settings["test"]]
        dealt = [pool[images.y[pool] == c][: clients * settings["each"]].reshape(clients, -1) for c in range(10)]
        rows = [*np.concatenate(dealt, 1)]
    else:
        train = order[: clients * settings["digits"]]
        own = partition.pathological(images.y[train], clients, shards_per_client=3, seed=seed)
        rows = [train[mine] for mine in own.rows]
    classes = torch.stack([one_hot(torch.tensor(images.y[mine]), 10).any(0) for mine in rows])
    y = torch.tensor(images.y[test])
    data = fedlib.stack_rows(images.x, images.y, rows, classes=10)
    return data, torch.tensor(images.x[test]) / 255, y, classes[:, y]


def loss_in(method: str, net: PrototypeNet, lam: float) -> Any:
    """The loss of an arm without FedProto's pull."""
    plain = loss_of(net)

    def small(params: Params, batch: Any, h: Tensor | None = None) -> Tensor:
        h = net.embed(params, batch[0]) if h is None else h
        size = h if method == EMBEDDINGS else net(params, batch[0], h)
        return plain(params, batch, h) + lam * weighted_mean(size.square().mean(-1), batch[2])

    return small if method.endswith((EMBEDDINGS, OUTPUTS)) else plain


def predictions(method: str, data: ClientData, x: Tensor, rounds: int, seed: int, **how: Any) -> Tensor:
    """What each client's network says of the images (K, images, 10)."""
    if method.startswith(OWN):
        name = method.replace(OWN, METHODS[1])
        return torch.cat([predictions(name, data[[k]], x, rounds, seed, **how) for k in range(len(data))])
    method, _, rate = method.partition(", rate ")
    both, (method, _, weight) = PrototypeNet(networks()), method.partition(", weight ")
    lam, lr = float(weight or 1), float(rate or TRAINING["lr"])
    training = {"net": both, "architecture": (0, 1), **TRAINING, "lr": lr}
    averaged = {WITHIN: [[n] for n in both.init(seed) if "." in n], ACROSS: LAST}.get(method, ())
    pull = lam if method.startswith("FedProto") else 0.0
    rule = Averaged(loss_in(method, both, lam), lam=pull, averaged=averaged, **training)
    end = fedlib.fit(rule, both.init(seed), data, rounds, seed=seed, **how)
    return torch.vmap(both, in_dims=(0, None))(rule.client_params(end.state, torch.arange(len(data))), x)


def scores(method: str, rounds: int, settings: dict[str, Any], seed: int) -> dict[str, float]:
    """The mean accuracy of the clients of each architecture."""
    data, x, y, own = deal(settings, seed)
    right = (predictions(method, data, x, rounds, seed, **ON_CPU).argmax(2) == y) & own
    accuracy = right.sum(1) / own.sum(1)
    return {f"{kind}, {rounds}": round(float(accuracy[k::2].mean()), 4) for k, kind in enumerate(KINDS)}


def measure(
    settings: dict[str, Any], keep: running.Keep, arms: Sequence[str], once: Sequence[str] = ()
) -> dict[str, Any]:
    """Method -> architecture and rounds -> seed; those of `once` after the first number of rounds only."""
    figures: dict[str, Any] = {}
    for method, t in ((m, t) for i, t in enumerate(settings["rounds"]) for m in arms if not i or m not in once):
        for seed in seeds_of(settings):
            found = keep(f"{method}, {t}, {seed}", scores, method, t, settings, seed, arms=(method,))
            enter(figures, seed, {method: found})
    return figures


def probe_of(settings: dict[str, Any], arms: Sequence[str]) -> running.Probe:
    """Two rounds of six clients."""
    data, x, _, own = deal(settings | {"clients": 6, "test": 20}, 0)
    found = {m: predictions(m, data, x.double(), 2, 0, **EXACT) for m in arms}
    return {m: (said.double() * own[..., None]).sum((1, 2)).tolist() for m, said in found.items()}


MANY = partial(probe_of, SETTINGS | {"digits": 10}, (*METHODS, EMBEDDINGS, OUTPUTS))
SOME = partial(probe_of, FEW, (*METHODS, *CONTROLS))
FEW_ARMS = partial(measure, once=CONTROLS)
PRESETS = {
    "full": running.Experiment("different_networks", SETTINGS, measure, MANY, ("digits",), by_arm=True),
    "few": running.Experiment("different_networks_few", FEW, FEW_ARMS, SOME, ("digits",), by_arm=True),
}
