"""What `make pdf` prints from the built pages: a few of them, with Chromium."""

import pytest
from pypdf import PdfReader

from tools import pdf

PARTS = {"Teaching": ["book/teaching/index"], "One model": ["notebooks/01_fedavg", "book/notation"]}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pdf, "contents", lambda: PARTS)
        folder = tmp_path_factory.mktemp("pdf")
        pdf.main(folder)
    return folder


def addresses(pdf):
    links = [link.get_object() for page in pdf.pages for link in page.get("/Annots", ())]
    return [str(link["/A"]["/URI"]) for link in links if "/URI" in link.get("/A", {})]


def test_chapters_and_one_book(out):
    assert sorted(p.name for p in out.iterdir()) == ["01_fedavg.pdf", "book.pdf"]


def test_links_lead_to_published_pages_and_nowhere_on_this_machine(out):
    assert [a for path in out.iterdir() for a in addresses(PdfReader(path)) if not a.startswith("https://")] == []
    home = pdf.ADDRESS.lower()
    inside = [a for a in addresses(PdfReader(out / "book.pdf")) if a.lower().startswith(home)]
    assert f"{home}book/glossary.html" in {a.lower().partition("#")[0] for a in inside}
    pages = {page for pages in PARTS.values() for page in pages}
    assert not [a for a in inside if a[len(home) :].partition(".html")[0] in pages], "that page is in the book"


def test_sheets_have_a_size_and_a_number(out):
    for name, front in (("01_fedavg", 0), ("book", 2)):
        sheets = PdfReader(out / f"{name}.pdf").pages
        assert {(round(float(s.mediabox.width)), round(float(s.mediabox.height))) for s in sheets} == {(595, 842)}
        for number, sheet in enumerate(sheets[front:], 1):
            text, foot, _ = " ".join(sheet.extract_text().split()).rpartition(f"{pdf.TITLE}. CC BY 4.0.")
            assert foot and text.split()[-1] == str(number)


def test_the_book_has_a_cover_contents_and_bookmarks(out):
    book, chapter = PdfReader(out / "book.pdf"), PdfReader(out / "01_fedavg.pdf")
    assert (book.metadata.title, book.metadata.author) == (pdf.TITLE, pdf.AUTHOR)
    assert " ".join(book.pages[0].extract_text().split()).startswith(pdf.TITLE)
    marks = [mark for mark in book.outline if not isinstance(mark, list)]  # a list has the sections of the page before
    titles = [mark.title for mark in marks]
    sections = [mark.title for mark in book.outline[3] if not isinstance(mark, list)]
    assert sections == [mark.title for mark in chapter.outline[1] if not isinstance(mark, list)]
    assert sections[0] == "The idea in a picture" and sections[-2:] == ["Exercises", "Recap"]
    assert titles[0] == "For teachers" and titles[1] == chapter.metadata.title and titles[1].startswith("1. Fed")
    lines = book.pages[1].extract_text().splitlines()
    starts = [book.get_destination_page_number(mark) for mark in marks]
    for title, start in zip(titles, starts, strict=True):
        assert any(title in line for line in lines) and str(start - 1) in " ".join(lines)
    assert [line for line in lines if line in PARTS] == [*PARTS]
    # The contents lead to places in the book.
    inside = [link.get_object() for link in book.pages[1]["/Annots"]]
    assert [book.get_page_number(link["/Dest"][0].get_object()) for link in inside] == starts


def test_hints_stand_after_the_exercises(out):
    text = " ".join(" ".join(sheet.extract_text() for sheet in PdfReader(out / "01_fedavg.pdf").pages).split())
    places = [text.index(words) for words in ("Exercise 1 (", "Exercise 2 (", "Hint 1", "Hint 2", "Recap")]
    assert places == sorted(places)


def test_each_sheet_says_at_its_head_where_it_belongs(out):
    """The first sheet of a chapter has the book's name, the others have the chapter's."""
    first, *others = (" ".join(sheet.extract_text().split()) for sheet in PdfReader(out / "01_fedavg.pdf").pages)
    title = PdfReader(out / "01_fedavg.pdf").metadata.title
    assert first.startswith(f"{pdf.TITLE} {title}") and all(text.startswith(title) for text in others)


def test_what_is_for_the_screen_stays_there(out):
    text = PdfReader(out / "01_fedavg.pdf").pages[0].extract_text()
    assert "Run in Colab" not in text and "Contents" not in text


def test_the_page_for_teachers_shows_its_links_once_the_files_are_there(tmp_path):
    page = tmp_path / "index.html"
    page.write_text((pdf.HTML / "book/teaching/index.html").read_text(encoding="utf8"), encoding="utf8")
    pdf.show_links(page)
    assert '<p>\n<a href="../../downloads/01_fedavg.pdf">' in page.read_text(encoding="utf8")
