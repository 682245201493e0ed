"""Federated averaging (FedAvg), the algorithm that every other algorithm in the book changes in one place."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..aggregate import cluster_means, cluster_sums
from ..algorithm import Algorithm, Update, held
from ..data import ClientData
from ..keys import Key
from ..params import Params, broadcast, take

__all__ = ["FedAvg", "FedAvgState"]


@dataclass(frozen=True)
class FedAvgState:
    """State of FedAvg.

    Attributes
    ----------
    models : Params
        Stack of one row, the server's model theta.
    """

    models: Params = field(metadata=held("server and clients"))


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Clients train the server's model on their own data; the server averages the models, weighted by examples.

    Parameters as in `fedlib.algorithm.Algorithm`. With ``batch_size=None, epochs=1`` and SGD, a round is one step of
    gradient descent on the cohort's data (FedSGD).

    Notes
    -----
    FedCG Eq. 1-2; CFL Alg. 1. Chapter 01.

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas. Communication-efficient learning of deep networks from
    decentralized data. AISTATS 2017.

    Examples
    --------
    With ``loss``, ``model`` and ``data`` as in the example of `fedlib.federation.fit`:

    >>> from fedlib.algorithms import FedAvg
    >>> algorithm = FedAvg(loss, lr=0.1, batch_size=5, epochs=2, predict=model)
    >>> result = fit(algorithm, model.init(0), data, rounds=3, clients_per_round=2, progress=False)
    >>> result.history["clients"].tolist()
    [2, 2, 2]
    """

    def init(self, params: Params, data: ClientData, key: Key) -> FedAvgState:
        """Put one model for all clients on the server."""
        return FedAvgState(broadcast(params, 1))

    def train(self, state: FedAvgState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """theta_k <- theta, then E epochs on the client's own examples (FedCG Eq. 1)."""
        end = self.local_training(self.client_params(state, clients), data, key)
        sums = cluster_sums(end.ends, torch.zeros_like(clients), data.n, models=1)
        return Update(clients, summed=sums, log={"loss": end.loss})

    def aggregate(self, state: FedAvgState, update: Update) -> FedAvgState:
        """Theta <- sum of n_k theta_k / sum of n_k (FedCG Eq. 2)."""
        return replace(state, models=cluster_means(update.summed, previous=state.models))

    def client_params(self, state: FedAvgState, clients: Tensor) -> Params:
        """Every client holds the server's model."""
        return take(state.models, torch.zeros_like(clients))

    def new_clients(self, state: FedAvgState, data: ClientData, key: Key, rounds: int) -> FedAvgState:
        """A new client also holds the server's model."""
        return state
