"""Algebra of stacked parameters.

``Params`` is a dictionary of tensors. A *stack* has one leading axis more: one row for each client of a cohort
(C rows), for each server model (M rows) or for each client of the population (K rows). Sending a model to a client is
then indexing (`take`), and averaging is one matrix product (`mix`).
"""

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = [
    "Params",
    "broadcast",
    "count",
    "dot",
    "mix",
    "norm",
    "number_of_rows",
    "put",
    "row",
    "stack",
    "sub",
    "take",
    "to_matrix",
]

Params = dict[str, Tensor]


def number_of_rows(stack: Params) -> int:
    """Length of the leading axis that all tensors of a stack share."""
    return len(next(iter(stack.values())))


def count(params: Params) -> int:
    """How many numbers one set of parameters (not a stack) holds."""
    return sum(p.numel() for p in params.values())


def row(stack: Params, i: int) -> Params:
    """The parameters in row `i` of a stack, without the leading axis."""
    return {name: p[i] for name, p in stack.items()}


def stack(rows: Iterable[Params]) -> Params:
    """Put parameters with the same names and shapes on a new leading axis."""
    rows = list(rows)
    return {name: torch.stack([r[name] for r in rows]) for name in rows[0]}


def broadcast(params: Params, rows: int) -> Params:
    """Show one set of parameters as a stack of `rows` equal rows; a view, so clone before writing."""
    return {name: p.expand(rows, *p.shape) for name, p in params.items()}


def take(stack: Params, index: Tensor) -> Params:
    """Rows `index` of a stack: the server's models sent to the clients.

    A stack of one row is broadcast instead of copied, since every index means that row.
    """
    if number_of_rows(stack) == 1:
        return broadcast(row(stack, 0), len(index))
    return {name: p[index] for name, p in stack.items()}


def put(stack: Params, index: Tensor, values: Params) -> Params:
    """A copy of `stack` whose rows `index` are `values`."""
    return {name: p.index_copy(0, index, values[name]) for name, p in stack.items()}


def sub(a: Params, b: Params) -> Params:
    """Difference a - b, name by name: with a = after and b = before training, the updates (Delta theta)."""
    return {name: a[name] - b[name] for name in a}


def to_matrix(stack: Params) -> Tensor:
    """All parameters of a stack side by side, of shape (rows, number of parameters)."""
    # reshape, not flatten(1): scalar parameters have no second axis
    return torch.cat([p.reshape(len(p), -1) for p in stack.values()], dim=1)


def mix(matrix: Tensor, stack: Params) -> Params:
    """Weighted sums of the rows of a stack: each row of `matrix` (M, C) makes one row of the result (M, ...)."""
    return {name: (matrix @ p.reshape(len(p), -1)).view(-1, *p.shape[1:]) for name, p in stack.items()}


def dot(a: Params, b: Params) -> Tensor:
    """Inner product row by row, over all names; of shape (rows,)."""
    return sum((a[name] * b[name]).reshape(len(a[name]), -1).sum(1) for name in a)  # type: ignore[return-value]


def norm(stack: Params) -> Tensor:
    """Euclidean norm of each row over all names; of shape (rows,)."""
    return dot(stack, stack).sqrt()
