"""The chapters on Colab: the set-up cell in a machine like Colab's, and what the notebooks ask for. Binder's files."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys

import nbformat
import papermill
import pytest

from tools import notebooks, student

PATHS = notebooks.paths()

# Runs each chapter's set-up cell twice in a folder of its own, then its imports. fedlib leaves the machine in between.
CLEAN = """
import json, os, sys
import google.colab

commands, found = [], {}
sys.addaudithook(lambda event, args: event == "subprocess.Popen" and commands.append(args[1]))
before = list(sys.path)
for stem, cells in json.load(sys.stdin).items():
    os.mkdir(stem)
    os.chdir(stem)
    commands.clear()
    names = {}
    for cell in cells[:2]:
        exec(cell, names)
    ran = [list(map(str, c)) for c in commands]
    exec(cells[2], names)
    found[stem] = {"commands": ran, "fedlib": sys.modules["fedlib"].__file__, "root": str(names["ROOT"])}
    for name in [m for m in sys.modules if m.split(".")[0] == "fedlib"]:
        del sys.modules[name]
    sys.path[:] = before
    os.chdir("..")
print(json.dumps(found))
"""


def imports(notebook):
    """All imports of a chapter, as one cell."""
    code = "\n".join(c.source for c in notebooks.code_cells(notebook))
    found = {ast.unparse(n) for n in ast.walk(ast.parse(code)) if isinstance(n, (ast.Import, ast.ImportFrom))}
    return "\n".join(sorted(found))


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Environment variables of a machine like Colab's: a package google.colab, git, and no network.

    The repository's address leads to a copy of this working tree.
    """
    place = tmp_path_factory.mktemp("colab")
    (place / "site/google/colab").mkdir(parents=True)
    (place / "site/google/colab/__init__.py").touch()
    for folder in ("fedlib", "book", "notebooks", "tools"):
        ignored = shutil.ignore_patterns("__pycache__", "checkpoints", ".ipynb_checkpoints")
        shutil.copytree(notebooks.ROOT / folder, place / "repository" / folder, ignore=ignored)
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "--all"], [*author, "commit", "-q", "-m", "copy"]):
        subprocess.run(["git", *command], cwd=place / "repository", check=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "PYTHONPATH": str(place / "site"),
        "OMP_NUM_THREADS": "1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{place}/repository.insteadOf",
        "GIT_CONFIG_VALUE_0": notebooks.repository(),
        "GIT_ALLOW_PROTOCOL": "file",  # git itself cannot go online
    }


@pytest.fixture(scope="module")
def found(machine, tmp_path_factory):
    """What the set-up cells did."""
    place = tmp_path_factory.mktemp("content")
    chapters = {}
    for path in PATHS:
        notebook = notebooks.read(path)
        (setup,) = [c.source for c in notebook.cells if c.id == "setup"]
        chapters[path.stem] = [setup, setup, imports(notebook)]
    run = subprocess.run(
        [sys.executable, "-c", CLEAN],
        cwd=place,
        env=machine,
        input=json.dumps(chapters),
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return place, json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_setup_fetches_the_code_and_installs_nothing(path, found):
    place, of_chapter = found
    did = of_chapter[path.stem]
    code = place / path.stem / "book-code"
    (command,) = did["commands"]  # the second time it is there already
    assert command == ["git", "clone", "-q", "--depth=1", notebooks.repository(), "book-code"]
    assert did["root"] == str(code)
    assert did["fedlib"] == str(code / "fedlib/__init__.py"), "the fetched code, not another fedlib on this machine"


def test_a_whole_chapter_runs_as_a_students_copy(machine, tmp_path, monkeypatch):
    """Chapter 7 with small parameters, from an empty folder."""
    for name, value in machine.items():
        monkeypatch.setenv(name, value)
    notebook = student.marked(notebooks.read(PATHS[6]))
    notebook.cells.insert(0, nbformat.v4.new_code_cell("import google.colab  # Colab's kernel has done so"))
    papermill.execute_notebook(
        notebook,
        None,
        {"preset": "smoke"},
        cwd=tmp_path,
        kernel_name="python3",
        progress_bar=False,
        execution_timeout=300,
    )
    assert [p.name for p in tmp_path.iterdir()] == ["book-code"]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_asks_for_a_gpu_as_colab_writes_it(path):
    """A preset may need one; Colab offers a CPU where none is free."""
    metadata = notebooks.read(path).metadata
    assert metadata.accelerator == "GPU" and metadata.colab == {"gpuType": "T4", "provenance": []}


def test_binder_installs_what_the_chapters_need():
    script = notebooks.ROOT / ".binder/postBuild"
    subprocess.run(["bash", "-n", script], check=True)
    assert os.access(script, os.X_OK), "Binder runs it"
    project = (notebooks.ROOT / "pyproject.toml").read_text(encoding="utf8")
    (extra,) = re.findall(r"'\.\[(\w+)\]'", script.read_text(encoding="utf8"))
    assert f"optional-dependencies.{extra} =" in project
    assert re.fullmatch(r"python-3\.\d+\n", (notebooks.ROOT / ".binder/runtime.txt").read_text(encoding="utf8"))
