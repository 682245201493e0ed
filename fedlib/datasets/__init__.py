"""Named data sets as NumPy arrays.

``names()`` lists the sets, ``stats(name)`` states what a set is without reading it, ``load(name)`` reads it. Files are
sought under ``root``, else in the folder that the environment variable ``FEDLIB_DATA`` names, else under
``~/.cache/fedlib``. Nothing is downloaded or written there unless ``download=True``. `leaf` and `flwr_femnist` read
FEMNIST, whole or some writers of it, such as ``FEMNIST300``.
"""

from .femnist import FEMNIST300, flwr_femnist, leaf
from .registry import Arrays, Stats, load, names, stats

__all__ = ["FEMNIST300", "Arrays", "Stats", "flwr_femnist", "leaf", "load", "names", "stats"]
