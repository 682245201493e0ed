"""The book's own settings and files."""

import html
import json
import re
import struct
from importlib.metadata import version

import pytest
import yaml

import fedlib
from tools import badges, figures, mutants, notebooks, run_full

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
    assert badges.with_address("https://github.com/ORG/fedlib/actions/x.svg", new) == f"{new}/actions/x.svg"
    assert badges.with_address("https://ORG.github.io/fedlib/book", new) == "https://someone.github.io/else/book"
    colab = "https://colab.research.google.com/github/{}/blob/main/x.ipynb"
    assert badges.with_address(colab.format("ORG/fedlib"), new) == colab.format("someone/else")
    assert badges.with_address("https://github.com/actions/checkout", new) == "https://github.com/actions/checkout"


def test_readme_names_commands_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf8")
    for name in ("README.md", "CONTRIBUTING.md", "book/setup.md"):
        for target in re.findall(r"\bmake ([a-z][a-z-]*)`", (ROOT / name).read_text(encoding="utf8")):
            assert re.search(rf"^{target}:", makefile, re.M), f"{name} names `make {target}`"


def test_the_page_on_set_up_has_every_command():
    targets = re.findall(r"^([a-z][a-z-]*):.*## ", (ROOT / "Makefile").read_text(encoding="utf8"), re.M)
    listed = re.findall(r"^\| `make ([a-z-]+)` \|", (ROOT / "book/setup.md").read_text(encoding="utf8"), re.M)
    assert sorted(listed) == sorted(set(targets) - {"help"})


def test_the_pictures_are_those_of_the_program():
    """`make figures` would change no word and no size; in the rest Matplotlib's versions differ."""
    drawn = [t.get_text() for t in figures.book_map().axes[0].texts]
    stored = (figures.STATIC / "map.svg").read_text(encoding="utf8")
    assert [html.unescape(t) for t in re.findall(r"<text[^>]*>([^<]+)</text>", stored)] == drawn, "run make figures"
    preview = (figures.STATIC / "preview.png").read_bytes()
    assert struct.unpack(">II", preview[16:24]) == (1200, 630), "the size that other sites ask for"
    assert figures.preview().get_size_inches().tolist() == [1200 / 72, 630 / 72]
    assert all((figures.STATIC / name).stat().st_size < 200_000 for name in [*figures.DRAWN, "readme.svg"])


def test_the_map_shows_every_chapter_and_its_alt_text_says_all():
    drawn = [t.get_text() for t in figures.book_map().axes[0].texts]
    assert {str(int(p.stem[:2])) for p in notebooks.paths()} <= set(drawn)
    alt = re.search(r"fig:map.*?:alt: ([^\n]*)", (ROOT / "book/index.md").read_text(encoding="utf8"), re.S)[1]
    for row in figures.ROWS:
        for word in re.findall(r"[\w-]+", " ".join([row[0], *map(str, row[3]), *row[4]])):
            assert word in alt, f"the map has {word!r}, its alt text does not"


def test_the_picture_of_the_readme_is_what_the_chapter_draws():
    """Its figure may change when the code before it does."""
    chapter, cell = figures.README_FIGURE
    picture = (figures.STATIC / "readme.svg").read_text(encoding="utf8")
    assert f"cell {cell}, code {figures.source(chapter, cell)} " in picture, "run make book, then make figures"
    alt = re.search(r"!\[([^]]*)\]\(book/_static/readme\.svg\)", (ROOT / "README.md").read_text(encoding="utf8"))[1]
    assert len(alt) > 40


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


def test_a_paper_run_belongs_to_a_chapter():
    chapters = [p.stem for p in notebooks.paths()]
    assert all(chapter in chapters and result.startswith(chapter) for chapter, result in run_full.PAPER.items())


def test_only_what_is_missing_or_stale_is_run(monkeypatch):
    ran, states = [], iter(["current", "missing", "current", "stale", "stale"])
    monkeypatch.setattr(run_full, "state", lambda *names: next(states))
    monkeypatch.setattr(run_full.papermill, "execute_notebook", lambda path, *_, **__: ran.append(path.stem))
    said = [run_full.run("01_fedavg", "01_fedavg_paper", "paper") for _ in range(3)]
    assert ran == ["01_fedavg"] * 2 and said[:2] == ["", ""] and "wrote no book/results/01_fedavg_paper.json" in said[2]


def test_mutants_still_fit_the_code():
    for file, text, broken, tests in mutants.MUTANTS:
        assert text in (ROOT / file).read_text(encoding="utf8"), f"{file} has no {text!r} to break"
        assert text != broken and all((ROOT / t.split("::")[0]).exists() for t in tests.split())
