"""Look at pages before every chapter has been run: ``make page CHAPTER=04`` and ``make pages``.

A cell that has been run as it stands shows its output; in place of any other output stands a grey "not run here". A
second preview reads only what has changed. The one chapter comes with the pages it quotes all the time, and links to
others are words.
"""

import os
import subprocess
import sys
from pathlib import Path

from . import notebooks

OUT = notebooks.ROOT / "_build/preview"
ALONG = ("book/notation", "book/glossary", "book/bibliography")


def chapter(number: str) -> Path:
    """The notebook whose name begins with a number, such as "4" or "04".

    Raises
    ------
    SystemExit
        There is none; says which there are.
    """
    found = [p for p in notebooks.paths() if p.stem.startswith(f"{number:0>2}_") or p.stem == number]
    if len(found) != 1:
        sys.exit(f"there is no chapter {number!r}; there are {', '.join(p.stem[:2] for p in notebooks.paths())}")
    return found[0]


def main(*numbers: str) -> None:
    """Build the preview of one chapter, or of the whole book, and say where it is."""
    out, page, more = OUT, "book/index", []
    if numbers:
        path = chapter(*numbers)
        out, page = OUT / path.stem, f"notebooks/{path.stem}"
        out.mkdir(parents=True, exist_ok=True)
        toc = out / "_toc.yml"
        along = "".join(f"  - file: {page}\n" for page in ALONG)
        toc.write_text(f"format: jb-book\nroot: notebooks/{path.stem}\nchapters:\n{along}", encoding="utf8")
        more = ["--toc", toc]
    program = Path(sys.executable).with_name("jupyter-book")
    command = [program, "build", notebooks.ROOT, "--path-output", out, *more, "--quiet"]
    if code := subprocess.call(command, env=os.environ | {"FEDLIB_PREVIEW": "1"}, cwd=notebooks.ROOT):
        sys.exit(code)
    print(f"The preview is ready: open file://{out}/_build/html/{page}.html")


if __name__ == "__main__":
    main(*filter(None, sys.argv[1:]))
