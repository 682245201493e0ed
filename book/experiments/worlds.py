"""Losses, data and variants that several experiments share; it is no experiment itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlib.checks import whole
from fedlib.losses import cross_entropy, mse
from fedlib.params import Params
from fedlib.server.domain_graph import DomainGCN, glorot

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


# ---- data ----


def shrunk(x: np.ndarray) -> np.ndarray:
    """Images of 14 x 14 pixels, from 28 x 28."""
    return x.reshape(-1, 1, 14, 2, 14, 2).mean((3, 5)).astype(np.uint8)


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
