"""The book's own Sphinx extensions: previews, cells that only prepare, figures in the page's ink, descriptions."""

import copy
import io
import json
import re
import runpy
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from docutils import nodes
from docutils.core import publish_doctree
from matplotlib.figure import Figure

from tools import notebooks, preview

ROOT = notebooks.ROOT


def extension(name):
    return SimpleNamespace(**runpy.run_path(str(ROOT / f"book/_ext/{name}.py")))


EXECUTED, DRAWN, PUBLISHED = extension("executed"), extension("drawn"), extension("published")
TOGETHER = extension("together")


def cell(name, source, outputs=(), **metadata):
    return {"id": name, "cell_type": "code", "source": source, "outputs": [*outputs], "metadata": metadata}


SAID = {"output_type": "stream", "name": "stdout", "text": "1\n"}


def test_a_preview_keeps_what_has_been_run_and_says_what_has_not():
    written = {"same": "print(1)", "changed": "print(2)", "silent": "x = 1"}
    committed = {"cells": [*(cell(*one) for one in written.items()), cell("drawn", "plot()", mystnb={"figure": {}})]}
    run = {"cells": [cell("same", ["print", "(1)"], [SAID]), cell("changed", "print(1)", [SAID])]}
    same, changed, silent, drawn = EXECUTED.previewed(copy.deepcopy(committed), run)["cells"]
    assert same["outputs"] == [SAID] and silent["outputs"] == []
    assert "not run here" in changed["outputs"][0]["data"]["text/html"]
    assert "not run here" in drawn["outputs"][0]["data"]["image/svg+xml"], "a picture, so that its label is there"
    assert all(c["outputs"] for c in EXECUTED.previewed(committed, {"cells": []})["cells"] if c["id"] != "silent")


CELLS = [
    ("seed = 0", ["parameters"], True),
    ("# @title Set-up: fetch this release\nimport sys", [], True),
    ("# @title Imports and sizes\nK = 3", ["hide-input"], False),
    ("import torch\nfrom fedlib import fit", [], True),
    ("import copy\n\n\ndef fedavg(): ...", [], False),
    ("# @title Draw\nplt.show()", ["hide-input"], False),
    ("%matplotlib inline", [], False),
    ("answer = 1", ["solution", "hide-cell"], False),
]


@pytest.mark.parametrize(("source", "tags", "gone"), CELLS)
def test_cells_that_only_prepare_leave_the_page(source, tags, gone):
    (found,) = EXECUTED.without_preparation({"cells": [cell("a", source, tags=[*tags])]})["cells"]
    assert ("remove-cell" in found["metadata"].get("tags", [])) == gone


def test_answer_and_check_leave_the_page_and_the_solution_stays():
    tags = {"x = 1": ["solution", "hide-cell"], "# Your answer": ["answer"], "assert x == 1": [], "x": []}
    cells = [cell("", source, [SAID] * source.startswith("assert"), tags=some) for source, some in tags.items()]
    found = EXECUTED.without_preparation({"cells": cells})["cells"]
    left = [[], ["remove-cell"], ["remove-cell"], []]
    assert [c["outputs"] for c in found] == [[SAID], [], [SAID], []], "what a right answer prints"
    assert [c["metadata"]["tags"] for c in found] == [a + b for a, b in zip(tags.values(), left, strict=True)]


def test_no_chapter_loses_a_figure_or_a_table():
    """What leaves the pages draws nothing."""
    for path in notebooks.paths():
        nb = EXECUTED.without_preparation(json.loads(path.read_text(encoding="utf8")))
        gone = [c for c in nb["cells"] if "remove-cell" in c["metadata"].get("tags", ())]
        assert len(gone) >= 3, path.stem
        assert not any("figure" in c["metadata"].get("mystnb", {}) for c in gone), path.stem


def test_no_minus_before_nothing():
    text = "-0.00 ± 0.01 <td>-0.0</td> \N{MINUS SIGN}0.000 -0.001 1-0.00 a-0.0 -0"
    clean = "0.00 ± 0.01 <td>0.0</td> 0.000 -0.001 1-0.00 a-0.0 0"
    stream = {"output_type": "stream", "text": [text]}
    table = {"output_type": "display_data", "data": {"text/html": text}}
    (found,) = EXECUTED.with_plain_numbers({"cells": [cell("a", "-0.00", [stream, table])]})["cells"]
    assert found["outputs"][0]["text"] == found["outputs"][1]["data"]["text/html"] == clean
    assert found["source"] == "-0.00"


def test_the_name_of_the_rows_stands_above_them():
    frame = pd.DataFrame({"loop": [1, 2], "stack": [3, 4]}, pd.Index([1, 25], name="clients"))
    frame.columns.name = "way"
    outputs = [{"data": {"text/html": f.to_html()}} for f in (frame, frame.rename_axis(index=None))]
    (found,) = EXECUTED.with_plain_numbers({"cells": [{"outputs": outputs}]})["cells"]
    heads = [re.findall(r"<th>([^<]*)</th>", o["data"]["text/html"].partition("</thead>")[0]) for o in found["outputs"]]
    assert heads == [["clients", "loop", "stack"], ["way", "loop", "stack"]]


def test_a_formula_keeps_the_signs_around_it():
    sentence = nodes.paragraph()
    for text in ("Of shape (samples, ", "). See (", "), the client ", "’s data, if "):
        sentence += [nodes.Text(text), nodes.math("", "D")]
    sentence += nodes.Text(" is")
    text = sentence.astext()
    TOGETHER.keep(None, sentence, "page")
    assert sentence.astext() == text
    assert [box.astext() for box in sentence.findall(nodes.inline)] == ["D).", "(D),", "D’s"]


def drawing(draw, size=(3, 2)):
    """The SVG element that a page gets for what `draw` puts on an axis."""
    fig = Figure(figsize=size)
    draw(fig.add_subplot())
    file = io.StringIO()
    with plt.rc_context({"svg.fonttype": "path"}):
        fig.savefig(file, format="svg")
    return DRAWN.inlined(file.getvalue(), "f0", 'A "figure"', ["map"])


def test_a_figure_takes_the_colours_of_the_page():
    svg = drawing(lambda ax: [ax.plot([0, 1], [0, y], color=c) for y, c in enumerate(("#0072b2", "white", "#404040"))])
    root = ET.fromstring(svg)
    assert root.get("role") == "img" and root.get("aria-label") == 'A "figure"' and root.get("class") == "drawn map"
    assert "#0072b2" in svg and "#000000" not in svg and "#ffffff" not in svg and "#404040" not in svg
    assert "var(--figure-paper)" in svg and "color-mix(in srgb, currentColor 75%, var(--figure-paper))" in svg
    assert "<style" not in svg and "<metadata" not in svg, "a style sheet would hold for the whole page"
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert ids and all(i.startswith("f0-") for i in ids)
    used = [e.get("href")[1:] for e in root.iter() if e.get("href", "").startswith("#")]
    assert used and set(used) <= set(ids)
    clips = [e.get("clip-path") for e in root.iter() if e.get("clip-path")]
    assert clips and {c[5:-1] for c in clips} <= set(ids)


def test_words_in_a_figure_are_text_as_wide_as_they_were():
    svg = drawing(lambda ax: ax.set(title="A & B", xlabel=r"gain in $R^2$ of $\varepsilon_{10}$"))
    texts = {"".join(e.itertext()): e for e in ET.fromstring(svg).iter(f"{DRAWN.SVG}text")}
    assert {"A & B", "0.4", "gain in R2 of ε10"} <= set(texts) and "<use" in svg and "DejaVu" not in svg
    spans = [(e.text, e.get("style")) for e in texts["gain in R2 of ε10"]]
    assert spans[1:3] == [("R", "font-size: 100%; font-style: italic"), ("2", "font-size: 70%; font-style: normal")]
    wide = {said: e.get("textLength") for said, e in texts.items()}
    assert 60 < float(wide.pop("gain in R2 of ε10")) < 130 and set(wide.values()) == {None}
    assert all(5 < 2 * float(texts[said].get("x")) < 50 for said in wide), "short ones are centred"


def test_figures_have_two_widths():
    classes = [ET.fromstring(drawing(lambda ax: None, (inches, 2))).get("class") for inches in (3, 7)]
    assert classes == ["drawn map", "drawn wide map"]


def test_very_pale_and_very_dark_fills_follow_the_page():
    colours = {"#fff0b0": "page-ground", "#40004b": "page-ground", "#e46e56": None}
    root = ET.fromstring(drawing(lambda ax: [ax.axvspan(i, i + 1, color=c) for i, c in enumerate(colours)]))
    found = {DRAWN.styles_of(e).get("fill"): e.get("class") for e in root.iter(f"{DRAWN.SVG}path")}
    assert {c: found[c] for c in colours} == colours


def on_an_image(ax):
    ax.imshow(np.array([[0.0, 1.0]]), "Blues")
    ax.text(0, 0, "8", color="black")
    ax.text(1, 0, "8", color="white")
    ax.set_title("a title")


def test_text_on_an_image_keeps_its_colour_and_other_text_follows_the_page():
    texts = [e for e in ET.fromstring(drawing(on_an_image)).iter() if e.tag == f"{DRAWN.SVG}text"]
    kept = [DRAWN.styles_of(e)["fill"] for e in texts if e.get("class") == "page-ground"]
    assert sorted(kept) == ["#000000", "#ffffff"]
    assert all(DRAWN.styles_of(e)["fill"] == "currentColor" for e in texts if e.get("class") == "ink")


def test_a_description_is_the_first_sentences():
    long = "A sentence that is long enough to stand alone as what a searcher reads of a page."
    pages = (f"A\n=\n\n{text}\n" for text in (f"Short. {long} More.", "word " * 100))
    trees = (publish_doctree(page, settings_overrides={"doctitle_xform": False}) for page in pages)
    whole, cut = map(PUBLISHED.description, trees)
    assert whole == f"Short. {long}" and cut.endswith("word …") and len(cut) <= PUBLISHED.MOST + 2


def test_a_chapter_can_be_seen_before_it_has_been_run(tmp_path, monkeypatch, capfd):
    """Without one executed copy: grey boxes, numbered figures, cells with titles, a button to Colab, and no error."""
    path = notebooks.paths()[0]
    (tmp_path / "tree").mkdir()
    for name in ("book", "notebooks", "tools", "tests", "fedlib", "_config.yml"):
        (tmp_path / "tree" / name).symlink_to(ROOT / name)
    along = "".join(f"  - file: book/{page}\n" for page in ("notation", "glossary", "bibliography"))
    toc = f"format: jb-book\nroot: notebooks/{path.stem}\nchapters:\n{along}"
    (tmp_path / "tree/_toc.yml").write_text(toc, encoding="utf8")
    monkeypatch.setattr(notebooks, "ROOT", tmp_path / "tree")
    monkeypatch.setattr(notebooks, "paths", lambda: [path])
    monkeypatch.setattr(preview, "OUT", tmp_path / "out")
    preview.main()
    said = capfd.readouterr().err
    left_out = "unknown document:"  # pages that are not part of this small book
    assert [line for line in said.splitlines() if "WARNING" in line and left_out not in line] == []
    html = (tmp_path / f"out/_build/html/notebooks/{path.stem}.html").read_text(encoding="utf8")
    assert "not run here" in html and "Run in Colab" in html and "Figure 1.1 " in html and ">Code of this" in html


def test_chapters_and_papers_that_are_named_become_links():
    """Whoever is not in the bibliography, and the page itself, stay plain words."""
    linked = extension("linked")
    text = "See chapter 5, Li et al. (2020), Sattler, Müller and Samek, 2019, Nobody et al. (2020) and chapter 6."
    places = {("5", ""): "ch5", ("", "Li2020"): "li", ("", "Sattler2019"): "sattler"}

    def place(found):
        number, author, *year = found.groups("")
        target = places.get((number, author + "".join(year)))
        return target and (lambda shown: f"<{target}: {shown.astext()}>")

    shown = "".join(part if isinstance(part, str) else part.astext() for part in linked.parts_of(text, place))
    links = "<ch5: chapter 5>, <li: Li et al. (2020)>, <sattler: Sattler, Müller and Samek, 2019>"
    assert shown == f"See {links}, Nobody et al. (2020) and chapter 6."
