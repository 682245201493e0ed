"""FedAvg, FedProx and SCAFFOLD on clients that differ: planted label skew, and the handwriting of real people.

Each method is run with every setting of its grid, and validation examples choose one, in each of five seeds. A seed
deals the digits, splits each client's into 60 % training, 20 % validation and 20 % test, and draws the start.

Preset ``full`` has 5,000 digits and 50 clients, Dirichlet 0.1; ``writers`` FedAvg only, with 54 writers of MNIST, and
needs mnist10k, see `fedlib.datasets`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

import fedlib
from book.experiments import running
from book.experiments.worlds import EXACT, Rows, by_seed, enter, loss_of, rounded, seeds_of
from fedlib import Algorithm, ClientData, Result, datasets, evaluation, models, partition, plotting, statistics
from fedlib.algorithms import FedAvg, FedProx, LocalOnly, Scaffold
from fedlib.params import broadcast, mix, norm, sub

LOCAL = {"batch_size": 20, "epochs": 10}
METHODS: dict[str, type[Algorithm]] = {"FedAvg": FedAvg, "FedProx": FedProx, "SCAFFOLD": Scaffold}
GRID: dict[str, list[dict[str, float]]] = {  # what validation chooses from
    "FedAvg": [{"lr": lr} for lr in (0.1, 0.3, 0.6)],
    "FedProx": [{"lr": 0.1, "mu": 0.1}] + [{"lr": 0.3, "mu": mu} for mu in (0.01, 0.1, 1.0)],
    "SCAFFOLD": [{"lr": lr} for lr in (0.03, 0.1, 0.3)],
}
PROBED: dict[str, dict[str, float]] = {name: {"lr": 0.1} for name in (*METHODS, "alone")}
PROBED["FedProx"] = {"lr": 0.1, "mu": 0.1}

Settings = dict[str, Any]
Run = tuple[dict[str, float], Algorithm, Result]
Split = Sequence[ClientData]  # training, validation and test examples

model = models.MLP((784, 64, 10))
loss = loss_of(model)


def algorithm_of(name: str, given: Mapping[str, float]) -> Algorithm:
    """A method with its own settings; "alone" trains every client for itself."""
    return {**METHODS, "alone": LocalOnly}[name](loss, predict=model, **LOCAL, **given)


def row_name(name: str, given: Mapping[str, float]) -> str:
    """The name of a setting's row: "FedProx, lr 0.1, mu 0.1"."""
    return ", ".join([name, *(f"{k} {v}" for k, v in given.items())])


# ---- the data ----


def label_skew(settings: Settings, seed: int) -> Split:
    """Digits dealt by a Dirichlet distribution."""
    arrays = datasets.load(settings["data"])
    order = np.random.RandomState(settings["seed"]).permutation(len(arrays.x))[: settings["examples"]]
    x, y = arrays.x[order], arrays.y[order]
    dealt = partition.dirichlet(y, settings["clients"], alpha=0.1, seed=seed, min_rows=10)
    return [p.clients(x, y, classes=10) for p in dealt.split(seed=seed)]


def writers_of(settings: Settings, seed: int) -> tuple[Split, tuple[ClientData, ClientData]]:
    """Writers of digits; all their digits by writer, and dealt at random."""
    digits = datasets.load(settings["data"])
    dealt = partition.by_user(digits.writer, min_rows=30)
    known = [p.clients(digits.x, digits.y, classes=10) for p in dealt.split(seed=seed)]
    held = np.concatenate(dealt.rows)
    x, y = digits.x[held], digits.y[held]
    shuffled = partition.iid(y, len(dealt.rows), seed).clients(x, y, classes=10)
    return known, (dealt.clients(digits.x, digits.y, classes=10), shuffled)


# ---- what is measured ----


def label_distance(data: ClientData) -> float:
    """Total variation distance from everybody's labels, mean over clients."""
    counts = plotting.label_counts(data, classes=10)
    own = counts / counts.sum(1, keepdims=True)
    return float(np.abs(own - counts.sum(0) / counts.sum()).sum(1).mean() / 2)


def gradient_dissimilarity(data: ClientData, start: fedlib.Params) -> float:
    """B squared of FedProx (Definition 3) at the parameters `start`."""
    one_step = LocalOnly(loss, lr=1.0, batch_size=None)  # theta - gradient
    after = fedlib.fit(one_step, start, data, rounds=1, device="cpu", progress=False).state.local
    gradient = sub(broadcast(start, len(data)), after)
    w = data.n / data.n.sum()
    return float((w * norm(gradient) ** 2).sum() / norm(mix(w[None], gradient)) ** 2)


def scores_of_curve(history: pd.DataFrame) -> dict[str, float]:
    """The three readings, and both ends of the test curve."""
    curve = history["test_accuracy"]
    ends = {"first twenty rounds": curve.head(20).mean(), "last ten rounds": curve.tail(10).mean()}
    return statistics.readings(history)["test"].to_dict() | ends


def runs_of(settings: Settings, data: Split, name: str, seed: int) -> list[Run]:
    """A method with each setting of its grid."""
    train, validation, test = data
    how = {"seed": seed, "eval_data": {"validation": validation, "test": test}}
    runs = []
    for given in GRID[name]:
        algorithm = algorithm_of(name, given)
        result = fedlib.fit(algorithm, model.init(seed), train, settings["rounds"], settings["cohort"], **how)
        runs.append((given, algorithm, result))
    return runs


def chosen_by_validation(runs: Iterable[Run], rounds: int) -> Run:
    """The run whose validation accuracy gets highest in its first rounds."""
    return max(runs, key=lambda run: run[2].history["validation_accuracy"].head(rounds).max())


def alone(settings: Settings, data: Split, seed: int) -> pd.DataFrame:
    """Scores of clients that train for themselves, with as many local epochs as a client of the federation on average.

    They are on the clients' own test examples.
    """
    algorithm = algorithm_of("alone", {"lr": 0.1})
    rounds = max(1, round(settings["rounds"] * settings["cohort"] / len(data[0])))
    result = fedlib.fit(algorithm, model.init(seed), data[0], rounds, seed=seed, progress=False)
    return fedlib.evaluate(algorithm, result, data[2])


def alone_on_label_skew(settings: Settings, seed: int) -> dict[str, list[float]]:
    """The accuracy of each client that trains for itself."""
    return alone(settings, label_skew(settings, seed), seed)[["id", "accuracy"]].to_dict("list")


def method_on_label_skew(settings: Settings, name: str, seed: int, by_client: Mapping[str, list[float]]) -> Rows:
    """A method with every setting, and as validation chooses, beside clients that train for themselves."""
    data = label_skew(settings, seed)
    runs = runs_of(settings, data, name, seed)
    rows = {row_name(name, given): scores_of_curve(result.history) for given, _, result in runs}
    given, algorithm, result = chosen_by_validation(runs, settings["rounds"])
    worse = statistics.negative_transfer(fedlib.evaluate(algorithm, result, data[2]), pd.DataFrame(by_client))
    rows[name] = scores_of_curve(result.history) | given | {"negative transfer": worse}
    if name == "SCAFFOLD":  # its messages are twice as long: half the rounds cost as much
        half = settings["rounds"] // 2
        history = chosen_by_validation(runs, half)[2].history.head(half)
        score = "chosen by validation"
        rows["SCAFFOLD, half the rounds"] = {score: scores_of_curve(history)[score]}
    return rounded(rows)


def writers(settings: Settings, seed: int) -> Rows:
    """Writers alone and by FedAvg, as validation chooses; and how unlike they are, beside a random deal."""
    known, deals = writers_of(settings, seed)
    _, algorithm, result = chosen_by_validation(runs_of(settings, known, "FedAvg", seed), settings["rounds"])
    scores = {"alone": alone(settings, known, seed), "FedAvg": fedlib.evaluate(algorithm, result, known[2])}
    rows: Rows = {}
    for name, table in scores.items():
        worst, mean = statistics.summary(table)["worst decile"], evaluation.pooled(table)["accuracy"]
        rows[name] = {"pooled": mean, "worst decile": worst}
    rows["FedAvg"]["negative transfer"] = statistics.negative_transfer(scores["FedAvg"], scores["alone"])
    for name, deal in zip(("the deal", "IID control"), deals, strict=True):
        rows[name] = {
            "label distance": label_distance(deal),
            "gradient dissimilarity": gradient_dissimilarity(deal, model.init(seed)),
        }
    return rounded(rows)


# ---- the experiments ----


def measure(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Label skew: row -> score -> seed -> number; what is kept is a method with one seed."""
    figures: dict[str, Any] = {}
    for seed in seeds_of(settings):
        by_client = keep(f"alone, seed {seed}", alone_on_label_skew, settings, seed)
        for name in METHODS:
            enter(figures, seed, keep(f"{name}, seed {seed}", method_on_label_skew, settings, name, seed, by_client))
    return figures


def measure_writers(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Natural clients, seed by seed."""
    return by_seed(settings, keep, "writers", writers, settings)


def small(writers: bool) -> tuple[ClientData, ClientData]:
    """Training and test examples of eight clients of unequal sizes."""
    arrays = datasets.load("mnist5k")
    rows = np.arange(0, 5000, 25)
    x, y = arrays.x[rows], arrays.y[rows]
    if writers:
        dealt = partition.by_user(np.repeat(np.arange(8), [12, 14, 16, 18, 20, 30, 40, 50]), min_rows=10)
    else:
        dealt = partition.dirichlet(y, 8, alpha=0.1, min_rows=10)
    train, _, test = (p.clients(x, y, classes=10) for p in dealt.split())
    return train, test


def numbers(name: str, given: Mapping[str, float], train: ClientData, test: ClientData) -> list[float]:
    """Two rounds of one arm: models, losses, bytes; scores of clients."""
    algorithm = algorithm_of(name, given)
    result = fedlib.fit(algorithm, model.init(0), train, 2, 4, **EXACT)
    return running.numbers_of(algorithm, result) + running.scores_of(algorithm, result, test)


def probe() -> running.Probe:
    """Two rounds of each method, and of clients alone, on label skew."""
    data = small(writers=False)
    return {name: numbers(name, given, *data) for name, given in PROBED.items()}


def probe_writers() -> running.Probe:
    """FedAvg and clients alone on natural clients; and what is measured of the deal."""
    train, test = small(writers=True)
    start = {name: p.double() for name, p in model.init(0).items()}
    found = {name: numbers(name, PROBED[name], train[:6], test[:6]) for name in ("FedAvg", "alone")}
    return found | {"the deal": [label_distance(train), gradient_dissimilarity(train, start)]}


SETTINGS = {"data": "mnist5k", "examples": 5000, "clients": 50, "cohort": 5, "rounds": 60, "seeds": 5, "seed": 0}
WRITERS = {"data": "mnist10k", "cohort": 5, "rounds": 60, "seeds": 5, "seed": 0}


PRESETS = {
    "full": running.Experiment("heterogeneity", SETTINGS, measure, probe, ("mnist5k",)),
    "writers": running.Experiment("heterogeneity_writers", WRITERS, measure_writers, probe_writers, ("mnist10k",)),
}
