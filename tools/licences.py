"""List the packages that fedlib, its book and its tests ask for, with their licences: ``make licences``.

The licence and the home page are what an installed package says of itself. One that is not installed keeps its row.
pip-licenses would list all that is installed, and not who asks for what.
"""

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution, requires

from .notebooks import ROOT

PAGE = ROOT / "book/licences.md"
HEAD = "| Package | Needed by | Licence |\n| --- | --- | --- |\n"
USERS = {"": "library", "test": "tests", "flower": "Flower"}  # else the name of the extra in pyproject.toml
HOMES = {"django-static-mathjax": "https://www.mathjax.org"}  # packages that name no page


def needed() -> dict[str, list[str]]:
    """What needs each package that pyproject.toml asks for directly."""
    users: dict[str, list[str]] = {}
    for line in requires("fedlib-book") or []:
        name = re.match(r"[\w.-]+", line)[0].lower()
        extra = re.search(r"extra == ['\"](\w+)", line)
        user = extra[1] if extra else ""
        users.setdefault(name, []).append(USERS.get(user, user))
    return dict(sorted(users.items()))


def licence(package: Distribution) -> str:
    """The licence that a package states."""
    about = package.metadata
    classes = [c.split(" :: ")[-1] for c in about.get_all("Classifier") or [] if c.startswith("License ::")]
    short = about.get("License") or ""
    files = [f for f in package.files or [] if re.search(r"dist-info/.*LICEN[SC]E", str(f))]
    first = files[0].read_text(encoding="utf8").strip().splitlines()[0] if files else ""
    return about.get("License-Expression") or " or ".join(classes) or ("" if "\n" in short else short) or first.strip()


def home(package: Distribution) -> str:
    """The home page that a package names, else where its code or its documentation is."""
    labelled = [line.split(", ", 1) for line in package.metadata.get_all("Project-URL") or []]
    pages = {label.lower(): address for label, address in labelled} | {"home-page": package.metadata.get("Home-page")}
    kinds = ("homepage", "home-page", "repository", "source", "github", "documentation")
    return next((pages[kind] for kind in kinds if pages.get(kind)), HOMES.get(package.name, ""))


def rows(page: str) -> dict[str, str]:
    """The rows of the page's table, by package."""
    table = re.match(r"(?:\|.*\n)*", page.partition(HEAD)[2])[0]
    return {re.match(r"\| \[([\w.-]+)\]", row)[1]: row for row in table.splitlines(keepends=True)}


def with_rows(page: str) -> str:
    """The page with a row for each package that is needed, and no other."""
    old, new = rows(page), {}
    for name, users in needed().items():
        try:
            package = distribution(name)
        except PackageNotFoundError:
            if name not in old:
                sys.exit(f"{name} is not installed, so its licence is unknown: install it, then type make licences")
            new[name] = old[name]
            continue
        if not (licence(package) and home(package)):
            sys.exit(f"{name} states no licence or no home page: look it up, and write it into tools/licences.py")
        new[name] = f"| [{name}]({home(package)}) | {', '.join(users)} | {licence(package)} |\n"
    before, head, after = page.partition(HEAD)
    return before + head + "".join(new.values()) + after.removeprefix("".join(old.values()))


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(with_rows(PAGE.read_text(encoding="utf8")), encoding="utf8")


if __name__ == "__main__":
    main()
