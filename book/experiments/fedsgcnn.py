"""FedSGCNN on tables: who gains by federating in pairs, can it be foreseen, and do clusters by it help.

Preset ``full``. Clients hold five columns and twelve rows of a table; half of them see another target, so that there is
a truth to find. All pairs of training clients and all pairs of unseen clients federate, from several starts, and their
gains are measured. Predictors that learned from the pairs of the training clients are judged on pairs of unseen ones.
Then all clients are clustered, by FedSGCNN and its rivals, and scored on rows that nobody holds. Last, an attacker
reads features from embeddings. Five seeds; 35 minutes on one core.

Preset ``paper``. The paper's Tables 2 and 3 (how often a predictor is right about the sign of the gain) and Table 5
(six settings, ten seeds), FedSGCNN as printed, in five readings of "maximum test" and soundly; beside it what the text
leaves open, one thing changed at a time. All federations of a setting and a seed train in one stack: two hours on one
core. Wine Quality and Obesity Levels must be at hand (see `fedlib.datasets`).

Preset ``rounding`` asks what of it depends on the processor: FedSGCNN as printed on Wine, where every number that a
run starts from is moved by about its last place; ten seeds, five minutes.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from sklearn import decomposition, linear_model, metrics, pipeline, preprocessing
from torch import Tensor

import fedlib
from book.experiments import running, tabular
from fedlib import ClientData, Key, evaluation, models, statistics
from fedlib.algorithm import Algorithm
from fedlib.algorithms import LGCFL, FedSGCNN, LGFedAvg, LocalOnly
from fedlib.client.local_layers import split_layers
from fedlib.costs import Costs
from fedlib.evaluation import Result
from fedlib.local import Trained
from fedlib.losses import cross_entropy, mse
from fedlib.params import Params, broadcast, sub, to_matrix
from fedlib.round import one_round
from fedlib.server import model_graph, transfer
from fedlib.server.clusters import cosine_similarity, shuffle_within
from fedlib.server.distance_clusters import dbscan, linkage, same_sizes

SHARED = ("dense2", "dense3")  # layers that all clients have in common
EPS = tuple(float(e) for e in np.round(np.arange(0.05, 1, 0.05), 2))
NOISES = (0.0, 0.3, 1.0, 3.0)
WORLDS = [
    *(("boston", "scale", h) for h in (0.0, 0.25, 0.5, 1.0)),
    ("boston", "offset", 1.0),
    ("boston", "sign", 1.0),
    *(("diabetes", "scale", h) for h in (0.0, 0.5, 1.0)),
]
ARENAS = [("diabetes", "scale", 1.0), ("boston", "scale", 0.0), ("boston", "scale", 1.0)]

Scores = dict[str, float]
Table = dict[str, Scores]  # what is scored -> score -> number
Settings = Mapping[str, Any]


def label(table: str, plant: str, h: float) -> str:
    """Name of a world in the figures."""
    return f"{table}, {plant} {h:g}"


FULL = {
    "clients": 60,
    "trainers": 40,  # of which all pairs train the predictors; the others are unseen
    "rows": 12,
    "validation": 120,  # rows that say what a pair gains
    "rounds": 20,
    "repeats": 4,  # starts from which a pair is measured
    "snapshots": [10, 100],  # local epochs after which networks are looked at
    "few": [5, 10, 15, 20],  # smaller numbers of training clients
    "seeds": 5,
    "seed": 100,  # fresh: no setting was chosen on these seeds
    "worlds": [label(*w) for w in WORLDS],
}
PAPER = {
    "seed": 100,  # the first
    "seeds": {"boston": 10, "wine_quality": 10, "obesity": 10, "Tables 2 and 3": 10},
    "shorter": 1,  # rounds are divided by it
    "eps": [0.1, 0.3, 0.5, 0.7, 0.9],
    "groups": [1, 2, 5, 10, 20, 50, 100],  # random ones, by which one run is read
    "hold-out rows": 600,  # at most, of the common hold-out
    "numbers": [5, 10, 15, 20],  # of training clients, in Table 3
    "folds": 5,
    "epochs": None,  # of the Siamese network: None are the paper's
}


# ---- pairs: how one run tells of another, how a distance is judged ----


def between(pairs: Tensor, clients: Tensor) -> Tensor:
    """Which pairs have both ends in `clients`; of shape (P,), bool."""
    return torch.isin(pairs, clients).all(1)


def sign_agreement(gain: ArrayLike) -> float:
    """Share of (pair, two repeats) in which the repeats of `gain` (R, P) agree whether the pair gains; 0 is no gain.

    If a pair gains in a share p of all runs, two runs agree with chance p^2 + (1 - p)^2, and the best guess of one who
    does not know the start is right with chance max(p, 1 - p): about (1 + sqrt(2 a - 1)) / 2 with an agreement of a.
    """
    gain = np.atleast_2d(np.asarray(gain, float))
    first, second = np.triu_indices(len(gain), 1)
    real = ~np.isnan(gain[first] + gain[second])
    agree = (gain[first] > 0) == (gain[second] > 0)
    return float(agree[real].mean()) if real.any() else float("nan")


def repeat_auc(gain: ArrayLike) -> float:
    """AUC with which the gain (R, P) of one repeat predicts the sign of another, mean over ordered pairs of repeats."""
    areas = []
    for seen, wanted in itertools.permutations(np.atleast_2d(np.asarray(gain, float)), 2):
        real = ~np.isnan(seen + wanted)
        areas.append(auc(wanted[real] <= 0, -seen[real]))
    areas = [a for a in areas if not np.isnan(a)]
    return float(np.mean(areas)) if areas else float("nan")


def auc(negative: np.ndarray, distance: np.ndarray) -> float:
    """Chance that a negative pair is farther than a positive one, ties counting half; NaN without one of the two."""
    if negative.all() or not negative.any():
        return float("nan")
    return float(metrics.roc_auc_score(negative, distance))


def fit_threshold(distance: ArrayLike, negative: ArrayLike) -> float:
    """The threshold with the best accuracy on training pairs, where a pair above it is called negative.

    Half way between two distances, or -inf (all are called negative) or inf (none); the smallest of equally good ones.
    """
    distance, negative = np.asarray(distance, float), np.asarray(negative, bool)
    values, place = np.unique(distance, return_inverse=True)
    # With the threshold above the i smallest values: positive pairs below it, and negative ones above, are right.
    gained = np.bincount(place, weights=1.0 - 2 * negative, minlength=len(values))
    right = np.concatenate([[0.0], gained.cumsum()])
    cuts = np.concatenate([[-np.inf], (values[1:] + values[:-1]) / 2, [np.inf]])
    return float(cuts[right.argmax()])


def pair_scores(negative: ArrayLike, distance: ArrayLike, threshold: float) -> Scores:
    """How well a distance tells negative pairs (gain <= 0) from positive ones; a pair above the threshold is negative.

    The balanced accuracy is the mean of the accuracies on negative and on positive pairs; no threshold enters the AUC.
    """
    negative, distance = np.asarray(negative), np.asarray(distance, float)
    right = (distance > threshold) == negative
    both = negative.any() and not negative.all()
    balanced = (right[negative].mean() + right[~negative].mean()) / 2 if both else float("nan")
    return {
        "accuracy": float(right.mean()),
        "balanced_accuracy": float(balanced),
        "auc": auc(negative, distance),
    }


def majority_pairs(negative_train: ArrayLike, negative_test: ArrayLike) -> float:
    """Accuracy on test pairs of always saying what most training pairs are; in a tie, negative."""
    return float(np.mean(np.asarray(negative_test, bool) == (np.asarray(negative_train, bool).mean() >= 0.5)))


# ---- distances of clients that need no graph ----


def l2_distance(matrix: Tensor) -> Tensor:
    """Euclidean distance of each two rows; of shape (K, K), float64."""
    matrix = matrix.detach().flatten(1).double()
    return torch.cdist(matrix, matrix, compute_mode="donot_use_mm_for_euclid_dist")


def feature_overlap(columns: Sequence[ArrayLike]) -> Tensor:
    """One minus the Jaccard index of each two clients' sets of columns; of shape (K, K), float64."""
    sets = [set(np.asarray(c).tolist()) for c in columns]
    apart = [[1 - len(a & b) / len(a | b) if a | b else 0.0 for b in sets] for a in sets]
    return torch.tensor(apart, dtype=torch.float64)


def answer_distance(predict: Callable[..., Tensor], stack: Params, probe: Tensor) -> Tensor:
    """Root mean squared difference of each two networks' answers to the same inputs; of shape (K, K), float64."""
    with torch.no_grad():
        answers = torch.vmap(predict, in_dims=(0, None))(stack, probe).flatten(1)
    return l2_distance(answers) / answers.shape[1] ** 0.5


def hand_made(stack: Params, layers: Sequence[str]) -> Tensor:
    """Eight numbers for each dense layer of each network; of shape (K, 8 * layers), float64.

    Of the weights: mean, standard deviation, norm, and the quantiles 0.1 and 0.9; of the biases: mean, standard
    deviation (0 for one unit), norm.
    """
    numbers = []
    for layer in layers:
        w, b = (stack[f"{layer}.{kind}"].detach().flatten(1).double() for kind in ("weight", "bias"))
        numbers += [w.mean(1), w.std(1, correction=0), w.norm(dim=1), *w.quantile(w.new_tensor([0.1, 0.9]), dim=1)]
        numbers += [b.mean(1), b.std(1, correction=0), b.norm(dim=1)]
    return torch.stack(numbers, 1)


def logistic_pairs(features: Tensor, pairs: Tensor, negative: ArrayLike, seed: int) -> Callable[[Tensor], Tensor]:
    """Logistic regression of negative transfer on two clients' `features` (K, F).

    It gives ``distance(features) -> (K, K)`` for these or other clients: the chance of negative transfer. If all
    training pairs have one sign, this is everybody's.
    """
    negative = np.asarray(negative, bool)
    describe = _describe(features, pairs, seed)
    if negative.all() or not negative.any():
        return lambda features: _square(len(features), lambda pairs: np.full(len(pairs), float(negative.all())))
    model = linear_model.LogisticRegression(max_iter=1000).fit(describe(features, pairs), negative)
    return lambda features: _square(len(features), lambda pairs: model.predict_proba(describe(features, pairs))[:, 1])


def ridge_pairs(features: Tensor, pairs: Tensor, gain: ArrayLike, seed: int = 0) -> Callable[[Tensor], Tensor]:
    """Ridge regression of the gain on two clients' `features` (K, F).

    It gives ``distance(features) -> (K, K)``: a falling function of the predicted gain, 1/2 where that is 0. Gains are
    clipped to the 0.9 quantile of their size, so that no single pair rules; the penalty is chosen by leaving out one
    pair after another.
    """
    gain = np.asarray(gain, float)
    describe = _describe(features, pairs, seed)
    bound = np.quantile(np.abs(gain), 0.9) or 1.0
    model = linear_model.RidgeCV(np.logspace(-1, 5, 13)).fit(
        describe(features, pairs), gain.clip(-bound, bound) / bound
    )
    return lambda features: _square(
        len(features), lambda pairs: 1 / (1 + np.exp(model.predict(describe(features, pairs))))
    )


def _describe(features: Tensor, pairs: Tensor, seed: int) -> Callable[[Tensor, Tensor], np.ndarray]:
    """What gives |a - b| and a b of pairs (P, 2 F), standardised on their clients; 16 components of more features."""
    clients = pairs.unique()
    steps: list[Any] = [preprocessing.StandardScaler()]
    if features.shape[1] > 16:
        steps.append(decomposition.PCA(min(16, len(clients) - 1), whiten=True, random_state=seed))
    client = pipeline.make_pipeline(*steps).fit(features[clients].detach().cpu().double().numpy())

    def describe(features: Tensor, pairs: Tensor) -> np.ndarray:
        a, b = client.transform(features.detach().cpu().double().numpy())[pairs.T.cpu().numpy()]
        return np.concatenate([np.abs(a - b), a * b], 1)

    return describe


def _square(clients: int, distance: Callable[[Tensor], np.ndarray]) -> Tensor:
    """The matrix (K, K) of a distance of pairs."""
    matrix, pairs = torch.zeros(clients, clients, dtype=torch.float64), transfer.all_pairs(clients)
    matrix[pairs[:, 0], pairs[:, 1]] = torch.from_numpy(distance(pairs))
    return matrix + matrix.T


# ---- clients, and what pairs of them gain ----


@dataclass(frozen=True)
class World:
    """Clients with columns of their own, and how they train."""

    clients: tabular.TabularClients
    net: models.MLP
    how: dict[str, Any]  # arguments of every algorithm
    starts: list[Params]


def squared_error(net: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The loss of a regression."""
    return lambda params, batch: mse(net(params, batch[0]), batch[1], batch[2])


def class_error(net: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The loss of a classification."""
    return lambda params, batch: cross_entropy(net(params, batch[0]), batch[1], batch[2])


def world_of(settings: Settings, table: str, plant: str, h: float, seed: int, clients: int | None = None) -> World:
    """Clients with five columns and a few rows each; half of them have another target."""
    dealt = tabular.deal(
        tabular.table(table),
        clients or settings["clients"],
        settings["rows"],
        5,
        validation=settings["validation"],
        overlap=True,
        plant=plant,
        strength=h,
        seed=seed,
    )
    net = models.MLP((5, 32, 16, 1))
    how = {
        "loss": squared_error(net),
        "predict": lambda params, x: net(params, x)[:, 0],
        "lr": 0.05,
        "optimizer": functools.partial(torch.optim.SGD, momentum=0.5),
        "batch_size": None,
        "epochs": 5,
    }
    return World(dealt, net, how, [net.init(1000 * seed + r) for r in range(settings["repeats"])])


def gains(settings: Settings, world: World, seed: int, pairs: Tensor) -> transfer.Transfer:
    """What pairs gain in R2, from each start."""
    return transfer.positive_transfer(
        LGFedAvg(**world.how),
        world.starts,
        world.clients.train,
        world.clients.validation,
        settings["rounds"],
        pairs,
        "r2",
        seed,
    )


def judged_pairs(clients: int, trainers: int) -> Tensor:
    """Pairs of two training clients, or of two unseen ones."""
    everybody = transfer.all_pairs(clients)
    parts = torch.arange(trainers), torch.arange(trainers, clients)
    return torch.cat([everybody[between(everybody, part)] for part in parts])


def about(settings: Settings, world: World, found: transfer.Transfer) -> Scores:
    """How much there is to foresee: agreement of repeats, gains inside and across the planted groups."""
    group = torch.as_tensor(world.clients.planted)
    unseen = (found.pairs >= settings["trainers"]).all(1)
    gain, clipped = found.gain.mean(0), found.gain.clamp(-1, 1).mean(0)
    same = group[found.pairs[:, 0]] == group[found.pairs[:, 1]]
    return {
        "sign agreement": sign_agreement(found.gain),
        "AUC of a repeat": repeat_auc(found.gain[:, unseen]),
        "share that loses": float((gain <= 0).double().mean()),
        "gain inside": float(gain[same].mean()),
        "gain across": float(gain[~same].mean()),
        "median inside": float(gain[same].median()),
        "median across": float(gain[~same].median()),
        "clipped inside": float(clipped[same].mean()),
        "clipped across": float(clipped[~same].mean()),
    }


# ---- predictors of the gain ----


def looks(settings: Settings, world: World, seed: int) -> dict[int, Params]:
    """The shared layers of all clients after so many local epochs from the first start."""
    start = broadcast(world.starts[0], len(world.clients.train))
    found = {0: split_layers(start, ("dense1",))[0]}
    for epochs in settings["snapshots"]:
        algorithm = replace(LGFedAvg(**world.how), epochs=epochs)
        trained = algorithm.local_training(start, world.clients.train.sorted(), Key(seed)).params
        found[epochs] = split_layers(trained, ("dense1",))[0]
    return found


def answers(params: Params, x: Tensor) -> Tensor:
    """What the shared layers make of an embedding."""
    hidden = torch.relu(x @ params["dense2.weight"].T + params["dense2.bias"])
    return hidden @ params["dense3.weight"].T + params["dense3.bias"]


def plain_distances(settings: Settings, world: World, shots: dict[int, Params]) -> dict[str, Tensor]:
    """Distances of clients that learn nothing."""
    last = shots[settings["snapshots"][-1]]
    inputs = torch.randn(64, 32, generator=torch.Generator().manual_seed(1)).relu().to(last["dense2.weight"])
    found = {}
    for epochs in settings["snapshots"]:
        update = sub(shots[epochs], shots[0])
        found[f"cosine, weights, {epochs} epochs"] = 1 - cosine_similarity(shots[epochs])
        found[f"cosine, updates, {epochs} epochs"] = 1 - cosine_similarity(update)
        found[f"L2, weights, {epochs} epochs"] = l2_distance(to_matrix(shots[epochs]))
        length = to_matrix(update).norm(dim=1)
        found[f"lengths of updates, {epochs} epochs"] = (length[:, None] - length).abs().double()
    found["feature overlap"] = feature_overlap(world.clients.columns)
    found["answers to a probe"] = answer_distance(answers, last, inputs)
    return found


COUNTED = ("hand-made numbers, ridge", "Siamese GCN, paper", "Siamese GCN, book")
LEARNED = ("logistic, flat updates", *COUNTED, "shuffled gains, book")


def learned_distances(
    settings: Settings,
    shots: dict[int, Params],
    pairs: Tensor,
    gain: Tensor,
    seed: int,
    kinds: Sequence[str] = LEARNED,
    epochs: int | None = None,
) -> dict[str, Tensor]:
    """Distances of clients by predictors that learn from the gains of pairs; `epochs` of the Siamese networks."""
    first, *_, last = settings["snapshots"]
    graphs = [model_graph.model_graph(shots[e], SHARED) for e in settings["snapshots"]]
    update, numbers = to_matrix(sub(shots[first], shots[0])), hand_made(shots[last], SHARED)
    shuffled = gain[torch.from_numpy(np.random.RandomState(seed).permutation(len(gain)))]

    def graph_network(recipe: model_graph.Recipe, some: list[model_graph.ModelGraphs], gain: Tensor) -> Tensor:
        return model_graph.train_siamese(some, pairs, gain, recipe, seed, epochs).distance(some)

    makers = {
        "logistic, flat updates": lambda: logistic_pairs(update, pairs, gain <= 0, seed)(update),
        "hand-made numbers, ridge": lambda: ridge_pairs(numbers, pairs, gain, seed)(numbers),
        "Siamese GCN, paper": lambda: graph_network("paper", graphs[:1], gain),
        "Siamese GCN, book": lambda: graph_network("book", graphs, gain),
        "shuffled gains, book": lambda: graph_network("book", graphs, shuffled),
    }
    return {kind: makers[kind]() for kind in kinds}


def judge(settings: Settings, table: str, plant: str, h: float, seed: int) -> Table:
    """Accuracy, balanced accuracy and AUC of all predictors, on pairs of two unseen clients."""
    world, trainers = world_of(settings, table, plant, h, seed), settings["trainers"]
    found = gains(settings, world, seed, judged_pairs(settings["clients"], trainers))
    pairs, gain = found.pairs, found.gain.mean(0)
    negative = gain <= 0
    train, unseen = (pairs < trainers).all(1), (pairs >= trainers).all(1)
    shots = looks(settings, world, seed)

    def scores(distance: Tensor, threshold: float | None = None) -> Scores:
        far = distance[pairs[:, 0], pairs[:, 1]]
        if threshold is None:
            threshold = fit_threshold(far[train], negative[train])
        return pair_scores(negative[unseen], far[unseen], threshold)

    out = {name: scores(distance) for name, distance in plain_distances(settings, world, shots).items()}
    learned = learned_distances(settings, shots, pairs[train], gain[train], seed)
    out |= {name: scores(distance, 0.5) for name, distance in learned.items()}
    group = torch.as_tensor(world.clients.planted)
    out["planted groups known"] = scores((group[:, None] != group).double(), 0.5)
    always = majority_pairs(negative[train], negative[unseen])
    out["majority class"] = {"accuracy": always, "balanced_accuracy": 0.5, "auc": 0.5}
    for n in settings["few"] if plant == "scale" and h in (0.0, 1.0) else ():
        some = (pairs < n).all(1)
        learned = learned_distances(settings, shots, pairs[some], gain[some], seed, COUNTED)
        out |= {f"{name}, {n} clients": scores(distance, 0.5) for name, distance in learned.items()}
    return out | {"about": about(settings, world, found)}


def many_clients(
    settings: Settings, table: str, seed: int, clients: int = 160, unseen: int = 30, some: int = 1500
) -> Table:
    """Nothing planted, but four times as many training clients, and some of their pairs."""
    world = world_of(settings, table, "scale", 0.0, seed, clients + unseen)
    everybody = transfer.all_pairs(clients + unseen)
    train = everybody[between(everybody, torch.arange(clients))]
    train = train[torch.from_numpy(np.random.RandomState(seed).permutation(len(train))[:some])]
    new = everybody[between(everybody, torch.arange(clients, clients + unseen))]
    found = gains(settings, world, seed, torch.cat([train, new]))
    gain, test = found.gain.mean(0), torch.arange(len(found.pairs)) >= len(train)
    learned = learned_distances(settings, looks(settings, world, seed), train, gain[~test], seed)
    out = {
        name: pair_scores(gain[test] <= 0, distance[new[:, 0], new[:, 1]], 0.5) for name, distance in learned.items()
    }
    return out | {"AUC of a repeat": {"auc": repeat_auc(found.gain[:, test])}}


# ---- clusters ----


def one_to_four(distance: Tensor) -> list[Tensor]:
    """Candidates for FedSGCNN to try: one to four clusters by average linkage."""
    return [linkage(distance, m) for m in (1, 2, 3, 4)]


BOOK = {"learn": functools.partial(model_graph.train_siamese, recipe="book"), "cluster": one_to_four}


@dataclass(frozen=True)
class OneCut(LGCFL):
    """CFL on the shared layers that cuts the clients once, after a given round."""

    level: float = 1.0
    after: int = 1

    def must_split(self, t: int, since: int, mean: float, longest: float, pace: float) -> bool:
        """In that round only."""
        return t == self.after


def contenders(settings: Settings, world: World, seed: int) -> dict[str, Algorithm]:
    """FedSGCNN and its rivals."""
    look = {
        "trainers": round(len(world.clients.train) * settings["trainers"] / settings["clients"]),
        "validation": world.clients.validation,
        "score": "r2",
        "mmd": 0.0,
        "pair_rounds": settings["rounds"],
    }
    one_cut = {"after": max(1, settings["rounds"] // 4)}
    starts = [world.net.init(seed + r) for r in range(1, settings["repeats"])]
    book = look | BOOK | {"snapshots": settings["snapshots"], "further_starts": starts}
    return {
        "standalone": LocalOnly(**world.how),
        "LG-FedAvg": LGFedAvg(**world.how),
        "true groups": LGFedAvg(**world.how, assignment=torch.as_tensor(world.clients.planted)),
        "CFL, shared layers": OneCut(**world.how, **one_cut),
        "CFL, average linkage": OneCut(**world.how, **one_cut, method="average"),
        "FedSGCNN, book": FedSGCNN(**world.how, **book),
        "FedSGCNN, paper": FedSGCNN(**world.how, **look, snapshots=settings["snapshots"][:1]),
    }


def federate(settings: Settings, world: World, algorithm: Algorithm, seed: int, **more: Any) -> Result:
    """Train with all clients from the first start."""
    return fedlib.fit(
        algorithm, world.starts[0], world.clients.train, settings["rounds"], seed=seed, progress=False, **more
    )


def scored(world: World, algorithm: Algorithm, end: Result) -> Scores:
    """Scores on the common hold-out, and what the clusters are."""
    table = evaluation.evaluate(algorithm, end, world.clients.test)
    everybody = torch.arange(len(table))
    alone = everybody if isinstance(algorithm, LocalOnly) else torch.zeros_like(everybody)
    found = getattr(end.state, "assignment", alone).cpu()
    sizes = torch.unique(found, return_counts=True)[1]
    return {
        "R2, mean": table["r2"].mean(),
        "R2, median": table["r2"].median(),
        "R2, clipped": table["r2"].clip(lower=-1).mean(),  # no single client counts below -1
        "R2, pooled": evaluation.pooled(table)["r2"],
        "clusters": len(sizes),
        "largest": int(sizes.max()),
        "single": int((sizes == 1).sum()),
        "ARI": statistics.cluster_scores(world.clients.planted, found)["ari"],
    }


def costs(end: Result) -> Table:
    """MB and millions of examples: before round 1 by purpose, and of all rounds."""
    first, rounds = end.history.iloc[0], end.history.iloc[1:]
    out = {
        purpose: {
            "MB": sum(first.get(f"bytes_{way} ({purpose})", 0) for way in ("down", "up")) / 1e6,
            "million examples": first.get(f"examples ({purpose})", 0) / 1e6,
        }
        for purpose in ("transfer", "clustering")
    }
    sent = (rounds["bytes_down"] + rounds["bytes_up"]).sum() / 1e6
    return out | {"training, all rounds": {"MB": sent, "million examples": rounds["examples"].sum() / 1e6}}


def dbscan_at(distance: Tensor) -> dict[float, Scores]:
    """Number of clusters, largest cluster and single clients, for each eps."""
    sizes = {eps: torch.bincount(dbscan(distance, eps)) for eps in EPS}
    return {
        eps: {"clusters": len(s), "largest": int(s.max()), "alone": int((s == 1).sum())} for eps, s in sizes.items()
    }


def contest(settings: Settings, table: str, plant: str, h: float, seed: int) -> Table:
    """All contenders in one world; beside each recipe of FedSGCNN random clusters of the same sizes, and its costs."""
    world, where = world_of(settings, table, plant, h, seed), label(table, plant, h)
    out, more = {}, {}
    for name, algorithm in contenders(settings, world, seed).items():
        end = federate(settings, world, algorithm, seed)
        out[f"contest, {where}: {name}"] = scored(world, algorithm, end)
        if not isinstance(algorithm, FedSGCNN):
            continue
        control = LGFedAvg(**world.how, assignment=same_sizes(end.state.assignment, seed).cpu())
        chance = f"contest, {where}: random clusters, sizes of {name.split()[-1]}"
        out[chance] = scored(world, control, federate(settings, world, control, seed))
        more |= {f"eps {eps:g}, {where}: {name}": row for eps, row in dbscan_at(end.state.distance).items()}
        more |= {f"cost, {where}: {name}, {what}": row for what, row in costs(end).items()}
    return out | more


# ---- what embeddings reveal ----


@dataclass(frozen=True)
class Noisy(LGFedAvg):
    """A client adds Gaussian noise of standard deviation `noise` to embeddings before it sends them; 0: none."""

    noise: float = 0.0

    def embed(self, params: Params, data: ClientData, key: Key) -> tuple[Tensor, Tensor]:
        """Embeddings with noise, and which rows are real."""
        q, real = super().embed(params, data, key)
        noise = self.noise * key.normal(data.id, "noise", *q.shape[1:]).to(q)
        return torch.where(real[..., None], q + noise, 0), real


def invert(sent: Tensor, weight: Tensor, bias: Tensor, steps: int = 200) -> Tensor:
    """Features whose embeddings, by these first layers, are nearest to what was sent."""
    x = sent.new_zeros(*sent.shape[:2], weight.shape[2]).requires_grad_()
    rule = torch.optim.Adam([x], lr=0.05)
    for _ in range(steps):
        rule.zero_grad()
        (torch.relu(x @ weight.mT + bias[:, None]) - sent).square().sum().backward()
        rule.step()
    return x.detach()


def likeness(x: Tensor, guess: Tensor) -> float:
    """Mean correlation of true and guessed columns; 0 for a guess without variance."""
    x, guess = x - x.mean(1, keepdim=True), guess - guess.mean(1, keepdim=True)
    size = x.norm(dim=1) * guess.norm(dim=1)
    return float(torch.where(size > 1e-9, (x * guess).sum(1) / size.clamp(min=1e-9), 0).mean())


def leak(settings: Settings, world: World, seed: int, sigma: float, steps: int = 200, **more: Any) -> Scores:
    """LG-FedAvg with MMD and noise on the embeddings: its score, and how much an attacker reads from them."""
    algorithm = Noisy(**world.how, mmd=0.5, noise=sigma)
    end = federate(settings, world, algorithm, seed, **more)
    sent = end.state.embeddings
    x = world.clients.train.sorted().all_rows(sent.dtype)[0].to(sent)
    common = {name: p.expand(len(x), *p.shape[1:]) for name, p in end.state.start.items()}
    guesses = {
        who: invert(sent, layer["dense1.weight"], layer["dense1.bias"], steps)
        for who, layer in {"layer known": end.state.local, "start known": common}.items()
    }
    median = scored(world, algorithm, end)["R2, median"]
    return {"R2, median": median} | {who: likeness(x, guess) for who, guess in guesses.items()}


def leaks(settings: Settings, table: str, plant: str, h: float, seed: int) -> Table:
    """What is revealed with each amount of noise."""
    world = world_of(settings, table, plant, h, seed)
    return {f"noise {sigma:g}": leak(settings, world, seed, sigma) for sigma in NOISES}


# ---- preset "full" ----


def by_seed(tables: Mapping[int, Table]) -> dict[str, Any]:
    """What is scored -> score -> seed -> number, without what is NaN or infinite."""
    out: dict[str, Any] = {}
    for seed, table in tables.items():
        for name, scores in table.items():
            for what, value in scores.items():
                if np.isfinite(value):
                    out.setdefault(name, {}).setdefault(what, {})[str(seed)] = round(float(value), 4)
    return out


def plain(function: Callable[..., Table], *args: Any) -> Table:
    """What a function gives, as numbers that JSON can hold; without what is NaN or infinite."""
    found = function(*args)
    return {name: {what: float(v) for what, v in s.items() if np.isfinite(v)} for name, s in found.items()}


def measure(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Predictors in all worlds, then clusters, many clients, and embeddings; a world and a seed are kept at a time."""
    worlds = {name: w for name, w in ((label(*w), w) for w in WORLDS) if name in settings["worlds"]}
    tables = {}
    for seed in range(settings["seed"], settings["seed"] + settings["seeds"]):
        table = {}
        for where, world in worlds.items():
            scores = keep(f"{where}, seed {seed}", plain, judge, settings, *world, seed)
            table |= {f"{where}: {name}": row for name, row in scores.items()}
        for arena in ARENAS:
            table |= keep(f"contest, {label(*arena)}, seed {seed}", plain, contest, settings, *arena, seed)
        many = keep(f"many clients, seed {seed}", plain, many_clients, settings, "boston", seed)
        table |= {f"many clients: {name}": row for name, row in many.items()}
        tables[seed] = table | keep(f"noise, seed {seed}", plain, leaks, settings, "diabetes", "scale", 1.0, seed)
    return by_seed(tables)


def small_world(settings: Settings, plant: str, seed: int) -> World:
    """A world in double precision, with two local epochs in a round."""
    world = world_of(settings, "diabetes", plant, 1.0, seed)
    c = world.clients
    parts = {name: getattr(c, name).to("cpu", torch.float64) for name in ("train", "validation", "test")}
    starts = [{name: p.double() for name, p in start.items()} for start in world.starts]
    return World(replace(c, **parts), world.net, world.how | {"epochs": 2}, starts)


def numbers(table: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Of each distance matrix some numbers that depend on every pair."""
    return {name: [float(d.double().sum()), float((d.double() @ d.double()[0]).sum())] for name, d in table.items()}


def probe() -> running.Probe:
    """Ten clients: gains with each plant, and with another scale all distances, all contenders, and the attack."""
    told = {"clients": 10, "trainers": 7, "rows": 12, "validation": 30, "rounds": 2, "repeats": 2, "snapshots": [1, 4]}
    out: running.Probe = {"random clusters": same_sizes(torch.arange(10) // 4, 3).tolist()}
    pairs = transfer.all_pairs(10)
    for plant in reversed(tabular.PLANTS):  # "scale" is the last
        world = small_world(told, plant, 3)
        found = gains(told, world, 3, pairs)
        out[f"gains, {plant}"] = [*found.gain.sum(1).tolist(), *found.gain.square().sum(1).tolist()]
    shots, train = looks(told, world, 3), (pairs < told["trainers"]).all(1)
    learned = learned_distances(told, shots, pairs[train], found.gain.mean(0)[train], 3, epochs=15)
    out |= numbers(plain_distances(told, world, shots) | learned)
    out["DBSCAN"] = [row["clusters"] for row in dbscan_at(learned["Siamese GCN, book"]).values()]
    for name, algorithm in contenders(told, world, 3).items():
        if isinstance(algorithm, FedSGCNN):
            few_steps = functools.partial(model_graph.train_siamese, recipe=name.split()[-1], epochs=15)
            algorithm = replace(algorithm, learn=few_steps)
        end = federate(told, world, algorithm, 3, eval_data=world.clients.test, eval_every=2, device="cpu")
        out[name] = running.numbers_of(algorithm, end)
        if isinstance(algorithm, FedSGCNN):
            out[name] += [float(end.state.distance.sum()), float(end.state.gain.sum())]
            out[name] += [v for row in costs(end).values() for v in row.values()]
    for sigma in (0.0, 1.0):
        out[f"noise {sigma:g}"] = list(leak(told, world, 3, sigma, steps=20, device="cpu").values())
    return out


# ---- preset "paper": Tables 2, 3 and 5 ----

COLUMNS = {  # of Table 5: table, clustered features
    "Boston": ("boston", False),
    "Boston(c)": ("boston", True),
    "Wine": ("wine_quality", False),
    "Wine(c)": ("wine_quality", True),
    "Obesity": ("obesity", False),
    "Obesity(c)": ("obesity", True),
}


@dataclass(frozen=True)
class Task:
    """Clients as in the paper's Table 4."""

    setting: tabular.Setting
    clients: tabular.TabularClients
    net: models.MLP
    loss: Callable[..., Tensor]
    how: dict[str, Any]

    @property
    def score(self) -> Literal["r2", "accuracy"]:
        """What Table 5 prints."""
        return "r2" if self.clients.train.y.is_floating_point() else "accuracy"


def task_of(
    setting: tabular.Setting, table: tabular.Table, clustered: bool, seed: int, most: int, overlap: bool = False
) -> Task:
    """A setting of the paper; a fifth of a client's rows is kept to score on, and at most `most` of the hold-out's."""
    own = setting.rows // 5
    clients = tabular.deal(
        table,
        setting.clients,
        setting.rows - own,
        setting.features,
        validation=own,
        groups=setting.groups if clustered else 1,
        overlap=overlap,
        seed=seed,
    )
    if (rows := clients.test.index.shape[1]) > most:
        some = torch.from_numpy(np.random.RandomState(seed).permutation(rows)[:most])
        index, y = clients.test.index[:, some], clients.test.y[:, some]
        clients = replace(
            clients, test=replace(clients.test, index=index, y=y, n=torch.full_like(clients.test.n, most))
        )
    net = models.MLP((int(clients.widths.max()), *setting.hidden, table.classes or 1))
    loss = class_error(net) if table.classes else squared_error(net)
    predict = net if table.classes else lambda params, x: net(params, x)[:, 0]
    sgd = functools.partial(torch.optim.SGD, momentum=setting.momentum, fused=True)
    adam = functools.partial(torch.optim.Adam, fused=True)
    how = {"optimizer": sgd if setting.optimizer == "sgd" else adam, "predict": predict}
    return Task(setting, clients, net, loss, how | {n: getattr(setting, n) for n in ("lr", "batch_size", "epochs")})


# ---- many federations at once ----


class Mmd(torch.autograd.Function):
    """`fedlib.client.mmd.mmd` of a stack of samples without padding, with its gradient written out."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, pool: Tensor, apart: Tensor) -> Tensor:
        """MMD of q (C, n, h) and pool (C, S, h), given the squared distances `apart` (C, S (S - 1) / 2) in the pool."""
        n, s, middle = q.shape[1], pool.shape[1], pool.mean(1, keepdim=True)
        z = torch.cat([q, pool], 1) - middle
        q, length = z[:, :n], z.square().sum(2)
        d2 = (length[:, :n, None] + length[:, None] - 2 * (q @ z.mT)).clamp_min_(0)  # (C, n, n + S)
        first, second = torch.triu_indices(n, n, 1)
        pairs = torch.cat([d2[:, first, second], d2[:, :, n:].flatten(1), apart], 1).numpy()
        place = (pairs.shape[1] - 1) // 2  # the lower median; NumPy's partition is ten times as quick as torch's
        bandwidth = torch.from_numpy(np.partition(pairs, place)[:, place].copy()).clamp_min(1e-6)
        k, inner = (d2 / (-4 * bandwidth[:, None, None])).exp_(), (apart / (-4 * bandwidth[:, None])).exp_()
        total, slope, own = k.clone(), k.clone(), inner.sum(1)
        for power in (2, 4, 8, 16):  # the kernel of half the bandwidth is the square of this one
            total.add_(k.square_())
            slope.add_(k, alpha=power)
            own.add_(inner.square_().sum(1))
        within, across = total[:, :, :n].sum((1, 2)), total[:, :, n:].sum((1, 2))
        mmd2 = within / (5 * n**2) + 1 / s + 2 * own / (5 * s**2) - 2 * across / (5 * n * s)
        value = (mmd2.clamp_min(0) + 1e-12).sqrt()
        slope[:, :, :n] *= 2 / n**2
        slope[:, :, n:] *= -2 / (n * s)
        slope *= ((mmd2 > 0) / (-20 * bandwidth * value))[:, None, None]
        ctx.save_for_backward(slope.sum(2, keepdim=True) * q - slope @ z)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        """Of q alone."""
        return upstream[:, None, None] * ctx.saved_tensors[0], None, None


@dataclass(frozen=True)
class SideBySide(LGFedAvg):
    """Several federations of the same clients in one stack; each draws as it would alone.

    Client k of federation a is row a K + k, of K `clients`. A round's share is drawn from each group of `joins`, and
    the MMD of row i counts with ``weight[i]`` times `mmd`.
    """

    clients: int = 1
    joins: Tensor | None = None
    weight: Tensor | None = None

    def cohort(self, state: Any, ids: Tensor, n: int, key: Key) -> Tensor:
        """That of LG-FedAvg, of other groups."""
        return super().cohort(replace(state, assignment=self.joins), ids, n, key)

    def centroids(self, state: Any) -> Tensor:
        """Those of LG-FedAvg, where row a K + k draws as row k does."""
        q = state.embeddings
        k, j = state.real.nonzero(as_tuple=True)
        bits = Key(state.seed, state.round).bits(torch.arange(len(q)) % self.clients, "pool", q.shape[1])
        order, first, size = shuffle_within(state.assignment[k], bits[k, j], len(state.centroid))
        turn = torch.arange(self.pool) % size.clamp(min=1)[:, None]
        drawn = order[(first[:, None] + turn).clamp(max=len(order) - 1)]
        return torch.where(size[:, None, None] > 0, q[k[drawn], j[drawn]], 0)

    def comparison(self, state: Any, clients: Tensor) -> tuple[Tensor, ...]:
        """The centroid, the squared distances inside it, and the weight."""
        pool = state.centroid[state.assignment[clients]]
        z = pool - pool.mean(1, keepdim=True)
        length = z.square().sum(2)
        first, second = torch.triu_indices(self.pool, self.pool, 1)
        apart = (length[:, :, None] + length[:, None] - 2 * (z @ z.mT)).flatten(1)
        return pool, apart[:, first * self.pool + second].clamp_min(0), self.weight[clients].to(pool)

    def local_training(
        self, start: Params, data: ClientData, key: Key, extras: Any = (), *_: Any, **__: Any
    ) -> Trained:
        """The same without `torch.vmap`: dense layers, batches of all rows, and no client with fewer than another."""
        end = {name: p.clone().requires_grad_() for name, p in start.items()}
        x, y, _ = data.all_rows(end["dense1.weight"].dtype)
        rule, losses = self.optimizer(list(end.values()), lr=self.lr), []
        if extras:
            pulled, weight = extras[2].nonzero()[:, 0], self.mmd * extras[2]
            pool, apart = (part[pulled] for part in extras[:2])
        for _ in range(self.epochs):
            h = [x]
            for layer in range(1, len(end) // 2 + 1):
                h.append(torch.baddbmm(end[f"dense{layer}.bias"][:, None], h[-1], end[f"dense{layer}.weight"].mT))
                h[layer] = h[layer] if 2 * layer == len(end) else h[layer].relu()
            if y.is_floating_point():
                loss = (h[-1][..., 0] - y).square().mean(1)
            else:
                loss = torch.nn.functional.cross_entropy(h[-1].mT, y, reduction="none").mean(1)
            if extras:
                loss = loss.index_add(0, pulled, weight[pulled] * Mmd.apply(h[1][pulled], pool, apart))
            rule.zero_grad()
            loss.sum().backward()
            rule.step()
            losses.append(loss.detach())
        steps = torch.full((len(x),), self.epochs)
        return Trained({name: p.detach() for name, p in end.items()}, torch.stack(losses).mean(0), steps)


@dataclass(frozen=True)
class Curve:
    """Scores of K clients on some rows after each of T rounds.

    `error` (T, K) over `spread` (K,) is what is missing to a score of 1: squared errors over the variance of the
    targets, or wrong answers over 1. `centre` (K,) is the mean of the targets, or 0.
    """

    error: np.ndarray
    spread: np.ndarray
    centre: np.ndarray

    @property
    def single(self) -> np.ndarray:
        """Each client's score, of shape (T, K); NaN where all targets are equal."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.spread > 0, 1 - self.error / self.spread, np.nan)

    def of(self, clients: Any = slice(None)) -> np.ndarray:
        """The score of some clients' rows together, of shape (T,), as `fedlib.evaluation.pooled` has it."""
        centre = self.centre[clients]
        spread = self.spread[clients] + (centre - centre.mean()) ** 2
        return 1 - self.error[:, clients].mean(1) / spread.mean()


PLAIN = ("Standalone", "LG-FedAvg")  # arms without MMD


def side_by_side(
    task: Task,
    arms: Mapping[str, Tensor],
    start: Params,
    rounds: int,
    seed: int,
    train: ClientData | None = None,
    sets: Mapping[str, ClientData] | None = None,
    times: int = 50,
) -> dict[str, dict[str, Curve]]:
    """Curves of several federations, on each of some sets of rows, scored at most `times` times.

    The arms "Standalone" and "LG-FedAvg" have no MMD. Of "Standalone" a share of all clients takes part in a round; of
    the others, as in LG-FedAvg, of each cluster. The hold-out is scored in every round too for "LG-FedAvg": "looks".
    """
    train = (task.clients.train if train is None else train).sorted()
    sets = {"own": task.clients.validation, "hold-out": task.clients.test} if sets is None else sets
    k, rows = len(train), torch.arange(len(train)).repeat(len(arms))
    first = np.cumsum([0, *(int(a.max()) + 1 for a in arms.values())])
    assignment = torch.cat([a + int(f) for a, f in zip(arms.values(), first, strict=False)])
    alone = torch.tensor([name == "Standalone" for name in arms]).repeat_interleave(k)
    where = torch.as_tensor(first[:-1]).repeat_interleave(k)
    side = {"joins": torch.where(alone, where, assignment), "clients": k}
    side["weight"] = torch.tensor([name not in PLAIN for name in arms]).repeat_interleave(k)
    algorithm = SideBySide(task.loss, mmd=0.5, assignment=assignment, **side, **task.how)
    stack, checks = train[rows], {name: some.sorted()[rows] for name, some in sets.items()}
    state = algorithm.prepare(algorithm.init(start, stack, Key(seed)), stack, Key(seed))
    cohort, everybody = max(1, round(task.setting.share * k)) * len(arms), torch.arange(len(stack))
    plain = everybody[k * list(arms).index("LG-FedAvg") :][:k] if "LG-FedAvg" in arms else None
    found: dict[str, list[pd.DataFrame]] = {name: [] for name in checks}
    looks: list[pd.DataFrame] = []
    for t in range(1, rounds + 1):
        state, _ = one_round(algorithm, state, stack, cohort, Key(seed, t), Costs())
        if t % max(1, rounds // times) == 0:
            for name, some in checks.items():
                found[name].append(evaluation.score(algorithm, state, some, everybody))
        if plain is not None:
            looks.append(evaluation.score(algorithm, state, checks["hold-out"][plain], plain))

    def curve(tables: Sequence[pd.DataFrame]) -> Curve:
        if task.score == "accuracy":
            return Curve(1 - np.stack([t["accuracy"] for t in tables]), np.ones(k), np.zeros(k))
        spread, centre = (tables[0][c].to_numpy() for c in ("target_variance", "target_mean"))
        return Curve(np.stack([t["mse"] for t in tables]), spread, centre)

    part = {arm: slice(i * k, (i + 1) * k) for i, arm in enumerate(arms)}
    out = {arm: {name: curve([t[p] for t in tables]) for name, tables in found.items()} for arm, p in part.items()}
    if plain is not None:
        out["LG-FedAvg"]["looks"] = curve(looks)
    return out


def readings(curves: Mapping[str, Curve], clusters: Tensor) -> Scores:
    """ "Maximum test" scores in five readings, and three that are no maximum of what they report.

    Each client's best round, each cluster's, or that of all together; on the few own rows or on the common hold-out.
    """
    own, test = curves["own"], curves["hold-out"]
    members = [(clusters == c).numpy() for c in clusters.unique()]

    def best(scores: np.ndarray) -> float:
        top = np.where(np.isnan(scores), -np.inf, scores).max(0)
        return float(top[np.isfinite(top)].mean())

    def of_clusters(curve: Curve) -> float:
        return float(sum(m.sum() * np.max(curve.of(m)) for m in members) / len(clusters))

    return {
        "paper": best(own.single),  # each client's best round on its own rows
        "each client, hold-out": best(test.single),
        "each cluster, own rows": of_clusters(own),
        "each cluster, hold-out": of_clusters(test),
        "all, hold-out": float(test.of().max()),
        "sound": float(test.of()[own.of().argmax()]),  # one round, chosen on the own rows
        "last round": float(test.of()[-1]),
        "last round, own rows": float(own.of()[-1]),
    }


def random_groups(curves: Mapping[str, Curve], numbers: Sequence[int], seed: int, draws: int = 20) -> Table:
    """The best round of each of m random groups, of one and the same run: what is gained by reading alone."""
    k = curves["hold-out"].error.shape[1]
    out = {}
    for m in (m for m in numbers if m <= k):
        parts = [same_sizes(torch.arange(k) % m, 1000 * seed + d).numpy() for d in range(draws)]

        def best(curve: Curve, m: int = m, parts: Sequence[np.ndarray] = parts) -> float:
            tops = [[curve.of(part == g).max() * (part == g).sum() / k for g in range(m)] for part in parts]
            return float(np.sum(tops, 1).mean())

        scores = {"each cluster, hold-out": best(curves["hold-out"]), "of every round": best(curves["looks"])}
        out[f"LG-FedAvg, {m} random groups"] = scores
    return out


# ---- pairs, predictors and clusters ----


def pair_run(
    task: Task, start: Params, train: ClientData, rounds: int, seed: int
) -> Callable[[ClientData, transfer.Score], Tensor]:
    """All pairs federate; what is returned gives `fedlib.server.transfer.positive_transfer` on some rows by a score."""
    train, pairs = train.sorted(), transfer.all_pairs(len(train))
    who = torch.cat([pairs.flatten(), torch.arange(len(train))])  # LG-FedAvg of one client is training alone
    group = torch.cat([torch.arange(len(pairs)).repeat_interleave(2), len(pairs) + torch.arange(len(train))])
    algorithm, stack = SideBySide(task.loss, assignment=group, joins=group, **task.how), train[who]
    state = algorithm.init(start, stack, Key(seed))
    for t in range(1, rounds + 1):
        state, _ = one_round(algorithm, state, stack, len(stack), Key(seed, t), Costs())

    def gain(check: ClientData, score: transfer.Score) -> Tensor:
        rows = check.sorted()
        rows = rows[torch.searchsorted(rows.id, stack.id)]
        one = replace(algorithm, predict=None) if score == "loss" else algorithm
        value = torch.tensor(evaluation.score(one, state, rows, torch.arange(len(stack)))[score].to_numpy())
        value = -value if score == "loss" else value
        together, alone = value[: 2 * len(pairs)].view(-1, 2), value[2 * len(pairs) :]
        return (together - alone[pairs]).mean(1)

    return gain


def common_noise(clusters: Tensor) -> Tensor:
    """Clients that are alone become one cluster."""
    single = (torch.bincount(clusters) == 1)[clusters]
    return torch.where(single, clusters[single].min() if single.any() else 0, clusters).unique(return_inverse=True)[1]


def distances(task: Task, start: Params, settings: Settings, seed: int) -> tuple[dict[str, Tensor], Table]:
    """Steps 1 to 5 of FedSGCNN as printed, by several gains; and what the gains are."""
    key, rule = Key(seed), FedSGCNN(task.loss, **task.how)
    train, check = transfer.hold_back(task.clients.train.sorted(), rule.validation, key)
    chosen = key.choose(train.id, min(rule.trainers, len(train)), "trainers")
    graphs = rule.graphs(start, train, key, rule.snapshots[0])
    rounds, gain, told, found = max(1, rule.pair_rounds // settings["shorter"]), {}, {}, {}
    starts = {"same start": start, "other start": task.net.init(1000 + seed)}
    for name, begin in starts.items():
        measured = pair_run(task, begin, train[chosen], rounds, seed)
        gain |= {f"{name}, loss": measured(check, "loss"), f"{name}, score": measured(check, task.score)}
    for name in ("same start, loss", "same start, score", "other start, loss"):
        real = gain[name].isfinite()
        pairs = transfer.all_pairs(len(chosen))[real]
        known = gain[name][real]
        learned = model_graph.train_siamese([graphs[chosen]], pairs, known, "paper", seed, settings["epochs"])
        found[name] = learned.distance([graphs])
        i, j = chosen[pairs].T
        right = (found[name][i, j] > 0.5) == (known <= 0)
        far = found[name][torch.triu_indices(len(train), len(train), 1).unbind()]
        told[f"pairs, {name}"] = {
            "share that loses": float((known <= 0).double().mean()),
            "share that ties": float((known == 0).double().mean()),
            "accuracy in training": float(right.double().mean()),
            "median size": float(known.abs().median()),
            "share near 1/2": float(((far - 0.5).abs() < 0.1).double().mean()),
            "share below 1/2": float((far < 0.5).double().mean()),
        }
    for kind in ("loss", "score"):
        both = torch.stack([gain[f"{name}, {kind}"] for name in starts])
        told[f"pairs, two starts, {kind}"] = {"agreement": sign_agreement(both)}
    return found, told


def sizes_of(clusters: Tensor) -> Scores:
    """How many clusters, clients in the largest, and clients alone."""
    sizes = torch.bincount(clusters)
    return {"clusters": len(sizes), "largest": int(sizes.max()), "single": int((sizes == 1).sum())}


def table_5(table: str, clustered: bool, settings: Settings, seed: int) -> Table:
    """One column of Table 5 for one seed: all readings of all arms, and the clusters at each eps."""
    task = task_of(tabular.SETTINGS[table], tabular.table(table), clustered, seed, settings["hold-out rows"])
    start, k = task.net.init(seed), len(task.clients.train)
    rounds = max(1, task.setting.rounds // settings["shorter"])
    apart, out = distances(task, start, settings, seed)
    for name, distance in apart.items():
        for eps, least in itertools.product(settings["eps"], (2, 5)):
            out[f"clusters, {name}, eps {eps:g}, {least} samples"] = sizes_of(dbscan(distance, eps, least))
    base = apart["same start, loss"]
    at = {eps: dbscan(base, eps) for eps in settings["eps"]}
    found = {
        "FedSGCNN": at[0.5],
        "FedSGCNN, gain by score": dbscan(apart["same start, score"], 0.5),
        "FedSGCNN, pairs from another start": dbscan(apart["other start, loss"], 0.5),
        "FedSGCNN, 5 samples": dbscan(base, 0.5, 5),
        "FedSGCNN, noise together": common_noise(at[0.5]),
        "FedSGCNN, eps by validation": at[eps_by_validation(task, at, start, settings, seed)],
        "+ random clusters": same_sizes(at[0.5], seed),
        "+ MMD": torch.zeros(k, dtype=torch.int64),
    }
    if clustered:
        found["+ feature groups"] = torch.as_tensor(task.clients.group)
    plain = {"Standalone": torch.arange(k), "LG-FedAvg": torch.zeros(k, dtype=torch.int64)}
    curves = side_by_side(task, plain | different(found.values()), start, rounds, seed)
    for name, clusters in found.items():
        out[name] = readings(curves[str(clusters.tolist())], clusters) | sizes_of(clusters)
    out |= {name: readings(curves[name], clusters) for name, clusters in plain.items()}
    out |= random_groups(curves["LG-FedAvg"], settings["groups"], seed)
    if task.score == "accuracy":
        out["majority class"] = majority(task.clients)
    return out


def eps_by_validation(task: Task, at: Mapping[float, Tensor], start: Params, settings: Settings, seed: int) -> float:
    """The eps whose clusters do best on rows held back, after as many rounds as a pair has; the first of equals."""
    rule = FedSGCNN(task.loss, **task.how)
    train, check = transfer.hold_back(task.clients.train.sorted(), rule.validation, Key(seed))
    rounds = max(1, rule.pair_rounds // settings["shorter"])
    curves = side_by_side(task, different(at.values()), start, rounds, seed, train, {"check": check}, times=1)
    return max(at, key=lambda eps: curves[str(at[eps].tolist())]["check"].of()[-1])


def different(clusterings: Iterable[Tensor]) -> dict[str, Tensor]:
    """Each clustering once, under its numbers."""
    return {str(clusters.tolist()): clusters for clusters in clusterings}


def majority(clients: tabular.TabularClients) -> Scores:
    """Accuracy of who always says the most frequent class of the training rows."""
    _, y, real = clients.train.all_rows(torch.float32)
    most = torch.bincount(y[real > 0]).argmax()

    def accuracy(data: ClientData) -> float:
        _, y, real = data.all_rows(torch.float32)
        return float((y == most)[real > 0].double().mean())

    return {"paper": accuracy(clients.validation), "sound": accuracy(clients.test)}


# ---- Tables 2 and 3 ----

TRUTHS = {"Tables 2 and 3, own 4 rows": "validation", "Tables 2 and 3, common hold-out": "test"}


def tables_2_and_3(settings: Settings, seed: int, clients: int = 25) -> dict[str, Table]:
    """Accuracy about the sign of the gain, 25 clients of Boston, nothing planted, a fifth for the test in turn."""
    setting = replace(tabular.SETTINGS["boston"], clients=clients)
    task = task_of(setting, tabular.table("boston"), False, seed, settings["hold-out rows"], overlap=True)
    starts, rounds = [task.net.init(1000 * seed + r) for r in range(2)], max(1, 100 // settings["shorter"])
    runs = [pair_run(task, start, task.clients.train, rounds, seed) for start in starts]
    rule = FedSGCNN(task.loss, **task.how)
    graphs = [rule.graphs(starts[0], task.clients.train.sorted(), Key(seed), rule.snapshots[0])]
    end = rule.lg_fedavg().local_training(broadcast(starts[0], clients), task.clients.train.sorted(), Key(seed)).params
    stack = split_layers(end, ("dense1",))[0]
    fixed = {"L2 distance": l2_distance(to_matrix(stack)), "cosine": 1 - cosine_similarity(stack)}
    tables = {}
    for part, truth in TRUTHS.items():
        gain = torch.stack([run(getattr(task.clients, truth), "loss") for run in runs])
        tables[part] = plain(judged, graphs, fixed, gain, settings, seed)
    return tables


def judged(
    graphs: Sequence[model_graph.ModelGraphs], fixed: Mapping[str, Tensor], gain: Tensor, settings: Settings, seed: int
) -> Table:
    """Scores on a fifth of the clients in turn. Of the gain (2, P) the first row has the start of the networks."""
    clients = len(graphs[0])
    pairs, each, numbers = transfer.all_pairs(clients), clients // 5, settings["numbers"]
    negative, order = gain <= 0, np.random.RandomState(seed).permutation(clients)
    folds: dict[str, list[Scores]] = {}
    for fold in range(settings["folds"]):
        test = torch.from_numpy(order[each * fold : each * (fold + 1)])
        rest = torch.from_numpy(np.roll(order, -each * (fold + 1))[: clients - each])
        at, all_known = between(pairs, test), between(pairs, rest)
        tried = {}
        for n, start in [*((n, 0) for n in numbers), (max(numbers), 1)]:
            some = between(pairs, rest[:n])
            name = f"SGCNN, {n} clients" + ", pairs from another start" * start
            learned = model_graph.train_siamese(
                graphs, pairs[some], gain[start, some], "paper", seed, settings["epochs"]
            )
            tried[name] = learned.distance(graphs), 0.5, negative[start]
        i, j = pairs[all_known].T
        for name, distance in fixed.items():
            tried[name] = distance, fit_threshold(distance[i, j], negative[0, all_known]), negative[0]
        i, j = pairs[at].T
        for name, (distance, cut, truth) in tried.items():
            folds.setdefault(name, []).append(pair_scores(truth[at], distance[i, j], cut))
        always = majority_pairs(negative[0, all_known], negative[0, at])
        folds.setdefault("majority class", []).append({"accuracy": always})
    out = {}
    for name, scores in folds.items():
        out[name] = {what: float(np.nanmean([s[what] for s in scores])) for what in scores[0]}
        out[name]["deviation over folds"] = float(np.std([s["accuracy"] for s in scores], ddof=1))
    return out | {"two runs": {"accuracy": sign_agreement(gain)}}


def nudged(params: Params, seed: int) -> Params:
    """Each number moved by its last place or so, as another processor's rounding would."""
    random = np.random.RandomState(seed)

    def moved(p: Tensor) -> Tensor:
        return p * (1 + 2 * torch.finfo(p.dtype).eps * torch.from_numpy(random.uniform(-1, 1, p.shape)).to(p))

    return {name: moved(p) for name, p in params.items()}


def rounding(task: Task, start: Params, settings: Settings, seed: int) -> Table:
    """What becomes of the printed recipe's distances and clusters when numbers are rounded otherwise."""
    key, rule = Key(seed), FedSGCNN(task.loss, **task.how)
    train, check = transfer.hold_back(task.clients.train.sorted(), rule.validation, key)
    chosen = key.choose(train.id, min(rule.trainers, len(train)), "trainers")
    pairs, rounds = transfer.all_pairs(len(chosen)), max(1, rule.pair_rounds // settings["shorter"])

    def predicted(start: Params, gain: Tensor | None = None) -> tuple[Tensor, Tensor]:
        graphs = rule.graphs(start, train, key, rule.snapshots[0])
        gain = pair_run(task, start, train[chosen], rounds, seed)(check, "loss") if gain is None else gain
        learned = model_graph.train_siamese([graphs[chosen]], pairs, gain, "paper", seed, settings["epochs"])
        return gain, learned.distance([graphs])

    gain, first = predicted(start)
    upper = torch.triu_indices(len(train), len(train), 1).unbind()
    out: Table = {"as it is": {"mean distance": float(first[upper].mean()), **sizes_of(dbscan(first, 0.5))}}
    for name, known in (("all rounded otherwise", None), ("networks rounded otherwise", gain)):
        other, far = predicted(nudged(start, seed), known)
        apart = (far - first)[upper].abs()
        out[name] = {
            "signs of gains that changed": float(((other > 0) != (gain > 0)).double().mean()),
            "largest change of a gain": float((other - gain).abs().max()),
            "mean distance": float(far[upper].mean()),
            "median change of a distance": float(apart.median()),
            "pairs on the other side of 1/2": float(((far < 0.5) != (first < 0.5))[upper].double().mean()),
            **sizes_of(dbscan(far, 0.5)),
        }
    return out


def measure_rounding(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Wine, seed by seed."""
    found = {}
    for seed in range(settings["seed"], settings["seed"] + settings["seeds"]):
        task = task_of(
            tabular.SETTINGS["wine_quality"], tabular.table("wine_quality"), False, seed, settings["hold-out rows"]
        )
        found[seed] = keep(f"seed {seed}", plain, rounding, task, task.net.init(seed), settings, seed)
    return by_seed(found)


def probe_rounding() -> running.Probe:
    """Six clients of a classification in two rounds."""
    small = replace(tabular.SETTINGS["obesity"], clients=6, rows=15, share=0.5, epochs=2, groups=2)
    task = in_double(task_of(small, tabular.table("wine"), False, 3, SMALL["hold-out rows"]))
    start = {name: p.double() for name, p in task.net.init(3).items()}
    found = rounding(task, start, SMALL | {"epochs": 15}, 3)
    return {name: list(row.values()) for name, row in found.items()}


def measure_paper(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """The columns of Table 5 and Tables 2 and 3, each with a number of seeds; a seed of one is kept at a time."""
    for table, _ in COLUMNS.values():
        tabular.table(table)  # what is missing is said before the work, not after
    tables: dict[str, dict[int, Table]] = {part: {} for part in (*COLUMNS, *TRUTHS)}
    quick, slow, first, number = (
        ("boston", "Tables 2 and 3"),
        ("wine_quality", "obesity"),
        settings["seed"],
        settings["seeds"],
    )
    for names in (quick, slow):
        for seed, name in itertools.product(range(first, first + max(number.values())), names):
            if seed >= first + number[name]:
                continue
            for part, column in COLUMNS.items():
                if column[0] == name:
                    tables[part][seed] = keep(f"{part}, seed {seed}", plain, table_5, *column, settings, seed)
            if name == "Tables 2 and 3":
                pairs = keep(f"{name}, seed {seed}", tables_2_and_3, settings, seed)
                for part in TRUTHS:
                    tables[part][seed] = pairs[part]
    return {part: by_seed(table) for part, table in tables.items()}


SMALL = {"shorter": 50, "eps": [0.3, 0.5], "groups": [1, 3], "hold-out rows": 40, "numbers": [3, 4], "folds": 2}


def probe_paper() -> running.Probe:
    """Six clients of a regression and of a classification, in two rounds: pairs, distances, and all readings."""
    settings, out = SMALL | {"epochs": 15}, {}
    for table, like in (("diabetes", "boston"), ("wine", "obesity")):
        small = replace(tabular.SETTINGS[like], clients=6, rows=15, share=0.5, epochs=2, groups=2)
        task = in_double(task_of(small, tabular.table(table), True, 3, settings["hold-out rows"]))
        start = {name: p.double() for name, p in task.net.init(3).items()}
        apart, about_pairs = distances(task, start, settings, 3)
        out[f"{table}, pairs"] = [v for row in about_pairs.values() for v in row.values()]
        out |= {f"{table}, {name}": v for name, v in numbers(apart).items()}
        arms = {"+ MMD": torch.zeros(6, dtype=torch.int64), "+ clusters": torch.as_tensor(task.clients.group)}
        arms |= {"LG-FedAvg": arms["+ MMD"], "Standalone": torch.arange(6)}
        curves = side_by_side(task, arms, start, 2, 3)
        for name, clusters in arms.items():
            out[f"{table}, {name}"] = list(readings(curves[name], clusters).values())
        groups = random_groups(curves["LG-FedAvg"], settings["groups"], 3, draws=2)
        out[f"{table}, random groups"] = [v for row in groups.values() for v in row.values()]
        at = {0.3: arms["+ MMD"], 0.5: arms["+ clusters"]}
        out[f"{table}, eps"] = [eps_by_validation(task, at, start, settings, 3)]
    return out


def in_double(task: Task) -> Task:
    """The same in double precision."""
    parts = {name: getattr(task.clients, name).to("cpu", torch.float64) for name in ("train", "validation", "test")}
    return replace(task, clients=replace(task.clients, **parts))


PRESETS = {
    "full": running.Experiment("fedsgcnn", FULL, measure, probe, ("boston", "diabetes")),
    "paper": running.Experiment(
        "fedsgcnn_paper", PAPER, measure_paper, probe_paper, ("boston", "wine_quality", "obesity")
    ),
    "rounding": running.Experiment(
        "fedsgcnn_rounding",
        {name: PAPER[name] for name in ("seed", "shorter", "hold-out rows", "epochs")} | {"seeds": 10},
        measure_rounding,
        probe_rounding,
        ("wine_quality",),
    ),
}

if __name__ == "__main__":
    running.main(PRESETS)
