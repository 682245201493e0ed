"""Sphinx extension: links to a place in a chapter, and tables that are made of data files and of the library.

``{chapter}`10_fedcg_graph#Why``` leads to the heading "Why" of that notebook, or to the cell whose id is given: to its
figure if it draws one, else to the heading above it. ``paper-map`` is the table of one paper in ``book/paper``,
``data-sets`` the table of the data sets that fedlib knows, ``stored`` a table of a stored result. What is not there is
a warning, so the build fails.
"""

import csv
import json
import re
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.roles import XRefRole
from sphinx.util.nodes import make_refnode

HEADINGS = re.compile(r"^#+ (.+)$", re.M)


def rows_of(path):
    """Rows of a CSV file as dictionaries."""
    with Path(path).open(newline="", encoding="utf8") as file:
        return list(csv.DictReader(file))


def label(cell):
    """Name of the figure that a cell draws, if any."""
    return cell["metadata"].get("mystnb", {}).get("figure", {}).get("name")


def find(cells, place):
    """The heading at or above a place, which is a heading or the id of a cell, and the figure that the cell draws."""
    above = None
    for cell in cells:
        markdown = cell["cell_type"] == "markdown"
        headings = HEADINGS.findall("".join(cell["source"])) if markdown else []
        if place in headings:
            return place, None
        above = headings[0] if headings and cell["id"] == place else above
        if cell["id"] == place:
            return above, label(cell)
        above = headings[-1] if headings else above
    return None


def resolve(app, env, node, contnode):
    """The link of a ``chapter`` role."""
    if node["reftype"] != "chapter":
        return None
    name, _, place = node["reftarget"].partition("#")
    for doc in (f"notebooks/{name}", f"book/{name}"):
        if doc in env.found_docs:
            break
    else:
        return None
    title, heading, figure = env.titles[doc].astext().replace("’", "'"), place or None, None
    if place and doc.startswith("notebooks/"):
        cells = json.loads(Path(env.doc2path(doc)).read_text(encoding="utf8"))["cells"]
        heading, figure = find(cells, place) or ("", None)
    wanted = title if heading is None else re.sub(r"[*`$]", "", heading)
    links = reversed([*env.tocs[doc].findall(nodes.reference)])
    anchors = {a.astext().replace("’", "'"): a["anchorname"][1:] for a in links}  # Sphinx has made the quotes round
    # A figure without a label has not been drawn: its chapter has not been run.
    target = env.domains["std"].anonlabels.get(figure, (None, None))[1] if figure else anchors.get(wanted)
    if target is None:
        return None
    if not node["refexplicit"]:
        chapter = re.match(r"(\d+)\.", title)
        above = f"chapter {chapter[1]}" if chapter else title
        contnode = nodes.inline("", f"{above}: {heading}" if heading not in (None, title) else title)
    else:
        contnode = nodes.inline("", contnode.astext())
    return make_refnode(app.builder, node["refdoc"], doc, target, contnode)


class Table(Directive):
    """A table whose cells are inline Markdown; None continues the cell above."""

    def table(self, head, body, widths):
        """The table as a node."""
        group = nodes.tgroup("", *(nodes.colspec(colwidth=w) for w in widths), cols=len(head))
        group += nodes.thead("", self.row([head], 0))
        group += nodes.tbody("", *(self.row(body, i) for i in range(len(body))))
        return nodes.table("", group, classes=["colwidths-given"])

    def row(self, rows, i):
        """Row `i` as a node."""
        row = nodes.row()
        for column, text in enumerate(rows[i]):
            if text is None:
                continue
            more = next((j for j, r in enumerate(rows[i + 1 :]) if r[column] is not None), len(rows) - i - 1)
            inline, _ = self.state.inline_text(text, self.lineno)
            row += nodes.entry("", nodes.paragraph("", "", *inline), **({"morerows": more} if more else {}))
        return row


def function(name):
    """Link to a Python name."""
    return f"{{py:obj}}`{name.removeprefix('fedlib.').removeprefix('algorithms.')} <{name}>`"


def in_words(test):
    """The id of a test, so that it can be broken into lines: `test_graph.py: by hand`."""
    path, _, name = test.partition("::")
    return f"{Path(path).name}: {name.removeprefix('test_').replace('_', ' ')}"


class PaperMap(Table):
    """Where each equation, figure and table of one paper stands."""

    required_arguments = 1

    def run(self):
        """The table."""
        folder = Path(self.state.document.settings.env.srcdir, "book/paper")
        targets = {}
        for line in rows_of(folder / "map.csv"):
            targets.setdefault((line["paper"], line["kind"], line["number"]), []).append(line)
        body = []
        for item in rows_of(folder / "inventory.csv"):
            key = item["paper"], item["kind"], item["number"]
            if key[0] != self.arguments[0]:
                continue
            name = f"equation in {item['place']}" if key[2].startswith("u") else f"{key[1]} {key[2]}"
            for i, line in enumerate(targets[key]):
                where = f"{line['how']}: {{chapter}}`{line['chapter']}`. {line['note']}"
                names = ", ".join(map(function, line["target"].split()))
                tests = "; ".join(map(in_words, line["test"].split()))
                tested = f"tested in {tests}" if tests else ""
                what = None if i else f"**{name[0].upper()}{name[1:]}.** {item['what'][0].upper()}{item['what'][1:]}"
                body.append([what, where, f"{names} {tested}"])
        return [self.table(["In the paper", "In the book", "Function and test"], body, (36, 30, 34))]


class DataSets(Table):
    """What fedlib's data sets state about themselves."""

    def run(self):
        """The table."""
        from book.experiments import faces
        from fedlib import datasets

        every = {f"`{name}`": datasets.stats(name) for name in datasets.names()} | {"CelebA": faces.STATS}
        body = []
        for name, s in every.items():
            size = f"{s.rows:,}" + (f" and {s.test_rows:,}" if s.test_rows else "")
            task = f"{s.classes} classes" if s.classes else "regression"
            source = re.sub(r"https?://([^/ ]+)[^ ]*", r"[\1](\g<0>)", s.source)
            body.append([name, size, f"{' × '.join(map(str, s.shape))}, {task}", s.licence, source, s.note])
        head = ["Name", "Rows (train, test)", "A row, and the task", "Licence", "Source", "Note"]
        return [self.table(head, body, (16, 12, 15, 15, 15, 27))]


def labelled(text):
    """The label and the name of ``NAME | LABEL``; a name alone is its own label."""
    name, _, label = text.partition(" | ")
    return label or name, name


class Stored(Table):
    """Means of a stored result, with their intervals: for rows at a place of its figures, or at its top, some scores.

    The names of rows and of scores are separated by semicolons. ``NAME | LABEL`` shows a row or a score under a label.
    """

    required_arguments = 1
    option_spec: ClassVar = dict.fromkeys(("at", "rows", "scores"), str)

    def run(self):
        """The table."""
        from book import results

        named = (dict(map(labelled, re.split(r"; *", self.options[which]))) for which in ("rows", "scores"))
        rows, scores = named
        at = [self.options["at"]] if "at" in self.options else []
        means = results.table(self.arguments[0], {label: (*at, r) for label, r in rows.items()}, scores)
        body = [[row, *cells] for row, cells in zip(rows, means.to_numpy().tolist(), strict=True)]
        return [self.table(["", *scores], body, (28, *[72 // len(scores)] * len(scores)))]


def setup(app):
    """Connect the extension."""
    app.add_role("chapter", XRefRole())
    app.add_directive("paper-map", PaperMap)
    app.add_directive("data-sets", DataSets)
    app.add_directive("stored", Stored)
    app.connect("missing-reference", resolve)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
