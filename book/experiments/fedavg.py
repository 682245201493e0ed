"""FedAvg on digits: why one may average networks, how many rounds are needed, and what label skew costs.

Every arm is run with ten seeds; a seed splits the digits, gives them to the clients and draws the start.

*Average*: two networks are trained on digits of their own, from a common start or from a start each. The score is their
accuracy and loss on digits that neither has seen, and that of the network half way between them. A network trained on
the digits of both stands beside them.

*Rounds*: how many rounds FedSGD and FedAvg need until the server's model gets 85 % of the test digits right, on IID
clients 90 %, too; each at its own best learning rate for that target: of those tried the one with the fewest rounds, on
five seeds that are used for nothing else.

*Skew*: FedAvg with one learning rate on IID clients and on clients with two digits each, in cohorts of ten and with all
forty. "first rounds" is the mean accuracy of rounds 2, 4, 6, 8 and 10, "last rounds" that of the last five scored,
"step" by how much the accuracy of neighbours among the last ten scored differs, on average.

Preset ``full`` has 5,000 digits and 40 clients.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

import fedlib
from book.experiments import running
from book.experiments.worlds import enter, loss_of, rounded, seeds_of
from fedlib import ClientData, datasets, models, partition
from fedlib.algorithms import FedAvg, LocalOnly
from fedlib.params import row

PARTITIONS: dict[str, Callable[..., partition.Partition]] = {
    "IID": lambda y, clients, seed: partition.iid(y, clients, seed),
    "two digits each": lambda y, clients, seed: partition.pathological(y, clients, shards_per_client=2, seed=seed),
}
LOCAL = {"lr": 0.2, "batch_size": 10, "epochs": 1}
WORK: dict[str, dict[str, Any]] = {
    "FedSGD": {"epochs": 1, "batch_size": None},
    "FedAvg, E = 1": {"epochs": 1, "batch_size": 10},
    "FedAvg, E = 5": {"epochs": 5, "batch_size": 10},
}

HOPELESS = 20, 0.3  # after so many rounds a run below this accuracy is given up: its rate is too high

Scores = dict[str, dict[str, float]]

model = models.MLP((784, 64, 10))
loss = loss_of(model)


@lru_cache(maxsize=1)
def split(examples: int, seed: int) -> tuple[np.ndarray, ...]:
    """Training and test examples: x, y, x_test, y_test."""
    arrays = datasets.load("mnist5k")
    order = np.random.RandomState(seed).permutation(len(arrays.x))[:examples]
    train, test = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
    return arrays.x[train], arrays.y[train], arrays.x[test], arrays.y[test]


def federation(settings: dict[str, Any], name: str, seed: int) -> ClientData:
    """The clients' training data."""
    x, y, _, _ = split(settings["examples"], seed)
    return PARTITIONS[name](y, settings["clients"], seed).clients(x, y, classes=10)


def score(params: fedlib.Params, settings: dict[str, Any], seed: int) -> tuple[float, float]:
    """Accuracy and loss of one network on the test digits."""
    _, _, x, y = split(settings["examples"], seed)
    logits, labels = model(params, torch.from_numpy(x).float() / 255), torch.from_numpy(y)
    right = (logits.argmax(1) == labels).float().mean()
    return float(right), float(torch.nn.functional.cross_entropy(logits, labels))


def trained(rows: Sequence[int], start: int, settings: dict[str, Any], seed: int) -> fedlib.Params:
    """A network that one client trains for twenty epochs on some of the training digits."""
    x, y, _, _ = split(settings["examples"], seed)
    algorithm = LocalOnly(loss, lr=0.1, batch_size=50, epochs=20)
    data = fedlib.stack_rows(x, y, [rows], ids=[rows[0]])  # an id of its own, so an order of its own
    end = fedlib.fit(algorithm, model.init(start), data, 1, seed=seed, progress=False)
    return row(end.state.local, 0)


def average(settings: dict[str, Any], seed: int) -> Scores:
    """Two networks and the one half way between them; 500 digits each; Figure 1 of McMahan et al. has 600."""
    a = trained(range(500), seed, settings, seed)
    b = trained(range(500, 1000), seed, settings, seed)
    c = trained(range(500, 1000), seed + 1000, settings, seed)

    def half(other: fedlib.Params) -> fedlib.Params:
        return {n: (a[n] + other[n]) / 2 for n in a}

    networks = {
        "a network": a,
        "another, same start": b,
        "average, same start": half(b),
        "another, own start": c,
        "average, own starts": half(c),
        "a network on both": trained(range(1000), seed, settings, seed),
    }
    scores = {name: score(params, settings, seed) for name, params in networks.items()}
    return rounded({name: {"accuracy": a, "loss": e} for name, (a, e) in scores.items()})


def rounds_to(settings: dict[str, Any], seed: int, name: str, **local: Any) -> list[float]:
    """Rounds until each target; the most allowed, and one more, where it is not reached."""
    targets = settings["targets"][name]
    found = [settings["most rounds"] + 1.0] * len(targets)

    def stop(t: int, state: Any, entry: dict[str, Any]) -> None:
        accuracy = score(row(state.models, 0), settings, seed)[0]
        for i, target in enumerate(targets):
            if accuracy >= target:
                found[i] = min(found[i], float(t))
        if accuracy >= max(targets) or (t == HOPELESS[0] and accuracy < HOPELESS[1]):
            raise StopIteration

    algorithm, data = FedAvg(loss, **LOCAL | local), federation(settings, name, seed)
    how = {"seed": seed, "callbacks": [stop], "progress": False}
    fedlib.fit(algorithm, model.init(seed), data, settings["most rounds"], settings["cohort"], **how)
    return found


def skew(settings: dict[str, Any], seed: int, name: str, cohort: int) -> dict[str, float]:
    """FedAvg, scored every second round."""
    found: list[float] = []

    def note(t: int, state: Any, entry: dict[str, Any]) -> None:
        if t % 2 == 0:
            found.append(score(row(state.models, 0), settings, seed)[0])

    data = federation(settings, name, seed)
    algorithm, start = FedAvg(loss, **LOCAL), model.init(seed)
    fedlib.fit(algorithm, start, data, settings["rounds"], cohort, seed=seed, callbacks=[note], progress=False)
    return {
        "first rounds": round(float(np.mean(found[:5])), 4),
        "last rounds": round(float(np.mean(found[-5:])), 4),
        "step": round(float(np.abs(np.diff(found[-10:])).mean()), 4),
    }


def place(name: str, target: float) -> str:
    """Where the rounds to a target are stored."""
    return f"{name}, {100 * target:.0f} %"


def measure(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """All arms, seed by seed."""
    figures: dict[str, Any] = {}
    for seed in seeds_of(settings):
        enter(figures, seed, keep(f"average, seed {seed}", average, settings, seed))
        for name, cohort, label in (
            ("IID", settings["cohort"], "IID"),
            ("two digits each", settings["cohort"], "two digits each"),
            ("two digits each", settings["clients"], "two digits each, all clients"),
        ):
            part = f"skew: {label}"
            enter(figures, seed, {part: keep(f"{part}, seed {seed}", skew, settings, seed, name, cohort)})
    for name in PARTITIONS:
        for method, work in WORK.items():

            def rounds(lr: float, seed: int) -> list[float]:
                part = f"{name}, {method}, lr {lr}, seed {seed}"
                return keep(part, rounds_to, settings, seed, name, lr=lr, **work)

            tried = {lr: [rounds(lr, s) for s in settings["tuning_seeds"]] for lr in settings["rates"][method]}
            for i, target in enumerate(settings["targets"][name]):
                means = {lr: float(np.mean([found[i] for found in some])) for lr, some in tried.items()}
                best, where = min(means, key=lambda lr: means[lr]), place(name, target)
                known = figures.setdefault(method, {})
                known |= {f"rate, {where}": best, f"tried, {where}": {str(lr): n for lr, n in means.items()}}
                for s in seeds_of(settings):
                    enter(figures, s, {method: {f"rounds, {where}": rounds(best, s)[i]}})
    return figures


def probe() -> running.Probe:
    """Two rounds of each arm with eight clients who have a few digits."""
    settings = {"examples": 107, "clients": 8}  # clients of unequal sizes
    found = {}
    for name in PARTITIONS:
        data = federation(settings, name, 0)
        for method, work in WORK.items():
            found[f"{method}, {name}"] = running.trace(FedAvg(loss, **LOCAL | work), model.init(0), data, 2, 3)
        found[f"alone, {name}"] = running.trace(LocalOnly(loss, **LOCAL | {"batch_size": 50}), model.init(0), data)
    return found


RATES = dict.fromkeys(WORK, [0.05, 0.1, 0.2, 0.4, 0.8]) | {"FedSGD": [0.1, 0.2, 0.4, 0.8, 1.6]}
SETTINGS = {"examples": 5000, "clients": 40, "cohort": 10, "rounds": 40, "seeds": 10, "seed": 0}
SETTINGS |= {"targets": {"IID": [0.85, 0.9], "two digits each": [0.85]}, "most rounds": 120}
SETTINGS |= {"rates": RATES, "tuning_seeds": [100, 101, 102, 103, 104]}


PRESETS = {"full": running.Experiment("fedavg", SETTINGS, measure, probe, data=("mnist5k",))}
