"""Chapter 10: which part of FedCG's graph helps and which costs: A, W and ReLU, each on and off, in two layers.

V-hat = sigma(A V W) has three parts. All eight combinations are trained for 300 rounds, with modules in the last
convolution or in the last layer, and scored every 20 rounds:

- A: Eq. 6 after each round, from round 20 on; off: the identity.
- W: I + P R^T with sixteen columns, R from zero; off: I. (A full W has 87 to 109 thousand numbers here.)
- ReLU: sigma; off: nothing. Without all three these are the modules without a graph.

Two federations: *turned*, forty clients with sixty digits that are turned in one of four ways, so that domains
contradict each other; and *styles*, sixty clients with twenty photos of clothes in one of four styles, so that images
are few. Images have 14 x 14 pixels. Preset ``full`` has known domains, and FedAvg; preset ``others``
domains that federated EM finds, and random ones. Five seeds.

The arms of a seed are trained side by side, on the same cohorts and batches. Their learning rate is the best of .03, .1
and .3 for modules without a graph on another seed; at .3 the arm with W alone diverges there. In preset ``rates``,
with modules in the last convolution, where the paper has them, each arm has a rate of its own for 300 and one for 600
rounds, chosen on two further seeds. Needs Fashion-MNIST (Debian has it as the package dataset-fashion-mnist).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import fedlib
from book.experiments.worlds import ON_CPU, LowRank, Rows, enter, loss_of, shrunk, together, with_parts
from fedlib import Key, Params, models
from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.extensions import FedCGKnownDomains
from fedlib.extensions.mixture import em_domains
from fedlib.losses import cross_entropy
from fedlib.params import broadcast, row
from fedlib.server.domain_graph import domain_adjacency

from . import fedcg_graph as graph  # worlds, and known domains
from . import running

D = 4
NETWORK = models.CNN((1, 14, 14), (4, 8), (32, 10), 3, 1, pool=1, strides=(2, 2))
PLACES = {"last convolution": "conv2", "last layer": "dense2"}
PARTS = ("A", "W", "ReLU")
SETS = tuple(tuple(p for p, on in zip(PARTS, given, strict=True) if on) for given in product((0, 1), repeat=3))

Settings = dict[str, Any]
Told = Callable[[int], Tensor]  # the weights (K, N, D) of the domains at test, after a round


@dataclass(frozen=True)
class Arm:
    """What is on: parts of the graph, and modules at all."""

    parts: tuple[str, ...] = ()
    modules: bool = True

    @property
    def name(self) -> str:
        """As it stands in the figures."""
        return (" + ".join(self.parts) or "no graph") if self.modules else "FedAvg"


WHO = {"known": [Arm(modules=False), *map(Arm, SETS)], **{who: [*map(Arm, SETS)] for who in ("random", "found")}}


# ---- worlds and domains ----


@cache
def small(kind: str) -> Any:
    """The images of a kind at half of their side."""
    images = graph.images_of(kind)
    return graph.Images(shrunk(images.x), images.y)


def world(settings: Settings, regime: str, seed: int, images: Any = None, network: models.CNN = NETWORK) -> Any:
    """The federation of a regime that a seed draws."""
    if regime == "turned":
        return graph.turned_world(settings, seed, images=images or small("digits"), network=network)
    return graph.styled_world(settings, seed, "fashion", images or small("fashion"), network)


def hard(w: Tensor) -> Tensor:
    """1 for the domain with the largest weight; zeros for padding stay."""
    return F.one_hot(w.argmax(-1), w.shape[-1]) * (w.sum(-1, keepdim=True) > 0).to(w)


def told(here: Any, who: str, seed: int, settings: Settings) -> tuple[Tensor, Told]:
    """Weights of the domains in training, and at test after each round."""
    if who == "found":
        w, said = found(settings, here, seed)
        return w, lambda t: said[t]
    w, at_test = graph.told(here, who, seed)
    return w, lambda t: at_test


def found(settings: Settings, here: Any, seed: int) -> tuple[Tensor, dict[int, Any]]:
    """EM's likeliest domains of the training images; and the student's answers to the others, by round.

    The student does not depend on the model that is trained beside it, here a linear one.
    """
    image, said = here.network.image, {}
    student = DomainClassifier(image, D, "flatten", (8, 16), (2, 1))
    net = DomainNet(models.MLP((image[1] * image[2], 10)), D, ("dense1",), student)

    told = {"weights": "teacher", "teacher": partial(em_domains, domains=D, classes=10)}
    rule = FedCGKnownDomains(loss_of(net), net=net, predict=net, gcn=None, **told, **here.local)

    def watch(t: int, state: Any, entry: Any) -> None:
        if t % settings["every"] == 0:
            said[t] = graph.students_weights(rule, state, here.test)

    how = {"seed": seed, "callbacks": [watch], **ON_CPU}
    end = fedlib.fit(rule, net.init(seed), here.train, settings["rounds"], here.cohort, **how)
    return hard(end.state.domains), said


# ---- training, all arms side by side ----


def train(
    here: Any,
    layer: str,
    arms: Sequence[Arm],
    w: Tensor,
    settings: Settings,
    seed: int,
    watch: Callable[[int, Params], None] = lambda t, params: None,
    dtype: torch.dtype = torch.float32,
) -> Params:
    """Parameters of all arms, with V-hat for V, after the rounds: as FedCG would train each by itself."""
    net, count = DomainNet(here.network, D, (layer,)), len(arms)
    flags = {n: torch.tensor([float(n in arm.parts) for arm in arms], dtype=dtype) for n in ("W", "ReLU")}
    flags["modules"] = torch.tensor([float(arm.modules) for arm in arms], dtype=dtype)

    def connect(params: Params, A: Tensor, flags: Mapping[str, Tensor]) -> Params:
        out = with_parts(params, (layer,), A, flags)
        return out | {f"lam.{layer}": out[f"lam.{layer}"] * flags["modules"]}

    def loss(params: Params, batch: Any, A: Tensor, flags: Mapping[str, Tensor]) -> Tensor:
        x, y, real, w_d = batch
        return cross_entropy(net(connect(params, A, flags), x, w_d), y, real)

    connect_all, data, start = torch.vmap(connect), here.train.with_columns(w_d=w), net.init(seed)
    start |= LowRank().start(start, (layer,), seed)
    stack = broadcast({n: p.to(dtype) for n, p in start.items()}, count)
    A = torch.eye(D, dtype=dtype).repeat(count, 1, 1)
    for t in range(1, settings["rounds"] + 1):
        stack = together(loss, stack, (A, flags), data, here.cohort, Key(seed, t), **here.local)
        if t >= settings["warm_up"]:
            V = {n: p for n, p in stack.items() if n.startswith("V.")}
            for m, arm in enumerate(arms):
                if "A" in arm.parts:
                    A[m] = domain_adjacency(row(V, m)).to(dtype)
        if t % settings["every"] == 0 or t == settings["rounds"]:
            watch(t, connect_all(stack, A, flags))
    return connect_all(stack, A, flags)


def answers(here: Any, layer: str, params: Params, w: Tensor) -> Tensor:
    """Outputs (M, K, N, 10) of all arms for the held-out images."""
    x = here.test.all_rows(next(iter(params.values())).dtype)[0]
    net = DomainNet(here.network, D, (layer,))
    with torch.no_grad():
        found = torch.vmap(net, (0, None, None))(params, x.flatten(0, 1), w.flatten(0, 1).to(x))
    return found.unflatten(1, x.shape[:2])


@lru_cache(maxsize=4)
def told_once(settings: str, regime: str, who: str, seed: int) -> tuple[Any, Tensor, Told]:
    """A world with its domains: both layers have the same."""
    here = world(json.loads(settings), regime, seed)
    return here, *told(here, who, seed, json.loads(settings))


def curves(settings: Settings, regime: str, place: str, who: str, seed: int, names: Sequence[str] = ()) -> Rows:
    """Scores of all arms, or of those named, by round; "late" is the mean of the last three."""
    arms, layer = [arm for arm in WHO[who] if not names or arm.name in names], PLACES[place]
    here, w, at_test = told_once(json.dumps(settings), regime, who, seed)
    rows: Rows = {arm.name: {} for arm in arms}

    def watch(t: int, params: Params) -> None:
        right = answers(here, layer, params, at_test(t)).argmax(-1) == here.test.y
        for arm, mine in zip(arms, right, strict=True):
            rows[arm.name][f"accuracy, {t}"] = float(mine[here.test.real].double().mean())

    train(here, layer, arms, w, settings, seed, watch)
    for scores in rows.values():
        scores["accuracy, late"] = level(scores, settings["rounds"], settings["every"])
    for p in PARTS:
        rows |= effects(rows, p)
    return rows


def effects(rows: Rows, changed: str) -> Rows:
    """What one part adds, as a mean over the sets of the others."""
    without = [s for s in SETS if changed not in s]
    pairs = [(Arm(s).name, Arm(tuple(p for p in PARTS if p in s or p == changed)).name) for s in without]
    gains = {what: [rows[on][what] - rows[off][what] for off, on in pairs] for what in rows["no graph"]}
    return {f"effect of {changed}": {what: float(np.mean(each)) for what, each in gains.items()}}


def measure(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Regime, layer and who knows the domains -> arm -> score -> seed."""
    figures: dict[str, Any] = {}
    for who, seed, regime, place in product(settings["who"], settings["seeds"], settings["regimes"], PLACES):
        rows = keep(f"{who}, seed {seed}: {regime}, {place}", curves, settings, regime, place, who, seed)
        enter(figures.setdefault(f"{regime}, {place}, {who}", {}), seed, rows, digits=4)
    return figures


# ---- a rate for each arm ----


def level(scores: Mapping[str, float], horizon: int, every: int) -> float:
    """The mean of the last three scores up to a round."""
    return float(np.mean([scores[f"accuracy, {horizon - i * every}"] for i in range(3)]))


def measure_rates(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Regime and layer -> arm -> rate and scores at each horizon."""
    figures: dict[str, Any] = {}
    names, rates, trial_seeds = settings["arms"], settings["rates"], settings["seeds of rates"]
    every = settings["every"]
    for regime, place in product(settings["regimes"], settings["places"]):

        def run(rate: float, seed: int, arms: list[str], part: str, regime: str = regime, place: str = place) -> Rows:
            at_rate = settings | {kind: settings[kind] | {"lr": rate} for kind in ("conflict", "scarce")}
            part = f"{regime}, {place}: {part} {rate}, seed {seed}"
            return keep(part, curves, at_rate, regime, place, "known", seed, arms)

        at = figures.setdefault(f"{regime}, {place}", {name: {} for name in names})
        tried = {rate: [run(rate, seed, names, "rate") for seed in trial_seeds] for rate in rates}
        best: dict[tuple[str, int], float] = {}
        for name, horizon in product(names, settings["horizons"]):
            levels = {r: float(np.mean([level(rows[name], horizon, every) for rows in tried[r]])) for r in tried}
            best[name, horizon] = max(levels, key=levels.__getitem__)
            at[name][f"rate, {horizon}"] = best[name, horizon]
        for seed in settings["seeds"]:
            found = {rate: run(rate, seed, theirs, "each at") for rate in rates if (theirs := chosen(best, rate))}
            rows: Rows = {name: {} for name in names}
            for (name, horizon), rate in best.items():
                rows[name][f"accuracy, {horizon}"] = level(found[rate][name], horizon, every)
            enter(at, seed, rows, digits=4)
    return figures


def chosen(best: Mapping[tuple[str, int], float], rate: float) -> list[str]:
    """The arms for which a rate is the best at any horizon."""
    return list(dict.fromkeys(name for (name, _), theirs in best.items() if theirs == rate))


# ---- probe ----


def tiny(regime: str) -> tuple[Settings, Any]:
    """Eight clients of unequal sizes with generated images."""
    network = models.CNN((1, 8, 8), (2, 3), (4, 10), 3, 1, pool=1, strides=(2, 2))
    settings = SETTINGS | {"train": 72, "test": 40, "clients": 8, "scarce clients": 8, "scarce test": 40}
    settings |= {"rounds": 4, "warm_up": 2, "every": 2, "conflict": {"lr": 0.5, "batch_size": 5, "epochs": 1}}
    settings["scarce"] = {"lr": 0.5, "batch_size": 7, "epochs": 2}
    return settings, graph.uneven(world(settings, regime, 0, graph.generated(250, (1, 8, 8), 10), network))


def probe() -> running.Probe:
    """Four rounds of each arm, the domains known; held-out answers."""
    numbers = {}
    for regime, (place, layer) in product(SETTINGS["regimes"], PLACES.items()):
        settings, here = tiny(regime)
        w, at_test = told(here, "known", 0, settings)
        params = train(here, layer, WHO["known"], w.double(), settings, 0, dtype=torch.float64)
        z = answers(here, layer, params, at_test(4))
        for m, arm in enumerate(WHO["known"]):
            found = [float(p[m].square().mean()) for p in params.values()]
            numbers[f"{regime}, {place}, known: {arm.name}"] = [*found, float(z[m].logsumexp(-1).mean())]
    return numbers


def probe_others() -> running.Probe:
    """The domains that are found in four rounds, and random ones; one arm with each."""
    numbers = {}
    for regime in SETTINGS["regimes"]:
        settings, here = tiny(regime)
        for who in OTHERS["who"]:
            w, at_test = told(here, who, 0, settings)
            params = train(here, "dense2", WHO[who][-1:], w.double(), settings, 0, dtype=torch.float64)
            last = at_test(4).double()
            weights = w.double().square().mean(), (w.sum((0, 1)) @ torch.arange(4.0)) / w.sum(), last.square().mean()
            numbers[f"{regime}, {who}"] = [*map(float, weights), *(float(p.square().mean()) for p in params.values())]
    return numbers


# ---- the experiments ----

SETTINGS: Settings = {"who": ["known"], "regimes": ["turned", "styles"], "seeds": list(range(100, 105))}
SETTINGS |= {"rounds": 300, "warm_up": 20, "every": 20}
SETTINGS |= {"train": 2400, "test": 1000, "clients": 40, "conflict": {"lr": 0.1, "batch_size": 10, "epochs": 1}}
SETTINGS |= {"scarce clients": 60, "scarce test": 2000, "scarce": {"lr": 0.1, "batch_size": 10, "epochs": 2}}
OTHERS = SETTINGS | {"who": ["random", "found"]}
RATES = SETTINGS | {"arms": ["FedAvg", *(Arm(s).name for s in SETS)], "places": ["last convolution"]}
RATES |= {"rounds": 600, "horizons": [300, 600], "rates": [0.03, 0.1, 0.3, 0.6], "seeds of rates": [0, 1]}


DATA = ("mnist5k", "fashion_mnist")
PRESETS = {
    "full": running.Experiment("fedcg_ablation", SETTINGS, measure, probe, DATA),
    "others": running.Experiment("fedcg_ablation_others", OTHERS, measure, probe_others, DATA),
    "rates": running.Experiment("fedcg_ablation_rates", RATES, measure_rates, probe, DATA),
}
