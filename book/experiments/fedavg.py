"""FedAvg on digits: why one may average networks, how many rounds are needed, and what label skew costs.

Every arm is run with ten seeds; a seed splits the digits, gives them to the clients and draws the start.

*Average*: two networks are trained on digits of their own, from a common start or from a start each. The score is their
accuracy and loss on digits that neither has seen, and that of the network half way between them.

*Rounds*: how many rounds FedSGD and FedAvg need until the server's model gets 85 % of the test digits right, each at
its own best learning rate: of those tried the one with the fewest rounds, on two seeds that are used for nothing else.

*Skew*: FedAvg with one learning rate on equal clients and on clients with two digits each. "first rounds" is the mean
accuracy of rounds 2, 4, 6, 8 and 10, "last rounds" that of the last five scored.

Preset ``full`` (5,000 digits, 40 clients) takes twenty minutes on one core. ``paper`` is the setting of McMahan et
al. (2017), all of MNIST on 100 clients, and wants a GPU.
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
from fedlib.params import row

PARTITIONS: dict[str, Callable[..., partition.Partition]] = {
    "IID": lambda y, clients, seed: partition.iid(y, clients, seed),
    "two digits each": lambda y, clients, seed: partition.pathological(y, clients, shards_per_client=2, seed=seed),
}
LOCAL = {"lr": 0.1, "batch_size": 10, "epochs": 1}
WORK = {
    "FedSGD": {"epochs": 1, "batch_size": None},
    "FedAvg, E = 1": {"epochs": 1, "batch_size": 10},
    "FedAvg, E = 5": {"epochs": 5, "batch_size": 10},
}

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


def federation(settings: dict[str, Any], name: str, seed: int) -> ClientData:
    """The clients' training data."""
    x, y, _, _ = split(settings, seed)
    return PARTITIONS[name](y, settings["clients"], seed).clients(x, y, classes=10)


def score(params: fedlib.Params, settings: dict[str, Any], seed: int) -> tuple[float, float]:
    """Accuracy and loss of one network on the test digits."""
    _, _, x, y = split(settings, seed)
    logits, labels = model(params, torch.from_numpy(x).float() / 255), torch.from_numpy(y)
    right = (logits.argmax(1) == labels).float().mean()
    return float(right), float(torch.nn.functional.cross_entropy(logits, labels))


def two_networks(data: ClientData, seed: int, epochs: int = 20) -> dict[str, fedlib.Params]:
    """ "a" and "b" are trained on data of their own from a common start, "c" on the data of "b" from another start."""

    def trained(client: int, start: int) -> fedlib.Params:
        algorithm = LocalOnly(loss, lr=0.1, batch_size=50, epochs=epochs)
        end = fedlib.fit(algorithm, model.init(start), data[[client]], 1, seed=seed, progress=False)
        return row(end.state.local, 0)

    return {"a": trained(0, seed), "b": trained(1, seed), "c": trained(1, seed + 1000)}


def average(settings: dict[str, Any], seed: int) -> Scores:
    """Two networks and the one half way between them; 500 digits each; Figure 1 of McMahan et al. has 600."""
    x, y, _, _ = split(settings, seed)
    found = two_networks(fedlib.stack_rows(x, y, [np.arange(500), np.arange(500, 1000)]), seed)
    half = {s: {n: (found["a"][n] + found[s][n]) / 2 for n in found["a"]} for s in ("b", "c")}
    networks = {
        "a network": found["a"],
        "another, same start": found["b"],
        "average, same start": half["b"],
        "another, own start": found["c"],
        "average, own starts": half["c"],
    }
    scores = {name: score(params, settings, seed) for name, params in networks.items()}
    return {name: {"accuracy": round(a, 4), "loss": round(e, 4)} for name, (a, e) in scores.items()}


def rounds_to(settings: dict[str, Any], seed: int, name: str, **local: Any) -> float:
    """Rounds until the target; the most allowed, and one more, where it is not reached."""
    found = [settings["most rounds"] + 1]

    def stop(t: int, state: Any, entry: dict[str, Any]) -> None:
        if score(row(state.models, 0), settings, seed)[0] >= settings["target"]:
            found[0] = t
            raise StopIteration

    fedlib.fit(
        FedAvg(loss, **LOCAL | local),
        model.init(seed),
        federation(settings, name, seed),
        settings["most rounds"],
        settings["cohort"],
        seed=seed,
        callbacks=[stop],
        progress=False,
    )
    return float(found[0])


def skew(settings: dict[str, Any], seed: int, name: str) -> dict[str, float]:
    """FedAvg, scored every second round."""
    found: list[float] = []

    def note(t: int, state: Any, entry: dict[str, Any]) -> None:
        if t % 2 == 0:
            found.append(score(row(state.models, 0), settings, seed)[0])

    data = federation(settings, name, seed)
    algorithm, start = FedAvg(loss, **LOCAL), model.init(seed)
    fedlib.fit(
        algorithm, start, data, settings["rounds"], settings["cohort"], seed=seed, callbacks=[note], progress=False
    )
    return {"first rounds": round(float(np.mean(found[:5])), 4), "last rounds": round(float(np.mean(found[-5:])), 4)}


def measure(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """All arms, seed by seed."""
    seeds = range(settings["seed"], settings["seed"] + settings["seeds"])
    figures: dict[str, Any] = {}

    def note(label: str, seed: int, values: dict[str, float]) -> None:
        for what, value in values.items():
            figures.setdefault(label, {}).setdefault(what, {})[str(seed)] = value

    for seed in seeds:
        for label, values in keep(f"average, seed {seed}", average, settings, seed).items():
            note(label, seed, values)
        for name in PARTITIONS:
            note(f"skew: {name}", seed, keep(f"skew: {name}, seed {seed}", skew, settings, seed, name))
    for name in PARTITIONS:
        for method, work in WORK.items():
            tried = {}
            for lr in settings["rates"]:
                one = [
                    keep(f"{name}, {method}, lr {lr}, seed {s}", rounds_to, settings, s, name, lr=lr, **work)
                    for s in settings["tuning_seeds"]
                ]
                tried[lr] = float(np.mean(one))
            best = min(tried, key=lambda lr: tried[lr])
            known = figures.setdefault(method, {})
            known |= {f"rate, {name}": best, f"tried, {name}": {str(lr): rounds for lr, rounds in tried.items()}}
            for s in seeds:
                rounds = keep(f"{name}, {method}, tuned, seed {s}", rounds_to, settings, s, name, lr=best, **work)
                note(method, s, {f"rounds, {name}": rounds})
    return figures


def probe() -> running.Probe:
    """Two rounds of each arm with eight clients who have a few digits."""
    settings = {"data": "mnist5k", "examples": 107, "clients": 8}  # clients of unequal sizes
    found = {}
    for name in PARTITIONS:
        data = federation(settings, name, 0)
        for method, work in WORK.items():
            found[f"{method}, {name}"] = running.trace(FedAvg(loss, **LOCAL | work), model.init(0), data, 2, 3)
        found[f"alone, {name}"] = running.trace(LocalOnly(loss, **LOCAL | {"batch_size": 50}), model.init(0), data)
    return found


SETTINGS = {
    "data": "mnist5k",
    "examples": 5000,
    "clients": 40,
    "cohort": 10,
    "rounds": 40,
    "target": 0.85,
    "most rounds": 200,
    "rates": [0.05, 0.1, 0.2, 0.4, 0.8],
    "tuning_seeds": [100, 101],
    "seeds": 10,
    "seed": 0,
}
PAPER = SETTINGS | {
    "data": "mnist",
    "examples": 60000,
    "clients": 100,
    "rounds": 200,
    "target": 0.97,
    "most rounds": 2000,
    "seeds": 3,
}
CLAIMS: dict[str, tuple[Any, Any]] = {
    "averaging from a common start beats each network": (
        ("average, same start", "accuracy"),
        ("a network", "accuracy"),
    ),
    "averaging from two starts is worse than each network": (
        ("a network", "accuracy"),
        ("average, own starts", "accuracy"),
    ),
    "label skew slows FedAvg": (("skew: IID", "first rounds"), ("skew: two digits each", "first rounds")),
} | {
    sentence.format(name): ((more, f"rounds, {name}"), (fewer, f"rounds, {name}"))
    for name in PARTITIONS
    for sentence, more, fewer in (
        ("{}: FedSGD needs more rounds than FedAvg", "FedSGD", "FedAvg, E = 1"),
        ("{}: one epoch needs more rounds than five", "FedAvg, E = 1", "FedAvg, E = 5"),
    )
}

PRESETS = {
    "full": running.Experiment("fedavg", SETTINGS, measure, probe, data=("mnist5k",), claims=CLAIMS),
    "paper": running.Experiment("fedavg_paper", PAPER, measure, probe, data=("mnist",), claims=CLAIMS),
}

if __name__ == "__main__":
    running.main(PRESETS)
