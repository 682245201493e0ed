"""Named data sets as NumPy arrays.

``names()`` lists the sets, ``stats(name)`` describes a set without reading it, and ``load(name)`` reads it. Files are
looked up under ``root``, else in the folder that the environment variable ``FEDLIB_DATA`` names, else under
``~/.cache/fedlib``. Nothing is downloaded or written there unless ``download=True``. `leaf` and `flwr_femnist` read
FEMNIST, either all of it or some of its writers, such as ``FEMNIST300``.
"""

from .femnist import FEMNIST300, flwr_femnist, leaf
from .registry import Arrays, Stats, load, names, stats

__all__ = ["FEMNIST300", "Arrays", "Stats", "flwr_femnist", "leaf", "load", "names", "stats"]
