"""Time fedlib against loops over clients and, if asked, against other frameworks: one core, one thread, one table.

    python -m benchmarks [W2 ...] [--peers] [--pairs 5]

Each contender is a program of its own, trains on the same numbers in the same order, and is first checked in float64
to reach fedlib's parameters. It is then timed in float32 in turn with fedlib: a run of one, a run of the other, again.
A ratio above 1 says that fedlib is faster. Ratios are of processor seconds of all processes of a contender; time that
it spends waiting comes on top. With all works, the table is also stored in benchmarks/results/.
"""

import argparse
import hashlib
import os
import platform
import re
import sys
import time
from importlib.metadata import version
from pathlib import Path

import torch

from book import results

from . import table
from .driver import OWN, PEERS, REFERENCE, ROOT, Failed, measure
from .works import WORKS


def pin() -> None:
    """One core and one thread, for this process and those that it starts."""
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def machine() -> str:
    """The processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def result_path(suffix: str = "", name: str | None = None) -> Path:
    """Where the results of this machine, or of another device's name, are stored."""
    slug = re.sub(r"[^a-z0-9]+", "-", (name or machine()).lower()).strip("-")
    return ROOT / f"benchmarks/results/{slug}{suffix}.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", default=[], metavar="WORK", help=f"some of {', '.join(WORKS)}")
    parser.add_argument("--peers", action="store_true", help="other frameworks too: make bench-peers installs them")
    parser.add_argument("--pairs", type=int, default=5, help="timed runs of each contender; medians are printed")
    options = parser.parse_args()
    if unknown := set(options.works) - set(WORKS):
        parser.error(f"unknown works {sorted(unknown)}; there are {', '.join(WORKS)}")
    if options.pairs < 1:
        parser.error(f"--pairs must be at least 1, got {options.pairs}")
    pin()
    start = time.perf_counter()
    rivals = [label for label in (*OWN, *(PEERS if options.peers else ())) if label != REFERENCE]
    summaries, checksums = [], {}
    for name in options.works or WORKS:
        folder = ROOT / "_build/bench" / name
        WORKS[name].write(folder)
        checksums[name] = hashlib.sha256((folder / "data.npz").read_bytes()).hexdigest()[:16]
        try:
            summaries += table.summary(measure(WORKS[name], folder, rivals, options.pairs))
        except Failed as failure:
            sys.exit(f"{name}: {failure}")
    minutes = (time.perf_counter() - start) / 60
    print(table.frame(summaries).to_string(index=False))
    print(f"{machine()}, one core, one thread, {options.pairs} pairs, torch {version('torch')}, {minutes:.1f} minutes")
    if set(WORKS) <= {s["work"] for s in summaries}:
        path = result_path("_peers" if options.peers else "")
        settings = {"machine": machine(), "pairs": options.pairs, "threads": 1, "command": "python -m benchmarks"}
        results.save(path, {"rows": summaries}, settings, checksums, 60 * minutes)
        print(f"stored in {path.relative_to(ROOT)}")
    if wrong := [f"{s['work']}: {s['contender']}" for s in summaries if s["contender"] in OWN and not table.equal(s)]:
        sys.exit(f"these did not reach fedlib's parameters: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
