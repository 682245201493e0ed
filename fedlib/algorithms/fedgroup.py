"""FedGroup: groups of clients whose first updates point the same way, seen in a few common directions."""

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

_DRAWN = 20  # clients of the cold start, for each group


def decomposed_cosines(updates: Tensor, directions: int) -> Tensor:
    """Cosines of the updates with the first singular vectors of all of them.

    The Euclidean distance of two rows is the paper's EDC, up to a constant factor.

    Parameters
    ----------
    updates : Tensor of shape (K, P)
    directions : int
        How many singular vectors to take; at most min(K, P) are there.

    Returns
    -------
    Tensor of shape (K, directions), float64
        A row of zeros for an update of zeros.
    """
    wide = updates.cpu().double()
    basis = torch.linalg.svd(wide, full_matrices=False)[2][:directions]
    return torch.nn.functional.normalize(wide, eps=1e-300) @ basis.T


@dataclass(frozen=True)
class FedGroup(ClusteredKMeans):
    """Some clients train first and are grouped by the directions of their updates; the others follow the most alike.

    The cold start, before round 1: (1) 20 M clients drawn at random, or all, train from the common start. (2) A
    singular value decomposition of their updates gives M directions, and each update its M cosines with them.
    (3) k-means on these cosines makes the groups. (4) A group's model starts from the mean of its clients' models, and
    the mean of their updates is its direction. (5) Every other client trains too and joins the group whose direction
    has the largest cosine with its update. After that each group is a federation of its own, with FedAvg, and nobody
    changes.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    clusters : int
        M, the number of groups and of directions, at most the number of clients; 1 is FedAvg from the mean of the first
        models.
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
    The groups' means are unweighted in the cold start, and weighted by examples after it. Left out: the step that moves
    groups towards each other after each round (here eta_G = 0), the proximal term of FedGrouProx, and groups around
    single random clients. All clients join a group before round 1, in the paper each in the first round that it is
    drawn for; the costs are the same once all have been drawn, and have the purpose "clustering" in round 0 of the
    history. Chapter 07.

    References
    ----------
    Duan, Liu, Ji, Liu, Liang, Chen, Tan. FedGroup: efficient clustered federated learning via decomposed data-driven
    measure. arXiv:2010.06870, 2021.
    """

    def group(self, state: KMeansState, update: Params, data: ClientData, key: Key) -> KMeansState:
        """Steps 2 to 5 of the cold start."""
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
        """The group whose direction has the largest cosine with each update; the first of equal ones."""
        directions = torch.nn.functional.normalize(state.centres, eps=1e-30)
        return (to_matrix(update).to(directions) @ directions.T).argmax(1)
