"""Figures that a reader can move: one HTML output each, with no library, no server and no file beside it.

Each is a complete picture before its script runs, and stays one where no script may run: on paper, in a feed, on a slow
phone. The numbers stand below it as a table. Colours follow the page, light or dark, of the book, of JupyterLab and of
Colab; every control is a native one, for keys, fingers and screen readers.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import ascii_uppercase as LETTERS
from typing import Any

import jinja2  # torch brings it along
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fedlib.partition import dirichlet, iid, pathological, quantity
from fedlib.server.distance_clusters import dbscan
from fedlib.statistics import compare, interval

from .. import results
from . import places

_TEMPLATES = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent))
_TEMPLATES.filters |= {"g": "{:g}".format, "tenth": lambda value: f"{np.round(value, 1):g}"}
LENGTHS = {"eps1": 0.15, "eps2": 0.4}  # of the rule with relative lengths, which the playground shows

_PLOT = {"left": 34, "right": 340}  # of the curves: where the first and the last round stand
_ROW = 36  # of the split tree: the height of a leaf, whose label has two lines
_DASHES = ("", "8 3", "8 3 2 3", "2 3")  # as Matplotlib's "-", "--", "-.", ":"


@dataclass(frozen=True)
class Figure:
    """A figure for a notebook: the last expression of a cell shows it.

    Attributes
    ----------
    html : str
        Stands for itself: it may be written to a file, or be put in any page, also several times.
    """

    html: str

    def _repr_html_(self) -> str:
        return self.html


def split_slider(algorithm: Any, state: Any, groups: ArrayLike, history: pd.DataFrame) -> Figure:
    """A run of CFL with relative lengths, by rounds: matrix, tree, accuracies, criterion, and other thresholds tried.

    Parameters
    ----------
    algorithm : RelativeCFL
    state : CFLState
        The end of the run, with one field more: ``cosines`` (T, K, K), those of all clients' updates in each round.
    groups : array of shape (K,), integer
        The true group of each client. Groups are shown as letters, since the models have numbers.
    history : pandas.DataFrame
        Of the run, with the accuracy of each group g in a column named ``"group g_accuracy"``.

    Returns
    -------
    Figure
        The conditions are the two lengths of the algorithm's ``due``; a cluster has to be as old as ``algorithm.rest``
        rounds besides. Where other thresholds decide otherwise than the run did, it says that nothing is known from
        there on, as ``replay`` of ``book.experiments.cfl_variants`` does. Chapter 06.

    Raises
    ------
    ValueError
        An algorithm that notes no pace: then another rule decides.
    """
    if "pace" not in algorithm.columns:
        name = type(algorithm).__name__
        raise ValueError(f"the figure shows CFL's rule by relative lengths; got {name}. Run RelativeCFL")
    cosines, group = np.asarray(state.cosines.cpu(), float), np.asarray(groups)
    names, rounds = np.unique(group), len(cosines)
    scores = history.set_index("round")[[f"group {g}_accuracy" for g in names]].dropna()
    norms = state.norms.cpu().numpy()
    mean, longest, pace = norms.T[2:5]
    short, eps1, eps2 = mean / longest, algorithm.eps1, algorithm.eps2
    still = {"holds": "the clients’ updates cancel", "fails": "the model still moves"}
    hard = {"holds": "a client pulls hard", "fails": "no client pulls hard"}
    rules = [
        {"name": "mean update / longest", "symbol": "ε₁", "eps": eps1, "below": True, **still},
        {"name": "longest update / (rate × steps)", "symbol": "ε₂", "eps": eps2, "below": False, **hard},
    ]
    cut = norms[:, -1].astype(bool) & (short < eps1) & (pace >= eps2)
    i, j = np.triu_indices(len(group), 1)
    pairs = np.round(100 * cosines[:, i, j]).astype(int)
    # from round to round: modulo 256, the sums come out right
    steps = np.diff(pairs, axis=0, prepend=0).astype(np.int8)
    splits = [{name: getattr(s, name) for name in ("round", "model", "new")} for s in state.splits]
    for shown, s in zip(splits, state.splits, strict=True):
        moved, objective = s.members[s.part == 1].tolist(), round(s.objective, 3)
        shown |= {"size": len(s.members), "moved": moved, "objective": objective}
    data = {"rounds": rounds, "groups": group.tolist(), "rest": algorithm.rest, "splits": splits, "rules": rules}
    data |= {"plot": _PLOT, "cosines": base64.b64encode(steps.tobytes()).decode()}
    tests = zip(*norms.T[:2], cut, short, pace, strict=True)
    data["tests"] = [[int(t), int(c), int(due), *(float(f"{v:.6g}") for v in row)] for t, c, due, *row in tests]
    chart = _chart(data, scores, "accuracy of each true group", "the split tree, and whom each model serves")
    data["scores"] = [[int(t), *row] for t, *row in scores.round(3).reset_index().to_numpy().tolist()]
    table = scores.round(2).set_axis([f"group {LETTERS[g]}" for g in names], axis=1)
    for rule, values in zip(rules, (short, pace), strict=True):
        by_round = pd.Series(values).groupby(norms[:, 0])
        table[rule["name"]] = (by_round.min() if rule["below"] else by_round.max()).round(2)
    table["models"] = [1 + sum(s.round <= t for s in state.splits) for t in table.index]
    label = "Matrix of the cosines of the clients' updates, rows and columns in the order of the split tree."
    order = np.argsort(state.assignment.cpu().numpy(), kind="stable")
    matrix = _matrix(cosines[-1][np.ix_(order, order)], label)
    scene = _scene("split", matrix=matrix, key=("−1", "+1 &nbsp; cosine of updates"), **chart)
    caption = "Clustered federated learning, round by round. The server sees updates, not the true groups."
    return _figure("split", scene, caption, table.reset_index().to_html(index=False, border=0, na_rep="–"), data)


def split_front(slider: str) -> Figure:
    """The run of a `split_slider` for readers who know nothing of it yet: no thresholds, and plain words.

    Parameters
    ----------
    slider : str
        HTML of the figure, whose data are used anew.

    Returns
    -------
    Figure
        It starts in the first round, and plays once when it comes into view. The book's first page.
    """
    run = json.loads(re.search(r"<script type='application/json'>(.*?)</script>", slider, re.S)[1])  # type: ignore[index]
    group, rounds, splits = np.array(run["groups"]), run["rounds"], run["splits"]
    scores = pd.DataFrame([row[1:] for row in run["scores"]], index=[row[0] for row in run["scores"]])
    data = run | {"rules": [], "tests": [], "front": True}
    chart = _chart(data, scores, "how often each group’s model is right", "the server's models, and whom each serves")
    steps = np.frombuffer(base64.b64decode(run["cosines"]), np.int8).reshape(rounds, -1)
    last, model = np.eye(len(group)), np.zeros(len(group), int)
    last[np.triu_indices(len(group), 1)] = steps.sum(0, dtype=np.int8) / 100
    for s in splits:
        model[s["moved"]] = s["new"]
    order = np.argsort(model, kind="stable")
    label = "Matrix of how alike the clients' updates are, rows and columns in the order of the server's models."
    matrix = _matrix((last + np.triu(last, 1).T)[np.ix_(order, order)], label)
    right = 100 * float(np.mean(scores.iloc[-1]))
    says = f"Round {rounds}: {1 + len(splits)} models, right {right:.0f} times in 100."
    scene = _scene("split", matrix=matrix, key=("opposed", "alike"), says=says, **chart)
    caption = (
        f"{len(group)} clients in {len(scores.columns)} groups, each of which calls the same digits by other names. "
        "The server is not told so. It sees how alike the clients’ updates are (the matrix), and splits the clients."
    )
    table = scores.round(2).set_axis([f"group {LETTERS[g]}" for g in scores], axis=1).rename_axis("round").reset_index()
    return _figure("split", scene, caption, table.to_html(index=False, border=0), data)


def playground() -> Figure:
    """Eight clients with a few points each: move them, and see whether CFL would part them (chapter 05)."""
    return _stored("playground")


def local_steps() -> Figure:
    """Two clients with quadratic losses, and the walks of FedAvg, FedProx and SCAFFOLD (chapter 02)."""
    return _stored("steps")


# Of `partition`: function, its words, its setting, values, and which comes first.
_LEVELS: dict[str, tuple[Any, str, str, Sequence[float], int]] = {
    "Dirichlet": (dirichlet, "concentration α", "α", (0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 100), 1),
    "pathological": (pathological, "shards of one class a client", "c", (1, 2, 3, 4, 5, 10), 1),
    "quantity": (quantity, "spread σ of the sizes", "σ", (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5), 4),
}
_MEASURES = "distance from everybody's labels", "classes of a client, in effect", "largest client / smallest"


def partition(y: ArrayLike, clients: int = 40, seed: int = 0, draws: int = 3, min_rows: int = 10) -> Figure:
    """Who holds how much of which class, for three ways to make clients differ (chapter 02).

    Parameters
    ----------
    y : array of shape (R,)
        Class labels, which `fedlib.partition` hands out: nothing is drawn in the figure itself.
    clients : int
    seed, draws : int
        Seeds from `seed` on, one for each draw.
    min_rows : int
        As in `fedlib.partition.dirichlet`.

    Returns
    -------
    Figure
        With three measures: the mean over clients of the total variation distance between their shares of the classes
        and everybody's; the mean of exp(entropy), the number of classes that a client has in effect; and the largest
        client's examples divided by the smallest's. Beside them the same for equal clients.
    """
    y = np.unique(np.asarray(y), return_inverse=True)[1]
    classes = int(y.max()) + 1

    def counts(parts: Any) -> list[list[int]]:
        return [np.bincount(y[rows], minlength=classes).tolist() for rows in parts.rows]

    kinds: list[dict[str, Any]] = []
    lines: list[list[Any]] = []
    for name, (draw, label, symbol, values, first) in _LEVELS.items():
        more = {"min_rows": min_rows} if draw is dirichlet else {}
        made = [[counts(draw(y, clients, v, seed=seed + d, **more)) for d in range(draws)] for v in values]
        kinds.append({"name": name, "label": label, "symbol": symbol, "values": values, "counts": made, "first": first})
        for v, one in zip(values, made, strict=True):
            lines.append([f"{name}, {symbol} = {v}", *_heterogeneity(np.array(one[0]))])
    control = _heterogeneity(np.array(counts(iid(y, clients, seed))))
    table = pd.DataFrame([["equal clients", *control], *lines], columns=["first draw", *_MEASURES]).round(2)
    start = np.array(kinds[0]["counts"][kinds[0]["first"]][0])
    plot = {"left": 40, "bottom": 180, "height": 164, "wide": 13}
    top = start.cumsum(1)
    bars = [[(k, top[k, c], n) for k, n in enumerate(start[:, c]) if n] for c in range(classes)]
    measures = zip(_MEASURES, _heterogeneity(start), control, strict=True)
    size = {"clients": clients, "most": int(start.sum(1).max()), "right": plot["left"] + clients * plot["wide"]}
    scene = _scene("partition", classes=bars, measures=measures, **size)
    data = {"kinds": kinds, "control": control, "plot": plot}
    caption = "Who holds what: one bar a client, one colour a class. Before you move anything: Dirichlet, α = 0.2."
    return _figure("partition", scene, caption, table.to_html(index=False, border=0), data)


def _heterogeneity(counts: np.ndarray) -> list[float]:
    """The measures of `partition`."""
    own, size = counts / counts.sum(1, keepdims=True), counts.sum(1)
    distance = np.abs(own - counts.sum(0) / counts.sum()).sum(1) / 2
    logs = np.log(np.where(own > 0, own, 1))
    return [float(distance.mean()), float(np.exp(-(own * logs).sum(1)).mean()), float(size.max() / size.min())]


_SHAPES = "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0z", "M-5-5h10v10h-10z", "M0-7l7 12h-14z", "M0-7l7 7-7 7-7-7z"


def who_helps_whom(gains: ArrayLike, predicted: Mapping[str, ArrayLike], kinds: ArrayLike) -> Figure:
    """What pairs of clients gain, how far apart a prediction says they are, and what DBSCAN makes of it (chapter 12).

    Parameters
    ----------
    gains : array of shape (K, K)
        Measured gain of each pair; NaN where nothing was measured.
    predicted : mapping of name to array of shape (K, K)
        Distances to choose from, symmetric and at least 0. The radius begins a little below one that joins all clients.
    kinds : array of shape (K,), integer
        The true kind of each client, shown as the shape of its mark.

    Returns
    -------
    Figure
        Clusters are those of `fedlib.server.distance_clusters.dbscan`, with its `min_samples` of 2.
    """
    from scipy.cluster.hierarchy import linkage

    gain = np.array(gains, float)
    kind, pair = np.asarray(kinds), np.triu_indices(len(gain), 1)
    known, shown, lines = np.isfinite(gain[pair]), dict[str, Any](), []
    for name, values in predicted.items():
        distance = np.round(np.array(values, float), 6)
        np.fill_diagonal(distance, 0)
        radii = np.quantile(distance[pair], np.arange(1, 10) / 10)
        merged = linkage(distance[pair], "single")[-2:, 2]  # between these two radii there are two chains
        step = float(np.ceil(1e4 * distance.max() / 200) / 1e4)  # of the reader's slider
        at = round(step * round(float(merged.mean()) / step), 4)
        shown[name] = {"distance": distance.tolist(), "places": _places(distance).tolist(), "eps": at, "step": step}
        for radius in radii:
            cluster = np.asarray(dbscan(distance, max(radius, 1e-9)))
            size, same = np.bincount(cluster), (cluster[:, None] == cluster)[pair]
            means = [gain[pair][known & s].mean() if (known & s).any() else np.nan for s in (same, ~same)]
            lines.append([name, radius, (size > 1).sum(), (size == 1).sum(), *means])
    table = ["distance", "ε", "clusters", "clients alone", "gain in one cluster", "gain of pairs of two clusters"]
    numbers = pd.DataFrame(lines, columns=table).round(3).to_html(index=False, border=0, na_rep="–")

    one = next(iter(shown.values()))
    distance, places, at = np.array(one["distance"]), np.array(one["places"]), one["eps"]
    cluster = np.asarray(dbscan(distance, max(at, 1e-9)))
    lone, order = np.bincount(cluster)[cluster] == 1, np.argsort(cluster, kind="stable")
    names, palette = list(dict.fromkeys(cluster[~lone])), (3, 2, 5, 7, 4, 8, 9, 0, 1)
    near = [(places[i], places[j]) for i, j in zip(*pair, strict=True) if distance[i, j] <= at]
    colours = [6 if alone else palette[names.index(c) % 9] for c, alone in zip(cluster, lone, strict=True)]
    marks = zip(places, colours, [_SHAPES[g % 4] for g in kind], strict=True)
    mixed, far = np.ix_(order, order), distance.max()
    share = gain / np.nanmax(np.abs(gain))
    left = _matrix(share[mixed], "Matrix of the measured gains of pairs, in the order of the clusters.", part="gains")
    words = "Matrix of the predicted distances, strong where two clients are near."
    right = _matrix(1 - distance[mixed] / far, words, "currentColor", "distances")
    scene = _scene("helps", edges=near, marks=marks, gains=left, predicted=right)
    caption = (
        "Who helps whom? Rows in the order of the clusters; shape: true kind; colour: cluster; gaps: not measured."
    )
    measured = [[None if np.isnan(v) else round(v, 4) for v in row] for row in gain]
    data = {"gains": measured, "predicted": shown, "eps": at}
    return _figure("helps", scene, caption, numbers, data)


def _places(distance: np.ndarray) -> np.ndarray:
    """Places in a plane of 300 by 300, as near to the distances as a plane allows (classical scaling)."""
    k = len(distance)
    centred = np.eye(k) - 1 / k
    values, vectors = np.linalg.eigh(-centred @ distance**2 @ centred / 2)
    at = vectors[:, :-3:-1] * np.sqrt(np.maximum(values[:-3:-1], 0))
    at *= np.where(at[np.abs(at).argmax(0), [0, 1]] < 0, -1, 1)  # a sign that does not hang on the machine
    return np.round(150 + 135 * at / max(float(np.abs(at).max()), 1e-12), 1)


def teachers_t(figures: Mapping[str, Any] | None = None) -> Figure:
    """FedCG's teacher over T, the rounds to a new teacher: how full the largest domain is, and the NMI with the truth.

    Parameters
    ----------
    figures : mapping, optional
        "federation, head" -> "rate r, T = t" -> score -> seed. By default those of the stored result
        ``fedcg_collapse``.

    Returns
    -------
    Figure
        Seeds as dots, means with 95 % intervals as bars. Chapter 08.
    """
    figures = results.load("fedcg_collapse")["figures"] if figures is None else figures
    arms = [name.rsplit(", ", 1) for name in figures]
    settings = [re.fullmatch(r"rate (.+), T = (.+)", name) for name in next(iter(figures.values()))]
    rates, temperatures = (list(dict.fromkeys(m[i] for m in settings if m)) for i in (1, 2))
    x = {t: round(60 + 372 * i / max(1, len(temperatures) - 1), 1) for i, t in enumerate(temperatures)}
    height, bottoms = 110, {"largest domain": 140, "NMI": 300}
    runs, chance, lines = dict[str, Any](), dict[str, float](), []
    for (kind, head), arm in zip(arms, figures.values(), strict=True):
        chance[f"{kind}|{head}"] = round(interval(list(arm["four domains at random"]["NMI"].values()))[0], 4)
        for rate in rates:
            points = runs[f"{kind}|{head}|{rate}"] = []
            for t in temperatures:
                both = {what: list(arm[f"rate {rate}, T = {t}"][what].values()) for what in bottoms}
                scores = {what: np.nan_to_num(interval(values)).round(4).tolist() for what, values in both.items()}
                lines.append([kind, head, rate, t, *scores["largest domain"], *scores["NMI"]])
                keys = zip(("domain", "nmi"), both.items(), strict=True)
                points.append({key: {"seeds": values, "mean": scores[what]} for key, (what, values) in keys})
    moves = "photos, turned|flatten|0.1"  # with T, unlike most others
    first = moves if moves in runs else next(iter(runs))
    kind, head, rate = first.split("|")
    level = bottoms["NMI"] - height * chance[f"{kind}|{head}"]
    scene = _scene("teacher", x=[*x.values()], T=temperatures, height=height, level=level, runs=runs, first=first)
    columns = ["federation", "head", "rate", "T", "largest domain", "±", "NMI", "± "]
    table = pd.DataFrame(lines, columns=columns).to_html(index=False, border=0, float_format="{:.2f}".format)
    kinds, heads = (list(dict.fromkeys(parts)) for parts in zip(*arms, strict=True))
    data = {"kinds": kinds, "heads": heads, "rates": rates, "T": temperatures, "x": list(x.values())}
    data |= {"first": {"kind": kind, "head": head, "rate": rate, "at": 0}, "bottom": bottoms["NMI"], "height": height}
    data |= {"runs": runs, "chance": chance}
    caption = (
        "Do all images fall to one domain? Dots are seeds, bars 95 % intervals; dashed: four domains at random. "
        f"Before you move anything: {kind}, {head} head, rate {rate}."
    )
    return _figure("teacher", scene, caption, table, data)


SUMS_SUFFICE = (  # of the scoreboard's methods: the server has no use for what a single client sends
    "alone", "FedAvg", "FedAvg, fine-tuned", "FedProx", "SCAFFOLD", "FedAdam", "Ditto", "FedRep", "FedEM", "FedProto",
    "LG-FedAvg",
)  # fmt: skip
_DIFFER_BY = {  # kind of federation -> plain words for it, in the order of the chapter's questions
    "equal clients": "nothing",
    "unequal sizes": "how much data they hold",
    "writers": "whose handwriting they hold",
    "label skew": "how often each class occurs",
    "styles": "how their images look, two looks a client",
    "rotations": "how their images are rotated",
    "features by position": "which pixels they see",
    "columns without names": "columns that nobody has matched",
    "label names": "which label they give the same input",
    "label names, few take part": "which label they give the same input, and few take part",
}
_CONTROLS = ("true groups", "random groups")
_FAMILIES = {  # of the scoreboard's rows: who shares what with whom
    "no sharing": ("alone",),
    "one model for all": ("FedAvg", "FedProx", "SCAFFOLD", "FedAdam"),
    "one model each": ("FedAvg, fine-tuned", "Ditto", "FedRep"),
    "one model a group, or weighted neighbours": (
        "split-half CFL (ours)", "IFCA", "FeSEM", "FedGroup", "k-means", "PACFL", "pFedGraph",
    ),
    "components, or modules for domains": ("FedEM", "FedCG"),
    "some layers, or class means": ("LG-FedAvg", "FedSGCNN", "FedProto"),
    "controls, which no one can choose": _CONTROLS,
}  # fmt: skip
_SHOWN = {  # rows whose name would say too little
    "FedAvg, fine-tuned": "fine-tuned FedAvg*",
    "FedCG": "FedCG (our variant)",
    "FedSGCNN": "FedSGCNN (our variant)",
}


def _ordered(grid: Mapping[str, Any]) -> list[str]:
    """Kinds of federations in the order of the three questions."""
    return [kind for kind in _DIFFER_BY if kind in grid]


def scoreboard(figures: Mapping[str, Any]) -> Figure:
    """Mean accuracies of all methods in all kinds of federations, sorted by family, with the winners bold (chapter 15).

    Parameters
    ----------
    figures : mapping
        Those of the stored result ``scoreboard``, of which "grid" is used: kind -> method -> score -> seed.

    Returns
    -------
    Figure
        A table without a script. In each column the method with the highest mean is bold, and so are those that do not
        differ significantly from it, seed by seed; controls never are. Colours show the distance from FedAvg.
    """
    grid = figures["grid"]
    kinds = _ordered(grid)
    scores = {kind: {name: row["accuracy"] for name, row in grid[kind].items()} for kind in kinds}
    means = {kind: {name: float(np.mean([*s.values()])) for name, s in scores[kind].items()} for kind in kinds}
    best = {kind: max((m for m in means[kind] if m not in _CONTROLS), key=means[kind].get) for kind in kinds}  # type: ignore[arg-type]

    def cell(kind: str, name: str) -> tuple[float | None, float, bool]:
        """Mean, distance from FedAvg, and whether it is among the best."""
        if name not in scores[kind]:
            return None, 0, False
        mean, first = means[kind][name], best[kind]
        ties = name == first or compare(scores[kind][first], scores[kind][name])["verdict"] != "holds"
        return mean, mean - means[kind]["FedAvg"], name not in _CONTROLS and ties

    families = {}
    for family, names in _FAMILIES.items():
        there = [n for n in names if any(n in scores[kind] for kind in kinds)]
        families[family] = {_SHOWN.get(n, n): [cell(kind, n) for kind in kinds] for n in there}
    words = (
        "Mean accuracy in %. Bold: the highest of its column, and those that, seed by seed, do not differ "
        "significantly. Orange is better than FedAvg, purple worse. A dash was not run. * Tune its learning rate "
        "before you judge it."
    )
    table = _scene("scoreboard", kinds=kinds, families=families)
    return _framed("scoreboard", f"{table}<figcaption>{escape(words)}</figcaption>{_style()}")


def chooser(figures: Mapping[str, Any]) -> Figure:
    """Methods that may see and send so much, ordered by accuracy in the reader's kind of federation (chapter 15).

    Parameters
    ----------
    figures : mapping
        Those of the stored result ``scoreboard``, of which "grid" is used: kind -> method -> score -> seed.

    Returns
    -------
    Figure
        Methods in the order of their mean accuracy, with 95 % intervals. Marked are the first and those that do not
        differ significantly from it, compared seed by seed.
    """
    from scipy.special import stdtrit

    grid: dict[str, dict[str, Any]] = {}
    for kind in _ordered(figures["grid"]):
        for name, row in figures["grid"][kind].items():
            if name not in _CONTROLS:
                seeds = [round(score, 4) for _, score in sorted(row["accuracy"].items())]
                sent = sum(np.mean(list(row[f"kB {way}"].values())) for way in ("down", "up"))
                grid.setdefault(kind, {})[name] = {"seeds": seeds, "kB": round(sent, 3)}
    methods = list(dict.fromkeys(m for rows in grid.values() for m in rows))
    lines = [
        [kind, _SHOWN.get(name, name), *interval(row["seeds"]), row["kB"], "yes" if name in SUMS_SUFFICE else "no"]
        for kind, rows in grid.items()
        for name, row in sorted(rows.items(), key=lambda item: -float(np.mean(item[1]["seeds"])))
    ]
    columns = ["clients", "method", "accuracy", "±", "kB per client and round", "sums suffice"]
    table = pd.DataFrame(lines, columns=columns).to_html(index=False, border=0, float_format="{:.3f}".format)

    plot = {"left": 178, "wide": 168, "top": 34, "row": 19}
    kind, first = next(iter(grid.items()))
    order = sorted(first, key=lambda name: -float(np.mean(first[name]["seeds"])))
    lines = []
    for name in methods:
        row = first.get(name, {"seeds": [0.0], "kB": 0.0})
        mean, half = np.nan_to_num(interval(row["seeds"]))
        line = {"method": name, "name": _SHOWN.get(name, name), "place": order.index(name) if name in order else None}
        lines.append(line | row | {"mean": mean, "half": half})
    scene = _scene("chooser", lines=lines, bottom=plot["top"] + plot["row"] * len(methods), **plot)
    some = [row["kB"] for rows in grid.values() for row in rows.values() if row["kB"] > 0]
    data = {"grid": grid, "plot": plot, "t": float(stdtrit(len(seeds) - 1, 0.975))}
    data["range"] = [float(np.floor(np.log10(min(some)))), float(np.ceil(np.log10(max(some))))]
    data |= {"sums": [m for m in methods if m in SUMS_SUFFICE], "names": {m: _SHOWN[m] for m in methods if m in _SHOWN}}
    data["words"] = {k: w for k, w in _DIFFER_BY.items() if k in grid}
    words = (
        f"Which method? Clients differ by: {_DIFFER_BY[kind]}. Blue: the highest mean, and methods that do "
        "not differ significantly from it. Small dots are seeds, bars 95 % intervals; sent is what one client receives "
        "and sends in a round. * Tune its learning rate before you judge it."
    )
    return _figure("chooser", scene, words, table, data)


def who_shares_what(chapter: int = 0) -> Figure:
    """The map of the book: what the clients of each method share, and with whom.

    Parameters
    ----------
    chapter : int
        Number of a chapter whose places are marked; 0 marks none.

    Returns
    -------
    Figure
        It has no script.
    """
    shown, words = places.drawn(chapter)
    return _framed("places", f"{_style()}{_scene('places', **shown)}<figcaption>{escape(words)}</figcaption>")


def one_model_in_two() -> Figure:
    """A model that two groups pull apart, and what CFL makes of it. It has no script."""
    return _drawing("split-idea")


def worked_split() -> Figure:
    """Four clients' cosines and two candidate splits, with what CFL compares. It has no script."""
    return _drawing("worked-split")


def modules_and_graph() -> Figure:
    """A layer with a module for each domain, and the graph between the modules. It has no script."""
    return _drawing("modules")


def paces_of_modules() -> Figure:
    """Changes of modules that move equally far, or do not. It has no script."""
    return _drawing("paces")


def network_as_graph() -> Figure:
    """A network of three neurons, and its graph. It has no script."""
    return _drawing("graph")


def _drawing(name: str) -> Figure:
    """A figure without a script, from its file."""
    return _framed(name, _style() + _scene(name))


def _scene(name: str, **values: Any) -> str:
    """A picture from its template, whose lines are one line in the page."""
    return "".join(_TEMPLATES.get_template(f"{name}.html").render(values).splitlines())


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf8")


def _stored(kind: str) -> Figure:
    """A figure without data: its script has drawn the picture that it starts with (``tools/stills.py``)."""
    return _framed(kind, f"{_style()}{_read(f'{kind}.html')}{_code(kind)}")


def _framed(kind: str, inner: str) -> Figure:
    return Figure(f'<figure class="fedlib" data-fedlib="{kind}">{inner}</figure>')


def _style() -> str:
    """Stands first: a page is drawn while it is still being loaded."""
    return f"<style>{_read('common.css')}</style>"


def _code(kind: str) -> str:
    script = f"{_read('common.js')}\n{_read(f'{kind}.js')}"
    return f"<script>(() => {{\n{script}}})();</script>"


def _figure(kind: str, scene: str, caption: str, table: str, data: Any) -> Figure:
    """The picture, its caption, the numbers as a table, the data and the script."""
    numbers = '<div class="scroll" tabindex="0" role="region" aria-label="numbers of the figure">'
    details = f"<details><summary>The numbers as a table</summary>{numbers}{table}</div></details>"
    kept = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    html = f"{scene}<figcaption>{escape(caption)}</figcaption>{details}<script type='application/json'>{kept}</script>"
    return _framed(kind, f"{_style()}{html}{_code(kind)}")


def _squares(values: np.ndarray, plus: str = "var(--plus)") -> str:
    """Numbers from -1 to 1: squares of size 1 in two colours, the fuller the further from 0; NaN leaves a gap.

    The diagonal, which tells nothing, is grey.
    """
    levels = dict[int, list[str]]()
    for (i, j), value in np.ndenumerate(np.round(10 * np.nan_to_num(values)) * (1 - np.eye(len(values)))):
        levels.setdefault(int(value), []).append(f"M{j} {i}h.95v.95h-.95z")
    itself = "".join(f"M{i} {i}h.95v.95h-.95z" for i in range(len(values)))
    return f'<path fill="var(--line)" d="{itself}"/>' + "".join(
        f'<path fill="{plus if v > 0 else "var(--minus)"}" fill-opacity="{abs(v) / 10}" d="{"".join(d)}"/>'
        for v, d in sorted(levels.items())
        if v
    )


def _matrix(values: np.ndarray, label: str, plus: str = "var(--plus)", part: str = "") -> str:
    """A matrix of squares, as a picture."""
    k, edge = len(values), len(values) / 15  # as the script leaves it for labels
    inner = f'<g data-part="{part}">{_squares(values, plus)}</g>'
    box = f"{-edge} {-edge} {k + edge} {k + edge}"
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(label)}">{inner}</svg>'


def _panel(title: str, above: int, height: int, low: float, high: float, **more: Any) -> dict[str, Any]:
    """A panel of curves over the rounds: its place, below what ends at `above`, its range, and what it shows."""
    return {"title": title, "top": above + 42, "bottom": above + 42 + height, "low": low, "high": high, **more}


def _chart(run: Mapping[str, Any], scores: pd.DataFrame, *titles: str) -> dict[str, Any]:
    """Accuracies, conditions and tree over the rounds, for the template; each rule gets what the script needs of it."""
    tests, group = np.array(run["tests"]), np.array(run["groups"])
    curves = [
        {"name": f"group {LETTERS[g]}", "colour": f"var(--g{g % 10})", "dashes": _DASHES[n % len(_DASHES)]}
        | {"points": [*zip(scores.index, scores.iloc[:, n], strict=True)]}
        for n, g in enumerate(np.unique(group))
    ]
    panels = [_panel(titles[0], -14, 100, 0, 1, ticks=(0, 0.5, 1), curves=curves)]
    for i, rule in enumerate(run["rules"]):
        values, eps = tests[:, 3 + i], rule["eps"]
        low = round(min(0, 1.6 * eps, np.floor(10 * float(np.quantile(values, 0.02))) / 10), 2)
        high = round(max(1.6 * eps, float(np.quantile(values, 0.98)), 0.1), 2)
        needs = f"{rule['name']} (a split needs {'less than' if rule['below'] else 'at least'} {rule['symbol']})"
        own = [tests[tests[:, 1] == c][:, [0, 3 + i]].tolist() for c in np.unique(tests[:, 1])]
        curves = [{"colour": "currentColor", "dashes": "", "points": points} for points in own]
        above, ticks = panels[-1]["bottom"], sorted({low, 0, high})
        panels.append(_panel(needs, above, 62, low, high, ticks=ticks, curves=curves))
        rule |= {"range": [low, high, 0.01], "plot": {end: panels[-1][end] for end in ("top", "bottom")}}
    tree, rounds = _tree(run["rounds"], run["splits"], group), run["rounds"]
    tree = _panel(titles[1], panels[-1]["bottom"], _ROW * len(tree["leaves"]), 0, 1, row=_ROW, **tree)
    every = next((n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500) if rounds <= 6 * n), 1000)
    return {"rounds": rounds, "every": every, "panels": panels, "rules": run["rules"], "tree": tree, **_PLOT}


def _tree(rounds: int, splits: Sequence[dict[str, Any]], group: np.ndarray) -> dict[str, Any]:
    """The split tree: branches from round to round and from row to row, its root, and whom each leaf serves."""
    order, born, model = [0], {0: 1}, np.zeros(len(group), int)
    for s in splits:
        order.insert(order.index(s["model"]) + 1, s["new"])
        born[s["model"]] = born[s["new"]] = s["round"]
        model[s["moved"]] = s["new"]
    heads, branches, leaves = {name: (rounds, float(row)) for row, name in enumerate(order)}, [], []
    for s in reversed(splits):
        (old, above), (new, below) = heads[s["model"]], heads[s["new"]]
        branches.append((old, above, s["round"], below, new))
        heads[s["model"]] = s["round"], (above + below) / 2
    for name in order:
        names, counts = np.unique(group[model == name], return_counts=True)
        held = [f"{n} of group {LETTERS[g]}" for g, n in zip(names, counts, strict=True)]
        leaves.append((name, born[name], ", ".join(held)))
    return {"branches": branches, "root": heads[0], "leaves": leaves}
