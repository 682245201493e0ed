"""Sphinx extension: the figures that the papers print beside ours, with verdicts, made when the book is built.

``verdict-counts`` counts the verdicts of each paper, ``beside-ours`` is one published table of a paper, and
``readings`` counts what becomes of FedSGCNN's Table 5 when its score is read otherwise. All read
``book/paper/published.csv``, ``book/paper/verdicts.csv`` and the result files that these name, by
`book.experiments.verdicts`.
"""

import re
import sys
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

sys.path += [str(Path(__file__).parents[2]), str(Path(__file__).parent)]
from pages import Table  # noqa: E402

from book.experiments import verdicts  # noqa: E402

NAMES = {"cfl": "CFL", "fedcg": "FedCG", "fedsgcnn": "FedSGCNN"}
NOT_AS_PRINTED = {("fedcg", "FEMNIST", "FedCG"): "ours with 16 inner numbers in W"}
METRICS = {
    "accuracy_pct": "accuracy in per cent",
    "accuracy_points": "difference in points of accuracy",
    "classes": "classes",
    "clients": "clients",
    "feature_groups": "groups of features",
    "features": "features",
    "features_per_client": "features of a client",
    "handles": "handled (1: yes)",
    "lambda": "weight",
    "pearson_weight_r2": "correlation of the weight with R²",
    "pt_sign_accuracy": "share of pairs whose sign of transfer is foreseen",
    "r2": "R²",
    "r2_points_x100": "difference of R², times 100",
    "ratio": "ratio",
    "samples": "samples",
    "samples_per_client": "samples of a client",
    "samples_per_client_mean": "samples of a client, mean",
    "samples_per_client_stdev": "samples of a client, standard deviation",
    "training_clients": "training clients",
}


def plain(text):
    """Text without any meaning for Markdown."""
    return re.sub(r"([\\`*_$<>\[\]{}|^~])", r"\\\1", text)


def counts():
    """Head and body of the table of verdicts on results, a row for each paper, and a sentence on the settings."""
    rows = verdicts.read()
    settings = rows["method"] == "data"
    body = []
    for paper, name in NAMES.items():
        found = rows["verdict"][~settings & (rows["paper"] == paper)]
        body.append([name, *(str((found == w).sum()) for w in verdicts.WORDS), str(len(found))])
    total = [sum(int(line[i]) for line in body) for i in range(1, len(verdicts.WORDS) + 2)]
    used, other, unread = ((rows["verdict"][settings] == word).sum() for word in verdicts.SETTING)
    told = (
        f"{settings.sum()} more rows are no results but settings, which the papers state of their data. "
        f"Of these, {used} are as in the paper in our runs, {other} are not, and {unread} belong to data that we lack."
    )
    return ["", *verdicts.WORDS, "all"], [*body, ["all", *map(str, total)]], told


def readings():
    """Head and body of the table of readings."""
    found = verdicts.readings()
    return ["Read as", *found], [[name, *map(str, line)] for name, line in zip(found.index, found.values, strict=True)]


def beside(paper, table, dataset=None):
    """Head, body and widths of a published table, with the names of the result files behind it.

    Parameters
    ----------
    paper, table : str
        As in published.csv.
    dataset : str, optional
        Only its rows.

    Raises
    ------
    ValueError
        There is no such table; names those that there are.
    """
    every = verdicts.table()
    mine = every[every["paper"] == paper]
    rows = mine[mine["table"] == table]
    rows = rows if dataset is None else rows[rows["dataset"] == dataset]
    if not len(rows):
        there = sorted({(t, d) for t, d in zip(mine["table"], mine["dataset"], strict=True)})
        raise ValueError(f"no rows of {paper}, {table}, {dataset}; there are {there}")
    run, body = (rows["ours"] != "").any(), []
    for _, row in rows.iterrows():
        method = row["method"] if row["method"] not in ("data", "not stated (with MMD)") else ""
        data = row["dataset"] if dataset is None else ""
        ours = NOT_AS_PRINTED.get((row["paper"], row["dataset"], row["method"]), "")
        what = ", ".join(plain(t) for t in (data, method, row["setting"], METRICS[row["metric"]], ours) if t)
        why = plain(f"{row['reason']} {row['difference']}".strip())
        if seeds := row["seeds to decide"]:
            why += f" Seeds that would decide it, if they had the same mean and spread: {seeds}."
        line = [what, row["published"], row["ours"] or "–", row["verdict"], why]
        body.append(line if run else [line[0], line[1], line[4]])
    head = ["What", "Published", "Ours", "Verdict", "Why"] if run else ["What", "Published", "Why it was not run"]
    return head, body, (28, 14, 14, 15, 29) if run else (42, 15, 43), sorted({f for f in rows["file"] if f})


class Beside(Table, SphinxDirective):
    """One published table beside ours."""

    required_arguments = 2
    option_spec: ClassVar = {"dataset": directives.unchanged}

    def depends_on(self, files=()):
        """Build the page again when one of these has changed."""
        stored = [verdicts.RESULTS / f for f in files if f.endswith(".json")]
        for path in (verdicts.FOLDER / "published.csv", verdicts.FOLDER / "verdicts.csv", *stored):
            self.env.note_dependency(str(path))

    def run(self):
        """The table, and below it where ours comes from."""
        try:
            head, body, widths, files = beside(*self.arguments, self.options.get("dataset"))
        except ValueError as error:
            raise self.error(str(error)) from error
        self.depends_on(files)
        found = [self.table(head, body, widths)]
        if files:
            inline, _ = self.state.inline_text("Ours: " + ", ".join(f"`{f}`" for f in files) + ".", self.lineno)
            found.append(nodes.paragraph("", "", *inline))
        return found


class Counts(Beside):
    """How often each verdict was given."""

    required_arguments = 0
    option_spec: ClassVar = {}

    def run(self):
        """The table, and the sentence on settings."""
        self.depends_on()
        head, body, told = counts()
        table = self.table(head, body, (16, *[84 // (len(head) - 1)] * (len(head) - 1)))
        return [table, nodes.paragraph("", told)]


class Readings(Beside):
    """How often each verdict is given to FedSGCNN's Table 5, for each reading of its score."""

    required_arguments = 0
    option_spec: ClassVar = {}

    def run(self):
        """The table."""
        self.depends_on(["fedsgcnn_paper.json"])
        head, body = readings()
        return [self.table(head, body, (40, *[60 // (len(head) - 1)] * (len(head) - 1)))]


def setup(app):
    """Connect the extension."""
    app.add_directive("beside-ours", Beside)
    app.add_directive("verdict-counts", Counts)
    app.add_directive("readings", Readings)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
