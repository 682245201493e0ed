"""The pages of the book beside the chapters: their programs run, and what they say of files and results is so."""

import json
import re
import subprocess
import sys

import pytest

from fedlib import algorithms, datasets
from tools import notebooks

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
    assert {path.name for path in tmp_path.iterdir()} >= {"model.safetensors", "run.safetensors"}


def test_the_atlas_has_every_algorithm():
    sections = re.findall(r"^## (.+)$", text("atlas"), re.M)
    assert set(algorithms.__all__) <= {name for section in sections for name in section.split(", ")}


def test_data_sets_are_used_where_the_page_says():
    lines = re.findall(r"^\| (`.+`) \|(.*)\| (.+) \|$", text("data"), re.M)
    used = {name: "".join(chapters) for names, *chapters in lines for name in re.findall(r"`(\w+)`", names)}
    assert set(used) | {"wine", "emnist"} == set(datasets.names())
    for path in notebooks.paths():
        code = "\n".join(c.source for c in notebooks.code_cells(notebooks.read(path)))
        for name, chapters in used.items():
            if name == "digits":  # a word of many chapters
                continue
            here = str(int(path.stem[:2])) in re.findall(r"\d+", chapters)
            assert here == (f'"{name}"' in code), f"{name} in {path.stem}"


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
    found = seeds_of(record["figures"]) or {record["settings"]["seed"]}
    assert found in (
        [set(range(n)) for n in (1, 5, 10)] if path.stem < "05" else [set(range(100, n)) for n in (103, 105)]
    )
