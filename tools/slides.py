"""A slide deck for each chapter, from book/slides and the executed chapter: ``make slides``.

book/slides/NN_slug.md is written by hand, in Markdown. A line ``---`` ends a slide, and a slide begins with its
heading. What comes after ``### Then`` appears at the next key, and after ``### Notes`` come the teacher's notes. A
quotation is a question to the class. Six kinds of fenced blocks are drawn, taken from elsewhere or coloured:

drawing WIDTH HEIGHT
    A sketch made for the slide. The first line says in words what there is to see, and the others are SVG in a box of
    this size, at most 1152 wide. slides.html has its shapes (``client``, ``server``, ``model``) and its classes.

figure NAME
    The figure with this reference, or the drawing of the cell with this id; a sentence in the block is its caption. Two
    numbers after the name keep only the part between these shares of its height, such as ``0 0.5`` for the upper half,
    and two more keep another part below it.
table CELL
    The table that the cell shows. The block's first line is its caption. Each other line, ``old | new``, keeps a row or
    a column under a new name, or shows a kept entry as new; all other rows and columns are left out.
function NAME
    A function of the notebook, or several. Numbers after the names mark these lines.
python, text
    A program written for the slide, or one in words.

In a formula, ``\\said{part}{words}`` puts words under a part; ``\\named`` does, too, but they take no width.

A deck is one file that asks nobody for anything: figures, typefaces and MathJax are inside. Printed, each slide is a
page, with its notes.
"""

import ast
import base64
import gzip
import html
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from book._ext.drawn import inlined
from book._ext.selfhost import typefaces

from . import notebooks

DECKS, OUT = notebooks.ROOT / "book/slides", notebooks.ROOT / "_build/slides"
WIDE = 1.95  # a figure's width by its height from which the text comes under it


def deck(text: str, notebook: Any) -> str:
    """The slides of a chapter, as one HTML file.

    Parameters
    ----------
    text : str
        The deck, as it is written.
    notebook : notebook
        The chapter, executed.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        If the chapter lacks a figure, a table or a function of the deck.
    """
    slides = [_slide(part.strip(), notebook) for part in re.split(r"^---$", text, flags=re.M)]
    script = (files("mathjax") / "static/mathjax/es5/tex-svg.js").read_text(encoding="utf8")
    packed = base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()
    logo = base64.b64encode((notebooks.ROOT / "book/_static/logo.svg").read_bytes()).decode()
    inside = {"faces": typefaces(), "mathjax": packed, "logo": logo, "slides": slides}
    return notebooks.TEMPLATES.get_template("slides.html").render(inside)


def _slide(text: str, notebook: Any) -> dict[str, str]:
    """Heading, contents, what appears later, and notes."""
    heading, _, text = text.partition("\n")
    text, _, notes = text.partition("\n### Notes\n")
    now, _, later = text.partition("\n### Then\n")
    parts = {"now": now, "later": later, "notes": notes}
    rendered = {name: _markdown.render(part, {"notebook": notebook}) for name, part in parts.items()}
    return {"heading": _markdown.renderInline(heading.lstrip("# "))} | rendered


def _fence(renderer: Any, tokens: Any, i: int, options: Any, env: Any) -> str:
    """A fenced block."""
    kind, *words = tokens[i].info.split()
    cells = notebooks.code_cells(env["notebook"])
    if kind == "figure":
        return _figure(_named(cells, words[0]), tokens[i].content, *map(float, words[1:]))
    if kind == "drawing":
        return _drawing(tokens[i].content, *words)
    if kind == "table":
        return _table(_named(cells, words[0]), *tokens[i].content.splitlines())
    marked = [int(word) for word in words if word.isdigit()]
    code = "\n\n".join(_function(cells, w) for w in words[: len(words) - len(marked)]) or tokens[i].content
    colours = HtmlFormatter(noclasses=True, nowrap=True, style="a11y-high-contrast-light", hl_lines=marked)
    lexer, lines = get_lexer_by_name("text" if kind == "text" else "python"), code.strip().splitlines()
    size = f"--lines: {len(lines)}; --wide: {max(map(len, lines))}"
    return f'<pre style="{size}">{highlight(code, lexer, colours)}</pre>'


def _named(cells: list[Any], name: str) -> Any:
    """The cell whose id, or whose figure's reference, is this name."""
    for cell in cells:
        if name in (cell.id, cell.metadata.get("mystnb", {}).get("figure", {}).get("name")):
            return cell
    raise ValueError(f"the chapter has no cell or figure {name}")


def _function(cells: list[Any], name: str) -> str:
    for cell in cells:
        for made in ast.parse(cell.source).body:
            if isinstance(made, ast.FunctionDef) and made.name == name:
                return ast.get_source_segment(cell.source, made) or ""
    raise ValueError(f"the chapter has no function {name}")


def _table(cell: Any, caption: str, *lines: str) -> str:
    """The rows and columns of a table that the lines name, under their new names, and entries that they rename."""
    shown = re.findall("<tr.*?</tr>", "".join(notebooks.shown(cell, "text/html")), re.S)
    head, *body = [re.findall("<t[hd].*?>(.*?)</t[hd]>", row, re.S) for row in shown] or [[]]
    names = dict(line.split(" | ") for line in lines)
    if missing := names.keys() - {entry for row in [head, *body] for entry in row}:
        raise ValueError(f"the table of cell {cell.id} has no {', '.join(sorted(missing))}")
    kept = [i for i, name in enumerate(head) if i == 0 or name in names]
    rows = [head, ["---"] * len(head), *(row for row in body if row[0] in names)]
    table = "\n".join(f"| {' | '.join(names.get(row[i], row[i]) for i in kept)} |" for row in rows)
    return f"<figure>{_markdown.render(table)}<figcaption>{_markdown.renderInline(caption)}</figcaption></figure>"


def _figure(cell: Any, caption: str, *edges: float) -> str:
    """A figure, or a drawing as it is before its script runs, or horizontal parts of it."""
    pictures = notebooks.shown(cell, "image/svg+xml")
    images = "".join(inlined(svg, f"{cell.id}-{i}", cell.metadata.mystnb.image.alt) for i, svg in enumerate(pictures))
    images = images or re.sub(r"<(script|details).*?</\1>", "", "".join(notebooks.shown(cell, "text/html")), flags=re.S)
    boxes = re.findall(r'<svg[^>]*viewBox="\S+ \S+ (\S+) (\S+)"', images)
    if not boxes:
        raise ValueError(f"cell {cell.id} shows no SVG figure; run the chapter again with `make book`")
    ratio = sum(float(width) / float(height) for width, height in boxes)
    if edges:
        width, height = map(float, boxes[0])
        parts = [(top, bottom - top) for top, bottom in zip(edges[::2], edges[1::2], strict=True)]
        ratio /= sum(share for _, share in parts)
        kept = [f'style="flex: {h * height:g}" viewBox="0 {y * height:g} {width:g} {h * height:g}"' for y, h in parts]
        images = "".join(re.sub(r'(width="\S+" height="\S+" )?viewBox="[^"]+"', part, images) for part in kept)
    return _placed(images, ratio, caption)


def _drawing(text: str, width: str, height: str) -> str:
    """A sketch: what there is to see, and its SVG."""
    said, _, shapes = text.partition("\n")
    head = f'<svg class="drawn sketch" viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(said)}">'
    return _placed(f"{head}{shapes}</svg>", float(width) / float(height))


def _placed(images: str, ratio: float, caption: str = "") -> str:
    """A figure above the text, or beside it if it is not wide."""
    place = "beside" if ratio < WIDE else "under"
    said = f"<figcaption>{_markdown.renderInline(caption)}</figcaption>" if caption else ""
    return f'<figure class="{place}" style="--ratio: {ratio:.3f}">{images}{said}</figure>'


def main(executed: Path = notebooks.EXECUTED, out: Path = OUT) -> None:
    """Write the decks of all chapters, which have been run, and say where they are."""
    out.mkdir(parents=True, exist_ok=True)
    for path in notebooks.paths():
        text = (DECKS / f"{path.stem}.md").read_text(encoding="utf8")
        (out / f"{path.stem}.html").write_text(deck(text, notebooks.executed(path.stem, executed)), encoding="utf8")
    print(f"The slides are {out}/*.html; open one in a browser, and print it for a PDF.")


_markdown = MarkdownIt("commonmark", {"html": False, "typographer": True}).enable(["table", "smartquotes"])
_markdown.add_render_rule("fence", _fence)
dollarmath_plugin(
    _markdown,
    renderer=lambda tex, how: html.escape(f"\\[{tex}\\]" if how["display_mode"] else f"\\({tex}\\)", quote=False),
)

if __name__ == "__main__":
    main()
