"""Share the rows of a data set out among clients, and plant differences whose truth is known.

Each function gives a `Partition`: which rows each client holds, and the true group of each client and sample. Share out
first (`iid`, `quantity`, `dirichlet`, `pathological`, `by_user`); then, if you like, plant groups on the result
(`label_permutation`, `rotation`, `style`, `feature_subsets`), and blur them with `mixture`. Draws come from NumPy's
legacy generator, whose stream never changes, so a seed means the same partition on every machine and for every version
of NumPy.
"""

from .groups import feature_subsets, label_permutation, mixture, rotation, style
from .labels import Change, Partition, by_user, dirichlet, iid, pathological, quantity

__all__ = [
    "Change",
    "Partition",
    "by_user",
    "dirichlet",
    "feature_subsets",
    "iid",
    "label_permutation",
    "mixture",
    "pathological",
    "quantity",
    "rotation",
    "style",
]
