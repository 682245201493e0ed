"""Notebooks that run, here and as on Colab, whose image tests/colab.txt lists: what is there, and what it lacks."""

import os
import re
from functools import cache
from importlib import metadata

import papermill
from packaging.requirements import Requirement

from tools import badges
from tools.notebooks import ROOT

LINES = (ROOT / "tests/colab.txt").read_text(encoding="utf8").splitlines()
VERSIONS = dict(line.split("==") for line in LINES if line and not line.startswith("#"))
SITE = ROOT / "tests/notebooks/colab_site"
# As a processor without today's instructions computes.
OTHER_ROUNDING = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
distributions_of = cache(metadata.packages_distributions)  # takes seconds


def executed(notebook, folder, parameters, limit=300):
    """A notebook after a run from a clean kernel; no copy is written, as papermill would do after every cell."""
    how = {"kernel_name": "python3", "progress_bar": False, "execution_timeout": limit}
    return papermill.execute_notebook(notebook, None, parameters, cwd=folder, **how)


def run(notebook, folder, monkeypatch, seed=0, *sites, **environment):
    """Run it with small parameters, with these folders first on its path."""
    path = os.pathsep.join(map(str, (*sites, ROOT, ROOT / "tests")))
    for name, value in ({"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | environment).items():
        monkeypatch.setenv(name, value)
    return executed(notebook, folder, {"preset": "smoke", "seed": seed})


def run_there(notebook, stem, folder, monkeypatch):
    """Run it on a machine such as Colab's: other packages are hidden, but for those that the set-up cell installs; the
    device refuses what a GPU refuses (tests/emulated_device.py); numbers are rounded otherwise. Another seed.
    """
    installed = installed_by(badges.setup_cell(stem, "https://github.com/a/b", "1"))
    hidden = missing(installed)
    assert "flwr" not in installed and {"papermill", "nbformat"} <= hidden
    assert ("torch_geometric" in hidden) == (stem not in badges.GRAPHS)
    return run(notebook, folder, monkeypatch, 1, SITE, HIDDEN_PACKAGES=",".join(hidden), **OTHER_ROUNDING)


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


def missing(installed):
    """Importable names that this machine has and Colab lacks."""
    there = with_needs({*VERSIONS, *installed})
    ours = {"fedlib", "pip", "setuptools", "pkg_resources", "_distutils_hack"}
    return {
        package
        for package, distributions in distributions_of().items()
        if package not in ours and not package.startswith("_") and not {normal(d) for d in distributions} & there
    }
