"""The slide decks, made from a tiny chapter."""

import base64
import gzip
import re

import nbformat
import pytest

from tools import notebooks, slides

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 3"><circle r="1"/></svg>'
DRAWING = (
    '<figure class="fedlib" data-fedlib="moves"><style>p {}</style><svg viewBox="0 0 3 3"></svg>'
    "<figcaption>It rolls.</figcaption><details>Numbers.</details><script>roll()</script></figure>"
)
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


def test_what_is_long_goes_on_on_another_slide(chapter, monkeypatch):
    """Of the functions, the shortest are left out; no paragraph is cut, and no table leaves the words before it."""
    monkeypatch.setattr(slides, "CODE", 10)
    monkeypatch.setattr(slides, "LINES", 4)
    algorithm = [plain(s) for s in sections(chapter) if "The algorithm" in s]
    assert ["def two(a):" in s for s in algorithm] == ["three" not in s for s in algorithm] == [True, False]
    assert all(f"<small>{i}/2</small>" in s for i, s in enumerate(algorithm, 1)) and "def one" not in "".join(algorithm)
    assert slides._pages("One two.\n\nThree.\n\nFour.", 3) == ["One two.\n\nThree.", "Four."]
    assert slides._pages("One.\n\n| a |\n| - |\n\nand $x$.\n\nTwo.", 1) == ["One.\n\n| a |\n| - |\n\nand $x$.", "Two."]
    assert slides._pages("So\n\n$$x$$\n\nTwo.", slides.EQUATION) == ["So\n\n$$x$$", "Two."]
    rows = [f"| {i} |\n" for i in range(slides.ROWS + 1)]
    first, second = slides._pages(f"A table.\n\n| a |\n| - |\n{''.join(rows)}", 9)
    assert first.count("\n| ") == second.count("\n| ") == 2 + len(rows) / 2


def test_the_idea_has_its_drawings_and_the_words_around_them(chapter):
    """A figure that moves stands still; words that are too many for the figure's slide go before it."""
    new = nbformat.v4
    output = new.new_output("execute_result", {"text/html": DRAWING})
    cells = [new.new_markdown_cell("## The idea in a picture\n\nA circle has no corner.")]
    told = new.new_notebook(cells=[chapter.cells[0], *cells, *chapter.cells[1:]])
    assert "no corner" in sections(told)[2]
    cells += [new.new_code_cell("draw", outputs=[output]), new.new_markdown_cell("In the upper half, an arc.")]
    told = new.new_notebook(cells=[chapter.cells[0], *cells, *chapter.cells[1:]])
    idea = sections(told)[2]
    assert idea.index("no corner") < idea.index('<svg viewBox="0 0 3 3">') < idea.index("It rolls.")
    assert "upper half" in sections(told)[3] and "What do you see?" not in idea
    assert "roll()" not in idea and "Numbers" not in idea and 'class="beside"' in idea
    cells[0].source += " many" * slides.ABOVE
    before, idea = sections(told)[2:4]
    assert "no corner" in before and "no corner" not in idea and "<small>2/3</small>" in idea


def test_a_function_that_the_idea_names_is_shown(chapter):
    new = nbformat.v4
    cells = [new.new_markdown_cell("## The idea in a picture\n\nA line (by `bent`) meets itself.")]
    cells += [new.new_code_cell("def bent():\n    pass\n\n\ndef other():\n    pass")]
    told = sections(new.new_notebook(cells=[chapter.cells[0], *cells, *chapter.cells[1:]]))
    assert "A line meets itself." in told[2]
    (algorithm,) = (plain(s) for s in told if "The algorithm" in s)
    assert algorithm.index("def bent") < algorithm.index("Now.") < algorithm.index("def one")
    assert "other" not in algorithm


def test_a_set_up_without_a_question_is_above_the_figure(chapter):
    chapter.cells[4].source = "## Experiment: a circle\n\nIt has a radius."
    figure = sections(chapter)[4]
    assert figure.index("It has a radius.") < figure.index("What do you see?") and "guess" not in figure


def test_the_answer_is_what_to_see_or_what_follows():
    assert slides._seen("**What to see.** All.\n\nMore.", False) == ("All.", "More.")
    assert slides._seen("In short.", False) == ("In short.", "")
    assert slides._seen("In short.", True) == ("", "In short."), "it leads to the question that follows"
    assert slides._seen("**A rule** is next.", False) == ("", "**A rule** is next.")
    assert slides._question("One.\n\n**Predict.** Two?\n\nThree.") == ("One.\n\nThree.", "Two?")


def test_links_lead_to_published_pages(chapter):
    assert re.findall(r'<a href="([^"]+)"', slides.deck(chapter)) == [f"{notebooks.ADDRESS}book/atlas.html"]


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
