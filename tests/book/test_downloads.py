"""What stands beside the pages: PDFs, in their order. How they look: tests/site. The archives: tests/notebooks."""

from tools import notebooks, pdf


def test_contents_are_those_of_the_book():
    parts = pdf.contents()
    pages = [page for pages in parts.values() for page in pages]
    assert [*parts][0] == "One model for all" and "Teaching" not in parts
    assert all(parts.values()) and len(set(pages)) == len(pages)
    assert [p for p in pages if p.startswith("notebooks/")] == [f"notebooks/{p.stem}" for p in notebooks.paths()]
