"""What is refused before a run begins, with a word on what to do instead."""

import math
import operator
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from .data import ClientData, to_features
from .keys import Key
from .params import Params

__all__ = ["check_loss", "check_number", "check_params", "check_whole"]

_WRONG = (RuntimeError, KeyError, IndexError, TypeError, ValueError, AttributeError)  # of a loss that does not fit


def check_whole(number: Any, name: str, otherwise: str = "", least: int = 1, most: int | None = None) -> int:
    """A count, if it is a whole number from `least` to `most`; `otherwise` says what else may be given."""
    try:
        value = operator.index(number)
    except TypeError:
        value = least - 1
    if value < least or (most is not None and value > most):
        words = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number {words}{otherwise}; got {number!r}")
    return value


def check_number(number: Any, name: str, least: float = 0.0, above: bool = False, below: float = math.inf) -> float:
    """A number of at least `least`, or `above` it, and below `below`."""
    value = float(number) if isinstance(number, Real) else math.nan
    if not least <= value < below or (above and value == least):
        words = f"{'above' if above else 'of at least'} {least:g}" + (
            f" and below {below:g}" if below < math.inf else ""
        )
        raise ValueError(f"{name} must be a number {words}; got {number!r}")
    return value


def check_params(params: Any) -> None:
    """One set of parameters: named tensors of floating-point numbers."""
    some = params.values() if isinstance(params, dict) else ()
    if not some or not all(isinstance(p, Tensor) and p.is_floating_point() for p in some):
        kinds = {name: getattr(p, "dtype", type(p)) for name, p in params.items()} if some else type(params)
        raise TypeError(f"params must be named tensors of floating-point numbers, as model.init(0) gives; got {kinds}")


def check_loss(
    loss: Callable[..., Tensor],
    predict: Callable[..., Tensor] | None,
    params: Params,
    data: ClientData,
    evaluations: Mapping[str, ClientData],
) -> None:
    """Try the loss and `predict` before the first round: parameters and labels must fit, padding must stay unseen."""
    one, dtype = torch.zeros(1, dtype=torch.int64), next(iter(params.values())).dtype
    # Away from the start: where all rows have the same loss, seeing padding would not show.
    moved = {name: p + 0.1 * Key(0).normal(one, name, *p.shape)[0].to(p) for name, p in params.items()}
    # Three real rows, one with the largest label: real rows are what padding is made of.
    places = [(0, 0), (len(data) - 1, int(data.n[-1]) - 1), divmod(int(data.y.argmax()), data.y.shape[1])]
    x = to_features(data.x[torch.stack([data.index[k, i] for k, i in places])], dtype)
    y, *more = (torch.stack([column[k, i] for k, i in places]) for column in (data.y, *data.columns.values()))

    shapes = {name: tuple(p.shape) for name, p in params.items()}

    def attempt(what: str, function: Callable[..., Tensor], *args: Any) -> Tensor:
        try:
            with torch.no_grad():
                return function(*args)
        except _WRONG as error:
            raise ValueError(
                f"{what} with parameters {shapes} and rows of shape {tuple(x.shape[1:])}, y {y.tolist()} ({y.dtype}): "
                f"{error}. Do the model's inputs fit x, and its outputs y?"
            ) from error

    def loss_of(rows: list[int], w: list[float]) -> Tensor:
        batch = x[rows], y[rows], torch.tensor(w, dtype=dtype, device=x.device), *(column[rows] for column in more)
        value = attempt("the loss does not run", loss, moved, batch)
        if not isinstance(value, Tensor) or value.ndim != 0:
            raise ValueError(f"the loss must give one number (a tensor of shape ()), got {value!r:.200}")
        return value

    for a, b in ((0, 1), (1, 2), (2, 0)):
        alone, padded = loss_of([a], [1.0]), loss_of([a, b], [1.0, 0.0])
        if alone.isfinite() and padded.isfinite() and not torch.allclose(alone, padded, rtol=1e-3, atol=1e-5):
            raise ValueError(
                f"the loss sees padded rows: a row with w = 0 moved it from {alone:.6g} to {padded:.6g}. Take the mean "
                "weighted by w, (values * w).sum() / w.sum(), as fedlib.losses.cross_entropy(logits, y, w) does"
            )
    if predict is None:
        return
    for name, some in {"training": data, **evaluations}.items():
        x = to_features(some.x[some.index[0, :1]], dtype)
        output = attempt(f"predict does not run on the {name} data", predict, params, x)
        if not some.y.is_floating_point() and output.ndim == 2 and int(some.y.max()) >= output.shape[1] >= 2:
            raise ValueError(
                f"the {name} data have the label {int(some.y.max())}, but the model has {output.shape[1]} outputs"
            )
