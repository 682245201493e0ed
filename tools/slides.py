"""A slide deck for each chapter, from its executed copy: ``make slides``.

_build/slides/NN_slug.html holds the title, what one learns, the equations, the recap, and for each figure up to three
slides: *predict*, the chapter's question; *look*, the figure alone; *discuss*, what its caption says. The key N shows
and hides notes, which are the chapter's own words on what is to be seen. A deck is one file that asks nobody for
anything: figures and MathJax are inside. Printed, each slide is a page, with its notes. nbconvert's slides would be the
cells of a chapter, code and all.
"""

import base64
import html
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import nbformat
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

from . import notebooks, teaching

OUT = notebooks.ROOT / "_build/slides"
EQUATIONS = 3  # on one slide

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{title}</title>
<style>
@page {{ size: 13.333in 7.5in; margin: 0; }}
html {{ scroll-snap-type: y proximity; }}
body {{ margin: 0; font: clamp(16px, 1.7vw, 26px)/1.45 system-ui, sans-serif; color: #1a1a1a; background: #fff; }}
section {{ position: relative; box-sizing: border-box;
  min-height: 100vh; padding: 5vh 6vw; scroll-snap-align: start; break-after: page;
  break-inside: avoid; display: flex; flex-direction: column; justify-content: center; align-items: center;
  overflow-x: auto; }}
section > * {{ max-width: min(100%, 48em); }}
h1 {{ font-size: 2.2em; line-height: 1.15; }}
h2 {{ font-size: 1.4em; margin: 0 0 .6em; }}
h1 {{ text-align: center; }}
figure {{ margin: 0; text-align: center; max-width: 100%; }}
figure img {{ max-width: 100%; height: 70vh; object-fit: contain; }}
.ask {{ font-size: 1.3em; text-align: center; }}
aside {{ display: none; margin-top: 1.5em; padding: .2em 1em; font-size: .8em; border-left: 4px solid #bbb; }}
.notes aside {{ display: block; }}
table {{ border-collapse: collapse; font-size: .72em; }}
th, td {{ border-bottom: 1px solid #bbb; padding: .3em .7em; text-align: left; vertical-align: top; }}
footer {{ position: absolute; bottom: 1.5em; left: 6vw; right: 6vw; font-size: .6em; text-align: center;
  max-width: none; color: #595959; }}
@media print {{ section {{ height: 7.5in; min-height: 0; }} figure img {{ height: 5.2in; }}
  aside {{ display: block; }} }}
</style>
<script>
MathJax = {{ tex: {{ inlineMath: [["\\\\(", "\\\\)"]] }}, options: {{ enableMenu: false }} }};
addEventListener("keydown", (event) => {{
  if (event.key === "n") document.body.classList.toggle("notes");
  const step = {{ ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1 }}[event.key];
  if (!step) return;
  event.preventDefault();
  const slides = [...document.querySelectorAll("section")];
  const at = slides.findIndex((s) => s.getBoundingClientRect().bottom > innerHeight / 2);
  slides[at + step]?.scrollIntoView();
}});
</script>
<script>{mathjax}</script>
</head>
<body>
{slides}
</body>
</html>
"""

_markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
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
    text = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    title = _part(r"^# ([^\n]+)$", text, "title")
    learn = _part(r"\*\*You will learn\*\* \| ([^\n]+) \|$", text, 'row "You will learn"')
    equations = re.findall(r"\$\$.+?\$\$", _part(r"^## The equation(.+?)^## ", text, 'section "The equation"'), re.S)
    recap = _part(r"^## Recap\n+(.+?)(?:\n\n\*\*Read on|\Z)", text, 'section "Recap"')
    points = [f"- {point}" for point in learn.split("; ")]
    slides = [f"<h1>{_inline(title)}</h1>", _slide("You will learn", _markdown.render("\n".join(points)))]
    for i in range(0, len(equations), EQUATIONS):
        some = "\n\n".join(equations[i : i + EQUATIONS])
        slides.append(_slide("The equations" if len(equations) > 1 else "The equation", _markdown.render(some)))
    section = ask = ""
    for i, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            section = (re.findall(r"^## (.+)$", cell.source, re.M) or [section])[-1]
            ask = (re.findall(r"\*\*Predict\.\*\* (.+?)(?:\n\n|\Z)", cell.source, re.S) or [ask])[-1]
        elif "figure" in cell.metadata.get("mystnb", {}):
            if ask:
                slides.append(_slide(f"{section}: predict", f'<div class="ask">{_markdown.render(ask)}</div>'))
            slides.append(_slide(f"{section}: look", _figure(cell)))
            claim = f'<div class="ask">{_markdown.render(cell.metadata.mystnb.figure.caption)}</div>'
            slides.append(_slide(f"{section}: discuss", claim + _notes(notebook.cells[i + 1 :])))
            ask = ""
    slides.append(_slide("Recap", _markdown.render(recap)))
    foot = "<footer>{}, {} of {}. CC BY 4.0. Arrows: next, back. N: notes.</footer>"
    short = _inline(title)
    body = "\n".join(
        f"<section>{slide}{foot.format(short, i, len(slides))}</section>" for i, slide in enumerate(slides, 1)
    )
    script = (files("mathjax") / "static/mathjax/es5/tex-svg.js").read_text(encoding="utf8")
    return PAGE.format(title=html.escape(title), mathjax=script, slides=body)


def _part(pattern: str, text: str, name: str) -> str:
    found = re.search(pattern, text, re.M | re.S)
    if not found:
        raise ValueError(f"the chapter has no {name}, which its slides need")
    return found[1]


def _inline(text: str) -> str:
    return _markdown.renderInline(text)


def _slide(heading: str, body: str) -> str:
    return f"<h2>{_inline(heading)}</h2>\n{body}"


def _figure(cell: Any) -> str:
    pictures = [o.data["image/svg+xml"] for o in cell.outputs if "image/svg+xml" in o.get("data", {})]
    if not pictures:
        raise ValueError(f"cell {cell.id} shows no SVG figure; run the chapter again with `make book`")
    meta = cell.metadata.mystnb
    alt = html.escape(meta.image.alt)
    images = [
        f'<img alt="{alt}" src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}">'
        for svg in pictures
    ]
    return f"<figure>{''.join(images)}</figure>"


def _notes(cells: Any) -> str:
    """What the chapter says after a figure of what is to be seen there, if it does."""
    text = next((c.source for c in cells if c.cell_type == "markdown" or "figure" in c.metadata.get("mystnb", {})), "")
    found = re.search(r"\*\*What to see\.\*\* (.+?)(?=^## |\*\*Predict|\Z)", text, re.M | re.S)
    return f"<aside>{_markdown.render(found[1])}</aside>" if found else ""


def write(executed: Path, out: Path) -> None:
    """Write the decks of all chapters."""
    out.mkdir(parents=True, exist_ok=True)
    for path in notebooks.paths():
        done = executed / path.name
        if not done.exists():
            sys.exit(f"{path.stem} has not been run: there is no {done}; type `make book` first")
        part = out / f"{path.stem}.part"
        part.write_text(deck(nbformat.read(done, as_version=4)), encoding="utf8")
        part.replace(out / f"{path.stem}.html")


def main(executed: Path = teaching.EXECUTED, out: Path = OUT) -> None:
    """Write the decks of all chapters that have been run, and say where they are."""
    write(executed, out)
    print(f"The slides are {out}/*.html; open one in a browser, and print it for a PDF.")


if __name__ == "__main__":
    main()
