"""What the book offers for download beside its pages, in _build/html/downloads; ``make book`` calls this at its end.

student.zip
    The chapters without solutions, the capstone's starter, the papers' own settings, fedlib and the stored results: it
    runs where it is unpacked.
course.zip
    The same as a course of nbgrader, with the solutions.
slides/NN_slug.html
    A deck for each chapter.

``make pdf`` adds the PDFs.
"""

import zipfile
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

from . import badges, notebooks, slides, student

OUT = notebooks.ROOT / "_build/html/downloads"
STARTER, PAPERS = (notebooks.ROOT / name for name in badges.BESIDE)
FOLDERS = ("fedlib", "book/figures", "book/experiments", "book/results")
BESIDE = ("book/results.py", "book/paper/published.csv", "LICENSE", "LICENSE-TEXT")
KINDS = {".py", ".typed", ".json", ".txt", ".js", ".css", ".html"}


def library() -> Iterator[Path]:
    """The files that a chapter needs beside itself: fedlib, the stored results, the licence."""
    for folder in FOLDERS:
        yield from (path for path in sorted((notebooks.ROOT / folder).rglob("*.*")) if path.suffix in KINDS)
    yield from (notebooks.ROOT / name for name in BESIDE)


def requirements() -> str:
    """What the library and the chapters need, without the tools that make pages of them."""
    text = (notebooks.ROOT / "requirements.txt").read_text(encoding="utf8").partition("# What the chapters need")[2]
    chapters = [line.split("#")[0].strip() for line in text.splitlines()[1:]]
    own = [r for r in requires("fedlib-book") or [] if "extra ==" not in r]
    return "\n".join(sorted({*own, *chapters})) + "\n"


def archive(out: Path, name: str, files: dict[str, str]) -> None:
    """Write a zip file: the library and some texts, in one folder; the same texts always make the same file."""
    texts = {p.relative_to(notebooks.ROOT).as_posix(): p.read_text(encoding="utf8") for p in library()} | files
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out / f"{name}.zip", "w") as zipped:
        for place, text in texts.items():
            zipped.writestr(zipfile.ZipInfo(f"fedlib-{name}/{place}"), text, zipfile.ZIP_DEFLATED)


def archives(out: Path = OUT) -> None:
    """Write student.zip and course.zip."""
    texts = student.files()
    copies = {name: text for name, text in texts.items() if "/" not in name and name.endswith(".ipynb")}
    course = {name: text for name, text in texts.items() if name not in copies}
    copies |= {path.name: path.read_text(encoding="utf8") for path in (STARTER, PAPERS)}
    readme = notebooks.TEMPLATES.get_template("readme.txt")
    for name, files in (("student", copies), ("course", course)):
        say = readme.render(name=name, release=badges.release())
        archive(out, name, {**files, "README.txt": say, "requirements.txt": requirements()})


def main(out: Path = OUT, executed: Path = notebooks.EXECUTED) -> None:
    """Write all downloads but the PDFs."""
    archives(out)
    slides.main(executed, out / "slides")


if __name__ == "__main__":
    main()
