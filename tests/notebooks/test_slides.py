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
        "# 1. Circles\n\n| | |\n| --- | --- |\n| **You will learn** | to draw; to look |",
        "## The equations\n\nWe draw. As here,\n\n$$a < b \\tag{C 1}$$\n\nwhere $a$ is it. Not said. And here, $$c$$"
        " A is c. B too. So is\n$$d$$ as\n\n$$\ne\n$$ and $f$ is $g$. Then more. And more.",
        "## By hand\n\nNow.",
        "## Experiment: a circle is round\n\nIt has a radius.\n\n**Predict.** How *round*\nis it?\n\nWe draw.",
        "**What to see.** All of it.\n\nAnd $r$.",
        "## Recap\n\n| | FedAvg |\n| --- | --- |\n| sends | $\\theta_k$ |\n\n**Read on.** Elsewhere.",
    ]
    cells = [new.new_markdown_cell(t) for t in text]
    shown = new.new_output("display_data", {"image/svg+xml": SVG})
    cells.insert(4, new.new_code_cell("plt.show()", metadata={"mystnb": FIGURE}, outputs=[shown], id="fig"))
    code = [
        "def one():\n    return 1",
        "def two(a):\n    b = a\n    return b < 2",
        "def three():\n    x = 1\n    return x",
    ]
    cells.insert(3, new.new_code_cell("\n\n\n".join(code)))
    return new.new_notebook(cells=cells)


def test_a_deck_has_all_parts(chapter):
    deck = slides.deck(chapter)
    found = re.findall(r"<section>(.*?)</section>", deck, re.S)
    headings = [re.search(r"<h[12]>(.*?)</h", s)[1] for s in found]
    steps = ["Predict, 1", "Experiment: a circle is round"]
    assert headings == ["1. Circles", "The equations", "The equations", "The algorithm", *steps, "Recap"]
    assert "<li>to draw</li>" in found[0] and "<li>to look</li>" in found[0]
    assert "As here," in found[1] and r"\[a &lt; b \tag{C 1}\]" in found[1] and " is it. Not said." in found[1]
    assert "We draw" not in found[1] and found[1].count("And here,") == 1 and "So is" in found[1]
    assert r"\[e" in found[2] and ". Then more." in found[2] and "And more" not in found[2]
    assert "def two(a):" in found[3] and "b &lt; 2" in found[3] and "def three" in found[3] and "one" not in found[3]
    assert found[4].index("It has a radius.") < found[4].index("We draw") < found[4].index("How <em>round</em>\nis it?")
    assert "round</h2>" not in found[4], "the heading of an experiment may say what comes out"
    assert 'alt="A &quot;round&quot; circle."' in found[5] and "Was your guess right?" in found[5]
    later, notes = (re.search(rf"<{tag}>(.+?)</", found[5], re.S)[1] for tag in ('div class="later"', "aside"))
    assert "All of it." in later and r"\(r\)" in notes and "All of it" not in notes
    assert "<th>FedAvg</th>" in found[6] and "Read on" not in deck


def test_a_deck_asks_nobody_for_anything(chapter):
    deck = slides.deck(chapter)
    assert "default-src 'none'" in deck and len(deck) < 1_000_000
    page = re.sub(r"<script>.*?</script>", "", deck, flags=re.S)
    assert set(re.findall(r'(?:src|href)="(\w+:)', page)) == {"data:"} and "@import" not in page
    packed = re.search(r'atob\("([\w+/=]+)"\)', deck)[1]
    assert b"MathJax" in gzip.decompress(base64.b64decode(packed))
    assert deck.count("</script>") == 1


def test_a_long_set_up_is_cut_at_its_beginning():
    words, question = slides._question(f"{'many ' * slides.SETUP}\n\nThe rest.\n\n**Predict.** What?")
    assert (words, question) == ("The rest.", "What?")
    assert slides._question("Nothing.") == ("Nothing.", "")


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
