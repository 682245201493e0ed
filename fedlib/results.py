"""Results with their provenance: what was measured, where, with which code; told apart when the code has changed.

A result file is JSON. It holds the figures and everything needed to judge and repeat them: settings, device, versions,
checksums of the data, wall time, and a hash of the fedlib modules that the run had imported.
"""

import ast
import datetime
import functools
import hashlib
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

__all__ = ["code_hash", "load", "notebook_hash", "save"]

_IMPORTED = time.time()
_PACKAGES = ("numpy", "pandas", "scikit-learn", "torch", "torch-geometric", "torchvision")
# Modules that only list names, draw or store.
_NO_NUMBERS = {"fedlib"} | {f"fedlib.{m}" for m in ("algorithms", "checkpoint", "identity", "plotting", "results")}


def _modules() -> list[str]:
    return sorted(m for m in sys.modules if m.split(".")[0] == "fedlib" and m not in _NO_NUMBERS)


def code_hash(modules: list[str]) -> str:
    """Hash of what modules of fedlib do: their syntax trees, without comments, docstrings and layout.

    Parameters
    ----------
    modules : list of str
        Full names; a module that is gone counts as empty.

    Returns
    -------
    str
        16 hexadecimal digits, the same on all versions of Python that parse the code alike.
    """
    digest = hashlib.sha256()
    for name in sorted(modules):
        path = _file(name)
        text = path.read_text(encoding="utf8") if path.exists() else ""
        digest.update(f"{name} {_outline_of(text)}\n".encode())
    return digest.hexdigest()[:16]


def notebook_hash(path: str | os.PathLike) -> str:
    """Hash of what a notebook computes: its code cells up to the last that saves results, less those that only draw.

    Parameters
    ----------
    path : path
        A notebook whose code is plain Python. Cells with ``plt.show()`` draw.

    Returns
    -------
    str
        16 hexadecimal digits; text, comments and layout do not change them.
    """
    cells = json.loads(Path(path).read_text(encoding="utf8"))["cells"]
    sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    last = max((i for i, source in enumerate(sources) if "results.save(" in source), default=len(sources) - 1)
    digest = hashlib.sha256()
    for source in sources[: last + 1]:
        if "plt.show()" not in source:
            digest.update(f"{_outline_of(source)}\n".encode())
    return digest.hexdigest()[:16]


def _file(module: str) -> Path:
    path = Path(__file__).parent.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _hash_of_the_run(modules: list[str]) -> str:
    """Hash of the code that ran; of code edited meanwhile nothing is known, so the result counts as stale."""
    edited = [m for m in modules if _file(m).exists() and _file(m).stat().st_mtime > _IMPORTED]
    return f"edited during the run: {', '.join(edited)}" if edited else code_hash(modules)


@functools.cache  # a run with checkpoints asks for the same modules many times
def _outline_of(code: str) -> str:
    return _outline(ast.parse(code))


def _outline(node: Any) -> str:
    """A syntax tree as text, without docstrings and without fields that some versions of Python leave out."""
    if isinstance(node, list):
        return f"[{', '.join(map(_outline, node))}]"
    if not isinstance(node, ast.AST):
        return repr(repr(node))
    fields = {name: value for name in node._fields if (value := getattr(node, name, None)) is not None and value != []}
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
        fields["body"] = fields["body"][1:]
    texts = [f"[{name!r}, {_outline(value)}]" for name, value in sorted(fields.items()) if value != []]
    return f"[{', '.join([repr(type(node).__name__), *texts])}]"


def save(
    path: str | os.PathLike,
    figures: Mapping[str, Any],
    settings: Mapping[str, Any],
    data: Mapping[str, str],
    seconds: float,
    notebook: str | os.PathLike | None = None,
) -> None:
    """Write a result file, whole or not at all.

    Parameters
    ----------
    path : path
        Ends in .json; folders are made.
    figures : mapping
        What was measured; numbers, strings, lists and mappings of these.
    settings : mapping
        What the run was told: preset, seeds, rounds, ...
    data : mapping of str to str
        Name of each data set to its checksum, as `fedlib.datasets` states it.
    seconds : float
        Wall time of the run.
    notebook : path, optional
        The notebook that ran, whose hash is stored too.
    """
    modules = _modules()
    versions = {"python": platform.python_version(), "fedlib": _version("fedlib")}
    record = {
        "figures": figures,
        "settings": settings,
        "data": data,
        "provenance": {
            "seconds": round(seconds, 1),
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine() + " CPU",
            "threads": torch.get_num_threads(),
            "versions": versions | {p: _version(p) for p in _PACKAGES},
            "code_hash": _hash_of_the_run(modules),
            "modules": modules,
            "notebook_hash": None if notebook is None else notebook_hash(notebook),
        },
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf8")
    os.replace(part, path)


def _version(package: str) -> str | None:
    if package == "fedlib":
        return sys.modules["fedlib"].__version__
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def load(path: str | os.PathLike, notebook: str | os.PathLike | None = None) -> dict[str, Any]:
    """Read a result file and say whether it still belongs to the code.

    Parameters
    ----------
    path : path
    notebook : path, optional
        The notebook that makes the file.

    Returns
    -------
    dict
        ``figures``, ``settings``, ``data``, ``provenance`` as written by `save`, and ``stale``: True when the code of
        the modules it was made with, or of the notebook, has changed since.

    Raises
    ------
    FileNotFoundError
        Says which command makes the file.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no result file {path}; `make results` makes those of the book")
    record = json.loads(path.read_text(encoding="utf8"))
    provenance = record["provenance"]
    record["stale"] = code_hash(provenance["modules"]) != provenance["code_hash"] or (
        notebook is not None and notebook_hash(notebook) != provenance["notebook_hash"]
    )
    if record["stale"]:
        warnings.warn(
            f"{path.name} was made on {provenance['date']} by code that has changed since; see `make results`",
            stacklevel=2,
        )
    return record
