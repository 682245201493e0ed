"""Draw the pictures that no build draws, into book/_static: ``make figures``.

These are the figure of the guide "Add an algorithm in an afternoon", which the guide's own programs draw, and the
picture of the README, which is cut from an executed chapter. They are committed, as are the logo and the preview.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from . import notebooks

STATIC = notebooks.ROOT / "book/_static"
README_FIGURE = ("06_cfl", "fig-3")  # chapter, cell
GUIDE_FIGURE = "apfl.svg"


def of_the_readme() -> bytes:
    """A figure of an executed chapter, with a note on where it comes from."""
    chapter, name = README_FIGURE
    (cell,) = (c for c in notebooks.executed(chapter).cells if c.id == name)
    head, mark, rest = notebooks.shown(cell, "image/svg+xml")[0].partition("<svg ")
    return f"{head}<!-- notebooks/{chapter}.ipynb, cell {name} -->\n{mark}{rest}".encode()


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


def main() -> None:
    """Draw both, and say where they are."""
    for name, draw in {"readme.svg": of_the_readme, GUIDE_FIGURE: of_the_guide}.items():
        data = draw()
        (STATIC / name).write_bytes(data)
        print(f"wrote book/_static/{name}, {len(data) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
