"""Draw the pictures that no chapter draws, into book/_static: ``make figures``.

These are the logo (the favicon too), the preview that other sites show beside a link, the map on the first page, the
figure of the guide "Add an algorithm in an afternoon", which the guide's own programs draw, and the picture of the
README, which is cut from an executed chapter. They are committed; a build draws none of them.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import nbformat
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle, RegularPolygon

from fedlib.reports.plotting import COLOURS

from . import notebooks

STATIC = notebooks.ROOT / "book/_static"
README_FIGURE = ("06_cfl", "fig-3")  # chapter, cell
GUIDE_FIGURE = "apfl.svg"
INK, GREY, PALE = "#1b2733", "#5b6b7f", "#eef2f6"
BLUE, ORANGE, GREEN, PURPLE = COLOURS[:4]

ROWS = [  # what differs, in two more lines; the chapters; the methods; the colour
    ("No difference", "all clients hold", "similar data (IID)", (1,), ("FedAvg", "local training"), GREY),
    ("Label skew", "which classes a client", "holds, and how often", (1, 2), ("FedAvg, FedProx,", "SCAFFOLD"), BLUE),
    ("Concept shift", "what the same input", "is called", (3, 4), ("CFL, IFCA, FeSEM,", "FedGroup, k-means"), ORANGE),
    ("Feature shift", "how a class looks:", "domains", (5, 6), ("FedCG: a module for", "each domain, a graph"), GREEN),
    ("Different features", "which columns a", "client's table has", (7, 8), ("LG-FedAvg, LG-CFL,", "FedSGCNN"), PURPLE),
]
LAST = [(9, "Scoreboard:", "every method on every kind"), (10, "Scaling out:", "more processes and machines")]


def _canvas(width: float, height: float, face: str = "white") -> tuple[Figure, Any]:
    """A figure, and one axis over all of it whose unit is a point; y grows downwards."""
    fig = Figure(figsize=(width / 72, height / 72), dpi=72, facecolor=face)
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(height, 0))
    ax.axis("off")
    return fig, ax


def emblem(ax: Any, x: float, y: float, size: float) -> None:
    """A server and five clients of five shapes, around a centre."""
    angles = np.pi * (0.4 * np.arange(5) - 0.5)
    places = np.stack([x + 0.36 * size * np.cos(angles), y + 0.36 * size * np.sin(angles)], axis=1)
    for px, py in places:
        ax.plot([x, px], [y, py], color=GREY, lw=size / 20, zorder=1)
    for (px, py), sides, turn, colour in zip(
        places, (0, 4, 3, 4, 5), (0, np.pi / 4, np.pi, 0, np.pi), COLOURS[:5], strict=True
    ):
        shape = (
            RegularPolygon((px, py), sides, radius=size / 7, orientation=turn) if sides else Circle((px, py), size / 8)
        )
        shape.set(color=colour, zorder=2)
        ax.add_patch(shape)
    ax.add_patch(Circle((x, y), size / 7, color=GREY, zorder=2))


def logo() -> Figure:
    """The emblem alone, on no background."""
    fig, ax = _canvas(64, 64, face="none")
    emblem(ax, 32, 33, 64)
    return fig


def preview() -> Figure:
    """The title beside the emblem, 1200 by 630 pixels."""
    fig, ax = _canvas(1200, 630)
    ax.add_patch(Rectangle((0, 0), 24, 630, color=BLUE))
    for i, line in enumerate(("Heterogeneous", "federated learning,", "step by step")):
        ax.text(84, 190 + 92 * i, line, size=66, weight="bold", color=INK, va="center")
    ax.text(86, 470, "A book whose chapters are programs,", size=29, color=GREY, va="center")
    ax.text(86, 512, "and the PyTorch library they use", size=29, color=GREY, va="center")
    emblem(ax, 1010, 315, 310)
    return fig


def _same(ax: Any, x: float, y: float) -> None:
    _bars(ax, x, y, [(14, 14, 14)] * 3, GREY)


def _labels(ax: Any, x: float, y: float) -> None:
    _bars(ax, x, y, [(24, 4, 2), (3, 20, 7), (1, 3, 14)], BLUE)


def _bars(ax: Any, x: float, y: float, clients: list[tuple[int, ...]], colour: str) -> None:
    for k, counts in enumerate(clients):
        for c, count in enumerate(counts):
            ax.add_patch(Rectangle((x + 18 * k + 5 * c, y + 32 - count), 4, count, color=colour))
        ax.plot([x + 18 * k - 1, x + 18 * k + 15], [y + 33, y + 33], color=INK, lw=1)


def _names(ax: Any, x: float, y: float) -> None:
    for k, name in enumerate("724"):
        ax.text(x + 7 + 18 * k, y + 9, name, size=12, ha="center", va="center", color=ORANGE, weight="bold")
        ax.text(x + 7 + 18 * k, y + 28, "7", size=16, ha="center", va="center", color=INK, family="serif")


def _looks(ax: Any, x: float, y: float) -> None:
    for k, (turn, back, ink) in enumerate(((0, "white", INK), (-90, "white", INK), (0, GREEN, "white"))):
        ax.add_patch(Rectangle((x + 18 * k, y + 9), 15, 21, facecolor=back, edgecolor=GREEN, lw=1))
        style = {"size": 13, "ha": "center", "va": "center", "family": "serif", "rotation": turn}
        ax.text(x + 7.5 + 18 * k, y + 19.5, "7", color=ink, **style)


def _columns(ax: Any, x: float, y: float) -> None:
    for k, held in enumerate(("11100", "01011", "10001")):
        for c, there in enumerate(held):
            face = PURPLE if there == "1" else "white"
            place = (x + 10 * c, y + 5 + 10 * k)
            ax.add_patch(Rectangle(place, 8.5, 8, facecolor=face, edgecolor=PURPLE, lw=0.8))


def book_map() -> Figure:
    """Kinds of heterogeneity, the chapters that treat them, and the methods these run; narrow enough for a phone."""
    step, top = 64, 34
    height = top + step * len(ROWS) + 68
    fig, ax = _canvas(480, height)
    for x, title in ((14, "How clients differ"), (230, "Chapter"), (326, "Methods")):
        ax.text(x, 18, title, size=12.5, color=GREY, va="center", weight="bold")
    pictures = (_same, _labels, _names, _looks, _columns)
    for i, (kind, line, more, chapters, methods, colour) in enumerate(ROWS):
        y = top + step * i
        ax.add_patch(FancyBboxPatch((9, y + 3), 203, step - 10, "round,pad=0,rounding_size=6", color=PALE))
        ax.add_patch(Rectangle((6, y + 5), 4, step - 14, color=colour))
        pictures[i](ax, 18, y + 9)
        ax.text(76, y + 15, kind, size=12.5, weight="bold", color=INK, va="center")
        ax.text(76, y + 31, line, size=11, color=INK, va="center")
        ax.text(76, y + 45, more, size=11, color=INK, va="center")
        _arrow(ax, 214, 228, y + 28)
        for j, number in enumerate(chapters):
            _number(ax, 244 + 34 * j, y + 28, number, colour)
        _arrow(ax, 262 + 34 * (len(chapters) - 1), 322, y + 28)
        for j, text in enumerate(methods):
            ax.text(328, y + 20 + 17 * j, text, size=12, color=INK, va="center")
    y = top + step * len(ROWS) + 6
    ax.plot([6, 474], [y, y], color=GREY, lw=1)
    for (number, title, text), x in zip(LAST, (24, 262), strict=True):
        _number(ax, x, y + 31, number, INK)
        ax.text(x + 22, y + 23, title, size=12.5, weight="bold", color=INK, va="center")
        ax.text(x + 22, y + 40, text, size=11, color=INK, va="center")
    return fig


def _arrow(ax: Any, start: float, end: float, y: float) -> None:
    style = {"arrowstyle": "->", "mutation_scale": 9, "color": GREY, "shrinkA": 0, "shrinkB": 0}
    ax.add_patch(FancyArrowPatch((start, y), (end, y), **style))


def _number(ax: Any, x: float, y: float, number: int, colour: str) -> None:
    ax.add_patch(Circle((x, y), 14, facecolor="white", edgecolor=colour, lw=2.5))
    ax.text(x, y + 0.5, str(number), size=13, weight="bold", color=INK, ha="center", va="center_baseline")


def cut(chapter: str, cell: str) -> str:
    """A figure of an executed chapter as SVG, with a note on where it comes from."""
    path = notebooks.ROOT / f"_build/executed/notebooks/{chapter}.ipynb"
    if not path.exists():
        raise SystemExit(f"{path} is not there: type make book first")
    outputs = next((c.outputs for c in nbformat.read(path, as_version=4).cells if c.id == cell), None)
    if outputs is None:
        raise SystemExit(f"chapter {chapter} has no cell {cell!r}: name another one in tools/figures.py")
    (svg,) = [o.data["image/svg+xml"] for o in outputs if "image/svg+xml" in o.get("data", {})]
    head, mark, rest = svg.partition("<svg ")
    return f"{head}<!-- notebooks/{chapter}.ipynb, cell {cell} -->\n{mark}{rest}"


def of_the_guide() -> bytes:
    """The figure that a reader of the guide draws."""
    text = (notebooks.ROOT / "book/add_algorithm.md").read_text(encoding="utf8")
    # Text stays text, and the same drawing is the same bytes.
    style = f"backend: agg\nsvg.fonttype: none\nsvg.hashsalt: {GUIDE_FIGURE}\n"
    with tempfile.TemporaryDirectory() as folder:
        for program, code in re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)\n```\n", text, re.S):
            Path(folder, program).write_text(code, encoding="utf8")
        Path(folder, "matplotlibrc").write_text(style, encoding="utf8")
        fixed = {"PYTHONPATH": str(notebooks.ROOT), "SOURCE_DATE_EPOCH": "0", "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "compare.py"], cwd=folder, env=os.environ | fixed, check=True)
        return Path(folder, GUIDE_FIGURE).read_bytes()


DRAWN = {"logo.svg": logo, "map.svg": book_map, "preview.png": preview}


def _write(name: str, data: bytes) -> None:
    part = STATIC / f"{name}.part"
    part.write_bytes(data)
    os.replace(part, STATIC / name)
    print(f"wrote {Path(STATIC, name).relative_to(notebooks.ROOT)}, {len(data) / 1000:.0f} kB")


def main() -> None:
    """Draw all of them."""
    readme = cut(*README_FIGURE).encode()  # first: it may have to refuse
    for name, draw in DRAWN.items():
        file = io.BytesIO()
        # Text stays text: it scales, can be found, and weighs little. No date: the same drawing, the same bytes.
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
            svg = name.endswith(".svg")
            draw().savefig(file, format=name[-3:], metadata={"Date": None} if svg else {"Software": None})
        _write(name, file.getvalue())
    _write("readme.svg", readme)
    _write(GUIDE_FIGURE, of_the_guide())


if __name__ == "__main__":
    main()
