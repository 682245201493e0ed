"""FedSGCNN's Tables 2, 3 and 5, controls, and what depends on rounding: presets of `book.experiments.fedsgcnn`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from book import results
from book.experiments import pair_predictors as predictors
from book.experiments import running, tabular
from book.experiments.pair_predictors import Scores, Table
from book.experiments.worlds import by_seed
from fedlib import ClientData, Key
from fedlib.algorithms import FedSGCNN
from fedlib.client.local_layers import split_layers
from fedlib.params import Params, broadcast, sub, to_matrix
from fedlib.server import model_graph, transfer
from fedlib.server.clusters import cosine_similarity
from fedlib.server.distance_clusters import dbscan, same_sizes

from .fedsgcnn_side_by_side import Task, in_double, pair_run, readings, side_by_side, task_of

Settings = Mapping[str, Any]

PAPER = {
    "seed": 100,  # the first
    "seeds": {"boston": 10, "wine_quality": 10, "obesity": 10, "Tables 2 and 3": 10},
    "shorter": 1,  # rounds are divided by it
    "hold-out rows": 600,  # at most, of the common hold-out
    "numbers": [5, 10, 15, 20],  # of training clients, in Table 3
    "folds": 5,
    "epochs": None,  # of the Siamese network: None are the paper's
}
TABLES = {"Boston": "boston", "Wine": "wine_quality", "Obesity": "obesity"}
COLUMNS = {  # of Table 5: table, clustered features
    name + "(c)" * clustered: (table, clustered) for name, table in TABLES.items() for clustered in (False, True)
}


# ---- pairs, predictors and clusters ----


def task_like(table: str, clustered: bool, settings: Settings, seed: int, rows: tabular.Table | None = None) -> Task:
    """The paper's clients of a table, or of some of its rows."""
    return task_of(tabular.SETTINGS[table], rows or tabular.table(table), clustered, seed, settings["hold-out rows"])


def parts_of(task: Task, settings: Settings, seed: int) -> tuple[FedSGCNN, ClientData, ClientData, Tensor, int]:
    """FedSGCNN's settings, rows to train and to check on, the clients whose pairs are measured, rounds of a pair."""
    key, rule = Key(seed), FedSGCNN(task.loss, **task.how)
    train, check = transfer.hold_back(task.clients.train.sorted(), rule.validation, key)
    chosen = key.choose(train.id, min(rule.trainers, len(train)), "trainers")
    return rule, train, check, chosen, max(1, rule.pair_rounds // settings["shorter"])


def distances(task: Task, start: Params, settings: Settings, seed: int) -> dict[str, Tensor]:
    """Steps 1 to 5 of FedSGCNN as printed, by either gain."""
    rule, train, check, chosen, rounds = parts_of(task, settings, seed)
    graphs = rule.graphs(start, train, Key(seed), rule.snapshots[0])
    measured, found = pair_run(task, start, train[chosen], rounds, seed), {}
    for kind, score in (("loss", "loss"), ("score", task.score)):
        gain = measured(check, score)
        real = gain.isfinite()
        pairs, epochs = transfer.all_pairs(len(chosen))[real], settings["epochs"] or 1000
        learned = model_graph.train_siamese([graphs[chosen]], pairs, gain[real], seed, epochs)
        found[kind] = learned.distance([graphs])
    return found


def sizes_of(clusters: Tensor) -> Scores:
    """How many clusters, clients in the largest, and clients alone."""
    sizes = torch.bincount(clusters)
    return {"clusters": len(sizes), "largest": int(sizes.max()), "single": int((sizes == 1).sum())}


def red_wine() -> tabular.Table:
    """The red wines of Wine Quality, which are its first rows."""
    both = tabular.table("wine_quality")
    return replace(both, name="red wine", x=both.x[:1599], y=both.y[:1599])


def table_5(table: str, clustered: bool, settings: Settings, seed: int, rows: tabular.Table | None = None) -> Table:
    """One column of Table 5 for one seed: all readings of all arms."""
    task = task_like(table, clustered, settings, seed, rows)
    start, k = task.net.init(seed), len(task.clients.train)
    rounds = max(1, task.setting.rounds // settings["shorter"])
    apart = distances(task, start, settings, seed)
    by_loss, one = dbscan(apart["loss"], 0.5), torch.zeros(k, dtype=torch.int64)
    found = {
        "FedSGCNN": by_loss,
        "FedSGCNN, gain by score": dbscan(apart["score"], 0.5),
        "+ random clusters": same_sizes(by_loss, seed),
        "+ MMD": one,
        "Standalone": torch.arange(k),
        "LG-FedAvg": one,
    }
    curves = side_by_side(task, found, start, rounds, seed)
    return {name: readings(curves[name], clusters) | sizes_of(clusters) for name, clusters in found.items()}


# ---- Tables 2 and 3 ----

TRUTH = "Tables 2 and 3, own 4 rows"  # by which rows a gain is measured


def tables_2_and_3(settings: Settings, seed: int, clients: int = 25) -> Table:
    """Accuracy about the sign of the gain, 25 clients of Boston, nothing planted, a fifth for the test in turn."""
    setting = replace(tabular.SETTINGS["boston"], clients=clients)
    task = task_of(setting, tabular.table("boston"), False, seed, settings["hold-out rows"], overlap=True)
    start, rounds = task.net.init(1000 * seed), max(1, 100 // settings["shorter"])
    gain = pair_run(task, start, task.clients.train, rounds, seed)(task.clients.validation, "loss")
    rule = FedSGCNN(task.loss, **task.how)
    graphs = [rule.graphs(start, task.clients.train.sorted(), Key(seed), rule.snapshots[0])]
    return judged(graphs, fixed_distances(task, start, seed), gain, settings, seed)


def fixed_distances(task: Task, start: Params, seed: int) -> dict[str, Tensor]:
    """Distances of the shared layers after a client's local epochs; of updates, L2 would be the same."""
    train, rule = task.clients.train.sorted(), FedSGCNN(task.loss, **task.how).lg_fedavg()
    begin = broadcast(start, len(train))
    end = rule.local_training(begin, train, Key(seed)).params
    first, last = (split_layers(params, ("dense1",))[0] for params in (begin, end))
    return {
        "L2 distance": predictors.l2_distance(to_matrix(last)),
        "cosine": 1 - cosine_similarity(last),
        "cosine of updates": 1 - cosine_similarity(sub(last, first)),
    }


def judged(
    graphs: Sequence[model_graph.ModelGraphs], fixed: Mapping[str, Tensor], gain: Tensor, settings: Settings, seed: int
) -> Table:
    """Scores on a fifth of the clients in turn."""
    clients = len(graphs[0])
    pairs, each, numbers = transfer.all_pairs(clients), clients // 5, settings["numbers"]
    negative, order = gain <= 0, np.random.RandomState(seed).permutation(clients)
    folds: dict[str, list[float]] = {}
    for fold in range(settings["folds"]):
        test = torch.from_numpy(order[each * fold : each * (fold + 1)])
        rest = torch.from_numpy(np.roll(order, -each * (fold + 1))[: clients - each])
        at, all_known = predictors.between(pairs, test), predictors.between(pairs, rest)
        tried = {}
        for n in numbers:
            some = predictors.between(pairs, rest[:n])
            learned = model_graph.train_siamese(graphs, pairs[some], gain[some], seed, settings["epochs"] or 1000)
            tried[f"SGCNN, {n} clients"] = learned.distance(graphs), 0.5
        i, j = pairs[all_known].T
        for name, distance in fixed.items():
            tried[name] = distance, predictors.fit_threshold(distance[i, j], negative[all_known])
        i, j = pairs[at].T
        for name, (distance, cut) in tried.items():
            folds.setdefault(name, []).append(predictors.pair_accuracy(negative[at], distance[i, j], cut))
        always = predictors.majority_pairs(negative[all_known], negative[at])
        folds.setdefault("majority class", []).append(always)
    return {name: {"accuracy": float(np.mean(scores))} for name, scores in folds.items()}


def nudged(params: Params, seed: int) -> Params:
    """Each number moved by its last place or so, as another processor's rounding would."""
    random = np.random.RandomState(seed)

    def moved(p: Tensor) -> Tensor:
        return p * (1 + 2 * torch.finfo(p.dtype).eps * torch.from_numpy(random.uniform(-1, 1, p.shape)).to(p))

    return {name: moved(p) for name, p in params.items()}


def rounding(task: Task, start: Params, settings: Settings, seed: int) -> Table:
    """What becomes of the printed recipe's distances and clusters when numbers are rounded otherwise."""
    rule, train, check, chosen, rounds = parts_of(task, settings, seed)
    pairs = transfer.all_pairs(len(chosen))

    def predicted(start: Params, gain: Tensor | None = None) -> tuple[Tensor, Tensor]:
        graphs = rule.graphs(start, train, Key(seed), rule.snapshots[0])
        gain = pair_run(task, start, train[chosen], rounds, seed)(check, "loss") if gain is None else gain
        learned = model_graph.train_siamese([graphs[chosen]], pairs, gain, seed, settings["epochs"] or 1000)
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


def rounding_of_wine(settings: Settings, seed: int) -> Table:
    """The same for the paper's clients of Wine."""
    task = task_like("wine_quality", False, settings, seed)
    return rounding(task, task.net.init(seed), settings, seed)


def measure_rounding(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Wine, seed by seed."""
    return by_seed(settings, keep, "Wine", predictors.plain, rounding_of_wine, settings)


def small_task(like: str, table: str, clustered: bool = True) -> tuple[Task, Params]:
    """Six clients of a table, in double precision, and their start."""
    small = replace(tabular.SETTINGS[like], clients=6, rows=15, share=0.5, epochs=2, groups=2)
    task = in_double(task_of(small, tabular.table(table), clustered, 3, SMALL["hold-out rows"]))
    return task, {name: p.double() for name, p in task.net.init(3).items()}


def probe_rounding() -> running.Probe:
    """Six clients of a classification in two rounds."""
    task, start = small_task("obesity", "wine", False)
    found = rounding(task, start, SMALL | {"epochs": 15}, 3)
    return {name: list(row.values()) for name, row in found.items()}


# ---- controls of Tables 2 and 5 ----


def sizes_by_score(column: str, seed: int, clients: int) -> list[int]:
    """Sizes of the stored clusters, of which all but one, or all but the largest and the last, are single clients."""
    row = results.load("fedsgcnn_paper")["figures"][column]["FedSGCNN, gain by score"]
    number, largest, single = (int(row[what][str(seed)]) for what in ("clusters", "largest", "single"))
    sizes = [largest, *[1] * (number - 2)]
    sizes += [clients - sum(sizes)] * (number > 1)
    assert (sum(sizes), sizes.count(1), min(sizes) > 0) == (clients, single, True)
    return sizes


def by_sizes(task: Task, start: Params, sizes: Sequence[int], settings: Settings, seed: int) -> Table:
    """Clients in random clusters of these sizes, and one federation that is read by such clusters, mean of 20 draws."""
    given = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    found = {"+ MMD": torch.zeros_like(given), "+ random clusters": same_sizes(given, seed)}
    curves = side_by_side(task, found, start, max(1, task.setting.rounds // settings["shorter"]), seed)
    out = {name: readings(curves[name], clusters) | sizes_of(clusters) for name, clusters in found.items()}
    drawn = [readings(curves["+ MMD"], same_sizes(given, 1000 * seed + d)) for d in range(20)]
    out["+ MMD, read by random clusters"] = {what: float(np.mean([r[what] for r in drawn])) for what in drawn[0]}
    return out


def controls(column: str, settings: Settings, seed: int) -> Table:
    """A column of Table 5 for one seed."""
    task = task_like(*COLUMNS[column], settings, seed)
    sizes = sizes_by_score(column, seed, len(task.clients.train))
    return by_sizes(task, task.net.init(seed), sizes, settings, seed)


def measure_controls(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Table 2, then columns of Table 5; a seed of a part is kept at a time."""
    figures: dict[str, Any] = {}
    for name, number in settings["seeds"].items():
        part, *one = (TRUTH, tables_2_and_3) if name == "Table 2" else (name, controls, name)
        figures[part] = by_seed(settings | {"seeds": number}, keep, part, predictors.plain, *one, settings)
    return figures


def probe_controls() -> running.Probe:
    """Six clients of a classification in two rounds: distances, and clusters by size."""
    task, start = small_task("obesity", "wine")
    found = {name: list(row.values()) for name, row in by_sizes(task, start, [3, 1, 2], SMALL, 3).items()}
    return predictors.numbers(fixed_distances(task, start, 3)) | found


def measure_paper(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """The columns of Table 5 and Tables 2 and 3, each with a number of seeds; a seed of one is kept at a time."""
    for table in TABLES.values():
        tabular.table(table)  # what is missing is said before the work, not after
    figures: dict[str, Any] = {}
    measured: dict[str, Any] = {part: (table_5, *column) for part, column in COLUMNS.items()}
    for part, (function, *column) in (measured | {TRUTH: (tables_2_and_3,)}).items():
        number = settings["seeds"][column[0] if column else "Tables 2 and 3"]
        one = predictors.plain, function, *column, settings
        figures[part] = by_seed(settings | {"seeds": number}, keep, part, *one)
    return figures


def measure_red(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Wine's columns of Table 5 with red wines only, and the most frequent class of the training rows."""
    columns = {"Red wine": False, "Red wine(c)": True}
    return {part: by_seed(settings, keep, part, predictors.plain, of_red, c, settings) for part, c in columns.items()}


def of_red(clustered: bool, settings: Settings, seed: int) -> Table:
    """Wine's column, and the share of test rows in the class that is most frequent in training."""
    column = "wine_quality", clustered, settings, seed, red_wine()
    clients = task_like(*column).clients
    most = clients.train.y.flatten().mode().values
    parts = {"each cluster, own rows": clients.validation.y, "all, hold-out": clients.test.y}
    return table_5(*column) | {"majority class": {r: float((y == most).double().mean()) for r, y in parts.items()}}


SMALL = {"shorter": 50, "hold-out rows": 40, "numbers": [3, 4], "folds": 2}


def probe_paper() -> running.Probe:
    """Six clients of a regression and of a classification, in two rounds: distances, and all readings."""
    settings, out = SMALL | {"epochs": 15}, {}
    for table, like in (("diabetes", "boston"), ("wine", "obesity")):
        task, start = small_task(like, table)
        apart = distances(task, start, settings, 3)
        out |= {f"{table}, {name}": v for name, v in predictors.numbers(apart).items()}
        arms = {"+ MMD": torch.zeros(6, dtype=torch.int64), "+ clusters": torch.as_tensor(task.clients.group)}
        arms |= {"LG-FedAvg": arms["+ MMD"], "Standalone": torch.arange(6)}
        curves = side_by_side(task, arms, start, 2, 3)
        for name, clusters in arms.items():
            out[f"{table}, {name}"] = list(readings(curves[name], clusters).values())
    return out


WINE = {name: PAPER[name] for name in ("seed", "shorter", "hold-out rows", "epochs")} | {"seeds": 10}
CONTROLS = {name: PAPER[name] for name in ("seed", "shorter", "hold-out rows", "folds")}
CONTROLS |= {"seeds": {"Table 2": 10, "Wine(c)": 10, "Obesity(c)": 10}, "numbers": []}
THREE, ONE = ("boston", "wine_quality", "obesity"), ("wine_quality",)  # tables
OF_TABLES = {
    "paper": running.Experiment("fedsgcnn_paper", PAPER, measure_paper, probe_paper, THREE),
    "red": running.Experiment("fedsgcnn_red", WINE, measure_red, probe_paper, ONE),
    "rounding": running.Experiment("fedsgcnn_rounding", WINE, measure_rounding, probe_rounding, ONE),
    "controls": running.Experiment("fedsgcnn_controls", CONTROLS, measure_controls, probe_controls, THREE),
}
