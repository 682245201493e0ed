"""Figure 3 of CFL's paper as it was meant: independent permutations, and photos prepared as its first author does.

Preset ``full``: CIFAR-10, 20 clients in four groups, 3 local epochs, batches of 100, learning rate .1, splits after
rounds 50, 100 and 150 of 200. The paper does not say how the photos are prepared; its first author's public program
crops, flips and normalises. Each arm changes one of these, for either network of `cfl_photos`, with three seeds. On one
core a run takes two hours, on a GPU a minute or two.

Preset ``whole``: of these the smaller network with all three preparations, one seed: two hours on one core.

Preset ``group``: the five clients of one group by themselves, as if it had been known from the start, for 60 rounds. It
says what the preparation of the photos does to the models that CFL ends with: ten minutes an arm on one core.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedlib
from book.experiments import running
from book.experiments.running import Experiment, Keep
from book.experiments.worlds import EXACT, checkpoints, seeds_of
from fedlib import augment, datasets, losses, partition, statistics
from fedlib.engines.checkpoint import Checkpoint

from . import cfl as digits
from .cfl_photos import NETWORKS, WatchedSchedule, made_photos, watched

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the channels of CIFAR-10's training photos
PREPARED = {  # what is done to the photos: crop and flip, normalise
    "as they are": (False, False),
    "normalised": (False, True),
    "cropped and flipped": (True, False),
    "all three": (True, True),
}
ARMS = (*(f"five layers: {how}" for how in PREPARED), "wider: as they are", "wider: all three")
DRAWN = "five layers: all three"  # whose clients, clusters and cosines are kept, of the first seed


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
    local = digits.LOCAL | {"predict": predict, "min_size": 1}  # the paper has no least size
    algorithm = WatchedSchedule(loss, **local, schedule=tuple(settings["schedule"]))
    shares = digits.shares_of(data)
    note = digits.score_clients(predict, dealt, photos.x_test, photos.y_test, shares, settings["every"])
    try:
        end = fedlib.fit(algorithm, network.init(seed), data, settings["rounds"], seed=seed, callbacks=[note], **more)
    except FloatingPointError as error:  # the learning rate is too high for this arm: the rounds before
        end = error.result  # type: ignore[attr-defined]
    return dealt, algorithm, end


def over_rounds(arm: str, photos: datasets.Arrays, settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Accuracy every few rounds, and what was split; goes on from its checkpoint."""
    file = f"cfl_figure3_{settings['data']}_{settings['clients']}_{ARMS.index(arm)}_{seed}.safetensors"
    checkpoint = Checkpoint(checkpoints() / file, every_seconds=120.0)
    dealt, _, end = run(arm, photos, settings, seed, checkpoint=checkpoint)
    history = end.history.dropna(subset=["client 0"])
    accuracy, t = history.filter(regex="^client ").to_numpy(), history["round"].to_numpy()
    figures: dict[str, Any] = {
        "lasted": len(end.history),  # rounds; fewer than asked for where a client's loss became infinite
        "rounds": t.tolist(),
        "accuracy": accuracy.mean(1).round(4).tolist(),
        "splits": [[c.round, *np.bincount(c.part.cpu(), minlength=2).tolist()] for c in end.state.splits],
        "ARI": statistics.cluster_scores(dealt.group, end.state.assignment.cpu())["ari"],
        "of each group": [accuracy[-1, dealt.group == g].mean().round(4) for g in range(settings["groups"])],
        "device": torch.cuda.get_device_name() if end.state.models["dense1.bias"].is_cuda else "CPU",
    }
    if arm == DRAWN and seed == settings["seed"]:
        figures |= {"groups": dealt.group.tolist(), "clients": accuracy.round(3).tolist(), **watched(end.state, t)}
    checkpoint.path.unlink(missing_ok=True)  # the figures are kept
    return figures


def measure(settings: Mapping[str, Any], keep: Keep, arms: Sequence[str]) -> dict[str, Any]:
    """Arm -> seed -> accuracy over rounds, splits, groups found."""
    photos = datasets.load(settings["data"])  # before anything is trained
    return {
        arm: {
            str(s): keep(f"{arm}, seed {s}", over_rounds, arm, photos, settings, s, arms=[arm])
            for s in seeds_of(settings)
        }
        for arm in arms
    }


def probe_arm(arm: str) -> list[float]:
    """Two rounds of an arm with eight clients of five or six made photos, cut after the first."""
    settings = {"examples": 44, "clients": 8, "groups": 4, "rounds": 2, "schedule": (1,), "every": 5}
    _, algorithm, end = run(arm, made_photos(), settings, 0, **EXACT)
    return digits.numbers(algorithm, end) + end.state.cosines.double().sum((1, 2)).tolist()


SETTINGS = {
    "data": "cifar10_jpeg",
    "examples": 50_000,
    "clients": 20,
    "groups": digits.GROUPS,
    "rounds": 200,
    "schedule": [50, 100, 150],
    "every": 5,
    "seed": 0,
    "seeds": 3,
}
WHOLE = SETTINGS | {"seeds": 1}
GROUP = SETTINGS | {"examples": 12_500, "clients": 5, "groups": 1, "rounds": 60, "schedule": [], "seeds": 1}


def probe(arms: Sequence[str] = ARMS) -> running.Probe:
    """Every arm, or some."""
    return {arm: probe_arm(arm) for arm in arms}


DATA = ("cifar10_jpeg",)
PRESETS = {
    "full": Experiment("cfl_figure3", SETTINGS, measure, probe, DATA, by_arm=True),
    "whole": Experiment("cfl_figure3_whole", WHOLE, measure, partial(probe, [DRAWN]), DATA, by_arm=True),
    "group": Experiment("cfl_figure3_group", GROUP, measure, partial(probe, ARMS[:4]), DATA, by_arm=True),
}
