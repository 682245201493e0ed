"""Stored results: what an experiment measured, with all that is needed to judge and to repeat it.

A result file is JSON: figures of each seed, settings, checksums of the data, device, versions, wall time, the commit of
the code, and a *probe*: what two rounds of each arm compute in double precision. Whether a result still belongs to the
code is asked of the behaviour: the probe is computed anew and compared (``tests/book/test_results_are_fresh.py``).
"""

import datetime
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedlib.statistics import interval

__all__ = ["load", "save", "table"]

_HOME = Path(__file__).resolve().parents[1]
_PACKAGES = ("numpy", "pandas", "scikit-learn", "torch", "torch-geometric", "torchvision")
_PARTS = {"figures", "settings", "data", "provenance"}

Place = str | Sequence[str]
Places = Sequence[str] | Mapping[str, Place]


def load(name: str | os.PathLike) -> dict[str, Any]:
    """Read a stored result.

    Parameters
    ----------
    name : str or path
        Name of a result of the book, such as ``"fedavg"``, or the path of a .json file.

    Returns
    -------
    dict
        ``figures``, ``settings``, ``data`` and ``provenance``, as `save` wrote them; ``probe`` where the experiment has
        one.

    Raises
    ------
    FileNotFoundError
        No such file; says where it was looked for.
    ValueError
        The file is no result, or no JSON.
    """
    path = Path(name) if str(name).endswith(".json") else _HOME / "book" / "results" / f"{name}.json"
    if not path.exists():
        there = sorted(p.stem for p in path.parent.glob("*.json"))
        raise FileNotFoundError(f"there is no result {path}. A clone of the book has results; there are {there}")
    record = json.loads(path.read_text(encoding="utf8"))
    if not set(record) >= _PARTS:
        raise ValueError(f"{path} is no result: it must hold {sorted(_PARTS)}, as book.results.save writes")
    return record


def table(name: str | os.PathLike, rows: Places, columns: Places, digits: int = 3) -> pd.DataFrame:
    """A table of stored figures: the mean over seeds and its 95 % interval.

    Parameters
    ----------
    name : str or path
        As for `load`.
    rows : list of str, or mapping of str to place
        Label of each row, and where its figures stand: a key of the figures, or a sequence of keys that leads to them.
    columns : list of str, or mapping of str to place
        Header of each column, and the key, or keys, below the row's place. There stands a number, or a mapping of seed
        to number.
    digits : int
        Digits after the point; one in a column with a number of 2 or more, such as a count, and none from 100 on.

    Returns
    -------
    pandas.DataFrame of str
        "mean ± half width" of an interval by Student's t; the number alone where there is one seed or all seeds agree;
        "n/a" where nothing was measured.

    Raises
    ------
    KeyError
        A row that the result does not have; names those that it has.

    Examples
    --------
    >>> from book import results
    >>> results.table("fedavg", ["skew: IID"], ["last rounds"]).shape
    (1, 1)
    """
    figures = load(name)["figures"]
    places, keys = (some if isinstance(some, Mapping) else {label: label for label in some} for some in (rows, columns))
    found = [[_mean(_at(figures, place), key) for place in places.values()] for key in keys.values()]
    cells = [_shown(values, digits) for values in found]
    return pd.DataFrame(zip(*cells, strict=True), list(places), pd.Index(keys, name="mean ± 95 % interval"))


def _at(figures: Any, place: Place) -> Any:
    """What stands at a place of the figures."""
    for key in [place] if isinstance(place, str) else place:
        if not isinstance(figures, Mapping) or key not in figures:
            has = sorted(figures) if isinstance(figures, Mapping) else figures
            raise KeyError(f"nothing is stored at {place!r}: {key!r} is not among {str(has):.500}")
        figures = figures[key]
    return figures


def _mean(row: Any, column: Place) -> tuple[float, float] | None:
    """Mean and half width, which is NaN where there is one seed, of a row in a column; None where it has nothing."""
    try:
        value = _at(row, column)
    except KeyError:
        return None
    return interval(list(value.values())) if isinstance(value, Mapping) else (value, math.nan)


def _shown(column: Sequence[tuple[float, float] | None], digits: int) -> list[str]:
    """The cells of a column."""
    largest = max((abs(pair[0]) for pair in column if pair), default=0)
    digits = 0 if largest >= 100 else min(digits, 1) if largest >= 2 else digits
    cells = []
    for pair in column:
        mean, half = pair or (0, math.nan)  # to which 0.0 is added below, so that nothing is "-0.00"
        number = f"{round(mean, digits) + 0.0:,.{digits}f}".replace("-", "\N{MINUS SIGN}")
        alone = math.isnan(half) or half == 0
        cells.append("n/a" if pair is None else number if alone else f"{number} ± {half:.{digits}f}")
    return cells


def save(
    path: str | os.PathLike,
    figures: Mapping[str, Any],
    settings: Mapping[str, Any],
    data: Mapping[str, str],
    seconds: float,
    probe: Mapping[str, Sequence[float]] | None = None,
    earlier: Mapping[str, Any] | None = None,
) -> None:
    """Write a result file, whole or not at all.

    Parameters
    ----------
    path : path
        Ends in .json; folders are made.
    figures : mapping
        What was measured; numbers, strings, lists and mappings of these. By convention the innermost mapping is from
        seeds to numbers.
    settings : mapping
        Of the run: seeds, rounds, ...
    data : mapping of str to str
        Name of each data set to its checksum, as `fedlib.datasets` states it.
    seconds : float
        Wall time of the run.
    probe : mapping of str to list of float, optional
        Name of each arm to what a tiny run of it computes: stored to see later whether the code still does the same.
    earlier : mapping, optional
        The provenance of an earlier run, of which some figures are kept. Its seconds are added to those of this one.

    Raises
    ------
    ValueError
        A figure that is NaN or infinite.
    """
    record = {
        "figures": figures,
        "settings": settings,
        "data": data,
        "probe": probe or {},
        "provenance": {
            "seconds": round(seconds + (earlier or {}).get("seconds", 0), 1),
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine() + " CPU",
            "threads": torch.get_num_threads(),
            "versions": {"python": platform.python_version(), "fedlib": sys.modules["fedlib"].__version__}
            | {d.name: d.version for d in distributions() if d.name in _PACKAGES},
            "commit": _commit(),
        }
        | ({"earlier": earlier} if earlier else {}),
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf8")
    os.replace(part, path)


def _commit() -> str | None:
    """The commit of the clone that this fedlib lies in, with a + where files have changed since; None outside one."""
    git = ["git", "-C", str(_HOME)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "fedlib"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
