"""The same runs on several numbers of processes, and some that are killed; prints what each ended with, as JSON.

A process of its own, since it forks: a fork has fedlib imported already.
"""

import json
import os
import signal
import socket
import sys
import time
from itertools import count
from pathlib import Path

import torch
from every import largest_gap, numbers
from twins import NoisyFedAvg, classification_loss, client_data, ragged_clients, twin

import fedlib
from fedlib.algorithms import CFL, IFCA, FedAvg, LGFedAvg, LocalOnly, Scaffold
from fedlib.engines import processes

torch.set_num_threads(1)
params, predict, _ = twin("MLP")
loss = classification_loss(predict)
data = client_data(ragged_clients(sizes=(1, 7, 20, 21, 40, 3)))


def with_chance(params, batch):
    """Mirrored, shifted and noisy images, of which some pixels are dropped."""
    x, y, w = batch
    x = fedlib.augment.noise(fedlib.augment.crop(fedlib.augment.flip(x), 1), 0.1)
    return fedlib.losses.cross_entropy(predict(params, torch.nn.functional.dropout(x, 0.2)), y, w)


RUNS = {
    "FedAvg": (FedAvg(loss, batch_size=10, stragglers=0.3, predict=predict), 6),
    "FedAvg, fewer clients than processes": (FedAvg(loss, batch_size=10), 3),
    "FedAvg in chunks": (FedAvg(loss, batch_size=10, chunk_size=2), 6),
    "FedAvg with noise": (NoisyFedAvg(loss, batch_size=10), 5),
    "FedAvg, random numbers in the loss": (FedAvg(with_chance, batch_size=10), 5),
    "Scaffold": (Scaffold(loss, batch_size=10, epochs=2), 4),
    "LocalOnly": (LocalOnly(loss), 3),
    "CFL": (CFL(loss, eps1=1e9, eps2=0.0), 6),
    "IFCA": (IFCA(loss, clusters=3), 5),
    "LGFedAvg": (LGFedAvg(loss, assignment=[0, 1, 0, 2, 1, 0]), 4),
}


def run(name, rounds=3, **settings):
    algorithm, cohort = RUNS[name]
    settings |= {"eval_data": data} if algorithm.predict else {}
    settings |= {"seed": 3, "lost": 0.2, "device": "cpu", "progress": False}
    return fedlib.fit(processes.over_processes(algorithm), params, data, rounds, cohort, **settings)


def save(path, result):
    history = result.history.drop(columns=[c for c in result.history if "seconds" in c])
    torch.save({"state": numbers(result.state), "history": history.to_json(double_precision=15)}, path)


def in_processes(world, work):
    """Run `work(rank)` in so many processes; how each of them ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "TORCHELASTIC_RUN_ID": "test"}
            os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(world))
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            status = 1
            try:
                processes.start()
                assert processes.rank() == rank
                work(rank)
                processes.stop()
                status = 0
            except Exception as error:
                (folder / f"error{rank}").write_text(f"{type(error).__name__}: {error}")
            finally:
                os._exit(status)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


folder = Path(sys.argv[1])
report = {"states": {}, "histories": {}}
for name in RUNS:
    save(folder / f"{name} 1.pt", run(name))
for world in (2, 4):
    ended = in_processes(world, lambda rank: [save(folder / f"{name} {world} {rank}.pt", run(name)) for name in RUNS])
    assert ended == [0] * world, [p.read_text() for p in folder.glob("error*")]
    for name in RUNS:
        stored = [folder / f"{name} 1.pt", *(folder / f"{name} {world} {rank}.pt" for rank in range(world))]
        one, first, *others = (torch.load(path, weights_only=True) for path in stored)
        for other in others:
            assert all(map(torch.equal, other["state"], first["state"])), f"{name}: the processes differ"
        report["states"][f"{name}, {world}"] = largest_gap(first["state"], one["state"])
        report["histories"][f"{name}, {world}"] = [a["history"] for a in (one, others[-1])]

# A process dies in round 3; the others end, and the run goes on with another number of processes.
KILLED = "FedAvg, random numbers in the loss"
path = folder / "run.safetensors"
rule = fedlib.Checkpoint(path, every_seconds=0)


def die(round, state, record):
    if round == 3 and processes.rank() == 1:
        time.sleep(0.3)  # the first process has this round by now, and writes it
        os.kill(os.getpid(), signal.SIGKILL)


ended = in_processes(2, lambda rank: run(KILLED, 5, checkpoint=rule, callbacks=[die]))
written = fedlib.engines.checkpoint.load_state(path)[1]["round"]
report["killed"] = {"ended": ended, "round": written, "reason": (folder / "error0").read_text()}
ended = in_processes(3, lambda rank: save(folder / f"resumed {rank}.pt", run(KILLED, 5, checkpoint=rule)))
save(folder / "whole.pt", run(KILLED, 5))
whole, resumed = (torch.load(folder / f"{name}.pt", weights_only=True) for name in ("whole", "resumed 2"))
report["resumed"] = {"ended": ended, "difference": largest_gap(resumed["state"], whole["state"])}


def killed_inside(write):
    """One process is killed inside this write, when the new file is not in its place yet, and another one goes on."""
    path, answer, calls, sync = folder / f"write{write}", folder / "answer.pt", count(1), os.fsync
    rule, part = fedlib.Checkpoint(path, every_seconds=0), Path(f"{path}.part")

    def fsync(file):
        if next(calls) == write:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(file)

    def begin(rank):
        os.fsync = fsync
        run(KILLED, 5, checkpoint=rule)

    seen = [*in_processes(1, begin), path.exists(), part.exists()]
    seen += in_processes(1, lambda rank: save(answer, run(KILLED, 5, checkpoint=rule)))
    found = torch.load(answer, weights_only=True)
    same = all(map(torch.equal, found["state"], whole["state"])) and found["history"] == whole["history"]
    return [*seen, same, part.exists()]


report["writes"] = [killed_inside(write) for write in range(1, 7)]  # before round 1, and after each of five


# A client whose training diverges on one process ends all of them, each with the reason.
def diverge(rank):
    algorithm = processes.over_processes(FedAvg(loss, lr=1e200, batch_size=1, epochs=2))
    fedlib.fit(algorithm, params, data, 2, device="cpu", progress=False)


ended = in_processes(2, diverge)
report["diverged"] = {"ended": ended, "reasons": [(folder / f"error{r}").read_text() for r in (0, 1)]}
print(json.dumps(report))
