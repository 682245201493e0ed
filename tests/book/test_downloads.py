"""What stands beside the pages: PDFs, in their order. How they look: tests/site. The archives: tests/notebooks."""

import pytest

from tools import notebooks, pdf


def test_contents_are_those_of_the_book():
    parts = pdf.contents()
    pages = [page for pages in parts.values() for page in pages]
    assert [*parts][0] == "One model for all" and "Teaching" not in parts
    assert all(parts.values()) and len(set(pages)) == len(pages)
    assert [p for p in pages if p.startswith("notebooks/")] == [f"notebooks/{p.stem}" for p in notebooks.paths()]


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(pdf, "HTML", tmp_path)
    monkeypatch.setattr(pdf.shutil, "which", {"google-chrome": "/bin/chrome"}.get)
    with pytest.raises(SystemExit, match="notebooks/01_fedavg has not been built; type `make book` first"):
        pdf.main(tmp_path / "out")
    monkeypatch.setattr(pdf.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="install chromium"):
        pdf.main(tmp_path / "out")
