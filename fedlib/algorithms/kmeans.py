"""The plain baseline, which runs k-means on the clients' first updates and then FedAvg within each cluster."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..algorithm import Update
from ..checks import whole
from ..costs import message_bytes, record, server_time
from ..data import ClientData
from ..keys import Key
from ..params import Params, broadcast, sub, take, to_matrix
from ..round import refuse_divergence
from ..server.clusters import kmeans, kmeans_seed, nearest
from .clustered import Clustered, ClusteredState

__all__ = ["ClusteredKMeans", "KMeansState"]


@dataclass(frozen=True)
class KMeansState(ClusteredState):
    """State of an algorithm that clusters its clients by the updates of a first training.

    Attributes
    ----------
    start : Params
        Stack of one row, the parameters from which the first training starts, also for new clients.
    centres : Tensor of shape (M, P)
        One row per cluster, with which the first update of a new client is compared.
    """

    start: Params
    centres: Tensor


@dataclass(frozen=True)
class ClusteredKMeans(Clustered):
    """Cluster the clients once, before round 1, by k-means on the updates of a first training.

    In this training, all clients start from the same parameters. From then on, each cluster is a separate federation
    that runs FedAvg from the common initialisation, and no client changes its cluster.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    clusters : int
        M, the number of clusters, at most the number of clients; 1 is FedAvg after a first training that has no effect.
    warmup : int
        Local epochs of the first training.

    Raises
    ------
    ValueError
        A setting is out of range, or there are fewer clients than clusters.
    FloatingPointError
        A client's first training diverged.

    Notes
    -----
    This is the baseline "K-means" of FedCG's Table 4. The paper does not say how long clients train or from where; see
    `fedlib.server.clusters.kmeans`. All clients take part in the first training, and none is slow or lost. Each client
    receives a model and sends an update, which is recorded under the purpose "clustering" in round 0 of the history.
    The server sees every first update, and K updates are in memory at once. A cluster without clients in the cohort
    keeps its model. Chapter 07.
    """

    clusters: int = whole(2)
    warmup: int = whole(5)

    def init(self, params: Params, data: ClientData, key: Key) -> KMeansState:
        """Start all models from the same parameters; no client has a cluster yet."""
        start = broadcast(params, 1)
        return KMeansState(broadcast(params, self.clusters), torch.zeros_like(data.n), start, to_matrix(start)[:0])

    def prepare(self, state: KMeansState, data: ClientData, key: Key) -> KMeansState:
        """Run the first training of all clients; the server then clusters them by their updates."""
        update = self.first_updates(state, data, key)
        with server_time("clustering"):
            return self.group(state, update, data, key)

    def first_updates(self, state: KMeansState, data: ClientData, key: Key) -> Params:
        """Updates of these clients after `warmup` local epochs from the common initialisation; records their costs."""
        start = take(state.start, torch.zeros_like(data.n))
        end = replace(self, epochs=self.warmup, stragglers=0.0).local_training(start, data, key, purpose="clustering")
        update = sub(end.params, start)
        refuse_divergence(Update(data.id, per_client={"update": update}, log={"loss": end.loss}), data.id, key)
        size = len(data) * message_bytes(update)
        record("clustering", bytes_down=size, bytes_up=size)
        return update

    def group(self, state: KMeansState, update: Params, data: ClientData, key: Key) -> KMeansState:
        """Run k-means on the updates of all clients."""
        return replace(state, **vars(kmeans(update, self.clusters, kmeans_seed(key))))  # assignment and centres

    def place(self, state: KMeansState, update: Params) -> Tensor:
        """The cluster nearest to each of these first updates."""
        return nearest(state.centres, update)

    def new_clients(self, state: KMeansState, data: ClientData, key: Key, rounds: int) -> KMeansState:
        """A new client also does the first training, and joins the cluster that fits its update."""
        return replace(state, assignment=self.place(state, self.first_updates(state, data, key)))
