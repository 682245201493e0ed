"""Sphinx extension: what the first page shows of the chapters and of the stored results.

``front-map`` is the map of the book, and ``front-figure`` the interactive figure of a chapter in plain words, such as
``06_cfl#slider``. ``chapter-cards`` is a card for each chapter, with the figure of its cell with the tag ``card`` and
the question that it answers. ``key-figures`` are numbers from the files of results. A chapter that has not been run has
no picture.
"""

import base64
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from statistics import mean, median

import yaml
from docutils import nodes
from PIL import Image  # comes with Matplotlib
from sphinx import addnodes

from book import results
from book._ext.directives import WORDS, directive
from book._ext.drawn import LINK, SVG, inlined
from book.figures import split_front, who_shares_what
from tools import notebooks

PEERS = "benchmarks/results/intel-r-xeon-r-processor_peers.json"  # the run of which the first page speaks
SMALL = re.compile("[xy]tick_|legend_")  # names that Matplotlib gives to parts of a figure

QUESTIONS = {name: words["question"] for name, words in WORDS["chapters"].items()}


def executed(root, name):
    """The executed copy of a chapter, or one without cells."""
    path = Path(root, f"_build/executed/notebooks/{name}.ipynb")
    return notebooks.read(path) if path.exists() else {"cells": []}


def thumbnail(svg, name):
    """A cell's SVG figure for a card: no words, ticks and legends, which nobody could read, and few points."""
    root = ET.fromstring(svg)
    step, places = float(root.get("viewBox").split()[2]) / 180, set()
    for parent in [*root.iter()]:
        if parent.get("d"):
            parent.set("d", thinned(parent.get("d"), step))
        if parent.get(LINK, "").startswith("data:image"):
            parent.set(LINK, shrunk(parent.get(LINK)))
        for child in [*parent]:
            mark = child.tag == f"{SVG}use" and child.get("x") and child.get("y")
            place = mark and (child.get(LINK), *(round(float(child.get(at)) / step / 6) for at in "xy"))
            word = child.tag == f"{SVG}g" and " scale(" in child.get("transform", "")
            if word or SMALL.match(child.get("id", "")) or place in places:
                parent.remove(child)
            places |= {place} if place else set()
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', ET.tostring(root, encoding="unicode")))
    for defs in root.iter(f"{SVG}defs"):
        for child in [c for c in defs if not used & {e.get("id") for e in c.iter()}]:
            defs.remove(child)
    for parent in reversed([*root.iter()]):  # without the groups in which nothing is left
        for child in [c for c in parent if c.tag == f"{SVG}g" and not len(c)]:
            parent.remove(child)
    return inlined(ET.tostring(root, encoding="unicode"), name, "")


def thinned(path, step):
    """A path of straight lines without those points that lie within a step of the one before."""
    kept, last = [], []
    commands = re.findall(r"([A-Za-z])([^A-Za-z]*)", path)
    for (command, rest), (after, _) in zip(commands, [*commands[1:], ("", "")], strict=True):
        point = [float(n) for n in rest.split()]
        near = last and command == "L" and max(abs(a - b) for a, b in zip(point, last, strict=True)) < step
        if not near or after != "L":
            kept.append(command + " ".join(f"{n:.1f}".removesuffix(".0") for n in point))
            last = point[-2:]
    return "".join(kept)


def shrunk(address, most=96):
    """An image of a figure with fewer pixels and bytes."""
    picture = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGBA")
    picture.thumbnail((most, most), Image.Resampling.BOX)
    out = io.BytesIO()
    picture.save(out, "WEBP", quality=80)
    return f"data:image/webp;base64,{base64.b64encode(out.getvalue()).decode()}"


def front_map(page):
    """The map of the book."""
    return page.html(who_shares_what().html)


def front_figure(page, place):
    """The interactive figure of a chapter, for those who have read nothing yet; nothing where it has not been run."""
    name, _, place = place.partition("#")
    cells = executed(page.env.srcdir, name)["cells"]
    shown = [text for cell in cells if cell["id"] == place for text in notebooks.shown(cell, "text/html")]
    return page.html(split_front(shown[0]).html) if shown else []


def chapter_cards(page):
    """The chapters by part, as the table of contents has them, each with a picture."""
    page.reads("_toc.yml")
    contents = yaml.safe_load(Path(page.env.srcdir, "_toc.yml").read_text(encoding="utf8"))
    shown = []
    for part in contents.get("parts", ()):
        chapters = [each["file"] for each in part["chapters"] if each.get("file", "").startswith("notebooks/")]
        if chapters:
            cards = (card(page.env, chapter) for chapter in chapters)
            shown += [nodes.rubric("", part["caption"]), nodes.container("", *cards, classes=["chapter-cards"])]
    return shown


def card(env, chapter):
    """The picture of a chapter, its title and its question."""
    path = Path(env.srcdir, f"{chapter}.ipynb")
    heading = re.match(r"# (.+)", next(c.source for c in notebooks.read(path).cells if c.id == "title"))[1]
    drawn = [c for c in executed(env.srcdir, path.stem)["cells"] if notebooks.shown(c, "image/svg+xml")]
    best = [c for c in drawn if "card" in c.metadata.get("tags", ())] + drawn
    svg = thumbnail(notebooks.shown(best[0], "image/svg+xml")[0], f"card{path.stem[:2]}") if best else ""
    link = addnodes.pending_xref(
        "", nodes.inline("", heading), refdomain="std", reftype="doc", refexplicit=True,
        reftarget=f"/{chapter}", refwarn=True, refdoc=env.docname,
    )  # fmt: skip
    picture = nodes.raw("", f'<div class="picture" aria-hidden="true">{svg}</div>', format="html")
    return nodes.container("", picture, nodes.paragraph("", "", link), nodes.paragraph("", QUESTIONS[path.stem]))


def key_figures(page):
    """Three numbers, each with what it says."""
    numbers = figures(Path(page.env.srcdir)).items()
    rows = "".join(f"<div><dt>{number}</dt><dd>{text}</dd></div>" for number, text in numbers)
    return page.html(f'<dl class="key-figures">{rows}</dl>')


def figures(root):
    """The numbers of the first page, from the files of results, as HTML."""
    cfl = results.load("cfl")["figures"]
    split, one = (100 * mean(cfl[a]["test accuracy"].values()) for a in ("split-half CFL (ours)", "FedAvg"))
    writers = results.load("personal_models_longer")["figures"]["writers"]
    tuned, plain = (100 * mean(writers[a]["own"].values()) for a in ("FedAvg, fine-tuned", "FedAvg"))
    rows = json.loads((root / PEERS).read_text(encoding="utf8"))["figures"]["rows"]
    flower = next(r for r in rows if (r["work"], r["contender"]) == ("W1", "Flower"))
    faster = median(cpu for _, cpu in flower["against"]["fedlib"])
    return {
        f"{split:.0f} %, not {one:.0f} %": "of digits classified correctly with split-half CFL, "
        "where four groups permute the labels",
        f"{tuned:.0f} %, not {plain:.0f} %": "of characters classified correctly if each of 60 writers "
        "fine-tunes the common model",
        f"{faster:.1f} times": "as fast as Flower’s simulation, on one core, with a wide network",
    }


def setup(app):
    """Connect the extension."""
    app.add_directive("front-map", directive(front_map))
    app.add_directive("front-figure", directive(front_figure, 1))
    app.add_directive("chapter-cards", directive(chapter_cards))
    app.add_directive("key-figures", directive(key_figures))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
