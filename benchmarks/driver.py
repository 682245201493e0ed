"""Start contenders, and time them in pairs of neighbouring runs."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from .contenders.worker import family
from .works import Work

__all__ = ["LIMIT", "OWN", "PEERS", "REFERENCE", "Failed", "Row", "measure"]

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "_build/peers"
OWN = {
    "fedlib": "fedlib",
    "naive loop": "naive_loop",
    "tuned loop": "tuned_loop",
}  #: Contenders that need nothing but the project, and their programs.
PEERS = {"Flower": "flower", "pfl": "pfl", "BlazeFL": "blazefl", "FedLab": "fedlab", "FedJAX": "fedjax"}
REFERENCE = "fedlib"  #: What the others are compared with.
LIMIT = "FLOP limit"
_PATIENCE = 600  # seconds for one answer; whoever takes longer is ended, and the table says so
_GOODBYE = 30  # seconds for a program to end by itself
_RUN, _LONGEST = 0.5, 16  # a timed run takes about so many seconds, and so many rounds at the most
_SIDE = 2048  # of the matrices whose product sets the limit

Seconds = tuple[float, float]  # wall and processor, a round


class Failed(Exception):
    """A contender that cannot take part; the message says why."""


class Contender:
    """A running program of `benchmarks.contenders`, after two rounds.

    Attributes
    ----------
    startup : float
        Seconds from the start of the program to the end of its first round.
    """

    def __init__(self, label: str, folder: Path, dtype: str):
        program = OWN.get(label) or PEERS[label]
        python = sys.executable if label in OWN else _python_of(program)
        self._log = folder / f"{program}.log"
        threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        start = time.perf_counter()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [python, "-m", f"benchmarks.contenders.{program}", str(folder), dtype],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **dict.fromkeys(threads, "1"), "PYTHONPATH": path},
                text=True,
                bufsize=1,
                start_new_session=True,
            )
        self._rounds = 1
        try:
            self.run()
            self.startup = time.perf_counter() - start
            self._rounds = max(1, min(_LONGEST, round(_RUN / self.run()[0])))
        except BaseException:
            self.close()
            raise

    def run(self) -> Seconds:
        """Train some rounds, for about half a second; the seconds of one."""
        answer = self._ask(f"run {self._rounds}")
        return answer["wall"] / self._rounds, answer["cpu"] / self._rounds

    def save(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The server's parameters; peak memory and versions."""
        path = self._log.with_suffix(".npz")
        facts = self._ask(f"save {path}")
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays), facts

    def close(self) -> None:
        """End the program and whatever it started, in sessions of their own too."""
        started = family(self._process.pid)  # as long as it is there: orphans have another parent
        with suppress(OSError, subprocess.TimeoutExpired):
            self._process.communicate("stop\n", timeout=_GOODBYE)
        with suppress(OSError), self._process:  # which closes its pipes and waits
            os.killpg(self._process.pid, signal.SIGKILL)
        for process, born in started.items():
            if family(process).get(process) == born:  # else the number has gone to somebody else's process
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def __enter__(self) -> "Contender":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _ask(self, command: str) -> dict[str, Any]:
        try:
            print(command, file=self._process.stdin)
        except OSError:
            raise Failed(self._reason()) from None
        end, answer = time.monotonic() + _PATIENCE, b""
        while not answer.endswith(b"\n"):
            if not select.select([self._process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise Failed(f"no answer in {_PATIENCE} s, so it was killed (see {self._log})")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                raise Failed(self._reason())
            answer += part
        return json.loads(answer)

    def _reason(self) -> str:
        with suppress(subprocess.TimeoutExpired):  # it says no more, but it may go on
            self._process.wait(_GOODBYE)
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{lines[-1] if lines else 'ended'} (see {self._log})"


def _python_of(program: str) -> str:
    folder = ENVIRONMENTS / program
    if (folder / "failed").exists():
        raise Failed((folder / "failed").read_text())
    if not (folder / "ready").exists():
        raise Failed("not installed: make bench-peers")
    return str(folder / "bin/python")


class Product:
    """The speed of the machine: a big float32 matrix product, on the core and the thread that the contenders have."""

    def __init__(self) -> None:
        self._a, self._b = torch.randn(2, _SIDE, _SIDE)
        self.seconds_a_flop()

    def seconds_a_flop(self) -> float:
        """Processor seconds of one floating-point operation."""
        start = time.process_time()
        self._a @ self._b
        return (time.process_time() - start) / (2 * _SIDE**3)


@dataclass
class Row:
    """What was measured of one contender on one work: a line of the table.

    Attributes
    ----------
    examples : int
        Examples that a round trains on.
    seconds : list of (float, float)
        Wall and processor seconds a round, of each timed run.
    against : dict of str to list of (float, float)
        For the reference, how many times its seconds this contender took, wall and processor, in each pair.
    startup_s : float
        Seconds from the start of the program to the end of its first round.
    peak_mib : float
        Most memory, summed over its processes.
    difference : float
        Largest distance of a parameter from fedlib's after two rounds in float64.
    reason : str
        Why it did not take part.
    """

    work: str
    contender: str
    examples: int
    seconds: list[Seconds] = field(default_factory=list)
    against: dict[str, list[Seconds]] = field(default_factory=dict)
    startup_s: float | None = None
    peak_mib: float | None = None
    difference: float | None = None
    versions: dict[str, str] = field(default_factory=dict)
    reason: str | None = None

    def note(self, contender: Contender) -> None:
        """Enter what is known of a contender at the end of its runs."""
        _, facts = contender.save()
        self.startup_s, self.peak_mib, self.versions = contender.startup, facts["peak_mib"], facts["versions"]


def measure(work: Work, folder: Path, rivals: Sequence[str], pairs: int) -> list[Row]:
    """Time a work: each rival beside the reference and the limit.

    Parameters
    ----------
    work : Work
    folder : Path
        Where the work is written.
    rivals : sequence of str
        Names from `OWN` and `PEERS`, the reference apart.
    pairs : int
        Timed runs of each rival.

    Returns
    -------
    list of Row

    Raises
    ------
    Failed
        A contender of the project itself does not run.
    """
    rows = {label: Row(work.name, label, work.examples) for label in (REFERENCE, *rivals, LIMIT)}
    exact, rows[REFERENCE].difference = _exact(REFERENCE, folder), 0.0
    product, flops = Product(), work.flops()
    with (
        Contender(REFERENCE, folder, "float32") as reference,
        tqdm(total=len(rivals) * pairs, desc=work.name, unit="pair", leave=False) as bar,
    ):
        for rival in rivals:
            bar.set_postfix_str(rival)
            try:
                rows[rival].difference = _distance(_exact(rival, folder), exact)
                with Contender(rival, folder, "float32") as contender:
                    for _ in range(pairs):
                        limit = flops * product.seconds_a_flop()
                        runs = {REFERENCE: reference.run(), rival: contender.run(), LIMIT: (limit, limit)}
                        _enter(rows, runs)
                        bar.update()
                    rows[rival].note(contender)
            except Failed as failure:
                if rival in OWN:
                    raise
                rows[rival].reason = str(failure)
        rows[REFERENCE].note(reference)
    return list(rows.values())


def _exact(label: str, folder: Path) -> dict[str, np.ndarray]:
    with Contender(label, folder, "float64") as contender:
        return contender.save()[0]


def _distance(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    return max(float(abs(a[name] - b[name]).max()) for name in b)


def _enter(rows: dict[str, Row], runs: dict[str, Seconds]) -> None:
    for label, (wall, cpu) in runs.items():
        rows[label].seconds.append((wall, cpu))
        if label != REFERENCE:
            ratio = wall / runs[REFERENCE][0], cpu / runs[REFERENCE][1]
            rows[label].against.setdefault(REFERENCE, []).append(ratio)
