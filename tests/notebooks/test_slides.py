"""The slide decks, made from a tiny chapter."""

import base64
import gzip
import re

import nbformat
import pytest

from tools import notebooks, slides

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 3"><circle r="1"/></svg>'
TABLE = (
    "<style>p {}</style><table><thead><tr><th>radius</th></tr></thead><tbody><tr><td>1 ± 0</td></tr></tbody></table>"
)
FIGURE = {"figure": {"caption": "A *circle* with $r < 2$.", "name": "fig:c"}, "image": {"alt": 'A "round" circle.'}}


@pytest.fixture
def chapter():
    new = nbformat.v4
    text = [
        "# 1. Circles\n\nThey are round. They roll. So?\n\n"
        "| | |\n| --- | --- |\n| **You will learn** | to draw; to look |",
        "## The equations\n\nWe draw. As here,\n\n$$a < b \\tag{C 1}$$\n\nwhere $a$ is it.\n\n"
        "So is\n\n$$\ne\n$$\n\nand $f$.",
        "## By hand\n\nNow (with `one`).",
        "## Experiment: a circle is round\n\nIt has a radius.\n\n**Predict.** How *round*\nis it?\n\nWe draw.",
        "**What to see.** All of it.\n\nAnd $r$.",
        "## What holds, and what does not\n\nA table.",
        "**It is round.** Always. Nearly. Here are both:\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\nMore.",
        "## Exercises\n\n**Exercise 1 (build).** Round it is. Is it? Then two.",
        "## Recap\n\n| | FedAvg |\n| --- | --- |\n| sends | $\\theta_k$ |\n"
        "| more | [here](../book/atlas.md) |\n\n**Read on.** Elsewhere.",
    ]
    cells = [new.new_markdown_cell(t) for t in text]
    cells.insert(6, new.new_code_cell("table", outputs=[new.new_output("execute_result", {"text/html": TABLE})]))
    shown = new.new_output("display_data", {"image/svg+xml": SVG})
    cells.insert(4, new.new_code_cell("plt.show()", metadata={"mystnb": FIGURE}, outputs=[shown], id="fig"))
    code = [
        "def one():\n    return 1",
        "def two(a):\n    b = a\n    return b < 2",
        "def three():\n    x = 1\n    return x",
    ]
    cells.insert(3, new.new_code_cell("\n\n\n".join(code)))
    return new.new_notebook(cells=cells)


def sections(notebook):
    """The slides of its deck."""
    return re.findall(r"<section>(.*?)</section>", slides.deck(notebook), re.S)


def plain(text):
    """Without the colours of code."""
    return re.sub("</?span[^>]*>", "", text)


def test_a_deck_has_all_parts(chapter):
    found = sections(chapter)
    assert [re.search(r"<h[12]>(.*?)</h", s)[1] for s in found] == [
        "1. Circles",
        "What it is about",
        "The equations",
        "The algorithm",
        "Predict, 1",
        "Experiment: a circle is round",
        "What holds, and what does not",
        "Recap",
        "Exercises",
    ]
    title, about, equations, algorithm, predict, figure, holds, recap, exercises = found
    assert all(words in title for words in ("They are round. They roll.", "<li>to draw</li>", "<li>to look</li>"))
    assert "So?" in about and "So?" not in title
    assert "<p>Now.</p>" in algorithm
    assert "As here," in equations and r"\[a &lt; b \tag{C 1}\]" in equations and r"\(f\)" in equations
    assert all(function in plain(algorithm) for function in ("def one():", "def two(a):", "b &lt; 2", "def three"))
    assert predict.index("It has a radius.") < predict.index("We draw") < predict.index("How <em>round</em>\nis it?")
    assert "round</h2>" not in predict, "the heading of an experiment may say what comes out"
    assert "All of it." in predict.partition("<aside>")[2], "the answer is in the notes"
    shown, later, notes = re.fullmatch(
        r'(.+)<div class="later">(.+?)</div>.*<aside>(.+)</aside>.*', figure, re.S
    ).groups()
    assert 'aria-label="A &quot;round&quot; circle."' in shown and "Was your guess right?" in shown
    assert "All of it." in later and "<em>circle</em>" not in later, "the caption would say it twice"
    assert r"\(r\)" in notes and "All of it" not in notes
    assert holds.index("A table.") < holds.index("<th>radius</th>") < holds.index("<td>1\xa0±\xa00</td>")
    assert holds.index("Here are both:") < holds.index("<td>2</td>") < holds.index("More.")
    assert "<th>FedAvg</th>" in recap and "Read on" not in recap
    assert (
        "<strong>Build.</strong> Round it is. Is it? </p>" in exercises.replace("</p>", " </p>")
        and "<strong>Read on.</strong>" in exercises
    )


def test_a_deck_asks_nobody_for_anything(chapter):
    deck = slides.deck(chapter)
    assert "default-src 'none'" in deck and len(deck) < 1_100_000
    page = re.sub(r"<script>.*?</script>", "", deck, flags=re.S)
    assert not re.findall(r'src="(?!data:)', page) and "@import" not in page
    packed = re.search(r'atob\("([\w+/=]+)"\)', deck)[1]
    assert b"MathJax" in gzip.decompress(base64.b64decode(packed))
    assert deck.count("</script>") == 1


def test_a_chapter_without_figures_or_parts_is_refused(chapter):
    next(c for c in chapter.cells if c.id == "fig").outputs = []
    with pytest.raises(ValueError, match="cell fig shows no SVG"):
        slides.deck(chapter)
    del chapter.cells[-1]
    with pytest.raises(ValueError, match='no section "Recap"'):
        slides.deck(chapter)


def test_every_chapter_is_made_and_a_missing_run_is_named(chapter, tmp_path, monkeypatch, capsys):
    with pytest.raises(FileNotFoundError, match="make book"):
        slides.main(tmp_path, tmp_path / "out")
    monkeypatch.setattr(notebooks, "paths", lambda: [tmp_path / "01_circles.ipynb"])
    nbformat.write(chapter, tmp_path / "01_circles.ipynb")
    slides.main(tmp_path, tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["01_circles.html"]
    assert "print it" in capsys.readouterr().out


@pytest.mark.parametrize("path", notebooks.paths(), ids=lambda p: p.stem)
def test_every_chapter_has_what_its_slides_need(path):
    notebook = notebooks.read(path)
    for cell in notebooks.code_cells(notebook):
        cell.outputs = [nbformat.v4.new_output("display_data", {"image/svg+xml": SVG})]
    deck = slides.deck(notebook)
    assert "\\tag{" in deck and deck.count("<figure style") >= 3
    asked = [re.sub("<aside>.*", "", s, flags=re.S) for s in re.findall(r"<h2>Predict(.*?)</section>", deck, re.S)]
    assert asked and not [s for s in asked if "<code>" in s], "a class has not read the notebook's names"
    assert "$" not in re.sub(r"<script>.*?</script>", "", deck, flags=re.S), "a formula that was not read"
