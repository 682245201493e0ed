"""Chapter 16: how much faster a stack of clients is than a loop, what chunks and processes cost, and Flower.

Preset ``full`` measures, on one core,

- the local training of two works, as a naive loop, a plain `torch.vmap`, and by fedlib with any module: three
  contenders, timed one after another, again and again, and compared within each turn;
- time and peak memory of a round in chunks of clients.

It needs a machine that does nothing else. Preset ``flower`` runs three algorithms in Flower and compares them with
`fedlib.fit`; it needs the extra "flower".
"""

import copy
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedlib
from benchmarks import flower_run
from book.experiments.cfl_variants import RELATIVE
from book.experiments.worlds import loss_of, squared_error
from fedlib import Key, models
from fedlib.algorithms import FedAvg
from fedlib.data import local_batches
from fedlib.engines.flower import leaves_client
from fedlib.local import local_update
from fedlib.params import broadcast

from . import running

NAIVE, PLAIN, ANY = "naive loop", "plain vmap", "fedlib, any module"
LR = 0.01

Run = Callable[[], list[Tensor]]  # trains all clients; gives their parameters


# ---- two works ----


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

    def loss(self, predict: Any) -> Callable[..., Tensor]:
        """The same as fedlib takes it."""
        return loss_of(predict) if self.classes else squared_error(predict)

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


def works(settings: dict[str, Any]) -> dict[str, Work]:
    """W2: a small network on small clients. W3: convolutions with large batches."""
    seed, pool = settings["seed"], [nn.ReLU(), nn.MaxPool2d(2)]
    mlp = nn.Sequential(*dense(13, 64, 32, 16, 1))
    convolutions = nn.Conv2d(3, 6, 5), *pool, nn.Conv2d(6, 16, 5), *pool
    lenet = nn.Sequential(*convolutions, nn.Flatten(), *dense(400, 120, 84, 10))
    return {
        "W2": Work(models.MLP((13, 64, 32, 16, 1)), mlp, settings["W2"], 20, (13,), 0, 32, 10, seed),
        "W3": Work(models.lenet5(), lenet, settings["W3"], 100, (3, 32, 32), 10, 100, 1, seed),
    }


# ---- three ways to train ----


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


def by_fedlib(work: Work, dtype: torch.dtype) -> Run:
    """The stack of fedlib."""
    predict = models.Model(work.network(dtype))
    x, y = work.data(dtype)
    data, loss = fedlib.stack_clients(list(x), list(y)), work.loss(predict)
    stack = broadcast({name: p.to(dtype) for name, p in predict.params.items()}, work.clients)

    def run() -> list[Tensor]:
        batches = local_batches(data, work.batch_size, work.epochs, work.key)
        return list(local_update(loss, stack, batches, partial(torch.optim.SGD, lr=LR)).params.values())

    return run


CONTENDERS = {NAIVE: naive_loop, PLAIN: plain_vmap, ANY: by_fedlib}


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


def gains(times: pd.DataFrame) -> dict[str, dict[str, float]]:
    """How many times as fast as the naive loop: median and range of the ratios of neighbours."""
    ratio = pd.DataFrame({c: times[NAIVE] / times[c] for c in (PLAIN, ANY)})
    table = pd.DataFrame({"median": ratio.median(), "lowest": ratio.min(), "highest": ratio.max()})
    return table.round(3).to_dict("index")


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
    algorithm = FedAvg(squared_error(model), lr=LR, batch_size=32, epochs=epochs, chunk_size=chunk)
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


# ---- the experiments ----


def measure(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Everything on one core."""
    torch.set_num_threads(1)
    some = works(settings)
    times = {
        name: pd.DataFrame(keep(f"the contenders on {name}", race, work, settings["pairs"]))
        for name, work in some.items()
    }
    sizes = settings["clients"], settings["chunks"]
    return {
        "gains": {name: {NAIVE: gains(t)} for name, t in times.items()},
        "chunks": keep("chunks", in_a_new_process, all_chunk_costs, *sizes, some["W2"].epochs),
    }


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
    """What the works compute, and two rounds of tiny federations."""
    found = {}
    for name, work in works({"W2": 4, "W3": 2, "seed": 0}).items():
        small = replace(work, rows=8, batch_size=4, epochs=1)
        rule, (x, y) = FedAvg(small.loss(small.model), lr=0.1, batch_size=4, epochs=1), small.data(torch.float64)
        data = first_rows(fedlib.stack_clients(list(x), list(y)), range(8, 8 - len(x), -1))
        found[name] = running.trace(rule, small.model.init(0), data)
        found[f"{name}: {ANY}"] = [float(p.square().sum()) for p in by_fedlib(small, torch.float64)()]
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
    "W3": 20,
    "clients": [100, 1000, 10_000],  # in chunks
    "chunks": [10, 100, "auto"],
    "seed": 0,
}
PRESETS = {
    "full": running.Experiment("scaling_out", SETTINGS, measure, probe, ("digits",)),
    "flower": running.Experiment(
        "scaling_out_flower", flower_run.settings(), measure_flower, probe_flower, ("digits",)
    ),
}
