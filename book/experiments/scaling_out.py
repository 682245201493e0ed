"""Chapter 16: how much faster a stack of clients is than a loop, what chunks and processes cost, and Flower.

Preset ``full`` measures, on one core,

- the local training of three works, as a naive loop, a tuned loop, a plain `torch.vmap`, and by fedlib with any module
  and with its own network: five contenders, timed one after another, again and again, and compared within each turn;
- how often PyTorch is called for it, and how far the contenders' parameters lie apart in 64-bit numbers;
- time and peak memory of a round in chunks of clients;
- a run of split-half CFL in one process and in two;
- the similarity matrix and cut of CFL against a cut of sampled clients, with the exponent of their growth.

It needs a machine that does nothing else. Preset ``paper`` times a thousand clients on a GPU. Preset ``flower`` runs
three algorithms in Flower and compares them with `fedlib.fit`; it needs the extra "flower".
"""

import contextlib
import copy
import io
import multiprocessing
import os
import resource
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import fedlib
from benchmarks import flower_run
from book.experiments.cfl_variants import RELATIVE
from fedlib import Key, losses, models
from fedlib.algorithms import FedAvg
from fedlib.data import local_batches
from fedlib.engines.flower import leaves_client
from fedlib.local import local_update
from fedlib.params import broadcast
from fedlib.server.clusters import bipartition, cosine_similarity

from . import running

NAIVE, TUNED, PLAIN = "naive loop", "tuned loop", "plain vmap"
ANY, LAYERS = "fedlib, any module", "fedlib, own layers"
LR = 0.01

Run = Callable[[], list[Tensor]]  # trains all clients; gives their parameters


# ---- three works ----


@dataclass(frozen=True)
class Work:
    """Local training of some clients by plain SGD, on random numbers."""

    model: Any  # fedlib's network
    module: nn.Module  # the same of plain torch layers
    clients: int
    rows: int  # examples of each client
    shape: tuple[int, ...]
    classes: int  # 0: regression
    batch_size: int
    epochs: int
    seed: int = 0

    @property
    def key(self) -> Key:
        """Of round 1."""
        return Key(self.seed, 1)

    def data(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Rows and targets of all clients."""
        ids, key = torch.arange(self.clients), Key(self.seed)
        x = key.normal(ids, "x", self.rows, *self.shape).to(dtype)
        if self.classes:
            return x, (key.uniform(ids, "y", self.rows) * self.classes).long()
        return x, key.normal(ids, "y", self.rows).to(dtype)

    def criterion(self, output: Tensor, y: Tensor) -> Tensor:
        """Loss of a batch."""
        return F.cross_entropy(output, y) if self.classes else F.mse_loss(output[:, 0], y)

    def loss(self, predict: Any) -> Callable[[Any, Any], Tensor]:
        """The same as fedlib takes it."""
        measure = losses.cross_entropy if self.classes else losses.mse
        return lambda params, batch: measure(predict(params, batch[0]), batch[1], batch[2])

    def network(self, dtype: torch.dtype) -> nn.Module:
        """The torch module, with the start of fedlib's network."""
        module = copy.deepcopy(self.module)
        with torch.no_grad():
            for p, value in zip(module.parameters(), self.model.init(self.seed).values(), strict=True):
                p.copy_(value)
        return module.to(dtype)

    def orders(self) -> Tensor:
        """Who takes which examples when (clients, epochs, examples); drawn anew for each run, once."""
        lengths = torch.full((self.clients,), self.rows)
        return self.key.permutations(torch.arange(self.clients), "batches", lengths, self.epochs, self.rows)


def dense(*widths: int) -> list[nn.Module]:
    """Dense layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return layers[:-1]


def convolutions(side: int, channels: Sequence[int], padding: int, *widths: int) -> list[nn.Module]:
    """Convolution 5x5, ReLU and pooling, for each channel; then dense layers."""
    layers: list[nn.Module] = []
    for inputs, outputs in zip(channels, channels[1:], strict=False):
        layers += [nn.Conv2d(inputs, outputs, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2)]
        side = (side + 2 * padding - 4) // 2
    return [*layers, nn.Flatten(), *dense(channels[-1] * side**2, *widths)]


def works(settings: dict[str, Any]) -> dict[str, Work]:
    """W2: a small network on small clients. W1s, W3: convolutions, with small and with large batches."""
    seed = settings["seed"]
    mlp = nn.Sequential(*dense(13, 64, 32, 16, 1))
    cnn = nn.Sequential(*convolutions(28, (1, 16, 32), 2, 128, 62))
    lenet = nn.Sequential(*convolutions(32, (3, 6, 16), 0, 120, 84, 10))
    return {
        "W2": Work(models.MLP((13, 64, 32, 16, 1)), mlp, settings["W2"], 20, (13,), 0, 32, 10, seed),
        "W1s": Work(
            models.CNN((1, 28, 28), (16, 32), (128, 62)), cnn, settings["W1s"], 40, (1, 28, 28), 62, 10, 1, seed
        ),
        "W3": Work(models.lenet5(), lenet, settings["W3"], 100, (3, 32, 32), 10, 100, 1, seed),
    }


# ---- five ways to train ----


def naive_loop(work: Work, dtype: torch.dtype) -> Run:
    """What one writes first: a copy of the network and an optimiser for each client."""
    module, (x, y) = work.network(dtype), work.data(dtype)

    def run() -> list[Tensor]:
        ends = []
        for x_k, y_k, epochs in zip(x, y, work.orders(), strict=True):
            local = copy.deepcopy(module)
            rule = torch.optim.SGD(local.parameters(), lr=LR)
            for order in epochs:
                for rows in order.split(work.batch_size):
                    rule.zero_grad()
                    work.criterion(local(x_k[rows]), y_k[rows]).backward()
                    rule.step()
            ends.append([p.detach() for p in local.parameters()])
        return [torch.stack(p) for p in zip(*ends, strict=True)]

    return run


def tuned_loop(work: Work, dtype: torch.dtype) -> Run:
    """One client after another, without waste."""
    module, (x, y) = work.network(dtype), work.data(dtype)
    parameters = list(module.parameters())
    start = [p.detach().clone() for p in parameters]

    def run() -> list[Tensor]:
        ends = []
        for x_k, y_k, epochs in zip(x, y, work.orders(), strict=True):
            with torch.no_grad():
                torch._foreach_copy_(parameters, start)
            for order in epochs:
                for rows in order.split(work.batch_size):
                    grads = torch.autograd.grad(work.criterion(module(x_k[rows]), y_k[rows]), parameters)
                    with torch.no_grad():
                        torch._foreach_add_(parameters, grads, alpha=-LR)
            ends.append([p.detach().clone() for p in parameters])
        return [torch.stack(p) for p in zip(*ends, strict=True)]

    return run


def plain_vmap(work: Work, dtype: torch.dtype) -> Run:
    """All clients in one stack of parameters, by torch alone."""
    module, (x, y) = work.network(dtype), work.data(dtype)
    clients = torch.arange(work.clients)[:, None]

    def loss(params: dict[str, Tensor], x_k: Tensor, y_k: Tensor) -> Tensor:
        return work.criterion(torch.func.functional_call(module, params, (x_k,)), y_k)

    def run() -> list[Tensor]:
        stack = {
            name: p.detach().expand(work.clients, *p.shape).clone().requires_grad_()
            for name, p in module.named_parameters()
        }
        for order in work.orders().transpose(0, 1):
            for rows in order.split(work.batch_size, dim=1):
                value = torch.vmap(loss)(stack, x[clients, rows], y[clients, rows])
                grads = torch.autograd.grad(value.sum(), list(stack.values()))
                with torch.no_grad():
                    for p, g in zip(stack.values(), grads, strict=True):
                        p -= LR * g
        return [p.detach() for p in stack.values()]

    return run


def by_fedlib(work: Work, dtype: torch.dtype, own: bool) -> Run:
    """The stack of fedlib: its own network, or any module."""
    predict = work.model if own else models.Model(work.network(dtype))
    start = predict.init(work.seed) if own else predict.params
    x, y = work.data(dtype)
    data, loss = fedlib.stack_clients(list(x), list(y)), work.loss(predict)
    stack = broadcast({name: p.to(dtype) for name, p in start.items()}, work.clients)

    def run() -> list[Tensor]:
        batches = local_batches(data, work.batch_size, work.epochs, work.key)
        return list(local_update(loss, stack, batches, partial(torch.optim.SGD, lr=LR)).params.values())

    return run


CONTENDERS: dict[str, Callable[[Work, torch.dtype], Run]] = {
    NAIVE: naive_loop,
    TUNED: tuned_loop,
    PLAIN: plain_vmap,
    ANY: partial(by_fedlib, own=False),
    LAYERS: partial(by_fedlib, own=True),
}


def gap(a: Iterable[Tensor], b: Iterable[Tensor]) -> float:
    """Largest difference of any parameter of any client."""
    return max(float((p - q).abs().max()) for p, q in zip(a, b, strict=True))


def gaps(some: dict[str, Work]) -> dict[str, float]:
    """How far any contender's parameters lie from the naive loop's, in 64-bit numbers."""
    found = {}
    for name, work in some.items():
        small = work if name == "W2" else replace(work, clients=2, rows=20)
        ends = {c: make(small, torch.float64)() for c, make in CONTENDERS.items()}
        found[name] = max(gap(ends[NAIVE], end) for end in ends.values())
    return found


def seconds_of(run: Callable[[], Any]) -> float:
    """Of the processor."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def race(work: Work, pairs: int) -> list[dict[str, float]]:
    """Seconds of each contender: a row is a turn of neighbouring runs."""
    runs = {c: make(work, torch.float32) for c, make in CONTENDERS.items()}
    for run in runs.values():
        run()  # the first call pays for imports and memory
    return [{c: seconds_of(run) for c, run in runs.items()} for _ in range(pairs)]


def gains(times: pd.DataFrame, against: str) -> dict[str, dict[str, float]]:
    """How many times as fast as `against`: median and range of the ratios of neighbours."""
    ratio = pd.DataFrame({c: times[against] / times[c] for c in times})
    table = pd.DataFrame({"median": ratio.median(), "lowest": ratio.min(), "highest": ratio.max()})
    return table.round(3).to_dict("index")


class Calls(TorchDispatchMode):
    """Counts the operations that reach a kernel."""

    number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += 1
        return func(*args, **(kwargs or {}))


def calls(work: Work) -> dict[str, int]:
    """Operations of each contender in one more local epoch of all clients."""

    def counted(make: Callable[..., Run], epochs: int) -> int:
        run = make(replace(work, epochs=epochs), torch.float32)
        with Calls() as found:
            run()
        return found.number

    return {c: counted(make, 2) - counted(make, 1) for c, make in CONTENDERS.items()}


# ---- chunks ----


def peak_bytes() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def small_clients(clients: int) -> fedlib.ClientData:
    """Clients as those of W2."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(20 * clients, 13, generator=draw), torch.randn(20 * clients, generator=draw)
    return fedlib.stack_rows(x, y, list(torch.arange(20 * clients).view(clients, 20)))


def chunked_round(data: fedlib.ClientData, chunk: int | str, epochs: int) -> None:
    """One round of FedAvg with W2's network."""
    model = models.MLP((13, 64, 32, 16, 1))
    algorithm = FedAvg(
        lambda params, batch: losses.mse(model(params, batch[0]), batch[1], batch[2]),
        lr=LR,
        batch_size=32,
        epochs=epochs,
        chunk_size=chunk,
    )
    fedlib.fit(algorithm, model.init(0), data, 1, device="cpu", progress=False)


def chunk_costs(data: fedlib.ClientData, chunk: int | str, epochs: int, answer: Any) -> None:
    """In a process of its own: seconds of a round, and how far memory rises above libraries and data."""
    chunked_round(small_clients(2), "auto", epochs)  # touches the libraries' code, which counts as memory
    before, begin = peak_bytes(), time.process_time()
    chunked_round(data, chunk, epochs)
    answer.send((time.process_time() - begin, peak_bytes() - before))


def all_chunk_costs(clients: Sequence[int], chunks: Sequence[int | str], epochs: int) -> list[dict[str, Any]]:
    """A row for each number of clients and chunk size; each run is split off from this process."""
    torch.set_num_threads(1)
    context, rows = multiprocessing.get_context("fork"), []
    chunked_round(small_clients(2), "auto", epochs)  # whatever is imported late
    for number in clients:
        data = small_clients(number)
        for chunk in chunks:
            if chunk != "auto" and chunk > number:
                continue
            receive, send = context.Pipe(False)
            child = context.Process(target=chunk_costs, args=(data, chunk, epochs, send))
            child.start()
            child.join()
            seconds, size = receive.recv()
            row = {"clients": number, "chunk": chunk, "seconds": seconds, "bytes": size}
            rows.append(row | {"ms a client": 1e3 * seconds / number, "MiB": size / 2**20})
    return rows


def in_a_new_process(function: Callable[..., Any], *args: Any) -> Any:
    """What a function gives in a Python that has done nothing before."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def growth(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Time a client with the most clients, as a multiple of that with the fewest, by chunk size."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(str(row["chunk"]), []).append(row["ms a client"])
    return {chunk: round(each[-1] / each[0], 2) for chunk, each in found.items()}


# ---- processes ----


def two_processes(rounds: int, processes: int) -> dict[str, float]:
    """Split-half CFL by examples/federate.py, here and by torchrun: how far the histories lie apart, and seconds."""
    program = str(running.ROOT / "examples" / "federate.py")
    command = [
        "--algorithm",
        "SplitHalfCFL",
        "--data",
        "digits",
        "--partition",
        "label_permutation",
        "--deal",
        "groups=2",
    ]
    command += ["--clients", "8", "--rounds", str(rounds), "--dtype", "float64", "--device", "cpu", "--out"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    launcher += ["--nproc-per-node", str(processes), program]
    paths = os.pathsep.join([str(running.ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    with tempfile.TemporaryDirectory() as folder:
        alone, shared = Path(folder, "one.csv"), Path(folder, "two.csv")
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(program)["main"]([*command, str(alone)])
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, *launcher, *command, str(shared)],
            env=environment,
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - begin
        one, two = pd.read_csv(alone), pd.read_csv(shared)
    clocks = [c for c in one if c.startswith(("seconds", "server_seconds"))]
    apart = (one - two).drop(columns=clocks).abs().max(axis=None)
    return {"difference": float(apart), "seconds": seconds}


# ---- quadratic parts ----


def pulls(clients: int, seed: int) -> tuple[Tensor, Tensor]:
    """Made-up updates of two groups that pull in opposite directions, and the groups."""
    draw, size = torch.Generator().manual_seed(seed), 1000
    group = torch.rand(clients, generator=draw) < 0.3
    group[:2] = torch.tensor([True, False])
    pull = 0.3 * torch.randn(size, generator=draw)
    noise = torch.randn(clients, size, generator=draw)
    return noise + torch.where(group[:, None], pull, -pull), group


def by_matrix(updates: Tensor) -> Tensor:
    """CFL's way: all cosines, and a cut."""
    return bipartition(cosine_similarity(updates)).assignment


def by_sample(updates: Tensor, sample: int = 100) -> Tensor:
    """Cut some clients; the others join the part whose mean update points their way."""
    chosen = torch.randperm(len(updates), generator=torch.Generator().manual_seed(1))[:sample]
    part = bipartition(cosine_similarity(updates[chosen])).assignment
    means = torch.stack([updates[chosen][part == p].mean(0) for p in (0, 1)])
    return (F.normalize(updates) @ F.normalize(means).T).argmax(1)


WAYS = {"similarity matrix and cut": by_matrix, "by a sample": by_sample}


def quadratic(sizes: Sequence[int], seed: int) -> dict[str, dict[str, float]]:
    """Seconds at three sizes give an exponent, which predicts a fourth."""
    by_matrix(pulls(20, seed)[0])  # the first call pays for imports
    measured: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in sizes:
        updates, group = pulls(number, seed)
        for name, way in WAYS.items():
            took = []
            for _ in range(3):
                begin = time.process_time()
                part = way(updates)
                took.append(time.process_time() - begin)
            measured[name].append(max(float(np.median(took)), 1e-6))
            right = float((part.bool() == group).double().mean())
            if max(right, 1 - right) < 0.99:
                raise RuntimeError(f"{name}: only {right:.0%} of {number} clients are in the right part")
    fits = {}
    for name, took in measured.items():
        exponent, log_a = np.polyfit(np.log(sizes[:3]), np.log(took[:3]), 1)
        predicted = float(np.exp(log_a) * sizes[3] ** exponent)
        fits[name] = {
            "exponent": float(exponent),
            "predicted s": predicted,
            "measured s": took[3],
            "measured / predicted": took[3] / predicted,
        }
    return fits


# ---- a GPU ----


def on_a_card(clients: int, looped: int, seed: int) -> dict[str, float]:
    """Seconds of the second round of a network with convolutions: in one stack, and client by client."""
    model, ids = models.femnist_cnn(), torch.arange(clients)
    algorithm = FedAvg(
        lambda params, batch: losses.cross_entropy(model(params, batch[0]), batch[1], batch[2]),
        lr=LR,
        batch_size=10,
        epochs=1,
    )

    def fitted(data: fedlib.ClientData) -> float:
        end = fedlib.fit(algorithm, model.init(seed), data, 2, device="cuda", progress=False)
        return float(end.history["seconds"].iloc[-1])

    x = Key(seed).normal(ids, "x", 40, 1, 28, 28).float()
    y = (Key(seed).uniform(ids, "y", 40) * 62).long()
    data = fedlib.stack_clients(list(x), list(y))
    alone = sum(fitted(data[k : k + 1]) for k in range(looped)) / looped
    return {"clients": clients, "stack, s": fitted(data), "one by one, s": alone * clients}


# ---- the experiments ----


def measure(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Everything on one core."""
    torch.set_num_threads(1)
    some = works(settings)
    times = {
        name: pd.DataFrame(keep(f"the contenders on {name}", race, work, settings["pairs"]))
        for name, work in some.items()
    }
    chunks = keep(
        "chunks", in_a_new_process, all_chunk_costs, settings["clients"], settings["chunks"], some["W2"].epochs
    )
    return {
        "gains": {name: {against: gains(t, against) for against in (NAIVE, TUNED)} for name, t in times.items()},
        "seconds": {name: t.median().to_dict() for name, t in times.items()},
        "calls": keep("calls", calls, some["W2"]),
        "gaps": keep("gaps", gaps, some),
        "chunks": chunks,
        "linear": growth(chunks),
        "processes": keep("processes", two_processes, settings["rounds"], settings["processes"]),
        "quadratic": keep("quadratic", quadratic, settings["sizes"], settings["seed"]),
        "card": None,
    }


def measure_paper(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """A thousand clients on a GPU."""
    if not torch.cuda.is_available():
        raise OSError("preset paper of chapter 16 times a GPU, and PyTorch finds none")
    return {"card": keep("card", on_a_card, settings["clients"], settings["looped"], settings["seed"])}


def measure_flower(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Each algorithm in Flower: clients killed in mid-run, undisturbed, and in Flower's simulation."""
    if "transport" not in settings:
        raise ImportError(
            'preset flower of chapter 16 runs Flower: pip install "fedlib-book[flower]", or --editable ".[flower]"'
        )
    figures: dict[str, Any] = {}
    for name, algorithm in flower_run.ALGORITHMS.items():
        table = leaves_client(algorithm, flower_run.MODEL.init(settings["seed"]), flower_run.all_clients())
        figures[name] = {"leaves a client": table.assign(shape=table["shape"].map(list)).to_dict("records")}
    wire = settings["transport"]
    kinds = {False: {f"{wire}, clients killed": flower_run.KILLED, wire: ()}, True: {"simulation": ()}}
    for simulated, runs in kinds.items():
        with flower_run.Federation(simulated) as federation:
            for kind, killed in runs.items():
                for name in flower_run.ALGORITHMS:
                    figures[name][kind] = keep(f"{name}, {kind}", federation.run, name, killed)
    return figures


def first_rows(data: fedlib.ClientData, sizes: Iterable[int]) -> fedlib.ClientData:
    """The first rows of each client, as many as are asked for."""
    kept = list(zip(data.index, data.y, sizes, strict=True))
    xs, ys = [data.x[i[:n]] for i, _, n in kept], [y[:n] for _, y, n in kept]
    return fedlib.stack_clients(xs, ys, ids=data.id.tolist(), pixels=data.pixels)


def few_digits() -> fedlib.ClientData:
    """Eight clients of two groups with 8 to 22 digits each."""
    return first_rows(flower_run.all_clients(), range(8, 24, 2))


def tiny(name: str) -> Any:
    """An algorithm of the runs in Flower, told to split clients at once."""
    algorithm = flower_run.ALGORITHMS[name]
    return replace(algorithm, eps1=10.0, eps2=0.0, rest=1) if name == RELATIVE else algorithm


def probe() -> running.Probe:
    """What the works compute, two rounds of tiny federations; CFL on the digits; matrix and cut."""
    found = {}
    for name, work in works({"W2": 4, "W1s": 2, "W3": 2, "seed": 0}).items():
        small = replace(work, rows=8, batch_size=4, epochs=1)
        rule, (x, y) = FedAvg(small.loss(small.model), lr=0.1, batch_size=4, epochs=1), small.data(torch.float64)
        data = first_rows(fedlib.stack_clients(list(x), list(y)), range(8, 8 - len(x), -1))
        found[name] = running.trace(rule, small.model.init(0), data)
        for contender in (ANY, LAYERS):
            ends = CONTENDERS[contender](small, torch.float64)()
            found[f"{name}: {contender}"] = [float(p.square().sum()) for p in ends]
    updates, _ = pulls(20, 0)
    cosines = cosine_similarity(updates.double())
    found[RELATIVE] = running.trace(tiny(RELATIVE), flower_run.MODEL.init(0), few_digits(), 3)
    found["matrix and cut"] = [float(cosines.sum()), *(float(v) for v in by_matrix(updates.double()))]
    return found


def probe_flower() -> running.Probe:
    """The three algorithms as `fedlib.fit` runs them, and what leaves a client."""
    found = {}
    for name in flower_run.ALGORITHMS:
        algorithm, start = tiny(name), flower_run.MODEL.init(0)
        leaves = leaves_client(algorithm, start, few_digits())
        found[name] = [*running.trace(algorithm, start, few_digits(), 3), *leaves["bytes"].tolist()]
    return found


SETTINGS: dict[str, Any] = {
    "pairs": 15,  # turns
    "W2": 100,  # clients
    "W1s": 10,
    "W3": 20,
    "clients": [100, 1000, 10_000],  # in chunks
    "chunks": [10, 100, "auto"],
    "processes": 2,
    "sizes": [500, 1000, 2000, 4000],  # clients of the similarity matrix
    "rounds": 3,  # in two processes
    "seed": 0,
}
PAPER = {"clients": 1000, "looped": 20, "seed": 0}
PRESETS = {
    "full": running.Experiment("scaling_out", SETTINGS, measure, probe, ("digits",)),
    "flower": running.Experiment(
        "scaling_out_flower", flower_run.settings(), measure_flower, probe_flower, ("digits",)
    ),
    "paper": running.Experiment("scaling_out_paper", PAPER, measure_paper, probe),
}

if __name__ == "__main__":
    running.main(PRESETS)
