"""FedGroup groups clients whose first updates point the same way, as measured along a few common directions."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..aggregate import membership
from ..data import ClientData
from ..keys import Key
from ..params import Params, mix, to_matrix
from ..server.clusters import kmeans, kmeans_seed
from .kmeans import ClusteredKMeans, KMeansState

__all__ = ["FedGroup", "decomposed_cosines"]

_DRAWN = 20  # clients per group in the cold start


def decomposed_cosines(updates: Tensor, directions: int) -> Tensor:
    """Cosines between each update and the first singular vectors of all updates.

    The Euclidean distance between two rows is the paper's EDC, up to a constant factor.

    Parameters
    ----------
    updates : Tensor of shape (K, P)
    directions : int
        Number of singular vectors to use; there are at most min(K, P).

    Returns
    -------
    Tensor of shape (K, directions), float64
        An update of zeros gives a row of zeros.
    """
    wide = updates.cpu().double()
    basis = torch.linalg.svd(wide, full_matrices=False)[2][:directions]
    return torch.nn.functional.normalize(wide, eps=1e-300) @ basis.T


@dataclass(frozen=True)
class FedGroup(ClusteredKMeans):
    """Group a sample of clients by the directions of their first updates; the others join the most similar group.

    The groups are formed in a cold start before round 1. (1) 20 M clients drawn at random, or all clients if there are
    fewer, train from the common initialisation. (2) A singular value decomposition of their updates gives M directions,
    and each update is described by its M cosines with them. (3) k-means on these cosines forms the groups. (4) A
    group's model starts as the mean of its clients' models, and its direction is the mean of their updates. (5) Every
    other client also trains, and joins the group whose direction has the largest cosine with its update. From then on,
    each group is a separate federation that runs FedAvg, and no client changes its group.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    clusters : int
        M, the number of groups and of directions, at most the number of clients; 1 is FedAvg that starts from the mean
        of the models of the cold start.
    warmup : int
        Local epochs of each client in the cold start.

    Raises
    ------
    ValueError
        A setting is out of range, or there are fewer clients than clusters.
    FloatingPointError
        A client's first training diverged.

    Notes
    -----
    The groups' means are unweighted in the cold start and weighted by examples afterwards. This implementation omits
    the step that moves groups towards each other after each round (here eta_G = 0), the proximal term of FedGrouProx,
    and groups around single random clients. Here all clients join a group before round 1, whereas in the paper each
    client joins in the first round for which it is drawn. The costs are the same once all clients have been drawn, and
    are recorded under the purpose "clustering" in round 0 of the history. Chapter 07.

    References
    ----------
    Duan, Liu, Ji, Liu, Liang, Chen, Tan. FedGroup: efficient clustered federated learning via decomposed data-driven
    measure. arXiv:2010.06870, 2021.
    """

    def group(self, state: KMeansState, update: Params, data: ClientData, key: Key) -> KMeansState:
        """Run steps 2 to 5 of the cold start."""
        drawn = key.choose(data.id, min(_DRAWN * self.clusters, len(data)), "cold start")
        first = {name: p[drawn] for name, p in update.items()}
        cosines = decomposed_cosines(to_matrix(first), self.clusters)
        groups = kmeans(cosines, self.clusters, kmeans_seed(key)).assignment.to(drawn.device)
        member = membership(groups, torch.ones_like(groups).double(), self.clusters)
        mean = mix(member / member.sum(1, keepdim=True).clamp(min=1), first)
        models = {name: p + mean[name].to(p.dtype) for name, p in state.start.items()}
        state = replace(state, models=models, centres=to_matrix(mean))
        return replace(state, assignment=self.place(state, update).index_copy(0, drawn, groups))

    def place(self, state: KMeansState, update: Params) -> Tensor:
        """The group whose direction has the largest cosine with each update; ties go to the first group."""
        directions = torch.nn.functional.normalize(state.centres, eps=1e-30)
        return (to_matrix(update).to(directions) @ directions.T).argmax(1)
