"""The students' copies: no solution, nbgrader's marks, and grades from nbgrader itself."""

import copy
import json
import os
import re
import shutil
import subprocess
import symtable
import sys
from itertools import product
from pathlib import Path

import nbformat
import pytest
from nbgrader.apps import NbGraderApp

from tools import downloads, exercises, notebooks, student, teaching

PATHS = notebooks.paths()

GRADE = """
import json, sys
from nbgrader.apps import NbGraderAPI
from nbgrader.validator import Validator
from traitlets.config import Config

config = Config()
exec(open("nbgrader_config.py").read(), {"get_config": lambda: config})
config.CourseDirectory.root = "."
api = NbGraderAPI(config=config)
released = api.generate_assignment("01_fedavg")
assert released["success"], released["log"]
out = {"points": {}, "failed": {}}
for who in ("nobody", "everybody"):
    checked = Validator(config=config).validate(f"submitted/{who}/01_fedavg/01_fedavg.ipynb")
    out["failed"][who] = len(checked.get("failed", []))
    for step in (api.autograde, api.generate_feedback):
        done = step("01_fedavg", who)
        assert done["success"], done["log"]
    graded = api.get_submission("01_fedavg", who)
    out["points"][who] = graded["score"], graded["max_score"]
print(json.dumps(out))
"""


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_copies_hold_no_solution(path):
    notebook = notebooks.read(path)
    before = copy.deepcopy(notebook)
    source = student.marked(notebook)
    copied = student.released(source)
    assert notebook == before, "the chapter itself stays as it is"
    text = nbformat.writes(copied)
    for hidden in ("SOLUTION", "hide-cell", "colab-badge", "](../book", exercises.READING):
        assert hidden not in text
    assert exercises.WRITING in "\n".join(c.source for c in copied.cells)
    marks = {c.id: c.metadata.nbgrader for c in copied.cells if "nbgrader" in c.metadata}
    for e in exercises.of(notebook):
        (stub,) = [c for c in copied.cells if c.id == e.solution.id]
        assert stub.source == exercises.STUB
        assert e.answer.id not in {c.id for c in copied.cells}, "one place to write is enough"
        answer, check = marks.pop(e.solution.id), marks.pop(e.check.id)
        assert (answer.solution, answer.grade, answer.locked) == (True, False, False)
        assert (check.solution, check.grade, check.locked, check.points) == (False, True, True, e.points)
    assert not marks, "nothing else is marked"
    nbformat.validate(copied)


def test_some_exercises(tmp_path):
    student.main(tmp_path)
    student.main(tmp_path, ["1.2", "4.1"])
    assert sorted(p.stem[:2] for p in tmp_path.glob("*.ipynb")) == ["01", "04"], "older copies are gone"
    for path in PATHS:
        if path.stem[:2] in ("01", "04"):
            made = notebooks.read(tmp_path / "source" / path.stem / path.name)
            kept = {c.id for c in made.cells}
            for e in exercises.of(notebooks.read(path)):
                asked = teaching.number(path, e) in ("1.2", "4.1")
                assert asked == (e.check.id in kept) == (e.solution.id in kept)
                assert asked == any(e.prompt in c.source for c in made.cells)
            assert sum(c.metadata.get("nbgrader", {}).get("points", 0) for c in made.cells) > 0
    with pytest.raises(SystemExit, match=r"no exercise 1\.9; there are 1\.1, "):
        student.main(tmp_path, ["1.1", "1.9"])


def names(code):
    """What some code defines at its top level, and what it reads from there."""
    top = symtable.symtable(code, "<cells>", "exec")
    made = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    read, tables = {s.get_name() for s in top.get_symbols() if s.is_referenced()}, top.get_children()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        read |= {s.get_name() for s in table.get_symbols() if s.is_global()}
    return made, read


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_exercises_that_need_another_are_known(path):
    """So that a teacher may choose: what only one exercise defines, no other cell reads."""
    notebook = notebooks.read(path)
    asked = {teaching.number(path, e): e for e in exercises.of(notebook)}
    own = {n: names("\n".join(c.source for c in (e.solution, e.check))) for n, e in asked.items()}
    cells = {id(c) for e in asked.values() for c in e.cells}
    page, read = names("\n".join(c.source for c in notebooks.code_cells(notebook) if id(c) not in cells))
    assert not any((made - page) & read for made, _ in own.values()), "the page reads what an exercise defines"
    pairs = product(own.items(), own.items())
    needed = {m: n for (n, (made, _)), (m, (mine, wanted)) in pairs if n != m and (made - page - mine) & wanted}
    assert needed == {m: n for m, n in exercises.GOES_ON.items() if m in asked}


def test_a_teacher_grades_with_the_published_archive_alone(tmp_path):
    """From course.zip, with no clone in sight, through all of nbgrader: release, validate, autograde. Chapter 1."""
    name = "01_fedavg"
    downloads.archives(tmp_path)
    for which in ("course", "student"):
        shutil.unpack_archive(tmp_path / f"{which}.zip", tmp_path)
    home, copies = tmp_path / "fedlib-course", tmp_path / "fedlib-student"
    assert {p.stem for p in copies.glob("*.ipynb")} == {p.stem for p in PATHS} | {"capstone_starter", "papers_on_a_gpu"}
    for folder in (home, copies):
        said = (folder / "README.txt").read_text(encoding="utf8")
        assert all(words in said for words in ("whl/cpu", "env\\Scripts\\activate", 'preset = "smoke"'))
    commands = set(re.findall(r"^    nbgrader (\w+)", (home / "README.txt").read_text(encoding="utf8"), re.M))
    assert commands == {"generate_assignment", "autograde", "generate_feedback", "export"}
    assert commands <= set(NbGraderApp.subcommands)
    assert (home / "requirements.txt").read_text(encoding="utf8").count("torch>=") == 1
    source = home / "source" / name / f"{name}.ipynb"
    handed_in = {"everybody": notebooks.read(source), "nobody": notebooks.read(copies / f"{name}.ipynb")}
    for who, notebook in {**handed_in, "source": notebooks.read(source)}.items():
        (parameters,) = notebooks.tagged(notebook, "parameters")
        parameters.source = parameters.source.replace('preset = "book"', 'preset = "smoke"')
        place = source if who == "source" else home / "submitted" / who / name / f"{name}.ipynb"
        place.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, place)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader calls alembic
    environment = {"PATH": programs, "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    where = subprocess.run([sys.executable, "-c", GRADE], cwd=home, env=environment, capture_output=True, text=True)
    assert where.returncode == 0, where.stderr[-3000:]
    out = json.loads(where.stdout.splitlines()[-1])
    asked = exercises.of(notebooks.read(source))
    points = sum(e.points for e in asked)
    pages = {who: home / "feedback" / who / name / f"{name}.html" for who in handed_in}
    assert all("<html" in page.read_text(encoding="utf8") for page in pages.values())
    assert out["failed"] == {"nobody": len(asked), "everybody": 0}
    assert out["points"] == {"nobody": [0, points], "everybody": [points, points]}
