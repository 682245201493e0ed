"""Clustered federated learning (CFL), which splits a cluster when its clients pull the model in different directions.

Line and equation numbers refer to Sattler, Müller, Samek. Clustered federated learning. NeurIPS workshop on federated
learning 2019. K is the number of clients (m in the paper), M that of clusters and C that of the clients in a round. As
in line 5 of Algorithm 1, updates are used as gradients throughout.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..aggregate import membership
from ..algorithm import Update
from ..checks import number
from ..costs import server_time
from ..data import ClientData
from ..keys import Key
from ..params import Params, broadcast, mix, norm, number_of_rows, sub, take
from ..server.clusters import bipartition, cosine_similarity
from ..server.split_tree import Split, walk
from .clustered import Clustered, ClusteredState

__all__ = ["CFL", "CFLState"]


@dataclass(frozen=True)
class CFLState(ClusteredState):
    """State of CFL.

    Attributes
    ----------
    models : Params
        Stack of M rows, one for each cluster.
    assignment : Tensor of shape (K,), int64
        Index of each client's cluster, and so of its row in `models`.
    finished : Tensor of shape (M,), bool
        Whether Algorithm 2 has returned the cluster.
    round : int
        Number of rounds done.
    splits : tuple of Split
        The split tree, oldest first.
    norms : Tensor of shape (T, 5), float64
        The numbers behind each decision, in the columns that ``CFL.columns`` names. In each round, there is one row for
        each unfinished cluster of two or more clients all of which took part.
    """

    finished: Tensor
    round: int
    splits: tuple[Split, ...]
    norms: Tensor


@dataclass(frozen=True)
class CFL(Clustered):
    """FedAvg within each cluster; a converged cluster in which some client's update is still long is split in two.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    eps1 : float
        A cluster has converged when its mean update is shorter than this. The paper gives no value. With 0, no cluster
        ever converges, which is FedAvg.
    eps2 : float
        A converged cluster is split if some client's update is at least this long, and is finished otherwise. The paper
        gives no value. With 0, every converged cluster is split, down to single clients.

    Raises
    ------
    ValueError
        A setting out of its range.

    Warns
    -----
    UserWarning
        At the end of a run in which no cluster could be tested, because there was no round in which all clients of a
        cluster took part.

    Notes
    -----
    Updates grow with the learning rate, the number of steps and the model, so the thresholds must grow with them. Look
    at the lengths of a run in `CFLState.norms` before you choose. Where updates are noisy, the exact bipartition often
    splits off a single client. `fedlib.extensions.split_half_cfl.SplitHalfCFL` is a rule of this project that needs no
    lengths.

    The recursion of Algorithm 2 runs breadth first, in rounds that all clusters share. A finished cluster keeps its
    model; its clients are still asked to train, but their updates change nothing. The server sees every client's
    update.

    A client whose update is exactly 0 has no direction, so Eq. 4 is undefined for it and Eq. 6 does not assign it to a
    side. Since its gradient is 0, the model already suits it. The client therefore keeps that model, and the other
    clients of its cluster are split without it. `Split.members` does not list it. Chapters 05 and 06.

    Examples
    --------
    With ``loss``, ``model`` and ``data`` as in the example of `fedlib.federation.fit`:

    >>> from fedlib.algorithms import CFL
    >>> many = partition.iid(y, 6).clients(x, y)
    >>> rule = CFL(loss, predict=model, eps1=0.02, eps2=0.2)
    >>> result = fit(rule, model.init(0), many, rounds=20, progress=False)
    >>> len(result.state.models["dense1.bias"]) == 1 + len(result.state.splits)  # a model for each cluster
    True
    """

    eps1: float = number(kw_only=True)
    eps2: float = number(kw_only=True)

    columns: ClassVar[tuple[str, ...]] = ("round", "cluster", "mean update", "longest update", "cut")

    def init(self, params: Params, data: ClientData, key: Key) -> Any:
        """Start with one cluster of all clients (Algorithm 2, line 1)."""
        everybody, norms = torch.zeros_like(data.n), torch.zeros(0, len(self.columns), dtype=torch.float64)
        return CFLState(broadcast(params, 1), everybody, everybody.new_zeros(1, dtype=torch.bool), 0, (), norms)

    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Each client trains its cluster's model and sends its update (Algorithm 1, lines 3-6)."""
        start = self.client_params(state, clients)  # line 4: theta_i <- theta
        end = self.local_training(start, data, key)
        delta = sub(self.shared(end.params), start)  # line 5: Delta theta_i <- SGD_n(theta_i, D_i) - theta_i
        sent, kept = {"update": delta, "n": data.n}, self.kept(end.params)  # n: |D_i|
        return Update(clients, per_client=sent, client_state=kept, log={"loss": end.loss})

    def shared(self, params: Params) -> Params:
        """The parameters of clients that the server sees, here all of them."""
        return params

    def kept(self, params: Params) -> dict[str, Params]:
        """The parameters that stay with the clients, by field of the state; here none."""
        return {}

    def aggregate(self, state: Any, update: Update) -> Any:
        """Move each model by the mean update (Algorithm 1, line 7), then split or finish clusters (Algorithm 2)."""
        delta, cluster = update.per_client["update"], state.assignment[update.clients]
        active = ~state.finished[cluster]  # Algorithm 2, line 9: a finished cluster keeps theta* for good
        weight = membership(cluster, update.per_client["n"] * active.double(), number_of_rows(state.models))
        mean = mix(weight / weight.sum(1, keepdim=True).clamp(min=1), delta)  # sum_i |D_i| / |D_c| Delta theta_i
        models = {name: p + mean[name].to(p.dtype) for name, p in state.models.items()}  # Algorithm 1, line 7
        state, length = replace(state, models=models, round=state.round + 1), norm(mean).double()
        rows, due, finished = [], [], state.finished.clone()
        for c, size in enumerate(state.assignment.bincount().tolist()):
            i = ((cluster == c) & active).nonzero()[:, 0]
            if 0 < len(i) == size:  # all its clients have sent an update
                evidence = self.evidence(state, update, i, float(length[c]))
                cut, done = self.decide(state, c, *evidence)
                finished[c] |= done
                due += [c] * cut
                rows += [[state.round, c, *evidence, cut]] if size > 1 else []
        new = torch.tensor(rows, dtype=torch.float64).reshape(-1, len(self.columns))
        state = replace(state, finished=finished, norms=torch.cat([state.norms, new.to(state.norms)]))
        with server_time("clustering"):
            splits = self.cuts(state, update, due)
        for split in splits:  # Algorithm 2, lines 6 and 7: both sides continue from theta*
            c, number = split.model, number_of_rows(state.models)
            state = replace(
                state,
                models={name: torch.cat([p, p[[c]]]) for name, p in state.models.items()},
                assignment=state.assignment.index_fill(0, split.members[split.part == 1], number),
                finished=torch.cat([state.finished, state.finished[[c]]]),
                splits=(*state.splits, replace(split, new=number)),
            )
        return state

    def evidence(self, state: Any, update: Update, i: Tensor, mean: float) -> tuple[float, ...]:
        """The two lengths by which `decide` judges a cluster, whose clients are rows i of the update."""
        return mean, float(norm(take(update.per_client["update"], i)).max())

    def decide(self, state: Any, c: int, *evidence: float) -> tuple[bool, bool]:
        """Whether to split cluster c, and whether it is finished."""
        mean, longest = evidence
        still = mean < self.eps1  # Algorithm 1, line 8
        pulls = longest >= self.eps2  # Algorithm 2, line 4: Eq. 5 is violated
        return still and pulls, still and not pulls

    def cuts(self, state: Any, update: Update, due: list[int]) -> list[Split]:
        """The splits of this round, for the clusters that are due."""
        clients = [(state.assignment[update.clients] == c).nonzero()[:, 0] for c in due]
        return [cut for c, i in zip(due, clients, strict=True) if (cut := self.cut(state, update, c, i))]

    def cut(self, state: Any, update: Update, c: int, i: Tensor) -> Split | None:
        """Split cluster c, whose clients are rows i of the update; None if fewer than two of them have a direction."""
        i = i[norm(take(update.per_client["update"], i)) > 0]  # Eq. 4 is undefined for an update of 0
        if len(i) < 2:
            return None
        start = {name: p[[c]] for name, p in state.models.items()}
        delta, part = take(update.per_client["update"], i), self.part(state, update, i).to(i.device)
        # the sum of each side's updates, each normalised to length 1, for comparison with new clients
        directions = mix(membership(part, 1 / norm(delta).double(), 2), delta)
        return Split(state.round, c, -1, update.clients[i], part, cosine_similarity(delta), start, directions)

    def part(self, state: Any, update: Update, i: Tensor) -> Tensor:
        """The side, 0 or 1, of each of these clients (Algorithm 2, lines 3 and 5, by Eq. 4 and 6)."""
        return bipartition(cosine_similarity(take(update.per_client["update"], i))).assignment

    def unreached(self, state: Any, rounds: int) -> str:
        """The warning for a run in which no cluster could be tested; empty if none is due."""
        if self.eps1 == 0 or len(state.norms) or len(state.assignment) < 2:
            return ""
        return (
            f"CFL tested no cluster up to round {rounds}, its last, so all clients stayed in one cluster: a test needs "
            "all clients of a cluster in a round"
        )

    def new_clients(self, state: Any, data: ClientData, key: Key, rounds: int) -> Any:
        """Send each new client down the split tree; the paper does not cover new clients.

        At each split the client trains that split's model once and takes the side whose mean direction is closer to its
        update. It trains no further, so `rounds` is not used.
        """
        after = walk(state.splits, data.n, lambda start: sub(self.local_training(start, data, key).params, start))
        return replace(state, assignment=after)
