"""Clients with a dense or a convolutional network: each alone, and pulled towards the means of different clients.

The federations of chapter 13, twenty clients with the two architectures in turn. With preset ``full``, each client has
thirty digits, mostly of three classes (experiment 1); with ``few``, two images of each of the ten digits (experiment
2). The learning rate is 0.3 if an arm names no other. Each client is scored on the test images of its own classes.

The controls are in ``few`` alone, after its first number of rounds. "FedAvg within a design" averages the networks of
each architecture, "LG-FedAvg across designs" the last two layers of all networks. A client may be pulled by its "own
prototypes", which if "rescaled" are in each round as far from their mean (root mean square) as FedProto's of that
round. With "small embeddings" or "small outputs", the mean square of these numbers is added to the loss, in place of a
pull or to FedProto's. FedProto and the penalty on outputs also have a third of the weight, or three times as much.
Clients alone, FedProto and both penalties also train at other rates. That preset takes an hour on one core.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
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
from fedlib.params import Params, put

KINDS = "dense", "convolutional"
METHODS = "alone", "FedProto"
OWN, RESCALED, EMBEDDINGS, OUTPUTS = "own prototypes", "own prototypes, rescaled", "small embeddings", "small outputs"
WITHIN, ACROSS = "FedAvg within a design", "LG-FedAvg across designs"
RATES = [f"{m}, rate {r}" for m in (*METHODS, EMBEDDINGS, OUTPUTS) for r in ("0.03", "0.1", "0.2", "0.4")]
WEIGHTS = f"FedProto, {OUTPUTS}", *(f"{m}, weight {w}" for m in ("FedProto", OUTPUTS) for w in ("0.3", "3"))
CONTROLS = WITHIN, ACROSS, OWN, RESCALED, EMBEDDINGS, OUTPUTS, *WEIGHTS, *RATES
LAST = [[f"{i}.{kind}" for i in two] for two in (("0.3", "1.9"), ("0.4", "1.10")) for kind in ("weight", "bias")]
TRAINING = {"lr": 0.3, "epochs": 2, "batch_size": 10}
SETTINGS = {"clients": 20, "digits": 30, "test": 400, "rounds": [20, 60], "seed": 100, "seeds": 10}
FEW = {"clients": 20, "each": 2, "test": 400, "rounds": [60, 120], "seed": 100, "seeds": 10}


@dataclass(frozen=True)
class Pulled(FedProto):
    """FedProto in which each client has targets of its own, the means of some clients.

    With ``of[k, i]`` 1, the means of client i pull client k. The targets of clients that have all classes are rescaled
    about their mean to the next of the `spreads`, or add theirs to `noted`. All clients take part in each round, so
    what they sent in the last one is what their networks say now.
    """

    of: Tensor | None = None
    spreads: Iterator[Tensor] | None = None
    noted: list[Tensor] | None = None
    averaged: Sequence[Sequence[str]] = ()  # parameters of one or both architectures that become their mean

    def targets(self, local: Params, prototypes: Params, data: ClientData) -> tuple[Tensor, Tensor]:
        """Targets (K, Y, h), and 1 for those that pull (K, Y)."""
        mean, count = self.local_prototypes(local, data)
        count = self.of.to(count)[:, :, None] * count * prototypes["known"].amax()  # (K, K, Y); round 1 has none
        total = count.sum(1)
        target = torch.einsum("kiy,iyh->kyh", count, mean) / total.clamp(min=1)[..., None]
        middle = target.mean(1, keepdim=True)
        spread = (target - middle).square().sum(2).mean(1).sqrt()[:, None, None]
        if self.noted is not None:
            self.noted.append(spread)
        if self.spreads is not None and (wanted := next(self.spreads)).min() > 0:
            target = middle + (target - middle) * wanted / spread
        return target, (total > 0).to(mean)

    def train_networks(self, local: Params, prototypes: Params, data: ClientData, key: Key) -> tuple[Params, Tensor]:
        """As in FedProto."""
        sent = dict(zip(("prototype", "known"), self.targets(local, prototypes, data), strict=True))
        loss = sent["known"].new_zeros(len(data))
        for place, own in self._by_architecture(local):
            pull = {name: p[place] for name, p in sent.items()}
            end = self.local_training(own, data[place], key, (pull,), self.pulled_loss)
            local = local | put({name: local[name] for name in own}, place, end.params)
            loss = put(loss, place, end.loss)
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


def who_pulls(method: str, clients: int) -> Tensor:
    """For each client, 1 for those whose class means pull it (K, K); none pulls a client alone."""
    own = torch.eye(clients) * (method in (OWN, RESCALED))
    return torch.ones(clients, clients) if method.startswith("FedProto") else own


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
    method, _, rate = method.partition(", rate ")
    both, (method, _, weight) = PrototypeNet(networks()), method.partition(", weight ")
    lam, lr = float(weight or 1), float(rate or TRAINING["lr"])
    training = {"net": both, "architecture": (0, 1), **TRAINING, "lr": lr, "lam": lam}
    training["averaged"] = {WITHIN: [[n] for n in both.init(seed) if "." in n], ACROSS: LAST}.get(method, ())
    rule = Pulled(loss_in(method, both, lam), of=who_pulls(method, len(data)), **training)
    if method == RESCALED:
        federated = replace(rule, of=who_pulls("FedProto", len(data)), noted=[])
        fedlib.fit(federated, both.init(seed), data, rounds, seed=seed, **how)
        rule = replace(rule, spreads=iter(federated.noted))
    end = fedlib.fit(rule, both.init(seed), data, rounds, seed=seed, **how)
    return torch.vmap(both, in_dims=(0, None))(rule.client_params(end.state, torch.arange(len(data))), x)


def scores(method: str, rounds: int, settings: dict[str, Any], seed: int) -> dict[str, float]:
    """The mean accuracy of the clients of each architecture."""
    data, x, y, own = deal(settings, seed)
    right = (predictions(method, data, x, rounds, seed, **ON_CPU).argmax(2) == y) & own
    accuracy = right.sum(1) / own.sum(1)
    return {f"{kind}, {rounds}": round(float(accuracy[k::2].mean()), 4) for k, kind in enumerate(KINDS)}


def measure(settings: dict[str, Any], keep: running.Keep, arms: Sequence[str]) -> dict[str, Any]:
    """Method -> architecture and rounds -> seed."""
    figures: dict[str, Any] = {}
    for method, t in ((m, t) for i, t in enumerate(settings["rounds"]) for m in arms if not i or m not in CONTROLS):
        for seed in seeds_of(settings):
            found = keep(f"{method}, {t}, {seed}", scores, method, t, settings, seed, arms=(method,))
            enter(figures, seed, {method: found})
    return figures


def probe_of(settings: dict[str, Any], arms: Sequence[str]) -> running.Probe:
    """Two rounds of six clients."""
    data, x, _, own = deal(settings | {"clients": 6, "test": 20}, 0)
    found = {m: predictions(m, data, x.double(), 2, 0, **EXACT) for m in arms}
    return {m: (said.double() * own[..., None]).sum((1, 2)).tolist() for m, said in found.items()}


MANY, SOME = partial(probe_of, SETTINGS | {"digits": 10}, METHODS), partial(probe_of, FEW, (*METHODS, *CONTROLS))
PRESETS = {
    "full": running.Experiment("different_networks", SETTINGS, measure, MANY, ("digits",), by_arm=True),
    "few": running.Experiment("different_networks_few", FEW, measure, SOME, ("digits",), by_arm=True),
}
