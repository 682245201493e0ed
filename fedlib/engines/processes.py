"""One cohort over several processes, as `torchrun` starts them.

Every process holds the whole state and all data, and trains its share of each cohort; then all of them aggregate the
same update. A program calls `start`, gives `fit` the algorithm that `over_processes` makes, and calls `stop`;
``examples/federate.py`` is one. Rounding apart, the result does not depend on the number of processes: tests run 1, 2
and 4 of them with Gloo on CPUs; NCCL on cards is not tested.
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

_PARTS = ("clients", "summed", "per_client", "client_state", "log")  # of an update: dictionaries of tensors


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
    Work before round 1 is done by each process for itself. Of what processes send each other nothing but numbers and
    texts is unpickled. Chapter 16.
    """
    if not _several():
        return algorithm
    kind, settings = type(algorithm), {f.name: getattr(algorithm, f.name) for f in fields(algorithm) if f.init}
    together = type(kind.__name__, (_Together, kind), {"inner": algorithm})
    return together(**settings | {"chunk_size": sys.maxsize})  # the whole cohort: each process cuts its share itself


class _Together:
    """What `over_processes` puts before the class of an algorithm, and the algorithm as it was."""

    inner: Algorithm

    def prepare(self, state: Any, data: ClientData, key: Key) -> Any:
        """By each process for itself."""
        return self.inner.prepare(state, data, key)

    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """The update of a cohort, the same on each process."""
        share = torch.arange(len(clients), device=clients.device).tensor_split(dist.get_world_size())[rank()]
        answer: dict[str, Any] = {"update": {}, "purpose": {}}  # some may have no clients
        failure = None
        with open_costs() as costs:
            try:
                if len(share):
                    update = train(self.inner, state, data[share], clients[share], key)
                    parts = each(lambda p: p.detach().cpu().clone(), {name: getattr(update, name) for name in _PARTS})
                    answer = {"update": parts, "purpose": update.purpose}
            except Exception as error:  # the others wait for an answer
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
    """The answers of all processes."""
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
