"""Torch's random functions inside a client's loss, with draws that depend on client, round and step.

For dropout, augmentation or noise, a loss calls `torch.rand`, `torch.randn_like`, `torch.nn.functional.dropout` and so
on, as any program does. Inside `fedlib.stacked.vmap`, each call is answered by a hash of (seed, round, client id, step,
number of the call in this step, position). Therefore a client's draws do not depend on which other clients are trained
or on the chunk or process, and do not change after a resume. The draws of a real row do not depend on padding.

Outside training, nothing is dropped or augmented, and other draws are the same for all clients and in each call.
"""

import math
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

from .keys import child, spread, to_normal, to_uniform

__all__ = ["ANSWERS", "Draws", "Refused", "in_training"]

_ALPHA = -1.7580993408473766  # what alpha dropout replaces a unit by, SELU's value at minus infinity


class Refused(ValueError):
    """Error for a loss or module that clients cannot train in a stack; its message says what to do instead."""


def in_training(x: Tensor) -> bool:
    """Whether the loss that was given the tensor `x` is being trained by `fedlib.federation.fit`."""
    return handle_torch_function(in_training, (x,), x) if has_torch_function_unary(x) else False


class Draws:
    """The random numbers of one call of a loss.

    Parameters
    ----------
    seed : Tensor, scalar int64
        Seed of one client or, inside a vmap, of each client.
    step : int
        Number of the step.
    training : bool
        Whether dropout is active.
    """

    def __init__(self, seed: Tensor, step: int, training: bool) -> None:
        self.seed, self.step, self.training, self.calls = seed, step, training, 0

    def bits(self, shape: Any, device: Any = None) -> Tensor:
        """Uniform 64-bit integers of a given shape, different in each call."""
        self.calls += 1
        return spread(child(child(self.seed.to(device or self.seed.device), self.step), self.calls), shape)

    def uniform(self, shape: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
        """Numbers in [0, 1)."""
        dtype = dtype or torch.get_default_dtype()
        if dtype.is_complex:
            return torch.complex(*(self.uniform(shape, dtype.to_real(), device) for _ in range(2)))
        return to_uniform(self.bits(shape, device), dtype)

    def normal(self, shape: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
        """Standard normal numbers."""
        if dtype is not None and dtype.is_complex:  # of variance 1 as a whole
            return torch.complex(*(self.normal(shape, dtype.to_real(), device) for _ in range(2))) * 0.5**0.5
        return to_normal(self.uniform(shape, dtype, device), self.uniform(shape, dtype, device))

    def whole(self, low: int, high: int, shape: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
        """Whole numbers from `low` to `high` - 1."""
        if not low < high:
            raise Refused(f"torch.randint must have low < high, got {low} and {high}")
        return (low + (self.bits(shape, device) >> 1) % (high - low)).to(dtype or torch.int64)


# ---- torch's functions, with the draws as an additional first argument ----


def _sized(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A replacement with the signature of `torch.rand(*size)`."""

    def answer(draws, *size, dtype=None, device=None, **other):
        if other.get("out") is not None:
            raise Refused("a draw with out= writes into a tensor that all clients share; omit out=")
        size = other.pop("size", size)
        shape = size[0] if len(size) == 1 and not hasattr(size[0], "__index__") else size
        return draw(draws, shape, dtype, device)

    return answer


def _like(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A replacement with the signature of `torch.rand_like(x)`."""
    return lambda draws, x, *, dtype=None, device=None, **_: draw(draws, x.shape, dtype or x.dtype, device or x.device)


def _randint(draws, low=None, high=None, size=None, *, dtype=None, device=None, **_):
    if size is None:  # torch.randint(high, size)
        low, high, size = 0, low, high
    low, high = (0, low) if high is None else (low or 0, high)  # torch.randint(high, size=size)
    return draws.whole(low, high, size, dtype, device)


def _randint_like(draws, x, low, high=None, *, dtype=None, device=None, **_):
    low, high = (0, low) if high is None else (low, high)
    return draws.whole(low, high, x.shape, dtype or x.dtype, device or x.device)


def _bernoulli(draws, p, chance=None, **_):
    return (draws.uniform(p.shape, p.dtype, p.device) < (p if chance is None else chance)).to(p.dtype)


def _normal(draws, mean, std=1.0, size=None, **kinds):
    if size is not None:
        return mean + std * _sized(Draws.normal)(draws, size, **kinds)
    like = mean if isinstance(mean, Tensor) else std
    shape = torch.broadcast_shapes(*(t.shape for t in (mean, std) if isinstance(t, Tensor)))
    return mean + std * draws.normal(shape, like.dtype, like.device)


def _in_place(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A replacement for a method such as `x.uniform_()`; under a vmap, x must have been created inside it."""
    return lambda draws, x, *args, generator=None, **kwargs: x.copy_(draw(draws, x, *args, **kwargs))


def _uniform_(draws, x, low=0.0, high=1.0, **names):
    low, high = names.get("from", low), names.get("to", high)
    return low + (high - low) * draws.uniform(x.shape, x.dtype, x.device)


def _normal_(draws, x, mean=0.0, std=1.0):
    return mean + std * draws.normal(x.shape, x.dtype, x.device)


def _bernoulli_(draws, x, p=0.5):
    return draws.uniform(x.shape, x.dtype if x.is_floating_point() else torch.float32, x.device) < p


def _exponential_(draws, x, lambd=1.0):
    return -torch.log1p(-draws.uniform(x.shape, x.dtype, x.device)) / lambd


def _empty(create: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A replacement for a function such as `torch.empty`, whose tensor each client then fills in place by draws."""

    def answer(draws, *args, **kwargs):
        made = create(*args, **kwargs)
        return torch.zeros_like(made) + (draws.seed & 0).to(made)

    return answer


def _dropped(axes: int | None, alpha: bool = False, unbatched: int | None = None) -> Callable[..., Tensor]:
    """Dropout of single numbers, or of whole channels, which are indexed by the first `axes` axes."""

    def answer(draws, x, p=0.5, training=True, inplace=False, **other):
        if not 0 <= p <= 1:
            raise Refused(f"dropout must have a probability p from 0 to 1, got {p}")
        if not (draws.training and other.get("train", training) and p):
            return x
        kept_axes = axes and axes - (x.ndim == unbatched)
        shape = x.shape if kept_axes is None else (*x.shape[:kept_axes], *[1] * (x.ndim - kept_axes))
        kept = draws.uniform(shape, x.dtype, x.device) >= p
        if alpha:
            scale = ((1 - p) * (1 + p * _ALPHA**2)) ** -0.5 if p < 1 else 0.0
            out = torch.where(kept, x, _ALPHA) * scale - scale * _ALPHA * p
        else:
            out = x * kept / (1 - p) if p < 1 else x * 0
        return x.copy_(out) if inplace else out

    return answer


def _attention(
    draws, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
):
    """Attention by its definition, because torch's own kernels would loop over clients."""
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    score = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).tril()
    if attn_mask is not None:
        score = score.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else score + attn_mask
    nothing = (score == -math.inf).all(-1, keepdim=True)  # a query that may attend to no key gets 0, as in torch
    score = score.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    return _dropped(None)(draws, score, dropout_p) @ value


def _no_permutation(draws, *args, **kwargs):
    raise Refused(
        "torch.randperm in a loss would shuffle padded rows among the real ones; for an order of the real rows take "
        "(torch.rand(len(w)) - w).argsort(), which puts padding last"
    )


@cache
def opened(func: Any) -> Any:
    """A copy of a `torch.nn.functional` function that checks for overrides in its inner calls, not as a whole."""
    never = {name: lambda *_: False for name in func.__code__.co_names if name.startswith("has_torch_function")}
    copy = FunctionType(func.__code__, func.__globals__ | never, func.__name__, func.__defaults__, func.__closure__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


_CHANNELS = {F.dropout1d: 2, F.dropout2d: None, F.dropout3d: 4, torch.feature_dropout: None}  # axes of one image
ANSWERS: dict[Any, Callable[..., Any]] = {
    torch.rand: _sized(Draws.uniform),
    torch.randn: _sized(Draws.normal),
    torch.rand_like: _like(Draws.uniform),
    torch.randn_like: _like(Draws.normal),
    torch.randint: _randint,
    torch.randint_like: _randint_like,
    torch.bernoulli: _bernoulli,
    Tensor.bernoulli: _bernoulli,
    torch.normal: _normal,
    torch.randperm: _no_permutation,
    Tensor.uniform_: _in_place(_uniform_),
    Tensor.normal_: _in_place(_normal_),
    Tensor.bernoulli_: _in_place(_bernoulli_),
    Tensor.exponential_: _in_place(_exponential_),
    **{f: _empty(f) for f in (torch.empty, torch.empty_like, Tensor.new_empty)},
    **{f: _dropped(None) for f in (F.dropout, torch.dropout)},
    **{f: _dropped(2, unbatched=axes) for f, axes in _CHANNELS.items()},
    **{f: _dropped(None, alpha=True) for f in (F.alpha_dropout, torch.alpha_dropout)},
    **{f: _dropped(2, alpha=True) for f in (F.feature_alpha_dropout, torch.feature_alpha_dropout)},
    F.scaled_dot_product_attention: _attention,
    in_training: lambda draws, x: draws.training,
}  #: Replacements of torch's functions, called with the draws and the arguments of the function.
OPENED = {F.multi_head_attention_forward, F.gumbel_softmax}  #: Functions whose inner calls are replaced instead.
