"""Every chapter keeps the contract and runs from a clean kernel with small parameters."""

import ast
import importlib
import re

import papermill
import pytest

from tools import notebooks

PATHS = notebooks.paths()
PRESETS = ("smoke", "book", "full", "paper")


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


def test_runs_with_small_parameters(path, monkeypatch):
    """From a clean kernel; a warning or a wrong answer in an exercise's solution stops it."""
    declared = papermill.inspect_notebook(str(path))
    assert {"seed", "preset"} <= set(declared), "a parameter that the notebook does not declare would be ignored"
    monkeypatch.setenv("PYTHONPATH", str(notebooks.ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = {p: p.stat().st_mtime_ns for p in (notebooks.ROOT / "book/results").glob("*")}
    papermill.execute_notebook(
        path,
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


def test_exercises_have_solutions_and_checks(notebook):
    text = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    exercises = re.findall(r"^\*\*Exercise (\d)", text, re.M)
    solutions = [i for i, c in enumerate(notebook.cells) if "solution" in c.metadata.get("tags", [])]
    assert 4 <= len(exercises) <= 5 and len(solutions) == len(exercises)
    for i in solutions:
        lines = notebook.cells[i].source.splitlines()
        assert "hide-cell" in notebook.cells[i].metadata.tags
        assert (lines[0], lines[-1]) == ("### BEGIN SOLUTION", "### END SOLUTION")
        assert "assert " in notebook.cells[i + 1].source, "a check follows the solution"


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
