"""Statistics of scores of single clients, of found clusters and of several seeds."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from torch import Tensor

__all__ = [
    "cluster_scores",
    "clusters_over_rounds",
    "compare",
    "interval",
    "negative_transfer",
    "readings",
    "summary",
]

_LOWER_IS_BETTER = ("loss", "mae", "mse")  # also of a set, as test_loss


def summary(scores: pd.DataFrame, column: str = "accuracy") -> dict[str, float]:
    """Summary of the scores of single clients, which a score pooled over examples hides.

    Parameters
    ----------
    scores : pandas.DataFrame
        From `evaluate`.
    column : str
        The score; for ``loss``, ``mse`` and ``mae``, lower is better.

    Returns
    -------
    dict
        ``mean`` over clients, each counted once; ``worst decile``, the mean over the worst tenth of the clients
        (rounded up); and ``worst``, the score of the worst client. Clients without a score (NaN) are left out.
    """
    values = np.sort(scores[column].dropna())
    if not len(values):
        return dict.fromkeys(("mean", "worst decile", "worst"), float("nan"))
    values = values[::-1] if column.endswith(_LOWER_IS_BETTER) else values
    tenth = -(-len(values) // 10)
    return {"mean": float(values.mean()), "worst decile": float(values[:tenth].mean()), "worst": float(values[0])}


def negative_transfer(scores: pd.DataFrame, local: pd.DataFrame, column: str = "accuracy") -> float:
    """Share of clients that fare worse in the federation than with their own local model.

    Parameters
    ----------
    scores, local : pandas.DataFrame
        From `evaluate`, of the federation and of `fedlib.algorithms.local_only.LocalOnly`, for the same clients.
    column : str

    Returns
    -------
    float
        From 0 to 1; a tie does not count as worse. Clients without a score (NaN) are left out; NaN if none is left.

    Raises
    ------
    ValueError
        The tables hold different clients.
    """
    ours, alone = (t.set_index("id")[column].sort_index() for t in (scores, local))
    if not ours.index.equals(alone.index):
        raise ValueError(f"the tables hold different clients: {sorted(set(ours.index) ^ set(alone.index))[:5]} differ")
    both = ours.notna() & alone.notna()
    worse = ours > alone if column.endswith(_LOWER_IS_BETTER) else ours < alone
    return float(worse[both].mean())


def readings(history: pd.DataFrame, column: str = "accuracy") -> pd.DataFrame:
    """Three readings of a run's score, which differ; give all three, since papers seldom say which one they report.

    Parameters
    ----------
    history : pandas.DataFrame
        Of a run with evaluation sets called "validation" and "test".
    column : str
        The score; for ``loss``, ``mse`` and ``mae``, lower is better.

    Returns
    -------
    pandas.DataFrame
        The columns are ``round`` and ``test``, the test score in that round. The rows are "last round"; "chosen by
        validation", the first round with the best validation score; and "max on test", which many papers report and
        which is optimistic, since it is chosen on the test set.

    Raises
    ------
    ValueError
        The history lacks one of the two sets, has no such score, or is of two runs.
    """
    validation, test = f"validation_{column}", f"test_{column}"
    if missing := [name for name in (validation, test) if name not in history or history[name].isna().all()]:
        raise ValueError(f"the history has no {missing}: give fit eval_data={{'validation': ..., 'test': ...}}")
    if history["round"].duplicated().any():
        raise ValueError("the history has a round twice: give one run at a time")
    scored = history.dropna(subset=[validation, test], how="all").reset_index(drop=True)
    sign = -1 if column.endswith(_LOWER_IS_BETTER) else 1
    best = [int(np.nanargmax(sign * scored[name])) for name in (validation, test)]
    chosen = scored.iloc[[-1, *best]]
    return pd.DataFrame(
        {"round": chosen["round"].to_numpy(), "test": chosen[test].to_numpy()},
        index=["last round", "chosen by validation", "max on test"],
    )


def cluster_scores(true: ArrayLike, found: ArrayLike) -> dict[str, float]:
    """Agreement of found clusters with the true groups.

    Parameters
    ----------
    true, found : arrays of shape (K,)
        Group numbers, on any device; the numbering of the clusters does not matter.

    Returns
    -------
    dict
        ``ari``, the adjusted Rand index, and ``ami``, the adjusted mutual information, are 1 for the same groups and
        about 0 for random ones. ``purity`` is the share of clients whose group is the most frequent one in their
        cluster. Since it is also 1 when every client forms a separate cluster, never read it alone.
    """
    from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score
    from sklearn.metrics.cluster import contingency_matrix

    true, found = (np.asarray(g.cpu() if isinstance(g, Tensor) else g) for g in (true, found))
    table = contingency_matrix(true, found)
    return {
        "ari": float(adjusted_rand_score(true, found)),
        "ami": float(adjusted_mutual_info_score(true, found)),
        "purity": float(table.max(axis=0).sum() / table.sum()),
    }


def clusters_over_rounds(true: ArrayLike) -> Callable[[int, Any, dict[str, Any]], None]:
    """A callback for `fedlib.federation.fit` that adds `cluster_scores` and the number of clusters to each round.

    Parameters
    ----------
    true : array of shape (K,)
        True group of each client, in ascending order of ids, such as ``partition.group``.

    Returns
    -------
    callable
        Adds ``ari``, ``ami``, ``purity`` and ``clusters`` to the history.
    """

    def callback(round: int, state: Any, entry: dict[str, Any]) -> None:
        found = state.assignment.cpu().numpy()
        entry |= cluster_scores(true, found)
        entry["clusters"] = len(np.unique(found))

    return callback


def interval(values: ArrayLike) -> tuple[float, float]:
    """Mean over seeds, and the half width of its 95 % interval by Student's t.

    Parameters
    ----------
    values : array of shape (seeds,)

    Returns
    -------
    mean, half_width : float
        With one seed, the half width is unknown (NaN).

    Raises
    ------
    ValueError
        There are no values.

    Examples
    --------
    >>> from fedlib.statistics import interval
    >>> mean, half = interval([0.8, 0.9, 0.85])
    >>> f"{mean:.2f} ± {half:.2f}"
    '0.85 ± 0.12'
    """
    from scipy.special import stdtrit  # the quantile of scipy.stats.t, which takes a second to import

    values = np.asarray(values, float)
    if values.ndim != 1:
        raise ValueError(f"give one value for each seed, shape (seeds,); got {values.shape}: take one column at a time")
    if not len(values):
        raise ValueError("there are no values to take the mean of")
    if len(values) < 2:
        return float(values.mean()), float("nan")
    half = stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def compare(a: Mapping[Any, float], b: Mapping[Any, float]) -> dict[str, Any]:
    """Compare two settings seed by seed, to see whether a is larger than b.

    Parameters
    ----------
    a, b : mapping of seed to float
        The same score of both settings for the same seeds.

    Returns
    -------
    dict
        ``difference``, the mean of a - b, and ``half_width`` of its interval; ``agree``, the number of seeds with
        a > b; ``seeds``, the number of seeds; and ``verdict``, which is "holds" if the whole interval is above 0, "the
        opposite holds" if it is below 0, and "undecided" otherwise.

    Raises
    ------
    ValueError
        The two settings have different seeds.
    """
    if set(a) != set(b):
        raise ValueError(f"the settings must have the same seeds; got {sorted(a)} and {sorted(b)}")
    gaps = np.array([a[seed] - b[seed] for seed in a])
    mean, half = interval(gaps)
    verdict = "holds" if mean - half > 0 else "the opposite holds" if mean + half < 0 else "undecided"
    return {
        "difference": mean,
        "half_width": half,
        "agree": int((gaps > 0).sum()),
        "seeds": len(gaps),
        "verdict": verdict,
    }
