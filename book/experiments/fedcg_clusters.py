"""How FedCG's domains are found: Caldarola et al. (2021), Section 4.2.2, Table 4, on characters of FEMNIST.

All sixteen lines of the paper's table: domains are clusters of clients by k-means on the parameters of models trained
alone, or come from the teacher and student as printed ("classifier"); modules are in both convolutions or in the last
one; A starts as the identity or at random; at test a sample takes its likeliest domain ("hard") or all of them by the
student's probabilities ("soft"). Of one model with a classifier both are scored. FedAvg and FedCG with one domain are
added, which tell what domains are worth.

The paper's table is on CelebA; here are writers of femnist300 (see `fedlib.datasets`), with images of 14 x 14 pixels.
The test is of writers nobody has seen; one who is to join k-means' clusters trains alone first, as all others did. W is
I + P R^T with sixteen columns, R from zero; A follows Eq. 6 after a tenth of the rounds, and the teacher is renewed
each tenth. A score is the mean of the last three, of all test images together.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import fedlib
from book.experiments import running
from book.experiments.fedcg_femnist import OneConvolution
from book.experiments.worlds import ON_CPU, LowRank, Rows, by_seed, loss_of, quiet, small_characters
from fedlib import ClientData, Key, Result, evaluation, models, partition
from fedlib.algorithms import ClusteredKMeans, FedAvg, FedCG
from fedlib.algorithms.fedcg import FedCGState
from fedlib.client.domain_net import DomainClassifier
from fedlib.data import Pixels
from fedlib.extensions import FedCGKnownDomains
from fedlib.params import Params, row

CLASSES = 62
NETWORK = models.CNN((1, 14, 14), (8, 16), (64, CLASSES), 3, 1)
PLACES = {"all": ("conv1", "conv2"), "last": ("conv2",)}
SETTINGS: dict[str, Any] = {
    "writers": [120, 60],  # who train, and who test
    "images": 60,  # of each
    "epochs alone": 5,  # before k-means
    "every": 20,  # rounds between two scores
}
SETTINGS |= {"rounds": 150, "cohort": 10, "lr": 0.1, "batch_size": 10, "width": 16, "seeds": [0, 1, 2, 3, 4]}
Settings = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """What is trained for one line of Table 4, or for two (hard and soft)."""

    found: str = "classifier"  # or "k-means"
    layers: str = "all"
    A: str = "eye"
    domains: int = 4

    @property
    def name(self) -> str:
        """As it stands in the figures, without hard or soft."""
        return f"{self.layers}, {self.A}, {self.found}, D = {self.domains}"


WAYS = (("k-means", "eye"), ("classifier", "eye"), ("classifier", "rand"))
MODELS = [Model(found, "all", A, domains) for (found, A), domains in product(WAYS, (2, 3, 4))]
MODELS += [Model(layers="last", domains=d) for d in (2, 3, 4, 32)]
MODELS += [Model(layers=layers, domains=1) for layers in PLACES]


class RandomGraph(FedCG):
    """FedCG whose A starts at random, with rows that sum to 1."""

    def init(self, params: Params, data: ClientData, key: Key) -> FedCGState:
        """As FedCG, with another A."""
        state = super().init(params, data, key)
        draw = key.uniform(torch.arange(self.net.domains), "A", self.net.domains).to(state.adjacency)
        return replace(state, adjacency=draw / draw.sum(1, keepdim=True))


# ---- the writers ----


def writers(settings: Settings, seed: int) -> tuple[ClientData, ClientData]:
    """Those who train and those who test, a seed's draw of them and of their images."""
    (x, y, writer), draw, found = small_characters(), np.random.RandomState(seed), []
    each = settings["images"]
    people = draw.permutation(np.flatnonzero(np.bincount(writer) >= each))
    for some in np.split(people, np.cumsum(settings["writers"]))[:-1]:
        rows = np.concatenate([draw.permutation(np.flatnonzero(writer == w))[:each] for w in some])
        found.append(partition.by_user(writer[rows]).clients(x[rows].view(Pixels), y[rows], classes=CLASSES))
    return found[0], found[1]


# ---- the models ----


def algorithm_of(settings: Settings, model: Model, network: models.CNN, w: Tensor | None = None) -> FedCG:
    """FedCG for a line of the table; `w` (K, N, D) are the domains of k-means."""
    student = DomainClassifier(network.image, model.domains, strides=(2, 2))
    net, each = OneConvolution(network, model.domains, PLACES[model.layers], student), max(1, settings["rounds"] // 10)
    how = {"lr": settings["lr"], "batch_size": settings["batch_size"], "epochs": 1, "net": net, "predict": net}
    how |= {"gcn": LowRank(width=settings["width"]), "warm_up": each}
    if w is not None:
        return FedCGKnownDomains(loss_of(net), teacher=lambda data, key: w, weights="teacher", **how)
    return (RandomGraph if model.A == "rand" else FedCG)(loss_of(net), refresh=each, **how)


def due(settings: Settings, t: int) -> bool:
    """Whether models are scored after round t, the same rounds for all."""
    return t % settings["every"] == 0 or t == settings["rounds"]


def right(algorithm: FedCG, state: Any, test: ClientData, w: Tensor | None) -> dict[str, float]:
    """Share of right answers, with the domains of clients (K, D) or the student's, hard and soft."""
    params = row(algorithm.client_params(state, torch.zeros(1, dtype=torch.int64)), 0)
    x, y, real, *_ = test.all_rows(params["lam.conv2"].dtype)
    keep = real.flatten() > 0
    x, y = x.flatten(0, 1)[keep], y.flatten()[keep]
    if w is None:
        soft = algorithm.net.logits(params, x).softmax(1)
        weights = {"hard": F.one_hot(soft.argmax(1), soft.shape[1]).to(soft), "soft": soft}
    else:
        weights = {"hard": w[:, None].expand(-1, real.shape[1], -1).flatten(0, 1)[keep]}
    with torch.no_grad():
        answers = {how: algorithm.net(params, x, each).argmax(1) for how, each in weights.items()}
    return {how: float((answer == y).double().mean()) for how, answer in answers.items()}


def train(
    settings: Settings, model: Model, groups: tuple[ClientData, ClientData], seed: int, network: models.CNN, **more: Any
) -> tuple[Rows, FedCG, Result]:
    """The lines of a model with their scores, and the run."""
    data, test = groups
    how = ON_CPU | {"seed": seed} | more
    w = own = None
    if model.found == "k-means":
        local = {"lr": settings["lr"], "batch_size": settings["batch_size"], "warmup": settings["epochs alone"]}
        rule = ClusteredKMeans(loss_of(network), clusters=model.domains, predict=network, **local)
        clustered = fedlib.fit(rule, network.init(seed), data, 1, 1, **how)  # by models that clients train alone
        joined = fedlib.new_clients(rule, clustered, test, seed=seed)
        hot = [F.one_hot(end.state.assignment, model.domains).float() for end in (clustered, joined)]
        w, own = hot[0][:, None].expand(-1, data.index.shape[1], -1), hot[1]
    algorithm, curve = algorithm_of(settings, model, network, w), []

    def watch(t: int, state: Any, record: dict[str, Any]) -> None:
        if due(settings, t):
            curve.append(right(algorithm, state, test, own))

    with quiet():  # as printed the domains collapse
        start = algorithm.net.init(seed)
        end = fedlib.fit(algorithm, start, data, settings["rounds"], settings["cohort"], callbacks=[watch], **how)
    late = {kind: float(np.mean([scores[kind] for scores in curve[-3:]])) for kind in curve[0]}
    share = float(end.state.share.max())
    rows = {f"{model.name}, {kind}": {"accuracy": a, "largest domain": share} for kind, a in late.items()}
    return rows, algorithm, end


def fedavg(settings: Settings, groups: tuple[ClientData, ClientData], seed: int) -> Rows:
    """FedAvg with the same network, cohorts and batches, scored after the same rounds."""
    rule, curve = FedAvg(loss_of(NETWORK), lr=settings["lr"], batch_size=settings["batch_size"], predict=NETWORK), []
    data, test = groups

    def watch(t: int, state: Any, record: dict[str, Any]) -> None:
        if due(settings, t):
            served = fedlib.new_clients(rule, Result(state, data.id, None), test)  # type: ignore[arg-type]
            curve.append(float(evaluation.pooled(fedlib.evaluate(rule, served, test))["accuracy"]))

    run = {"seed": seed, "callbacks": [watch], **ON_CPU}
    fedlib.fit(rule, NETWORK.init(seed), data, settings["rounds"], settings["cohort"], **run)
    return {"FedAvg": {"accuracy": float(np.mean(curve[-3:]))}}


# ---- the experiment ----


def lines(settings: Settings, model: Model | None, seed: int) -> Rows:
    """A model's lines of the table; None is FedAvg."""
    groups = writers(settings, seed)
    return train(settings, model, groups, seed, NETWORK)[0] if model else fedavg(settings, groups, seed)


def measure(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Line -> score -> seed."""
    figures: dict[str, Any] = {}
    for model in (None, *MODELS):
        name = model.name if model else "FedAvg"
        figures |= by_seed(settings, keep, name, lines, settings, model, arms=(name,))
    return figures


def probe() -> running.Probe:
    """Two rounds of each model on generated images."""
    settings = SETTINGS | {"rounds": 2, "cohort": 3, "batch_size": 3, "every": 1, "width": 3, "epochs alone": 1}
    network = models.CNN((1, 8, 8), (2, 3), (6, 4), 3, 1)
    draw, groups = np.random.RandomState(0), []
    for first, sizes in ((0, (8, 6, 3, 8, 5)), (5, (4, 2))):
        xs = [draw.randint(0, 256, (n, 1, 8, 8)).astype(np.uint8) for n in sizes]
        ys, ids = [draw.randint(4, size=n) for n in sizes], range(first, first + len(sizes))
        groups.append(fedlib.stack_clients(xs, ys, ids, classes=4, pixels=True))
    numbers = {}
    for model in MODELS:
        rows, algorithm, end = train(settings, model, (groups[0], groups[1]), 0, network, dtype=torch.float64)
        params = algorithm.client_params(end.state, torch.arange(1)).values()
        numbers[model.name] = [*(float(p.square().mean()) for p in params), *(s["accuracy"] for s in rows.values())]
    plain = FedAvg(loss_of(network), lr=settings["lr"], batch_size=3, predict=network)
    return numbers | {"FedAvg": running.trace(plain, network.init(0), groups[0], 2, 3)}


PRESETS = {"full": running.Experiment("fedcg_clusters", SETTINGS, measure, probe, data=("femnist300",))}
