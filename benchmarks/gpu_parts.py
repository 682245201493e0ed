"""What `benchmarks.gpu` measures, and the process that measures it.

A *part* takes a device, a work and a number of clients, and yields rows as it measures them; what fails is a row with a
note. In the rows ``way`` says how a stack is computed: "fedlib" is the library as it is, "torch.vmap" plain PyTorch,
the others are kernels for convolutions. ``ratio`` is how many times the seconds of fedlib in float32 a way takes.
"""

import functools
import gc
import math
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

import fedlib
from fedlib import Key, convolutions, losses, stacked
from fedlib.data import ClientData, local_batches
from fedlib.local import clients_at_once, local_update
from fedlib.params import Params, broadcast

from .contenders import naive_loop, tuned_loop
from .contenders.plain_torch import Net
from .contenders.worker import load
from .works import WORKS

Row = dict[str, Any]
Run = Callable[[], Any]
Kernel = Callable[..., Tensor]

PRECISIONS = ("float32", "TF32", "bfloat16")
LOOPED = 10  #: Clients that a loop is timed with: each takes as long as the next.
_TURNS, _SAMPLE, _CAP = 5, 0.01, 3.0  # timed turns; seconds of one way in a turn; seconds after which none begins
_SIDE = 8192  # of the matrices whose product sets the card's rate
_SLOW = 5  # a way that takes so many times the fastest in a precision is not tried in the next


def convolution_kernels() -> dict[str, Kernel]:
    """Ways to convolve a stack, by name: x (C, B, I, H, W), weight (C, O, I, h, w), bias (C, O)."""

    def one_by_one(x: Tensor, weight: Tensor, bias: Tensor, *settings: Any) -> Tensor:
        return torch.stack([F.conv2d(*client, *settings) for client in zip(x, weight, bias, strict=True)])

    return {"grouped": convolutions.conv2d, "one by one": one_by_one}


# ---- settings and clocks ----


def precisions(device: torch.device) -> list[str]:
    """Those that there are."""
    return [name for name in PRECISIONS if name != "TF32" or device.type == "cuda"]


@contextmanager
def precision(name: str, device: torch.device) -> Iterator[None]:
    """How products are rounded inside.

    bfloat16 is autocast, with the loss in float32. It is open around the backward pass too, which stays in this thread,
    since others would cast to autocast's default.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = name == "TF32"
    try:
        if name == "bfloat16":  # without a cache, which a CUDA graph must not keep
            with (
                torch.autocast(device.type, torch.bfloat16, cache_enabled=False),
                torch.autograd.set_multithreading_enabled(False),
            ):
                yield
        else:
            yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def _inside(context: Callable[[], Any], run: Callable[..., Any]) -> Callable[..., Any]:
    def both(*args: Any) -> Any:
        with context():
            return run(*args)

    return both


@contextmanager
def _plain_vmap() -> Iterator[None]:
    """Neither kernels nor low-rank forms."""
    plain = mock.patch.object(stacked, "vmap", lambda function, in_dims, *_: torch.vmap(function, in_dims))
    with plain, mock.patch.object(stacked, "PRIVATE_NAMES", False):
        yield


def reason(error: BaseException) -> str:
    """Why something was not measured, in one line."""
    if isinstance(error, torch.OutOfMemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:300]


def _seconds(run: Run, times: int, device: torch.device) -> float:
    start = time.perf_counter()
    for _ in range(times):
        run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / times


def _release(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def timed(runs: dict[str, Run], device: torch.device) -> dict[str, Row]:
    """Time functions in turn, after runs to warm up; on a CPU, where it only has to work, once each.

    Returns
    -------
    dict of str to Row
        ``seconds``, the median; ``ratio``, the median of the ratios to the first in the same turn; ``peak_mib``, the
        most memory allocated on the card; or a note.
    """
    cuda, rows = device.type == "cuda", dict[str, Row]({name: {} for name in runs})
    times, seconds = dict[str, int](), dict[str, list[float]]()
    for name, run in runs.items():
        _release(device)
        try:
            again = cuda and _seconds(run, 1, device) < _CAP
            times[name] = max(1, min(100, int(_SAMPLE / _seconds(run, 1, device)))) if again else 1
            seconds[name] = [] if cuda else [_seconds(run, 1, device)]
        except Exception as error:
            rows[name] = {"note": reason(error)}
        if cuda:
            rows[name]["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
    end = time.perf_counter() + _CAP
    for turn in range(_TURNS if cuda else 0):
        if turn and time.perf_counter() > end:
            break
        for name in seconds:
            seconds[name].append(_seconds(runs[name], times[name], device))
    first = seconds.get(next(iter(runs)))
    for name, values in seconds.items():
        rows[name] |= {"seconds": median(values), "turns": len(values)}
        if first:
            rows[name]["ratio"] = median(value / other for value, other in zip(values, first, strict=True))
    return rows


def graph(run: Run) -> Run:
    """A CUDA graph of what a function launches; it reads and writes the tensors that the function holds."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # libraries are loaded and kernels chosen before the capture
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, stream=stream):
        run()
    return captured.replay


# ---- a work on the device ----


@functools.cache
def _few(name: str) -> ClientData:
    x, y = replace(WORKS[name], clients=LOOPED).data()
    return fedlib.stack_clients(list(x), list(y))


class Clients:
    """K clients of a work; past the first ten they hold the rows of these again.

    Attributes
    ----------
    loss : callable
        Of one client; in the type of its parameters, whatever the network gives.
    """

    def __init__(self, name: str, clients: int, device: torch.device, dtype: torch.dtype = torch.float32):
        self.work, self.device = WORKS[name], device
        few, again = _few(name), torch.arange(clients) % LOOPED
        repeated = {field: getattr(few, field)[again] for field in ("index", "y", "n")}
        self.data = replace(few, **repeated, id=torch.arange(clients)).to(device, dtype)
        self.start = {n: p.to(device, dtype) for n, p in self.work.model.init(0).items()}
        self.batches = local_batches(self.data, self.work.batch_size, self.work.epochs, Key(0, 1))
        predict, criterion = self.work.model, losses.cross_entropy if self.work.classes else losses.mse
        self.loss = lambda params, batch: criterion(predict(params, batch[0]).to(batch[2].dtype), *batch[1:])

    def ways(self) -> dict[str, Callable[..., Tensor]]:
        """The losses (C,) of a stack, by name; fedlib as it is first."""
        own, convolution = stacked.vmap(self.loss), F.conv2d
        ways = {"fedlib": own, "torch.vmap": torch.vmap(self.loss)}
        if any(p.ndim == 4 for p in self.start.values()):
            for name, kernel in convolution_kernels().items():
                forced = functools.partial(mock.patch.dict, stacked._KERNELS, {convolution: (kernel, 4)})
                ways[name] = _inside(forced, own)
        return ways

    def round(self) -> Params:
        """Local training by the library, and the server's mean."""
        start, sgd = broadcast(self.start, len(self.data)), functools.partial(torch.optim.SGD, lr=self.work.lr)
        return {n: p.mean(0) for n, p in local_update(self.loss, start, self.batches, sgd).params.items()}

    def rounds(self) -> dict[str, Run]:
        """A round by the library, by plain vmap, and by loops over at most ten clients."""
        few, dtype = min(LOOPED, len(self.data)), next(iter(self.start.values())).dtype
        with tempfile.TemporaryDirectory() as folder:
            replace(self.work, clients=few, cohort=few).write(Path(folder))
            job = load(folder, str(dtype).removeprefix("torch."))
        server, model = Net(job).to(self.device), Net(job).to(self.device)
        x, y = torch.from_numpy(job.x).to(self.device), torch.from_numpy(job.y).to(self.device)
        start = [p.detach().clone() for p in model.parameters()]
        return {
            "fedlib": self.round,
            "torch.vmap": _inside(_plain_vmap, self.round),
            "naive loop": lambda: naive_loop.one_round(job, server, 0),
            "tuned loop": lambda: dict(zip(job.start, tuned_loop.one_round(job, model, x, y, start, 0), strict=True)),
        }


class Step:
    """One step of a chunk of clients, as many as the library would take at once: forward, backward, SGD in place."""

    def __init__(self, clients: Clients):
        _release(clients.device)  # what torch holds in store counts as taken
        work, data, self.device, self.lr = clients.work, clients.data, clients.device, clients.work.lr
        self.chunk = min(len(data), clients_at_once(broadcast(clients.start, 1), data, work.batch_size))
        some = clients.batches[torch.arange(self.chunk)]
        self.batch = next(some.iterate(torch.float32))
        self.params = {n: p.expand(self.chunk, *p.shape).clone().requires_grad_() for n, p in clients.start.items()}
        self.times = len(data) / self.chunk  # steps of chunks in a step of all clients
        self.flops = replace(work, cohort=self.chunk, rows=some.size, epochs=1).flops()

    def run(self, way: Callable[..., Tensor]) -> None:
        parameters = list(self.params.values())
        gradients = torch.autograd.grad(way(self.params, self.batch).sum(), parameters)
        with torch.no_grad():
            for p, gradient in zip(parameters, gradients, strict=True):
                p.add_(gradient, alpha=-self.lr)

    def bound(self, way: Callable[..., Tensor], name: str) -> Run:
        """The step by a way, in a precision."""
        return _inside(functools.partial(precision, name, self.device), functools.partial(self.run, way))

    def row(self, measured: Row) -> Row:
        """A chunk's seconds as those of all clients."""
        seconds = measured.get("seconds", math.nan)
        more = {"seconds": seconds * self.times, "flops_per_s": self.flops / seconds} if seconds > 0 else {}
        return measured | more | {"chunk": self.chunk}


# ---- the parts ----


def card(device: torch.device) -> Iterator[Row]:
    """The device, and the rate of a big product in each precision."""
    cuda, matmul, cudnn = device.type == "cuda", torch.backends.cuda.matmul, torch.backends.cudnn
    if cuda:
        about = torch.cuda.get_device_properties(device)
        query = "nvidia-smi --query-gpu=driver_version --format=csv,noheader || true"
        driver = subprocess.run(query, shell=True, capture_output=True, text=True).stdout.partition("\n")[0]
        facts = {"machine": about.name, "memory_mib": about.total_memory // 2**20, "driver": driver}
        facts |= {"cuda": torch.version.cuda, "cudnn": cudnn.version()}
        yield {"facts": facts | {"tf32_by_default": [matmul.allow_tf32, cudnn.allow_tf32]}}
    else:
        yield {"note": "TF32, CUDA graphs and Inductor not run: need CUDA"}
    side = _SIDE if cuda else 256
    for name in precisions(device):
        a, b = torch.randn(2, side, side, device=device, dtype=torch.bfloat16 if name == "bfloat16" else torch.float32)
        with precision(name if name == "TF32" else "float32", device):
            row = timed({name: lambda: a @ b}, device)[name]
        yield {"precision": name, "flops_per_s": 2 * side**3 / row["seconds"], **row}


def round_(device: torch.device, name: str, number: int) -> Iterator[Row]:
    """Rounds as people would run them: local training of all clients and the mean, in PyTorch's default precision."""
    for way, row in timed(Clients(name, number, device).rounds(), device).items():
        longer = max(1.0, number / LOOPED) if way.endswith("loop") else 1.0
        yield {"way": way} | row | {key: row[key] * longer for key in ("seconds", "ratio") if key in row}


def step(device: torch.device, name: str, number: int) -> Iterator[Row]:
    """One step by each way in each precision, then as a CUDA graph by the fastest way of each precision."""
    clients = Clients(name, number, device)
    one, ways = Step(clients), clients.ways()
    reference, fastest = {"reference": one.bound(ways["fedlib"], "float32")}, dict[str, str]()
    for rounding in precisions(device):
        rows = timed(reference | {way: one.bound(run, rounding) for way, run in ways.items()}, device)
        del rows["reference"]
        for way, row in rows.items():
            yield {"way": way, "precision": rounding, "graph": False, **one.row(row)}
        if seconds := {way: row["seconds"] for way, row in rows.items() if "seconds" in row}:
            fastest[rounding] = min(seconds, key=lambda way: seconds[way])
            ways = {way: ways[way] for way in seconds if seconds[way] < _SLOW * min(seconds.values())}
    for rounding, way in fastest.items() if device.type == "cuda" else ():
        _release(device)
        try:
            run = {"graph": graph(one.bound(ways[way], rounding))}
            row = one.row(timed(reference | run, device)["graph"]) | {"peak_mib": None}  # a replay takes none
        except Exception as error:
            row = {"note": reason(error)}
        run = {}  # its memory is given back
        yield {"way": way, "precision": rounding, "graph": True, **row}


def kernels(device: torch.device, name: str, number: int) -> Iterator[Row]:
    """Forward and backward of each convolution of a network, alone, by each kernel."""
    model, sides = WORKS[name].model, WORKS[name].shape[1:]
    settings = (1, getattr(model, "padding", 0), 1, 1)
    for layer, shape in [(n.partition(".")[0], s) for n, s in model.shapes().items() if len(s) == 4]:
        x = torch.randn(number, WORKS[name].batch_size, shape[1], *sides, device=device)
        weight = torch.randn(number, *shape, device=device).div_(math.sqrt(math.prod(shape[1:]))).requires_grad_()
        bias = torch.randn(number, shape[0], device=device).requires_grad_()
        inputs = [weight, bias] if layer == "conv1" else [x.requires_grad_(), weight, bias]
        sides = tuple(s + 2 * settings[1] - k + 1 for s, k in zip(sides, shape[2:], strict=True))
        direction = torch.randn(number, len(x[0]), shape[0], *sides, device=device)
        sides = tuple(s // getattr(model, "pool", 1) for s in sides)

        def run(kernel: Kernel) -> list[Tensor]:
            z = kernel(x, weight, bias, *settings)
            return [z.detach(), *torch.autograd.grad(z, inputs, direction)]

        for rounding in precisions(device)[:-1]:
            with precision(rounding, device):
                rows = timed({way: functools.partial(run, k) for way, k in convolution_kernels().items()}, device)
                for way, row in rows.items():
                    if "seconds" in row:
                        row["difference"] = _apart(run, convolution_kernels()[way])
                    yield {"layer": layer, "shape": [*x.shape[1:], *shape], "way": way, "precision": rounding, **row}


def _apart(run: Callable[[Kernel], list[Tensor]], kernel: Kernel) -> float | None:
    """Largest distance of output and gradients from those of a loop over clients, over the largest of these."""
    try:
        return max(
            float((a - b).abs().max() / b.abs().max())
            for a, b in zip(run(kernel), run(convolution_kernels()["one by one"]), strict=True)
        )
    except torch.OutOfMemoryError:
        return None


def accuracy(device: torch.device, name: str, number: int) -> Iterator[Row]:
    """How far a round in each precision ends from one in float64, beside the largest change of a parameter."""
    exact, clients = Clients(name, number, device, torch.float64), Clients(name, number, device)
    right = exact.round()
    moved = max(float((right[n] - p).abs().max()) for n, p in exact.start.items())
    for rounding in precisions(device):
        with precision(rounding, device):
            found = clients.round()
        difference = max(float((found[n] - p).abs().max()) for n, p in right.items())
        yield {"precision": rounding, "difference": difference, "of_update": difference / moved}


def compile_(device: torch.device, name: str, number: int, way: str, mode: str) -> Iterator[Row]:
    """A step whose losses, and so their gradients, went through `torch.compile`, beside the library as it is."""
    if device.type == "cpu" and mode == "reduce-overhead":
        yield {"note": "not run: needs CUDA"}
        return
    from torch._dynamo import mark_static_address
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    clients = Clients(name, number, device)
    step, ways = Step(clients), clients.ways()
    how: Row = {"mode": mode} if device.type == "cuda" else {"backend": "aot_eager"}  # on a CPU: whether it is taken
    losses_of = torch.compile(ways[way], dynamic=False, **how)
    for p in step.params.values():
        mark_static_address(p)  # "reduce-overhead" need not copy them

    def run() -> None:
        torch.compiler.cudagraph_mark_step_begin()
        step.run(losses_of)

    with precision("float32", device), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of graph breaks: they are in the row
        first = _seconds(run, 1, device)
        row = timed({"fedlib": functools.partial(step.run, ways["fedlib"]), "compiled": run}, device)["compiled"]
    breaks, skips = counters["graph_break"], counters["inductor"]["cudagraph_skips"]
    why = {"note": "graph break: " + next(iter(breaks)).strip().partition("\n")[0]} if breaks else {}
    yield (
        why
        | step.row(row)
        | {"precision": "float32", "first_s": first, "breaks": breaks.total(), "graphs_skipped": skips}
    )


PARTS: dict[str, Callable[..., Iterator[Row]]] = {
    part.__name__.strip("_"): part for part in (card, round_, step, kernels, accuracy, compile_)
}


def serve(connection: Connection, name: str) -> None:
    """The process: takes cells ``(part, *arguments)``, sends the rows of each, and None after them."""
    device = torch.device(name)
    if device.type == "cpu":
        torch.set_num_threads(1)
    torch.zeros(1, device=device)
    connection.send(None)
    while (cell := connection.recv()) is not None:
        part, *arguments = cell
        try:
            for row in PARTS[part](device, *arguments):
                connection.send(row)
                if "CUDA error" in row.get("note", ""):  # after one of these, nothing works in this process
                    return
        except Exception as error:
            connection.send({"note": reason(error)})
            if "CUDA error" in str(error):
                return
        connection.send(None)
