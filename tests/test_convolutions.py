"""Every way to convolve a stack of clients, and the choice among them."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedlib import Key, convolutions, stacked

SHAPES = {  # clients, rows, channels in and out, height, width, kernel, then stride, padding, dilation, groups
    "sides that differ": ((3, 4, 2, 4, 7, 6, (3, 2)), ((1, 2), (1, 0), (1, 1), 2)),
    "dilation": ((5, 2, 3, 4, 8, 8, (3, 3)), (1, 1, 2, 1)),
    "one pixel": ((2, 3, 1, 2, 5, 5, (1, 1)), (1, 0, 1, 1)),
    "depthwise": ((4, 2, 4, 4, 9, 7, (3, 3)), (2, 1, 1, 4)),
    "one client": ((1, 2, 3, 4, 8, 8, (3, 3)), (1, [1], 1, 1)),
    "by name": ((3, 2, 3, 4, 8, 8, (3, 3)), (1, "same", 2, 1)),
}


def draw(name, *shape):
    return Key(0).normal(torch.arange(1), name, torch.Size(shape).numel()).reshape(shape).requires_grad_()


def derivatives(f, *tensors):
    """The values, first and second derivatives of a function of tensors."""
    out = f(*tensors)
    first = torch.autograd.grad(out.square().sum(), tensors, create_graph=True)
    second = torch.autograd.grad(sum(d.square().sum() for d in first), tensors)
    return out, *first, *second


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", [*convolutions.WAYS, None])
def test_a_stack_is_one_client_after_another(way, shape, bias, monkeypatch):
    monkeypatch.setattr(convolutions, "_LARGE", 0)
    (clients, rows, inputs, outputs, height, width, kernel), settings = SHAPES[shape]
    x, w = draw("x", clients, rows, inputs, height, width), draw("w", clients, outputs, inputs // settings[3], *kernel)
    tensors = (x, w, draw("b", clients, outputs)) if bias else (x, w)

    def alone(x, w, *b):
        each = zip(x, w, *b, strict=True)
        return torch.stack([F.conv2d(*one, *([] if b else [None]), *settings) for one in each])

    def together(x, w, *b):
        return convolutions.conv2d(x, w, *(b or [None]), *settings, way)

    for a, b in zip(derivatives(together, *tensors), derivatives(alone, *tensors), strict=True):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=1e-11)


@pytest.fixture
def pace(monkeypatch):
    """How many times each way does its work; what was asked of it."""
    times, calls = dict.fromkeys(convolutions.WAYS, 200), []

    def slowed(name, way):
        def slow(conv, what, *tensors):
            calls.append((name, what, conv.clients))
            for _ in range(times[name]):
                out = way(conv, what, *tensors)
            return out

        return slow

    monkeypatch.setattr(convolutions, "_fastest", {})
    monkeypatch.setattr(convolutions, "_FIXED", None)
    monkeypatch.setattr(convolutions, "_LARGE", 1000)
    monkeypatch.setattr(convolutions, "WAYS", {n: slowed(n, way) for n, way in convolutions.WAYS.items()})
    return times, calls


def convolve(clients, rows=2, side=8):
    x, w = draw("x", clients, rows, 2, side, side), draw("w", clients, 2, 2, 3, 3)
    torch.autograd.grad(convolutions.conv2d(x, w).sum(), (x, w))


@pytest.mark.parametrize("fastest", ["grouped", "one by one, channels last"])
def test_the_fastest_way_is_taken_and_measured_once(fastest, pace):
    times, calls = pace
    times[fastest] = 1
    convolve(clients=3)
    assert set(convolutions._fastest.values()) == {fastest}
    assert {what for _, what, _ in calls} == {"outputs", "inputs", "weights"}
    calls.clear()
    convolve(clients=3)
    assert calls == [(fastest, what, 3) for what in ("outputs", "inputs", "weights")]
    calls.clear()
    convolve(clients=3, rows=5)  # a last batch that is shorter or longer
    assert len(calls) == 3
    convolve(clients=3, side=9)
    assert len(calls) > 6


def test_it_is_measured_on_some_clients(pace):
    times, calls = pace
    times["grouped"] = 1
    convolve(clients=20)
    assert {clients for _, _, clients in calls} == {8, 20}
    assert len([clients for *_, clients in calls if clients == 20]) == 3  # the work itself
    calls.clear()
    convolve(clients=11)
    assert len(calls) == 3


def test_small_ones_are_not_measured(pace):
    _, calls = pace
    convolve(clients=1, rows=1, side=4)
    assert calls == [("grouped", what, 1) for what in ("outputs", "inputs", "weights")]


def test_a_way_must_be_clearly_faster(pace, monkeypatch):
    monkeypatch.setattr(convolutions, "_CLEARLY", 0.0)
    pace[0]["one by one"] = 1
    convolve(clients=3)
    assert set(convolutions._fastest.values()) == {"grouped"}


@pytest.mark.parametrize(("name", "said"), [("one by one", ""), ("unfold", "must be one of 'grouped'")])
def test_the_environment_names_a_way(name, said):
    command = [sys.executable, "-c", "from fedlib import convolutions; print(convolutions._FIXED)"]
    run = subprocess.run(command, env=os.environ | {"FEDLIB_CONVOLUTIONS": name}, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == ((1, "") if said else (0, f"{name}\n"))
    assert said in run.stderr


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
def test_gradients_of_any_shape_in_the_layout_of_training(kind, onednn):
    """Two layers, so that the second sees the images as the first hands them over; often one image a client."""
    random = np.random.RandomState(0)
    for seed in range(200):
        clients, rows, inputs, height, width = (
            random.choice(n) for n in ((1, 2, 3), (1, 1, 2, 17), (1, 3, 4), (1, 5), (1, 4))
        )
        groups, kernel = random.choice([1, inputs]), tuple(random.choice([1, min(3, n)]) for n in (height, width))
        middle, stride, padding = groups * random.choice([1, 2]), random.choice([1, 2]), random.choice([0, 1])
        draws = (
            (rows, inputs, height, width),
            (middle, inputs // groups, *kernel),
            (random.choice([1, 5]), middle, *random.choice([1, 3], 2)),
        )
        x, v, w = (Key(seed).normal(torch.arange(clients), str(i), *map(int, s)).to(kind) for i, s in enumerate(draws))
        v, w = v.requires_grad_(), w.requires_grad_()

        def both(x, v, w):
            return F.conv2d(F.conv2d(x, v, None, stride, padding, 1, groups).tanh(), w, padding=1).square().sum()  # noqa: B023

        with torch.backends.mkldnn.flags(enabled=onednn):
            stack = [convolutions.laid_out(p.detach()).requires_grad_() for p in (v, w)]
            together = torch.autograd.grad(stacked.vmap(both)(x, *stack).sum(), stack)
            alone = torch.autograd.grad(sum(both(*one) for one in zip(x, v, w, strict=True)), (v, w))
        exact = {"atol": 1e-11, "rtol": 1e-9} if kind == torch.float64 else {"atol": 1e-3, "rtol": 1e-3}
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a, b, **exact, msg=lambda said: f"seed {seed}: {draws}: {said}")  # noqa: B023
