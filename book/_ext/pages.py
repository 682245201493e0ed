"""Links to a place in a chapter, and tables that are made of data files and of the library.

``{chapter}`10_fedcg_graph#Why``` leads to the heading "Why" of that notebook, or to the cell whose id is given: to its
figure if it draws one, else to the heading above it. ``paper-map`` is the table of one paper in ``book/paper``,
``data-sets`` the table of the data sets that fedlib knows, ``stored`` a table of a stored result. What is not there is
a warning, so the build fails.

On the first page ``front-map`` is the map of the book, and ``front-figure`` the interactive figure of a chapter in
plain words, such as ``06_cfl#slider``. On the teaching pages ``minutes-table`` shows how long each chapter takes;
``hours-table`` shows how many hours a student needs; ``exercise-table`` lists the exercises of the chapter it names.
"""

import re
from pathlib import Path

import pandas as pd
from docutils import nodes
from sphinx.util.nodes import make_refnode

from book import figures, results
from book._ext.directives import shares
from book.experiments import faces
from fedlib import datasets
from tools import notebooks, teaching

HEADINGS = re.compile(r"^#+ (.+)$", re.M)


def rows_of(path):
    """Rows of a CSV file, of texts."""
    return pd.read_csv(path, dtype=str, na_filter=False)


def find(cells, place):
    """The heading at or above a place, which is a heading or the id of a cell, and the figure that the cell draws."""
    above = ""
    for cell in cells:
        headings = HEADINGS.findall(cell["source"]) if cell["cell_type"] == "markdown" else []
        if place in headings:
            return place, None
        if cell["id"] == place:
            return (headings or [above])[0], cell["metadata"].get("mystnb", {}).get("figure", {}).get("name")
        above = (headings or [above])[-1]
    return "", None


def resolve(app, env, node, contnode):
    """The link of a ``chapter`` role."""
    name, _, place = node["reftarget"].partition("#")
    doc = next((doc for doc in (f"notebooks/{name}", f"book/{name}") if doc in env.found_docs), None)
    if node["reftype"] != "chapter" or doc is None:
        return None
    title = env.titles[doc].astext().replace("’", "'")
    heading, figure = place or title, None
    if place and doc.startswith("notebooks/"):
        heading, figure = find(notebooks.read(Path(env.doc2path(doc))).cells, place)
    links = reversed([*env.tocs[doc].findall(nodes.reference)])
    anchors = {a.astext().replace("’", "'"): a["anchorname"][1:] for a in links}  # Sphinx has made the quotes round
    # A figure without a label has not been drawn: its chapter has not been run.
    labels = env.domains["std"].anonlabels
    target = labels.get(figure, (None, None))[1] if figure else anchors.get(re.sub(r"[*`$]", "", heading))
    if target is None:
        return None
    chapter = re.match(r"(\d+)\.", title)
    above = f"chapter {chapter[1]}" if chapter else title
    words = title if heading == title else f"{above}: {heading}"
    shown = nodes.inline("", contnode.astext() if node["refexplicit"] else words)
    return make_refnode(app.builder, node["refdoc"], doc, target, shown)


def function(name):
    """Link to a Python name."""
    return f"{{py:obj}}`{name.removeprefix('fedlib.').removeprefix('algorithms.')} <{name}>`"


def in_words(test):
    """The id of a test, so that it can be broken into lines: `test_graph.py: by hand`."""
    path, _, name = test.partition("::")
    return f"{Path(path).name}: {name.removeprefix('test_').replace('_', ' ')}"


def paper_map(page, paper):
    """Where each equation, figure and table of one paper stands."""
    inventory, places = (rows_of(Path(page.env.srcdir, f"book/paper/{name}.csv")) for name in ("inventory", "map"))
    body, above = [], None
    for line in inventory.merge(places).query("paper == @paper").to_dict("records"):
        number = line["number"]
        name = f"equation in {line['place']}" if number.startswith("u") else f"{line['kind']} {number}"
        what = f"**{name[0].upper()}{name[1:]}.** {line['what'][0].upper()}{line['what'][1:]}"
        where = f"{line['how']}: {{chapter}}`{line['chapter']}`. {line['note']}"
        names = ", ".join(map(function, line["target"].split()))
        tests = "; ".join(map(in_words, line["test"].split()))
        body.append([None if what == above else what, where, f"{names} {'tested in ' if tests else ''}{tests}"])
        above = what
    return [page.table(["In the paper", "In the book", "Function and test"], body, (36, 30, 34))]


def data_sets(page):
    """What fedlib's data sets state about themselves."""
    every = {f"`{name}`": datasets.stats(name) for name in datasets.names()} | {"CelebA": faces.STATS}
    body = []
    for name, s in every.items():
        size = f"{s.rows:,}" + (f" and {s.test_rows:,}" if s.test_rows else "")
        task = f"{s.classes} classes" if s.classes else "regression"
        source = re.sub(r"https?://([^/ ]+)[^ ]*", r"[\1](\g<0>)", s.source)
        body.append([name, size, f"{' × '.join(map(str, s.shape))}, {task}", s.licence, source, s.note])
    head = ["Name", "Rows (train, test)", "A row, and the task", "Licence", "Source", "Note"]
    return [page.table(head, body, (16, 12, 15, 15, 15, 27))]


def labelled(text):
    """The label and the name of ``NAME | LABEL``; a name alone is its own label."""
    name, _, label = text.partition(" | ")
    return label or name, name


def stored(page, result, *, rows, scores, at=None):
    """Means of a stored result, with their intervals: for rows at a place of its figures, or at its top, some scores.

    The names of rows and of scores are separated by semicolons. ``NAME | LABEL`` shows a row or a score under a label.
    """
    rows, scores = (dict(map(labelled, re.split(r"; *", names))) for names in (rows, scores))
    top = [at] if at else []
    means = results.table(result, {label: (*top, r) for label, r in rows.items()}, scores)
    body = [[row, *cells] for row, cells in zip(rows, means.to_numpy().tolist(), strict=True)]
    return [page.table(["", *scores], body, shares(28, len(scores)))]


def minutes_table(page):
    """Minutes, exercises and points of each chapter."""
    page.reads(*notebooks.paths(), *(notebooks.EXECUTED / path.name for path in notebooks.paths()))
    return page.markdown(*teaching.minutes_table())


def hours_table(page):
    """Hours that each chapter takes a student, and all of them together."""
    page.reads(*notebooks.paths())
    return page.markdown(*teaching.hours_table())


def exercise_table(page, chapter):
    """The exercises of one chapter."""
    path = notebooks.ROOT / f"notebooks/{chapter}.ipynb"
    page.reads(path, notebooks.ROOT / "tests/notebooks/wrong_answers.py")
    return page.markdown(*teaching.exercise_table(path))


def front_map(page):
    """The map of the book."""
    return page.html(figures.who_shares_what().html)


def front_figure(page, place):
    """The interactive figure of a chapter, for those who have read nothing yet; nothing where it has not been run."""
    name, _, place = place.partition("#")
    done = notebooks.EXECUTED / f"{name}.ipynb"
    cells = notebooks.read(done).cells if done.exists() else ()
    shown = [text for cell in cells if cell.id == place for text in notebooks.shown(cell, "text/html")]
    return page.html(figures.split_front(shown[0]).html) if shown else []
