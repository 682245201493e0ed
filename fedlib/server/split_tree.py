"""The split tree of clustered federated learning (CFL): its nodes, and new clients in it."""

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
    """A node of the split tree: one cluster, cut in two.

    Attributes
    ----------
    round : int
        After which round.
    model, new : int
        Number of the model that was split, which the part of the first member keeps, and of the other part's copy.
    members : Tensor of shape (m,), int64
        Positions of the clients, ascending.
    part : Tensor of shape (m,), int64
        0 for those that keep `model`, 1 for those that go to `new`.
    similarity : Tensor of shape (m, m)
        Cosines of their updates (CFL Eq. 4).
    start : Params
        Stack of one row: the model that was split.
    directions : Params
        Stack of two rows: the sum of each part's updates, all taken with length 1.
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
        """The largest cosine across the cut (CFL Eq. 6)."""
        return float(self.similarity[self.part == 0][:, self.part == 1].max())

    @property
    def gap(self) -> float:
        """The smallest cosine within a part, minus `objective`."""
        within = self.similarity[self.part[:, None] == self.part]  # a client with itself: 1
        return float(within.min()) - self.objective


def cut_in_two(t: int, model: int, members: Tensor, delta: Params, start: Params, part: Tensor) -> Split:
    """The node of a cut of `model`'s cluster after round `t`.

    Parameters
    ----------
    t, model : int
    members : Tensor of shape (m,), int64
    delta : Params
        Stack of m rows, their updates.
    start : Params
        Stack of one row, the cluster's model.
    part : Tensor of shape (m,), int64
        As in `Split`.

    Returns
    -------
    Split
        Its `new` is -1: `grown` gives the number.
    """
    part = part.to(members.device)
    # the sum of each part's updates, made of length 1: new clients are compared with it
    directions = mix(membership(part, 1 / norm(delta).double(), 2), delta)
    return Split(t, model, -1, members, part, cosine_similarity(delta), start, directions)


def grown(state: Any, split: Split) -> Any:
    """The state of CFL after a split: both parts go on from the same model, the second with a new number.

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
    """Lead new clients down the split tree: at each node they train its model once, and take the side they point to.

    Parameters
    ----------
    splits : iterable of Split
        Oldest first.
    clients : Tensor of shape (C,)
        One entry for each new client; only its length and its device count.
    first_update : callable
        From the model of a node, as a stack of C rows, to the clients' updates.

    Returns
    -------
    Tensor of shape (C,), int64
        Number of each client's model. A tie stays with the older one.
    """
    assignment = torch.zeros(len(clients), dtype=torch.int64, device=clients.device)
    for split in splits:
        update = first_update(broadcast(row(split.start, 0), len(clients)))
        length = norm(split.directions)
        closeness = [dot(update, row(split.directions, side)) / length[side] for side in (0, 1)]
        assignment[(assignment == split.model) & (closeness[1] > closeness[0])] = split.new
    return assignment
