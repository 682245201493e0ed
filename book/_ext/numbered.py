"""Sphinx extension: figures are numbered by chapter, as Figure 4.2; on a page that is no chapter they count from 1.

Sphinx numbers by the place in the table of contents, where parts and pages without a number stand between chapters.
"""

import re


def number(app, env):
    """Number the figures of each page anew, after Sphinx has numbered them through the book."""
    for doc, kinds in env.toc_fignumbers.items():
        chapter = re.match(r"(\d+)\.", env.titles[doc].astext())
        first = (int(chapter[1]),) if chapter else ()
        for kind, numbers in kinds.items():
            kinds[kind] = {name: (*first, i) for i, name in enumerate(numbers, 1)}
    return []


def setup(app):
    """Connect the extension."""
    app.connect("env-get-updated", number, priority=900)  # Sphinx's own numbering has 500
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
