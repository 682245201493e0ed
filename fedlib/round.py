"""One round of any federation, which draws a cohort, lets it train and aggregates. Read this file first."""

import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .aggregate import add_sums
from .algorithm import Algorithm, Update
from .costs import TRAINING, Costs, message_bytes, record, server_time
from .data import ClientData
from .keys import Key
from .local import clients_at_once
from .params import put

__all__ = ["one_round", "train"]


def one_round(
    algorithm: Algorithm, state: Any, data: ClientData, size: int, key: Key, costs: Costs, lost: float = 0.0
) -> tuple[Any, dict[str, Any]]:
    """Run one round of a federation.

    Parameters
    ----------
    algorithm : Algorithm
    state : object
        The algorithm's state before the round.
    data : ClientData
        Training examples of all clients, in ascending order of ids.
    size : int
        C, the number of clients in the cohort.
    key : Key
        The round's key.
    costs : Costs
        From `fedlib.costs.open_costs`, still open, so that the costs of the round are recorded in it.
    lost : float
        Probability that a client is lost in mid-round; with 0, none is lost.

    Returns
    -------
    state, entry
        The next state, and the round's entry in the history. Chapter 01.
    """
    start = time.perf_counter()
    costs.entries.clear()  # discards the costs of callbacks
    cohort = arrived = _positions(algorithm.cohort(state, data.id, size, key), len(data))
    if lost:
        arrived = cohort[key.uniform(data.id[cohort], "drop-out") >= lost]
    entry: dict[str, Any] = {"round": key.round, "clients": len(arrived)}
    update = train(algorithm, state, data[arrived], arrived, key) if len(arrived) else None  # on the clients
    for purpose, message in algorithm.download(state, cohort[:1]).items():
        record(purpose, bytes_down=len(cohort) * message_bytes(message))
    if update is not None:
        for name, message in (*update.summed.items(), *update.per_client.items()):
            record(update.purpose.get(name, TRAINING), bytes_up=len(update.clients) * message_bytes(message))
        with server_time(TRAINING):
            state = algorithm.aggregate(state, replace(update, key=key))  # on the server
            if state is None:
                raise TypeError("aggregate must return the new state, such as replace(state, models=...); got None")
            weight = data.n[arrived].cpu().double()
            for name, values in update.log.items():  # on a GPU this waits for the server's work
                entry[f"train_{name}"] = float((values.cpu() * weight).sum() / weight.sum())
        for name, values in update.client_state.items():  # each client's local state
            try:
                state = replace(state, **{name: put(getattr(state, name), update.clients, values)})
            except (AttributeError, KeyError, TypeError, RuntimeError, IndexError) as error:
                words = f"client_state[{name!r}] of train does not fit the clients' rows of that field of the state"
                raise ValueError(f"{words}, a {type(state).__name__}: {error}") from error
    return state, entry | {"seconds": time.perf_counter() - start} | costs.take()


def _positions(cohort: Any, clients: int) -> Tensor:
    """The cohort that an algorithm has drawn, checked and sorted."""
    good = isinstance(cohort, Tensor) and cohort.ndim == 1 and cohort.dtype in (torch.int32, torch.int64)
    found = cohort.unique().long() if good else cohort
    if not good or len(found) < len(cohort) or (len(found) and not 0 <= found[0] <= found[-1] < clients):
        words = f"different positions from 0 to {clients - 1}, a tensor of int64 (neither ids nor a mask)"
        raise ValueError(f"cohort must return {words}; got {cohort!r:.80}")
    return found


def train(algorithm: Algorithm, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
    """Train a cohort chunk by chunk, so that memory suffices, and return its update.

    `data` holds only the cohort; `clients` (C,) are its positions in the state.

    Raises
    ------
    FloatingPointError
        A client's loss or parameters became NaN or infinite.
    TypeError, ValueError
        `Algorithm.train` returned something other than an `Update` of the clients that it was given.
    """
    size = algorithm.chunk_size
    if size == "auto":
        size = clients_at_once(algorithm.client_params(state, clients[:1]), data, algorithm.batch_size)
    parts: list[Update] = []
    for place in torch.arange(len(clients), device=clients.device).split(size):
        parts.append(_checked(algorithm.train(state, data[place], clients[place], key), clients[place]))
        refuse_divergence(parts[-1], data[place].id, key)
        if len(parts) > 1:  # add sums at once, since they are as large as the models
            parts[0] = replace(parts[0], summed=add_sums(parts[0].summed, parts[-1].summed))
            parts[-1] = replace(parts[-1], summed={})
    if len(parts) == 1:
        return parts[0]
    joined = {
        name: join([getattr(p, name) for p in parts]) for name in ("clients", "per_client", "client_state", "log")
    }
    return replace(parts[0], **joined)


def _checked(update: Any, clients: Tensor) -> Update:
    """What `train` returned, if its rows are those of the clients that trained."""
    if not isinstance(update, Update):
        raise TypeError(f"train must return an Update, got {type(update).__name__}")
    if not torch.equal(torch.as_tensor(update.clients), clients):
        words = f"the positions that it was given, {clients.tolist()!s:.80}, and not ids"
        raise ValueError(f"the clients of the Update must be {words}; got {update.clients!r:.80}")
    for name, values in update.log.items():
        if getattr(values, "shape", None) != clients.shape:
            raise ValueError(f"log[{name!r}] must be a tensor with a number for each client; got {values!r:.80}")
    return update


def join(trees: list[Any]) -> Any:
    """Concatenate nested dictionaries of tensors along their leading axis of clients."""
    if isinstance(trees[0], dict):
        return {name: join([tree[name] for tree in trees]) for name in trees[0]}
    return torch.cat(trees)


def refuse_divergence(update: Update, ids: Tensor, key: Key) -> None:
    """Raise an error that names a diverged client by its id, one of `ids` (C,), before it spoils the average."""
    if all_finite((update.log, update.summed, update.per_client, update.client_state)):
        return
    finite = torch.stack([torch.ones_like(ids, dtype=torch.bool), *(v.isfinite() for v in update.log.values())]).all(0)
    bad = ids[~finite].tolist()
    who = f"the loss of client {bad[0]}" if bad else f"parameters among clients {ids[:5].tolist()}"
    raise FloatingPointError(
        f"{who} became NaN or infinite in round {key.round}; lower the learning rate, or look for extreme values in "
        "the data. The rounds before are in error.result"
    )


def all_finite(tree: Any) -> bool:
    """Whether all numbers in nested tuples and dictionaries of tensors are finite; asks the device once or twice."""

    def tensors(tree: Any) -> list[Tensor]:
        if isinstance(tree, Tensor):
            return [tree]
        return [t for branch in (tree.values() if isinstance(tree, dict) else tree) for t in tensors(branch)]

    found = tensors(tree)
    for finite in (lambda t: t.sum().isfinite(), lambda t: t.isfinite().all()):  # a finite sum has finite parts
        if not found or torch.stack([finite(t) for t in found]).all():
            return True
    return False
