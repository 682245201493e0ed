"""Scores of the models that clients hold."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .data import ClientData, to_features
from .params import row

if TYPE_CHECKING:
    from .federation import Algorithm

__all__ = ["compare", "evaluate", "interval", "pooled"]

_CHUNK_ENTRIES = 2**24  # feature entries in one forward pass: 64 MB of float32


def evaluate(algorithm: "Algorithm", state: object, data: ClientData, clients: Tensor | None = None) -> pd.DataFrame:
    """Score every client's model on that client's rows of `data`.

    Parameters
    ----------
    algorithm : Algorithm
        With `predict` given, the score is ``accuracy`` where y holds class labels and ``mse`` where it holds
        real targets; without, it is the ``loss``.
    state : object
        The algorithm's state, for instance ``result.state``.
    data : ClientData
        Test rows of K clients; moved to the state's device.
    clients : Tensor of shape (K,), int64, optional
        Position in the state of each client of `data`; the same positions by default.

    Returns
    -------
    pandas.DataFrame
        One row a client, in the order of `data`: ``id``, ``n`` and the score.

    Notes
    -----
    When all clients hold the same model, each different row goes through it once. Chapter 01.
    """
    one = algorithm.client_params(state, torch.zeros(1, dtype=torch.int64))
    device, dtype = (getattr(next(iter(one.values())), name) for name in ("device", "dtype"))
    data = data.to(device)
    everybody = torch.arange(len(data), device=device)
    clients = everybody if clients is None else clients.to(device)
    parts = []
    with torch.no_grad():
        if algorithm.predict is not None and _one_model(algorithm, state, clients):
            parts.append(_right(_shared_answers(algorithm, state, data, clients), data))
        else:
            size = max(1, _CHUNK_ENTRIES // (data.index.shape[1] * data.x[0].numel()))
            for chunk in everybody.split(size):
                params, some = algorithm.client_params(state, clients[chunk]), data[chunk]
                x, y, w = some.all_rows(dtype)
                if algorithm.predict is None:
                    parts.append(torch.vmap(algorithm.loss)(params, (x, y, w)).cpu().double())
                else:
                    parts.append(_right(_answer(torch.vmap(algorithm.predict)(params, x), y), some))
    name = "loss" if algorithm.predict is None else "mse" if data.y.is_floating_point() else "accuracy"
    score = torch.cat(parts).numpy()
    return pd.DataFrame({"id": data.id.cpu().numpy(), "n": data.n.cpu().numpy(), name: score})


def pooled(scores: pd.DataFrame) -> dict[str, float]:
    """Mean of each score of `evaluate` over all examples: every client counts with its number of examples."""
    return {
        name: float((scores[name] * scores["n"]).sum() / scores["n"].sum())
        for name in scores.columns
        if name not in ("id", "n")
    }


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
    """
    from scipy import stats

    values = np.asarray(values, float)
    if len(values) < 2:
        return float(values.mean()), float("nan")
    half = stats.t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
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


def _one_model(algorithm: "Algorithm", state: object, clients: Tensor) -> bool:
    """Whether all clients hold the same row of a stack, which `params.take` then broadcasts."""
    pair = algorithm.client_params(state, clients[:2])
    return len(clients) == 1 or all(p.stride(0) == 0 for p in pair.values())


def _shared_answers(algorithm: "Algorithm", state: object, data: ClientData, clients: Tensor) -> Tensor:
    """Answers of one model to all rows of all clients, of shape (K, n_max)."""
    params = row(algorithm.client_params(state, clients[:1]), 0)
    dtype = next(iter(params.values())).dtype
    rows, place = data.index.unique(return_inverse=True)
    size = max(1, _CHUNK_ENTRIES // data.x[0].numel())
    answers = [
        _answer(algorithm.predict(params, to_features(data.x[r], dtype)), data.y)  # type: ignore[misc]
        for r in rows.split(size)
    ]
    return torch.cat(answers)[place]


def _answer(output: Tensor, y: Tensor) -> Tensor:
    """The class with the largest logit, or the number itself for real targets."""
    if not y.is_floating_point():
        return output.argmax(-1)
    return output.squeeze(-1) if output.shape[-1:] == (1,) else output


def _right(answers: Tensor, data: ClientData) -> Tensor:
    """Accuracy, or mean squared error, of each client's answers (K, n_max)."""
    real = torch.arange(data.y.shape[1], device=data.y.device) < data.n[:, None]
    hit = (answers - data.y).square() if data.y.is_floating_point() else answers == data.y
    return hit.masked_fill(~real, 0).sum(1).cpu().double() / data.n.cpu()
