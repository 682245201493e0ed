"""The page "Add an algorithm in an afternoon", followed to the letter: in an empty folder, then in a clone."""

import json
import os
import re
import shutil
from statistics import mean

import pytest

from tools.lines import lines
from tools.notebooks import ROOT

PAGE = (ROOT / "book/add_algorithm.md").read_text(encoding="utf8")
# A sentence that names a file and ends in a colon, then what to write there.
BLOCKS = re.findall(r"`([\w./]+)`[^`\n]*:\n\n(`{3,})(python|diff)\n(.*?)\n\2\n", PAGE, re.S)
FILES = {path: text + "\n" for path, _, kind, text in BLOCKS if kind == "python"}
CHANGES = [(path, hunk) for path, _, kind, text in BLOCKS if kind == "diff" for hunk in text.split("\n@@\n")]
# Where the second part copies the files of the first to.
COPIES = re.findall(r"^cp \.\./mine/(\S+) (\S+/)$", PAGE, re.M)
OWN = ("apfl.py", "test_apfl.py", "compare.py")

FOLLOW_ALONE = """
import importlib.util, json, runpy
import pytest
others = [name for name in ("book", "benchmarks", "tools", "twins") if importlib.util.find_spec(name)]
code = pytest.main(["-q", "-p", "no:cacheprovider", "-W", "error", "test_apfl.py"])
names = runpy.run_path("compare.py")
import fedlib
ends = {name: [float(h["test_accuracy"].iloc[-1]) for h in histories] for name, histories in names["runs"].items()}
print(json.dumps({"code": int(code), "fedlib": fedlib.__file__, "others": others, "ends": ends}))
"""


FOLLOW = """
import json
import pytest
code = pytest.main(["-q", "-p", "no:cacheprovider", "tests/algorithms/test_apfl.py", "tests/test_invariances.py",
                    "tests/test_second_device.py", "-k", "apfl and not chunk and not padding and not evaluation"])
import fedlib
print(json.dumps({"code": int(code), "fedlib": fedlib.__file__}))
"""


def changed(text, hunk, path):
    """A file's text after a hunk: lines that begin with a blank stand there, those with + are new, those with - go."""
    old, new = ("".join(f"{line[1:]}\n" for line in hunk.split("\n") if line[:1] in marks) for marks in (" -", " +"))
    assert text.count(old) == 1, f"{path}: not just once there; adapt the page book/add_algorithm.md:\n{old}"
    return text.replace(old, new)


# Whoever follows the page in a clone runs these tests too.
followed = pytest.mark.skipif((ROOT / "fedlib/algorithms/apfl.py").exists(), reason="the page has been followed here")


def followed_by(run_python, script, cwd, path):
    """What a script of this file says in its last line, run with nothing of the project but what lies in `path`."""
    printed = run_python("-c", script, cwd=cwd, PYTHONPATH=f"{path}{os.pathsep}{cwd}", MPLBACKEND="Agg")
    said = json.loads(printed.splitlines()[-1])
    assert said["code"] == 0, printed
    assert said["fedlib"].startswith(str(path))
    assert re.search(r"(\d+) passed", printed) and "skipped" not in printed
    return said


@pytest.fixture
def mine(tmp_path):
    """An empty folder with the files of the first part, and beside it a folder `site` with nothing but fedlib."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/fedlib").symlink_to(ROOT / "fedlib")
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in OWN:
        (folder / name).write_text(FILES[name], encoding="utf8")
    return folder


@followed
def test_the_page_is_read_whole():
    assert sorted(FILES) == sorted(OWN)
    assert PAGE.count("```python\n") == len(FILES)
    assert PAGE.count("```diff\n") == len({path for path, _ in CHANGES})
    assert (ROOT / "book" / re.search(r"^```\{figure\} (\S+)$", PAGE, re.M)[1]).exists()
    assert COPIES == [("apfl.py", "fedlib/algorithms/"), ("test_apfl.py", "tests/algorithms/")]


def test_under_140_lines_of_code(mine):
    added = [line for path, hunk in CHANGES if path.endswith(".py") for line in hunk.split("\n") if line[0] == "+"]
    assert sum(lines(mine / name) for name in OWN) + len(added) < 140 and "fewer than 140 lines" in PAGE


def test_ones_own_files_use_public_names_only():
    for text in FILES.values():
        assert not re.search(r"^\s*from \.", text, re.M), "a relative import"
        assert not re.search(r"(?<=[. ])_(?!_)\w+", text), "a private name"


def test_named_files_and_commands_exist():
    for command in re.findall(r"^python (?:-m pytest )?(.*)$", PAGE, re.M):
        for path in re.findall(r"\S+\.py", command):
            assert path in FILES or (ROOT / path).exists() or path == "tests/algorithms/test_apfl.py", path
    assert "tests/book/test_results_are_fresh.py" in PAGE and (ROOT / "tests/book/test_results_are_fresh.py").exists()


def test_ones_own_folder(mine, run_python):
    """The first part: an empty folder, and a Python that can import nothing of the project but fedlib."""
    said = followed_by(run_python, FOLLOW_ALONE, cwd=mine, path=mine.parent / "site")
    assert said["others"] == [], "something else of the project was there too"
    assert (mine / "apfl.svg").stat().st_size > 10_000
    # What the page says of the figure.
    apfl, fedavg, alone = (mean(said["ends"][name]) for name in ("APFL", "FedAvg", "LocalOnly"))
    assert min(apfl, fedavg) - alone > 0.02 and abs(apfl - fedavg) < 0.04


@followed
def test_into_the_library(tmp_path, run_python):
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fedlib", tmp_path / "fedlib", ignore=ignored)
    shutil.copytree(ROOT / "book/experiments", tmp_path / "book/experiments", ignore=ignored)
    (tmp_path / "tests/algorithms").mkdir(parents=True)
    helpers = "cfl_worlds", "conftest", "emulated_device", "every", "reference", "twins"
    for name in (*helpers, "test_invariances", "test_second_device"):
        shutil.copy(ROOT / f"tests/{name}.py", tmp_path / "tests")
    for name in ("pyproject.toml", "book/atlas.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "book/results.py", tmp_path / "book")
    for name, folder in COPIES:
        (tmp_path / folder / name).write_text(FILES[name], encoding="utf8")
    for path, hunk in CHANGES:
        file = tmp_path / path
        file.write_text(changed(file.read_text(encoding="utf8"), hunk, path), encoding="utf8")
    for tool in ("check", "format --check"):
        files = (folder + name for name, folder in COPIES)
        run_python("-m", "ruff", *tool.split(), "--no-cache", *files, cwd=tmp_path)
    followed_by(run_python, FOLLOW, cwd=tmp_path, path=tmp_path)
