"""The papers' figures beside ours: book/paper/published.csv, and what became of each in book/paper/verdicts.csv.

    python -m book.experiments.verdicts

writes verdicts.csv again, with the verdict and the reason of each row that has a result as the stored results give
them now; rows without one stay as they are. A result reads ``FILE: PATH``, where FILE stands in book/results and PATH
leads through its figures, from key to key by slashes, to a number, to a number for each seed, or to a list; ``PATH -
PATH`` is a difference, seed by seed, and ``@NAME`` one of `DERIVED`. FILE can also be ``book.experiments.tabular`` or
``fedlib.datasets``, which state the settings of our runs and the data. While FILE is not there, the row is not run.

A row whose method is "data" is a setting: it has words of its own, and is counted among no results.
"""

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from book import results
from book.experiments.tabular import SETTINGS
from fedlib import datasets
from fedlib.statistics import interval

ROOT = Path(__file__).resolve().parents[2]
FOLDER, RESULTS = ROOT / "book" / "paper", ROOT / "book" / "results"
KEYS = ["paper", "table", "dataset", "setting", "method", "metric"]
WORDS = ("reproduced", "level holds", "direction holds", "undecided", "not reproduced", "not run")
SETTING = ("as in the paper", "not as in the paper", "not run")
SLACK = 0.02  # what counts as the half width of a published figure without one: two points of accuracy
ALONE = 0.1  # and as that of ours, if it is a single run, about whose scatter nothing is known
MOST = 1000  # seeds that anybody would run
WIDEST = 0.1  # an interval, ours or theirs, wider than this to each side could hardly miss; overlap then says nothing
_UNITS = {"accuracy_pct": 100, "accuracy_points": 100, "r2_points_x100": 100}
_SETTINGS = {"book.experiments.tabular": SETTINGS.__getitem__, "fedlib.datasets": datasets.stats}
_GAPS = ("accuracy_points", "r2_points_x100")  # differences, whose sign is their direction
USED = {"samples_per_client": "Our run gives each client as many rows, and trains on four fifths of them."}
READINGS = {  # of "maximum test accuracy" in Table 5 of FedSGCNN: whose best round, and on which rows
    "each cluster, own rows": "best round of each cluster, own test rows",
    "paper": "best round of each client, own test rows",
    "each client, hold-out": "best round of each client, common hold-out",
    "each cluster, hold-out": "best round of each cluster, common hold-out",
    "all, hold-out": "best round of all clients, common hold-out",
    "sound": "one round, best on all own test rows, common hold-out",
    "last round": "last round, common hold-out",
}


# ---- derived figures ----


def _runs(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of Figure 3 with the smaller network, one for each seed."""
    return list(figures["five layers: all three"].values())


def _after(run: dict[str, Any], t: int, what: str = "accuracy") -> Any:
    """What a run has after round t; by default the mean accuracy."""
    return np.array(run[what][run["rounds"].index(t)])


def _first_gain(figures: dict[str, Any]) -> list[float]:
    """Largest gain of a part at the first split, from its round to the next that was scored."""
    gains = []
    for run in _runs(figures):
        t, part = run["splits"][0][0], _after(run, run["splits"][0][0] + 5, "clusters")
        gain = _after(run, t + 5, "clients") - _after(run, t, "clients")
        gains.append(max(gain[part == p].mean() for p in np.unique(part)))
    return gains


def _sweep(figures: dict[str, Any], side: Callable[[float], bool]) -> list[float]:
    """Pearson correlation of the weight of the MMD with the R2 of the best round, for each seed."""
    weights = [w for w in (float(n.removeprefix("weight ")) for n in figures if n.startswith("weight ")) if side(w)]
    scores = [figures[f"weight {w:g}"]["max"] for w in weights]
    return [float(np.corrcoef(weights, [by[s] for by in scores])[0, 1]) for s in scores[0]]


def _best_weight(figures: dict[str, Any]) -> list[float]:
    tops = {float(n.removeprefix("weight ")): by["max"] for n, by in figures.items() if n.startswith("weight ")}
    return [max(tops, key=lambda w: tops[w][s]) for s in next(iter(tops.values()))]


def _clients_needed(figures: dict[str, Any]) -> list[float]:
    """Fewest training clients with which the Siamese GCN is more often right than the larger class, over all seeds."""
    part = figures["Tables 2 and 3, own 4 rows"]
    for n in (5, 10, 15, 20):
        gain = _numbers(part[f"SGCNN, {n} clients"]["accuracy"]) - _numbers(part["majority class"]["accuracy"])
        if np.subtract(*interval(gain)) > 0:
            return [n]
    return [math.inf]


DERIVED: dict[str, Callable[[dict[str, Any]], list[float]]] = {
    "before the first split": lambda figures: [_after(run, 50) for run in _runs(figures)],
    "gain at the first split": _first_gain,
    "at the end": lambda figures: [run["accuracy"][-1] for run in _runs(figures)],
    "end over first split": lambda figures: [run["accuracy"][-1] / _after(run, 50) for run in _runs(figures)],
    "correlation up to 0.5": lambda figures: _sweep(figures, lambda w: w <= 0.5),
    "correlation from 0.5": lambda figures: _sweep(figures, lambda w: w >= 0.5),
    "best weight": _best_weight,
    "training clients needed": _clients_needed,
}


# ---- reading ----


def _numbers(value: Any) -> np.ndarray:
    if isinstance(value, dict):
        value = [value[seed] for seed in sorted(value)]
    return np.atleast_1d(np.asarray(value, float))


@functools.cache
def _load(file: str) -> dict[str, Any]:
    return results.load(RESULTS / file)


def _at(term: str, figures: dict[str, Any]) -> Any:
    """What a path leads to in these figures, or in those of the file that it names."""
    file, _, path = term.rpartition(".json: ")
    return functools.reduce(dict.__getitem__, path.split("/"), _load(f"{file}.json")["figures"] if file else figures)


def ours(result: str) -> np.ndarray:
    """The figure to which a result leads, one number for each seed, from 0 to 1 where the paper has per cent.

    Parameters
    ----------
    result : str
        As in verdicts.csv.

    Returns
    -------
    array of shape (seeds,)

    Raises
    ------
    KeyError
        Says which result leads nowhere.
    """
    try:
        file, path = result.split(": ", 1)
        if file in _SETTINGS:
            name, field = path.split("/")
            return _numbers(getattr(_SETTINGS[file](name), field))
        figures = _load(file)["figures"]
        if path.startswith("@"):
            return _numbers(DERIVED[path[1:]](figures))
        minuend, *subtrahend = (_at(term, figures) for term in path.split(" - "))
        for other in subtrahend:
            if set(minuend) != set(other):
                raise KeyError(f"{path}: other seeds")
            return _numbers(minuend) - _numbers(other)
        return _numbers(minuend)
    except (KeyError, ValueError, AttributeError, TypeError, FileNotFoundError) as error:
        raise KeyError(f"the result {result!r} leads nowhere: {error}") from error


def is_there(result: str) -> bool:
    """Whether a row has a result whose file has been written, or is one of the library."""
    file = result.split(": ")[0]
    return bool(result) and (file in _SETTINGS or (RESULTS / file).exists())


def read() -> pd.DataFrame:
    """Both files as one table; cells are text, but ``value`` and ``half_width``."""
    published, verdicts = (
        pd.read_csv(FOLDER / f"{n}.csv", dtype=str, na_filter=False) for n in ("published", "verdicts")
    )
    if not published[KEYS].equals(verdicts[KEYS]):
        raise ValueError(f"verdicts.csv must have the rows of published.csv, in its order: the same {', '.join(KEYS)}")
    rows = published.join(verdicts.drop(columns=KEYS))
    return rows.assign(**{name: pd.to_numeric(rows[name]) for name in ("value", "half_width")})


# ---- judging ----


def _compared(rows: pd.DataFrame, row: pd.Series) -> pd.Series | None:
    """The row of the method that this one is compared with: of the same table and setting, or the only one there is."""
    if not row.against:
        return None
    same = rows[(rows[["paper", "dataset", "method"]] == [row.paper, row.dataset, row.against]).all(axis=1)]
    near = same[(same.table == row.table) & (same.setting == row.setting)]
    (found,) = (r for _, r in (near if len(near) else same).iterrows())
    return found


def _interval(values: np.ndarray, seeds: int | None) -> tuple[float, float]:
    """Mean and half width, and what the half width would be with so many seeds that scatter as these do."""
    mean, half = interval(values)
    if seeds is not None:
        quantile = {n: float(stdtrit(n - 1, 0.975)) for n in (len(values), seeds)}
        half *= quantile[seeds] / quantile[len(values)] * math.sqrt(len(values) / seeds)
    return mean, half


def _difference(rows: pd.DataFrame, row: pd.Series) -> tuple[float, np.ndarray, str] | None:
    """The difference of which a row tells, published and ours, seed by seed, and the method that is subtracted."""
    if row.metric in _GAPS:
        return row.value / _UNITS[row.metric], ours(row.result), ""
    if (other := _compared(rows, row)) is None:
        return None
    return (row.value - other.value) / _UNITS.get(row.metric, 1), ours(row.result) - ours(other.result), other.method


def judge(rows: pd.DataFrame, row: pd.Series, seeds: int | None = None) -> tuple[str, str]:
    """Verdict and reason of a row that has a result.

    Parameters
    ----------
    rows : pandas.DataFrame
        From `read`.
    row : pandas.Series
        One of them.
    seeds : int, optional
        Judge as if there were so many seeds, with the mean and the spread of those that there are.

    Returns
    -------
    verdict, reason : str
    """
    figure, unit = ours(row.result), _UNITS.get(row.metric, 1)
    published = row.value / unit
    if row.method == "data":
        same = (figure == published).all()
        return (SETTING[0], USED.get(row.metric, "Our run uses this setting.")) if same else (SETTING[1], row.reason)
    mean, half = _interval(figure, seeds)
    alone = len(figure) == 1
    if row.metric == "ratio" and mean > published:
        if alone:
            return "undecided", "One run, above the paper's bound."
        if mean - half > published:
            return "reproduced", "Above the paper's bound."
        return "undecided", "Our seeds scatter too much to tell."
    theirs = row.half_width / unit if row.half_width == row.half_width else SLACK
    near = abs(mean - published) <= (ALONE if alone else half) + theirs
    found = "The intervals overlap" if near else "The figures are too far apart"
    wide = near and (alone or half > WIDEST or theirs > WIDEST)
    if wide and alone:
        found = "One run cannot tell"
    elif wide:
        scattered = "Our seeds scatter too much to tell"
        found = scattered if half > WIDEST else "The published interval is so wide that it could hardly be missed"
    told, sign, way, back, as_large = _difference(rows, row), 0, "", "", True
    if told is not None:
        wanted, gap, other = told
        centre, spread = _interval(gap, seeds)
        spread = ALONE if len(gap) == 1 else spread
        sign = int(np.sign(centre * wanted)) if abs(centre) > spread else 0
        as_large = abs(centre - wanted) <= spread + SLACK
        above, below = ("above", "below") if wanted > 0 else ("below", "above")
        way = f"{row.method} is {above} {other}" if other else "the difference has the paper's sign"
        back = f"{row.method} is {below} {other} here" if other else "the difference has the other sign"
    level = near and not wide
    doubt = f", {'but' if level else 'and'} {back if sign < 0 else f'it is not certain that {way}'}" if way else ""
    if sign > 0 and not level:
        return "direction holds", f"{found}, but {way}, as in the paper."
    if sign > 0:
        right = f"{found}, and {way}, as in the paper"
        return ("reproduced", f"{right}.") if as_large else ("level holds", f"{right}, but by another margin.")
    if level and row.metric not in _GAPS:
        return "level holds" if way else "reproduced", f"{found}{doubt}."
    return "undecided" if near else "not reproduced", f"{found}{doubt}."


def seeds_to_decide(rows: pd.DataFrame, row: pd.Series) -> str:
    """How many seeds would decide an undecided row, if more of them had the mean and the spread of those we have."""
    alone, theirs = len(ours(row.result)) == 1, row.half_width / _UNITS.get(row.metric, 1)
    if row.verdict != "undecided" or alone or theirs > WIDEST:  # no seeds of ours narrow a published interval
        return ""
    enough = (n for n in range(2, MOST + 1) if judge(rows, row, n)[0] != "undecided")
    return str(next(enough, f"more than {MOST}"))


def judged() -> pd.DataFrame:
    """verdicts.csv as the stored results have it now."""
    rows = read()
    for place, row in rows[rows.result != ""].iterrows():
        there = is_there(row.result)
        rows.loc[place, ["verdict", "reason"]] = judge(rows, row) if there else ("not run", row.reason)
    return rows[[*KEYS, "result", "against", "verdict", "reason"]]


def readings() -> pd.DataFrame:
    """How often each verdict is given to Table 5 of FedSGCNN, for each of `READINGS`.

    Returns
    -------
    pandas.DataFrame
        A row for each reading, a column for each verdict but "not run".
    """
    rows = read()
    rows = rows[(rows["paper"] == "fedsgcnn") & (rows["table"] == "table5")]
    counts = {}
    for key, name in READINGS.items():
        read_so = rows.assign(result=rows["result"].str.rpartition("/")[0] + f"/{key}")
        counts[name] = pd.Series([judge(read_so, row)[0] for _, row in read_so.iterrows()]).value_counts()
    return pd.DataFrame(counts).T.reindex(columns=WORDS[:-1]).fillna(0).astype(int)


# ---- showing ----


def _text(value: float, half: float, digits: int) -> str:
    if math.isinf(value):
        return "none is enough"
    return f"{value:.{digits}f}" + (f" ± {half:.{digits}f}" if half == half else "")


def table() -> pd.DataFrame:
    """The page's table: each published figure, ours as read from its result file, verdict and reason.

    Returns
    -------
    pandas.DataFrame
        In the order of published.csv. ``ours`` is empty where not all was run; ``file`` says where it comes from,
        ``seeds to decide`` how many would do, see `seeds_to_decide`, and ``difference`` what a row that is compared
        with another is minus that one, here and in the paper.
    """
    rows, shown = read(), []
    for _, row in rows.iterrows():
        digits = 0 if row.method == "data" or row.metric in ("handles", "training_clients") else 2
        digits = 3 if row.metric in ("r2", "pt_sign_accuracy") else digits
        line = {"published": _text(row.value, row.half_width, digits), "ours": "", "file": ""}
        line |= {"seeds to decide": "", "difference": ""}
        if is_there(row.result):
            unit, line["file"] = _UNITS.get(row.metric, 1), row.result.split(": ")[0]
            line["seeds to decide"] = seeds_to_decide(rows, row)
            line["ours"] = _text(*(unit * v for v in interval(ours(row.result))), digits)
            if row.against:
                theirs, gap, other = _difference(rows, row)
                here = _text(*(unit * v for v in interval(gap)), digits)
                there = _text(unit * theirs, math.nan, digits)
                line["difference"] = f"Minus {other}: {here} here, {there} in the paper."
        shown.append(row[KEYS].to_dict() | line | row[["verdict", "reason"]].to_dict())
    return pd.DataFrame(shown)


def main() -> None:
    """Write verdicts.csv, whole or not at all, and say how many rows changed."""
    before, after = read(), judged()
    part = FOLDER / f"verdicts.{os.getpid()}.part"
    after.to_csv(part, index=False, lineterminator="\n")
    os.replace(part, FOLDER / "verdicts.csv")
    changed = (before.verdict != after.verdict).sum()
    print(f"{changed} verdicts changed", *after.verdict.value_counts().items(), sep="\n")


if __name__ == "__main__":
    main()
