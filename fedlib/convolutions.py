"""The convolution of a stack of C clients, computed as one convolution with C times as many groups.

Clients become channels, in the memory layout that the device convolves fastest. There is one exception. On a processor
without AVX-512, one client after another is faster where each has enough to do and its filters have 2 to 16 input
channels (chapter 16). The choice follows from the shapes, so two runs on one machine with the same number of threads
are equal to the last bit.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["as_channels", "as_clients", "conv2d", "laid_out"]

_FEW = range(2, 17)  # input channels of a filter
_LARGE = 2**23  # approximate multiplications per client from which the cost of a separate call is negligible


def _layout(t: Tensor) -> torch.memory_format:
    """Memory layout of images between two layers, or of filters, which is channels_last if oneDNN convolves them.

    Torch's own kernels (for 64-bit numbers, or with oneDNN switched off) expect contiguous tensors. With channels_last
    filters and a batch of one image, their grouped backward pass gives wrong gradients or none. A single image is
    contiguous, too: with channels_last, the backward pass of torch's batch norm in evaluation mode takes its strides
    for others.
    """
    onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    last = onednn and len(t) > 1 and not t.is_cuda and t.dtype != torch.float64
    return torch.channels_last if last else torch.contiguous_format


def _arranged(t: Tensor, layout: torch.memory_format) -> Tensor:
    """Images in a layout, with the strides that belong to it also along axes of length 1.

    Torch tells layouts apart by strides and leaves those of such axes open. With one image it may then take one layout
    for the other, and its grouped gradient of the weights is wrong.
    """
    t, (_, c, h, w) = t.contiguous(memory_format=layout), t.shape
    strides = (c * h * w, 1, w * c, c) if layout == torch.channels_last else (c * h * w, h * w, w, 1)
    return t if t.stride() == strides else t.clone(memory_format=layout)


class _Conv2d(torch.autograd.Function):
    """The convolution of C clients, whose channels are side by side in x (B, C I, H, W) and g (B, C O, h, w)."""

    @staticmethod
    def forward(ctx, x, w, b, clients, groups, spans):
        ctx.save_for_backward(x, w)
        ctx.clients, ctx.groups, ctx.spans = clients, groups, spans
        w, (x,) = _prepared(w, clients * groups, x)
        out = F.conv2d(x, w, b, *spans, clients * groups)  # type: ignore[call-overload]
        return _arranged(out, _layout(x))

    @staticmethod
    def backward(ctx, g):
        (given, weight), (of_x, of_w, of_b, *_) = ctx.saved_tensors, ctx.needs_input_grad
        x, w, g = given.to(g.dtype), weight.to(g.dtype), _arranged(g, _layout(g))  # under autocast, g may have 16 bits
        inputs = weights = biases = None
        if of_x:
            inputs, *_ = _gradients(x, w, g, ctx.clients * ctx.groups, ctx.spans, [True, False, False])
            inputs = _arranged(inputs, _layout(x)).to(given.dtype)
        if of_w or of_b:
            groups = ctx.clients * ctx.groups
            _, weights, biases = _gradients(x, w, g, groups, ctx.spans, [False, True, True])
            weights = weights.to(weight.dtype)
        return inputs, weights, biases if of_b else None, None, None, None


def _one_by_one(x: Tensor, weight: Tensor, stride: Any) -> bool:
    """Whether one client after another is faster; not for one image, where torch may use its own kernels."""
    large = x[0, :, 0].numel() * weight[0].numel() >= _LARGE * math.prod(_pair(stride))
    fits = large and weight.shape[2] in _FEW and x.shape[1] > 1 and not x.is_cuda
    return fits and torch.backends.cpu.get_cpu_capability() != "AVX512"


def _prepared(w: Tensor, groups: int, *images: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Filters and images in the layout that torch's kernel expects."""
    # With one image and one group, torch may use its own kernels even for 32-bit numbers.
    layout = torch.contiguous_format if len(images[0]) == groups == 1 else _layout(images[0])
    return w.contiguous() if layout == torch.contiguous_format else w, [_arranged(t, layout) for t in images]


def _gradients(x: Tensor, w: Tensor, g: Tensor, groups: int, spans: Any, wanted: list[bool]) -> tuple[Tensor, ...]:
    """The gradients of inputs, weights and biases, as far as they are wanted."""
    w, (x, g) = _prepared(w, groups, x, g)
    return torch.ops.aten.convolution_backward(g, x, w, [len(w)], *spans, False, [0, 0], groups, wanted)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.nn.functional.conv2d` for a stack of clients.

    Parameters
    ----------
    x : Tensor of shape (C, B, I, H, W)
    weight : Tensor of shape (C, O, I / groups, k, l)
    bias : Tensor of shape (C, O), optional
    stride, padding, dilation, groups
        As in torch.

    Returns
    -------
    Tensor of shape (C, B, O, h, w)
    """
    if _one_by_one(x, weight, stride):
        each = zip(x, weight, [None] * len(x) if bias is None else bias, strict=True)
        out = torch.cat([F.conv2d(*one, stride, padding, dilation, groups) for one in each])
        return out.unflatten(0, x.shape[:2])
    tensors = as_channels(x), weight.flatten(0, 1), None if bias is None else bias.flatten()
    if isinstance(padding, str):  # "same" may pad more on one side
        return as_clients(F.conv2d(*tensors, stride, padding, dilation, len(x) * groups), len(x))
    spans = _pair(stride), _pair(padding), _pair(dilation)
    return as_clients(_Conv2d.apply(*tensors, len(x), groups, spans), len(x))


def _pair(n: Any) -> tuple[int, int]:
    return (n[0], n[-1]) if isinstance(n, Sequence) else (int(n), int(n))


def laid_out(p: Tensor) -> Tensor:
    """The parameters of clients, with filters (C, O, I, k, l) in the memory layout that `conv2d` expects."""
    return _arranged(p.flatten(0, 1), _layout(p.flatten(0, 1))).unflatten(0, p.shape[:2]) if p.ndim == 5 else p


def as_channels(x: Tensor) -> Tensor:
    """Reshape (C, B, I, H, W) to (B, C I, H, W) in the device's layout; outputs of these kernels are not copied."""
    t = x.transpose(0, 1).flatten(1, 2)
    return _arranged(t, _layout(t))


def as_clients(x: Tensor, clients: int) -> Tensor:
    """Reshape (B, C I, H, W) to (C, B, I, H, W)."""
    return x.unflatten(1, (clients, -1)).transpose(0, 1)
