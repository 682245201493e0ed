"""What every contender shares: the numbers of a work, and the commands of the driver. Needs NumPy alone.

A contender is a program ``python -m benchmarks.contenders.NAME FOLDER DTYPE``. It reads the work from the folder, then
obeys one command a line on stdin and answers one line of JSON on stdout:

- ``run N``: train N more rounds; ``{"wall": seconds, "cpu": seconds of all its processes}``
- ``save PATH``: write the server's parameters (.npz); ``{"peak_mib": memory, "versions": {...}}``
- ``stop``
"""

import functools
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

__all__ = ["Job", "Session", "family", "load", "main"]

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Job:
    """A work as `benchmarks.works` wrote it.

    Attributes
    ----------
    x : array of shape (K, rows, ...)
        In the type of training.
    y : array of shape (K, rows)
        Classes (int64), or targets in the type of training.
    start : dict of str to array
        Parameters before round 1: ``conv1.weight``, ``conv1.bias``, ..., ``dense1.weight``, ...
    cohorts : array of shape (R, C)
        The clients of each round, ascending. After R rounds they come again.
    orders : array of shape (R, C, E, rows)
        The order in which a client goes through its rows, in each local epoch.
    classes : int
        0 for regression.
    padding, pool : int
        Of the convolutions.
    """

    x: np.ndarray
    y: np.ndarray
    start: Arrays
    cohorts: np.ndarray
    orders: np.ndarray
    name: str
    classes: int
    padding: int
    pool: int
    lr: float
    batch_size: int
    epochs: int

    def cohort(self, t: int) -> list[int]:
        """The clients of round t, which counts from 0."""
        return self.cohorts[t % len(self.cohorts)].tolist()

    def order(self, t: int, k: int) -> np.ndarray:
        """Rows of client k in round t, of shape (E, rows)."""
        t %= len(self.cohorts)
        return self.orders[t, np.searchsorted(self.cohorts[t], k)]

    def batches(self, t: int, k: int) -> list[list[np.ndarray]]:
        """Rows of each batch, by epoch."""
        return [np.split(o, range(self.batch_size, len(o), self.batch_size)) for o in self.order(t, k)]


@functools.cache
def load(folder: str, dtype: str) -> Job:
    """Read a work, once in a process, with floating-point numbers in `dtype`."""

    def arrays(name: str) -> Arrays:
        with np.load(Path(folder, f"{name}.npz"), allow_pickle=False) as file:
            return {k: v.astype(dtype) if v.dtype.kind == "f" else v for k, v in file.items()}

    settings = json.loads(Path(folder, "settings.json").read_text(encoding="utf8"))
    return Job(**arrays("data"), start=arrays("start"), **arrays("plan"), **settings)


class Session:
    """The conversation with the driver.

    Parameters
    ----------
    *packages : str
        Whose versions are told, besides Python's.
    """

    def __init__(self, *packages: str) -> None:
        self.versions = {"python": platform.python_version()} | {p: version(p) for p in packages}
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        self._commands = os.fdopen(os.dup(0))
        os.dup2(2, 1)  # what a framework prints goes to the log
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # and what it starts reads nothing
        self._round = self._left = 0
        self._start: tuple[float, float] | None = None

    def next_round(self, parameters: Callable[[], Arrays]) -> int:
        """Number of the round to train now, from 0; waits until the driver asks for it.

        Call it before each round. When there is no more to do, it ends the program.

        Parameters
        ----------
        parameters : callable
            Gives the server's parameters as they are now.
        """
        if not self._left:
            self._finish()
            self._obey(parameters)
        self._left -= 1
        self._round += 1
        return self._round - 1

    def _finish(self) -> None:
        if self._start:
            wall, cpu = (after - before for after, before in zip(_clocks(), self._start, strict=True))
            self._answer(wall=wall, cpu=cpu)

    def _obey(self, parameters: Callable[[], Arrays]) -> None:
        for line in self._commands:
            command, _, argument = line.strip().partition(" ")
            if command == "run":
                self._left, self._start = int(argument), _clocks()
                return
            if command == "stop":
                break
            np.savez(argument, **parameters())
            self._answer(peak_mib=_peak_mib(), versions=self.versions)
        sys.exit()

    def _answer(self, **facts: object) -> None:
        print(json.dumps(facts), file=self._answers)


def main(run: Callable[[Job, Session], None], *packages: str) -> None:
    """The program of a contender that trains by `run`, and tells the versions of some packages."""
    run(load(*sys.argv[1:]), Session(*packages))


def family(root: int) -> dict[int, str]:
    """A process and all that it has started, and they again: when each was born, by id; from /proc, else nothing."""
    parents, born = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            about = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # gone meanwhile
            continue
        parents[int(path.name)], born[int(path.name)] = int(about[1]), about[19]
    found = {root} & born.keys()
    while more := {p for p, parent in parents.items() if parent in found} - found:
        found |= more
    return {p: born[p] for p in sorted(found)}


def _clocks() -> tuple[float, float]:
    """Wall time, and processor time of this process and its descendants, in seconds."""
    cpu, ticks = time.process_time(), os.sysconf("SC_CLK_TCK")
    for process in family(os.getpid()):
        try:
            about = Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        user, system, *waited_for = about[11:15]
        own = [] if process == os.getpid() else [user, system]  # its own is known more exactly
        cpu += sum(map(int, own + waited_for)) / ticks
    return time.perf_counter(), cpu


def _peak_mib() -> float | None:
    """Sum over the family's processes of the most memory each has held; None without /proc.

    Not `resource.getrusage`: its figure begins with the size of the process that started this one.
    """
    total = 0
    for process in family(os.getpid()):
        try:
            status = Path("/proc", str(process), "status").read_text()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
    return total / 1024 or None
