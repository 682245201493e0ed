"""Multi-centre federated learning (FeSEM): clients belong to the model that is nearest to their own."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..aggregate import cluster_means, cluster_sums
from ..algorithm import Update
from ..costs import server_time
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
        M, the number of centres, at most the number of clients.
    warmup : int
        Local epochs of the first training, from which the first centres come.

    Raises
    ------
    ValueError
        A setting out of its range; fewer clients than clusters.
    FloatingPointError
        The first training of a client diverged.

    Notes
    -----
    The paper's federated stochastic EM, in which all clients count alike and take part; here only those of the cohort
    are assigned anew and move a centre, and the others keep their cluster. A centre to which nothing is assigned stays
    where it is. The first centres, which the paper leaves open, come from k-means on the models of all clients, trained
    from a common start before round 1; they decide nearly everything, as local training seldom carries a client to
    another centre. The server sees every client's model. A client never seen does the first training and takes the
    cluster whose first centre is nearest. Chapter 07.

    References
    ----------
    Xie, Long, Shen, Zhou, Wang, Jiang, Zhang. Multi-center federated learning. arXiv:2005.01026, 2021.
    """

    def group(self, state: KMeansState, update: Params, data: ClientData, key: Key) -> KMeansState:
        """The first centres: means of the clusters that k-means finds."""
        state = super().group(state, update, data, key)
        models = {name: state.start[name] + p for name, p in update.items()}
        return self._centred(state, models, state.assignment)

    def train(self, state: KMeansState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """W_k <- local training from the centre of its cluster; it goes to the server as it is."""
        end = self.local_training(self.client_params(state, clients), data, key)
        return Update(clients, per_client={"model": end.params}, log={"loss": end.loss})

    def aggregate(self, state: KMeansState, update: Update) -> KMeansState:
        """E-step: the nearest centre of each client's model. M-step: the mean of each centre's models."""
        models = update.per_client["model"]
        with server_time("clustering"):
            chosen = nearest(to_matrix(state.models), models)
        state = replace(state, assignment=put(state.assignment, update.clients, chosen))
        return self._centred(state, models, chosen)

    def _centred(self, state: KMeansState, models: Params, assignment: Tensor) -> KMeansState:
        """Each centre moves to the plain mean of the models assigned to it."""
        sums = cluster_sums(models, assignment, torch.ones_like(assignment), self.clusters)
        return replace(state, models=cluster_means(sums, previous=state.models))
