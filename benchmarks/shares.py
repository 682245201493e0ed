"""Where the time of a round goes, by kind of operation: fedlib beside the loops.

    python -m benchmarks.shares [WORK ...]

Milliseconds a round, by PyTorch's profiler, which looks at the clock on the wall: run it on a quiet machine. "between"
is what is left: Python, PyTorch's way to a kernel, and the profiler's own notes for each call, so it counts calls
rather than time. "slowed" is the round's time under the profiler over that of the rounds before: near 1, or the row
says little. W1 must be asked for by name, since there it was far from 1. Without a choice of works the table is stored
in benchmarks/results/.
"""

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from book import results

from .__main__ import machine, pin, result_path
from .contenders.worker import Arrays, load
from .driver import ROOT
from .works import WORKS

CONTENDERS = ("naive_loop", "tuned_loop", "fedlib")
KINDS = {"convolutions": ("conv",), "pooling": ("pool",), "products": ("mm", "mv", "linear")}  #: Parts of names.
ROUNDS = 3
DEFAULT = ("W1s", "W2", "W3")


class _Done(Exception):
    pass


class Watch:
    """Stands in for the driver: two rounds to warm up, `ROUNDS` as they are, then as many under the profiler."""

    def __init__(self) -> None:
        self.profiler, self.clocks = profile(activities=[ProfilerActivity.CPU]), list[float]()
        self.plain = 0.0

    def next_round(self, parameters: Callable[[], Arrays]) -> int:
        """Number of the round to train now; ends the run by an exception."""
        now = time.perf_counter()
        if len(self.clocks) == 2 + ROUNDS:
            self.plain = now - self.clocks[2]
            self.profiler.start()
            now = time.perf_counter()
        self.clocks.append(now)
        if len(self.clocks) == 3 + 2 * ROUNDS:
            self.profiler.stop()
            raise _Done
        return len(self.clocks) - 1

    def times(self) -> tuple[float, float]:
        """Milliseconds a round, without and with the profiler."""
        return 1e3 * self.plain / ROUNDS, 1e3 * (self.clocks[-1] - self.clocks[2 + ROUNDS]) / ROUNDS


def kind(name: str) -> str:
    """The kind of an operation of PyTorch: one of `KINDS`, or "others"."""
    return next((k for k, parts in KINDS.items() if any(part in name for part in parts)), "others")


def shares(folder: str | Path, contender: str) -> dict[str, float]:
    """Milliseconds a round by kind of operation, and the number of calls."""
    watch = Watch()
    with contextlib.suppress(_Done):
        importlib.import_module(f"benchmarks.contenders.{contender}").run(load(str(folder), "float32"), watch)
    out = dict.fromkeys([*KINDS, "others"], 0.0) | {"calls": 0.0}
    for event in watch.profiler.key_averages():
        out[kind(event.key)] += event.self_cpu_time_total / 1e3 / ROUNDS
        out["calls"] += event.count / ROUNDS
    plain, watched = watch.times()
    inside = sum(out[k] for k in (*KINDS, "others"))
    return out | {"between": max(watched - inside, 0.0), "slowed": watched / plain}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", default=[], metavar="WORK", help=f"some of {', '.join(WORKS)}")
    parser.add_argument("--one", nargs=2, metavar=("FOLDER", "CONTENDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.works) - set(WORKS):
        parser.error(f"unknown works {sorted(unknown)}; there are {', '.join(WORKS)}")
    pin()
    os.environ.setdefault("KINETO_LOG_LEVEL", "7")  # the profiler would tell of every start and stop
    if options.one:
        print(json.dumps(shares(*options.one)))
        return
    start, rows = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for name in tqdm(options.works or DEFAULT, unit="work", leave=False):
            WORKS[name].write(Path(folder, name))
            for contender in CONTENDERS:  # each in a process of its own, with its memory as it likes it
                command = [sys.executable, "-m", "benchmarks.shares", "--one", f"{folder}/{name}", contender]
                answer = subprocess.run(command, stdout=subprocess.PIPE, check=True)
                rows.append({"work": name, "contender": contender, **json.loads(answer.stdout)})
    columns: list[Any] = ["work", "contender", *KINDS, "others", "between", "calls", "slowed"]
    print(pd.DataFrame(rows)[columns].to_string(index=False, float_format="{:.3g}".format))
    if not options.works:
        path = result_path("_shares")
        settings = {"machine": machine(), "rounds": ROUNDS, "threads": torch.get_num_threads()}
        results.save(path, {"rows": rows}, settings, {}, time.perf_counter() - start)
        print(f"stored in {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
