"""Print the built book with headless Chromium: ``make pdf``.

_build/html/downloads/NN_slug.pdf is a chapter. book.pdf has a cover, the contents, and all pages in their order but for
the first one and the library's reference. A link leads to the published page, and in book.pdf to the page there.
Of Jupyter Book's own builders of PDFs one needs LaTeX, and the other prints the whole book, without its chapters.
"""

import html
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, NameObject, TextStringObject
from tqdm import tqdm

from . import badges, downloads, notebooks

HTML = notebooks.ROOT / "_build/html"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
TITLE, AUTHOR, ADDRESS = notebooks.CONFIG["title"], notebooks.CONFIG["author"], notebooks.ADDRESS
READY = """async ([here, there]) => {
    await Promise.all([document.fonts.ready, window.MathJax?.startup?.promise]);
    for (const hint of document.querySelectorAll("article details:not(.hide, .fedlib *)")) hint.open = true;
    let last = "";
    for (const e of document.querySelectorAll("#exercises :is(strong, details:not(.hide))")) {
        last = e.textContent.match(/^Exercise (\\d)/)?.[1] ?? last;
        if (e.matches("details")) {
            e.querySelector(".sd-summary-text, summary").textContent = `Hint ${last}`;
            e.closest("#exercises").append(e);
        }
    }
    for (const a of document.links)
        if (!a.getAttribute("href").startsWith("#")) a.href = a.href.replace(here, there);
}"""
STYLE = f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Front</title>
<link rel="stylesheet" href="{(HTML / "_static/typefaces.css").as_uri()}"><style>
@page {{ size: A4; margin: 18mm; }}
body {{ font: 11pt/1.5 "Book Sans", sans-serif; margin: 0; }}
h1, h2 {{ font-family: "Book Serif", serif; line-height: 1.15; }}
h1 {{ font-size: 34pt; margin: 8mm 0; }}
h3 {{ font-size: 11pt; margin: 4mm 0 1mm; break-after: avoid; }}
section {{ height: 250mm; display: flex; flex-direction: column; justify-content: center; break-after: page; }}
img {{ width: 40mm; }}
a {{ display: flex; justify-content: space-between; color: inherit; text-decoration: none; break-inside: avoid; }}
</style>"""
NUMBERS = f"""<style>@page {{
@bottom-left {{ content: "{TITLE}. CC BY 4.0. {ADDRESS}"; font: 8pt "Book Sans", sans-serif; color: #555; }}
@bottom-right {{ content: counter(page); font: 10pt "Book Sans", sans-serif; }} }}
p {{ break-after: page; }}</style>"""


def contents(toc: Path = notebooks.ROOT / "_toc.yml") -> dict[str, list[str]]:
    """The parts of the book and the pages of each, without the first page and those of the library's modules."""
    _, *parts = re.split(r"^  - caption: ", toc.read_text(encoding="utf8"), flags=re.M)
    return {part.partition("\n")[0]: re.findall(r"- file: (\S+)$", part, re.M) for part in parts}


def printer(browser: Page, folder: Path) -> Callable[..., PdfReader]:
    """A function that prints a page of the book, or a page with the text that it is given."""

    def printed(name: str, text: str = "") -> PdfReader:
        source, path = HTML / f"{name}.html", folder / f"{name.replace('/', '-')}.pdf"
        if text:
            source = path.with_suffix(".html")
            source.write_text(f"{STYLE}{text}", encoding="utf8")
        browser.goto(source.as_uri())
        browser.evaluate(READY, [f"{HTML.as_uri()}/", ADDRESS])
        browser.pdf(path=path, prefer_css_page_size=True, tagged=True, outline=not text)
        pdf = PdfReader(path)
        once(pdf.outline)
        return pdf

    return printed


def once(marks: list[Any]) -> None:
    """Say the title of each bookmark once: Chromium says it twice where a heading has moved to the next sheet."""
    for mark in marks:
        if isinstance(mark, list):
            once(mark)
        elif mark.title[: len(mark.title) // 2] * 2 == mark.title:
            mark.node[NameObject("/Title")] = TextStringObject(mark.title[: len(mark.title) // 2])


def title(pdf: PdfReader) -> str:
    """The title of a page without that of the book."""
    return str((pdf.metadata or {}).get("/Title", "")).partition(" \N{EM DASH} ")[0]


def front(names: dict[str, str], starts: dict[str, int]) -> str:
    """The cover and the contents, for titles and first sheets."""
    logo = (notebooks.ROOT / "book/_static/logo.svg").as_uri()
    said = f"Release {badges.release()}. The text and the figures are under CC BY 4.0, the code under BSD 3-Clause."
    cover = f'<img src="{logo}"><h1>{html.escape(TITLE)}</h1><p>{html.escape(AUTHOR)}<p>{said}<br>{ADDRESS}'
    rows = ""
    for part, pages in contents().items():
        rows += f"<h3>{html.escape(part)}</h3>"
        for page in pages:
            name = html.escape(names[page])
            rows += f'<a href="{ADDRESS}{page}.html"><span>{name}</span><span>{starts[page] + 1}</span></a>'
    return f"<section>{cover}</section><h2>Contents</h2>{rows}"


def number(pdf: PdfWriter, numbers: PdfReader, skip: int = 0) -> None:
    """Put numbers below the pages, but for some at the front."""
    for page, below in zip(pdf.pages[skip:], numbers.pages, strict=False):
        page.merge_page(below)


def lead_inside(book: PdfWriter, starts: dict[str, int]) -> None:
    """Let links to pages that the book has lead there; `starts` are the first sheets of its pages."""
    for sheet in book.pages:
        for link in sheet.get("/Annots", ()):
            link = link.get_object()
            address = str(link.get("/A", {}).get("/URI", ""))
            page = address[len(ADDRESS) :].partition(".html")[0]
            if address.lower().startswith(ADDRESS.lower()) and page in starts:  # a host has no capitals
                del link["/A"]
                place = [book.pages[starts[page]].indirect_reference, NameObject("/Fit")]
                link[NameObject("/Dest")] = ArrayObject(place)


def save(pdf: PdfWriter, path: Path, name: str) -> None:
    """Write a PDF with its title and authors."""
    pdf.metadata = {"/Title": name, "/Author": AUTHOR}
    pdf.write(path)


def main(out: Path = downloads.OUT) -> None:
    """Print all pages.

    Raises
    ------
    SystemExit
        There is no browser, or a page is not there.
    """
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not found:
        sys.exit(f"`make pdf` prints with Chromium, and there is none of {', '.join(BROWSERS)}; install chromium")
    pages = [page for pages in contents().values() for page in pages]
    if missing := [page for page in pages if not (HTML / f"{page}.html").exists()]:
        sys.exit(f"{missing[0]} has not been built; type `make book` first")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as p:
        browser = p.chromium.launch(executable_path=found, args=QUIET)
        printed = printer(browser.new_page(reduced_motion="reduce"), Path(folder))
        each = {page: printed(page) for page in tqdm(pages, desc="pages", mininterval=5)}
        *firsts, sheets = accumulate((len(pdf.pages) for pdf in each.values()), initial=0)
        starts = dict(zip(each, firsts, strict=True))
        first = printed("front", front({page: title(pdf) for page, pdf in each.items()}, starts))
        numbers = printed("numbers", NUMBERS + "<p>&nbsp;</p>" * sheets)
        browser.close()
        book = PdfWriter(first)
        for page, pdf in each.items():
            book.append(pdf)
            if page.startswith("notebooks/"):
                chapter = PdfWriter(pdf)
                number(chapter, numbers)
                save(chapter, out / f"{Path(page).name}.pdf", title(pdf))
        lead_inside(book, {page: start + len(first.pages) for page, start in starts.items()})
        number(book, numbers, len(first.pages))
        save(book, out / "book.pdf", TITLE)
    print(f"The PDFs are {out}/*.pdf.")


def show_links(page: Path = HTML / "book/teaching/index.html") -> None:
    """Show the links to the PDFs on the page for teachers, which are hidden until then."""
    page.write_text(page.read_text(encoding="utf8").replace(' class="pdf-links" hidden', ""), encoding="utf8")


if __name__ == "__main__":
    main()
    show_links()
