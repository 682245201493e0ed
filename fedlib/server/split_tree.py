"""The split tree of clustered federated learning (CFL), with its nodes and the placement of new clients."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..params import Params, broadcast, dot, norm, row

__all__ = ["Split", "walk"]


@dataclass(frozen=True)
class Split:
    """A node of the split tree, where one cluster is split in two.

    Attributes
    ----------
    round : int
        Round after which the cluster is split.
    model, new : int
        Number of the model that is split, which the group of the first member keeps, and of the other group's copy. It
        is -1 until the state of `fedlib.algorithms.cfl.CFL` has the copy.
    members : Tensor of shape (m,), int64
        Positions of the clients, in ascending order.
    part : Tensor of shape (m,), int64
        0 for members that keep `model`, 1 for members that move to `new`.
    similarity : Tensor of shape (m, m)
        Cosines of their updates (CFL Eq. 4).
    start : Params
        Stack of one row, the model that is split.
    directions : Params
        Stack of two rows, the sum of each group's updates after each update is normalised to length 1.
    """

    round: int
    model: int
    new: int
    members: Tensor
    part: Tensor
    similarity: Tensor
    start: Params
    directions: Params

    @property
    def objective(self) -> float:
        """The largest cosine across the split (CFL Eq. 6)."""
        return float(self.similarity[self.part == 0][:, self.part == 1].max())

    @property
    def gap(self) -> float:
        """The smallest cosine within a group, minus `objective`; a client with itself counts with 1.

        Above 0, any two clients of one group are more similar than any two of different ones. CFL's Fig. 3, right,
        shows the gap without an equation; the longer paper (Sattler, Müller and Samek, 2021) calls it the separation
        gap g(alpha). A good split can have a gap of 0 or less, because with more than two groups of clients, one side
        holds several of them. Eq. 6 does not maximise the gap.
        """
        within = self.similarity[self.part[:, None] == self.part]  # 1 for a client with itself
        return float(within.min()) - self.objective


def walk(splits: Iterable[Split], clients: Tensor, first_update: Callable[[Params], Params]) -> Tensor:
    """Lead new clients down the split tree; at each node, their first update of its model decides which side they join.

    Parameters
    ----------
    splits : iterable of Split
        Oldest first.
    clients : Tensor of shape (C,)
        One entry for each new client; only the length and the device matter.
    first_update : callable
        Maps the model of a node, as a stack of C rows, to the clients' updates.

    Returns
    -------
    Tensor of shape (C,), int64
        Number of each client's model. In a tie, the client keeps the older model.
    """
    assignment = torch.zeros(len(clients), dtype=torch.int64, device=clients.device)
    for split in splits:
        update = first_update(broadcast(row(split.start, 0), len(clients)))
        length = norm(split.directions)
        closeness = [dot(update, row(split.directions, side)) / length[side] for side in (0, 1)]
        assignment[(assignment == split.model) & (closeness[1] > closeness[0])] = split.new
    return assignment
