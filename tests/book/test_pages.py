"""The pages of the book beside the chapters: their programs run, and what they say of files and results is so."""

import json
import re
import runpy
import subprocess
import sys
from types import SimpleNamespace

import pytest

from book.experiments import running
from fedlib import algorithms, datasets
from tools import badges, notebooks

ROOT = notebooks.ROOT
STORED = sorted((ROOT / "book/results").glob("*.json"))


def text(page):
    return (ROOT / f"book/{page}.md").read_text(encoding="utf8")


def test_programs_run(tmp_path):
    """Those of a page build on each other."""
    script, pages = tmp_path / "pages.py", text("faq") + text("reproducibility")
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", pages, re.S)), encoding="utf8")
    (tmp_path / "book").symlink_to(ROOT / "book")
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    command = [sys.executable, "-W", "error", script]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "chosen by validation" in run.stdout and "worst decile" in run.stdout
    assert int(re.search(r"(\d+) of 200 rounds", run.stdout)[1]) < 200, "a rule stops the run"
    assert "{'east': 2, 'north': 3, 'south': 3}" in run.stdout and "tensor([3, 5, 3])" in run.stdout
    assert {path.name for path in tmp_path.iterdir()} >= {"model.safetensors", "run.safetensors"}


def test_the_reference_has_every_module():
    """Those of a folder have their sections by themselves."""
    page, library = text("api"), ROOT / "fedlib"
    folders = {path.parent.name for path in library.glob("*/__init__.py")}
    exporting = {f for f in folders - {"algorithms"} if "__all__" in (library / f / "__init__.py").read_text("utf8")}
    modules = {path.stem for path in library.glob("[a-z]*.py")}
    assert set(re.findall(r"^```\{modules\} fedlib\.(\w+)$", page, re.M)) == folders
    assert set(re.findall(r"^\.\. automodule:: fedlib\.(\w+)$", page, re.M)) == modules | exporting


def test_the_reference_has_every_algorithm():
    directives = SimpleNamespace(**runpy.run_path(str(ROOT / "book/_ext/pages.py")))
    modules = directives.modules_of(algorithms)
    titles = [name for module in modules for name in directives.title_of(module).split(", ")]
    assert sorted(titles) == sorted(algorithms.__all__)
    assert directives.chapters_of(algorithms.fedavg) == ["01"]


def test_the_atlas_has_every_algorithm():
    sections = re.findall(r"^## (.+)$", text("atlas"), re.M)
    assert set(algorithms.__all__) <= {name for section in sections for name in section.split(", ")}


def test_data_sets_are_used_where_the_page_says():
    """Those of the pages stand in the notebooks, those of stored results in the experiments.

    A notebook may name a set of its stored results too, to find them.
    """
    lines = re.findall(r"^\| (`.+`) \|(.*)\|(.*)\|$", text("data"), re.M)
    used = {name: chapters for names, *chapters in lines for name in re.findall(r"`(\w+)`", names)}
    assert set(used) | {"wine"} == set(datasets.names())
    for path in notebooks.paths():
        chapter = str(int(path.stem[:2]))
        page = "\n".join(c.source for c in notebooks.code_cells(notebooks.read(path)))
        modules = sorted((ROOT / "book/experiments").glob(f"{path.stem[:2]}_*.py"))
        experiment = "\n".join(module.read_text(encoding="utf8") for module in modules)
        for name, columns in used.items():
            if name == "digits":  # a word of many chapters
                continue
            shown, stored = (chapter in re.findall(r"\d+", column) for column in columns)
            named, measured = (f'"{name}"' in code for code in (page, experiment))
            assert stored == measured, f"{name} in the experiments of chapter {chapter}"
            assert named or not shown, f"{name} is not in {path.stem}"
            assert shown or stored or not named, f"{name} in {path.stem}, and not on the page"


def test_presets_are_those_of_the_page():
    rows = re.findall(r"^\| ((?:`\w+`,? ?)+)\|", text("reproducibility"), re.M)
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    assert named == {"book", "smoke"} | {preset for module in running.modules().values() for preset in module.PRESETS}
    for page in ("reproducibility", "setup"):
        for name, preset in re.findall(r"book\.experiments\.(\w+)(?: --preset (\w+))?", text(page)):
            assert (preset or "full") in running.modules()[name].PRESETS


def test_the_page_on_set_up_says_what_a_chapter_installs():
    *first, last = (str(int(name[:2])) for name in badges.GRAPHS)
    assert f"Chapters {', '.join(first)} and {last} need torch-geometric" in text("setup")
    experiments = "".join(path.read_text(encoding="utf8") for path in (ROOT / "book/experiments").glob("*.py"))
    assert ("FEDLIB_CHECKPOINTS" in experiments) == ("FEDLIB_CHECKPOINTS" in text("setup"))


def test_the_page_on_forks_names_every_file_that_make_badges_writes():
    page = text("fork")
    for name in badges.PAGES:
        changed = badges.with_address((ROOT / name).read_text(encoding="utf8"), "https://github.com/some/one")
        if "some/one" in changed or "some.github.io/one" in changed:
            assert f"`{name}`" in page or f"{{doc}}`{name.removeprefix('book/').removesuffix('.md')}`" in page, name
    assert len(page.splitlines()) <= 40


def seeds_of(figures):
    """Keys of the innermost mappings; one of more than ten is no mapping of seeds, but of rounds."""
    if not isinstance(figures, dict):
        return set()
    if figures and len(figures) <= 10 and all(key.isdigit() for key in figures):
        return {int(key) for key in figures}
    return set().union(*map(seeds_of, figures.values()))


@pytest.mark.parametrize("path", [p for p in STORED if p.stem < "09"], ids=lambda p: p.stem)
def test_stored_seeds_are_those_that_the_page_names(path):
    """From 0 on for chapters 1 to 4, 100 to 104 for the others; a run of one seed has it in its settings only."""
    record = json.loads(path.read_text(encoding="utf8"))
    tuning = set(record["settings"].get("tuning_seeds", ()))
    assert tuning in (set(), {100, 101}) and (not tuning or path.stem == "01_fedavg")
    found = (seeds_of(record["figures"]) - (tuning if path.stem < "05" else set())) or {record["settings"]["seed"]}
    assert found in (
        [set(range(n)) for n in (1, 5, 10)] if path.stem < "05" else [set(range(100, n)) for n in (103, 105)]
    )
