"""FedSGCNN on tables: who gains by federating in pairs, can it be foreseen, and do clusters by it help.

Preset ``full``. Clients hold five columns and twelve rows of a table; half of them see another target, so that there is
a truth to find. All pairs of training clients and all pairs of unseen clients federate, from several starts, and their
gains are measured. Predictors that learned from the pairs of the training clients are judged on pairs of unseen ones.
Then all clients are clustered, by FedSGCNN and its rivals, and scored on rows that nobody holds. Last, an attacker
reads features from embeddings. Five seeds; 35 minutes on one core.

Preset ``paper``. The paper's Tables 2 and 3 (how often a predictor is right about the sign of the gain) and Table 5
(six settings, scored as in the paper, and soundly), three seeds. Two and a half hours on one core. Wine Quality and
Obesity Levels must be at hand (see `fedlib.datasets`).
"""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn import decomposition, linear_model, metrics, pipeline, preprocessing
from torch import Tensor

import fedlib
from book.experiments import running
from fedlib import ClientData, Key, evaluation, models
from fedlib.algorithm import Algorithm
from fedlib.algorithms import LGCFL, FedSGCNN, LGFedAvg, LocalOnly
from fedlib.client.local_layers import split_layers
from fedlib.evaluation import Result
from fedlib.losses import cross_entropy, mse
from fedlib.params import Params, broadcast, sub, to_matrix
from fedlib.partition import tabular
from fedlib.reports import statistics
from fedlib.server import model_graph, transfer
from fedlib.server.clusters import cosine_similarity
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
PAPER = {"seed": 0, "table seeds": [100, 101, 102], "shorter": 1}  # rounds are divided by `shorter`


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


def task_of(setting: tabular.Setting, table: tabular.Table, clustered: bool, seed: int) -> Task:
    """A setting of the paper; a fifth of a client's rows is kept to score on."""
    own = setting.rows // 5
    clients = tabular.deal(
        table,
        setting.clients,
        setting.rows - own,
        setting.features,
        validation=own,
        groups=setting.groups if clustered else 1,
        seed=seed,
    )
    net = models.MLP((int(clients.widths.max()), *setting.hidden, table.classes or 1))
    loss = class_error(net) if table.classes else squared_error(net)
    predict = net if table.classes else lambda params, x: net(params, x)[:, 0]
    sgd = functools.partial(torch.optim.SGD, momentum=setting.momentum)
    how = {"optimizer": sgd if setting.optimizer == "sgd" else torch.optim.Adam, "predict": predict}
    return Task(setting, clients, net, loss, how | {n: getattr(setting, n) for n in ("lr", "batch_size", "epochs")})


def two_metrics(task: Task, algorithm: Algorithm, start: Params, rounds: int, seed: int) -> tuple[Result, Scores]:
    """A run, scored as in the paper and soundly."""
    clients = task.clients
    what = "r2" if clients.train.y.is_floating_point() else "accuracy"
    rows, own = clients.validation.sorted(), []

    def note(t: int, state: Any, entry: dict[str, Any]) -> None:
        if t % max(1, rounds // 50) == 0:
            here = rows.to(next(iter(algorithm.client_params(state, torch.arange(1)).values())).device)
            own.append(evaluation.score(algorithm, state, here, torch.arange(len(rows)))[what].to_numpy())

    end = fedlib.fit(
        algorithm,
        start,
        clients.train,
        rounds,
        max(1, round(task.setting.share * task.setting.clients)),
        seed=seed,
        eval_data={"validation": clients.validation, "test": clients.test},
        eval_every=max(1, rounds // 20),
        callbacks=[note],
        progress=False,
    )
    history = end.history.dropna(subset=[f"test_{what}"])
    chosen = history.loc[history[f"validation_{what}"].idxmax(), f"test_{what}"]
    best = np.nanmax(np.where(np.isnan(own), -np.inf, own), 0)
    return end, {
        "paper": float(np.mean(best[np.isfinite(best)])),  # each client's best round, on its own few rows
        "sound": float(chosen),  # one round, chosen on these rows, scored on the common hold-out
        "last round": float(history[f"test_{what}"].iloc[-1]),
    }


def table_5(table: str, clustered: bool, seed: int, shorter: int) -> Table:
    """One column of Table 5 for one seed."""
    task = task_of(tabular.SETTINGS[table], tabular.table(table), clustered, seed)
    start, out = task.net.init(seed), {}
    rounds = max(1, task.setting.rounds // shorter)

    def go(name: str, algorithm: Algorithm) -> Result:
        end, out[name] = two_metrics(task, algorithm, start, rounds, seed)
        return end

    go("Standalone", LocalOnly(task.loss, **task.how))
    go("LG-FedAvg", LGFedAvg(task.loss, **task.how))
    go("+ MMD", LGFedAvg(task.loss, mmd=0.5, **task.how))
    each = max(1, 100 // shorter)
    end = go("FedSGCNN", FedSGCNN(task.loss, pair_rounds=each, **task.how))
    found = end.state.assignment.cpu()
    sizes = torch.bincount(found)
    out["FedSGCNN"] |= {"clusters": len(sizes), "largest": int(sizes.max()), "single": int((sizes == 1).sum())}
    go("+ random clusters", LGFedAvg(task.loss, mmd=0.5, assignment=same_sizes(found, seed), **task.how))
    if clustered:
        group = torch.as_tensor(task.clients.group)
        go("+ feature groups", LGFedAvg(task.loss, mmd=0.5, assignment=group, **task.how))
    if not task.clients.test.y.is_floating_point():
        out["majority class"] = majority(task.clients)
    return out


def majority(clients: tabular.TabularClients) -> Scores:
    """Accuracy of who always says the most frequent class of the training rows."""
    _, y, real = clients.train.all_rows(torch.float32)
    most = torch.bincount(y[real > 0]).argmax()

    def accuracy(data: ClientData) -> float:
        _, y, real = data.all_rows(torch.float32)
        return float((y == most)[real > 0].double().mean())

    return {"paper": accuracy(clients.validation), "sound": accuracy(clients.test)}


def tables_2_and_3(
    seed: int,
    truth: str,
    shorter: int,
    clients: int = 25,
    numbers: Sequence[int] = (5, 10, 15, 20),
    epochs: int | None = None,
) -> Table:
    """Accuracy about the sign of the gain, 25 clients of Boston, nothing planted, a fifth for the test in turn."""
    setting = tabular.SETTINGS["boston"]
    dealt = tabular.deal(tabular.table("boston"), clients, 16, setting.features, validation=4, overlap=True, seed=seed)
    net = models.MLP((setting.features, *setting.hidden, 1))
    sgd = functools.partial(torch.optim.SGD, momentum=setting.momentum)
    local = {"lr": setting.lr, "batch_size": setting.batch_size, "epochs": setting.epochs}
    algorithm = LGFedAvg(squared_error(net), optimizer=sgd, **local)
    starts = [net.init(1000 * seed + r) for r in range(2)]
    check = dealt.validation if truth == "own 4 rows" else dealt.test
    found = transfer.positive_transfer(
        algorithm, starts, dealt.train, check, max(1, 100 // shorter), score="loss", seed=seed
    )
    stack = algorithm.local_training(broadcast(starts[0], clients), dealt.train.sorted(), Key(seed)).params
    stack = split_layers(stack, ("dense1",))[0]
    graphs = [model_graph.model_graph(stack, ("dense2", "dense3", "dense4"))]
    gain = found.gain[0]  # of one start only, as a server would; the second one shows the noise
    negative, order = gain <= 0, np.random.RandomState(seed).permutation(clients)
    fixed = {"L2 distance": l2_distance(to_matrix(stack)), "cosine": 1 - cosine_similarity(stack)}
    folds: dict[str, list[Scores]] = {}
    each = clients // 5
    for fold in range(5):
        test = torch.from_numpy(order[each * fold : each * (fold + 1)])
        rest = torch.from_numpy(np.roll(order, -each * (fold + 1))[: clients - each])
        at = between(found.pairs, test)
        for n in numbers:
            some = between(found.pairs, rest[:n])
            learned = model_graph.train_siamese(graphs, found.pairs[some], gain[some], "paper", seed, epochs)
            tried = {f"SGCNN, {n} clients": (learned.distance(graphs), 0.5)}
            if n == max(numbers):
                i, j = found.pairs[some].T
                tried |= {m: (d, fit_threshold(d[i, j], negative[some])) for m, d in fixed.items()}
                always = majority_pairs(negative[some], negative[at])
                folds.setdefault("majority class", []).append({"accuracy": always})
            i, j = found.pairs[at].T
            for m, (distance, cut) in tried.items():
                folds.setdefault(m, []).append(pair_scores(negative[at], distance[i, j], cut))
    out = {}
    for m, scores in folds.items():
        out[m] = {what: float(np.nanmean([s[what] for s in scores])) for what in scores[0]}
        out[m]["deviation over folds"] = float(np.std([s["accuracy"] for s in scores], ddof=1))
    return out | {"two runs": {"accuracy": sign_agreement(found.gain)}}


def measure_paper(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Tables 2 and 3 by two ways to measure the gain, then the columns of Table 5; a seed of one is kept at a time."""
    for table, _ in COLUMNS.values():
        tabular.table(table)  # what is missing is said before the work, not after
    seeds, shorter, figures = settings["table seeds"], settings["shorter"], {}
    for truth in ("own 4 rows", "common hold-out"):
        part = f"Tables 2 and 3, {truth}"
        figures[part] = by_seed({s: keep(f"{part}, seed {s}", plain, tables_2_and_3, s, truth, shorter) for s in seeds})
    for part, column in COLUMNS.items():
        figures[part] = by_seed({s: keep(f"{part}, seed {s}", plain, table_5, *column, s, shorter) for s in seeds})
    return figures


def probe_paper() -> running.Probe:
    """Five clients of a regression and of a classification, with the optimisers of the paper."""
    out: running.Probe = {}
    for kind, table, like in (("regression", "diabetes", "boston"), ("classes", "wine", "obesity")):
        small = replace(tabular.SETTINGS[like], clients=6, rows=15, share=1.0, epochs=2, groups=2)
        task = task_of(small, tabular.table(table), True, 3)
        start = task.net.init(3)
        few_steps = functools.partial(model_graph.train_siamese, epochs=15)
        known = {"pair_rounds": 2, "trainers": 5, "snapshots": (3,), "learn": few_steps}
        group = torch.as_tensor(task.clients.group)
        for name, algorithm in {
            "Standalone": LocalOnly(task.loss, **task.how),
            "LG-FedAvg": LGFedAvg(task.loss, **task.how),
            "+ MMD": LGFedAvg(task.loss, mmd=0.5, **task.how),
            "FedSGCNN": FedSGCNN(task.loss, **known, **task.how),
            "+ clusters": LGFedAvg(task.loss, mmd=0.5, assignment=group, **task.how),
        }.items():
            algorithm = replace(algorithm, predict=algorithm.predict if kind == "regression" else None)
            at = {"seed": 3, "dtype": torch.float64, "device": "cpu", "eval_data": task.clients.test}
            end = fedlib.fit(algorithm, start, task.clients.train, 2, progress=False, **at)
            out[f"{name}, {kind}"] = running.numbers_of(algorithm, end)
            if isinstance(algorithm, FedSGCNN):
                out[f"{name}, {kind}"] += [float(end.state.distance.sum()), float(end.state.gain.sum())]
    return out


PRESETS = {
    "full": running.Experiment("08_fedsgcnn", FULL, measure, probe, ("boston", "diabetes")),
    "paper": running.Experiment(
        "08_fedsgcnn_paper", PAPER, measure_paper, probe_paper, ("boston", "wine_quality", "obesity")
    ),
}

if __name__ == "__main__":
    running.main(PRESETS)
