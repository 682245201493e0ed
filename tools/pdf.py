"""Print the built book with headless Chromium: ``make pdf``.

_build/html/downloads/NN_slug.pdf is a chapter. book.pdf has a cover, an imprint, the contents, a preface, all pages in
their order but for the library's reference, each part behind a sheet with its name, and an index. Parts and chapters
begin on the right. The preface is the first page, without what is for the screen. A link leads to the published page,
and in book.pdf to the page there. The sheets of a chapter have the numbers that they have in book.pdf, so that a
chapter can name a sheet of another.
Of Jupyter Book's own builders of PDFs one needs LaTeX, and the other prints the whole book, without its chapters.
"""

import html
import logging
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any

import pyphen
import yaml
from playwright.sync_api import Page, sync_playwright
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, NameObject, NullObject, TextStringObject
from tqdm import tqdm

from . import badges, downloads, notebooks

HTML = notebooks.ROOT / "_build/html"
logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns of a size in Chromium's PDFs, which is written anew
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
TITLE, AUTHOR, ADDRESS = notebooks.CONFIG["title"], notebooks.CONFIG["author"], notebooks.ADDRESS
TEMPLATE = notebooks.TEMPLATES.get_template("pdf.html")
FRONT = {"title": TITLE, "author": AUTHOR, "address": ADDRESS, "html": HTML.as_uri(), "release": badges.release()}
FRONT["date"] = yaml.safe_load((notebooks.ROOT / "CITATION.cff").read_text(encoding="utf8"))["date-released"]
FRONT |= {"repository": badges.repository(), "place": ADDRESS if badges.repository() != badges.PLACEHOLDER else ""}
SERIF = Path(str(files("font_source_serif_pro") / "files")).as_uri()  # for the text; the pages have headings in it
READY = Path(__file__).with_name("pdf.js").read_text(encoding="utf8")


def contents(toc: Path = notebooks.ROOT / "_toc.yml") -> dict[str, list[str]]:
    """The parts of the book for students and their pages, without the first page and those of the modules."""
    _, *parts = re.split(r"^  - caption: ", toc.read_text(encoding="utf8"), flags=re.M)
    named = {part.partition("\n")[0]: re.findall(r"- file: (\S+)$", part, re.M) for part in parts}
    return {name: pages for name, pages in named.items() if name != "Teaching"}


def printer(browser: Page, folder: Path) -> Any:
    """A function that prints a page of a part of the book.

    It follows a number of `sheets`, and names those of other `places`, which are pages and their parts. Of its own
    places, it tells on which sheets they are. With what pdf.html needs, it prints the front, for titles (`names`) and
    `places`, also the `openers` of the parts or the `index`.
    """

    british = pyphen.Pyphen(lang="en_GB", left=3, right=3)
    text = (HTML / "book/bibliography.html").read_text(encoding="utf8")
    works = dict(re.findall(r'<div class="citation" id="(\w+)".*?<p>(.*?)</p>', text, re.S))
    browser.expose_function("syllables", lambda words: {word: british.inserted(word, "\xad") for word in words})

    def printed(name: str, part: str = "", sheets: int = 0, places: Any = None, **needs: Any) -> tuple[PdfReader, Any]:
        source, path = HTML / f"{name}.html", folder / f"{name.replace('/', '-')}.pdf"
        if needs:
            source = path.with_suffix(".html")
            front = FRONT | {"parts": contents(), "sheets": sheets, "places": places} | needs
            source.write_text(TEMPLATE.render(front), encoding="utf8")
        browser.goto(source.as_uri())
        browser.add_style_tag(path=Path(__file__).with_name("pdf.css"))
        found = browser.evaluate(READY, [f"{HTML.as_uri()}/", ADDRESS, part, FRONT, SERIF, sheets, places, works])
        browser.pdf(path=path, prefer_css_page_size=True, tagged=True, outline=not needs, print_background=True)
        pdf = PdfReader(path)
        once(pdf.outline)
        return pdf, {f"{name}#{place}": sheets + 1 + int(sheet) for place, sheet in (found or {}).items()}

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


def terms(places: Iterable[str]) -> dict[str, str]:
    """The methods, which head sections of the atlas, the words of the glossary, and what is bold, each with a pattern.

    Of the bold words, which follow ``#**`` in the name of their place, those with a space, in the singular.
    """
    atlas, glossary = ((HTML / f"book/{page}.html").read_text(encoding="utf8") for page in ("atlas", "glossary"))
    methods = re.findall(r"<h2>(\w+(?:, \w+)*)(?: \(ours\))?<a", atlas)
    words = [html.unescape(word) for word in re.findall(r'<dt id="term-[^"]*">([^<]+)', glossary)]
    bold = re.findall(r"#\*\*([a-z-]+ [a-z -]+(?<!s))$", "\n".join(places), re.M)
    found = {}
    for term in [*words, *", ".join(methods).split(", "), *bold]:
        # LGFedAvg is also LG-FedAvg, and what follows in brackets may be left out.
        said = re.sub(r"(\\ \\\(.+)", r"(?:\1)?", re.sub("(?<=[A-Z])(?=[A-Z][a-z])", "-?", re.escape(term)))
        if not any(re.fullmatch(said, other, re.I) or re.fullmatch(rule, term, re.I) for other, rule in found.items()):
            found[term] = rf"(?<![\w-]){said}s?(?![\w-])"
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def index(texts: dict[int, str], places: dict[str, int], most: int = 5) -> dict[str, dict[int, bool]]:
    """The sheets that say each term most often, and the one that introduces it, which is true.

    That is the first on which a chapter has the term in bold, or else the first that says it seven times. `texts` has
    those of chapters three times.
    """
    found = {}
    for term, said in terms(places).items():
        counts = {sheet: len(re.findall(said, text, re.I)) for sheet, text in texts.items()}
        bold = [sheet for place, sheet in places.items() if re.fullmatch(said, place.partition("#**")[2], re.I)]
        first = min(bold or [sheet for sheet, count in counts.items() if count > 6] or [0])
        sheets = sorted({sheet for sheet, count in Counter(counts).most_common(most) if count} | {first} - {0})
        found[term] = {sheet: sheet == first for sheet in sheets}
    return {term: sheets for term, sheets in found.items() if sheets}


def lead_inside(book: PdfWriter, places: dict[str, int], front: int) -> None:
    """Let links to places that the book has lead there; before the sheet with the number 1 are those of the front."""
    for sheet in book.pages:
        for link in sheet.get("/Annots", ()):
            link = link.get_object()
            address = str(link.get("/A", {}).get("/URI", ""))
            page, _, part = address[len(ADDRESS) :].partition(".html")
            number = places.get(page + part, places.get(page))
            if address.lower().startswith(ADDRESS.lower()) and number:  # a host has no capitals
                del link["/A"]
                place = [book.pages[front + number - 1].indirect_reference, NameObject("/XYZ"), *[NullObject()] * 3]
                link[NameObject("/Dest")] = ArrayObject(place)


def right(book: PdfWriter, asked: bool = True) -> None:
    """Let the next sheet be on the right, if it is asked for."""
    if asked and len(book.pages) % 2:
        book.add_blank_page()


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
    if not (found := next(filter(None, map(shutil.which, BROWSERS)), None)):
        sys.exit(f"`make pdf` prints with Chromium, and there is none of {', '.join(BROWSERS)}; install chromium")
    parts = contents()
    pages = {page: part for part, pages in parts.items() for page in pages}
    chapters = {page for page in pages if page.startswith("notebooks/")}
    if missing := [page for page in pages if not (HTML / f"{page}.html").exists()]:
        sys.exit(f"{missing[0]} has not been built; type `make book` first")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as p:
        browser = p.chromium.launch(executable_path=found, args=QUIET)
        page = browser.new_page(reduced_motion="reduce", viewport={"width": 794, "height": 1123})  # A4
        page.emulate_media(media="print")
        printed = printer(page, Path(folder))
        places = dict.fromkeys(pages, 100)  # numbers as long as most, until the sheets are known
        for _ in range(3):  # twice, unless the numbers that are printed move a section
            each, sheets, texts, found = {}, 0, {}, {}
            for name, part in tqdm({"book/index": "Preface", **pages}.items(), desc="pages", mininterval=5):
                starts = name == parts.get(part, [""])[0]
                sheets += (starts or name in chapters) * (sheets % 2) + 2 * starts  # the part's own and its back
                each[name], within = printed(name, part, sheets, places)
                found |= {name: sheets + 1} | within
                for sheets, content in enumerate(each[name].pages, sheets + 1):  # noqa: B020, PLR1704
                    text = re.sub(" -\n(?=[a-z])", "", content.extract_text())
                    texts[sheets] = " ".join(text.split() * (3 if name.startswith("notebooks/") else 1))
            if found == places:
                break
            places = found
        places |= {str(sheet): sheet for sheet in texts}  # to which the index leads
        marks = {page: [mark for mark in each[page].outline[1] if not isinstance(mark, list)] for page in chapters}
        names = {page: title(pdf) for page, pdf in each.items()}
        needs = {"names": names, "places": places, "each": each, "marks": marks}
        sheets += sheets % 2  # the index begins on the right
        openers, back, first = (
            printed(name, "", sheets, **needs, **{name: more})[0]
            for name, more in {"openers": True, "index": index(texts, places), "last": sheets + 1}.items()
        )
        browser.close()
        right(book := PdfWriter(first))
        front = len(book.pages)
        book.append(each["book/index"])
        for number, (part, inside) in enumerate(parts.items()):
            whole = PdfWriter()
            whole.append(openers, pages=(number, number + 1))
            for page in inside:
                if page in chapters:
                    chapter = PdfWriter(each[page])
                    chapter.set_page_label(0, len(chapter.pages) - 1, "/D", start=places[page])
                    save(chapter, out / f"{Path(page).name}.pdf", names[page])
                right(whole, page in chapters or page == inside[0])
                whole.append(each[page])
            whole.write(file := BytesIO())
            right(book)
            book.append(file, part)
        right(book)
        book.append(back, "Index")
        lead_inside(book, places, front)
        book.set_page_label(0, front - 1, "/r")
        save(book, out / "book.pdf", TITLE)
    print(f"The PDFs are {out}/*.pdf.")


def show_links(pages: Path = HTML) -> None:
    """Show the links to the PDFs of chapters and on the page for teachers, which are hidden until then."""
    for page in [pages / "book/teaching/index.html", *pages.glob("notebooks/*.html")]:
        page.write_text(page.read_text(encoding="utf8").replace('"pdf-links" hidden', '"pdf-links"'), encoding="utf8")


if __name__ == "__main__":
    main()
    show_links()
