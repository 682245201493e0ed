"""FedAvgM, FedAdagrad, FedAdam and FedYogi, whose server optimisers use the mean update as a gradient."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..aggregate import cluster_means
from ..algorithm import Update
from ..checks import number
from ..data import ClientData
from ..keys import Key
from ..params import Params, broadcast
from .fedavg import FedAvg, FedAvgState

__all__ = ["FedAdagrad", "FedAdam", "FedAvgM", "FedOptState", "FedYogi"]


@dataclass(frozen=True)
class FedOptState(FedAvgState):
    """State of the server's optimiser.

    Attributes
    ----------
    models, m, v : Params
        Stacks of one row with the server's model, its momentum and the accumulated squared updates, 0 in FedAvgM.
    """

    m: Params
    v: Params


@dataclass(frozen=True)
class FedAvgM(FedAvg):
    """FedAvg with momentum on the server, m <- beta1 m + Delta and theta <- theta + server_lr m.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    server_lr : float
        Step size of the server.
    beta1 : float
        Momentum; with 0 and ``server_lr=1`` this is FedAvg.

    References
    ----------
    Hsu, Qi, Brown. Measuring the effects of non-identical data distribution for federated visual classification. 2019.
    """

    server_lr: float = number(1.0, above=True)
    beta1: float = number(0.9, below=1)

    def init(self, params: Params, data: ClientData, key: Key) -> FedOptState:
        """Start without momentum."""
        zeros = {name: torch.zeros_like(p)[None] for name, p in params.items()}
        return FedOptState(broadcast(params, 1), m=zeros, v=zeros)

    def aggregate(self, state: Any, update: Update) -> FedOptState:
        """Update m, v and theta by the rule, with the mean update as Delta."""
        mean = cluster_means(update.summed, previous=state.models)
        models, m, v = {}, {}, {}
        for name, theta in state.models.items():
            m[name], v[name], step = self.step(state.m[name], state.v[name], mean[name] - theta)
            models[name] = theta + self.server_lr * step
        return replace(state, models=models, m=m, v=v)

    def step(self, m: Tensor, v: Tensor, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The new m and v of a tensor, and the resulting step."""
        m = self.beta1 * m + delta
        return m, v, m


@dataclass(frozen=True)
class FedAdagrad(FedAvgM):
    """The server divides its steps by the root of the sum of all squared updates so far, v <- v + Delta^2.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    server_lr : float
        Step size of the server.
    beta1 : float
        Momentum, m <- beta1 m + (1 - beta1) Delta; 0 means none.
    tau : float
        Added to the root of v, whose entries start at tau^2. With a huge `tau`, ``server_lr=2 * tau`` and ``beta1=0``
        this approaches FedAvg.

    References
    ----------
    Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan. Adaptive federated optimization. ICLR 2021,
    Algorithm 2.
    """

    server_lr: float = number(0.1, above=True)
    tau: float = number(1e-3, above=True)

    def init(self, params: Params, data: ClientData, key: Key) -> FedOptState:
        """Start without momentum, and with all entries of v at tau^2."""
        state = super().init(params, data, key)
        return replace(state, v={name: p + self.tau**2 for name, p in state.v.items()})

    def step(self, m: Tensor, v: Tensor, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The server's part of Algorithm 2; FedAdam and FedYogi only change `size`."""
        m = self.beta1 * m + (1 - self.beta1) * delta
        v = self.size(v, delta.square())
        return m, v, m / (v.sqrt() + self.tau)

    def size(self, v: Tensor, square: Tensor) -> Tensor:
        """The new v, given Delta^2."""
        return v + square


@dataclass(frozen=True)
class FedAdam(FedAdagrad):
    """The server divides its steps by the root of a running mean of squared updates.

    v <- beta2 v + (1 - beta2) Delta^2. Parameters and reference as for `FedAdagrad`, and

    Parameters
    ----------
    beta2 : float
        Decay rate of v, in [0, 1). FedAdam approaches FedAvg for a huge `tau` only if `beta2` is close to 1, since
        otherwise v soon forgets its initial value tau^2.
    """

    beta2: float = number(0.99, below=1)

    def size(self, v: Tensor, square: Tensor) -> Tensor:
        """A running mean of Delta^2."""
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedAdam, except that v moves towards Delta^2 by a step whose size does not depend on v.

    v <- v - (1 - beta2) Delta^2 sign(v - Delta^2). Parameters and reference as for `FedAdam`.
    """

    def size(self, v: Tensor, square: Tensor) -> Tensor:
        """A step of at most (1 - beta2) Delta^2 towards Delta^2."""
        return v - (1 - self.beta2) * square * (v - square).sign()
