"""Conversion between nested and flat dictionaries of tensors, for files and messages."""

from typing import Any

from torch import Tensor

__all__ = ["flatten", "unflatten"]


def flatten(tree: dict[str, Any], above: str = "") -> dict[str, Tensor]:
    """Turn nested dictionaries of tensors into a flat one whose names are paths.

    ~ and / in a name are written ~0 and ~1, as in RFC 6901. `above` is the path of the tree itself and ends with a
    slash; "" is the root.
    """
    flat: dict[str, Tensor] = {}
    for name, value in tree.items():
        path = above + name.replace("~", "~0").replace("/", "~1")
        flat |= flatten(value, f"{path}/") if isinstance(value, dict) else {path: value}
    return flat


def unflatten(flat: dict[str, Tensor]) -> dict[str, Any]:
    """Undo `flatten`, except that empty dictionaries are lost."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *above, last = (part.replace("~1", "/").replace("~0", "~") for part in path.split("/"))
        branch = tree
        for part in above:
            branch = branch.setdefault(part, {})
        branch[last] = value
    return tree
