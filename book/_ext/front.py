"""Sphinx extension: what the first page shows of the chapters and of the stored results.

``from-chapter`` is the figure that a cell of an executed chapter drew, such as ``06_cfl#slider``: the interactive one
if there is one. ``chapter-cards`` is a card for each chapter, with the figure of its cell with the tag ``card`` and the
question that it answers. ``key-figures`` are numbers from the files of results. A chapter that has not been run
has no picture.
"""

import csv
import html
import json
import re
from pathlib import Path
from statistics import median

from docutils import nodes
from docutils.parsers.rst import Directive
from drawn import inlined
from sphinx import addnodes

PEERS = "benchmarks/results/intel-r-xeon-r-processor_peers.json"  # the run of which the first page speaks


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


def picture(cell, name):
    """A cell's SVG figure as an element of a page; nothing where it drew none."""
    svg = outputs_of(cell).get("image/svg+xml")
    alt = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")
    return inlined(svg, name, alt) if svg else ""


class FromChapter(Directive):
    """A figure of a chapter."""

    required_arguments = 1

    def run(self):
        """The figure, or nothing where the chapter has not been run."""
        root = self.state.document.settings.env.srcdir
        name, _, place = self.arguments[0].partition("#")
        for cell in executed(root, name)["cells"]:
            if cell["id"] == place:
                shown = outputs_of(cell)
                html = shown.get("text/html", "")
                drawn = html if "<figure" in html else picture(cell, "front")
                return [nodes.raw("", drawn, format="html")]
        return []


class ChapterCards(Directive):
    """The chapters, each with a picture."""

    def run(self):
        """A list of links."""
        root = Path(self.state.document.settings.env.srcdir)
        cards = nodes.container(classes=["chapter-cards"])
        for path in sorted((root / "notebooks").glob("*.ipynb")):
            cells = json.loads(path.read_text(encoding="utf8"))["cells"]
            title = next("".join(c["source"]) for c in cells if c["id"] == "title")
            heading = re.match(r"# (.+)", title)[1]
            run = executed(root, path.stem)["cells"]
            drawn = [c for c in run if "image/svg+xml" in outputs_of(c)]
            best = next((c for c in drawn if "card" in c["metadata"].get("tags", ())), (drawn or [None])[0])
            svg = picture(best, f"card{path.stem[:2]}") if best else ""
            link = addnodes.pending_xref(
                "", nodes.inline("", heading), refdomain="std", reftype="doc", refexplicit=True,
                reftarget=f"/notebooks/{path.stem}", refwarn=True, refdoc=self.state.document.settings.env.docname,
            )  # fmt: skip
            shown = nodes.raw("", f'<div class="picture" aria-hidden="true">{svg}</div>', format="html")
            cards += nodes.container("", shown, nodes.paragraph("", "", link, nodes.Text(f" {QUESTIONS[path.stem]}")))
        return [cards]


class KeyFigures(Directive):
    """Four numbers, each with what it says."""

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
    with (root / "book/paper/verdicts.csv").open(newline="", encoding="utf8") as file:
        verdicts = [row["verdict"] for row in csv.DictReader(file)]
    return {
        f"{cfl:.0f} %, not {fedavg:.0f} %": "of digits classified correctly with split-half CFL, "
        "where four groups call the same digits by other names",
        f"{tuned:.0f} %, not {plain:.0f} %": "of characters classified correctly if each of 60 writers "
        "fine-tunes the common model",
        f"{faster:.1f} times": "as fast as Flower's simulation, on one core, with a wide network",
        f"{verdicts.count('reproduced')} of {len(verdicts)}": "printed figures reproduced; each stands beside ours",
    }


def setup(app):
    """Connect the extension."""
    app.add_directive("from-chapter", FromChapter)
    app.add_directive("chapter-cards", ChapterCards)
    app.add_directive("key-figures", KeyFigures)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
