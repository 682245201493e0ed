"""Figures are numbered by chapter, as Figure 4.2; on a page that is no chapter they count from 1.

Sphinx numbers by the place in the table of contents, where parts and pages without a number stand between chapters.
Figures that a reader can move have a caption and a number as well; the map of the book has none.
"""

import html
import re

from docutils import nodes

MOVING = re.compile(r'<figure class="fedlib" data-fedlib="(?!places)')
CAPTION = re.compile(r"<figcaption>(.*?)</figcaption>", re.S)


def frame(app, doctree):
    """Make each figure that moves a figure of Sphinx's, with the caption that it has brought along."""
    moving = [raw for raw in doctree.findall(nodes.raw) if MOVING.search(raw.astext())]
    for i, raw in enumerate(moving, 1):
        text = raw.astext()
        caption = CAPTION.search(text)
        inner = nodes.raw("", text.replace(caption[0], "", 1), format="html")
        words = html.unescape(re.sub(r"<[^>]+>", "", caption[1]))
        raw.replace_self(nodes.figure("", inner, nodes.caption("", words), ids=[f"moving-{i}"], classes=["moving"]))


def number(app, env):
    """Number the figures of each page anew, after Sphinx has numbered them through the book."""
    for doc, kinds in env.toc_fignumbers.items():
        chapter = re.match(r"(\d+)\.", env.titles[doc].astext())
        first = (int(chapter[1]),) if chapter else ()
        for kind, numbers in kinds.items():
            kinds[kind] = {name: (*first, i) for i, name in enumerate(numbers, 1)}
    return []
