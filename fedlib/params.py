"""Algebra of stacked parameters.

``Params`` is a dictionary of tensors. A *stack* has an extra leading axis, with one row for each client of a cohort (C
rows), for each server model (M rows) or for each client of the population (K rows). Sending a model to a client is then
indexing (`take`), and averaging is one matrix product (`mix`).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .low_rank import LowRank

__all__ = [
    "Params",
    "broadcast",
    "dot",
    "mix",
    "norm",
    "number_of_rows",
    "per_row",
    "put",
    "row",
    "sub",
    "take",
    "to_matrix",
]

Params = dict[str, Tensor]


def number_of_rows(stack: Params) -> int:
    """Length of the leading axis that all tensors of a stack share."""
    return len(next(iter(stack.values())))


def row(stack: Params, i: int) -> Params:
    """The parameters in row `i` of a stack, without the leading axis."""
    return {name: p[i] for name, p in stack.items()}


def broadcast(params: Params, rows: int) -> Params:
    """View one set of parameters as a stack of `rows` equal rows; clone the stack before writing to it."""
    return {name: p.expand(rows, *p.shape) for name, p in params.items()}


def take(stack: Params, index: Tensor) -> Params:
    """Return the rows `index` of a stack, for example the server's models as sent to the clients.

    A stack of one row is broadcast instead of copied, since every index means that row. A stack without names stays
    empty.
    """
    if all(len(p) == 1 for p in stack.values()):
        return broadcast(row(stack, 0), len(index))
    return {name: p[index] for name, p in stack.items()}


def put(stack: Params | Tensor, index: Tensor, values: Params | Tensor) -> Any:
    """Return a full copy of a stack, or of one tensor with a leading axis, in which the rows `index` are `values`."""
    if isinstance(stack, Tensor):
        return stack.index_copy(0, index, values)  # type: ignore[arg-type]
    return {name: put(p, index, values[name]) for name, p in stack.items()}  # type: ignore[index]


def per_row(values: Tensor, p: Tensor) -> Tensor:
    """Shape and convert one number per row so that it can be multiplied with the tensor `p` of a stack."""
    return values.to(p.dtype).view(*values.shape, *[1] * (p.ndim - values.ndim))


def sub(a: Params, b: Params) -> Params:
    """Difference a - b, name by name; with a after and b before training, these are the updates (Delta theta)."""
    return {name: a[name] - b[name] for name in a}


def to_matrix(stack: Params) -> Tensor:
    """All parameters of a stack, joined side by side, of shape (rows, number of parameters)."""
    # reshape instead of flatten(1), since scalar parameters have no second axis
    return torch.cat([p.reshape(len(p), -1) for p in stack.values()], dim=1)


def mix(matrix: Tensor, stack: Mapping[str, Tensor | LowRank]) -> Params:
    """Weighted sums of the rows of a stack, one row of the result (M, ...) for each row of `matrix` (M, C).

    Sums are computed and returned in at least 32 bits, because 16 bits can hold neither the sum of many examples nor
    their number.
    """

    def sums(p: Tensor | LowRank) -> Tensor:
        if isinstance(p, LowRank):
            return p.mixed(matrix)
        wide = torch.promote_types(p.dtype, torch.float32)
        return torch.tensordot(matrix.to(wide), p.to(wide), 1)

    return {name: sums(p) for name, p in stack.items()}


def dot(a: Params, b: Params) -> Tensor:
    """Inner product row by row, over all names; of shape (rows,)."""
    return sum((a[name] * b[name]).reshape(len(a[name]), -1).sum(1) for name in a)  # type: ignore[return-value]


def norm(stack: Params) -> Tensor:
    """Euclidean norm of each row over all names; of shape (rows,)."""
    return dot(stack, stack).sqrt()
