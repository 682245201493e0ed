"""CFL that splits a cluster when two halves of its clients' examples show the same two groups (not from a paper).

All clients of a cluster, at least four, must take part in the round of a test. Groups whose members differ strongly
among themselves are not split, especially if one group is small and the other large. Under label skew, clients are
split although one model might serve them all. A test costs two more local trainings, and K x K sums on the server.
Chapter 06, and the book's page of verdicts.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..algorithm import Update, held
from ..algorithms.cfl import CFL, CFLState
from ..checks import number, whole
from ..costs import TRAINING
from ..data import ClientData, halves
from ..keys import Key
from ..params import Params, number_of_rows, sub, take, to_matrix
from ..server.clusters import bipartition, cosine_similarity
from ..server.split_tree import Split

__all__ = [
    "SplitHalfCFL",
    "SplitHalfCFLState",
    "add_cosines",
    "chance_of_shared_cut",
    "cosines_of_halves",
    "shared_cut",
]


@dataclass(frozen=True)
class SplitHalfCFLState(CFLState):
    """State of CFL and of its tests. The column "chance" of `norms` is 1 in rounds without a test.

    Attributes
    ----------
    size : Tensor of shape (1,), int64
        Number of examples in either half of a client, which is half of the mean over clients, rounded up. Clients
        receive it in 8 bytes that the costs leave out. Empty if there are no tests.
    halves : Tensor of shape (3, K, K), float64
        Sums of `cosines_of_halves` over all tests so far. A test counts for two clients if they are in the same cluster
        and all clients of that cluster take part. Empty, (3, 0, 0), before the first test.
    """

    size: Tensor = field(metadata=held("server and clients"))
    halves: Tensor


@dataclass(frozen=True)
class SplitHalfCFL(CFL):
    """CFL in which a test on two halves of each client's examples replaces both thresholds.

    In every round divisible by `every`, clients train twice more from the same model, for `test_epochs` epochs on each
    of two random halves of their examples. Clients *differ* if the split that the updates of one half suggest also
    shows in those of the other half; it would not if all clients had the same distribution. Moreover, they must differ
    in groups and not just one by one, as `chance_of_shared_cut` explains. The test uses the sums of the cosines of all
    tests so far. If its p-value is below `level`, the cluster is split in two, and both sides continue from the same
    model.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    level : float
        Upper bound on the probability that one test splits congruent clients, that is, clients with the same
        distribution. With 0 there are no tests, which is FedAvg.
    every : int
        Number of rounds from one test to the next.
    test_epochs : int
        Number of epochs on either half in a test. With 1, groups hardly show if clients have few examples.
    min_size : int
        A split that leaves fewer clients than this on a side is refused, and the cluster is tested again later. The
        default refuses models for a single client.

    Raises
    ------
    ValueError
        A setting out of its range.

    Warns
    -----
    UserWarning
        At the end of a run in which no cluster could be tested, because there were too few rounds or because there was
        no test round in which all clients of a cluster took part.

    Notes
    -----
    Thresholds that suit one data set split congruent clients of another. Here the halves measure the noise. Clusters
    need not converge first. In fact, a converged model may have memorised its clients' examples, which hides their
    groups. No cluster is ever finished. Splits use average linkage (`shared_cut`) and leave out clients for which every
    test so far had an update of 0 on one of the halves.

    In one of `every` rounds, the halves cost the operations of `test_epochs` epochs and the bytes of two updates, with
    the purpose "clustering". They are the same throughout a run, so no example moves from one to the other. All halves
    have one size, half of the mean over clients, because clients that took more steps would differ from the others.

    Examples
    --------
    With ``loss``, ``model`` and ``data`` as in the example of `fedlib.federation.fit`:

    >>> from fedlib.extensions import SplitHalfCFL
    >>> many = partition.iid(y, 6).clients(x, y)
    >>> result = fit(SplitHalfCFL(loss, predict=model), model.init(0), many, rounds=20, progress=False)
    >>> len(result.state.models["dense1.bias"]) == 1 + len(result.state.splits)  # a model for each cluster
    True
    """

    eps1: float = field(default=0.0, init=False, repr=False)
    eps2: float = field(default=0.0, init=False, repr=False)
    level: float = number(0.02, below=1)
    every: int = whole(20)
    test_epochs: int = whole(10)
    min_size: int = whole(2)

    columns: ClassVar[tuple[str, ...]] = ("round", "cluster", "mean update", "longest update", "chance", "cut")

    def init(self, params: Params, data: ClientData, key: Key) -> Any:
        """Start as CFL does, with nothing tested yet."""
        size = (data.n.double().mean()[None] / 2).ceil().long()
        sums = torch.zeros(3, 0, 0, dtype=torch.float64, device=data.n.device)
        begun = vars(super().init(params, data, key))
        return SplitHalfCFLState(**begun, size=size if self.level else size[:0], halves=sums)

    def download(self, state: Any, clients: Tensor) -> dict[str, Any]:
        """The model of each client's cluster; the 8 bytes of `SplitHalfCFLState.size` are not counted."""
        return {TRAINING: take(state.models, state.assignment[clients])}

    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Train as in CFL, and in test rounds also on either half of the examples, from the same model."""
        update = super().train(state, data, clients, key)
        if self.level == 0 or key.round % self.every:
            return update
        start, longer = self.client_params(state, clients), replace(self, epochs=self.test_epochs, stragglers=0.0)
        pair = dict(zip(("first half", "second half"), halves(data, key, int(state.size)), strict=True))
        ends = {name: longer.local_training(start, half, key, purpose="clustering") for name, half in pair.items()}
        tested = {name: sub(self.shared(end.params), start) for name, end in ends.items()}
        purpose = update.purpose | dict.fromkeys(tested, "clustering")
        return replace(update, per_client=update.per_client | tested, purpose=purpose)

    def aggregate(self, state: Any, update: Update) -> Any:
        """Add up the cosines of this round's test, then aggregate as in CFL."""
        return super().aggregate(replace(state, halves=add_cosines(state.halves, update, state.assignment)), update)

    def evidence(self, state: Any, update: Update, i: Tensor, mean: float) -> tuple[float, ...]:
        """The two lengths of CFL, and the p-value of `chance_of_shared_cut`, which is 1 without a test."""
        members, chance = update.clients[i[update.per_client["n"][i] > 1]], 1.0  # a single example has no halves
        if "first half" in update.per_client and len(members) > 1:
            chance = chance_of_shared_cut(state.halves[:, members[:, None], members])
        return *super().evidence(state, update, i, mean), chance

    def decide(self, state: Any, c: int, *evidence: float) -> tuple[bool, bool]:
        """Split if the test is significant; no cluster is ever finished."""
        return evidence[-1] < self.level, False

    def cut(self, state: Any, update: Update, c: int, i: Tensor) -> Split | None:
        """Split as in CFL, without clients of which no test knows anything; also None if the split is refused."""
        split = super().cut(state, update, c, i[state.halves[0].diagonal()[update.clients[i]] > 0])
        return split if split and split.part.bincount().min() >= self.min_size else None

    def part(self, state: Any, update: Update, i: Tensor) -> Tensor:
        """The sides by both halves together, see `shared_cut`."""
        members = update.clients[i]
        return shared_cut(state.halves[:, members[:, None], members])

    def unreached(self, state: Any, rounds: int) -> str:
        """The warning for a run without a test; empty if none is due."""
        tested = (state.norms[:, 0] % self.every == 0) & (len(state.assignment) > 3)  # rounds in which all took part
        if self.level == 0 or tested.any():
            return ""
        return (
            f"CFL tested no cluster up to round {rounds}, its last, so all clients stayed in one cluster: a test is "
            f"due after every={self.every} rounds and needs all clients of a cluster of 4 or more"
        )


def cosines_of_halves(first: Params, second: Params) -> Tensor:
    """Similarities of clients by two updates of each, from the same model on two random halves of its examples.

    Parameters
    ----------
    first, second : Params
        Stacks of m rows.

    Returns
    -------
    Tensor of shape (3, m, m), float64
        Cosines between the first halves, between the second halves, and between the first half of the row's client and
        the second half of the column's. A client with a zero update, which has no direction, has rows and columns of 0.
    """
    moved = (to_matrix(first).any(1) & to_matrix(second).any(1)).nonzero()[:, 0]
    cosines = torch.zeros(3, *[number_of_rows(first)] * 2, dtype=torch.float64, device=moved.device)
    if m := len(moved):
        cosine = cosine_similarity({name: torch.cat([p[moved], second[name][moved]]) for name, p in first.items()})
        cosines[:, moved[:, None], moved] = torch.stack([cosine[:m, :m], cosine[m:, m:], cosine[:m, m:]])
    return cosines


def add_cosines(sums: Tensor, update: Update, assignment: Tensor) -> Tensor:
    """Add the `cosines_of_halves` of one more round to their sums over tests.

    Parameters
    ----------
    sums : Tensor of shape (3, K, K), float64
        The sums so far; of shape (3, 0, 0) before the first test.
    update : Update
        Its `per_client` has "first half" and "second half", stacks of C rows, unless there was no test.
    assignment : Tensor of shape (K,), int64
        Index of each client's cluster. Two clients count if they are in one cluster and all its clients take part.

    Returns
    -------
    Tensor of shape (3, K, K), float64
    """
    if "first half" not in update.per_client:
        return sums
    sums, size, cluster = sums.clone(), assignment.bincount(), assignment[update.clients]
    for c in cluster.unique().tolist():
        i = (cluster == c).nonzero()[:, 0]
        if 2 <= len(i) == size[c]:
            sums = sums if sums.numel() else sums.new_zeros(3, len(assignment), len(assignment))
            own = update.clients[i]
            first, second = (take(update.per_client[f"{which} half"], i) for which in ("first", "second"))
            sums[:, own[:, None], own] += cosines_of_halves(first, second).to(sums)
    return sums


def chance_of_shared_cut(cosines: Tensor) -> float:
    """The p-value of two groups, or the probability that congruent clients seem to form groups as clear as these.

    Parameters
    ----------
    cosines : Tensor of shape (3, m, m)
        From `cosines_of_halves`, or the sum of those of several tests with the same halves.

    Returns
    -------
    float
        From 0 to 1. It is 1 if fewer than four clients remain without those of which nothing is known (all cosines 0),
        if the splits of both halves leave a client alone, or if clients differ one by one but not in groups.

    Notes
    -----
    The first halves are split in two by average linkage. If all clients had the same distribution, this split would
    mean nothing for the second halves. Each client's second half gets a score, its mean cosine with the first halves of
    one side minus its mean cosine with those of the other. Two one-sided t-tests then ask whether each side is closer
    to its first halves than to those of the other side. They use the variance within both sides and so have m - 2
    degrees of freedom for m clients. Since both must be significant, the larger p-value counts. (It is not enough that
    the sides differ. For example, clients with noisier updates differ from the others in either half but are no closer
    to each other.) Then the halves swap roles, and the smaller p-value counts, times two (Bonferroni). A split that
    leaves a client alone is not tested. With four clients, and so two degrees of freedom, hardly any difference is
    large enough, so use a higher level there.

    Clients may also differ one by one, for example when a model has memorised their examples, and then a split of one
    half may show in the other although there are no groups. Members of a group, however, are interchangeable. The first
    halves therefore determine each client's nearest peer, and the test counts only if, in the second halves, the mean
    cosine of such pairs is above the midpoint between the mean cosine across the split and that of a client's own two
    halves. As a result, groups whose members differ strongly among themselves are not split, especially if one group is
    small and the other large, whereas clients that differ in few directions, as under label skew, have peers and may be
    split.

    The test compares one number for each client, not the many entries of the updates, which are far from independent.
    It needs halves of one size (`fedlib.data.halves`), because otherwise clients that take equally many steps look
    alike.
    """
    from scipy.special import stdtr

    known = cosines[0].diagonal() > 0
    first, second, across = cosines[:, known][:, :, known]
    own, chances = across.diag().mean(), [0.5]
    if (m := len(first)) < 4:
        return 1.0
    for one, other, alike in ((first, second, across.T), (second, first, across)):
        side = bipartition(one, "average").assignment.double()
        peer = one.clone().fill_diagonal_(-torch.inf).argmax(1)
        n, strangers = side.sum(), other[side[:, None] != side].mean()
        if 1 < n < m - 1 and 2 * other.gather(1, peer[:, None]).mean() > own + strangers:
            line = alike @ (side / n - (1 - side) / (m - n))
            x, y = line[side == 1], line[side == 0]
            spread = ((x - x.mean()).square().sum() + (y - y.mean()).square().sum()) / (m - 2)
            t = torch.minimum(x.mean() * len(x) ** 0.5, -y.mean() * len(y) ** 0.5) / spread.sqrt()
            chances.append(float(stdtr(m - 2, -float(t.nan_to_num(0.0)))))
    return 2 * min(chances)


def shared_cut(cosines: Tensor) -> Tensor:
    """Split clients in two by both halves together, with average linkage.

    Parameters
    ----------
    cosines : Tensor of shape (3, m, m)
        As in `chance_of_shared_cut`.

    Returns
    -------
    Tensor of shape (m,), int64
        0 for the side of the first client, 1 for the other.
    """
    first, second, across = cosines
    return bipartition(first + second + across + across.T, "average").assignment
