"""Figures of the book: accuracy curves with intervals, spreads over clients, label maps.

Each function draws on a Matplotlib axis and returns it. Colours are those of Okabe and Ito, which stay apart for the
colour-blind; lines differ in style too, so that they stay apart in grey.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from .data import ClientData
from .evaluation import interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "client_spread", "curves", "images", "label_counts", "label_map", "use_style"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))


def use_style() -> None:
    """Set Matplotlib to the book's style: vector figures in notebooks, these colours, no frame on top and right."""
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
    try:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg")
    except (ImportError, AttributeError):  # not in a notebook
        pass


def curves(
    histories: Mapping[str, pd.DataFrame], column: str = "test_accuracy", ax: "Axes | None" = None, **style: Any
) -> "Axes":
    """One curve over the rounds for each setting, with its 95 % interval over seeds as a band.

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
        ax.fill_between(rounds, mean - half, mean + half, color=line.get_color(), alpha=0.15, linewidth=0)
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
