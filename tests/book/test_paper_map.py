"""The table from the papers to the code: it is complete, and everything it names exists."""

import ast
import importlib
import re
import runpy
from types import SimpleNamespace

import pytest

from tools import notebooks

ROOT = notebooks.ROOT
pages = SimpleNamespace(**runpy.run_path(str(ROOT / "book/_ext/pages.py")))
INVENTORY, MAP = (pages.rows_of(ROOT / f"book/paper/{name}.csv") for name in ("inventory", "map"))
HOW = {"implemented", "measured", "redrawn", "told in text"}


def key(row):
    return row["paper"], row["kind"], row["number"]


def name(row):
    return " ".join(key(row))


def exists(target):
    """A Python name: a module, then attributes."""
    parts = target.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def functions(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def place_exists(chapter):
    stem, _, place = chapter.partition("#")
    notebook, page = ROOT / f"notebooks/{stem}.ipynb", ROOT / f"book/{stem}.md"
    if notebook.exists():
        return not place or pages.find(notebooks.read(notebook).cells, place) is not None
    return page.exists() and (not place or place in pages.HEADINGS.findall(page.read_text(encoding="utf8")))


def test_every_item_of_the_papers_has_a_row_and_no_row_is_of_another():
    assert len({key(row) for row in INVENTORY}) == len(INVENTORY)
    assert {key(row) for row in MAP} == {key(row) for row in INVENTORY}


@pytest.mark.parametrize("row", MAP, ids=name)
def test_what_a_row_names_exists(row):
    assert row["how"] in HOW
    assert all(exists(target) for target in row["target"].split()), row["target"]
    for test in row["test"].split():
        path, _, function = test.partition("::")
        assert (ROOT / path).exists() and function in functions(path), test
    assert place_exists(row["chapter"]), row["chapter"]
    if row["how"] == "implemented":
        assert row["target"] and row["test"], "a function, and a test of it"
    if row["how"] == "measured":
        assert re.match(r"\d\d_", row["chapter"]), "a chapter that measures it"


def test_what_is_not_there_is_found():
    assert (
        exists("fedlib.server.domain_graph.domain_adjacency")
        and not exists("fedlib.server.domain_graph.nothing")
        and not exists("nothing.at")
    )
    assert place_exists("06_fedcg_graph#The equations") and place_exists("06_fedcg_graph#fig-idea")
    assert not any(map(place_exists, ("06_fedcg_graph#nothing", "99_nothing", "errata#nothing")))
