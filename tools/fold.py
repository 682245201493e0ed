"""Fold cells in the book, on Colab and in JupyterLab alike: ``make fold``.

A code cell whose first line is ``# @title What it does`` is folded. This command writes all that the three places ask
for: the tag that the book reads, ``cellView`` for Colab, ``source_hidden`` for JupyterLab. A cell without a title is
unfolded.
"""

import json
from typing import Any

from . import badges, notebooks


def folded(cell: dict[str, Any]) -> dict[str, Any]:
    """The metadata that a cell should have, by its first line.

    A solution is hidden with its output, a cell that the book removes stays removed.
    """
    metadata = {key: value for key, value in cell["metadata"].items() if key not in ("cellView", "jupyter")}
    tags = [tag for tag in metadata.pop("tags", []) if tag not in ("hide-input", "hide-cell")]
    if "".join(cell["source"]).startswith("# @title "):
        if "remove-cell" not in tags:
            tags.append("hide-cell" if "solution" in tags else "hide-input")
        metadata |= {"cellView": "form", "jupyter": {"source_hidden": True}}
    return metadata | ({"tags": tags} if tags else {})


def main() -> None:
    """Fold all notebooks, and say which changed."""
    for path in notebooks.paths():
        notebook = json.loads(path.read_text(encoding="utf8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["metadata"] = folded(cell)
        badges.write(path, badges.as_text(notebook))


if __name__ == "__main__":
    main()
