"""Train many federated clients at once on one device.

The names most programs need stand here; the modules have the rest: `params`, `keys`, `data`, `partition`, `datasets`,
`layers`, `models`, `losses`, `local`, `aggregate`, `ledger`, `evaluation`, `federation`, `checkpoint`, `reference`,
`plotting`, `results`. A module is imported when something of it is first asked for, so that
``python -m fedlib --help`` does not wait for PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import aggregate, algorithms, data, evaluation, keys, layers, local, losses, models, params
    from .bars import progress
    from .data import ClientData, local_batches, same_rows, stack_clients, stack_rows
    from .evaluation import evaluate
    from .federation import Algorithm, Result, Update, enroll, fit
    from .keys import Key
    from .local import local_update
    from .params import Params

__version__ = "1.1.0"

__all__ = [
    "Algorithm",
    "ClientData",
    "Key",
    "Params",
    "Result",
    "Update",
    "aggregate",
    "algorithms",
    "data",
    "enroll",
    "evaluate",
    "evaluation",
    "fit",
    "keys",
    "layers",
    "local",
    "local_batches",
    "local_update",
    "losses",
    "models",
    "params",
    "progress",
    "same_rows",
    "stack_clients",
    "stack_rows",
]

_MODULE_OF = {
    "Algorithm": "federation",
    "ClientData": "data",
    "Key": "keys",
    "Params": "params",
    "Result": "federation",
    "Update": "federation",
    "enroll": "federation",
    "evaluate": "evaluation",
    "fit": "federation",
    "local_batches": "data",
    "local_update": "local",
    "progress": "bars",
    "same_rows": "data",
    "stack_clients": "data",
    "stack_rows": "data",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    if name in __all__ or name in ("federation", "ledger"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
