"""Checks of settings and data before a run begins; the errors say what to do instead."""

import math
import operator
import warnings
from collections.abc import Iterable
from dataclasses import MISSING, field, fields, replace
from numbers import Real
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import torch
from torch import Tensor

from .data import ClientData

__all__ = [
    "answer",
    "check_alike",
    "check_digits",
    "check_number",
    "check_params",
    "check_settings",
    "check_whole",
    "in_order",
    "number",
    "whole",
]


def number(default: Any = MISSING, kw_only: bool = False, **bounds: Any) -> Any:
    """A dataclass field for a number in a range, see `check_number`; without a default, it is required.

    Write ``mu: float = number(0.01)``. If the annotation also allows None or a word, these are accepted as they are.
    """
    return field(default=default, kw_only=kw_only, metadata={"check": check_number, "bounds": bounds})


def whole(default: Any = MISSING, **bounds: Any) -> Any:
    """A dataclass field for a whole number in a range, see `check_whole`; otherwise like `number`."""
    return field(default=default, metadata={"check": check_whole, "bounds": bounds})


def check_settings(settings: Any) -> None:
    """Refuse values outside the range that their field declares (`number`, `whole`, a Literal).

    Other numbers are kept as Python's, since torch refuses some of NumPy's.
    """
    for f in fields(settings):
        value, kinds = getattr(settings, f.name), (f.type, *get_args(f.type))
        words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
        if (value is None and NoneType in kinds) or (isinstance(value, str) and value in words):
            continue
        named = [f'"{word}"' for word in words] + ["None"] * (NoneType in kinds)
        if "check" in f.metadata:
            otherwise = "".join(f", or {name}" for name in named)
            plain = f.metadata["check"](value, f.name, otherwise, **f.metadata["bounds"])
            object.__setattr__(settings, f.name, plain)
        elif words:
            raise ValueError(f"{f.name} must be {' or '.join(named)}; got {value!r:.80}")


def check_whole(value: Any, name: str, otherwise: str = "", least: int = 1, most: int | None = None) -> int:
    """The value as a count if it is a whole number from `least` to `most`; `otherwise` names what else is allowed."""
    try:
        count = operator.index(value)
    except TypeError:
        count = least - 1
    if count < least or (most is not None and count > most):
        words = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number {words}{otherwise}; got {value!r:.80}{_for_all(value, name)}")
    return count


def check_number(
    value: Any,
    name: str,
    otherwise: str = "",
    least: float = 0.0,
    most: float = math.inf,
    above: bool = False,
    below: float = math.inf,
) -> float:
    """The value as a finite number, at least `least` (with `above`, more), at most `most` and less than `below`."""
    size = float(value) if isinstance(value, Real) else math.nan
    if not least <= size <= most or size >= below or (above and size == least):
        upper = f" and at most {most:g}" if most < math.inf else f" and below {below:g}" if below < math.inf else ""
        words = f"{'above' if above else 'of at least'} {least:g}{upper}{otherwise}"
        raise ValueError(f"{name} must be a number {words}; got {value!r:.80}{_for_all(value, name)}")
    return size


def _for_all(value: Any, name: str) -> str:
    """A hint for the error if a list, an array with axes or a schedule is given instead of one number."""
    if callable(value) and name == "lr":
        return ": it is one number for all rounds; the FAQ shows a rate that depends on the round"
    if not getattr(value, "ndim", isinstance(value, (list, tuple, dict))):
        return ""
    recipe = ". For a rate for each client, scale its loss by a column of the data (with_columns); see the FAQ"
    return f": it is one number for all clients{recipe if name == 'lr' else ''}"


def check_params(params: Any) -> None:
    """Refuse anything but one set of parameters, that is, named tensors of floating-point numbers."""
    some = params.values() if isinstance(params, dict) else ()
    if not some or not all(isinstance(p, Tensor) and p.is_floating_point() for p in some):
        kinds = {name: getattr(p, "dtype", type(p)) for name, p in params.items()} if some else type(params)
        raise TypeError(f"params must be named tensors of floating-point numbers, as model.init(0) gives; got {kinds}")


def check_digits(y: Tensor, dtype: torch.dtype) -> None:
    """Warn if targets are so far from zero, relative to their spread, that `dtype` cannot distinguish them."""
    if y.is_floating_point() and (y - y.to(dtype)).abs().max() > 1e-3 * (y.max() - y.min()) > 0:
        warnings.warn(
            f"targets from {y.min():g} to {y.max():g} lose their digits as {dtype}; subtract their mean, or train with "
            "dtype=torch.float64",
            stacklevel=3,
        )


def answer(output: Tensor, y: Tensor) -> Tensor:
    """One client's predictions in the shape of y (B, ...), either the most likely classes or the numbers themselves."""
    if not isinstance(output, Tensor):
        raise TypeError(f"predict must give a tensor, got a {type(output).__name__}; return only the predictions")
    given = tuple(output.shape)
    if y.is_floating_point():
        if given not in (y.shape, (*y.shape, 1)):
            raise ValueError(f"predict must give a number for each target, {tuple(y.shape)}; got {given}")
        return output.reshape(y.shape)
    if y.ndim > 1 and given == y.shape:
        return (output > 0).long()
    if output.shape[:-1] != y.shape or given[-1] < 2:
        more = " or one logit for each label of 0 and 1" if y.ndim > 1 else ""
        raise ValueError(
            f"predict must give a logit for each class, {(*y.shape, 'classes')}{more}; got {given}. "
            "For one logit z of two classes give torch.stack([-z, z], dim=-1); whole numbers in y are classes; for "
            "regression, give y.astype('float32')"
        )
    return output.argmax(-1)


def check_alike(data: ClientData, some: ClientData, name: str, exactly: bool) -> ClientData:
    """An evaluation set like the training data, with columns in the same order; `exactly` demands the same columns."""
    for what, here, there in (
        ("y of shape", *((*d.y.shape[2:],) for d in (some, data))),
        ("y of type", *("floating point" if d.y.is_floating_point() else "whole numbers" for d in (some, data))),
        ("pixels =", some.pixels, data.pixels if some.x.dtype == data.x.dtype == torch.uint8 else some.pixels),
        ("columns", *(sorted(d.columns) if exactly else [] for d in (some, data))),
    ):
        if here != there:
            raise ValueError(f"the evaluation set {name!r} has {what} {here}, training {there}; make them alike")
    return in_order(some, data.columns)


def in_order(data: ClientData, names: Iterable[str]) -> ClientData:
    """The data with columns in the order of training, in which a loss takes them, if they are the same ones."""
    names = [*names]
    return replace(data, columns={n: data.columns[n] for n in names}) if {*names} == {*data.columns} else data
