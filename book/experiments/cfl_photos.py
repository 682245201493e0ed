"""CFL on photos, as in Figure 3 of its paper: all 50,000 of CIFAR-10, under four namings, beside its rivals.

Preset ``some``: 20 clients, 3 local epochs, batches of 100, splits after rounds 50, 100 and 150, as the paper says; it
gives no rounds, so 200. Of its network it says "5-layer convolutional neural network", and of the learning rate
nothing: here LeNet-5 (two convolutions, three dense layers) and .1, and once more a network with as many layers and
eight times the parameters. Beside them, with the same local training and as many rounds, are clusters given from the
start, IFCA and split-half CFL, and of the methods that sort clients once, before round 1, how they sort them. On one
core a run of LeNet-5 takes 45 minutes, one of the wider network 100, all of them seven hours; on a GPU minutes. What is
trained so far lies in _build/experiments/, or in the folder that FEDLIB_CHECKPOINTS names, and the same command goes on
from there. The photos are sought in the folder that FEDLIB_DATA names; set ``data`` to "cifar10" for the files as
published.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import fedlib
from book.experiments import running
from book.experiments.cfl_variants import OURS, ScheduledCFL, Watched
from book.experiments.worlds import EXACT, checkpoints, loss_of
from fedlib import Checkpoint, datasets, models, statistics

from . import cfl as digits  # the same experiment with digits

NETWORKS = {
    "five layers": models.lenet5(),  # 62,006 parameters
    "wider": models.CNN(image=(3, 32, 32), channels=(16, 32), widths=(512, 128, 10), padding=0),
}
MAIN = "five layers: CFL, paper's schedule"
ARMS = (  # the most telling first
    MAIN,
    "wider: CFL, paper's schedule",
    "five layers: true groups",
    "five layers: IFCA",
    f"five layers: {OURS}",
    "five layers: k-means on updates",
    "five layers: FedGroup",
    "five layers: PACFL",
)
ONCE = ARMS[-3:]  # these sort the clients before round 1


@dataclass(frozen=True)
class WatchedSchedule(Watched, ScheduledCFL):
    """CFL that keeps the cosines of every round, split on a schedule."""


def method(name: str, network: models.Model, group: np.ndarray, schedule: tuple[int, ...]) -> Any:
    """The algorithm of an arm, by the second half of its name."""
    if name == "CFL, paper's schedule":
        return WatchedSchedule(loss_of(network), **digits.LOCAL | {"predict": network}, schedule=schedule)
    return digits.contenders(group, 0, len(np.unique(group)), network)[name]


def run(arm: str, photos: datasets.Arrays, rows: Any, settings: Mapping[str, Any], **more: Any) -> tuple[Any, Any, Any]:
    """The federation of an arm on these rows of the photos: how clients were dealt, the algorithm, and the result."""
    x, y, seed = photos.x[rows], photos.y[rows], settings["seed"]
    dealt = digits.deal(y, settings["clients"], seed)
    data = dealt.clients(x, y, classes=10)
    chosen, name = arm.split(": ")
    network = NETWORKS[chosen]
    algorithm = method(name, network, dealt.group, tuple(settings["schedule"]))
    note = digits.score_clients(network, dealt, photos.x_test, photos.y_test, digits.shares_of(data), settings["every"])
    end = fedlib.fit(algorithm, network.init(seed), data, settings["rounds"], seed=seed, callbacks=[note], **more)
    return dealt, algorithm, end


def watched(state: Any, rounds: np.ndarray) -> dict[str, Any]:
    """Cosines of all pairs and clusters in some rounds, of a run that kept them."""
    i, j = np.triu_indices(state.cosines.shape[1], 1)
    cosines = state.cosines[rounds - 1][:, i, j].double().cpu().numpy().round(2)
    return {"cosines": cosines.tolist(), "clusters": state.clusters[rounds - 1].tolist()}


def over_rounds(arm: str, photos: datasets.Arrays, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracy of each client every few rounds, and of Figure 3's run the cosines; goes on from its checkpoint."""
    seed, examples = settings["seed"], settings["examples"]
    file = f"cfl_{settings['data']}_{examples}_{seed}_{ARMS.index(arm)}.safetensors"
    checkpoint = Checkpoint(checkpoints() / file, every_seconds=120.0)
    rows = np.random.RandomState(seed).permutation(len(photos.x))[:examples]
    dealt, _, end = run(arm, photos, rows, settings, checkpoint=checkpoint)
    history = end.history.dropna(subset=["client 0"])
    accuracy, t = history.filter(regex="^client ").to_numpy(), history["round"].to_numpy()
    figures: dict[str, Any] = {"rounds": t.tolist(), "groups": dealt.group.tolist()}
    figures["accuracy"] = accuracy.mean(1).round(4).tolist()
    if arm == MAIN:
        figures |= {"accuracy": accuracy.round(3).tolist(), **watched(end.state, t)}
    if hasattr(end.state, "splits"):
        figures["splits"] = [c.round for c in end.state.splits]
    if hasattr(end.state, "assignment"):
        figures["ARI"] = statistics.cluster_scores(dealt.group, end.state.assignment.cpu())["ari"]
    checkpoint.path.unlink(missing_ok=True)  # the figures are kept
    return figures


def measure(settings: Mapping[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Figure 3's run, and beside it the mean accuracy of the other arms."""
    photos = datasets.load(settings["data"])  # before anything is trained
    found = {arm: keep(arm, over_rounds, arm, photos, settings) for arm in settings["arms"]}
    found |= {arm: keep(arm, over_rounds, arm, photos, settings | {"rounds": 1}) for arm in settings["one round"]}
    return found[MAIN] | {"others": {arm: one for arm, one in found.items() if arm != MAIN}}


def made_photos() -> datasets.Arrays:
    """Sixty photos of noise, 44 of which are for training."""
    draw = np.random.RandomState(0)
    x, y = draw.randint(0, 256, (60, 3, 32, 32), np.uint8), draw.randint(0, 10, 60)
    return datasets.Arrays(x[:44], y[:44], x[44:], y[44:], stats=datasets.stats("cifar10"))


def probe_arm(arm: str) -> list[float]:
    """Two rounds of an arm with eight clients of five or six made photos, cut after the first."""
    photos, settings = made_photos(), {"clients": 8, "seed": 0, "rounds": 2, "schedule": (1,), "every": 5}
    dealt, algorithm, end = run(arm, photos, np.arange(44), settings, **EXACT)
    found = digits.numbers(algorithm, end)
    if arm == MAIN:
        found += end.state.cosines.double().sum((1, 2)).tolist()
    if arm == f"five layers: {OURS}":  # which has no test in its first rounds
        tested, data = replace(algorithm, level=0.9, every=1, min_size=1), dealt.clients(photos.x, photos.y, classes=10)
        end = fedlib.fit(tested, NETWORKS["five layers"].init(0), data, 3, seed=0, **EXACT)
        found += digits.numbers(tested, end) + end.state.norms[:, 5].tolist()
        found += [algorithm.level, algorithm.every, algorithm.test_epochs]
    return found


SETTINGS = {"data": "cifar10_jpeg", "examples": 50_000, "clients": 20, "seed": 0}
SETTINGS |= {"arms": list(ARMS[:5]), "one round": list(ONCE)}
SETTINGS |= {"rounds": 200, "schedule": [50, 100, 150], "every": 5}


def probe() -> running.Probe:
    """Every arm."""
    return {arm: probe_arm(arm) for arm in ARMS}


PRESETS = {"some": running.Experiment("cfl_photos", SETTINGS, measure, probe, ("cifar10_jpeg",))}
