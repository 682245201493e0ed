"""Distribute the rows of a data set among clients, and plant group differences with a known ground truth.

Each function returns a `Partition`, which says which rows each client holds and what the true group of each client and
sample is. The functions of `labels.py` distribute rows; those of `groups.py` plant groups in the result and blur them.
Draws come from NumPy's legacy generator, whose stream never changes, so a seed gives the same partition on every
machine and with every version of NumPy.
"""

from .groups import feature_subsets, label_permutation, mixture, rotation, style
from .labels import Change, Partition, by_user, dirichlet, iid, pathological, quantity

__all__ = [
    "Change", "Partition", "by_user", "dirichlet", "feature_subsets", "iid", "label_permutation", "mixture",
    "pathological", "quantity", "rotation", "style",
]  # fmt: skip
