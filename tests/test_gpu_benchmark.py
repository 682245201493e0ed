"""The benchmark for a GPU: whole on the CPU, what fails in it, and its table by hand."""

import pytest
import torch

from benchmarks import gpu, gpu_parts
from book import results

CPU = torch.device("cpu")
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
        assert r.get("seconds", 1) > 0 and set(r) & {"seconds", "note", "difference"}, r
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
    assert table[["round, s", *gpu.RIVALS, "float32", "bfloat16", "of rate"]].gt(0).all(axis=None)
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
    ]
    line = gpu.table(rows).loc[("W1", 10)].dropna().to_dict()
    ratios = {"round, s": 3, "tuned loop": 25, "float32": 1, "TF32": 2, "CUDA graph": 4, "torch.compile": 1.25}
    assert line == ratios | {"of rate": 0.5, "peak GiB": 2}
    assert gpu.verdicts(rows) == [
        "W1: float32 1x by fedlib (10 clients); TF32 2x by products (10 clients); CUDA graph 4x by grouped, TF32 "
        "(10 clients); torch.compile 1.25x by torch.vmap, default (10 clients); TF32 ends 0.002 of the update from "
        "float64; the tuned loop takes 25x fedlib's round (met >= 20)"
    ]
