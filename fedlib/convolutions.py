"""The convolution of a stack of clients, in the way that is fastest on the machine at hand.

Which way that is depends on the processor, on the shapes, and on whether outputs or gradients are asked for: a way that
wins on one processor takes twice the time of another way on the next. So each way is timed once in a process, for each
shape that is large enough to matter (chapter 13). The environment variable ``FEDLIB_CONVOLUTIONS`` names one of `WAYS`
to be taken always, without timing; then two runs on one machine are equal to the last bit.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["WAYS", "as_channels", "as_clients", "conv2d", "grouped_conv2d", "laid_out"]

Product = Literal["outputs", "inputs", "weights"]  # the outputs, or the gradient of one of the others
Found = tuple[Tensor, ...]  # one tensor; with the weights' gradient that of the biases

_FIXED = os.environ.get("FEDLIB_CONVOLUTIONS")
_LARGE = 2**27  # multiplications, about, from which the way matters
_CLIENTS, _ROWS, _TIMES = 8, 8, 3  # at most, on which ways are timed: each does C B times the work of one image
_CLEARLY = 0.8  # of the usual way's time, for another to be taken
_fastest: dict[Any, str] = {}


class _Conv(NamedTuple):
    """A convolution of C clients, whose channels lie side by side in x (B, C I, H, W) and g (B, C O, h, w)."""

    clients: int
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int  # of one client
    way: str | None  # None: the fastest

    def product(self, what: Product, x: Tensor, w: Tensor, b: Tensor | None, g: Tensor | None, clients: int) -> Found:
        """By torch's own kernels, for some of the clients; `g` is the gradient of the outputs."""
        spans, groups = (self.stride, self.padding, self.dilation), clients * self.groups
        if len(x) == groups == 1:  # torch's own kernels may take it, also of 32-bit numbers
            x, w, g = (None if t is None else t.contiguous() for t in (x, w, g))  # type: ignore[assignment]
        if what == "outputs":
            return (F.conv2d(x, w, b, *spans, groups),)
        wanted = [what == "inputs", what == "weights", what == "weights"]
        of_x, *of_both = torch.ops.aten.convolution_backward(g, x, w, [len(w)], *spans, False, [0, 0], groups, wanted)
        return (of_x,) if what == "inputs" else tuple(of_both)


def _grouped(layout: torch.memory_format) -> Callable[..., Found]:
    """One convolution with C times the groups."""

    def way(conv: _Conv, what: Product, x: Tensor, w: Tensor, b: Tensor | None, g: Tensor | None) -> Found:
        x, g = (None if t is None else t.contiguous(memory_format=layout) for t in (x, g))  # type: ignore[assignment]
        return conv.product(what, x, w, b, g, conv.clients)

    return way


def _one_by_one(layout: torch.memory_format) -> Callable[..., Found]:
    """One client after another."""

    def way(conv: _Conv, what: Product, x: Tensor, w: Tensor, b: Tensor | None, g: Tensor | None) -> Found:
        def parts(t: Tensor | None, axis: int) -> Any:
            if t is None:
                return [None] * conv.clients
            each = t.chunk(conv.clients, axis)
            return [part.contiguous(memory_format=layout) for part in each] if t.ndim == 4 and axis else each

        each = zip(parts(x, 1), parts(w, 0), parts(b, 0), parts(g, 1), strict=True)
        found = zip(*(conv.product(what, *one, 1) for one in each), strict=True)
        return tuple(torch.cat(of_each, 0 if what == "weights" else 1) for of_each in found)

    return way


def _products(conv: _Conv, what: Product, x: Tensor, w: Tensor, b: Tensor | None, g: Tensor | None) -> Found:
    """Patches of the images as columns of matrices (unfold), and one batched matrix product."""
    spans = {"padding": conv.padding, "dilation": conv.dilation, "stride": conv.stride, "kernel_size": w.shape[2:]}
    rows, clients, weights = len(x), conv.clients, w.unflatten(0, (conv.clients, -1)).flatten(2)  # (C, O, I k k)

    def by_client(t: Tensor) -> Tensor:  # (B, C, n, positions) as (C, n, B positions)
        return t.permute(1, 2, 0, 3).flatten(2)

    def by_row(t: Tensor) -> Tensor:
        return t.unflatten(2, (rows, -1)).permute(2, 0, 1, 3)

    if what == "inputs":
        columns = by_row(weights.mT @ by_client(g.unflatten(1, (clients, -1)).flatten(3)))  # type: ignore[union-attr]
        return (F.fold(columns.reshape(1, -1, columns.shape[3]), x.shape[2:], **spans).view(x.shape),)
    columns = F.unfold(x.reshape(1, -1, *x.shape[2:]), **spans)  # one image of B C I channels: one kernel on a GPU
    columns = columns.view(rows, clients, -1, columns.shape[2])
    if what == "weights":
        pull = by_client(g.unflatten(1, (clients, -1)).flatten(3))  # type: ignore[union-attr]
        return (pull @ by_client(columns).mT).view_as(w), pull.sum(2).flatten()
    height = (x.shape[2] + 2 * conv.padding[0] - conv.dilation[0] * (w.shape[2] - 1) - 1) // conv.stride[0] + 1
    out = by_row(weights @ by_client(columns)).flatten(1, 2).unflatten(2, (height, -1))
    return (out if b is None else out + b[:, None, None],)


WAYS: dict[str, Callable[..., Found]] = {
    "grouped": _grouped(torch.contiguous_format),
    "grouped, channels last": _grouped(torch.channels_last),
    "one by one": _one_by_one(torch.contiguous_format),
    "one by one, channels last": _one_by_one(torch.channels_last),
    "products": _products,
}  #: Names that ``FEDLIB_CONVOLUTIONS`` may have.
if _FIXED and _FIXED not in WAYS:
    raise ValueError(f"FEDLIB_CONVOLUTIONS is {_FIXED!r}; it must be one of {', '.join(map(repr, WAYS))}, or unset")


def _product(conv: _Conv, what: Product, x: Tensor, w: Tensor, b: Tensor | None, g: Tensor | None) -> Found:
    """A product in the fastest way, in the layout of this device."""
    usual = "grouped, channels last" if _layout(x) == torch.channels_last else "grouped"
    name = conv.way or usual
    if not conv.way and len(x) * x[0, 0].numel() * w.numel() >= _LARGE:
        shapes = x.shape[2:], w.shape[0] // conv.clients, w.shape[1:]
        key = what, *shapes, min(conv.clients, _CLIENTS), conv[1:-1], x.dtype, x.device, torch.get_num_threads()
        if key not in _fastest:
            _fastest[key] = _measure(conv, what, x.detach(), w.detach(), None if g is None else g.detach(), usual)
        name = _fastest[key]
    way = WAYS[name if name != "products" or conv.groups == 1 else usual]
    first, *biases = way(conv, what, x, w, b, g)
    return first if what == "weights" else first.contiguous(memory_format=_layout(x)), *biases


def _measure(conv: _Conv, what: Product, x: Tensor, w: Tensor, g: Tensor | None, usual: str) -> str:
    """The fastest way for some of the clients and rows."""
    some, layout = min(conv.clients, _CLIENTS), _layout(x)

    def share(t: Tensor) -> Tensor:
        return t[:_ROWS].unflatten(1, (conv.clients, -1))[:, :some].flatten(1, 2).contiguous(memory_format=layout)

    few, w = conv._replace(clients=some), w[: len(w) // conv.clients * some]
    x, g = share(x), None if g is None else share(g)

    def seconds(name: str) -> float:
        _wait(x.device)
        start = time.perf_counter()
        WAYS[name](few, what, x, w, None, g)[0].contiguous(memory_format=layout)
        _wait(x.device)
        return time.perf_counter() - start

    names = [name for name in WAYS if name != "products" or (x.is_cuda and conv.groups == 1)]
    with torch.no_grad():
        best = {name: seconds(name) for name in (usual, *names)}  # the first time may fetch memory or compile
        best = {name: min(best[name], seconds(name)) for name in names}
        for _ in range(_TIMES):
            close = [name for name in names if best[name] < 2 * best[usual]]
            best |= {name: min(best[name], seconds(name)) for name in close}
    fastest = min(best, key=best.__getitem__)
    return fastest if best[fastest] < _CLEARLY * best[usual] else usual


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _layout(t: Tensor) -> torch.memory_format:
    """Of the images between two layers: channels_last where oneDNN convolves them.

    Torch's own kernels (64-bit numbers, oneDNN switched off) are for contiguous tensors: of channels_last filters their
    grouped backward pass gives wrong gradients, or none, where a batch holds one image.
    """
    onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    return torch.channels_last if onednn and not t.is_cuda and t.dtype != torch.float64 else torch.contiguous_format


class _Conv2d(torch.autograd.Function):
    """The convolution, each of whose three products goes its own way."""

    @staticmethod
    def forward(ctx, conv, x, w, b):
        ctx.conv = conv
        ctx.save_for_backward(x, w)
        return _product(conv, "outputs", x, w, b, None)[0]

    @staticmethod
    def backward(ctx, g):
        (x, w), (_, of_x, of_w, of_b) = ctx.saved_tensors, ctx.needs_input_grad
        g = g.contiguous(memory_format=_layout(g))
        tensors = x.to(g.dtype), w.to(g.dtype), None, g  # under autocast it may have 16 bits where the others have more
        inputs = _product(ctx.conv, "inputs", *tensors)[0].to(x.dtype) if of_x else None
        if not (of_w or of_b):
            return None, inputs, None, None
        weights, biases = _product(ctx.conv, "weights", *tensors)
        return None, inputs, weights.to(w.dtype), biases if of_b else None


def grouped_conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """As `conv2d`, in the usual way and in public operations of torch alone."""
    w, b = weight.flatten(0, 1), None if bias is None else bias.flatten()
    return as_clients(F.conv2d(as_channels(x), w, b, stride, padding, dilation, len(x) * groups), len(x))


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    way: str | None = None,
) -> Tensor:
    """`torch.nn.functional.conv2d` for a stack of clients.

    Parameters
    ----------
    x : Tensor of shape (C, B, I, H, W)
    weight : Tensor of shape (C, O, I / groups, k, l)
    bias : Tensor of shape (C, O), optional
    stride, padding, dilation, groups
        As torch has them.
    way : str, optional
        One of `WAYS`; the fastest by default, unless ``FEDLIB_CONVOLUTIONS`` names one.

    Returns
    -------
    Tensor of shape (C, B, O, h, w)
    """
    if isinstance(padding, str):  # "same" or "valid"
        return grouped_conv2d(x, weight, bias, stride, padding, dilation, groups)
    conv = _Conv(len(x), _pair(stride), _pair(padding), _pair(dilation), groups, way or _FIXED)
    z = _Conv2d.apply(conv, as_channels(x), weight.flatten(0, 1), None if bias is None else bias.flatten())
    return as_clients(z, len(x))


def _pair(n: Any) -> tuple[int, int]:
    return (n[0], n[-1]) if isinstance(n, Sequence) else (int(n), int(n))


def laid_out(p: Tensor) -> Tensor:
    """The parameters of clients, filters (C, O, I, k, l) in the memory layout in which `conv2d` takes them."""
    if p.ndim == 5 and _layout(p) == torch.channels_last:
        return p.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, p.shape[:2])
    return p


def as_channels(x: Tensor) -> Tensor:
    """(C, B, I, H, W) as (B, C I, H, W), in the layout of its device; for what these kernels give, no copy."""
    return x.transpose(0, 1).flatten(1, 2).contiguous(memory_format=_layout(x))


def as_clients(x: Tensor, clients: int) -> Tensor:
    """(B, C I, H, W) as (C, B, I, H, W)."""
    return x.unflatten(1, (clients, -1)).transpose(0, 1)
