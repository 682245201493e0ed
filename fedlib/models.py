"""Networks as pairs of parameters and a function, which is a plain torch module called with given parameters.

`Model` makes such a pair from any `torch.nn.Module`, with ``model.init(seed) -> Params`` and
``model(params, x) -> output`` for one client. `MLP` and `CNN` are two common networks.
"""

import copy
import math
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import getclosurevars, isfunction, signature
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrize import is_parametrized

from .chance import Refused, in_training
from .keys import Key
from .params import Params
from .recurrent import STACKABLE

__all__ = ["CNN", "MLP", "Model", "femnist_cnn", "lenet5"]

_DRAWN = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_RESETS = {kind.reset_parameters for kind in _DRAWN}
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_OF_TORCH = frozenset(vars(nn.Module()))
_ALIKE = (0.7, 1.4)  # torch may have drawn a weight whose spread, divided by that of torch's draw, is in between


class Model:
    """Any torch module as a function of its parameters.

    Parameters
    ----------
    module : torch.nn.Module
        Copied, not modified. All clients share the buffers and the parameters with ``requires_grad=False``, which never
        change and follow the run to its device and type. LSTM, GRU and RNN become those of `fedlib.recurrent`.
    init : callable, optional
        ``init(module)`` sets the parameters of a module in place with torch's random numbers, for modules whose
        initialisation is not what their layers draw by themselves.

    Attributes
    ----------
    params : Params
        The parameters that the module came with.

    Raises
    ------
    ValueError
        A layer that clients cannot train in a stack, with its name and what to do instead; no parameter to train.

    Notes
    -----
    Several threads may call a model at once. In ``forward``, use parameters as attributes of their layers, because
    those that ``self.parameters()`` gives hold no numbers. Dropout and other layers that behave differently in training
    do so only while `fedlib.federation.fit` trains, and never if the module came in evaluation mode; `fedlib.chance`
    says what their random numbers depend on. Chapter 01; chapter 16 compares the speed with a loop over clients.
    """

    def __init__(self, module: nn.Module, init: Callable[[nn.Module], Any] | None = None) -> None:
        for name, layer in module.named_modules():
            if why := _refused(layer) or _reaches(layer, module):
                raise Refused(f"layer {name!r} is a {type(layer).__name__}{why}")
        for name, p in module.named_parameters():
            if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
                raise Refused(
                    f"parameter {name!r} has a hook on its gradient, which a stack would not call; change the "
                    "gradient in the optimizer, or freeze parameters by requires_grad"
                )
        self.params: Params = {n: p.detach().clone() for n, p in module.named_parameters() if p.requires_grad}
        if not self.params:
            raise ValueError(f"a {type(module).__name__} without parameters to train; see requires_grad")
        # The numbers are never used, because each call brings its own.
        self._empty = {name: nn.Parameter(p.to("meta")) for name, p in self.params.items()}
        named = dict(module.named_parameters())
        self.module, self._init = copy.deepcopy(module, {id(named[n]): p for n, p in self._empty.items()}), init
        for layer in self.module.modules():
            layer.__class__ = STACKABLE.get(type(layer), type(layer))
        self._idle: dict[tuple[torch.device, torch.dtype], list[_Copy]] = {}
        self._moved: dict[tuple[torch.device, torch.dtype], dict[str, Tensor]] = {}

    def init(self, seed: int) -> Params:
        """Random initialisation, as torch's layers draw it.

        Weights and biases of dense layers and convolutions are uniform in +-1/sqrt(fan_in), the same on every machine
        and torch version. Other modules draw by ``reset_parameters`` under the seed, children first. Parameters keep
        the values that they came with if no ``reset_parameters`` draws them, or if the module has set them to one
        number, such as zeros. If the model was given an `init`, that alone draws.

        Warns
        -----
        UserWarning
            The spread of a weight that the module came with differs from that of the draw that replaces it; or weights
            are parametrized (``torch.nn.utils.parametrizations``) and are not drawn.
        """
        start = {n: torch.empty_like(p, device="cpu") if p.is_meta else p.cpu() for n, p in self.params.items()}
        module, zero = self.to_module(start), torch.zeros(1, dtype=torch.int64)
        with torch.random.fork_rng([]), torch.no_grad():
            torch.manual_seed(int(Key(seed).bits(zero, "init")))
            if self._init is not None:
                self._init(module)
            for path, layer in reversed(list(module.named_modules()) if self._init is None else []):  # children first
                reset = getattr(layer, "reset_parameters", getattr(layer, "_reset_parameters", None))
                if reset is not None and any(p.default is p.empty for p in signature(reset).parameters.values()):
                    reset = None  # it needs what only the module knows
                if isinstance(layer, _DRAWN) and is_parametrized(layer):
                    warnings.warn(
                        f"the parametrized weights of layer {path!r} keep their numbers for every seed; "
                        "give Model(module, init=function) where the function draws a module's parameters",
                        stacklevel=2,
                    )
                if isinstance(layer, _DRAWN) and getattr(reset, "__func__", None) in _RESETS:
                    bound = 1 / math.sqrt(math.prod(layer.weight.shape[1:]))
                    for name, own in layer.named_parameters(recurse=False):
                        if name in ("weight", "bias"):
                            draw = Key(seed).uniform(zero, f"init {path}.{name}".replace(" .", " "), *own.shape)[0]
                            own.copy_((2 * draw - 1) * bound)
                elif reset is not None:
                    reset()
        drawn = {name: p.detach() for name, p in module.named_parameters() if name in start}
        return drawn if self._init is not None else self._with_its_own(drawn)

    def _with_its_own(self, drawn: Params) -> Params:
        """The draw, except for what the module has set to one number; warn of weights that came with another spread."""
        for name, p in self.params.items():
            if p.is_meta or p.numel() < 2 or (not drawn[name].std() and not p.std()):
                continue
            if not p.std():
                drawn[name] = p.cpu().clone()
            elif p.numel() > 99 and not _ALIKE[0] < p.std() / drawn[name].std() < _ALIKE[1]:
                warnings.warn(
                    f"{name!r} came with a spread of {p.std():.2g}, and init() draws it with {drawn[name].std():.2g}; "
                    "give Model(module, init=function) where the function draws a module's parameters as yours does, "
                    "or start from model.params",
                    stacklevel=3,
                )
                break
        return drawn

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters."""
        return {name: tuple(p.shape) for name, p in self.params.items()}

    def to_module(self, params: Params) -> nn.Module:
        """A plain torch module with a copy of these parameters, which are those of one client or of the server.

        Layers are torch's own, in training mode if they came so. Frozen parameters and buffers are also copies.
        """
        self._check(params)
        kind = next(iter(params.values()))
        frozen = {name: copy.deepcopy(t) for name, t in self._frozen(kind.device, kind.dtype).items()}
        module = self._with(frozen | {name: nn.Parameter(p.detach().clone()) for name, p in params.items()})
        back = {ours: theirs for theirs, ours in STACKABLE.items()}
        for layer in module.modules():
            layer.__class__ = back.get(type(layer), type(layer))
            if isinstance(layer, nn.RNNBase):
                layer.flatten_parameters()
        return module

    def _frozen(self, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
        """The tensors that all clients share, by name; moved once."""
        if (device, dtype) not in self._moved:
            named = (*self.module.named_parameters(), *self.module.named_buffers())
            to = {n: (t, t.detach().to(device, dtype if t.is_floating_point() else t.dtype)) for n, t in named
                  if n not in self.params}  # fmt: skip
            moved = {n: nn.Parameter(u, False) if isinstance(t, nn.Parameter) else u for n, (t, u) in to.items()}
            self._moved[device, dtype] = moved
        return self._moved[device, dtype]

    def _with(self, tensors: Mapping[str, Tensor]) -> nn.Module:
        """A copy of the module in which these tensors replace its own wherever it holds them."""
        named = (*self.module.named_parameters(), *self.module.named_buffers())
        return copy.deepcopy(self.module, {id(t): tensors[n] for n, t in named})

    def _copy(self, device: torch.device, dtype: torch.dtype) -> "_Copy":
        """The module for one thread; its parameters are NaN, so one that a call fails to set does not go unnoticed."""
        nan = torch.full((), math.nan, device=device, dtype=dtype)
        plain = type(nan) is Tensor  # otherwise of a device written in Python, as in tests
        blank = {name: nn.Parameter(nan.expand(p.shape)) if plain else p for name, p in self._empty.items()}
        module = self._with({**self._frozen(device, dtype), **blank})
        return _Copy(module, _places(module), [layer for layer in module.modules() if layer.training], blank)

    def _check(self, params: Params) -> None:
        if params.keys() != self.params.keys():
            differ = sorted(set(params) ^ set(self.params))
            raise ValueError(f"these are not the module's parameters: {differ[:4]} are missing or unknown")

    def __call__(self, params: Params, *inputs: Any, **named: Any) -> Any:
        """Output of one client's network with these parameters, all of which must be given."""
        self._check(params)
        kind = next(iter(params.values()))
        first = next((t for t in (*inputs, *named.values()) if isinstance(t, Tensor)), kind)
        where = first.device, kind.dtype
        idle = self._idle.setdefault(where, [])
        try:
            own = idle.pop()
        except IndexError:  # the first call, or other threads use them all
            own = self._copy(*where)
        training = in_training(first)
        before = _memory(own.module) if own.training is None else None
        if own.training != training:
            own.training = training
            for layer in own.moody:
                vars(layer)["training"] = training
        for layer, attribute, name in own.places:  # as `torch.func.functional_call`, in a tenth of the time
            layer._parameters[attribute] = params[name]  # type: ignore[assignment]
        try:
            out = own.module(*inputs, **named)
        finally:
            for layer, attribute, name in own.places:
                layer._parameters[attribute] = own.blank[name]
        if before is not None and (kept := [k for k, v in _memory(own.module).items() if before.get(k) != v]):
            raise Refused(
                f"layer {kept[0][0]!r} keeps {kept[0][1]!r} from one call to the next, which all clients would share; "
                "compute it in each call, or in __init__ if it is a constant"
            )
        idle.append(own)
        return out


@dataclass(eq=False)
class _Copy:
    """A module for one thread, the places of its parameters, the layers that came in training mode, and their mode."""

    module: nn.Module
    places: list[tuple[nn.Module, str, str]]
    moody: list[nn.Module]
    blank: dict[str, nn.Parameter]
    training: bool | None = None


def _places(module: nn.Module) -> list[tuple[nn.Module, str, str]]:
    """Layer, attribute and name of each parameter to be trained; a shared parameter has several places."""
    names = {p: name for name, p in module.named_parameters()}
    owned = [(layer, *own) for layer in module.modules() for own in layer.named_parameters(recurse=False)]
    return [(layer, attribute, names[p]) for layer, attribute, p in owned if p.requires_grad]


def _memory(module: nn.Module) -> dict[tuple[str, str], Any]:
    """Numbers and tensors that layers hold besides parameters, by layer and attribute; tensors by id and version."""
    found: dict[tuple[str, str], Any] = {}
    for path, layer in module.named_modules():
        for name, value in (*_contents(layer), *layer.named_buffers(recurse=False)):
            if isinstance(value, Tensor):
                found[path, name] = id(value), value._version
            elif isinstance(value, (int, float)):
                found[path, name] = value
            elif isinstance(value, (np.ndarray, np.generic)):
                found[path, name] = value.tobytes()
    return found


def _contents(layer: nn.Module) -> Iterator[tuple[str, Any]]:
    """What a layer holds by name, with what is in its lists and dictionaries, and their lengths."""
    for name, value in vars(layer).items():
        if name in _OF_TORCH or (name.startswith("_") and type(layer).__module__.startswith("torch.")):
            continue
        if isinstance(value, (dict, list, tuple, deque)):
            yield name, len(value)
            yield from ((name, each) for each in (value.values() if isinstance(value, dict) else value))
        else:
            yield name, value


def _refused(layer: nn.Module) -> str:
    """Why clients cannot train a layer in a stack, and what to do instead; empty if they can."""
    if isinstance(layer, LazyModuleMixin) and layer.has_uninitialized_params():
        return ": call the module once, so that it knows its shapes"
    if type(layer) not in STACKABLE and type(layer).forward in [vars(kind)["forward"] for kind in STACKABLE]:
        return (
            ", which runs torch's own kernel, and torch cannot map that; give a plain nn.LSTM, GRU or RNN, or hold one"
        )
    if isinstance(layer, torch.jit.ScriptModule):
        return ", which is compiled; give the module that it was made from"
    if computed := [name for name, t in _contents(layer) if isinstance(t, Tensor) and t.grad_fn is not None]:
        return (
            f" whose {computed[0]!r} is computed by a hook, or kept from a call; use torch.nn.utils.parametrizations, "
            "remove the hook, or clear what is kept"
        )
    if isinstance(layer, _BATCH_NORMS) and not layer.track_running_stats:
        return ", which takes statistics of the whole batch, including padded rows; use GroupNorm"
    if getattr(layer, "track_running_stats", False) and layer.training:
        return (
            ", whose running statistics are not parameters and would mix the clients; use GroupNorm, or keep the "
            "statistics as they are with .eval()"
        )
    if getattr(layer, "max_norm", None) is not None or getattr(layer, "scale_grad_by_freq", False):
        return " with max_norm or scale_grad_by_freq, which would mix clients or count padded rows; leave both out"
    if type(layer).__name__ in ("_SpectralNorm", "SpectralNorm") and layer.training:
        return ", which writes into its vectors in each call; keep them as they are with .eval(), or use weight_norm"
    return ""


def _reaches(layer: nn.Module, module: nn.Module) -> str:
    """Whether a function that a layer holds has closed over a part of the module, and would use that and not a copy."""
    whole = {id(part) for part in (*module.modules(), *module.parameters(), *module.buffers())}
    hooks = [("a hook", hook) for hook in (*layer._forward_hooks.values(), *layer._forward_pre_hooks.values())]
    for name, values in vars(layer).items():
        if name == "_flat_weights":  # of torch's recurrent layers, which are replaced
            continue
        if isinstance(values, (list, tuple)) and any(isinstance(p, nn.Parameter) for p in values):
            return (
                f" that holds parameters in {name!r}, which would keep their first numbers; make it an nn.ParameterList"
            )
    for name, function in (*vars(layer).items(), *hooks):
        if isfunction(function) and whole & set(map(id, getclosurevars(function).nonlocals.values())):
            return f" that holds a function ({name}) closed over it, which keeps its first parameters; make it a method"
    return ""


class MLP(Model):
    """Multi-layer perceptron with ReLU between dense layers (chapter 01).

    Parameters
    ----------
    widths : tuple of int
        Numbers of units, from the inputs to the outputs. For example, ``(784, 64, 10)`` has one hidden layer, and
        ``(784, 10)`` is linear. Inputs of any shape are flattened.

    Notes
    -----
    The parameters are ``dense1.weight`` (h, i), ``dense1.bias`` (h,), ``dense2.weight``, ... with the shapes of
    `torch.nn.Linear`.

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
        Whether the dense layers see the mean of each channel over the image instead of all its pixels.

    Raises
    ------
    ValueError
        Numbers below 1; not one stride per convolution; an image that is too small for the convolutions.

    Notes
    -----
    The parameters are ``conv1.weight`` (o, i, k, k), ``conv1.bias``, ..., ``dense1.weight``, ... ReLU comes after
    pooling, which gives the same numbers as the reverse order with less work.
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
    """LEAF's network for FEMNIST, with 5x5 convolutions of 32 and 64 filters, 2048 units and 6.6 million parameters."""
    return CNN(image=(1, 28, 28), channels=(32, 64), widths=(2048, classes))


def lenet5(classes: int = 10) -> CNN:
    """The LeNet-5 of benchmarks for 32x32 colour images: 6 and 16 filters, 120 and 84 units, ReLU and max-pooling."""
    return CNN(image=(3, 32, 32), channels=(6, 16), widths=(120, 84, classes), padding=0)
