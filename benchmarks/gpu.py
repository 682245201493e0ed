"""Time fedlib on a GPU: loops, plain vmap, kernels for convolutions, precisions, CUDA graphs, torch.compile.

    python -m benchmarks.gpu

The works W1, W1s, W2 and W3 with 10, 100 and 1,000 clients, in less than eight minutes: what the time does not suffice
for is "not run: time" in the result, what does not fit is "out of memory", and what fails says why. The measuring
process is stopped and started anew where something hangs or breaks CUDA. The result is stored in benchmarks/results/
under the card's name. With ``--device cpu`` the same runs without a card, to see that it works.
"""

import argparse
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from book import results

from .__main__ import machine, result_path
from .driver import ROOT, Failed
from .gpu_parts import PRECISIONS, Row, serve
from .table import verdict
from .works import WORKS

__all__ = ["kernel_table", "table", "verdicts"]

#: How many times fedlib's seconds the tuned loop should take, with the most clients.
TARGETS = {"W1": 20.0, "W2": 300.0}
KINDS = [*PRECISIONS, "CUDA graph", "torch.compile"]  #: Of steps.
RIVALS = ["naive loop", "tuned loop", "torch.vmap"]
_AT = ["work", "clients"]
_COLUMNS = "part work clients way mode layer precision graph seconds ratio flops_per_s peak_mib of_update breaks"
_LIMIT, _LEAST, _START = 45.0, 3.0, 120.0  # seconds: for a cell, to begin one, to start the process

Cell = tuple[Any, ...]  # part, work, clients, and for torch.compile way and mode


class Worker:
    """The measuring process."""

    def __init__(self, device: str):
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, device), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._receive(time.perf_counter() + _START)
        except (EOFError, TimeoutError):
            self.close()
            raise Failed(f"the measuring process does not start on {device!r}; its message is above") from None

    def rows(self, cell: Cell, seconds: float) -> Iterator[Row]:
        """The rows of a cell, as they are measured; an error if the time is up or the process has ended."""
        end = time.perf_counter() + seconds
        self._connection.send(cell)
        while (row := self._receive(end)) is not None:
            yield row

    def close(self) -> None:
        """End the process, by force where it is busy."""
        with suppress(OSError):
            self._connection.send(None)
        self._process.join(2)
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _receive(self, end: float) -> Row | None:
        if not self._connection.poll(max(0.0, end - time.perf_counter())):
            raise TimeoutError
        return self._connection.recv()


def cells(works: Sequence[str], clients: Sequence[int]) -> list[Cell]:
    """What is measured, the most important first."""
    few, some = min(clients), sorted(clients)[len(clients) // 2]
    return [
        ("card",),
        *((part, w, k) for k in clients for w in works for part in ("round", "step")),
        *(("accuracy", w, few) for w in works),
        *(("kernels", w, k) for k in clients for w in works if w != "W2"),
        *(
            ("compile", w, some, way, mode)
            for way in ("torch.vmap", "fedlib")
            for mode in ("reduce-overhead", "default")
            for w in works
        ),
    ]


def measure(todo: Sequence[Cell], seconds: float, start: Callable[[], Worker]) -> list[Row]:
    """The rows of all cells, within so many seconds; each has ``part`` and, as far as they apply, ``work``, ..."""
    rows: list[Row] = []
    worker, end = None, time.perf_counter() + seconds
    try:
        for cell in (bar := tqdm(todo, unit="cell", leave=False)):
            bar.set_postfix_str(" ".join(map(str, cell)))
            label = dict(zip(("part", "work", "clients", "way", "mode"), cell, strict=False))
            left = end - time.perf_counter()
            if left < _LEAST:
                rows.append(label | {"note": "not run: time"})
                continue
            limit = min(_LIMIT, left)
            try:
                worker = worker or start()
                rows.extend(label | _finite(row) for row in worker.rows(cell, limit))
            except (TimeoutError, EOFError, OSError) as error:
                note = f"stopped after {limit:.0f} s" if isinstance(error, TimeoutError) else "the process ended"
                rows.append(label | {"note": note})
                if worker:
                    worker.close()
                worker = None
    finally:
        if worker:
            worker.close()
    return rows


def _finite(row: Row) -> Row:
    """No NaN: a result file has none."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


# ---- what a reader sees ----


def table(result: str | PathLike | Sequence[Row]) -> pd.DataFrame:
    """A table of what was measured.

    Parameters
    ----------
    result : path, or rows
        A stored result, or what `measure` gave.

    Returns
    -------
    pandas.DataFrame
        A row for each work and number of clients. "round, s" is fedlib's; beside it, how many times as long loops and
        torch.vmap take. The rest is of one step: how many times faster than fedlib as it is in float32 the fastest way
        of each precision is, the fastest CUDA graph and torch.compile; what share of the card's matrix rate the fastest
        of all reaches; and the memory that fedlib's step takes. NaN where nothing was measured.
    """
    rows = _frame(result).dropna(subset=["seconds"])
    rounds, steps = rows[rows.part == "round"], rows.dropna(subset=["kind"])
    ratios = steps.astype({"ratio": float}).pivot_table(index=_AT, columns="kind", values="ratio", aggfunc="min")
    gains = 1 / ratios.reindex(columns=KINDS).astype(float)  # also where time ended before any step
    best = steps.loc[steps.groupby(_AT).seconds.idxmin()].set_index(_AT)
    rates = rows[rows.part == "card"].set_index("precision").flops_per_s
    own = steps[(steps.way == "fedlib") & (steps.kind == "float32")].set_index(_AT)
    times = rounds.pivot(index=_AT, columns="way", values="ratio").reindex(columns=RIVALS)
    seconds = rounds[rounds.way == "fedlib"].set_index(_AT).seconds.rename("round, s")
    share = (best.flops_per_s / best.precision.map(rates)).rename("of rate")
    return pd.concat([seconds, times, gains, share, (own.peak_mib / 1024).rename("peak GiB")], axis=1)


def kernel_table(result: str | PathLike | Sequence[Row]) -> pd.DataFrame:
    """Milliseconds of each convolution alone, forward and backward, by kernel."""
    rows = _frame(result)
    rows = rows[rows.part == "kernels"].dropna(subset=["layer"]).assign(ms=lambda r: 1e3 * r.seconds)
    return rows.pivot(index=["work", "layer", "clients", "precision"], columns="way", values="ms")


def verdicts(result: str | PathLike | Sequence[Row]) -> list[str]:
    """For each work, what won with the most clients that it was measured with, and whether the targets are met."""
    rows, lines = _frame(result), []
    for work, some in rows.groupby("work", sort=False):
        parts = []
        for kind in KINDS:
            steps = some[some.kind == kind].dropna(subset=["seconds"])
            for best in steps[steps.clients == steps.clients.max()].nsmallest(1, "seconds").itertuples():
                how = {"CUDA graph": f", {best.precision}", "torch.compile": f", {best.mode}"}.get(kind, "")
                parts.append(f"{kind} {1 / best.ratio:.3g}x by {best.way}{how} ({best.clients:,} clients)")
        apart = some.dropna(subset=["of_update"])
        parts += [f"{r.precision} ends {r.of_update:.1g} of the update from float64" for r in apart.itertuples()]
        loop = some[(some.part == "round") & (some.way == "tuned loop")].dropna(subset=["ratio"])
        for row in loop[loop.clients == loop.clients.max()].itertuples():
            met = f" ({verdict(row.ratio, TARGETS[work])})" if work in TARGETS else ""
            parts.append(f"the tuned loop takes {row.ratio:.3g}x fedlib's round{met}")
        lines.append(f"{work}: {'; '.join(parts)}")
    return lines


def _frame(result: str | PathLike | Sequence[Row]) -> pd.DataFrame:
    """The rows, with ``kind``: that of `KINDS` which a step is; none where torch.compile broke a graph."""
    rows = results.load(result)["figures"]["rows"] if isinstance(result, (str, PathLike)) else result
    frame = pd.DataFrame(rows).reindex(columns=_COLUMNS.split()).astype({"clients": "Int64"})
    kinds = [
        "CUDA graph" if row.graph is True else row.precision if row.part == "step" else
        "torch.compile" if row.part == "compile" and row.breaks == 0 else None
        for row in frame.itertuples()
    ]  # fmt: skip
    return frame.assign(kind=pd.Series(kinds, dtype=object))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--works", nargs="+", default=list(WORKS), choices=WORKS)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1_000])
    parser.add_argument("--minutes", type=float, default=7, help="what is not begun or done by then is left out")
    parser.add_argument("--folder", type=Path, help="for the result, in place of benchmarks/results")
    options = parser.parse_args(arguments)
    if torch.device(options.device).type == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device here; --device cpu --clients 2 shows that the program works")
    if min(options.clients) < 1:
        parser.error(f"--clients takes positive numbers, got {options.clients}")
    start = time.perf_counter()
    try:
        todo = cells(options.works, options.clients)
        rows = measure(todo, 60 * options.minutes, lambda: Worker(options.device))
    except Failed as failure:
        sys.exit(str(failure))
    settings = {"machine": machine(), "works": options.works, "clients": options.clients, "minutes": options.minutes}
    settings |= next((row["facts"] for row in rows if "facts" in row), {})
    path = (options.folder or ROOT / "benchmarks/results") / result_path("_gpu", settings["machine"]).name
    results.save(path, {"rows": rows}, settings, {}, time.perf_counter() - start)
    for frame in (table(path), kernel_table(path)):
        print(frame.to_string(float_format="{:.3g}".format, na_rep=""), end="\n\n")
    print(*verdicts(path), f"stored in {path}", sep="\n")


if __name__ == "__main__":
    main()
