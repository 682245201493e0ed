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
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedlib
from benchmarks import flower_run
from benchmarks.works import WORKS, Work
from book.experiments.cfl_variants import RELATIVE
from book.experiments.worlds import loss_and_predict, squared_error
from fedlib import Key, local_batches, local_update, models
from fedlib.algorithms import FedAvg
from fedlib.engines.flower import leaves_client
from fedlib.params import broadcast

from . import running

NAIVE, PLAIN, ANY = "naive loop", "plain vmap", "fedlib, any module"
LR = 0.01
KEY = Key(0, 1)  # of round 1

Run = Callable[[], list[Tensor]]  # trains all clients; gives their parameters


# ---- two works ----


def works(settings: dict[str, Any]) -> dict[str, Work]:
    """W2: a small network on small clients. W3: convolutions with large batches."""
    sizes = {"W2": {"clients": settings["W2"]}, "W3": {"clients": settings["W3"], "rows": 100}}
    return {name: replace(WORKS[name], **size) for name, size in sizes.items()}


def network(work: Work, dtype: torch.dtype) -> nn.Module:
    """The torch layers of the work's network, with its start."""
    return work.model.to_module(work.model.init(0)).to(dtype)


def criterion(work: Work, output: Tensor, y: Tensor) -> Tensor:
    """Loss of a batch."""
    return F.cross_entropy(output, y) if work.classes else F.mse_loss(output[:, 0], y)


def orders(work: Work) -> Tensor:
    """Who takes which examples when (clients, epochs, examples); drawn anew for each run, once."""
    lengths = torch.full((work.clients,), work.rows)
    return KEY.permutations(torch.arange(work.clients), "batches", lengths, work.epochs, work.rows)


# ---- three ways to train ----


def naive_loop(work: Work) -> Run:
    """What one writes first: a copy of the network and an optimiser for each client."""
    module, (x, y) = network(work, torch.float32), work.data()

    def run() -> list[Tensor]:
        ends = []
        for x_k, y_k, epochs in zip(x, y, orders(work), strict=True):
            local = copy.deepcopy(module)
            rule = torch.optim.SGD(local.parameters(), lr=LR)
            for order in epochs:
                for rows in order.split(work.batch_size):
                    rule.zero_grad()
                    criterion(work, local(x_k[rows]), y_k[rows]).backward()
                    rule.step()
            ends.append([p.detach() for p in local.parameters()])
        return [torch.stack(p) for p in zip(*ends, strict=True)]

    return run


def plain_vmap(work: Work) -> Run:
    """All clients in one stack of parameters, by torch alone."""
    module, (x, y) = network(work, torch.float32), work.data()
    clients = torch.arange(work.clients)[:, None]

    def loss(params: dict[str, Tensor], x_k: Tensor, y_k: Tensor) -> Tensor:
        return criterion(work, torch.func.functional_call(module, params, (x_k,)), y_k)

    def run() -> list[Tensor]:
        stack = broadcast(dict(module.named_parameters()), work.clients)
        stack = {name: p.detach().clone().requires_grad_() for name, p in stack.items()}
        for order in orders(work).transpose(0, 1):
            for rows in order.split(work.batch_size, dim=1):
                value = torch.vmap(loss)(stack, x[clients, rows], y[clients, rows])
                grads = torch.autograd.grad(value.sum(), list(stack.values()))
                with torch.no_grad():
                    for p, g in zip(stack.values(), grads, strict=True):
                        p -= LR * g
        return [p.detach() for p in stack.values()]

    return run


def by_fedlib(work: Work, dtype: torch.dtype = torch.float32) -> Run:
    """The stack of fedlib."""
    predict, (x, y) = models.Model(network(work, dtype)), work.data()
    loss = loss_and_predict(predict, work.classes)["loss"]
    data = fedlib.stack_clients(list(x.to(dtype)), list(y))
    stack = broadcast({name: p.to(dtype) for name, p in predict.params.items()}, work.clients)

    def run() -> list[Tensor]:
        batches = local_batches(data, work.batch_size, work.epochs, KEY)
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
    runs = {c: make(work) for c, make in CONTENDERS.items()}
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
    times = {name: keep(f"the contenders on {name}", race, work, settings["pairs"]) for name, work in some.items()}
    chunks = all_chunk_costs, settings["clients"], settings["chunks"], some["W2"].epochs
    found = {name: {NAIVE: gains(pd.DataFrame(seconds))} for name, seconds in times.items()}
    return {"gains": found, "chunks": keep("chunks", in_a_new_process, *chunks)}


def measure_flower(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Each algorithm in Flower: clients killed in mid-run, undisturbed, and in Flower's simulation."""
    if "transport" not in settings:
        raise ImportError('preset flower runs Flower: pip install "fedlib-book[flower]", or --editable ".[flower]"')
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
    for name, work in works({"W2": 4, "W3": 2}).items():
        small = replace(work, rows=8, batch_size=4, epochs=1)
        how, (x, y) = loss_and_predict(small.model, small.classes), small.data()
        data = first_rows(fedlib.stack_clients(list(x), list(y)), range(8, 8 - len(x), -1))
        found[name] = running.trace(FedAvg(**how, lr=0.1, batch_size=4, epochs=1), small.model.init(0), data)
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


SETTINGS: dict[str, Any] = {"pairs": 15, "W2": 100, "W3": 20}  # turns; clients of each work
SETTINGS |= {"clients": [100, 1000, 10_000], "chunks": [10, 100, "auto"]}  # of the rounds in chunks
FLOWER = flower_run.settings()
PRESETS = {
    "full": running.Experiment("scaling_out", SETTINGS, measure, probe, ("digits",)),
    "flower": running.Experiment("scaling_out_flower", FLOWER, measure_flower, probe_flower, ("digits",)),
}
