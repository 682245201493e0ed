"""Chapters 8 and 9: who finds the domains of single images: FedCG's teacher and student, their mends, a mixture model.

Forty clients hold handwritten digits, turned by four angles that nobody has written down; half of the clients hold two
of them. Preset ``full`` measures with each of five seeds

- the shares that random teachers give to the domains, and what is left of them under the recipe as printed;
- mends of the recipe, k-means on clients, federated EM, and two controls, by the normalised mutual information (NMI)
  with the true turns;
- federated EM with parts left out and with other numbers of domains;
- students of EM and of k-means on held-out images, with and without the client's own shares of the domains, and on
  images turned by any angle.

Preset ``paper`` runs the recipe as printed for 100 rounds with ten clients each: hours on a CPU, best on a GPU.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

import fedlib
from book.experiments.worlds import loss_of
from fedlib import ClientData, Key, datasets, models, partition
from fedlib.algorithms import ClusteredKMeans, FedCG
from fedlib.algorithms.fedcg import FedCGState, occupancy
from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.costs import message_bytes, open_costs, record
from fedlib.extensions import FedCGKnownDomains
from fedlib.extensions.mixture import EMResult, em_domains, federated_em, nmi
from fedlib.params import row
from fedlib.server.clusters import kmeans

from . import running

TURNS, D, CLASSES = (0, 90, 180, 270), 4, 10
LOCAL = {"lr": 0.1, "batch_size": 20, "epochs": 1}
HEADS = ("pooled", "flatten")
TAU = 0.1  # of Sinkhorn's steps
ANGLES = tuple(range(0, 360, 15))
NOTHING, GUESSED, OWN = "nothing", "shares, guessed here", "shares, from training"
VARIANTS: dict[str, dict[str, Any]] = {
    "in full": {},
    "no class": {"classes": 1},
    "one prior for all": {"client_prior": False},
    "temperature 1": {"temperature": 1.0},
    "5 iterations": {"iterations": 5},
    **{f"D = {n}": {"domains": n} for n in (2, 3, 5, 6)},
}

Rows = dict[str, dict[str, float]]  # what is measured with one seed: setting -> score -> number


def classifier(head: str, small: bool = True) -> DomainClassifier:
    """Teacher or student: the paper's network, or a small one."""
    size = {"channels": (8, 16), "strides": (2, 1)} if small else {}
    return DomainClassifier((1, 28, 28), D, head, **size)


# ---- the world ----


@dataclass(frozen=True)
class World:
    """Clients with their samples, for training and held out, and what is true of them."""

    data: ClientData
    test: ClientData
    turn: tuple[np.ndarray, ...]  # of each training sample, by client
    test_turn: tuple[np.ndarray, ...]
    main: np.ndarray  # the turn of most of a client's samples

    @property
    def real(self) -> Tensor:
        """Which places of the clients' rows hold a training sample."""
        return torch.arange(self.data.index.shape[1]) < self.data.n[:, None]


def world(examples: int, held_out: int, clients: int, seed: int) -> World:
    """Digits dealt at random and turned by client; half of the clients hold a second turn, in 30 % of their samples."""
    digits = datasets.load("mnist5k")
    order = np.random.RandomState(seed).permutation(len(digits.y))
    parts, tables = [], []
    for rows in (order[:examples], order[examples : examples + held_out]):
        dealt = partition.iid(digits.y[rows], clients, seed)
        turned = partition.rotation(dealt, TURNS, shares=(0.4, 0.3, 0.2, 0.1), seed=seed)
        parts.append(partition.mixture(turned, fraction=0.5, share=0.3, seed=seed))
        tables.append(parts[-1].clients(digits.x[rows], digits.y[rows]))
    return World(*tables, *(p.sample_group for p in parts), parts[0].group)


def fedcg(student: DomainClassifier, kind: type[FedCG] = FedCG, **settings: Any) -> FedCG:
    """FedCG without a graph: a linear network, a module in it for each domain, and this student."""
    net = DomainNet(models.MLP((784, CLASSES)), D, ("dense1",), student)

    return kind(loss_of(net), **(LOCAL | {"net": net, "predict": net, "gcn": None} | settings))


def printed(student: DomainClassifier, rounds: int, **settings: Any) -> FedCG:
    """The paper's settings for teacher and student; a new teacher after each tenth of the rounds."""
    return fedcg(student, refresh=max(1, rounds // 10), **settings)


def known(student: DomainClassifier, teacher: Any) -> FedCG:
    """The teacher is a function; the network trains with its likeliest domains."""
    return fedcg(student, FedCGKnownDomains, teacher=teacher, weights="teacher")


def run(algorithm: FedCG, data: ClientData, rounds: int, cohort: int, seed: int, **more: Any) -> fedlib.Result:
    """A federation of some rounds."""
    start = algorithm.net.init(seed)
    return fedlib.fit(algorithm, start, data, rounds, cohort, seed=seed, progress=False, **({"device": "cpu"} | more))


# ---- the collapse ----


def look(head: str, data: ClientData, images: int, seed: int) -> tuple[Tensor, Tensor]:
    """Outputs (K, n, D) of a random teacher of the paper's size for some images, and its features."""
    net = classifier(head, small=False)
    some = data.x[data.index[:, :images]] / 255
    maps, own = some.flatten(0, 1), {n: p.to(some) for n, p in net.init(seed).items()}
    for layer in ("conv1", "conv2"):
        maps = F.conv2d(maps, own[f"{layer}.weight"], own[f"{layer}.bias"], padding=1).relu()
    features = maps.mean((2, 3)) if head == "pooled" else maps.flatten(1)
    z = F.linear(features, own["dense1.weight"], own["dense1.bias"])
    return z.unflatten(0, some.shape[:2]), features


def random_teachers(here: World, teachers: int, images: int, seed: int) -> Rows:
    """Share of the largest domain, and why: how far the outputs lie apart, how far images move them."""
    rows = {}
    for head in HEADS:
        top, why = [], []
        for draw in range(teachers):
            z, features = look(head, here.data, images, 1000 * seed + draw)
            each = z.flatten(0, 1)
            share, _ = occupancy(each.argmax(1).bincount(minlength=D))
            top.append(float(share.max()))
            common = features.mean(0).square().sum() / features.square().sum(1).mean()
            why.append([float(each.mean(0).std()), float(each.std(0).mean()), float(common)])
        names = ("between", "within", "common")
        rows[f"random teachers: {head}"] = {
            "largest domain": float(np.mean(top)),
            "least": min(top),
            "most": max(top),
            **dict(zip(names, np.mean(why, 0).tolist(), strict=True)),
        }
    return rows


def largest_shares(rule: FedCG, data: ClientData, rounds: int, cohort: int, seed: int, **more: Any) -> dict[str, float]:
    """The largest domain's share in the first and last round, and the least of all rounds."""
    seen = []
    run(rule, data, rounds, cohort, seed, callbacks=[lambda t, state, _: seen.append(float(state.share.max()))], **more)
    return {"first": seen[0], "last": seen[-1], "least": min(seen)}


def recipe(here: World, settings: dict[str, Any], seed: int) -> Rows:
    """The recipe as printed; and with a small classifier, at the paper's learning rate and at a larger one."""
    rows, few = {}, max(1, settings["clients"] // 8)
    for head in HEADS:
        rule = printed(classifier(head, small=False), settings["literal"])
        rows[f"recipe: literal, {head}"] = largest_shares(
            rule, here.data, settings["literal"], settings["cohort"], seed
        )
        for rate in (1e-4, 0.1):
            rule = printed(classifier(head), settings["mends"], student_lr=rate)
            rows[f"recipe: small, {head}, rate {rate:g}"] = largest_shares(
                rule, here.data, settings["mends"], few, seed
            )
    return rows


# ---- mends ----


class Centred(FedCG):
    """The server takes the mean logit of the last cohort off the teacher's logits."""

    def train(self, state: FedCGState, data: ClientData, clients: Tensor, key: Key) -> fedlib.Update:
        """As FedCG; a client also sends the sum of what the bias follows."""
        update = super().train(state, data, clients, key)
        z = (
            self.followed(self.net.logits_of_all(state.teacher, data, state.bias.dtype) + state.bias)
            * data.real[..., None]
        )
        update.summed["domains"]["bias"] = z.sum((0, 1))[None]
        return update

    def aggregate(self, state: FedCGState, update: fedlib.Update) -> FedCGState:
        """As FedCG, and one step of the bias; a new teacher starts without."""
        new, sums = super().aggregate(state, update), update.summed["domains"]
        if new.teacher is new.student:
            return new
        bias = state.bias - self.step(sums["bias"][0] / sums["count"].sum())
        return replace(new, bias=bias - bias.mean())

    def followed(self, z: Tensor) -> Tensor:
        """Of each sample's logits, what the server is told the mean of."""
        return z

    def step(self, mean: Tensor) -> Tensor:
        """What to take off the bias."""
        return mean


class Sinkhorn(Centred):
    """The bias moves the mean probability of each domain to one in D."""

    def followed(self, z: Tensor) -> Tensor:
        """Probabilities."""
        return (z / TAU).softmax(-1)

    def step(self, mean: Tensor) -> Tensor:
        """One Sinkhorn step, up to a constant."""
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


TEACHERS = {"argmax": FedCG, "centred": Centred, "sinkhorn": Sinkhorn, "loss": ByLoss}


def teacher_says(rule: FedCG, state: FedCGState, here: World) -> Tensor:
    """Weights (K, N, D) of the domains by the final teacher, with its mend taken to the end."""
    if isinstance(rule, Centred):
        z, bias = rule.net.logits_of_all(state.teacher, here.data, torch.float32)[here.real], torch.zeros(D)
        for _ in range(100):
            bias = bias - rule.step(rule.followed(z + bias).mean(0))
        state = replace(state, bias=bias)
    return rule.d_hat(state, here.data, torch.arange(len(here.data)))


def first_updates(data: ClientData, net: Any, seed: int, dtype: torch.dtype = torch.float32) -> Any:
    """What each client makes of a common start in five epochs."""
    warm_up = ClusteredKMeans(loss_of(net), **LOCAL, clusters=D, warmup=5)
    start = warm_up.init({n: p.to(dtype) for n, p in net.init(seed).items()}, data, Key(seed))
    return warm_up.first_updates(start, data, Key(seed))


NETWORKS = {
    "CNN": models.CNN((1, 28, 28), (8, 16), (32, CLASSES), 3, 1, pool=1, strides=(2, 2)),
    "linear": models.MLP((784, CLASSES)),
}


def by_clients(data: ClientData, kind: str, seed: int) -> Tensor:
    """k-means on the clients' first updates: all samples of a client get its cluster."""
    updates = first_updates(data, NETWORKS[kind], seed)
    record("domains", bytes_up=len(data) * message_bytes(updates))
    cluster = kmeans(updates, D, seed).assignment
    return one_hot([np.full(n, m) for n, m in zip(data.n.tolist(), cluster.tolist(), strict=True)], data)


def one_hot(domains: Sequence[Any], data: ClientData) -> Tensor:
    """Weights (K, N, D) that give each sample its domain."""
    w = torch.zeros(*data.index.shape, D)
    for k, d in enumerate(domains):
        w[k, torch.arange(len(d)), torch.as_tensor(np.asarray(d)).long()] = 1
    return w


def mends(here: World, rounds: int, seed: int) -> Rows:
    """Of each way to find domains: largest share, entropy, NMI with turn and digit, kilobytes that a client sends."""
    data, found, sent = here.data, {}, {}
    for teacher, kind in TEACHERS.items():
        rule = fedcg(classifier("flatten"), kind, refresh=max(1, rounds // 10), student_lr=0.1)
        end = run(rule, data, rounds, max(1, len(data) // 8), seed)
        found[teacher] = teacher_says(rule, end.state, here)
        sent[teacher] = end.history["bytes_up (domains)"].sum()
    for name, find in {
        "k-means on clients, CNN": lambda: by_clients(data, "CNN", seed),
        "k-means on clients, linear": lambda: by_clients(data, "linear", seed),
        "federated EM": lambda: federated_em(data, D, CLASSES, seed).r,
    }.items():
        with open_costs() as ledger:
            found[name] = find()
        sent[name] = ledger.entries["domains"]["bytes_up"]
    of_client = [np.full(len(t), main) for t, main in zip(here.turn, here.main, strict=True)]
    chance = np.random.RandomState(seed).permutation(np.concatenate(here.turn))
    found["perfect clustering of clients"] = one_hot(of_client, data)
    found["random domains"] = one_hot(np.split(chance, data.n.cumsum(0)[:-1].tolist()), data)
    digit = [y[:n].numpy() for y, n in zip(data.y, data.n.tolist(), strict=True)]
    rows = {}
    for name, w in found.items():
        share, entropy = occupancy(w[w.sum(-1) > 0].argmax(-1).bincount(minlength=D))
        rows[f"mend: {name}"] = {
            "largest domain": float(share.max()),
            "entropy": entropy,
            "NMI": nmi(here.turn, w),
            "NMI with the digit": nmi(digit, w),
            "kB sent": sent.get(name, 0) / len(data) / 1e3,
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
    real = torch.arange(test.index.shape[1]) < test.n[:, None]
    return float(em.temperature * z.logsumexp(-1)[real].mean())


def mixture(data: ClientData, domains: int = D, classes: int = CLASSES, **settings: Any) -> EMResult:
    """Federated EM; with one class it sees no labels."""
    data = data if classes > 1 else replace(data, y=torch.zeros_like(data.y))
    return federated_em(data, domains, classes, **settings)


def mixtures(here: World, seed: int) -> Rows:
    """NMI of federated EM with each change; the evidence where nothing but the number of domains differs."""
    rows = {}
    for name, change in VARIANTS.items():
        em = mixture(here.data, **({"seed": seed} | change))
        rows[f"EM: {name}"] = {"NMI": nmi(here.turn, em.r)}
        if name == "in full" or name.startswith("D ="):
            rows[f"EM: {name}"]["evidence"] = evidence(em, here.test)
    return rows


# ---- students ----


def answers(rule: FedCG, state: Any, data: ClientData, own_shares: bool = True, dtype: Any = torch.float32) -> Tensor:
    """The student's weights of the domains for each sample, 0 for padding."""
    params = rule.client_params(state, torch.arange(len(data)))
    if not own_shares:
        params = {name: p for name, p in params.items() if name != "prior"}
    x, _, real = data.all_rows(dtype)
    with torch.no_grad():
        return torch.vmap(rule.net.weights)(params, x) * real[..., None]


def train_student(here: World, teacher: Any, rounds: int, seed: int) -> tuple[FedCG, Any, Any, pd.DataFrame]:
    """A run; the same with the mean of the students of its later half; and the NMI on held-out images over rounds."""
    rule, seen, later = known(classifier("flatten"), teacher), [], []

    def watch(t: int, state: Any, entry: Any) -> None:
        if t > rounds // 2:
            later.append(state.student)
        if t % max(1, rounds // 10) == 0:
            both = (nmi(here.test_turn, answers(rule, state, here.test, own)) for own in (False, True))
            seen.append((t, *both))

    end = run(rule, here.data, rounds, max(1, len(here.data) // 4), seed, callbacks=[watch])
    mean = {name: torch.stack([p[name] for p in later]).mean(0) for name in later[0]}
    averaged = replace(end, state=replace(end.state, student=mean))
    return rule, end, averaged, pd.DataFrame(seen, columns=["round", "alone", "own"]).set_index("round")


def held_out(here: World, rule: FedCG, runs: dict[str, Any], seed: int) -> Rows:
    """NMI on held-out images, by who answers and what it knows of the client."""
    test, rows = here.test, {}
    new = replace(test, id=test.id + 1000)  # the same images, at clients never seen
    for name, end in runs.items():
        joined = fedlib.new_clients(rule, end, new, seed=seed).state
        rows[f"held out: {name}"] = {
            NOTHING: nmi(here.test_turn, answers(rule, end.state, test, own_shares=False)),
            GUESSED: nmi(here.test_turn, answers(rule, joined, test)),
            OWN: nmi(here.test_turn, answers(rule, end.state, test)),
        }
    em = federated_em(here.data, D, CLASSES, seed)
    for name, labels in (("mixture, no labels", False), ("mixture, with labels", True)):
        rows[f"held out: {name}"] = {
            NOTHING: nmi(here.test_turn, em.score(test, labels=labels, iterations=0)[0]),
            GUESSED: nmi(here.test_turn, em.score(test, labels=labels)[0]),
            OWN: nmi(here.test_turn, em.score(test, em.pi, labels=labels)[0]),
        }
    return rows


def at_angles(rule: FedCG, state: Any, seed: int) -> Rows:
    """Mean answers of the student, without shares, to the same 120 held-out digits turned by each angle."""
    digits = datasets.load("mnist5k")
    rest = np.random.RandomState(seed).permutation(len(digits.y))[-120:]
    turned = partition.rotation(partition.iid(digits.y[rest], len(ANGLES), seed), ANGLES, seed=seed)
    order = np.argsort(turned.group)  # a client for each angle; all see all images
    x = turned.tests(digits.x[rest], digits.y[rest]).all_rows(torch.float32)[0][order]
    params = row(rule.client_params(state, torch.arange(1)), 0)
    del params["prior"]
    with torch.no_grad():
        said = rule.net.weights(params, x.flatten(0, 1)).unflatten(0, x.shape[:2])
    mean = said.mean(1)
    domain = {t: int(mean[ANGLES.index(t)].argmax()) for t in TURNS}  # what it says most often at a turn
    entropy = torch.special.entr(said).sum(2).mean(1) / np.log(D)
    return {
        f"angle {a}": {f"domain {t}": float(m[d]) for t, d in domain.items()} | {"entropy": float(e)}
        for a, m, e in zip(ANGLES, mean, entropy, strict=True)
    }


def students(here: World, rounds: int, seed: int) -> Rows:
    """Students of EM and of k-means on clients: over rounds, at the end, and at any angle."""
    labels = by_clients(here.data, "linear", seed)
    rule, end, averaged, seen = train_student(here, partial(em_domains, domains=D, classes=CLASSES), rounds, seed)
    rows = held_out(here, rule, {"student": end, "student, averaged": averaged}, seed)
    *_, other = train_student(here, lambda data, key: labels, rounds, seed)
    for name, table in {"EM": seen, "k-means": other}.items():
        over_rounds = {f"{c}, round {t}": v for c in table for t, v in table[c].items()}
        rows[f"student of {name}"] = over_rounds | {c: table[c].iloc[-1] for c in table}
    return rows | at_angles(rule, averaged.state, seed)


# ---- the experiments ----


@contextmanager
def quiet() -> Iterator[None]:
    """Collapsed domains are what is measured here: no warning of them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the domains collapsed")
        yield


def measure(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Setting -> score -> seed -> number."""
    s, figures = settings, {}
    for seed in settings["seeds"]:
        here = world(s["examples"], s["held out"], s["clients"], seed)
        with quiet():
            rows = keep(f"seed {seed}: mends", mends, here, s["mends"], seed)
            rows |= keep(f"seed {seed}: mixtures", mixtures, here, seed)
            rows |= keep(f"seed {seed}: students", students, here, s["student"], seed)
            rows |= keep(f"seed {seed}: the recipe as printed", recipe, here, s, seed)
            rows |= keep(f"seed {seed}: random teachers", random_teachers, here, s["teachers"], s["images"], seed)
        for name, scores in rows.items():
            for what, value in scores.items():
                figures.setdefault(name, {}).setdefault(what, {})[str(seed)] = round(value, 4)
    return figures


def measure_paper(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """The recipe as printed, with the paper's rounds and cohorts: the largest domain's share."""
    figures: dict[str, Any] = {}
    for seed in settings["seeds"]:
        here = world(settings["examples"], settings["held out"], settings["clients"], seed)
        for head in HEADS:
            rule = printed(classifier(head, small=False), settings["literal"])
            with quiet():
                shares = keep(
                    f"seed {seed}: {head}",
                    largest_shares,
                    *(rule, here.data, settings["literal"], settings["cohort"], seed),
                    device="auto",
                )
            for when, value in shares.items():
                figures.setdefault(f"recipe: literal, {head}", {}).setdefault(when, {})[str(seed)] = round(value, 4)
    return figures


@cache
def small_world() -> World:
    """Eight clients with twelve or thirteen images each."""
    return world(100, 40, 8, seed=0)


def probe_recipe() -> running.Probe:
    """Random teachers, and the recipe as printed with both heads."""
    data, found = small_world().data, {}
    for head in HEADS:
        z, features = look(head, replace(data, x=data.x.double()), 1, seed=0)
        found[f"a random teacher, {head}"] = [*z.mean((0, 1)).tolist(), float(z.std()), float(features.std())]
        rule = printed(classifier(head), 2)
        with quiet():
            found[f"the recipe as printed, {head}"] = running.trace(rule, rule.net.init(0), data, 2, 4)
    return found


def probe() -> running.Probe:
    """Two rounds of each way to find domains, on a few clients; the mixture's numbers; answers of a student."""
    here, double, found = small_world(), torch.float64, probe_recipe()
    for teacher in ("centred", "sinkhorn", "loss"):
        rule = fedcg(classifier("flatten"), TEACHERS[teacher], refresh=0, student_lr=0.1)
        with quiet():
            found[teacher] = running.trace(rule, rule.net.init(0), here.data, 2, 4)
    for kind, net in NETWORKS.items():
        updates = first_updates(here.data, net, 0, double)
        centres = kmeans(updates, D, 0).centres
        moved = [float(p.square().sum()) for p in (*updates.values(), centres)]
        found[f"k-means on clients, {kind}"] = moved
    for name in ("in full", "no class", "one prior for all", "temperature 1", "D = 3"):
        em = mixture(here.data, **({"seed": 0, "iterations": 3, "dtype": double} | VARIANTS[name]))
        told = [evidence(em, here.test)] if name == "in full" else []
        found[f"EM: {name}"] = [*em.objective.tolist(), *em.pi.square().sum(0).tolist(), *told]
    rule = known(classifier("flatten"), partial(em_domains, domains=D, classes=CLASSES, iterations=3, dtype=double))
    start = {name: p.double() for name, p in rule.net.init(0).items()}
    with quiet():
        end = run(rule, here.data, 2, 4, 0, dtype=double)
        new = fedlib.new_clients(rule, end, replace(here.test, id=here.test.id + 1000), seed=0)
        found["student of EM"] = running.trace(rule, start, here.data, 2, 4)
    found["held out"] = [
        float(v)
        for state, own in ((end.state, False), (end.state, True), (new.state, True))
        for v in answers(rule, state, here.test, own, double).square().sum((0, 1))
    ]
    found["held out"] += [float(v) for v in em.score(here.test, em.pi, labels=False)[0].square().sum((0, 1))]
    return found


SETTINGS: dict[str, Any] = {
    "examples": 4000,
    "held out": 1000,
    "clients": 40,
    "teachers": 5,
    "images": 10,  # of each client, that a random teacher looks at
    "literal": 10,  # rounds of the recipe as printed
    "cohort": 4,
    "mends": 30,  # rounds
    "student": 100,
    "seeds": [100, 101, 102, 103, 104],
}
CLAIMS = {
    "training samples: EM beats k-means on clients": (
        ("mend: federated EM", "NMI"),
        ("mend: k-means on clients, linear", "NMI"),
    ),
    "training samples: EM without labels beats it too": (
        ("EM: no class", "NMI"),
        ("mend: perfect clustering of clients", "NMI"),
    ),
    "training samples: Sinkhorn beats the arg max": (("mend: sinkhorn", "NMI"), ("mend: argmax", "NMI")),
    "EM: own shares beat one prior": (("EM: in full", "NMI"), ("EM: one prior for all", "NMI")),
    "EM: tempered beats temperature 1": (("EM: in full", "NMI"), ("EM: temperature 1", "NMI")),
    "EM: with classes beats without": (("EM: in full", "NMI"), ("EM: no class", "NMI")),
    "EM: the evidence of four domains beats that of five": (("EM: in full", "evidence"), ("EM: D = 5", "evidence")),
    "held out: EM's student beats that of k-means": (("student of EM", "alone"), ("student of k-means", "alone")),
    "held out: the student gains by its client's shares": (("held out: student", OWN), ("held out: student", NOTHING)),
    "held out: ... by shares guessed without labels": (
        ("held out: student", GUESSED),
        ("held out: student", NOTHING),
    ),
    "held out, guessed shares: averaging the student helps": (
        ("held out: student, averaged", GUESSED),
        ("held out: student", GUESSED),
    ),
    "held out, own shares: averaging the student helps": (
        ("held out: student, averaged", OWN),
        ("held out: student", OWN),
    ),
    "held out, own shares: student beats the mixture": (
        ("held out: student", OWN),
        ("held out: mixture, no labels", OWN),
    ),
}
PAPER = {"examples": 4000, "held out": 1000, "clients": 40, "literal": 100, "cohort": 10, "seeds": [0]}
PRESETS = {
    "full": running.Experiment("fedcg_domains", SETTINGS, measure, probe, ("mnist5k",), CLAIMS),
    "paper": running.Experiment("fedcg_domains_paper", PAPER, measure_paper, probe_recipe, ("mnist5k",)),
}

if __name__ == "__main__":
    running.main(PRESETS)
