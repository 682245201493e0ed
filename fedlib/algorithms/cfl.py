"""Clustered federated learning (CFL): one model for all, until clients pull apart and their cluster is split.

Line and equation numbers are those of the paper: Sattler, Müller, Samek. Clustered federated learning. NeurIPS workshop
on federated learning 2019. Here K is the number of clients (the paper's m), M that of clusters, C that of the clients
of a round.
"""

import warnings
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..aggregate import membership
from ..algorithm import Algorithm, Update, held
from ..checks import check_number, check_whole
from ..costs import server_time
from ..data import ClientData
from ..keys import Key
from ..params import Params, broadcast, mix, norm, number_of_rows, sub, take
from ..server.clusters import bipartition, cosine_similarity
from ..server.split_tree import Split, walk

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
    norms : Tensor of shape (T, 6), float64
        What the criterion saw and said: round, cluster, length of the mean update, that of the longest, the largest
        pace (see `CFL.must_split`), and 1 where the cluster was due to be split, though a cut may yet be refused. One
        row for each round in which all clients of a cluster of two or more took part.
    """

    models: Params = field(metadata=held("server and its cluster"))
    assignment: Tensor
    since: Tensor
    round: int
    splits: tuple[Split, ...]
    norms: Tensor


@dataclass(frozen=True)
class CFL(Algorithm):
    """FedAvg within each cluster; a cluster that stands still while some client does not is cut in two.

    A cluster *stands still* when the mean of its clients' updates is short. If some single update is still long then,
    its clients are taken to be *incongruent*: no one model suits them all. The cluster is cut so that the largest
    cosine of two updates across the cut is as small as can be, and both parts go on from the same model.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    eps1 : float
        A cluster stands still when its mean update is shorter than `eps1` times the longest one. 0 never splits, which
        is FedAvg.
    eps2 : float
        Clients are incongruent when some update is at least `eps2` times learning rate times its own client's steps.
        It depends on data, network and local training: `fedlib.server.split_tree.calibrate` finds it from a run on
        congruent clients.
    rest : int
        Rounds that a cluster trains, from its creation, before it may be split; 0: the paper.
    method : {"exact", "complete", "average"}
        How to cut; see `fedlib.server.clusters.bipartition`.
    min_size : int
        A cut that leaves fewer clients than this on a side is refused, and the cluster is tested again next round. 1:
        the paper; the default keeps a lone client from a model of its own.

    Raises
    ------
    ValueError
        A setting out of its range.

    Warns
    -----
    UserWarning
        After `rest` + 5 rounds no cluster has been tested: in none did all clients of one take part.

    Notes
    -----
    The recursion of Algorithm 2 runs breadth first, in common rounds, and updates stand for gradients throughout, as in
    line 5 of Algorithm 1. No cluster ever finishes: where Eq. 5 holds, the paper returns the model; here the cluster
    trains on and is tested again in each round in which all its clients take part. The paper's thresholds are absolute
    lengths, with no values given: chapter 03 writes its criterion as a subclass with another `must_split`, chapter 04
    says why thresholds are relative here. The server sees every client's update.

    Examples
    --------
    With ``loss``, ``model`` and ``data`` as in the example of `fedlib.federation.fit`:

    >>> from fedlib.algorithms import CFL
    >>> result = fit(CFL(loss, eps1=0.2, eps2=0.4, predict=model), model.init(0), data, rounds=3, progress=False)
    >>> result.state.assignment.tolist()  # nobody has been parted yet
    [0, 0, 0]
    """

    eps1: float = 0.15
    eps2: float = 0.4
    rest: int = 20
    method: str = "exact"
    min_size: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.eps1, "eps1")
        check_number(self.eps2, "eps2")
        check_whole(self.rest, "rest", least=0)
        check_whole(self.min_size, "min_size")
        if self.method not in ("exact", "complete", "average"):
            raise ValueError(f'method must be "exact", "complete" or "average"; got {self.method!r}')

    def init(self, params: Params, data: ClientData, key: Key) -> CFLState:
        """One cluster of all clients."""
        everybody = torch.zeros(len(data), dtype=torch.int64, device=data.n.device)
        return CFLState(broadcast(params, 1), everybody, everybody.new_zeros(1), 0, (), torch.zeros(0, 6).double())

    def client_params(self, state: CFLState, clients: Tensor) -> Params:
        """Each client holds the model of its cluster."""
        return take(state.models, state.assignment[clients])

    def train(self, state: CFLState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Each client trains its cluster's model and sends its update (Algorithm 1, lines 3-6)."""
        start = self.client_params(state, clients)  # line 4: theta_i <- theta
        end = self.local_training(start, data, key)
        delta = sub(end.params, start)  # line 5: Delta theta_i <- SGD_n(theta_i, D_i) - theta_i
        # n: |D_i|; steps: the n of SGD_n
        per_client = {"update": delta, "n": data.n, "steps": end.steps.to(data.n.device)}
        return Update(clients, per_client=per_client, log={"loss": end.loss})

    def aggregate(self, state: CFLState, update: Update) -> CFLState:
        """The mean update moves each model (Algorithm 1, line 7); then clusters may be split (Algorithm 2)."""
        delta, n = update.per_client["update"], update.per_client["n"].double()
        weight = membership(state.assignment[update.clients], n, number_of_rows(state.models))  # |D_i|, (M, C)
        mean = mix(weight / weight.sum(1, keepdim=True).clamp(min=1), delta)  # 0 for a cluster without clients
        models = {name: p + mean[name].to(p.dtype) for name, p in state.models.items()}
        state = replace(state, models=models, since=state.since + 1, round=state.round + 1)
        tested = self._test(state, update, norm(mean).double())
        state = replace(state, norms=torch.cat([state.norms, tested.to(state.norms)]))
        if self.eps1 > 0 and state.round == self.rest + 5 and not len(state.norms):
            warnings.warn("CFL tested no cluster: a test needs all clients of a cluster of two or more", stacklevel=2)
        with server_time("clustering"):  # column 1 is the cluster, column 5 whether it is due
            splits = self.cuts(state, update, tested[tested[:, 5] == 1, 1].long().tolist())
        for split in splits:
            state = self._split(state, split)
        return state

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
        cluster = state.assignment[update.clients]
        lengths = norm(update.per_client["update"]).double()
        pace = lengths / (self.lr * update.per_client["steps"])
        rows = []
        for c, since in enumerate(state.since.tolist()):
            i = cluster == c
            if i.sum() == (state.assignment == c).sum() >= 2:  # all its clients have sent an update
                seen = float(mean_length[c]), float(lengths[i].max()), float(pace[i].max())
                rows.append([state.round, c, *seen, self.must_split(state.round, since, *seen)])
        return torch.tensor(rows, dtype=torch.float64).reshape(-1, 6)

    def cuts(self, state: CFLState, update: Update, due: list[int]) -> list[Split]:
        """The clusters to be split now, each with its bipartition; `due` holds their indices."""
        splits = []
        for c in due:
            i = (state.assignment[update.clients] == c).nonzero()[:, 0]
            delta = take(update.per_client["update"], i)
            similarity = cosine_similarity(delta)  # Algorithm 2, line 3: alpha_ij, Eq. 4
            cut = bipartition(similarity, self.method)  # Algorithm 2, line 5: c_1, c_2, Eq. 6
            part = cut.assignment.to(i.device)
            if part.bincount().min() < self.min_size:
                continue
            start = {name: p[[c]] for name, p in state.models.items()}
            # the sum of each part's updates, made of length 1: new clients are compared with it
            directions = mix(membership(part, 1 / norm(delta).double(), 2), delta)
            cut_by = update.clients[i], part, similarity, cut.objective, cut.gap
            splits.append(Split(state.round, c, -1, *cut_by, start, directions))  # -1: `_split` gives the number
        return splits

    def _split(self, state: CFLState, split: Split) -> CFLState:
        """Both parts go on from the same model; the second gets a new number (Algorithm 2, lines 6-7)."""
        c, new = split.model, number_of_rows(state.models)
        since = torch.cat([state.since, state.since.new_zeros(1)])
        since[[c, new]] = 0
        return replace(
            state,
            models={name: torch.cat([p, p[[c]]]) for name, p in state.models.items()},
            assignment=state.assignment.index_fill(0, split.members[split.part == 1], new),
            since=since,
            splits=(*state.splits, replace(split, new=new)),
        )

    def new_clients(self, state: CFLState, data: ClientData, key: Key, rounds: int) -> CFLState:
        """A new client goes down the split tree, which the paper has no word on.

        At each split it trains that split's model once and takes the side whose clients' mean direction is closer to
        its update. It trains no further, so `rounds` is not used.
        """

        def first_update(start: Params) -> Params:
            return sub(self.local_training(start, data, key).params, start)

        return replace(state, assignment=walk(state.splits, data.n, first_update))
