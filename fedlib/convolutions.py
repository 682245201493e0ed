"""The convolution of a stack of C clients, computed as one convolution with C times as many groups.

Clients become channels, in the memory layout that the device convolves fastest. There is one exception. On a processor
without AVX-512, the gradient of filters with few input channels is computed for one client after another, because
torch's grouped convolution is several times slower (chapter 16). The choice follows from the shapes, so two runs on one
machine with the same number of threads are equal to the last bit.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["WAYS", "as_channels", "as_clients", "conv2d", "laid_out"]

WAYS = "grouped", "one by one"  #: How a product may be computed.

Product = Literal["outputs", "inputs", "weights"]  # the outputs, or the gradient of one of the others
Found = tuple[Tensor, ...]  # one tensor, or the gradients of the weights and the biases

_FEW = range(2, 6)  # input channels of a filter
_LARGE = 2**23  # approximate multiplications per client from which the cost of a separate call is negligible


class _Conv(NamedTuple):
    """A convolution of C clients, whose channels are concatenated in x (B, C I, H, W) and g (B, C O, h, w)."""

    clients: int
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int  # of one client
    way: str | None

    def product(self, what: Product, x: Tensor, w: Tensor, b: Tensor | None, g: Tensor | None) -> Found:
        """Compute a product in the way that suits its shapes and the device; `g` is the gradient of the outputs."""
        large = what == "weights" and g is not None and g[:, 0].numel() * w[0].numel() * len(w) >= _LARGE * self.clients
        slow = large and w.shape[1] in _FEW and not x.is_cuda and torch.backends.cpu.get_cpu_capability() != "AVX512"
        if (self.way or WAYS[slow]) == "grouped":
            found = self.computed(what, x, w, b, g, self.clients)
        else:
            parts = [t if t is None else t.chunk(self.clients, axis) for t, axis in ((x, 1), (w, 0), (b, 0), (g, 1))]
            each = zip(*([None] * self.clients if part is None else part for part in parts), strict=True)
            each_found = zip(*(self.computed(what, *one, 1) for one in each), strict=True)  # type: ignore
            found = tuple(torch.cat(part, 0 if what == "weights" else 1) for part in each_found)
        return found if what == "weights" else (_arranged(found[0], _layout(x)),)

    def computed(self, what: Product, x: Tensor, w: Tensor, b: Tensor | None, g: Tensor | None, clients: int) -> Found:
        """Compute a product for `clients` clients with torch's convolution."""
        spans, groups = (self.stride, self.padding, self.dilation), clients * self.groups
        # With one image and one group, torch may use its own kernels even for 32-bit numbers.
        layout = torch.contiguous_format if len(x) == groups == 1 else _layout(x)
        x, g = (t if t is None else _arranged(t, layout) for t in (x, g))  # type: ignore[assignment]
        w = w.contiguous() if layout == torch.contiguous_format else w
        if what == "outputs":
            return (F.conv2d(x, w, b, *spans, groups),)
        wanted = [what == "inputs", what == "weights", what == "weights"]
        of_x, *of_both = torch.ops.aten.convolution_backward(g, x, w, [len(w)], *spans, False, [0, 0], groups, wanted)
        return (of_x,) if what == "inputs" else tuple(of_both)


def _layout(t: Tensor) -> torch.memory_format:
    """Memory layout of the images between two layers, which is channels_last if oneDNN convolves them.

    Torch's own kernels (for 64-bit numbers, or with oneDNN switched off) expect contiguous tensors. With channels_last
    filters and a batch of one image, their grouped backward pass gives wrong gradients or none.
    """
    onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    return torch.channels_last if onednn and not t.is_cuda and t.dtype != torch.float64 else torch.contiguous_format


def _arranged(t: Tensor, layout: torch.memory_format) -> Tensor:
    """Images in a layout, with the strides that belong to it also along axes of length 1.

    Torch tells layouts apart by strides and leaves those of such axes open. With one image it may then take one layout
    for the other, and its grouped gradient of the weights is wrong.
    """
    t, (_, c, h, w) = t.contiguous(memory_format=layout), t.shape
    strides = (c * h * w, 1, w * c, c) if layout == torch.channels_last else (c * h * w, h * w, w, 1)
    return t if t.stride() == strides else t.clone(memory_format=layout)


class _Conv2d(torch.autograd.Function):
    """The convolution, with the way chosen separately for each of its three products."""

    @staticmethod
    def forward(ctx, conv, x, w, b):
        ctx.conv = conv
        ctx.save_for_backward(x, w)
        return conv.product("outputs", x, w, b, None)[0]

    @staticmethod
    def backward(ctx, g):
        (x, w), (_, of_x, of_w, of_b) = ctx.saved_tensors, ctx.needs_input_grad
        g = _arranged(g, _layout(g))
        tensors = x.to(g.dtype), w.to(g.dtype), None, g  # under autocast, g may have 16 bits and the others more
        inputs = ctx.conv.product("inputs", *tensors)[0].to(x.dtype) if of_x else None
        if not (of_w or of_b):
            return None, inputs, None, None
        weights, biases = ctx.conv.product("weights", *tensors)
        return None, inputs, weights.to(w.dtype), biases if of_b else None


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
        As in torch.
    way : str, optional
        One of `WAYS`, for all products; by default, it follows from the shapes.

    Returns
    -------
    Tensor of shape (C, B, O, h, w)
    """
    tensors = as_channels(x), weight.flatten(0, 1), None if bias is None else bias.flatten()
    if isinstance(padding, str):  # "same" may pad more on one side
        return as_clients(F.conv2d(*tensors, stride, padding, dilation, len(x) * groups), len(x))
    conv = _Conv(len(x), _pair(stride), _pair(padding), _pair(dilation), groups, way)
    return as_clients(_Conv2d.apply(conv, *tensors), len(x))


def _pair(n: Any) -> tuple[int, int]:
    return (n[0], n[-1]) if isinstance(n, Sequence) else (int(n), int(n))


def laid_out(p: Tensor) -> Tensor:
    """The parameters of clients, with filters (C, O, I, k, l) in the memory layout that `conv2d` expects."""
    if p.ndim == 5 and _layout(p) == torch.channels_last:
        return p.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, p.shape[:2])
    return p


def as_channels(x: Tensor) -> Tensor:
    """Reshape (C, B, I, H, W) to (B, C I, H, W) in the device's layout; outputs of these kernels are not copied."""
    return _arranged(x.transpose(0, 1).flatten(1, 2), _layout(x))


def as_clients(x: Tensor, clients: int) -> Tensor:
    """Reshape (B, C I, H, W) to (C, B, I, H, W)."""
    return x.unflatten(1, (clients, -1)).transpose(0, 1)
