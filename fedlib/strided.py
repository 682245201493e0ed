"""Networks of 3x3 convolutions with steps in place of pooling: small, and cheap in a stack."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .layers import stackable
from .models import _dense_layers, _dense_shapes, _init
from .params import Params

__all__ = ["StridedCNN", "convolve"]


def _convolve_stack(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """`convolve` for x (C, B, I, H, W), weight (C, O, I, 3, 3) and bias (C, O): one grouped convolution."""
    clients, outputs = weight.shape[:2]
    x = x.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)
    z = F.conv2d(x, weight.flatten(0, 1), bias.flatten(), stride, padding=1, groups=clients)
    return z.unflatten(1, (clients, outputs)).transpose(0, 1)


@stackable(_convolve_stack)
def _convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    return F.conv2d(x, weight, bias, stride, padding=1)


def convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int = 1) -> Tensor:
    """3x3 convolution with one row of zeros around the image.

    Parameters
    ----------
    x : Tensor of shape (B, I, H, W)
    weight : Tensor of shape (O, I, 3, 3)
    bias : Tensor of shape (O,)
    stride : int
        Step of the filters.

    Returns
    -------
    Tensor of shape (B, O, ceil(H / stride), ceil(W / stride)). Chapter 05.
    """
    return _convolve(x, weight, bias, stride)


@dataclass(frozen=True)
class StridedCNN:
    """3x3 convolutions with steps and ReLU, then dense layers with ReLU between them (chapters 05 and 06).

    Parameters
    ----------
    image : (channels, height, width)
    channels, strides : tuple of int
        Filters and step of each convolution.
    widths : tuple of int
        Units of the dense layers; the last is the number of outputs.
    pooled : bool
        Whether the dense layers see the mean of each channel over the image, not all its pixels.

    Raises
    ------
    ValueError
        Not one stride for each convolution; a number below 1.

    Notes
    -----
    Parameters ``conv1.weight`` (o, i, 3, 3), ``conv1.bias``, ..., ``dense1.weight``, ``dense1.bias``, ...
    """

    image: tuple[int, int, int]
    channels: tuple[int, ...]
    strides: tuple[int, ...]
    widths: tuple[int, ...]
    pooled: bool = False

    def __post_init__(self) -> None:
        if len(self.channels) != len(self.strides) or not self.channels or not self.widths:
            raise ValueError(f"give one stride for each convolution; got {self.channels} and {self.strides}")
        if min(*self.channels, *self.strides, *self.widths) < 1:
            raise ValueError("channels, strides and widths must be at least 1")

    def init(self, seed: int) -> Params:
        """Random start, the same on every machine."""
        return _init(self.shapes(), seed)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters."""
        shapes: dict[str, tuple[int, ...]] = {}
        inputs, height, width = self.image
        for layer, (outputs, stride) in enumerate(zip(self.channels, self.strides, strict=True), 1):
            shapes |= {f"conv{layer}.weight": (outputs, inputs, 3, 3), f"conv{layer}.bias": (outputs,)}
            inputs, height, width = outputs, (height - 1) // stride + 1, (width - 1) // stride + 1
        inputs *= 1 if self.pooled else height * width
        return shapes | _dense_shapes((inputs, *self.widths))

    def __call__(self, params: Params, x: Tensor) -> Tensor:
        """Outputs of shape (B, widths[-1]) for x of shape (B, *image)."""
        for layer, stride in enumerate(self.strides, 1):
            x = torch.relu(convolve(x, params[f"conv{layer}.weight"], params[f"conv{layer}.bias"], stride))
        x = x.mean((-2, -1)) if self.pooled else x.flatten(1)
        return _dense_layers(params, x, len(self.widths))
