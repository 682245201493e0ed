"""FedSGCNN clusters clients that should help each other, predicted by comparing their networks as graphs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..algorithm import Update
from ..checks import check_whole, number, whole
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
    """State of LG-FedAvg, plus the basis of the clusters, which is None until `prepare`.

    Attributes
    ----------
    trainers : Tensor of shape (s,), int64
        S, the positions of the clients selected in Step 1, in ascending order.
    gain : Tensor of shape (1, P), float64
        Positive transfer of their P = s (s - 1) / 2 pairs; above 0, federating helps.
    distance : Tensor of shape (K, K)
        Predicted distances between all clients.
    """

    trainers: Tensor | None = None
    gain: Tensor | None = None
    distance: Tensor | None = None


@dataclass(frozen=True)
class FedSGCNN(LGFedAvg):
    """Before round 1, a Siamese GCN learns from a few clients which pairs help each other; then all are clustered.

    After that, each cluster is an `LGFedAvg` federation with MMD to its own centroid. Among the defaults, mmd,
    trainers, pair_rounds, snapshots and learn are the paper's; eps, the treatment of noise, validation and pool are
    ours.

    Parameters as in `fedlib.algorithms.lg_fedavg.LGFedAvg`, except `assignment`, which is not used, and

    Parameters
    ----------
    trainers : int
        s, the number of clients of which all pairs are measured; all clients if there are fewer. At least 3, because
        two clients form a single pair, which leaves nothing to distinguish.
    pair_rounds : int
        Rounds for each measured pair and for each trial of a clustering.
    snapshots : sequence of int
        E of Steps 2 and 5, the local epochs after which a network becomes a graph, each counted from the common
        initialisation. E of Steps 3 and 7 is `epochs`.
    score : {"loss", "r2", "accuracy"}
        The score whose gain is measured, as in `fedlib.server.transfer.positive_transfer`. Pairs whose gain is NaN are
        left out of the training.
    validation : ClientData or float
        Rows on which gains are measured and clusterings compared, matched by id, or the share of each client's training
        rows held back for this, rounded, but at least one row. From round 1 on, all training rows are used.
    learn : callable
        ``learn(graphs, pairs, gain, seed=seed)``, which returns an object with ``distance(graphs) -> (K, K)``, such as
        `fedlib.server.model_graph.train_siamese`.
    cluster : callable
        ``cluster(distance) -> (K,)``, such as `fedlib.server.distance_clusters.dbscan`, whose eps the paper does not
        state. It may return a list of clusterings, of which the best is used, judged by the mean score on the
        validation rows after `pair_rounds` rounds.

    Raises
    ------
    ValueError
        A setting out of its range; a federation of one client; a client without validation rows, or with only one row
        if `validation` is a share.

    Notes
    -----
    Algorithm 1 and Steps 1 to 10 of the paper's section 4.2. The graphs contain only the shared layers, so they have
    the same shape for all clients. A transfer above 0 helps, as in the paper's text, and is measured on validation
    rows. Steps 2 and 5 share one training of all clients. Pairs are measured without MMD. The training before round 1
    serves only the clustering, because all clients then restart from the common initialisation. Its costs are in round
    0 of the history, with the purposes "transfer" (measured pairs) and "clustering" (snapshots and trials). One cluster
    with ``mmd=0`` is LG-FedAvg. If each client forms its own cluster, nothing is shared, so check `state.assignment`
    before you interpret a result, and `state.distance` for pairs so close to eps that rounding decides. Chapter 12.

    References
    ----------
    Suzuki, Banaei-Kashani. Clustered federated learning for heterogeneous feature spaces using Siamese graph
    convolutional neural network distance prediction.
    """

    mmd: float = number(0.5)
    trainers: int = whole(10, least=3)
    pair_rounds: int = whole(100)
    snapshots: Sequence[int] = (10,)
    score: Score = "loss"
    validation: ClientData | float = 0.25
    learn: Callable[..., Any] = train_siamese
    cluster: Callable[[Tensor], Tensor | Sequence[Tensor]] = partial(dbscan, eps=0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        for epochs in self.snapshots or [0]:
            check_whole(epochs, "each of snapshots")
        if self.score != "loss" and self.predict is None:
            raise ValueError(f'score must be "loss", or with predict "r2" or "accuracy"; got {self.score!r}')

    def init(self, params: Params, data: ClientData, key: Key) -> FedSGCNNState:
        """The state of LG-FedAvg; nothing is known about the clients yet."""
        return FedSGCNNState(**vars(super().init(params, data, key)))

    def prepare(self, state: Any, data: ClientData, key: Key) -> LGFedAvgState:
        """Measure some pairs, learn from them and cluster all clients; then send the first embeddings."""
        train, validation = data, self.validation
        if len(data) < 2:
            raise ValueError("FedSGCNN measures pairs of clients; got a federation of one client. Give at least two")
        if not isinstance(validation, ClientData):
            train, validation = hold_back(data, validation, key)
        # All layers, because every cluster and every client still has the same parameters.
        start = row(state.models | state.start, 0)
        options: dict[str, Any] = {"rounds": self.pair_rounds, "score": self.score, "seed": key.seed}
        # Step 1, line 1
        selected = key.choose(data.id, min(self.trainers, len(data)), "trainers")
        # Steps 2 and 5, line 3
        graphs = [self.graphs(start, train, key, epochs) for epochs in self.snapshots]
        # Step 3, lines 2 and 4 to 11
        measured = positive_transfer(self.lg_fedavg(), [start], train[selected], validation, **options)
        with server_time(_CLUSTERING):
            # Step 4, line 12
            gain = measured.gain[0]
            pairs = measured.pairs[gain.isfinite()].to(data.n.device)
            learned = self.learn([g[selected] for g in graphs], pairs, gain[gain.isfinite()], seed=key.seed)
            # Step 5, line 13
            distance = learned.distance(graphs)
            # Step 6, line 14
            clusters = self.cluster(distance)
            clusters = torch.as_tensor(clusters) if isinstance(clusters, np.ndarray) else clusters
        if not isinstance(clusters, Tensor):
            options |= {"purpose": _CLUSTERING}
            clusters = best_clusters(self.lg_fedavg(mmd=self.mmd), clusters, start, train, validation, **options)
        # Steps 7 to 10, lines 15 to 27, are those of LG-FedAvg with MMD, from the common initialisation
        state = replace(self, assignment=clusters).init(start, data, key)
        state = replace(state, trainers=selected, gain=measured.gain, distance=distance)
        return super().prepare(state, data, key)

    def lg_fedavg(self, **changes: Any) -> LGFedAvg:
        """LG-FedAvg with these settings but without stragglers, and without MMD unless `changes` set it."""
        settings = {f.name: getattr(self, f.name) for f in fields(LGFedAvg)}
        return LGFedAvg(**settings | {"mmd": 0.0, "stragglers": 0.0} | changes)

    def graphs(self, start: Params, data: ClientData, key: Key, epochs: int) -> ModelGraphs:
        """The clients' shared dense layers after some local epochs from `start`, as graphs (Steps 2 and 5)."""
        everybody = broadcast(start, len(data))
        end = replace(self.lg_fedavg(), epochs=epochs).local_training(everybody, data, key, purpose=_CLUSTERING)
        refuse_divergence(Update(data.id, per_client=end.params, log={"loss": end.loss}), data.id, key)
        shared, _ = split_layers(end.params, self.local)
        down = message_bytes(everybody) if epochs == self.snapshots[0] else 0  # the initialisation is sent once
        record(_CLUSTERING, bytes_down=len(data) * down, bytes_up=len(data) * message_bytes(shared))
        return model_graph(shared, [n.removesuffix(".weight") for n, p in shared.items() if p.ndim == 3])
