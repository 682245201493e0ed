"""Kernels for torch's own functions inside a vmap, which make plain PyTorch for one client fast for a stack of them.

Under `torch.vmap` alone, a convolution of a stack of clients can be slower on a CPU than a loop over them. Inside the
`vmap` of this module clients become channels, so pooling and group norm of C clients are the same functions on C times
the channels, and so are convolutions (`fedlib.convolutions`). In channels_last memory these are fast on a CPU, and each
hands its output to the next without a copy. The loss does not notice, because it still calls `F.conv2d` for one client.
If torch lacks one of the private names below, its own vmap runs, without kernels and without low rank.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .chance import ANSWERS, OPENED, Draws, Refused, opened
from .convolutions import as_channels, as_clients, conv2d
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
except ImportError:
    PRIVATE_NAMES = False

__all__ = ["vmap"]

_FACTS = ("shape", "ndim", "dtype", "requires_grad")  # which a placeholder shares with the weight


def vmap(
    function: Callable[..., Any],
    in_dims: Any = 0,
    wide: Sequence[tuple[Tensor, LowRank]] = (),
    seeds: Tensor | None = None,
    step: int = 0,
) -> Callable[..., Any]:
    """`torch.vmap` with the kernels of this module (chapter 16) and with random numbers (`fedlib.chance`).

    Parameters
    ----------
    function : callable
        Function of one client, in plain PyTorch.
    in_dims : int, None or nested structure
        The axis of the clients in each argument, as `torch.vmap` takes it.
    wide : sequence of (Tensor, LowRank)
        A placeholder on the device "meta" for the weight of a dense layer in an argument that all clients share, and
        the clients' weights. The placeholder may be given to `torch.nn.functional.linear` once; any other use raises
        `fedlib.low_rank.NeedsMatrix`.
    seeds : Tensor of shape (C,), int64, optional
        Seeds of each client's random numbers in training. Without them nothing is dropped, and all clients draw the
        same numbers.
    step : int
        Number of the step; different steps draw different numbers.

    Returns
    -------
    callable
        The same function of a stack, equal to `torch.vmap(function, in_dims)` up to rounding.

    Notes
    -----
    A kernel replaces a function if this vmap alone stacks all of its tensors. Torch's own function runs if clients
    share one of them, if there is a further vmap around or inside this one, or inside `torch.func.grad`. With seeds, a
    stack of one client is trained without a vmap.
    """
    placeholders = {id(placeholder): weights for placeholder, weights in wide}

    def one(seed: Any, *args: Any) -> Any:
        with still() if seed is None else _Kernels(placeholders, Draws(seed, step, training=True)):
            return function(*args)

    def each(*args: Any) -> Any:
        if seeds is not None and len(seeds) == 1 and in_dims == 0:
            return one(seeds[0], *map(_first, args))[None]
        axes = in_dims if isinstance(in_dims, tuple) else [in_dims] * len(args)
        return torch.vmap(one, (None if seeds is None else 0, *axes))(seeds, *args)

    return each


def _first(stack: Any) -> Any:
    """The only client of a stack of one row."""
    if isinstance(stack, dict):
        return {name: _first(p) for name, p in stack.items()}
    return tuple(map(_first, stack)) if isinstance(stack, tuple) else stack.squeeze(0)


def one_client(seed: Tensor, training: bool) -> "_Kernels":
    """A context in which the loss or the model of one client runs, without a vmap, on the draws of `seed`."""
    return _Kernels({}, Draws(seed, 0, training))


def still() -> "_Kernels":
    """A context outside training, in which nothing is dropped and all draws are the same."""
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
        answer = _ANSWERS.get(func)
        return func(*args, **kwargs) if answer is None else answer(self, func, args, kwargs)


def _drawn(mode: _Kernels, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    given = kwargs.get("generator") is not None
    return func(*args, **kwargs) if given else ANSWERS[func](mode.draws, *args, **kwargs)


def _opened(mode: _Kernels, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    with mode:
        return opened(func)(*args, **kwargs)


def _by_kernel(mode: _Kernels, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Use the kernel if this vmap alone stacks all tensors, and torch's function otherwise."""
    kernel, axes = _KERNELS[func]
    fits = args and args[0].ndim == axes and not args[0].is_complex()
    out = _of_stacks(kernel, args, kwargs) if fits else None
    return func(*args, **kwargs) if out is None else out


def _of_stacks(kernel: Callable[..., Tensor], args: tuple, kwargs: dict[str, Any]) -> Tensor | None:
    """The result of a kernel for the stacks behind the tensors; None unless one vmap alone stacks all of them."""
    levels, tensors = get_interpreter_stack() or (), [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
    if len(levels) != 1 or not all(map(is_batchedtensor, tensors)):
        return None

    def stack(a: Any) -> Any:
        return _clients_first(get_unwrapped(a), maybe_get_bdim(a)) if isinstance(a, Tensor) else a

    with temporarily_pop_interpreter_stack():
        out = kernel(*map(stack, args), **{name: stack(a) for name, a in kwargs.items()})
    return _add_batch_dim(out, 0, levels[0].level())


def _view(mode: _Kernels, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A view, or a copy if images are in channels_last memory, where those of a single client would be contiguous."""
    try:
        return func(*args, **kwargs)
    except RuntimeError:
        return Tensor.reshape(*args, **kwargs)


def _embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Embedding of one client; torch's vmap checks no ids, and freezes row `padding_idx` for the first client only."""
    if max_norm is not None or scale_grad_by_freq:
        raise Refused(
            "an embedding with max_norm writes into its weights, and one with scale_grad_by_freq counts padded rows: "
            "clients cannot train it in a stack; leave both out"
        )
    plain = input
    while PRIVATE_NAMES and is_batchedtensor(plain):
        plain = get_unwrapped(plain)
    seen = PRIVATE_NAMES and not plain.is_cuda and plain.numel() > 0
    if seen and not 0 <= int(plain.min()) <= int(plain.max()) < len(weight):
        raise Refused(
            f"an embedding of {len(weight)} rows was given ids from {int(plain.min())} to {int(plain.max())}; in a "
            "stack of clients those outside would be rows of other clients"
        )
    out = F.embedding(input, weight)
    return (
        out if padding_idx is None else torch.where((input == padding_idx % len(weight))[..., None], out.detach(), out)
    )


def _embedding_bag(
    input, weight, offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="mean", sparse=False,
    *more, **named
):  # fmt: skip
    """Torch's function with dense gradients of the same numbers, as `_embedding` has them."""
    return F.embedding_bag(input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, False, *more, **named)


def _tensors(arguments: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among the arguments of a function of torch's, including those in lists."""
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, (list, tuple)):
            yield from _tensors(argument)


def _wide_linear(func: Any, wide: dict[int, LowRank], args: tuple, kwargs: dict[str, Any]) -> Any:
    """`F.linear` of a weight in low-rank form, whose shape may also be read; any other use is refused."""
    if func.__name__ == "__get__" and func.__self__.__name__ in _FACTS:
        return func(*args)
    given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs if func is F.linear else {}
    weights, out = wide.get(id(given.get("weight"))), None
    x: Any = given.get("input")
    if weights is not None and x.ndim == 2 and weights.takes(len(x)) and torch.is_grad_enabled():
        out = _of_stacks(weights.linear, (x, given.get("bias")), {})
    if out is None:
        raise NeedsMatrix
    return out


def _clients_first(stack: Tensor, axis: int) -> Tensor:
    return stack.movedim(axis, 0) if axis else stack


# ---- the kernels: torch's functions with a client axis first in all tensors ----


def _flat(p: Any) -> Any:
    return None if p is None else p.flatten(0, 1)


def _group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    return as_clients(F.group_norm(as_channels(x), len(x) * groups, _flat(weight), _flat(bias), eps), len(x))


def _by_channel(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def kernel(x, *args, **kwargs):
        if x.stride(0) > x.stride(1) > x.stride(2):  # a client's images are side by side
            return function(x.flatten(0, 1), *args, **kwargs).unflatten(0, x.shape[:2])
        return as_clients(function(as_channels(x), *args, **kwargs), len(x))

    return kernel


class _Linear(torch.autograd.Function):
    """Dense layers with an explicit backward pass, so that a weight's gradient has the weight's layout for the step."""

    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight)
        return x @ weight.mT if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)

    @staticmethod
    def backward(ctx, gradient):
        (x, weight), (of_x, of_weight, *of_bias) = ctx.saved_tensors, ctx.needs_input_grad
        kind = gradient.dtype  # under autocast it may have 16 bits where the others have more
        return (
            gradient @ weight.to(kind) if of_x else None,
            gradient.mT @ x.to(kind) if of_weight else None,
            *(gradient.sum(1) if of_one else None for of_one in of_bias),
        )


def _linear(input, weight, bias=None):
    if weight.ndim == 2:  # a vector for each client
        out = (input @ weight[..., None])[..., 0]
        return out if bias is None else out + bias[:, None]
    return _Linear.apply(input, weight, bias)


_KERNELS: dict[Any, tuple[Callable[..., Tensor], int]] = {
    F.conv2d: (conv2d, 4),
    F.max_pool2d: (_by_channel(F.max_pool2d), 4),
    F.avg_pool2d: (_by_channel(F.avg_pool2d), 4),
    F.adaptive_avg_pool2d: (_by_channel(F.adaptive_avg_pool2d), 4),
    F.group_norm: (_group_norm, 4),
    F.linear: (_linear, 2),
}  #: For a function of torch, its replacement and the number of axes of its first argument.
if not PRIVATE_NAMES:
    _KERNELS.clear()
_ANSWERS: dict[Any, Callable[[_Kernels, Any, tuple, dict[str, Any]], Any]] = {
    **dict.fromkeys(ANSWERS, _drawn),
    **dict.fromkeys(OPENED, _opened),
    **dict.fromkeys(_KERNELS, _by_kernel),
    F.embedding: lambda mode, func, args, kwargs: _embedding(*args, **kwargs),
    F.embedding_bag: lambda mode, func, args, kwargs: _embedding_bag(*args, **kwargs),
    Tensor.view: _view,
}  #: What happens when a loss calls one of torch's functions.
