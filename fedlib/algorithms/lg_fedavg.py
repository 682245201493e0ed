"""LG-FedAvg: some layers stay on the client and the rest is averaged, within clusters and with MMD if wanted."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor

from ..aggregate import cluster_means, cluster_sums
from ..algorithm import Algorithm, Update
from ..client.mmd import mmd, mmd2
from ..costs import TRAINING, record, server_time
from ..data import Batch, ClientData
from ..keys import Key
from ..local import Loss
from ..params import Params, broadcast, number_of_rows, put, take
from ..stacked import dense

__all__ = ["LGFedAvg", "LGFedAvgState", "first_layer", "split_layers", "train_local_layers"]

_MMD = "mmd"  # in the ledger


@dataclass(frozen=True)
class LGFedAvgState:
    """State of LG-FedAvg.

    Attributes
    ----------
    models : Params
        Stack of M rows, the shared layers of each cluster; empty where all layers are local.
    local : Params
        Stack of K rows, each client's own layers; empty where all layers are shared.
    start : Params
        Stack of one row: where the local layers started, for old and new clients alike.
    assignment : Tensor of shape (K,), int64
        The cluster of each client.
    embeddings : Tensor of shape (K, n_max, h)
        What each client sent last, with its noise, 0 in padded rows; (K, 0, 0) without MMD.
    real : Tensor of shape (K, n_max), bool
        Which rows of `embeddings` hold an example; (K, 0) without MMD.
    pool : Tensor of shape (M, S, h)
        The centroid of each cluster, as a sample; 0 for a cluster that nobody is in, S = 0 where there is none.
    round : int
        Rounds done.
    seed : int
        Seed of the run, for what the server draws.
    """

    models: Params
    local: Params
    start: Params
    assignment: Tensor
    embeddings: Tensor
    real: Tensor
    pool: Tensor
    round: int
    seed: int


def first_layer(params: Params, x: Tensor) -> Tensor:
    """Output of the layer ``dense1`` after ReLU, of shape (B, h): the embedding that FedSGCNN compares."""
    return torch.relu(dense(x.flatten(1), params["dense1.weight"], params["dense1.bias"]))


@dataclass(frozen=True)
class LGFedAvg(Algorithm):
    """Each client keeps its first layers, which may read columns of its own; the server averages the layers after them.

    Clients are in clusters, each of which is a federation of its own. With ``mmd > 0`` they also learn to embed their
    examples alike: a client's loss grows with the distance of its embeddings from those of its cluster.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    local : sequence of str
        What stays on the client: the parameters with these names, or whose names begin with one of them and a dot.
        (): nothing, which is FedAvg.
    assignment : sequence of K int, optional
        Cluster of each client, in ascending order of ids, from 0; None: one cluster. A number without clients keeps
        the model of the start.
    mmd : float
        Weight lambda of the MMD in the loss; 0 neither computes nor sends an embedding.
    embed : callable
        ``embed(params, x) -> (B, h)`` of one client.
    pool : int
        Rows of the centroid: so many of all embeddings that the cluster's clients sent last, drawn anew in each round,
        each set equally likely. Where there are fewer, all of them, repeated in turn in a random order.
    squared : bool
        Take `fedlib.client.mmd.mmd2` in place of the norm, `fedlib.client.mmd.mmd`.
    kernel : {"rbf", "linear"}
        As in `fedlib.client.mmd.mmd2`.
    against : {"centroid", "mean", "pairs"}
        What a client's embeddings are compared with: the centroid; one row, the mean embedding of the cluster; or
        those of every other client of the cluster, one after another, and the mean taken (HHHFL).
    noise : float
        Standard deviation of the Gaussian noise that a client adds to embeddings before it sends them.

    Raises
    ------
    TypeError
        `local` is one string; a cluster that is no whole number.
    ValueError
        A setting out of its range; a name in `local` that no parameter has; not one cluster for each client.

    Notes
    -----
    FedSGCNN section 4.2, Steps 7 to 10, and section 4.4. A client sends the sums of its shared layers and, with MMD,
    one embedding for each of its examples, for the first time before round 1. What they reveal is shown in chapter 08.
    Clients with fewer columns than others get zero columns: their weights have no gradient, so that SGD and Adam leave
    them alone and the others train as if they were not there. The training loss in the history includes the MMD.

    In the ledger, purpose "mmd", embeddings count without padding. With ``against="pairs"`` the embeddings of others
    count for the clients that are not lost in the round. Chapter 07.

    References
    ----------
    Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency. Think locally, act globally: federated learning
    with local and global representations. arXiv:2001.01523, 2020.

    Gao, Ju, Wei, Liu, Chen, Yang. HHHFL: hierarchical heterogeneous horizontal federated learning for
    electroencephalography. arXiv:1909.05784, 2019.
    """

    local: Sequence[str] = ("dense1",)
    assignment: Sequence[int] | Tensor | None = None
    mmd: float = 0.0
    embed: Callable[[Params, Tensor], Tensor] = first_layer
    pool: int = 64
    squared: bool = False
    kernel: Literal["rbf", "linear"] = "rbf"
    against: Literal["centroid", "mean", "pairs"] = "centroid"
    noise: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.local, str):
            raise TypeError(f"local must be a list of names, such as [{self.local!r}]; got {self.local!r}")
        if self.assignment is not None:
            given = torch.as_tensor(self.assignment)
            if given.ndim != 1 or given.is_floating_point():
                raise TypeError(f"assignment must hold a whole number for each client; got {self.assignment!r}")
            if not len(given) or int(given.min()) < 0:
                raise ValueError(f"assignment must hold numbers of clusters from 0; got {self.assignment!r}")
            object.__setattr__(self, "assignment", tuple(given.tolist()))
        for name in ("mmd", "noise"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a number of at least 0, got {getattr(self, name)!r}")
        if not (isinstance(self.pool, Integral) and self.pool >= 1):
            raise ValueError(f"pool must be a whole number of at least 1, got {self.pool!r}")
        if self.kernel not in ("rbf", "linear"):
            raise ValueError(f'kernel must be "rbf" or "linear", got {self.kernel!r}')
        if self.against not in ("centroid", "mean", "pairs"):
            raise ValueError(f'against must be "centroid", "mean" or "pairs", got {self.against!r}')

    # ---- before round 1 ----

    def init(self, params: Params, data: ClientData, key: Key) -> LGFedAvgState:
        """All clients, and the models of all clusters, start from the same parameters."""
        k, some, device = len(data), next(iter(params.values())), data.n.device
        given = (0,) * k if self.assignment is None else self.assignment
        if len(given) != k:
            raise ValueError(f"assignment must have one cluster for each of the {k} clients; got {len(given)}")
        if max(given) >= k:
            raise ValueError(
                f"assignment numbers clusters from 0, at most {k} for {k} clients; got the number {max(given)}"
            )
        shared, own = split_layers(params, self.local)
        return LGFedAvgState(
            models=broadcast(shared, max(given) + 1),
            local={name: p.clone() for name, p in broadcast(own, k).items()},
            start=broadcast(own, 1),
            assignment=torch.tensor(given, device=device),
            embeddings=some.new_zeros(k, 0, 0),
            real=torch.zeros(k, 0, dtype=torch.bool, device=device),
            pool=some.new_zeros(max(given) + 1, 0, 0),
            round=0,
            seed=key.seed,
        )

    def prepare(self, state: LGFedAvgState, data: ClientData, key: Key) -> LGFedAvgState:
        """With MMD, every client sends the embeddings of its start, and the server draws the first centroids."""
        if not self.mmd:
            return state
        everybody = torch.arange(len(data), device=data.n.device)
        sent, real = self._embeddings(self.client_params(state, everybody), data, key)
        record(_MMD, bytes_up=int(data.n.sum()) * sent[0, 0].nbytes)
        with server_time(_MMD):
            state = replace(state, embeddings=sent, real=real)
            return replace(state, pool=self._pool(state))

    # ---- clients ----

    def train(self, state: LGFedAvgState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Steps 7 and 8: train all layers from the cluster's shared ones; send these and the embeddings."""
        mine, start = state.assignment[clients], self.client_params(state, clients)
        end = self.local_training(start, data, key, *self._task(state, mine, clients))
        shared, own = split_layers(end.params, self.local)
        sums = cluster_sums(shared, mine, data.n, number_of_rows(state.models)) if shared else {}
        rows = {}
        if self.mmd:
            rows["embeddings"], real = self._embeddings(end.params, data, key)
            size = rows["embeddings"][0, 0].nbytes
            record(_MMD, bytes_up=-int((~real).sum()) * size)  # padding, which `fit` counts, is not sent
            if self.against == "pairs":
                n = state.real.sum(1)
                others = torch.bincount(state.assignment, n, self._clusters(state))[mine].sum() - n[clients].sum()
                record(_MMD, bytes_down=int(others) * size)
        return Update(clients, sums, rows, {"local": own}, {"loss": end.loss}, {"embeddings": _MMD})

    def _task(self, state: LGFedAvgState, mine: Tensor, clients: Tensor | None) -> tuple[tuple[Tensor, ...], Loss]:
        """Extras and loss of clients in the clusters `mine`; None for clients that never sent an embedding."""
        if not self.mmd:
            return (), self.loss
        if self.against != "pairs":
            sets = state.pool[mine][:, None]
            return (sets, sets.new_ones(sets.shape[:3]), sets.new_ones(sets.shape[:2])), self._loss_with_mmd
        others = state.assignment == mine[:, None]  # (C, K)
        if clients is not None:
            others &= torch.arange(others.shape[1], device=mine.device) != clients[:, None]
        # Those of fewer others than most have take further clients, which count nothing.
        which = others.int().argsort(dim=1, descending=True, stable=True)[:, : max(1, int(others.sum(1).max()))]
        share = others.gather(1, which) / others.sum(1, keepdim=True).clamp(min=1)
        sets = state.embeddings[which]
        return (sets, state.real[which].to(sets), share.to(sets)), self._loss_with_mmd

    def _loss_with_mmd(self, params: Params, batch: Batch, sets: Tensor, real: Tensor, share: Tensor) -> Tensor:
        """Loss + lambda MMD (section 4.4) from J samples, sets (J, n, h), real (J, n), share (J,)."""
        x, _, w = batch
        q, distance = self.embed(params, x), mmd2 if self.squared else mmd
        # One after another and not by vmap, inside which the ledger would count a single one.
        apart = [distance(q, p, w, r, self.kernel) for p, r in zip(sets.unbind(), real.unbind(), strict=True)]
        return self.loss(params, batch) + self.mmd * (torch.stack(apart) * share).sum()

    @torch.no_grad()
    def _embeddings(self, params: Params, data: ClientData, key: Key) -> tuple[Tensor, Tensor]:
        """What these clients send (C, n_max, h), and which of it is real."""
        x, _, w = data.all_rows(next(iter(params.values())).dtype)
        q, real = torch.vmap(self.embed)(params, x), w > 0
        if self.noise:
            q = q + self.noise * key.normal(data.id, "noise", *q.shape[1:]).to(q)
        return torch.where(real[..., None], q, 0), real

    # ---- server ----

    def aggregate(self, state: LGFedAvgState, update: Update) -> LGFedAvgState:
        """Step 9: the mean of each cluster's shared layers, weighted by examples, and new centroids."""
        models = cluster_means(update.summed, previous=state.models) if state.models else {}
        state = replace(state, models=models, round=state.round + 1)
        if not self.mmd:
            return state
        with server_time(_MMD):
            state = replace(state, embeddings=put(state.embeddings, update.clients, update.per_client["embeddings"]))
            return replace(state, pool=self._pool(state))

    def _pool(self, state: LGFedAvgState) -> Tensor:
        """The centroids (M, S, h), from what all clients of a cluster sent last, own rows included."""
        q, m, device = state.embeddings, self._clusters(state), state.assignment.device
        if self.against == "pairs":
            return q.new_zeros(m, 0, q.shape[2])
        if self.against == "mean":
            member = (state.assignment == torch.arange(m, device=device)[:, None]).to(q)
            return ((member @ q.sum(1)) / (member @ state.real.sum(1).to(q)).clamp(min=1)[:, None])[:, None]
        k, j = state.real.nonzero(as_tuple=True)
        draw = Key(state.seed, state.round).bits(torch.arange(len(q), device=device), "pool", q.shape[1])
        order, size = _shuffled(state.assignment[k], draw[k, j], m)
        turn = torch.arange(int(self.pool), device=device) % size.clamp(min=1)[:, None]
        drawn = order[((size.cumsum(0) - size)[:, None] + turn).clamp(max=len(order) - 1)]
        return torch.where(size[:, None, None] > 0, q[k[drawn], j[drawn]], 0)

    @staticmethod
    def _clusters(state: LGFedAvgState) -> int:
        return len(state.pool)

    def cohort(self, state: LGFedAvgState, ids: Tensor, n: int, key: Key) -> Tensor:
        """The same share of each cluster: n / K of it rounded up, and two at least; each set equally likely.

        So there may be more than `n` in all. With one cluster there are just `n`.
        """
        m = self._clusters(state)
        order, size = _shuffled(state.assignment, key.bits(ids, "cohort"), m)
        quota = ((n * size + len(ids) - 1) // len(ids)).clamp(min=min(2, m))
        cluster = state.assignment[order]
        rank = torch.arange(len(ids), device=ids.device) - (size.cumsum(0) - size)[cluster]
        return order[rank < quota[cluster]].sort().values

    def client_params(self, state: LGFedAvgState, clients: Tensor) -> Params:
        """A client's own layers, and the shared ones of its cluster."""
        own = take(state.local, clients) if state.local else {}
        return own | self._shared(state, state.assignment[clients])

    @staticmethod
    def _shared(state: LGFedAvgState, mine: Tensor) -> Params:
        return take(state.models, mine) if state.models else {}

    def download(self, state: LGFedAvgState, clients: Tensor) -> dict[str, Any]:
        """The shared layers and, with MMD, the centroid; other clients' embeddings are counted in `train`."""
        mine = state.assignment[clients]
        pool = {_MMD: state.pool[mine]} if self.mmd and self.against != "pairs" else {}
        return {TRAINING: self._shared(state, mine)} | pool

    def new_clients(self, state: LGFedAvgState, data: ClientData, key: Key, rounds: int) -> LGFedAvgState:
        """A new client fits local layers to each cluster's shared ones, and takes the cluster with the smallest loss.

        It trains them for `rounds` rounds, with MMD where the others had it, while the shared layers stay as they are.
        """
        m, c, device = self._clusters(state), len(data), data.n.device
        mine = torch.arange(m, device=device).repeat_interleave(c)
        everywhere = data[torch.arange(c, device=device).repeat(m)]
        shared, own = self._shared(state, mine), {n: p.expand(m * c, *p.shape[1:]) for n, p in state.start.items()}
        own = train_local_layers(self, shared, own, everywhere, key, rounds, *self._task(state, mine, None))
        batch = everywhere.all_rows(next(iter((own | shared).values())).dtype)
        with torch.no_grad():
            loss = torch.vmap(self.loss)(own | shared, batch).view(m, c)
        nobody = torch.bincount(state.assignment, minlength=m) == 0
        best = loss.nan_to_num(nan=math.inf).masked_fill(nobody[:, None], math.inf).argmin(0)
        return replace(
            state,
            local={name: p[best * c + torch.arange(c, device=device)] for name, p in own.items()},
            assignment=best,
            embeddings=state.embeddings.new_zeros(c, 0, state.embeddings.shape[2]),
            real=state.real.new_zeros(c, 0),
        )


def split_layers(params: Params, local: Sequence[str]) -> tuple[Params, Params]:
    """Parameters (or a stack) as those that are shared and those that stay on the client.

    Parameters
    ----------
    params : Params
    local : sequence of str
        Names, or what names begin with before a dot.

    Returns
    -------
    shared, own : Params
        Either may be empty.

    Raises
    ------
    ValueError
        A name that no parameter has.
    """
    mine = {p: [part for part in local if p == part or p.startswith(f"{part}.")] for p in params}
    if unknown := set(local) - {part for parts in mine.values() for part in parts}:
        raise ValueError(f"local names {sorted(unknown)}, which no parameter has; there are {list(params)}")
    return {n: p for n, p in params.items() if not mine[n]}, {n: p for n, p in params.items() if mine[n]}


def train_local_layers(
    algorithm: Algorithm,
    shared: Params,
    own: Params,
    data: ClientData,
    key: Key,
    rounds: int,
    extras: Sequence[Any] = (),
    loss: Loss | None = None,
) -> Params:
    """The local layers `own` of new clients after some rounds in which their shared layers stay as they are.

    Parameters
    ----------
    algorithm : Algorithm
        Its settings are those of the training.
    shared, own : Params
        Stacks of C rows; either may be empty.
    data : ClientData
        Of the C clients.
    key : Key
    rounds : int
    extras, loss
        As in `fedlib.algorithm.Algorithm.local_training`.

    Returns
    -------
    Params
        A stack of C rows with the names of `own`.
    """
    for t in range(1, rounds + 1) if own else ():
        end = algorithm.local_training(own | shared, data, Key(key.seed, t), extras, loss, frozen=tuple(shared))
        own = {name: end.params[name] for name in own}
    return own


def _shuffled(group: Tensor, draw: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Positions sorted by group (N,), within a group in the random order of `draw` (N,); and the groups' sizes."""
    order = draw.argsort(stable=True)
    return order[group[order].argsort(stable=True)], torch.bincount(group, minlength=groups)
