"""Every chapter keeps the contract and runs from a clean kernel with small parameters."""

import ast
import importlib
import re

import nbformat
import papermill
import pytest
from notebooks.wrong_answers import WRONG

from tools import exercises, notebooks, student

PATHS = notebooks.paths()
PRESETS = ("smoke", "book", "full", "paper")
HINT = r"\n\n<details><summary>Hint</summary>\n\n.{20,}\n\n</details>$"


@pytest.fixture(params=PATHS, ids=lambda p: p.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return notebooks.read(path)


def source(notebook):
    return "\n".join(c.source for c in notebooks.code_cells(notebook))


def test_there_are_chapters():
    assert PATHS


def with_wrong_answers(notebook, wrong):
    """The notebook, with a cell before each solution that demands that its check refuses the stub and wrong answers."""
    demand = '__import__("tools.exercises").exercises.demand_refusal'  # leaves no name behind
    for e in exercises.of(notebook):
        answers = {mistake: exercises.edited(e.solution.source, *edit) for mistake, *edit in wrong.get(e.number, ())}
        lines = [
            f"{demand}({mistake!r}, {answer!r}, {e.check.source!r}, globals())"
            for mistake, answer in {"no answer": exercises.STUB, **answers}.items()
        ]
        cell = nbformat.v4.new_code_cell("\n".join(lines), id=f"wrong-{e.number}")
        notebook.cells.insert(notebook.cells.index(e.solution), cell)
    return notebook


def test_runs_with_small_parameters(path, notebook, monkeypatch):
    """From a clean kernel; a warning stops it, and a check that refuses the solution or accepts a wrong answer."""
    declared = papermill.inspect_notebook(str(path))
    assert {"seed", "preset"} <= set(declared), "a parameter that the notebook does not declare would be ignored"
    monkeypatch.setenv("PYTHONPATH", str(notebooks.ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = {p: p.stat().st_mtime_ns for p in (notebooks.ROOT / "book/results").glob("*")}
    papermill.execute_notebook(
        with_wrong_answers(notebook, WRONG.get(path.stem, {})),
        None,  # no copy: papermill would write it after every cell, a sixth of the whole time
        parameters={"preset": "smoke"},
        cwd=path.parent,
        kernel_name="python3",
        progress_bar=False,
        execution_timeout=300,
    )
    after = {p: p.stat().st_mtime_ns for p in (notebooks.ROOT / "book/results").glob("*")}
    assert after == before, "a small run must not touch stored results"


def test_committed_without_outputs(notebook):
    assert all(not c.outputs and c.execution_count is None for c in notebooks.code_cells(notebook))
    assert notebook.metadata.kernelspec.name == "python3"
    ids = [c.id for c in notebook.cells]
    assert len(set(ids)) == len(ids)


def test_badge_and_setup_come_first(path, notebook):
    badge, setup = notebook.cells[:2]
    assert badge.source == notebooks.badge(path), "make badges writes it"
    assert "remove-cell" in badge.metadata.tags and "remove-cell" in setup.metadata.tags
    assert f'"{notebooks.repository()}"' in setup.source, "make badges writes it"
    assert "google.colab" in setup.source and "pip install" not in setup.source


def test_card(notebook):
    title = notebook.cells[2].source
    assert re.match(r"# \d+\. ", title)
    for row in ("You will learn", "Before you start", "Time", "Data"):
        assert f"**{row}**" in title


def test_one_parameters_cell(notebook):
    (cell,) = notebooks.tagged(notebook, "parameters")
    names = [t.id for node in ast.parse(cell.source).body for t in node.targets]
    assert names == ["seed", "preset"]
    assert ast.literal_eval(ast.parse(cell.source).body[1].value) == "book"
    assert all(f'"{preset}"' in source(notebook) for preset in PRESETS)


def test_headings_and_equations(notebook):
    text = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    order = [
        "The idea in a picture",
        "By hand",
        "The equation",
        "through fedlib",
        "Experiment",
        "What holds",
        "Exercises",
        "Recap",
    ]
    places = [text.find(f"\n## {h}") if h not in ("through fedlib",) else text.find(h) for h in order]
    places = [p if p >= 0 else text.find(h) for p, h in zip(places, order, strict=True)]
    assert all(p >= 0 for p in places) and places == sorted(places), dict(zip(order, places, strict=True))
    assert re.search(r"\\tag\{(FedCG|CFL|FedSGCNN)", text), "an equation with the paper's own number"
    assert not re.search(r"^(:::|```\{)|\{(ref|doc|cite|numref|eq)[:}]", text, re.M), "Colab shows MyST directives raw"


def test_by_hand_is_short(notebook):
    (cell,) = [c for c in notebook.cells if c.id == "by-hand"]
    assert len([line for line in cell.source.splitlines() if line.strip()]) <= 40


def test_figures_have_a_caption_and_alt_text(notebook):
    drawn = [c for c in notebooks.code_cells(notebook) if "plt.show()" in c.source]
    assert drawn
    for cell in drawn:
        meta = cell.metadata.get("mystnb", {})
        assert len(meta.get("image", {}).get("alt", "")) > 40, f"cell {cell.id}: alt text that says what is seen"
        assert meta.get("figure", {}).get("caption") and meta["figure"].get("name", "").startswith("fig:")


def test_exercises_have_hints_solutions_and_checks(path, notebook):
    found = exercises.of(notebook)
    assert 4 <= len(found) <= 5 and [e.number for e in found] == [str(i + 1) for i in range(len(found))]
    for e in found:
        assert e.points
        assert re.search(HINT, e.prompt, re.S), f"exercise {e.number} has no hint at its end"
        lines = e.solution.source.splitlines()
        assert e.solution.id == f"solution-{e.number}" and "hide-cell" in e.solution.metadata.tags
        assert (lines[0], lines[-1]) == ("### BEGIN SOLUTION", "### END SOLUTION")
        assert e.check.id == f"check-{e.number}" and "assert " in e.check.source, "a check follows the solution"
        wrong = WRONG.get(path.stem, {}).get(e.number)
        assert wrong, f"exercise {e.number} needs a wrong answer in wrong_answers.py"
        assert all(exercises.edited(e.solution.source, *edit) != e.solution.source for _, *edit in wrong)
    (text,) = [c.source for c in notebook.cells if c.id == "exercises"]
    assert student.READING in text, "make student replaces it"


def test_there_are_enough_exercises():
    assert sum(len(exercises.of(notebooks.read(path))) for path in PATHS) >= 40


def test_a_check_must_refuse_by_assertion():
    names = {"x": 1}
    exercises.demand_refusal("a wrong sum", "x = 2\ny = 3", "assert x + y == 4", names)
    exercises.demand_refusal("no answer", exercises.STUB, "assert y == 3", names)
    assert names == {"x": 1}, "nothing leaks"
    with pytest.raises(AssertionError, match="accepts a wrong answer: too small"):
        exercises.demand_refusal("too small", "y = 3", "assert y > 0", names)
    with pytest.raises(AssertionError, match="accepts a wrong answer: no answer"):
        exercises.demand_refusal("no answer", exercises.STUB, "assert x == 1", names)
    with pytest.raises(AssertionError, match="no assertion against: text"):
        exercises.demand_refusal("text", "y = 'a'", "assert y + 1", names)
    with pytest.raises(ValueError, match="stands 0 times"):
        exercises.edited("y = 3", "y = 4", "")


def test_names_taken_from_fedlib_exist(notebook):
    """Colab users run today's notebook against today's fedlib; a renamed function must not wait for them."""
    for node in ast.walk(ast.parse(source(notebook))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedlib":
            for alias in node.names:
                module = importlib.import_module(node.module)
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")


def test_nothing_heavy_or_online(notebook):
    for word in ("plotly", "ipywidgets", "mermaid", "urllib", "requests.get", "tqdm.notebook", "pickle"):
        assert word not in source(notebook)
