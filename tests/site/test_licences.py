"""What the built pages ship of other projects stands on the page of licences."""

import re
from importlib.metadata import distribution

from tools.notebooks import ROOT

STATIC = ROOT / "_build/html/_static"
PAGE = ROOT / "book/licences.md"
NAMED = PAGE.read_text(encoding="utf8").partition("## What these pages ship")[2].partition("\n## ")[0].lower()
PACKAGES = "sphinx sphinx-book-theme pydata-sphinx-theme myst-nb sphinx-copybutton sphinx-design sphinx-exercise"
PACKAGES = f"{PACKAGES} sphinx-proof sphinx-togglebutton django-static-mathjax"
PACKAGES = f"{PACKAGES} font-source-sans-pro font-source-serif-pro".split()
WRITTEN = {"pygments.css", "typefaces.css"}  # from the colours of Pygments, and from letters of the two typefaces


def test_every_script_style_sheet_and_font_comes_with_a_package_that_is_named():
    assert [p for p in PACKAGES if p not in NAMED] == []
    known = WRITTEN | {file.name for file in (ROOT / "book/_static").rglob("*")}
    for package in PACKAGES:
        known |= {file.name.removesuffix("_t").removesuffix(".jinja") for file in distribution(package).files}
    shipped = {p for p in STATIC.rglob("*") if p.is_file() and not p.name.startswith("mystnb.")}
    assert shipped and sorted(str(p.relative_to(STATIC)) for p in shipped if p.name not in known) == []


def test_projects_inside_these_packages_are_named_too():
    notices = {p.name.split(".")[0] for p in STATIC.rglob("*.LICENSE.txt")} | {p.name for p in STATIC.glob("vendor/*")}
    assert "bootstrap" in notices
    named = "".join(re.findall(r"\[(.*?)\]", NAMED)).replace(" ", "")
    assert [name for name in notices if name not in named] == []


def test_licences_that_must_come_along_do():
    assert "Apache License" in (STATIC / "mathjax/LICENSE").read_text(encoding="utf8")
    for family in ("sans", "serif"):
        assert "SIL OPEN FONT LICENSE" in (STATIC / f"typefaces/{family}/LICENSE.txt").read_text(encoding="utf8")
