"""The page "Add an algorithm in an afternoon", followed to the letter in a copy of the project."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from statistics import mean

import pytest

from tools.notebooks import ROOT

PAGE = (ROOT / "book/add_algorithm.md").read_text(encoding="utf8")
# A sentence that names a file and ends in a colon, then what to write there.
BLOCKS = re.findall(r"`([\w./]+)`[^`\n]*:\n\n(`{3,})(python|diff)\n(.*?)\n\2\n", PAGE, re.S)
FILES = {path: text + "\n" for path, _, kind, text in BLOCKS if kind == "python"}
CHANGES = [(path, hunk) for path, _, kind, text in BLOCKS if kind == "diff" for hunk in text.split("\n@@\n")]

FOLLOW = """
import json, runpy, sys
import pytest
code = pytest.main(["-q", "-p", "no:cacheprovider", "tests/algorithms/test_ditto.py", "tests/test_invariances.py",
                    "tests/test_flower.py", "-k", "ditto and not chunk and not padding and not evaluation"])
runs = runpy.run_path("_build/ditto.py")["runs"]
import fedlib
ends = {name: [float(h["test_accuracy"].iloc[-1]) for h in histories] for name, histories in runs.items()}
print(json.dumps({"code": int(code), "fedlib": fedlib.__file__, "ends": ends}))
"""


def changed(text, hunk, path):
    """A file's text after a hunk: lines that begin with a blank stand there, those with + are new."""
    lines = hunk.split("\n")
    old, new = ("\n".join(line[1:] for line in lines if line[:1] in marks) for marks in (" -", " +"))
    assert text.count(old + "\n") == 1, f"{path}: not just once there; adapt the page book/add_algorithm.md:\n{old}"
    return text.replace(old + "\n", new + "\n")


def lines_of_code(text):
    """Lines that are neither blank nor part of a docstring."""
    blank = {i for i, line in enumerate(text.splitlines(), 1) if not line.strip()}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            blank |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(text.splitlines()) - len(blank)


# Whoever follows the page in a clone runs these tests too.
followed = pytest.mark.skipif((ROOT / "fedlib/algorithms/ditto.py").exists(), reason="the page has been followed here")


@followed
def test_the_page_is_read_whole():
    assert sorted(FILES) == ["_build/ditto.py", "fedlib/algorithms/ditto.py", "tests/algorithms/test_ditto.py"]
    assert PAGE.count("```python\n") == len(FILES) and PAGE.count("```diff\n") == len({path for path, _ in CHANGES})


def test_under_120_lines_of_code():
    added = [line for path, hunk in CHANGES if path.endswith(".py") for line in hunk.split("\n") if line[0] == "+"]
    assert sum(map(lines_of_code, FILES.values())) + len(added) < 120


def test_named_files_and_commands_exist():
    for command in re.findall(r"^python (?:-m pytest )?(.*)$", PAGE, re.M):
        for path in re.findall(r"\S+\.py", command):
            assert path in FILES or (ROOT / path).exists(), path
    text = (ROOT / "fedlib/identity.py").read_text(encoding="utf8")
    assert "_BESIDE" in text and "def settings_of" in (ROOT / "tests/test_invariances.py").read_text(encoding="utf8")


def test_a_change_that_does_not_fit_is_noticed():
    assert changed("a\nb\n", " a\n+c", "f") == "a\nc\nb\n" and changed("a\nb\n", "-a\n+c", "f") == "c\nb\n"
    for text in ("b\n", "a\na\n"):
        with pytest.raises(AssertionError, match="adapt the page"):
            changed(text, " a\n+c", "f")


@followed
def test_the_guide_works(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fedlib", tmp_path / "fedlib", ignore=ignored)
    for name in ("conftest", "twins", "test_invariances", "test_flower"):
        (tmp_path / "tests").mkdir(exist_ok=True)
        shutil.copy(ROOT / f"tests/{name}.py", tmp_path / "tests")
    for name in ("pyproject.toml", "book/api.md", "book/atlas.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf8")
    for path, hunk in CHANGES:
        file = tmp_path / path
        file.write_text(changed(file.read_text(encoding="utf8"), hunk, path), encoding="utf8")
    for tool in ("check", "format --check"):
        ruff = [sys.executable, "-m", "ruff", *tool.split(), "--no-cache", "."]
        run = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr

    environment = os.environ | {"PYTHONPATH": str(tmp_path), "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", FOLLOW], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    said = json.loads(run.stdout.splitlines()[-1])
    assert said["code"] == 0, run.stdout
    assert said["fedlib"].startswith(str(tmp_path))
    assert re.search(r"(\d+) passed", run.stdout) and "skipped" not in run.stdout
    assert (tmp_path / "_build/ditto.svg").stat().st_size > 10_000
    # What the page says of the figure.
    ditto, fedavg, alone = (mean(said["ends"][name]) for name in ("Ditto", "FedAvg", "LocalOnly"))
    assert min(ditto, fedavg) - alone > 0.02 and abs(ditto - fedavg) < 0.04
