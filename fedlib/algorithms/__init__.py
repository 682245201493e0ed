"""Federated learning algorithms, one short file each."""

from .fedavg import FedAvg
from .local_only import LocalOnly

__all__ = ["FedAvg", "LocalOnly"]
