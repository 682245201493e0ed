"""Tables of figures, losses, data and variants that several experiments share; it is no experiment itself."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from book.experiments.running import ROOT
from fedlib import ClientData, Key, datasets, local_batches, local_update
from fedlib.checks import whole
from fedlib.losses import cross_entropy, mse
from fedlib.params import Params, number_of_rows
from fedlib.server.domain_graph import DomainGCN, glorot

Rows = dict[str, dict[str, float]]  # row of the figures -> score -> number

ON_CPU: dict[str, Any] = {"device": "cpu", "progress": False}  # for `fedlib.fit`
EXACT = ON_CPU | {"dtype": torch.float64}  # how probes are run

# ---- figures ----


def seeds_of(settings: Mapping[str, Any]) -> Sequence[int]:
    """Those that the settings name, or as many as they say from the first one on."""
    seeds = settings["seeds"]
    return seeds if isinstance(seeds, list) else range(settings["seed"], settings["seed"] + seeds)


def enter(figures: dict[str, Any], seed: int, rows: Mapping[str, Mapping[str, Any]], digits: int | None = None) -> None:
    """Put the rows of a seed among the figures: row -> score -> seed -> number."""
    for row, scores in rows.items():
        for score, value in scores.items():
            value = value if digits is None else round(value, digits)
            figures.setdefault(row, {}).setdefault(score, {})[str(seed)] = value


def by_seed(settings: Any, keep: Any, part: str, one: Any, *args: Any, digits: int = 4, **how: Any) -> dict[str, Any]:
    """Row -> score -> seed of ``one(*args, seed)``; of each seed the rows are a part that is kept."""
    figures: dict[str, Any] = {}
    for seed in seeds_of(settings):
        enter(figures, seed, keep(f"{part}, seed {seed}", one, *args, seed, **how), digits)
    return figures


def rounded(rows: Mapping[str, Mapping[str, Any]], digits: int = 4) -> Rows:
    """Numbers as JSON can hold them."""
    return {row: {score: round(float(v), digits) for score, v in scores.items()} for row, scores in rows.items()}


# ---- runs ----


@contextmanager
def quiet() -> Iterator[None]:
    """No warning of domains that collapse, where that is what is measured."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the domains collapsed")
        yield


def checkpoints() -> Path:
    """The folder for checkpoints: the one that FEDLIB_CHECKPOINTS names, or that of what is measured so far."""
    return Path(os.environ.get("FEDLIB_CHECKPOINTS") or ROOT / "_build" / "experiments")


def together(
    loss: Callable[..., Tensor],
    stack: Params,
    extras: Sequence[Any],
    data: ClientData,
    cohort: int,
    key: Key,
    batch_size: int,
    epochs: int = 1,
    lr: float = 1.0,
    n: Tensor | None = None,
) -> Params:
    """A round of FedAvg for each model of a stack (M, ...), by the same clients and batches: their means (M, ...).

    `extras` (M, ...) of the loss are tensors, or mappings of them. In the mean of model m, client k counts by
    ``n[k, m]``, by default its examples; a model for which nobody in the cohort counts stays as it is.
    """

    def each(t: Any) -> Any:
        return {n: each(v) for n, v in t.items()} if isinstance(t, Mapping) else t.repeat_interleave(cohort, 0)

    models, dtype = number_of_rows(stack), next(iter(stack.values())).dtype
    clients = key.choose(data.id, cohort, "cohort").sort().values
    n = (data.n[:, None].expand(-1, models) if n is None else n)[clients].to(dtype)
    share, stays = n / n.sum(0).clamp(min=1), (n.sum(0) == 0).to(dtype)
    batches = local_batches(data[clients.repeat(models)], batch_size, epochs, key)
    ends = local_update(loss, each(stack), batches, partial(torch.optim.SGD, lr=lr), tuple(map(each, extras))).params
    means = {name: torch.einsum("cm,mc...->m...", share, p.unflatten(0, (-1, cohort))) for name, p in ends.items()}
    return {name: p + torch.einsum("m,m...->m...", stays, stack[name]) for name, p in means.items()}


# ---- losses ----


def loss_of(net: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The loss of a classification; what comes after the batch, such as FedCG's weights, goes to the network."""

    def loss(params: Params, batch: Any, *further: Any) -> Tensor:
        x, y, w = batch
        return cross_entropy(net(params, x, *further), y, w)

    return loss


def squared_error(net: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The loss of a regression."""
    return lambda params, batch: mse(net(params, batch[0]), batch[1], batch[2])


def loss_and_predict(net: Callable[..., Tensor], classes: int | None) -> dict[str, Callable[..., Tensor]]:
    """Loss and prediction of a classification, or for no classes of a regression, whose net has one output."""
    if classes:
        return {"loss": loss_of(net), "predict": net}
    return {"loss": squared_error(net), "predict": lambda params, x: net(params, x)[:, 0]}


# ---- data ----


def shrunk(x: np.ndarray) -> np.ndarray:
    """Images (N, channels, side / 2, side / 2): means of 2 x 2 pixels."""
    return x.reshape(len(x), -1, x.shape[-2] // 2, 2, x.shape[-1] // 2, 2).mean((3, 5)).astype(np.uint8)


@cache
def small_digits() -> tuple[np.ndarray, np.ndarray]:
    """The 5,000 digits of mnist5k, shrunk, and their labels."""
    arrays = datasets.load("mnist5k")
    return shrunk(arrays.x), arrays.y


@cache
def femnist() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, black on white, classes and writers of femnist300, both of its parts."""
    one = datasets.load("femnist300")
    both = (one.x, one.x_test), (one.y, one.y_test), (one.writer, one.writer_test)
    x, y, writer = (np.concatenate(parts) for parts in both)
    return x, y, writer


@cache
def small_characters() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same, shrunk, and white on black as MNIST's."""
    x, y, writer = femnist()
    return shrunk(255 - x), y, writer


# ---- variants of FedCG ----


class EqualStart:
    """All modules start from one draw: ``class Equal(EqualStart, DomainNet)``."""

    def init(self, seed: int) -> Params:
        """Of the modules, the first."""
        start = super().init(seed)  # type: ignore[misc]
        return {n: p[:1].expand_as(p) if n.startswith("V.") else p for n, p in start.items()}


@dataclass(frozen=True)
class LowRank(DomainGCN):
    """A V W with W = I + P R^T, P and R of shape (q, width); R starts at zero, so W at the identity."""

    width: int = whole(16)

    def init(self, q: int, seed: int, layer: str = "") -> Params:
        """P at random, R at zero."""
        return {"P": glorot(f"{layer} P", seed, q, self.width), "R": torch.zeros(q, self.width)}

    def propagate(self, params: Params, V: Tensor, A: Tensor) -> Tensor:
        """A V W."""
        return A @ (V + V @ params["P"] @ params["R"].mT)


def with_parts(params: Params, layers: Sequence[str], A: Tensor, flags: Mapping[str, Tensor]) -> Params:
    """What a network is called with: V-hat for V (Eq. 5), with W, of low rank, and ReLU where the flags are 1."""
    params = {n: p * flags["W"] if n.endswith(".R") else p for n, p in params.items()}
    out = LowRank(relu=False).connect(params, layers, A)
    V = {n: torch.where(flags["ReLU"] > 0, p.relu(), p) for n, p in out.items() if n.startswith("V.")}
    return {n: p for n, p in out.items() if n not in V} | V
