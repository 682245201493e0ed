"""Costs of a run by purpose, in bytes sent, examples processed, floating-point operations and server seconds.

`fedlib.federation.fit` opens `Costs` for a run and writes them into the history after each round. Most entries need
nothing from an algorithm; bytes, for example, are counted from the contents of its messages. Work other than the
training of models is entered with `record` and `server_time`, which do nothing outside a run.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import TorchDispatchMode, flop_registry

from .stacked import still

__all__ = [
    "COLUMNS",
    "TRAINING",
    "Costs",
    "current_costs",
    "flops_of",
    "message_bytes",
    "open_costs",
    "record",
    "server_time",
]

COLUMNS = ("bytes_down", "bytes_up", "examples", "flops", "server_seconds")  #: The kinds of costs of a round.
TRAINING = "training"  #: The purpose of costs that have no other.


class Costs:
    """The costs of a round by purpose and column, and the operations of a training example by loss and network."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(COLUMNS, 0))
        self.flops_per_example: dict[tuple, tuple[float, Any]] = {}  # keeps the loss, so that its id stays unique

    def take(self) -> dict[str, float]:
        """Return the totals, and those of other purposes as ``bytes_up (clustering)``, for the history; then reset."""
        total = {c: self.total(c) for c in COLUMNS}
        others = {purpose: entry for purpose, entry in self.entries.items() if purpose != TRAINING}
        parts = {f"{c} ({purpose})": entry[c] for purpose, entry in others.items() for c in COLUMNS if entry[c]}
        self.entries.clear()
        return total | parts

    def total(self, column: str) -> float:
        """Sum over all purposes."""
        return sum(entry[column] for entry in self.entries.values())


_FORMULAS = flop_registry | dict.fromkeys(  # torch does not count products with a vector
    (torch.ops.aten.mv, torch.ops.aten.dot), lambda a, vector, **_: 2 * a.numel()
)
_current: ContextVar[Costs | None] = ContextVar("costs", default=None)


def current_costs() -> Costs | None:
    """The open costs, if any."""
    return _current.get()


@contextmanager
def open_costs() -> Iterator[Costs]:
    """Collect the costs that are recorded inside in new `Costs`."""
    costs = Costs()
    token = _current.set(costs)
    try:
        yield costs
    finally:
        _current.reset(token)


def record(purpose: str, **amounts: float) -> None:
    """Add to the costs of the current round.

    Parameters
    ----------
    purpose : str
        For example "clustering", "teacher-student", "pair pre-training" or "graph".
    **amounts
        Any of `COLUMNS`, summed over clients.
    """
    if costs := _current.get():
        for column, amount in amounts.items():
            costs.entries[purpose][column] += amount


@contextmanager
def server_time(purpose: str) -> Iterator[None]:
    """Record the seconds spent inside as server time for this purpose, without those of purposes nested within."""
    costs, start = current_costs() or Costs(), time.perf_counter()
    before = costs.total("server_seconds")
    yield
    inner = costs.total("server_seconds") - before
    record(purpose, server_seconds=time.perf_counter() - start - inner)


def message_bytes(tree: Any) -> int:
    """Bytes of one client's message as safetensors would store its numbers, without the header.

    Parameters
    ----------
    tree : Tensor, or nested dict of these
        Stacks, of which each client sends one row. Sums count at the precision they are taken in, at least 32 bits.

    Raises
    ------
    TypeError
        Anything else, such as a number without an axis.
    """
    if isinstance(tree, dict):
        return sum(message_bytes(branch) for branch in tree.values())
    if not isinstance(tree, Tensor) or not tree.ndim:
        raise TypeError(f"a message holds tensors with a leading axis of models or clients; got {tree!r:.80}")
    return tree[0].numel() * tree.element_size()


def flops_of(function: Callable[..., Any], *args: Any) -> int:
    """Floating-point operations of one call, two for each multiplication in a matrix product or a convolution.

    The formulas are those of `torch.utils.flop_counter`. A training step is estimated at three times its loss, since
    the backward pass computes two products for each one. In our measurements this overestimates training by 22 to 43 %,
    because the first layer needs no gradient with respect to its inputs.
    """
    with torch.no_grad(), still(), _Counter() as counter:
        function(*args)
    return counter.total


class _Counting:
    """The counter, outside the mode's class, for whose own methods torch would first import its compiler (seconds)."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in _FORMULAS:
            self.total += _FORMULAS[func.overloadpacket](*args, **(kwargs or {}), out_val=out)
        return out


class _Counter(_Counting, TorchDispatchMode):
    pass
