"""FedSGCNN: clusters of clients whose networks, compared as graphs, say that they will help each other."""

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..costs import message_bytes, record, server_time
from ..data import ClientData
from ..evaluation import positions
from ..keys import Key
from ..params import Params, broadcast, row
from ..server.model_graph import ModelGraphs, model_graph, train_siamese
from ..server.transfer import Score, federated_score, positive_transfer
from .lg_fedavg import LGFedAvg, LGFedAvgState, split_layers

__all__ = ["FedSGCNN", "FedSGCNNState", "dbscan", "linkage", "same_sizes"]

_CLUSTERING = "clustering"  # in the ledger
_GIANT = 0.9  # a cluster with this share of the clients is a single federation in all but name


class Predictor(Protocol):
    """What learned from measured pairs who helps whom; `fedlib.server.model_graph.PairPredictor` is one."""

    def distance(self, graphs: Sequence[ModelGraphs]) -> Tensor:
        """Distances (K, K) from 0 to 1 of these clients, with a diagonal of 0."""


@dataclass(frozen=True)
class FedSGCNNState(LGFedAvgState):
    """State of FedSGCNN: that of LG-FedAvg, and what the clusters were made of.

    Attributes
    ----------
    trainers : Tensor of shape (s,), int64
        Positions of the clients whose pairs were measured, ascending.
    pairs : Tensor of shape (P, 2), int64
        Positions of the clients of each measured pair.
    gain : Tensor of shape (R, P), float64
        Positive transfer of each pair in each repeat; above 0 federating helps.
    distance : Tensor of shape (K, K)
        Predicted distance of all clients.
    tried : Tensor of shape (L, 2), float64
        Each level of `FedSGCNN.levels`, and the mean score on the validation rows of the clusters it makes; NaN where
        there was only one level, so nothing to choose.
    """

    trainers: Tensor
    pairs: Tensor
    gain: Tensor
    distance: Tensor
    tried: Tensor


@dataclass(frozen=True)
class FedSGCNN(LGFedAvg):
    """Before round 1 a graph network learns from a few clients which pairs help each other, and clusters all clients.

    After that, each cluster is an `LGFedAvg` federation with MMD to its own centroid.

    Parameters as in `fedlib.algorithms.lg_fedavg.LGFedAvg`, of which `assignment` must be None, and

    Parameters
    ----------
    trainers : int
        s, clients of which all pairs are measured, at least 2; all clients if there are fewer.
    pair_rounds : int
        Rounds of each measured pair, and of each trial of a level.
    repeats : int
        Starts from which each pair is measured; the mean gain counts.
    new_start : callable, optional
        ``new_start(seed) -> Params``, such as a model's `init`; needed for more than one repeat.
    validation : ClientData or float
        Rows on which gains are measured and levels compared, matched by id; or the share of each client's training
        rows held back for that, rounded and at least one. All training rows are used from round 1 on.
    score : {"loss", "r2", "accuracy"} or callable
        What is gained, as in `fedlib.server.transfer.positive_transfer`. Pairs whose gain is NaN teach nothing.
    snapshots : sequence of int
        Local epochs after which a network is looked at, each from the common start.
    predictor : {"paper", "book"} or callable
        Recipe of `fedlib.server.model_graph.train_siamese`; or ``predictor(graphs, pairs, gain, seed)``, which gives an object
        with ``distance(graphs)``.
    clustering : {"dbscan", "linkage"}
        How the distances make clusters; see `dbscan` and `linkage`.
    levels : sequence of float
        One value of eps, or one number of clusters. Of several, that with the best score on the validation rows after
        `pair_rounds` rounds counts; of equals the first.

    Raises
    ------
    ValueError
        A setting out of its range; an assignment; more than one repeat without `new_start`; a single client, or more
        clusters than clients; a client without validation rows, or of one row with `validation` as a share.

    Warns
    -----
    UserWarning
        One cluster holds nearly all clients, or each client is alone.

    Notes
    -----
    Algorithm 1 and Steps 1 to 10 of the paper's section 4.2. Only shared layers are looked at, so the clients' graphs
    have the same shape. The text calls a pair with a score *above* that of local training positive, while its formula
    subtracts losses; `fedlib.server.transfer` follows the text. Pairs are measured without MMD. What happened before round 1
    does not go into it: all clients start again from the common start. The costs are in round 0 of the history, with
    the purposes "transfer" (measured pairs) and "clustering" (snapshots and trials). One level that makes one cluster,
    and ``mmd=0``, is LG-FedAvg. Chapter 08.

    References
    ----------
    Suzuki, Banaei-Kashani. Clustered federated learning for heterogeneous feature spaces using Siamese graph
    convolutional neural network distance prediction.
    """

    mmd: float = 0.5
    trainers: int = 10
    pair_rounds: int = 20
    repeats: int = 1
    new_start: Callable[[int], Params] | None = None
    validation: ClientData | float = 0.25
    score: Score = "loss"
    snapshots: Sequence[int] = (10,)
    predictor: Literal["paper", "book"] | Callable[..., Predictor] = "paper"
    clustering: Literal["dbscan", "linkage"] = "dbscan"
    levels: Sequence[float] = (0.5,)

    @classmethod
    def recipe(cls, name: Literal["paper", "book"], loss: Callable[..., Tensor], **settings: Any) -> "FedSGCNN":
        """The algorithm as printed, or as this book would run it; `settings` go before the recipe's.

        "paper": one start, a snapshot after 10 local epochs, 100 rounds a pair, the classifier of section 4.1, and
        DBSCAN with eps 1/2, which the paper does not state. "book": four starts (`new_start` must be given), two
        snapshots, regression on the gain, and one to four clusters by average linkage, chosen on the validation rows.
        """
        if name not in ("paper", "book"):
            raise ValueError(f"recipe must be 'paper' or 'book', got {name!r}")
        paper = {"pair_rounds": 100, "snapshots": (10,), "predictor": "paper", "clustering": "dbscan", "levels": (0.5,)}
        book = {"pair_rounds": 20, "snapshots": (10, 100), "predictor": "book", "clustering": "linkage"}
        book |= {"repeats": 4, "levels": (1, 2, 3, 4)}
        return cls(loss, **{**(paper if name == "paper" else book), **settings})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.assignment is not None:
            raise ValueError("assignment is what FedSGCNN finds; for known clusters take LGFedAvg")
        for name, least in (("trainers", 2), ("pair_rounds", 1), ("repeats", 1)):
            if not (isinstance(value := getattr(self, name), Integral) and int(value) >= least):
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if self.repeats > 1 and self.new_start is None:
            raise ValueError(f"repeats={self.repeats} needs new_start, such as model.init: a start for each repeat")
        if not isinstance(self.validation, ClientData) and not 0 < self.validation < 1:
            raise ValueError(f"validation must be ClientData or a share between 0 and 1, got {self.validation!r}")
        if not len(self.snapshots) or not all(isinstance(e, Integral) and int(e) >= 1 for e in self.snapshots):
            raise ValueError(f"snapshots must hold numbers of local epochs from 1, got {self.snapshots!r}")
        if not (callable(self.predictor) or self.predictor in ("paper", "book")):
            raise ValueError(f'predictor must be "paper", "book" or a function, got {self.predictor!r}')
        if self.clustering not in ("dbscan", "linkage"):
            raise ValueError(f'clustering must be "dbscan" or "linkage", got {self.clustering!r}')
        if not len(self.levels):
            raise ValueError("levels must hold at least one value of eps, or one number of clusters; got none")
        if self.clustering == "dbscan" and not all(0 < eps < math.inf for eps in self.levels):
            raise ValueError(f"levels must hold values of eps above 0, got {self.levels!r}")
        if self.clustering == "linkage" and not all(float(m).is_integer() and m >= 1 for m in self.levels):
            raise ValueError(f"levels must hold numbers of clusters from 1, got {self.levels!r}")

    def init(self, params: Params, data: ClientData, key: Key) -> FedSGCNNState:
        """One cluster; nothing is known yet."""
        if len(data) < 2:
            raise ValueError("FedSGCNN compares clients and needs at least 2, got 1; take LocalOnly")
        if self.clustering == "linkage" and max(self.levels) > len(data):
            raise ValueError(f"levels must not exceed the number of clients, {len(data)}; got {self.levels!r}")
        state, none = super().init(params, data, key), torch.zeros(0, 2, dtype=torch.int64)
        unknown = torch.zeros(len(data), len(data))
        known = {f.name: getattr(state, f.name) for f in fields(LGFedAvgState)}
        return FedSGCNNState(**known, trainers=none[:, 0], pairs=none, gain=none[None, :, 0].double(),
                             distance=unknown, tried=none.double())  # fmt: skip

    # ---- before round 1: Steps 1 to 6 ----

    def prepare(self, state: Any, data: ClientData, key: Key) -> Any:
        """Measure some pairs, learn from them, and cluster everybody; then the first embeddings."""
        known, check = self._hold_back(data, key)
        pairwise = self._plain(mmd=0.0)
        common = row(state.models | state.start, 0)
        further = [self.new_start(key.seed + r) for r in range(1, self.repeats)]  # type: ignore[misc]
        starts = [common, *({name: p.to(common[name]) for name, p in start.items()} for start in further)]
        s = key.choose(data.id, min(self.trainers, len(data)), "trainers")  # Step 1
        measured = positive_transfer(
            pairwise, starts, known[s], check[s], self.pair_rounds, score=self.score, seed=key.seed
        )  # Step 3
        graphs = self.graphs(state, known, key)  # Steps 2 and 5
        with server_time(_CLUSTERING):
            pairs, gain = measured.pairs.to(data.n.device), measured.gain.nanmean(0)
            real = gain.isfinite()
            learned = self._learn([g[s] for g in graphs], pairs[real.to(pairs.device)], gain[real], key.seed)  # Step 4
            distance = learned.distance(graphs)  # Step 5
        found = {level: self._cluster(distance, level) for level in self.levels}  # Step 6
        scores = dict.fromkeys(found, math.nan)
        if len(found) > 1:
            scores = self._try(found, common, known, check, key)
        level = max(found, key=lambda level: scores[level]) if len(found) > 1 else next(iter(found))
        assignment = found[level].to(data.n.device)
        self._warn(assignment)
        clusters = int(assignment.max()) + 1
        state = replace(
            state,
            models=broadcast(row(state.models, 0), clusters),
            assignment=assignment,
            centroid=state.centroid.new_zeros(clusters, 0, 0),
            trainers=s,
            pairs=s[pairs],
            gain=measured.gain,
            distance=distance,
            tried=torch.tensor(list(scores.items()), dtype=torch.float64),
        )
        return super().prepare(state, data, key)

    def _plain(self, **changes: Any) -> LGFedAvg:
        """The federation inside a cluster, in which nobody is slow."""
        settings = {f.name: getattr(self, f.name) for f in fields(LGFedAvg)}
        return LGFedAvg(**settings | {"stragglers": 0.0} | changes)

    def _hold_back(self, data: ClientData, key: Key) -> tuple[ClientData, ClientData]:
        """Training and validation rows of every client."""
        if isinstance(self.validation, ClientData):
            check = self.validation.to(data.n.device, data.x.dtype if data.x.is_floating_point() else None).sorted()
            if len(missing := data.id[~torch.isin(data.id, check.id)]):
                raise ValueError(f"validation has no rows of clients {missing[:5].tolist()}; give rows of each client")
            return data, check[positions(check.id, data, "the training data")]
        if int(data.n.min()) < 2:
            lonely = data.id[data.n < 2][:5].tolist()
            raise ValueError(f"clients {lonely} have one row, none to hold back; give validation rows as ClientData")
        n = data.n
        back = (n * self.validation).round().long().clamp(min=1).minimum(n - 1)
        order = key.permutations(data.id, "validation", n, 1, data.index.shape[1])[:, 0]

        def part(first: Tensor, size: Tensor) -> ClientData:
            place = torch.arange(int(size.max()), device=n.device)
            which = order.gather(1, first[:, None] + torch.where(place < size[:, None], place, 0))
            return replace(data, index=data.index.gather(1, which), y=data.y.gather(1, which), n=size)

        return part(back, n - back), part(torch.zeros_like(n), back)

    def graphs(self, state: LGFedAvgState, data: ClientData, key: Key) -> list[ModelGraphs]:
        """The shared layers of these clients as graphs, after each of `snapshots` local epochs from the common start.

        Only dense layers are looked at, and they must follow one another. Each client gets the start once and sends
        its shared layers once a snapshot.
        """
        start = broadcast(row(state.models | state.start, 0), len(data))
        found = []
        record(_CLUSTERING, bytes_down=len(data) * message_bytes(start))
        for epochs in self.snapshots:
            trained = replace(self._plain(mmd=0.0), epochs=operator.index(epochs))
            shared, _ = split_layers(trained.local_training(start, data, key, purpose=_CLUSTERING).params, self.local)
            record(_CLUSTERING, bytes_up=len(data) * message_bytes(shared))
            layers = [n.removesuffix(".weight") for n, p in shared.items() if n.endswith(".weight") and p.ndim == 3]
            found.append(model_graph(shared, layers))
            if len(bad := data.id[~found[-1].x.flatten(1).isfinite().all(1)]):
                raise FloatingPointError(
                    f"the parameters of clients {bad[:5].tolist()} became NaN or infinite in {epochs} local epochs "
                    "before round 1; lower the learning rate, or look for extreme values in their data"
                )
        return found

    def _learn(self, graphs: list[ModelGraphs], pairs: Tensor, gain: Tensor, seed: int) -> Predictor:
        if callable(self.predictor):
            return self.predictor(graphs, pairs, gain, seed)
        return train_siamese(graphs, pairs, gain, self.predictor, seed)

    def _cluster(self, distance: Tensor, level: float) -> Tensor:
        return dbscan(distance, level) if self.clustering == "dbscan" else linkage(distance, int(level))

    def _try(
        self, found: dict[float, Tensor], common: Params, train: ClientData, check: ClientData, key: Key
    ) -> dict[float, float]:
        """Mean score over clients of a short federation in each of these clusters; equal ones are tried once."""
        known: dict[tuple[int, ...], float] = {}
        for level in found.values():
            clusters = tuple(level.tolist())
            if clusters not in known:
                algorithm = self._plain(assignment=clusters)
                scores = federated_score(
                    algorithm, common, train, check, self.pair_rounds, self.score, key.seed, _CLUSTERING
                )
                known[clusters] = float(scores.nanmean())
        return {level: known[tuple(assignment.tolist())] for level, assignment in found.items()}

    def _warn(self, assignment: Tensor) -> None:
        sizes = torch.bincount(assignment)
        if len(assignment) > 2 and int(sizes.max()) >= _GIANT * len(assignment):
            what = f"one cluster holds {int(sizes.max())} of {len(assignment)} clients: this is LG-FedAvg"
        elif len(sizes) == len(assignment) > 1:
            what = f"each of the {len(assignment)} clients is alone: nothing will be shared"
        else:
            return
        warnings.warn(f"{what}, whatever the predictor says; look at state.distance and try other levels", stacklevel=2)


def dbscan(distance: Tensor | ArrayLike, eps: float, min_samples: int = 2) -> Tensor:
    """Clusters of a distance matrix by scikit-learn's DBSCAN (FedSGCNN Step 6).

    Parameters
    ----------
    distance : Tensor or array of shape (K, K)
        At least 0, symmetric.
    eps : float
        Clients no farther apart than this are neighbours; above 0.
    min_samples : int
        Neighbours, itself included, that make a client the core of a cluster. 2: clusters are chains of neighbours.

    Returns
    -------
    Tensor of shape (K,), int64
        Clusters are numbered in the order of their first clients. What DBSCAN calls noise is a cluster of its own: such
        a client trains alone.

    Notes
    -----
    The paper states neither eps nor min_samples nor what becomes of noise. Chapter 08.
    """
    from sklearn.cluster import DBSCAN

    matrix = torch.as_tensor(distance).detach().cpu().double().numpy()
    labels = DBSCAN(eps=eps, min_samples=min_samples, metric="precomputed").fit(matrix).labels_
    alone = labels < 0
    labels[alone] = len(labels) + np.flatnonzero(alone)
    return _in_order(labels)


def linkage(distance: Tensor | ArrayLike, clusters: int) -> Tensor:
    """Clusters of a distance matrix by scikit-learn's average linkage.

    Parameters
    ----------
    distance : Tensor or array of shape (K, K)
    clusters : int
        From 1 to K.

    Returns
    -------
    Tensor of shape (K,), int64
        Clusters are numbered in the order of their first clients. Chapter 08.
    """
    from sklearn.cluster import AgglomerativeClustering

    matrix = torch.as_tensor(distance).detach().cpu().double().numpy()
    if not 1 <= clusters <= len(matrix):
        raise ValueError(f"clusters must be from 1 to the number of clients, {len(matrix)}; got {clusters}")
    if clusters == 1 or len(matrix) < 2:
        return torch.zeros(len(matrix), dtype=torch.int64)
    return _in_order(AgglomerativeClustering(clusters, metric="precomputed", linkage="average").fit(matrix).labels_)


def same_sizes(assignment: Tensor | Sequence[int], seed: int) -> Tensor:
    """Random clusters of the same sizes: the control beside every clustering. Chapter 08."""
    given = torch.as_tensor(assignment)
    return given[Key(seed).bits(torch.arange(len(given)), "random clusters").argsort(stable=True).to(given.device)]


def _in_order(labels: np.ndarray) -> Tensor:
    """Numbers from 0 in the order of first occurrence."""
    _, first, place = np.unique(labels, return_index=True, return_inverse=True)
    return torch.from_numpy(first.argsort().argsort()[place]).long()
