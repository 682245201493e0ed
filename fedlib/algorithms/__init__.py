"""Federated learning algorithms, one short file each.

A file is imported when its algorithm is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cfl import CFL
    from .fedavg import FedAvg
    from .fedgroup import FedGroup
    from .fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
    from .fedprox import FedProx
    from .fedsgcnn import FedSGCNN
    from .fesem import FeSEM
    from .ifca import IFCA
    from .kmeans import ClusteredKMeans
    from .lg_cfl import LGCFL
    from .lg_fedavg import LGFedAvg
    from .local_only import LocalOnly
    from .scaffold import Scaffold

__all__ = [
    "CFL",
    "IFCA",
    "LGCFL",
    "ClusteredKMeans",
    "FeSEM",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCG",
    "FedGroup",
    "FedProx",
    "FedSGCNN",
    "FedYogi",
    "LGFedAvg",
    "LocalOnly",
    "Scaffold",
]

_FILES = {
    "CFL": "cfl",
    "IFCA": "ifca",
    "ClusteredKMeans": "kmeans",
    "FeSEM": "fesem",
    "FedAdagrad": "fedopt",
    "FedAdam": "fedopt",
    "FedAvg": "fedavg",
    "FedAvgM": "fedopt",
    "FedCG": "fedcg",
    "FedGroup": "fedgroup",
    "FedProx": "fedprox",
    "FedSGCNN": "fedsgcnn",
    "FedYogi": "fedopt",
    "LGCFL": "lg_cfl",
    "LGFedAvg": "lg_fedavg",
    "LocalOnly": "local_only",
    "Scaffold": "scaffold",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no algorithm {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f".{_FILES[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
