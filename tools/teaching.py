"""The tables of the teaching pages, computed from the chapters: minutes, exercises, points, mistakes."""

import re
import runpy
from pathlib import Path
from typing import Any

from . import exercises, notebooks

WORDS, LINES = 75, 40  # of text, and of code, that we suppose a student reads in a minute
CLASS, IN_CLASS, POINT = 90, 20, 15  # minutes of a class, those of it for exercises, and for each point of an exercise


def size(notebook) -> tuple[int, int]:
    """Words of the text of a chapter and lines of its code, without the exercises and the set-up."""
    words = lines = 0
    asked = {id(cell) for e in exercises.of(notebook) for cell in e.cells}
    for cell in notebook.cells:
        if cell.cell_type == "code" and id(cell) not in asked and cell.id != "setup":
            lines += sum(bool(line.strip()) for line in cell.source.splitlines())
        elif cell.cell_type == "markdown" and cell.id != "badge" and not re.match(r"exercise", cell.id):
            text = re.sub(r"\$\$.+?\$\$|```.+?```|<[^>]+>", " ", cell.source, flags=re.S)
            words += len(re.findall(r"\w[\w'-]*", re.sub(r"\$[^$]+\$", " x ", text)))
    return words, lines


def minutes_to_read(notebook) -> int:
    """An estimate, to five minutes."""
    words, lines = size(notebook)
    return 5 * round((words / WORDS + lines / LINES) / 5)


def table(head: list[str], rows: list[list[Any]]) -> list[str]:
    """Lines of a Markdown table."""
    return [f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows)]


def link(path: Path) -> str:
    """A link to a chapter."""
    return f"{{doc}}`/notebooks/{path.stem}`"


def minutes_table(executed: Path = notebooks.EXECUTED) -> list[str]:
    """Lines of a Markdown table with a row for each chapter; papermill has measured the run that the pages show."""
    rows = []
    for path in notebooks.paths():
        notebook, run = notebooks.read(path), notebooks.executed(path.stem, executed).metadata.papermill.duration / 60
        asked = exercises.of(notebook)
        times = f"{minutes_to_read(notebook)} min", f"{run:.1f} min"
        rows.append([link(path), *times, len(asked), sum(e.points for e in asked)])
    return table(["Chapter", "To read, about", "To run", "Exercises", "Points"], rows)


def hours_table() -> list[str]:
    """Lines of a Markdown table with a row for each chapter, and a last one for all of them: what a student needs."""
    chapters = {}
    for path in notebooks.paths():
        notebook = notebooks.read(path)
        points = sum(e.points for e in exercises.of(notebook))
        home = max(0, POINT * points - IN_CLASS) / 60
        chapters[link(path)] = [minutes_to_read(notebook) / 60, CLASS / 60, home]
    total = [sum(parts) for parts in zip(*chapters.values(), strict=True)]
    rows = [[name, *(f"{part:.1f} h" for part in [*parts, sum(parts)])] for name, parts in chapters.items()]
    rows.append(["All chapters", *(f"{part:.0f} h" for part in [*total, sum(total)])])
    return table(["Chapter", "To read", "Class", "Exercises at home", "In all"], rows)


def exercise_table(path: Path) -> list[str]:
    """Lines of a Markdown table with a row for each exercise of a chapter."""
    wrong = runpy.run_path(str(notebooks.ROOT / "tests/notebooks/wrong_answers.py"))["WRONG"].get(path.stem, {})
    rows = []
    for e in exercises.of(notebooks.read(path)):
        mistakes = "; ".join(mistake for mistake, *_ in wrong.get(e.number, ()))
        kind = "" if e.kind == e.level else f" ({e.kind})"
        rows.append([f"{number(path, e)}{kind}", e.level, e.points, mistakes])
    return table(["Exercise", "Level", "Points", "Mistakes that its check refuses"], rows)


def number(path: Path, exercise: exercises.Exercise) -> str:
    """Chapter and exercise, such as 3.2."""
    return f"{int(path.stem[:2])}.{exercise.number}"
