"""The pages with the papers' figures beside ours show every row once, and what the files say when they are built."""

import re
import runpy
from types import SimpleNamespace

import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from book._ext import directives
from book.experiments import verdicts
from tools import notebooks

ROOT = notebooks.ROOT
EXTENSION = SimpleNamespace(**runpy.run_path(str(ROOT / "book/_ext/reproduction.py")))
DIRECTIVE = re.compile(r"```\{beside-ours\} (\w+) (\w+)\n(?::dataset: (\w+)\n)?```")


def test_each_published_figure_stands_on_its_papers_page_once():
    """And no cell of a table is typed in."""
    shown, rows = [], verdicts.read()
    for paper in EXTENSION.NAMES:
        text = (ROOT / f"book/reproduction/{paper}.md").read_text(encoding="utf8")
        found = DIRECTIVE.findall(text)
        assert len(found) == text.count("{beside-ours}") and {p for p, *_ in found} == {paper}
        assert not re.search(r"^\|", text, re.M) and "±" not in text
        shown += found
    for row in rows.itertuples():
        fits = [(p, t, d) for p, t, d in shown if (p, t) == (row.paper, row.table) and d in ("", row.dataset)]
        assert len(fits) == 1, (row.paper, row.table, row.dataset)
    assert sum(len(EXTENSION.beside(p, t, d or None)[1]) for p, t, d in shown) == len(rows)


def test_the_count_is_that_of_the_results_alone():
    page = SimpleNamespace(reads=lambda *_: None, table=lambda head, body, _: (head, body), inline=str)
    (head, body), told = EXTENSION.verdict_counts(page)
    rows = verdicts.read()
    results = rows[rows["method"] != "data"]
    assert head[1:-1] == list(verdicts.WORDS)
    assert body[-1][1:] == [*(str((results["verdict"] == w).sum()) for w in verdicts.WORDS), str(len(results))]
    for i in range(1, len(head)):
        assert sum(int(line[i]) for line in body[:-1]) == int(body[-1][i])
    assert all(int(line[-1]) == sum(map(int, line[1:-1])) for line in body)
    number, *kinds = map(int, re.findall(r"\d+", told))
    assert number == sum(kinds) == len(rows) - len(results)


def test_every_metric_and_labelled_row_has_words():
    assert set(verdicts.read()["metric"]) == set(EXTENSION.WORDS["metrics"])
    labelled = runpy.run_path(str(ROOT / "book/_ext/pages.py"))["labelled"]
    assert labelled("FedCG, paper, D = 4 | FedCG as printed") == ("FedCG as printed", "FedCG, paper, D = 4")
    assert labelled("FedAvg") == ("FedAvg", "FedAvg")


def test_a_table_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="no rows of cfl, figure4"):
        EXTENSION.beside("cfl", "figure4")


def test_what_was_not_run_has_no_column_for_ours(monkeypatch):
    table = verdicts.table()
    monkeypatch.setattr(verdicts, "table", lambda: table.assign(ours="", file=""))
    head, body, widths, files = EXTENSION.beside("fedsgcnn", "table5", "Wine")
    assert "Ours" not in head and files == [] and len(body) == 10
    assert {len(line) for line in body} == {len(head)} == {len(widths)}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A page with both directives, built."""
    source = tmp_path_factory.mktemp("source")
    page = "# A page\n\n```{verdict-counts}\n```\n\n```{beside-ours} cfl figure3\n```\n\n```{readings}\n```\n"
    page += "\n```{figure-3}\n:caption: What is seen.\n:alt: Two panels.\n```\n"
    (source / "index.md").write_text(page, encoding="utf8")
    settings, out = {"extensions": ["myst_parser"], "html_theme": "basic"}, source / "out"
    shown = (getattr(EXTENSION, name) for name in ("beside_ours", "figure_3", "verdict_counts", "readings"))
    with docutils_namespace():
        app = Sphinx(source, None, out, source / "trees", "html", settings, status=None, warningiserror=True)
        directives.add(app, *shown)
        app.build()
    return app, re.sub(r"\s+", " ", (out / "index.html").read_text(encoding="utf8"))


def test_the_page_shows_what_the_files_say(built):
    _, html = built
    rows = verdicts.table()
    for row in rows[rows["paper"] == "cfl"].itertuples():
        line = next(tr for tr in re.findall(r"<tr.*?</tr>", html) if row.setting in tr)
        cells = [re.sub(r"<.*?>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", line)]
        assert cells[1:4] == [row.published, row.ours or "–", row.verdict]
    assert "cfl_figure3.json" in html and "best round of each cluster" in html and "25 more rows" in html


def test_the_page_is_built_again_when_a_file_has_changed(built):
    app, _ = built
    read = {str(path).rpartition("/")[2] for path in app.env.dependencies["index"]}
    assert read == {"published.csv", "verdicts.csv", "cfl_figure3.json", "cfl_figure3_torn.json", "fedsgcnn_paper.json"}
