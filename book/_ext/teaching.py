"""Sphinx extension: the computed tables of the teaching pages.

``minutes-table`` shows how long each chapter takes; ``hours-table`` shows how many hours a student needs;
``exercise-table`` lists the exercises of the chapter it names; ``deck-links`` and ``pdf-links`` lead to the downloads.
"""

import sys
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

sys.path.append(str(Path(__file__).parents[2]))
from tools import notebooks, teaching  # noqa: E402

log = logging.getLogger(__name__)


class Table(SphinxDirective):
    """A Markdown table, parsed where the directive stands."""

    def rows(self):
        """Lines of the table, and the files they come from."""
        raise NotImplementedError

    def run(self):
        """Nodes of the table."""
        try:
            lines, sources = self.rows()
        except FileNotFoundError as missing:
            log.warning("%s", missing, location=self.get_location())
            return []
        for source in sources:
            self.env.note_dependency(str(source))
        node = nodes.Element()
        self.state.nested_parse(StringList(lines, self.env.docname), self.content_offset, node)
        return node.children


class MinutesTable(Table):
    """Minutes, exercises and points of each chapter."""

    def rows(self):
        """As `Table.rows`."""
        executed = Path(self.env.app.srcdir, "_build/executed/notebooks")
        paths = notebooks.paths()
        return teaching.minutes_table(executed), [*paths, *(executed / p.name for p in paths)]


class HoursTable(Table):
    """Hours that each chapter takes a student, and all of them together."""

    def rows(self):
        """As `Table.rows`."""
        return teaching.hours_table(), notebooks.paths()


class ExerciseTable(Table):
    """The exercises of one chapter."""

    required_arguments = 1

    def rows(self):
        """As `Table.rows`."""
        path = notebooks.ROOT / f"notebooks/{self.arguments[0]}.ipynb"
        return teaching.exercise_table(path), [path, notebooks.ROOT / "tests/notebooks/wrong_answers.py"]


class Links(SphinxDirective):
    """Links to one download for each chapter, named by its number."""

    def run(self):
        """Nodes of a paragraph."""
        home = "../" * self.env.docname.count("/") + "downloads"
        place, more = ("slides/{}.html", []) if self.name == "deck-links" else ("{}.pdf", [("book", "the whole book")])
        found = [(p.stem, f"chapter {int(p.stem[:2])}") for p in notebooks.paths()] + more
        links = ", ".join(f'<a href="{home}/{place.format(stem)}">{words}</a>' for stem, words in found)
        hidden = "" if self.name == "deck-links" else " hidden"  # until `make pdf` has printed them
        return [nodes.raw("", f'<p class="{self.name}"{hidden}>{links}</p>', format="html")]


def setup(app):
    """Connect the extension."""
    app.add_directive("minutes-table", MinutesTable)
    app.add_directive("hours-table", HoursTable)
    app.add_directive("exercise-table", ExerciseTable)
    app.add_directive("deck-links", Links)
    app.add_directive("pdf-links", Links)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
