"""Scores of the models that clients hold."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .data import ClientData, to_features
from .params import Params, row

if TYPE_CHECKING:
    from .federation import Algorithm, Result

__all__ = [
    "cluster_scores",
    "clusters_over_rounds",
    "compare",
    "ecdf",
    "evaluate",
    "interval",
    "negative_transfer",
    "pooled",
    "positions",
    "readings",
    "score",
    "summary",
]

_CHUNK_ENTRIES = 2**24  # feature entries in one forward pass: 64 MB of float32
_LOWER_IS_BETTER = {"loss", "mae", "mse"}


def evaluate(algorithm: "Algorithm", result: "Result", data: ClientData) -> pd.DataFrame:
    """Score every client's model on that client's rows of `data`.

    Parameters
    ----------
    algorithm : Algorithm
    result : Result
        From `fedlib.federation.fit`, or from `fedlib.federation.enroll` for clients never seen in training.
    data : ClientData
        Test rows of some or all clients of the result, matched by id.

    Returns
    -------
    pandas.DataFrame
        One row a client, in the order of `data`: ``id``, ``n``, ``loss`` (the algorithm's loss, mean over rows) and,
        with `predict` given, ``accuracy`` where y holds class labels; ``mse``, ``mae`` and ``r2`` where it holds real
        targets, with the ``target_mean`` and ``target_variance`` of the client. R2 is NaN where all targets are equal.

    Raises
    ------
    ValueError
        A client that is not in the result; an output that `predict` must not have.
    TypeError
        A result of another algorithm.

    Notes
    -----
    When all clients hold the same model, each different row goes through `predict` once. Chapter 01.
    """
    data = data.to(result.ids.device)
    clients = positions(result.ids, data, "the data")
    held_params(algorithm, result.state, clients[:1])
    table = score(algorithm, result.state, data, clients)
    if algorithm.predict is not None:
        table.insert(2, "loss", _losses(algorithm, result.state, data, clients).numpy())
    return table


def held_params(algorithm: "Algorithm", state: Any, clients: Tensor) -> Params:
    """`client_params`, with a word on a state that is another algorithm's."""
    try:
        return algorithm.client_params(state, clients)
    except AttributeError as error:
        raise TypeError(
            f"{type(algorithm).__name__} cannot read a {type(state).__name__} ({error}); give the algorithm that fit "
            "made this result with"
        ) from error


def positions(ids: Tensor, data: ClientData, name: str) -> Tensor:
    """Where the clients of `data` stand among the training clients `ids`, which ascend."""
    wanted = data.id.to(ids.device)
    found = torch.searchsorted(ids, wanted).clamp(max=len(ids) - 1)
    unknown = wanted[ids[found] != wanted]
    if len(unknown):
        raise ValueError(f"{name} has clients that are not in training: ids {unknown[:5].tolist()}")
    return found


def score(algorithm: "Algorithm", state: Any, data: ClientData, clients: Tensor) -> pd.DataFrame:
    """The scores of `evaluate` for clients at positions (K,) of the state; the loss only without `predict`."""
    table: dict[str, Any] = {"id": data.id.cpu().numpy(), "n": data.n.cpu().numpy()}
    predict = algorithm.predict
    if predict is None:
        return pd.DataFrame(table | {"loss": _losses(algorithm, state, data, clients).numpy()})
    parts = []
    with torch.no_grad():
        some_params = algorithm.client_params(state, clients[:1])
        dtype = next(iter(some_params.values())).dtype
        if _one_model(algorithm, state, clients):
            parts.append(_compare(_shared_answers(algorithm, row(some_params, 0), data), data))
        else:
            for chunk in _chunks(data):
                params, some = algorithm.client_params(state, clients[chunk]), data[chunk]
                x, y, _ = some.all_rows(dtype)
                answers = torch.vmap(lambda p, x, y: _answer(predict(p, x), y))(params, x, y)
                parts.append(_compare(answers, some))
    scores = {name: torch.cat([p[name] for p in parts]).numpy() for name in parts[0]}
    return pd.DataFrame(table | scores)


def pooled(scores: pd.DataFrame) -> dict[str, float]:
    """Each score of `evaluate` over all examples together: every client counts with its number of examples.

    R2 is that of all examples as one set: one minus the squared errors over the squared distances to the common mean.
    """
    n = scores["n"]

    def mean(values: pd.Series) -> float:
        return float((values * n).sum() / n.sum())

    pool = {
        name: mean(scores[name])
        for name in scores.columns
        if name not in ("id", "n", "r2", "target_mean", "target_variance")
    }
    if "r2" in scores:
        centre = mean(scores["target_mean"])
        spread = mean(scores["target_variance"] + (scores["target_mean"] - centre) ** 2)
        constant = scores["target_mean"].nunique() == 1 and not scores["target_variance"].any()
        pool["r2"] = float("nan") if constant else 1 - pool["mse"] / spread
    return pool


def summary(scores: pd.DataFrame, column: str = "accuracy") -> dict[str, float]:
    """How clients fare one by one: what a score pooled over examples hides.

    Parameters
    ----------
    scores : pandas.DataFrame
        From `evaluate`.
    column : str
        The score; for ``loss``, ``mse`` and ``mae`` low is good.

    Returns
    -------
    dict
        ``mean`` over clients, each counted once; ``worst decile``, the mean over the worst tenth of the clients
        (rounded up); ``worst``, the worst client's. Clients without a score (NaN) are left out.
    """
    values = np.sort(scores[column].dropna())
    if not len(values):
        return dict.fromkeys(("mean", "worst decile", "worst"), float("nan"))
    values = values[::-1] if column in _LOWER_IS_BETTER else values
    tenth = -(-len(values) // 10)
    return {
        "mean": float(values.mean()),
        "worst decile": float(values[:tenth].mean()),
        "worst": float(values[0]),
    }


def ecdf(values: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Empirical distribution function: the values in ascending order, and the share of values at or below each.

    Parameters
    ----------
    values : array of shape (K,)

    Returns
    -------
    values, share : arrays of shape (distinct values,)
        Empty for no values. NaN counts as the largest value; leave such clients out before.
    """
    distinct, counts = np.unique(np.asarray(values, float), return_counts=True)
    return distinct, counts.cumsum() / counts.sum()


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
        From 0 to 1; a tie is not worse. Clients without a score (NaN) are left out; NaN if none is left.

    Raises
    ------
    ValueError
        The tables hold different clients.
    """
    ours, alone = (t.set_index("id")[column].sort_index() for t in (scores, local))
    if not ours.index.equals(alone.index):
        raise ValueError(f"the tables hold different clients: {sorted(set(ours.index) ^ set(alone.index))[:5]} differ")
    both = ours.notna() & alone.notna()
    worse = ours > alone if column in _LOWER_IS_BETTER else ours < alone
    return float(worse[both].mean())


def readings(history: pd.DataFrame, column: str = "accuracy") -> pd.DataFrame:
    """The three ways to read one number from a run, always together: they differ, and papers seldom say which is meant.

    Parameters
    ----------
    history : pandas.DataFrame
        Of a run with evaluation sets called "validation" and "test".
    column : str
        The score; for ``loss``, ``mse`` and ``mae`` low is good.

    Returns
    -------
    pandas.DataFrame
        Columns ``round`` and ``test``, the test score in that round; rows "last round"; "chosen by validation", the
        first round with the best validation score; "max on test", which many papers report: an optimistic number,
        since the test set chose it.

    Raises
    ------
    ValueError
        The history lacks one of the two sets, or has no such score.
    """
    validation, test = f"validation_{column}", f"test_{column}"
    if missing := [name for name in (validation, test) if name not in history or history[name].isna().all()]:
        there = [name for name in history if name.startswith(("validation_", "test_"))]
        raise ValueError(
            f"the history has no {missing}, only {there}: give fit eval_data={{'validation': ..., 'test': ...}}"
        )
    scored = history.dropna(subset=[validation, test], how="all").reset_index(drop=True)
    sign = -1 if column in _LOWER_IS_BETTER else 1
    places = [
        len(scored) - 1,
        int(np.nanargmax(sign * scored[validation])),
        int(np.nanargmax(sign * scored[test])),
    ]
    chosen = scored.iloc[places]
    return pd.DataFrame(
        {"round": chosen["round"].to_numpy(), "test": chosen[test].to_numpy()},
        index=["last round", "chosen by validation", "max on test"],
    )


def cluster_scores(true: ArrayLike, found: ArrayLike) -> dict[str, float]:
    """How well found clusters agree with the true groups.

    Parameters
    ----------
    true, found : arrays of shape (K,)
        Numbers of groups, on any device; which number a cluster has does not matter.

    Returns
    -------
    dict
        ``ari``, adjusted Rand index, and ``ami``, adjusted mutual information: 1 for the same groups, about 0 for
        chance. ``purity``: share of clients whose cluster has their own group as its most frequent one; it is 1 also
        when every client is a cluster of its own, so never read it alone.
    """
    from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score
    from sklearn.metrics.cluster import contingency_matrix

    true, found = (np.asarray(g.cpu() if isinstance(g, Tensor) else g) for g in (true, found))
    if true.shape != found.shape or true.ndim != 1:
        raise ValueError(
            f"true and found must name a group for each client; got the shapes {true.shape}, {found.shape}"
        )
    table = contingency_matrix(true, found)
    return {
        "ari": float(adjusted_rand_score(true, found)),
        "ami": float(adjusted_mutual_info_score(true, found)),
        "purity": float(table.max(axis=0).sum() / table.sum()),
    }


def clusters_over_rounds(true: ArrayLike, field: str = "assignment") -> Callable[[int, Any, dict[str, Any]], None]:
    """A callback for `fedlib.federation.fit` that adds `cluster_scores` and the number of clusters to each round.

    Parameters
    ----------
    true : array of shape (K,)
        True group of each client, in ascending order of ids, such as ``partition.group``.
    field : str
        The field of the state that holds each client's cluster (K,).

    Returns
    -------
    callable
        Adds ``ari``, ``ami``, ``purity`` and ``clusters`` to the history.
    """

    def callback(round: int, state: Any, entry: dict[str, Any]) -> None:
        found = getattr(state, field).cpu().numpy()
        entry |= cluster_scores(true, found)
        entry["clusters"] = len(np.unique(found))

    return callback


def interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Mean over seeds, and the half width of its interval by Student's t.

    Parameters
    ----------
    values : array of shape (seeds,)
    level : float
        Coverage of the interval, if the values are normally distributed.

    Returns
    -------
    mean, half_width : float
        With one seed the half width is not known (NaN).

    Raises
    ------
    ValueError
        No values; a level that is not between 0 and 1.
    """
    from scipy.special import stdtrit  # the quantile of scipy.stats.t, which takes a second to import

    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
    values = np.asarray(values, float)
    if not len(values):
        raise ValueError("there are no values to take the mean of")
    if len(values) < 2:
        return float(values.mean()), float("nan")
    half = stdtrit(len(values) - 1, (1 + level) / 2) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def compare(a: Mapping[Any, float], b: Mapping[Any, float], level: float = 0.95) -> dict[str, Any]:
    """Compare two settings seed by seed, to see whether a is larger than b.

    Parameters
    ----------
    a, b : mapping of seed to float
        The same score of both settings for the same seeds.
    level : float

    Returns
    -------
    dict
        ``difference`` (mean of a - b) and ``half_width`` of its interval; ``agree``, the number of seeds with a > b;
        ``seeds``; ``verdict``: "holds" when the whole interval lies above 0, "the opposite holds" when it lies below,
        else "undecided".

    Raises
    ------
    ValueError
        The two have different seeds.
    """
    if set(a) != set(b):
        raise ValueError(f"the settings must have the same seeds; got {sorted(a)} and {sorted(b)}")
    gaps = np.array([a[seed] - b[seed] for seed in a])
    mean, half = interval(gaps, level)
    verdict = "holds" if mean - half > 0 else "the opposite holds" if mean + half < 0 else "undecided"
    return {
        "difference": mean,
        "half_width": half,
        "agree": int((gaps > 0).sum()),
        "seeds": len(gaps),
        "verdict": verdict,
    }


def _one_model(algorithm: "Algorithm", state: Any, clients: Tensor) -> bool:
    """Whether all clients hold the same row of a stack, which `params.take` then broadcasts."""
    pair = algorithm.client_params(state, clients[:2])
    return len(clients) == 1 or all(p.stride(0) == 0 for p in pair.values())


def _shared_answers(algorithm: "Algorithm", params: Params, data: ClientData) -> Tensor:
    """Answers of one model to all rows of all clients, of shape (K, n_max)."""
    if len(data) > 1 and data.index.stride(0) == 0:  # all clients have the same rows
        rows, place = data.index[0], torch.arange(data.index.shape[1], device=data.n.device).expand_as(data.index)
    else:
        rows, place = data.index.unique(return_inverse=True)
    dtype = next(iter(params.values())).dtype
    answers = []
    for r in rows.split(max(1, _CHUNK_ENTRIES // data.x[0].numel())):
        output = algorithm.predict(params, to_features(data.x[r], dtype))  # type: ignore[misc]
        answers.append(_answer(output, data.y.new_empty(len(r))))
    return torch.cat(answers)[place]


def _answer(output: Tensor, y: Tensor) -> Tensor:
    """One client's answers (B,): the class with the largest logit, or the number itself for real targets."""
    if y.is_floating_point():
        if output.shape not in (y.shape, (*y.shape, 1)):
            raise ValueError(f"predict must give one number a row, ({len(y)},); got {tuple(output.shape)}")
        return output.reshape(y.shape)
    if output.ndim != 2 or output.shape[1] < 2:
        raise ValueError(
            f"predict must give a logit for each class, ({len(y)}, classes); got {tuple(output.shape)}. "
            "For one logit z of two classes give torch.stack([-z, z], dim=-1)"
        )
    return output.argmax(-1)


def _compare(answers: Tensor, data: ClientData) -> dict[str, Tensor]:
    """Each client's scores, of its answers (K, n_max)."""
    real = torch.arange(data.y.shape[1], device=data.y.device) < data.n[:, None]
    n = data.n.cpu()

    def mean(values: Tensor) -> Tensor:
        return values.masked_fill(~real, 0).sum(1).cpu().double() / n

    if not data.y.is_floating_point():
        return {"accuracy": mean(answers == data.y)}
    error, centre = answers - data.y, mean(data.y)
    mse = mean(error.square())
    first = data.y[:, :1]
    constant = ((data.y == first) | ~real).all(1).cpu()
    centre = torch.where(constant, first[:, 0].cpu().double(), centre)  # exact, so that no rounding makes a variance
    variance = mean((data.y - centre.to(data.y)[:, None]).square())
    return {
        "mse": mse,
        "mae": mean(error.abs()),
        "r2": torch.where(variance > 0, 1 - mse / variance, torch.nan),
        "target_mean": centre,
        "target_variance": variance,
    }


def _losses(algorithm: "Algorithm", state: Any, data: ClientData, clients: Tensor) -> Tensor:
    """Mean loss of each client, of shape (K,)."""
    dtype = next(iter(algorithm.client_params(state, clients[:1]).values())).dtype
    everybody = len(data)
    if len(data) > 1 and data.index.stride(0) == data.y.stride(0) == 0 and _one_model(algorithm, state, clients):
        data, clients = data[:1], clients[:1]  # the same model on the same rows
    parts = []
    with torch.no_grad():
        for chunk in _chunks(data):
            params = algorithm.client_params(state, clients[chunk])
            parts.append(torch.vmap(algorithm.loss)(params, data[chunk].all_rows(dtype)).cpu().double())
    return torch.cat(parts).expand(everybody)


def _chunks(data: ClientData) -> Iterable[Tensor]:
    """Positions of clients whose rows go through a model at once."""
    size = max(1, _CHUNK_ENTRIES // (data.index.shape[1] * data.x[0].numel()))
    return torch.arange(len(data), device=data.n.device).split(size)
