"""Share the rows of a data set out among clients, and plant differences whose truth is known.

Each function gives a `Partition`: which rows each client holds, and the true group of each client and sample. Those of
`labels.py` share out; those of `groups.py` plant groups on the result, and blur them. Draws come from NumPy's legacy
generator, whose stream never changes, so a seed means the same partition on every machine and for every version of
NumPy.
"""

from .groups import feature_subsets, label_permutation, mixture, rotation, style
from .labels import Change, Partition, by_user, dirichlet, iid, pathological, quantity

__all__ = [
    "Change", "Partition", "by_user", "dirichlet", "feature_subsets", "iid", "label_permutation", "mixture",
    "pathological", "quantity", "rotation", "style",
]  # fmt: skip
