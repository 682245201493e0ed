"""Sphinx extension: what the first page shows of the chapters and of the stored results.

``front-map`` is the map of the book, and ``front-figure`` the interactive figure of a chapter in plain words, such as
``06_cfl#slider``. ``chapter-cards`` is a card for each chapter, with the figure of its cell with the tag ``card`` and
the question that it answers. ``key-figures`` are numbers from the files of results. A chapter that has not been run has
no picture.
"""

import base64
import html
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from statistics import median

import yaml
from docutils import nodes
from docutils.parsers.rst import Directive
from drawn import LINK, SVG, inlined, is_text
from PIL import Image  # comes with Matplotlib
from sphinx import addnodes

PEERS = "benchmarks/results/intel-r-xeon-r-processor_peers.json"  # the run of which the first page speaks
SMALL = re.compile("[xy]tick_|legend_")  # names that Matplotlib gives to parts of a figure

QUESTIONS = {
    "01_fedavg": "Why may one average networks?",
    "02_clients_differ": "In which ways do clients differ, and can one model serve them all?",
    "03_taming_drift": "What goes wrong when clients train for long, and what helps?",
    "04_personal_models": "When is a personal model better, and how is it compared fairly?",
    "05_cfl_geometry": "How do updates show which clients disagree?",
    "06_cfl": "When should a federation split?",
    "07_clustering_rivals": "Do we have to wait for a split?",
    "08_fedcg_domains": "Can domains be found without labels for them?",
    "09_domains_from_sums": "What can a server learn from sums alone?",
    "10_fedcg_graph": "Should modules of domains learn from each other?",
    "11_different_columns": "What can be averaged when columns differ?",
    "12_who_helps_whom": "Can one foresee which clients help each other?",
    "13_different_networks": "What can be shared when networks differ?",
    "14_privacy": "What does the server learn from an update, and what helps?",
    "15_choosing": "Which method suits your federation?",
    "16_scaling_out": "What makes training fast, and what if one machine is not enough?",
}


def executed(root, name):
    """The executed copy of a chapter, or one without cells."""
    path = Path(root, f"_build/executed/notebooks/{name}.ipynb")
    return json.loads(path.read_text(encoding="utf8")) if path.exists() else {"cells": []}


def outputs_of(cell):
    """What a cell shows, by kind."""
    found = {}
    for output in cell.get("outputs", ()):
        for kind, data in output.get("data", {}).items():
            found.setdefault(kind, "".join(data))
    return found


def thumbnail(svg, name):
    """A cell's SVG figure for a card: no words, ticks and legends, which nobody could read, and few points."""
    root = ET.fromstring(svg)
    wide = float(root.get("viewBox").split()[2])
    step, places = wide / 200, set()
    for parent in [*root.iter()]:
        for child in [*parent]:
            mark = child.tag == f"{SVG}use" and child.get("x") and child.get("y")
            place = mark and (child.get(LINK), *(round(float(child.get(at)) / step / 6) for at in "xy"))
            if is_text(child) or SMALL.match(child.get("id", "")) or place in places:
                parent.remove(child)
            places |= {place} if place else set()
    for part in [*root.iter()]:
        if part.get("d"):
            part.set("d", thinned(part.get("d"), step))
        if part.get(LINK, "").startswith("data:image"):
            part.set(LINK, shrunk(part.get(LINK)))
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', ET.tostring(root, encoding="unicode")))
    for defs in root.iter(f"{SVG}defs"):
        for child in [c for c in defs if not used & {e.get("id") for e in c.iter()}]:
            defs.remove(child)
    tidy(root)
    return inlined(ET.tostring(root, encoding="unicode"), name, "")


def tidy(group):
    """Without the groups in which nothing is left."""
    for child in [*group]:
        tidy(child)
        if child.tag == f"{SVG}g" and not len(child):
            group.remove(child)


def thinned(path, step):
    """A path of straight lines without those points that lie within a step of the one before."""
    kept, last = [], None
    commands = re.findall(r"([A-Za-z])([^A-Za-z]*)", path)
    for i, (command, rest) in enumerate(commands):
        numbers = [float(n) for n in rest.split()]
        ends = i + 1 == len(commands) or commands[i + 1][0] != "L"
        near = (
            last is not None and command == "L" and max(abs(a - b) for a, b in zip(numbers, last, strict=True)) < step
        )
        if not near or ends:
            kept.append(command + " ".join(f"{n:.1f}".removesuffix(".0") for n in numbers))
            last = numbers[-2:] or None
    return "".join(kept)


def shrunk(address, most=96):
    """An image of a figure with fewer pixels and bytes."""
    picture = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGBA")
    picture.thumbnail((most, most), Image.Resampling.BOX)
    out = io.BytesIO()
    picture.save(out, "WEBP", quality=80)
    return f"data:image/webp;base64,{base64.b64encode(out.getvalue()).decode()}"


class Map(Directive):
    """The map of the book."""

    def run(self):
        """The figure."""
        from book.figures import who_shares_what

        return [nodes.raw("", who_shares_what().html, format="html")]


class FrontFigure(Directive):
    """The interactive figure of a chapter, in words for those who have read nothing yet."""

    required_arguments = 1

    def run(self):
        """The figure, or nothing where the chapter has not been run."""
        from book.figures import split_front

        name, _, place = self.arguments[0].partition("#")
        cells = executed(self.state.document.settings.env.srcdir, name)["cells"]
        shown = next((outputs_of(c).get("text/html", "") for c in cells if c["id"] == place), "")
        return [nodes.raw("", split_front(shown).html, format="html")] if "<figure" in shown else []


class ChapterCards(Directive):
    """The chapters by part, as the table of contents has them, each with a picture."""

    def run(self):
        """Names of parts, and below each a list of links."""
        env = self.state.document.settings.env
        env.note_dependency("_toc.yml")
        contents = yaml.safe_load(Path(env.srcdir, "_toc.yml").read_text(encoding="utf8"))
        shown = []
        for part in contents.get("parts", ()):
            pages = [page["file"] for page in part["chapters"] if page.get("file", "").startswith("notebooks/")]
            if pages:
                shown.append(nodes.rubric("", part["caption"]))
                shown.append(nodes.container("", *(self.card(env, page) for page in pages), classes=["chapter-cards"]))
        return shown

    def card(self, env, page):
        """The picture of a chapter, its title and its question."""
        path = Path(env.srcdir, f"{page}.ipynb")
        cells = json.loads(path.read_text(encoding="utf8"))["cells"]
        heading = re.match(r"# (.+)", next("".join(c["source"]) for c in cells if c["id"] == "title"))[1]
        drawn = [c for c in executed(env.srcdir, path.stem)["cells"] if "image/svg+xml" in outputs_of(c)]
        best = next((c for c in drawn if "card" in c["metadata"].get("tags", ())), (drawn or [None])[0])
        svg = thumbnail(outputs_of(best)["image/svg+xml"], f"card{path.stem[:2]}") if best else ""
        link = addnodes.pending_xref(
            "", nodes.inline("", heading), refdomain="std", reftype="doc", refexplicit=True,
            reftarget=f"/{page}", refwarn=True, refdoc=env.docname,
        )  # fmt: skip
        picture = nodes.raw("", f'<div class="picture" aria-hidden="true">{svg}</div>', format="html")
        return nodes.container("", picture, nodes.paragraph("", "", link), nodes.paragraph("", QUESTIONS[path.stem]))


class KeyFigures(Directive):
    """Three numbers, each with what it says."""

    def run(self):
        """A list of definitions."""
        root = Path(self.state.document.settings.env.srcdir)
        rows = "".join(
            f"<div><dt>{html.escape(n)}</dt><dd>{html.escape(text)}</dd></div>" for n, text in figures(root).items()
        )
        return [nodes.raw("", f'<dl class="key-figures">{rows}</dl>', format="html")]


def figures(root):
    """The numbers of the first page, from the files of results."""

    def mean(name, *place):
        found = json.loads((root / f"book/results/{name}.json").read_text(encoding="utf8"))["figures"]
        for step in place:
            found = found[step]
        return 100 * sum(found.values()) / len(found)

    cfl, fedavg = (mean("cfl", arm, "test accuracy") for arm in ("split-half CFL (ours)", "FedAvg"))
    tuned, plain = (mean("personal_models_longer", "writers", m, "own") for m in ("FedAvg, fine-tuned", "FedAvg"))
    bench = json.loads((root / PEERS).read_text(encoding="utf8"))
    flower = next(r for r in bench["figures"]["rows"] if (r["work"], r["contender"]) == ("W1", "Flower"))
    faster = median(cpu for _, cpu in flower["against"]["fedlib"])
    return {
        f"{cfl:.0f} %, not {fedavg:.0f} %": "of digits classified correctly with split-half CFL, "
        "where four groups call the same digits by other names",
        f"{tuned:.0f} %, not {plain:.0f} %": "of characters classified correctly if each of 60 writers "
        "fine-tunes the common model",
        f"{faster:.1f} times": "as fast as Flower's simulation, on one core, with a wide network",
    }


def setup(app):
    """Connect the extension."""
    app.add_directive("front-map", Map)
    app.add_directive("front-figure", FrontFigure)
    app.add_directive("chapter-cards", ChapterCards)
    app.add_directive("key-figures", KeyFigures)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
