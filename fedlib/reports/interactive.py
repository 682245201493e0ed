"""Figures that a reader can move: one HTML output each, with no library, no server and no file beside it.

Each is a complete picture before its script runs, and stays one where no script may run: on paper, in a feed, on a slow
phone. The numbers stand below it as a table. Colours follow the page, light or dark, of the book, of JupyterLab and of
Colab; every control is a native one, for keys, fingers and screen readers.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

__all__ = ["Figure", "Rule", "cfl_rules", "local_steps", "playground", "split_slider"]

_LEFT, _RIGHT, _WIDTH = 34, 340, 460  # of the curves: where the first and the last round stand, and all with labels
_DASHES = ("", "8 3", "2 3", "8 3 2 3")


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


@dataclass(frozen=True)
class Rule:
    """One condition of a criterion that splits a cluster when all its conditions hold.

    Attributes
    ----------
    name, symbol : str
        What is measured, and how its threshold is called.
    values : array of shape (N,)
        One number for each row of ``CFLState.norms``.
    eps : float
        The threshold of the run.
    below : bool
        Holds for values below the threshold; otherwise for those at or above it.
    holds, fails : str
        Words for either case: "the mean update is short".
    """

    name: str
    symbol: str
    values: ArrayLike
    eps: float
    below: bool
    holds: str
    fails: str


def cfl_rules(algorithm: Any, state: Any) -> list[Rule]:
    """The two conditions of `fedlib.algorithms.cfl.CFL.must_split`, with the values of a run.

    Parameters
    ----------
    algorithm : CFL
    state : CFLState
        The end of the run.
    """
    mean, longest, pace = state.norms.T[2:5].cpu().numpy()
    still = "the clients' updates cancel", "the model still moves"
    hard = "a client pulls hard", "no client pulls hard"
    return [
        Rule("mean update / longest", "ε₁", mean / longest, algorithm.eps1, True, *still),
        Rule("longest update / (rate × steps)", "ε₂", pace, algorithm.eps2, False, *hard),
    ]


def split_slider(
    algorithm: Any, state: Any, groups: ArrayLike, history: pd.DataFrame, rules: Sequence[Rule] | None = None
) -> Figure:
    """A run of CFL, round by round: matrix, tree, accuracies and criterion, and other thresholds tried on it.

    Parameters
    ----------
    algorithm : CFL
    state : CFLState
        The end of the run, with one field more: ``cosines`` (T, K, K), those of all clients' updates in each round.
    groups : array of shape (K,), integer
        The true group of each client.
    history : pandas.DataFrame
        Of the run, with the accuracy of each group g in a column named ``"group g_accuracy"``.
    rules : sequence of Rule, optional
        The conditions of the criterion; those of `cfl_rules` by default. A cluster has to be as old as
        ``algorithm.rest`` rounds besides.

    Returns
    -------
    Figure
        Where other thresholds decide otherwise than the run did, it says that nothing is known from there on, as
        `fedlib.server.split_tree.replay` does. Chapter 04.
    """
    cosines, group = np.asarray(state.cosines.cpu(), float), np.asarray(groups)
    rules = cfl_rules(algorithm, state) if rules is None else rules
    names, rounds = [f"group {g}" for g in np.unique(group)], len(cosines)
    scores = history.set_index("round")[[f"{name}_accuracy" for name in names]].dropna()
    tests = np.column_stack([state.norms[:, [0, 1, -1]].cpu().numpy(), *(np.asarray(r.values) for r in rules)])
    i, j = np.triu_indices(len(group), 1)
    pairs = np.round(100 * cosines[:, i, j]).astype(int)
    steps = np.diff(pairs, axis=0, prepend=0).astype(
        np.int8
    )  # from round to round: modulo 256, the sums come out right
    splits = [
        {
            "round": s.round,
            "model": s.model,
            "new": s.new,
            "size": len(s.members),
            "moved": s.members[s.part == 1].tolist(),
            "objective": round(s.objective, 3),
        }
        for s in state.splits
    ]
    chart, plots = _chart(rounds, scores, tests, rules, state.splits, group)
    shown = [
        {**{key: getattr(r, key) for key in ("name", "symbol", "eps", "below", "holds", "fails")}, **plot}
        for r, plot in zip(rules, plots, strict=True)
    ]
    data = {
        "rounds": rounds,
        "groups": group.tolist(),
        "rest": algorithm.rest,
        "rules": shown,
        "tests": [[int(t), int(c), int(due), *(float(f"{v:.6g}") for v in row)] for t, c, due, *row in tests],
        "splits": splits,
        "scores": [
            [int(t), *np.round(row, 3).tolist()] for t, row in zip(scores.index, scores.to_numpy(), strict=True)
        ],
        "cosines": base64.b64encode(steps.tobytes()).decode(),
        "plot": {"left": _LEFT, "right": _RIGHT},
    }
    table = scores.round(2).set_axis(names, axis=1)
    for rule in rules:
        by_round = pd.Series(rule.values).groupby(tests[:, 0])
        table[rule.name] = (by_round.min() if rule.below else by_round.max()).round(2)
    table["models"] = [1 + sum(s.round <= t for s in state.splits) for t in table.index]
    key = '<div class="key">−1 <i></i> +1 &nbsp; cosine of updates</div>'
    scene = f'<div class="columns"><div><div class="matrix">{_matrix(cosines[-1], state.assignment)}</div>{key}</div>'
    scene += f'<div class="wide">{chart}</div></div>'
    caption = "Clustered federated learning, round by round. The server sees the cosines alone."
    return _figure("split", scene, caption, table.reset_index().to_html(index=False, border=0, na_rep="–"), data)


def playground() -> Figure:
    """Eight clients with a few points each: move them, and see whether CFL would part them (chapter 05)."""
    return _stored("playground")


def local_steps() -> Figure:
    """Two clients with quadratic losses, and the walks of FedAvg, FedProx and SCAFFOLD (chapter 02)."""
    return _stored("steps")


def _read(name: str) -> str:
    return files("fedlib.reports").joinpath("figures").joinpath(name).read_text(encoding="utf8")


def _stored(kind: str) -> Figure:
    """A figure without data: its script has drawn the picture that it starts with (``tools/stills.py``)."""
    return Figure(f'<figure class="fedlib" data-fedlib="{kind}">{_read(f"{kind}.html")}{_code(kind)}</figure>')


def _code(kind: str) -> str:
    script = f"{_read('common.js')}\n{_read(f'{kind}.js')}"
    return f"<style>{_read('common.css')}</style><script>(() => {{\n{script}}})();</script>"


def _figure(kind: str, scene: str, caption: str, table: str, data: Any) -> Figure:
    """The picture, its caption, the numbers as a table, the data and the script."""
    numbers = '<div class="scroll" tabindex="0" role="region" aria-label="numbers of the figure">'
    details = f"<details><summary>The numbers as a table</summary>{numbers}{table}</div></details>"
    kept = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    html = f"{scene}<figcaption>{escape(caption)}</figcaption>{details}<script type='application/json'>{kept}</script>"
    return Figure(f'<figure class="fedlib" data-fedlib="{kind}">{html}{_code(kind)}</figure>')


def _matrix(cosines: np.ndarray, assignment: Any) -> str:
    """Cosines by cluster: squares in two colours, the fuller the further from 0."""
    order, levels = np.argsort(assignment.cpu().numpy(), kind="stable"), dict[int, list[str]]()
    for (i, j), value in np.ndenumerate(np.round(10 * cosines[np.ix_(order, order)])):
        levels.setdefault(int(value), []).append(f"M{j} {i}h.95v.95h-.95z")
    paths = "".join(
        f'<path fill="var(--{"plus" if v > 0 else "minus"})" fill-opacity="{abs(v) / 10}" d="{"".join(d)}"/>'
        for v, d in sorted(levels.items())
        if v
    )
    k = len(order)
    label = f"Matrix of the cosines of the updates of {k} clients, rows and columns in the order of the split tree."
    edge = k / 15  # as the script leaves it for labels
    return f'<svg viewBox="{-edge} {-edge} {k + edge} {k + edge}" role="img" aria-label="{label}">{paths}</svg>'


class _Chart:
    """Panels one below the other, over the same rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.top, self.bottom = rounds, 0.0, 0.0
        self.always: list[str] = []
        self.past: list[str] = []  # what shows up to the round that the reader has chosen

    def x(self, t: ArrayLike) -> Any:
        return np.round(_LEFT + (_RIGHT - _LEFT) * (np.asarray(t) - 1) / max(1, self.rounds - 1), 1)

    def y(self, values: ArrayLike) -> Any:
        share = np.minimum(1, np.asarray(values) / self.highest)
        return np.round(self.top + (self.bottom - self.top) * (1 - share), 1)

    def panel(self, title: str, height: float, highest: float, ticks: Sequence[float]) -> None:
        self.top, self.highest = self.bottom + 26, highest
        self.bottom = self.top + height
        self.text(0, self.top - 8, title, 'class="title"')
        for tick in ticks:
            self.always.append(f'<path class="grid" d="M{_LEFT} {self.y(tick)}H{_RIGHT}"/>')
            self.text(_LEFT - 5, self.y(tick) + 4, f"{tick:.2g}", 'class="end"')

    def text(self, x: float, y: float, words: str, more: str = "") -> None:
        self.always.append(f'<text x="{x:.4g}" y="{y:.4g}" {more}>{escape(words)}</text>')

    def curve(self, t: ArrayLike, values: ArrayLike, colour: str, dashes: str = "") -> None:
        points = " ".join(f"{a:g},{b:g}" for a, b in zip(self.x(t), self.y(values), strict=True))
        look = f'stroke="{colour}" stroke-dasharray="{dashes}"'
        self.past.append(f'<polyline class="curve" {look} points="{points}"/>')

    def svg(self, label: str) -> str:
        height = self.bottom + 22
        every = next((n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500) if self.rounds <= 6 * n), 1000)
        for t in range(every, self.rounds + 1, every):
            self.text(self.x(t), self.bottom + 16, str(t), 'class="mid"')
        self.text(_RIGHT + 12, self.bottom + 16, "round")
        span = f'y="0" height="{self.bottom}"'
        past = f'<svg class="past" x="0" {span} width="{_RIGHT + 4}">{"".join(self.past)}</svg>'
        unknown = f'<rect class="unknown" x="{_LEFT}" {span} width="0" fill="var(--soft)"/>'
        cursor = (
            f'<path class="cursor" d="M0 28V{self.bottom}" stroke="currentColor" transform="translate({_RIGHT} 0)"/>'
        )
        inner = "".join(self.always) + unknown + past + cursor
        return f'<svg class="chart" viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{label}">{inner}</svg>'


def _chart(
    rounds: int,
    scores: pd.DataFrame,
    tests: np.ndarray,
    rules: Sequence[Rule],
    splits: Sequence[Any],
    group: np.ndarray,
) -> tuple[str, list[dict[str, Any]]]:
    """Accuracies, conditions and tree over the rounds, and for each condition what the script needs to know of it."""
    chart, plots = _Chart(rounds), []
    chart.panel("accuracy of each true group", 100, 1, (0, 0.5, 1))
    for n, name in enumerate(np.unique(group)):
        colour, dashes, y = f"var(--g{name % 10})", _DASHES[n % len(_DASHES)], chart.top + 8 + 18 * n
        chart.curve(scores.index, scores.iloc[:, n], colour, dashes)
        look = f'class="curve" stroke="{colour}" stroke-dasharray="{dashes}"'
        chart.always.append(f'<path {look} d="M{_RIGHT + 12} {y}h16"/>')
        chart.text(_RIGHT + 33, y + 4, f"group {name}")
        chart.text(_WIDTH, y + 4, f"{scores.iloc[-1, n]:.2f}", f'class="end" data-group="{n}"')
    for i, rule in enumerate(rules):
        values = np.asarray(rule.values)
        highest = round(max(1.6 * rule.eps, float(np.quantile(values, 0.98))), 2)
        needs = f"{rule.name} (a cut needs {'less than' if rule.below else 'at least'} {rule.symbol})"
        chart.panel(needs, 62, highest, (0, highest))
        for c in np.unique(tests[:, 1]):
            own = tests[:, 1] == c
            chart.curve(tests[own, 0], values[own], "currentColor")
        line = f'<path d="M{_LEFT} 0H{_RIGHT}" stroke="var(--warn)" stroke-width="2" stroke-dasharray="6 3"/>'
        label = f'<text x="{_RIGHT + 12}" y="4">{rule.symbol} = {rule.eps:.2f}</text>'
        place = f'data-rule="{i}" transform="translate(0 {chart.y(rule.eps)})"'
        chart.always.append(f"<g {place}>{line}{label}</g>")
        plot = {"top": chart.top, "bottom": chart.bottom, "highest": highest}
        plots.append({"range": [0, highest, 0.01], "plot": plot})
    _tree(chart, splits, group)
    return chart.svg("Accuracies, the conditions of the criterion and the split tree, over the rounds."), plots


def _tree(chart: _Chart, splits: Sequence[Any], group: np.ndarray) -> None:
    """The split tree as a panel: time runs to the right, a leaf says whom its model serves."""
    order, born, model = [0], {0: 1}, np.zeros(len(group), int)
    for s in splits:
        order.insert(order.index(s.model) + 1, s.new)
        born[s.model] = born[s.new] = s.round
        model[s.members[s.part == 1].cpu().numpy()] = s.new
    chart.panel("the split tree, and whom each model serves", 30 * len(order), 1, ())
    heads = {name: (chart.rounds, chart.top + 15 + 30 * row) for row, name in enumerate(order)}
    lines = []
    for s in reversed(splits):
        (old, above), (new, below), x = heads[s.model], heads[s.new], chart.x(s.round)
        lines.append(f"M{chart.x(old)} {above:g}H{x}V{below:g}H{chart.x(new)}")
        heads[s.model] = (s.round, (above + below) / 2)
    lines.append(f"M{_LEFT} {heads[0][1]:g}H{chart.x(heads[0][0])}")
    chart.past.append(f'<path class="curve" stroke="currentColor" d="{"".join(lines)}"/>')
    for row, name in enumerate(order):
        names, counts = np.unique(group[model == name], return_counts=True)
        y, held = chart.top + 12 + 30 * row, ", ".join(f"{n} of group {g}" for g, n in zip(names, counts, strict=True))
        chart.text(_RIGHT + 12, y, f"model {name}", f'data-from="{born[name]}"')
        chart.text(_RIGHT + 12, y + 14, f"{held}", f'data-from="{born[name]}"')
