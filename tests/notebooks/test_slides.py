"""The slide decks, made from a tiny chapter."""

import base64
import gzip
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
        "# 1. Circles\n\nThey are round.\n\n| | |\n| --- | --- |\n| **You will learn** | to draw; to look |",
        "## The equations\n\nWe draw. As here,\n\n$$a < b \\tag{C 1}$$\n\nwhere $a$ is it. Not said. And here, $$c$$"
        " A is c. B too.\n\nSo is\n$$d$$ as\n\n$$\ne\n$$ and $f$ is $g$. Then more. And more.",
        "## By hand\n\nNow.",
        "## Experiment: a circle is round\n\nIt has a radius.\n\n**Predict.** How *round*\nis it?\n\nWe draw.",
        "**What to see.** All of it.\n\nAnd $r$.",
        "## What holds, and what does not\n\nA table.\n\n**It is round.** Always. Nearly. Never.\n\nMore.",
        "## Recap\n\n| | FedAvg |\n| --- | --- |\n| sends | $\\theta_k$ |\n"
        "| more | [here](../book/atlas.md) |\n\n**Read on.** Elsewhere.",
    ]
    cells = [new.new_markdown_cell(t) for t in text]
    shown = new.new_output("display_data", {"image/svg+xml": SVG})
    cells.insert(4, new.new_code_cell("plt.show()", metadata={"mystnb": FIGURE}, outputs=[shown], id="fig"))
    one, two = "def one():\n    return 1", "def two(a):\n    b = a\n    return b < 2"
    cells.insert(3, new.new_code_cell(f"{one}\n\n\n{two}\n\n\ndef three():\n    x = 1\n    return x"))
    return new.new_notebook(cells=cells)


def plain(text):
    """Without the colours of code."""
    return re.sub("</?span[^>]*>", "", text)


def sections(chapter):
    return re.findall(r"<section>(.*?)</section>", slides.deck(chapter), re.S)


def test_a_deck_has_all_parts(chapter):
    deck = slides.deck(chapter)
    found = re.findall(r"<section>(.*?)</section>", deck, re.S)
    headings = [re.search(r"<h[12]>(.*?)</h", s)[1] for s in found]
    first, last = ["1. Circles", "The equations", "The algorithm"], ["What holds, and what does not", "Recap"]
    assert headings == [*first, "Predict, 1", "Experiment: a circle is round", *last]
    assert all(words in found[0] for words in ("They are round.", "<li>to draw</li>", "<li>to look</li>"))
    assert "As here," in found[1] and r"\[a &lt; b \tag{C 1}\]" in found[1] and " is it. Not said." in found[1]
    assert found[1].count("And here,") == 1 and "So is" in found[1]
    assert r"\[e" in found[1] and ". Then more." in found[1]
    assert all(function in plain(found[2]) for function in ("def one():", "def two(a):", "b &lt; 2", "def three"))
    assert found[3].index("It has a radius.") < found[3].index("We draw") < found[3].index("How <em>round</em>\nis it?")
    assert "round</h2>" not in found[3], "the heading of an experiment may say what comes out"
    assert 'alt="A &quot;round&quot; circle."' in found[4] and "Was your guess right?" in found[4]
    later, notes = (re.search(rf"<{tag}>(.+?)</", found[4], re.S)[1] for tag in ('div class="later"', "aside"))
    assert '<figcaption class="later">' in found[4], "it may say what was asked"
    assert "All of it." in later and r"\(r\)" in notes and "All of it" not in notes
    assert "Always." in found[5] and "Never" not in found[5] and "More" not in found[5]
    assert "<th>FedAvg</th>" in found[6] and "Read on" not in deck


def test_what_is_long_is_divided_or_shortened(chapter, monkeypatch):
    """Equations go to a second slide, and the shortest functions go."""
    monkeypatch.setattr(slides, "EQUATIONS", 12)
    monkeypatch.setattr(slides, "CODE", 10)
    found = sections(chapter)
    assert "And here," in found[1] and r"\[e" in found[2] and "So is" in found[2]
    assert "one" not in found[3] and "def two(a):" in plain(found[3]) and "def three" in plain(found[3])
    monkeypatch.setattr(slides, "LINES", 4)
    found = sections(chapter)
    assert "def two(a):" in plain(found[3]) and "three" not in found[3] and "def three" in plain(found[4])


def test_the_idea_has_a_slide_once(chapter):
    """Its figure's, or one of its words."""
    idea = nbformat.v4.new_markdown_cell("## The idea in a picture")
    after = nbformat.v4.new_markdown_cell("A circle has no corner.")
    figure = {**next(c for c in chapter.cells if c.id == "fig"), "id": "idea-fig"}
    for cells, said in ((after,), True), ((nbformat.from_dict(figure), after), False):
        told = nbformat.v4.new_notebook(cells=[chapter.cells[0], idea, *cells, *chapter.cells[1:]])
        found = sections(told)
        assert ("<h2>The idea</h2>" in found[1] and "no corner" in found[1]) == said
        assert ("<h2>The idea in a picture</h2>" in found[1]) != said


def test_a_set_up_without_a_question_is_beside_the_figure(chapter):
    chapter.cells[4].source = "## Experiment: a circle\n\nIt has a radius."
    found = sections(chapter)
    assert found[3].index("It has a radius.") < found[3].index("What do you see?") and "guess" not in found[3]


def test_links_lead_to_published_pages(chapter):
    assert re.findall(r'<a href="([^"]+)"', slides.deck(chapter)) == [f"{notebooks.ADDRESS}book/atlas.html"]


def test_a_deck_asks_nobody_for_anything(chapter):
    deck = slides.deck(chapter)
    assert "default-src 'none'" in deck and len(deck) < 1_100_000
    page = re.sub(r"<script>.*?</script>", "", deck, flags=re.S)
    assert set(re.findall(r'src="(\w+:)', page)) == {"data:"} and "@import" not in page
    packed = re.search(r'atob\("([\w+/=]+)"\)', deck)[1]
    assert b"MathJax" in gzip.decompress(base64.b64decode(packed))
    assert deck.count("</script>") == 1


def test_a_long_set_up_loses_its_middle():
    words, question = slides._question(f"First.\n\n{'many ' * slides.SETUP}\n\nThe rest.\n\n**Predict.** What?")
    assert (words, question) == ("First.\n\nThe rest.", "What?")
    assert slides._question("Nothing.") == ("Nothing.", "")
    assert slides._question("One.\n\n**What to see.** All.\n\n**Predict.** Two?") == ("One.", "Two?")


def test_a_chapter_without_figures_or_parts_is_refused(chapter):
    chapter.cells[5].outputs = []
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
