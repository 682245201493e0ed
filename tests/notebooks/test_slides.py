"""The slide decks, made from a tiny chapter."""

import re

import nbformat
import pytest

from tools import notebooks, slides

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><circle r="1"/></svg>'
FIGURE = {"figure": {"caption": "A *circle* with $r < 2$.", "name": "fig:c"}, "image": {"alt": 'A "round" circle.'}}


@pytest.fixture
def chapter():
    new = nbformat.v4
    text = [
        "# 1. Circles\n\n| | |\n| --- | --- |\n| **You will learn** | to draw; to look |",
        "## The equations\n\nAs here,\n\n$$a < b \\tag{C 1}$$\n\nand here, $$c$$ and $$d$$\n\n$$\ne\n$$",
        "## Experiment\n\n**Predict.** How *round*\nis it?\n\nWe draw.",
        "**What to see.** All of it.\n\nAnd $r$.",
        "## Recap\n\n| | FedAvg |\n| --- | --- |\n| sends | $\\theta_k$ |\n\n**Read on.** Elsewhere.",
    ]
    cells = [new.new_markdown_cell(t) for t in text]
    shown = new.new_output("display_data", {"image/svg+xml": SVG})
    cells.insert(3, new.new_code_cell("plt.show()", metadata={"mystnb": FIGURE}, outputs=[shown], id="fig"))
    return new.new_notebook(cells=cells)


def test_a_deck_has_all_parts(chapter):
    deck = slides.deck(chapter)
    found = re.findall(r"<section>(.*?)</section>", deck, re.S)
    steps = [f"Experiment: {step}" for step in ("predict", "look", "discuss")]
    headings = [re.search(r"<h[12]>(.*?)</h", s)[1] for s in found]
    assert headings == ["1. Circles", "You will learn", "The equations", "The equations", *steps, "Recap"]
    assert "<li>to draw</li>" in found[1] and "<li>to look</li>" in found[1]
    assert r"\[a &lt; b \tag{C 1}\]" in found[2] and r"\[e" in found[3]
    assert "How <em>round</em>\nis it?" in found[4] and "We draw" not in deck
    assert 'alt="A &quot;round&quot; circle."' in found[5] and "<em>circle" not in found[5], "first look"
    assert r"A <em>circle</em> with" in found[6] and r"\(r &lt; 2\)" in found[6]
    notes = re.search(r"<aside>(.+?)</aside>", found[6], re.S)[1]
    assert "All of it." in notes and r"\(r\)" in notes
    assert "<th>FedAvg</th>" in found[7] and "Read on" not in deck


def test_a_deck_asks_nobody_for_anything(chapter):
    deck = slides.deck(chapter)
    assert "default-src 'none'" in deck
    page = re.sub(r"<script>.*?</script>", "", deck, flags=re.S)
    assert set(re.findall(r'(?:src|href)="(\w+:)', page)) == {"data:"} and "@import" not in page
    assert deck.count("</script>") == 2, "MathJax's own text does not end its script early"


def test_a_chapter_without_figures_or_parts_is_refused(chapter):
    chapter.cells[3].outputs = []
    with pytest.raises(ValueError, match="cell fig shows no SVG"):
        slides.deck(chapter)
    del chapter.cells[-1]
    with pytest.raises(ValueError, match='no section "Recap"'):
        slides.deck(chapter)


def test_every_chapter_is_made_and_a_missing_run_is_named(chapter, tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="make book"):
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
    assert "\\tag{" in deck and deck.count("<figure>") >= 3
    assert "$" not in re.sub(r"<script>.*?</script>", "", deck, flags=re.S), "a formula that was not read"
