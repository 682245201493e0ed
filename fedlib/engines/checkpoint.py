"""Checkpoints: the state of a run on disk, written whole or not at all, and read back to the bit.

One safetensors file holds everything: arrays as ``models/dense1.weight``, the rest as JSON in the file's metadata.
Nothing is pickled, so a checkpoint can be read from anywhere without running its code.
"""

import dataclasses
import functools
import hashlib
import json
import math
import os
import re
import sys
import time
import warnings
from collections.abc import Mapping
from numbers import Integral, Number, Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..algorithm import Algorithm
from ..data import ClientData
from ..params import flatten

__all__ = ["Checkpoint", "load_state", "save_state"]

History = list[dict[str, Any]]
_ROWS = 8  # on which the loss is tried


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
    A lost runtime costs at most the rounds of one interval. Of several processes (`fedlib.engines.processes`) the first
    one writes. A run is known by its settings, by checksums of its data and first parameters, and by what its loss
    gives on a few rows; a function is not known by how it is written, so a cell may run again. Chapter 02.
    """

    def __init__(
        self, path: str | os.PathLike, every_rounds: int | None = None, every_seconds: float | None = 30.0
    ) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"path must be a path, got {path!r}")
        for name, value, kind, number in (
            ("every_rounds", every_rounds, Integral, "whole number"),
            ("every_seconds", every_seconds, Real, "number"),
        ):
            if value is not None and not (isinstance(value, kind) and value > 0):
                raise ValueError(f"{name} must be a positive {number}, or None; got {value!r}")
        self.path = Path(path).expanduser()
        self.every_rounds, self.every_seconds = every_rounds, every_seconds
        self._run: dict[str, Any] = {}
        self._written = 0.0

    def open(self, settings: Mapping[str, Any], parts: Mapping[str, Any]) -> tuple[int, bool, Any, History] | None:
        """What is stored of this run; None if there is no file yet.

        Parameters
        ----------
        settings : mapping
            What decides the numbers of the run: the algorithm, the seed, ...
        parts : mapping of str to Params or ClientData
            The start under "params", the examples under "data", evaluation sets under their names.

        Returns
        -------
        round, stopped, state, history
            The last round stored, whether a callback ended the run there, and what there was after it.

        Raises
        ------
        ValueError
            The file belongs to another run, with what differs; it is damaged; it is a folder.
        """
        if self.path.is_dir():
            raise ValueError(f"the checkpoint {self.path} is a folder; give the name of a file in it")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        device = next(iter(parts["params"].values())).device
        card = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        machine = {"device": card, "torch": torch.__version__, "threads": str(torch.get_num_threads())}
        self._run, self._written = {"identity": _identity(settings, parts), "machine": machine}, time.monotonic()
        if not self.path.exists():
            return None
        state, meta = load_state(self.path, device)
        there, here = meta.get("identity", {}), self._run["identity"]
        if other := [name for name in {**here, **there} if not _same(there.get(name), here.get(name))]:
            words = "; ".join(
                f"{name}: {_short(there.get(name))} there, {_short(here.get(name))} here" for name in other
            )
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
        """Store the run if it is time, or the last round; `stopped` if a callback made it the last."""
        try:
            json.dumps(history[-1:])
        except TypeError as error:
            raise TypeError(
                f"a checkpoint cannot store the history: {error}. Callbacks must put numbers, strings or None into it"
            ) from error
        now = time.monotonic()
        due = last or (self.every_rounds is not None and round % self.every_rounds == 0)
        due = due or (self.every_seconds is not None and now - self._written >= self.every_seconds)
        dist = torch.distributed
        if due and not (dist.is_available() and dist.is_initialized() and dist.get_rank()):
            save_state(self.path, state, self._run | {"round": round, "history": history, "stopped": stopped})
            self._written = now


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


# ---- which run it is ----


def _identity(settings: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """Name of each thing that the numbers of a run depend on, to a text, or to what the loss gives."""
    found: dict[str, Any] = {name: _text(value) for name, value in settings.items() if name != "algorithm"}
    algorithm = settings["algorithm"]
    found["algorithm"] = type(algorithm).__name__
    for f in dataclasses.fields(algorithm):
        if f.name != "chunk_size":
            found[f"{found['algorithm']}.{f.name}"] = _text(getattr(algorithm, f.name))
    found |= {name: _checksum(part) for name, part in parts.items()}
    if isinstance(data := parts.get("data"), ClientData):
        found["what the loss gives"] = _losses(algorithm, parts["params"], data)
    return found


def _losses(algorithm: Algorithm, params: Any, data: ClientData) -> list[float] | str:
    """Loss of the first and the last client's first rows, at the start."""
    dtype, position = next(iter(params.values())).dtype, torch.arange(_ROWS, device=data.n.device)
    two = data[[0, len(data) - 1]]
    x, y, w = two.batch(position % two.n[:, None], position < two.n[:, None], dtype)
    with torch.no_grad():
        return [float(algorithm.loss(params, (x[k], y[k], w[k]))) for k in (0, 1)]


def _text(value: Any) -> str:
    """A setting as a text. Of a function only that it is one."""
    if isinstance(value, Number) or hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
        return repr(float(value))  # type: ignore[arg-type]
    if isinstance(value, (str, bytes, torch.dtype)) or value is None:
        return repr(value)
    if isinstance(value, (Tensor, ClientData)) or type(value).__module__ == "numpy":
        return _checksum(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{k}={_text(v)}' for k, v in value.items())}}}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, functools.partial):
        return f"partial({_text(value.func)}, {_text(value.args)}, {_text(value.keywords)})"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if dataclasses.is_dataclass(value):
        return type(value).__name__ + _text({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    return "a function" if callable(value) else type(value).__name__


def _checksum(value: Any) -> str:
    """Checksum of tensors, in whatever memory they lie."""
    if dataclasses.is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    digest = hashlib.sha256()
    for name, part in (flatten(dict(value)) if isinstance(value, Mapping) else {"": value}).items():
        part = torch.as_tensor(part).detach()
        rows = part[:1] if part.ndim and len(part) > 1 and part.stride(0) == 0 else part  # stored once
        plain = torch.empty(rows.shape, dtype=rows.dtype).copy_(rows)
        digest.update(f"{name} {part.dtype} {tuple(part.shape)}".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return f"#{digest.hexdigest()[:12]}"


def _same(a: Any, b: Any) -> bool:
    """Whether two texts are the same, or two lists of numbers but for rounding."""
    if not (isinstance(a, list) and isinstance(b, list)):
        return a == b
    return all(math.isclose(x, y, rel_tol=1e-5, abs_tol=1e-5) or (x != x and y != y) for x, y in zip(a, b, strict=True))


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:40]}... #{hashlib.sha256(text.encode()).hexdigest()[:12]}"
