"""Kill runs at random moments and resume them; prints what each run ended with, as JSON.

A process of its own, since it forks: a fork has fedlib imported already, so that a trial takes a fraction of a second.
A moment is told by the run's own writes and its own CPU time, not by the clock: a busy machine changes nothing.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from every import numbers
from twins import classification_loss, client_data, ragged_clients, twin

import fedlib

ROUNDS, TRIALS = 12, 20
params, predict, _ = twin("MLP")
data = client_data(ragged_clients(sizes=[1 + 7 * k % 20 for k in range(100)]))
algorithm = fedlib.algorithms.Scaffold(classification_loss(predict), batch_size=10, predict=predict, stragglers=0.3)


def run(path, answer):
    """One run with a checkpoint after each round, and what it ended with."""
    checkpoint = fedlib.Checkpoint(path, every_seconds=0)
    settings = {"seed": 3, "lost": 0.2, "eval_data": data, "eval_every": 5, "device": "cpu", "progress": False}
    result = fedlib.fit(algorithm, params, data, ROUNDS, 30, checkpoint=checkpoint, **settings)
    digest = hashlib.sha256(b"".join(p.contiguous().numpy().tobytes() for p in numbers(result.state)))
    history = result.history.drop(columns=["seconds", "server_seconds"])
    answer.write_text(json.dumps([digest.hexdigest(), history.to_json(double_precision=15)]))


class Fsync:
    """`os.fsync` that counts its calls, and kills the process at the `last` one or `later` CPU seconds after it."""

    def __init__(self, last=None, later=0.0):
        self.calls, self.last, self.later, self.sync = 0, last, later, os.fsync

    def __call__(self, file):
        self.calls += 1
        if self.calls == self.last and self.later:
            signal.setitimer(signal.ITIMER_PROF, self.later)  # unhandled, so the kernel ends the process
        elif self.calls == self.last:
            os.kill(os.getpid(), signal.SIGKILL)  # inside a write: the new file is not yet in its place
        self.sync(file)


def fork(path, answer, **kill):
    """Run in a process of its own; the number of the signal that ended it, 0 if none did."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.fsync = Fsync(**kill)
            run(path, answer)
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or status == 0
    return os.WTERMSIG(status)


def main(folder):
    torch.set_num_threads(1)
    random = np.random.RandomState(0)
    run(folder / "warm", folder / "warm.json")  # all that is imported late is imported before the forks
    sync, os.fsync = os.fsync, Fsync()
    start = time.process_time()
    run(folder / "whole", folder / "whole.json")
    a_round, writes, os.fsync = (time.process_time() - start) / ROUNDS, os.fsync.calls, sync
    report = {"resumed": [], "signals": [], "inside a write": 0}
    report["whole"] = json.loads((folder / "whole.json").read_text())
    for trial in range(TRIALS):
        path, answer = folder / f"run{trial}", folder / f"run{trial}.json"
        # Every second run ends between two writes, or in the next one.
        later = trial % 2 * random.uniform(0.01, 1) * a_round
        signal_number = fork(path, answer, last=random.randint(1, writes * 2 // 3 + 1), later=later)
        report["signals"].append(signal_number)
        report["inside a write"] += bool(signal_number) and Path(f"{path}.part").exists()
        answer.unlink(missing_ok=True)
        assert fork(path, answer) == 0
        report["resumed"].append(json.loads(answer.read_text()))
    report["left behind"] = [p.name for p in folder.glob("*.part")]
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
