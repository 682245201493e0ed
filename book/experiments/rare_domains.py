"""Modules for known domains (FedCG) beside a model for each domain and one for all, where domains are rare.

The federations of chapter 10: forty clients with a hundred small digits each, all turned by one angle. "four turns" has
four equally common angles. Otherwise two angles have eighteen clients each and two others two: "rare twins" differ from
the common angles by ten degrees, "rare strangers" by ninety. Arms have the same local training. The graph's A is the
identity for 25 rounds, as in the chapter. "A" is the graph without W and ReLU, and "A, full pace" has steps for V that
make up for the slower pace that A brings. Modules that are "not mixed" take the same steps, those of "A" at "slow pace"
and those of "A, full pace" at "full pace". With "own clients" the server averages a module over the clients that have
its domain. A "pair model" serves 0 degrees and the next angle, or 180 and the next. A seed draws the digits, the deal
and the start. Scores are accuracies on held-out images of rare domains, after 50 rounds as in the chapter, and after
100. Preset ``full`` takes an hour and a half on one core. Preset ``longer`` follows arms without a graph for 200
rounds, which takes half an hour. Preset ``matrix`` asks what A would give a rare domain after 50 rounds of modules
without a graph, averaged over all clients or their own, and the cosines of their changes; it takes four minutes. Preset
``common`` has the four equally common angles, and as a control modules with a random domain for each image; its scores
are those of all images, and it takes five minutes. Preset ``angles`` tries the chapter's rule on rare angles between
twins and strangers, with seeds on which nothing was chosen; it takes nine minutes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedlib
from book.experiments import fedcg_graph as graph
from book.experiments import running
from book.experiments.worlds import EXACT, enter, loss_of, seeds_of, small_digits
from fedlib import ClientData, Params, models, partition
from fedlib.algorithms import FedAvg, LGFedAvg
from fedlib.client.domain_net import DomainClassifier, DomainNet, part
from fedlib.extensions import FedCGKnownDomains
from fedlib.params import row, to_matrix
from fedlib.server.clusters import cosine_similarity
from fedlib.server.domain_graph import DomainGCN, domain_adjacency

RARE = (0.45, 0.05, 0.45, 0.05)
TURNS: dict[str, dict[str, Any]] = {
    "four turns": {"degrees": (0, 90, 180, 270)},
    "rare twins": {"degrees": (0, 10, 180, 190), "shares": RARE},
    "rare strangers": {"degrees": (0, 90, 180, 270), "shares": RARE},
}
NETWORK = models.CNN((1, 14, 14), (4, 8), (32, 10), 3, 1, pool=1, strides=(2, 2))
TRAINING = {"lr": 0.2, "batch_size": 10, "epochs": 2}
SETTINGS = {"digits": 4000, "clients": 40, "cohort": 10, "rounds": [50, 100], "graph from": 25}
SETTINGS |= {"seed": 100, "seeds": 10}
EARLY, LONGER = (SETTINGS | {"rounds": t} for t in ([50], [12, 25, 50, 100, 200]))
ANGLES = SETTINGS | {"rounds": [50], "degrees": [10, 20, 30, 45, 60, 90], "seed": 200}
TURNS |= {f"rare {d}": {"degrees": (0, d, 180, 180 + d), "shares": RARE} for d in ANGLES["degrees"]}


class OwnClients(FedCGKnownDomains):
    """The mean of a module is that of the clients that have its domain, as for a model of the domain's own."""

    def counts(self, data: ClientData, d_hat: Tensor) -> Tensor:
        """A client's samples of each domain (C, D)."""
        return d_hat.sum(1)


@dataclass(frozen=True)
class Pace(DomainGCN):
    """The graph with W = I, which no client trains; or modules that are not `mixed` and take the same steps.

    Modules in use are A V, so their steps are A A^T times their gradient. If all modules are equally far apart, A
    leaves s of their differences, and A A^T leaves s^2; s is 1/3 for four domains and beta = 1/2, and 1 for A = I. At
    `full` pace the steps of differences between the rows of V are 1/s^2 times as long. Their mean, which A does not
    slow down, has the usual steps.
    """

    relu: bool = False
    mixed: bool = True
    full: bool = False

    def init(self, q: int, seed: int, layer: str = "") -> Params:
        """No parameters."""
        return {}

    def propagate(self, params: Params, V: Tensor, A: Tensor) -> Tensor:
        """A V, or V with the gradient that A V would have."""
        one, even, s = torch.eye(len(A)).to(A), torch.full_like(A, 1 / len(A)), (A.trace() - 1) / (len(A) - 1)
        steps = even + s**-2 * (one - even) if self.full else one
        if self.mixed:
            return A @ (V + (steps - one) @ (V - V.detach()))
        return V + (A @ steps @ A.T - one) @ (V - V.detach())


OWN_CLIENTS = "modules, own clients"
GRAPHS: dict[str, dict[str, Any]] = {
    "modules": {"gcn": None},
    OWN_CLIENTS: {"gcn": None},
    "A": {"gcn": Pace()},
    "FedCG": {},
    "A, full pace": {"gcn": Pace(full=True)},
    "A, full pace, own clients": {"gcn": Pace(full=True)},
    "not mixed, slow pace": {"gcn": Pace(mixed=False)},
    "not mixed, full pace": {"gcn": Pace(mixed=False, full=True)},
}
OWN = {"own model": 1, "pair model": 2}  # domains that share a model
METHODS, RANDOM = ("FedAvg", *OWN, *GRAPHS), "random domains"


def deal(settings: dict[str, Any], turned: dict[str, Any], seed: int) -> tuple[ClientData, ClientData, np.ndarray]:
    """Training and test data of the clients, and each client's domain."""
    x, y = small_digits()
    order = np.random.RandomState(seed).permutation(len(y))[: settings["digits"]]
    dealt = partition.rotation(partition.iid(y[order], settings["clients"], seed), seed=seed, **turned)
    train, test = (p.clients(x[order], y[order], classes=10) for p in dealt.split((0.6, 0.4), seed))
    return train, test, dealt.group


def method(name: str, data: ClientData, group: np.ndarray, graph_from: int) -> Any:
    """An arm."""
    plain = {"loss": loss_of(NETWORK), "predict": NETWORK, **TRAINING}
    if name == "FedAvg":
        return FedAvg(**plain)
    if name in OWN:  # the whole network is the domain's, or that of two domains
        return LGFedAvg(local=(), assignment=torch.as_tensor(group // OWN[name]), **plain)
    net = DomainNet(NETWORK, 4, ("dense2",), DomainClassifier(NETWORK.image, 4, "pooled", (1,), (7,)))
    w = weights(data, group, name == RANDOM)
    known = {"teacher": lambda data, key: w, "weights": "teacher", "warm_up": graph_from}
    kind = OwnClients if name.endswith("own clients") else FedCGKnownDomains
    return kind(loss_of(net), net=net, predict=net, **known, **TRAINING, **GRAPHS.get(name, {"gcn": None}))


def weights(data: ClientData, group: np.ndarray, random: bool = False) -> Tensor:
    """The weights w (K, N, 4) where a client has one domain, or each image a random one."""
    draw, each = np.random.RandomState(0), zip(data.n.tolist(), group, strict=True)
    return graph.one_hot([draw.randint(0, 4, n) if random else np.full(n, g) for n, g in each], data)


def right_answers(algorithm: Any, state: Any, test: ClientData, w: Tensor) -> Tensor:
    """Whether each held-out image (K, N) gets the right class; modules are told its domain by w."""
    return graph.right_answers(algorithm, state, test, w) & test.real


def followed(
    algorithm: Any, data: ClientData, test: ClientData, w: Tensor, rounds: Sequence[int], cohort: int, **how: Any
) -> tuple[dict[int, Tensor], Any]:
    """Train, and return the right answers after each of these rounds, and the last state."""
    found = {}

    def watch(t: int, state: Any, record: dict[str, Any]) -> None:
        if t in rounds:
            found[t] = right_answers(algorithm, state, test, w)

    start = algorithm.predict.init(how["seed"])
    return found, fedlib.fit(algorithm, start, data, max(rounds), cohort, callbacks=[watch], **how).state


def scores(name: str, turns: str, settings: dict[str, Any], seed: int) -> dict[str, float]:
    """Accuracy on the held-out images of rare domains, or of all where none is rare."""
    data, test, group = deal(settings, TURNS[turns], seed)
    algorithm, w = method(name, data, group, settings["graph from"]), weights(test, group, name == RANDOM)
    kind = "rare" if "shares" in TURNS[turns] else "all"
    rare = test.real & torch.as_tensor((group % 2 == 1) | (kind == "all"))[:, None]
    right, _ = followed(algorithm, data, test, w, settings["rounds"], settings["cohort"], seed=seed, progress=False)
    return {f"{kind}, {t}": round(float(answers[rare].double().mean()), 4) for t, answers in right.items()}


def measure(settings: dict[str, Any], keep: running.Keep, arms: Sequence[str]) -> dict[str, Any]:
    """Arm -> federation and score -> seed."""
    figures: dict[str, Any] = {}
    for seed in seeds_of(settings):
        for arm in arms:
            turns, name = arm.split(": ")
            found = keep(f"{arm}, {seed}", scores, name, turns, settings, seed, arms=(arm,))
            enter(figures, seed, {name: {f"{turns}: {score}": value for score, value in found.items()}})
    return figures


def taken(name: str, turns: str, settings: dict[str, Any], seed: int) -> dict[str, float]:
    """What a rare domain would take by A of each kind of domain, from modules that were trained without a graph.

    Also the cosine of its module's change with that of each kind, and how far these changes and the starts are apart;
    how far modules moved; of how many the largest cosine is with the neighbour, and of how many the rule is right.
    """
    data, test, group = deal(settings, TURNS[turns], seed)
    modules, w = method(name, data, group, 0), weights(test, group)
    _, state = followed(modules, data, test, w, settings["rounds"], settings["cohort"], seed=seed, progress=False)
    V, start = to_matrix(row(state.modules, 0)), to_matrix(part(modules.net.init(seed), "V"))
    change = V - start
    all_of = {"": domain_adjacency(V), ", cosine": cosine_similarity(change)}
    all_of |= {", changes apart": torch.cdist(change, change), ", starts apart": torch.cdist(start, start)}
    most, partner = all_of[", cosine"].clone().fill_diagonal_(-1)[[1, 3]].max(1)
    chosen = torch.where(most >= 0.5, partner, torch.tensor([1, 3]))
    right = (chosen == torch.tensor([0, 2] if turns == "rare twins" else [1, 3])).double().mean()
    kinds = {"neighbour": (0, 2), "opposite": (2, 0), "other rare": (3, 1)}  # of domains 1 and 3
    found = {kind + what: float(M[[1, 3], of].mean()) for what, M in all_of.items() for kind, of in kinds.items()}
    found |= {
        f"{kind}, moved": float(change[of].norm(dim=1).mean()) for kind, of in (("common", [0, 2]), ("rare", [1, 3]))
    }
    found |= {"rule": float(right), "found": float((partner == torch.tensor([0, 2])).double().mean())}
    return {name: round(value, 4) for name, value in found.items()}


def measure_matrix(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Federation, with "own clients" if so averaged, and kind of domain -> seed."""
    figures: dict[str, Any] = {}
    for seed, turns in ((s, t) for s in seeds_of(settings) for t in ("rare twins", "rare strangers")):
        for name, of in {"modules": "", OWN_CLIENTS: ", own clients"}.items():
            enter(figures, seed, {turns + of: keep(f"{turns}{of}, {seed}", taken, name, turns, settings, seed)})
    return figures


def at_angle(degrees: int, settings: dict[str, Any], seed: int) -> dict[str, float]:
    """The cosine of a rare angle with its neighbour, and accuracies alone and in a pair."""
    told = taken("modules", f"rare {degrees}", settings, seed)
    served = {name: scores(name, f"rare {degrees}", settings, seed)["rare, 50"] for name in OWN}
    return {"cosine": told["neighbour, cosine"], "found": told["found"]} | served


def measure_angles(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Degrees -> score -> seed."""
    figures: dict[str, Any] = {}
    for seed, degrees in ((s, d) for s in seeds_of(settings) for d in settings["degrees"]):
        enter(figures, seed, {str(degrees): keep(f"{degrees}, {seed}", at_angle, degrees, settings, seed)})
    return figures


def probe(methods: Sequence[str] = METHODS, worlds: Sequence[str] = ("rare twins", "rare strangers")) -> running.Probe:
    """Two rounds of twenty clients."""
    numbers = {}
    for turns in worlds:
        data, test, group = deal(SETTINGS | {"digits": 120, "clients": 20}, TURNS[turns], 0)
        for name in methods:
            algorithm = method(name, data, group, 1)
            end = fedlib.fit(algorithm, algorithm.predict.init(0), data, 2, 10, **EXACT)
            right = right_answers(algorithm, end.state, test, weights(test, group))
            numbers[f"{turns}: {name}"] = running.numbers_of(algorithm, end) + [float(right[test.real].double().mean())]
    return numbers


COMMON = partial(probe, ["FedAvg", "own model", "modules", RANDOM], ["four turns"])
AVERAGED = partial(probe, ["modules", OWN_CLIENTS])
PRESETS = {
    "full": running.Experiment("rare_domains", SETTINGS, measure, probe, ("mnist5k",), by_arm=True),
    "common": running.Experiment("rare_domains_common", SETTINGS, measure, COMMON, ("mnist5k",), by_arm=True),
    "longer": running.Experiment(
        "rare_domains_longer", LONGER, measure, partial(probe, ["FedAvg", *OWN, "modules"]), ("mnist5k",), by_arm=True
    ),
    "angles": running.Experiment(
        "rare_domains_angles", ANGLES, measure_angles, partial(probe, [*OWN, "modules"], ["rare 45"]), ("mnist5k",)
    ),
    "matrix": running.Experiment("rare_domains_matrix", EARLY, measure_matrix, AVERAGED, ("mnist5k",)),
}
