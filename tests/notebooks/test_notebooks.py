"""Every chapter keeps the contract and runs from a clean kernel with small parameters."""

import ast
import re

import nbformat
import papermill
import pytest
from notebooks.refusing import demand_refusal, edited
from notebooks.wrong_answers import WRONG

from notebooks import colab
from tools import badges, downloads, exercises, fold, notebooks

PATHS = notebooks.paths()
HINT = r"\n\n<details><summary>Hint</summary>\n\n.{20,}\n\n</details>$"


@pytest.fixture(params=PATHS, ids=lambda p: p.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return notebooks.read(path)


def source(notebook):
    return "\n".join(c.source for c in notebooks.code_cells(notebook))


def with_wrong_answers(notebook, wrong):
    """The notebook, with a cell before each solution that demands that its check refuses the stub and wrong answers."""
    demand = '__import__("notebooks.refusing").refusing.demand_refusal'  # leaves no name behind
    for e in exercises.of(notebook):
        answers = [("no answer", exercises.STUB, "")]
        for mistake, old, new, hint in wrong.get(e.number, ()):
            answers.append((mistake, edited(e.solution.source, old, new), hint))
        lines = [f"{demand}({m!r}, {answer!r}, {e.check.source!r}, globals(), {hint!r})" for m, answer, hint in answers]
        cell = nbformat.v4.new_code_cell("\n".join(lines), id=f"wrong-{e.number}")
        notebook.cells.insert(notebook.cells.index(e.solution), cell)
    return notebook


def times_of_results():
    return {p: p.stat().st_mtime_ns for p in (notebooks.ROOT / "book/results").glob("*")}


def test_runs_with_small_parameters(path, notebook, monkeypatch):
    """From a clean kernel; a warning stops it, and a check that refuses the solution or accepts a wrong answer."""
    declared = papermill.inspect_notebook(str(path))
    assert {"seed", "preset"} <= set(declared), "a parameter that the notebook does not declare would be ignored"
    before = times_of_results()
    colab.run(with_wrong_answers(notebook, WRONG.get(path.stem, {})), path.parent, monkeypatch)
    assert times_of_results() == before, "a small run must not touch stored results"


def test_runs_on_another_machine(path, notebook, monkeypatch):
    colab.run_there(notebook, path.stem, path.parent, monkeypatch)


def test_committed_without_outputs(notebook):
    assert all(not c.outputs and c.execution_count is None for c in notebooks.code_cells(notebook))
    assert notebook.metadata.kernelspec.name == "python3"
    ids = [c.id for c in notebook.cells]
    assert len(set(ids)) == len(ids)


def test_badge_and_setup_come_first(notebook):
    """As `make badges` writes them: `test_one_address` in tests/book."""
    assert [c.id for c in notebook.cells[:2]] == ["badge", "setup"]
    assert all("remove-cell" in c.metadata.tags for c in notebook.cells[:2])


@pytest.mark.parametrize("path", [downloads.STARTER, downloads.PAPERS], ids=lambda p: p.stem)
def test_the_set_up_of_other_notebooks_is_that_of_the_chapters(path, notebook):
    text = path.read_text(encoding="utf8")
    assert badges.notebook_with(text, path.stem, badges.repository(), badges.release()) == text, "run make badges"
    nbformat.validate(notebook)


def test_cells_with_a_title_are_folded_everywhere(notebook):
    for cell in notebooks.code_cells(notebook):
        assert cell.metadata == fold.folded(cell), f"cell {cell.id}: run make fold"
        hidden = {"hide-input", "hide-cell", "hide-output"} & set(cell.metadata.get("tags", []))
        assert not hidden or cell.source.startswith("# @title "), f"cell {cell.id} needs a title"
    for e in exercises.of(notebook):
        assert e.solution.source.startswith(f"# @title Solution {e.number}\n"), "folded on Colab too"


def test_asserts_are_for_the_reader(notebook):
    """By hand against the library, once; the rest check exercises. What the pages claim is tested in tests/book."""
    checks = {id(c) for e in exercises.of(notebook) for c in (e.check, e.solution)}
    code = "\n".join(c.source for c in notebooks.code_cells(notebook) if id(c) not in checks)
    assert len(re.findall(r"^\s*assert\b", code, re.M)) <= 1
    assert "torch.equal" not in code and "assert_array_equal" not in code
    assert "results.save" not in source(notebook)


def test_a_wrong_preset_is_explained(notebook):
    """Before anything is computed: only imports and settings run."""
    names = {}
    with pytest.raises(ValueError, match="preset .*smoke"):
        for cell in notebooks.code_cells(notebook)[:5]:
            text = cell.source.replace('preset = "book"', 'preset = "Book"')
            exec(compile(text, cell.id, "exec"), names)


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
    code = source(notebook)
    assert '"smoke"' in code and '"book"' in code
    assert not re.search(r'preset\s*(==|!=|in)[^\n]*"(full|paper)"|^\s*"(full|paper)": [({]', code, re.M)


def test_headings_and_equations(path, notebook):
    text = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    order = "The idea in a picture.*The equation.*By hand.*through fedlib.*Experiment.*What holds.*Exercises.*Recap"
    assert re.match(order, " ".join(re.findall(r"^## (.+)$", text, re.M))), "the parts of a chapter, in this order"
    own = path.stem in ("09_domains_from_sums", "14_privacy")  # after no single paper
    assert re.search(r"\\tag\{" + "(FedCG|CFL|FedSGCNN|FedProto)" * (not own), text), "a number, the paper's own"
    assert not re.search(r"^(:::|```\{)|\{(ref|doc|cite|numref|eq)[:}]", text, re.M), "Colab shows MyST directives raw"


def test_a_chapter_fits_a_class_of_ninety_minutes(notebook):
    """Half an hour to read, and the rest to do."""
    asked = {id(cell) for e in exercises.of(notebook) for cell in e.cells}
    first = next(i for i, c in enumerate(notebook.cells) if c.id == "exercises")
    last = next(i for i, c in enumerate(notebook.cells) if c.id == "recap")
    text = [c.source for c in [*notebook.cells[1:first], *notebook.cells[last:]] if c.cell_type == "markdown"]
    holds = re.search(r"^## What holds.*?(?=^## )", "\n".join([*text, "## "]), re.M | re.S)[0]
    code = [c for c in notebooks.code_cells(notebook) if id(c) not in asked and c.id != "setup"]
    folded = [c for c in code if c.source.startswith("# @title ")]
    evidence = [c for c in code if re.search(r"\bresults\.", c.source)]
    read = [c for c in code if c not in folded]
    measures = {
        "words": (len(" ".join(text).split()), 2000),
        "words of what holds": (len(re.sub(r"^(\|.*|## .*)", "", holds, flags=re.M).split()), 120),
        "longest cell by hand": (max(lines_of(c) for c in code if c.id.startswith("by-hand")), 20),
        "lines to read": (sum(map(lines_of, read)), 160),
        "longest cell": (max(map(lines_of, read)), 25),
        "folded lines": (sum(map(lines_of, folded)), 90),
        "cells of stored evidence": (len(evidence), 1),
        "lines of stored evidence": (sum(map(lines_of, evidence)), 6),
        "figures": (sum("figure" in c.metadata.get("mystnb", {}) for c in code), 5),
    }
    assert not {name: value for name, value in measures.items() if value[0] > value[1]}


def lines_of(cell):
    """Lines of code that are not blank."""
    return len([line for line in cell.source.splitlines() if line.strip()])


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
        assert (lines[1], lines[-1]) == ("### BEGIN SOLUTION", "### END SOLUTION")
        assert (e.answer.id, e.answer.source) == (f"answer-{e.number}", f"# Your answer to exercise {e.number}")
        assert e.answer.metadata == {"tags": ["answer"]}
        assert e.check.id == f"check-{e.number}" and "assert " in e.check.source, "a check follows the answer"
        asserts = [node for node in ast.walk(ast.parse(e.check.source)) if isinstance(node, ast.Assert)]
        assert all(node.msg for node in asserts), f"check {e.number} does not say what may be wrong"
        assert "Correct: " in e.check.source.rsplit("assert ", 1)[1], f"check {e.number} does not say that it is right"
        wrong = WRONG.get(path.stem, {}).get(e.number)
        assert wrong, f"exercise {e.number} needs a wrong answer in wrong_answers.py"
        assert all(edited(e.solution.source, old, new) != e.solution.source for _, old, new, _ in wrong)
    (text,) = [c.source for c in notebook.cells if c.id == "exercises"]
    assert exercises.READING in text, "each chapter says so in the words of tools/exercises.yml"


def test_in_a_run_of_all_cells_an_answer_counts_and_not_the_solution(notebook):
    """By the order of the cells, whatever stands in them."""
    asked = exercises.of(notebook)
    says = {}
    for e in asked:
        says |= {e.solution.id: "seen = 'solution'", e.answer.id: "seen = 'answer'"}
        says[e.check.id] = "checked.append(seen)"
    names = {"checked": []}
    for cell in notebooks.code_cells(notebook):
        exec(says.get(cell.id, ""), names)
    assert names["checked"] == ["answer"] * len(asked)


def test_a_check_must_refuse_by_assertion():
    names = {"x": 1}
    demand_refusal("a wrong sum", "x = 2\ny = 3", "assert x + y == 4", names)
    demand_refusal("no answer", exercises.STUB, "assert y == 3", names)
    assert names == {"x": 1}, "nothing leaks"
    for mistake, answer, check, said in (
        ("too small", "y = 3", "assert y > 0", "accepts a wrong answer: too small"),
        ("no answer", exercises.STUB, "assert x == 1", "accepts a wrong answer: no answer"),
        ("text", "y = 'a'", "assert y + 1", "no assertion against: text"),
    ):
        with pytest.raises(AssertionError, match=said):
            demand_refusal(mistake, answer, check, names)
    with pytest.raises(ValueError, match="stands 0 times"):
        edited("y = 3", "y = 4", "")


def test_nothing_heavy_or_online(notebook):
    for word in ("plotly", "ipywidgets", "mermaid", "urllib", "requests.get", "tqdm.notebook", "pickle"):
        assert word not in source(notebook)
