"""The benchmark for a GPU: whole on the CPU, its parts, and the lines for a card with a stand-in for one."""

import contextlib
import types

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import gpu, gpu_parts
from benchmarks.driver import Failed
from book import results
from fedlib import stacked

emulated_device = pytest.importorskip("emulated_device", exc_type=ImportError)
CPU, DEVICE = torch.device("cpu"), emulated_device.second_device()
WAYS = ["fedlib", "torch.vmap", *gpu_parts.convolution_kernels()]


def test_the_whole_program_on_the_cpu(tmp_path, capsys):
    gpu.main(f"--device cpu --works W2 W1s --clients 2 --minutes 0.75 --folder {tmp_path}".split())
    (path,) = tmp_path.iterdir()
    record = results.load(path)
    rows = record["figures"]["rows"]
    assert path.name.endswith("_gpu.json") and record["settings"]["clients"] == [2]
    cells = {(cell + (None, None))[:3] for cell in gpu.cells(["W2", "W1s"], [2])}
    assert {tuple(r.get(k) for k in ("part", "work", "clients")) for r in rows} == cells
    for r in rows:
        assert r.get("seconds", 1) > 0 and set(r) & {"seconds", "note", "launches", "difference"}, r
        assert "note" not in r or r["note"].startswith(("graph break", "TF32", "not run", "stopped")), r
    steps = {(r["work"], r["way"], r["precision"]): r for r in rows if r["part"] == "step"}
    ways = {(w, way) for w, way, p in steps if p == "float32"}
    assert ways == {("W2", "fedlib"), ("W2", "torch.vmap"), *(("W1s", way) for way in WAYS)}
    assert {p for _, _, p in steps} == {"float32", "bfloat16"}
    apart = {(r["work"], r["precision"]): r["of_update"] for r in rows if r["part"] == "accuracy"}
    assert all(1e-7 < apart[w, "float32"] < 1e-3 < apart[w, "bfloat16"] < 0.5 for w in ("W1s", "W2"))
    assert all(r["difference"] < 1e-4 for r in rows if r["part"] == "kernels")
    table = gpu.table(path)
    assert list(table.index) == [("W2", 2), ("W1s", 2)]
    assert table[["round, s", *gpu.RIVALS, "float32", "bfloat16", "of rate", "launches"]].gt(0).all(axis=None)
    assert table[["TF32", "CUDA graph", "peak GiB"]].isna().all(axis=None)
    assert list(gpu.kernel_table(path).columns) == sorted(WAYS[2:])
    printed = capsys.readouterr().out
    assert "W2: float32 " in printed and "missed >= 300" in printed and "conv2" in printed


@pytest.mark.parametrize("work", ["W2", "W1s"])
def test_every_round_reaches_the_same_parameters(work):
    clients = gpu_parts.Clients(work, 2, CPU, torch.float64)
    ends = {name: run() for name, run in clients.rounds().items()}
    assert list(ends) == ["fedlib", "torch.vmap", "naive loop", "tuned loop"]
    for name, end in ends.items():
        for key, p in clients.start.items():
            assert abs(end[key] - p).max() > 1e-4, name
            torch.testing.assert_close(end[key], ends["fedlib"][key], atol=1e-12, rtol=0)


def test_loops_are_timed_with_ten_clients(monkeypatch):
    """Past them, their rows come again in an order of their own; and loops run where the model lies."""
    x, y, _ = next(gpu_parts.Clients("W2", 11, CPU).batches.iterate(torch.float32))
    assert not torch.equal(x[0], x[10]) and not torch.equal(y[0], y[10])
    assert torch.equal(y[0].sort().values, y[10].sort().values)
    rounds = gpu_parts.Clients("W2", 2, DEVICE).rounds()
    assert {p.device.type for way in ("naive loop", "tuned loop") for p in rounds[way]().values()} == {DEVICE.type}
    monkeypatch.setattr(gpu_parts, "timed", lambda runs, _: {name: {"seconds": 2.0, "ratio": 3.0} for name in runs})
    rows = {r["way"]: r["seconds"] for r in gpu_parts.round_(CPU, "W2", 30)}
    assert rows == {"fedlib": 2, "torch.vmap": 2, "naive loop": 6, "tuned loop": 6}


def test_a_way_runs_its_kernel(monkeypatch):
    ran = []
    kernel = gpu_parts.convolution_kernels()["one by one"]
    spy = lambda *args: ran.append(len(args[0])) or kernel(*args)  # noqa: E731
    monkeypatch.setattr(gpu_parts, "convolution_kernels", lambda: {"spy": spy})
    clients, before = gpu_parts.Clients("W1s", 3, CPU), dict(stacked._KERNELS)
    one, ways = gpu_parts.Step(clients), clients.ways()
    value = {way: run(one.params, one.batch).detach() for way, run in ways.items()}
    assert ran == [3, 3] and before == stacked._KERNELS and list(value) == ["fedlib", "torch.vmap", "spy"]
    torch.testing.assert_close(value["spy"], value["fedlib"])
    torch.testing.assert_close(value["torch.vmap"], value["fedlib"])


def test_a_step_of_a_chunk_stands_for_all_clients(monkeypatch):
    monkeypatch.setattr(gpu_parts, "clients_at_once", lambda *_: 2)
    clients = gpu_parts.Clients("W2", 5, CPU)
    one = gpu_parts.Step(clients)
    before = {n: p.detach().clone() for n, p in one.params.items()}
    one.run(clients.ways()["fedlib"])
    for k in range(2):
        params = {n: p[k].requires_grad_() for n, p in before.items()}
        value = clients.loss(params, [part[k] for part in one.batch])
        for (n, p), g in zip(params.items(), torch.autograd.grad(value, list(params.values())), strict=True):
            torch.testing.assert_close(one.params[n][k], p - 0.01 * g)
    row, products = one.row({"seconds": 4.0}), 13 * 64 + 64 * 32 + 32 * 16 + 16
    assert row["seconds"] == 10 and row["chunk"] == 2
    assert row["flops_per_s"] == 2 * 2 * 20 * (3 * products - 13 * 64) / 4
    assert one.row({"note": "out of memory"}) == {"note": "out of memory", "chunk": 2}


def full():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")


def test_what_fails_is_a_note_and_the_rest_is_timed():
    rows = gpu_parts.timed({"first": lambda: None, "full": full, "wrong": lambda: [][0]}, CPU)
    assert rows["full"] == {"note": "out of memory"} and rows["first"]["ratio"] == 1
    assert rows["wrong"] == {"note": "IndexError: list index out of range"}
    rows = gpu_parts.timed({"full": full, "second": lambda: None}, CPU)
    assert "seconds" in rows["second"] and "ratio" not in rows["second"]


class Scripted:
    """In place of the measuring process: yields, then fails as it is told."""

    closed = 0

    def rows(self, cell, seconds):
        yield {"seconds": 1.0, "difference": float("nan")}
        if cell in (ends := {("b",): TimeoutError(), ("c",): EOFError()}):
            raise ends[cell]

    def close(self):
        Scripted.closed += 1


def test_a_process_that_hangs_or_dies_is_replaced_and_its_rows_are_kept(monkeypatch):
    monkeypatch.setattr(Scripted, "closed", 0)
    rows = gpu.measure([("a",), ("b",), ("c",), ("d",)], 100, Scripted)
    ended = [("b", "stopped after 45 s"), ("c", "the process ended")]
    assert [(r["part"], r.get("note", "")) for r in rows] == sorted([*((part, "") for part in "abcd"), *ended])
    assert rows[0]["difference"] is None and Scripted.closed == 3
    late = {"part": "step", "work": "W2", "clients": 10, "note": "not run: time"}
    assert gpu.measure([("step", "W2", 10)], 1, Scripted) == [late]


def test_the_measuring_process():
    with pytest.raises(Failed, match="does not start on 'nonsense'"):
        gpu.Worker("nonsense")
    with contextlib.closing(gpu.Worker("cpu")) as worker:
        assert list(worker.rows(("step", "W9", 2), 60)) == [{"note": "KeyError: 'W9'"}]
        assert [r["precision"] for r in list(worker.rows(("card",), 60))[1:]] == ["float32", "bfloat16"]
        with pytest.raises(TimeoutError):
            list(worker.rows(("card",), 0))


def test_where_time_ended_early_the_table_has_what_was_measured():
    rows = gpu.measure(gpu.cells(["W1"], [10]), 0, lambda: None)
    assert {r["note"] for r in rows} == {"not run: time"}
    assert gpu.table(rows).empty and gpu.kernel_table(rows).empty and gpu.verdicts(rows) == ["W1: "]
    at = {"work": "W1", "clients": 10, "part": "round"}
    ratios = {"fedlib": 1.0, "tuned loop": 2.0}
    rows = [{**at, "way": way, "seconds": 3.0 * ratio, "ratio": ratio} for way, ratio in ratios.items()]
    assert dict(gpu.table(rows).loc[("W1", 10)].dropna()) == {"round, s": 3.0, "tuned loop": 2.0}


def test_the_table_and_verdicts_by_hand():
    at = {"work": "W1", "clients": 10}
    step = {**at, "part": "step", "graph": False, "precision": "float32", "way": "fedlib", "flops_per_s": 1e9}
    grouped = {**step, "way": "grouped", "precision": "TF32", "graph": True, "flops_per_s": 4e9}
    compiled = {**at, "part": "compile", "mode": "default", "precision": "float32", "seconds": 1.0}
    rows = [
        {"part": "card", "precision": "TF32", "flops_per_s": 8e9, "seconds": 1.0},
        {**at, "part": "round", "way": "fedlib", "seconds": 3.0, "ratio": 1.0},
        {**at, "part": "round", "way": "tuned loop", "seconds": 75.0, "ratio": 25.0},
        {**step, "seconds": 4.0, "ratio": 1.0, "peak_mib": 2048.0},
        {**step, "way": "one by one", "note": "out of memory"},
        {**step, "way": "products", "precision": "TF32", "seconds": 2.0, "ratio": 0.5},
        {**grouped, "seconds": 1.0, "ratio": 0.25},
        {**compiled, "way": "fedlib", "ratio": 0.1, "breaks": 1},
        {**compiled, "way": "torch.vmap", "seconds": 3.0, "ratio": 0.8, "breaks": 0},
        {**at, "part": "accuracy", "precision": "TF32", "of_update": 0.002},
        {**at, "part": "launches", "way": "fedlib", "launches": 90.0},
    ]
    line = gpu.table(rows).loc[("W1", 10)].dropna().to_dict()
    ratios = {"round, s": 3, "tuned loop": 25, "float32": 1, "TF32": 2, "CUDA graph": 4, "torch.compile": 1.25}
    assert line == ratios | {"of rate": 0.5, "peak GiB": 2, "launches": 90}
    assert gpu.verdicts(rows) == [
        "W1: float32 1x by fedlib (10 clients); TF32 2x by products (10 clients); CUDA graph 4x by grouped, TF32 "
        "(10 clients); torch.compile 1.25x by torch.vmap, default (10 clients); TF32 ends 0.002 of the update from "
        "float64; the tuned loop takes 25x fedlib's round (met >= 20)"
    ]


# ---- what a card would do ----


class Card(str):
    """A device that says it is CUDA, and whose tensors lie on the CPU."""

    type = "cuda"


@pytest.fixture
def card(monkeypatch):
    """The lines for CUDA run, on the CPU; gives what was asked of CUDA."""
    asked = []
    note = lambda name, out=None: lambda *_, **__: asked.append(name) or out  # noqa: E731
    stream = types.SimpleNamespace(wait_stream=note("wait_stream"))
    stand_ins = {name: note(name) for name in ("synchronize", "empty_cache", "reset_peak_memory_stats")}
    stand_ins |= {
        "max_memory_allocated": lambda: 3 * 2**20,
        "get_device_properties": lambda _: types.SimpleNamespace(name="A Card", total_memory=2**34),
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": note("warm up", contextlib.nullcontext()),
        "CUDAGraph": lambda: types.SimpleNamespace(replay=note("replay")),
        "graph": note("capture", contextlib.nullcontext()),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    for name, small in {"_SIDE": 64, "_SAMPLE": 0, "_TURNS": 2}.items():
        monkeypatch.setattr(gpu_parts, name, small)
    real = torch.autocast
    monkeypatch.setattr(torch, "autocast", lambda device, *args, **more: real("cpu", *args, **more))
    return asked


def test_the_lines_for_a_card(card):
    device = Card("cpu")
    facts, *rates = gpu_parts.card(device)
    assert facts["facts"]["machine"] == "A Card" and [r["precision"] for r in rates] == [*gpu_parts.PRECISIONS]
    assert all(r["turns"] == 2 and r["peak_mib"] == 3 for r in rates)
    assert "CUDA" in next(gpu_parts.card(CPU))["note"]
    rows = list(gpu_parts.step(device, "W2", 2))
    assert not [r for r in rows if "note" in r]
    graphs = [r for r in rows if r["graph"]]
    assert [r["precision"] for r in graphs] == [*gpu_parts.PRECISIONS] and all(r["ratio"] < 1 for r in graphs)
    asked = [a for a in card if a in ("wait_stream", "warm up", "capture", "replay")]
    assert asked[:8] == ["wait_stream", "warm up", "wait_stream", "capture", *["replay"] * 4]
    assert {r["precision"] for r in gpu_parts.kernels(device, "W1s", 2)} == {"float32", "TF32"}
    assert len(list(gpu_parts.accuracy(device, "W2", 2))) == 3 and len(list(gpu_parts.round_(device, "W2", 2))) == 4


def test_precisions_are_put_back(card):
    seen, wanted = {}, {"float32": (False, torch.float32), "TF32": (True, torch.float32)}
    wanted["bfloat16"] = (False, torch.bfloat16)
    flags = lambda: {torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32}  # noqa: E731
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    for name in ("bfloat16", "float32", "TF32"):
        with gpu_parts.precision(name, Card("cpu")):
            seen[name] = *flags(), (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
    assert seen == wanted and before == (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)


class NothingLeaves(TorchDispatchMode):
    """Refuses what no CUDA graph can hold: a number that Python waits for, or a copy from or to the CPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        assert not name.startswith(("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select")), name
        out = func(*args, **(kwargs or {}))
        tensors = [t for t in (out, *args) if isinstance(t, torch.Tensor) and t.ndim]
        assert len({t.device.type for t in tensors}) <= 1, name
        return out


@pytest.mark.parametrize("work", ["W2", "W1s"])
def test_a_step_asks_the_card_for_nothing_that_a_graph_cannot_hold(work):
    clients = gpu_parts.Clients(work, 2, DEVICE)
    one = gpu_parts.Step(clients)
    for way, run in clients.ways().items():
        before = one.params["dense1.weight"].detach().cpu().clone()
        with NothingLeaves():
            one.run(run)
        assert not torch.equal(one.params["dense1.weight"].detach().cpu(), before), way
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NothingLeaves():
        float(one.batch[0].sum())
