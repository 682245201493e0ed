"""LG-FedAvg: some layers stay on the client, the rest is averaged; in clusters, and with FedSGCNN's MMD if wanted."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..algorithm import Update, held
from ..checks import number, whole
from ..client.local_layers import LocalLayers, LocalLayersState, split_layers
from ..client.mmd import mmd
from ..costs import TRAINING, record
from ..data import Batch, ClientData
from ..keys import Key
from ..params import Params, broadcast, put, take
from ..server.clusters import shuffle_within
from ..stacked import vmap
from .clustered import Clustered, ClusteredState

__all__ = ["LGFedAvg", "LGFedAvgState", "first_layer"]

_MMD = "mmd"  # in the costs


@dataclass(frozen=True)
class LGFedAvgState(LocalLayersState, ClusteredState):
    """State of LG-FedAvg: theta_g is `models`, empty where all layers are local, and theta_l is `local`.

    Attributes
    ----------
    embeddings : Tensor of shape (K, n_max, h)
        Q_i that each client sent last, 0 in padded rows; (K, 0, 0) without MMD.
    real : Tensor of shape (K, n_max), bool
        Which rows of `embeddings` hold an example; (K, 0) without MMD.
    centroid : Tensor of shape (M, S, h)
        Q_avg of each cluster, as a sample; 0 for a cluster without clients, S = 0 without MMD.
    round : int
        Rounds done.
    seed : int
        Seed of the run, for what the server draws.
    """

    embeddings: Tensor
    real: Tensor
    centroid: Tensor = field(metadata=held("server and its cluster"))
    round: int
    seed: int


def first_layer(params: Params, x: Tensor) -> Tensor:
    """Output of the layer ``dense1`` after ReLU, of shape (B, h): FedSGCNN's embedding Q_i (section 5.1.3)."""
    return torch.nn.functional.linear(x.flatten(1), params["dense1.weight"], params["dense1.bias"]).relu()


@dataclass(frozen=True)
class LGFedAvg(LocalLayers, Clustered):
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
        Cluster of each client, in ascending order of ids, from 0; None: one cluster. A cluster without clients keeps
        its starting model.
    mmd : float
        Weight lambda of the MMD in the loss; 0 neither computes nor sends an embedding.
    pool : int
        Rows of the centroid, drawn anew in each round, without replacement, from the embeddings that the cluster's
        clients sent last. If there are fewer, all of them, repeated in random order.

    Raises
    ------
    TypeError
        `local` is one string.
    ValueError
        A setting out of its range; a name in `local` that no parameter has; not one cluster for each client.

    Notes
    -----
    FedSGCNN's Algorithm 1 from line 15 on: Steps 7 to 10 of section 4.2, and the loss of section 4.4. A subclass may
    override `embed` (what is sent), `centroids`, `comparison` and `discrepancy` (what a client's embeddings are
    compared with, and how). With MMD, which needs a layer ``dense1``, clients first send embeddings before round 1,
    which may give rows away. The training loss in the history includes the MMD. In the costs, purpose "mmd",
    embeddings count without padding. Chapters 11 and 12.

    Line 19's r is a share of each cluster, line 24's mean is weighted by examples, and all clusters do round t together
    (lines 15 and 16). K clients and M clusters are the paper's n and k; C is the number of clients at hand.

    Clients with fewer columns than others are padded with zero columns: the weights of these get no gradient, so that
    SGD and Adam leave them alone and the others train as if they were not there.

    References
    ----------
    Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency. Think locally, act globally: federated learning
    with local and global representations. arXiv:2001.01523, 2020.
    """

    assignment: Sequence[int] | Tensor | None = None
    mmd: float = number(0.0)
    pool: int = whole(64)

    # ---- before round 1 ----

    def init(self, params: Params, data: ClientData, key: Key) -> LGFedAvgState:
        """All clients, and the models of all clusters, start from the same parameters."""
        k, like, device = len(data), next(iter(params.values())), data.n.device
        assignment = torch.as_tensor([0] * k if self.assignment is None else self.assignment, device=device)
        if len(assignment) != k or not 0 <= assignment.min() <= assignment.max() < k:
            raise ValueError(f"assignment must give {k} clients clusters from 0 to {k - 1}; got {self.assignment}")
        m = int(assignment.max()) + 1
        models = broadcast(split_layers(params, self.local)[0], m)
        return LGFedAvgState(
            models,
            assignment,
            **vars(self.at_home(params, data)),
            embeddings=like.new_zeros(k, 0, 0),
            real=torch.zeros(k, 0, dtype=torch.bool, device=device),
            centroid=like.new_zeros(m, 0, 0),
            round=0,
            seed=key.seed,
        )

    def prepare(self, state: LGFedAvgState, data: ClientData, key: Key) -> LGFedAvgState:
        """With MMD, every client sends the embeddings of its start, and the server draws the first centroids."""
        if not self.mmd:
            return state
        everybody = torch.arange(len(data), device=data.n.device)
        sent, real = self.embed(self.client_params(state, everybody), data, key)
        record(_MMD, bytes_up=int(data.n.sum()) * sent[0, 0].nbytes)
        state = replace(state, embeddings=sent, real=real)
        return replace(state, centroid=self.centroids(state))  # line 18 of round 1

    # ---- each round: who takes part, and with which layers ----

    def cohort(self, state: LGFedAvgState, ids: Tensor, n: int, key: Key) -> Tensor:
        """S_j,t (line 19): the same share of each cluster, n / K of it rounded up, and two clients at least.

        Each set is equally likely. There may be more than `n` clients in all; with one cluster there are just `n`.
        """
        m = len(state.centroid)
        order, first, size = shuffle_within(state.assignment, key.bits(ids, "cohort"), m)
        quota = ((n * size + len(ids) - 1) // len(ids)).clamp(min=min(2, m))
        drawn = order.argsort() < (first + quota)[state.assignment]
        return drawn.nonzero()[:, 0]

    # ---- Steps 7 and 8, on the clients ----

    def train(self, state: LGFedAvgState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Train all layers from the cluster's shared ones; send these and the embeddings."""
        start = self.client_params(state, clients)  # theta_i, line 21
        loss, compared = (self.loss_with_mmd, self.comparison(state, clients)) if self.mmd else (self.loss, ())
        end = self.local_training(start, data, key, compared, loss)  # Step 7, line 22
        update = self.update(state, data, clients, end) if state.models else Update(clients, log={"loss": end.loss})
        update = replace(update, client_state={"local": {name: end.params[name] for name in state.local}})
        if not self.mmd:
            return update
        sent, real = self.embed(end.params, data, key)  # Step 8
        record(_MMD, bytes_up=-int((~real).sum()) * sent[0, 0].nbytes)  # `fit` counts the padding, but it is not sent
        return replace(update, per_client={"embeddings": sent}, purpose={"embeddings": _MMD})

    def loss_with_mmd(self, params: Params, batch: Batch, *compared: Tensor) -> Tensor:
        """l(theta_i, D_i) + lambda MMD(Q_i, Q_avg) (section 4.4)."""
        q, w = first_layer(params, batch[0]), batch[2]
        return self.loss(params, batch) + self.mmd * self.discrepancy(q, w, *compared)

    def discrepancy(self, q: Tensor, w: Tensor, *compared: Tensor) -> Tensor:
        """Distance of a client's embeddings q (B, h) from its row of `comparison`; w = 0 marks padding."""
        return mmd(q, compared[0], w)

    def comparison(self, state: LGFedAvgState, clients: Tensor) -> tuple[Tensor, ...]:
        """What the embeddings of these clients are compared with, with a leading axis of C: here Q_avg of each.

        Clients never seen in training stand behind the others in ``state.assignment``; they have sent no embeddings.
        """
        return (state.centroid[state.assignment[clients]],)

    @torch.no_grad()
    def embed(self, params: Params, data: ClientData, key: Key) -> tuple[Tensor, Tensor]:
        """What these clients send, Q_i = theta_i(D_i) of shape (C, n_max, h), and which of it is real (C, n_max)."""
        x, _, w, *_ = data.all_rows(next(iter(params.values())).dtype)
        return torch.where((w > 0)[..., None], torch.vmap(first_layer)(params, x), 0), w > 0

    # ---- Step 9, on the server; Step 10 is the loop of `fit` ----

    def aggregate(self, state: LGFedAvgState, update: Update) -> LGFedAvgState:
        """The mean of each cluster's shared layers, weighted by examples, and new centroids."""
        state = super().aggregate(state, update) if state.models else state  # line 24
        state = replace(state, round=state.round + 1)
        if not self.mmd:
            return state
        state = replace(state, embeddings=put(state.embeddings, update.clients, update.per_client["embeddings"]))
        return replace(state, centroid=self.centroids(state))  # line 18 of the next round

    def centroids(self, state: LGFedAvgState) -> Tensor:
        """Q_avg (M, S, h): a sample of what all clients of a cluster sent last (line 18)."""
        q = state.embeddings
        k, j = state.real.nonzero(as_tuple=True)
        bits = Key(state.seed, state.round).bits(torch.arange(len(q), device=q.device), "pool", q.shape[1])
        order, first, size = shuffle_within(state.assignment[k], bits[k, j], len(state.centroid))
        turn = torch.arange(self.pool, device=q.device) % size.clamp(min=1)[:, None]
        drawn = order[(first[:, None] + turn).clamp(max=len(order) - 1)]
        return torch.where(size[:, None, None] > 0, q[k[drawn], j[drawn]], 0)

    # ---- beside the paper: what is sent down, and clients never seen ----

    def download(self, state: LGFedAvgState, clients: Tensor) -> dict[str, Any]:
        """The shared layers and, with MMD, the centroid."""
        clusters = state.assignment[clients]
        return {TRAINING: take(state.models, clusters)} | ({_MMD: state.centroid[clusters]} if self.mmd else {})

    def new_clients(self, state: LGFedAvgState, data: ClientData, key: Key, rounds: int) -> LGFedAvgState:
        """A new client fits local layers to each cluster's shared ones, and takes the cluster with the smallest loss.

        It trains them for `rounds` rounds, with MMD where the others had it, while the shared layers stay as they are.
        """
        m, c, device = len(state.centroid), len(data), data.n.device
        cluster, client = torch.cartesian_prod(torch.arange(m, device=device), torch.arange(c, device=device)).T
        tried, shared = data[client], take(state.models, cluster)  # every client in every cluster
        behind = replace(state, assignment=torch.cat([state.assignment, cluster]))  # the new clients, behind the old
        places = len(state.assignment) + torch.arange(m * c, device=device)
        task = {"extras": self.comparison(behind, places), "loss": self.loss_with_mmd} if self.mmd else {}
        own = self.fitted(take(state.start, client), shared, tried, key, rounds, **task)
        params = own | shared
        loss = vmap(self.loss)(params, tried.all_rows(next(iter(params.values())).dtype)).view(m, c)
        empty = torch.bincount(state.assignment, minlength=m) == 0
        best = loss.nan_to_num(nan=torch.inf).masked_fill(empty[:, None], torch.inf).argmin(0)
        local = {name: p[best * c + client[:c]] for name, p in own.items()}
        embeddings, real = state.embeddings.new_zeros(c, 0, 0), state.real.new_zeros(c, 0)  # none is sent yet
        return replace(state, local=local, assignment=best, embeddings=embeddings, real=real)
