"""The table from the papers to the code: it is complete, and everything it names exists."""

import ast
import pkgutil
import re
import runpy
from types import SimpleNamespace

from tools import notebooks

ROOT = notebooks.ROOT
pages = SimpleNamespace(**runpy.run_path(str(ROOT / "book/_ext/pages.py")))
INVENTORY, MAP = (pages.rows_of(ROOT / f"book/paper/{name}.csv").to_dict("records") for name in ("inventory", "map"))
HOW = {"implemented", "measured", "redrawn", "told in text"}


def key(row):
    return row["paper"], row["kind"], row["number"]


def functions(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def place_exists(chapter):
    stem, _, place = chapter.partition("#")
    notebook, page = ROOT / f"notebooks/{stem}.ipynb", ROOT / f"book/{stem}.md"
    if notebook.exists():
        return not place or pages.find(notebooks.read(notebook).cells, place)[0]
    return page.exists() and (not place or place in pages.HEADINGS.findall(page.read_text(encoding="utf8")))


def test_every_item_of_the_papers_has_a_row_and_no_row_is_of_another():
    assert len({key(row) for row in INVENTORY}) == len(INVENTORY)
    assert {key(row) for row in MAP} == {key(row) for row in INVENTORY}


def wrong(row):
    """What a row names and is not there; a Python name that is not there is an error that names it."""
    for target in row["target"].split():
        pkgutil.resolve_name(target)
    tests = [test.partition("::") for test in row["test"].split()]
    found = [f for path, _, f in tests if not (ROOT / path).exists() or f not in functions(path)]
    found += [] if place_exists(row["chapter"]) else [row["chapter"]]
    found += [] if row["how"] in HOW else [row["how"]]
    if row["how"] == "implemented" and not (row["target"] and row["test"]):
        found += ["a function, and a test of it"]
    if row["how"] == "measured" and not re.match(r"\d\d_|reproduction/", row["chapter"]):
        found += ["a page that measures it"]
    return found


def test_what_the_rows_name_exists():
    assert {key(row): wrong(row) for row in MAP if wrong(row)} == {}
