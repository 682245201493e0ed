"""Federations in Flower against `fedlib.fit`: simulated, as separate processes, and with clients killed in mid-run.

    python -m book.experiments scaling_out --preset flower

makes the runs and writes book/results/scaling_out_flower.json; it needs the extra "flower". FedAvg, SCAFFOLD and CFL
train on the digits, each client with a file of its own: in Flower's simulation; with a SuperLink and a SuperNode for
each client, which talk over the loopback, by gRPC before Flower 1.40 and by HTTP since; and so that three SuperNodes
are killed while they train, with all that they started, and started again. A run that does not end where `fit` does is
an error.

SuperNodes start a process for each message, which would spend 8 seconds of a core on imports. The program
``flwr-clientapp`` that they find here lets a process that has done the imports fork instead; nothing else is special.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedlib
from book.experiments.cfl_variants import RELATIVE, RelativeCFL
from fedlib import datasets, losses, partition
from fedlib.algorithms import FedAvg, Scaffold
from fedlib.engines import flower
from fedlib.engines.checkpoint import load_state
from fedlib.models import MLP

ROOT = Path(__file__).parents[1]
CLIENTS, ROUNDS, SEED = 8, 6, 0
KILLED, KILL_ROUND, AWAY = (1, 4, 6), 3, 5.0  # clients, the round in which, and for how many seconds
MODEL = MLP((64, 32, 10))
TOLERANCE = 1e-5

PROJECT = """[project]
name = "federation"
version = "1.0.0"
description = "A federation of fedlib"
license = "BSD-3-Clause"

[tool.flwr.app]
publisher = "fedlib"

[tool.flwr.app.components]
serverapp = "app:server"
clientapp = "app:client"
"""
APP = """from benchmarks import flower_run

both = flower_run.apps({name!r}, {folder!r})
server = both[0]
client = both[1]
"""
LAUNCHER = """#!{python} -IS
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as s:
    s.connect({path!r})
    s.sendall(json.dumps([os.getpgrp(), sys.argv, dict(os.environ)]).encode())
"""


def settings() -> dict[str, Any]:
    """What the runs are told; and, where Flower is installed, what they are made with."""
    told = {"clients": CLIENTS, "rounds": ROUNDS, "seed": SEED, "away seconds": AWAY}
    try:
        versions = {package: version(package) for package in ("flwr", "ray")}
    except PackageNotFoundError:
        return told
    from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL

    made = {"transport": "gRPC" if by_grpc() else "HTTP", "heartbeat seconds": HEARTBEAT_DEFAULT_INTERVAL}
    return told | made | versions


def by_grpc() -> bool:
    """Whether this Flower talks gRPC."""
    return tuple(map(int, version("flwr").split(".")[:2])) < (1, 40)


def fork_clients(path: str) -> None:
    """Start ``flwr-clientapp`` for whoever asks at this socket, as one of the asking program's group."""
    from flwr.supernode.cli import flwr_clientapp

    torch.optim.SGD([torch.zeros(1)])  # imports what the first optimiser imports
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as place:
        place.bind(path)
        place.listen(64)
        while True:
            with place.accept()[0] as asking, asking.makefile() as text:
                group, sys.argv, environment = json.load(text)
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.setpgid(0, group)
                os.environ.update(environment)
                flwr_clientapp()
                os._exit(0)


def loss(params: fedlib.Params, batch: Any) -> Any:
    return losses.cross_entropy(MODEL(params, batch[0]), batch[1], batch[2])


LOCAL = {"lr": 0.1, "batch_size": 20, "epochs": 2}
ALGORITHMS = {
    "FedAvg": FedAvg(loss, **LOCAL),
    "SCAFFOLD": Scaffold(loss, **LOCAL),
    RELATIVE: RelativeCFL(loss, **LOCAL, eps1=0.7, eps2=0.3, rest=2),
}


def all_clients() -> fedlib.ClientData:
    """The digits, dealt out to clients of two groups that name the classes differently."""
    digits = datasets.load("digits")
    dealt = partition.label_permutation(partition.iid(digits.y, CLIENTS), groups=2)
    return dealt.clients(digits.x, digits.y).sorted()


def apps(name: str, folder: str) -> tuple[Any, Any]:
    """ServerApp and ClientApp of one run; what they store, and the clients' rows, stand in `folder`."""
    place, params = Path(folder), MODEL.init(SEED)

    def own(context: Any) -> fedlib.ClientData:
        number = int(context.node_config["partition-id"])
        with np.load(place.parents[1] / f"client{number}.npz") as rows:
            return fedlib.stack_clients([rows["x"]], [rows["y"]], ids=[int(rows["id"])], pixels=True)

    server = flower.server_app(ALGORITHMS[name], params, CLIENTS, ROUNDS, place / "server.safetensors", seed=SEED)
    return server, flower.client_app(ALGORITHMS[name], params, own, place / "clients", device="cpu")


class Programs:
    """Programs of Flower that run beside this one, with a log each, in a folder of theirs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen] = {}
        self.web, self.fleet, *self.own = free_ports(2 + CLIENTS)
        flags = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
        paths = {
            "PATH": os.pathsep.join([str(folder.parent / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "FLWR_HOME": str(folder / "flwr"),
        }
        self.environment = os.environ | flags | paths
        (folder / "flwr").mkdir(parents=True)
        (folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.web}"\ninsecure = true\n'
        )

    def start(self, name: str, *command: str) -> None:
        """Run a command beside this one, in a process group of its own."""
        with open(self.folder / f"{name}.log", "a") as log:
            self.running[name] = subprocess.Popen(
                command, env=self.environment, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, process_group=0
            )

    def start_server(self, *how: str) -> None:
        """Start a SuperLink."""
        address = ["--insecure", "--host", "127.0.0.1", "--port", str(self.web)]
        self.start("server", "flower-superlink", *address, "--disable-runtime-dependency-installation", *how)
        self.wait(lambda: answers(self.web), 600)

    def start_client(self, k: int) -> None:
        """Start a SuperNode."""
        server = f"127.0.0.1:{self.fleet if by_grpc() else self.web}"
        address = ["--insecure", "--superlink", server, "--port", str(self.own[k])]
        self.start(f"client{k}", "flower-supernode", *address, "--node-config", f"partition-id={k}")

    def kill(self, name: str) -> None:
        """End a program and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.running[name].pid, signal.SIGKILL)
        self.running.pop(name).wait()

    def log(self, name: str) -> str:
        """What a program has printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait(self, until: Callable[[], bool], seconds: float) -> None:
        """Look until something is so, at most for so long."""
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end:
                raise TimeoutError(f"nothing happened for {seconds:.0f} s; the logs are in {self.folder}")
            time.sleep(0.2)


@contextlib.contextmanager
def programs(folder: Path) -> Iterator[Programs]:
    """Programs that end with this block, whatever happens."""
    found = Programs(folder)
    try:
        yield found
    finally:
        for name in list(found.running):
            found.kill(name)


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [s.getsockname()[1] for s in sockets]


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def run(beside: Programs, name: str, killed: tuple[int, ...] = (), *how: str) -> dict[str, Any]:
    """One run by ``flwr run``; what server and clients stored of it, compared with `fit`."""
    task = f"{name}{len(killed)}"
    folder = beside.folder / task
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "app.py").write_text(APP.format(name=name, folder=str(folder)))
    begin, events = time.monotonic(), {}
    beside.start(task, "flwr", "run", str(folder), "here", "--stream", *how)

    def over() -> bool:
        return beside.running[task].poll() is not None

    def at_work(k: int) -> bool:
        number = re.search(r"started run (\d+)", beside.log(task))
        return number is not None and f"[RUN {number[1]}, ROUND {KILL_ROUND}]" in beside.log(f"client{k}")

    if killed:
        beside.wait(lambda: over() or all(at_work(k) for k in killed), 3600)
        for k in killed:
            beside.kill(f"client{k}")
        events = {"killed": killed, "in round": KILL_ROUND, "after seconds": round(time.monotonic() - begin, 1)}
        time.sleep(AWAY)
        for k in killed:
            beside.start_client(k)
    beside.wait(over, 3600)
    events["seconds"] = round(time.monotonic() - begin, 1)
    if killed:
        events["came back"] = [k for k in killed if beside.log(task).count(f"client {k} is there") > 1]
    return compare(name, folder) | events


def compare(name: str, folder: Path) -> dict[str, Any]:
    """Largest differences between what server and clients stored and what `fit` gives."""
    algorithm, data = ALGORITHMS[name], all_clients()
    want = fedlib.fit(algorithm, MODEL.init(SEED), data, ROUNDS, seed=SEED, device="cpu", progress=False)
    got = flower.load_result(folder / "server.safetensors")
    figures: dict[str, Any] = {"rounds": len(got.history)}

    def largest(a: fedlib.Params, b: fedlib.Params) -> float:
        return max(float((a[n] - b[n]).abs().max()) for n in b)

    figures["parameters"] = largest(got.state.models, want.state.models)
    if name == "SCAFFOLD":
        figures["c"] = largest(got.state.c, want.state.c)
        stored = [load_state(folder / "clients" / f"client{k}.safetensors")[0]["rounds"] for k in data.id.tolist()]
        rows = [{n: p[0] for n, p in kept[ROUNDS]["c_i"].items()} for kept in stored]
        figures["c_i of the clients"] = max(
            largest(rows[k], {n: p[k] for n, p in want.state.c_i.items()}) for k in range(CLIENTS)
        )
    if name == RELATIVE:
        splits = [
            [(s.round, s.model, s.members.tolist(), s.part.tolist()) for s in r.state.splits] for r in (got, want)
        ]
        figures["same splits"] = splits[0] == splits[1]
        figures["splits"] = [{"round": t, "members": m, "part": p} for t, _, m, p in splits[0]]
    both = got.history.train_loss - want.history.train_loss
    figures["training loss"] = float(both.abs().max())
    wrong = figures["rounds"] != ROUNDS or not figures.get("same splits", True)
    if wrong or not all(figures.get(n, 0.0) < TOLERANCE for n in ("parameters", "c", "c_i of the clients")):
        raise RuntimeError(f"{name} in Flower does not end where fit does: {figures}; the logs are in {folder}")
    return figures


def prepare(place: Path) -> None:
    """The clients' files, and the launcher of their programs."""
    data = all_clients()
    for k in range(CLIENTS):
        x, y = data.x[data.index[k, : data.n[k]]], data.y[k, : data.n[k]]
        np.savez(place / f"client{k}.npz", x=x.numpy(), y=y.numpy(), id=data.id[k])
    (place / "bin").mkdir()
    launcher = place / "bin" / "flwr-clientapp"
    launcher.write_text(LAUNCHER.format(python=sys.executable, path=str(place / "fork")))
    launcher.chmod(0o700)


class Federation:
    """A server and its clients in Flower: started when a run is asked for, ended with the block.

    Parameters
    ----------
    simulated : bool
        In Flower's simulation; else as separate processes.
    """

    def __init__(self, simulated: bool) -> None:
        self.simulated = simulated
        self.programs: Programs | None = None
        self.place = Path(tempfile.mkdtemp(prefix="flower"))
        self.block = contextlib.ExitStack()

    def __enter__(self) -> "Federation":
        return self

    def __exit__(self, error: Any, *rest: Any) -> None:
        self.block.close()
        if error is None:  # the logs tell what was wrong
            shutil.rmtree(self.place, ignore_errors=True)

    def start(self) -> Programs:
        """Start Flower's programs."""
        if self.simulated:
            beside = self.block.enter_context(programs(self.place / "simulation"))
            beside.start_server("--simulation")
            return beside
        beside = self.block.enter_context(programs(self.place / "processes"))
        path = self.place / "fork"
        beside.start(
            "fork", sys.executable, "-c", f"from benchmarks import flower_run; flower_run.fork_clients({str(path)!r})"
        )
        beside.wait(path.exists, 600)
        beside.start_server(*(["--fleet-api-address", f"127.0.0.1:{beside.fleet}"] if by_grpc() else []))
        for k in range(CLIENTS):
            beside.start_client(k)
        return beside

    def run(self, name: str, killed: tuple[int, ...] = ()) -> dict[str, Any]:
        """One algorithm, compared with `fit`; some clients are killed on the way."""
        if self.programs is None:
            prepare(self.place)
            self.programs = self.start()
        size = f"num-supernodes={CLIENTS} client-resources-num-cpus=1 init-args-num-cpus=2"
        return run(self.programs, name, killed, *(("--federation-config", size) if self.simulated else ()))
