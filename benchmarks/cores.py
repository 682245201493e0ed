"""What more cores bring: a round by threads inside torch's kernels, and by processes, beside a round on one core.

    python -m benchmarks.cores [WORK ...] [--pairs 15]

Ratios are of seconds on the wall clock, one core over several, in pairs of neighbouring runs. "threads" is what `fit`
does by itself: torch takes as many threads as there are cores, unless ``OMP_NUM_THREADS`` or `torch.set_num_threads`
says otherwise. "processes" is `fedlib.engines.processes`, one thread each. With all works the table is stored in
benchmarks/results/.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

import fedlib
from book import results
from fedlib import losses
from fedlib.algorithms import FedAvg
from fedlib.engines import processes

from .__main__ import machine, result_path
from .driver import ROOT
from .works import WORKS

_RUN = 0.5  # seconds that a timed run takes at least


def serve(name: str) -> None:
    """A program that trains as many rounds as each line on stdin asks for, and answers with their seconds."""
    work = WORKS[name]
    criterion = losses.cross_entropy if work.classes else losses.mse
    fedavg = FedAvg(
        lambda params, batch: criterion(work.model(params, batch[0]), *batch[1:]),
        lr=work.lr,
        batch_size=work.batch_size,
        epochs=work.epochs,
    )
    processes.start()
    left, start = 1, time.perf_counter()  # a first round, which is not counted

    def asked(*_: Any) -> None:
        nonlocal left, start
        left -= 1
        if left:
            return
        if processes.rank() == 0:
            print(time.perf_counter() - start, flush=True)
        line = sys.stdin.readline()  # each process has the same
        if not line:
            raise StopIteration
        left, start = int(line), time.perf_counter()

    data = fedlib.stack_clients(*work.data())
    quiet = {"callbacks": [asked], "device": "cpu", "progress": False}
    fedlib.fit(processes.over_processes(fedavg), work.model.init(0), data, 10**6, work.cohort, **quiet)
    processes.stop()


class Program:
    """`serve` in `count` processes with some threads each."""

    def __init__(self, work: str, count: int, threads: int, folder: Path) -> None:
        places = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "TORCHELASTIC_RUN_ID": "cores"}
        places |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29600 + os.getpid() % 1000)}
        self._processes = []
        for rank in range(count):
            settings = {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
            settings |= places | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if count > 1 else {}
            with (folder / f"{work}-{count}-{threads}-{rank}.log").open("w") as log:
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "benchmarks.cores", "--serve", work],
                        env=os.environ | settings,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                        bufsize=1,
                    )
                )
        self._answer()
        self._rounds = 1
        self._rounds = max(1, round(_RUN / self.seconds()))

    def _answer(self) -> float:
        line = self._processes[0].stdout.readline()
        if not line:
            raise RuntimeError(f"a process ended: {[p.poll() for p in self._processes]}")
        return float(line)

    def seconds(self) -> float:
        """Of one round."""
        for process in self._processes:
            print(self._rounds, file=process.stdin, flush=True)
        return self._answer() / self._rounds

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.stdin.close()
        for process in self._processes:
            process.wait(60)


def measure(work: str, cores: int, pairs: int, folder: Path) -> list[dict[str, Any]]:
    """Pairs of one core and several, by threads and by processes."""
    rows = []
    for way, count, threads in (("threads", 1, cores), ("processes", cores, 1)):
        with ExitStack() as stack:
            one, several = (stack.enter_context(Program(work, *n, folder)) for n in ((1, 1), (count, threads)))
            found = [(one.seconds(), several.seconds()) for _ in range(pairs)]
        ratios = sorted(a / b for a, b in found)
        shares = {"ratio": median(ratios), "smallest": ratios[0], "largest": ratios[-1]}
        rows.append({"work": work, "way": way, "cores": cores, "s_a_round": median(b for _, b in found), **shares})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"some of {', '.join(WORKS)}")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--serve", metavar="WORK", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if unknown := set(options.works) - set(WORKS):
        parser.error(f"unknown works {sorted(unknown)}; there are {', '.join(WORKS)}")
    start, rows, cores = time.perf_counter(), [], len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        for work in tqdm(options.works or WORKS, unit="work", leave=False):
            rows += measure(work, cores, options.pairs, Path(folder))
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.3g}".format))
    if not options.works:
        path = result_path("_cores")
        settings = {"machine": machine(), "cores": cores, "pairs": options.pairs, "torch": torch.__version__}
        results.save(path, {"rows": rows}, settings, {}, time.perf_counter() - start)
        print(f"stored in {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
