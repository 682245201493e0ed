"""The book's own settings and files."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml

import fedlib
from book.experiments import running
from tools import badges, notebooks

ROOT = notebooks.ROOT


def test_every_page_stands_in_the_contents():
    toc = (ROOT / "_toc.yml").read_text(encoding="utf8")
    files = [p for p in (ROOT / "book").rglob("*.md") if p.parent.name not in ("api", "slides")]
    pages = [p.relative_to(ROOT).with_suffix("") for p in files]
    for page in [*pages, *(p.relative_to(ROOT).with_suffix("") for p in notebooks.paths())]:
        assert re.search(rf"{re.escape(page.as_posix())}\s*$", toc, re.M), f"{page} is not in _toc.yml"


def test_one_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf8"))
    assert citation["version"] == fedlib.__version__
    assert f"## [{fedlib.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf8")


def test_one_address():
    """`make badges` would change nothing."""
    url = badges.repository()
    for name in badges.PAGES:
        text = (ROOT / name).read_text(encoding="utf8")
        assert badges.with_address(text, url) == text, f"{name}: run make badges"
    for path in notebooks.paths():
        text = path.read_text(encoding="utf8")
        assert badges.notebook_with(text, path.stem, url, fedlib.__version__) == text, f"{path.stem}: run make badges"


def make_badges(folder):
    """As Python does without any installed package."""
    code = "import sys; sys.path.insert(0, '.'); from tools import badges; badges.main()"
    command = [sys.executable, "-I", "-S", "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def fork(tmp_path):
    """A copy of the book at another address, as `make badges` makes it with nothing installed but Python."""
    for name in ("fedlib", "book", "notebooks", "tools", *badges.PAGES, "Makefile", "_toc.yml", "pyproject.toml"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif not (tmp_path / name).exists():
            shutil.copy(ROOT / name, tmp_path / name)
    config = tmp_path / "_config.yml"
    config.write_text(config.read_text().replace(badges.repository(), "https://github.com/someone/else"))
    return tmp_path


def test_a_fork_has_its_address_everywhere(fork):
    run = make_badges(fork)
    assert run.returncode == 0, run.stderr
    for path in [*fork.glob("notebooks/*.ipynb"), *(fork / name for name in badges.PAGES)]:
        assert "ORG" not in path.read_text(encoding="utf8"), path.name
    assert make_badges(fork).stdout == "", "a second time there is nothing to do"
    for path in notebooks.paths():
        setup = notebooks.read(fork / "notebooks" / path.name).cells[1]
        assert setup.source == badges.setup_cell(path.stem, "https://github.com/someone/else", fedlib.__version__)
    results = {p.name: p.read_bytes() for p in (ROOT / "book/results").glob("*.json")}
    assert {p.name: p.read_bytes() for p in (fork / "book/results").glob("*.json")} == results, "none is stale by it"


def test_an_address_that_is_not_githubs_is_explained(fork):
    config = fork / "_config.yml"
    config.write_text(config.read_text().replace("github.com/someone", "example.org/someone"))
    run = make_badges(fork)
    assert run.returncode == 1 and "must look like https://github.com/OWNER/NAME, got https://example.org" in run.stderr
    assert "Traceback" not in run.stderr


def test_readme_names_commands_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf8")
    for name in ("README.md", "CONTRIBUTING.md", "book/setup.md"):
        for target in re.findall(r"\bmake ([a-z][a-z-]*)`", (ROOT / name).read_text(encoding="utf8")):
            assert re.search(rf"^{target}:", makefile, re.M), f"{name} names `make {target}`"


def test_the_page_on_set_up_has_every_command():
    targets = re.findall(r"^([a-z][a-z-]*):.*## ", (ROOT / "Makefile").read_text(encoding="utf8"), re.M)
    page = (ROOT / "book/setup.md").read_text(encoding="utf8")
    listed = re.findall(r"^\| `make ([a-z-]+)(?: [A-Z]+=\w+)?` \|", page, re.M)
    assert sorted(listed) == sorted(set(targets) - {"help"})


@pytest.mark.parametrize("path", sorted((ROOT / "book/results").glob("*.json")), ids=lambda p: p.stem)
def test_results_carry_their_provenance(path):
    record = json.loads(path.read_text(encoding="utf8"), parse_constant=pytest.fail)
    assert record["figures"] and record["settings"] and record["data"]
    assert {"seconds", "date", "device", "versions", "threads"} <= set(record["provenance"])
    assert record["probe"], "without a probe nobody can say whether the code still does the same"


def test_results_bear_the_names_of_their_experiments():
    for name, module in running.modules().items():
        found = {e.result for e in module.PRESETS.values()}
        assert name in found and all(result == name or result.startswith(f"{name}_") for result in found)


def test_mutmut_finds_its_files():
    listed = re.search(r"^\[tool\.mutmut\].*", (ROOT / "pyproject.toml").read_text(encoding="utf8"), re.M | re.S)[0]
    files = re.findall(r'"(\S+\.py)"', listed)
    assert files and all((ROOT / file).exists() for file in files)
