"""Checkpoints store the state of a run on disk, completely or not at all, and restore it bit for bit.

One safetensors file holds everything, with arrays under names such as ``models/dense1.weight`` and the rest as JSON in
the file's metadata. Nothing is pickled, so reading a checkpoint from any source runs none of its code.
"""

import dataclasses
import functools
import hashlib
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..algorithm import Algorithm
from ..checks import check_number
from ..data import ClientData
from ..params import Params
from ..stacked import still
from .paths import flatten
from .processes import rank

__all__ = ["Checkpoint", "load_state", "save_state"]

History = list[dict[str, Any]]
MEASURED = "the loss at the start"  # of a run's identity, the one entry that another device rounds otherwise
_ROWS = 8  # rows of each client on which the loss is evaluated


class Checkpoint:
    """Where and how often `fedlib.federation.fit` stores a run.

    Parameters
    ----------
    path : path
        The file, by convention ``.safetensors``; its folder is created if needed.
    every_seconds : float
        Write after a round if this many seconds have passed since the last write; 0 writes after each round. The state
        before round 1 and after the last round is always stored.

    Notes
    -----
    A lost runtime costs at most the rounds of one interval. With several processes (`fedlib.engines.processes`), only
    the first one writes. A run is recognised by its settings, by checksums of its data and initial parameters, and by
    its loss on a few rows. The source of functions is not compared, so a notebook's cell may run again.
    """

    def __init__(self, path: str | os.PathLike, every_seconds: float = 30.0) -> None:
        self.path = Path(path).expanduser()
        self.every_seconds = check_number(every_seconds, "every_seconds")
        self._about: dict[str, Any] = {}
        self._written = 0.0

    def open(self, settings: Mapping[str, Any], parts: Mapping[str, Any]) -> tuple[int, bool, Any, History] | None:
        """The stored progress of this run, or None if there is no file yet.

        Parameters
        ----------
        settings : mapping
            Everything that determines the numbers of the run, such as the algorithm and the seed.
        parts : mapping of str to Params or ClientData
            The initial parameters under "params", the examples under "data", evaluation sets under their names.

        Returns
        -------
        round, stopped, state, history
            The last stored round, whether a callback ended the run there, and the state and the history after it.

        Raises
        ------
        ValueError
            The file is damaged, or belongs to another run; the message says what differs.
        """
        if self.path.is_dir():
            raise ValueError(f"the checkpoint {self.path} is a folder; give a file, as run.safetensors")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        device = next(iter(parts["params"].values())).device
        card = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        machine = {"device": card, "torch": torch.__version__, "threads": torch.get_num_threads()}
        run = _identity(settings, parts)
        self._about, self._written = {"run": run, "machine": machine}, time.monotonic()
        if not self.path.exists():
            return None
        state, meta = load_state(self.path, device)
        stored = meta["run"]
        near = 1e-5 if meta["machine"]["device"] == card else 1e-3
        other = [name for name in run | stored if not _same(name, stored.get(name), run.get(name), near)]
        if other:
            words = "; ".join(f"{name}: {stored.get(name)} there, {run.get(name)} here" for name in other)
            raise ValueError(
                f"{self.path} is the checkpoint of another run ({words}). Give another path, delete the file to start "
                "again, or set back what changed"
            )
        if meta["machine"] != machine:
            warnings.warn(
                f"{self.path} was written on {meta['machine']}, this is {machine}: the run goes on, but its last "
                "bits may differ from those of an uninterrupted run",
                stacklevel=3,
            )
        return meta["round"], meta["stopped"], state, meta["history"]

    def write(self, state: Any, round: int, history: History, last: bool = False, stopped: bool = False) -> None:
        """Store the run if a write is due or this is the last round; `stopped` if a callback ended the run here."""
        try:
            json.dumps(history[-1:])
        except TypeError as error:
            raise TypeError(
                f"a checkpoint cannot store the history: {error}. Callbacks must put numbers, strings or None into it"
            ) from error
        if not last and time.monotonic() - self._written < self.every_seconds:
            return
        if rank() == 0:
            save_state(self.path, state, self._about | {"round": round, "history": history, "stopped": stopped})
        self._written = time.monotonic()


def save_state(path: str | os.PathLike, state: Any, meta: Mapping[str, Any]) -> None:
    """Write a state and its metadata, completely or not at all.

    Parameters
    ----------
    path : path
    state : object
        A dataclass of tensors, numbers, strings, None, and tuples, lists, dictionaries or dataclasses of these.
    meta : mapping
        Anything that JSON can represent.

    Raises
    ------
    TypeError
        A field can be stored neither as an array nor as JSON; the message names it.
    """
    from safetensors.torch import save_file

    arrays: dict[str, Tensor] = {}
    tree = _encode(state, "", arrays)
    part = Path(f"{path}.part")
    try:
        save_file(arrays, part, metadata={"fedlib": json.dumps({"state": tree, "meta": dict(meta)})})
        with open(part, "rb+") as file:
            os.fsync(file.fileno())  # the content reaches the disk before the name does
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def load_state(path: str | os.PathLike, device: torch.device | str = "cpu") -> tuple[Any, dict[str, Any]]:
    """Read what `save_state` wrote.

    Parameters
    ----------
    path : path
    device : torch.device or str
        Device of the tensors.

    Returns
    -------
    state, meta

    Raises
    ------
    ValueError
        The file is damaged or is not a checkpoint.
    ImportError
        The class of the state is not imported or has different fields.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {})["fedlib"])
            return _decode(content["state"], file, torch.device(device)), dict(content["meta"])
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged or is not a checkpoint of fedlib ({error}). Give another path, or "
            "delete the file if nothing in it is yours"
        ) from error


def _encode(value: Any, name: str, arrays: dict[str, Tensor]) -> Any:
    """A state as JSON; its tensors are copied into `arrays`, on the CPU and without shared memory."""
    kind = type(value)
    if isinstance(value, Tensor):
        while name in arrays:  # keys 1 and "1", or a key with a slash
            name += "'"
        arrays[name] = value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        return {"tensor": name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if kind in (tuple, list):
        return {kind.__name__: [_encode(v, f"{name}/{i}".lstrip("/"), arrays) for i, v in enumerate(value)]}
    if kind is dict and all(isinstance(k, (str, int)) for k in value):
        return {"keys": list(value), "items": [_encode(v, f"{name}/{k}".lstrip("/"), arrays) for k, v in value.items()]}
    if _dataclass(where := f"{kind.__module__}:{kind.__qualname__}") is kind:
        return {"class": where, "fields": _encode(_fields(value), name, arrays)}
    raise TypeError(
        f"a checkpoint cannot store {name or 'the state'}, {value!r:.80} ({kind.__name__}). A state holds tensors, "
        "numbers, strings, None, and tuples, lists, dictionaries or dataclasses of these, whose classes stand at the "
        "top of a module"
    )


def _decode(node: Any, file: Any, device: torch.device) -> Any:
    if "tensor" in node:
        return file.get_tensor(node["tensor"]).to(device, copy=True)  # a copy, because the file may be replaced
    if "value" in node:
        return node["value"]
    if "keys" in node:
        return {k: _decode(v, file, device) for k, v in zip(node["keys"], node["items"], strict=True)}
    if "class" in node:
        kind, fields = _dataclass(node["class"]), _decode(node["fields"], file, device)
        if kind is None or [f.name for f in dataclasses.fields(kind)] != list(fields):
            raise ImportError(f"the checkpoint holds a {node['class']} of {list(fields)}, and none such is imported")
        return kind(**fields)
    values = [_decode(v, file, device) for v in node["tuple" if "tuple" in node else "list"]]
    return tuple(values) if "tuple" in node else values


def _dataclass(where: str) -> Any:
    """The dataclass of this name in a module that is already imported, because a file must not trigger imports."""
    module, _, name = where.partition(":")
    kind = vars(sys.modules.get(module, object)).get(name)
    return kind if isinstance(kind, type) and dataclasses.is_dataclass(kind) else None


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


# ---- the identity of a run ----


def _identity(settings: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the numbers of a run depend on, by name and as read back from JSON."""
    algorithm = settings["algorithm"]
    kind = type(algorithm).__name__
    run = {**settings, "algorithm": kind} | {f"{kind}.{name}": v for name, v in _fields(algorithm).items()}
    run |= {name: _checksum(part) for name, part in parts.items()}
    if "data" in parts:
        run[MEASURED] = _losses(algorithm, parts["params"], parts["data"])
    del run[f"{kind}.chunk_size"]
    return json.loads(json.dumps(run, default=_as_json))


def _losses(algorithm: Algorithm, params: Params, data: ClientData) -> list[float]:
    """Loss of the first rows of the first and the last client."""
    dtype, position = next(iter(params.values())).dtype, torch.arange(_ROWS, device=data.n.device)
    two = data[[0, len(data) - 1]]
    batch = two.batch(position % two.n[:, None], position < two.n[:, None], dtype)
    with torch.no_grad(), still():  # a loss may draw random numbers
        return [float(algorithm.loss(params, tuple(column[k] for column in batch))) for k in (0, 1)]


def _as_json(value: Any) -> Any:
    """A replacement for a setting that JSON cannot represent; for a function, only that it is one."""
    if hasattr(value, "__array__"):
        return value.item() if getattr(value, "ndim", 1) == 0 else _checksum(value)
    if isinstance(value, functools.partial):
        return [value.func, *value.args, value.keywords]
    if isinstance(value, type):
        return value.__qualname__
    if dataclasses.is_dataclass(value):
        return {"class": type(value).__name__} | _fields(value)
    return "a function" if callable(value) else type(value).__name__


def _checksum(value: Any) -> str:
    """Checksum of tensors, whatever their device and memory layout."""
    tree = _fields(value) if dataclasses.is_dataclass(value) else value if isinstance(value, dict) else {"": value}
    if isinstance(value, ClientData):
        del tree["name"]  # it changes no number
    digest = hashlib.sha256()
    for name, part in flatten(tree).items():
        part = torch.as_tensor(part).detach()
        rows = part[:1] if part.ndim and len(part) > 1 and part.stride(0) == 0 else part  # a broadcast counts once
        digest.update(f"{name} {part.dtype} {tuple(part.shape)}".encode())
        plain = rows.cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
        digest.update(plain.view(torch.uint8).numpy().tobytes())
    return f"#{digest.hexdigest()[:12]}"


def _same(name: str, a: Any, b: Any, near: float) -> bool:
    """Whether an entry is the same; the measured losses may differ by rounding errors, as of another device."""
    if name == MEASURED and a and b and len(a) == len(b):
        return all(math.isclose(x, y, rel_tol=near, abs_tol=near * 1e-3) for x, y in zip(a, b, strict=True))
    return bool(a == b)
