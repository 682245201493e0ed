"""Chapters 8 and 9: who finds the domains of single images: FedCG's teacher and student, their mends, a mixture model.

Forty clients hold handwritten digits, turned by four angles that nobody has written down; half of the clients hold two
of them. Preset ``full`` measures with each of five seeds

- the shares that random teachers give to the domains;
- mends of the recipe, k-means on clients, federated EM, and a perfect clustering of the clients, by the normalised
  mutual information (NMI) with the true turns;
- federated EM with parts left out and with other numbers of domains;
- EM's student and the mixture on held-out images, with and without the client's own shares of the domains.
"""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import fedlib
from book.experiments.worlds import Rows, enter, loss_of, quiet
from fedlib import ClientData, Key, models
from fedlib.algorithms import ClusteredKMeans, FedCG
from fedlib.algorithms.fedcg import FedCGState, occupancy
from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.extensions import FedCGKnownDomains
from fedlib.extensions.mixture import EMResult, em_domains, federated_em, nmi
from fedlib.params import row
from fedlib.server.clusters import kmeans

from . import fedcg_graph as graph  # its turned digits
from . import running

D, CLASSES = 4, 10
LOCAL = {"lr": 0.1, "batch_size": 20, "epochs": 1}
LINEAR = models.MLP((784, CLASSES))
HEADS = ("pooled", "flatten")
TAU = 0.1  # of Sinkhorn's steps
NOTHING, GUESSED, OWN = "nothing", "shares, guessed here", "shares, from training"
VARIANTS: dict[str, dict[str, Any]] = {
    "in full": {},
    "no class": {"classes": 1},
    "one prior for all": {"client_prior": False},
    "temperature 1": {"temperature": 1.0},
    **{f"D = {n}": {"domains": n} for n in (2, 3, 5, 6)},
}


def classifier(head: str) -> DomainClassifier:
    """Teacher or student: the paper's, with fewer filters."""
    return DomainClassifier((1, 28, 28), D, head, (8, 16), (2, 1))


# ---- the world ----


def world(settings: dict[str, Any], seed: int) -> graph.World:
    """Digits dealt at random and turned by client; half of the clients hold a second turn, in 30 % of their samples."""
    sizes = {"train": settings["examples"], "test": settings["held out"], "clients": settings["clients"]}
    return graph.turned_world(sizes | {"conflict": LOCAL}, seed)


def fedcg(student: DomainClassifier, kind: type[FedCG] = FedCG, **settings: Any) -> FedCG:
    """FedCG without a graph: a linear network, a module in it for each domain, and this student."""
    net = DomainNet(LINEAR, D, ("dense1",), student)
    return kind(loss_of(net), **(LOCAL | {"net": net, "predict": net, "gcn": None} | settings))


def known(student: DomainClassifier, teacher: Any) -> FedCG:
    """The teacher is a function; the network trains with its likeliest domains."""
    return fedcg(student, FedCGKnownDomains, teacher=teacher, weights="teacher")


def run(algorithm: FedCG, data: ClientData, rounds: int, cohort: int, seed: int, **more: Any) -> fedlib.Result:
    """A federation of some rounds."""
    start = algorithm.net.init(seed)
    return fedlib.fit(algorithm, start, data, rounds, cohort, seed=seed, progress=False, **({"device": "cpu"} | more))


# ---- the collapse ----


def look(head: str, data: ClientData, images: int, seed: int) -> Tensor:
    """Outputs (K n, D) of a random teacher of the paper's size for the first images of each client."""
    net, some = DomainClassifier((1, 28, 28), D, head), data.x[data.index[:, :images]].flatten(0, 1) / 255
    return net({n: p.to(some) for n, p in net.init(seed).items()}, some)


def random_teachers(here: graph.World, teachers: int, images: int, seed: int) -> Rows:
    """Share of the largest domain, and why: how far the outputs lie apart, how far images move them."""
    rows = {}
    for head in HEADS:
        found = []
        for draw in range(teachers):
            each = look(head, here.train, images, 1000 * seed + draw)
            share, _ = occupancy(each.argmax(1).bincount(minlength=D))
            found.append([float(share.max()), float(each.mean(0).std()), float(each.std(0).mean())])
        names = ("largest domain", "between", "within")
        rows[f"random teachers: {head}"] = dict(zip(names, np.mean(found, 0).tolist(), strict=True))
    return rows


# ---- mends ----


class Sinkhorn(FedCG):
    """A bias on the teacher's logits moves the mean probability of each domain to one in D."""

    def train(self, state: FedCGState, data: ClientData, clients: Tensor, key: Key) -> fedlib.Update:
        """As FedCG; a client also sends the sum of its probabilities."""
        update = super().train(state, data, clients, key)
        z = self.net.logits_of_all(state.teacher, data, state.bias.dtype) + state.bias
        update.summed["domains"]["bias"] = (probabilities(z) * data.real[..., None]).sum((0, 1))[None]
        return update

    def aggregate(self, state: FedCGState, update: fedlib.Update) -> FedCGState:
        """As FedCG, and one step of the bias; a new teacher starts without."""
        new, sums = super().aggregate(state, update), update.summed["domains"]
        if new.teacher is new.student:
            return new
        bias = state.bias - step(sums["bias"][0] / sums["count"].sum())
        return replace(new, bias=bias - bias.mean())


def probabilities(z: Tensor) -> Tensor:
    """Of the domains, by logits."""
    return (z / TAU).softmax(-1)


def step(mean: Tensor) -> Tensor:
    """One Sinkhorn step of the bias, up to a constant."""
    return TAU * mean.clamp(min=1e-30).log()


class ByLoss(FedCG):
    """A sample belongs to the domain whose module predicts its label best; there is no teacher network."""

    def init(self, params: Any, data: ClientData, key: Key) -> FedCGState:
        """No teacher."""
        return replace(super().init(params, data, key), teacher={})

    def train(self, state: FedCGState, data: ClientData, clients: Tensor, key: Key) -> fedlib.Update:
        """As FedCG; a client also sends how many samples each domain has."""
        update = super().train(state, data, clients, key)
        update.summed["domains"] = {"count": self.d_hat(state, data, clients).sum((0, 1))[None]}
        return update

    @torch.no_grad()
    def d_hat(self, state: FedCGState, data: ClientData, clients: Tensor) -> Tensor:
        """The domain of the smallest loss."""
        params = row(FedCG.client_params(self, state, clients), 0)
        x, y, real = data.all_rows(state.bias.dtype)
        z = torch.stack([self.net(params, x.flatten(0, 1), w.expand(real.numel(), D)) for w in torch.eye(D)])
        losses = F.cross_entropy(z.flatten(0, 1), y.flatten().repeat(D), reduction="none").view(D, *real.shape)
        return F.one_hot(losses.argmin(0), D).to(state.bias) * real[..., None]


TEACHERS = {"argmax": FedCG, "sinkhorn": Sinkhorn, "loss": ByLoss}


def teacher_says(rule: FedCG, state: FedCGState, here: graph.World) -> Tensor:
    """Weights (K, N, D) of the domains by the final teacher, with its mend taken to the end."""
    if isinstance(rule, Sinkhorn):
        z, bias = rule.net.logits_of_all(state.teacher, here.train, torch.float32)[here.train.real], torch.zeros(D)
        for _ in range(100):
            bias = bias - step(probabilities(z + bias).mean(0))
        state = replace(state, bias=bias)
    return rule.d_hat(state, here.train, torch.arange(len(here.train)))


def first_updates(data: ClientData, seed: int, dtype: torch.dtype = torch.float32) -> Any:
    """What each client makes of a common start in five epochs."""
    warm_up = ClusteredKMeans(loss_of(LINEAR), **LOCAL, clusters=D, warmup=5)
    start = warm_up.init({n: p.to(dtype) for n, p in LINEAR.init(seed).items()}, data, Key(seed))
    return warm_up.first_updates(start, data, Key(seed))


def mends(here: graph.World, rounds: int, seed: int) -> Rows:
    """Of each way to find domains: largest share, entropy, NMI with turn and digit."""
    data, found = here.train, {}
    for teacher, kind in TEACHERS.items():
        rule = fedcg(classifier("flatten"), kind, refresh=max(1, rounds // 10), student_lr=0.1)
        found[teacher] = teacher_says(rule, run(rule, data, rounds, max(1, len(data) // 8), seed).state, here)
    cluster = kmeans(first_updates(data, seed), D, seed).assignment.tolist()  # all samples of a client get its own
    same = [np.full(n, m) for n, m in zip(data.n.tolist(), cluster, strict=True)]
    found["k-means on clients, linear"] = graph.one_hot(same, data)
    found["federated EM"] = federated_em(data, D, CLASSES, seed).r
    main = [np.full(len(turn), np.bincount(turn).argmax()) for turn in here.domains]  # that of most of their samples
    found["perfect clustering of clients"] = graph.one_hot(main, data)
    digit = [y[:n].numpy() for y, n in zip(data.y, data.n.tolist(), strict=True)]
    rows = {}
    for name, w in found.items():
        share, entropy = occupancy(w[w.sum(-1) > 0].argmax(-1).bincount(minlength=D))
        rows[f"mend: {name}"] = {
            "largest domain": float(share.max()),
            "entropy": entropy,
            "NMI": nmi(here.domains, w),
            "NMI with the digit": nmi(digit, w),
        }
    return rows


# ---- the mixture ----


def evidence(em: EMResult, test: ClientData) -> float:
    """Mean tempered log density of held-out samples, given their labels and their clients' shares."""
    x, y = test.all_rows(em.mean.dtype)[0].flatten(0, 1), test.y.flatten()
    x = (em.features(x) - em.shift) / em.scale
    z = [((x - m[y]) ** 2 / v[y] + v[y].log()).sum(-1) for m, v in zip(em.mean, em.variance, strict=True)]
    z = -(torch.stack(z, -1) + x.shape[1] * np.log(2 * np.pi)) / 2
    z = (z / em.temperature).unflatten(0, test.index.shape) + em.pi.log()[:, None]
    return float(em.temperature * z.logsumexp(-1)[test.real].mean())


def mixture(data: ClientData, domains: int = D, classes: int = CLASSES, **settings: Any) -> EMResult:
    """Federated EM; with one class it sees no labels."""
    data = data if classes > 1 else replace(data, y=torch.zeros_like(data.y))
    return federated_em(data, domains, classes, **settings)


def mixtures(here: graph.World, seed: int) -> Rows:
    """NMI of federated EM with each change; the evidence where nothing but the number of domains differs."""
    rows = {}
    for name, change in VARIANTS.items():
        em = mixture(here.train, **({"seed": seed} | change))
        rows[f"EM: {name}"] = {"NMI": nmi(here.domains, em.r)}
        if name == "in full" or name.startswith("D ="):
            rows[f"EM: {name}"]["evidence"] = evidence(em, here.test)
    return rows


# ---- students ----


def students(here: graph.World, rounds: int, seed: int) -> Rows:
    """NMI of EM's student and of the mixture on held-out images, by what they know of the client."""
    rule, test = known(classifier("flatten"), partial(em_domains, domains=D, classes=CLASSES)), here.test
    end = run(rule, here.train, rounds, max(1, len(here.train) // 4), seed)
    new = replace(test, id=test.id + 1000)  # the same images, at clients never seen
    joined = fedlib.new_clients(rule, end, new, seed=seed).state
    em = federated_em(here.train, D, CLASSES, seed)
    said = {
        "student": {
            NOTHING: graph.students_weights(rule, end.state, test, prior=False),
            GUESSED: graph.students_weights(rule, joined, test),
            OWN: graph.students_weights(rule, end.state, test),
        },
        "mixture, no labels": {
            NOTHING: em.score(test, labels=False, iterations=0)[0],
            GUESSED: em.score(test, labels=False)[0],
            OWN: em.score(test, em.pi, labels=False)[0],
        },
    }
    truth = here.test_domains
    return {f"held out: {name}": {knows: nmi(truth, w) for knows, w in by.items()} for name, by in said.items()}


# ---- the experiments ----


def measure(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Setting -> score -> seed -> number."""
    figures: dict[str, Any] = {}
    for seed in settings["seeds"]:
        here = world(settings, seed)
        with quiet():
            for name, function, more in (
                ("mends", mends, (settings["mends"],)),
                ("mixtures", mixtures, ()),
                ("students", students, (settings["student"],)),
                ("random teachers", random_teachers, (settings["teachers"], settings["images"])),
            ):
                enter(figures, seed, keep(f"seed {seed}: {name}", function, here, *more, seed), 4)
    return figures


@cache
def small_world() -> graph.World:
    """Eight clients with twelve or thirteen images each."""
    return world({"examples": 100, "held out": 40, "clients": 8}, seed=0)


def probe() -> running.Probe:
    """Random teachers; two rounds of each way to find domains; the mixture's numbers; answers of a student."""
    here, double, found = small_world(), torch.float64, {}
    for head in HEADS:
        z = look(head, replace(here.train, x=here.train.x.double()), 1, seed=0)
        found[f"a random teacher, {head}"] = [*z.mean(0).tolist(), float(z.std())]
    for teacher in ("sinkhorn", "loss"):
        rule = fedcg(classifier("flatten"), TEACHERS[teacher], refresh=0, student_lr=0.1)
        with quiet():
            found[teacher] = running.trace(rule, rule.net.init(0), here.train, 2, 4)
    updates = first_updates(here.train, 0, double)
    centres = kmeans(updates, D, 0).centres
    found["k-means on clients, linear"] = [float(p.square().sum()) for p in (*updates.values(), centres)]
    for name in ("in full", "no class", "one prior for all", "temperature 1", "D = 3"):
        em = mixture(here.train, **({"seed": 0, "iterations": 3, "dtype": double} | VARIANTS[name]))
        told = [evidence(em, here.test)] if name == "in full" else []
        found[f"EM: {name}"] = [*em.objective.tolist(), *em.pi.square().sum(0).tolist(), *told]
    rule = known(classifier("flatten"), partial(em_domains, domains=D, classes=CLASSES, iterations=3, dtype=double))
    start = {name: p.double() for name, p in rule.net.init(0).items()}
    with quiet():
        end = run(rule, here.train, 2, 4, 0, dtype=double)
        new = fedlib.new_clients(rule, end, replace(here.test, id=here.test.id + 1000), seed=0)
        found["student of EM"] = running.trace(rule, start, here.train, 2, 4)
    found["held out"] = [
        float(v)
        for state, own in ((end.state, False), (end.state, True), (new.state, True))
        for v in graph.students_weights(rule, state, here.test, own).square().sum((0, 1))
    ]
    found["held out"] += [float(v) for v in em.score(here.test, em.pi, labels=False)[0].square().sum((0, 1))]
    return found


SETTINGS: dict[str, Any] = {"examples": 4000, "held out": 1000, "clients": 40, "seeds": [100, 101, 102, 103, 104]}
SETTINGS |= {"mends": 30, "student": 100}  # rounds
SETTINGS |= {"teachers": 5, "images": 10}  # random ones, and images of each client that one looks at
PRESETS = {"full": running.Experiment("fedcg_domains", SETTINGS, measure, probe, ("mnist5k",))}
