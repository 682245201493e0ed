"""Not from a paper: CFL that cuts a cluster when two halves of its clients' examples show the same two groups.

Limits: all clients of a cluster must take part in the round of a test, four of them at least. Groups whose members
differ strongly among themselves are not parted, least of all a small group beside a large one. Under label skew clients
are parted though one model might do. A test costs two more trainings, and K x K sums on the server. Chapter 06, and
the book's page of verdicts.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..algorithm import Update, held
from ..algorithms.cfl import CFL, CFLState
from ..checks import check_number, check_whole
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
    """State of CFL, and what tests need. The column "chance" of `norms` is 1 in rounds without a test.

    Attributes
    ----------
    size : Tensor of shape (1,), int64
        Examples in either half of a client, in a test: half of the mean over clients. Clients are told it, in 8 bytes
        that the costs leave out. Empty where nothing is tested.
    halves : Tensor of shape (3, K, K), float64
        Sums over all tests so far of `cosines_of_halves`: two clients count while they are in one cluster, all of whose
        clients take part. Empty, (3, 0, 0), before the first test.
    """

    size: Tensor = field(metadata=held("server and clients"))
    halves: Tensor


@dataclass(frozen=True)
class SplitHalfCFL(CFL):
    """CFL in which a test on two halves of each client's examples takes the place of both thresholds.

    In every round divisible by `every` clients train twice more, from the same start, for `test_epochs` epochs on two
    random halves of their examples. They *differ* when the cut that one half's updates suggest shows in the other
    half's as well; if all clients drew from one distribution, it would not. And they must differ in groups, not one by
    one: see `chance_of_shared_cut`. The cosines of all tests so far are added up and the sums are tested; where the
    probability is below `level`, the cluster is cut in two, and both parts go on from the same model.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    level : float
        Probability with which one test may take congruent clients apart, at the most. 0 never tests, which is FedAvg.
    every : int
        Rounds from one test to the next.
    test_epochs : int
        Epochs on either half in a test. With 1, groups of clients with few examples hardly show.
    min_size : int
        A cut that leaves fewer clients than this on a side is refused, and the cluster is tested again. The default
        keeps a lone client from a model of its own.

    Raises
    ------
    ValueError
        A setting out of its range.

    Warns
    -----
    UserWarning
        At the end of a run in which no cluster could be tested: there were too few rounds, or in none that counts did
        all clients of a cluster take part.

    Notes
    -----
    Lengths that suit one set of data split congruent clients of another. Here the halves measure the noise, and no
    cluster needs to stand still: a model at rest may know its clients' examples by heart, which hides their groups. No
    cluster finishes. Tests cut by average linkage (`shared_cut`), and leave out clients whose halves never moved.

    Halves cost the operations of `test_epochs` epochs, and the bytes of two updates, in one round of `every`, with the
    purpose "clustering". They stay the same throughout a run, so that first halves never meet second ones, and have one
    size, half of the mean over clients, so that all take equally many steps: clients that took more would differ from
    the others.

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
    level: float = 0.02
    every: int = 20
    test_epochs: int = 10
    min_size: int = 2

    columns: ClassVar[tuple[str, ...]] = ("round", "cluster", "mean update", "longest update", "chance", "cut")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.level, "level", below=1)
        for name in ("every", "test_epochs", "min_size"):
            check_whole(getattr(self, name), name)

    def init(self, params: Params, data: ClientData, key: Key) -> Any:
        """As CFL; nothing tested yet."""
        size = (data.n.double().mean()[None] / 2).ceil().long()
        sums = torch.zeros(3, 0, 0, dtype=torch.float64, device=data.n.device)
        begun = vars(super().init(params, data, key))
        return SplitHalfCFLState(**begun, size=size if self.level else size[:0], halves=sums)

    def download(self, state: Any, clients: Tensor) -> dict[str, Any]:
        """The model of the cluster; the 8 bytes of `SplitHalfCFLState.size` are not counted."""
        return {TRAINING: take(state.models, state.assignment[clients])}

    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """As CFL; in a round of a test also on either half of the examples, from the same start."""
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
        """The cosines of this round's test are added up; then as CFL."""
        return super().aggregate(replace(state, halves=add_cosines(state.halves, update, state.assignment)), update)

    def evidence(self, state: Any, update: Update, i: Tensor, mean: float) -> tuple[float, ...]:
        """Two lengths, and the probability that congruent clients look as much like two groups."""
        members, chance = update.clients[i[update.per_client["n"][i] > 1]], 1.0  # a single example has no halves
        if "first half" in update.per_client and len(members) > 1:
            chance = chance_of_shared_cut(state.halves[:, members[:, None], members])
        return *super().evidence(state, update, i, mean), chance

    def decide(self, state: Any, c: int, *evidence: float) -> tuple[bool, bool]:
        """A cut where the test is significant; no cluster is ever finished."""
        return evidence[-1] < self.level, False

    def cut(self, state: Any, update: Update, c: int, i: Tensor) -> Split | None:
        """As CFL, without clients of whom no test knows anything; None, too, if the cut is refused."""
        split = super().cut(state, update, c, i[state.halves[0].diagonal()[update.clients[i]] > 0])
        return split if split and split.part.bincount().min() >= self.min_size else None

    def part(self, state: Any, update: Update, i: Tensor) -> Tensor:
        """The cut that both halves give."""
        members = update.clients[i]
        return shared_cut(state.halves[:, members[:, None], members])

    def unreached(self, state: Any, rounds: int) -> str:
        """A test."""
        tested = (state.norms[:, 0] % self.every == 0) & (len(state.assignment) > 3)  # rounds in which all took part
        if self.level == 0 or tested.any():
            return ""
        return (
            f"CFL tested no cluster up to round {rounds}, its last, so all clients stayed in one: a test is due after "
            f"every={self.every} rounds and needs all clients of a cluster of 4 or more"
        )


def cosines_of_halves(first: Params, second: Params) -> Tensor:
    """How alike clients are, by two updates of each, from the same start, on two random halves of its examples.

    Parameters
    ----------
    first, second : Params
        Stacks of m rows.

    Returns
    -------
    Tensor of shape (3, m, m), float64
        Cosines of the first halves, of the second halves, and of the first half of the row's client with the second of
        the column's. A zero update has no direction: the rows and columns of a client with one are 0.
    """
    moved = (to_matrix(first).any(1) & to_matrix(second).any(1)).nonzero()[:, 0]
    cosines = torch.zeros(3, *[number_of_rows(first)] * 2, dtype=torch.float64, device=moved.device)
    if m := len(moved):
        cosine = cosine_similarity({name: torch.cat([p[moved], second[name][moved]]) for name, p in first.items()})
        cosines[:, moved[:, None], moved] = torch.stack([cosine[:m, :m], cosine[m:, m:], cosine[:m, m:]])
    return cosines


def add_cosines(sums: Tensor, update: Update, assignment: Tensor) -> Tensor:
    """Sums over tests of `cosines_of_halves`, with those of one more round.

    Parameters
    ----------
    sums : Tensor of shape (3, K, K), float64
        Or (3, 0, 0) before the first test.
    update : Update
        With "first half" and "second half" in `per_client`, stacks of C rows; without, there was no test.
    assignment : Tensor of shape (K,), int64
        Index of each client's cluster. Two clients count if they are in one cluster, and all its clients take part.

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
    """How likely congruent clients are to fall in two groups as clearly as these: a p-value, by halves of their data.

    Parameters
    ----------
    cosines : Tensor of shape (3, m, m)
        Of `cosines_of_halves`; or the sum of those of several tests, with the same halves.

    Returns
    -------
    float
        From 0 to 1; 1 if there are fewer than four clients, those of whom nothing is known (all cosines 0) left out, if
        every cut leaves a client alone, or if clients differ one by one but not in groups.

    Notes
    -----
    The first halves are cut in two by average linkage. Had all clients one distribution, this cut would mean nothing to
    the second halves. Each client's other half has a place: its mean cosine with the first halves of one side minus
    that with those of the other. Is each side closer to its own first halves? Two t-tests, one-sided, with the
    variance within both sides and so m - 2 degrees of freedom for m clients, ask; since both must hold, the larger
    p-value counts. (That sides differ is not enough: clients whose updates are noisier than the others', for example,
    differ from them in either half, and are no closer to each other.) Then the halves change places, and the smaller
    p-value counts, times two (Bonferroni). A cut that leaves a client alone is not tested. With four clients, and so
    two degrees of freedom, hardly any difference is large enough: use a higher level there.

    Clients may also differ one by one, for example when a model knows their examples by heart, and then a cut of one
    half may show in the other without any groups. But members of a group stand in for each other. So each client's
    nearest peer is sought in the first halves, and the test counts only if, in the second halves, the mean cosine of
    such pairs lies above the midpoint between the mean cosine across the cut and that of a client's own two halves.
    What follows: groups whose members differ strongly among themselves are not parted, least of all a small group
    beside a large one; and clients that differ in few directions, as under label skew, have peers and may be parted.

    The test compares one number a client, not the many entries of the updates, which are far from independent. It needs
    halves of one size (`fedlib.data.halves`): of others, those that take as many steps are alike.
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
    """Clients cut in two by both halves together, by average linkage.

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
