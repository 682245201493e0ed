"""What stands beside the pages: PDFs of all pages, in the order of the contents. The archives: tests/notebooks."""

import pytest
from pypdf import PdfReader, PdfWriter

from tools import notebooks, pdf


def test_contents_are_those_of_the_book():
    pages = pdf.contents()
    assert pages[0] == "book/index" and len(set(pages)) == len(pages)
    assert [p for p in pages if p.startswith("notebooks/")] == [f"notebooks/{p.stem}" for p in notebooks.paths()]


def test_chapters_and_one_book(tmp_path, monkeypatch, capsys):
    pages = ["book/index", "notebooks/01_fedavg", "notebooks/02_clients_differ"]

    def printed(browser, page, out):
        sheet = PdfWriter()
        sheet.add_blank_page(100 + pages.index(page), 100)
        sheet.add_metadata({"/Title": page.upper()})
        sheet.write(out / f"{pages.index(page)}.pdf")
        return out / f"{pages.index(page)}.pdf"

    monkeypatch.setattr(pdf, "contents", lambda: pages)
    monkeypatch.setattr(pdf, "printed", printed)
    monkeypatch.setattr(pdf, "HTML", tmp_path / "html")
    monkeypatch.setattr(pdf.shutil, "which", {"google-chrome": "/bin/chrome"}.get)
    with pytest.raises(SystemExit, match="book/index has not been built; type `make book` first"):
        pdf.main(tmp_path / "out")
    for page in pages:
        (tmp_path / f"html/{page}.html").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"html/{page}.html").write_text("", encoding="utf8")
    pdf.main(tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "01_fedavg.pdf",
        "02_clients_differ.pdf",
        "book.pdf",
    ]
    book = PdfReader(tmp_path / "out/book.pdf")
    assert [p.mediabox.width for p in book.pages] == [100, 101, 102]
    assert [mark.title for mark in book.outline] == [page.upper() for page in pages]
    assert "*.pdf" in capsys.readouterr().out
    monkeypatch.setattr(pdf.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="install chromium"):
        pdf.main(tmp_path / "out")
