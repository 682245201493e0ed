"""One cohort over several processes, as `torchrun` starts them.

Every process holds the whole state and all data, and trains its share of each cohort; sums are added and rows brought
together, so that all of them aggregate the same update. A program calls `start`, gives `fit` the algorithm that
`over_processes` makes, and calls `stop`; ``examples/federate.py`` is one. Rounding apart, the result does not depend on
the number of processes: tests run 1, 2 and 4 of them with Gloo on CPUs; NCCL on cards is not tested.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..aggregate import Sums
from ..algorithm import Algorithm, Update
from ..costs import open_costs, record
from ..data import ClientData
from ..keys import Key
from ..params import flatten, unflatten
from ..round import train

__all__ = ["over_processes", "rank", "start", "stop", "together"]


def over_processes(algorithm: Algorithm) -> Algorithm:
    """The same algorithm, whose clients are trained by all processes, each its share.

    Parameters
    ----------
    algorithm : Algorithm
        The same on each process.

    Returns
    -------
    Algorithm
        For `fedlib.federation.fit` on each process; alone, `algorithm` itself. Callbacks run on each of them.

    Notes
    -----
    Work before round 1 is done by each process for itself. Chapter 10.
    """
    if rank() == 0 and not (dist.is_available() and dist.is_initialized()):
        return algorithm

    class OverProcesses(type(algorithm)):  # type: ignore[misc]
        def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
            """What all processes together have trained, the same on each of them."""
            mine = torch.arange(len(clients), device=clients.device).tensor_split(dist.get_world_size())[rank()]
            update, failure = Update(clients[:0]), None
            with open_costs() as costs:
                try:
                    if len(mine):
                        update = train(algorithm, state, data[mine], clients[mine], key)
                except Exception as error:
                    failure = error
            about = {"purpose": update.purpose, "costs": costs.entries}
            rows: dict[str, Any] = {
                name: getattr(update, name) for name in ("clients", "per_client", "client_state", "log")
            }
            rows = rows if len(mine) else {}
            summed, rows, answers = together(update.summed, rows, about, failure, data.n.device)
            for answer in answers:
                for purpose, amounts in answer["costs"].items():
                    record(purpose, **amounts)
            purpose = next((answer["purpose"] for answer in answers if answer["purpose"]), {})
            rows = {"per_client": {}, "client_state": {}, "log": {}} | rows
            return Update(summed=summed, purpose=purpose, **rows)

    fields = {f.name: getattr(algorithm, f.name) for f in dataclasses.fields(algorithm)}
    OverProcesses.__name__ = type(algorithm).__name__
    return OverProcesses(**fields | {"chunk_size": sys.maxsize})


def rank() -> int:
    """Number of this process; 0 where there is only one."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def start() -> None:
    """Join the processes that `torchrun` has started: NCCL where each has a card, else Gloo. Alone, do nothing.

    Raises
    ------
    RuntimeError
        The others cannot be reached; from `torch.distributed.init_process_group`.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ or dist.is_initialized():
        return
    local = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available() and torch.cuda.device_count() > local:
        torch.cuda.set_device(local)
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    else:
        dist.init_process_group("gloo")


def stop() -> None:
    """Leave the processes in good order."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def together(
    sums: Sums, rows: dict[str, Any], costs: dict[str, Any], failure: BaseException | None, device: torch.device
) -> tuple[Sums, dict[str, Any], list[dict[str, Any]]]:
    """What all processes have found, the same on each of them.

    Parameters
    ----------
    sums : dict
        Nested dictionaries of tensors to be added; {} where this process had no clients.
    rows : dict
        Nested dictionaries of tensors with a leading axis of clients, to be joined in the order of the processes.
    costs : dict
        Anything that JSON can hold.
    failure : exception, optional
        What went wrong here; all processes then end.
    device : torch.device
        Where the tensors are.

    Returns
    -------
    sums, rows, and the costs of each process

    Raises
    ------
    ConnectionError
        Another process failed, or is gone.
    """
    flat_sums, flat_rows = flatten(sums), flatten(rows)
    here = {
        "failure": failure and f"{type(failure).__name__}: {failure}",
        "costs": costs,
        "sums": {path: _kind(p) for path, p in flat_sums.items()},
        "rows": {path: _kind(p) for path, p in flat_rows.items()},
    }
    there = [json.loads(text) for text in _all_texts(json.dumps(here), device)]
    if failure is not None:
        raise failure
    for other, told in enumerate(there):
        if told["failure"]:
            raise ConnectionError(f"process {other} of {len(there)} failed: {told['failure']}")
    full = next(told for told in there if told["sums"] or told["rows"])  # a process without clients learns the shapes
    added = {}
    for path, (shape, dtype) in full["sums"].items():
        p = flat_sums.get(path)
        p = torch.zeros(shape, dtype=getattr(torch, dtype), device=device) if p is None else p.clone().contiguous()
        _collect(dist.all_reduce, p)
        added[path] = p
    joined = {}
    for path, (shape, dtype) in full["rows"].items():
        p = flat_rows.get(path, torch.zeros(0, *shape[1:], dtype=getattr(torch, dtype), device=device))
        joined[path] = torch.cat(_all_rows(p, [told["rows"].get(path, [[0]])[0][0] for told in there]))
    return unflatten(added), unflatten(joined), [told["costs"] for told in there]


def _collect(collective: Callable[..., Any], *arguments: Any) -> None:
    try:
        collective(*arguments)
    except RuntimeError as error:
        raise ConnectionError(
            f"another process of this run is gone ({str(error).splitlines()[0]:.120}); the last checkpoint goes on "
            "with any number of processes"
        ) from error


def _kind(p: Tensor) -> tuple[list[int], str]:
    return list(p.shape), str(p.dtype).removeprefix("torch.")


def _all_texts(text: str, device: torch.device) -> list[str]:
    """The texts of all processes, sent as bytes: nothing is pickled."""
    data = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).to(device)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(dist.get_world_size())]
    _collect(dist.all_gather, sizes, torch.tensor([len(data)], device=device))
    lengths = [int(n) for n in sizes]
    return [bytes(p.cpu().numpy()).decode() for p in _all_rows(data, lengths)]


def _all_rows(p: Tensor, lengths: list[int]) -> list[Tensor]:
    """The rows of all processes, of these lengths."""
    padded = p.new_zeros(max(lengths), *p.shape[1:])
    padded[: len(p)] = p
    parts = [torch.empty_like(padded) for _ in lengths]
    _collect(dist.all_gather, parts, padded)
    return [part[:n] for part, n in zip(parts, lengths, strict=True)]
