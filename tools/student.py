"""Copies of the chapters for students, without solutions and with nbgrader's marks: ``make student``.

_build/student/NN_slug.ipynb is what a student gets. _build/student is also a course of nbgrader: source/NN_slug/ holds
the chapter with its solutions and the same marks, which ``nbgrader generate_assignment NN_slug`` reads. With
``make student ONLY=1.2,4.1`` there are these exercises only, and the chapters that have one of them.
"""

import copy
import re
import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import nbformat

from . import exercises, notebooks, teaching

OUT = notebooks.ROOT / "_build/student"
CONFIG = Path(__file__).with_name("nbgrader_config.txt").read_text(encoding="utf8")


def marked(notebook: Any) -> Any:
    """A chapter as nbgrader wants its source: solutions in place, with marks and points.

    Parameters
    ----------
    notebook : notebook
        It stays as it is.

    Returns
    -------
    notebook
        Without the badge, which opens the chapter with its solutions.
    """
    found = notebooks.elsewhere(notebook)
    asked = exercises.of(found)
    gone = notebooks.tagged(found, "answer")  # its place is the solution's
    found.cells = [c for c in found.cells if "colab-badge.svg" not in c.source and c not in gone]
    for exercise in asked:
        exercise.solution.metadata = type(exercise.solution.metadata)(tags=["solution"])  # open, as its cell is theirs
        exercise.solution.source = re.sub(r"^# @title .*\n", "", exercise.solution.source)
        _mark(exercise.solution, solution=True)
        _mark(exercise.check, grade=True, locked=True, points=exercise.points)
    for cell in found.cells:
        cell.source = cell.source.replace(exercises.READING, exercises.WRITING)
    return found


def _mark(cell: Any, solution: bool = False, grade: bool = False, locked: bool = False, **more: int) -> None:
    marks = {"grade": grade, "grade_id": cell.id, "locked": locked, "schema_version": 3, "solution": solution}
    cell.metadata["nbgrader"] = marks | {"task": False} | more


def released(source: Any) -> Any:
    """The copy of a marked chapter that students get, made as nbgrader makes it."""
    from nbgrader.preprocessors import CheckCellMetadata, ClearOutput, ClearSolutions, ComputeChecksums, LockCells

    found = copy.deepcopy(source)
    for step in (LockCells, ClearSolutions, ClearOutput, CheckCellMetadata, ComputeChecksums):
        found, _ = step().preprocess(found, {})
    return found


def chosen(path: Path, only: Collection[str] = ()) -> Any:
    """A chapter with some of its exercises; with all of them if `only` is empty.

    Parameters
    ----------
    path : Path
    only : collection of str
        Numbers of exercises such as "4.1". Those of other chapters are ignored.

    Returns
    -------
    notebook
        The exercises keep their numbers; one that another goes on from comes with it.
    """
    notebook = notebooks.read(path)
    only = {*only, *(exercises.GOES_ON[n] for n in only if n in exercises.GOES_ON)}
    dropped = [e for e in exercises.of(notebook) if only and teaching.number(path, e) not in only]
    for cell in notebook.cells:
        for e in dropped:
            cell.source = cell.source.replace(e.prompt, "").rstrip()
    gone = {id(c) for e in dropped for c in e.cells}
    notebook.cells = [c for c in notebook.cells if id(c) not in gone and (c.source or c.cell_type == "code")]
    return notebook


def files(only: Collection[str] = ()) -> dict[str, str]:
    """Names and texts of the copies of all chapters, or of those that have one of some exercises.

    Raises
    ------
    SystemExit
        There is no such exercise; says which there are.
    """
    there = {teaching.number(p, e): p for p in notebooks.paths() for e in exercises.of(notebooks.read(p))}
    if unknown := sorted(set(only) - set(there)):
        sys.exit(f"there is no exercise {', '.join(unknown)}; there are {', '.join(there)}")
    found = {"nbgrader_config.py": CONFIG}
    for path in notebooks.paths():
        if not only or path in {there[n] for n in only}:
            source = marked(chosen(path, only))
            found[f"source/{path.stem}/{path.name}"] = nbformat.writes(source) + "\n"
            found[path.name] = nbformat.writes(released(source)) + "\n"
    return found


def main(out: Path = OUT, only: Collection[str] = ()) -> None:
    """Write the copies in place of older ones, and say where they are."""
    made = files(only)
    shutil.rmtree(out / "source", ignore_errors=True)
    for old in out.glob("*.ipynb"):
        old.unlink()
    for name, text in made.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text, encoding="utf8")
    print(f"The students' copies are {out}/*.ipynb; {out} is also a course of nbgrader.")


if __name__ == "__main__":
    main(only=[n for given in sys.argv[1:] for n in given.split(",") if n])
