"""Sphinx extension: the modules beside this file, and when each of them does its part."""

from sphinx.roles import XRefRole

from book._ext import drawn, executed, linked, numbered, pages, published, reference, reproduction, selfhost, together
from book._ext.directives import add


def setup(app):
    """Connect all of them."""
    app.add_role("chapter", XRefRole())
    add(app, pages.paper_map, pages.data_sets, pages.stored, pages.front_map, pages.front_figure)
    add(app, pages.minutes_table, pages.hours_table, pages.exercise_table, reference.module_page, reference.modules)
    add(app, reproduction.beside_ours, reproduction.figure_3, reproduction.verdict_counts, reproduction.readings)
    app.connect("config-inited", reference.write_pages, priority=100)  # before the table of contents is read
    app.connect("builder-inited", selfhost.write_typefaces)
    app.connect("source-read", executed.swap)
    app.connect("doctree-read", numbered.frame)
    app.connect("doctree-read", published.button)
    app.connect("env-get-updated", numbered.number, priority=900)  # Sphinx's own numbering has 500
    app.connect("missing-reference", pages.resolve)
    for change in (drawn.draw, linked.link, together.keep):
        app.connect("doctree-resolved", change)
    app.connect("html-page-context", published.describe, priority=400)
    app.connect("html-page-context", reference.without_edit_button, priority=900)
    app.connect("build-finished", published.write_sitemap)
    app.connect("build-finished", selfhost.finish, priority=600)  # after the theme has written its files
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
