"""The table of a benchmark, and whether its targets are met."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import pandas as pd

from .driver import LIMIT, PEERS, REFERENCES, Row

__all__ = ["TARGETS", "equal", "frame", "summary", "verdict"]

#: How many times a reference's seconds a contender should take at least. Where there are two bars, the first is for the
#: best form that was thought of (W1: wide dense layers in low-rank form; W2: a backward pass written out), the second
#: for the form without it. For the limit: how many times its seconds the reference should take at most.
TARGETS: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {
    ("W1", "fedlib"): {
        "Flower": (6, 2), "pfl": (3.5, 1), "naive loop": (3.5, 1), "tuned loop": (3, 1), LIMIT: (2,)
    },
    ("W1s", "fedlib"): {"Flower": (4,), "pfl": (2,), "naive loop": (2,), "tuned loop": (1.5,), LIMIT: (3,)},
    ("W2", "fedlib"): {
        "Flower": (80, 45), "pfl": (30, 18), "naive loop": (40, 22), "tuned loop": (20, 12), LIMIT: (12, 25)
    },
    ("W2", "any module"): {"Flower": (30,), "pfl": (14,), "naive loop": (16,), "tuned loop": (9,), LIMIT: (30,)},
    ("W3", "fedlib"): {"Flower": (2.5,), "pfl": (1.4,), "naive loop": (1.4,), "tuned loop": (1.4,), LIMIT: (6,)},
    **{(work, "any module"): {"naive loop": (1,), "tuned loop": (1,)} for work in ("W1", "W1s", "W3")},
}  # fmt: skip
OWN_TOLERANCE, PEER_TOLERANCE = 1e-10, 1e-4  # of a parameter, in float64


def verdict(ratio: float, bars: Sequence[float], at_most: bool = False) -> str:
    """Which bars a ratio keeps to: "met >= 6", or "missed >= 6, met >= 2"; with <= where they are upper bounds."""
    words = []
    for bar in bars:
        met = ratio <= bar if at_most else ratio >= bar
        words.append(f"{'met' if met else 'missed'} {'<=' if at_most else '>='} {bar:g}")
        if met:
            break
    return ", ".join(words)


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows of one work, with what follows from them.

    Returns
    -------
    list of dict
        As `benchmarks.driver.Row`, and ``wall_s`` and ``cpu_s``, seconds a round; ``examples_a_s``, by the wall;
        ``of_limit``, the limit's seconds divided by the contender's, of the processor. All medians; None where nothing
        was measured.
    """
    limit = median(cpu for row in rows if row.contender == LIMIT for _, cpu in row.seconds)
    summaries = []
    for row in rows:
        wall, cpu = (median(values) for values in zip(*row.seconds, strict=True)) if row.seconds else (None, None)
        shares = {"examples_a_s": wall and row.examples / wall, "of_limit": cpu and limit / cpu}
        summaries.append(asdict(row) | {"wall_s": wall, "cpu_s": cpu} | shares)
    return summaries


def frame(summaries: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """The table to print, with columns in two levels.

    Below "v fedlib" stand how many times fedlib's seconds a contender took: of the processor (the median of the pairs,
    in brackets the least and the largest), of the wall clock (the median), and the target for the first of these.
    """
    lines = pd.DataFrame([_line(s) for s in summaries])
    return lines.set_axis(pd.MultiIndex.from_tuples(lines.columns), axis=1)


def _line(s: dict[str, Any]) -> dict[tuple[str, str], str]:
    line = {("", "work"): s["work"], ("", "contender"): s["contender"]}
    for reference in REFERENCES:
        cells = dict.fromkeys(("CPU", "wall", "target"), "")
        if s["against"].get(reference):
            wall, cpu = zip(*s["against"][reference], strict=True)
            cells["CPU"] = f"{median(cpu):.3g} ({min(cpu):.3g}-{max(cpu):.3g})"
            cells["wall"] = _number(median(wall))
            bars, limit = TARGETS.get((s["work"], reference), {}).get(s["contender"], ()), s["contender"] == LIMIT
            cells["target"] = verdict(1 / median(cpu) if limit else median(cpu), bars, at_most=limit)
        line |= {(f"v {reference}", title): cell for title, cell in cells.items()}
    for title, name in {
        "s a round": "wall_s", "CPU s": "cpu_s", "start-up s": "startup_s", "peak MiB": "peak_mib",
        "examples/s": "examples_a_s", "of limit": "of_limit", "difference": "difference",
    }.items():  # fmt: skip
        line["", title] = _number(s[name])
    return line | {("", "note"): s["reason"] or ("" if equal(s) else "TRAINS SOMETHING ELSE")}


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def equal(s: dict[str, Any]) -> bool:
    """Whether a contender reached fedlib's parameters, or none are to be compared."""
    tolerance = PEER_TOLERANCE if s["contender"] in PEERS else OWN_TOLERANCE
    return s["difference"] is None or s["difference"] <= tolerance
