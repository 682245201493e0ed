"""One cohort over several processes, as `torchrun` starts them.

Every process holds the whole state and all data, and trains its share of each cohort; then all of them aggregate the
same update. A program calls `start`, gives `fit` the algorithm that `over_processes` makes, and calls `stop`;
``examples/federate.py`` is one. Rounding apart, the result does not depend on the number of processes: tests run 1, 2
and 4 of them with Gloo on CPUs; NCCL on cards is not tested.
"""

import os
import sys
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..aggregate import add_sums
from ..algorithm import Algorithm, Update
from ..costs import open_costs, record
from ..data import ClientData
from ..keys import Key
from ..round import join, train

__all__ = ["over_processes", "rank", "start", "stop"]


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
    Work before round 1 is done by each process for itself. What the processes of a run send each other is pickled, as
    `torch.distributed.all_gather_object` does it. Chapter 10.
    """
    if not _several():
        return algorithm
    shared = replace(algorithm, chunk_size=sys.maxsize)  # the whole cohort at once: each process cuts its share itself
    object.__setattr__(shared, "train", partial(_train_together, algorithm))
    object.__setattr__(shared, "prepare", algorithm.prepare)
    return shared


def _train_together(algorithm: Algorithm, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
    """The update of a cohort, the same on each process."""
    share = torch.arange(len(clients), device=clients.device).tensor_split(dist.get_world_size())[rank()]
    update, failure = None, None
    with open_costs() as costs:
        try:
            if len(share):
                update = train(algorithm, state, data[share], clients[share], key)
        except Exception as error:  # the others wait for an answer
            failure = error
    answers: list[Any] = [None] * dist.get_world_size()
    try:
        dist.all_gather_object(answers, (_to(update, "cpu"), dict(costs.entries), failure and repr(failure)))
    except RuntimeError as error:
        raise ConnectionError(
            f"another process of this run is gone ({str(error).splitlines()[0]:.120}); the last checkpoint goes on "
            "with any number of processes"
        ) from error
    updates, entries, failures = zip(*answers, strict=True)
    if failure is not None:
        raise failure
    if any(failures):
        raise ConnectionError(f"another process of this run failed: {next(filter(None, failures))}")
    for purpose, amounts in (item for entry in entries for item in entry.items()):
        record(purpose, **amounts)
    parts = [_to(part, data.n.device) for part in updates if part is not None]
    joined = {
        name: join([getattr(p, name) for p in parts]) for name in ("clients", "per_client", "client_state", "log")
    }
    return replace(parts[0], summed=reduce(add_sums, [p.summed for p in parts]), **joined)


def _to(tree: Any, device: torch.device | str) -> Any:
    """An update or a nested dictionary of tensors, on another device."""
    if isinstance(tree, Update):
        return Update(**_to(vars(tree), device))
    if isinstance(tree, dict):
        return {name: _to(branch, device) for name, branch in tree.items()}
    return tree.to(device) if isinstance(tree, Tensor) else tree


def _several() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """Number of this process; 0 where there is only one."""
    return dist.get_rank() if _several() else 0


def start() -> None:
    """Join the processes that `torchrun` has started: by NCCL if each has a card, else by Gloo. Alone, do nothing.

    Raises
    ------
    RuntimeError
        The others cannot be reached; from `torch.distributed.init_process_group`.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ or dist.is_initialized():
        return
    local = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        torch.cuda.set_device(local)
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    else:
        dist.init_process_group("gloo")


def stop() -> None:
    """Leave the processes in good order."""
    if _several():
        dist.destroy_process_group()
