"""The pages of the book beside the chapters: their programs run, and what they say of files and results is so."""

import re
import runpy
from importlib import import_module
from types import SimpleNamespace

import yaml

from book.experiments import running
from fedlib import algorithms, datasets, extensions
from tools import badges, notebooks

ROOT = notebooks.ROOT


def text(page):
    return (ROOT / f"book/{page}.md").read_text(encoding="utf8")


def test_programs_run(tmp_path, run_python):
    """Those of a page build on each other."""
    script, pages = tmp_path / "pages.py", text("faq") + text("reproducibility")
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", pages, re.S)), encoding="utf8")
    (tmp_path / "book").symlink_to(ROOT / "book")
    said = run_python("-W", "error", script, cwd=tmp_path, PYTHONPATH=str(ROOT), HOME=str(tmp_path))
    assert "chosen by validation" in said and "worst decile" in said
    assert int(re.search(r"(\d+) of 200 rounds", said)[1]) < 200, "a rule stops the run"
    assert "{'east': 2, 'north': 3, 'south': 3}" in said and "tensor([3, 5, 3])" in said
    assert {path.name for path in tmp_path.iterdir()} >= {"server.pt", "run.safetensors"}


def test_the_first_page_and_the_readme_show_the_same_numbers():
    shown = re.findall(r"<dt>(.+?)</dt><dd>(.+?) \(<a .+?</dd>", text("index"))
    listed = re.findall(r"^- \*\*(.+?)\*\* (.+)$", (ROOT / "README.md").read_text(encoding="utf8"), re.M)
    assert len(shown) == 3 and shown == [(number, words.replace("'", "’")) for number, words in listed]


def test_the_first_page_has_a_card_for_each_chapter():
    """With a small picture and a question, in the parts of the contents."""
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf8"))["parts"]
    found = re.findall(r"^```\{rubric\} (.+)$|^\{doc\}`/(notebooks/.+)`\n\n(.+\?)$", text("index"), re.M)
    assert [part or page for part, page, _ in found] == [
        name
        for part in parts
        if part["chapters"][0]["file"].startswith("notebooks/")
        for name in (part["caption"], *(each["file"] for each in part["chapters"]))
    ]
    assert re.findall(r"\{include\} cards/(.+)\.html", text("index")) == [path.stem for path in notebooks.paths()]
    for path in notebooks.paths():
        card = (ROOT / f"book/cards/{path.stem}.html").read_text(encoding="utf8")
        assert card.startswith('<div class="picture" aria-hidden="true"><svg ') and "<text" not in card
        assert len(card) < 2_500 and "#" not in card and "style=" not in card, "the page gives it its colours"
    assert len({path.read_bytes() for path in (ROOT / "book/cards").iterdir()}) == len(notebooks.paths())


REFERENCE = SimpleNamespace(**runpy.run_path(str(ROOT / "book/_ext/reference.py")))


def test_the_reference_has_every_module():
    """Those with public names have a page each, and each page is listed."""
    pages = REFERENCE.modules_of(ROOT)
    files = [p.relative_to(ROOT).with_suffix("") for p in (ROOT / "fedlib").rglob("*.py")]
    named = {".".join(p.parts).removesuffix(".__init__") for p in files}
    missing = named - set(pages) - {"fedlib"}
    for name in missing:
        module = import_module(name)
        own = set(getattr(module, "__all__", ()))
        assert own <= set(getattr(import_module(name.rpartition(".")[0]), "__all__", ())) or name.count(".") == 1, name
    listed = " ".join(re.findall(r"^```\{modules\} (.+)$", text("api"), re.M)).split()
    below = {page for name in listed for page in pages if page == name or page.startswith(f"{name}.")}
    assert len(set(listed)) == len(listed) and below == set(pages), set(pages) - below
    assert {path.stem for path in (ROOT / "fedlib").glob("[a-z]*.py")} <= {name.split(".")[1] for name in listed}


def test_the_reference_has_every_algorithm():
    modules = [import_module(name) for name in REFERENCE.modules_of(ROOT, "fedlib.algorithms")]
    assert {name for module in modules for name in module.__all__} >= set(algorithms.__all__)
    assert REFERENCE.chapters_of(algorithms.fedavg) == ["01"]


def test_the_atlas_has_every_algorithm():
    sections = re.findall(r"^## (.+)$", text("atlas"), re.M)
    assert set(algorithms.__all__) <= {name for section in sections for name in section.split(", ")}
    assert {f"{name} (ours)" for name in extensions.__all__} == {name for name in sections if "(ours)" in name}


def test_data_sets_are_used_where_the_page_says():
    """Those of the pages stand in the notebooks, those of stored results in the experiments.

    A notebook may name a set of its stored results too, to find them.
    """
    lines = re.findall(r"^\| (`.+`) \|(.*)\|(.*)\|$", text("data"), re.M)
    used = {name: columns for names, *columns in lines for name in re.findall(r"`(\w+)`", names)}
    assert set(used) | {"wine"} == set(datasets.names())
    for name, (pages, experiments) in used.items():
        read = {e for e, m in running.modules().items() if any(name in p.data for p in m.PRESETS.values())}
        assert set(re.findall(r"`(\w+)`", experiments)) == read, f"the experiments that use {name}"
        if name == "digits":  # a word of many chapters
            continue
        for path in notebooks.paths():
            page = "\n".join(c.source for c in notebooks.code_cells(notebooks.read(path)))
            shown = str(int(path.stem[:2])) in re.findall(r"\d+", pages)
            assert shown <= (f'"{name}"' in page), f"{name} is not in {path.stem}"


def test_presets_are_those_of_the_page():
    rows = re.findall(r"^\| ((?:`\w+`,? ?)+)\|", text("reproducibility"), re.M)
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    there = {preset: f"book.experiments.{name}" for name, m in running.modules().items() for preset in m.PRESETS}
    new, gone = sorted(there.keys() - named), sorted(named - there.keys() - {"book", "smoke"})
    assert not new, f"enter preset {new[0]!r} of {there[new[0]]} in the table of presets in book/reproducibility.md"
    assert not gone, f"the table of presets in book/reproducibility.md names {gone[0]!r}, which no experiment has"
    for page in ("reproducibility", "setup"):
        commands = re.findall(r"-m book\.experiments (\w+)(?: --preset (\w+))?", text(page))
        assert commands and all((preset or "full") in running.modules()[name].PRESETS for name, preset in commands)


def test_the_page_on_set_up_says_what_a_chapter_installs():
    *first, last = (str(int(name[:2])) for name in badges.GRAPHS if name[:2].isdigit())
    who = f"Chapters {', '.join(first)} and {last} need" if first else f"Chapter {last} needs"
    assert f"{who} torch-geometric" in text("setup")
    experiments = "".join(path.read_text(encoding="utf8") for path in (ROOT / "book/experiments").glob("*.py"))
    assert ("FEDLIB_CHECKPOINTS" in experiments) == ("FEDLIB_CHECKPOINTS" in text("setup"))


def test_the_page_on_forks_names_every_file_that_make_badges_writes():
    page = text("fork")
    for name in badges.PAGES:
        changed = badges.with_address((ROOT / name).read_text(encoding="utf8"), "https://github.com/some/one")
        if "some/one" in changed or "some.github.io/one" in changed:
            assert f"`{name}`" in page or f"{{doc}}`{name.removeprefix('book/').removesuffix('.md')}`" in page, name
    assert len(page.splitlines()) <= 40
