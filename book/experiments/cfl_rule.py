"""When may CFL split? Rules without a length, on eight sets of data, and split-half CFL with its whole recursion.

A rule for splitting must leave congruent clients together and must part planted groups, on data that it has not seen.
Until the first split every rule sees the same run, so one run of FedAvg decides about all of them: in every fifth round
it keeps the cosines of the clients' updates, and of updates that the clients make in the same epochs from two halves of
their rows. Rules were chosen on digits, Fashion-MNIST and FEMNIST; CIFAR-10 and wine were looked at once, after that
(``aside``). The question for groups was added then, because of photos, and MNIST's test digits and Obesity Levels were
looked at once (``later``). What came last, because of photos again: tests that are longer and add up, halves of one
size, the question whether each side is closer to its own, and at the very end the level .02 with no further
condition. Preset ``unseen`` is for these: other photos of CIFAR-10 and scikit-learn's digits, whose first three seeds
were looked at once before the very end, and their two other seeds and new photos, looked at once after it. ``longer``
trains clients that agree until they know their rows by heart; ``skew`` has clients that differ though one model may
serve all.

Beside split-half CFL three rules are asked: lengths, the sign of Equation 6's objective, and the condition of CFL's
longer paper. Others were tried and rejected, and their verdicts stand in the stored results only: the sign with
lengths, the gap, halves that agree more than the parts of the cut do, permutations of the halves or of the cut, and the
test on halves without the sign, with another linkage, or without the question for groups.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch.nn.functional as F
from scipy import stats
from sklearn.datasets import load_digits
from torch import Tensor

import fedlib
from book.experiments import running
from book.experiments.cfl_variants import SteppedSplitHalfCFL
from book.experiments.worlds import EXACT, enter, femnist, loss_of, seeds_of, shrunk
from fedlib import datasets, models, partition, statistics
from fedlib.data import ClientData, Pixels
from fedlib.extensions.split_half_cfl import SplitHalfCFLState
from fedlib.params import norm, to_matrix
from fedlib.server import clusters

TABLES = "wine", "obesity"
PHOTOS = {name: slice(a, a + 12_000) for name, a in (("cifar10", 0), ("other photos", 12_000), ("new photos", 24_000))}
EVERY = 5  # rounds between looks at rules without a test


# ---- clients ----


@cache
def rows_of(data: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Features, labels from 0, and writers if there are any, of a whole set; images at half their size."""
    writer = None
    if data == "femnist":
        x, y, writer = femnist()
        x = 255 - x
    elif data in TABLES:
        table = datasets.load("wine_quality" if data == "wine" else data)
        x = ((table.x - table.x.mean(0)) / table.x.std(0)).astype(np.float32)
        return x, np.digitize(table.y + 3, (6, 7)) if data == "wine" else table.y, None  # of wine three qualities
    elif data == "optical":
        digits = load_digits()
        return (15 * digits.images[:, None]).astype(np.uint8).view(Pixels), digits.target, None
    elif data == "mnist10k":  # digits of people of whom the 5,000 have none
        arrays = datasets.load(data)
        assert arrays.x_test is not None and arrays.y_test is not None
        x, y = arrays.x_test, arrays.y_test
    else:
        arrays = datasets.load({"digits": "mnist5k", "fashion": "fashion_mnist"}.get(data, "cifar10_jpeg"))
        x, y = arrays.x, arrays.y
        if data in PHOTOS:
            some = np.random.RandomState(0).permutation(len(x))[PHOTOS[data]]
            x, y = x[some], y[some]
    return shrunk(x), y, writer


@cache
def network(data: str, name: str) -> models.Model:
    """A linear model, a perceptron with 32 hidden units, or two small convolutions."""
    x, y, _ = rows_of(data)
    inputs, classes = int(np.prod(x.shape[1:])), int(y.max()) + 1
    if name == "CNN":
        return models.CNN(x.shape[1:], (4, 8), (classes,), kernel=3, padding=1)
    return models.MLP((inputs, classes) if name == "linear" else (inputs, 32, classes))


@dataclass(frozen=True)
class Case:
    """One federation: data, network, kind of clients, their number and rows each, local epochs, rounds, seed."""

    data: str
    net: str
    kind: str
    clients: int
    rows: int
    epochs: int
    rounds: int
    seed: int

    @property
    def name(self) -> str:
        """As a file is named."""
        return "-".join(str(v) for v in vars(self).values()).replace(" ", "_").replace("/", "_")


def clients_of(case: Case) -> tuple[ClientData, np.ndarray]:
    """The clients of a case and the groups they belong to; one group where none is planted."""
    x, y, writer = rows_of(case.data)
    seed, classes = case.seed, int(y.max()) + 1
    random = np.random.RandomState(zlib.crc32(f"{case.data} {seed}".encode()))
    if case.kind == "writers":
        assert writer is not None
        many = [w for w in random.permutation(np.unique(writer)) if (writer == w).sum() >= case.rows][: case.clients]
        chosen = np.concatenate([random.permutation(np.flatnonzero(writer == w))[: case.rows] for w in many])
        dealt = partition.by_user(writer[chosen])
    else:
        chosen = random.permutation(len(y))[: case.clients * case.rows]
        if case.kind == "label skew":
            dealt = partition.dirichlet(y[chosen], case.clients, alpha=0.3, seed=seed, min_rows=10)
        elif case.kind == "unequal":
            dealt = partition.quantity(y[chosen], case.clients, sigma=1.0, seed=seed)
        else:
            dealt = partition.iid(y[chosen], case.clients, seed)
    if case.kind == "permuted":
        dealt = partition.label_permutation(dealt, min(4, classes), classes, seed)
    elif case.kind == "permuted 90/10":
        dealt = partition.label_permutation(dealt, 2, classes, seed)
        few = random.permutation(case.clients)[: case.clients // 10]
        group = np.isin(np.arange(case.clients), few).astype(int)
        dealt = replace(dealt, group=group, sample_group=tuple(np.full(case.rows, g) for g in group))
    elif case.kind == "rotated":
        dealt = partition.rotation(dealt, seed=seed)
    group = dealt.group if dealt.group is not None else np.zeros(case.clients, int)
    return dealt.clients(x[chosen], y[chosen], classes=classes), group


# ---- one run of FedAvg, and what every rule sees of it ----


def chance_of_a_cut(first: Tensor, second: Tensor, in_groups: bool = False) -> float:
    """Whether a cut of one half shows in the other, by a single test; with the question for groups, or without."""
    found, own = [0.5], float(F.cosine_similarity(first, second).mean())
    alike = {id(half): clusters.cosine_similarity(half) for half in (first, second)}
    for one, other in ((first, second), (second, first)):
        part = clusters.bipartition(alike[id(one)], "average").assignment == 1
        if in_groups:
            peer = alike[id(one)].fill_diagonal_(-2).argmax(1)
            peers, strangers = alike[id(other)].gather(1, peer[:, None]).mean(), alike[id(other)][part][:, ~part].mean()
        if 1 < part.sum() < len(part) - 1 and (not in_groups or 2 * peers > own + strangers):
            line = (other @ (one[part].mean(0) - one[~part].mean(0))).numpy()
            found.append(float(stats.ttest_ind(line[part], line[~part], alternative="greater").pvalue))
    return 2 * min(found)


def halves_of(update: fedlib.Update) -> list[Tensor]:
    """The updates of both halves of the clients' rows, as matrices."""
    return [to_matrix(update.per_client[f"{which} half"]).double() for which in ("first", "second")]


def verdicts(update: fedlib.Update, mean: float, lr: float) -> tuple[list[str], np.ndarray]:
    """The rules that would split the clients in a round, and the cut, which is the same for all."""
    delta = update.per_client["update"]
    lengths, cut = norm(delta).double(), clusters.bipartition(clusters.cosine_similarity(delta))
    still = mean < 0.15 * float(lengths.max())
    due = {
        "lengths": still and float((lengths / (lr * update.per_client["steps"])).max()) >= 0.4,
        "sign": still and cut.objective < 0,
    }
    if "first half" in update.per_client:
        own = float(F.cosine_similarity(*halves_of(update)).min())
        noise = (1 - own) / max(2 * own, 1e-9)  # gamma_max^2: noise over what two halves have in common
        due["longer paper"] = still and noise < (1 - cut.objective) / 2
    part = cut.assignment.numpy()
    large = min(part.sum(), len(part) - part.sum()) >= 2
    return [rule for rule, says in due.items() if says and large], part


@dataclass(frozen=True)
class WatchedState(SplitHalfCFLState):
    """What each rule would have cut first, and the probabilities of the test without its question for groups."""

    first: dict[str, tuple[int, np.ndarray]]
    one_by_one: tuple[float, ...]


@dataclass(frozen=True)
class Watched(SteppedSplitHalfCFL):
    """It never splits, asks every rule in every fifth round from the twentieth on, and tests each round alone."""

    def init(self, params: Any, data: ClientData, key: Any) -> WatchedState:
        """As CFL, with nothing seen yet."""
        return WatchedState(**vars(super().init(params, data, key)), first={}, one_by_one=())

    def decide(self, state: Any, c: int, *evidence: float) -> tuple[bool, bool]:
        """No cut."""
        return False, False

    def aggregate(self, state: Any, update: fedlib.Update) -> Any:
        """As CFL, and ask."""
        end = super().aggregate(state, update)
        if end.round >= self.every and end.round % EVERY == 0:
            rules, part = verdicts(update, float(end.norms[-1, 2]), self.lr)
            end = replace(end, first=dict.fromkeys(rules, (end.round, part)) | end.first)
        if "first half" in update.per_client:
            pair = halves_of(update)
            end.norms[-1, 5] = chance_of_a_cut(*pair, in_groups=True)
            end = replace(end, one_by_one=(*end.one_by_one, chance_of_a_cut(*pair)))
        return end


def fitted(case: Case, kind: type, **rule: Any) -> tuple[Any, np.ndarray]:
    """A finished run on a case, and the groups."""
    data, group = clients_of(case)
    model = network(case.data, case.net)
    algorithm = kind(loss_of(model), lr=0.1, batch_size=20, epochs=case.epochs, predict=model, **rule)
    return fedlib.fit(algorithm, model.init(case.seed), data, case.rounds, seed=case.seed, progress=False), group


def watched(case: Case) -> dict[str, Any]:
    """Of each rule the round of its first cut and whether that cut keeps every group whole; p-values of the test."""
    end, group = fitted(case, Watched, test_epochs=case.epochs)
    chance = end.state.norms[end.state.norms[:, 0] % SteppedSplitHalfCFL(print).every == 0, 5]
    found: dict[str, Any] = {"first": {}}
    for name, chances in (("chance", chance.tolist()), ("one by one", end.state.one_by_one)):
        found[name] = [float(f"{c:.3g}") for c in chances]
    for rule, (t, part) in end.state.first.items():
        found["first"][rule] = [t, all(len(np.unique(part[group == g])) == 1 for g in np.unique(group))]
    return found


def whole(case: Case) -> dict[str, Any]:
    """Split-half CFL with all its splits: agreement with the groups, and rounds of splits."""
    end, group = fitted(case, SteppedSplitHalfCFL)
    agreement = statistics.cluster_scores(group, end.state.assignment)["ari"]
    return {"ARI": round(agreement, 4), "splits": [c.round for c in end.state.splits]}


# ---- the experiment ----

TUNED = "digits", "fashion", "femnist"  # where rules were chosen
ASIDE = "cifar10", "wine"  # looked at once, before the question for groups was added
LATER = "mnist10k", "obesity"  # looked at once, after that
UNSEEN = "other photos", "optical", "new photos"  # looked at at the end, as said above


def cases(settings: Mapping[str, Any], data: str, seed: int) -> list[Case]:
    """The federations of one set of data and one seed, by kind of clients."""
    epochs, rounds = settings["epochs"].get(data, 1), settings["rounds"]
    found = []
    for net in settings["nets"]:
        if net == "CNN" and data in TABLES:  # they have no pixels
            continue
        for kind, rows in settings["kinds"]:
            if net == "CNN" and rows > 100 and kind == "iid" or kind == "writers" and data != "femnist":
                continue
            if data in TABLES and (kind in ("rotated", "label skew") or rows > {"wine": 400, "obesity": 100}[data]):
                continue
            if data == "optical":
                rows = min(rows, 80)
            clients = 12 if (data, rows) in (("digits", 400), ("wine", 400)) else 20  # as many rows as there are
            found.append(Case(data, net, kind, clients, rows, epochs, rounds, seed))
    return found


def measure(settings: Mapping[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Case -> what every rule says of it until its first cut, and how split-half CFL ends."""
    figures: dict[str, Any] = {}
    for seed in seeds_of(settings):
        for data in settings["data"]:
            for case in cases(settings, data, seed):
                parts = {}
                for what in settings["parts"]:
                    arms = [f"{net}, {what}" for net in ("linear", "CNN")]
                    function = {"rules": watched, "whole": whole}[what]
                    parts[what] = keep(f"{case.name}: {what}", function, case, arms=arms)
                row = f"{case.net}, {case.kind}, {case.rows} rows"
                enter(figures.setdefault(data, {}), seed, {row: parts})
    return figures


def probe() -> running.Probe:
    """A few rounds of few clients, with a test in every second."""
    quick: dict[str, Any] = {"every": 2, "lr": 0.1, "batch_size": 5, "epochs": 2, "test_epochs": 2}
    x, y = (a[np.random.RandomState(0).permutation(5000)[:160]] for a in rows_of("digits")[:2])
    dealt = partition.label_permutation(partition.iid(y, 8), groups=2)
    arms = {}
    for net in ("linear", "CNN"):
        model = network("digits", net)
        loss, data, params = loss_of(model), dealt.clients(x, y, classes=10), model.init(0)
        default = SteppedSplitHalfCFL(loss)
        splits = replace(default, level=0.9, min_size=1, **quick | {"test_epochs": default.test_epochs})
        end = fedlib.fit(splits, params, data, 5, **EXACT)
        arms[f"{net}, whole"] = [*running.numbers_of(splits, end), *end.state.norms[:, 5].tolist()]
        arms[f"{net}, whole"] += [default.level, default.every, default.min_size]
        end = fedlib.fit(Watched(loss, **quick), params, data, 2, **EXACT)
        arms[f"{net}, rules"] = [*end.state.norms[:, [0, 1, 2, 3, 4, 6, 5]].flatten().tolist(), *end.state.one_by_one]
    return arms


KINDS = [
    ["permuted", 100], ["iid", 50], ["permuted 90/10", 100], ["rotated", 200],
    ["iid", 20], ["iid", 200], ["unequal", 100], ["iid", 400],
]  # fmt: skip
SETTINGS = {"nets": ["linear", "MLP", "CNN"], "kinds": KINDS, "parts": ["rules", "whole"]}
SETTINGS |= {"rounds": 120, "epochs": {"femnist": 3}, "seed": 10, "seeds": 5}
LONGER = {"nets": ["MLP", "CNN"], "kinds": [["iid", 100]], "epochs": dict.fromkeys(TUNED, 5), "rounds": 200}
TUNED_SETS = "mnist5k", "fashion_mnist", "femnist300"
VARIED: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, Any]]] = {  # preset: data, their files, settings
    "full": (TUNED, TUNED_SETS, {}),
    "aside": (ASIDE, ("cifar10_jpeg", "wine_quality"), {"kinds": [*KINDS, ["permuted", 600], ["rotated", 600]]}),
    "later": (LATER, ("mnist10k", "obesity"), {}),
    "longer": (TUNED, TUNED_SETS, LONGER),
    "unseen": (UNSEEN, ("cifar10_jpeg",), {"seed": 20, "kinds": KINDS[:-1], "parts": ["whole"]}),
    "skew": (TUNED, TUNED_SETS, {"kinds": [["label skew", 100], ["writers", 100]]}),
}
PRESETS = {
    preset: running.Experiment(
        f"cfl_rule_{preset}".removesuffix("_full"), SETTINGS | {"data": [*names]} | settings, measure, probe, sets
    )
    for preset, (names, sets, settings) in VARIED.items()
}
