"""Multi-centre federated learning (FeSEM): clients belong to the model that is nearest to their own."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..aggregate import cluster_means, cluster_sums
from ..algorithm import Update
from ..costs import message_bytes, record, server_time
from ..data import ClientData
from ..keys import Key
from ..params import Params, put, to_matrix
from ..server.clusters import nearest
from .kmeans import ClusteredKMeans, KMeansState

__all__ = ["FeSEM"]


@dataclass(frozen=True)
class FeSEM(ClusteredKMeans):
    """Clients train the model of their cluster; the server gives each to the nearest centre, and centres become means.

    k-means on the clients' models, one step of it in each round. A round: each client of the cohort starts from its
    cluster's centre and sends its model; the server assigns it to the centre at the smallest Euclidean distance
    (E-step); each centre becomes the mean of the models assigned to it (M-step).

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    clusters : int
        M, the number of centres, at most the number of clients; 1 is FedAvg, if `by_examples`, from the mean of the
        first models.
    warmup : int
        Local epochs of the first training, from which the first centres come.
    by_examples : bool
        Whether the mean weighs clients by their examples, as FedAvg does; in the paper all count alike.

    Raises
    ------
    ValueError
        A setting out of its range; fewer clients than clusters.
    FloatingPointError
        The first training of a client diverged.

    Notes
    -----
    The paper's federated stochastic EM, where all clients take part; here only those of the cohort are assigned anew
    and move a centre, and the others keep their cluster. A centre to which nothing is assigned stays where it is. The
    paper leaves the first centres open; here all clients train from a common start before round 1 and k-means on their
    models gives them, at the same cost as for `fedlib.algorithms.kmeans.ClusteredKMeans`. A client starts from its own
    centre, and local training seldom carries it to another one, so the first centres decide nearly everything. The
    server sees every client's model. For clients never seen the paper has no rule; here they do the first training and
    take the cluster whose first centre is nearest. Chapter 04.

    References
    ----------
    Xie, Long, Shen, Zhou, Wang, Jiang, Zhang. Multi-center federated learning. arXiv:2005.01026, 2021.
    """

    by_examples: bool = False

    def group(self, state: KMeansState, update: Params, data: ClientData, key: Key) -> KMeansState:
        """The first centres: means of the clusters that k-means finds."""
        state = super().group(state, update, data, key)
        models = {name: state.start[name] + p for name, p in update.items()}
        if self.by_examples:
            record("clustering", bytes_up=len(data) * message_bytes(data.n))
        return replace(state, models=self._means(state, models, state.assignment, data.n))

    def _means(self, state: KMeansState, models: Params, assignment: Tensor, n: Tensor | None) -> Params:
        weight = n if self.by_examples and n is not None else torch.ones_like(assignment)
        return cluster_means(cluster_sums(models, assignment, weight, self.clusters), previous=state.models)

    def train(self, state: KMeansState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """W_k <- local training from the centre of its cluster; it goes to the server as it is."""
        end = self.local_training(self.client_params(state, clients), data, key)
        rows = {"model": end.params} | ({"n": data.n} if self.by_examples else {})
        return Update(clients, per_client=rows, log={"loss": end.loss})

    def aggregate(self, state: KMeansState, update: Update) -> KMeansState:
        """E-step: the nearest centre of each client's model. M-step: the mean of each centre's models."""
        models = update.per_client["model"]
        with server_time("clustering"):
            chosen = nearest(to_matrix(state.models), models)
        centres = self._means(state, models, chosen, update.per_client.get("n"))
        return replace(state, models=centres, assignment=put(state.assignment, update.clients, chosen))
