"""Clustered federated learning (CFL): one model for all, split in two wherever clients pull apart."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..algorithm import Algorithm, Update
from ..costs import server_time
from ..data import ClientData
from ..keys import Key
from ..params import Params, broadcast, mix, norm, number_of_rows, sub, take
from ..server.clusters import bipartition, cosine_similarity

__all__ = ["CFL", "CFLState", "Split", "calibrate", "replay"]


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
    norms : Tensor of shape (m,)
        Lengths of their updates; `mean_norm` is that of their weighted mean.
    mean_norm, objective, gap : float
        `objective` is the largest cosine across the cut (CFL Eq. 6), `gap` the smallest within a part minus it.
    start : Params
        Stack of one row: the model that was split.
    directions : Params
        Stack of two rows: the mean direction of the updates of each part, by which new clients are sent on.
    """

    round: int
    model: int
    new: int
    members: Tensor
    part: Tensor
    similarity: Tensor
    norms: Tensor
    mean_norm: float
    objective: float
    gap: float
    start: Params
    directions: Params


@dataclass(frozen=True)
class CFLState:
    """State of CFL.

    Attributes
    ----------
    models : Params
        Stack of M rows, one for each cluster.
    assignment : Tensor of shape (K,), int64
        Number of each client's model.
    since : Tensor of shape (M,), int64
        Rounds since a cluster came to be.
    round : int
        Rounds done.
    splits : tuple of Split
        The split tree, oldest first.
    norms : Tensor of shape (T, 6), float64
        What the criterion saw and said: round, model, length of the mean update, that of the longest, the longest
        divided by learning rate times steps, and 1 where the cluster was due to be split. One row for each
        round in which a cluster of two or more clients could be tested.
    latest : dict
        With `CFL.memory` > 1 the last update of each client: "update" (a stack of K rows), "n", "steps" and "round",
        each of shape (K,); empty otherwise.
    """

    models: Params
    assignment: Tensor
    since: Tensor
    round: int
    splits: tuple[Split, ...]
    norms: Tensor
    latest: dict[str, Any]


@dataclass(frozen=True)
class CFL(Algorithm):
    """Train a model as FedAvg does; when it stands still and its clients do not, split them by their updates' cosines.

    After each round and for each cluster: it *stands still* when the mean of its clients' updates is short, and its
    clients are *incongruent* when some update is long. Then the cluster is cut in two, so that the largest cosine
    across the cut is as small as can be, and both parts go on from the same model.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    trigger : {"relative", "norm", "schedule"}
        "relative": the mean is shorter than `eps1` times the longest update, and the longest is at least `eps2` times
        learning rate times steps. "norm": both thresholds are lengths, as the paper has them. "schedule": at the
        rounds of `schedule` the cluster with the widest gap is split, as in the paper's experiment.
    eps1, eps2 : float
        The thresholds. ``eps1=0`` never splits, which is FedAvg. With "relative", too, `eps2` is a length: it depends
        on data, network and local training. The default was tuned on chapter 04's digits with its local training. On
        two further sets of handwriting, IID clients were split in seven of ten runs with the default `epochs` and
        `batch_size`, and in one of two after `calibrate`; with chapter 04's settings in none of two.
    rest : int
        Rounds that a cluster trains before it may be split.
    schedule : sequence of int
        Rounds at which to split, with ``trigger="schedule"``.
    method : {"exact", "complete", "average"}
        How to cut; see `fedlib.server.clusters.bipartition`.
    min_size : int
        A cut that leaves fewer clients on a side is refused, and the cluster stays whole. 1: the paper.
    memory : int
        A cluster is tested in rounds after which the server knows an update of each member that is less than so many
        rounds old and younger than the cluster. 1: only this round's, which takes full participation. More costs the
        server the memory of one model for each client. With cohorts of C drawn from K clients it has to be well above
        (K / C) log K, or some client is nearly always missing.

    Raises
    ------
    ValueError
        A setting out of its range.

    Warns
    -----
    UserWarning
        No cluster could be tested in the first 5 rounds for which it might have been split, for want of updates.

    Notes
    -----
    Algorithms 1 and 2 of the paper. Its recursion runs here breadth first, in common rounds. Updates stand for
    gradients throughout, as in line 5 of Algorithm 1. The server sees every client's update. `replay` says what other
    thresholds would have changed, `calibrate` gives `eps2`. Chapter 04.

    References
    ----------
    Sattler, Müller, Samek. Clustered federated learning. NeurIPS workshop on federated learning 2019.
    """

    trigger: Literal["relative", "norm", "schedule"] = "relative"
    eps1: float = 0.15
    eps2: float = 0.4
    rest: int = 20
    schedule: Sequence[int] = (50, 100, 150)
    method: str = "exact"
    min_size: int = 2
    memory: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trigger not in ("relative", "norm", "schedule"):
            raise ValueError(f'trigger must be "relative", "norm" or "schedule", got {self.trigger!r}')
        if self.method not in ("exact", "complete", "average"):
            raise ValueError(f'method must be "exact", "complete" or "average", got {self.method!r}')
        for name in ("eps1", "eps2", "rest"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)!r}")
        if self.min_size < 1:
            raise ValueError(f"min_size must be at least 1, got {self.min_size!r}; 1 allows clusters of one client")
        if self.memory < 1:
            raise ValueError(f"memory must be at least 1, got {self.memory!r}; 1 knows only this round's updates")

    def init(self, params: Params, data: ClientData, key: Key) -> CFLState:
        """One cluster of all clients."""
        everybody = torch.zeros(len(data), dtype=torch.int64, device=data.n.device)
        latest: dict[str, Any] = {}
        if self.memory > 1:
            never = everybody - self.memory
            update = {name: torch.zeros_like(p) for name, p in broadcast(params, len(data)).items()}
            latest = {"update": update, "n": data.n, "steps": never, "round": never}
        nothing = torch.zeros(0, 6, dtype=torch.float64)
        return CFLState(broadcast(params, 1), everybody, everybody[:1], 0, (), nothing, latest)

    def train(self, state: CFLState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Delta theta_i <- SGD(theta, D_i) - theta (Alg. 1, lines 4-5); each update goes to the server."""
        start = self.client_params(state, clients)
        end = self.local_training(start, data, key)
        steps = end.steps.to(data.n.device)
        return Update(
            clients, per_client={"update": sub(end.params, start), "n": data.n, "steps": steps}, log={"loss": end.loss}
        )

    def aggregate(self, state: CFLState, update: Update) -> CFLState:
        """Theta <- theta + weighted mean of updates (Alg. 1, line 7); then the split criterion (Alg. 2, lines 3-7)."""
        delta, mine = update.per_client["update"], state.assignment[update.clients]
        m = number_of_rows(state.models)
        member = (mine == torch.arange(m, device=mine.device)[:, None]) * update.per_client["n"].double()  # (M, C)
        mean = mix(member / member.sum(1, keepdim=True).clamp(min=1), delta)
        state = replace(
            state,
            models={name: p + mean[name].to(p.dtype) for name, p in state.models.items()},
            since=state.since + 1,
            round=state.round + 1,
        )
        state, known = self._known(state, update)
        state, due = self._test(state, known)
        with server_time("clustering"):
            cuts = [self._cut(state, known, c, length) for c, length in due]
        cuts = [cut for cut in cuts if min(cut.part.sum(), (1 - cut.part).sum()) >= self.min_size]
        if self.trigger == "schedule":
            cuts = sorted(cuts, key=lambda cut: -cut.gap)[:1]
        for cut in cuts:
            state = self._split(state, cut)
        return state

    def _known(self, state: CFLState, update: Update) -> tuple[CFLState, dict[str, Any]]:
        """The updates that the server may judge by, with the positions of their clients, ascending."""
        if self.memory == 1:
            return state, {"clients": update.clients, **update.per_client}
        old, here = state.latest, update.clients
        now = {"n": update.per_client["n"], "steps": update.per_client["steps"], "round": here * 0 + state.round}
        stack = {name: p.index_copy(0, here, update.per_client["update"][name]) for name, p in old["update"].items()}
        latest: dict[str, Any] = {
            "update": stack,
            **{name: old[name].index_copy(0, here, rows) for name, rows in now.items()},
        }
        fresh = state.round - latest["round"] < state.since[state.assignment].clamp(max=self.memory)
        known = {name: rows[fresh] for name, rows in latest.items() if name != "update"}
        known |= {"clients": fresh.nonzero()[:, 0], "update": take(stack, fresh.nonzero()[:, 0])}
        return replace(state, latest=latest), known

    def _test(self, state: CFLState, known: dict[str, Any]) -> tuple[CFLState, list[tuple[int, float]]]:
        """The clusters that are due to be split, with the length of their mean update (Eq. 5, Alg. 1, line 8)."""
        mine, m = state.assignment[known["clients"]], number_of_rows(state.models)
        member = (mine == torch.arange(m, device=mine.device)[:, None]) * known["n"].double()  # (M, C)
        mean = norm(mix(member / member.sum(1, keepdim=True).clamp(min=1), known["update"])).double()
        lengths = norm(known["update"]).double()
        pace = lengths / (self.lr * known["steps"])
        sizes = torch.bincount(state.assignment, minlength=m)
        whole = (torch.bincount(mine, minlength=m) == sizes) & (sizes >= 2)
        due, rows = [], []
        for c in whole.nonzero()[:, 0].tolist():
            here = mine == c
            seen = float(mean[c]), float(lengths[here].max()), float(pace[here].max())
            split = self._due(state.round, int(state.since[c]), *seen)
            rows.append([state.round, c, *seen, float(split)])
            if split:
                due.append((c, seen[0]))
        table = torch.tensor(rows, dtype=torch.float64).reshape(-1, 6)
        state = replace(state, norms=torch.cat([state.norms, table.to(state.norms)]))
        if self.eps1 > 0 and state.round == self.rest + 5 and not len(state.norms):
            warnings.warn(
                f"CFL could not test any cluster in {state.round} rounds: it needs an update of each client that is at "
                f"most {self.memory} rounds old. Let all clients take part, or raise memory={self.memory}",
                stacklevel=2,
            )
        return state, due

    def _due(self, t: int, since: int, length: float, longest: float, pace: float) -> bool:
        """Whether a cluster is to be split after round t: it stands still, and Eq. 5 does not hold."""
        if self.trigger == "schedule":
            return t in self.schedule
        if since < self.rest:
            return False
        if self.trigger == "norm":
            return length < self.eps1 and longest >= self.eps2
        return length < self.eps1 * longest and pace >= self.eps2

    def _cut(self, state: CFLState, known: dict[str, Any], model: int, length: float) -> Split:
        """The bipartition of the clients of one model (CFL Eq. 6)."""
        here = state.assignment[known["clients"]] == model
        members, delta = known["clients"][here], {name: p[here] for name, p in known["update"].items()}
        similarity, lengths = cosine_similarity(delta), norm(delta).double()
        found = bipartition(similarity, self.method)
        part = found.assignment.to(members.device)
        sides = torch.stack([1 - part, part]) / lengths / torch.stack([1 - part, part]).sum(1, keepdim=True)
        return Split(
            state.round,
            model,
            -1,
            members,
            part,
            similarity,
            lengths,
            length,
            found.objective,
            found.gap,
            take(state.models, members[:1] * 0 + model),
            mix(sides, delta),
        )

    def _split(self, state: CFLState, cut: Split) -> CFLState:
        """Both parts go on from the same model; the second gets a new number (Alg. 2, lines 6-7)."""
        new = number_of_rows(state.models)
        since = torch.cat([state.since, state.since[:1] * 0])
        since[cut.model] = 0
        assignment = state.assignment.clone()
        assignment[cut.members[cut.part == 1]] = new
        return replace(
            state,
            models={name: torch.cat([p, p[cut.model : cut.model + 1]]) for name, p in state.models.items()},
            assignment=assignment,
            since=since,
            splits=(*state.splits, replace(cut, new=new)),
        )

    def client_params(self, state: CFLState, clients: Tensor) -> Params:
        """Each client holds the model of its cluster."""
        return take(state.models, state.assignment[clients])

    def new_clients(self, state: CFLState, data: ClientData, key: Key, rounds: int) -> CFLState:
        """A new client walks down the split tree: at each node it trains the model once and goes where it points to."""
        assignment = torch.zeros(len(data), dtype=torch.int64, device=data.n.device)
        for cut in state.splits:
            start = take(cut.start, torch.zeros_like(assignment))
            update = sub(self.local_training(start, data, key).params, start)
            closeness = torch.stack([_cosine(update, cut.directions, side) for side in (0, 1)])
            goes_on = (assignment == cut.model) & (closeness[1] > closeness[0])
            assignment = torch.where(goes_on, cut.new, assignment)
        return replace(state, assignment=assignment)


def _cosine(update: Params, directions: Params, side: int) -> Tensor:
    """Inner product of each update with one direction; dividing by its own length would change no comparison."""
    one: Any = sum((p * directions[name][side]).reshape(len(p), -1).sum(1) for name, p in update.items())
    length: Any = sum(directions[name][side].square().sum() for name in update)
    return one / length.sqrt()


def calibrate(state: CFLState, eps1: float = 0.15, rest: int = 20, margin: float = 1.25) -> float:
    """`eps2` for the relative trigger, from a finished run on clients that are congruent.

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

    Returns
    -------
    float

    Raises
    ------
    ValueError
        The run tested no cluster from round `rest` on.

    Notes
    -----
    The paper gives no value for its thresholds. Chapter 04.
    """
    t, _, length, longest, pace, _ = state.norms.T
    rested = t >= rest
    if not rested.any():
        raise ValueError(f"the run tested no cluster from round {rest} on; let it train longer")
    still = rested & (length < eps1 * longest)
    return margin * float(pace[still if still.any() else rested & (t > 0.75 * t.max())].max())


def replay(algorithm: CFL, state: CFLState) -> tuple[int, int, bool] | None:
    """Where a finished run would have gone another way with the thresholds of `algorithm`, without training again.

    Parameters
    ----------
    algorithm : CFL
        The settings to try. `trigger`, `eps1`, `eps2` and `rest` may differ from those of the run.
    state : CFLState
        The end of the run.

    Returns
    -------
    tuple of (int, int, bool), or None
        Round and model of the first different decision, and whether it is due to be split there for `algorithm`. None:
        the same decisions throughout, and so the same result. After a different decision nothing is known.

    Raises
    ------
    ValueError
        A trigger "schedule", which has no thresholds.

    Notes
    -----
    Chapter 04 maps the cluster scores over both thresholds with it.
    """
    if algorithm.trigger == "schedule":
        raise ValueError('replay needs a trigger with thresholds, "relative" or "norm"; got "schedule"')
    born = {0: 0}
    splits = {(cut.round, cut.model): cut for cut in state.splits}
    for t, model, length, longest, pace, was_due in state.norms.tolist():
        at = int(t), int(model)
        due = algorithm._due(at[0], at[0] - born[at[1]], length, longest, pace)
        if due != bool(was_due):
            return *at, due
        if cut := splits.get(at):
            born[cut.model] = born[cut.new] = cut.round
    return None
