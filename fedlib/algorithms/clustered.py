"""Base of the clustered algorithms, which keep a model for each cluster and differ in how they find the clusters."""

from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from ..aggregate import cluster_means, cluster_sums
from ..algorithm import Algorithm, Update, held
from ..data import ClientData
from ..keys import Key
from ..local import Trained
from ..params import Params, number_of_rows, take

__all__ = ["Clustered", "ClusteredState"]


@dataclass(frozen=True)
class ClusteredState:
    """State of an algorithm with a model for each cluster.

    Attributes
    ----------
    models : Params
        Stack of M rows, one for each cluster.
    assignment : Tensor of shape (K,), int64
        The cluster of each client.
    """

    models: Params = field(metadata=held("server and its cluster"))
    assignment: Tensor


@dataclass(frozen=True)
class Clustered(Algorithm):
    """FedAvg within each cluster; a subclass assigns the clients to clusters in `init`, `prepare` or `aggregate`.

    Parameters as in `fedlib.algorithm.Algorithm`.
    """

    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Train as in FedAvg, starting from the model of the client's cluster."""
        end = self.local_training(self.client_params(state, clients), data, key)
        return self.update(state, data, clients, end)

    def update(self, state: Any, data: ClientData, clients: Tensor, end: Trained) -> Update:
        """Return what these clients send after local training, the sums of n_k theta_k and of n_k in each cluster."""
        models = {name: end.params[name] for name in state.models}  # clients may also have local layers
        sums = cluster_sums(models, state.assignment[clients], data.n, number_of_rows(state.models))
        return Update(clients, summed=sums, log={"loss": end.loss})

    def aggregate(self, state: Any, update: Update) -> Any:
        """Average each cluster's clients, weighted by examples; a cluster without any in the cohort keeps its model."""
        return replace(state, models=cluster_means(update.summed, previous=state.models))

    def client_params(self, state: Any, clients: Tensor) -> Params:
        """Each client holds the model of its cluster."""
        return take(state.models, state.assignment[clients])
