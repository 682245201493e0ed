"""Networks as pairs of parameters and a function: a plain torch module, called with parameters that are given to it.

`Model` makes the pair of any `torch.nn.Module`: ``model.init(seed) -> Params``, and ``model(params, x) -> output`` for
one client. `MLP` and `CNN` are two common ones.
"""

import copy
import math
from collections import OrderedDict

import torch
from torch import Tensor, nn

from .keys import Key
from .params import Params

__all__ = ["CNN", "MLP", "Model", "femnist_cnn", "lenet5"]

_DRAWN = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_CHANCE = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class Model:
    """Any torch module as a function of its parameters.

    Parameters
    ----------
    module : torch.nn.Module
        Copied, not modified. Parameters with ``requires_grad=False`` are left out and stay as they are.

    Attributes
    ----------
    params : Params
        The parameters that the module came with.

    Raises
    ------
    ValueError
        The module has layers whose hidden state or chance would be shared by all clients of a stack: BatchNorm with
        running statistics, dropout. Use GroupNorm, and no dropout.

    Notes
    -----
    In ``forward`` parameters are attributes of their layers; what ``self.parameters()`` gives holds no numbers. Chapter
    01; chapter 13 compares its speed with a loop over clients.
    """

    def __init__(self, module: nn.Module) -> None:
        for name, layer in module.named_modules():
            if getattr(layer, "track_running_stats", False) or (isinstance(layer, _CHANCE) and layer.p > 0):
                raise ValueError(
                    f"layer {name!r} is a {type(layer).__name__}, which clients cannot train in a "
                    "stack; use GroupNorm in place of BatchNorm, and leave dropout out"
                )
        self.module = copy.deepcopy(module)
        self.params: Params = {n: p.detach().clone() for n, p in module.named_parameters() if p.requires_grad}
        names = {p: name for name, p in self.module.named_parameters()}  # a shared parameter has one
        self._places: list[tuple[nn.Module, str, str]] = []
        for layer in self.module.modules():
            for attribute, p in list(layer.named_parameters(recurse=False)):
                if p.requires_grad:  # its numbers are never used: each call brings its own
                    self._places.append((layer, attribute, names[p]))
                    setattr(layer, attribute, nn.Parameter(p.to("meta")))

    def init(self, seed: int) -> Params:
        """Random start, the same on every machine and torch version.

        PyTorch's default for linear layers and convolutions: weights and biases uniform in +-1/sqrt(fan_in). All other
        parameters start as the module has them.
        """
        params = {}
        for name, p in self.params.items():
            layer, _, _ = name.rpartition(".")
            params[name] = p.clone()
            if isinstance(self.module.get_submodule(layer), _DRAWN):
                fan_in = math.prod(self.params[f"{layer}.weight".lstrip(".")].shape[1:])
                draw = Key(seed).uniform(torch.zeros(1, dtype=torch.int64), f"init {name}", *p.shape)[0]
                params[name] = ((2 * draw - 1) / math.sqrt(fan_in)).to(p.dtype)
        return params

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters."""
        return {name: tuple(p.shape) for name, p in self.params.items()}

    def __call__(self, params: Params, *inputs: Tensor) -> Tensor:
        """Output of one client's network with these parameters, all of which must be given."""
        if params.keys() != self.params.keys():
            differ = sorted(set(params) ^ set(self.params))
            raise ValueError(f"these are not the module's parameters: {differ[:4]} are missing or unknown")
        for layer, attribute, name in self._places:  # as `torch.func.functional_call`, in a tenth of its time
            vars(layer)[attribute] = params[name]
        try:
            return self.module(*inputs)
        finally:
            for layer, attribute, _ in self._places:
                del vars(layer)[attribute]


class MLP(Model):
    """Multi-layer perceptron with ReLU between dense layers (chapter 01).

    Parameters
    ----------
    widths : tuple of int
        Numbers of units, from the inputs to the outputs: ``(784, 64, 10)`` has one hidden layer; ``(784, 10)`` is
        linear. Inputs of any shape are flattened.

    Notes
    -----
    Parameters ``dense1.weight`` (h, i), ``dense1.bias`` (h,), ``dense2.weight``, ... as `torch.nn.Linear` shapes them.

    Examples
    --------
    >>> import torch
    >>> from fedlib import models
    >>> model = models.MLP((784, 64, 10))
    >>> params = model.init(0)  # seed
    >>> model(params, torch.zeros(5, 28, 28)).shape
    torch.Size([5, 10])
    """

    def __init__(self, widths: tuple[int, ...]) -> None:
        if len(widths) < 2 or min(widths) < 1:
            raise ValueError(f"widths must hold the inputs and the outputs at least, all positive; got {widths}")
        self.widths = tuple(widths)
        super().__init__(nn.Sequential(_dense(widths)))


class CNN(Model):
    """Convolutions with max-pooling and ReLU, then dense layers with ReLU between them (chapters 02 and 08).

    Parameters
    ----------
    image : (channels, height, width)
    channels : tuple of int
        Filters of each convolution.
    widths : tuple of int
        Units of the dense layers; the last is the number of outputs.
    kernel : int
        Side of the filters.
    padding : int
        Zeros on each side before each convolution.
    pool : int
        Side of the max-pooling after each convolution; 1 pools nothing.
    strides : tuple of int, optional
        Step of each convolution; 1 by default.
    pooled : bool
        Whether the dense layers see the mean of each channel over the image, not all its pixels.

    Raises
    ------
    ValueError
        Numbers below 1; not one stride for each convolution; an image that is too small for them.

    Notes
    -----
    Parameters ``conv1.weight`` (o, i, k, k), ``conv1.bias``, ..., ``dense1.weight``, ... ReLU comes after pooling: the
    same numbers as before it, for less work.
    """

    def __init__(
        self,
        image: tuple[int, int, int],
        channels: tuple[int, ...],
        widths: tuple[int, ...],
        kernel: int = 5,
        padding: int = 2,
        pool: int = 2,
        strides: tuple[int, ...] | None = None,
        pooled: bool = False,
    ) -> None:
        strides = (1,) * len(channels) if strides is None else tuple(strides)
        if not channels or len(strides) != len(channels) or min(*channels, *strides, *widths, kernel, pool) < 1:
            raise ValueError(f"give each convolution a stride, and sizes above 0; got {channels}, {strides}, {widths}")
        self.image, self.channels, self.widths, self.strides = tuple(image), tuple(channels), tuple(widths), strides
        self.kernel, self.padding, self.pool, self.pooled = kernel, padding, pool, pooled
        inputs, *sides = image
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for i, (outputs, stride) in enumerate(zip(channels, strides, strict=True), 1):
            layers[f"conv{i}"] = nn.Conv2d(inputs, outputs, kernel, stride, padding, device="meta")
            if pool > 1:
                layers[f"pool{i}"] = nn.MaxPool2d(pool)
            layers[f"relu{i}"] = nn.ReLU()
            inputs, sides = outputs, [((s + 2 * padding - kernel) // stride + 1) // pool for s in sides]
            if min(sides) < 1:
                raise ValueError(
                    f"convolution {i} leaves {sides[0]} x {sides[1]} pixels of an image {self.image}; use fewer "
                    "convolutions, less pooling, a smaller kernel or more padding"
                )
        if pooled:
            layers["mean"], sides = nn.AdaptiveAvgPool2d(1), [1, 1]
        super().__init__(nn.Sequential(layers | _dense((inputs * math.prod(sides), *widths))))


def _dense(widths: tuple[int, ...]) -> OrderedDict[str, nn.Module]:
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:], strict=False), 1):
        if i > 1:
            layers[f"relu of dense{i - 1}"] = nn.ReLU()
        layers[f"dense{i}"] = nn.Linear(inputs, outputs, device="meta")  # no number is drawn before `init`
    return layers


def femnist_cnn(classes: int = 62) -> CNN:
    """LEAF's network for FEMNIST: two 5x5 convolutions of 32 and 64 filters, 2048 units; 6.6 million parameters."""
    return CNN(image=(1, 28, 28), channels=(32, 64), widths=(2048, classes))


def lenet5(classes: int = 10) -> CNN:
    """LeNet-5 for 32x32 colour images, as benchmarks use it: 6 and 16 filters, 120 and 84 units, ReLU, max-pooling."""
    return CNN(image=(3, 32, 32), channels=(6, 16), widths=(120, 84, classes), padding=0)
