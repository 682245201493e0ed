"""A slide deck for each chapter, from its executed copy: ``make slides``.

_build/slides/NN_slug.html holds the title and what one learns; the chapter's opening; its idea, with the drawings; the
equations with the words around them; the algorithm, which is the longest functions that the chapter writes by hand,
and those that its idea speaks of; two slides for each experiment; what holds, with its table; the recap; and the
exercises. The first of the two has the experiment's set-up and its question. The other has the figure, as large as
there is room. When the class has said what it sees, the answer appears, or else the caption, and the figure makes room
for it. Figures that move on the page stand still here, above their caption. Names of the notebook that stand in
brackets are left out. Text that is too long for a slide goes on on another; no paragraph is cut. What is still too long
makes the figure and the text smaller, in turns, but no text below 80 %. The key N shows and hides notes, in the
chapter's own words. A deck is one file that asks nobody for anything: figures, typefaces and MathJax are inside.
Printed, each slide is a page, with its notes. nbconvert's slides would be the cells of a chapter, code and all.
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
from pygments.lexers import PythonLexer

from book._ext.drawn import inlined
from book._ext.selfhost import typefaces

from . import notebooks

OUT = notebooks.ROOT / "_build/slides"
WORDS, BESIDE, ABOVE = 150, 110, 45  # on a slide of text, beside a figure without an answer, and above a figure
EQUATION, ROW, ROWS = 30, 10, 9  # words for which an equation and a row of a table count, and rows on one slide
CODE, LINES = 48, 26  # lines of the functions that are shown, and of those on one slide
WIDE = 2.2  # a figure's width by its height from which the text comes under it
NAMED = re.compile(r" \([^()]*`[^()]*\)")  # a bracket with a name of the notebook

_markdown = MarkdownIt("commonmark", {"html": False, "typographer": True}).enable(["table", "smartquotes"])
dollarmath_plugin(
    _markdown,
    renderer=lambda tex, how: html.escape(f"\\[{tex}\\]" if how["display_mode"] else f"\\({tex}\\)", quote=False),
)


def deck(notebook: Any) -> str:
    """The slides of an executed chapter, as one HTML file.

    Parameters
    ----------
    notebook : notebook

    Returns
    -------
    str

    Raises
    ------
    ValueError
        If a figure has no picture, or the chapter lacks a part.
    """
    notebook = notebooks.elsewhere(notebook)
    text = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    title = _part(r"^# ([^\n]+)$", text, "title")
    learn = _part(r"\*\*You will learn\*\* \| ([^\n]+) \|$", text, 'row "You will learn"')
    opening = _part(r"^# [^\n]+\n+(.*?)^\|", text, "opening")
    recap = _part(r"^## Recap\n+(.+?)\n\n\*\*(?:Read on|Next)\b", text, 'section "Recap"')
    ahead = _part(r"^(\*\*(?:Read on|Next)\b.+)", text, 'paragraph "Read on"')
    _part("^(## The equation.+^## What holds)", text, 'sections "The equation" and "What holds"')
    points = "\n".join(f"- {point}" for point in learn.split("; "))
    first = _sentences(opening)[:2]
    slides = [(title, _words(f"{' '.join(first)}\n\n**You will learn**\n\n{points}"))]
    slides += _texts("What it is about", opening.partition(first[-1])[2])
    guesses = 0
    for section, (said, *rest) in _sections(notebook):
        about = _pages(_question(said)[0])[0]
        if section.startswith("The equation"):
            slides += _texts("The equations", said.partition("**Predict.**")[0])
            slides += [("The algorithm", code) for code in _by_hand(notebook)]
        for cell, after in zip(rest[::2], rest[1::2], strict=True):
            before, question = _question(said)
            if section == "By hand":
                before = before.rpartition("\n\n")[2]
            after, mark, asked = after.partition("**Predict.** ")
            seen, more = _seen(after, bool(mark or _drawing(cell)))
            said = f"{more}\n\n{mark}{asked}"
            guesses += bool(question)
            if question or len(before.split()) > ABOVE:
                slides += _texts(f"Predict, {guesses}" if question else section, before or about)
                before = ""
            if question:
                heading, words = slides.pop()
                slides.append((heading, f'{words}<div class="ask">{_markdown.render(question)}</div>{_notes(seen)}'))
            slides.append((section, _figure(cell, before, bool(question), seen) + _notes(more)))
        if section.startswith(("The idea", "What holds")) and said.strip():
            slides += _texts(section, said)
    tasks = re.findall(r"^\*\*Exercise \d \((.+?)\)\.\*\* (.+)", text, re.M)
    points = "\n\n".join(f"**{kind.capitalize()}.** {_asked(task)}" for kind, task in tasks)
    slides += [("Recap", _words(recap)), *_texts("Exercises", f"{points}\n\n{ahead}")]
    script = (files("mathjax") / "static/mathjax/es5/tex-svg.js").read_text(encoding="utf8")
    packed = base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()
    logo = base64.b64encode((notebooks.ROOT / "book/_static/logo.svg").read_bytes()).decode()
    inside = {"faces": typefaces(), "mathjax": packed, "logo": logo, "inline": _markdown.renderInline}
    return notebooks.TEMPLATES.get_template("slides.html").render(title=title, slides=slides, **inside)


def _part(pattern: str, text: str, name: str) -> str:
    found = re.search(pattern, text, re.M | re.S)
    if not found:
        raise ValueError(f"the chapter has no {name}, which its slides need")
    return found[1]


def _words(text: str) -> str:
    return f'<div class="words">{_markdown.render(text)}</div>\n'


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.?!:])\s+(?=[A-Z*$(])", text.strip())


def _asked(task: str) -> str:
    """An exercise as far as the sentence that asks for something."""
    sentences = _sentences(task)
    end = next((i for i, each in enumerate(sentences) if "?" in each or each.startswith("Write")), 0)
    return " ".join(sentences[: end + 1])


def _pages(text: str, words: int = WORDS) -> list[str]:
    """Paragraphs, on as few slides as hold them, about as many on each."""
    pages = _filled(text, words)
    while words > 5 and len(fewer := _filled(text, words := words - 5)) == len(pages):
        pages = fewer
    return pages


def _filled(text: str, words: int) -> list[str]:
    """Paragraphs, as many together as a slide holds; a table, a list and an equation stay with the words before."""
    pages = [""]
    for paragraph in re.split(
        r"\n\s*\n(?=[A-Z*>\"(])", re.sub(r"(?:^\|.*\n?){3,}", _divided, text.strip(), flags=re.M)
    ):
        both = f"{pages[-1]}\n\n{paragraph}"
        told = re.sub(r"^\|.*$", " x" * ROW, re.sub(r"\$[^$]+\$", " x x ", both), flags=re.M)
        length = len(told.split()) + EQUATION * both.count("$$") / 2
        if pages[-1] and length > words:
            both = paragraph
            pages.append("")
        pages[-1] = both.strip()
    return pages


def _divided(table: re.Match[str]) -> str:
    """A long table as several of the same length."""
    first, line, *rows = table[0].splitlines(keepends=True)
    count = -(-len(rows) // -(-len(rows) // ROWS))
    starts = range(0, len(rows), count)
    return "\n(Continued)\n\n".join("".join([first, line, *rows[i : i + count]]) for i in starts)


def _texts(heading: str, text: str) -> list[tuple[str, str]]:
    return [(heading, _words(page)) for page in _pages(text)]


def _sections(notebook: Any) -> list[tuple[str, list[Any]]]:
    """The sections, each with its text, a cell with a figure, the text after it, and so on; tables are in the text."""
    sections: list[tuple[str, list[Any]]] = [("", [""])]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            lead, *rest = re.split(r"^## (.+)$", NAMED.sub("", cell.source), flags=re.M)
            sections[-1][1][-1] += f"\n\n{lead}"
            sections += [(heading, [words]) for heading, words in zip(rest[::2], rest[1::2], strict=True)]
        elif "figure" in cell.metadata.get("mystnb", {}) or _drawing(cell):
            sections[-1][1].extend([cell, ""])
        elif sections[-1][0].startswith("What holds"):
            sections[-1][1][-1] += "".join(map(_table, notebooks.shown(cell, "text/html")))
    return sections


def _table(output: str) -> str:
    """The table of an output, in Markdown."""
    plain = html.unescape(re.sub(r"<(?!/?t[rhd]\b)[^>]+>", "", output)).replace(" ± ", "\xa0±\xa0")  # one word
    rows = [re.findall(r"<t[hd]\b.*?>(.*?)</t[hd]>", row, re.S) for row in re.findall(r"<tr.*?</tr>", plain, re.S)]
    lines = [f"| {' | '.join(row)} |\n" for row in rows]
    return "\n\n" + "".join([*lines[:1], f"|{' --- |' * len(rows[0])}\n", *lines[1:]])


def _drawing(cell: Any) -> str:
    """A drawing, or a figure that moves, as it stands before its script runs; the map and the playground are none."""
    shown = [re.sub(r"<(script|details).*?</\1>", "", h, flags=re.S) for h in notebooks.shown(cell, "text/html")]
    return next(
        (h for h in shown if re.match(r'<figure class="fedlib" data-fedlib="(?!places|playground).*<svg', h, re.S)), ""
    )


def _by_hand(notebook: Any) -> list[str]:
    """The words and the functions of the section "By hand", in colours, for each slide; the shortest are left out.

    A function that the text before it names comes from another section too.
    """
    section, words, functions = "", "", list[tuple[str, str]]()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            section = (re.findall(r"^## (.+)$", cell.source, re.M) or [section])[-1]
            words = cell.source.partition("## By hand")[2] or cell.source
        elif section.startswith(("The idea", "By hand")):
            for made in ast.parse(cell.source).body:
                if isinstance(made, ast.FunctionDef) and (section == "By hand" or f"`{made.name}`" in words):
                    functions.append((words * (section == "By hand"), ast.get_source_segment(cell.source, made) or ""))
                    words *= section != "By hand"
    while sum(f.count("\n") + 2 for _, f in functions) > CODE and len(functions) > 1:
        functions.remove(min(functions, key=lambda f: f[1].count("\n")))
    colours = HtmlFormatter(noclasses=True, nowrap=True, style="a11y-high-contrast-light")
    slides, room = list[str](), 0
    for words, function in functions:
        told = len(words.split()) // 14 + 2 * words.count("$$")  # lines of text, and an equation counts as four
        before, lines = _words(NAMED.sub("", words)), told + function.count("\n") + 3
        slides += [""] * (lines > room)
        room = (LINES if lines > room else room) - lines
        slides[-1] += f"{before}<pre>{highlight(function, PythonLexer(), colours)}</pre>"
    return slides


def _question(text: str) -> tuple[str, str]:
    """An experiment's set-up and its question, which is empty if the text has none."""
    before, _, rest = text.partition("**Predict.** ")
    question, _, after = rest.partition("\n\n")
    return f"{before.strip()}\n\n{after.strip()}".strip(), question


def _seen(text: str, asked: bool) -> tuple[str, str]:
    """What is to be seen in a figure, or else what is told after it, unless that leads to a question; and the rest."""
    lead, mark, rest = text.strip().partition("**What to see.** ")
    if mark:
        seen, _, more = rest.partition("\n\n")
        return seen, f"{lead}{more}".strip()
    seen, *others = ["", lead] if asked or lead.startswith("**") else _pages(lead, BESIDE)
    return seen, "\n\n".join(others)


def _notes(text: str) -> str:
    return f"<aside>{_markdown.render(text)}</aside>" if text else ""


def _figure(cell: Any, before: str, guessed: bool, seen: str) -> str:
    """A figure and a question; what is to be seen, or else the caption, appears at the next key."""
    images, answer = _drawing(cell), seen and _markdown.render(seen)
    if not images:
        meta, pictures = cell.metadata.mystnb, notebooks.shown(cell, "image/svg+xml")
        images = "".join(inlined(svg, f"{cell.id}-{i}", meta.image.alt) for i, svg in enumerate(pictures))
        if not images:
            raise ValueError(f"cell {cell.id} shows no SVG figure; run the chapter again with `make book`")
        answer = answer or f'<p class="caption">{_markdown.renderInline(meta.figure.caption)}</p>'
    sizes = re.findall(r'<svg[^>]*viewBox="\S+ \S+ (\S+) (\S+)"', images)
    ratio = float(sizes[0][0]) / float(sizes[0][1]) if len(sizes) == 1 else WIDE
    ask = "What do you see?" + " Was your guess right?" * guessed
    figure = f'<figure style="--r: {ratio:.3f}">{images}</figure>'
    figure += f'<div><p class="ask">{ask}</p><div class="later">{answer}</div></div>' if answer else ""
    return f'{_words(before) if before else ""}<div class="{"beside" if ratio < WIDE else "under"}">{figure}</div>'


def main(executed: Path = notebooks.EXECUTED, out: Path = OUT) -> None:
    """Write the decks of all chapters, which have been run, and say where they are."""
    out.mkdir(parents=True, exist_ok=True)
    for path in notebooks.paths():
        (out / f"{path.stem}.html").write_text(deck(notebooks.executed(path.stem, executed)), encoding="utf8")
    print(f"The slides are {out}/*.html; open one in a browser, and print it for a PDF.")


if __name__ == "__main__":
    main()
