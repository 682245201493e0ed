"""Local training, the only training loop of the library."""

import ctypes
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, Literal

import torch
from torch import Tensor

from . import stacked
from .convolutions import laid_out
from .data import Batches, ClientData
from .low_rank import LowRank, NeedsMatrix
from .params import Params

__all__ = ["Loss", "Trained", "clients_at_once", "local_update"]

Loss = Callable[..., Tensor]
MakeOptimizer = Callable[[list[Tensor]], torch.optim.Optimizer]

_CHUNK_BYTES = 2**30  # on a CPU
# How many times larger than its steps a matrix must be. In measurements, the low-rank form took .6 to .9 of the time
# at 1, and about as long at 1/2.
_THIN = 1


@dataclass(frozen=True)
class Trained:
    """The result of local training.

    Attributes
    ----------
    ends : dict of str to Tensor or LowRank
        Each client's parameters theta_k after its last step, by name, as a stack of C rows. Wide dense layers may be in
        their low-rank form, which `fedlib.params.mix` can average.
    loss : Tensor of shape (C,)
        Loss before each step, averaged over a client's steps.
    steps : Tensor of shape (C,), int64, on the CPU
        Number of steps that each client took.
    """

    ends: dict[str, Tensor | LowRank]
    loss: Tensor
    steps: Tensor

    @cached_property
    def params(self) -> Params:
        """``ends`` as a stack of C rows, with the full matrices of every client."""
        return {name: p.dense() if isinstance(p, LowRank) else p for name, p in self.ends.items()}


def clients_at_once(params: Params, data: ClientData, batch_size: int | None) -> int:
    """Number of clients that fit into the working memory, 1 GiB on a CPU or half of the free memory on a GPU.

    Parameters
    ----------
    params : Params
        Stack of at least one row.
    data : ClientData
        Its rows and its largest client determine the size of a batch.
    batch_size : int or None
        B; None takes all examples of a client at once.

    Returns
    -------
    int
        At least 1, even if a single client needs more.

    Notes
    -----
    This is a rough estimate, which assumes that parameters are held about four times (value, gradient, two moments) and
    that activations take thirty times the memory of the input.
    """
    kind = next(iter(params.values()))
    memory = _CHUNK_BYTES
    if kind.is_cuda:  # the memory that torch keeps for later is also free
        reserved = torch.cuda.memory_reserved(kind.device) - torch.cuda.memory_allocated(kind.device)
        memory = (torch.cuda.mem_get_info(kind.device)[0] + reserved) // 2
    client = sum(p[0].numel() * p.element_size() for p in params.values())
    most = data.index.shape[1]
    rows = most if batch_size is None else min(batch_size, most)
    return max(1, int(memory / (4 * client + 30 * data.x[0].numel() * kind.element_size() * rows)))


def _chunks(batches: Batches, size: int) -> Iterator[Tensor]:
    """Positions of the clients that train together, those with the most steps first."""
    order = batches.steps.argsort(descending=True, stable=True)
    start = 0
    while start < len(order):
        chunk = order[start : start + size]
        # A finished client costs as much as a busy one, so start a new chunk where half the steps would be idle.
        chunk = chunk[batches.steps[chunk] * 2 > batches.steps[chunk[0]]]
        yield chunk
        start += len(chunk)


@cache
def _keep_freed_memory() -> None:
    """Let this process keep memory that it has freed (glibc on Linux; elsewhere, do nothing).

    glibc returns large blocks to the system at once. Each step would then have to request them again, page by page,
    which takes longer than the arithmetic of a large network.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-4, 0)  # M_MMAP_MAX: no block gets a separate mapping
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: nothing is returned


def local_update(
    loss: Loss,
    params: Params,
    batches: Batches,
    optimizer: MakeOptimizer,
    extras: Sequence[Any] = (),
    frozen: Sequence[str] = (),
    chunk_size: int | Literal["auto"] = "auto",
) -> Trained:
    """Train every client of a cohort from its own starting point, all at once.

    Parameters
    ----------
    loss : callable
        ``loss(params, batch, *extras) -> scalar`` of one client, ``batch = (x, y, w)``; w = 0 marks padding.
    params : Params
        Stack of C rows, each client's initial parameters; not modified.
    batches : Batches
        From `fedlib.data.local_batches`.
    optimizer : callable
        Makes a `torch.optim` optimiser from a list of tensors, as ``partial(torch.optim.SGD, lr=0.1)`` does. The rule
        must work entry by entry (SGD, momentum, Adam, ...), so that a stack trains like its rows. Each call makes a new
        optimiser, so no momentum is carried over from one round to the next.
    extras : sequence of Tensor or Params
        Further arguments of the loss, each with a leading axis of C.
    frozen : sequence of str
        Names of parameters that do not change; () trains all.
    chunk_size : int or "auto"
        Maximum number of clients that train at once. "auto" keeps the working memory near 1 GiB on a CPU or half of the
        free memory on a GPU. Up to rounding, the result does not depend on it.

    Returns
    -------
    Trained

    Raises
    ------
    ValueError
        The parameters or extras do not have one row for each client, or `frozen` names all parameters or others.

    Notes
    -----
    Clients share no parameter, so the gradient of the sum of their losses is the stack of their gradients. Clients are
    ordered by their number of steps; one that has finished is copied out at its last step, and later changes of its row
    have no effect. The loss runs inside `fedlib.stacked.vmap`. On Linux, the first call makes the whole process keep
    memory that it has freed (glibc's ``mallopt``), because each step needs the same amount again.
    """
    clients = len(batches.steps)
    for name, rows in {**params, **{f"extra {i}": e for i, e in enumerate(extras)}}.items():
        if any(len(p) != clients for p in (rows.values() if isinstance(rows, dict) else [rows])):
            raise ValueError(f"{name} must have one row for each of the {clients} clients")
    if isinstance(frozen, str) or not params.keys() > set(frozen):
        raise ValueError(f"frozen must list names of parameters, some of {list(params)} and not all; got {frozen!r}")
    _keep_freed_memory()
    size = clients_at_once(params, batches.data, batches.size) if chunk_size == "auto" else chunk_size
    chunks = list(_chunks(batches, operator.index(size)))

    def trained(wide: dict[str, LowRank]) -> Trained:
        done = {name: torch.empty_like(p) for name, p in params.items() if name not in wide and name not in frozen}
        mean_loss, first = next(iter(params.values())).new_empty(clients), 0
        for chunk in chunks:
            place, rows = chunk.to(mean_loss.device), slice(first, first := first + len(chunk))
            start = {name: wide[name][rows] if name in wide else _start(p, place) for name, p in params.items()}
            own = [{n: p[place] for n, p in e.items()} if isinstance(e, dict) else e[place] for e in extras]
            mean_loss[place] = _train_chunk(loss, start, batches[chunk], optimizer, own, done, place)
        order = torch.cat(chunks).argsort().to(mean_loss.device)
        ends = params | done | {name: weights[order] for name, weights in wide.items()}
        return Trained(ends, mean_loss, batches.steps)

    try:
        return trained(_wide(params, batches, optimizer, frozen))
    except NeedsMatrix:
        return trained({})


def _wide(params: Params, batches: Batches, optimizer: MakeOptimizer, frozen: Sequence[str]) -> dict[str, LowRank]:
    """The low-rank form of matrices that all clients start from and change by thin steps of plain SGD."""
    if not stacked.PRIVATE_NAMES or _plain_sgd(optimizer) is None:
        return {}
    rows = len(batches) * batches.size
    return {
        name: LowRank.of(p[0], len(p), rows)
        for name, p in params.items()
        if p.ndim == 3 and p.stride(0) == 0 and name not in frozen and _THIN * rows * sum(p.shape[1:]) < p[0].numel()
    }


def _start(p: Tensor, place: Tensor) -> Tensor:
    """Copy the initial values for a chunk of clients, of shape (C, ...), in the layout that training uses."""
    return laid_out(p[place]) if len(place) > 1 and stacked.PRIVATE_NAMES else p[place]


def _plain_sgd(optimizer: MakeOptimizer) -> float | None:
    """The learning rate of SGD without momentum or decay; None for any other rule."""
    if isinstance(optimizer, partial) and optimizer.func is torch.optim.SGD and set(optimizer.keywords) == {"lr"}:
        return optimizer.keywords["lr"]
    return None


def _step(optimizer: MakeOptimizer, params: list[Tensor]) -> Callable[[Sequence[Tensor | None]], None]:
    """Make a function that takes a step of the optimiser, given the gradients of `params`."""
    lr = _plain_sgd(optimizer)
    if lr is not None:

        def descend(gradients: Sequence[Tensor | None]) -> None:  # importing torch.optim would take a second
            for p, gradient in zip(params, gradients, strict=True):
                if gradient is not None:
                    p.add_(gradient, alpha=-lr)

        return descend
    rule = optimizer(params)

    def step(gradients: Sequence[Tensor | None]) -> None:
        for p, gradient in zip(params, gradients, strict=True):
            p.grad = gradient
        rule.step()

    return step


def _train_chunk(
    loss: Loss,
    start: dict[str, Tensor | LowRank],
    batches: Batches,
    optimizer: MakeOptimizer,
    extras: Sequence[Any],
    done: Params,
    place: Tensor,
) -> Tensor:
    """Train the parameters that `done` names, write them there as clients finish, and return the mean losses."""
    wide = {name: p for name, p in start.items() if isinstance(p, LowRank)}
    params = {name: p.start.to("meta") if isinstance(p, LowRank) else p for name, p in start.items()}
    trained = {name: params[name].requires_grad_() for name in done}
    step_all, lr = _step(optimizer, list(trained.values())), _plain_sgd(optimizer) or 0.0
    axes = ({name: None if name in wide else 0 for name in params}, 0, *[0] * len(extras)) if wide else 0
    places, seeds = [(params[name], weights) for name, weights in wide.items()], batches.seeds
    total = torch.zeros(len(place), device=place.device, dtype=next(iter(params.values())).dtype)
    steps = batches.steps
    running = (steps[:, None] > torch.arange(len(batches) + 1)).sum(0).tolist()  # clients still training, by step
    for step, batch in enumerate(batches.iterate(total.dtype)):
        value = stacked.vmap(loss, axes, places, seeds, step)(params, batch, *extras)  # (C,)
        used = [weights for weights in wide.values() if weights.call]
        wanted: list[Any] = [*trained.values(), *(weights.call[1] for weights in used if weights.call)]
        gradients = torch.autograd.grad(value.sum(), wanted, allow_unused=True)
        if any(gradient is None for gradient in gradients[len(trained) :]):
            raise NeedsMatrix  # the output of the layer is detached
        with torch.no_grad():
            step_all(gradients[: len(trained)])
            for weights, gradient in zip(used, gradients[len(trained) :], strict=True):
                weights.step(gradient, lr, running[step])
            total[: running[step]] += value[: running[step]]
            if running[step + 1] < running[step]:  # the clients that just finished are the last ones
                finished = slice(running[step + 1], running[step])
                for name, p in trained.items():
                    if len(p) == len(done[name]) == running[step] and running[step + 1] == 0:  # all, in their order
                        done[name] = p.detach()
                    else:
                        done[name][place[finished]] = p[finished]
    return total / steps.to(total.device)
