"""Print the built book with headless Chromium: ``make pdf``.

_build/html/downloads/NN_slug.pdf is a chapter, book.pdf all pages in the order of the contents but for the library's
reference.
"""

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import yaml
from pypdf import PdfReader, PdfWriter
from tqdm import tqdm

from . import downloads, notebooks

HTML = notebooks.ROOT / "_build/html"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PRINT = ("--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", "--virtual-time-budget=30000")


def contents(toc: Path = notebooks.ROOT / "_toc.yml") -> list[str]:
    """The pages of the book, in order, but for those of the library's modules."""
    found: list[str] = []

    def walk(node: object) -> None:
        if isinstance(node, list):
            for each in node:
                walk(each)
        elif isinstance(node, dict):
            found.extend(node[kind] for kind in ("root", "file") if kind in node)
            for each in node.values():
                walk(each)

    walk(yaml.safe_load(toc.read_text(encoding="utf8")))
    return found


def printed(browser: str, page: str, out: Path) -> Path:
    """A page as a PDF.

    Raises
    ------
    SystemExit
        The browser printed nothing; shows what it said.
    """
    path = out / f"{page.replace('/', '-')}.pdf"
    with tempfile.TemporaryDirectory() as profile:  # else browsers that run side by side wait for one another
        command = [
            browser,
            *PRINT,
            f"--user-data-dir={profile}",
            f"--print-to-pdf={path}",
            f"file://{HTML}/{page}.html",
        ]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if run.returncode or not path.exists():
        sys.exit(f"{browser} could not print {page}:\n{run.stderr[-2000:]}")
    return path


def main(out: Path = downloads.OUT) -> None:
    """Print all pages, two at a time.

    Raises
    ------
    SystemExit
        There is no browser, or a page is not there.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        sys.exit(f"`make pdf` prints with Chromium, and there is none of {', '.join(BROWSERS)}; install chromium")
    pages = contents()
    if missing := [page for page in pages if not (HTML / f"{page}.html").exists()]:
        sys.exit(f"{missing[0]} has not been built; type `make book` first")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as two:
        each = two.map(partial(printed, browser, out=Path(folder)), pages)
        book = PdfWriter()
        for page, path in zip(pages, tqdm(each, total=len(pages), desc="pages", mininterval=5), strict=True):
            book.append(path, str((PdfReader(path).metadata or {}).get("/Title") or page))
            if page.startswith("notebooks/"):
                shutil.move(path, out / f"{Path(page).name}.pdf")
        book.write(Path(folder) / "book")
        shutil.move(Path(folder) / "book", out / "book.pdf")
    print(f"The PDFs are {out}/*.pdf.")


if __name__ == "__main__":
    main()
