"""Where the notebooks are, what one says of itself, and the templates of what is made of them."""

import copy
import re
from pathlib import Path
from typing import Any

import jinja2
import nbformat
import yaml

from . import badges

ROOT = badges.ROOT
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf8"))
EXECUTED = ROOT / "_build/executed/notebooks"
ADDRESS = CONFIG["html"]["baseurl"]
FOLDERS = jinja2.FileSystemLoader([ROOT / "tools", ROOT / "book/_static"])
TEMPLATES = jinja2.Environment(loader=FOLDERS, keep_trailing_newline=True)


def paths() -> list[Path]:
    """All chapters, in order."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


def read(path: Path) -> Any:
    """A notebook in today's format."""
    return nbformat.read(path, as_version=4)


def executed(name: str, folder: Path = EXECUTED) -> Any:
    """The executed copy of a chapter.

    Raises
    ------
    FileNotFoundError
        The chapter has not been run.
    """
    path = folder / f"{name}.ipynb"
    if not path.exists():
        raise FileNotFoundError(f"{name} has not been run: there is no {path}; type `make book` first")
    return read(path)


def code_cells(notebook: Any) -> list[Any]:
    """The code cells of a notebook."""
    return [c for c in notebook.cells if c.cell_type == "code"]


def tagged(notebook: Any, tag: str) -> list[Any]:
    """Cells with a tag."""
    return [c for c in notebook.cells if tag in c.metadata.get("tags", [])]


def shown(cell: Any, kind: str) -> list[str]:
    """What a cell has put out of a kind, such as "image/svg+xml"."""
    return [output.data[kind] for output in cell.get("outputs", ()) if kind in output.get("data", {})]


def elsewhere(notebook: Any) -> Any:
    """A copy for another place: its links to pages of the book lead to the published ones."""
    found = copy.deepcopy(notebook)
    for cell in found.cells:
        cell.source = re.sub(r"\]\(\.\./(book/[\w/]+)\.md", rf"]({ADDRESS}\1.html", cell.source)
    return found
