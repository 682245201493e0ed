"""The chapters on Colab: the set-up cell on a machine like Colab's, and what the notebooks ask for. Binder's files."""

import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from notebooks import colab
from tools import badges, downloads, notebooks, student

PATHS = notebooks.paths()
ADDRESS = "https://github.com/someone/else"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Environment variables of a machine like Colab's: a package google.colab, git, and no network.

    The repository's address leads to a copy of this working tree, with the release as its tag.
    """
    place = tmp_path_factory.mktemp("colab")
    (place / "site/google/colab").mkdir(parents=True)
    (place / "site/google/colab/__init__.py").touch()
    for folder in ("fedlib", "book", "notebooks", "tools"):
        ignored = shutil.ignore_patterns("__pycache__", "checkpoints", ".ipynb_checkpoints")
        shutil.copytree(notebooks.ROOT / folder, place / "repository" / folder, ignore=ignored)
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    tag = ["tag", f"v{badges.release()}"]
    for command in (["init", "-q"], ["add", "--all"], [*author, "commit", "-q", "-m", "copy"], tag):
        subprocess.run(["git", *command], cwd=place / "repository", check=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "PYTHONPATH": str(place / "site"),
        "OMP_NUM_THREADS": "1",
        "PIP_NO_INDEX": "1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{place}/repository.insteadOf",
        "GIT_CONFIG_VALUE_0": ADDRESS,
        "GIT_ALLOW_PROTOCOL": "file",  # git itself cannot go online
    }


# Runs the set-up cell of a file, then what its error message tells one to type, then both again.
PASTED = """
import google.colab
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell()
setup = Path("setup.py").read_text()
message = str(shell.run_cell(setup).error_in_exec)
typed = message.partition("new cell:")[2]
print(typed)
for cell in (typed, setup, "import fedlib.data; print(fedlib.__file__)"):
    shell.run_cell(cell).raise_error()
    assert not shell.user_ns.get("_exit_code"), cell
"""


def python(*command, cwd, env=None):
    words = [sys.executable, "-P", *command]
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def on_colab(setup, machine, folder, then=""):
    code = f"import google.colab\n{setup}\n{setup}\nimport fedlib\nprint(fedlib.__file__)\n{then}"
    return python("-c", code, cwd=folder, env=machine)


def test_setup_fetches_the_release_once(machine, tmp_path):
    """The second time it is there already. The fetched code is used, not another fedlib on this machine."""
    run = on_colab(badges.setup_cell("01_fedavg", ADDRESS, badges.release()), machine, tmp_path)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.split()[-1] == str(tmp_path / "fedlib-book/fedlib/__init__.py")
    reads = "from book import results; print(results.load('fedavg')['settings'] is not None)"
    assert on_colab("import sys; sys.path.insert(0, 'fedlib-book')", machine, tmp_path, reads).stdout.endswith("True\n")


def test_setup_never_fetches_the_head_of_a_branch(machine, tmp_path):
    """A saved copy of a chapter goes on with the release it was written for, or says that it is gone."""
    run = on_colab(badges.setup_cell("01_fedavg", ADDRESS, "0.0.1"), machine, tmp_path)
    assert run.returncode != 0 and not (tmp_path / "fedlib-book").exists()
    assert run.stderr.endswith(f"RuntimeError: {ADDRESS} has no release v0.0.1; tell us at {ADDRESS}/issues\n")


@pytest.mark.parametrize("chapter", [path.stem for path in PATHS])
def test_setup_is_short_and_installs_what_colab_lacks(chapter):
    for url in (ADDRESS, badges.PLACEHOLDER):
        lines = badges.setup_cell(chapter, url, "1.0.0").splitlines()
        assert len([line for line in lines if line]) <= 11 and max(map(len, lines)) <= 92
    lacking = {"torch-geometric"} if chapter == "12_who_helps_whom" else set()
    assert colab.installed_by(badges.setup_cell(chapter, ADDRESS, "1")) == lacking
    assert not lacking & colab.with_needs(colab.VERSIONS)


@pytest.mark.parametrize("chapter", ["01_fedavg", *badges.GRAPHS])
def test_without_an_address_setup_says_what_to_type_and_that_works(chapter, machine, tmp_path):
    """In IPython, as it was printed, after the archive has been uploaded. Another package fedlib does not count."""
    downloads.archive(tmp_path, "student", {})
    (tmp_path / "site/fedlib").mkdir(parents=True)
    (tmp_path / "site/fedlib/__init__.py").touch()
    (tmp_path / "session.py").write_text(PASTED, encoding="utf8")
    (tmp_path / "setup.py").write_text(badges.setup_cell(chapter, badges.PLACEHOLDER, "1"), encoding="utf8")
    there = machine | {"PYTHONPATH": f"{machine['PYTHONPATH']}{os.pathsep}{tmp_path}/site"}
    run = python("session.py", cwd=tmp_path, env=there)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.split()[-1] == str(tmp_path / "fedlib-book/fedlib/__init__.py")
    assert ("%pip" in run.stdout) == (chapter in badges.GRAPHS)


def test_setup_finds_the_clone_from_any_folder_in_it(tmp_path):
    code = f"{badges.setup_cell('01_fedavg', ADDRESS, '1')}\nimport fedlib; print(fedlib.__file__)"
    for folder in ("notebooks", "book/results", "."):
        run = python("-c", code, cwd=notebooks.ROOT / folder)
        assert run.stdout.split() == [str(notebooks.ROOT / "fedlib/__init__.py")]


def test_a_whole_chapter_runs_as_a_students_copy(machine, tmp_path, monkeypatch):
    """A chapter with small parameters, from an empty folder."""
    for name, value in machine.items():
        monkeypatch.setenv(name, value)
    notebook = student.marked(notebooks.read(PATHS[6]))
    notebook.cells[0].source = badges.setup_cell(PATHS[6].stem, ADDRESS, badges.release())
    notebook.cells.insert(0, nbformat.v4.new_code_cell("import google.colab  # Colab's kernel has done so"))
    colab.executed(notebook, tmp_path, {"preset": "smoke"})
    assert [p.name for p in tmp_path.iterdir()] == ["fedlib-book"]


def test_the_packages_we_ask_for_are_on_colab_in_a_version_that_we_support():
    project = (notebooks.ROOT / "requirements.txt").read_text(encoding="utf8")
    for line in re.findall(r"^([\w-]+>=[\w.]+)", project, re.M):
        need = Requirement(line)
        if need.name in colab.VERSIONS and need.name != "ipykernel":  # Colab has its own
            assert Version(colab.VERSIONS[need.name]) in need.specifier, line


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_asks_for_a_gpu_only_where_one_helps(path):
    metadata = notebooks.read(path).metadata
    wanted = {"accelerator": "GPU"} if path.stem == "16_scaling_out" else {}
    assert {k: v for k, v in metadata.items() if k == "accelerator"} == wanted
    assert metadata.colab == ({"gpuType": "T4", "provenance": []} if wanted else {"provenance": []})


def test_binder_installs_what_the_chapters_need():
    script = notebooks.ROOT / ".binder/postBuild"
    subprocess.run(["bash", "-n", script], check=True)
    assert os.access(script, os.X_OK), "Binder runs it"
    project = (notebooks.ROOT / "pyproject.toml").read_text(encoding="utf8")
    (extra,) = re.findall(r"'\.\[(\w+)\]'", script.read_text(encoding="utf8"))
    assert f"optional-dependencies.{extra} =" in project
    assert re.fullmatch(r"python-3\.\d+\n", (notebooks.ROOT / ".binder/runtime.txt").read_text(encoding="utf8"))
