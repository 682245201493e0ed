"""Clustered federated learning (CFL): one model for all, until its clients turn out to differ in groups.

Line and equation numbers are those of the paper: Sattler, Müller, Samek. Clustered federated learning. NeurIPS workshop
on federated learning 2019. Here K is the number of clients (the paper's m), M that of clusters, C that of the clients
of a round.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..aggregate import membership
from ..algorithm import Algorithm, Update, held
from ..checks import check_number, check_whole
from ..costs import TRAINING, server_time
from ..data import ClientData, halves
from ..keys import Key
from ..params import Params, broadcast, mix, norm, number_of_rows, sub, take
from ..server.clusters import bipartition, cosine_similarity
from ..server.halves import add_cosines, chance_of_shared_cut, shared_cut
from ..server.split_tree import Split, cut_in_two, grown, walk

__all__ = ["CFL", "CFLState"]


@dataclass(frozen=True)
class CFLState:
    """State of CFL.

    Attributes
    ----------
    models : Params
        Stack of M rows, one for each cluster.
    assignment : Tensor of shape (K,), int64
        Index of each client's cluster, and so of its row in `models`.
    since : Tensor of shape (M,), int64
        Rounds since each cluster was created.
    round : int
        Rounds done.
    splits : tuple of Split
        The split tree, oldest first.
    norms : Tensor of shape (T, 7), float64
        What the rule saw and said: round, cluster, length of the mean update, that of the longest, the largest pace
        (see `CFL.must_split`), 1 where the cluster was due to be split, though a cut may yet be refused, and the
        probability that `CFL.level` is compared with, 1 in rounds without halves. One row for each round in which
        all clients of a cluster of two or more took part.
    size : Tensor of shape (1,), int64
        Examples in either half of a client, in a test: half of the mean over clients. Clients are told it, in 8 bytes
        that the costs leave out. Empty where nothing is tested.
    halves : Tensor of shape (3, K, K), float64
        Sums over all tests so far of `fedlib.server.halves.cosines_of_halves`: two clients count while they are in
        one cluster, all of whose clients take part. Empty, (3, 0, 0), before the first test.
    """

    models: Params = field(metadata=held("server and its cluster"))
    assignment: Tensor
    since: Tensor
    round: int
    splits: tuple[Split, ...]
    norms: Tensor
    size: Tensor = field(metadata=held("server and clients"))
    halves: Tensor


@dataclass(frozen=True)
class CFL(Algorithm):
    """FedAvg within each cluster; a cluster whose clients differ in groups is cut in two.

    In every round divisible by `rest` clients train twice more, from the same start, for `test_epochs` epochs on two
    random halves of their examples. They *differ* when the cut that one half's updates suggest shows in the other
    half's as well; if all clients drew from one distribution, it would not. And they must differ in groups, not one by
    one: see `fedlib.server.halves.chance_of_shared_cut`. The cosines of all tests so far are added up and the sums
    are tested; where the probability is below `level`, the cluster is cut in two, and both parts go on from the same
    model.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    level : float
        Probability with which one test may take congruent clients apart, at the most. 0 never splits, which is
        FedAvg. 1 tests nothing, so that no halves are trained and `eps1`, `eps2` and `rest` decide alone, in every
        round. Set `eps1` and `eps2` with it: with their defaults every cluster is due after `rest` rounds.
    rest : int
        Rounds from one test to the next; with ``level=1``, rounds that a cluster trains, from its creation, before it
        may be split. 0 stands for 1, and with ``level=1`` for the paper.
    test_epochs : int
        Epochs on either half in a test. With 1, groups of clients with few examples hardly show.
    method : {"exact", "complete", "average"}
        How to cut with ``level=1``; see `fedlib.server.clusters.bipartition`. Tests cut by average linkage.
    min_size : int
        A cut that leaves fewer clients than this on a side is refused, and the cluster is tested again. 1: the paper;
        the default keeps a lone client from a model of its own.
    eps1, eps2 : float
        The paper's thresholds, relative: a cluster is split only when its mean update is shorter than `eps1` times the
        longest one, and some update at least `eps2` times learning rate times its own client's steps. The defaults
        leave everything to the test, since no mean is longer than the longest.

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
    The paper splits a cluster that stands still (Algorithm 1, line 8: the mean update is shorter than eps1) while some
    client does not (Eq. 5 violated: an update is at least eps2 long). It gives no values, and lengths that suit one
    set of data split congruent clients of another. Its longer version (Sattler, Müller and Samek, 2021) adds a bound on
    the clients' relative noise, and leaves that to be chosen. Here the halves measure the noise, and no cluster needs
    to stand still: a model at rest may know its clients' examples by heart, which hides their groups.

    Halves cost the operations of `test_epochs` epochs, and the bytes of two updates, in one round of `rest`, with the
    purpose "clustering". They stay the same throughout a run, so that first halves never meet second ones, and have one
    size, half of the mean over clients, so that all take equally many steps: clients that took more would differ from
    the others. Label skew makes clients differ as well: they may be parted although one model would do.

    ``level=1, eps1=0.15, eps2=0.4`` is the rule with relative lengths that chapters 05 and 06 look into; a subclass
    whose `must_split` compares the lengths themselves is the paper's.

    The recursion of Algorithm 2 runs breadth first, in common rounds, and updates stand for gradients throughout, as in
    line 5 of Algorithm 1. No cluster ever finishes: where Eq. 5 holds, the paper returns the model; here the cluster
    trains on and is tested again when all its clients take part. The server sees every client's update.

    A client whose update is exactly 0 has no direction, so that Eq. 4 is undefined for it, and Eq. 6 says nothing of
    its side. Its gradient is 0, so the model suits it as it is: it keeps that model, and the others of its cluster are
    split without it. `Split.members` does not list it. The test leaves out clients whose halves never moved.

    Examples
    --------
    With ``loss``, ``model`` and ``data`` as in the example of `fedlib.federation.fit`:

    >>> from fedlib.algorithms import CFL
    >>> many = partition.iid(y, 6).clients(x, y)
    >>> result = fit(CFL(loss, predict=model), model.init(0), many, rounds=20, progress=False)
    >>> len(result.state.models["dense1.bias"]) == 1 + len(result.state.splits)  # a model for each cluster
    True
    """

    level: float = 0.02
    rest: int = 20
    test_epochs: int = 10
    method: str = "exact"
    min_size: int = 2
    eps1: float = 2.0
    eps2: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("eps1", "eps2", "level"):
            check_number(getattr(self, name), name)
        check_whole(self.rest, "rest", least=0)
        check_whole(self.test_epochs, "test_epochs")
        check_whole(self.min_size, "min_size")
        if self.level > 1:
            raise ValueError(f"level must be a probability, from 0 to 1; got {self.level!r}")
        if self.method not in ("exact", "complete", "average"):
            raise ValueError(f'method must be "exact", "complete" or "average"; got {self.method!r}')

    def init(self, params: Params, data: ClientData, key: Key) -> CFLState:
        """One cluster of all clients."""
        everybody = torch.zeros(len(data), dtype=torch.int64, device=data.n.device)
        halves = torch.zeros(3, 0, 0, dtype=torch.float64, device=data.n.device)
        size, norms = (data.n.double().mean()[None] / 2).ceil().long(), torch.zeros(0, 7).double()
        size = size if 0 < self.level < 1 else size[:0]
        return CFLState(broadcast(params, 1), everybody, everybody.new_zeros(1), 0, (), norms, size, halves)

    def client_params(self, state: CFLState, clients: Tensor) -> Params:
        """Each client holds the model of its cluster."""
        return take(state.models, state.assignment[clients])

    def train(self, state: CFLState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Each client trains its cluster's model and sends its update (Algorithm 1, lines 3-6)."""
        start = self.client_params(state, clients)  # line 4: theta_i <- theta
        end = self.local_training(start, data, key)
        kept = {name: p for name, p in end.params.items() if name not in state.models}  # none but in LGCFL
        ends = {"update": end.params} | self.trained_on_halves(start, data, key, state.size)
        # line 5: Delta theta_i <- SGD_n(theta_i, D_i) - theta_i
        sent: dict[str, Any] = {what: sub({n: p[n] for n in state.models}, start) for what, p in ends.items()}
        purpose = dict.fromkeys(list(sent)[1:], "clustering")
        sent |= {"n": data.n, "steps": end.steps.to(data.n.device)}  # |D_i|, and the n of SGD_n
        return Update(clients, {}, sent, {"local": kept} if kept else {}, {"loss": end.loss}, purpose)

    def download(self, state: CFLState, clients: Tensor) -> dict[str, Any]:
        """The model of the cluster; the 8 bytes of `CFLState.size` are not counted."""
        return {TRAINING: take(state.models, state.assignment[clients])}

    def trained_on_halves(self, start: Params, data: ClientData, key: Key, size: Tensor) -> dict[str, Params]:
        """Where training on either half of their examples leads the clients; nothing in rounds without a test."""
        if not 0 < self.level < 1 or key.round % max(1, self.rest):
            return {}
        longer = replace(self, epochs=self.test_epochs, stragglers=0.0)
        pair = zip(("first half", "second half"), halves(data, key, int(size)), strict=True)
        return {name: longer.local_training(start, half, key, purpose="clustering").params for name, half in pair}

    def aggregate(self, state: CFLState, update: Update) -> CFLState:
        """The mean update moves each model (Algorithm 1, line 7); then clusters may be split (Algorithm 2)."""
        delta, n = update.per_client["update"], update.per_client["n"].double()
        weight = membership(state.assignment[update.clients], n, number_of_rows(state.models))  # |D_i|, (M, C)
        mean = mix(weight / weight.sum(1, keepdim=True).clamp(min=1), delta)  # 0 for a cluster without clients
        models = {name: p + mean[name].to(p.dtype) for name, p in state.models.items()}
        state = replace(state, models=models, since=state.since + 1, round=state.round + 1)
        state = replace(state, halves=add_cosines(state.halves, update, state.assignment))
        tested = self._test(state, update, norm(mean).double())
        state = replace(state, norms=torch.cat([state.norms, tested.to(state.norms)]))
        with server_time("clustering"):  # column 1 is the cluster, column 5 whether it is due
            splits = self.cuts(state, update, tested[tested[:, 5] == 1, 1].long().tolist())
        for split in splits:
            state = grown(state, split)
        return state

    def unreached(self, state: CFLState, rounds: int) -> str:
        """A test, or with ``level=1`` a round in which a cluster may be split."""
        every, seen = max(1, self.rest), state.norms[:, 0]  # rounds in which all clients of a cluster took part
        could = seen >= every if self.level == 1 else (seen % every == 0) & (len(state.assignment) > 3)
        if self.eps1 * self.level == 0 or state.splits or could.any():
            return ""
        return (
            f"CFL tested no cluster up to round {rounds}, its last, so all clients stayed in one: a test is due after "
            f"rest={self.rest} rounds and needs all clients of a cluster of {2 if self.level == 1 else 4} or more"
        )

    def must_split(self, t: int, since: int, mean: float, longest: float, pace: float) -> bool:
        """Whether a cluster is due to be split.

        Parameters
        ----------
        t, since : int
            Rounds done, for subclasses; and rounds since the cluster was created.
        mean, longest : float
            Lengths of the mean update and of the longest.
        pace : float
            Largest over its clients of the length of an update, divided by learning rate times the client's own steps:
            stands for max ||grad r_i||.
        """
        stands_still = mean < self.eps1 * longest  # Algorithm 1, line 8; the paper: mean < eps1
        incongruent = pace >= self.eps2  # Eq. 5 violated: Algorithm 2, line 4; the paper: longest >= eps2
        return since >= self.rest and stands_still and incongruent

    def _test(self, state: CFLState, update: Update, mean_length: Tensor) -> Tensor:
        """Rows of `CFLState.norms` for this round."""
        cluster, halved = state.assignment[update.clients], "first half" in update.per_client
        lengths = norm(update.per_client["update"]).double()
        pace = lengths / (self.lr * update.per_client["steps"])
        rows = []
        for c, since in enumerate(state.since.tolist()):
            i = cluster == c
            if i.sum() == (state.assignment == c).sum() >= 2:  # all its clients have sent an update
                seen = float(mean_length[c]), float(lengths[i].max()), float(pace[i].max())
                own = update.clients[i & (update.per_client["n"] > 1)]  # a single example has no halves
                chance = chance_of_shared_cut(state.halves[:, own[:, None], own]) if halved else 1.0
                due = self.must_split(state.round, since, *seen) and (self.level == 1 or chance < self.level)
                rows.append([state.round, c, *seen, due, chance])
        return torch.tensor(rows, dtype=torch.float64).reshape(-1, 7)

    def cuts(self, state: CFLState, update: Update, due: list[int]) -> list[Split]:
        """The clusters to be split now, each with its bipartition; `due` holds their indices."""
        splits = []
        for c in due:
            i = (state.assignment[update.clients] == c).nonzero()[:, 0]
            moved = norm(take(update.per_client["update"], i)) > 0  # a zero update has no direction: Eq. 4 is undefined
            if self.level < 1:
                moved &= state.halves[0].diagonal()[update.clients[i]] > 0
            if moved.sum() < 2:
                continue
            i = i[moved]
            own, delta = update.clients[i], take(update.per_client["update"], i)
            start = {name: p[[c]] for name, p in state.models.items()}
            if self.level < 1:
                part = shared_cut(state.halves[:, own[:, None], own])
            else:
                part = bipartition(cosine_similarity(delta), self.method).assignment  # Algorithm 2, lines 3 and 5
            if part.bincount().min() >= self.min_size:
                splits.append(cut_in_two(state.round, c, own, delta, start, part))
        return splits

    def new_clients(self, state: CFLState, data: ClientData, key: Key, rounds: int) -> CFLState:
        """A new client goes down the split tree, which the paper has no word on.

        At each split it trains that split's model once and takes the side whose clients' mean direction is closer to
        its update. It trains no further, so `rounds` is not used.
        """
        after = walk(state.splits, data.n, lambda start: sub(self.local_training(start, data, key).params, start))
        return replace(state, assignment=after)
