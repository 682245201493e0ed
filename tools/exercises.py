"""The exercises of the chapters: what a student gets instead of a solution.

After its text an exercise has three cells: the folded solution, an empty cell for the student's answer, and a check. In
this order nothing needs a switch: whoever runs all cells gets the solution, and then, in its place, what stands in the
answer.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

STUB = "# YOUR CODE HERE\nraise NotImplementedError()"  # what nbgrader leaves of a solution

_WORDS = yaml.safe_load(Path(__file__).with_name("exercises.yml").read_text(encoding="utf8"))
READING, WRITING, LEVELS, POINTS, GOES_ON = (_WORDS[k] for k in ("reading", "writing", "levels", "points", "goes_on"))


@dataclass(frozen=True)
class Exercise:
    """An exercise of a chapter.

    Attributes
    ----------
    number : str
    kind : str
        The words in brackets.
    prompt : str
        Markdown, hint included.
    solution, answer, check : notebook cell
    """

    number: str
    kind: str
    prompt: str
    solution: Any
    answer: Any
    check: Any

    @property
    def cells(self) -> tuple[Any, Any, Any]:
        """The code cells, in order."""
        return self.solution, self.answer, self.check

    @property
    def level(self) -> str:
        """One of "recall", "apply", "analyse" and "project"."""
        for level, kinds in LEVELS.items():
            if self.kind in kinds:
                return level
        raise ValueError(f"exercise {self.number} ({self.kind}) has no level; add {self.kind!r} to tools/exercises.yml")

    @property
    def points(self) -> int:
        """What a right answer is worth."""
        return POINTS[self.level]


def of(notebook: Any) -> list[Exercise]:
    """The exercises of a chapter, in order."""
    text = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    asked = re.findall(r"^(\*\*Exercise (\d) \((.+?)\)\.\*\*.*?)(?=^\*\*(?:Exercise|Open) |^## |\Z)", text, re.M | re.S)
    places = [i for i, c in enumerate(notebook.cells) if "solution" in c.metadata.get("tags", [])]
    return [
        Exercise(number, kind, prompt.strip(), *notebook.cells[i : i + 3])
        for (prompt, number, kind), i in zip(asked, places, strict=True)
    ]
