"""Algorithms and components that this project adds and that are in no paper; each file says so and gives its limits."""

from .known_domains import FedCGKnownDomains
from .lg_cfl import LGCFL
from .split_half_cfl import SplitHalfCFL

__all__ = ["FedCGKnownDomains", "LGCFL", "SplitHalfCFL"]
