"""The split tree of clustered federated learning (CFL): its nodes, new clients in it, and thresholds from past runs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..params import Params, broadcast, dot, norm, row

__all__ = ["Split", "calibrate", "replay", "walk"]


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
    objective, gap : float
        `objective` is the largest cosine across the cut (CFL Eq. 6), `gap` the smallest within a part minus it.
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
    objective: float
    gap: float
    start: Params
    directions: Params


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


def calibrate(state: Any, eps1: float = 0.15, rest: int = 20, margin: float = 1.25) -> float:
    """`eps2` of CFL, from a finished run on clients that are congruent.

    Such a run needs clients that must not be split and otherwise resemble the real ones, in number and in size: made
    from public data, or from the real task with its examples dealt at random.

    Parameters
    ----------
    state : CFLState
        Of that run.
    eps1, rest
        As the run to come has them.
    margin : float
        The result is so many times the largest pace of the rounds in which a cluster stood still; of the last quarter
        of the rounds where none did.

    Raises
    ------
    ValueError
        The run tested no cluster from round `rest` on.

    Notes
    -----
    The paper gives no value for its thresholds. Chapter 04.
    """
    t, _, mean, longest, pace, _ = state.norms.T
    rested = t >= rest
    if not rested.any():
        raise ValueError(f"the run tested no cluster from round {rest} on; let it train longer")
    still = rested & (mean < eps1 * longest)
    return margin * float(pace[still if still.any() else rested & (t > 0.75 * t.max())].max())


def replay(algorithm: Any, state: Any) -> tuple[int, int, bool] | None:
    """Where a finished run would have gone another way with the thresholds of `algorithm`, without training again.

    Parameters
    ----------
    algorithm : CFL
        Its `must_split` decides; thresholds and `rest` may differ from those of the run.
    state : CFLState
        The end of the run.

    Returns
    -------
    tuple of (int, int, bool), or None
        Round and model of the first different decision, and whether it is due to be split there for `algorithm`. None:
        the same decisions throughout, and so the same result. After a different decision nothing is known. Chapter 04
        maps the cluster scores over both thresholds with it.
    """
    born = {0: 0}
    splits = {(split.round, split.model): split for split in state.splits}
    for t, c, mean, longest, pace, was_due in state.norms.tolist():
        due = algorithm.must_split(int(t), int(t) - born[int(c)], mean, longest, pace)
        if due != bool(was_due):
            return int(t), int(c), due
        if split := splits.get((t, c)):
            born[split.model] = born[split.new] = split.round
    return None
