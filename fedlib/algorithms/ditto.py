"""Ditto, in which each client has its own model, pulled towards the one that all clients train together."""

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
    """State of FedAvg, whose model is called w here, plus the models that stay on the clients.

    Attributes
    ----------
    own : Params
        Stack of K rows, each client's own model v_k.
    """

    own: Params = field(metadata=held("client"))


@dataclass(frozen=True)
class Ditto(FedAvg):
    """FedAvg for w, while each client also trains its own v_k on F_k(v_k) + lam/2 ||v_k - w||^2, with w as received.

    A client predicts with v_k, which never leaves it and does not change while its client is outside the cohort.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    lam : float
        The paper's lambda, the strength of the pull towards w. With 0, v_k is the model of
        `fedlib.algorithms.local_only.LocalOnly`, while w is still FedAvg's.

    Raises
    ------
    ValueError
        `lam` is negative.

    Notes
    -----
    w is trained and averaged as in FedAvg, a choice that the paper leaves open. The paper's s, the number of steps of
    v_k in a round, is that of w, on the same mini-batches. v_k and w have the same initialisation. A client that was
    never in a cohort predicts with this initialisation. A client never seen in training starts from the w that it
    receives and trains its v_k towards it. The training loss in the history is that of v_k, including the pull. A round
    costs two local trainings and sends what FedAvg sends. The paper's text was not available, so this file was
    written from memory and the authors' program (litian96/ditto on GitHub), whose mean weights all clients
    equally. Chapter 04.

    References
    ----------
    Li, Hu, Beirami, Smith. Ditto: fair and robust federated learning through personalization. ICML 2021, Algorithm 1.
    """

    lam: float = number(1.0)

    def init(self, params: Params, data: ClientData, key: Key) -> DittoState:
        """Initialise w and all v_k with the same parameters."""
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
