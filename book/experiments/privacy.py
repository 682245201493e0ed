"""What an update gives away, and what clipping and noise cost.

Preset ``full``: five seeds of 5,000 digits of 14 x 14 pixels. How many of a client's images the server computes from
one update, by the local steps; and the accuracy of softmax
regression by FedAvg on clipped updates with noise, for 50, 200 and 800 clients that share 4,000 images.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedlib
from book.experiments import running
from book.experiments.worlds import by_seed, loss_of, small_digits
from fedlib import Key, Params, Update, local_batches, local_update, models, partition
from fedlib.aggregate import cluster_sums
from fedlib.algorithms import FedAvg
from fedlib.params import broadcast, norm, sub

LIKE = 0.95  # correlation from which an image counts as rebuilt
WIDTH, IMAGES, STEPS = 64, 8, (1, 10)
NOISE, CLIENTS = (0.0, 4.0, 8.0, 16.0), (50, 200, 800)
SHORT = 0.3  # the other clipping length


@dataclass(frozen=True)
class ClippedFedAvg(FedAvg):
    """FedAvg of clipped updates, with noise on their sum; all clients count the same."""

    clip: float = 1.0
    noise: float = 0.0  # standard deviation, in units of `clip`

    def train(self, state: Any, data: fedlib.ClientData, clients: Tensor, key: Key) -> Update:
        """Each client sends its update, shortened to `clip` where it is longer."""
        start = self.client_params(state, clients)
        update = sub(self.local_training(start, data, key).params, start)
        shorter = (self.clip / norm(update)).clamp(max=1)
        sums = cluster_sums(update, torch.zeros_like(clients), shorter, models=1)
        number = torch.full((1,), len(clients), device=clients.device)
        return Update(clients, summed={"update": sums["params"], "clients": number})

    def aggregate(self, state: Any, update: Update) -> Any:
        """The server adds noise to the sum, which is all that it sees, and takes the mean."""
        n, server = update.summed["clients"].double(), torch.tensor([0])
        models = {}
        for name, p in update.summed["update"].items():
            drawn = update.key.normal(server, name, *p.shape[1:]).to(p)  # type: ignore[union-attr]
            models[name] = state.models[name] + ((p + self.noise * self.clip * drawn) / n.to(p)).to(state.models[name])
        return replace(state, models=models)


def ratios(update: Params) -> Tensor:
    """Of each client and hidden unit, the change of its weights over that of its bias: (C, width, inputs)."""
    return update["dense1.weight"] / update["dense1.bias"][..., None]


def likeness(a: Tensor, b: Tensor) -> Tensor:
    """Correlation of each row of a with each of b, over the last axis."""
    a, b = (v - v.mean(-1, keepdim=True) for v in (a, b))
    a, b = (v / v.norm(dim=-1, keepdim=True).clamp(min=1e-12) for v in (a, b))
    return a @ b.mT


def rebuilt(seed: int, steps: int, clients: int) -> float:
    """The share of images that the server computes from the updates of so many clients."""
    x, y = small_digits()
    rows = np.random.RandomState(seed).permutation(len(x))[: clients * IMAGES]
    x, y = x[rows].reshape(clients, IMAGES, -1), y[rows].reshape(clients, IMAGES)
    network = models.MLP((x.shape[-1], WIDTH, 10))
    data = fedlib.stack_clients(list(x), list(y)).to("cpu", torch.float64)
    start = broadcast({n: p.double() for n, p in network.init(seed).items()}, clients)
    batches = local_batches(data, None, steps, Key(seed))
    optimizer = partial(torch.optim.SGD, lr=0.1)
    update = sub(local_update(loss_of(network), start, batches, optimizer).params, start)
    alike = likeness(ratios(update).nan_to_num(0.0, 0.0, 0.0), torch.from_numpy(x).double()).amax(1)
    return float((alike > LIKE).double().mean())


def accuracy(settings: Mapping[str, Any], seed: int, clients: int, algorithm: type = ClippedFedAvg, **more: Any) -> Any:
    """Of a run, on the last 1,000 digits."""
    x, y = small_digits()
    order = np.random.RandomState(seed).permutation(len(x))
    train, test = order[: settings["examples"]], order[settings["examples"] :]
    network = models.MLP((x[0].size, 10))
    data = partition.iid(y[train], clients, seed).clients(x[train], y[train], classes=10)
    held_out = fedlib.stack_clients([x[test]], [y[test]])
    method = algorithm(loss_of(network), predict=network, **settings["local"], **more)
    rounds = settings["rounds"]
    how = {"seed": seed, "eval_data": held_out, "eval_every": rounds, "progress": False}
    end = fedlib.fit(method, network.init(seed), data, rounds, **how)
    return float(end.history["test_accuracy"].iloc[-1])


def one_seed(settings: Mapping[str, Any], seed: int) -> dict[str, dict[str, float]]:
    """Every arm of a seed: arm -> what -> number."""
    found: dict[str, dict[str, float]] = {
        f"{WIDTH} units, {steps} steps, {IMAGES} images": {"images": rebuilt(seed, steps, settings["attacked"])}
        for steps in STEPS
    }
    for clients in CLIENTS:
        arm = {"FedAvg": accuracy(settings, seed, clients, FedAvg)}
        arm |= {f"noise {z:g}": accuracy(settings, seed, clients, noise=z) for z in NOISE}
        found[f"{clients} clients"] = arm
    short = {f"noise {z:g}": accuracy(settings, seed, CLIENTS[0], noise=z, clip=SHORT) for z in NOISE}
    return found | {f"{CLIENTS[0]} clients, clipped at {SHORT}": short}


def measure(settings: Mapping[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Arm -> what -> seed -> number."""
    return by_seed(settings, keep, "all arms", one_seed, settings)


def probe() -> running.Probe:
    """Two clients that are attacked, and two rounds of eight clients with 160 digits."""
    x, y = (part[:160] for part in small_digits())
    network = models.MLP((x[0].size, 10))
    data = partition.iid(y, 8, 0).clients(x, y, classes=10)
    methods = {
        "clipped, with noise": ClippedFedAvg(loss_of(network), predict=network, noise=1.0, epochs=1),
        "clipped": ClippedFedAvg(loss_of(network), predict=network, clip=0.1, epochs=1),
        "FedAvg": FedAvg(loss_of(network), predict=network, epochs=1),
    }
    arms = {name: running.trace(method, network.init(0), data) for name, method in methods.items()}
    return arms | {"rebuilt": [rebuilt(0, 2, 2)]}


SETTINGS = {"examples": 4000, "attacked": 20, "seeds": 5, "seed": 0}
SETTINGS |= {"rounds": 30, "local": {"lr": 0.5, "epochs": 5, "batch_size": None}}
PRESETS = {"full": running.Experiment("privacy", SETTINGS, measure, probe, ("mnist5k",))}
