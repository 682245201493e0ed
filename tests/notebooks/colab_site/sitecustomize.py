"""Makes the kernel that starts with this folder on its path a notebook on Colab: its packages, and a second device."""

import os
import sys
from importlib.machinery import PathFinder

hidden = set(os.environ["HIDDEN_PACKAGES"].split(","))


class Finder(PathFinder):
    """Finds what is installed, but for some packages."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in hidden else super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Finder

import emulated_device  # noqa: E402  by what Colab has

emulated_device.use()
