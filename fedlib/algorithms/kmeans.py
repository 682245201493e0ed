"""Clusters by k-means on the clients' first updates, then federated averaging within each: the plain baseline."""

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
    """State of an algorithm that clusters its clients by what a first training made of them.

    Attributes
    ----------
    start : Params
        Stack of one row: where the first training started, for old and new clients alike.
    centres : Tensor of shape (M, P)
        What the first update of a new client is compared with.
    """

    start: Params
    centres: Tensor


@dataclass(frozen=True)
class ClusteredKMeans(Clustered):
    """Before round 1 all clients train from the same start; k-means on their updates decides for good who shares what.

    After that each cluster is a federation of its own, with FedAvg from the common start.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    clusters : int
        M, the number of clusters, at most the number of clients; 1 is FedAvg after a first training in vain.
    warmup : int
        Local epochs of the first training.

    Raises
    ------
    ValueError
        A setting out of its range; fewer clients than clusters.
    FloatingPointError
        The first training of a client diverged.

    Notes
    -----
    The baseline "K-means" of FedCG's Table 4, where the paper leaves open how long clients train and from where; see
    `fedlib.server.clusters.kmeans`. All clients take part in the first training and none is slow or lost. It costs a
    model to each client and an update back, with the purpose "clustering" in round 0 of the history. The server sees
    every first update, and K updates are in memory at once. A cluster none of whose clients is in a cohort keeps its
    model. Chapter 07.
    """

    clusters: int = whole(2)
    warmup: int = whole(5)

    def init(self, params: Params, data: ClientData, key: Key) -> KMeansState:
        """All models start from the same parameters; nobody has a cluster yet."""
        start = broadcast(params, 1)
        return KMeansState(broadcast(params, self.clusters), torch.zeros_like(data.n), start, to_matrix(start)[:0])

    def prepare(self, state: KMeansState, data: ClientData, key: Key) -> KMeansState:
        """The first training of all clients; then the server groups them by their updates."""
        update = self.first_updates(state, data, key)
        with server_time("clustering"):
            return self.group(state, update, data, key)

    def first_updates(self, state: KMeansState, data: ClientData, key: Key) -> Params:
        """Updates of these clients after `warmup` local epochs from the common start; enters what they cost."""
        start = take(state.start, torch.zeros_like(data.n))
        end = replace(self, epochs=self.warmup, stragglers=0.0).local_training(start, data, key, purpose="clustering")
        update = sub(end.params, start)
        refuse_divergence(Update(data.id, per_client={"update": update}, log={"loss": end.loss}), data.id, key)
        size = len(data) * message_bytes(update)
        record("clustering", bytes_down=size, bytes_up=size)
        return update

    def group(self, state: KMeansState, update: Params, data: ClientData, key: Key) -> KMeansState:
        """K-means on the updates of all clients."""
        return replace(state, **vars(kmeans(update, self.clusters, kmeans_seed(key))))  # assignment and centres

    def place(self, state: KMeansState, update: Params) -> Tensor:
        """The cluster that belongs to each of these first updates."""
        return nearest(state.centres, update)

    def new_clients(self, state: KMeansState, data: ClientData, key: Key, rounds: int) -> KMeansState:
        """A new client does the first training too, and goes where its update belongs."""
        return replace(state, assignment=self.place(state, self.first_updates(state, data, key)))
