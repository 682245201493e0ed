"""Hides packages from the kernel that starts with this folder on its path."""

import os
import sys


class Hidden:
    """Says of some packages that they are not installed."""

    names = set(os.environ["HIDDEN_PACKAGES"].split(","))

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r} (hidden, as on Colab)", name=name)


sys.meta_path.insert(0, Hidden())
