"""What the extensions beside this file share: a directive is a function that shows what it computes on a page."""

import inspect
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

WORDS = yaml.safe_load(Path(__file__).with_name("words.yml").read_text(encoding="utf8"))


class Page(SphinxDirective):
    """The place of a directive on a page, and the ways to write there."""

    final_argument_whitespace = True

    def run(self):
        """What the directive's function shows; a warning where it finds no file or no row."""
        try:
            return self.show(*self.arguments, **self.options)
        except (FileNotFoundError, ValueError) as missing:
            raise self.warning(str(missing)) from missing

    def reads(self, *paths):
        """Build the page again when one of these files has changed."""
        for path in paths:
            self.env.note_dependency(str(path))

    def html(self, text):
        """Nodes of HTML."""
        return [nodes.raw("", text, format="html")]

    def markdown(self, *lines):
        """Nodes of some lines of Markdown."""
        return self.parse_text_to_nodes("\n".join(lines))

    def inline(self, text):
        """A paragraph of inline Markdown."""
        return nodes.paragraph("", "", *self.state.inline_text(text, self.lineno)[0])

    def table(self, head, body, widths):
        """A table of inline Markdown; None continues the cell above."""
        group = nodes.tgroup("", *(nodes.colspec(colwidth=w) for w in widths), cols=len(head))
        group += nodes.thead("", self.row([head], 0))
        group += nodes.tbody("", *(self.row(body, i) for i in range(len(body))))
        return nodes.table("", group, classes=["colwidths-given"])

    def row(self, rows, i):
        """Row `i` as a node."""
        row = nodes.row()
        for column, text in enumerate(rows[i]):
            if text is not None:
                more = next((j for j, r in enumerate(rows[i + 1 :]) if r[column] is not None), len(rows) - i - 1)
                row += nodes.entry("", self.inline(text), **({"morerows": more} if more else {}))
        return row


def shares(first, others):
    """Widths of the columns of a table: that of the first, in per cent, and equal ones of some others."""
    return [first, *[(100 - first) // others] * others]


def add(app, *functions):
    """Add a directive for each function, under its name, with its arguments; those after * are options."""
    for show in functions:
        _, *given = inspect.signature(show).parameters.values()
        options = {each.name: str for each in given if each.kind is each.KEYWORD_ONLY}
        own = {"show": show, "required_arguments": len(given) - len(options), "option_spec": options}
        app.add_directive(show.__name__.replace("_", "-"), type(show.__name__, (Page,), own))
