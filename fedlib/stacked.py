"""Plain PyTorch for one client, fast for a stack of them: kernels for torch's own functions inside a vmap.

Under `torch.vmap` alone a convolution of a stack of clients can be slower on a CPU than a loop over them. Inside the
`vmap` of this module clients become channels: pooling and group norm of C clients are themselves on C times the
channels, and so are convolutions (`fedlib.convolutions`). In channels_last memory these are fast on a CPU,
and one hands its output to the next without a copy. A loss never sees the difference: it calls `F.conv2d` for one
client.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .chance import ANSWERS, OPENED, Draws, Refused, opened
from .convolutions import as_channels, as_clients, conv2d, grouped_conv2d
from .low_rank import LowRank, NeedsMatrix

try:
    from torch._C._functorch import (
        _add_batch_dim,
        get_interpreter_stack,
        get_unwrapped,
        is_batchedtensor,
        maybe_get_bdim,
    )
    from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack

    PRIVATE_NAMES = True
except ImportError:  # another torch: `_Operation` asks for public names alone
    PRIVATE_NAMES = False

__all__ = ["vmap"]

_FACTS = ("shape", "ndim", "dtype", "requires_grad")  # that a placeholder has in common with the weight


def vmap(
    function: Callable[..., Any],
    in_dims: Any = 0,
    wide: Sequence[tuple[Tensor, LowRank]] = (),
    seeds: Tensor | None = None,
    step: int = 0,
) -> Callable[..., Any]:
    """`torch.vmap` with the kernels of this module (chapter 13), and with random numbers (`fedlib.chance`).

    Parameters
    ----------
    function : callable
        Of one client, in plain PyTorch.
    in_dims : int, None or nested structure
        The axis of the clients in each argument, as `torch.vmap` takes it.
    wide : sequence of (Tensor, LowRank)
        A placeholder on the device "meta" that stands for the weight of a dense layer in an argument that all clients
        share, and the weights. It can be given to `torch.nn.functional.linear` once, and to nothing else:
        `fedlib.low_rank.NeedsMatrix` is raised.
    seeds : Tensor of shape (C,), int64, optional
        Of each client's random numbers, for training. Without them nothing is dropped, and all clients draw the same.
    step : int
        Other steps draw other numbers.

    Returns
    -------
    callable
        The same function of a stack; equal to `torch.vmap(function, in_dims)`, rounding apart.

    Notes
    -----
    A kernel takes the place of a function whose tensors are all stacked by this one vmap. What clients share, a further
    vmap around or inside, and `torch.func.grad` inside are left to torch. With seeds, a stack of one client is trained
    without a vmap.
    """
    placeholders = {id(placeholder): weights for placeholder, weights in wide}

    def with_kernels(*args: Any) -> Any:
        with still():
            return function(*args)

    def with_draws(seed: Any, *args: Any) -> Any:
        with _Kernels(placeholders, Draws(seed, step, training=True)):
            return function(*args)

    def with_seeds(*args: Any) -> Any:
        if len(seeds) == 1 and in_dims == 0:  # type: ignore[arg-type]
            return with_draws(seeds[0], *map(_first, args))[None]  # type: ignore[index]
        axes = in_dims if isinstance(in_dims, tuple) else [in_dims] * len(args)
        return torch.vmap(with_draws, (0, *axes))(seeds, *args)

    return torch.vmap(with_kernels, in_dims) if seeds is None else with_seeds


def _first(stack: Any) -> Any:
    """The one client of a stack of one row."""
    if isinstance(stack, dict):
        return {name: _first(p) for name, p in stack.items()}
    return tuple(map(_first, stack)) if isinstance(stack, tuple) else stack.squeeze(0)


def one_client(seed: Tensor, training: bool) -> "_Kernels":
    """A context in which the loss or the model of one client runs, without a vmap, on the draws of `seed`."""
    return _Kernels({}, Draws(seed, 0, training))


def still() -> "_Kernels":
    """A context outside training: nothing is dropped, and all draws are the same."""
    return one_client(torch.zeros((), dtype=torch.int64), training=False)


class _Kernels(TorchFunctionMode):
    """While it is open, torch's functions run the kernels of this module."""

    def __init__(self, wide: dict[int, LowRank], draws: Draws) -> None:
        super().__init__()
        self.wide, self.draws = wide, draws

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.wide and any(t.is_meta for t in _tensors((*args, *kwargs.values()))):
            return _wide_linear(func, self.wide, args, kwargs)
        if func in ANSWERS and kwargs.get("generator") is None:
            return ANSWERS[func](self.draws, *args, **kwargs)
        if func in OPENED:
            with self:
                return opened(func)(*args, **kwargs)
        if func is F.embedding:
            return _embedding(*args, **kwargs)
        if func is Tensor.view:
            return _view(*args, **kwargs)
        kernel, axes = _KERNELS.get(func, (None, 0))
        if kernel is None or not args or args[0].ndim != axes or args[0].is_complex():
            return func(*args, **kwargs)
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        run = _on_stacks if PRIVATE_NAMES else _Operation.apply
        return run(_of_tensors(func, args, kwargs), _of_tensors(kernel, args, kwargs), *tensors)


def _view(x, *shape, **kwargs):
    """Of images in channels_last memory, where one client alone would have them contiguous, a copy."""
    try:
        return x.view(*shape, **kwargs)
    except RuntimeError:
        return x.reshape(*shape, **kwargs)


def _embedding(ids, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Of one client. Torch's vmap checks no id, and lets the row `padding_idx` of the first client alone stay."""
    if max_norm is not None or scale_grad_by_freq:
        raise Refused(
            "an embedding with max_norm writes into its weights, and one with scale_grad_by_freq counts padded rows: "
            "clients cannot train it in a stack; leave both out"
        )
    plain = ids
    while PRIVATE_NAMES and is_batchedtensor(plain):
        plain = get_unwrapped(plain)
    if not plain.is_cuda and plain.numel() and not 0 <= int(plain.min()) <= int(plain.max()) < len(weight):
        raise Refused(
            f"an embedding of {len(weight)} rows was given ids from {int(plain.min())} to {int(plain.max())}; in a "
            "stack of clients those outside would be rows of other clients"
        )
    out = F.embedding(ids, weight)
    return out if padding_idx is None else torch.where((ids == padding_idx % len(weight))[..., None], out.detach(), out)


def _tensors(arguments: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among the arguments of one of torch's functions, and in its lists."""
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, (list, tuple)):
            yield from _tensors(argument)


def _of_tensors(function: Callable[..., Tensor], args: tuple, kwargs: dict[str, Any]) -> Callable[..., Tensor]:
    """`function` of the tensors among its arguments, the others as they are."""

    def call(*tensors: Tensor) -> Tensor:
        rest = iter(tensors)
        values = [next(rest) if isinstance(a, Tensor) else a for a in (*args, *kwargs.values())]
        return function(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))

    return call


def _on_stacks(plain: Callable[..., Tensor], kernel: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """What `kernel` gives for the stacks behind the tensors of one vmap; `plain` under anything else."""
    levels = get_interpreter_stack() or ()
    if len(levels) != 1 or not all(map(is_batchedtensor, tensors)):
        return plain(*tensors)
    with temporarily_pop_interpreter_stack():
        out = kernel(*(_clients_first(get_unwrapped(t), maybe_get_bdim(t)) for t in tensors))
    return _add_batch_dim(out, 0, levels[0].level())


def _wide_linear(func: Any, wide: dict[int, LowRank], args: tuple, kwargs: dict[str, Any]) -> Any:
    """`F.linear` of a weight in its low-rank form, whose shape may be asked for; anything else is refused."""
    if func.__name__ == "__get__" and func.__self__.__name__ in _FACTS:
        return func(*args)
    given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs if func is F.linear else {}
    weights, tensors = wide.get(id(given.pop("weight", None))), [t for t in given.values() if t is not None]
    levels = get_interpreter_stack() or ()
    fits = weights is not None and given["input"].ndim == 2 and weights.takes(len(given["input"]))
    if (
        weights is None
        or not fits
        or not torch.is_grad_enabled()
        or len(levels) != 1
        or not all(map(is_batchedtensor, tensors))
    ):
        raise NeedsMatrix
    with temporarily_pop_interpreter_stack():
        out = weights.linear(*(_clients_first(get_unwrapped(t), maybe_get_bdim(t)) for t in tensors))
    return _add_batch_dim(out, 0, levels[0].level())


class _Operation(torch.autograd.Function):
    """`_on_stacks` by public names, slower to call: torch hands the stacks to `vmap`."""

    @staticmethod
    def forward(plain, kernel, *tensors):
        return plain(*tensors)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.plain, _, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, gradient):
        tensors = (t.contiguous() for t in ctx.saved_tensors)  # torch's vmap of pooling loops over channels_last ones
        return None, None, *torch.func.vjp(ctx.plain, *tensors)[1](gradient)

    @staticmethod
    def vmap(info, in_dims, plain, kernel, *tensors):
        axes = in_dims[2:]
        if None in axes or not all(map(_has_memory, tensors)):
            return torch.vmap(plain, axes)(*tensors), 0
        return kernel(*map(_clients_first, tensors, axes)), 0


def _has_memory(tensor: Tensor) -> bool:
    """Whether no vmap is at work on a tensor."""
    try:
        return tensor.untyped_storage() is not None
    except (NotImplementedError, RuntimeError):
        return False


def _clients_first(stack: Tensor, axis: int) -> Tensor:
    return stack.movedim(axis, 0) if axis else stack


# ---- the kernels: torch's functions with a client axis first in all tensors ----


def _flat(p: Any) -> Any:
    return None if p is None else p.flatten(0, 1)


def _group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    return as_clients(F.group_norm(as_channels(x), len(x) * groups, _flat(weight), _flat(bias), eps), len(x))


def _by_channel(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, *args, **kwargs: as_clients(function(as_channels(x), *args, **kwargs), len(x))


class _Linear(torch.autograd.Function):
    """Dense layers, the backward pass written out: a weight's gradient has the weight's layout, for the step."""

    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight)
        return x @ weight.mT if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)

    @staticmethod
    def backward(ctx, gradient):
        (x, weight), (of_x, of_weight, *of_bias) = ctx.saved_tensors, ctx.needs_input_grad
        kind = gradient.dtype  # under autocast it may have 16 bits where the others have more
        return (
            (gradient @ weight.to(kind)).to(x.dtype) if of_x else None,
            (gradient.mT @ x.to(kind)).to(weight.dtype) if of_weight else None,
            *(gradient.sum(1) if of_one else None for of_one in of_bias),
        )


_KERNELS: dict[Any, tuple[Callable[..., Tensor], int]] = {
    F.conv2d: (conv2d if PRIVATE_NAMES else grouped_conv2d, 4),
    F.max_pool2d: (_by_channel(F.max_pool2d), 4),
    F.avg_pool2d: (_by_channel(F.avg_pool2d), 4),
    F.adaptive_avg_pool2d: (_by_channel(F.adaptive_avg_pool2d), 4),
    F.group_norm: (_group_norm, 4),
}  #: For a function of torch: what takes its place, and the axes that its first argument must have.
if PRIVATE_NAMES:  # a call of `_Operation` takes longer than a small dense layer
    _KERNELS[F.linear] = _Linear.apply, 2
