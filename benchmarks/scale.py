"""Time and memory of a round against the number of clients in it: work W2 with up to 10,000, all in the cohort.

    python -m benchmarks.scale [--clients 10 100 1000 10000] [--chunks auto 100 1000]

Each line is a process of its own. ``beyond_mib`` is the most memory that the run held beside the libraries and the
data, in MiB; the chunk bounds it, whatever the size of the cohort. With the default sizes the table is stored in
benchmarks/results/. Linux only.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
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

from .__main__ import machine, pin, result_path
from .driver import ROOT
from .works import WORKS

LINEAR = 1.3  #: How far time a client may rise from 100 clients to the largest cohort.


def run(clients: int, chunk: int | str) -> dict[str, Any]:
    """Train W2 with so many clients; CPU seconds a round, and MiB."""
    work = replace(WORKS["W2"], clients=clients, cohort=clients)
    fedavg = FedAvg(
        lambda params, batch: losses.mse(work.model(params, batch[0]), *batch[1:]),
        lr=work.lr,
        batch_size=work.batch_size,
        epochs=work.epochs,
        chunk_size=chunk,
    )
    params = work.model.init(0)
    few = fedlib.stack_clients(*replace(work, clients=2).data())
    fedlib.fit(fedavg, params, few, rounds=1, device="cpu", progress=False)  # what is loaded late is not counted
    data = fedlib.stack_clients(*work.data())
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    rounds = 4 if clients >= 1_000 else 11  # the first is not counted
    before, clocks = _memory("VmRSS"), [time.process_time()]
    callbacks = [lambda *_: clocks.append(time.process_time())]
    fedlib.fit(fedavg, params, data, rounds, callbacks=callbacks, device="cpu", progress=False)
    seconds = [b - a for a, b in zip(clocks[1:], clocks[2:], strict=False)]
    return {"cpu_s": median(seconds), "beyond_mib": _memory("VmHWM") - before}


def _memory(field: str) -> float:
    """A line of this process's status, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def verdicts(rows: pd.DataFrame) -> list[str]:
    """Whether time is linear in clients, and how memory grows, by chunk size."""
    lines = []
    for chunk, some in rows.groupby("chunk", sort=False):
        some = some.set_index("clients").sort_index()
        first, last = 100, some.index[-1]
        if first not in some.index or last <= first:
            continue
        growth = some.cpu_s[last] / last / (some.cpu_s[first] / first)
        lines.append(
            f"chunk {chunk}: time a client at {last:,} is {growth:.2f}x that at {first}, "
            f"{'met' if growth <= LINEAR else 'missed'} <= {LINEAR}; memory beyond the data "
            + ", ".join(f"{mib:.0f} MiB at {clients:,}" for clients, mib in some.beyond_mib.items())
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1_000, 10_000])
    parser.add_argument("--chunks", nargs="+", default=["auto", "100", "1000"], help='numbers, or "auto"')
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not all(chunk == "auto" or chunk.isdecimal() for chunk in options.chunks) or min(options.clients) < 1:
        parser.error('--clients takes positive numbers, --chunks such numbers or "auto"')
    pin()
    cells = [(k, c if c == "auto" else int(c)) for c in options.chunks for k in options.clients]
    if options.one:
        print(json.dumps(run(*cells[0])))
        return
    start, rows = time.perf_counter(), []
    for clients, chunk in tqdm(cells, unit="run", leave=False):
        command = [sys.executable, "-m", "benchmarks.scale", "--one", "--clients", str(clients), "--chunks", str(chunk)]
        answer = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        rows.append({"chunk": chunk, "clients": clients, **json.loads(answer.stdout)})
    table = pd.DataFrame(rows)
    print(table.to_string(index=False, float_format="{:.4g}".format))
    lines = verdicts(table)
    print(*lines, sep="\n")
    if all(getattr(options, name) == parser.get_default(name) for name in ("clients", "chunks")):
        path = result_path("_scale")
        settings = {"machine": machine(), "work": "W2", "threads": torch.get_num_threads()}
        results.save(path, {"rows": rows, "verdicts": lines}, settings, {}, time.perf_counter() - start)
        print(f"stored in {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
