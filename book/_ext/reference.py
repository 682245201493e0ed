"""The reference of the library, a page for each module.

Before Sphinx looks which pages there are, each module of fedlib with public names gets a file in ``book/api`` (ignored
by git), which consists of its title and the directive ``module-page``: its docstrings and its chapters. A new file of
the library has its page without anybody's doing. ``modules`` lists the pages of the packages and modules it names.

Sphinx's autodoc reads the docstrings. Its autosummary would write the pages only after sphinx-external-toc has looked
which there are, and without links to chapters.
"""

import ast
import re
from importlib import import_module
from pathlib import Path

from book._ext.directives import WORDS

PAGE = "# {name}\n\n```{{module-page}} {name}\n```\n"
CHAPTERS = re.compile(r"[Cc]hapters? (\d\d(?:(?:, | and )\d\d)*)")


def public(path):
    """The names in the ``__all__`` of a file; none where it makes no name of its own public."""
    found = re.search(r"^__all__ = (\[.*?\])", path.read_text(encoding="utf8"), re.M | re.S)
    return ast.literal_eval(found[1]) if found else []


def modules_of(root, package="fedlib"):
    """The modules below a package that have public names, in order; what a package exports belongs to itself."""
    folder = Path(root, *package.split("."))
    exported = public(folder / "__init__.py") if package != "fedlib" else []
    found = [package] if exported else []
    for path in sorted([*folder.glob("[a-z]*.py"), *folder.glob("*/__init__.py")]):
        if path.name == "__init__.py":
            found += modules_of(root, f"{package}.{path.parent.name}")
        elif {*public(path)} - {*exported}:
            found.append(f"{package}.{path.stem}")
    return found


def write_pages(app, config):
    """Write the file of each module, where it is not so already; remove those of modules that are gone."""
    folder = Path(app.srcdir, "book/api")
    folder.mkdir(exist_ok=True)
    pages = {folder / f"{name}.md": PAGE.format(name=name) for name in modules_of(app.srcdir)}
    for gone in {*folder.glob("*.md")} - {*pages}:
        gone.unlink()
    for path, text in pages.items():
        if not path.exists() or path.read_text(encoding="utf8") != text:
            path.write_text(text, encoding="utf8")


def chapters_of(module):
    """Numbers of the chapters that the docstrings of a module name."""
    documented = [module, *(getattr(module, name) for name in module.__all__)]
    sentences = CHAPTERS.findall("\n".join(p.__doc__ or "" for p in documented))
    return sorted({*re.findall(r"\d\d", " ".join(sentences))})


def module_page(page, name):
    """What one module makes public, and the chapters that use it."""
    module = import_module(name)
    page.reads(module.__file__)
    root = Path(page.env.srcdir, "notebooks")
    links = [f"{{doc}}`/notebooks/{p.stem}`" for n in chapters_of(module) for p in root.glob(f"{n}_*.ipynb")]
    members, hidden = (WORDS[kind].get(name, "") for kind in ("members", "hidden members"))
    said = WORDS["module"].format(name=name, members=members, hidden=hidden)
    return page.markdown(said, f"In the book: {', '.join(links)}." if links else "")


def modules(page, names):
    """A table of modules: a link to the page of each, and the first sentence that it says of itself."""
    lines = ["| Module | What it has |", "| --- | --- |"]
    for name in names.split():
        is_package = Path(page.env.srcdir, *name.split(".")).is_dir()
        for module in (modules_of(page.env.srcdir, name) if is_package else []) or [name]:
            said = " ".join((import_module(module).__doc__ or "").split("\n\n")[0].split())
            said = re.sub(r"``([^`]+)``", r"`\1`", said)
            lines.append(f"| [`{module}`](/book/api/{module}.md) | {said} |")
    return page.markdown(*lines)


def without_edit_button(app, pagename, templatename, context, doctree):
    """A page that was written by this extension has no file that a reader could edit."""
    if pagename.startswith("book/api/"):
        for group in context.get("header_buttons", ()):
            if "buttons" in group:
                group["buttons"] = [b for b in group["buttons"] if b.get("label") != "source-edit-button"]
