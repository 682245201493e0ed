"""Figures of the book: accuracy curves with intervals, spreads over clients, label maps, tables as heat maps.

For clustered federated learning: the cosines of the clients' updates as a map and over the rounds, the split tree, the
split criterion, and curves of groups of clients.

Each function draws on a Matplotlib axis and returns it. Colours are those of Okabe and Ito, which stay apart for the
colour-blind; lines differ in style too, so that they stay apart in grey.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike

from ..data import ClientData
from .statistics import interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS",
    "client_spread",
    "cosines_over_rounds",
    "criterion_over_rounds",
    "curves",
    "draft",
    "group_curves",
    "images",
    "label_counts",
    "label_map",
    "similarity_map",
    "split_tree",
    "use_style",
    "value_map",
]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_OVER_DATA: Any = {"frameon": True, "framealpha": 0.8, "edgecolor": "none"}  # a legend that lines do not strike out


def use_style() -> None:
    """Set the book's style: vector figures in notebooks, these colours, no frame above and right, whole table cells."""
    import matplotlib.pyplot as plt
    from cycler import cycler

    plt.rcParams.update(
        {
            "axes.prop_cycle": cycler(color=COLOURS, linestyle=_LINES),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "grid.linestyle": "-",
            "legend.frameon": False,
            "figure.figsize": (6, 3.6),
            "figure.constrained_layout.use": True,
            "font.size": 10,
        }
    )
    pd.options.display.max_colwidth = None
    _inline_as_svg()


def _inline_as_svg(**how: Any) -> None:
    """Vector figures in a notebook. Elsewhere nothing: setting the format would open a shell and take over __main__."""
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg", **how)


def draft() -> None:
    """Draw the figures that follow quickly and less neatly: without laying them out and without trimming the margins.

    For tests of a notebook, in which nobody looks at figures; it saves about half of the time they take.
    """
    import matplotlib.pyplot as plt

    plt.rcParams["figure.constrained_layout.use"] = False
    _inline_as_svg(bbox_inches=None)


def curves(
    histories: Mapping[str, pd.DataFrame], column: str = "test_accuracy", ax: "Axes | None" = None, **style: Any
) -> "Axes":
    """One curve over the rounds for each setting, with its 95 % interval over seeds as a band.

    The band of an accuracy is cut off at 0 and 1.

    Parameters
    ----------
    histories : mapping of str to pandas.DataFrame
        Label to the histories of one or more seeds, one below the other, with columns ``round`` and `column`.
    column : str
    ax : matplotlib Axes, optional
        The current axis by default.
    **style
        Passed to ``Axes.plot``.

    Returns
    -------
    matplotlib Axes
    """
    import matplotlib.pyplot as plt

    ax = plt.gca() if ax is None else ax
    for label, runs in histories.items():
        by_round = runs.dropna(subset=[column]).groupby("round")[column]
        rounds = [t for t, _ in by_round]
        mean, half = np.array([interval(values) for _, values in by_round]).T
        (line,) = ax.plot(rounds, mean, label=label, **style)
        band = mean - half, mean + half
        if column.endswith("accuracy"):
            band = np.clip(band, 0, 1)
        ax.fill_between(rounds, *band, color=line.get_color(), alpha=0.15, linewidth=0)
    ax.set(xlabel="round", ylabel=column.replace("_", " "))
    if len(histories) > 1:
        ax.legend()
    return ax


def client_spread(scores: Mapping[str, pd.DataFrame], column: str = "accuracy", ax: "Axes | None" = None) -> "Axes":
    """Share of clients at or below each score (empirical distribution function), one line for each setting.

    Parameters
    ----------
    scores : mapping of str to pandas.DataFrame
        Label to a table from `fedlib.evaluation.evaluate`.
    column : str
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    import matplotlib.pyplot as plt

    ax = plt.gca() if ax is None else ax
    for label, table in scores.items():
        values = np.sort(table[column])
        share = np.arange(len(values) + 2).clip(max=len(values)) / len(values)
        right = max(1, values[-1])
        ax.step([min(0, values[0]), *values, right], share, where="post", label=label)
    ax.set(xlabel=f"{column} of a client", ylabel="share of clients at or below", ylim=(0, 1.02))
    ax.legend(loc="upper left")
    return ax


def label_map(
    data: ClientData, classes: int, most: int | None = None, ax: "Axes | None" = None, title: str = ""
) -> "Axes":
    """Which client holds how many examples of which class, as a heat map: the darker, the more.

    Parameters
    ----------
    data : ClientData
        With class labels.
    classes : int
    most : int, optional
        The count with the darkest colour; the largest on the map by default.
    ax : matplotlib Axes, optional
    title : str

    Returns
    -------
    matplotlib Axes
        White is none. Darkness grows with the square root of the count, so that small counts show.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import PowerNorm

    ax = plt.gca() if ax is None else ax
    counts = label_counts(data, classes).T
    scale = PowerNorm(0.5, vmin=0, vmax=counts.max() if most is None else most)
    ax.imshow(counts, cmap="Blues", norm=scale, aspect="auto", origin="lower")
    ax.set(xlabel="client", ylabel="class", yticks=range(classes), title=title)
    ax.grid(False)
    return ax


def label_counts(data: ClientData, classes: int) -> np.ndarray:
    """Number of examples of each class that each client holds, of shape (K, classes)."""
    real = torch.arange(data.y.shape[1], device=data.y.device) < data.n[:, None]
    flat = data.y.masked_fill(~real, classes)
    counts = torch.zeros(len(data), classes + 1, dtype=torch.int64, device=flat.device)
    return counts.scatter_add_(1, flat, torch.ones_like(flat))[:, :classes].cpu().numpy()


def images(x: np.ndarray, titles: Sequence[str] = (), width: float = 6.0) -> None:
    """Show grey images (n, side, side) in one row.

    Parameters
    ----------
    x : array of shape (n, side, side)
    titles : sequence of n str, optional
    width : float
        Of the figure, in inches.
    """
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, len(x), figsize=(width, width / len(x) + 0.2 * bool(titles)), squeeze=False)
    for i, ax in enumerate(axes[0]):
        ax.imshow(x[i], cmap="gray_r")
        ax.axis("off")
        if titles:
            ax.set_title(titles[i])


def similarity_map(
    similarity: ArrayLike,
    clusters: ArrayLike,
    groups: ArrayLike | None = None,
    ax: "Axes | None" = None,
    title: str = "",
) -> "Axes":
    """Cosines of each two clients' updates as a heat map, ordered by cluster, then by true group, then by position.

    Parameters
    ----------
    similarity : array of shape (K, K)
        For example from `fedlib.server.clusters.cosine_similarity`.
    clusters : array of shape (K,), integer
        The cluster of each client. Black lines part the clusters.
    groups : array of shape (K,), integer, optional
        The true group of each client: a strip of colour on the left, with the group's number beside it. Clusters and
        groups are the same where the black lines cross the strip just where its colour changes.
    ax : matplotlib Axes, optional
    title : str

    Returns
    -------
    matplotlib Axes
        Without a colour bar; ``ax.images[0]`` serves for one. Colours go from -1 (blue) over 0 (white) to 1 (red).

    Raises
    ------
    ValueError
        A shape that does not fit.

    Notes
    -----
    A run of fewer than K / 25 clients is too narrow for a number and gets none. Chapter 04.
    """
    import matplotlib.pyplot as plt

    alpha = _array("similarity", similarity, "K", "K")
    alpha = _array("similarity", alpha, len(alpha), len(alpha))
    clients = len(alpha)
    cluster = _array("clusters", clusters, clients)
    group = cluster if groups is None else _array("groups", groups, clients)
    ax = plt.gca() if ax is None else ax
    order = np.lexsort((group, cluster))  # stable, so that positions decide last
    ax.imshow(alpha[np.ix_(order, order)], cmap="RdBu_r", vmin=-1, vmax=1)
    columns, rows = _runs(cluster[order]), _runs(group[order])
    for start, _, _ in columns[1:]:
        ax.axhline(start - 0.5, color="black", linestyle="-", linewidth=1)
        ax.axvline(start - 0.5, color="black", linestyle="-", linewidth=1)
    if groups is not None:
        left = -0.5 - 0.07 * clients
        for start, size, name in rows:
            colour = COLOURS[int(name) % len(COLOURS)]  # the same in the maps of all parts of a federation
            ax.add_patch(plt.Rectangle((left, start - 0.5), 0.05 * clients, size, facecolor=colour, linewidth=0))
        ax.set_xlim(left, clients - 0.5)
    for axis, runs in ((ax.xaxis, columns), (ax.yaxis, rows)):
        runs = [run for run in runs if run[1] >= clients / 25]
        axis.set_ticks([start + size / 2 - 0.5 for start, size, _ in runs], [str(name) for *_, name in runs])
        axis.set_tick_params(length=0)
    ax.set(xlabel="cluster", ylabel="cluster" if groups is None else "true group", title=title)
    ax.spines[:].set_visible(True)
    ax.grid(False)
    return ax


def split_tree(splits: Sequence[Any], groups: ArrayLike | None = None, ax: "Axes | None" = None) -> "Axes":
    """The tree of a CFL run: which cluster was cut in two after which round, and the clusters that it ended with.

    Parameters
    ----------
    splits : sequence of fedlib.algorithms.cfl.Split
        Those of a `fedlib.algorithms.cfl.CFLState`.
    groups : array of shape (K,), integer, optional
        The true group of each client; a leaf then says how many clients of which group it holds.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Time runs to the right. Beside each inner node stand the round, its number of clients and the largest cosine
        across the cut; the names of the leaves are the labels of the y axis. Lines end a little after the last split,
        which says nothing about the end of training. Without a split there is one leaf.

    Raises
    ------
    ValueError
        Not one group for each client.

    Notes
    -----
    Six leaves need a height of 3 inches. Chapter 04.
    """
    import matplotlib.pyplot as plt

    cuts = [(s.round, s.model, s.new, _array("members", s.members, "m"), s) for s in splits]
    group = None if groups is None else _array("groups", groups, len(cuts[0][3]) if cuts else "K")
    ax = plt.gca() if ax is None else ax
    order = [cuts[0][1] if cuts else 0]  # leaves from top to bottom: a new one stands just below its origin
    clients = len(cuts[0][3]) if cuts else None if group is None else len(group)
    model = np.full(clients or 0, order[0])
    for _, old, new, members, split in cuts:
        order.insert(order.index(old) + 1, new)
        model[members[_array("part", split.part, len(members)) == 1]] = new

    # each leaf and each inner node has a row of its own, so that no texts overlap: a node that of the gap which it made
    end = 1.5 * cuts[-1][0] if cuts else 1.0
    heads = {name: (end, 2 * row) for row, name in enumerate(order)}  # of each model: where its next line ends
    style: Any = {"color": "0.3", "linestyle": "-", "linewidth": 1.2}
    for time, old, new, members, split in reversed(cuts):
        ax.plot([heads[old][0], time, time, heads[new][0]], np.repeat([heads[old][1], heads[new][1]], 2), **style)
        row = 2 * order.index(new) - 1
        ax.plot(time, row, "o", color=COLOURS[0], markersize=5)
        cosine = f"{split.objective:.2f}".replace("-", "−")  # as on the axes
        text = f"round {time}: {len(members)} clients\ncosine across {cosine}"
        ax.annotate(text, (time, row), (5, 0), textcoords="offset points", va="center", fontsize=9, linespacing=1)
        heads[old] = (time, row)
    ax.plot([0, heads[order[0]][0]], [heads[order[0]][1]] * 2, **style)
    ax.plot([end] * len(order), range(0, 2 * len(order), 2), "s", color=COLOURS[1], markersize=5, clip_on=False)

    labels = []
    for name in order:
        size = "all" if clients is None else int((model == name).sum())
        labels.append(f"model {name}: {size} client{'s' * (size != 1)}")
        if group is not None:
            held = [f"{g} × {n}" for g, n in zip(*np.unique(group[model == name], return_counts=True), strict=True)]
            labels[-1] += f"\ngroup{'s' * (len(held) > 1)} {', '.join(held)}"
    ax.yaxis.tick_right()
    ax.set_yticks(range(0, 2 * len(order), 2), labels, fontsize=9)
    ax.tick_params(axis="y", length=0, pad=7)
    ax.set(xlabel="round", xlim=(0, end), ylim=(2 * len(order) - 1.2, -0.8))
    if cuts:
        ax.locator_params(axis="x", integer=True)
    else:
        ax.set_xticks([])
    ax.spines[["left", "top", "right"]].set_visible(False)
    ax.grid(False)
    return ax


def group_curves(
    rounds: ArrayLike,
    scores: ArrayLike,
    groups: ArrayLike,
    splits: Sequence[Any] = (),
    ax: "Axes | None" = None,
    ylabel: str = "test accuracy",
) -> "Axes":
    """For each group of clients the mean of their scores over the rounds, in a band from the lowest to the highest.

    Parameters
    ----------
    rounds : array of shape (T,)
    scores : array of shape (T, K)
        Of each client after each of the rounds.
    groups : array of shape (K,), integer
    splits : sequence of fedlib.algorithms.cfl.Split
        Dotted lines, numbered from 1 on.
    ax : matplotlib Axes, optional
    ylabel : str

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        A shape that does not fit.

    Notes
    -----
    The band is no interval of confidence. Chapter 04.
    """
    import matplotlib.pyplot as plt

    times = _array("rounds", rounds, "T")
    values = _array("scores", scores, len(times), "K")
    group = _array("groups", groups, values.shape[1])
    ax = plt.gca() if ax is None else ax
    for i, name in enumerate(np.unique(group)):
        mine = values[:, group == name]
        _band(ax, times, mine.mean(1), mine.min(1), mine.max(1), i, f"group {name}")
    ax.set(xlabel="round", ylabel=ylabel)
    ax.legend(fontsize=9, **_OVER_DATA)
    _mark_splits(ax, splits)
    return ax


def cosines_over_rounds(
    rounds: ArrayLike,
    similarities: ArrayLike,
    groups: ArrayLike,
    assignments: ArrayLike,
    splits: Sequence[Any] = (),
    ax: "Axes | None" = None,
) -> "Axes":
    """Cosines of the updates of each two clients over the rounds, as means in bands from the lowest to the highest.

    Two clients of one cluster are, in each round, of one of three sorts: of different true groups; of the same group,
    in a cluster that holds others too; of the same group, which has its cluster to itself ("already separated").

    Parameters
    ----------
    rounds : array of shape (T,)
    similarities : array of shape (T, K, K)
        Only the part above the diagonal counts. Pairs with NaN are left out.
    groups : array of shape (K,), integer
        The true group of each client.
    assignments : array of shape (T, K), integer
        The cluster in which each client trained in each of the rounds.
    splits : sequence of fedlib.algorithms.cfl.Split
        Dotted lines, numbered from 1 on.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        A line has a gap in rounds without pairs of its sort.

    Raises
    ------
    ValueError
        A shape that does not fit.

    Notes
    -----
    After Figure 3 (right) of CFL, which shows each pair as a dot. Chapter 04.
    """
    import matplotlib.pyplot as plt

    times = _array("rounds", rounds, "T")
    group = _array("groups", groups, "K")
    clients = len(group)
    alpha = _array("similarities", similarities, len(times), clients, clients)
    cluster = _array("assignments", assignments, len(times), clients)
    ax = plt.gca() if ax is None else ax
    i, j = np.triu_indices(clients, 1)
    cosines, together, same = alpha[:, i, j], cluster[:, i] == cluster[:, j], group[i] == group[j]
    other = (cluster[:, :, None] == cluster[:, None]) & (group[:, None] != group)
    mixed = other.any(2)[:, i]
    sorts = {
        "same group": together & same & mixed,
        "different groups": together & ~same,
        "same group, already separated": together & same & ~mixed,
    }
    for n, (label, mask) in enumerate(sorts.items()):
        summary = np.full((3, len(times)), np.nan)
        for t, here in enumerate(mask & ~np.isnan(cosines)):
            if here.any():
                pairs = cosines[t, here]
                summary[:, t] = pairs.mean(), pairs.min(), pairs.max()
        mid, low, high = summary
        _band(ax, times, mid, low, high, n, label)
    ax.set(xlabel="round", ylabel="cosine of two updates")
    ax.legend(fontsize=9, **_OVER_DATA)
    _mark_splits(ax, splits)
    return ax


def criterion_over_rounds(
    norms: ArrayLike, eps1: float, eps2: float, splits: Sequence[Any] = (), ax: "Axes | None" = None
) -> "Axes":
    """What CFL's relative criterion saw: a cluster is split where the solid line is low and the dashed line is high.

    Parameters
    ----------
    norms : array of shape (T, 5), or wider
        Of a `fedlib.algorithms.cfl.CFLState`: round, model, length of the mean update, length of the longest, and the
        longest divided by learning rate times steps.
    eps1, eps2 : float
        The thresholds of the two quantities, as horizontal lines in their colours; none is drawn for 0.
    splits : sequence of fedlib.algorithms.cfl.Split
        Dotted lines, numbered from 1 on.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Logarithmic, with two lines for each model: mean / longest (solid) and longest / (learning rate x steps)
        (dashed). Models are not told apart.

    Raises
    ------
    ValueError
        No rows, as when no cluster could be tested, or fewer than five columns.

    Notes
    -----
    Chapter 04.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    table = _array("norms", norms, "T", "5 or more").astype(float)
    if table.shape[0] < 1 or table.shape[1] < 5:
        raise ValueError(f"norms must have at least one row and five columns; got shape {table.shape}")
    ax = plt.gca() if ax is None else ax
    time, model, mean, longest, pace = table[:, :5].T
    ratio = np.divide(mean, longest, out=np.full(len(mean), np.nan), where=longest > 0)
    # the higher threshold's label stands above its line and the lower one's below, lest they overlap
    for quantity, label, name, eps, other, colour, line in (
        (ratio, "mean / longest update", r"\varepsilon_1", eps1, eps2, COLOURS[0], "-"),
        (pace, "pace: longest update / (learning rate × steps)", r"\varepsilon_2", eps2, eps1, COLOURS[1], "--"),
    ):
        for i, m in enumerate(np.unique(model)):
            mine = model == m
            text = label if i == 0 else "_nolegend_"
            ax.plot(time[mine], quantity[mine], color=colour, linestyle=line, linewidth=0.9, label=text)
        if eps > 0:
            ax.axhline(eps, color=colour, linestyle=line, linewidth=0.6)
            va = "bottom" if eps >= other else "top"
            where: Any = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points", "va": va, "fontsize": 9}
            ax.annotate(f"${name}$ = {eps:g}", (1, eps), (3, 0), color=colour, **where)
    ax.set(xlabel="round", ylabel="ratio", yscale="log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.legend(fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.08))
    _mark_splits(ax, splits)
    return ax


def value_map(
    table: pd.DataFrame,
    ax: "Axes | None" = None,
    title: str = "",
    fmt: str = ".2f",
    cmap: str = "Blues",
    vmin: float | None = None,
    vmax: float | None = None,
) -> "Axes":
    """A table as a heat map, with each value written in its cell.

    Parameters
    ----------
    table : pandas.DataFrame
        Of numbers. Names of index and columns become those of the axes. A cell with NaN is white and holds a dash.
    ax : matplotlib Axes, optional
    title : str
    fmt : str
        How values are written.
    cmap : str
        Matplotlib's name of the colours.
    vmin, vmax : float, optional
        The values with the first and the last colour; the smallest and the largest by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        A table without cells.

    Notes
    -----
    Chapter 04.
    """
    import matplotlib.pyplot as plt

    values = table.to_numpy(float)
    if not values.size:
        raise ValueError(f"table must have at least one row and one column; got shape {values.shape}")
    ax = plt.gca() if ax is None else ax
    missing, colours = np.isnan(values), plt.get_cmap(cmap).with_extremes(bad="white")
    cells = np.ma.masked_where(missing, values)
    image = ax.imshow(cells, cmap=colours, vmin=vmin, vmax=vmax, aspect="auto")
    rgb = image.to_rgba(cells)[..., :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    light = linear @ [0.2126, 0.7152, 0.0722] > 0.179  # black has more contrast than white (WCAG)
    for (i, j), value in np.ndenumerate(values):
        text = "–" if missing[i, j] else format(value, fmt)
        ax.text(j, i, text, ha="center", va="center", color="black" if light[i, j] else "white")
    ax.set_xticks(range(values.shape[1]), [str(c) for c in table.columns])
    ax.set_yticks(range(values.shape[0]), [str(r) for r in table.index])
    ax.tick_params(length=0)
    ax.set(xlabel=table.columns.name or "", ylabel=table.index.name or "", title=title)
    ax.grid(False)
    return ax


def _array(name: str, value: Any, *shape: int | str) -> np.ndarray:
    """`value` as an array of this shape, in which a word stands for any size."""
    array = value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    if array.ndim != len(shape) or any(w != n for w, n in zip(shape, array.shape, strict=True) if isinstance(w, int)):
        wanted = ", ".join(map(str, shape)) + "," * (len(shape) == 1)
        raise ValueError(f"{name} must have shape ({wanted}); got {array.shape}")
    return array


def _runs(labels: np.ndarray) -> list[tuple[int, int, int]]:
    """Start, length and label of each run of equal labels."""
    edges = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
    return [(a, b - a, labels[a].item()) for a, b in zip(edges[:-1], edges[1:], strict=True)]


def _band(ax: "Axes", x: np.ndarray, mid: np.ndarray, low: np.ndarray, high: np.ndarray, n: int, label: str) -> None:
    """The line `mid` in the band from `low` to `high`, in colour and line style n."""
    colour, line = COLOURS[n % len(COLOURS)], _LINES[n % len(_LINES)]
    ax.plot(x, mid, color=colour, linestyle=line, label=label)
    ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def _mark_splits(ax: "Axes", splits: Sequence[Any]) -> None:
    """A dotted line at each split, with the split's number on top; draw the data first."""
    if not splits:
        return
    left, right = ax.get_xlim()
    ticks: dict[int, str] = {}
    last = -np.inf
    for number, split in enumerate(splits, 1):
        if split.round - last < 0.025 * (right - left):  # too near to the one before: both in one label
            ticks[next(reversed(ticks))] += f", {number}"
        else:
            ticks[split.round] = str(number)
        last = split.round
    for time in sorted({split.round for split in splits}):
        ax.axvline(time, color="0.35", linestyle=":", linewidth=0.9, zorder=1)
    top = ax.secondary_xaxis("top")  # ticks, not texts: titles keep clear of them
    top.set_xticks(list(ticks), list(ticks.values()))
    top.tick_params(length=0, labelsize=8, pad=1)
    top.spines["top"].set_visible(False)
    top.grid(False)
