"""What the claims of a page are made of: places in stored figures, and what is asked of them.

A file in ``tests/book/claims/`` belongs to one page. Its ``CLAIMS`` are phrases that stand in the page, each with a
function of the stored figures that is true while the phrase may stay there. The function gets ``read``, which gives the
figures of a result by name.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from statistics import median
from typing import Any

from fedlib import statistics
from tools.notebooks import ROOT

Read = Callable[[str], Any]
Claim = Callable[[Read], bool]
Where = Any  # a result, or a result and the keys that lead to a part of its figures: see `places`
Names = str | float | Sequence[str]  # of one row, or of several; of those that are beaten, a number too
HOLDS, OPPOSITE, UNDECIDED = "holds", "the opposite holds", "undecided"
OURS, RELATIVE = "split-half CFL (ours)", "CFL, relative lengths"  # rows of several results
PEERS = "../../benchmarks/results/intel-r-xeon-r-processor_peers"  # the run of which the pages speak


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


def places(*keys: Any) -> list[tuple[Any, ...]]:
    """All places that are meant: a tuple are keys one after another, of a list each key is meant."""
    match keys:
        case ():
            return [()]
        case (tuple() as first, *rest):
            return places(*first, *rest)
        case (list() as first, *rest):
            return [place for key in first for place in places(key, *rest)]
        case (first, *rest):
            return [(first, *place) for place in places(*rest)]


def parts(read: Read, *place: Where) -> list[Any]:
    """What stands at all places that are meant; a place begins with the name of a result."""
    return [at(read(name), *keys) for name, *keys in places(*place)]


def each_seed(read: Read, *place: Where) -> list[float]:
    """The numbers of all seeds at all places that are meant."""
    return [v for found in parts(read, *place) for v in values(found)]


def rows_of(names: Names) -> Sequence[Any]:
    """One row, or several."""
    return [names] if isinstance(names, (str, float)) else names


def gaps(read: Read, where: Where, a: Names, b: Names, *scores: str) -> list[dict[str, Any]]:
    """`compare` of each row of `a` with each of `b`, in each of these scores; there are five seeds at least.

    Without scores the rows themselves have a number for each seed.
    """
    found = [
        compare(figures, (row, *score), other if isinstance(other, float) else (other, *score))
        for figures, row, other in product(parts(read, where), rows_of(a), rows_of(b))
        for score in [[s] for s in scores] or [[]]
    ]
    assert found and min(gap["seeds"] for gap in found) >= 5
    return found


def claim(holds: Callable[..., bool]) -> Callable[..., Claim]:
    """A maker of claims: with ``@claim``, ``holds(read, *more)`` is called as ``holds(*more)``, and asked later."""
    return lambda *more, **named: lambda read: holds(read, *more, **named)


def every(*claims: Claim) -> Claim:
    """All of them hold."""
    return lambda read: all(one(read) for one in claims)


def says(
    word: str, where: Where, a: Names, b: Names, *scores: str, seeds=0, by=-1e9, within=1e9, half=0.0, points=""
) -> Claim:
    """The verdict on "a is above b" is this word for each row of `a` and each of `b`, in each of these scores.

    It is above in at least so many seeds, in each by more than `by`, on average by less than `within`, with an interval
    that reaches less than `half` to each side, and, where that is printed, by so many points, such as "2.2 ± 1.2".
    """
    return lambda read: all(
        word in ("", gap["verdict"])
        and gap["agree"] >= seeds
        and gap["least"] > by
        and abs(gap["difference"]) < within
        and (not half or 0 < gap["half_width"] < half)
        and (not points or all(map(shows, (100 * gap["difference"], 100 * gap["half_width"]), points.split(" ± "))))
        for gap in gaps(read, where, a, b, *scores)
    )


def beats(*asked: Any, seeds: int = 5, **more: Any) -> Claim:
    """Each row of `a` is above each of `b`, by the whole interval and in at least so many seeds."""
    return says(HOLDS, *asked, seeds=seeds, **more)


def level(*asked: Any, within: float = 0.05, half: float = 0.2) -> Claim:
    """Nobody can tell them apart, they lie close together, and the intervals are narrow enough for that to say so."""
    return says(UNDECIDED, *asked, within=within, half=half)


def ahead(*asked: Any, by: float = 0.0, points: str = "") -> Claim:
    """In every seed each row of `a` is above each of `b`, by more than this, and on average by so many points."""
    return says("", *asked, by=by, points=points)


def same(where: Where, a: str, b: str, *scores: str) -> Claim:
    """Both rows have the same numbers, seed by seed, in these scores."""
    return lambda read: all(at(p, a, s) == at(p, b, s) for p in parts(read, where) for s in scores)


def between(low: float, high: float, *place: Where) -> Claim:
    """The number of every seed lies between these two, which belong to it."""
    return lambda read: all(low <= v <= high for v in each_seed(read, *place))


def average(low: float, high: float, *place: Where) -> Claim:
    """The mean over seeds lies between these two, which belong to it."""
    return lambda read: all(low <= mean(found) <= high for found in parts(read, *place))


def apart(low: float, high: float, where: Where, a: Names, b: Names, *score: str) -> Claim:
    """The mean of each row of `a` less that of each of `b` lies between these two."""
    return lambda read: all(
        low < mean(found, row, *score) - mean(found, other, *score) < high
        for found, row, other in product(parts(read, where), rows_of(a), rows_of(b))
    )


def ratio(low: float, high: float, where: Where, a: str, b: str, *score: str) -> Claim:
    """The mean of `a` over that of `b`."""
    return lambda read: all(low < mean(p, a, *score) / mean(p, b, *score) < high for p in parts(read, where))


def printed(where: Where, texts: Mapping[str, str], *score: str, times: float = 1) -> Claim:
    """The mean that stands in each of these rows is printed so, perhaps in percent."""
    return lambda read: all(
        shows(times * mean(found, row, *score), text) for found in parts(read, where) for row, text in texts.items()
    )


def so_many(number: int, of: int, asked: Callable[[Read], Iterable[bool]]) -> Claim:
    """It is so in this number of all cases."""
    return lambda read: Counter(map(bool, asked(read))) == Counter({True: number, False: of - number})


def so_often(number: int, of: int, word: str, where: Where, a: Names, b: Names, *scores: str) -> Claim:
    """This number of all verdicts on "a is above b" is this word."""
    return so_many(number, of, lambda read: (gap["verdict"] == word for gap in gaps(read, where, a, b, *scores)))


def times_as_long(read: Read, work: str, library: str) -> float:
    """Seconds of another library over those of fedlib, for one work: the median of pairs."""
    (row,) = (row for row in read(PEERS)["rows"] if (row["work"], row["contender"]) == (work, library))
    return median(cpu for _, cpu in row["against"]["fedlib"])


def shows(value: float, text: str) -> bool:
    """Whether a number rounds to what is printed: shows(0.7649, "0.765"), shows(-.4, "-0")."""
    digits = len(text.partition(".")[2])
    return abs(value - float(text)) <= 0.5 * 10**-digits + 1e-9


@functools.cache
def prose(path: str) -> str:
    """The words of a page on one line: a notebook's captions and Markdown, or a .md file, without code and formulas."""
    text = (ROOT / path).read_text(encoding="utf8")
    if path.endswith(".ipynb"):
        cells = json.loads(text)["cells"]
        written = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
        drawn = [c["metadata"].get("mystnb", {}).get("figure", {}) for c in cells if c["cell_type"] == "code"]
        text = "\n\n".join([*(figure.get("caption", "") for figure in drawn), *written])
    text = re.sub(r"```.*?```|\$\$.*?\$\$", " ", text, flags=re.S)
    return " ".join(text.split())


def numbers(text: str) -> list[str]:
    """Measured numbers in prose: decimals and percentages, but not of intervals, each with some words around it."""
    nothing = (
        r"\$[^$]*\$|`[^`]*`|\]\([^)]*\)|https?://\S+|95 % (?:intervals?|over (?:these|seeds))|[Ii]ntervals are 95 %"
    )
    plain = re.sub(nothing, lambda m: " " * len(m[0]), text)
    found = re.finditer(r"(?<![\w.])[−+-]?(?:\d*\.\d+|\d+(?= ?%| points?\b))", plain)
    return [text[max(0, m.start() - 40) : m.end() + 25] for m in found]
