"""What a federation may do with batch normalisation: average it, keep it with the clients, do without.

Preset ``full``: twenty clients share 4,000 digits of 14 x 14 pixels, once with label skew (Dirichlet, alpha .3), and
once with a style each (plain, inverted, noisy, low in contrast), which is a shift of the features. Two convolutions,
each normalised or not, and a dense layer; 60 rounds of two epochs; a rate for each arm by validation rows of another
seed; five seeds. An hour on one core.

Running statistics are no parameters that SGD trains. Here they are part of the model that a client sends: after its
epochs, a client measures mean and variance of each layer over all its rows. "Averaged" means that the server takes the
mean of these as of all other parameters, "at home" that each client keeps them and the two parameters of the
normalisation (FedBN, Li et al. 2021), and "of the batch" that there are none, so that a client's test rows are
normalised by their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import fedlib
from book.experiments import running
from book.experiments.worlds import EXACT, Rows, by_seed, rounded, small_digits
from fedlib import ClientData, Key, Params, models, partition
from fedlib.algorithms import FedAvg, LGFedAvg
from fedlib.local import Trained
from fedlib.losses import cross_entropy

CHANNELS, SIDE, EPS = (8, 16), 14, 1e-5
ARMS = {  # normalisation, and whether it stays with the client
    "none": ("none", False),
    "GroupNorm": ("group", False),
    "BatchNorm, averaged": ("batch", False),
    "BatchNorm, at home": ("batch", True),
    "BatchNorm, of the batch": ("own", False),
}
KINDS = ("label skew", "styles")
SETTINGS: dict[str, Any] = {"clients": 20, "rounds": 60, "local": {"epochs": 2, "batch_size": 20}}
SETTINGS |= {"rates": [0.03, 0.1, 0.3, 1.0], "seed that chooses": 9, "seed": 0, "seeds": 5}


@dataclass(frozen=True)
class Network:
    """Two convolutions that halve the image, each normalised in a way, and a dense layer."""

    norm: str

    def init(self, seed: int) -> Params:
        """Random start; gamma and variance 1, beta and mean 0."""
        plain = models.CNN((1, SIDE, SIDE), CHANNELS, (10,), 3, 1).init(seed)
        plain |= models.MLP((CHANNELS[-1] * (SIDE // 4 + 1) ** 2, 10)).init(seed)
        trained = {} if self.norm == "none" else {"gamma": 1.0, "beta": 0.0}
        record = {"var": 1.0, "mean": 0.0} if self.norm == "batch" else {}
        for n, channels in enumerate(CHANNELS, 1):
            plain |= {f"norm{n}.{name}": torch.full((channels,), value) for name, value in (trained | record).items()}
        return plain

    def forward(self, params: Params, x: Tensor, real: Tensor | None = None) -> tuple[Tensor, Params]:
        """Logits, and what was measured of the rows with ``real != 0``; without `real`, by the statistics kept."""
        measured = {}
        for n in (1, 2):
            z = F.conv2d(x, params[f"conv{n}.weight"], params[f"conv{n}.bias"], stride=2, padding=1)
            own = {name: params.get(f"norm{n}.{name}") for name in ("gamma", "beta", "mean", "var")}
            if self.norm == "group":
                z = F.group_norm(z, 4, own["gamma"], own["beta"], EPS)
            elif self.norm != "none":
                mean, var = own["mean"], own["var"]
                if real is not None or self.norm == "own":
                    w = z.new_ones(len(z)) if real is None else (real != 0).to(z)
                    share = (w / (w.sum().clamp(min=1) * z[0, 0].numel()))[:, None, None, None]
                    mean = (z * share).sum((0, 2, 3))
                    var = ((z - mean[:, None, None]).square() * share).sum((0, 2, 3))
                    measured |= {f"norm{n}.mean": mean, f"norm{n}.var": var}
                scale = own["gamma"] / (var + EPS).sqrt()
                z = (z - mean[:, None, None]) * scale[:, None, None] + own["beta"][:, None, None]
            x = z.relu()
        return F.linear(x.flatten(1), params["dense1.weight"], params["dense1.bias"]), measured

    def __call__(self, params: Params, x: Tensor) -> Tensor:
        """Logits by the statistics kept."""
        return self.forward(params, x)[0]


class Measured:
    """After its epochs a client measures the statistics over all its rows: ``class A(Measured, FedAvg)``."""

    def local_training(self, params: Params, data: ClientData, key: Key, *more: Any) -> Trained:
        """As the algorithm's, and then the statistics."""
        end: Trained = super().local_training(params, data, key, *more)  # type: ignore[misc]
        network: Network = self.predict  # type: ignore[attr-defined]
        if network.norm != "batch":
            return end
        x, _, real = data.all_rows(next(iter(params.values())).dtype)
        seen = torch.vmap(lambda p, x, real: network.forward(p, x, real)[1])(end.params, x, real)
        return replace(end, ends={**end.params, **seen})


class MeasuredFedAvg(Measured, FedAvg):
    """FedAvg, statistics included."""


class MeasuredLGFedAvg(Measured, LGFedAvg):
    """The normalisation stays with the client."""


def method(arm: str, rate: float, local: Mapping[str, Any]) -> FedAvg | LGFedAvg:
    """The algorithm of an arm."""
    norm, at_home = ARMS[arm]
    network = Network(norm)

    def loss(params: Params, batch: Any) -> Tensor:
        x, y, w = batch
        return cross_entropy(network.forward(params, x, w)[0], y, w)

    how = {"lr": rate, "predict": network, **local}
    return MeasuredLGFedAvg(loss, local=("norm1", "norm2"), **how) if at_home else MeasuredFedAvg(loss, **how)


def world(kind: str, clients: int, seed: int, x: np.ndarray, y: np.ndarray) -> dict[str, ClientData]:
    """Rows to train, to choose rates by, and to test; and the test with all digits, seen as each client sees them."""
    held = np.random.RandomState(seed).permutation(len(y))[: len(y) // 5]
    rest = np.setdiff1d(np.arange(len(y)), held)
    if kind == "label skew":
        dealt = partition.dirichlet(y[rest], clients, alpha=0.3, seed=seed, min_rows=10)
    else:
        dealt = partition.style(partition.iid(y[rest], clients, seed), seed=seed)
    names = ("train", "validation", "own digits")
    parts = {n: p.clients(x[rest], y[rest], classes=10) for n, p in zip(names, dealt.split(seed=seed), strict=True)}
    return parts | {"all digits": dealt.tests(x[held], y[held], classes=10)}


def accuracy(algorithm: FedAvg | LGFedAvg, state: Any, data: ClientData) -> float:
    """Mean over clients; a client's rows are one batch."""
    network: Network = algorithm.predict  # type: ignore[assignment]
    params = algorithm.client_params(state, torch.arange(len(data), device=data.n.device))
    x, y, real = data.all_rows(next(iter(params.values())).dtype)
    by_batch = network.norm == "own"
    answers = torch.vmap(lambda p, x, w: network.forward(p, x, w if by_batch else None)[0])(params, x, real)
    right = ((answers.argmax(-1) == y) & (real > 0)).sum(1)
    return float((right / real.sum(1)).mean())


def run(arm: str, kind: str, settings: Mapping[str, Any], rate: float, seed: int) -> Rows:
    """The scores of a run; 0 where it diverges."""
    here = world(kind, settings["clients"], seed, *small_digits())
    algorithm = method(arm, rate, settings["local"])
    start = Network(ARMS[arm][0]).init(seed)
    try:
        end = fedlib.fit(algorithm, start, here["train"], settings["rounds"], seed=seed, progress=False)
    except FloatingPointError:
        return {f"{kind}: {arm}": dict.fromkeys(("validation", "own digits", "all digits"), 0.0)}
    sets = {name: here[name].to(end.ids.device) for name in ("validation", "own digits", "all digits")}
    return rounded({f"{kind}: {arm}": {name: accuracy(algorithm, end.state, data) for name, data in sets.items()}})


def measure(settings: Mapping[str, Any], keep: running.Keep, arms: list[str]) -> dict[str, Any]:
    """Kind and arm -> score -> seed, and the rate."""
    figures: dict[str, Any] = {}
    for kind, arm in product(KINDS, arms):
        one, seed = f"{kind}: {arm}", settings["seed that chooses"]
        tried = {r: keep(f"{one} at {r}", run, arm, kind, settings, r, seed, arms=[arm]) for r in settings["rates"]}
        best = max(tried, key=lambda rate: tried[rate][one]["validation"])
        scores = by_seed(settings, keep, one, run, arm, kind, settings, best, arms=[arm])
        figures[one] = {"rate": best} | scores[one]
    return figures


def probe() -> running.Probe:
    """Two rounds of every arm with eight clients with styles, and their scores."""
    here, found = world("styles", 8, 0, *(part[:200] for part in small_digits())), {}
    for arm, (norm, _) in ARMS.items():
        algorithm = method(arm, 0.1, SETTINGS["local"])
        end = fedlib.fit(algorithm, Network(norm).init(0), here["train"], 2, **EXACT)
        found[arm] = [*running.numbers_of(algorithm, end), accuracy(algorithm, end.state, here["own digits"])]
    return found


PRESETS = {"full": running.Experiment("normalisation", SETTINGS, measure, probe, ("mnist5k",), by_arm=True)}
