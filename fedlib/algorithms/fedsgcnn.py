"""FedSGCNN: clusters of clients whose networks, compared as graphs, say that they will help each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from torch import Tensor

from ..algorithm import Update
from ..client.local_layers import split_layers
from ..costs import message_bytes, record, server_time
from ..data import ClientData
from ..keys import Key
from ..params import Params, broadcast, row
from ..round import refuse_divergence
from ..server.distance_clusters import dbscan
from ..server.model_graph import ModelGraphs, model_graph, train_siamese
from ..server.transfer import Score, best_clusters, hold_back, positive_transfer
from .lg_fedavg import LGFedAvg, LGFedAvgState

__all__ = ["FedSGCNN", "FedSGCNNState"]

_CLUSTERING = "clustering"  # in the costs


@dataclass(frozen=True)
class FedSGCNNState(LGFedAvgState):
    """State of FedSGCNN: that of LG-FedAvg, and what the clusters were made of; None before that.

    Attributes
    ----------
    trainers : Tensor of shape (s,), int64
        Positions of the clients whose pairs were measured, ascending.
    gain : Tensor of shape (R, P), float64
        Positive transfer of all pairs of them from each start; above 0 federating helps.
    distance : Tensor of shape (K, K)
        Predicted distance of all clients.
    """

    trainers: Tensor | None = None
    gain: Tensor | None = None
    distance: Tensor | None = None


@dataclass(frozen=True)
class FedSGCNN(LGFedAvg):
    """Before round 1 a graph network learns from a few clients which pairs help each other, and clusters all clients.

    After that, each cluster is an `LGFedAvg` federation with MMD to its own centroid. The defaults are the paper's.

    Parameters as in `fedlib.algorithms.lg_fedavg.LGFedAvg`, but for `assignment`, which is not used, and

    Parameters
    ----------
    trainers : int
        s, clients of which all pairs are measured; all clients if there are fewer.
    pair_rounds : int
        Rounds of each measured pair, and of each trial of clusters.
    snapshots : sequence of int
        E: local epochs after which a network is looked at, each from the common start.
    score : {"loss", "r2", "accuracy"}
        What is gained, as in `fedlib.server.transfer.positive_transfer`. Pairs whose gain is NaN teach nothing.
    validation : ClientData or float
        Rows on which gains are measured and clusters compared, matched by id; or the share of each client's training
        rows held back for that, rounded and at least one. All training rows are used from round 1 on.
    further_starts : sequence of Params
        More starts from which each pair is measured; the mean gain counts.
    learn : callable
        ``learn(graphs, pairs, gain, seed=seed)``, which gives an object with ``distance(graphs) -> (K, K)``, such as
        `fedlib.server.model_graph.train_siamese`.
    cluster : callable
        ``cluster(distance) -> (K,)``, such as `fedlib.server.distance_clusters.dbscan`, whose eps the paper does not
        state. Or a list of such: that with the best mean score on the validation rows after a short federation.

    Raises
    ------
    ValueError
        A setting out of its range; a client without validation rows, or of one row with `validation` as a share.

    Notes
    -----
    Algorithm 1 and Steps 1 to 10 of the paper's section 4.2. Only shared layers are looked at, so the clients' graphs
    have the same shape. The text calls a pair with a score *above* that of local training positive, while its formula
    subtracts losses; `fedlib.server.transfer` follows the text. Pairs are measured without MMD. What happened before
    round 1 does not go into it: all clients start again from the common start. The costs are in round 0 of the history,
    with the purposes "transfer" (measured pairs) and "clustering" (snapshots and trials). One cluster and ``mmd=0`` is
    LG-FedAvg; where each client is alone, nothing is shared: look at the clusters' sizes first. Chapter 08.

    References
    ----------
    Suzuki, Banaei-Kashani. Clustered federated learning for heterogeneous feature spaces using Siamese graph
    convolutional neural network distance prediction.
    """

    mmd: float = 0.5
    trainers: int = 10
    pair_rounds: int = 100
    snapshots: Sequence[int] = (10,)
    score: Score = "loss"
    validation: ClientData | float = 0.25
    further_starts: Sequence[Params] = ()
    learn: Callable[..., Any] = train_siamese
    cluster: Callable[[Tensor], Tensor | Sequence[Tensor]] = partial(dbscan, eps=0.5)

    def init(self, params: Params, data: ClientData, key: Key) -> FedSGCNNState:
        """That of LG-FedAvg; nothing is known of the clients yet."""
        return FedSGCNNState(**vars(super().init(params, data, key)))

    def prepare(self, state: Any, data: ClientData, key: Key) -> LGFedAvgState:
        """Measure some pairs, learn from them, and cluster everybody; then the first embeddings."""
        known, check = data, self.validation
        if not isinstance(check, ClientData):
            known, check = hold_back(data, check, key)
        start = row(state.models | state.start, 0)
        how: dict[str, Any] = {"score": self.score, "seed": key.seed}
        # Step 1, line 1
        s = key.choose(data.id, min(self.trainers, len(data)), "trainers")
        # Steps 2 and 5, line 3
        graphs = [self.graphs(start, known, key, epochs) for epochs in self.snapshots]
        # Step 3, lines 2 to 11
        starts = [start, *({name: p.to(start[name]) for name, p in more.items()} for more in self.further_starts)]
        measured = positive_transfer(self.within(), starts, known[s], check, self.pair_rounds, **how)
        with server_time(_CLUSTERING):
            # Step 4, line 12
            gain = measured.gain.nanmean(0)
            pairs = measured.pairs[gain.isfinite()].to(data.n.device)
            learned = self.learn([g[s] for g in graphs], pairs, gain[gain.isfinite()], seed=key.seed)
            # Step 5, line 13
            distance = learned.distance(graphs)
            # Step 6, line 14
            clusters = self.cluster(distance)
        if not isinstance(clusters, Tensor):
            how |= {"rounds": self.pair_rounds, "purpose": _CLUSTERING}
            clusters = best_clusters(self.within(mmd=self.mmd), clusters, start, known, check, **how)
        # Steps 7 to 10, lines 15 to 27, are those of LG-FedAvg with MMD, from the common start
        state = replace(self, assignment=clusters).init(start, data, key)
        state = replace(state, trainers=s, gain=measured.gain, distance=distance)
        return super().prepare(state, data, key)

    def within(self, **changes: Any) -> LGFedAvg:
        """The federation in a cluster, where nobody is slow; without MMD unless that is among the changes."""
        settings = {f.name: getattr(self, f.name) for f in fields(LGFedAvg)}
        return LGFedAvg(**settings | {"mmd": 0.0, "stragglers": 0.0} | changes)

    def graphs(self, start: Params, data: ClientData, key: Key, epochs: int) -> ModelGraphs:
        """The shared dense layers of these clients after some local epochs from one start, as graphs."""
        everybody = broadcast(start, len(data))
        end = replace(self.within(), epochs=epochs).local_training(everybody, data, key, purpose=_CLUSTERING)
        refuse_divergence(Update(data.id, per_client=end.params, log={"loss": end.loss}), data.id, key)
        shared, _ = split_layers(end.params, self.local)
        down = message_bytes(everybody) if epochs == self.snapshots[0] else 0  # the start is sent once
        record(_CLUSTERING, bytes_down=len(data) * down, bytes_up=len(data) * message_bytes(shared))
        return model_graph(shared, [n.removesuffix(".weight") for n, p in shared.items() if p.ndim == 3])
