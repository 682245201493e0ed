"""Rules for splitting that experiments compare CFL with, and what its stored results need: none is from a paper.

`RelativeCFL` has thresholds for lengths relative to other lengths; `ScheduledCFL` and its subclasses split in given
rounds, as in the experiment of the paper; `GivenClusters` never splits. In all of them clients also send how many steps
they took, in 8 bytes, for the pace of an update (`Stepped`); `SteppedSplitHalfCFL` and `SteppedLGCFL` do so because
their stored results have these bytes. `Watched` keeps the cosines of every round.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedlib import ClientData, Key, Params, Update
from fedlib.algorithms import CFL
from fedlib.algorithms.cfl import CFLState
from fedlib.checks import number
from fedlib.extensions import LGCFL, SplitHalfCFL
from fedlib.params import broadcast, norm, take
from fedlib.server.clusters import bipartition, cosine_similarity
from fedlib.server.split_tree import Split

OURS, RELATIVE = "split-half CFL (ours)", "CFL, relative lengths"  # in tables
COLUMNS = ("round", "cluster", "mean update", "longest update", "pace", "cut")


class Stepped:
    """Clients send their steps too, and the server notes the largest pace: an update's length over rate and steps.

    Stands before a kind of `CFL` among the bases of a class.
    """

    columns: ClassVar[tuple[str, ...]] = COLUMNS

    def train(self: Any, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """As the algorithm does, with the entry "steps"; no client is slow."""
        update = super().train(state, data, clients, key)  # type: ignore[misc]
        steps = self.epochs * (torch.ones_like(data.n) if self.batch_size is None else -(-data.n // self.batch_size))
        return replace(update, per_client=update.per_client | {"steps": steps})

    def evidence(self: Any, state: Any, update: Update, i: Tensor, mean: float) -> tuple[float, ...]:
        """Two lengths, the largest pace, and what else the algorithm looks at."""
        lengths = norm(take(update.per_client["update"], i)).double()
        pace = float((lengths / (self.lr * update.per_client["steps"][i])).max())
        mean, longest, *others = super().evidence(state, update, i, mean)  # type: ignore[misc]
        return mean, longest, pace, *others


class SteppedSplitHalfCFL(Stepped, SplitHalfCFL):
    """Split-half CFL whose stored results have the 8 bytes of "steps"; everything else is as in the library."""

    columns = (*COLUMNS[:-1], "chance", "cut")


class SteppedLGCFL(Stepped, LGCFL):
    """`SteppedSplitHalfCFL` with local layers."""

    columns = SteppedSplitHalfCFL.columns


@dataclass(frozen=True)
class OneCut(SteppedLGCFL):
    """CFL on the shared layers that cuts the clients once, after a given round, by their updates; it tests nothing."""

    level: float = 0.0
    after: int = 1

    def decide(self, state: Any, c: int, *evidence: float) -> tuple[bool, bool]:
        """In that round only."""
        return state.round == self.after, False

    def cut(self, state: Any, update: Update, c: int, i: Tensor) -> Split | None:
        """Of all that moved; refused where it leaves a client alone."""
        split = CFL.cut(self, state, update, c, i)
        return split if split and split.part.bincount().min() >= self.min_size else None

    def part(self, state: Any, update: Update, i: Tensor) -> Tensor:
        """By Equation 6."""
        return bipartition(cosine_similarity(take(update.per_client["update"], i))).assignment


@dataclass(frozen=True)
class RelativeCFL(Stepped, CFL):
    """Thresholds for relative lengths; no cluster is ever finished.

    Parameters
    ----------
    eps1, eps2 : float
        A cluster is split only when its mean update is shorter than `eps1` times the longest one, and some update at
        least `eps2` times learning rate times its own client's steps.
    rest : int
        Rounds that a cluster trains, from its creation, before it may be split.
    min_size : int
        A cut that leaves fewer clients than this on a side is refused, and the cluster is tested again.
    """

    eps1: float = number(0.15)
    eps2: float = number(0.4)
    rest: int = 20
    min_size: int = 2

    def due(self, t: int, since: int, mean: float, longest: float, pace: float) -> bool:
        """Whether a cluster is to be split after round `t`, `since` rounds after its creation."""
        return since >= self.rest and mean < self.eps1 * longest and pace >= self.eps2

    def decide(self, state: Any, c: int, *evidence: float) -> tuple[bool, bool]:
        """A cut where `due` says so."""
        born = max((split.round for split in state.splits if c in (split.model, split.new)), default=0)
        return self.due(state.round, state.round - born, *evidence), False

    def cut(self, state: Any, update: Update, c: int, i: Tensor) -> Split | None:
        """Refused where a side is too small."""
        split = super().cut(state, update, c, i)
        return split if split and split.part.bincount().min() >= self.min_size else None


@dataclass(frozen=True)
class ScheduledCFL(RelativeCFL):
    """Split as in the paper's experiment: after each round of a schedule, the cluster with the widest gap."""

    schedule: tuple[int, ...] = (50, 100, 150)

    def due(self, t: int, since: int, mean: float, longest: float, pace: float) -> bool:
        """Every cluster, but in rounds of the schedule only."""
        return t in self.schedule

    def cuts(self, state: Any, update: Update, due: list[int]) -> list[Split]:
        """The foremost; the first of equal ones."""
        rows = state.norms[state.norms[:, 0] == state.round]
        lengths = {int(c): (mean, longest) for _, c, mean, longest, *_ in rows.tolist()}
        return sorted(super().cuts(state, update, due), key=lambda cut: -self.foremost(cut, *lengths[cut.model]))[:1]

    def foremost(self, cut: Split, mean: float, longest: float) -> float:
        """How wide its gap is."""
        return cut.gap


class LongestFirstCFL(ScheduledCFL):
    """`ScheduledCFL` that splits the cluster with the longest update."""

    def foremost(self, cut: Split, mean: float, longest: float) -> float:
        """The length of its longest update."""
        return longest


class TornFirstCFL(ScheduledCFL):
    """`ScheduledCFL` that splits the cluster whose mean update is shortest relative to its longest one."""

    def foremost(self, cut: Split, mean: float, longest: float) -> float:
        """How many times as long the longest is."""
        return longest / mean


@dataclass(frozen=True)
class GivenClusters(RelativeCFL):
    """The clusters are given and stay: for two controls."""

    eps1: float = number(0.0)
    given: tuple[int, ...] = ()

    def init(self, params: Params, data: ClientData, key: Key) -> Any:
        """Each client in its cluster."""
        state, m = super().init(params, data, key), max(self.given) + 1
        assignment = torch.tensor(self.given, device=data.n.device)
        finished = state.finished.expand(m).clone()
        return replace(state, models=broadcast(params, m), assignment=assignment, finished=finished)


@dataclass(frozen=True)
class WatchedState(CFLState):
    """What Figure 3 of the paper shows, round by round."""

    cosines: Tensor  # (rounds, K, K)
    clusters: Tensor  # (rounds, K), in which the clients trained


class Watched:
    """Keeps the cosines of every round. Stands before a kind of `CFL` among the bases of a class."""

    def init(self: Any, params: Params, data: ClientData, key: Key) -> WatchedState:
        """As CFL, with nothing seen yet."""
        state, k = super().init(params, data, key), len(data)  # type: ignore[misc]
        nothing = torch.zeros(0, k, dtype=torch.int64)
        return WatchedState(**vars(state), cosines=torch.zeros(0, k, k), clusters=nothing)

    def aggregate(self: Any, state: Any, update: Update) -> Any:
        """As CFL, and keep the cosines."""
        now = cosine_similarity(update.per_client["update"]).float()[None]
        end = super().aggregate(state, update)  # type: ignore[misc]
        cosines = torch.cat([end.cosines, now.to(end.cosines)])
        clusters = torch.cat([end.clusters, state.assignment[None].to(end.clusters)])
        return replace(end, cosines=cosines, clusters=clusters)


class WatchedCFL(Watched, RelativeCFL):
    """CFL with relative lengths that keeps the cosines of every round."""


def replay(algorithm: RelativeCFL, state: Any) -> tuple[int, int, bool] | None:
    """Where a finished run would have gone another way with the thresholds of `algorithm`, without training again.

    Parameters
    ----------
    algorithm : RelativeCFL
        Its `due` decides; thresholds and `rest` may differ from those of the run.
    state : CFLState
        The end of the run, with the columns of `COLUMNS`, or with "chance" besides.

    Returns
    -------
    tuple of (int, int, bool), or None
        Round and model of the first different decision, and whether it is due to be split there for `algorithm`. None:
        the same decisions throughout, and so the same result. After a different decision nothing is known.
    """
    born = {0: 0}
    splits = {(split.round, split.model): split for split in state.splits}
    for t, c, mean, longest, pace, *_, was_due in state.norms.tolist():
        due = algorithm.due(int(t), int(t) - born[int(c)], mean, longest, pace)
        if due != bool(was_due):
            return int(t), int(c), due
        if split := splits.get((t, c)):
            born[split.model] = born[split.new] = split.round
    return None
