"""FedAvg on digits: the partition, the work of a client in a round, the size of the cohort, and what each client gets.

Every arm is run with ten seeds; a seed splits the digits, deals them to the clients and draws the start. Scores are
test accuracies: "first rounds" is the mean of the first five (rounds 2 to 10), "last rounds" that of the last five.

FedSGD takes one step a round and wants a long one, so it is also run at its own best learning rate, and FedAvg beside
it at its own: the best of four by the score of the first rounds, on two seeds that are used for nothing else.

Preset ``full`` (5,000 digits, 40 clients) takes about fifteen minutes on one core. ``paper`` is the setting of McMahan
et al. (2017), all of MNIST on 100 clients, and wants a GPU.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import fedlib
from book.experiments import running
from fedlib import ClientData, datasets, models, partition
from fedlib.algorithms import FedAvg, LocalOnly
from fedlib.losses import cross_entropy

PARTITIONS: dict[str, Callable[..., partition.Partition]] = {
    "IID": lambda y, clients, seed: partition.iid(y, clients, seed),
    "unbalanced": lambda y, clients, seed: partition.quantity(y, clients, sigma=1.0, seed=seed),
    "Dirichlet 0.1": lambda y, clients, seed: partition.dirichlet(y, clients, alpha=0.1, seed=seed),
    "two digits each": lambda y, clients, seed: partition.pathological(y, clients, shards_per_client=2, seed=seed),
}
COMPARED = ("IID", "two digits each")  # the partitions of all arms but the first four
LOCAL = {"lr": 0.1, "batch_size": 10, "epochs": 1}
WORK = {
    "FedSGD: E = 1, B = all": {"epochs": 1, "batch_size": None},
    "E = 5, B = all": {"epochs": 5, "batch_size": None},
    "E = 1, B = 10": {"epochs": 1, "batch_size": 10},
    "E = 5, B = 10": {"epochs": 5, "batch_size": 10},
}
TUNED = {"FedSGD": "FedSGD: E = 1, B = all", "FedAvg, E = 1": "E = 1, B = 10", "FedAvg, E = 5": "E = 5, B = 10"}

Scores = dict[str, dict[str, float]]

model = models.MLP((784, 64, 10))


def loss(params: fedlib.Params, batch: Sequence[torch.Tensor]) -> torch.Tensor:
    """Cross-entropy of one client's batch."""
    x, y, w = batch
    return cross_entropy(model(params, x), y, w)


def split(settings: dict[str, Any], seed: int) -> tuple[np.ndarray, ...]:
    """Training and test examples: x, y, x_test, y_test. Data without a test set are cut."""
    arrays = datasets.load(settings["data"], download=settings["data"] != "mnist5k")
    if arrays.x_test is not None:
        return arrays.x, arrays.y, arrays.x_test, arrays.y_test
    order = np.random.RandomState(seed).permutation(len(arrays.x))[: settings["examples"]]
    train, test = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
    return arrays.x[train], arrays.y[train], arrays.x[test], arrays.y[test]


def federation(settings: dict[str, Any], name: str, seed: int) -> tuple[ClientData, ClientData]:
    """The clients' training data, and the common test set for every client."""
    x, y, x_test, y_test = split(settings, seed)
    clients = settings["clients"]
    train = PARTITIONS[name](y, clients, seed).clients(x, y, classes=10)
    return train, fedlib.same_rows(x_test, y_test, range(clients))


def arm(
    settings: dict[str, Any],
    seeds: Sequence[int],
    name: str,
    rounds: int | None = None,
    cohort: int | None = None,
    **local: Any,
) -> Scores:
    """FedAvg on one partition, scored every second round: first and last rounds of each seed."""
    found: Scores = {"first rounds": {}, "last rounds": {}}
    algorithm = FedAvg(loss, predict=model, **LOCAL | local)
    for seed in seeds:
        data, test = federation(settings, name, seed)
        history = fedlib.fit(
            algorithm,
            model.init(seed),
            data,
            rounds or settings["rounds"],
            cohort or settings["cohort"],
            seed=seed,
            eval_data=test,
            eval_every=2,
            progress=False,
        ).history
        accuracy = history["test_accuracy"].dropna()
        found["first rounds"][str(seed)] = round(float(accuracy.iloc[:5].mean()), 4)
        found["last rounds"][str(seed)] = round(float(accuracy.iloc[-5:].mean()), 4)
    return found


def own_examples(settings: dict[str, Any], name: str, seed: int) -> tuple[ClientData, ClientData]:
    """Four fifths of each client's examples to train, the rest to test."""
    x, y, _, _ = split(settings, seed)
    dealt = PARTITIONS[name](y, settings["clients"], seed).rows
    rows = [np.random.RandomState(seed).permutation(r) for r in dealt]
    cut = [len(r) * 4 // 5 for r in rows]
    return (
        fedlib.stack_rows(x, y, [r[:c] for r, c in zip(rows, cut, strict=True)]),
        fedlib.stack_rows(x, y, [r[c:] for r, c in zip(rows, cut, strict=True)]),
    )


def with_and_without_federation(settings: dict[str, Any], seed: int) -> dict[str, dict[str, float]]:
    """FedAvg and every client alone: accuracy on the clients' own held-out examples, and on all digits."""
    found = {}
    clients = settings["clients"]
    for name in COMPARED:
        train, own_test = own_examples(settings, name, seed)
        common_test = fedlib.same_rows(*split(settings, seed)[2:], range(clients))
        for method, algorithm_class in {"FedAvg": FedAvg, "alone": LocalOnly}.items():
            algorithm = algorithm_class(loss, predict=model, **LOCAL)
            rounds = settings["rounds"] // 2
            result = fedlib.fit(algorithm, model.init(seed), train, rounds, seed=seed, progress=False)
            own = fedlib.evaluate(algorithm, result, own_test)["accuracy"]
            everything = fedlib.evaluate(algorithm, result, common_test)["accuracy"]
            found[f"{method}, {name}"] = {
                "own examples: mean": round(float(own.mean()), 4),
                "own examples: worst tenth": round(float(own.nsmallest(max(1, clients // 10)).mean()), 4),
                "all digits: mean": round(float(everything.mean()), 4),
            }
    return found


def mean_score(scores: Scores) -> float:
    """Of the first rounds, over seeds: what the rate is tuned for."""
    return float(np.mean(list(scores["first rounds"].values())))


def measure(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """All arms; an arm is what is kept."""
    seeds = range(settings["seed"], settings["seed"] + settings["seeds"])
    side_seeds = range(settings["seed"], settings["seed"] + settings["side_seeds"])
    cohort, clients = settings["cohort"], settings["clients"]
    short = max(2, settings["rounds"] * 3 // 5)
    figures: dict[str, Any] = {}

    def measured(label: str, seeds: Sequence[int], name: str, **more: Any) -> Scores:
        figures[label] = keep(label, arm, settings, seeds, name, **more)
        return figures[label]

    for name in PARTITIONS:
        measured(f"deal: {name}", seeds, name)
    for name in COMPARED:
        for label, work in WORK.items():
            measured(f"work: {name}, {label}", side_seeds, name, rounds=short, **work)
    for name in COMPARED:
        for size in (1, cohort, clients):
            measured(f"cohort: {name}, {size} of {clients} clients", side_seeds, name, cohort=size)
    for seed in side_seeds:
        rows = keep(f"with and without federation, seed {seed}", with_and_without_federation, settings, seed)
        for label, row in rows.items():
            for column, value in row.items():
                figures.setdefault(label, {}).setdefault(column, {})[str(seed)] = value
    for name in COMPARED:
        for method, label in TUNED.items():
            work = {"rounds": short} | WORK[label]
            tried = {
                lr: measured(f"work: {name}, {label}, lr {lr}", settings["tuning_seeds"], name, lr=lr, **work)
                for lr in settings["rates"][method]
            }
            best = max(tried, key=lambda lr: mean_score(tried[lr]))
            tuned = measured(f"work: {name}, {method}, tuned rate", side_seeds, name, lr=best, **work)
            figures[f"work: {name}, {method}, tuned rate"] = tuned | {"lr": best}
    return figures


def probe() -> running.Probe:
    """Two rounds of each arm on a small network and eight clients with a few digits."""
    small = models.MLP((784, 4, 10))
    settings = {"data": "mnist5k", "examples": 107, "clients": 8}  # clients of unequal sizes

    def small_loss(params: fedlib.Params, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        x, y, w = batch
        return cross_entropy(small(params, x), y, w)

    def told(name: str, cohort: int | None = 3, method: type[FedAvg] | type[LocalOnly] = FedAvg, **local: Any) -> list:
        data, _ = federation(settings, name, 0)
        return running.trace(method(small_loss, **LOCAL | local), small.init(0), data, 2, cohort)

    found = {f"deal: {name}": told(name) for name in PARTITIONS}
    for name in COMPARED:
        found |= {f"work: {name}, {label}": told(name, **work) for label, work in WORK.items()}
        for method, label in TUNED.items():
            found[f"work: {name}, {method}, tuned rate"] = told(name, lr=0.5, **WORK[label])
        found |= {f"cohort: {name}, {size} of 8 clients": told(name, cohort=size) for size in (1, 8)}
        for label, method in {"FedAvg": FedAvg, "alone": LocalOnly}.items():
            found[f"{label}, {name}"] = told(name, cohort=None, method=method)
    return found


SETTINGS = {
    "data": "mnist5k",
    "examples": 5000,
    "clients": 40,
    "cohort": 10,
    "rounds": 40,
    "seeds": 10,
    "side_seeds": 10,
    "seed": 0,
    "rates": {
        "FedSGD": [0.3, 0.5, 1.0, 2.0],
        "FedAvg, E = 1": [0.05, 0.1, 0.2, 0.4],
        "FedAvg, E = 5": [0.05, 0.1, 0.2, 0.4],
    },
    "tuning_seeds": [100, 101],
}
PAPER = SETTINGS | {
    "data": "mnist",
    "examples": 60000,
    "clients": 100,
    "rounds": 200,
    "seeds": 3,
    "side_seeds": 3,
}


def _first(name: str, label: str) -> tuple[str, str]:
    return f"work: {name}, {label}", "first rounds"


CLAIMS = {
    sentence.format(name): (a, b)
    for name in COMPARED
    for sentence, a, b in (
        (
            "{}: beats FedSGD at the same rate",
            _first(name, "E = 1, B = 10"),
            _first(name, "FedSGD: E = 1, B = all"),
        ),
        (
            "{}: beats FedSGD, both rates tuned",
            _first(name, "FedAvg, E = 1, tuned rate"),
            _first(name, "FedSGD, tuned rate"),
        ),
        (
            "{}: five epochs beat one, same rate",
            _first(name, "E = 5, B = 10"),
            _first(name, "E = 1, B = 10"),
        ),
        (
            "{}: five epochs beat one, both tuned",
            _first(name, "FedAvg, E = 5, tuned rate"),
            _first(name, "FedAvg, E = 1, tuned rate"),
        ),
        (
            "{}: beats training alone, own digits",
            (f"FedAvg, {name}", "own examples: mean"),
            (f"alone, {name}", "own examples: mean"),
        ),
    )
} | {
    f"IID ends higher than {name}": (("deal: IID", "last rounds"), (f"deal: {name}", "last rounds"))
    for name in PARTITIONS
    if name != "IID"
}

PRESETS = {
    "full": running.Experiment("01_fedavg", SETTINGS, measure, probe, data=("mnist5k",), claims=CLAIMS),
    "paper": running.Experiment("01_fedavg_paper", PAPER, measure, probe, data=("mnist",), claims=CLAIMS),
}

if __name__ == "__main__":
    running.main(PRESETS)
