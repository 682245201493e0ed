"""Sphinx extension: the reference of the library, a page for each module.

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

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

PAGE = "# {name}\n\n```{{module-page}} {name}\n```\n"
MEMBERS = {  # where not all public names are for readers
    "fedlib.chance": "in_training",
    "fedlib.convolutions": "conv2d, WAYS",
    "fedlib.progress_bar": "progress",
    "fedlib.recurrent": "GRU, LSTM, RNN",
}
MOST_USED = [
    "federation.fit",
    "federation.new_clients",
    "evaluation.evaluate",
    "data.ClientData",
    "data.stack_clients",
    "keys.Key",
    "datasets.load",
    "datasets.stats",
    "partition.iid",
    "partition.dirichlet",
    "partition.label_permutation",
    "models.MLP",
    "losses.cross_entropy",
    "algorithms.fedavg.FedAvg",
    "algorithms.fedprox.FedProx",
    "algorithms.local_only.LocalOnly",
    "algorithms.finetune.FineTunedFedAvg",
    "algorithms.cfl.CFL",
    "augment.flip",
    "statistics.interval",
]  # their docstrings have examples, which a test runs
HIDDEN = {"fedlib.algorithm": "optimizer"}
CHAPTERS = re.compile(r"[Cc]hapters? (\d\d(?:(?:, | and )\d\d)*)")


def public(path):
    """The names in the ``__all__`` of a file; none where it makes no name of its own public."""
    for statement in ast.parse(path.read_text(encoding="utf8")).body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "__all__":
            return ast.literal_eval(statement.value)
    return []


def modules_of(root, package="fedlib"):
    """The modules below a package that have public names, in order; what a package exports belongs to itself."""
    folder, found = Path(root, *package.split(".")), []
    exported = set(public(folder / "__init__.py"))
    if exported and package != "fedlib":
        found.append(package)
    for path in sorted([*folder.glob("[a-z]*.py"), *folder.glob("*/__init__.py")]):
        if path.name == "__init__.py":
            found += modules_of(root, f"{package}.{path.parent.name}")
        elif set(public(path)) - (exported if package != "fedlib" else set()):
            found.append(f"{package}.{path.stem}")
    return found


def write_pages(app, config):
    """Write the file of each module, where it is not so already; remove those of modules that are gone."""
    folder = Path(app.srcdir, "book/api")
    folder.mkdir(exist_ok=True)
    pages = {f"{name}.md": PAGE.format(name=name) for name in modules_of(app.srcdir)}
    for path in folder.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf8") != text:
            path.write_text(text, encoding="utf8")


def chapters_of(module):
    """Numbers of the chapters that the docstrings of a module name."""
    documented = [module, *(getattr(module, name) for name in module.__all__)]
    sentences = CHAPTERS.findall("\n".join(p.__doc__ or "" for p in documented))
    return sorted({number for sentence in sentences for number in re.findall(r"\d\d", sentence)})


class Parsed(SphinxDirective):
    """A directive that writes Markdown."""

    def parsed(self, lines):
        """Nodes of some lines of Markdown."""
        node = nodes.Element()
        self.state.nested_parse(StringList(lines, self.env.docname), self.content_offset, node)
        return node.children


class Module(Parsed):
    """What one module makes public, and the chapters that use it."""

    required_arguments = 1

    def run(self):
        """The links and the docstrings."""
        name = self.arguments[0]
        module = import_module(name)
        self.env.note_dependency(module.__file__)
        root = Path(self.env.srcdir, "notebooks")
        links = [f"{{doc}}`/notebooks/{p.stem}`" for n in chapters_of(module) for p in root.glob(f"{n}_*.ipynb")]
        members, hidden = MEMBERS.get(name, ""), HIDDEN.get(name)
        lines = ["```{eval-rst}", f".. automodule:: {name}", f"   :members: {members}", "   :show-inheritance:"]
        lines += [f"   :exclude-members: {hidden}"] if hidden else []
        after = ["", f"In the book: {', '.join(links)}."] if links else []
        return self.parsed([*lines, "```", *after])


class Modules(Parsed):
    """A table of modules: a link to the page of each, and the first sentence that it says of itself."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        """The table."""
        names = []
        for name in self.arguments[0].split():
            below = modules_of(self.env.srcdir, name) if Path(self.env.srcdir, *name.split(".")).is_dir() else []
            names += below or [name]
        lines = ["| Module | What it has |", "| --- | --- |"]
        for name in names:
            said = " ".join((import_module(name).__doc__ or "").split("\n\n")[0].split())
            said = re.sub(r"``([^`]+)``", r"`\1`", said)
            lines.append(f"| [`{name}`](/book/api/{name}.md) | {said} |")
        return self.parsed(lines)


class MostUsed(Parsed):
    """A list of the names that most programs use."""

    def run(self):
        """The list."""
        names = (f"{{py:obj}}`{name.split('.')[-1]} <fedlib.{name}>`" for name in MOST_USED)
        return self.parsed([", ".join(names)])


def without_edit_button(app, pagename, templatename, context, doctree):
    """A page that was written by this extension has no file that a reader could edit."""
    if pagename.startswith("book/api/"):
        for group in context.get("header_buttons", ()):
            buttons = [b for b in group.get("buttons", ()) if b.get("label") != "source-edit-button"]
            if "buttons" in group:
                group["buttons"] = buttons


def setup(app):
    """Connect the extension."""
    app.add_directive("module-page", Module)
    app.add_directive("modules", Modules)
    app.add_directive("most-used", MostUsed)
    app.connect("config-inited", write_pages, priority=100)  # before the table of contents is read
    app.connect("html-page-context", without_edit_button, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
