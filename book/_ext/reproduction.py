"""The figures that the papers print beside ours, with verdicts, made when the book is built.

``verdict-counts`` counts the verdicts of each paper, ``beside-ours`` is one published table of a paper, ``figure-3``
draws the whole of CFL's Figure 3, and ``readings`` counts what becomes of FedSGCNN's Table 5 when its score is read
otherwise. The tables read
``book/paper/published.csv``, ``book/paper/verdicts.csv`` and the result files that these name, by
`book.experiments.verdicts`.
"""

import io
import re
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from book import results
from book._ext.directives import WORDS, shares
from book._ext.drawn import inlined
from book.experiments import cfl_figure3, verdicts
from fedlib import plotting

NAMES = {"cfl": "CFL", "fedcg": "FedCG", "fedsgcnn": "FedSGCNN"}


def plain(text):
    """Text without any meaning for Markdown."""
    return re.sub(r"([\\`*_$<>\[\]{}|^~])", r"\\\1", text)


def cells(table):
    """The rows of a data frame as texts, each with its name at the front."""
    return table.reset_index().astype(str).to_numpy().tolist()


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
    mine = verdicts.table().query("paper == @paper")
    rows = mine[(mine["table"] == table) & (mine["dataset"] == (dataset or mine["dataset"]))]
    if not len(rows):
        there = sorted({*zip(mine["table"], mine["dataset"], strict=True)})
        raise ValueError(f"no rows of {paper}, {table}, {dataset}; there are {there}")
    run, body = (rows["ours"] != "").any(), []
    for _, row in rows.iterrows():
        method = row["method"] if row["method"] not in ("data", "not stated (with MMD)") else ""
        data = row["dataset"] if dataset is None else ""
        what = ", ".join(plain(t) for t in (data, method, row["setting"], WORDS["metrics"][row["metric"]]) if t)
        why = plain(f"{row['reason']} {row['difference']}".strip())
        if seeds := row["seeds to decide"]:
            why += f" Seeds that would decide it, if they had the same mean and spread: {seeds}."
        line = [what, row["published"], row["ours"] or "–", row["verdict"], why]
        body.append(line if run else [line[0], line[1], line[4]])
    head = ["What", "Published", "Ours", "Verdict", "Why"] if run else ["What", "Published", "Why it was not run"]
    return head, body, (28, 14, 14, 15, 29) if run else (42, 15, 43), sorted({f for f in rows["file"] if f})


def shown(page, head, body, widths, files=()):
    """A table of verdicts, on a page that is built again when a file behind it has changed."""
    stored = [verdicts.RESULTS / f for f in files if f.endswith(".json")]
    page.reads(verdicts.FOLDER / "published.csv", verdicts.FOLDER / "verdicts.csv", *stored)
    return page.table(head, body, widths)


def beside_ours(page, paper, table, *, dataset=None):
    """One published table beside ours, and below it where ours comes from."""
    *parts, files = beside(paper, table, dataset)
    below = [page.inline("Ours: " + ", ".join(f"`{f}`" for f in files) + ".")] if files else []
    return [shown(page, *parts, files), *below]


def figure_3(page, *, caption, alt):
    """Accuracy and cosines of the first seed of CFL's Figure 3, drawn as there."""
    run = results.load("cfl_figure3")["figures"][cfl_figure3.DRAWN]["0"]
    page.reads(verdicts.RESULTS / "cfl_figure3.json")
    clients, splits = len(run["groups"]), [SimpleNamespace(round=t) for t, *_ in run["splits"]]
    cosines = np.zeros((len(run["rounds"]), clients, clients))
    i, j = np.triu_indices(clients, 1)
    cosines[:, i, j] = run["cosines"]
    out = io.StringIO()
    with plt.rc_context({"svg.hashsalt": "figure-3", "backend": "agg"}):
        plotting.use_style()
        figure, axes = plt.subplots(2, 1, figsize=(6.4, 6.4), sharex=True)
        plotting.group_curves(run["rounds"], run["clients"], run["groups"], splits, ax=axes[0])
        plotting.cosines_over_rounds(run["rounds"], cosines, run["groups"], run["clusters"], splits, ax=axes[1])
        axes[0].set(xlabel="", ylim=(0, 1))
        figure.savefig(out, format="svg", bbox_inches="tight")
        plt.close(figure)
    drawing = f'<div class="drawing"><div>{inlined(out.getvalue(), "figure3", alt)}</div></div>'
    return page.html(f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>")


def verdict_counts(page):
    """How often each verdict on results was given, a row for each paper, and a sentence on the settings."""
    rows = verdicts.read()
    results, settings = rows[rows["method"] != "data"], rows[rows["method"] == "data"]
    found = pd.crosstab(results["paper"].map(NAMES), results["verdict"], margins=True, margins_name="all")
    found = found.reindex(columns=[*verdicts.WORDS, "all"], fill_value=0)
    used, other, unread = ((settings["verdict"] == word).sum() for word in verdicts.SETTING)
    told = WORDS["settings"].format(all=len(settings), used=used, other=other, unread=unread)
    return [shown(page, ["", *found], cells(found), shares(16, found.shape[1])), page.inline(told)]


def readings(page):
    """How often each verdict is given to FedSGCNN's Table 5, for each reading of its score."""
    found = verdicts.readings()
    return [shown(page, ["Read as", *found], cells(found), shares(40, found.shape[1]), ["fedsgcnn_paper.json"])]
