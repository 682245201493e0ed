"""Where federating helps: clients with other columns, two functions of one embedding, and who finds the right partners.

Preset ``full``. Clients hold forty rows and ten columns of Breast Cancer; the columns are real, the target is made from
their first two principal components. It is a slope plus a bowl in one half of the clients, and a slope plus a hill in
the other, with the same distribution in both. A dose says how much of the target is bowl or hill: at 0 all clients have
the same target, at 1 opposite ones. No private layer can turn a bowl into a hill, as it is linear.

Pairs of training clients say who gains by whom. Distances of clients, some learned from these pairs, are judged on
pairs of unseen clients; then all are clustered by each distance, in the same way. FedSGCNN, CFL and pFedGraph federate
beside true groups, random ones, one federation of all, and clients alone.

Preset ``chapter``. The federation of chapter 12's notebook with ten other seeds: bowls and hills, no slope, columns as
they are. The cosine and the Siamese network both look at networks after the same epochs. Beside it the same clients
with one target for all, who differ in columns and rows only. Unseen pairs are measured once more from another start,
which says how well any prediction of their gains could do. For both distances it stores the range of DBSCAN's radius
that finds the kinds, if there is one. With "all rows", clients also train on their validation rows.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from scipy.stats import norm, rankdata
from torch import Tensor, nn

import fedlib
from book.experiments import pair_predictors as predictors
from book.experiments import running, tabular
from book.experiments.cfl_variants import OneCut
from fedlib import ClientData, Key, models, statistics
from fedlib.algorithm import Algorithm, Update, held
from fedlib.algorithms import LGFedAvg, LocalOnly
from fedlib.algorithms.pfedgraph import PFedGraph, PFedGraphState
from fedlib.client.local_layers import split_layers
from fedlib.evaluation import Result
from fedlib.params import Params, broadcast, sub, take, to_matrix
from fedlib.server import model_graph, transfer
from fedlib.server.clusters import cosine_similarity
from fedlib.server.distance_clusters import dbscan, linkage, same_sizes

from . import feature_spaces as spaces
from . import fedsgcnn as chapter  # its worlds and gains
from .worlds import ON_CPU, by_seed

Settings = Mapping[str, Any]
Scores = dict[str, float]
Table = dict[str, Scores]  # row -> score -> number

SETTINGS: dict[str, Any] = {
    "doses": [0.0, 0.25, 0.5, 0.75, 1.0],
    "clients": 36,
    "trainers": 24,  # whose pairs teach; the others are unseen
    "rows": 40,
    "features": 10,
    "validation": 100,  # rows of each client that say what a pair gains, and choose rounds and clusters
    "rounds": 40,
    "pair_rounds": 20,
    "every": 5,  # rounds between two scores
    "repeats": 2,  # starts from which a pair is measured
    "snapshots": [10, 100],  # local epochs after which networks are looked at
    "clusters": [1, 2, 3, 4],  # validation chooses
    "alphas": [0.05, 0.2, 0.8],  # of pFedGraph; validation chooses
    "seeds": [100, 101, 102, 103, 104],  # nothing was chosen on these
}
CHAPTER = {name: SETTINGS[name] for name in ("rows", "features", "validation", "rounds", "pair_rounds", "every")} | {
    "targets": {"bowls and hills": 1.0, "bowls only": 0.0},  # strength of `tabular.deal`
    "clients": 24,
    "trainers": 14,
    "repeats": 2,  # the second start measures unseen pairs again
    "snapshots": [100],  # local epochs after which both distances look at networks
    "clusters": [1, 2, 3, 4],
    "seeds": list(range(100, 110)),  # nothing was chosen on these
}
SHARED = ("dense2", "dense3", "dense4")


# ---- clients ----


def narrow(features: int) -> models.Model:
    """A private linear map to two numbers, and a shared network on these."""
    layers = {"dense1": nn.Linear(features, 2), "dense2": nn.Linear(2, 32), "relu2": nn.ReLU()}
    layers |= {"dense3": nn.Linear(32, 16), "relu3": nn.ReLU(), "dense4": nn.Linear(16, 1)}
    return models.Model(nn.Sequential(OrderedDict(layers)))


def normal_scores(values: np.ndarray) -> np.ndarray:
    """The normal distribution's quantiles in the order of the values: a standard normal sample."""
    return norm.ppf((rankdata(values) - 0.5) / len(values))


def two_targets(x: np.ndarray, dose: float) -> list[np.ndarray]:
    """The targets of the two groups from the first two principal components; each a standard normal sample."""
    u, s, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    u = u[:, :2] * np.sign((u[:, :2] ** 3).sum(0))  # the same sign on every machine
    first, second = (normal_scores(c) for c in u.T)
    bowl, angle = normal_scores(np.hypot(first, second)), dose * np.pi / 2
    return [normal_scores(np.cos(angle) * first + sign * np.sin(angle) * bowl) for sign in (1, -1)]


def table_of() -> tabular.Table:
    """Breast Cancer with a standard normal sample in each column, for a regression."""
    table = tabular.table("breast_cancer")
    return replace(table, x=np.stack([normal_scores(c) for c in table.x.T], 1).astype(np.float32), classes=None)


def with_starts(clients: tabular.TabularClients, settings: Settings, seed: int, dtype: torch.dtype) -> Any:
    """The world of these clients: with the network of all, and its starts."""
    net = narrow(settings["features"])
    starts = [net.init(1000 * seed + r) for r in range(settings["repeats"])]
    starts = [{n: p.to(dtype) for n, p in start.items()} for start in starts]
    parts = {n: d.to("cpu", dtype) for n, d in spaces.parts_of(clients).items()}
    return chapter.World(replace(clients, **parts), net, chapter.training(net), starts)


def world_of(settings: Settings, dose: float, seed: int, dtype: torch.dtype = torch.float32) -> Any:
    """Clients with columns of their own, each coded up or down; half of them with a hill in place of a bowl."""
    table = table_of()
    group = torch.from_numpy(np.random.RandomState(seed).permutation(settings["clients"]) % 2)
    how = {name: settings[name] for name in ("clients", "rows", "features", "validation")}
    targets = (y.astype(np.float32) for y in two_targets(table.x.astype(float), dose))
    dealt = [tabular.deal(replace(table, y=y), overlap=True, seed=seed, **how) for y in targets]
    pairs = zip(*(spaces.parts_of(d).items() for d in dealt), strict=True)
    sets = {n: replace(a, y=torch.where(group[:, None] == 1, b.y, a.y)) for (n, a), (_, b) in pairs}
    clients = replace(dealt[0], **spaces.own_signs(sets, seed), planted=group.numpy())
    return with_starts(clients, settings, seed, dtype)


def notebook_world(settings: Settings, strength: float, seed: int, dtype: torch.dtype = torch.float32) -> Any:
    """The clients of chapter 12's notebook: half of them with a hill in place of a bowl, none at strength 0."""
    table = table_of()
    table = replace(table, y=two_targets(table.x.astype(float), 1)[0].astype(np.float32))
    how = {name: settings[name] for name in ("clients", "rows", "features", "validation")}
    dealt = tabular.deal(table, overlap=True, plant="sign", strength=strength, seed=seed, **how)
    return with_starts(dealt, settings, seed, dtype)


# ---- distances of clients ----


def plain_distances(settings: Settings, shots: Mapping[int, Params]) -> dict[str, Tensor]:
    """Distances of clients that learn nothing."""
    found = {}
    for e in settings["snapshots"]:
        update = sub(shots[e], shots[0])
        length = to_matrix(update).norm(dim=1).double()
        found[f"cosine, {e} epochs"] = (1 - cosine_similarity(update)).double()
        found[f"length, {e} epochs"] = (length[:, None] - length).abs()
        found[f"L2, {e} epochs"] = predictors.l2_distance(to_matrix(shots[e]))
    return found


def distances(
    settings: Settings, shots: Mapping[int, Params], pairs: Tensor, gain: Tensor, seed: int, epochs: int | None = None
) -> dict[str, Tensor]:
    """Every distance of clients, plain ones and those that learn from the gains of pairs."""
    learned = chapter.learned_distances(settings, shots, pairs, gain, seed, SHARED, epochs)
    return plain_distances(settings, shots) | {name: distance.double() for name, distance in learned.items()}


# ---- federations ----


@dataclass(frozen=True)
class LGPFedGraphState(PFedGraphState):
    """State of pFedGraph for the shared layers, and the local ones beside it."""

    local: Params = field(metadata=held("client"))


@dataclass(frozen=True)
class LGPFedGraph(PFedGraph):
    """pFedGraph on the shared layers, without its pull; the first layer stays on its client."""

    lam: float = 0.0

    def init(self, params: Params, data: ClientData, key: Key) -> LGPFedGraphState:
        """All clients start from the same parameters."""
        shared, own = split_layers(params, ("dense1",))
        local = {name: p.clone() for name, p in broadcast(own, len(data)).items()}
        return LGPFedGraphState(**vars(super().init(shared, data, key)), local=local)

    def client_params(self, state: Any, clients: Tensor) -> Params:
        """A client's own layer, and its mixture of the shared ones."""
        return take(state.local, clients) | super().client_params(state, clients)

    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Train all layers; send the shared ones."""
        end = self.local_training(self.client_params(state, clients), data, key)
        shared, own = split_layers(end.params, ("dense1",))
        return Update(clients, per_client={"model": shared}, client_state={"local": own}, log={"loss": end.loss})


def federate(settings: Settings, world: Any, algorithm: Algorithm, seed: int) -> Result:
    """Train with all clients from the first start, scored from time to time."""
    c = world.clients
    tested = {"eval_data": {"validation": c.validation, "test": c.test}, "eval_every": settings["every"]}
    how = {"seed": seed, "dtype": next(iter(world.starts[0].values())).dtype, **ON_CPU}
    return fedlib.fit(algorithm, world.starts[0], c.train, settings["rounds"], **tested, **how)


def scored(world: Any, end: Result, assignment: Tensor | None = None) -> Scores:
    """R2 of all test rows together in the round that validation chooses, and what the clusters are."""
    history = end.history.dropna(subset=["test_r2"])
    chosen = history.loc[history["validation_r2"].idxmax()]
    found = {"R2": chosen["test_r2"], "validation": chosen["validation_r2"]}
    if assignment is not None:
        found["clusters"] = len(assignment.unique())
        found["ARI"] = statistics.cluster_scores(world.clients.planted, assignment.cpu())["ari"]
    return {what: float(v) for what, v in found.items()}


def clustered(settings: Settings, world: Any, distance: Tensor, seed: int, radius: bool = False) -> Tensor:
    """One to four clusters by average linkage, or by DBSCAN at some `radius`: those that do best on validation rows."""
    candidates = [linkage(distance, m) for m in settings["clusters"]]
    if radius:
        each = [dbscan(distance, eps=float(r) + 1e-9) for r in distance.unique()]
        candidates = [*{len(g.unique()): g for g in each if len(g.unique()) in settings["clusters"]}.values()]
    how = {"rounds": settings["pair_rounds"], "score": "r2", "seed": seed}
    c = world.clients
    return transfer.best_clusters(LGFedAvg(**world.how), candidates, world.starts[0], c.train, c.validation, **how)


def judge(distance: Tensor, pairs: Tensor, negative: Tensor, apart: Tensor) -> Scores:
    """Whether far pairs are those that lose, and those of two groups."""
    far = distance[pairs[:, 0], pairs[:, 1]].cpu().numpy()
    return {"AUC, gain": predictors.auc(negative.numpy(), far), "AUC, groups": predictors.auc(apart.numpy(), far)}


def measured(settings: Settings, world: Any, seed: int, epochs: int | None = None) -> Table:
    """Everything in one world: rows of the table."""
    group, trainers = torch.as_tensor(world.clients.planted), settings["trainers"]
    pairs = chapter.judged_pairs(settings["clients"], trainers)
    found = chapter.gains(dict(settings) | {"rounds": settings["pair_rounds"]}, world, seed, pairs)
    gain, apart = found.gain.mean(0), group[pairs[:, 0]] != group[pairs[:, 1]]
    train, unseen = (pairs < trainers).all(1), (pairs >= trainers).all(1)
    asked = pairs[unseen], (gain <= 0)[unseen], apart[unseen]
    inside, across = (float(gain[some].mean()) for some in (~apart, apart))
    out: Table = {"pairs": {"gain inside": inside, "gain across": across}}
    how = world.how
    fixed: dict[str, tuple[Algorithm, Tensor | None]] = {
        "standalone": (LocalOnly(**how), None),
        "LG-FedAvg": (LGFedAvg(**how), None),
        "true groups": (LGFedAvg(**how, assignment=group), group),
        "random groups": (LGFedAvg(**how, assignment=same_sizes(group, seed)), same_sizes(group, seed)),
    }
    for name, (algorithm, groups) in fixed.items():
        out[name] = scored(world, federate(settings, world, algorithm, seed), groups)
    out["true groups"] |= judge((group[:, None] != group).double(), *asked)
    shots, short = chapter.looks(settings, world, seed), f", {settings['snapshots'][0]} epochs"
    for name, distance in distances(settings, shots, pairs[train], gain[train], seed, epochs).items():
        out[name] = judge(distance, *asked)
        if name.endswith(short):
            continue  # judged only
        clusters = {name: clustered(settings, world, distance, seed)}
        if name == "Siamese GCN, paper":
            clusters[f"{name}, DBSCAN"] = dbscan(distance, eps=0.5)
        for label, groups in clusters.items():
            end = federate(settings, world, LGFedAvg(**how, assignment=groups), seed)
            out[label] = scored(world, end, groups) | judge(distance, *asked)
    one_cut = OneCut(**how, after=max(1, settings["rounds"] // 4))
    end = federate(settings, world, one_cut, seed)
    again = LGFedAvg(**how, assignment=end.state.assignment)
    out["CFL, one cut"] = scored(world, end, again.assignment)
    out["CFL, one cut, then from the start"] = scored(world, federate(settings, world, again, seed), again.assignment)
    rows = []
    for alpha in settings["alphas"]:
        end = federate(settings, world, LGPFedGraph(**how, alpha=alpha), seed)
        rows.append(scored(world, end) | judge(-(end.state.graph + end.state.graph.T), *asked))
    return out | {"pFedGraph": max(rows, key=lambda row: row["validation"])}


def of_seed(settings: Settings, dose: float, seed: int) -> Table:
    """All rows at a dose."""
    return measured(settings, world_of(settings, dose, seed), seed)


def measure(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Dose -> row -> score -> seed; a dose and a seed are kept at a time."""
    doses = {f"dose {dose:g}": dose for dose in settings["doses"]}
    return {n: by_seed(settings, keep, n, predictors.plain, of_seed, settings, dose) for n, dose in doses.items()}


# ---- preset "chapter" ----


def square(clients: int, pairs: Tensor, values: Tensor) -> Tensor:
    """The symmetric matrix (K, K) with these values at these pairs, and 0 elsewhere."""
    matrix = torch.zeros(clients, clients, dtype=torch.float64)
    matrix[pairs[:, 0], pairs[:, 1]] = values.double()
    return matrix + matrix.T


def foretold(settings: Settings, world: Any, seed: int, epochs: int = 1000) -> tuple[Table, dict[str, Tensor]]:
    """What pairs gain and what distances tell of unseen ones, and the distances; `epochs` of the Siamese network."""
    clients, trainers, (last,) = settings["clients"], settings["trainers"], settings["snapshots"]
    group, pairs = torch.as_tensor(world.clients.planted), chapter.judged_pairs(clients, trainers)
    often, (first, second) = dict(settings) | {"rounds": settings["pair_rounds"]}, world.starts
    gain = chapter.gains(often, replace(world, starts=[first]), seed, pairs).gain[0]
    apart = group[pairs[:, 0]] != group[pairs[:, 1]]
    train, unseen, loses = (pairs < trainers).all(1), (pairs >= trainers).all(1), gain <= 0
    again = chapter.gains(often, replace(world, starts=[second]), seed, pairs[unseen]).gain[0]

    shots, everybody = chapter.looks(settings, world, seed), transfer.all_pairs(clients)
    graphs = [model_graph.model_graph(shots[last], SHARED)]
    predictor = model_graph.train_siamese(graphs, pairs[train], gain[train], seed, epochs)
    distances = {
        "true kinds": (group[:, None] != group).double(),
        "cosine": (1 - cosine_similarity(sub(shots[last], shots[0]))).double(),
        "measured again": square(clients, pairs[unseen], -again),
        "predictor": predictor.distance(graphs).double(),
    }
    score = square(clients, everybody, predictor.score(graphs, everybody))  # many distances are rounded to 0 or 1
    harm, (i, j) = loses[unseen].numpy(), pairs[unseen].T
    ranks = distances | {"predictor": score}
    table = {n: {"AUC, gain": predictors.auc(harm, d[i, j].cpu().numpy())} for n, d in ranks.items()}
    some = {"inside": ~apart, "across": apart}
    table["pairs"] = {f"lose {where}": float(loses[which].double().mean()) for where, which in some.items()}
    return table, distances


def radii(distance: Tensor, group: Tensor) -> Scores:
    """The least radius at which DBSCAN has each kind in one cluster, and the least at which it joins both kinds.

    And, for some numbers of neighbours, itself included, that make a client a core: 1 if a radius finds the two kinds.
    """
    kinds, radius = [distance[group == g][:, group == g] for g in (0, 1)], [float(r) + 1e-9 for r in distance.unique()]
    whole = [min(r for r in radius if not dbscan(d, eps=r).any()) for d in kinds]
    found = {"radius, kinds": max(whole), "radius, both": float(distance[group == 0][:, group == 1].min())}
    true = (group != group[0]).long()
    right = {m: any((dbscan(distance, r, m) == true).all() for r in radius) for m in (2, 4, 6)}
    return found | {f"right, {m}": float(yes) for m, yes in right.items()}


def with_all_rows(world: Any) -> Any:
    """The same clients, who also train on their validation rows."""
    c, dtype = world.clients, next(iter(world.starts[0].values())).dtype
    x, y = (torch.cat(p, 1) for p in zip(*(d.all_rows(dtype)[:2] for d in (c.train, c.validation)), strict=True))
    return replace(world, clients=replace(c, train=fedlib.stack_clients([*x], [*y])))


def of_notebook(settings: Settings, world: Any, seed: int, epochs: int = 1000) -> Table:
    """All rows: distances, and where there are hills also what clusters by them are worth."""
    table, distances = foretold(settings, world, seed, epochs)
    group = torch.as_tensor(world.clients.planted)
    groups = {"all together": torch.zeros_like(group)}
    if settings["clusters"]:
        groups["true kinds"] = group
        for n, d in ((n, distances[n]) for n in ("cosine", "predictor")):
            groups |= {n: clustered(settings, world, d, seed)}
            groups[f"{n}, radius"] = clustered(settings, world, d, seed, radius=True)
            table[n] |= radii(d, group)
    ends = {"alone": (LocalOnly(**world.how), None)}
    ends |= {name: (LGFedAvg(**world.how, assignment=some), some) for name, some in groups.items()}
    for name, (algorithm, some) in ends.items():
        table[name] = table.get(name, {}) | scored(world, federate(settings, world, algorithm, seed), some)
    whole = with_all_rows(world)
    for name in [n for n in ("alone", "all together", "true kinds", "cosine") if n in ends]:
        end = federate(settings, whole, ends[name][0], seed)
        table[f"{name}, all rows"] = {"R2": float(end.history["test_r2"].iloc[-1])}  # nothing chooses a round
    return table


def of_target(settings: Settings, target: str, seed: int) -> Table:
    """All rows with bowls and hills, or with bowls only, where no clusters are formed."""
    strength = settings["targets"][target]
    told = dict(settings) | {"clusters": settings["clusters"] if strength else []}
    return of_notebook(told, notebook_world(settings, strength, seed), seed)


def measure_chapter(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Target -> row -> score -> seed; a seed and a target are kept at a time."""
    return {n: by_seed(settings, keep, n, predictors.plain, of_target, settings, n) for n in settings["targets"]}


FEW = {"clients": 10, "validation": 20, "rounds": 2, "pair_rounds": 1, "every": 1, "clusters": [1, 2]}  # of probes


def probe_chapter() -> running.Probe:
    """Two rounds of everything with ten clients, in float64."""
    small = CHAPTER | FEW | {"trainers": 6, "snapshots": [3]}
    table = predictors.plain(of_notebook, small, notebook_world(small, 1.0, 3, torch.float64), 3, 10)
    return {name: list(row.values()) for name, row in table.items()}


def probe() -> running.Probe:
    """Two rounds of everything with ten clients, in float64."""
    small = SETTINGS | FEW | {"trainers": 7, "snapshots": [1, 3]}
    out = {}
    for dose in (0.5, 1.0):
        world = world_of(small, dose, 3, torch.float64)
        out[f"clients, dose {dose}"] = [
            float((d.y.double() * torch.arange(1, 11)[:, None]).sum()) + float(d.x.double().square().sum())
            for d in (world.clients.train, world.clients.validation, world.clients.test)
        ]
        if dose == 1:
            table = predictors.plain(measured, small, world, 3, 10)
            out |= {name: list(row.values()) for name, row in table.items()}
    return out


DATA = ("breast_cancer",)
PRESETS = {
    "full": running.Experiment("planted_transfer", SETTINGS, measure, probe, DATA),
    "chapter": running.Experiment("planted_transfer_chapter", CHAPTER, measure_chapter, probe_chapter, DATA),
}
