"""What the numbers of a run depend on, as short texts: equal texts, equal runs.

`fedlib.checkpoint` compares them before it resumes. Functions of a user's own are described by what they do, their
bytecode and the values they use, so that a notebook's cell may run again and its comments may change.
"""

import dataclasses
import dis
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .data import ClientData
from .params import Params
from .results import code_hash

__all__ = ["describe", "run_identity"]

_CORE = (
    "aggregate",
    "clustering",
    "data",
    "evaluation",
    "federation",
    "keys",
    "layers",
    "local",
    "losses",
    "models",
    "params",
)


# Modules that an algorithm computes with, beside its own and the core's.
_BESIDE = {
    "fedlib.algorithms.fedcg": ("celeba", "domains", "graph", "residual", "strided"),
    "fedlib.algorithms.fedsgcnn": ("mmd", "siamese", "transfer"),
    "fedlib.algorithms.lg_cfl": ("algorithms.lg_fedavg", "mmd"),
    "fedlib.algorithms.lg_fedavg": ("mmd",),
}

# What `dataclass` writes into a class.
_GENERATED = {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__replace__"} | {
    f"__{order}__" for order in ("lt", "le", "gt", "ge")
}


def run_identity(
    algorithm: Any, params: Params, data: ClientData, evaluations: Mapping[str, ClientData], **settings: Any
) -> dict[str, str]:
    """Name of each thing that the numbers of a run depend on, to its text."""
    kind = type(algorithm)
    ours = [c.__module__ for c in kind.__mro__ if c.__module__.split(".")[0] == "fedlib"]
    ours += [f"fedlib.{m}" for name in ours for m in _BESIDE.get(name, ())]
    fields = {}
    for f in dataclasses.fields(algorithm):
        value = getattr(algorithm, f.name)
        fields[f"{kind.__name__}.{f.name}"] = describe(float(value) if f.type is float else value)
    fields.pop(f"{kind.__name__}.chunk_size", None)  # no result depends on it, rounding apart
    return {
        "algorithm": f"{kind.__module__}.{kind.__qualname__}",
        **fields,
        **{name: describe(value) for name, value in settings.items()},
        "initial parameters": _hash(params),
        "data": _hash(data),
        **{f"evaluation set {name}": _hash(some) for name, some in evaluations.items()},
        "code version": code_hash(sorted({*ours, *(f"fedlib.{m}" for m in _CORE)})),
        **{f"code of {c.__qualname__}": _hash(c) for c in kind.__mro__ if not _from_a_library(c.__module__)},
    }


def describe(value: Any, known: dict[int, tuple[Any, str]] | None = None) -> str:
    """A text that is the same in each process, and differs when the value is, or does, something else.

    Parameters
    ----------
    value : object
        Anything. What can neither be looked into nor pickled is named by its type.
    known : dict, optional
        Texts of what was described on the way, by id, so that nothing is described twice.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (Number, str, bytes, torch.dtype)) or value is None:
        return repr(value)
    known = {} if known is None else known
    if id(value) not in known:
        known[id(value)] = value, "itself"
        known[id(value)] = value, _describe(value, known)  # holds the value too: its id must not be used again
    return known[id(value)][1]


def _describe(value: Any, known: dict[int, tuple[Any, str]]) -> str:
    def parts(items: Iterable[tuple[Any, Any]]) -> str:
        return ", ".join(f"{k}={describe(v, known)}" for k, v in items)

    if isinstance(value, Tensor):
        value = value.detach() if value.layout == torch.strided else value.detach().to_dense()
        rows = value[:1] if value.ndim and len(value) > 1 and value.stride(0) == 0 else value  # stored once
        plain = torch.empty(rows.shape, dtype=rows.dtype).copy_(rows)
        return f"{value.dtype} {tuple(value.shape)} {_digest(plain.reshape(-1).view(torch.uint8).numpy())}"
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.dtype} {value.shape} {_digest(value.tobytes())}"
    if isinstance(value, Mapping):
        return f"{{{parts(value.items())}}}"
    if isinstance(value, (tuple, list)):
        return f"({parts(enumerate(value))})"
    if isinstance(value, (set, frozenset)):  # their order differs between processes
        return f"{{{', '.join(sorted(describe(v, known) for v in value))}}}"
    if isinstance(value, functools.partial):
        return f"partial({describe(value.func, known)}, {describe(value.args, known)}, {parts(value.keywords.items())})"
    if isinstance(value, types.MethodType):
        return f"{describe(value.__func__, known)} of {describe(value.__self__, known)}"
    if isinstance(value, types.FunctionType):
        return _function(value, known)
    if isinstance(value, (staticmethod, classmethod)):
        return describe(value.__func__, known)
    if isinstance(value, property):
        return describe((value.fget, value.fset), known)
    if isinstance(value, type):
        written = [f"{c.__module__}.{c.__qualname__}({parts(_members(c))})" for c in value.__mro__ if _is_users(c)]
        return " < ".join(written) or f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, types.ModuleType):
        return value.__name__ if _from_a_library(value.__name__) else f"{value.__name__}({parts(_members(value))})"
    if isinstance(value, torch.nn.Module):
        layers = {name: (type(m), _plain_values(m)) for name, m in value.named_modules()}
        return f"{{{parts({**layers, **value.state_dict()}.items())}}}"
    if hasattr(value, "__qualname__"):  # functions that are not written in Python
        return f"{getattr(value, '__module__', '')}.{value.__qualname__}"
    try:
        return describe(value.__reduce_ex__(2), known)  # what pickle would store; nothing is run
    except Exception:  # whatever a class raises that cannot be pickled
        return f"{type(value).__module__}.{type(value).__qualname__}"


def _plain_values(module: torch.nn.Module) -> dict[str, Any]:
    """Settings of a layer."""
    simple = (Number, str, tuple)
    return {n: v for n, v in vars(module).items() if isinstance(v, simple) and n != "training" and n[0] != "_"}


def _members(owner: Any) -> list[tuple[str, Any]]:
    """What the author of a class or module wrote, without what Python or `dataclass` add."""
    written = {}
    for name, member in vars(owner).items():
        function = isinstance(getattr(member, "__func__", member), types.FunctionType)
        generated = name in _GENERATED and dataclasses.is_dataclass(owner)
        if not (generated or (name.startswith("__") and not function) or name.startswith("_abc_")):
            written[name] = member
    return sorted(written.items())


def _function(function: types.FunctionType, known: dict[int, tuple[Any, str]]) -> str:
    name = f"{function.__module__}.{function.__qualname__}"
    captured: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            captured.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            captured.append(None)
    if _from_a_library(function.__module__):
        return f"{name} {describe(captured, known)}" if captured else name
    code = function.__code__
    used = [function.__globals__[n] for n in _global_names(code) if n in function.__globals__]
    return f"{name} {_digest(_bytecode(code))} {describe(captured + used, known)}"


def _is_users(kind: type) -> bool:
    return not _from_a_library(kind.__module__)


def _from_a_library(module: str | None) -> bool:
    """Whether code has a version, or is installed, and need not be looked at."""
    top = str(module).split(".")[0]
    if top == "__main__":  # a notebook or a script, whatever started it
        return False
    if top in ("fedlib", "torch") or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(str(module)), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _global_names(code: types.CodeType) -> list[str]:
    names = [i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    inner = [n for c in code.co_consts if isinstance(c, types.CodeType) for n in _global_names(c)]
    return sorted({*names, *inner})


def _bytecode(code: types.CodeType) -> bytes:
    constants = list(code.co_consts)
    is_function = not code.co_name.startswith("<") and bool(code.co_flags & inspect.CO_OPTIMIZED)
    has_place = sys.version_info < (3, 13) or code.co_flags & 0x4000000  # of a docstring, which comes first
    if is_function and has_place and constants and isinstance(constants[0], (str, type(None))):
        constants = constants[1:]
    values = [c for c in constants if not isinstance(c, types.CodeType)]
    inner = b"".join(_bytecode(c) for c in code.co_consts if isinstance(c, types.CodeType))
    return code.co_code + f"{describe(values)} {code.co_names}".encode() + inner


def _hash(value: Any) -> str:
    return f"#{_digest(describe(value).encode())}"


def _digest(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
