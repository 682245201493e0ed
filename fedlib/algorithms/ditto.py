"""Ditto: each client has a model of its own, held near the one that all train together."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..aggregate import cluster_sums
from ..algorithm import Update, held
from ..checks import number
from ..data import Batch, ClientData
from ..keys import Key
from ..params import Params, broadcast, take
from .fedavg import FedAvg, FedAvgState

__all__ = ["Ditto", "DittoState"]


@dataclass(frozen=True)
class DittoState(FedAvgState):
    """State of FedAvg, whose model is w here, with the models that stay on the clients.

    Attributes
    ----------
    own : Params
        Stack of K rows: each client's own model v_k.
    """

    own: Params = field(metadata=held("client"))


@dataclass(frozen=True)
class Ditto(FedAvg):
    """FedAvg for w; beside it each client trains its own v_k on F_k(v_k) + lam/2 ||v_k - w||^2, with w as it came.

    A client predicts with v_k, which never leaves it; v_k stays as it is while its client is not in the cohort.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    lam : float
        The paper's lambda, the strength of the pull towards w. With 0, v_k is the model of
        `fedlib.algorithms.local_only.LocalOnly`, beside FedAvg's w.

    Raises
    ------
    ValueError
        A negative `lam`.

    Notes
    -----
    w is trained and averaged as in FedAvg, which the paper leaves open. Its s, the steps of v_k in a round, are those
    of w: the same mini-batches. v_k starts where w does. A client that was never in a cohort predicts with that start;
    one never seen in training starts from the w that it is handed, and trains its v_k towards it. The training loss in
    the history is that of v_k, with the pull. A round costs two local trainings, and sends what FedAvg sends. The
    paper's text was not at hand; from memory and the authors' program (litian96/ditto on GitHub), which counts clients
    alike in the mean. Chapter 04.

    References
    ----------
    Li, Hu, Beirami, Smith. Ditto: fair and robust federated learning through personalization. ICML 2021, Algorithm 1.
    """

    lam: float = number(1.0)

    def init(self, params: Params, data: ClientData, key: Key) -> DittoState:
        """W and all v_k start from the same parameters."""
        own = {name: p.clone() for name, p in broadcast(params, len(data)).items()}
        return DittoState(**vars(super().init(params, data, key)), own=own)

    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Train w and send it, as in FedAvg; train v_k on the same batches and keep it."""
        w = super().client_params(state, clients)
        end = self.local_training(w, data, key)
        own = self.local_training(take(state.own, clients), data, key, extras=(w,), loss=self.pulled_loss)
        sums = cluster_sums(end.params, torch.zeros_like(clients), data.n, models=1)
        return Update(clients, summed=sums, client_state={"own": own.params}, log={"loss": own.loss})

    def pulled_loss(self, v: Params, batch: Batch, w: Params) -> Tensor:
        """h_k(v_k; w) = F_k(v_k) + lambda/2 ||v_k - w||^2, whose gradient is that of F_k plus lambda (v_k - w)."""
        distance = sum((v[name] - w[name]).square().sum() for name in v)
        return self.loss(v, batch) + self.lam / 2 * distance

    def client_params(self, state: Any, clients: Tensor) -> Params:
        """Each client uses its own model."""
        return take(state.own, clients)

    def new_clients(self, state: Any, data: ClientData, key: Key, rounds: int) -> DittoState:
        """A new client starts from w and trains its own model for `rounds` rounds."""
        w = super().client_params(state, torch.zeros_like(data.n))
        return replace(state, own=self.local_rounds(w, data, key, rounds, extras=(w,), loss=self.pulled_loss))
