"""What `make pdf` prints from the built pages: a few of them, with Chromium."""

import math
import re

import pytest
from pypdf import PdfReader

from tools import pdf

PARTS = {
    "Teaching": ["book/teaching/index"],
    "In practice": ["notebooks/01_fedavg", "notebooks/12_who_helps_whom", "book/faq"],
}
FRONT, CONTENTS = 4, 2  # sheets before the preface, and the one with the contents
MM = 72 / 25.4


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pdf, "contents", lambda: PARTS)
        patch.setitem(pdf.FRONT, "place", pdf.ADDRESS)  # as if it had been published
        folder = tmp_path_factory.mktemp("pdf")
        pdf.main(folder)
    return folder


def addresses(pdf):
    links = [link.get_object() for page in pdf.pages for link in page.get("/Annots", ())]
    return [str(link["/A"]["/URI"]) for link in links if "/URI" in link.get("/A", {})]


def words(sheet):
    """What a sheet says, with words whole that break at the end of a line."""
    return " ".join(re.sub(" -\n(?=[a-z])", "", sheet.extract_text()).split())


def letters(sheet):
    """The size of each piece of text in points, and how far above the edge of the sheet it is."""
    pieces = []

    def add(text, page, line, _, size):
        if text.strip():
            scale = math.hypot(*(line[0] * page[i] + line[1] * page[i + 2] for i in (0, 1)))
            pieces.append((round(size * scale, 1), line[4] * page[1] + line[5] * page[3] + page[5]))

    sheet.extract_text(visitor_text=add)
    return pieces


def named(outline):
    """The bookmarks of an outline, without the lists of those below them."""
    return [mark for mark in outline if not isinstance(mark, list)]


def test_chapters_and_one_book(out):
    assert sorted(p.name for p in out.iterdir()) == ["01_fedavg.pdf", "12_who_helps_whom.pdf", "book.pdf"]


def test_links_lead_to_published_pages_and_nowhere_on_this_machine(out):
    assert [a for path in out.iterdir() for a in addresses(PdfReader(path)) if not a.startswith("https://")] == []
    home = pdf.ADDRESS.lower()
    inside = [a for a in addresses(PdfReader(out / "book.pdf")) if a.lower().startswith(home)]
    assert f"{home}book/glossary.html" in {a.lower().partition("#")[0] for a in inside}
    pages = {page for pages in PARTS.values() for page in pages}
    assert not [a for a in inside if a[len(home) :].partition(".html")[0] in pages], "that page is in the book"


def margins(sheet):
    """What the head and the foot of a sheet say, in the order of the sheet, and where each piece begins."""
    head, foot = {}, {}

    def add(text, page, line, *_):
        x, y = (line[4] * page[i] + line[5] * page[i + 2] + page[i + 4] for i in (0, 1))
        if text.strip() and not 12 * MM < y < 842 - 22 * MM:
            (head if y > 100 else foot)[x] = text.strip()

    sheet.extract_text(visitor_text=add)
    return [sorted(found.items()) for found in (head, foot)]


def numbers(sheets):
    """The numbers at the feet of the sheets, which are at the outer edge: of odd ones, at the right."""
    found = []
    for sheet in sheets:
        feet = [(x, said) for x, said in margins(sheet)[1] if said.isdigit()]
        (x, said), *_ = feet or [(0, "0")]
        assert said == "0" or (x > 400) == bool(int(said) % 2)
        found.append(int(said))
    return found


def test_sheets_have_a_size_and_the_number_of_the_book(out):
    book = PdfReader(out / "book.pdf")
    assert book.page_labels[: FRONT + 2] == ["i", "ii", "iii", "iv", "1", "2"]
    assert {(round(float(s.mediabox.width)), round(float(s.mediabox.height))) for s in book.pages} == {(595, 842)}
    parts = {book.get_destination_page_number(mark) - FRONT + 1 for mark in named(book.outline)[1:-1]}
    bare = parts | {n for n, sheet in enumerate(book.pages, 1 - FRONT) if n < 1 or not words(sheet)}
    assert numbers(book.pages) == [0 if n in bare else n for n in range(1 - FRONT, len(book.pages) - FRONT + 1)]
    assert parts | {n + 2 for n in parts} <= {*range(1, len(book.pages), 2)} and {n + 1 for n in parts} <= bare
    for name in ("01_fedavg", "12_who_helps_whom"):
        sheets = PdfReader(out / f"{name}.pdf").pages
        first, *_ = said = numbers(sheets)
        assert said == [*range(first, first + len(sheets))] and first % 2
        assert words(sheets[0]) == words(book.pages[FRONT + first - 1])


def test_a_page_names_the_sheet_of_the_section_that_it_leads_to(out):
    sheets = PdfReader(out / "book.pdf").pages
    named = [int(n) for sheet in sheets for n in re.findall(r"(?:digits|clusters), p\.\s(\d+)", words(sheet))]
    assert named
    for number in named:
        assert re.search("Experiment 3", sheets[FRONT + number - 1].extract_text()), number


@pytest.mark.parametrize("name", ["01_fedavg", "12_who_helps_whom"])
def test_an_exercise_names_the_sheets_of_its_hint_and_solution_and_leads_there(out, name):
    book, chapter = PdfReader(out / "book.pdf"), PdfReader(out / f"{name}.pdf")
    first = int(chapter.page_labels[0])
    inside = range(FRONT + first - 1, FRONT + first - 1 + len(chapter.pages))
    text = " ".join(words(book.pages[i]) for i in inside)
    asked = re.findall(r"Exercise (\d) .{1,60}?\[hint p\.\s(\d+), solution p\.\s(\d+)\]", text)
    assert [number for number, *_ in asked] == ["1", "2", "3", "4", "5"][: len(asked)] and len(asked) >= 4
    for number, hint, solution in asked:
        assert f"Hint {number} " in words(book.pages[FRONT + int(hint) - 1])
        assert f"Solution {number} " in words(book.pages[FRONT + int(solution) - 1])
    links = [link.get_object().get("/Dest") for i in inside for link in book.pages[i].get("/Annots", ())]
    led = [book.get_destination_page_number(book.named_destinations[to]) for to in links if isinstance(to, str)]
    assert {*led} <= {*inside} and {FRONT + int(at) - 1 for _, *ats in asked for at in ats} <= {*led}


def test_the_book_has_a_cover_contents_and_bookmarks(out):
    book, chapter = PdfReader(out / "book.pdf"), PdfReader(out / "01_fedavg.pdf")
    assert (book.metadata.title, book.metadata.author) == (pdf.TITLE, pdf.AUTHOR)
    assert words(book.pages[0]).startswith(pdf.TITLE)
    assert [mark.title for mark in named(book.outline)] == ["Preface", *PARTS, "Index"]
    marks = [mark for inside in book.outline[2:] if isinstance(inside, list) for mark in named(inside)]
    titles = [mark.title for mark in marks]
    sections = [mark.title for mark in named(book.outline[5][1])]
    assert sections == [mark.title for mark in named(chapter.outline[1])]
    assert sections[0] == "The idea in a picture" and sections[-3:] == [
        "Works cited",
        "Folded code",
        "Hints and solutions",
    ]
    assert titles[0] == "For teachers" and titles[1] == chapter.metadata.title and titles[1].startswith("1. Fed")
    lines = book.pages[CONTENTS].extract_text().splitlines()
    starts = [book.get_destination_page_number(mark) for mark in marks]
    for title, start in zip(titles, starts, strict=True):
        assert any(title in line for line in lines) and str(start - FRONT + 1) in " ".join(lines)
    # The contents lead to places in the book.
    inside = [link.get_object() for link in book.pages[CONTENTS]["/Annots"]]
    leads = [book.get_page_number(link["/Dest"][0].get_object()) for link in inside]
    assert leads == sorted(leads) and {FRONT, *starts} < {*leads} and "Experiment 1: may one" in " ".join(lines)


def test_the_preface_is_the_first_page_and_says_what_paper_lacks(out):
    text = words(PdfReader(out / "book.pdf").pages[FRONT])
    assert "Preface" in text and "It is for students" in text and "read chapters 1 to 4 first" in text
    assert "On paper and on the web" in text and "Start reading" not in text and "Why can we average" not in text


def test_the_index_leads_to_sheets_that_say_the_term(out):
    book = PdfReader(out / "book.pdf")
    start = book.get_destination_page_number(named(book.outline)[-1])
    text = " ".join(words(sheet) for sheet in book.pages[start:])
    for term in ("FedAvg", "cohort", "positive transfer"):
        first = int(re.search(rf"(?<!-){term}\s+(\d+)", text)[1])
        assert term in words(book.pages[FRONT + first - 1]).replace("Positive", "positive"), term
    leads = [link.get_object()["/Dest"][0].get_object() for link in book.pages[start]["/Annots"]]
    assert book.get_page_number(leads[0]) == FRONT + int(re.search(r"\d+", text.partition("most often.")[2])[0]) - 1
    assert str(start - FRONT + 1) in words(book.pages[CONTENTS]).split()


def test_the_index_says_where_a_word_is_introduced(monkeypatch):
    """Where a chapter has it in bold, or else where it comes seven times."""
    monkeypatch.setattr(pdf, "terms", lambda _: {"a": "a", "b": "b", "c": "c", "d": "d"})
    texts = {1: "a d", 2: "a b", 3: "a a", 4: "b", 5: "d " * 7, 6: "b " * 7}
    found = {"a": {1: False, 3: False, 4: True}, "b": {2: False, 6: True}, "d": {1: False, 5: True}}
    assert pdf.index(texts, {"x#**a": 4}, most=2) == found


def test_words_break_and_are_found(out):
    """A soft hyphen that breaks no word would hide it from a search."""
    text = "\n".join(sheet.extract_text() for sheet in PdfReader(out / "01_fedavg.pdf").pages)
    assert re.search("[a-z] -\n[a-z]", text) and "\u00ad" not in text and "feder ated" not in text


def test_a_chapter_says_where_it_lives(out):
    first, second, *_ = PdfReader(out / "01_fedavg.pdf").pages
    address = pdf.ADDRESS.removeprefix("https://").lower() + "notebooks/01_fedavg.html"
    assert f"On the web: {address}" in words(first).replace("ORG", "org") and address not in words(second).lower()


def test_the_imprint_says_how_to_cite_the_book(out):
    text = words(PdfReader(out / "book.pdf").pages[1])
    assert all(said in text for said in (pdf.AUTHOR, pdf.FRONT["release"], pdf.FRONT["date"], "CC BY 4.0", "@book{"))


def test_each_part_has_a_sheet_that_says_what_it_is_about(out):
    book = PdfReader(out / "book.pdf")
    for mark, (name, pages) in zip(named(book.outline)[1:-1], PARTS.items(), strict=True):
        sheet = book.pages[book.get_destination_page_number(mark)]
        assert words(sheet).startswith(name) and len(sheet["/Annots"]) >= len(pages)
        assert ("Experiment 1" in words(sheet)) == (name != "Teaching"), "a part lists the experiments of its chapters"
    template = (pdf.notebooks.ROOT / "tools/pdf.html").read_text(encoding="utf8")
    parts = re.findall(r"^  - caption: (.+)$", (pdf.notebooks.ROOT / "_toc.yml").read_text(encoding="utf8"), re.M)
    assert [name for name in parts if name != "Teaching" and f'  "{name}": "' not in template] == []


def test_no_sentence_asks_to_move_what_is_printed(out):
    text = " ".join(map(words, PdfReader(out / "12_who_helps_whom.pdf").pages))
    assert "What to see in Figure 12." in text and "What to see." not in text
    assert "Move the radius" not in text and "figures.who_helps_whom" not in text and "open the solution" not in text
    assert "It moves on the web." in text


def test_no_sheet_of_a_chapter_ends_in_white(out):
    """Less than two fifths of any but the last, because the text after a figure that does not fit comes before it."""
    for path in sorted(out.glob("*_*.pdf")):
        *sheets, _ = PdfReader(path).pages
        for sheet in sheets:
            foot = min(height for _, height in letters(sheet) if height > 22 * MM)
            assert foot < (22 + 0.4 * 251) * MM, (path.name, words(sheet)[:80])


def test_figures_have_letters_of_one_size(out):
    """Numbers at an axis have 9.2 points, and titles 11, which nothing else has."""
    for path in sorted(out.glob("*_*.pdf")):
        sizes = {size for sheet in PdfReader(path).pages for size, _ in letters(sheet)}
        assert {9.2, 11.0} <= sizes and min(sizes) > 5, path.name


def test_hints_and_solutions_end_a_chapter(out):
    text = " ".join(map(words, PdfReader(out / "01_fedavg.pdf").pages))
    said = (
        "Exercise 1 (",
        "Exercise 2 (",
        "Recap",
        "Hint 1",
        "Hint 2",
        "Solution 1",
        "Solution 2",
        "def shuffle_units",
    )
    places = [text.rindex(some) for some in said]
    assert places == sorted(places) and "BEGIN SOLUTION" not in text


def test_heads_say_the_part_at_the_left_and_the_chapter_at_the_right(out):
    """The first sheet of a chapter has neither, but the name of the book at its foot."""
    chapter = PdfReader(out / "01_fedavg.pdf")
    head, foot = margins(chapter.pages[0])
    assert not head and f"{pdf.TITLE}. Release" in " ".join(said for _, said in foot)
    for sheet, number in zip(chapter.pages, numbers(chapter.pages), strict=True):
        if sheet != chapter.pages[0]:
            said = " ".join(piece for _, piece in margins(sheet)[0])
            assert said == (chapter.metadata.title if number % 2 else "In practice")


def test_what_is_for_the_screen_stays_there(out):
    text = PdfReader(out / "01_fedavg.pdf").pages[0].extract_text()
    assert "Run in Colab" not in text and "Contents" not in text


@pytest.mark.parametrize("name", ["book/teaching/index", "notebooks/01_fedavg"])
def test_a_page_shows_its_links_once_the_files_are_there(name, tmp_path):
    page = tmp_path / f"{name}.html"
    page.parent.mkdir(parents=True)
    (tmp_path / "book/teaching").mkdir(parents=True, exist_ok=True)
    (tmp_path / "book/teaching/index.html").touch()
    built = (pdf.HTML / f"{name}.html").read_text(encoding="utf8").replace('"pdf-links" hidden', '"pdf-links"')
    assert '"pdf-links"' in built
    page.write_text(built.replace('"pdf-links"', '"pdf-links" hidden'), encoding="utf8")
    pdf.show_links(tmp_path)
    assert page.read_text(encoding="utf8") == built
