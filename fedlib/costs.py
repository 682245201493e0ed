"""What a run costs: bytes sent, examples processed, floating-point operations, seconds on the server; by purpose.

`fedlib.federation.fit` opens a ledger for each round and writes it into the history. Most entries need nothing from an
algorithm: bytes are counted from what its messages hold. Work beside the training of models is entered with `record`
and `server_time`, which do nothing outside a run.
"""

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

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

COLUMNS = ("bytes_down", "bytes_up", "examples", "flops", "server_seconds")  #: What a round can cost.
TRAINING = "training"  #: The purpose of what has no other.


class Costs:
    """The costs of a round, by purpose and column; and the estimated operations of a training example, by loss."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(COLUMNS, 0))
        self.flops_per_example: dict[Any, float] = {}

    def take(self) -> dict[str, float]:
        """Columns of the history: the totals; and ``bytes_up (clustering)`` for each further purpose. Begins anew."""
        total = {c: self.total(c) for c in COLUMNS}
        parts = {
            f"{c} ({purpose})": value
            for purpose, entry in self.entries.items()
            if purpose != TRAINING
            for c, value in entry.items()
            if value
        }
        self.entries.clear()
        return total | parts

    def total(self, column: str) -> float:
        """Sum over all purposes."""
        return sum(entry[column] for entry in self.entries.values())


_current: ContextVar[Costs | None] = ContextVar("ledger", default=None)


def current_costs() -> Costs | None:
    """The ledger that is open, if any."""
    return _current.get()


@contextmanager
def open_costs() -> Iterator[Costs]:
    """Collect in a new ledger what is recorded meanwhile."""
    ledger = Costs()
    token = _current.set(ledger)
    try:
        yield ledger
    finally:
        _current.reset(token)


def record(purpose: str, **amounts: float) -> None:
    """Add to the costs of this round.

    Parameters
    ----------
    purpose : str
        Such as "clustering", "teacher-student", "pair pre-training", "graph".
    **amounts
        Any of `COLUMNS`, summed over clients.

    Raises
    ------
    ValueError
        A column that the ledger does not have.
    """
    if unknown := set(amounts) - set(COLUMNS):
        raise ValueError(f"the ledger has no column {sorted(unknown)}; it has {', '.join(COLUMNS)}")
    ledger = _current.get()
    if ledger is not None:
        for column, amount in amounts.items():
            ledger.entries[purpose][column] += amount


@contextmanager
def server_time(purpose: str) -> Iterator[None]:
    """Record the seconds spent inside as the server's, for this purpose; inner purposes are taken out of outer ones."""
    ledger, start = _current.get(), time.perf_counter()
    before = 0.0 if ledger is None else ledger.total("server_seconds")
    yield
    if ledger is not None:
        inner = ledger.total("server_seconds") - before
        record(purpose, server_seconds=time.perf_counter() - start - inner)


def message_bytes(tree: Any) -> int:
    """Bytes of one client's message, as safetensors would store its numbers (its header apart).

    Parameters
    ----------
    tree : Tensor, or nested dict of these
        Stacks: one row of each is one client's. Sums count with the 32 bits at least that they are taken in.

    Raises
    ------
    TypeError
        Something else, such as a number without an axis.
    """
    if isinstance(tree, dict):
        return sum(message_bytes(branch) for branch in tree.values())
    if not isinstance(tree, Tensor) or not tree.ndim:
        raise TypeError(f"a message holds tensors with a leading axis of models or clients; got {tree!r:.80}")
    return tree[0].numel() * tree.element_size()


class _CountProducts(TorchFunctionMode):
    """Adds up the multiplications of the products that PyTorch's functions are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.multiplications = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.multiplications += _multiplications(getattr(func, "__name__", ""), out, args, kwargs or {})
        return out


def _multiplications(name: str, out: Any, args: Any, kwargs: Mapping[str, Any]) -> int:
    def get(place: int, *names: str) -> Tensor:
        return args[place] if len(args) > place else next(kwargs[n] for n in names if n in kwargs)

    if name == "linear":
        return out.numel() * get(1, "weight").shape[-1]
    if name in ("conv1d", "conv2d", "conv3d"):
        return out.numel() * get(1, "weight")[0].numel()
    if name in ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"):
        return get(0, "input").numel() * get(1, "weight")[0].numel()
    if name in ("matmul", "__matmul__", "mm", "bmm", "mv"):
        return out.numel() * get(0, "input").shape[-1]
    if name in ("addmm", "baddbmm"):
        return out.numel() * get(1, "mat1", "batch1").shape[-1]
    if name in ("__rmatmul__", "tensordot", "inner"):  # each entry of out sums over as many as a and b share
        a, b = get(0, "a", "input"), get(1, "b", "other")
        return round(math.sqrt(a.numel() * b.numel() * out.numel()))
    if name == "einsum" and isinstance(args[0], str):
        operands = args[1] if isinstance(args[1], (list, tuple)) else args[1:]
        letters = args[0].replace(" ", "").split("->")[0].split(",")
        sizes = {x: n for word, t in zip(letters, operands, strict=True) for x, n in zip(word, t.shape, strict=False)}
        return math.prod(sizes.values())
    if name == "scaled_dot_product_attention":
        query, key, value = get(0, "query"), get(1, "key"), get(2, "value")
        return query.numel() // query.shape[-1] * key.shape[-2] * (query.shape[-1] + value.shape[-1])
    return 0


def flops_of(function: Any, *args: Tensor | Any) -> int:
    """Estimate of the floating-point operations of one call: two for each multiplication in a product of matrices.

    Counted are linear layers, convolutions, ``@``, `torch.einsum` and their kin, as the function calls them. What
    other functions do inside counts nothing, such as `torch.nn.MultiheadAttention` or an LSTM.
    """
    with _CountProducts() as counter, torch.no_grad():
        function(*args)
    return 2 * counter.multiplications
