"""Chapter 11: clients whose tables have different columns.

``full`` asks, on five seeds: does sharing all but the first layer (LG-FedAvg) beat training alone and averaging
everything, on two tables and with two ways to code their columns? How does that depend on the rows of a client? What
does the MMD do to the common space and to the score (also on Boston Housing, the paper's setting)?
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import fedlib
from book.experiments import running, tabular
from book.experiments.worlds import ON_CPU, Rows, by_seed, loss_and_predict
from fedlib import Algorithm, ClientData, Key, evaluation, models, statistics
from fedlib.algorithms import FedAvg, LGFedAvg, LocalOnly
from fedlib.algorithms.lg_fedavg import LGFedAvgState, first_layer
from fedlib.client import mmd
from fedlib.params import Params, broadcast, take

Settings = Mapping[str, Any]
Scores = dict[str, float]

SETTINGS: dict[str, Any] = {"clients": 20, "seeds": 5, "seed": 100}  # no setting was chosen on these five
SETTINGS |= {"rounds": 40, "space rounds": 20, "sweep rounds": 100, "group rounds": 50, "every": 2}  # "every": scored
SETTINGS["shipped"] = {  # rows, columns and validation rows of a client
    "diabetes": {"rows": 12, "features": 4, "validation": 5},
    "breast_cancer": {"rows": 8, "features": (3, 8), "validation": 8},
}
SETTINGS["local"] = {"lr": 0.02, "epochs": 5, "batch_size": 32}
SETTINGS["boston"] = {"lr": 0.01, "epochs": 10, "batch_size": 32}  # the paper's
CODES = ("as dealt", "own signs")
LADDER, LADDER_ROUNDS = (6, 48), 30  # rows of a client
WEIGHTS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1, 2)  # of the MMD


# ---- clients ----


@dataclass(frozen=True, eq=False)
class World:
    """Clients with columns of their own, and a network for them."""

    sets: dict[str, ClientData]  # train, test, perhaps validation and cut
    group: np.ndarray  # feature group of each client
    net: models.MLP
    classes: int | None  # None: regression
    local: Settings  # of local training

    @property
    def score(self) -> str:
        """What is reported: "r2" or "accuracy"."""
        return "r2" if self.classes is None else "accuracy"

    def algorithm(self, kind: Callable[..., Algorithm], **settings: Any) -> Algorithm:
        """An algorithm for these clients."""
        how = {"optimizer": partial(torch.optim.SGD, momentum=0.5), **self.local, **settings}
        return kind(**loss_and_predict(self.net, self.classes), **how)


Rivals = dict[str, tuple[World, Algorithm]]


def by_client(data: ClientData) -> Tensor:
    """Features of shape (K, rows, columns)."""
    return data.x.view(len(data), -1, data.x.shape[1])


def with_features(data: ClientData, x: Tensor) -> ClientData:
    """The same clients with other features."""
    return replace(data, x=x.reshape(-1, x.shape[-1]))


def parts_of(dealt: tabular.TabularClients) -> dict[str, ClientData]:
    """Training, validation and test rows, by name."""
    parts = {"train": dealt.train, "validation": dealt.validation, "test": dealt.test}
    return {n: d for n, d in parts.items() if d is not None}


def own_signs(sets: Mapping[str, ClientData], seed: int) -> dict[str, ClientData]:
    """Every client codes each of its columns up or down, by the toss of a coin.

    For the private layers this is an own random start: to flip a column is to flip the signs of its weights.
    """
    shape = len(sets["train"]), 1, sets["train"].x.shape[1]
    sign = torch.from_numpy(np.random.RandomState(seed).choice([-1.0, 1.0], shape)).float()
    return {n: with_features(d, by_client(d) * sign) for n, d in sets.items()}


def matched(sets: Mapping[str, ClientData], owned: Iterable[np.ndarray], columns: int) -> dict[str, ClientData]:
    """Columns of the same name in the same place; 0, the mean, where a client lacks one."""

    def widen(data: ClientData) -> ClientData:
        x = by_client(data)
        wide = x.new_zeros(*x.shape[:2], columns)
        for k, own in enumerate(owned):
            wide[k][:, own] = x[k, :, : len(own)]
        return with_features(data, wide)

    return {n: widen(d) for n, d in sets.items()}


def world_of(
    settings: Settings, name: str, seed: int, codes: str = "as dealt", by_name: bool = False, **how: Any
) -> World:
    """Clients with rows and columns of a table of scikit-learn."""
    table = tabular.table(name)
    dealt = tabular.deal(table, settings["clients"], seed=seed, **settings["shipped"][name] | how)
    sets = own_signs(parts_of(dealt), seed) if codes == "own signs" else parts_of(dealt)
    if by_name:
        sets = matched(sets, dealt.columns, len(table.columns))
    net = models.MLP((sets["train"].x.shape[1], 32, 16, table.classes or 1))
    return World(sets, dealt.group, net, table.classes, settings["local"])


def paper_world(settings: Settings, seed: int, groups: int, name: str = "boston") -> World:
    """The paper's first setting: 20 rows and 5 of 13 columns a client, 106 rows held out.

    Of these there is a second version, cut off at the least and largest value among a client's training rows.
    """
    paper = tabular.SETTINGS["boston"]
    dealt = tabular.deal(tabular.table(name), settings["clients"], paper.rows, paper.features, groups=groups, seed=seed)
    sets, seen = parts_of(dealt), by_client(dealt.train)
    cut = by_client(dealt.test).clamp(seen.amin(1, keepdim=True), seen.amax(1, keepdim=True))
    sets["cut"], net = with_features(dealt.test, cut), models.MLP((paper.features, *paper.hidden, 1))
    return World(sets, dealt.group, net, None, settings["boston"])


# ---- ways to train ----

Arms = dict[str, tuple[Callable[..., Algorithm], dict[str, Any]]]  # class and settings
ALONE: Arms = {"standalone": (LocalOnly, {})}
SHARED: Arms = {"LG-FedAvg": (LGFedAvg, {})}
AGAINST: Arms = {
    "no MMD": (LGFedAvg, {}),
    "centroid": (LGFedAvg, {"mmd": 0.5}),
    "centroid, weight 20": (LGFedAvg, {"mmd": 20.0}),
}
WITH_MMD: Arms = SHARED | {"LG-FedAvg + MMD": (LGFedAvg, {"mmd": 0.5})}


# ---- a start for private layers ----


@dataclass(frozen=True)
class WarmedUp(LGFedAvg):
    """Each private layer is first trained alone for ten rounds, under the common start of the shared layers."""

    def prepare(self, state: LGFedAvgState, data: ClientData, key: Key) -> LGFedAvgState:
        """The shared layers stay as they are."""
        shared = take(state.models, state.assignment)
        local = self.fitted(state.local, shared, data, key, rounds=10)
        return super().prepare(replace(state, local=local), data, key)


# ---- what is compared ----


def rivals(world: World, arms: Arms) -> Rivals:
    """Algorithms for one world, given by their class and settings."""
    return {m: (world, world.algorithm(kind, **how)) for m, (kind, how) in arms.items()}


def contenders(settings: Settings, name: str, codes: str, seed: int) -> Rivals:
    """Five ways to train, from the same start."""
    world, by_name = (world_of(settings, name, seed, codes, matching) for matching in (False, True))
    own = ALONE | {"FedAvg by position": (FedAvg, {})} | SHARED | {"LG-FedAvg, warmed up": (WarmedUp, {})}
    return rivals(world, own) | rivals(by_name, {"FedAvg by name": (FedAvg, {})})


def by_rows(settings: Settings, name: str, rows: int, seed: int) -> Rivals:
    """Clients with so many training rows each, which may overlap."""
    return rivals(world_of(settings, name, seed, rows=rows, overlap=True), ALONE | SHARED)


def in_space(settings: Settings, seed: int) -> Rivals:
    """LG-FedAvg in two feature groups of diabetes, with and without MMD; and standalone."""
    return rivals(world_of(settings, "diabetes", seed, features=3, groups=2), ALONE | AGAINST)


# ---- runs ----


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: where it ended, and how it went."""

    world: World
    algorithm: Algorithm
    state: Any
    history: pd.DataFrame
    clients: dict[int, pd.DataFrame]  # round -> scores of each client on the hold-out

    def of_chosen_round(self) -> pd.DataFrame:
        """Scores of each client in the round that validation chose."""
        return self.clients[int(numbers(self)["round"])]


def trained(world: World, algorithm: Algorithm, seed: int, rounds: int, every: int) -> Run:
    """Train, and score from time to time."""
    scored = {n: d.sorted() for n, d in world.sets.items() if n != "train"}
    everybody, clients = torch.arange(len(world.sets["train"])), {}

    def watch(t: int, state: Any, entry: dict[str, Any]) -> None:
        if t % every and t < rounds:
            return
        for name, data in scored.items():
            table = evaluation.score(algorithm, state, data, everybody)
            entry[f"{name}_{world.score}"] = evaluation.pooled(table)[world.score]
            entry[f"{name}_median"] = table[world.score].median()
            if name == "test":
                clients[t] = table

    data, start = world.sets["train"], world.net.init(seed)
    end = fedlib.fit(algorithm, start, data, rounds, seed=seed, callbacks=[watch], **ON_CPU)
    return Run(world, algorithm, end.state, end.history, clients)


def all_trained(rivals: Rivals, seed: int, rounds: int, every: int) -> dict[str, Run]:
    """`trained`, one after the other."""
    return {m: trained(world, algorithm, seed, rounds, every) for m, (world, algorithm) in rivals.items()}


def numbers(run: Run, rounds: int | None = None) -> Scores:
    """Scores on the hold-out: where validation stopped, at the end, at the best round, and at a fixed one."""
    test = f"test_{run.world.score}"
    h = run.history.dropna(subset=[test]).set_index("round")
    out = {"last": h[test].iloc[-1], "max": h[test].max()}
    if "validation" in run.world.sets:
        chosen = h[f"validation_{run.world.score}"].idxmax()
        out |= {"chosen": h[test][chosen], "round": chosen}
    if "cut" in run.world.sets:
        at = h.loc[h.index[-1] if rounds is None else rounds]
        out |= {"pooled": at[test], "median": at["test_median"], "cut": at["cut_r2"]}
        out["cut, last"] = h["cut_r2"].iloc[-1]
    return {name: float(value) for name, value in out.items()}


def embeddings(world: World, params: Params) -> Tensor:
    """Where each client puts the rows of the hold-out, the same for all: (K, rows, h)."""
    x, _, _ = world.sets["test"].all_rows(next(iter(params.values())).dtype)
    with torch.no_grad():
        return torch.vmap(first_layer)(params, x)


def apart(q: Tensor, group: np.ndarray) -> Scores:
    """MMD^2 of even and odd rows of two clients in two groups; how far clients put the same row apart."""
    i, j = torch.cartesian_prod(torch.arange(len(q)), torch.arange(len(q))).T
    one_way = torch.vmap(mmd.mmd2)(q[i, ::2], q[j, 1::2]).view(len(q), len(q))
    d = (one_way + one_way.T).numpy() / 2
    other = ~np.eye(len(q), dtype=bool)
    equal, shifted = ((q[:, None] - q[None].roll(shift, 2)).norm(dim=-1).mean(-1).numpy() for shift in (0, 1))
    return {
        "MMD^2, other group": float(d[group[:, None] != group].mean()),
        "spread": float(q.std(1).mean()),
        "same row / other row": float(equal[other].mean() / shifted[other].mean()),
    }


# ---- what is kept: scores of settings ----


def measure_contest(settings: Settings, name: str, codes: str, seed: int) -> Rows:
    """Whether averaging breaks, and whether sharing helps."""
    runs = all_trained(contenders(settings, name, codes, seed), seed, settings["rounds"], settings["every"])
    alone, rows = runs["standalone"].of_chosen_round(), {}
    for m, run in runs.items():
        worse = statistics.negative_transfer(run.of_chosen_round(), alone, run.world.score)
        rows[f"{name}, {codes}: {m}"] = numbers(run) | {"worse than standalone": worse}
    return rows


def measure_rows(settings: Settings, name: str, rows: int, seed: int) -> Rows:
    """What others bring a client, by its number of rows."""
    runs = all_trained(by_rows(settings, name, rows, seed), seed, min(settings["rounds"], LADDER_ROUNDS), 3)
    return {f"{name}, {rows} rows: {m}": numbers(run) for m, run in runs.items()}


def measure_space(settings: Settings, seed: int) -> Rows:
    """Whether the common space is common, and what the MMD costs."""
    k = settings["clients"]
    runs = all_trained(in_space(settings, seed), seed, settings["space rounds"], settings["every"])
    world = runs["no MMD"].world
    start = broadcast(world.net.init(seed), k)
    rows = {"space: at the start": apart(embeddings(world, start), world.group)}
    for name, run in runs.items():
        params = run.algorithm.client_params(run.state, torch.arange(k))
        h = run.history[run.history["round"] > 0]
        rows[f"space: {name}"] = {
            "R2": numbers(run)["chosen"],
            **apart(embeddings(world, params), world.group),
            "kB": float((h["bytes_down"] + h["bytes_up"]).mean() / k / 1e3),  # a client and round
        }
    return rows


def measure_weight(settings: Settings, weight: float, seed: int) -> Rows:
    """The paper's Figure 5, on random columns."""
    arms = rivals(paper_world(settings, seed, groups=1), {"so much MMD": (LGFedAvg, {"mmd": weight})})
    (run,) = all_trained(arms, seed, settings["sweep rounds"], settings["every"]).values()
    also = {0: "random columns: LG-FedAvg", 0.5: "random columns: LG-FedAvg + MMD"}
    return {name: numbers(run, settings["group rounds"]) for name in (f"weight {weight}", also.get(weight)) if name}


def measure_groups(settings: Settings, seed: int) -> Rows:
    """One federation of two feature groups, with MMD and without."""
    arms = rivals(paper_world(settings, seed, groups=2), WITH_MMD)
    runs = all_trained(arms, seed, settings["group rounds"], settings["every"])
    return {f"groups: {m}": numbers(run) for m, run in runs.items()}


def measure(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Setting -> score -> seed -> number."""
    figures = by_seed(settings, keep, "space", measure_space, settings)
    for name, codes in product(settings["shipped"], CODES):
        figures |= by_seed(settings, keep, f"{name}, {codes}", measure_contest, settings, name, codes)
    for name, rows in product(settings["shipped"], LADDER):
        figures |= by_seed(settings, keep, f"{name}, {rows} rows", measure_rows, settings, name, rows)
    for weight in WEIGHTS:
        figures |= by_seed(settings, keep, f"Boston, weight {weight}", measure_weight, settings, weight)
    return figures | by_seed(settings, keep, "Boston, groups", measure_groups, settings)


# ---- does the code still do the same? ----


def uneven(data: ClientData) -> ClientData:
    """Clients with up to two rows less, so that weights by rows are seen."""
    n = data.n - torch.arange(len(data)) % 3
    real = torch.arange(data.index.shape[1]) < n[:, None]
    index, y = (torch.where(real, t, t[:, :1]) for t in (data.index, data.y))
    return replace(data, n=n, index=index, y=y)


def probe() -> running.Probe:
    """Two rounds of each arm on four clients, and the measures of the common space.

    In place of Boston Housing, which is not at hand everywhere, stands diabetes. Accuracies hang on close calls and are
    left out.
    """
    shipped = {"diabetes": {"rows": 6, "features": 3}, "breast_cancer": {"rows": 5, "features": (2, 4)}}
    tiny = SETTINGS | {"clients": 4, "shipped": {name: how | {"validation": 2} for name, how in shipped.items()}}
    tiny |= {n: tiny[n] | {"epochs": 2, "batch_size": 10} for n in ("local", "boston")}
    arms: Rivals = {}
    for name, codes in (("diabetes", "as dealt"), ("diabetes", "own signs"), ("breast_cancer", "as dealt")):
        arms |= {f"{name}, {codes}: {m}": r for m, r in contenders(tiny, name, codes, 0).items()}
    arms |= {f"rows: {m}": r for m, r in by_rows(tiny, "diabetes", 8, 0).items()}
    arms |= {f"space: {m}": r for m, r in in_space(tiny, 0).items()}
    mixed, parted = (paper_world(tiny, 0, groups, "diabetes") for groups in (1, 2))
    arms |= rivals(mixed, {"weight 0.5": (LGFedAvg, {"mmd": 0.5})})
    arms |= {f"groups: {m}": r for m, r in rivals(parted, WITH_MMD).items()}
    found = {}
    for arm, (world, algorithm) in arms.items():
        scored = {n: d for n, d in world.sets.items() if n != "train"} if world.classes is None else None
        found[arm] = running.trace(algorithm, world.net.init(0), uneven(world.sets["train"]), eval_data=scored)
    world, _ = in_space(tiny, 0)["no MMD"]
    start = {n: p.double() for n, p in world.net.init(0).items()}
    found["space: measures"] = list(apart(embeddings(world, broadcast(start, 4)), world.group).values())
    return found


TABLES = ("diabetes", "breast_cancer", "boston")
PRESETS = {"full": running.Experiment("feature_spaces", SETTINGS, measure, probe, TABLES)}
