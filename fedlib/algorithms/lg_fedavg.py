"""LG-FedAvg, which keeps some layers local and averages the rest, optionally in clusters and with FedSGCNN's MMD."""

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
    """State of LG-FedAvg, with theta_g in `models`, empty if all layers are local, and theta_l in `local`.

    Attributes
    ----------
    embeddings : Tensor of shape (K, n_max, h)
        Q_i that each client last sent, with 0 in padded rows; (K, 0, 0) without MMD.
    real : Tensor of shape (K, n_max), bool
        Which rows of `embeddings` hold an example; (K, 0) without MMD.
    centroid : Tensor of shape (M, S, h)
        Q_avg of each cluster, represented by a sample; 0 for a cluster without clients, and S = 0 without MMD.
    round : int
        Rounds completed.
    seed : int
        Seed of the run, for the server's draws.
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
    """Each client keeps its first layers, which may read its own columns; the server averages the layers after them.

    Each cluster of clients is a separate federation. With ``mmd > 0``, its clients also learn similar embeddings of
    their examples, because a client's loss grows with the distance of its embeddings from those of its cluster.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    local : sequence of str
        Names of the parameters that stay on the client, or prefixes of such names before a dot. With (), all parameters
        are shared, which is FedAvg.
    assignment : sequence of K int, optional
        Cluster of each client, counted from 0, in ascending order of the clients' ids; None is one cluster. A cluster
        without clients keeps its initial model.
    mmd : float
        Weight lambda of the MMD in the loss; with 0, embeddings are neither computed nor sent.
    pool : int
        Rows of the centroid. In each round, they are drawn without replacement from the embeddings that the cluster's
        clients last sent. If there are fewer embeddings, all of them are used and repeated in random order.

    Raises
    ------
    TypeError
        `local` is a single string.
    ValueError
        A setting is out of range, a name in `local` matches no parameter, or `assignment` does not give one cluster for
        each client.

    Notes
    -----
    This is FedSGCNN's Algorithm 1 from line 15 on, that is, Steps 7 to 10 of section 4.2 with the loss of section 4.4.
    A subclass may override `embed` (what is sent), `centroids`, `comparison` and `discrepancy` (what a client's
    embeddings are compared with, and how). With MMD, which needs a layer ``dense1``, clients already send embeddings
    before round 1; these may reveal rows of the data. The training loss in the history includes the MMD. The costs
    count embeddings without padding, under the purpose "mmd". Chapters 11 and 12.

    Line 19's r is a share of each cluster, line 24's mean is weighted by examples, and all clusters run round t
    together (lines 15 and 16). The paper's n clients and k clusters are K and M here; C is the number of clients that a
    method is given.

    Clients with fewer columns than others are padded with zero columns. The weights of these columns get no gradient,
    so SGD and Adam leave them unchanged, and the other weights train as if the padding were not there.

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
        """Start all clients and the models of all clusters from the same parameters."""
        k, like, device = len(data), next(iter(params.values())), data.n.device
        assignment = torch.as_tensor([0] * k if self.assignment is None else self.assignment, device=device)
        if self.mmd:
            reads = params["dense1.weight"].shape[-1:] if "dense1.weight" in params else ()
            if reads != (inputs := data.x[0].numel(),) or any(p.ndim > 2 for p in params.values()):
                shapes = {name: tuple(p.shape) for name, p in params.items()}
                raise ValueError(
                    f"with mmd, the first layer must be a Linear named dense1 that reads all {inputs} numbers of x; "
                    f"got parameters {shapes}. Rename it, or set mmd=0"
                )
        whole = assignment.dtype in (torch.int64, torch.int32) and len(assignment) == k
        if not whole or not 0 <= assignment.min() <= assignment.max() < k:
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
        """With MMD, every client sends its initial embeddings, and the server draws the first centroids."""
        if not self.mmd:
            return state
        everybody = torch.arange(len(data), device=data.n.device)
        sent, real = self.embed(self.client_params(state, everybody), data, key)
        record(_MMD, bytes_up=int(data.n.sum()) * sent[0, 0].nbytes)
        state = replace(state, embeddings=sent, real=real)
        return replace(state, centroid=self.centroids(state))  # line 18 of round 1

    # ---- each round: the cohort ----

    def cohort(self, state: LGFedAvgState, ids: Tensor, n: int, key: Key) -> Tensor:
        """Draw S_j,t (line 19), the same share n / K of each cluster, rounded up, but at least two clients.

        Each such set is equally likely. There may be more than `n` clients in total; with one cluster, there are
        exactly `n`.
        """
        m = len(state.centroid)
        order, first, size = shuffle_within(state.assignment, key.bits(ids, "cohort"), m)
        quota = ((n * size + len(ids) - 1) // len(ids)).clamp(min=min(2, m))
        drawn = order.argsort() < (first + quota)[state.assignment]
        return drawn.nonzero()[:, 0]

    # ---- Steps 7 and 8, on the clients ----

    def train(self, state: LGFedAvgState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Train all layers, starting from the cluster's shared ones; send the shared ones and the embeddings."""
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
        """Return what these clients' embeddings are compared with, here Q_avg of each, with a leading axis of C.

        Clients never seen in training come after the others in ``state.assignment`` and have sent no embeddings.
        """
        return (state.centroid[state.assignment[clients]],)

    @torch.no_grad()
    def embed(self, params: Params, data: ClientData, key: Key) -> tuple[Tensor, Tensor]:
        """Compute the embeddings Q_i = theta_i(D_i) of shape (C, n_max, h), and which rows are real (C, n_max)."""
        x, _, w, *_ = data.all_rows(next(iter(params.values())).dtype)
        return torch.where((w > 0)[..., None], torch.vmap(first_layer)(params, x), 0), w > 0

    # ---- Step 9, on the server; Step 10 is the loop of `fit` ----

    def aggregate(self, state: LGFedAvgState, update: Update) -> LGFedAvgState:
        """Average each cluster's shared layers, weighted by examples, and draw new centroids."""
        state = super().aggregate(state, update) if state.models else state  # line 24
        state = replace(state, round=state.round + 1)
        if not self.mmd:
            return state
        state = replace(state, embeddings=put(state.embeddings, update.clients, update.per_client["embeddings"]))
        return replace(state, centroid=self.centroids(state))  # line 18 of the next round

    def centroids(self, state: LGFedAvgState) -> Tensor:
        """Draw Q_avg (M, S, h), a sample of the embeddings that all clients of a cluster last sent (line 18)."""
        q = state.embeddings
        k, j = state.real.nonzero(as_tuple=True)
        bits = Key(state.seed, state.round).bits(torch.arange(len(q), device=q.device), "pool", q.shape[1])
        order, first, size = shuffle_within(state.assignment[k], bits[k, j], len(state.centroid))
        turn = torch.arange(self.pool, device=q.device) % size.clamp(min=1)[:, None]
        drawn = order[(first[:, None] + turn).clamp(max=len(order) - 1)]
        return torch.where(size[:, None, None] > 0, q[k[drawn], j[drawn]], 0)

    # ---- not in the paper: the download, and clients never seen in training ----

    def download(self, state: LGFedAvgState, clients: Tensor) -> dict[str, Any]:
        """The shared layers and, with MMD, the centroid."""
        clusters = state.assignment[clients]
        return {TRAINING: take(state.models, clusters)} | ({_MMD: state.centroid[clusters]} if self.mmd else {})

    def new_clients(self, state: LGFedAvgState, data: ClientData, key: Key, rounds: int) -> LGFedAvgState:
        """Fit new clients' local layers to each cluster's shared ones, and choose the cluster with the smallest loss.

        These layers train for `rounds` rounds, with MMD if the other clients used it, while the shared layers stay
        fixed.
        """
        m, c, device = len(state.centroid), len(data), data.n.device
        cluster, client = torch.cartesian_prod(torch.arange(m, device=device), torch.arange(c, device=device)).T
        tried, shared = data[client], take(state.models, cluster)  # every client in every cluster
        behind = replace(state, assignment=torch.cat([state.assignment, cluster]))  # new clients after the others
        places = len(state.assignment) + torch.arange(m * c, device=device)
        task = {"extras": self.comparison(behind, places), "loss": self.loss_with_mmd} if self.mmd else {}
        own = self.fitted(take(state.start, client), shared, tried, key, rounds, **task)
        params = own | shared
        loss = vmap(self.loss)(params, tried.all_rows(next(iter(params.values())).dtype)).view(m, c)
        empty = torch.bincount(state.assignment, minlength=m) == 0
        best = loss.nan_to_num(nan=torch.inf).masked_fill(empty[:, None], torch.inf).argmin(0)
        local = {name: p[best * c + client[:c]] for name, p in own.items()}
        embeddings, real = state.embeddings.new_zeros(c, 0, 0), state.real.new_zeros(c, 0)  # nothing sent yet
        return replace(state, local=local, assignment=best, embeddings=embeddings, real=real)
