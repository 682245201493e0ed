"""Figures of the book, such as curves with intervals, label maps and heat maps of tables.

For clustered federated learning, it also draws the cosines of the clients' updates, as a map and over the rounds, and
curves for groups of clients. Every map of cosines has the colours of `SIGNED`, on the range from -1 to 1.

Each function draws on a Matplotlib axis, the current one by default, and returns it. `use_style` sets the colours of
Okabe and Ito, which colour-blind readers can distinguish, and line styles that remain distinct in greyscale.
"""

import sys
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from numpy.typing import ArrayLike

from .data import ClientData
from .statistics import interval

__all__ = [
    "COLOURS",
    "SIGNED",
    "cosine_map",
    "cosines_over_rounds",
    "curves",
    "group_curves",
    "label_counts",
    "label_map",
    "similarity_map",
    "use_style",
    "value_map",
]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
SIGNED = LinearSegmentedColormap.from_list("signed", ("#2166ac", "white", "#b2182b")).with_extremes(bad="0.82")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))


def use_style() -> None:
    """Use vector figures in notebooks, the book's colours, axes without top and right frame, and whole table cells."""
    plt.rc("axes", prop_cycle=cycler(color=COLOURS, linestyle=_LINES), grid=True, axisbelow=True)
    plt.rc("axes.spines", top=False, right=False)
    plt.rc("grid", alpha=0.3, linestyle="-")
    plt.rc("legend", frameon=False)
    plt.rc("figure", figsize=(6, 3.6))
    plt.rc("figure.constrained_layout", use=True)
    plt.rc("font", size=10)
    pd.options.display.max_colwidth = None
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
        # In a notebook only; elsewhere, setting the format would open a shell and take over __main__.
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg")


def curves(histories: Mapping[str, pd.DataFrame], column: str = "test_accuracy", ax: Axes | None = None) -> Axes:
    """Draw one curve over the rounds for each setting, with its 95 % interval over seeds as a band.

    Parameters
    ----------
    histories : mapping of str to pandas.DataFrame
        Maps each label to the concatenated histories of one or more seeds, with columns ``round`` and `column`.
    column : str
        The column to draw; the band of an accuracy is clipped to the range from 0 to 1.
    ax : matplotlib Axes, optional
    """
    ax = ax or plt.gca()
    lowest, highest = (0, 1) if column.endswith("accuracy") else (-np.inf, np.inf)
    for label, runs in histories.items():
        if column not in runs or runs[column].isna().all():
            raise ValueError(
                f"the history {label!r} has no {column!r}, only {[c for c in runs if runs[c].notna().any()]}"
            )
        by_round = runs.dropna(subset=[column]).groupby("round")[column]
        mean, half = np.array([interval(values) for _, values in by_round]).T
        _band(ax, [*by_round.groups], mean, np.maximum(mean - half, lowest), np.minimum(mean + half, highest), label)
    ax.set(xlabel="round", ylabel=column.replace("_", " "))
    if len(histories) > 1:
        ax.legend()
    return ax


def label_map(data: ClientData, classes: int, most: int | None = None, ax: Axes | None = None, title: str = "") -> Axes:
    """Heat map of the number of examples of each class that each client holds; darker means more, and white means none.

    Parameters
    ----------
    data : ClientData
        Clients with class labels.
    classes : int
    most : int, optional
        The count with the darkest colour, by default the largest on the map. Darkness grows with the square root of the
        count, so that small counts are visible.
    ax : matplotlib Axes, optional
    title : str
    """
    ax = ax or plt.gca()
    counts = label_counts(data, classes).T
    ax.imshow(counts, "Blues", PowerNorm(0.5, 0, most or counts.max()), aspect="auto", origin="lower")
    ax.set(xlabel="client", ylabel="class", yticks=range(classes), title=title)
    ax.grid(False)
    return ax


def label_counts(data: ClientData, classes: int) -> np.ndarray:
    """Number of examples of each class that each client holds, of shape (K, classes)."""
    labels, sizes = data.y.cpu().numpy(), data.n.tolist()
    return np.stack([np.bincount(y[:n], minlength=classes) for y, n in zip(labels, sizes, strict=True)])


def value_map(table: pd.DataFrame, ax: Axes | None = None, title: str = "", **limits: Any) -> Axes:
    """Heat map of a table, with each value written in its cell with two decimals; darker means larger.

    Parameters
    ----------
    table : pandas.DataFrame
        Table of numbers. The names of its index and columns label the axes.
    ax : matplotlib Axes, optional
    title : str
    **limits
        ``vmin`` and ``vmax``, the values with the lightest and the darkest colour; by default, the smallest and the
        largest value.
    """
    ax = ax or plt.gca()
    values = table.to_numpy(float)
    image = ax.imshow(values, "Blues", aspect="auto", **limits)
    dark = np.asarray(image.norm(values)) > 0.714  # there, white has more contrast than black (WCAG)
    for (i, j), value in np.ndenumerate(values):
        said, ink = f"{value:.2f}".replace("-", "\N{MINUS SIGN}"), "white" if dark[i, j] else "black"
        ax.text(j, i, said, ha="center", va="center", color=ink)
    ax.set_xticks(range(values.shape[1]), table.columns.map(str))
    ax.set_yticks(range(values.shape[0]), table.index.map(str))
    ax.tick_params(length=0)
    ax.set(xlabel=table.columns.name or "", ylabel=table.index.name or "", title=title)
    ax.grid(False)
    return ax


def cosine_map(cosines: ArrayLike, ax: Axes | None = None, title: str = "") -> Axes:
    """Heat map of cosines between K vectors, from -1 (blue) through 0 (white) to 1 (red); the diagonal is grey.

    Parameters
    ----------
    cosines : array of shape (K, K)
    ax : matplotlib Axes, optional
    title : str

    Returns
    -------
    matplotlib Axes
        It has no colour bar; use ``ax.images[0]`` to add one.
    """
    ax = ax or plt.gca()
    ax.imshow(np.where(np.eye(len(_numpy(cosines))), np.nan, _numpy(cosines)), SIGNED, vmin=-1, vmax=1)
    ax.set_title(title)
    ax.grid(False)
    return ax


def similarity_map(
    similarity: ArrayLike, clusters: ArrayLike, groups: ArrayLike, ax: Axes | None = None, title: str = ""
) -> Axes:
    """Heat map of the cosines between clients' updates, ordered by cluster, then by true group, then by position.

    Parameters
    ----------
    similarity : array of shape (K, K)
        For example from `fedlib.server.clusters.cosine_similarity`.
    clusters : array of shape (K,), integer
        The cluster of each client. Black lines separate the clusters.
    groups : array of shape (K,), integer
        The true group of each client, shown by a strip of colour on the left with the group's letter next to it.
        Clusters and groups are the same if the black lines cross the strip exactly where its colour changes.
    ax : matplotlib Axes, optional
    title : str

    Returns
    -------
    matplotlib Axes
        Drawn by `cosine_map`.

    Notes
    -----
    Chapter 06.
    """
    cosines, cluster, group = map(_numpy, (similarity, clusters, groups))
    clients = len(cosines)
    order = np.lexsort((group, cluster))  # stable, so that positions decide last
    ax = cosine_map(cosines[np.ix_(order, order)], ax, title)
    columns, rows = _runs(cluster[order]), _runs(group[order])
    for start, _, _ in columns[1:]:
        ax.axhline(start - 0.5, color="black", linestyle="-", linewidth=1)
        ax.axvline(start - 0.5, color="black", linestyle="-", linewidth=1)
    left = -0.5 - 0.07 * clients
    for start, size, name in rows:
        colour = COLOURS[name % len(COLOURS)]  # the same in the maps of all parts of a federation
        ax.add_patch(plt.Rectangle((left, start - 0.5), 0.05 * clients, size, facecolor=colour, linewidth=0))
    ax.set_xlim(left, clients - 0.5)
    ax.set_xticks([start + size / 2 - 0.5 for start, size, _ in columns], [str(name) for *_, name in columns])
    ax.set_yticks([start + size / 2 - 0.5 for start, size, _ in rows], [_letter(name) for *_, name in rows])
    ax.tick_params(length=0)
    ax.set(xlabel="cluster", ylabel="true group")
    ax.spines[:].set_visible(True)
    return ax


def _letter(group: int) -> str:
    """The name of a true group, A for 0; clusters and models are numbered."""
    return ascii_uppercase[group % 26]


def group_curves(
    rounds: ArrayLike, scores: ArrayLike, groups: ArrayLike, splits: Sequence[Any], ax: Axes | None = None
) -> Axes:
    """Mean score of each group of clients over the rounds, in a band from the lowest to the highest score.

    Parameters
    ----------
    rounds : array of shape (T,)
    scores : array of shape (T, K)
        Test accuracy of each client after each of the rounds.
    groups : array of shape (K,), integer
    splits : sequence of fedlib.server.split_tree.Split
        Drawn as dotted lines, numbered from 1.
    ax : matplotlib Axes, optional

    Notes
    -----
    The band is not a confidence interval. Chapter 06.
    """
    ax = ax or plt.gca()
    values, group = np.asarray(scores), _numpy(groups)
    for name in np.unique(group):
        members = values[:, group == name]
        _band(ax, rounds, members.mean(1), members.min(1), members.max(1), f"group {_letter(name)}")
    return _labelled(ax, "test accuracy", splits)


def cosines_over_rounds(
    rounds: ArrayLike,
    similarities: ArrayLike,
    groups: ArrayLike,
    assignments: ArrayLike,
    splits: Sequence[Any],
    ax: Axes | None = None,
) -> Axes:
    """Mean cosines between clients' updates over the rounds, in bands from the lowest to the highest cosine.

    In each round, a pair of clients in the same cluster is of one of three kinds. The two clients have different true
    groups; or they have the same group, in a cluster that also holds others; or they have the same group, which has its
    cluster to itself ("already separated"). Red and blue are those of a matrix of cosines.

    Parameters
    ----------
    rounds : array of shape (T,)
    similarities : array of shape (T, K, K)
        Only the entries above the diagonal are used. Pairs with NaN are left out.
    groups : array of shape (K,), integer
        The true group of each client.
    assignments : array of shape (T, K), integer
        The cluster in which each client trained in each of the rounds.
    splits : sequence of fedlib.server.split_tree.Split
        Drawn as dotted lines, numbered from 1.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        A line has a gap in rounds without pairs of its kind.

    Notes
    -----
    After Figure 3 (right) of CFL, which shows each pair as a dot. Chapter 06.
    """
    ax = ax or plt.gca()
    group, alpha, cluster = map(_numpy, (groups, similarities, assignments))
    i, j = np.triu_indices(len(group), 1)
    together, same = cluster[:, i] == cluster[:, j], group[i] == group[j]
    mixed = ((cluster[:, :, None] == cluster[:, None]) & (group[:, None] != group)).any(2)[:, i]
    for label, sort, colour in (
        ("same group", together & same & mixed, SIGNED(0.9)),
        ("different groups", together & ~same, SIGNED(0.1)),
        ("same group, already separated", together & same & ~mixed, SIGNED(0.8)),
    ):
        pairs = pd.DataFrame(np.where(sort, alpha[:, i, j], np.nan))
        _band(ax, rounds, pairs.mean(axis=1), pairs.min(axis=1), pairs.max(axis=1), label, colour)
    return _labelled(ax, "cosine of two updates", splits)


def _numpy(value: Any) -> np.ndarray:
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _runs(labels: np.ndarray) -> list[tuple[int, int, int]]:
    """Start, length and label of each run of equal labels."""
    edges = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
    return [(a, b - a, int(labels[a])) for a, b in zip(edges[:-1], edges[1:], strict=True)]


def _band(
    ax: Axes, x: ArrayLike, mid: ArrayLike, low: ArrayLike, high: ArrayLike, label: str, colour: Any = None
) -> None:
    """The line `mid` in the band from `low` to `high`."""
    (line,) = ax.plot(x, mid, label=label, color=colour)
    ax.fill_between(x, low, high, color=line.get_color(), alpha=0.15, linewidth=0)


def _labelled(ax: Axes, ylabel: str, splits: Sequence[Any]) -> Axes:
    """Label drawn curves over the rounds, and draw a dotted line at each split, with its number on top."""
    ax.set(xlabel="round", ylabel=ylabel)
    ax.legend(fontsize=9, frameon=True, framealpha=0.8, edgecolor="none")  # so that lines do not strike it out
    near, labels = 0.025 * np.ptp(ax.get_xlim()), dict[int, str]()
    for number, (before, split) in enumerate(zip((None, *splits), splits, strict=False), 1):
        ax.axvline(split.round, color="0.35", linestyle=":", linewidth=0.9, zorder=1)
        if before and split.round - before.round < near:  # both in one label
            labels[max(labels)] += f", {number}"
        else:
            labels[split.round] = str(number)
    top = ax.secondary_xaxis("top")  # ticks rather than texts, since titles keep clear of them
    top.set_xticks(list(labels), list(labels.values()))
    top.tick_params(length=0, labelsize=8, pad=1)
    top.spines["top"].set_visible(False)
    top.grid(False)
    return ax
