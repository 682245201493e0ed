"""The slide decks: one as it is rendered, and what holds for each, without running its chapter."""

import base64
import gzip
import re

import nbformat
import pytest
from refusals import refusals

from tools import notebooks, slides

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 3"><circle r="1"/></svg>'
TABLE = """<style>p {}</style><table border="1"><tr style="a: b"><th>mean</th><th>area</th><th>R2</th></tr>
<tr><th>disc</th><td>3</td><td>1 ± 0</td></tr><tr><th>ring</th><td>2</td><td>4</td></tr></table>"""
FIGURE = {"figure": {"caption": "A circle.", "name": "fig:c"}, "image": {"alt": 'A "round" circle.'}}
OUTPUTS = {"image/svg+xml": SVG, "text/html": TABLE}
DECK = """# 1. *Circles*\n\n```drawing 8 2\nA "square".\n<rect width="1"/>\n```\n\nAre they round?
---
## Where $r < 2$\n\n```figure fig:c 0 0.5 0.75 1\nAn *upper* half.\n```\n### Then\n\n- It is.\n### Notes\nSay so.
---
## Code\n\n```function two one 2\n```\n
```table fig\nIn *metres*.\ndisc | the disc\nR2 | $R^2$\n```\n"""
BLOCK = re.compile(r"```(\w+) ?([^\n]*)\n(.*?)```", re.S)


def chapter(sources, **outputs):
    """A notebook of these sources, each with some outputs."""
    new = nbformat.v4
    shown = [new.new_output("display_data", {kind: text}) for kind, text in outputs.items()]
    cells = [new.new_code_cell(s, metadata={"mystnb": FIGURE}, outputs=shown, id="fig") for s in sources]
    return new.new_notebook(cells=cells)


def circles():
    return chapter(["def one():\n    return 1 < 2\n\n\ndef two():\n    return 2"], **OUTPUTS)


def test_a_deck_is_rendered():
    title, figure, code = re.findall(r"<section>(.*?)</section>", slides.deck(DECK, circles()), re.S)
    assert "<h1>1. <em>Circles</em></h1>" in title and "1 of 3" in title
    assert r"\(r &lt; 2\)</span></h2>" in figure and "1. <em>Circles</em></span>" in figure
    drawing = re.search("<figure.*?</figure>", title, re.S)[0]
    assert 'viewBox="0 0 8 2"' in drawing and 'aria-label="A &quot;square&quot;."' in drawing
    assert "--ratio: 4" in drawing and '<rect width="1"/>' in drawing and drawing.count("square") == 1
    now, later = figure.split('<div class="later">')
    assert 'flex: 1.5" viewBox="0 0 9 1.5"' in now and 'flex: 0.75" viewBox="0 2.25 9 0.75"' in now
    assert "--ratio: 4.000" in now and 'class="under"' in now
    assert 'aria-label="A &quot;round&quot; circle."' in now and "<em>upper</em>" in now and "It is." not in now
    answer, notes = later.split("<aside>")
    assert "<li>It is.</li>" in answer and "Say so." not in answer and "Say so." in notes
    assert re.findall('<span style="background[^>]*>(.*?)\n', code)[0].count("return") == 1
    code = re.sub("</?span[^>]*>", "", code)
    assert code.index("def two") < code.index("def one") < code.index("1 &lt; 2")
    assert re.findall("<t[hd]>(.*?)</t[hd]>", code) == ["mean", r"\(R^2\)", "the disc", "1 ± 0"]
    assert "<figcaption>In <em>metres</em>.</figcaption>" in code and "<style>" not in code


LACKING = {
    "no cell or figure fig:d": lambda: slides.deck("# A\n\n```figure fig:d\n```\n", circles()),
    "no function three": lambda: slides.deck("# A\n\n```function three\n```\n", circles()),
    "figure t": lambda: slides.deck("# A\n\n```table t\n```\n", circles()),
    "no box": lambda: slides.deck("# A\n\n```table fig\nA.\nring | r\nbox | b\n```\n", circles()),
    "cell fig shows no SVG figure": lambda: slides.deck(DECK, chapter(["1"])),
}
test_what_a_chapter_lacks_is_named = refusals({ValueError: LACKING})


def test_a_deck_asks_nobody_for_anything():
    deck = slides.deck(DECK, circles())
    assert "default-src 'none'" in deck and len(deck) < 1_100_000 and deck.count("</script>") == 1
    page = re.sub(r"<script>.*?</script>", "", deck, flags=re.S)
    assert not re.findall(r'src="(?!data:)', page) and "@import" not in page
    packed = re.search(r'atob\("([\w+/=]+)"\)', deck)[1]
    assert b"MathJax" in gzip.decompress(base64.b64decode(packed))


def test_every_chapter_is_made_and_a_missing_run_is_named(tmp_path, monkeypatch, capsys):
    with pytest.raises(FileNotFoundError, match="make book"):
        slides.main(tmp_path, tmp_path / "out")
    monkeypatch.setattr(notebooks, "paths", lambda: [tmp_path / "01_circles.ipynb"])
    monkeypatch.setattr(slides, "DECKS", tmp_path)
    (tmp_path / "01_circles.md").write_text(DECK, encoding="utf8")
    nbformat.write(circles(), tmp_path / "01_circles.ipynb")
    slides.main(tmp_path, tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["01_circles.html"]
    assert "print it" in capsys.readouterr().out


def test_a_deck_belongs_to_each_chapter():
    assert sorted(p.stem for p in slides.DECKS.iterdir()) == [p.stem for p in notebooks.paths()]


@pytest.mark.parametrize("path", notebooks.paths(), ids=lambda p: p.stem)
def test_a_deck_keeps_its_limits(path):
    notebook, text = notebooks.read(path), (slides.DECKS / f"{path.stem}.md").read_text(encoding="utf8")
    labels = re.findall("^(.+) \\| ", "".join(b[2] for b in BLOCK.findall(text) if b[0] == "table"), re.M)
    table = "".join(f"<tr><th>{label}</th>{'<td>1</td>' * len(labels)}</tr>" for label in labels)
    table = f"<tr><th></th>{''.join(f'<th>{label}</th>' for label in labels)}</tr>{table}"
    for cell in notebooks.code_cells(notebook):
        shown = OUTPUTS if "mystnb" in cell.metadata else {"text/html": table + SVG}
        cell.outputs = [nbformat.v4.new_output("display_data", {kind: text}) for kind, text in shown.items()]
    deck = re.sub(r"<script>.*?</script>", "", slides.deck(text, notebook), flags=re.S)
    assert "$" not in deck, "a formula that was not read"
    assert all(code.count("\n") < 20 for code in re.findall(r"<pre[^>]*>(.*?)</pre>", deck, re.S))
    parts = text.split("\n---\n")
    assert 9 <= len(parts) <= 12 and all("\n### Notes\n" in part for part in parts)
    assert sum(part.startswith("## The algorithm") for part in parts) == 1
    asked = [i for i, part in enumerate(parts) if part.startswith("## Predict")]
    assert len(asked) >= 2 and all("\n> " in parts[i] and "\n### Then\n" in parts[i + 1] for i in asked)
    for part in parts:
        points = re.findall(r"^- (.+)$", re.sub(r"\$[^$]+\$", "x", part.partition("\n### Notes\n")[0]), re.M)
        assert len(points) <= 6 and all(len(point.split()) <= 14 for point in points)
    sources = "\n".join(cell.source for cell in notebook.cells)
    written, said = (set(re.findall(r"\d[\d.,]*\d|\d\d", t)) for t in (BLOCK.sub("", text), sources))
    assert written <= said, "numbers that the chapter does not state"
