"""Chapter 8: when FedCG's teacher and student come to one domain: rounds to a new teacher, rate, head and data.

Teacher and student see neither labels nor the model that is trained, so preset ``full`` trains them alone: all pairs of
a head side by side, with the clients, batches and starts that `fedlib.algorithms.FedCG` would give each. Every pair has
300 rounds, whatever T is: the student becomes the teacher 300 times with T = 1 and three times with T = 100. Each of
four federations has forty clients with twenty images of 16 x 16 pixels, four in a round:

- digits, turned: four turns, by client; half of the clients hold a second one;
- digits, styles: plain, inverted, noisy or low in contrast, by client;
- photos, turned: CIFAR-10, standardised over all clients, turned as the digits are;
- FEMNIST: characters by writer; no domains are planted, and the truth that is asked for is the writer.

Preset ``bytes`` repeats the smallest of the three rates with pixels from 0 to 255, in place of 0 to 1 or standardised
photos. Preset ``accuracy`` trains the whole of FedCG (without a graph) on more images, at the ends of the ranges of T
and of the rate, beside FedAvg and FedCG with one domain.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedlib
from book.experiments import running, worlds
from book.experiments.worlds import by_seed, femnist, loss_of, quiet
from fedlib import ClientData, Key, Params, datasets, models
from fedlib.algorithms import FedAvg, FedCG
from fedlib.algorithms.fedcg import occupancy
from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.data import Pixels
from fedlib.extensions import FedCGKnownDomains
from fedlib.extensions.mixture import nmi
from fedlib.losses import weighted_mean
from fedlib.params import broadcast, row

from . import fedcg_graph as graph  # how images are dealt

D, SIDE = 4, 16
KINDS = ("digits, turned", "digits, styles", "photos, turned", "FEMNIST")
HEADS = ("pooled", "4x4", "flatten")
FILTERS, STRIDES = (4, 8), (2, 1)

Settings = dict[str, Any]
Scores = dict[str, float]
Images = tuple[np.ndarray, np.ndarray, np.ndarray | None]  # x (R, C, H, W), y (R,), writer (R,)


# ---- federations ----


@dataclass(frozen=True)
class World:
    """Clients with images to train and to test, and what is true of each training image."""

    train: ClientData
    test: ClientData
    truth: tuple[np.ndarray, ...]
    classes: int


@cache
def images_of(kind: str) -> Images:
    """All images of a kind, from which each seed takes some."""
    if kind == "FEMNIST":  # white paper is 255
        return femnist()
    arrays = datasets.load("cifar10_jpeg" if kind.startswith("photos") else "mnist5k")
    return arrays.x, arrays.y, None


def small(x: np.ndarray, edge: int) -> np.ndarray:
    """Images of 16 x 16 pixels: a border of `edge` up to 32, then means of 2 x 2."""
    pad = (2 * SIDE - x.shape[-1]) // 2
    wide = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=edge)
    return worlds.shrunk(wide).view(Pixels)


def standardised(train: ClientData, test: ClientData) -> tuple[ClientData, ClientData]:
    """Both with mean 0 and deviation 1 in each channel of the training images."""
    x = train.x[train.index[train.real]].float() / 255
    mean, deviation = x.mean((0, 2, 3)), x.std((0, 2, 3))
    scaled = [(some.x.float() / 255 - mean[:, None, None]) / deviation[:, None, None] for some in (train, test)]
    return replace(train, x=scaled[0]), replace(test, x=scaled[1])


def in_bytes(data: ClientData) -> ClientData:
    """The same with pixels from 0 to 255."""
    return replace(data, x=data.x.float(), pixels=False)


def world(kind: str, settings: Settings, seed: int, images: Images | None = None) -> World:
    """The federation of a kind that a seed draws."""
    x, y, writer = images_of(kind) if images is None else images
    clients, sizes = settings["clients"], (settings["images"], settings["tests"])
    draw, classes, parts = np.random.RandomState(seed), int(y.max()) + 1, []
    if writer is not None:
        enough = np.flatnonzero(np.bincount(writer) >= settings["least"])
        people = np.sort(draw.permutation(enough)[:clients])
        rows = np.stack([draw.permutation(np.flatnonzero(writer == w))[: sum(sizes)] for w in people])
        for some in (rows[:, : sizes[0]], rows[:, sizes[0] :]):
            own = list(np.arange(some.size).reshape(some.shape))
            parts.append(fedlib.stack_rows(small(x[some.ravel()], 255), y[some.ravel()], own, classes=classes))
        return World(parts[0], parts[1], tuple(np.full(sizes[0], w) for w in people), classes)
    deal = graph.styled_deal if kind.endswith("styles") else graph.turned_deal
    for some, labels in graph.cut(graph.Images(x, y), seed, *(clients * size for size in sizes)):
        dealt = deal(labels, clients, seed)
        parts.append((dealt.clients(small(some, 0), labels, classes=classes), dealt.sample_group))
    (train, truth), (test, _) = parts
    if kind.startswith("photos") and not settings.get("bytes"):
        train, test = standardised(train, test)
    return World(train, test, truth, classes)


# ---- teacher and student ----


class Grid(DomainClassifier):
    """A classifier whose linear layer sees the mean of each channel in each of 4 x 4 parts of the image."""

    def __init__(self, image: tuple[int, int, int]) -> None:
        super().__init__(image, D, "flatten", FILTERS, STRIDES)
        layers = OrderedDict(self.module.named_children())
        before = [(name, layers[name]) for name in ("conv1", "relu1", "conv2", "relu2")]
        last = nn.Linear(16 * FILTERS[-1], D, device="meta")
        side = -(-image[1] // STRIDES[0]) // 4  # of a part
        after = [("mean", nn.AvgPool2d(side)), ("flatten", nn.Flatten()), ("dense1", last)]
        models.Model.__init__(self, nn.Sequential(OrderedDict(before + after)))  # type: ignore[arg-type]


def classifier(image: Sequence[int], head: str) -> DomainClassifier:
    """Teacher or student: the paper's two convolutions, with 4 and 8 filters for its 32 and 64."""
    if head == "4x4":
        return Grid(tuple(image))
    return DomainClassifier(tuple(image), D, head, FILTERS, STRIDES)


def fedcg(student: DomainClassifier, network: models.Model, layer: str, **settings: Any) -> FedCG:
    """FedCG without a graph: modules in one layer of a network, and this student."""
    net = DomainNet(network, D, (layer,), student)
    return FedCG(loss_of(net), net=net, predict=net, gcn=None, **settings)


def starts(here: World, student: DomainClassifier, seed: int, dtype: torch.dtype) -> tuple[Params, Params]:
    """Where FedCG's student and teacher start, as stacks of one row; the network beside them is of no consequence."""
    rule = fedcg(student, models.MLP((here.train.x[0].numel(), here.classes)), "dense1")
    params = {name: p.to(dtype) for name, p in rule.net.init(seed).items()}
    state = rule.init(params, here.train, Key(seed))
    return tuple({n.removeprefix("student."): p for n, p in s.items()} for s in (state.student, state.teacher))


def says(net: DomainClassifier, stack: Params, data: ClientData, dtype: torch.dtype = torch.float32) -> Tensor:
    """The domain (M, K, N) that each network of a stack gives each image."""
    x = data.all_rows(dtype)[0]
    with torch.no_grad():
        return torch.vmap(net, (0, None))(stack, x.flatten(0, 1)).argmax(-1).unflatten(1, x.shape[:2])


Watch = Callable[[int, Params, Params], None]  # round, students, and the teachers that they learned from


def train_pairs(
    here: World,
    net: DomainClassifier,
    arms: Sequence[tuple[int, float]],
    settings: Settings,
    seed: int,
    watch: Watch = lambda t, students, teachers: None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Params, Params]:
    """Students and teachers (M, ...) of all arms (T, rate) after the rounds, as FedCG would train each by itself.

    The arms have the same cohorts and batches. A step at rate r is one at rate 1 on r times the loss.
    """

    def imitate(params: Params, batch: Any, rate: Tensor, teacher: Params) -> Tensor:  # Eq. 3
        x, _, real = batch
        d_hat = F.one_hot(net(teacher, x).argmax(-1), D)
        return rate * weighted_mean(-(d_hat * net(params, x).log_softmax(-1)).sum(-1), real)

    students, teachers = (broadcast(row(p, 0), len(arms)) for p in starts(here, net, seed, dtype))
    rates = torch.tensor([rate for _, rate in arms], dtype=dtype)
    for t in range(1, settings["rounds"] + 1):
        of_round = here.train, settings["cohort"], Key(seed, t), settings["batch_size"]
        students = worlds.together(imitate, students, (rates, teachers), *of_round)
        watch(t, students, teachers)
        new = torch.tensor([t % every == 0 for every, _ in arms])
        teachers = {n: torch.where(new.view(-1, *[1] * (p.ndim - 1)), students[n], p) for n, p in teachers.items()}
    return students, teachers


def scores_of(here: World, domains: Tensor) -> Scores:
    """How the images (K, N) fall into the domains, and what the domains have to do with turn, style or writer."""
    real = here.train.real
    share, entropy = occupancy(domains[real].bincount(minlength=D).double())
    w = F.one_hot(domains, D) * real[..., None]
    return {"largest domain": float(share.max()), "entropy": entropy, "NMI": nmi(here.truth, w)}


def by_chance(here: World, seed: int) -> float:
    """The NMI of four equal domains that are dealt at random."""
    draw = np.random.RandomState(seed).permutation(int(here.train.n.sum())) % D
    domains = torch.zeros(here.train.index.shape, dtype=torch.int64)
    domains[here.train.real] = torch.from_numpy(draw)
    return scores_of(here, domains)["NMI"]


def label(every: int, rate: float) -> str:
    """Of an arm."""
    return f"rate {rate:g}, T = {every}"


@quiet()
def pairs(settings: Settings, kind: str, head: str, seed: int) -> dict[str, Scores]:
    """All T and rates: the domains after the last round, and those of the first teacher."""
    here = world(kind, settings, seed)
    if settings.get("bytes"):
        here = replace(here, train=in_bytes(here.train))
    net, arms = classifier(here.train.x.shape[1:], head), list(product(settings["T"], settings["rates"]))
    rows: dict[str, Scores] = {}

    def watch(t: int, students: Params, teachers: Params) -> None:
        if t == 1:
            rows["untrained"] = scores_of(here, says(net, {n: p[:1] for n, p in teachers.items()}, here.train)[0])
        if t == settings["rounds"]:
            taught, learned = says(net, teachers, here.train), says(net, students, here.train)
            for arm, before, domains in zip(arms, taught, learned, strict=True):
                agree = float((before == domains)[here.train.real].double().mean())
                rows[label(*arm)] = scores_of(here, domains) | {"agreement": agree}

    train_pairs(here, net, arms, settings, seed, watch)
    return rows | {"four domains at random": {"NMI": by_chance(here, seed)}}


def measure(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Kind and head -> arm -> score -> seed."""
    both = {f"{kind}, {head}": (kind, head) for kind, head in product(settings["kinds"], settings["heads"])}
    return {part: by_seed(settings, keep, part, pairs, settings, *which) for part, which in both.items()}


# ---- accuracy ----


def network(here: World) -> models.CNN:
    """The network that is trained; its last layer gets the modules."""
    return models.CNN(tuple(here.train.x.shape[1:]), (8, 16), (32, here.classes), 3, 1, pool=1, strides=(2, 2))


def rules(here: World, settings: Settings) -> dict[str, tuple[Any, Any]]:
    """Of each arm the network and the algorithm: FedAvg, one domain, and FedCG as printed but for the graph."""
    plain, head = network(here), settings["head"]
    local = {"lr": settings["lr"], "batch_size": settings["batch_size"]}

    found: dict[str, tuple[Any, Any]] = {"FedAvg": (plain, FedAvg(loss_of(plain), predict=plain, **local))}
    student = classifier(here.train.x.shape[1:], head)
    for every, rate in product(settings["T"], settings["rates"]):
        rule = fedcg(student, plain, "dense2", refresh=every, student_lr=rate, **local)
        found[label(every, rate)] = rule.net, rule
    alone = DomainNet(plain, 1, ("dense2",), DomainClassifier(student.image, 1, "pooled", (1,), (7,)))

    told = {"weights": "teacher", "teacher": lambda data, key: torch.ones(*data.index.shape, 1)}
    one = FedCGKnownDomains(loss_of(alone), net=alone, predict=alone, gcn=None, **told, **local)
    return found | {"one domain": (alone, one)}


@quiet()
def accuracy(settings: Settings, kind: str, name: str, seed: int) -> dict[str, Scores]:
    """A run's accuracy on held-out images, and how one-sided its domains are at the end."""
    here = world(kind, settings, seed)
    net, rule = rules(here, settings)[name]
    rounds, cohort = settings["rounds"], settings["cohort"]
    tested = {"eval_data": here.test, "eval_every": rounds // 10, "seed": seed}
    end = fedlib.fit(rule, net.init(seed), here.train, rounds, cohort, **tested, **worlds.ON_CPU)
    found = {"accuracy, last three": float(end.history["test_accuracy"].dropna().tail(3).mean())}
    if isinstance(rule, FedCG) and not isinstance(rule, FedCGKnownDomains):
        student = {n.removeprefix("student."): p for n, p in end.state.student.items()}
        found |= scores_of(here, says(net.classifier, student, here.train)[0])
    return {name: found}


def measure_accuracy(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Kind -> arm -> score -> seed."""
    figures: dict[str, Any] = {kind: {} for kind in settings["kinds"]}
    names = ["FedAvg", "one domain", *(label(t, rate) for t, rate in product(settings["T"], settings["rates"]))]
    for kind, name in product(settings["kinds"], names):
        figures[kind] |= by_seed(settings, keep, f"{kind}, {name}", accuracy, settings, kind, name)
    return figures


# ---- probes ----


def generated(kind: str) -> Images:
    """A few random images, some brighter than others, and their writers."""
    draw, channels = np.random.RandomState(0), 3 if kind.startswith("photos") else 1
    side, y = (32 if channels == 3 else 28), np.arange(96) % 6
    x = draw.randint(0, 128, (96, channels, side, side)) + (20 * y)[:, None, None, None]
    return x.astype(np.uint8), y, np.arange(96) // 12 if kind == "FEMNIST" else None


FEW = {"clients": 8, "images": 8, "tests": 4, "least": 12, "cohort": 3, "rounds": 2, "batch_size": 5}


def tiny(kind: str) -> World:
    """Eight clients, of unequal sizes."""
    here = world(kind, FEW, 0, generated(kind))
    n = here.train.n - torch.arange(8) % 3
    truth = tuple(t[:k] for t, k in zip(here.truth, n.tolist(), strict=True))
    return replace(here, train=replace(here.train, n=n), truth=truth)


@quiet()
def probe() -> running.Probe:
    """Two rounds of each head on each kind, and the worlds themselves."""
    found = {}
    for kind in KINDS:
        here, arms = tiny(kind), [(1, 0.1), (2, 0.5)]
        for head in HEADS:
            net = classifier(here.train.x.shape[1:], head)
            students, teachers = train_pairs(here, net, arms, FEW, 0, dtype=torch.float64)
            sums = [float((p * torch.arange(1, 1 + p[0].numel()).view(p[0].shape)).mean()) for p in students.values()]
            found[f"{kind}, {head}"] = sums + [float(p.square().mean()) for p in teachers.values()]
        x, y, real = here.train.all_rows(torch.float64)
        held = here.test.all_rows(torch.float64)[0]
        seen = x.mean(), (x * y[:, :, None, None, None]).mean(), real.sum(), held.square().mean()
        scores = scores_of(here, (y.long() + torch.arange(8)[:, None]) % D)
        truth = np.concatenate(here.truth) @ np.arange(int(real.sum()))
        found[f"world: {kind}"] = [*map(float, seen), *scores.values(), by_chance(here, 0), float(truth)]
    return found


@quiet()
def probe_accuracy() -> running.Probe:
    """Two rounds of each arm on digits that are turned."""
    here, settings = tiny("digits, turned"), ACCURACY | {"batch_size": 5}
    return {
        name: running.trace(rule, net.init(0), here.train, 2, 3, eval_data=here.test)
        for name, (net, rule) in rules(here, settings).items()
    }


# ---- the experiments ----

COMMON: Settings = {"kinds": list(KINDS), "clients": 40, "cohort": 4, "batch_size": 10, "rounds": 300, "tests": 20}
COMMON |= {"least": 100}  # images of a writer of FEMNIST
SETTINGS = COMMON | {"heads": list(HEADS), "T": [1, 3, 10, 30, 100], "rates": [1e-4, 1e-2, 0.1]}
SETTINGS |= {"images": 20, "seeds": list(range(100, 110))}
BYTES = SETTINGS | {"rates": [1e-4], "bytes": True, "heads": ["pooled", "flatten"], "seeds": list(range(100, 105))}
ACCURACY = COMMON | {"head": "flatten", "T": [1, 100], "rates": [1e-4, 0.1], "lr": 0.1}
ACCURACY |= {"images": 80, "seeds": list(range(100, 105))}
DATA = ("mnist5k", "cifar10_jpeg", "femnist300")


PRESETS = {
    "full": running.Experiment("fedcg_collapse", SETTINGS, measure, probe, DATA),
    "bytes": running.Experiment("fedcg_collapse_bytes", BYTES, measure, probe, DATA),
    "accuracy": running.Experiment("fedcg_collapse_accuracy", ACCURACY, measure_accuracy, probe_accuracy, DATA),
}
