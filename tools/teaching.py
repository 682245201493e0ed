"""The tables of the teaching pages, computed from the chapters: minutes, exercises, points, mistakes."""

import json
import re
import sys
from pathlib import Path

from . import exercises, notebooks

WORDS, LINES = 75, 40  # of text, and of code, that we suppose a student reads in a minute
CLASS, IN_CLASS, POINT = 90, 20, 15  # minutes of a class, those of it for exercises, and for each point of an exercise
EXECUTED = notebooks.ROOT / "_build/executed/notebooks"


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


def minutes_to_run(path: Path, executed: Path = EXECUTED) -> float:
    """How long the run took that the pages show, as papermill measured it.

    Raises
    ------
    FileNotFoundError
        If the chapter has not been run.
    """
    done = executed / path.name
    if not done.exists():
        raise FileNotFoundError(f"no executed copy {done}; `make book` makes it")
    return json.loads(done.read_text(encoding="utf8"))["metadata"]["papermill"]["duration"] / 60


def minutes_table(executed: Path = EXECUTED) -> list[str]:
    """Lines of a Markdown table with a row for each chapter."""
    lines = ["| Chapter | To read, about | To run | Exercises | Points |", "| --- | --- | --- | --- | --- |"]
    for path in notebooks.paths():
        notebook = notebooks.read(path)
        asked = exercises.of(notebook)
        run, points = minutes_to_run(path, executed), sum(e.points for e in asked)
        link = f"{{doc}}`/notebooks/{path.stem}`"
        lines.append(f"| {link} | {minutes_to_read(notebook)} min | {run:.1f} min | {len(asked)} | {points} |")
    return lines


def hours(path: Path) -> list[float]:
    """What a chapter takes a student: hours to read, in class, and for the exercises at home."""
    notebook = notebooks.read(path)
    points = sum(e.points for e in exercises.of(notebook))
    return [minutes_to_read(notebook) / 60, CLASS / 60, max(0, POINT * points - IN_CLASS) / 60]


def hours_table() -> list[str]:
    """Lines of a Markdown table with a row for each chapter, and a last one for all of them."""
    lines = ["| Chapter | To read | Class | Exercises at home | In all |", "| --- | --- | --- | --- | --- |"]
    total = [0.0, 0.0, 0.0]
    for path in notebooks.paths():
        chapter = hours(path)
        total = [a + b for a, b in zip(total, chapter, strict=True)]
        lines.append(_row(f"{{doc}}`/notebooks/{path.stem}`", chapter, 1))
    return [*lines, _row("All chapters", total, 0)]


def _row(name, parts, digits):
    """A row of `hours_table`."""
    return f"| {name} | {' | '.join(f'{part:.{digits}f} h' for part in [*parts, sum(parts)])} |"


def exercise_table(path: Path) -> list[str]:
    """Lines of a Markdown table with a row for each exercise of a chapter."""
    lines = ["| Exercise | Level | Points | Mistakes that its check refuses |", "| --- | --- | --- | --- |"]
    for e in exercises.of(notebooks.read(path)):
        mistakes = "; ".join(mistake for mistake, *_ in wrong_answers().get(path.stem, {}).get(e.number, ()))
        kind = "" if e.kind == e.level else f" ({e.kind})"
        lines.append(f"| {number(path, e)}{kind} | {e.level} | {e.points} | {mistakes} |")
    return lines


def number(path: Path, exercise: exercises.Exercise) -> str:
    """Chapter and exercise, such as 3.2."""
    return f"{int(path.stem[:2])}.{exercise.number}"


def wrong_answers() -> dict:
    """What the tests know of wrong answers."""
    folder = str(notebooks.ROOT / "tests/notebooks")
    if folder not in sys.path:
        sys.path.append(folder)
    from wrong_answers import WRONG

    return WRONG
