"""The split tree of clustered federated learning (CFL), with its nodes and the placement of new clients."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..aggregate import membership
from ..params import Params, broadcast, dot, mix, norm, number_of_rows, row
from .clusters import cosine_similarity

__all__ = ["Split", "cut_in_two", "grown", "walk"]


@dataclass(frozen=True)
class Split:
    """A node of the split tree, where one cluster is split in two.

    Attributes
    ----------
    round : int
        Round after which the cluster is split.
    model, new : int
        Number of the model that is split, which the group of the first member keeps, and of the other group's copy.
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
        """The smallest cosine within a group, minus `objective`."""
        within = self.similarity[self.part[:, None] == self.part]  # 1 for a client with itself
        return float(within.min()) - self.objective


def cut_in_two(t: int, model: int, members: Tensor, delta: Params, start: Params, part: Tensor) -> Split:
    """Make the node for a split of `model`'s cluster after round `t`.

    Parameters
    ----------
    t, model : int
    members : Tensor of shape (m,), int64
    delta : Params
        Stack of m rows, the members' updates.
    start : Params
        Stack of one row, the cluster's model.
    part : Tensor of shape (m,), int64
        As in `Split`.

    Returns
    -------
    Split
        Its `new` is -1, because `grown` assigns the number.
    """
    part = part.to(members.device)
    # the sum of each group's updates, each normalised to length 1, for comparison with new clients
    directions = mix(membership(part, 1 / norm(delta).double(), 2), delta)
    return Split(t, model, -1, members, part, cosine_similarity(delta), start, directions)


def grown(state: Any, split: Split) -> Any:
    """Return CFL's state after a split, where both groups continue from the same model, the second under a new number.

    Parameters
    ----------
    state : CFLState
    split : Split

    Returns
    -------
    CFLState
    """
    c, new = split.model, number_of_rows(state.models)
    return replace(
        state,
        models={name: torch.cat([p, p[[c]]]) for name, p in state.models.items()},
        assignment=state.assignment.index_fill(0, split.members[split.part == 1], new),
        finished=torch.cat([state.finished, state.finished[[c]]]),
        splits=(*state.splits, replace(split, new=new)),
    )


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
