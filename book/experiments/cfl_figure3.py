"""Figure 3 of CFL's paper as it was meant: independent permutations, and photos prepared as its first author does.

Preset ``full``: CIFAR-10, 20 clients in four groups, 3 local epochs, batches of 100, learning rate .1, splits after
rounds 50, 100 and 150 of 200, with either network of `cfl_photos` and three seeds. The paper does not say how the
photos are prepared; its first author's public program crops, flips and normalises. Each of the six runs takes two hours
on one core; side by side on an NVIDIA H200 all of them took eight minutes.

Preset ``torn``: the seed whose first split separates one group from the rest. Each later split is of the cluster whose
mean update is shortest relative to its longest one, in place of that with the widest gap between cosines. Two hours on
one core.

Preset ``digits``: these two choices and a third, the longest update, on MNIST, with ten seeds: seven minutes.

Preset ``group``: the five clients of one group by themselves, as if it had been known from the start, for 60 rounds. It
says what each step of the preparation does to the models that CFL ends with: ten minutes an arm on one core.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedlib
from book.experiments import running
from book.experiments.worlds import EXACT, checkpoints, seeds_of
from fedlib import Checkpoint, augment, datasets, losses, partition, statistics

from . import cfl as digits
from .cfl_photos import NETWORKS, WatchedSchedule, made_photos, watched
from .cfl_variants import LongestFirstCFL, ScheduledCFL, TornFirstCFL, Watched

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the channels of CIFAR-10's training photos
PREPARED = {  # what is done to the photos: crop and flip, normalise
    "as they are": (False, False),
    "normalised": (False, True),
    "cropped and flipped": (True, False),
    "all three": (True, True),
}
DRAWN, WIDER = "five layers: all three", "wider: all three"
GAP, LONGEST, TORN = "widest gap", "longest update", "shortest mean"  # which cluster is split next


@dataclass(frozen=True)
class WatchedTorn(Watched, TornFirstCFL):
    """`TornFirstCFL` that keeps the cosines of every round."""


def prepared(network: Any, how: str) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Loss and prediction of a network whose photos are prepared so; only the loss crops and flips."""
    changed, normalised = PREPARED[how]

    def predict(params: Any, x: Tensor) -> Tensor:
        if normalised:
            mean, std = (torch.tensor(v, dtype=x.dtype, device=x.device).view(3, 1, 1) for v in (MEAN, STD))
            x = (x - mean) / std
        return network(params, x)

    def loss(params: Any, batch: Any) -> Tensor:
        x, y, w = batch
        if changed:
            x = augment.crop(augment.flip(x), 4)
        return losses.cross_entropy(predict(params, x), y, w)

    return loss, predict


def run(arm: str, photos: datasets.Arrays, settings: Mapping[str, Any], seed: int, **more: Any) -> tuple[Any, Any, Any]:
    """The federation of an arm: how the clients were dealt, the algorithm, and the result."""
    network_name, how = arm.split(": ")
    network = NETWORKS[network_name]
    loss, predict = prepared(network, how)
    rows = np.random.RandomState(seed).permutation(len(photos.x))[: settings["examples"]]
    y = photos.y[rows]
    even = partition.iid(y, settings["clients"], seed)
    dealt = partition.label_permutation(even, settings["groups"], seed=seed, cyclic=False)
    data = dealt.clients(photos.x[rows], y, classes=10)
    local = digits.LOCAL | {"predict": predict}
    rule = {GAP: WatchedSchedule, TORN: WatchedTorn}[settings["next"]]
    algorithm = rule(loss, **local, schedule=tuple(settings["schedule"]), min_size=1)  # the paper has no least size
    shares = digits.shares_of(data)
    note = digits.score_clients(predict, dealt, photos.x_test, photos.y_test, shares, settings["every"])
    try:
        end = fedlib.fit(algorithm, network.init(seed), data, settings["rounds"], seed=seed, callbacks=[note], **more)
    except FloatingPointError as error:  # the learning rate is too high for this arm: the rounds before
        end = error.result  # type: ignore[attr-defined]
    return dealt, algorithm, end


def over_rounds(arm: str, photos: datasets.Arrays, settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Accuracy every few rounds, and what was split; of one run all that is drawn. Goes on from its checkpoint."""
    file = f"cfl_figure3_{settings['data']}_{settings['clients']}_{arm}_{settings['next']}_{seed}.safetensors"
    checkpoint = Checkpoint(checkpoints() / file.replace(": ", "_").replace(" ", "_"), every_seconds=120.0)
    dealt, _, end = run(arm, photos, settings, seed, checkpoint=checkpoint)
    history = end.history.dropna(subset=["client 0"])
    accuracy, t = history.filter(regex="^client ").to_numpy(), history["round"].to_numpy()
    figures: dict[str, Any] = {
        "lasted": len(end.history),  # rounds; fewer than asked for where a client's loss became infinite
        "rounds": t.tolist(),
        "accuracy": accuracy.mean(1).round(4).tolist(),
        "splits": [[c.round, *np.bincount(c.part.cpu(), minlength=2).tolist()] for c in end.state.splits],
        "ARI": statistics.cluster_scores(dealt.group, end.state.assignment.cpu())["ari"],
    }
    if arm == DRAWN and seed == settings["seed"]:
        lengths = end.state.norms[:, :4]  # round, cluster, mean and longest update
        figures["lengths"] = [row for row in lengths.tolist() if row[0] in settings["schedule"]]
        figures |= {"groups": dealt.group.tolist(), "clients": accuracy.round(3).tolist(), **watched(end.state, t)}
    checkpoint.path.unlink(missing_ok=True)  # the figures are kept
    return figures


def measure(settings: Mapping[str, Any], keep: running.Keep, arms: Sequence[str]) -> dict[str, Any]:
    """Arm -> seed -> accuracy over rounds, splits, groups found."""
    photos = datasets.load(settings["data"])  # before anything is trained
    return by_seed(settings, keep, arms, lambda arm, seed: over_rounds(arm, photos, settings, seed))


def by_seed(settings: Mapping[str, Any], keep: running.Keep, arms: Sequence[str], function: Callable[..., Any]) -> Any:
    """Arm -> seed -> what the function gives for both."""
    seeds = seeds_of(settings)
    return {arm: {str(s): keep(f"{arm}, seed {s}", function, arm, s, arms=[arm]) for s in seeds} for arm in arms}


def on_digits(next: str, settings: Mapping[str, Any], seed: int) -> tuple[Any, Any]:
    """The schedule with digits whose labels are permuted as in the paper: the algorithm, and the result."""
    drawn = digits.digits(seed, settings["examples"])
    even = partition.iid(drawn.train[1], settings["clients"], seed)
    dealt = partition.label_permutation(even, settings["groups"], seed=seed, cyclic=False)
    rule = {GAP: ScheduledCFL, LONGEST: LongestFirstCFL, TORN: TornFirstCFL}[next]
    algorithm = rule(digits.LOSS, **digits.LOCAL, schedule=tuple(settings["schedule"]), min_size=1)
    return algorithm, digits.run(algorithm, drawn, dealt, settings["rounds"], seed)


def measure_digits(settings: Mapping[str, Any], keep: running.Keep, arms: Sequence[str]) -> dict[str, Any]:
    """Which cluster is split next -> seed -> how far the groups are found."""
    found = lambda arm, seed: {"ARI": on_digits(arm, settings, seed)[1].history["ari"].iloc[-1]}  # noqa: E731
    return by_seed(settings, keep, arms, found)


def probe_arm(arm: str, rounds: int = 4, next: str = GAP) -> list[float]:
    """A few rounds of an arm with eight clients of five or six made photos, cut after each but the last."""
    schedule = tuple(range(1, rounds))
    settings = {"examples": 44, "clients": 8, "groups": 4, "rounds": rounds, "schedule": schedule, "every": 5}
    _, algorithm, end = run(arm, made_photos(), settings | {"next": next}, 0, **EXACT)
    return digits.numbers(algorithm, end) + end.state.cosines.double().sum((1, 2)).tolist()


SETTINGS = {"data": "cifar10_jpeg", "examples": 50_000, "clients": 20, "groups": digits.GROUPS, "seed": 0, "seeds": 3}
SETTINGS |= {"rounds": 200, "schedule": [50, 100, 150], "next": GAP, "every": 5}
ONE_SEED = SETTINGS | {"next": TORN, "seed": 2, "seeds": 1}
DIGITS = {name: SETTINGS[name] for name in ("clients", "groups", "rounds", "schedule", "seed")}
DIGITS |= {"examples": 3600, "seeds": 10}
GROUP = SETTINGS | {"examples": 12_500, "clients": 5, "groups": 1, "rounds": 60, "schedule": [], "seeds": 1}


def probe() -> running.Probe:
    """Both networks."""
    return {arm: probe_arm(arm) for arm in (DRAWN, WIDER)}


def probe_torn() -> running.Probe:
    """The smaller network, with the other choice."""
    return {DRAWN: probe_arm(DRAWN, next=TORN)}


def probe_digits() -> running.Probe:
    """Each choice, with eight clients of 18 or 19 digits."""
    small = DIGITS | {"examples": 150, "clients": 8, "rounds": 4, "schedule": [1, 2, 3]}
    return {next: digits.numbers(*on_digits(next, small, 0)) for next in (GAP, LONGEST, TORN)}


def probe_group() -> running.Probe:
    """Every preparation, with one cut."""
    return {arm: probe_arm(arm, 2) for arm in (f"five layers: {how}" for how in PREPARED)}


PHOTOS = ("cifar10_jpeg",)
PRESETS = {
    "full": running.Experiment("cfl_figure3", SETTINGS, measure, probe, PHOTOS, by_arm=True),
    "torn": running.Experiment("cfl_figure3_torn", ONE_SEED, measure, probe_torn, PHOTOS, by_arm=True),
    "digits": running.Experiment("cfl_figure3_digits", DIGITS, measure_digits, probe_digits, ("mnist5k",), by_arm=True),
    "group": running.Experiment("cfl_figure3_group", GROUP, measure, probe_group, PHOTOS, by_arm=True),
}
