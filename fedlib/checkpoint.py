"""Checkpoints: the state of a run on disk, written whole or not at all, and read back to the bit.

One safetensors file holds everything: arrays as ``models/dense1.weight``, the rest as JSON in the file's metadata.
Nothing is pickled, so a checkpoint can be read from anywhere without running its code.
"""

import dataclasses
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .identity import differences

__all__ = ["Checkpoint", "load_state", "save_state"]

Record = dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often `fedlib.federation.fit` stores a run.

    Parameters
    ----------
    path : path
        The file, by convention ``.safetensors``; its folder is made.
    every_rounds : int, optional
        Write after every so many rounds.
    every_seconds : float, optional
        Write after a round when so many seconds have passed since the last time. With both given, whichever comes
        first; with neither, only after the last round.

    Notes
    -----
    A lost runtime costs at most the rounds of one interval. Chapter 02.
    """

    path: str | os.PathLike
    every_rounds: int | None = None
    every_seconds: float | None = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, os.PathLike)):
            raise TypeError(f"path must be a path, got {self.path!r}")
        for name, kind, number in (("every_rounds", Integral, "whole number"), ("every_seconds", Real, "number")):
            value = getattr(self, name)
            right = value is None or isinstance(value, kind)
            if not right or (value is not None and not value > 0):
                raise ValueError(f"{name} must be a positive {number}, or None; got {value!r}")


class Writer:
    """The checkpoint of one run: reads what is there, refuses what belongs to another run, writes when it is due."""

    def __init__(self, checkpoint: Checkpoint, identity: Mapping[str, Any], machine: Mapping[str, Any]) -> None:
        self.path, self.checkpoint = Path(checkpoint.path).expanduser(), checkpoint
        self.identity, self.machine = dict(identity), dict(machine)
        self.written, self.stopped = time.monotonic(), False
        if self.path.is_dir():
            raise ValueError(f"the checkpoint {self.path} is a folder; give the name of a file in it")
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def read(self, device: torch.device) -> tuple[int, Any, list[Record]] | None:
        """The last round stored, the state after it and the records up to it; None if there is no file yet."""
        if not self.path.exists():
            return None
        state, meta = load_state(self.path, device)
        if other := differences(meta.get("identity", {}), self.identity):
            raise ValueError(
                f"{self.path} is the checkpoint of another run ({'; '.join(other)}). Give another path, delete the "
                "file to start again, or set back what changed"
            )
        if meta["machine"] != self.machine:
            warnings.warn(
                f"{self.path} was written on {meta['machine']}, this is {self.machine}: the run goes on, but its last "
                "bits may differ from those of an uninterrupted run",
                stacklevel=4,
            )
        self.stopped = meta["stopped"]
        return meta["round"], state, meta["records"]

    def write(self, state: Any, round: int, records: list[Record], last: bool, stopped: bool = False) -> None:
        """Store the run if it is time, or the last round; `stopped` if a callback made it the last."""
        rounds, seconds = self.checkpoint.every_rounds, self.checkpoint.every_seconds
        due = rounds is not None and round % rounds == 0
        due = due or (seconds is not None and time.monotonic() - self.written >= seconds)
        if due or last:
            meta = {"identity": self.identity, "machine": self.machine, "round": round, "records": records}
            meta["stopped"] = stopped
            save_state(self.path, state, meta)
            self.written = time.monotonic()

    @staticmethod
    def as_stored(entry: Record) -> Record:
        """A record as it will be read back; what cannot be stored is said in the first round."""
        try:
            return json.loads(json.dumps(entry))
        except TypeError as error:
            raise TypeError(
                f"a checkpoint cannot store the history: {error}. Callbacks must put numbers, strings or None into it"
            ) from error


def save_state(path: str | os.PathLike, state: Any, meta: Mapping[str, Any]) -> None:
    """Write a state and what belongs to it, whole or not at all.

    Parameters
    ----------
    path : path
    state : object
        A dataclass of tensors, numbers, strings, None, and tuples, lists, dictionaries or dataclasses of these.
    meta : mapping
        Anything that JSON can hold.

    Raises
    ------
    TypeError
        A field that can be stored neither as an array nor as JSON; names it.
    """
    from safetensors.torch import save

    path = Path(path)
    arrays: dict[str, Tensor] = {}
    skeleton = _encode(state, "", arrays)
    content = save(arrays, metadata={"fedlib": json.dumps({"state": skeleton, "meta": dict(meta)})})
    for old in path.parent.iterdir():  # of a run that was killed while it wrote
        if re.fullmatch(rf"{re.escape(path.name)}\.\d+\.part", old.name):
            old.unlink(missing_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # the content is on the disk before the name is
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def load_state(path: str | os.PathLike, device: torch.device | str = "cpu") -> tuple[Any, dict[str, Any]]:
    """Read what `save_state` wrote.

    Parameters
    ----------
    path : path
    device : torch.device or str
        Where the tensors go.

    Returns
    -------
    state, meta

    Raises
    ------
    ValueError
        The file is damaged, or is no checkpoint; or the state's class is not imported.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {})["fedlib"])
            return _decode(content["state"], file, torch.device(device)), dict(content["meta"])
    except _OtherClass as error:
        raise ValueError(f"{path} {error}") from error
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged or is not a checkpoint of fedlib ({error}). Give another path, or "
            "delete the file if nothing in it is yours"
        ) from error


def _encode(value: Any, name: str, arrays: dict[str, Tensor]) -> Any:
    """The JSON skeleton of a state; its tensors go into `arrays`, on the CPU and each with memory of its own."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise TypeError(f"a checkpoint cannot store {name or 'the state'}, a sparse tensor; use to_dense()")
        while name in arrays:  # keys 1 and "1", or a key with a slash
            name += "'"
        arrays[name] = value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        return {"tensor": name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        kind = f"{type(value).__module__}:{type(value).__qualname__}"
        if not dataclasses.is_dataclass(_find(kind)):
            raise TypeError(f"a checkpoint cannot store {name or 'the state'}: define {kind} at the top of a module")
        return {"class": kind, "fields": _encode_all(fields, name, arrays)}
    if type(value) is dict:  # another mapping would come back as a dict
        keys = list(value)
        if not all(isinstance(k, (str, int)) for k in keys):
            raise TypeError(f"{name or 'the state'} has keys that are neither strings nor whole numbers: {keys[:5]}")
        return {"keys": keys, "items": list(_encode_all(value, name, arrays).values())}
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):  # a named tuple would lose its names
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: list(_encode_all(dict(enumerate(value)), name, arrays).values())}
    raise TypeError(
        f"a checkpoint cannot store {name or 'the state'}, {value!r:.80} ({type(value).__name__}). A state holds "
        "tensors, numbers, strings, None, and tuples, lists, dictionaries or dataclasses of these"
    )


def _encode_all(items: Mapping[Any, Any], name: str, arrays: dict[str, Tensor]) -> dict[Any, Any]:
    return {k: _encode(v, f"{name}/{k}".lstrip("/"), arrays) for k, v in items.items()}


def _decode(node: Any, file: Any, device: torch.device) -> Any:
    if "tensor" in node:
        return file.get_tensor(node["tensor"]).to(device, copy=True)  # in its own memory: the file may be replaced
    if "value" in node:
        return node["value"]
    if "class" in node:
        kind, fields = _class(node["class"]), {k: _decode(v, file, device) for k, v in node["fields"].items()}
        if (here := [f.name for f in dataclasses.fields(kind)]) != list(fields):
            raise _OtherClass(f"holds a {node['class']} with the fields {list(fields)}; here it has {here}")
        new = object.__new__(kind)  # as it was: __init__ could compute something anew
        for name, value in fields.items():
            object.__setattr__(new, name, value)
        return new
    if "keys" in node:
        return {k: _decode(v, file, device) for k, v in zip(node["keys"], node["items"], strict=True)}
    return (
        tuple(_decode(v, file, device) for v in node["tuple"])
        if "tuple" in node
        else [_decode(v, file, device) for v in node["list"]]
    )


class _OtherClass(ValueError):
    """A file that is whole, with a class that is not here or is another one."""


def _find(kind: str) -> Any:
    """What has this name among all that is imported. Not by `getattr`, by which a package may import more."""
    module, _, name = kind.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found


def _class(kind: str) -> Any:
    """A dataclass by name, among what is already imported: a file must not make anything be imported."""
    found = _find(kind)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise _OtherClass(f"holds a {kind}, which is not defined here; import its module first")
    return found
