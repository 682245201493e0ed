"""One cohort over several processes, as `torchrun` starts them.

Every process holds the whole state and all data, and trains its share of each cohort; then all of them aggregate the
same update. A program calls `start`, gives `fit` the algorithm that `over_processes` makes, and calls `stop`;
``examples/federate.py`` is one. Rounding apart, the result does not depend on the number of processes: tests run 1, 2
and 4 of them with Gloo on CPUs; NCCL on cards is not tested.
"""

import json
import os
import sys
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor

from ..aggregate import add_sums
from ..algorithm import Algorithm, Update
from ..costs import open_costs, record
from ..data import ClientData
from ..keys import Key
from ..round import join, train
from .paths import flatten, unflatten

__all__ = ["over_processes", "rank", "start", "stop"]

_TENSORS = ("clients", "summed", "per_client", "client_state", "log")  # of an update


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
    Work before round 1 is done by each process for itself. Updates travel as safetensors: nothing is pickled.
    Chapter 13.
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
    about = {"costs": costs.entries, "failure": failure and repr(failure), "purpose": update.purpose if update else {}}
    parts = {name: getattr(update, name) for name in _TENSORS} if update else {}
    arrays = {path: p.detach().cpu().contiguous() for path, p in flatten(parts).items()}
    texts, contents = _all_bytes(json.dumps(about).encode(), data.n.device), _all_bytes(save(arrays), data.n.device)
    if failure is not None:
        raise failure
    answers = [json.loads(text) for text in texts]
    if failures := [answer["failure"] for answer in answers if answer["failure"]]:
        raise ConnectionError(f"another process of this run failed: {failures[0]}")
    for purpose, amounts in (item for answer in answers for item in answer["costs"].items()):
        record(purpose, **amounts)
    trees = [unflatten({path: p.to(data.n.device) for path, p in load(c).items()}) for c in contents]
    trees = [{name: tree.get(name, {}) for name in _TENSORS} for tree in trees if tree]  # some may have no clients
    joined = {name: join([tree[name] for tree in trees]) for name in _TENSORS if name != "summed"}
    purpose = {name: what for answer in answers for name, what in answer["purpose"].items()}
    return Update(summed=reduce(add_sums, [tree["summed"] for tree in trees]), purpose=purpose, **joined)


def _all_bytes(content: bytes, device: torch.device) -> list[bytes]:
    """The contents of all processes."""
    size = torch.tensor([len(content)], device=device)
    sizes = size.new_zeros(dist.get_world_size(), 1)
    try:
        dist.all_gather(list(sizes), size)
        padded = torch.zeros(int(sizes.max()), dtype=torch.uint8, device=device)
        padded[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(device)
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
    except RuntimeError as error:
        raise ConnectionError(
            f"another process of this run is gone ({str(error).splitlines()[0]:.120}); the last checkpoint goes on "
            "with any number of processes"
        ) from error
    return [part[:n].cpu().numpy().tobytes() for part, n in zip(parts, sizes.flatten().tolist(), strict=True)]


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
