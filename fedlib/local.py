"""Local training: the only training loop of the library."""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from .data import Batches
from .params import Params, number_of_rows

__all__ = ["Loss", "Trained", "local_update"]

Loss = Callable[..., Tensor]
MakeOptimizer = Callable[[list[Tensor]], torch.optim.Optimizer]

# Rough working memory of one chunk: parameters are held about four times (value, gradient, two moments), and
# activations are taken as thirty times the input.
_CHUNK_BYTES = 2**30


@dataclass(frozen=True)
class Trained:
    """What local training gives.

    Attributes
    ----------
    params : Params
        Stack of C rows: theta_k after the last step of client k.
    loss : Tensor of shape (C,)
        Mean over the steps of a client of the loss before the step.
    steps : Tensor of shape (C,), int64, on the CPU
        Steps that each client took.
    """

    params: Params
    loss: Tensor
    steps: Tensor


def _chunks(batches: Batches, params: Params, chunk_size: int | Literal["auto"]) -> Iterator[Tensor]:
    """Positions of the clients that train together, those with the most steps first."""
    order = batches.steps.argsort(descending=True, stable=True)
    if chunk_size != "auto":
        size = operator.index(chunk_size)
    else:
        row = sum(p[0].numel() * p.element_size() for p in params.values())
        example = batches.data.x[0].numel() * next(iter(params.values())).element_size()
        size = max(1, int(_CHUNK_BYTES / (4 * row + 30 * example * batches.size)))
    start = 0
    while start < len(order):
        chunk = order[start : start + size]
        # A finished client costs as much as a busy one: start a new chunk where half the steps would be idle.
        chunk = chunk[batches.steps[chunk] * 2 > batches.steps[chunk[0]]]
        yield chunk
        start += len(chunk)


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
        Stack of C rows, where each client starts; not modified.
    batches : Batches
        From `fedlib.data.local_batches`.
    optimizer : callable
        Makes a `torch.optim` optimiser from a list of tensors, as ``partial(torch.optim.SGD, lr=0.1)`` does. The rule
        must work entry by entry (SGD, momentum, Adam, ...), so that a stack trains like its rows. A fresh one is made
        for each call: no momentum outlives a round.
    extras : sequence of Tensor or Params
        Further arguments of the loss, each with a leading axis of C.
    frozen : sequence of str
        Names of parameters that stay as they are; () trains all.
    chunk_size : int or "auto"
        At most this many clients at once. "auto" keeps the working memory near 1 GiB. Rounding apart, the result
        does not depend on it.

    Returns
    -------
    Trained

    Raises
    ------
    ValueError
        Parameters or extras with another number of rows than clients; frozen names that are no parameters.

    Notes
    -----
    Clients share no parameter, so the gradient of the sum of their losses is the stack of their gradients. Clients are
    ordered by their number of steps; one that is done is copied out at its last step, and what happens to its row
    after that is of no consequence.
    """
    clients = len(batches.steps)
    for name, rows in {**params, **{f"extra {i}": e for i, e in enumerate(extras)}}.items():
        for part in rows.values() if isinstance(rows, dict) else [rows]:
            if not isinstance(part, Tensor) or part.ndim < 1 or len(part) != clients:
                shape = tuple(part.shape) if isinstance(part, Tensor) else part
                raise ValueError(f"{name} must have one row for each of the {clients} clients; got {shape}")
    if unknown := set(frozen) - set(params):
        raise ValueError(f"frozen names {sorted(unknown)} are no parameters; there are {list(params)}")
    done = {name: p if name in frozen else torch.empty_like(p) for name, p in params.items()}
    mean_loss = next(iter(params.values())).new_empty(len(batches.steps))
    for chunk in _chunks(batches, params, chunk_size):
        here = chunk.to(mean_loss.device)
        start = {name: p[here] for name, p in params.items()}
        mean_loss[here] = _train_chunk(
            loss, start, batches[chunk], optimizer, [_rows(e, here) for e in extras], frozen, done, here
        )
    return Trained(done, mean_loss, batches.steps)


def _rows(extra: Any, here: Tensor) -> Any:
    return {k: v[here] for k, v in extra.items()} if isinstance(extra, dict) else extra[here]


def _train_chunk(
    loss: Loss,
    params: Params,
    batches: Batches,
    optimizer: MakeOptimizer,
    extras: Sequence[Any],
    frozen: Sequence[str],
    done: Params,
    here: Tensor,
) -> Tensor:
    """Train one chunk, write each client's parameters into `done` as it finishes, return the mean losses."""
    trained = {name: p.requires_grad_() for name, p in params.items() if name not in frozen}
    rule = optimizer(list(trained.values()))
    stacked_loss = torch.vmap(loss, randomness="error")
    total = torch.zeros(number_of_rows(params), device=here.device, dtype=next(iter(params.values())).dtype)
    steps = batches.steps
    running = (steps[:, None] > torch.arange(len(batches) + 1)).sum(0).tolist()  # clients still at work, by step
    for step, batch in enumerate(batches.iterate(total.dtype)):
        value = stacked_loss(params, batch, *extras)  # (C,)
        gradients = torch.autograd.grad(value.sum(), list(trained.values()), allow_unused=True)
        for p, gradient in zip(trained.values(), gradients, strict=True):
            p.grad = gradient
        rule.step()
        with torch.no_grad():
            total[: running[step]] += value[: running[step]]
            if running[step + 1] < running[step]:  # the clients that just finished are the last ones
                finished = slice(running[step + 1], running[step])
                for name, p in trained.items():
                    done[name][here[finished]] = p[finished]
    return total / steps.to(total.device)
