"""The students' copies: no solution, nbgrader's marks, and grades from nbgrader itself."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tools import exercises, notebooks, student

PATHS = notebooks.paths()

GRADE = """
import json, sys
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from nbgrader.validator import Validator
from traitlets.config import Config

config = Config()
exec(open("nbgrader_config.py").read(), {"get_config": lambda: config})
config.CourseDirectory.root = "."
api = NbGraderAPI(config=config)
released = api.generate_assignment("chapter")
assert released["success"], released["log"]
out = {"points": {}, "failed": {}}
for who in ("nobody", "everybody"):
    checked = Validator(config=config).validate(f"submitted/{who}/chapter/chapter.ipynb")
    out["failed"][who] = len(checked.get("failed", []))
    graded = api.autograde("chapter", who)
    assert graded["success"], graded["log"]
with Gradebook("sqlite:///gradebook.db") as book:
    for who in out["failed"]:
        found = book.find_submission("chapter", who)
        out["points"][who] = found.score, found.max_score
print(json.dumps(out))
"""


@pytest.fixture(params=PATHS, ids=lambda p: p.stem)
def notebook(request):
    return notebooks.read(request.param)


def test_copies_hold_no_solution(notebook):
    before = copy.deepcopy(notebook)
    source = student.marked(notebook)
    copied = student.released(source)
    assert notebook == before, "the chapter itself stays as it is"
    text = nbformat.writes(copied)
    for hidden in ("SOLUTION", "hide-cell", "colab-badge", exercises.READING):
        assert hidden not in text
    assert student.WRITING in "\n".join(c.source for c in copied.cells)
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


def test_a_copy_runs_anywhere(notebook):
    """Its set-up is the chapter's own: on Colab it fetches the book, elsewhere it finds a clone or an installed one."""
    chapter, copied = (nb.cells[i].source for nb, i in ((notebook, 1), (student.marked(notebook), 0)))
    assert chapter == copied and "ROOT" not in "".join(c.source for c in notebook.cells if c.cell_type == "code")


def test_every_exercise_has_a_level():
    with pytest.raises(ValueError, match="dance.*no level; add"):
        print(exercises.Exercise("1", "dance", "", None, None, None).level)
    kinds = [k for some in exercises.LEVELS.values() for k in some]
    assert len(set(kinds)) == len(kinds) and set(exercises.POINTS) == set(exercises.LEVELS)


def test_make_student_writes_whole_files(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(notebooks, "paths", lambda: PATHS[:1])
    student.main(tmp_path)
    name = PATHS[0].stem
    found = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert found == {f"{name}.ipynb", f"source/{name}/{name}.ipynb", "nbgrader_config.py"}
    assert str(tmp_path) in capsys.readouterr().out


def test_nbgrader_gives_stubs_nothing_and_solutions_everything(tmp_path):
    """The whole way through nbgrader: release, validate, autograde. Chapter 5, only what its first exercises need."""
    path = next(p for p in PATHS if p.stem == "05_cfl_geometry")
    source = student.marked(notebooks.read(path))
    ids = [c.id for c in source.cells]
    needed = {"setup", "parameters", "imports", "noise", "five", *ids[ids.index("exercises") : ids.index("exercise-5")]}
    source.cells = [c for c in source.cells if c.id in needed]
    (parameters,) = notebooks.tagged(source, "parameters")
    parameters.source = parameters.source.replace('preset = "book"', 'preset = "smoke"')
    places = {
        "source/chapter": source,
        "submitted/nobody/chapter": student.released(source),
        "submitted/everybody/chapter": source,
    }
    for place, notebook in places.items():
        (tmp_path / place).mkdir(parents=True)
        nbformat.write(notebook, tmp_path / place / "chapter.ipynb")
    (tmp_path / "nbgrader_config.py").write_text(student.CONFIG, encoding="utf8")
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader calls alembic
    environment = {"PATH": programs, "PYTHONPATH": str(notebooks.ROOT), "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", GRADE]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1200)
    assert run.returncode == 0, run.stderr[-3000:]
    out = json.loads(run.stdout.splitlines()[-1])
    asked = exercises.of(notebooks.read(path))[:4]
    points = sum(e.points for e in asked)
    assert out["failed"] == {"nobody": len(asked), "everybody": 0}
    assert out["points"] == {"nobody": [0, points], "everybody": [points, points]}
