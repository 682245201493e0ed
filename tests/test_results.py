"""Result files: whole or not at all, and stale exactly when what the code does has changed."""

import json
import warnings

import pytest

from fedlib import results


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "sub" / "01_x.json"
    results.save(path, {"accuracy": {"0": 0.5}}, {"rounds": 3}, {"x": "sha256:0"}, seconds=1.23)
    return path


def test_round_trip(record):
    loaded = results.load(record)
    assert loaded["figures"] == {"accuracy": {"0": 0.5}} and loaded["settings"] == {"rounds": 3}
    assert loaded["stale"] is False and loaded["provenance"]["seconds"] == 1.2
    assert "fedlib.models" in loaded["provenance"]["modules"]
    assert "fedlib.plotting" not in loaded["provenance"]["modules"]


def test_a_failed_write_leaves_the_old_file(record):
    before = record.read_bytes()
    with pytest.raises(ValueError, match="nan"):
        results.save(record, {"accuracy": float("nan")}, {}, {}, seconds=1)
    assert record.read_bytes() == before and list(record.parent.iterdir()) == [record]


def test_missing_file_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="make results"):
        results.load(tmp_path / "none.json")


def test_other_code_makes_it_stale(record):
    content = json.loads(record.read_text())
    content["provenance"]["code_hash"] = "0" * 16
    record.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="code that has changed since"):
        assert results.load(record)["stale"] is True


def test_code_edited_during_the_run_is_stale(record, monkeypatch):
    monkeypatch.setattr(results, "_IMPORTED", 0)
    results.save(record, {"accuracy": 1}, {}, {}, seconds=1)
    with pytest.warns(UserWarning, match="changed since"):
        assert results.load(record)["stale"] is True


def notebook(*sources):
    cells = [{"cell_type": "code" if s[0] != "#" else "markdown", "source": s.splitlines(True)} for s in sources]
    return json.dumps({"cells": cells})


CELLS = ("x = 1", "# text", "plt.plot(x)\nplt.show()", "results.save(x)", "y = 2")


@pytest.mark.parametrize(
    ("cells", "stale"),
    [
        (CELLS, False),
        (("x  =  1  # one", "# other text", "plt.bar(x)\nplt.show()", "results.save(x)", "y = 3"), False),
        (("x = 2", *CELLS[1:]), True),
        (("x = 1", "z = 0", *CELLS[1:]), True),
    ],
    ids=["same", "words, figures and what comes after", "a number", "a new cell"],
)
def test_stale_when_the_notebook_computes_something_else(tmp_path, cells, stale):
    path, result = tmp_path / "n.ipynb", tmp_path / "n.json"
    path.write_text(notebook(*CELLS))
    results.save(result, {"a": 1}, {}, {}, seconds=1, notebook=path)
    path.write_text(notebook(*cells))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert results.load(result, path)["stale"] is stale
        assert results.load(result)["stale"] is False


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of one module's place, whose text a test may change."""
    monkeypatch.setattr(results, "__file__", str(tmp_path / "results.py"))

    def code_hash(text):
        (tmp_path / "thing.py").write_text(text)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return results.code_hash(["fedlib.thing"])

    return code_hash


CODE = 'def f(x):\n    """Double."""\n    return 2 * x\n'


@pytest.mark.parametrize(
    "text",
    [
        CODE.replace("Double.", "Twice."),
        CODE.replace('    """Double."""\n', ""),
        "# a comment\n\n" + CODE.replace("2 * x", "(2\n      * x)"),
        '"""A module docstring."""\n' + CODE,
    ],
    ids=["other docstring", "no docstring", "comment and layout", "module docstring"],
)
def test_words_do_not_change_the_hash(package, text):
    assert package(text) == package(CODE)


@pytest.mark.parametrize(
    "text",
    [CODE.replace("2 *", "3 *"), CODE.replace("f(x)", "f(x=0)"), CODE + "y = 1\n", CODE.replace("2 * x", "x * 2"), ""],
    ids=["number", "default", "new line", "order", "gone"],
)
def test_code_changes_the_hash(package, text):
    assert package(text) != package(CODE)
