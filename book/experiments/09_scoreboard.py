"""Every method in every kind of federation: chapter 9's grid.

Seven kinds of clients, made from 4,000 handwritten digits at 14 x 14 pixels, and thirteen methods with the same
clients, network and rounds; where groups are planted, true and random groups as controls. Each method chooses among the
same three learning rates by validation digits of a seed of its own; the table has five other seeds. Preset ``full``
takes about an hour on one core.
"""

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
import torch

import fedlib
from book.experiments import running
from fedlib import datasets, evaluation, models, partition
from fedlib.algorithms import (
    CFL,
    IFCA,
    ClusteredKMeans,
    FedAdam,
    FedAvg,
    FedCGKnownDomains,
    FedGroup,
    FedProx,
    FedSGCNN,
    FeSEM,
    LGFedAvg,
    LocalOnly,
    Scaffold,
)
from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.data import Batch, ClientData, stack_rows
from fedlib.losses import cross_entropy
from fedlib.params import Params
from fedlib.reports import statistics
from fedlib.server.distance_clusters import linkage
from fedlib.server.mixture import em_domains
from fedlib.server.model_graph import train_siamese

SETTINGS = {
    "digits": 4000,
    "clients": 40,
    "rounds": 70,
    "trainers": 8,  # clients of which FedSGCNN measures all pairs
    "pair rounds": 20,
    "seeds": [100, 101, 102, 103, 104],
    "seeds that choose": 1,
    "batch_size": 20,
    "epochs": 2,
    "columns": 40,  # pixels that a client sees where clients have different ones
}
KINDS = ("equal clients", "label skew", "unequal sizes", "rotations", "styles", "label names", "columns")
METHODS = (
    "alone", "FedAvg", "FedProx", "SCAFFOLD", "FedAdam", "CFL", "IFCA", "FeSEM", "FedGroup", "k-means", "FedCG",
    "LG-FedAvg", "FedSGCNN",
)  # fmt: skip
CONTROLS = ("true groups", "random groups")  # where groups are planted
FINDS = ("CFL", "IFCA", "FeSEM", "FedGroup", "k-means", "FedSGCNN")  # clusters
FOLLOWS = {  # too dear to choose for, or a control: it has the rate of another
    "FedCG": "FedAvg",
    "FedSGCNN": "LG-FedAvg",
    "true groups": "k-means",
    "random groups": "k-means",
}
RATES, SERVER_RATE = (0.1, 0.3, 0.9), 0.3  # to choose from; FedAdam chooses the server's tenth, and clients have 0.3
GROUPS, PIXELS = 4, 196
PARTS = (0.4, 0.2, 0.4)  # of each client's digits: training, validation, test

model = models.MLP((PIXELS, 32, 10))
student = DomainClassifier((1, 14, 14), GROUPS, "flatten", (8, 16), (2, 1))
domain_model = DomainNet(model, GROUPS, ("dense2",), student)


def loss(params: Params, batch: Batch) -> torch.Tensor:
    """Cross-entropy of one client's batch."""
    x, y, w = batch
    return cross_entropy(model(params, x), y, w)


def domain_loss(params: Params, batch: Batch, w_d: Any = None) -> torch.Tensor:
    """The same for FedCG, whose network has a module for each domain."""
    x, y, w = batch
    return cross_entropy(domain_model(params, x, w_d), y, w)


# ---- the columns: kinds of clients ----


@dataclass(frozen=True)
class World:
    """A federation: three parts of each client's digits, and planted groups."""

    train: ClientData
    validation: ClientData
    test: ClientData
    group: np.ndarray | None


@cache
def small_digits() -> tuple[np.ndarray, np.ndarray]:
    """The digits at 14 x 14 pixels, and their labels."""
    arrays = datasets.load("mnist5k")
    return arrays.x.reshape(-1, 1, 14, 2, 14, 2).mean((3, 5)).astype(np.uint8), arrays.y


def deal(kind: str, y: np.ndarray, clients: int, columns: int, seed: int) -> Any:
    """The partition of a kind of clients."""
    if kind == "label skew":
        return partition.dirichlet(y, clients, alpha=0.1, seed=seed, min_rows=10, attempts=5000)
    if kind == "unequal sizes":
        return partition.quantity(y, clients, 0.8, seed)
    even = partition.iid(y, clients, seed)
    if kind == "rotations":
        return partition.rotation(even, seed=seed)
    if kind == "styles":  # each client has one style in 70 % of its digits and another in 30 %
        return partition.mixture(partition.style(even, seed=seed), fraction=1.0, share=0.3, seed=seed)
    if kind == "label names":
        return partition.label_permutation(even, GROUPS, seed=seed)
    if kind == "columns":
        return partition.feature_subsets(even, PIXELS, columns, GROUPS, seed)
    return even


def own_pixels(part: Any, x: np.ndarray, y: np.ndarray) -> ClientData:
    """Clients that see some pixels only; for the others zeros stand there."""
    flat = x.reshape(len(x), -1).copy()
    for rows, columns in zip(part.rows, part.columns, strict=True):
        flat[np.ix_(rows, np.setdiff1d(np.arange(PIXELS), columns))] = 0
    return stack_rows(flat.reshape(x.shape), y, part.rows, part.id.tolist(), 10)


# ---- the cells ----


@dataclass(frozen=True)
class Run:
    """A finished run, and how each client does on its own digits."""

    rate: float
    state: Any
    history: pd.DataFrame
    test: pd.DataFrame
    validation: pd.DataFrame


@dataclass(frozen=True)
class Board:
    """The protocol, which is the same for all cells of the table."""

    digits: int
    clients: int
    rounds: int
    trainers: int
    pair_rounds: int
    batch_size: int
    epochs: int
    columns: int

    @cache  # noqa: B019
    def world(self, kind: str, seed: int) -> World:
        """The federation of a column of the table."""
        x, y = small_digits()
        order = np.random.RandomState(seed).permutation(len(y))[: self.digits]
        x, y = x[order], y[order]
        dealt = deal(kind, y, self.clients, self.columns, seed)
        parts = dealt.split(PARTS, seed)
        if kind == "columns":
            three = [own_pixels(part, x, y) for part in parts]
        else:
            three = [part.clients(x, y, classes=10) for part in parts]
        return World(*three, dealt.group if dealt.change is not None else None)

    def methods(self, here: World, seed: int, rate: float) -> dict[str, Callable[[], Any]]:
        """The rows of the table: name -> a function that makes the algorithm."""
        how = {"lr": rate, "predict": model, "batch_size": self.batch_size, "epochs": self.epochs}
        four = how | {"clusters": GROUPS}
        rows = {
            "alone": lambda: LocalOnly(loss, **how),
            "FedAvg": lambda: FedAvg(loss, **how),
            "FedProx": lambda: FedProx(loss, mu=0.1, **how),
            "SCAFFOLD": lambda: Scaffold(loss, **how),
            "FedAdam": lambda: FedAdam(loss, server_lr=rate / 10, **how | {"lr": SERVER_RATE}),
            "CFL": lambda: CFL(loss, **how),
            "IFCA": lambda: IFCA(loss, **four),
            "FeSEM": lambda: FeSEM(loss, **four),
            "FedGroup": lambda: FedGroup(loss, **four),
            "k-means": lambda: ClusteredKMeans(loss, **four),
            "FedCG": lambda: FedCGKnownDomains(
                domain_loss,
                net=domain_model,
                teacher=partial(em_domains, domains=GROUPS, classes=10),
                **how | {"predict": domain_model},
            ),
            "LG-FedAvg": lambda: LGFedAvg(loss, **how),
            "FedSGCNN": lambda: FedSGCNN(
                loss,
                mmd=0.0,
                score="accuracy",
                validation=here.validation,
                trainers=self.trainers,
                pair_rounds=self.pair_rounds,
                snapshots=(10,),
                learn=partial(train_siamese, recipe="book"),
                cluster=lambda distance: [linkage(distance, m) for m in (1, 2, 3, 4)],
                **how,
            ),
        }
        if here.group is not None:
            mixed = np.random.RandomState(seed).permutation(here.group)
            for name, given in zip(CONTROLS, (here.group, mixed), strict=True):
                rows[name] = partial(LGFedAvg, loss, local=(), assignment=given.tolist(), **how)
        return rows

    @lru_cache(maxsize=1)  # noqa: B019
    def train(self, name: str, kind: str, seed: int, rate: float) -> Run:
        """One method in one world; again with a third of the rate where it diverges."""
        here = self.world(kind, seed)
        start = (domain_model if name == "FedCG" else model).init(seed)
        try:
            algorithm = self.methods(here, seed, rate)[name]()
            with warnings.catch_warnings():
                # the tables show it: domains that collapse, one cluster for all
                warnings.simplefilter("ignore", UserWarning)
                end = fedlib.fit(algorithm, start, here.train, self.rounds, seed=seed, progress=False)
        except FloatingPointError:
            return self.train(name, kind, seed, rate / 3)
        scored = [evaluation.evaluate(algorithm, end, part) for part in (here.test, here.validation)]
        return Run(rate, end.state, end.history, *scored)

    def validated(self, name: str, kind: str, seeds: int, rate: float) -> float:
        """Mean accuracy of the clients on their validation digits, over seeds 0, 1, ..."""
        runs = [self.train(name, kind, s, rate).validation for s in range(seeds)]
        return round(float(np.mean([r["accuracy"].mean() for r in runs])), 4)

    def each_client_alone(self, kind: str, seed: int, rate: float) -> dict[str, list[float]]:
        """Accuracy of each client that trains by itself."""
        table = self.train("alone", kind, seed, rate).test
        return {"id": table["id"].tolist(), "accuracy": table["accuracy"].tolist()}

    def cell(self, name: str, kind: str, seed: int, rate: float, alone: dict[str, list[float]]) -> dict[str, float]:
        """A cell of the table: what is kept of a run."""
        run, group = self.train(name, kind, seed, rate), self.world(kind, seed).group
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
            found[f"kB {way}"] = run.history[f"bytes_{way}"].sum() / (self.rounds * self.clients * 1e3)
        return {what: round(float(value), 5) for what, value in (found | {"rate": run.rate}).items()}


# ---- the whole table ----


def board_of(settings: dict[str, Any]) -> Board:
    """The protocol that settings state."""
    return Board(**{field.name: settings[field.name.replace("pair_", "pair ")] for field in dataclasses.fields(Board)})


def measure(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Choose rates, then run every cell: ``grid``, kind -> method -> score -> seed; ``validation``; ``rates``."""
    board, grid, validation, rates = board_of(settings), {}, {}, {}
    for kind in KINDS:
        tried = {
            name: {str(r): keep(f"{kind}: {name} at {r}", board.validated, name, kind, settings["seeds that choose"], r)
                   for r in RATES}
            for name in METHODS
            if name not in FOLLOWS
        }  # fmt: skip
        best = {name: float(max(by, key=by.get)) for name, by in tried.items()}
        best |= {name: best[other] for name, other in FOLLOWS.items()}
        validation[kind], rates[kind], grid[kind] = tried, best, {}
        for seed in settings["seeds"]:
            alone = keep(f"{kind}, {seed}: clients alone", board.each_client_alone, kind, seed, best["alone"])
            names = METHODS + (CONTROLS if board.world(kind, seed).group is not None else ())
            for name in names:
                cell = keep(f"{kind}, {seed}: {name}", board.cell, name, kind, seed, best[name], alone)
                for what, value in cell.items():
                    grid[kind].setdefault(name, {}).setdefault(what, {})[str(seed)] = value
    return {"grid": grid, "validation": validation, "rates": rates}


def probe() -> running.Probe:
    """Each method on eight clients of very different size, and FedAvg in each kind of federation."""
    board = Board(digits=240, clients=8, rounds=2, trainers=3, pair_rounds=1, batch_size=20, epochs=1, columns=40)
    worlds = {kind: board.world(kind, 0) for kind in KINDS}
    here = dataclasses.replace(worlds["unequal sizes"], group=np.arange(8) % GROUPS)
    start, domain_start = ({k: p.double() for k, p in net.init(0).items()} for net in (model, domain_model))
    double = {"seed": 0, "dtype": torch.float64, "device": "cpu", "progress": False}
    arms = board.methods(here, 0, 0.3)
    found: running.Probe = {"CFL, default": [CFL(loss).level, CFL(loss).rest]}
    arms["CFL"] = lambda: CFL(loss, lr=0.3, batch_size=20, level=0.99, rest=1, min_size=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for name, make in arms.items():
            algorithm = make()
            if name == "FedCG":
                algorithm = dataclasses.replace(algorithm, teacher=partial(algorithm.teacher, dtype=torch.float64))
            end = fedlib.fit(algorithm, domain_start if name == "FedCG" else start, here.train, 2, **double)
            found[name] = running.numbers_of(algorithm, end)
            if name == "FedSGCNN":
                found[name] += [float(end.state.gain.sum()), float(end.state.distance.double().square().sum())]
    for kind, other in worlds.items():
        found[kind] = running.trace(arms["FedAvg"](), start, other.train)
    return found


PRESETS = {"full": running.Experiment("09_scoreboard", SETTINGS, measure, probe, data=("mnist5k",))}

if __name__ == "__main__":
    running.main(PRESETS)
