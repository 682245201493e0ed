"""A slide deck for each chapter, from its executed copy: ``make slides``.

_build/slides/NN_slug.html holds the title, the chapter's opening and what one learns; the equations with the words
around them; the algorithm, which is the longest functions that the chapter writes by hand; two slides for each
experiment; what holds; and the recap. The first of the two has the experiment's set-up and its question. The other has
the figure, and beside it what is to be seen, which appears when the class has said what it sees. Text that is too long
for a slide becomes smaller. The key N shows and hides notes, in the chapter's own words. A deck is one file that asks
nobody for anything: figures, typefaces and MathJax are inside. Printed, each slide is a page, with its notes.
nbconvert's slides would be the cells of a chapter, code and all.
"""

import ast
import base64
import gzip
import html
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from book._ext.selfhost import typefaces

from . import notebooks, teaching

OUT = notebooks.ROOT / "_build/slides"
EQUATIONS = 120  # words on one slide with equations, but always one equation
SETUP = 170  # words of an experiment's set-up on one slide, but always its first and last paragraph
CODE, LINES = 48, 26  # lines of the functions that are shown, and of those on one slide
WIDE = 2.3  # a figure's width by its height from which the text comes under it

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; script-src 'unsafe-inline'">
<title>{title}</title>
<style>
{faces}
@page {{ size: 13.333in 7.5in; margin: 0; }}
html {{ scroll-snap-type: y proximity; }}
body {{ margin: 0; font: clamp(16px, 1.8vw, 28px)/1.4 "Book Sans", sans-serif; color: #1a1a1a; background: #fff; }}
section {{ position: relative; box-sizing: border-box; min-height: 100vh; padding: 5vh 6vw 8vh;
  scroll-snap-align: start; break-after: page; break-inside: avoid;
  display: flex; flex-direction: column; overflow-x: auto; }}
section:first-of-type {{ justify-content: center; border-left: 1.2vw solid #0b57c2; }}
.body {{ flex: 1 1 auto; display: flex; flex-direction: column; }}
section:first-of-type .body {{ flex: 0 1 auto; }}
h1, h2 {{ font-family: "Book Serif", serif; font-weight: 600; line-height: 1.15; }}
h1 {{ font-size: 2.4em; margin: 0 0 .4em; }}
h2 {{ font-size: 1.5em; margin: 0 0 .7em; padding-bottom: .25em; border-bottom: 3px solid #0b57c2; }}
.beside {{ display: flex; gap: 3vw; align-items: flex-start; }}
.beside > div {{ flex: 1 1 0; min-width: 0; }}
.beside > figure {{ flex: 0 0 min(60%, 66vh * var(--r, 1)); }}
:is(.beside, .above) p {{ font-size: .9em; }}
.above img {{ max-height: 46vh; }}
figcaption {{ font-size: .75em; color: #595959; }}
figure {{ margin: 0; max-width: 100%; }}
figure img {{ max-width: 100%; width: 100%; max-height: 66vh; object-fit: contain; object-position: left; }}
.words p, .words mjx-container {{ margin: .5em 0 !important; }}
.words > ul {{ margin: .3em 0; padding-left: 1.2em; }}
.words li {{ margin: .35em 0; }}
.ask {{ font-weight: 600; color: #0b57c2; }}
div.ask {{ margin: auto 0; padding: .3em 1em; border-left: 6px solid #0b57c2; background: #eef4fc;
  font-size: 1.3em; line-height: 1.3; }}
.stepped .later:not(.shown) {{ visibility: hidden; }}
code, pre {{ font-family: ui-monospace, "DejaVu Sans Mono", monospace; }}
code {{ font-size: .85em; }}
pre {{ font-size: .78em; line-height: 1.3; margin: 0; padding-left: 1em; border-left: 3px solid #bbb;
  white-space: pre-wrap; }}
aside {{ display: none; margin-top: 1.5em; padding: .2em 1em; font-size: .8em; border-left: 4px solid #bbb; }}
.notes aside {{ display: block; }}
table {{ border-collapse: collapse; width: 100%; font-size: .9em; }}
th, td {{ border-bottom: 1px solid #bbb; padding: .35em 1em .35em 0; text-align: left; vertical-align: top; }}
footer {{ position: absolute; bottom: 1.5em; left: 6vw; right: 6vw; font-size: .6em; color: #595959;
  display: flex; justify-content: space-between; }}
@media print {{ section {{ height: 7.5in; min-height: 0; }} figure img {{ max-height: 5.2in; }}
  aside {{ display: block; }} .stepped .later {{ visibility: visible !important; }} }}
</style>
<script>
document.documentElement.classList.add("stepped");
addEventListener("keydown", (event) => {{
  if (event.key === "n") document.body.classList.toggle("notes");
  const step = {{ ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1 }}[event.key];
  if (!step) return;
  event.preventDefault();
  const slides = [...document.querySelectorAll("section")];
  const at = slides.findIndex((s) => s.getBoundingClientRect().bottom > innerHeight / 2);
  const later = slides[at].querySelector(".later:not(.shown)");
  if (step > 0 && later) later.classList.add("shown");
  else slides[at + step]?.scrollIntoView();
}});
const fit = () => document.querySelectorAll("section").forEach((slide) => {{
  const body = slide.querySelector(".body");
  body.style.fontSize = "";
  const full = () => slide.scrollHeight > innerHeight + 1 || slide.scrollWidth > slide.clientWidth + 1;
  for (let size = 96; full() && size > 55; size -= 4) body.style.fontSize = size + "%";
}});
addEventListener("resize", fit);
MathJax = {{
  tex: {{ inlineMath: [["\\\\(", "\\\\)"]] }}, svg: {{ displayAlign: "left" }}, options: {{ enableMenu: false }},
  startup: {{ pageReady: () => MathJax.startup.defaultPageReady().then(fit) }},
}};
const packed = Uint8Array.from(atob("{mathjax}"), (c) => c.charCodeAt(0));
new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text().then((code) => {{
  document.head.append(Object.assign(document.createElement("script"), {{ textContent: code }}));
}});
</script>
</head>
<body>
{slides}
</body>
</html>
"""

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
    equations = _explained(_part(r"^## The equation[^\n]*\n(.+?)^## ", text, 'section "The equation"'))
    holds = _part(r"^## What holds[^\n]*\n+(.+?)(?:^## |\Z)", text, 'section "What holds"')
    recap = _part(r"^## Recap\n+(.+?)(?:\n\n\*\*Read on|\Z)", text, 'section "Recap"')
    opening = _part(r"^# [^\n]+\n+(.*?)^\|", text, "opening")
    points = "\n".join(f"- {point}" for point in learn.split("; "))
    slides = [_slide(title, _words(f"{opening}\n\nYou will learn\n\n{points}"), 1)]
    told = [_slide("The equations", _words(some)) for some in equations]
    told += [_slide("The algorithm", f"<pre>{code}</pre>") for code in _by_hand(notebook)]
    section, said, guesses, pictured = "", [], 0, False
    for i, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            *_, (heading, words) = [("", ""), *re.findall(r"^## (.+)\n*((?:(?!^## ).*\n?)*)", cell.source, re.M)]
            if heading.startswith("The equation"):
                if section and said and not pictured:
                    slides.append(_slide("The idea", _words("\n\n".join(said))))
                slides += told
            section, said = (heading, [words]) if heading else (section, [*said, cell.source])
        elif "figure" in cell.metadata.get("mystnb", {}):
            before, question = _question("\n\n".join(said))
            if question:
                guesses += 1
                ask = f'<div class="ask">{_markdown.render(question)}</div>'
                slides.append(_slide(f"Predict, {guesses}", _words(before) + ask))
            slides.append(_slide(section, _figure(cell, notebook.cells[i + 1 :], "" if question else before)))
            said, pictured = [], True
    points = "\n".join(f"- {' '.join(_sentences(p)[:2])}" for p in holds.split("\n\n") if p.startswith("**"))
    if points:
        slides.append(_slide("What holds, and what does not", _words(points)))
    slides.append(_slide("Recap", _words(recap)))
    feet = ["CC BY 4.0. Arrows: next, back. N: notes."] + [_inline(title)] * (len(slides) - 1)
    body = "\n".join(
        f"<section>{slide}<footer><span>{foot}</span><span>{i} of {len(slides)}</span></footer></section>"
        for i, (slide, foot) in enumerate(zip(slides, feet, strict=True), 1)
    )
    script = (files("mathjax") / "static/mathjax/es5/tex-svg.js").read_text(encoding="utf8")
    packed = base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()
    return PAGE.format(title=html.escape(title), faces=typefaces(), mathjax=packed, slides=body)


def _part(pattern: str, text: str, name: str) -> str:
    found = re.search(pattern, text, re.M | re.S)
    if not found:
        raise ValueError(f"the chapter has no {name}, which its slides need")
    return found[1]


def _inline(text: str) -> str:
    return _markdown.renderInline(text)


def _slide(heading: str, body: str, level: int = 2) -> str:
    return f'<h{level}>{_inline(heading)}</h{level}>\n<div class="body">{body}</div>'


def _words(text: str) -> str:
    return f'<div class="words">{_markdown.render(text)}</div>\n'


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.?!:])\s+(?=[A-Z*$(])", text.strip())


def _explained(section: str) -> list[str]:
    """The equations with the words around them, as many together as a slide holds; without what comes before them."""
    lead, *rest = re.split(r"(\$\$.+?\$\$)", section.partition("**Predict.**")[0].strip(), flags=re.S)
    found = [lead.strip().rpartition("\n\n")[2]]
    for equation, after in zip(rest[::2], rest[1::2], strict=True):
        near, _, far = after.strip().partition("\n\n")
        found[-1] += f"\n\n{equation}\n\n{near}"
        if len(found[-1].split()) > EQUATIONS and far.strip() and equation != rest[-2]:
            found.append(far.strip().rpartition("\n\n")[2])
        elif far:
            found[-1] += f"\n\n{far.strip()}"
    return found


def _by_hand(notebook: Any) -> list[str]:
    """Functions of the section "By hand", in their order and in colours, for each slide; the shortest are left out."""
    inside, functions = False, []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            inside = (re.findall(r"^## (.+)$", cell.source, re.M) or ["By hand" if inside else ""])[-1] == "By hand"
        elif inside:
            made = [n for n in ast.parse(cell.source).body if isinstance(n, ast.FunctionDef)]
            functions += [ast.get_source_segment(cell.source, n) for n in made]
    while sum(f.count("\n") + 2 for f in functions) > CODE and len(functions) > 1:
        functions.remove(min(functions, key=lambda f: f.count("\n")))
    slides: list[str] = []
    for function in functions:
        if slides and (slides[-1] + function).count("\n") + 3 <= LINES:
            slides[-1] += f"\n\n{function}"
        else:
            slides.append(function)
    return [
        highlight(code, PythonLexer(), HtmlFormatter(noclasses=True, nowrap=True, style="xcode")) for code in slides
    ]


def _question(text: str) -> tuple[str, str]:
    """An experiment's set-up and its question, which is empty if the text has none."""
    before, mark, rest = text.partition("**Predict.** ")
    question, _, after = rest.partition("\n\n")
    paragraphs = re.split(r"\n\s*\n", f"{before.strip()}\n\n{after.strip()}".strip())
    first, *others = [p for p in paragraphs if not p.startswith("**What to see")] or [""]
    kept: list[str] = []
    for paragraph in reversed(others):
        if kept and len(" ".join([first, paragraph, *kept]).split()) > SETUP:
            break
        kept.insert(0, paragraph)
    return "\n\n".join([first, *kept]), question if mark else ""


def _figure(cell: Any, after: Any, before: str) -> str:
    """A figure, and beside it a question and what is to be seen, which appears at the next key; the rest are notes.

    A set-up that no question needed on a slide before comes first.
    """
    pictures = notebooks.shown(cell, "image/svg+xml")
    if not pictures:
        raise ValueError(f"cell {cell.id} shows no SVG figure; run the chapter again with `make book`")
    meta = cell.metadata.mystnb
    alt = html.escape(meta.image.alt)
    data = [base64.b64encode(svg.encode()).decode() for svg in pictures]
    images = "".join(f'<img alt="{alt}" src="data:image/svg+xml;base64,{svg}">' for svg in data)
    text = next((c.source for c in after if c.cell_type == "markdown" or "figure" in c.metadata.get("mystnb", {})), "")
    found = re.search(r"\*\*What to see\.\*\* (.+?)(?=^## |\*\*Predict|\Z)", text, re.M | re.S)
    caption, *others = _sentences(meta.figure.caption)
    seen, _, more = (found[1] if found else " ".join(others)).strip().partition("\n\n")
    size = re.search(r'viewBox="\S+ \S+ (\S+) (\S+)"', pictures[0])
    place = "above" if size and float(size[1]) > WIDE * float(size[2]) else "beside"
    ask = "What do you see?" if before else "What do you see? Was your guess right?"
    words = _words(before) if before else ""
    beside = f'{words}<p class="ask">{ask}</p><div class="later">{_markdown.render(seen)}</div>'
    notes = f"<aside>{_markdown.render(more)}</aside>" if more else ""
    shape = f' style="--r: {float(size[1]) / float(size[2]):.3f}"' if size and len(pictures) == 1 else ""
    later = "" if before else ' class="later"'  # it may say what was asked
    figure = f"<figure{shape}>{images}<figcaption{later}>{_inline(caption)}</figcaption></figure>"
    return f'<div class="{place}">{figure}<div>{beside}</div></div>{notes}'


def write(executed: Path, out: Path) -> None:
    """Write the decks of all chapters."""
    out.mkdir(parents=True, exist_ok=True)
    for path in notebooks.paths():
        done = executed / path.name
        if not done.exists():
            sys.exit(f"{path.stem} has not been run: there is no {done}; type `make book` first")
        (out / f"{path.stem}.html").write_text(deck(notebooks.read(done)), encoding="utf8")


def main(executed: Path = teaching.EXECUTED, out: Path = OUT) -> None:
    """Write the decks of all chapters that have been run, and say where they are."""
    write(executed, out)
    print(f"The slides are {out}/*.html; open one in a browser, and print it for a PDF.")


if __name__ == "__main__":
    main()
