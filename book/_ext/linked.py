"""In a chapter's text, the names of other chapters and of papers are links.

"Chapter 5" leads to that chapter, "Li et al. (2020)" and "Li et al., 2020" to the entry ``li2020`` of the bibliography.
On Colab they are plain words, so a notebook needs no addresses.
"""

import re

from docutils import nodes
from sphinx.util.nodes import make_refnode

CHAPTER = r"[Cc]hapter (\d+)"
AUTHOR = r"[A-Z][\w'’-]+"
PAPER = rf"({AUTHOR})(?:(?:, {AUTHOR})* and {AUTHOR}| et al\.),? (?:\((\d{{4}})\)|(\d{{4}})\b)"
NAMED = re.compile(rf"\b{CHAPTER}\b|\b{PAPER}")
CLOSED = (nodes.reference, nodes.literal, nodes.title, nodes.raw, nodes.math, nodes.math_block, nodes.literal_block)


def parts_of(text, place):
    """The text in pieces, with a link where `place` finds a page and an anchor for what is named."""
    end = 0
    for found in NAMED.finditer(text):
        if target := place(found):
            yield nodes.Text(text[end : found.start()])
            yield target(nodes.inline("", found[0]))
            end = found.end()
    yield nodes.Text(text[end:])


def link(app, doctree, docname):
    """Turn the names in a chapter into links."""
    if app.builder.format != "html" or not docname.startswith("notebooks/"):
        return
    chapters = {int(doc[10:12]): doc for doc in app.env.found_docs if doc.startswith("notebooks/")}
    papers = {c.key: (c.bibliography_key.docname, c.citation_id) for c in app.env.get_domain("cite").citations}

    def place(found):
        number, *named = found.groups("")
        doc, anchor = (chapters.get(int(number)), "") if number else papers.get("".join(named).lower(), ("", ""))
        return doc not in (None, "", docname) and (lambda shown: make_refnode(app.builder, docname, doc, anchor, shown))

    closed = {id(text) for node in doctree.findall() if isinstance(node, CLOSED) for text in node.findall(nodes.Text)}
    for text in [*doctree.findall(nodes.Text)]:
        if NAMED.search(text) and id(text) not in closed:
            text.parent.replace(text, [part for part in parts_of(text.astext(), place) if part.astext()])
