"""FedSGCNN on tables: who gains by federating in pairs, and whether it can be foreseen.

Preset ``full``. Clients hold five columns and twelve rows of a table; half of them see a target of another scale, so
that there is a truth to find. All pairs of training clients and all pairs of unseen clients federate, from several
starts, and their gains are measured. Predictors that learned from the pairs of the training clients are judged on pairs
of unseen ones. Five seeds.

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

from book.experiments import fedsgcnn_tables, running, tabular
from book.experiments import pair_predictors as predictors
from book.experiments.pair_predictors import Table
from book.experiments.worlds import by_seed, loss_and_predict
from fedlib import Key, models
from fedlib.algorithms import LGFedAvg
from fedlib.client.local_layers import split_layers
from fedlib.params import Params, broadcast, sub, to_matrix
from fedlib.server import model_graph, transfer

SHARED = ("dense2", "dense3")  # layers that all clients have in common
WORLDS = [(table, h) for table in ("boston", "diabetes") for h in (0.0, 1.0)]

Settings = Mapping[str, Any]


def label(table: str, h: float) -> str:
    """Name of a world in the figures."""
    return f"{table}, scale {h:g}"


FULL = {
    "trainers": 40,  # of the clients: all their pairs train the predictors; the others are unseen
    "validation": 120,  # rows that say what a pair gains
    "repeats": 4,  # starts from which a pair is measured
    "snapshots": [10, 100],  # local epochs after which networks are looked at
    "worlds": [label(*w) for w in WORLDS],
}
FULL |= {"clients": 60, "rows": 12, "rounds": 20, "seeds": 5, "seed": 100}  # no setting was chosen on these seeds


# ---- clients, and what pairs of them gain ----


@dataclass(frozen=True)
class World:
    """Clients with columns of their own, and how they train."""

    clients: tabular.TabularClients
    net: models.MLP
    how: dict[str, Any]  # arguments of every algorithm
    starts: list[Params]


def world_of(settings: Settings, table: str, h: float, seed: int) -> World:
    """Clients with five columns and a few rows each; half of them have a target of another scale."""
    planted = {"plant": "scale", "strength": h, "overlap": True, "validation": settings["validation"]}
    dealt = tabular.deal(tabular.table(table), settings["clients"], settings["rows"], 5, seed=seed, **planted)
    net = models.MLP((5, 32, 16, 1))
    return World(dealt, net, training(net), [net.init(1000 * seed + r) for r in range(settings["repeats"])])


def training(net: models.Model) -> dict[str, Any]:
    """Arguments of every algorithm."""
    sgd = functools.partial(torch.optim.SGD, momentum=0.5)
    return loss_and_predict(net, None) | {"lr": 0.05, "optimizer": sgd, "batch_size": None, "epochs": 5}


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


def length_distance(settings: Settings, shots: Mapping[int, Params]) -> Tensor:
    """How far the lengths of two clients' updates lie apart, after the most local epochs."""
    length = to_matrix(sub(shots[settings["snapshots"][-1]], shots[0])).norm(dim=1)
    return (length[:, None] - length).abs().double()


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


def judge(settings: Settings, table: str, h: float, seed: int) -> Table:
    """AUC of predictors, on pairs of two unseen clients of a world."""
    world, trainers = world_of(settings, table, h, seed), settings["trainers"]
    found = gains(settings, world, seed, judged_pairs(settings["clients"], trainers))
    pairs, gain = found.pairs, found.gain.mean(0)
    train, unseen = (pairs < trainers).all(1), (pairs >= trainers).all(1)
    shots = looks(settings, world, seed)
    distances = {f"lengths of updates, {settings['snapshots'][-1]} epochs": length_distance(settings, shots)}
    distances |= learned_distances(settings, shots, pairs[train], gain[train], seed)
    i, j = pairs[unseen].T
    negative = (gain[unseen] <= 0).numpy()
    auc = {name: predictors.auc(negative, d[i, j].numpy()) for name, d in distances.items()}
    return {f"{label(table, h)}: {name}": {"auc": value} for name, value in auc.items()}


# ---- preset "full" ----


def measure(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Predictors in all worlds; a world and a seed are kept at a time."""
    figures: dict[str, Any] = {}
    for world in WORLDS:
        figures |= by_seed(settings, keep, label(*world), predictors.plain, judge, settings, *world)
    return figures


def small_world(settings: Settings, seed: int) -> World:
    """A world in double precision, with two local epochs in a round."""
    world = world_of(settings, "diabetes", 1.0, seed)
    starts = [{name: p.double() for name, p in start.items()} for start in world.starts]
    return World(world.clients.in_double(), world.net, world.how | {"epochs": 2}, starts)


def probe() -> running.Probe:
    """Ten clients: gains and distances."""
    told = {"clients": 10, "trainers": 7, "rows": 12, "validation": 30, "rounds": 2, "repeats": 2, "snapshots": [1, 4]}
    world, pairs = small_world(told, 3), transfer.all_pairs(10)
    found = gains(told, world, 3, pairs)
    shots, train = looks(told, world, 3), (pairs < told["trainers"]).all(1)
    out = {"gains, scale": [*found.gain.sum(1).tolist(), *found.gain.square().sum(1).tolist()]}
    distances = learned_distances(told, shots, pairs[train], found.gain.mean(0)[train], 3, epochs=15)
    return out | predictors.numbers({"lengths of updates, 4 epochs": length_distance(told, shots)} | distances)


PRESETS = {
    "full": running.Experiment("fedsgcnn", FULL, measure, probe, ("boston", "diabetes")),
    **fedsgcnn_tables.OF_TABLES,
}
