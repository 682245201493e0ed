"""Write the repository's address and the release wherever the project needs them: ``make badges``.

The address is ``repository.url`` of _config.yml, the release that of fedlib. They stand in the badges and set-up cells
of the notebooks, in CITATION.cff, and in the pages that tell how to clone and where the book is published. Needs
nothing but Python, so that a fork can be made before anything is installed.
"""

import json
import re
import sys
from pathlib import Path
from string import Template
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = re.compile(
    r"https://github\.com/[\w.-]+/[\w.-]+?(?=\.git|[\s\\\"'`)>,]|/(?:actions|blob|tree|issues|releases)|$)", re.M
)
PAGES = ("README.md", "CONTRIBUTING.md", "CITATION.cff", "_config.yml", "pyproject.toml")
PAGES += ("book/index.md", "book/on_a_gpu.md", "book/setup.md")
ELSEWHERE = ("astral-sh/", "kynan/", "pre-commit/", "actions/")  # other projects' repositories
PLACEHOLDER = "https://github.com/ORG/fedlib"
BESIDE = ("book/teaching/capstone_starter.ipynb", "book/papers_on_a_gpu.ipynb")  # notebooks that are no chapters
GRAPHS = ("12_who_helps_whom", "papers_on_a_gpu")  # need torch-geometric, which Colab lacks
BADGE = "https://colab.research.google.com/assets/colab-badge.svg"

SETUP = {  # by whether there is an address: the file of the set-up cell, and what it adds where a graph is learned
    True: ("setup_published.txt", '    run(["pip", "install", "-q", "torch-geometric"], check=True)\n'),
    False: ("setup_unpublished.txt", "\n%pip install -q torch-geometric"),
}


def repository(config: Path = ROOT / "_config.yml") -> str:
    """The repository's address, as _config.yml has it.

    Raises
    ------
    SystemExit
        It is no address on GitHub, from where Colab opens notebooks; says how it should look.
    """
    found = re.search(r"^repository:\s*\n\s+url:\s*(\S+)\s*$", config.read_text(encoding="utf8"), re.M)
    url = found[1].strip("\"'").rstrip("/").removesuffix(".git") if found else "nothing"
    if not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", url):
        sys.exit(f"repository.url of _config.yml must look like https://github.com/OWNER/NAME, got {url}")
    return url


def release() -> str:
    """The version of fedlib."""
    return re.search(r'^__version__ = "(.+)"$', (ROOT / "fedlib/__init__.py").read_text(encoding="utf8"), re.M)[1]


def setup_cell(chapter: str, url: str, version: str) -> str:
    """A chapter's first code cell.

    On Colab it fetches the release. Where there is no address yet, it says how to bring the book there.
    """
    file, graphs = SETUP[url != PLACEHOLDER]
    text = Template((ROOT / "tools" / file).read_text(encoding="utf8").rstrip())
    return text.substitute(url=url, release=version, more=graphs if chapter in GRAPHS else "")


def colab(chapter: str, url: str) -> str:
    """The address that opens a chapter on Colab."""
    place = url.removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{place}/blob/main/notebooks/{chapter}.ipynb"


def badge(chapter: str, url: str) -> str:
    """The Markdown of a chapter's Colab badge."""
    return f"[![Open In Colab]({BADGE})]({colab(chapter, url)})"


def with_address(text: str, url: str) -> str:
    """`text` with the repository's address in place of an older one, on GitHub, on Colab and on GitHub Pages."""
    place = url.removeprefix("https://github.com/")
    owner, name = place.split("/")
    text = re.sub(r"(colab\.research\.google\.com/github)/[\w.-]+/[\w.-]+/", rf"\1/{place}/", text)
    text = re.sub(r"https://[\w-]+\.github\.io/[\w.-]+/", f"https://{owner}.github.io/{name}/", text)
    return ADDRESS.sub(lambda m: m[0] if any(f"github.com/{e}" in m[0] for e in ELSEWHERE) else url, text)


def notebook_with(text: str, chapter: str, url: str, version: str) -> str:
    """The text of a notebook with its badge and its set-up cell."""
    notebook = json.loads(text)
    new = {"badge": badge(chapter, url), "setup": setup_cell(chapter, url, version)}
    for cell in notebook["cells"]:
        if cell["id"] in new:
            cell["source"] = new[cell["id"]].splitlines(keepends=True)
    return as_text(notebook)


def as_text(notebook: dict[str, Any]) -> str:
    """A notebook as Jupyter writes it."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def write(path: Path, text: str) -> None:
    """Write a text file and say so, unless it is there just so."""
    if text != path.read_text(encoding="utf8"):
        path.write_text(text, encoding="utf8")
        print(f"changed {path.relative_to(ROOT)}")


def main() -> None:
    """Rewrite what is out of date, and say which files changed."""
    url, version = repository(), release()
    for path in [*sorted((ROOT / "notebooks").glob("*.ipynb")), *(ROOT / name for name in BESIDE)]:
        write(path, notebook_with(path.read_text(encoding="utf8"), path.stem, url, version))
    for name in PAGES:
        text = with_address((ROOT / name).read_text(encoding="utf8"), url)
        if name == "CITATION.cff":
            text = re.sub(r"^version: .*$", f"version: {version}", text, flags=re.M)
        write(ROOT / name, text)


if __name__ == "__main__":
    main()
