"""Train one cohort in several processes, which `torchrun` starts.

Every process holds the whole state and all data and trains its share of each cohort; then all of them aggregate the
same update. A program calls `start`, passes the algorithm that `over_processes` makes to `fit`, and calls `stop`; for
an example, see ``examples/federate.py``. Up to rounding, the result does not depend on the number of processes. Tests
run 1, 2 and 4 of them with Gloo on CPUs; NCCL on GPUs is not tested.
"""

import io
import os
import sys
from dataclasses import fields
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..aggregate import add_sums
from ..algorithm import Algorithm, Update, each
from ..costs import open_costs, record
from ..data import ClientData
from ..keys import Key
from ..round import join, train

__all__ = ["over_processes", "rank", "start", "stop"]

_PARTS = ("clients", "summed", "per_client", "client_state", "log")  # of an update: tensors or dictionaries of tensors


def over_processes(algorithm: Algorithm) -> Algorithm:
    """Return the same algorithm, but with all processes sharing the training of its clients.

    Parameters
    ----------
    algorithm : Algorithm
        The same in every process.

    Returns
    -------
    Algorithm
        For `fedlib.federation.fit` in every process; with a single process, `algorithm` itself. Callbacks run in every
        process.

    Notes
    -----
    Each process does the work before round 1 by itself. Processes unpickle only numbers and texts from each other.
    Chapter 16.
    """
    if not _several():
        return algorithm
    kind, settings = type(algorithm), {f.name: getattr(algorithm, f.name) for f in fields(algorithm) if f.init}
    together = type(kind.__name__, (_Together, kind), {"inner": algorithm})
    return together(**settings | {"chunk_size": sys.maxsize})  # the whole cohort, of which each process takes its share


class _Together:
    """Class that `over_processes` puts before that of an algorithm; `inner` is the original algorithm."""

    inner: Algorithm

    def prepare(self, state: Any, data: ClientData, key: Key) -> Any:
        """Prepare the state in each process by itself."""
        return self.inner.prepare(state, data, key)

    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Compute the update of a cohort, which is the same in every process."""
        share = torch.arange(len(clients), device=clients.device).tensor_split(dist.get_world_size())[rank()]
        answer: dict[str, Any] = {"update": {}, "purpose": {}}  # some processes may have no clients
        failure = None
        with open_costs() as costs:
            try:
                if len(share):
                    update = train(self.inner, state, data[share], clients[share], key)
                    parts = each(lambda p: p.detach().cpu().clone(), {name: getattr(update, name) for name in _PARTS})
                    answer = {"update": parts, "purpose": update.purpose}
            except Exception as error:  # the other processes wait for an answer
                failure = error
        answer |= {"costs": dict(costs.entries), "failure": failure and repr(failure)}
        answers = _of_all(answer, data.n.device)
        if failure is not None:
            raise failure
        if failures := [answer["failure"] for answer in answers if answer["failure"]]:
            raise ConnectionError(f"another process of this run failed: {failures[0]}")
        for purpose, amounts in (item for answer in answers for item in answer["costs"].items()):
            record(purpose, **amounts)
        updates = [answer["update"] for answer in answers if answer["update"]]
        joined = {name: join([parts[name] for parts in updates]) for name in _PARTS if name != "summed"}
        purposes = {name: purpose for answer in answers for name, purpose in answer["purpose"].items()}
        return Update(summed=reduce(add_sums, [parts["summed"] for parts in updates]), purpose=purposes, **joined)


def _of_all(answer: dict[str, Any], device: torch.device) -> list[dict[str, Any]]:
    """Collect the answers of all processes."""
    file = io.BytesIO()
    torch.save(answer, file)
    content = torch.frombuffer(file.getbuffer(), dtype=torch.uint8).to(device)
    size = torch.tensor([len(content)], device=device)
    sizes = size.new_zeros(dist.get_world_size(), 1)
    try:
        dist.all_gather(list(sizes), size)
        padded = content.new_zeros(int(sizes.max()))
        padded[: len(content)] = content
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
    except RuntimeError as error:
        raise ConnectionError(
            f"another process of this run is gone ({str(error).splitlines()[0]:.120}); the last checkpoint goes on "
            "with any number of processes"
        ) from error
    files = [io.BytesIO(part[: int(n)].cpu().numpy().tobytes()) for part, n in zip(parts, sizes, strict=True)]
    return [torch.load(file, map_location=device, weights_only=True) for file in files]


def _several() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """Number of this process; 0 if there is only one."""
    return dist.get_rank() if _several() else 0


def start() -> None:
    """Join the processes that `torchrun` started, by NCCL if each has a GPU, else by Gloo; alone, do nothing.

    Raises
    ------
    RuntimeError
        The other processes cannot be reached (from `torch.distributed.init_process_group`).
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
    """Leave the group of processes cleanly."""
    if _several():
        dist.destroy_process_group()
