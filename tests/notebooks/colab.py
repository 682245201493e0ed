"""Colab's image, as tests/colab.txt lists it: what is there, and what of this machine it lacks."""

import re
from functools import cache
from importlib import metadata

from packaging.requirements import Requirement

from tools.notebooks import ROOT

LINES = (ROOT / "tests/colab.txt").read_text(encoding="utf8").splitlines()
VERSIONS = dict(line.split("==") for line in LINES if line and not line.startswith("#"))


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def with_needs(names):
    """These distributions and all that they need, without extras."""
    found, todo = set(), [normal(n) for n in names]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        try:
            needs = [Requirement(text) for text in metadata.requires(name) or ()]
        except metadata.PackageNotFoundError:
            continue
        todo += [normal(n.name) for n in needs if n.marker is None or n.marker.evaluate({"extra": ""})]
    return found


def installed_by(setup):
    """The packages that a set-up cell installs."""
    return set(re.findall(r'"pip", "install", "-q", "([\w-]+)"', setup))


@cache
def _packages():
    return metadata.packages_distributions()


def missing(installed):
    """Importable names that this machine has and Colab lacks."""
    there = with_needs({*VERSIONS, *installed})
    ours = {"fedlib", "pip", "setuptools", "pkg_resources", "_distutils_hack"}
    return {
        package
        for package, distributions in _packages().items()
        if package not in ours and not package.startswith("_") and not {normal(d) for d in distributions} & there
    }
