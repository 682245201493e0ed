"""Write the repository's address, ``repository.url`` of _config.yml, wherever the project needs it: ``make badges``.

These are the badges, the set-up cells of the notebooks, CITATION.cff, the pages that tell how to clone, and the address
of the published book.
"""

import re

from . import notebooks

ADDRESS = re.compile(
    r"https://github\.com/[\w.-]+/[\w.-]+?(?=\.git|[\s\\\"'`)>,]|/(?:actions|blob|tree|issues)|$)", re.M
)
PAGES = ("README.md", "CONTRIBUTING.md", "CITATION.cff", "_config.yml", "book/index.md", "book/setup.md")
ELSEWHERE = ("astral-sh/", "kynan/", "pre-commit/", "actions/")  # other projects' repositories


def with_address(text: str, url: str) -> str:
    """`text` with the repository's address in place of an older one, on GitHub, on Colab and on GitHub Pages."""
    place = url.removeprefix("https://github.com/")
    owner, name = place.split("/")
    text = re.sub(r"(colab\.research\.google\.com/github)/[\w.-]+/[\w.-]+/", rf"\1/{place}/", text)
    text = re.sub(r"https://[\w-]+\.github\.io/[\w.-]+/", f"https://{owner}.github.io/{name}/", text)
    return ADDRESS.sub(lambda m: m[0] if any(f"github.com/{e}" in m[0] for e in ELSEWHERE) else url, text)


def main() -> None:
    """Rewrite what is out of date, and say which files changed."""
    url = notebooks.repository()
    for path in notebooks.paths():
        old = path.read_text(encoding="utf8")
        _write(path, old, with_address(old, url))
    for name in PAGES:
        path = notebooks.ROOT / name
        if path.exists():
            old = path.read_text(encoding="utf8")
            _write(path, old, with_address(old, url))


def _write(path, old: str, new: str) -> None:
    if new != old:
        path.write_text(new, encoding="utf8")
        print(f"changed {path.relative_to(notebooks.ROOT)}")


if __name__ == "__main__":
    main()
