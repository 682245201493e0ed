"""Fold cells in the book, on Colab and in JupyterLab alike: ``make fold``.

A code cell whose first line is ``# @title What it does`` is folded. This command writes all that the three places ask
for: the tag that the book reads, ``cellView`` for Colab, ``source_hidden`` for JupyterLab. A cell without a title is
unfolded.

It also puts an empty cell for the student's answer after each solution that has none, and writes the paragraph that
tells how these cells are used.
"""

import json
import re
from typing import Any

from . import badges, exercises, notebooks


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


def with_answers(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells of a notebook with a place for an answer after each solution; one that is there stays as it is."""
    found = []
    for cell, after in zip(cells, [*cells[1:], {"metadata": {}}], strict=True):
        found.append(cell)
        tags = cell["metadata"].get("tags", [])
        if "solution" in tags and "answer" not in after["metadata"].get("tags", []):
            number = cell["id"].removeprefix("solution-")
            answer = {"cell_type": "code", "execution_count": None, "id": f"answer-{number}", "outputs": []}
            found.append(answer | {"metadata": {"tags": ["answer"]}, "source": [exercises.empty(number)]})
        if cell["id"] == "exercises":
            text = re.sub(r"^Try each before .*$", exercises.READING, "".join(cell["source"]), count=1, flags=re.M)
            cell["source"] = text.splitlines(keepends=True)
    return found


def main() -> None:
    """Fold all notebooks, add places for answers, and say which changed."""
    for path in notebooks.paths():
        notebook = json.loads(path.read_text(encoding="utf8"))
        notebook["cells"] = with_answers(notebook["cells"])
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["metadata"] = folded(cell)
        badges.write(path, badges.as_text(notebook))


if __name__ == "__main__":
    main()
