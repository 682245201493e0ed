"""Networks as pairs of parameters and a function, built of layers that are fast in a stack.

A model has ``init(seed) -> Params`` and is called as ``model(params, x) -> output`` for one client. `from_module`
makes the same pair of any `torch.nn.Module`.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from .keys import Key
from .layers import conv_relu_pool, mlp
from .params import Params

__all__ = ["CNN", "MLP", "Model", "femnist_cnn", "from_module", "lenet5"]


class Model(Protocol):
    """What every model of this module offers."""

    def init(self, seed: int) -> Params:
        """Random start; the same on every machine and torch version."""

    def __call__(self, params: Params, x: Tensor) -> Tensor:
        """Output of one client's network for a batch x (B, ...)."""


def _init(shapes: dict[str, tuple[int, ...]], seed: int) -> Params:
    """PyTorch's default start: weights and biases uniform in +-1/sqrt(fan_in), drawn from `Key`."""
    params = {}
    for name, shape in shapes.items():
        fan_in = math.prod(shapes[name.replace("bias", "weight")][1:])
        draw = Key(seed).uniform(torch.zeros(1, dtype=torch.int64), f"init {name}", *shape)[0]
        params[name] = ((2 * draw - 1) / math.sqrt(fan_in)).float()
    return params


@dataclass(frozen=True)
class MLP:
    """Multi-layer perceptron with ReLU between dense layers (chapter 01).

    Parameters
    ----------
    widths : tuple of int
        Numbers of units, from the inputs to the outputs: ``(784, 64, 10)`` has one hidden layer; ``(784, 10)`` is
        linear. Inputs of any shape are flattened.

    Notes
    -----
    Parameters ``dense1.weight`` (h, i), ``dense1.bias`` (h,), ``dense2.weight``, ... as `torch.nn.Linear` shapes them.
    """

    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.widths) < 2 or min(self.widths) < 1:
            raise ValueError(f"widths must hold the inputs and the outputs at least, all positive; got {self.widths}")

    def init(self, seed: int) -> Params:
        """Random start, the same on every machine."""
        return _init(self.shapes(), seed)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters."""
        return _dense_shapes(self.widths)

    def __call__(self, params: Params, x: Tensor) -> Tensor:
        """Outputs of shape (B, widths[-1]) for x of shape (B, ...)."""
        return _dense_layers(params, x.flatten(1), len(self.widths) - 1)


def _dense_shapes(widths: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (inputs, outputs) in enumerate(zip(widths, widths[1:], strict=False), 1):
        shapes |= {f"dense{layer}.weight": (outputs, inputs), f"dense{layer}.bias": (outputs,)}
    return shapes


def _dense_layers(params: Params, x: Tensor, layers: int) -> Tensor:
    return mlp(x, *(params[f"dense{layer}.{kind}"] for layer in range(1, layers + 1) for kind in ("weight", "bias")))


@dataclass(frozen=True)
class CNN:
    """Convolutions with ReLU and max-pooling, then dense layers.

    Parameters
    ----------
    image : (channels, height, width)
    channels : tuple of int
        Filters of each convolution.
    widths : tuple of int
        Units of the dense layers; the last is the number of classes.
    kernel : int
        Side of the filters.
    padding : int
        Zeros on each side before each convolution.
    pool : int
        Side of the max-pooling after each convolution; 1 pools nothing.

    Notes
    -----
    Parameters ``conv1.weight`` (o, i, k, k), ``conv1.bias``, ..., ``dense1.weight``, ...
    """

    image: tuple[int, int, int]
    channels: tuple[int, ...]
    widths: tuple[int, ...]
    kernel: int = 5
    padding: int = 2
    pool: int = 2

    def init(self, seed: int) -> Params:
        """Random start, the same on every machine."""
        return _init(self.shapes(), seed)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters."""
        shapes: dict[str, tuple[int, ...]] = {}
        inputs, height, width = self.image
        for layer, outputs in enumerate(self.channels, 1):
            shapes |= {
                f"conv{layer}.weight": (outputs, inputs, self.kernel, self.kernel),
                f"conv{layer}.bias": (outputs,),
            }
            height, width = ((side + 2 * self.padding - self.kernel + 1) // self.pool for side in (height, width))
            inputs = outputs
            if height < 1 or width < 1:
                raise ValueError(
                    f"convolution {layer} leaves {height} x {width} pixels of an image {self.image}; use fewer "
                    "convolutions, less pooling, a smaller kernel or more padding"
                )
        return shapes | _dense_shapes((inputs * height * width, *self.widths))

    def __call__(self, params: Params, x: Tensor) -> Tensor:
        """Logits of shape (B, widths[-1]) for x of shape (B, *image)."""
        for layer in range(1, len(self.channels) + 1):
            x = conv_relu_pool(x, params[f"conv{layer}.weight"], params[f"conv{layer}.bias"], self.padding, self.pool)
        return _dense_layers(params, x.flatten(1), len(self.widths))


def femnist_cnn(classes: int = 62) -> CNN:
    """LEAF's network for FEMNIST: two 5x5 convolutions of 32 and 64 filters, 2048 units; 6.6 million parameters."""
    return CNN(image=(1, 28, 28), channels=(32, 64), widths=(2048, classes))


def lenet5(classes: int = 10) -> CNN:
    """LeNet-5 for 32x32 colour images, as benchmarks use it: 6 and 16 filters, 120 and 84 units, ReLU, max-pooling."""
    return CNN(image=(3, 32, 32), channels=(6, 16), widths=(120, 84, classes), padding=0)


def from_module(module: nn.Module) -> tuple[Params, Callable[[Params, Tensor], Tensor]]:
    """Split any torch module into parameters and a function of them.

    Parameters
    ----------
    module : torch.nn.Module
        Not modified.

    Returns
    -------
    params : Params
        Copies of its parameters; those with ``requires_grad=False`` are left out and stay as they are.
    predict : callable
        ``predict(params, x)`` is ``module(x)`` with these parameters; all must be given.

    Raises
    ------
    ValueError
        The module has layers whose hidden state or chance would be shared by all clients of a stack: BatchNorm with
        running statistics, dropout. Use GroupNorm, and no dropout.
    """
    for name, layer in module.named_modules():
        running = getattr(layer, "track_running_stats", False)
        if running or (isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0):
            raise ValueError(
                f"layer {name!r} is a {type(layer).__name__}, which clients cannot train in a "
                "stack; use GroupNorm in place of BatchNorm, and leave dropout out"
            )
    params = {name: p.detach().clone() for name, p in module.named_parameters() if p.requires_grad}
    names = set(params)
    shell = copy.deepcopy(module)
    for p in shell.parameters():
        if p.requires_grad:  # never used: each call brings its own
            p.data = p.data.new_empty(0)

    def predict(params: Params, x: Tensor) -> Tensor:
        if set(params) != names:
            differ = sorted(set(params) ^ names)
            raise ValueError(f"these are not the module's parameters: {differ[:4]} are missing or unknown")
        return torch.func.functional_call(shell, params, (x,))

    return params, predict
