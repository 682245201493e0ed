"""The pages with the papers' figures beside ours show every row once, and what the files say when they are built."""

import re
import runpy
import sys
from types import SimpleNamespace

import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from tools import notebooks, scoreboard

ROOT = notebooks.ROOT
sys.path.append(str(ROOT / "book/_ext"))
EXTENSION = SimpleNamespace(**runpy.run_path(str(ROOT / "book/_ext/reproduction.py")))
PAGES = ROOT / "book/reproduction"
DIRECTIVE = re.compile(r"```\{beside-ours\} (\w+) (\w+)\n(?::dataset: (\w+)\n)?```")


def test_each_published_figure_stands_on_its_papers_page_once():
    shown = []
    for paper in EXTENSION.NAMES:
        text = (PAGES / f"{paper}.md").read_text(encoding="utf8")
        found = DIRECTIVE.findall(text)
        assert len(found) == text.count("{beside-ours}") and {p for p, *_ in found} == {paper}
        shown += [(p, t, d) for p, t, d in found]
    rows = scoreboard.read()
    for row in rows.itertuples():
        fits = [(p, t, d) for p, t, d in shown if (p, t) == (row.paper, row.table) and d in ("", row.dataset)]
        assert len(fits) == 1, (row.paper, row.table, row.dataset)
    assert sum(len(EXTENSION.beside(p, t, d or None)[1]) for p, t, d in shown) == len(rows)


def test_no_verdict_is_written_by_hand():
    """Of a page, only the rule may name verdicts in bold, and no cell of a table is typed in."""
    for paper in EXTENSION.NAMES:
        text = (PAGES / f"{paper}.md").read_text(encoding="utf8")
        assert not re.search(r"^\|", text, re.M) and "±" not in text


def test_the_count_is_that_of_the_file():
    head, body = EXTENSION.counts()
    rows = scoreboard.read()
    assert head[1:-1] == list(scoreboard.WORDS)
    assert body[-1][1:] == [*(str((rows["verdict"] == w).sum()) for w in scoreboard.WORDS), str(len(rows))]
    for i in range(1, len(head)):
        assert sum(int(line[i]) for line in body[:-1]) == int(body[-1][i])
    assert all(int(line[-1]) == sum(map(int, line[1:-1])) for line in body)


def test_every_metric_has_words():
    assert set(scoreboard.read()["metric"]) == set(EXTENSION.METRICS)


def test_a_table_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="no rows of cfl, figure4"):
        EXTENSION.beside("cfl", "figure4")


def test_what_was_not_run_has_no_column_for_ours(monkeypatch):
    table = scoreboard.table()
    monkeypatch.setattr(scoreboard, "table", lambda: table.assign(ours="", file=""))
    head, body, widths, files = EXTENSION.beside("fedsgcnn", "table5", "Wine")
    assert "Ours" not in head and files == [] and len(body) == 10
    assert {len(line) for line in body} == {len(head)} == {len(widths)}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A page with both directives, built."""
    source = tmp_path_factory.mktemp("source")
    page = "# A page\n\n```{verdict-counts}\n```\n\n```{beside-ours} cfl figure3\n```\n"
    (source / "index.md").write_text(page, encoding="utf8")
    settings = {"extensions": ["myst_parser", "reproduction"], "html_theme": "basic"}
    out = source / "out"
    with docutils_namespace():
        app = Sphinx(source, None, out, source / "trees", "html", settings, status=None, warningiserror=True)
        app.build()
    return app, re.sub(r"\s+", " ", (out / "index.html").read_text(encoding="utf8"))


def test_the_page_shows_what_the_files_say(built):
    _, html = built
    rows = scoreboard.table()
    for row in rows[rows["paper"] == "cfl"].itertuples():
        line = next(tr for tr in re.findall(r"<tr.*?</tr>", html) if row.setting in tr)
        cells = [re.sub(r"<.*?>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", line)]
        assert cells[1:4] == [row.published, row.ours, row.verdict]
    assert "cfl_photos_some.json" in html and str(len(rows)) in html


def test_the_page_is_built_again_when_a_file_has_changed(built):
    app, _ = built
    names = {str(path).rpartition("/")[2] for path in app.env.dependencies["index"]}
    assert names == {"published.csv", "verdicts.csv", "cfl_photos_some.json"}
