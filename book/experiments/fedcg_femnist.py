"""FedCG on FEMNIST beside its rivals, with the same visits to clients: Caldarola et al. (2021), Section 4.3, Table 5.

The characters are those of femnist300 (see `fedlib.datasets`): 272 writers with a hundred or more. As in the paper 60 %
of the writers train, 20 % are for validation and 20 % for the test, LEAF's network answers, five clients train in a
round, one epoch with batches of ten, and accuracy is that of all images of the test writers together. One draw decides
who trains; a seed draws the start and who takes part.

Preset ``paper`` has the paper's learning rate and its 1,000 rounds, for the methods of Table 5. Preset
``full`` has 150 rounds, five seeds and more rivals; FedAvg and either recipe of FedCG take the best of four rates on
the validation writers, the others the rate of one of these. Where a run diverges, it is done again at the next lower
rate. The book's recipe also has runs at a rate that its name gives, with four domains and with a single one.

Preset ``program`` is FedAvg with the paper's rate again, as in the first author's public program (see
`book/reproduction/fedcg.md`): with its padding, its batches, as many steps as a writer's images allow there, or all.
Preset ``printed`` is FedCG with the paper's rate and its W, on a GPU.

What differs from the paper, besides the number of writers:

- The paper's projection W is a bottleneck by a factor of 16: 328 million parameters for the last convolution. Here the
  bottleneck leaves ``width`` numbers, which a CPU can train; preset ``printed`` has the paper's. Both have two layers
  with A in each, as the paper's.
- The classifiers' convolutions step by two, which the paper leaves open.
- Of each validation and test writer's images some are set aside, by which one may join: IFCA chooses a cluster by
  their labels, the book's FedCG estimates the writer's domains without labels. Nobody is scored on these.
- CFL with relative lengths needs all clients in a round, so it has as many visits to clients in fewer rounds.

"FedCG, paper" has teacher and student as printed, random starts, and ReLU. "FedCG, book" has domains from federated EM
(chapter 9), weights from the student, equal starts, W = I + P R^T and no ReLU. Two controls are "FedCG, paper" without
a teacher, with domains drawn at random, and with a single one. SCAFFOLD and CFL hold 26 MB for each client: 14 GB in
all.

A run goes on from its checkpoint, in the folder FEDLIB_CHECKPOINTS, by default _build/experiments.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

import fedlib
from book.experiments import faces, running
from book.experiments.cfl_variants import RELATIVE, RelativeCFL
from book.experiments.worlds import EXACT, EqualStart, LowRank, by_seed, checkpoints, enter, femnist, loss_of, quiet
from fedlib import Algorithm, Checkpoint, ClientData, Key, Params, Result, evaluation, models, partition
from fedlib.algorithms import IFCA, FedAvg, FedAvgM, FedCG, FedProx, Scaffold
from fedlib.client.domain_net import DomainClassifier, DomainNet, part
from fedlib.data import Pixels
from fedlib.extensions import FedCGKnownDomains
from fedlib.extensions.mixture import em_domains
from fedlib.server.domain_graph import DomainGCN

MIN_ROWS = 100  # of a writer
CLASSES = 62
LAYER = "conv2"  # with modules: the last convolution
RATES = [0.03, 0.06, 0.1, 0.3]
CONTROLS = {"FedCG, told one domain": 1, "FedCG, random domains": 4}  # their domains, which no teacher found
RIVALS = ["FedProx", "SCAFFOLD", "FedAvgM", "IFCA", RELATIVE]
RECIPES = [f"FedCG, {recipe}, D = {d}" for recipe in ("paper", "book") for d in (4, 3, 2)]
METHODS = ["FedAvg", *RECIPES, *CONTROLS, *RIVALS]
FULL: dict[str, Any] = {
    "methods": [*METHODS, "FedCG, book, D = 4 at 0.03", "FedCG, book, D = 1 at 0.03"],  # at 0.06 D = 1 may diverge
    "fraction": [0.6, 0.2, 0.2],  # of the writers
    "joining": 0.2,  # of the images of a writer who was not in training
    "every": 50,  # rounds between two scores
    "width": 16,  # of the bottleneck W, and of P and R
}
FULL |= {"rounds": 150, "cohort": 5, "epochs": 1, "batch_size": 10, "seeds": [0, 1, 2, 3, 4]}
FULL |= {"rates": RATES, "rounds that choose": 40, "seed that chooses": 9}
PAPER = FULL | {
    "methods": ["FedAvg", "FedCG, paper, D = 4", "FedProx", "SCAFFOLD"],
    "rates": [0.001],
    "rounds": 1000,
    "seeds": [0],
    "every": 100,
}
LIKE = {  # whose rate a method takes, if it has no choice of its own
    **dict.fromkeys(RIVALS, "FedAvg"),
    **dict.fromkeys((*CONTROLS, "FedCG, paper, D = 2", "FedCG, paper, D = 3"), "FedCG, paper, D = 4"),
    **dict.fromkeys((f"FedCG, book, D = {d}" for d in (2, 3)), "FedCG, book, D = 4"),
}
PRINTED = PAPER | {"methods": ["FedCG, paper, D = 4"], "width": 3204}  # a sixteenth of the layer's 51,264 numbers
PROGRAM = PAPER | {"methods": ["more rounds", "padding", "order", "all three"], "more rounds": 1383}  # 227 / 164 images
PARTS = {"more rounds": ("rounds",), "padding": ("padding",), "order": ("order",)}
PARTS["all three"] = tuple(part for (part,) in PARTS.values())

Settings = dict[str, Any]
Scores = dict[str, float]


# ---- network and graph ----


class OneConvolution(DomainNet):
    """The same network, with one convolution for a sample in the place of one for each domain.

    A convolution is linear in its filters, so theta_a and the modules of Eq. 4 can be added before it. That costs about
    what a layer without modules costs.
    """

    def __call__(self, params: Params, x: Tensor, w_d: Tensor | None = None) -> Tensor:
        """As `DomainNet`'s, rounding apart."""
        w_d = (self.weights(params, x) if w_d is None else w_d).to(x)
        for name, layer in self.net.module.named_children():
            own = part(params, name)
            x = self.mixed(layer, own, params, name, x, w_d) if name in self.layers else functional_call(layer, own, x)
        return x

    def mixed(self, layer: Any, own: Params, params: Params, name: str, x: Tensor, w_d: Tensor) -> Tensor:
        """A convolution whose filters are each sample's own."""
        modules, w_d = part(params, f"V.{name}"), params[f"lam.{name}"] * w_d
        filters = own["weight"].flatten(1) + (w_d @ modules["weight"].flatten(1)).unflatten(1, (len(own["bias"]), -1))
        bias = own["bias"] + w_d @ modules["bias"]
        patches = F.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        height = (x.shape[2] + 2 * layer.padding[0] - layer.kernel_size[0]) // layer.stride[0] + 1
        return (filters @ patches + bias[..., None]).unflatten(2, (height, -1))


class EqualNet(EqualStart, OneConvolution):
    """All modules start from one draw."""


class Padded(models.CNN):
    """LEAF's network as the public program has it: one pixel around each convolution and around each pooling."""

    def __init__(self, image: tuple[int, int, int], channels: tuple[int, int], widths: tuple[int, int]) -> None:
        super().__init__(image, channels, widths)
        layers = OrderedDict(self.module.named_children())
        for i, (inputs, outputs) in enumerate(pairwise((image[0], *channels)), 1):
            layers[f"conv{i}"] = nn.Conv2d(inputs, outputs, self.kernel, padding=1)
            layers[f"pool{i}"] = nn.MaxPool2d(2, padding=1)
        models.Model.__init__(self, nn.Sequential(layers))


class InOrder(Key):
    """A key that shuffles nothing."""

    def permutations(self, ids: Tensor, purpose: str, lengths: Tensor, repeats: int, size: int) -> Tensor:
        """0, ..., size - 1 for each client."""
        return torch.arange(size, device=ids.device).expand(len(ids), repeats, size)


class Unshuffled(FedAvg):
    """FedAvg with the same batches in each round, in the order of the files."""

    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> fedlib.Update:
        """As FedAvg."""
        return super().train(state, data, clients, InOrder(key.seed, key.round))


# ---- the writers ----


@dataclass(frozen=True)
class World:
    """Writers who train, and those of two more groups, whose images are of two parts: to join by, and to be scored."""

    train: ClientData
    validation: tuple[ClientData, ClientData]
    test: tuple[ClientData, ClientData]
    statistics: Scores
    network: models.CNN


def world(settings: Settings, network: models.CNN | None = None) -> World:
    """The groups of writers, the same for all seeds."""
    x, y, writer = femnist()
    groups = faces.split_users(writer, settings["fraction"], MIN_ROWS, seed=0)
    statistics = faces.client_statistics(writer, MIN_ROWS) | {"classes": float(len(np.unique(y)))}
    return world_of(x, y, writer, groups, settings["joining"], statistics, network or models.femnist_cnn())


def world_of(
    x: np.ndarray, y: np.ndarray, writer: np.ndarray, groups: Any, joining: float, statistics: Scores, net: models.CNN
) -> World:
    """Who train, and two groups whose images are of two parts, of which the first has this share."""
    found: list[Any] = []
    for n, group in enumerate(groups):
        rows, classes = np.flatnonzero(np.isin(writer, group)), net.widths[-1]
        dealt = partition.by_user(writer[rows])
        parts = dealt.split((joining, 1 - joining), 0) if n else [dealt]
        found.append(tuple(p.clients(x[rows], y[rows], classes=classes) for p in parts))
    (train,), validation, test = found
    return World(train, validation, test, statistics, net)


# ---- the methods ----


def drawn(data: ClientData, key: Key, domains: int) -> Tensor:
    """A domain for each image, at random (K, N, D)."""
    draw = torch.from_numpy(np.random.RandomState(key.seed).randint(domains, size=tuple(data.index.shape)))
    return F.one_hot(draw, domains).float()


def fedcg(settings: Settings, here: World, name: str, rounds: int, local: dict[str, Any]) -> FedCG:
    """FedCG by a recipe, or with the domains of a control."""
    domains = CONTROLS.get(name) or int(name[-1])
    book = "book" in name
    student = DomainClassifier(here.network.image, domains, "pooled", strides=(2, 2))
    net = (EqualNet if book else OneConvolution)(here.network, domains, (LAYER,), student)
    each = max(1, rounds // 10)
    how = local | {"loss": loss_of(net), "predict": net, "net": net, "warm_up": each}
    if book:
        teacher = partial(em_domains, domains=domains, classes=CLASSES)
        return FedCGKnownDomains(gcn=LowRank(relu=False, width=settings["width"]), teacher=teacher, **how)
    q = sum(math.prod(shape) for n, shape in here.network.shapes().items() if n.startswith(f"{LAYER}."))
    how["gcn"] = DomainGCN("bottleneck", factor=max(1, q // settings["width"]))
    if name not in CONTROLS:
        return FedCG(refresh=each, **how)
    told = partial(drawn, domains=domains)
    return FedCGKnownDomains(teacher=told, weights="teacher", student_lr=1e-4, **how)


def method(settings: Settings, here: World, name: str, rate: float, rounds: int) -> tuple[Algorithm, int, int]:
    """The algorithm, its rounds, and the clients in each."""
    local = {"lr": rate, "batch_size": settings["batch_size"], "epochs": settings["epochs"]}
    if "FedCG" in name:
        return fedcg(settings, here, name, rounds, local), rounds, settings["cohort"]
    plain = {"loss": loss_of(here.network), "predict": here.network, **local}
    if name == RELATIVE:  # all clients, so as many visits; split-half CFL would need three times the memory
        fewer = max(1, round(rounds * settings["cohort"] / len(here.train)))
        return RelativeCFL(chunk_size=5, eps1=0.15, eps2=0.4, rest=3, **plain), fewer, len(here.train)
    if name == "FedAvgM":  # a step of the momentum is ten updates long
        plain["lr"] = rate / 10
    kinds: dict[str, Callable[..., Algorithm]] = {
        "FedAvg": FedAvg,
        "FedProx": partial(FedProx, mu=0.1),
        "FedAvgM": FedAvgM,
        "SCAFFOLD": Scaffold,
        "IFCA": partial(IFCA, clusters=3),
        **{name: Unshuffled if "order" in parts else FedAvg for name, parts in PARTS.items()},
    }
    return kinds[name](**plain), rounds, settings["cohort"]


# ---- one run ----


def accuracy(algorithm: Algorithm, result: Result, group: tuple[ClientData, ClientData], seed: int) -> float:
    """Share of right answers to all scored images of new writers, who join by their others."""
    joining, scored = group
    served = fedlib.new_clients(algorithm, result, joining, seed=seed)
    return float(evaluation.pooled(fedlib.evaluate(algorithm, served, scored))["accuracy"])


def run(
    settings: Settings, name: str, seed: int, rate: float, rounds: int, group: str = "test", here: World | None = None
) -> Scores:
    """Train by a method, and score it on a group of new writers from time to time."""
    here = here or world(settings)
    algorithm, rounds, cohort = method(settings, here, name, rate, rounds)
    every = max(1, round(settings["every"] * settings["cohort"] / cohort))
    slug = "".join(c for c in f"{name} {group} {seed} {rate} {rounds}" if c.isalnum() or c in " .").replace(" ", "_")
    path = checkpoints() / f"fedcg_femnist_{slug}.safetensors"

    def watch(t: int, state: Any, record: dict[str, Any]) -> None:
        if t % every == 0 or t == rounds:
            record["new writers"] = accuracy(algorithm, Result(state, here.train.id, None), group_of, seed)  # type: ignore[arg-type]

    group_of = here.test if group == "test" else here.validation
    start = (algorithm.net if isinstance(algorithm, FedCG) else here.network).init(seed)
    kept = {"callbacks": [watch], "checkpoint": Checkpoint(path, every_seconds=300)}
    with quiet():  # as printed the domains collapse
        end = fedlib.fit(algorithm, start, here.train, rounds, cohort, seed=seed, progress=False, **kept)
    curve = end.history.set_index("round")["new writers"].dropna()  # the book's domains have a round 0
    found = {"accuracy": float(curve.iloc[-1]), "rate": rate, "rounds": float(rounds)}
    found |= {f"after {v} visits": float(a) for v, a in zip(curve.index * cohort, curve, strict=True)}
    if isinstance(algorithm, FedCG):
        found |= {"lambda": float(end.state.models[f"lam.{LAYER}"][0]), "largest domain": float(end.state.share.max())}
    path.unlink(missing_ok=True)  # the caller keeps the scores
    return {score: round(value, 5) for score, value in found.items()}


def tried(settings: Settings, name: str, rate: float) -> float:
    """Accuracy on the validation writers; 0 where training diverged."""
    seed, rounds = settings["seed that chooses"], settings["rounds that choose"]
    try:
        return run(settings, name, seed, rate, rounds, "validation")["accuracy"]
    except FloatingPointError:
        return 0.0


def finished(settings: Settings, name: str, seed: int, rate: float) -> Scores:
    """`run` at this rate, or where training diverges at the next lower one."""
    try:
        return run(settings, name, seed, rate, settings["rounds"])
    except FloatingPointError:
        lower = [r for r in settings["rates"] if r < rate]
        if not lower:
            raise
    return finished(settings, name, seed, max(lower))  # out here, where the run that diverged has left memory


# ---- the experiment ----


def measure(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Choose rates, then run, seed by seed: method -> score -> seed; ``rates``, and ``data``, FedCG's Table 1."""
    rates: dict[str, float] = {}
    for name in (n for n in settings["methods"] if n not in LIKE and " at " not in n):
        choice = settings["rates"]
        scores = [keep(f"{name} at {r}", tried, settings, name, r) for r in choice] if len(choice) > 1 else [0]
        rates[name] = choice[int(np.argmax(scores))]
    figures: dict[str, Any] = {"rates": rates, "data": world(settings).statistics}
    for seed in settings["seeds"]:
        for row in settings["methods"]:
            name, _, own = row.partition(" at ")
            rate = float(own) if own else rates[LIKE.get(name, name)]
            scores = keep(f"{row}, seed {seed}", finished, settings, name, seed, rate, arms=(name,))
            enter(figures, seed, {row: scores})
    return figures


def as_program(settings: Settings, name: str, seed: int) -> dict[str, Scores]:
    """`run` of FedAvg with one part of the public program, or with all."""
    parts, network = PARTS[name], models.femnist_cnn()
    if "padding" in parts:
        network = Padded(network.image, network.channels, network.widths)
    rounds = settings["more rounds" if "rounds" in parts else "rounds"]
    return {name: run(settings, name, seed, settings["rates"][0], rounds, here=world(settings, network))}


def measure_program(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Part of the public program -> score -> seed."""
    figures: dict[str, Any] = {}
    for name in settings["methods"]:
        figures |= by_seed(settings, keep, name, as_program, settings, name, digits=5, arms=(name,))
    return figures


def small() -> World:
    """Ten writers with a few generated images of 8 x 8 pixels, of four classes, and a small network."""
    draw, y = np.random.RandomState(0), np.arange(180) % 4
    x = (draw.randint(0, 160, (180, 1, 8, 8)) + 30 * y[:, None, None, None]).astype(np.uint8).view(Pixels)
    writer = np.repeat(np.arange(10), np.arange(9, 28, 2))  # 9 to 27 images
    groups = range(4, 10), (0, 1), (2, 3)
    return world_of(x, y, writer, [[*group] for group in groups], 0.3, {}, models.CNN((1, 8, 8), (2, 3), (6, 4), 3, 1))


def probe(rows: Sequence[str]) -> running.Probe:
    """Two rounds of each method on a small network, and how new writers are served."""
    settings, here = FULL | {"cohort": 3, "batch_size": 5, "width": 4}, small()
    numbers, plain = {}, here.network
    for name in dict.fromkeys(row.partition(" at ")[0] for row in rows):
        padded = "padding" in PARTS.get(name, ())
        here = replace(here, network=Padded(plain.image, (2, 3), (6, 4)) if padded else plain)
        algorithm, rounds, cohort = method(settings, here, name, 0.1, 2)
        if "book" in name:  # its random view of the images is in float32, and of a larger image
            algorithm = replace(algorithm, teacher=partial(drawn, domains=algorithm.net.domains))  # type: ignore[attr-defined]
        start = (algorithm.net if isinstance(algorithm, FedCG) else here.network).init(0)
        with quiet():
            end = fedlib.fit(algorithm, start, here.train, rounds, cohort, **EXACT)
        served = fedlib.new_clients(algorithm, end, here.test[0])
        numbers[name] = running.numbers_of(algorithm, end) + running.scores_of(algorithm, served, here.test[1])
    return numbers


def experiment(result: str, settings: Settings, how: Callable[..., Any] = measure) -> running.Experiment:
    """A preset, whose probe has its methods."""
    return running.Experiment(result, settings, how, partial(probe, settings["methods"]), ("femnist300",))


PRESETS = {
    "full": experiment("fedcg_femnist", FULL),
    "paper": experiment("fedcg_femnist_paper", PAPER),
    "printed": experiment("fedcg_femnist_printed", PRINTED),
    "program": experiment("fedcg_femnist_program", PROGRAM, measure_program),
}
