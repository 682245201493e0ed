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

Preset ``controls``. Random clusters of the sizes that the clusters by score have in the stored result of ``paper``, one
federation read by such clusters, and the cosine of updates in Table 2; ten seeds.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedlib
from book.experiments import fedsgcnn_tables, running, tabular
from book.experiments import pair_predictors as predictors
from book.experiments.cfl_variants import OneCut
from book.experiments.pair_predictors import Scores, Table
from book.experiments.worlds import enter, seeds_of, squared_error
from fedlib import ClientData, Key, evaluation, models, statistics
from fedlib.algorithm import Algorithm
from fedlib.algorithms import FedSGCNN, LGFedAvg, LocalOnly
from fedlib.client.local_layers import split_layers
from fedlib.evaluation import Result
from fedlib.params import Params, broadcast, sub, to_matrix
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
    "seeds": 5,
    "seed": 100,  # fresh: no setting was chosen on these seeds
    "worlds": [label(*w) for w in WORLDS],
}


# ---- clients, and what pairs of them gain ----


@dataclass(frozen=True)
class World:
    """Clients with columns of their own, and how they train."""

    clients: tabular.TabularClients
    net: models.MLP
    how: dict[str, Any]  # arguments of every algorithm
    starts: list[Params]


def world_of(settings: Settings, table: str, plant: str, h: float, seed: int) -> World:
    """Clients with five columns and a few rows each; half of them have another target."""
    planted = {"plant": plant, "strength": h, "overlap": True, "validation": settings["validation"]}
    dealt = tabular.deal(tabular.table(table), settings["clients"], settings["rows"], 5, seed=seed, **planted)
    net = models.MLP((5, 32, 16, 1))
    return World(dealt, net, training(net), [net.init(1000 * seed + r) for r in range(settings["repeats"])])


def training(net: models.Model) -> dict[str, Any]:
    """Arguments of every algorithm."""
    return {
        "loss": squared_error(net),
        "predict": lambda params, x: net(params, x)[:, 0],
        "lr": 0.05,
        "optimizer": functools.partial(torch.optim.SGD, momentum=0.5),
        "batch_size": None,
        "epochs": 5,
    }


def gains(settings: Settings, world: World, seed: int, pairs: Tensor) -> transfer.Transfer:
    """What pairs gain in R2, from each start."""
    c, rounds, rule = world.clients, settings["rounds"], LGFedAvg(**world.how)
    return transfer.positive_transfer(rule, world.starts, c.train, c.validation, rounds, pairs, "r2", seed)


def judged_pairs(clients: int, trainers: int) -> Tensor:
    """Pairs of two training clients, or of two unseen ones."""
    everybody = transfer.all_pairs(clients)
    parts = torch.arange(trainers), torch.arange(trainers, clients)
    return torch.cat([everybody[predictors.between(everybody, part)] for part in parts])


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
        found[f"L2, weights, {epochs} epochs"] = predictors.l2_distance(to_matrix(shots[epochs]))
        length = to_matrix(update).norm(dim=1)
        found[f"lengths of updates, {epochs} epochs"] = (length[:, None] - length).abs().double()
    found["feature overlap"] = predictors.feature_overlap(world.clients.columns)
    found["answers to a probe"] = predictors.answer_distance(answers, last, inputs)
    return found


def logistic_distance(
    settings: Settings, shots: Mapping[int, Params], pairs: Tensor, gain: Tensor, seed: int
) -> Tensor:
    """The distance of clients by a logistic regression that learns from the signs of gains."""
    update = to_matrix(sub(shots[settings["snapshots"][0]], shots[0]))
    return predictors.logistic_pairs(update, pairs, gain <= 0, seed)(update)


def learned_distances(
    settings: Settings,
    shots: Mapping[int, Params],
    pairs: Tensor,
    gain: Tensor,
    seed: int,
    layers: tuple[str, ...] = SHARED,
    epochs: int | None = None,
) -> dict[str, Tensor]:
    """Distances of clients by predictors that learn from the gains of pairs; `epochs` of the Siamese networks."""
    graphs = [model_graph.model_graph(shots[e], layers) for e in settings["snapshots"]]
    numbers = predictors.hand_made(shots[settings["snapshots"][-1]], layers)
    shuffled = gain[torch.from_numpy(np.random.RandomState(seed).permutation(len(gain)))]
    steps = {} if epochs is None else {"epochs": epochs}
    found = {"hand-made numbers, ridge": predictors.ridge_pairs(numbers, pairs, gain, seed)(numbers)}
    for name, some, target in (
        ("Siamese GCN, paper", graphs[:1], gain),
        ("Siamese GCN, book", graphs, gain),
        ("shuffled gains, book", graphs, shuffled),
    ):
        learn = predictors.RECIPES[name.split()[-1]]
        found[name] = learn(some, pairs, target, seed, **steps).distance(some)
    return found


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
            threshold = predictors.fit_threshold(far[train], negative[train])
        return predictors.pair_scores(negative[unseen], far[unseen], threshold)

    out = {name: scores(distance) for name, distance in plain_distances(settings, world, shots).items()}
    known = settings, shots, pairs[train], gain[train], seed
    learned = {"logistic, flat updates": logistic_distance(*known)} | learned_distances(*known)
    out |= {name: scores(distance, 0.5) for name, distance in learned.items()}
    group = torch.as_tensor(world.clients.planted)
    out["planted groups known"] = scores((group[:, None] != group).double(), 0.5)
    always = predictors.majority_pairs(negative[train], negative[unseen])
    out["majority class"] = {"accuracy": always, "balanced_accuracy": 0.5, "auc": 0.5}
    return out


# ---- clusters ----


def one_to_four(distance: Tensor) -> list[Tensor]:
    """Candidates for FedSGCNN to try: one to four clusters by average linkage."""
    return [linkage(distance, m) for m in (1, 2, 3, 4)]


BOOK = {"learn": predictors.train_on_gains, "cluster": one_to_four}


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


def measure(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Predictors in all worlds, then clusters, and embeddings; a world and a seed are kept at a time."""
    figures: dict[str, Any] = {}
    for seed in seeds_of(settings):
        for world in WORLDS:
            where = label(*world)
            scores = keep(f"{where}, seed {seed}", predictors.plain, judge, settings, *world, seed)
            enter(figures, seed, {f"{where}: {name}": row for name, row in scores.items()}, 4)
        for arena in ARENAS:
            part = f"contest, {label(*arena)}, seed {seed}"
            enter(figures, seed, keep(part, predictors.plain, contest, settings, *arena, seed), 4)
        arena = settings, "diabetes", "scale", 1.0, seed
        enter(figures, seed, keep(f"noise, seed {seed}", predictors.plain, leaks, *arena), 4)
    return figures


def small_world(settings: Settings, plant: str, seed: int) -> World:
    """A world in double precision, with two local epochs in a round."""
    world = world_of(settings, "diabetes", plant, 1.0, seed)
    c = world.clients
    parts = {name: getattr(c, name).to("cpu", torch.float64) for name in ("train", "validation", "test")}
    starts = [{name: p.double() for name, p in start.items()} for start in world.starts]
    return World(replace(c, **parts), world.net, world.how | {"epochs": 2}, starts)


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
    known = told, shots, pairs[train], found.gain.mean(0)[train], 3
    learned = {"logistic, flat updates": logistic_distance(*known)} | learned_distances(*known, epochs=15)
    out |= predictors.numbers(plain_distances(told, world, shots) | learned)
    out["DBSCAN"] = [row["clusters"] for row in dbscan_at(learned["Siamese GCN, book"]).values()]
    for name, algorithm in contenders(told, world, 3).items():
        if isinstance(algorithm, FedSGCNN):
            algorithm = replace(algorithm, learn=functools.partial(algorithm.learn, epochs=15))
        end = federate(told, world, algorithm, 3, eval_data=world.clients.test, eval_every=2, device="cpu")
        out[name] = running.numbers_of(algorithm, end)
        if isinstance(algorithm, FedSGCNN):
            out[name] += [float(end.state.distance.sum()), float(end.state.gain.sum())]
            out[name] += [v for row in costs(end).values() for v in row.values()]
    for sigma in (0.0, 1.0):
        out[f"noise {sigma:g}"] = list(leak(told, world, 3, sigma, steps=20, device="cpu").values())
    return out


PRESETS = {
    "full": running.Experiment("fedsgcnn", FULL, measure, probe, ("boston", "diabetes")),
    **fedsgcnn_tables.OF_TABLES,
}
