"""Algorithms and parts of this project's own, which stand in no paper: each file says so, and where its limits are."""

from .known_domains import FedCGKnownDomains
from .lg_cfl import LGCFL
from .split_half_cfl import SplitHalfCFL

__all__ = ["FedCGKnownDomains", "LGCFL", "SplitHalfCFL"]
