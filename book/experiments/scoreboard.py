"""Every method in every kind of federation: the grid of the scoreboard.

Ten kinds of clients: handwritten digits of MNIST, characters of FEMNIST's writers, and a table whose columns have no
common names; twenty methods with the same clients, network and rounds; where groups are planted, true and random groups
as controls. In seven kinds 10 of 100 clients take part in a round. In the three of `EVERYBODY` there are 40 clients,
and all of them take part, as CFL needs it, which tests a cluster when all its clients have sent an update; one of the
three, other names for the labels, is there both ways, so that one can see what partial participation costs. Each method
chooses among the same three learning rates by validation rows of a seed of its own; the table has five other seeds.
Fine-tuning has two rates, FedAvg's and that of the epochs at home, and chooses each from these three.
That one seed was looked at for PACFL's threshold, too, and for the table of wines: in two others, Obesity Levels and
Breast Cancer, nobody was better than the rest, or columns meant the same at any place.

Preset ``full`` takes about an hour on one core. FEMNIST's writers, femnist300, must be at hand (see `fedlib.datasets`).
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import fedlib
from book.experiments import running, tabular
from book.experiments.cfl_variants import OURS, SteppedLGCFL, SteppedSplitHalfCFL
from book.experiments.pair_predictors import train_on_gains
from book.experiments.worlds import EXACT, enter, loss_of, small_characters, small_digits
from fedlib import Algorithm, ClientData, Key, algorithms, evaluation, models, partition, stack_rows, statistics
from fedlib.algorithms.fedem import Mixture
from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.client.prototype_net import PrototypeNet
from fedlib.extensions import FedCGKnownDomains
from fedlib.extensions.mixture import em_domains
from fedlib.server.distance_clusters import linkage
from fedlib.server.domain_graph import DomainGCN

EVERYBODY = ("rotations", "label names", "columns without names")
KINDS = (
    "equal clients", "label skew", "unequal sizes", "writers", "styles", "features by position",
    "label names, few take part", *EVERYBODY,
)  # fmt: skip
METHODS = (
    "alone", "FedAvg", "FedAvg, fine-tuned", "FedProx", "SCAFFOLD", "FedAdam", "Ditto", "FedRep", "pFedGraph",
    OURS, "IFCA", "FedEM", "FeSEM", "FedGroup", "k-means", "PACFL", "FedCG", "FedProto", "LG-FedAvg", "FedSGCNN",
)  # fmt: skip
CONTROLS = ("true groups", "random groups")  # where groups are planted
FINDS = (OURS, "IFCA", "FeSEM", "FedGroup", "k-means", "PACFL", "FedSGCNN")  # clusters
RATES = (0.1, 0.3, 0.9)  # to choose from; FedAdam chooses the server's tenth, and its clients have the middle one
OWN = {  # settings of single methods, which are not tuned
    "FedAvg, fine-tuned": {"finetune_epochs": 5},
    "FedProx": {"mu": 0.1},
    "Ditto": {"lam": 0.1},
    "FedRep": {"head_epochs": 3},
    "PACFL": {"threshold": 20.0},  # images of equal clients are farther apart than its default, 10 degrees
}
PARTS = (0.4, 0.2, 0.4)  # of each client's rows: training, validation, test
PIXELS, SEEN = 196, 40  # of an image, and those that a client sees where clients have different ones
TABLE: dict[str, Any] = {"table": "wine", "rows": 8, "validation": 10, "features": 4, "hold_out": 78, "groups": 2}
HIDDEN = {"writers": (64,), "columns without names": (16, 8)}  # hidden layers; (32,) for digits
SETTINGS: dict[str, Any] = {
    "everybody": 40,  # clients where all take part in each round
    "digits": 50,  # of a client, in the mean
    "characters": 100,  # of a writer, at the most
    "trainers": 8,  # clients of which FedSGCNN measures all pairs
}
SETTINGS |= {"clients": 100, "cohort": 10, "rounds": 150, "pair rounds": 20, "batch_size": 20, "epochs": 2}
SETTINGS |= {"seeds": [100, 101, 102, 103, 104], "seed that chooses": 0}
SETTINGS |= {"rates": RATES, "own settings": OWN, "table": TABLE}


# ---- the networks of a column ----


@dataclass(frozen=True)
class Nets:
    """A network, what some methods make of it, and their losses."""

    widths: tuple[int, ...]
    domains: int
    image: tuple[int, int, int] = (1, 14, 14)

    @cached_property
    def model(self) -> models.MLP:
        """The network."""
        return models.MLP(self.widths)

    @cached_property
    def mixture(self) -> Mixture:
        """For FedEM: several of it. With one it is the network."""
        return Mixture(self.model)

    @cached_property
    def with_domains(self) -> DomainNet:
        """For FedCG: with a module for each domain in the last layer, and a small student that tells domains apart."""
        student = DomainClassifier(self.image, self.domains, "flatten", (8, 16), (2, 1))
        return DomainNet(self.model, self.domains, (f"dense{len(self.widths) - 1}",), student)

    @property
    def graph(self) -> DomainGCN:
        """Its graph layer: W as in the paper, or narrow where that would have millions of numbers."""
        small = (self.widths[-2] + 1) * self.widths[-1] < 1000
        return DomainGCN() if small else DomainGCN("bottleneck", factor=64)

    @cached_property
    def with_prototypes(self) -> PrototypeNet:
        """For FedProto."""
        return PrototypeNet((self.model,))

    def of(self, name: str) -> Any:
        """The network with which a method starts."""
        return {"FedCG": self.with_domains, "FedProto": self.with_prototypes}.get(name, self.model)


# ---- the columns: kinds of clients ----


@dataclass(frozen=True)
class World:
    """A federation: three parts of each client's rows, planted groups if there are any, and the networks for it."""

    train: ClientData
    validation: ClientData
    test: ClientData
    group: np.ndarray | None
    groups: int  # what methods are told that want a number of clusters
    nets: Nets
    own_columns: bool = False  # without names in common


def deal(kind: str, y: np.ndarray, clients: int, seed: int) -> Any:
    """The partition of a kind of clients with digits."""
    if kind == "label skew":
        return partition.dirichlet(y, clients, alpha=0.2, seed=seed, min_rows=5, attempts=5000)
    if kind == "unequal sizes":
        return partition.quantity(y, clients, 0.8, seed)
    even = partition.iid(y, clients, seed)
    if kind == "rotations":
        return partition.rotation(even, seed=seed)
    if kind == "styles":  # each client has one style in 70 % of its digits and another in 30 %
        return partition.mixture(partition.style(even, seed=seed), fraction=1.0, share=0.3, seed=seed)
    if kind.startswith("label names"):
        return partition.label_permutation(even, seed=seed)
    if kind == "features by position":
        return partition.feature_subsets(even, PIXELS, SEEN, 4, seed)
    return even


def own_pixels(part: Any, x: np.ndarray, y: np.ndarray) -> ClientData:
    """Clients that see some pixels only; for the others zeros stand there."""
    flat = x.reshape(len(x), -1).copy()
    for rows, columns in zip(part.rows, part.columns, strict=True):
        flat[np.ix_(rows, np.setdiff1d(np.arange(PIXELS), columns))] = 0
    return stack_rows(flat.reshape(x.shape), y, part.rows, part.id.tolist(), 10)


def with_digits(kind: str, clients: int, digits: int, seed: int) -> World:
    """The federation of a column with digits."""
    x, y = small_digits()
    order = np.random.RandomState(seed).permutation(len(y))[: clients * digits]
    x, y = x[order], y[order]
    dealt = deal(kind, y, clients, seed)
    parts = dealt.split(PARTS, seed)
    if kind == "features by position":
        three = [own_pixels(part, x, y) for part in parts]
    else:
        three = [part.clients(x, y, classes=10) for part in parts]
    return World(*three, dealt.group if dealt.change is not None else None, 4, Nets((PIXELS, 32, 10), 4))


def with_writers(clients: int, most: int, seed: int) -> World:
    """Writers of at least 100 characters, `most` of which are drawn; the seed that chooses has people of its own."""
    x, y, writer = small_characters()
    everybody, written = np.unique(writer, return_counts=True)
    people = np.random.RandomState(0).permutation(everybody[written >= 100])
    if seed != SETTINGS["seed that chooses"]:
        people = np.random.RandomState(seed + 1).permutation(people[clients:])
    order = np.random.RandomState(seed).permutation(len(y))
    rank = pd.Series(writer[order]).groupby(writer[order]).cumcount().to_numpy()
    rows = order[np.isin(writer[order], people[:clients]) & (rank < most)]
    x, y, writer = x[rows], y[rows], writer[rows]
    parts = partition.by_user(writer).split(PARTS, seed)
    return World(*(p.clients(x, y, classes=62) for p in parts), None, 4, Nets((PIXELS, *HIDDEN["writers"], 62), 4))


def with_table(clients: int, seed: int, **settings: Any) -> World:
    """Clients with a few columns each, in ascending order: the first of one is another than the first of another."""
    read = tabular.table(settings.pop("table"))
    dealt = tabular.deal(read, clients, seed=seed, overlap=True, **settings)  # 100 rows for all
    assert dealt.validation is not None and read.classes is not None
    nets = Nets((dealt.train.x.shape[1], *HIDDEN["columns without names"], read.classes), settings["groups"])
    return World(dealt.train, dealt.validation, dealt.test, dealt.group, settings["groups"], nets, own_columns=True)


# ---- the rows: methods ----


@dataclass(frozen=True)
class InGroups(algorithms.LGFedAvg):
    """Each group is a federation of its own; cohorts are drawn from all clients, as for other methods."""

    def cohort(self, state: Any, ids: Tensor, n: int, key: Key) -> Tensor:
        """Each set is equally likely."""
        return Algorithm.cohort(self, state, ids, n, key)


# ---- the cells ----


@dataclass(frozen=True)
class Run:
    """A finished run, and how each client does on its own rows."""

    rate: float
    state: Any
    history: pd.DataFrame
    test: pd.DataFrame
    validation: pd.DataFrame


@dataclass(frozen=True, eq=False)
class Board:
    """The protocol, which is the same for all cells of the table."""

    settings: Mapping[str, Any]

    @lru_cache(maxsize=8)  # noqa: B019
    def world(self, kind: str, seed: int) -> World:
        """The federation of a column of the table."""
        clients = self.settings["everybody" if kind in EVERYBODY else "clients"]
        if kind == "writers":
            return with_writers(clients, self.settings["characters"], seed)
        if kind == "columns without names":
            return with_table(clients, seed, **TABLE)
        return with_digits(kind, clients, self.settings["digits"], seed)

    def drawn(self, kind: str) -> int:
        """Clients that take part in a round."""
        return self.settings["everybody" if kind in EVERYBODY else "cohort"]

    def methods(self, here: World, seed: int, rate: float, at_home: float | None = None) -> dict[str, Any]:
        """The rows of the table: name -> a function that makes the algorithm. `at_home` is the rate of fine-tuning."""
        nets, loss, given = here.nets, loss_of(here.nets.mixture), self.settings
        how = {"lr": rate, "predict": nets.model, "batch_size": given["batch_size"], "epochs": given["epochs"]}
        told, of_fedadam = how | {"clusters": here.groups}, given.get("rate of FedAdam's clients", RATES[1])
        home = () if not here.own_columns else ("dense1",)
        last = (f"dense{len(nets.widths) - 1}",)
        rows: dict[str, Callable[[], Algorithm]] = {
            "alone": lambda: algorithms.LocalOnly(loss, **how),
            "FedAvg": lambda: algorithms.FedAvg(loss, **how),
            "FedAvg, fine-tuned": lambda: algorithms.FineTunedFedAvg(
                loss, fedavg_rounds=given["rounds"], finetune_lr=at_home, **OWN["FedAvg, fine-tuned"], **how
            ),
            "FedProx": lambda: algorithms.FedProx(loss, **OWN["FedProx"], **how),
            "SCAFFOLD": lambda: algorithms.Scaffold(loss, **how),
            "FedAdam": lambda: algorithms.FedAdam(loss, server_lr=rate / 10, **how | {"lr": of_fedadam}),
            "Ditto": lambda: algorithms.Ditto(loss, **OWN["Ditto"], **how),
            "FedRep": lambda: algorithms.FedRep(loss, local=last, **OWN["FedRep"], **how),
            "pFedGraph": lambda: algorithms.PFedGraph(loss, **how),
            OURS: partial(SteppedLGCFL, loss, local=home, **how) if home else partial(SteppedSplitHalfCFL, loss, **how),
            "IFCA": lambda: algorithms.IFCA(loss, **told),
            "FedEM": lambda: algorithms.FedEM(loss, components=here.groups, **how | {"predict": nets.mixture}),
            "FeSEM": lambda: algorithms.FeSEM(loss, **told),
            "FedGroup": lambda: algorithms.FedGroup(loss, **told),
            "k-means": lambda: algorithms.ClusteredKMeans(loss, **told),
            "PACFL": lambda: algorithms.PACFL(loss, **OWN["PACFL"], **how),
            "FedCG": lambda: FedCGKnownDomains(
                loss_of(nets.with_domains),
                net=nets.with_domains,
                gcn=nets.graph,
                teacher=partial(em_domains, domains=nets.domains, classes=nets.widths[-1]),
                **how | {"predict": nets.with_domains},
            ),
            "FedProto": lambda: algorithms.FedProto(
                loss_of(nets.with_prototypes),
                net=nets.with_prototypes,
                **how | {"predict": nets.with_prototypes.nearest},
            ),
            "LG-FedAvg": lambda: algorithms.LGFedAvg(loss, **how),
            "FedSGCNN": lambda: algorithms.FedSGCNN(
                loss,
                mmd=0.0,
                score="accuracy",
                validation=here.validation,
                trainers=given["trainers"],
                pair_rounds=given["pair rounds"],
                snapshots=(10,),
                learn=train_on_gains,
                cluster=lambda distance: [linkage(distance, m) for m in range(1, here.groups + 1)],
                **how,
            ),
        }
        if here.group is not None:
            mixed = np.random.RandomState(seed).permutation(here.group)
            for name, group in zip(CONTROLS, (here.group, mixed), strict=True):
                rows[name] = partial(InGroups, loss, local=home, assignment=group.tolist(), **how)
        if here.own_columns:
            del rows["FedCG"]  # its student looks at images, and its domains are those of images
        return rows

    @lru_cache(maxsize=1)  # noqa: B019
    def train(self, name: str, kind: str, seed: int, rate: float, at_home: float | None = None) -> Run:
        """One method in one world; again with a third of its rates where it diverges."""
        here, rounds, drawn = self.world(kind, seed), self.settings["rounds"], self.drawn(kind)
        if name == "alone":  # as often as a client takes part in a federation, in the mean
            rounds, drawn = rounds * drawn // len(here.train), len(here.train)
        try:
            algorithm = self.methods(here, seed, rate, at_home)[name]()
            with warnings.catch_warnings():
                # the tables show it: domains that collapse, one cluster for all, a cluster that is never tested
                warnings.simplefilter("ignore", UserWarning)
                more = name == "FedAvg, fine-tuned"  # a round at home
                start = here.nets.of(name).init(seed)
                end = fedlib.fit(algorithm, start, here.train, rounds + more, drawn, seed=seed, progress=False)
        except FloatingPointError:
            return self.train(name, kind, seed, rate / 3, at_home and at_home / 3)
        scored = [evaluation.evaluate(algorithm, end, part) for part in (here.test, here.validation)]
        return Run(rate, end.state, end.history, *scored)

    def validated(self, name: str, kind: str, seed: int, rate: float) -> float:
        """Mean accuracy of the clients on their validation rows."""
        return round(float(self.train(name, kind, seed, rate).validation["accuracy"].mean()), 4)

    def validated_at_home(self, kind: str, seed: int, rate: float) -> dict[str, float]:
        """The same for FedAvg's model that clients have fine-tuned, by the rate at home."""
        name, here = "FedAvg, fine-tuned", self.world(kind, seed)
        state, found = self.train(name, kind, seed, rate).state, {}
        data = here.train.to(state.tuned.device).sorted()
        for at_home in self.settings["rates"]:  # all from one model of FedAvg, which does not change meanwhile
            algorithm = self.methods(here, seed, rate, at_home)[name]()
            tuned = algorithm.new_clients(state, data, Key(seed, self.settings["rounds"]), rounds=1)
            end = fedlib.Result(tuned, data.id, pd.DataFrame())
            scores = evaluation.evaluate(algorithm, end, here.validation)
            found[str(at_home)] = round(float(scores["accuracy"].mean()), 4)
        return found

    def each_client_alone(self, kind: str, seed: int, rate: float) -> dict[str, list[float]]:
        """Accuracy of each client that trains by itself."""
        return self.train("alone", kind, seed, rate).test[["id", "accuracy"]].to_dict("list")

    def cell(
        self, name: str, kind: str, seed: int, rate: float, alone: dict[str, list[float]], at_home: float | None = None
    ) -> dict[str, float]:
        """A cell of the table: what is kept of a run."""
        run, group = self.train(name, kind, seed, rate, at_home), self.world(kind, seed).group
        found = {
            "accuracy": run.test["accuracy"].mean(),
            "worst decile": statistics.summary(run.test)["worst decile"],
            "negative transfer": statistics.negative_transfer(run.test, pd.DataFrame(alone)),
        }
        if name in FINDS:
            assignment = run.state.assignment.cpu().numpy()
            found["clusters"] = len(np.unique(assignment))
            if group is not None:
                found["ARI"] = statistics.cluster_scores(group, assignment)["ari"]
        for way in ("down", "up"):  # round 0 included
            messages = self.settings["rounds"] * self.drawn(kind)
            found[f"kB {way}"] = run.history[f"bytes_{way}"].sum() / (messages * 1e3)
        found |= {"rate": run.rate} | ({} if at_home is None else {"rate at home": at_home * run.rate / rate})
        return {what: round(float(value), 5) for what, value in found.items()}


# ---- the whole table ----


Arms = Mapping[str, Sequence[str]]  # of the probe, on which a method depends


def chosen_rates(keep: running.Keep, board: Board, kind: str, arms: Arms, names: Sequence[str]) -> dict[str, Any]:
    """What validation says of each rate: of a method, and of FedAvg's and the one at home for fine-tuning."""
    tuned, seed = "FedAvg, fine-tuned", board.settings["seed that chooses"]
    found: dict[str, Any] = {"validation": {}, "rates": {}}

    def tried(name: str, label: str, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
        part = f"{kind}: {name} at"
        rates = board.settings["rates"]
        return {str(r): keep(f"{part} {r}{label}", function, *args, kind, seed, r, arms=arms[name]) for r in rates}

    for name in names:
        if name == tuned:
            pairs = tried(name, ", by rate at home", board.validated_at_home)
            scores = {r: max(by.values()) for r, by in pairs.items()}
            best = pairs[max(scores, key=scores.__getitem__)]
            found |= {"validation at home": pairs, "rate at home": float(max(best, key=best.get))}
        else:
            scores = tried(name, "", board.validated, name)
        found["validation"][name], found["rates"][name] = scores, float(max(scores, key=scores.__getitem__))
    return found


def cells(
    keep: running.Keep, board: Board, kind: str, arms: Arms, names: Sequence[str], figures: dict[str, Any]
) -> Iterator[tuple[int, str, dict[str, float]]]:
    """Choose the rates of some methods, which come among the figures; then run each: seed, method and cell."""
    asked = names if "alone" in names else ["alone", *names]  # it says who is worse off than alone
    chosen = chosen_rates(keep, board, kind, arms, asked)
    for what, value in chosen.items():
        figures.setdefault(what, {})[kind] = value
    for seed in board.settings["seeds"]:
        one = kind, seed, chosen["rates"]["alone"]
        alone = keep(f"{kind}, {seed}: clients alone", board.each_client_alone, *one, arms=arms["alone"])
        for name in names:
            at_home = chosen["rate at home"] if name == "FedAvg, fine-tuned" else None
            one = name, kind, seed, chosen["rates"][name], alone, at_home
            yield seed, name, keep(f"{kind}, {seed}: {name}", board.cell, *one, arms=arms[name])


def measure(settings: dict[str, Any], keep: running.Keep, moved: Sequence[str]) -> dict[str, Any]:
    """Choose rates, then run every cell of the arms that moved.

    ``grid``, kind -> method -> score -> seed; ``validation``; ``rates``; and the two last of fine-tuning, ``at home``.
    """
    board = Board(settings)
    figures: dict[str, Any] = {"grid": {}}
    for kind in KINDS:
        here = board.world(kind, settings["seed that chooses"])
        arms = {name: (name, "alone", kind)[: 2 if kind == "writers" else 3] for name in METHODS + CONTROLS}
        names = [name for name in board.methods(here, 0, RATES[0]) if set(arms[name]) & set(moved)]
        grid = figures["grid"].setdefault(kind, {})
        for seed, name, cell in cells(keep, board, kind, arms, names, figures):
            enter(grid, seed, {name: cell})
    return figures


def probe() -> running.Probe:
    """Each method on eight clients of very different size, four of whom take part, and FedAvg in each kind."""
    few = {"clients": 8, "cohort": 4, "everybody": 8, "rounds": 2, "digits": 30, "trainers": 3}
    board = Board(SETTINGS | few | {"pair rounds": 1, "epochs": 1})
    worlds = {kind: board.world(kind, 0) for kind in KINDS if kind not in ("writers", "columns without names")}
    table = with_table(8, 0, **TABLE)
    here = replace(worlds["unequal sizes"], group=np.arange(8) % 4)
    tested: dict[str, Any] = {"level": 0.99, "every": 1, "min_size": 1}  # CFL tests its clusters in each round
    default = SteppedSplitHalfCFL(loss_of(here.nets.mixture))
    found: running.Probe = {f"{OURS}, default": [default.level, default.every, default.test_epochs]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        runs = [(here, name) for name in board.methods(here, 0, 0.3)]
        for world, name in (*runs, *((table, name) for name in (OURS, "LG-FedAvg", "FedSGCNN", *CONTROLS))):
            algorithm, start = board.methods(world, 0, 0.3, 0.1)[name](), world.nets.of(name).init(0)
            if name == "FedCG":
                algorithm = replace(algorithm, teacher=partial(algorithm.teacher, dtype=torch.float64))
            if name == OURS:
                algorithm = replace(algorithm, **tested)
            rounds, drawn = 2 + (name == "FedAvg, fine-tuned"), 8 if name == OURS or world is table else 4
            end = fedlib.fit(algorithm, start, world.train, rounds, drawn, **EXACT)
            numbers = running.numbers_of(algorithm, end) + running.scores_of(algorithm, end, world.test)
            found[name] = found.get(name, []) + numbers
            if name == "FedSGCNN" and world is here:
                found[name] += [float(end.state.gain.sum()), float(end.state.distance.double().square().sum())]
    worlds["columns without names"] = table
    for kind, other in worlds.items():
        found[kind] = running.trace(board.methods(other, 0, 0.3)["FedAvg"](), other.nets.model.init(0), other.train)
    return found


DATA = ("mnist5k", "femnist300", "wine")
PRESETS = {"full": running.Experiment("scoreboard", SETTINGS, measure, probe, DATA, by_arm=True)}
