"""What the claims of a page are made of: places in stored figures, and what is asked of them.

A file in ``tests/book/claims/`` belongs to one page. Its ``CLAIMS`` are phrases that stand in the page, each with a
function of the stored figures that is true while the phrase may stay there. The function gets ``read``, which gives the
figures of a result by name.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedlib import statistics
from tools.notebooks import ROOT

Read = Callable[[str], Any]
Claim = Callable[[Read], bool]
Where = str | Sequence[str]  # a result, or a result and the keys that lead to a part of its figures
Names = str | float | Sequence[str]  # of one row, or of several; of those that are beaten, a number too
HOLDS, OPPOSITE, UNDECIDED = "holds", "the opposite holds", "undecided"
OURS, RELATIVE = "split-half CFL (ours)", "CFL, relative lengths"  # rows of several results


@functools.cache
def stored(name: str) -> Any:
    """The figures of a stored result."""
    return json.loads((ROOT / f"book/results/{name}.json").read_text(encoding="utf8"))["figures"]


def at(figures: Any, *place: str) -> Any:
    """What stands at a place."""
    for key in place:
        figures = figures[key]
    return figures


def values(figures: Any, *place: str) -> list[float]:
    """The numbers of all seeds."""
    found = at(figures, *place)
    return [float(v) for v in (found.values() if isinstance(found, Mapping) else found)]


def mean(figures: Any, *place: str) -> float:
    """Mean over seeds, or the number that stands there."""
    found = at(figures, *place)
    return float(found) if isinstance(found, (int, float)) else sum(values(found)) / len(values(found))


def compare(figures: Any, a: Any, b: Any) -> dict[str, Any]:
    """`fedlib.statistics.compare` of two places, each a key or a sequence of keys; `b` may be a number."""
    first, second = (p if isinstance(p, float) else at(figures, *([p] if isinstance(p, str) else p)) for p in (a, b))
    second = dict.fromkeys(first, second) if isinstance(second, float) else second
    return statistics.compare(first, second) | {"least": min(first[seed] - second[seed] for seed in first)}


def verdict(figures: Any, a: Any, b: Any) -> str:
    """Of "a is larger than b": "holds", "the opposite holds" or "undecided"."""
    return compare(figures, a, b)["verdict"]


def part(read: Read, where: Where) -> Any:
    """The figures of a result, or a part of them."""
    name, *place = [where] if isinstance(where, str) else where
    return at(read(name), *place)


def gaps(read: Read, where: Where, a: Names, b: Names, *scores: str) -> list[dict[str, Any]]:
    """`compare` of each row of `a` with each of `b`, in each of these scores; there are five seeds at least.

    Without scores the rows themselves have a number for each seed.
    """
    rows, others = ([n] if isinstance(n, (str, float)) else n for n in (a, b))
    found = [
        compare(part(read, where), (row, *score), other if isinstance(other, float) else (other, *score))
        for row in rows
        for other in others
        for score in [[s] for s in scores] or [[]]
    ]
    assert found and min(gap["seeds"] for gap in found) >= 5
    return found


def every(*claims: Claim) -> Claim:
    """All of them hold."""
    return lambda read: all(claim(read) for claim in claims)


def says(
    word: str,
    where: Where,
    a: Names,
    b: Names,
    *scores: str,
    seeds: int = 0,
    within: float = math.inf,
    points: str = "",
) -> Claim:
    """The verdict on "a is above b" is this word for each row of `a` and each of `b`, in each of these scores.

    It is above in at least so many seeds, by less than `within`, and, where that is printed, by so many points.
    """
    return lambda read: all(
        gap["verdict"] == word
        and gap["agree"] >= seeds
        and abs(gap["difference"]) < within
        and (not points or shows(100 * gap["difference"], points))
        for gap in gaps(read, where, a, b, *scores)
    )


def beats(where: Where, a: Names, b: Names, *scores: str, seeds: int = 5, **more: Any) -> Claim:
    """Each row of `a` is above each of `b`, by the whole interval and in at least so many seeds."""
    return says(HOLDS, where, a, b, *scores, seeds=seeds, **more)


def level(where: Where, a: Names, b: Names, *scores: str, within: float = 0.05, half: float = 0.2) -> Claim:
    """Nobody can tell them apart, they lie close together, and the intervals are narrow enough for that to say so."""
    return lambda read: all(
        gap["verdict"] == UNDECIDED and 0 < gap["half_width"] < half and abs(gap["difference"]) < within
        for gap in gaps(read, where, a, b, *scores)
    )


def ahead(where: Where, a: Names, b: Names, *scores: str, by: float = 0.0, points: str = "") -> Claim:
    """In every seed each row of `a` is above each of `b`, by more than this, and on average by so many points."""
    return lambda read: all(
        gap["least"] > by and (not points or shows(100 * gap["difference"], points))
        for gap in gaps(read, where, a, b, *scores)
    )


def between(low: float, high: float, where: Where, *place: str) -> Claim:
    """The number of every seed lies between these two, which belong to it."""
    return lambda read: all(low <= v <= high for v in values(part(read, where), *place))


def ratio(low: float, high: float, where: Where, a: str, b: str, *score: str) -> Claim:
    """The mean of `a` over that of `b`."""
    return lambda read: low < mean(part(read, where), a, *score) / mean(part(read, where), b, *score) < high


def printed(where: Where, texts: Mapping[str, str], *score: str, times: float = 1) -> Claim:
    """The mean that stands in each of these rows is printed so, perhaps in percent."""
    return lambda read: all(shows(times * mean(part(read, where), row, *score), text) for row, text in texts.items())


def shows(value: float, text: str) -> bool:
    """Whether a number rounds to what is printed: shows(0.7649, "0.765"), shows(-.4, "-0")."""
    digits = len(text.partition(".")[2])
    return math.isclose(round(value, digits), float(text), abs_tol=1.000001 * 10**-digits / 2) or (
        abs(value - float(text)) <= 0.5 * 10**-digits + 1e-9
    )


@functools.cache
def prose(path: str) -> str:
    """The words of a page on one line: Markdown of a notebook, or a .md file, without code and formulas."""
    text = (ROOT / path).read_text(encoding="utf8")
    if path.endswith(".ipynb"):
        cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "markdown"]
        captions = [
            c["metadata"].get("mystnb", {}).get("figure", {}).get("caption", "")
            for c in json.loads(text)["cells"]
            if c["cell_type"] == "code"
        ]
        text = "\n\n".join("".join(c["source"]) for c in cells) + "\n\n" + "\n\n".join(captions)
    text = re.sub(r"```.*?```|\$\$.*?\$\$", " ", text, flags=re.S)
    return " ".join(text.split())


def numbers(text: str) -> list[str]:
    """Measured numbers in prose: decimals and percentages, each with some words around it."""
    plain = re.sub(r"\$[^$]*\$|`[^`]*`|\]\([^)]*\)|https?://\S+", lambda m: " " * len(m[0]), text)
    found = re.finditer(r"(?<![\w.])[−+-]?(?:\d*\.\d+|\d+(?= ?%| points?\b))", plain)
    return [text[max(0, m.start() - 40) : m.end() + 25] for m in found]
