"""One cohort over several processes, as `torchrun` starts them.

Every process holds the whole state and all data, and trains its share of each cohort; sums are added and rows brought
together, so that all of them aggregate the same update. `fedlib.federation.fit` does so wherever a process group is
open: ``torchrun --nproc-per-node 2 -m fedlib run ...``, or a program of one's own that calls `start` first. Rounding
apart, the result does not depend on the number of processes: tests run 1, 2 and 4 of them with Gloo on CPUs; NCCL on
cards is not tested.
"""

import json
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .aggregate import Sums
from .params import flatten, unflatten

__all__ = ["rank", "share", "start", "stop", "together", "world"]


def rank() -> int:
    """Number of this process; 0 where there is only one."""
    return dist.get_rank() if _open() else 0


def world() -> int:
    """How many processes there are."""
    return dist.get_world_size() if _open() else 1


def _open() -> bool:
    return dist.is_available() and dist.is_initialized()


def start() -> None:
    """Join the processes that `torchrun` has started: NCCL where each has a card, else Gloo. Alone, do nothing.

    Raises
    ------
    RuntimeError
        The others cannot be reached; from `torch.distributed.init_process_group`.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ or _open():
        return
    local = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available() and torch.cuda.device_count() > local:
        torch.cuda.set_device(local)
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    else:
        dist.init_process_group("gloo")


def stop() -> None:
    """Leave the processes in good order."""
    if _open():
        dist.destroy_process_group()


def share(clients: Tensor) -> Tensor:
    """The part of a cohort that this process trains, in the order of the processes.

    Parameters
    ----------
    clients : Tensor of shape (C,), int64
        Positions of the cohort's clients.

    Returns
    -------
    Tensor of shape (about C / world,), int64
        Empty where there are more processes than clients.
    """
    return clients.tensor_split(world())[rank()]


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
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world())]
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
