"""Draw the pictures that no chapter draws, into book/_static: ``make figures``.

These are the logo (the favicon too), the preview that other sites show beside a link, the figure of the guide
"Add an algorithm in an afternoon", which the guide's own programs draw, and the picture of the README, which is cut
from an executed chapter. They are committed; a build draws none of them.
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
from matplotlib.patches import Circle, Rectangle, RegularPolygon

from fedlib.reports.plotting import COLOURS

from . import notebooks

STATIC = notebooks.ROOT / "book/_static"
README_FIGURE = ("06_cfl", "fig-3")  # chapter, cell
GUIDE_FIGURE = "apfl.svg"
INK, GREY, PALE = "#1b2733", "#5b6b7f", "#eef2f6"
BLUE = COLOURS[0]


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


DRAWN = {"logo.svg": logo, "preview.png": preview}


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
