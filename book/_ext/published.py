"""How pages are found and opened: links to Colab, the slides and the PDF, a description, a map of the site.

sphinxext-opengraph alone would take the first 200 characters as the description, whatever stands there. The map and the
page 404 are templates in book/_templates, for which no further package is asked.
"""

import re
from html import escape
from pathlib import Path

from docutils import nodes

from book._ext.directives import WORDS
from tools import badges

ENOUGH, MOST = 60, 200  # characters of a description


def button(app, doctree):
    """Put a button that opens a chapter on Colab below its title, and let the search know its other names."""
    folder, _, chapter = app.env.docname.rpartition("/")
    title = next(iter(doctree.findall(nodes.title)), None)
    if folder == "notebooks" and title is not None:
        html = WORDS["links"].format(colab=escape(badges.colab(chapter, badges.repository())), chapter=chapter)
        title.parent.insert(title.parent.index(title) + 1, nodes.raw("", html, format="html"))
        if synonyms := WORDS["synonyms"].get(chapter):
            doctree += nodes.meta("", name="keywords", content=synonyms)


def description(doctree):
    """The first sentences of a page's running text, until they say enough; nothing where it has no such text."""
    text = ""
    running = (p.astext() for p in doctree.findall(nodes.paragraph) if isinstance(p.parent, nodes.section))
    for paragraph in running:
        plain = " ".join(re.sub(r"\s*\[[^]]*\]", "", paragraph).split())
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", plain):
            text = f"{text} {sentence}".strip()
            if len(text) > ENOUGH:
                return text if len(text) <= MOST else f"{text[:MOST].rsplit(' ', 1)[0]} …"
    return text


def describe(app, pagename, templatename, context, doctree):
    """Give a page its description, before sphinxext.opengraph would take the first 200 characters."""
    if pagename == app.config.root_doc:
        context["docstitle"] = ""  # else its title would stand there twice
    text = description(doctree) if doctree else ""
    if text and "og:description" not in (context["meta"] or {}):
        context["meta"] = {**(context["meta"] or {}), "og:description": escape(text)}
        context["metatags"] += f'<meta name="description" content="{escape(text)}" />\n'


def write_sitemap(app, error):
    """List the addresses of all pages in sitemap.xml, as search engines ask for it."""
    if not error and app.builder.format == "html":
        pages = sorted(app.config.html_baseurl + app.builder.get_target_uri(doc) for doc in app.env.found_docs)
        text = app.builder.templates.render("sitemap.xml", {"pages": pages})
        Path(app.outdir, "sitemap.xml").write_text(text, encoding="utf8")
