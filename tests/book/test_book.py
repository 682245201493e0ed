"""The book's own settings and files."""

import json
import re
import subprocess
import sys
from importlib.metadata import version

import pytest
import yaml

import fedlib
from tools import badges, mutants, notebooks, run_full

ROOT = notebooks.ROOT


def test_jupyter_book_is_version_one():
    assert version("jupyter-book").startswith("1.")


def test_every_page_stands_in_the_contents():
    toc = (ROOT / "_toc.yml").read_text(encoding="utf8")
    pages = [p.relative_to(ROOT).with_suffix("") for p in (ROOT / "book").rglob("*.md")]
    for page in [*pages, *(p.relative_to(ROOT).with_suffix("") for p in notebooks.paths())]:
        assert re.search(rf"{re.escape(page.as_posix())}\s*$", toc, re.M), f"{page} is not in _toc.yml"


def test_one_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf8"))
    assert citation["version"] == fedlib.__version__
    assert f"## [{fedlib.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf8")


def test_one_address():
    """`make badges` would change nothing."""
    url = notebooks.repository()
    for name in badges.PAGES:
        text = (ROOT / name).read_text(encoding="utf8")
        assert badges.with_address(text, url) == text, f"{name}: run make badges"


def test_a_new_address_reaches_every_place():
    new = "https://github.com/someone/else"
    text = 'clone("https://github.com/ORG/fedlib", x) https://github.com/ORG/fedlib.git (https://github.com/ORG/fedlib)'
    assert badges.with_address(text, new) == f'clone("{new}", x) {new}.git ({new})'
    assert badges.with_address("https://github.com/actions/checkout", new) == "https://github.com/actions/checkout"


def test_readme_names_commands_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf8")
    for name in ("README.md", "CONTRIBUTING.md", "book/setup.md"):
        for target in re.findall(r"\bmake ([a-z][a-z-]*)`", (ROOT / name).read_text(encoding="utf8")):
            assert re.search(rf"^{target}:", makefile, re.M), f"{name} names `make {target}`"


def test_readme_example_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf8"), re.S)
    script = tmp_path / "example.py"
    script.write_text(code, encoding="utf8")
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "test_accuracy" in run.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "book/results").glob("*.json")), ids=lambda p: p.stem)
def test_results_carry_their_provenance(path):
    record = json.loads(path.read_text(encoding="utf8"))
    assert record["figures"] and record["settings"] and record["data"]
    assert {"seconds", "date", "device", "versions", "code_hash", "modules", "threads"} <= set(record["provenance"])


def test_a_chapter_without_stored_runs_is_found():
    assert run_full.state("99_nothing") == "missing"


@pytest.mark.parametrize("path", notebooks.paths(), ids=lambda p: p.stem)
def test_every_chapter_has_stored_runs(path):
    """Stale ones say so on the page; missing ones would leave its claims without a ground."""
    assert run_full.state(path.stem) in ("current", "stale")


def test_mutants_still_fit_the_code():
    for file, text, broken, tests in mutants.MUTANTS:
        assert text in (ROOT / file).read_text(encoding="utf8"), f"{file} has no {text!r} to break"
        assert text != broken and all((ROOT / t.split("::")[0]).exists() for t in tests.split())
