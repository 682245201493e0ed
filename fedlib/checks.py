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

__all__ = ["check_data", "check_loss", "check_number", "check_params", "check_whole"]

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
    if not isinstance(params, dict) or not params or not all(isinstance(p, Tensor) for p in params.values()):
        raise TypeError(f"params must be a dictionary of tensors, as model.init(0) gives; got {type(params)}")
    for name, p in params.items():
        if not p.is_floating_point():
            raise TypeError(f"parameter {name!r} has the type {p.dtype}; only floating-point numbers can be trained")


def check_data(data: Any, name: str) -> None:
    """Clients with ids of their own."""
    if not isinstance(data, ClientData):
        raise TypeError(f"{name} must be ClientData, as stack_clients or stack_rows makes; got {type(data)}")
    if len(data.id.unique()) != len(data):
        raise ValueError(f"{name} holds a client twice; ids must differ")


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

    def attempt(rows: list[int], w: list[float]) -> Tensor:
        batch = x[rows], y[rows], torch.tensor(w, dtype=dtype, device=x.device), *(column[rows] for column in more)
        try:
            with torch.no_grad():
                value = loss(moved, batch)
        except _WRONG as error:
            shapes = {name: tuple(p.shape) for name, p in params.items()}
            raise ValueError(
                f"the loss does not run with parameters {shapes} and a batch x {tuple(batch[0].shape)}, y "
                f"{batch[1].tolist()} ({y.dtype}): {error}. Do the model's inputs fit x, and its outputs y?"
            ) from error
        if not isinstance(value, Tensor) or value.ndim != 0:
            raise ValueError(f"the loss must give one number (a tensor of shape ()), got {value!r:.200}")
        return value

    for a, b in ((0, 1), (1, 2), (2, 0)):
        alone, padded = attempt([a], [1.0]), attempt([a, b], [1.0, 0.0])
        if alone.isfinite() and padded.isfinite() and not torch.allclose(alone, padded, rtol=1e-3, atol=1e-5):
            raise ValueError(
                f"the loss sees padded rows: a row with w = 0 moved it from {alone:.6g} to {padded:.6g}. Take the mean "
                "weighted by w, (values * w).sum() / w.sum(), as fedlib.losses.cross_entropy(logits, y, w) does"
            )
    if predict is None:
        return
    for name, some in {"training": data, **evaluations}.items():
        try:
            with torch.no_grad():
                output = predict(params, to_features(some.x[some.index[0, :1]], dtype))
        except _WRONG as error:
            raise ValueError(
                f"predict does not run on the {name} data, rows {tuple(some.x.shape[1:])}: {error}"
            ) from error
        if not some.y.is_floating_point() and output.ndim == 2 and int(some.y.max()) >= output.shape[1] >= 2:
            raise ValueError(
                f"the {name} data have the label {int(some.y.max())}, but the model has {output.shape[1]} outputs"
            )
