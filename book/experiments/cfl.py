"""Split-half CFL where groups of clients give the same images other names, its rivals, and where it should not split.

Preset ``full``: five seeds of 3,600 digits with 20 clients. Every method on four groups, and clients with few digits
and with label skew: ten minutes on one core.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import fedlib
from book.experiments import running
from book.experiments.worlds import Rows, by_seed, loss_of, rounded, small_digits
from fedlib import models, partition, statistics
from fedlib.algorithms import IFCA, PACFL, ClusteredKMeans, FedAvg, FedEM, FedGroup, FeSEM, LocalOnly
from fedlib.algorithms.fedem import Mixture
from fedlib.params import row

from .cfl_variants import OURS, RELATIVE, GivenClusters, RelativeCFL, SteppedSplitHalfCFL, replay

GROUPS = 4
MLP = models.MLP((196, 64, 10))
LOCAL: dict[str, Any] = {"lr": 0.1, "batch_size": 100, "epochs": 3, "predict": MLP}
SMALL = LOCAL | {"batch_size": 25}  # of clients with fifty digits each
LENGTHS = {"eps1": 0.15, "eps2": 0.4}  # of the rule with relative lengths

LOSS = loss_of(MLP)


# the clients


@dataclass(frozen=True)
class Digits:
    """What one seed draws: digits of the clients, and for the test, each with labels."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def digits(seed: int, examples: int) -> Digits:
    """Shuffled digits: `examples` for the clients, and of those that are left 1,000 for the test."""
    x, y = small_digits()
    order = np.random.RandomState(seed).permutation(len(x))
    return Digits(*((x[r], y[r]) for r in (order[:examples], order[examples + 400 : examples + 1400])))


def deal(y: np.ndarray, clients: int, seed: int, groups: int = GROUPS) -> partition.Partition:
    """Dealt at random; then each group of clients gets its own names."""
    even = partition.iid(y, clients, seed)
    return partition.label_permutation(even, groups, seed=seed) if groups > 1 else even


def deal_few(drawn: Digits, clients: int, seed: int, kind: str) -> tuple[Digits, partition.Partition]:
    """Fifty digits a client, with four groups or one; or all digits with "label skew"."""
    x, y = drawn.train
    if kind == "label skew":
        return drawn, partition.dirichlet(y, clients, alpha=0.3, seed=seed, min_rows=20)
    few = replace(drawn, train=(x[: 50 * clients], y[: 50 * clients]))
    return few, deal(few.train[1], clients, seed, GROUPS if kind.endswith("four groups") else 1)


# one run


def score_clients(
    model: Any, dealt: partition.Partition, x: np.ndarray, y: np.ndarray, shares: Tensor, every: int = 1
) -> Callable[[int, Any, dict[str, Any]], None]:
    """A callback that notes each client's accuracy on the whole test set, and the mean over clients.

    The test images are the same for all and only their names differ, so each of the server's models looks at them once.
    With `shares` (clients, classes) it also notes the mean accuracy on tests with each client's own mix of classes.
    """
    images, labels, groups = torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(dealt.group)
    called = labels[None]  # (groups, tests)
    if dealt.change is not None:
        called = torch.tensor(np.array(dealt.change.values))[:, labels]

    def note(t: int, state: Any, entry: dict[str, Any]) -> None:
        if t % every and t > 1:
            return
        stack = state.models
        inputs = images.to(stack["dense1.bias"]) / 255  # where the models are
        said = torch.stack([model(row(stack, m), inputs).argmax(1).cpu() for m in range(len(stack["dense1.bias"]))])
        mine = getattr(state, "assignment", torch.zeros_like(groups)).cpu()  # FedAvg has one model
        right = (said[:, None] == called).float().mean(2)[mine, groups]
        entry |= {f"client {k}": float(a) for k, a in enumerate(right)}
        entry["test_accuracy"] = float(right.mean())
        hit = (said[mine] == called[groups]).float()  # (clients, tests)
        of_class = nn.functional.one_hot(called[groups], shares.shape[1]).float()
        by_class = (hit[:, None] @ of_class)[:, 0] / of_class.sum(1)
        entry["own_accuracy"] = float((shares * by_class).sum(1).mean())

    return note


def shares_of(clients: fedlib.ClientData, classes: int = 10) -> Tensor:
    """How much of each class every client has, (clients, classes)."""
    counts = [torch.bincount(y[:n], minlength=classes) for y, n in zip(clients.y, clients.n.tolist(), strict=True)]
    return nn.functional.normalize(torch.stack(counts).float(), p=1)


def run(algorithm: Any, drawn: Digits, dealt: partition.Partition, rounds: int, seed: int, **more: Any) -> Any:
    """A federation on the digits of a seed, scored in every round."""
    clients = dealt.clients(*drawn.train, classes=10)
    if isinstance(algorithm, (LocalOnly, FedEM)):  # a model for each client, or a mixture of models
        more |= {"eval_data": dealt.tests(*drawn.test, classes=10), "eval_every": 5}
    else:
        more["callbacks"] = [score_clients(MLP, dealt, *drawn.test, shares_of(clients))]
        if not isinstance(algorithm, FedAvg):
            more["callbacks"].append(statistics.clusters_over_rounds(dealt.group))
    return fedlib.fit(algorithm, MLP.init(seed), clients, rounds, seed=seed, progress=False, **more)


# four groups


def contenders(group: np.ndarray, seed: int, clusters: int = GROUPS, network: models.Model = MLP) -> dict[str, Any]:
    """Every method with the same local training."""
    chance = np.random.RandomState(seed).permutation(group)
    how, mixture = LOCAL | {"loss": loss_of(network), "predict": network}, Mixture(network)
    return {
        "FedAvg": FedAvg(**how),
        "alone": LocalOnly(**how),
        OURS: SteppedSplitHalfCFL(**how),
        "IFCA": IFCA(**how, clusters=clusters),
        "FeSEM": FeSEM(**how, clusters=clusters),
        "FedGroup": FedGroup(**how, clusters=clusters),
        "k-means on updates": ClusteredKMeans(**how, clusters=clusters),
        "PACFL": PACFL(**how),
        "FedEM": FedEM(**how | {"loss": loss_of(mixture), "predict": mixture}, components=clusters),
        "true groups": GivenClusters(**how, given=tuple(group.tolist())),
        "random clusters": GivenClusters(**how, given=tuple(chance.tolist())),
    }


def scored(history: pd.DataFrame) -> dict[str, float]:
    """Accuracy, agreement with the true groups, and cost of a finished run."""
    found = {"rounds": len(history), "test accuracy": history["test_accuracy"].iloc[-1]}
    if "ari" in history:
        found["ARI"] = history["ari"].iloc[-1]
    return found | {"megabytes": history[["bytes_down", "bytes_up"]].sum().sum() / 1e6}


def four_groups(settings: Mapping[str, Any], name: str, seed: int) -> Rows:
    """A method where four groups give the digits other names."""
    drawn = digits(seed, settings["examples"])
    dealt = deal(drawn.train[1], settings["clients"], seed)
    end = run(contenders(dealt.group, seed)[name], drawn, dealt, settings["rounds"], seed)
    return rounded({name: scored(end.history)})


# where nothing is to be split


def finite_data(settings: Mapping[str, Any], seed: int) -> Rows:
    """FedAvg, split-half CFL and CFL with relative lengths where clients have few digits or skewed labels."""
    drawn, rounds = digits(seed, settings["examples"]), settings["small"]
    found: Rows = {}
    kinds = {"small clients, one group": SMALL, "label skew": LOCAL, "small clients, four groups": SMALL}
    for kind, local in kinds.items():
        rules = {
            "FedAvg": FedAvg(LOSS, **local),
            OURS: SteppedSplitHalfCFL(LOSS, **local),
            RELATIVE: RelativeCFL(LOSS, **local, **LENGTHS),
        }
        for name, rule in rules.items():
            end = run(rule, *deal_few(drawn, settings["clients"], seed, kind), rounds, seed)
            last, splits = end.history.iloc[-1], len(getattr(end.state, "splits", ()))
            scores = {"test accuracy": last["test_accuracy"], "on its own mix": last["own_accuracy"], "splits": splits}
            found[f"{name}, {kind}"] = scores
    return rounded(found)


def measure(settings: Mapping[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Setting -> score -> seed -> number."""
    figures = by_seed(settings, keep, "finite data", finite_data, settings)
    for name in contenders(np.zeros(1, int), 0):
        figures |= by_seed(settings, keep, name, four_groups, settings, name)
    return figures


# what the code computes


def numbers(algorithm: Any, end: Any) -> list[float]:
    """Of a finished run; of CFL also its rule, what the criterion saw, and the cuts."""
    found = running.numbers_of(algorithm, end)
    if isinstance(algorithm, (RelativeCFL, SteppedSplitHalfCFL)):
        rounds = algorithm.every if isinstance(algorithm, SteppedSplitHalfCFL) else algorithm.rest
        found += [rounds, algorithm.min_size, *end.state.norms[:, [0, 1, 2, 3, 4, -1]].flatten().tolist()]
        found += [v for c in end.state.splits for v in (c.round, c.objective, c.gap)]
    return found


def probe() -> running.Probe:
    """Two rounds of each method with eight clients of 18 or 19 digits, and a rule that splits at once."""
    drawn = digits(0, 150)
    drawn = replace(drawn, test=(drawn.test[0][:50], drawn.test[1][:50]))
    dealt, calm = (deal(drawn.train[1], 8, 0, groups) for groups in (2, 1))
    small: dict[str, Any] = {"rounds": 2, "seed": 0, "dtype": torch.float64, "device": "cpu"}
    quick: dict[str, Any] = {"batch_size": 10, "epochs": 2}
    at_once = RelativeCFL(LOSS, **LOCAL | quick, eps1=1.0, eps2=0.0, rest=1)
    arms = {}
    for name, method in (contenders(dealt.group, 0, clusters=2) | {RELATIVE: at_once}).items():
        algorithm = replace(method, **quick)
        if name == OURS:
            algorithm = replace(algorithm, level=0.9, every=2, min_size=1)
        end = run(algorithm, drawn, dealt, **small)
        arms[name] = numbers(algorithm, end)
        if name == RELATIVE:
            other = replay(replace(algorithm, eps2=1e9), end.state) or ()
            default = SteppedSplitHalfCFL(LOSS)
            arms[name] += [default.level, 1.0, *LENGTHS.values(), default.every, *other]
    never = SteppedSplitHalfCFL(LOSS, **LOCAL | quick, level=0.0)
    end = run(never, drawn, calm, **small)
    arms["one group"] = numbers(never, end)
    skewed = partition.dirichlet(drawn.train[1], 8, alpha=0.3, seed=0, min_rows=5)
    arms["label skew"] = numbers(never, run(never, drawn, skewed, **small))
    return arms


SETTINGS = {"examples": 3600, "clients": 20, "rounds": 160, "small": 110, "seeds": 5, "seed": 0}
PRESETS = {"full": running.Experiment("cfl", SETTINGS, measure, probe, ("mnist5k",))}
