"""Where the notebooks are, and what one says of itself."""

from pathlib import Path
from typing import Any

import nbformat
import yaml

ROOT = Path(__file__).resolve().parents[1]


def repository() -> str:
    """Address of the project's repository: the one setting, in _config.yml."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf8"))
    return config["repository"]["url"].rstrip("/")


def paths() -> list[Path]:
    """All chapters, in order."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


def read(path: Path) -> Any:
    """A notebook in today's format."""
    return nbformat.read(path, as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    """The code cells of a notebook."""
    return [c for c in notebook.cells if c.cell_type == "code"]


def tagged(notebook: Any, tag: str) -> list[Any]:
    """Cells with a tag."""
    return [c for c in notebook.cells if tag in c.metadata.get("tags", [])]


def badge(path: Path) -> str:
    """The Markdown of a chapter's Colab badge."""
    place = repository().removeprefix("https://github.com/")
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    return (
        f"[![Open In Colab]({image})](https://colab.research.google.com/github/{place}/blob/main/notebooks/{path.name})"
    )
