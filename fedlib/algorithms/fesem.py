"""Multi-centre federated learning (FeSEM), which assigns each client to the centre nearest to its model."""

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
    """K-means on the clients' models, with one step in each round.

    In a round, each client of the cohort trains from its cluster's centre and sends its model. The server assigns the
    client to the centre at the smallest Euclidean distance (E-step), and then each centre becomes the mean of the
    models assigned to it (M-step).

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    clusters : int
        M, the number of centres, at most the number of clients.
    warmup : int
        Local epochs of the first training, which gives the first centres.

    Raises
    ------
    ValueError
        A setting out of its range; fewer clients than clusters.
    FloatingPointError
        The first training of a client diverged.

    Notes
    -----
    In the paper's federated stochastic EM, all clients take part and have equal weights. Here only the clients of the
    cohort are reassigned and move a centre, while the others keep their cluster. A centre without assigned models does
    not move. The paper leaves the first centres open; here they come from k-means on the models of all clients, trained
    from a common initialisation before round 1. The first centres decide nearly everything, because local training
    seldom carries a client to another centre. The server sees every client's model. A new client does the first
    training and joins the cluster whose first centre is nearest. Chapter 07.

    References
    ----------
    Xie, Long, Shen, Zhou, Wang, Jiang, Zhang. Multi-center federated learning. arXiv:2005.01026, 2021.
    """

    def group(self, state: KMeansState, update: Params, data: ClientData, key: Key) -> KMeansState:
        """The first centres, which are the means of the clusters that k-means finds."""
        state = super().group(state, update, data, key)
        models = {name: state.start[name] + p for name, p in update.items()}
        return self._centred(state, models, state.assignment)

    def train(self, state: KMeansState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """W_k <- local training from the centre of the client's cluster; the server receives W_k itself."""
        end = self.local_training(self.client_params(state, clients), data, key)
        return Update(clients, per_client={"model": end.params}, log={"loss": end.loss})

    def aggregate(self, state: KMeansState, update: Update) -> KMeansState:
        """Find the centre nearest to each client's model (E-step) and the mean of each centre's models (M-step)."""
        models = update.per_client["model"]
        with server_time("clustering"):
            chosen = nearest(to_matrix(state.models), models)
        state = replace(state, assignment=put(state.assignment, update.clients, chosen))
        return self._centred(state, models, chosen)

    def _centred(self, state: KMeansState, models: Params, assignment: Tensor) -> KMeansState:
        """Each centre moves to the unweighted mean of the models assigned to it."""
        sums = cluster_sums(models, assignment, torch.ones_like(assignment), self.clusters)
        return replace(state, models=cluster_means(sums, previous=state.models))
