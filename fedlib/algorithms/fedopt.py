"""Adaptive server steps: FedAvgM, FedAdagrad, FedAdam and FedYogi take the mean update as a gradient."""

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..aggregate import cluster_means
from ..algorithm import Update
from ..checks import check_number, check_share
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
        Stacks of one row: the server's model, the running mean of updates, the running size of their entries.
    """

    m: Params
    v: Params


@dataclass(frozen=True)
class _FedOpt(FedAvg):
    server_lr: float = 1.0
    beta1: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.server_lr, "server_lr", above=True)
        check_share(self.beta1, "beta1")

    def init(self, params: Params, data: ClientData, key: Key) -> FedOptState:
        """No momentum; entries of v at their floor."""
        m = {name: torch.zeros_like(p)[None] for name, p in params.items()}
        return FedOptState(broadcast(params, 1), m, {name: p + self._floor() for name, p in m.items()})

    def aggregate(self, state: FedOptState, update: Update) -> FedOptState:  # type: ignore[override]
        """Delta <- mean update; m, v and theta by the rule (Reddi et al., Algorithm 2)."""
        mean = cluster_means(update.summed, previous=state.models)
        m, v, models = {}, {}, {}
        for name, theta in state.models.items():
            delta = mean[name] - theta
            m[name] = self._momentum(state.m[name], delta)
            v[name] = self._size(state.v[name], delta)
            models[name] = theta + self.server_lr * self._step(m[name], v[name])
        return replace(state, models=models, m=m, v=v)

    def _floor(self) -> float:
        return 0.0

    def _momentum(self, m: Tensor, delta: Tensor) -> Tensor:
        return self.beta1 * m + (1 - self.beta1) * delta

    @abstractmethod
    def _size(self, v: Tensor, delta: Tensor) -> Tensor: ...

    @abstractmethod
    def _step(self, m: Tensor, v: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class FedAvgM(_FedOpt):
    """FedAvg with momentum on the server: m <- beta1 m + Delta, theta <- theta + server_lr m.

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

    def _momentum(self, m: Tensor, delta: Tensor) -> Tensor:
        return self.beta1 * m + delta

    def _size(self, v: Tensor, delta: Tensor) -> Tensor:
        return v

    def _step(self, m: Tensor, v: Tensor) -> Tensor:
        return m


@dataclass(frozen=True)
class FedAdagrad(_FedOpt):
    """The server divides its steps by the root of all squared updates so far: v <- v + Delta^2.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    server_lr : float
        Step size of the server.
    beta1 : float
        Momentum, m <- beta1 m + (1 - beta1) Delta; 0 has none.
    tau : float
        Floor of the root of v; with a huge `tau`, ``server_lr=tau`` and ``beta1=0`` this approaches FedAvg.

    References
    ----------
    Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan. Adaptive federated optimization. ICLR 2021,
    Algorithm 2.
    """

    server_lr: float = 0.1
    tau: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.tau, "tau", above=True)

    def _floor(self) -> float:
        return self.tau**2

    def _size(self, v: Tensor, delta: Tensor) -> Tensor:
        return v + delta.square()

    def _step(self, m: Tensor, v: Tensor) -> Tensor:
        return m / (v.sqrt() + self.tau)


@dataclass(frozen=True)
class FedAdam(FedAdagrad):
    """The server divides its steps by the root of a running mean of squared updates.

    v <- beta2 v + (1 - beta2) Delta^2. Parameters and reference as for `FedAdagrad`, and

    Parameters
    ----------
    beta2 : float
        Memory of v, in [0, 1).
    """

    beta2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.beta2, "beta2")

    def _size(self, v: Tensor, delta: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * delta.square()


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedAdam whose v moves towards Delta^2 by a step that does not depend on v's size.

    v <- v - (1 - beta2) Delta^2 sign(v - Delta^2). Parameters and reference as for `FedAdam`.
    """

    def _size(self, v: Tensor, delta: Tensor) -> Tensor:
        square = delta.square()
        return v - (1 - self.beta2) * square * (v - square).sign()
