"""Scores of the models that clients hold."""

from collections.abc import Mapping
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

__all__ = ["compare", "evaluate", "interval", "pooled", "positions", "score"]

_CHUNK_ENTRIES = 2**24  # feature entries in one forward pass: 64 MB of float32


def evaluate(algorithm: "Algorithm", result: "Result", data: ClientData) -> pd.DataFrame:
    """Score every client's model on that client's rows of `data`.

    Parameters
    ----------
    algorithm : Algorithm
        With `predict` given, the score is ``accuracy`` where y holds class labels and ``mse`` where it holds
        real targets; without, it is the ``loss``.
    result : Result
        From `fedlib.federation.fit`.
    data : ClientData
        Test rows of some or all clients of the training, matched by id.

    Returns
    -------
    pandas.DataFrame
        One row a client, in the order of `data`: ``id``, ``n`` and the score.

    Raises
    ------
    ValueError
        A client that was not in training; an output that `predict` must not have.

    Notes
    -----
    When all clients hold the same model, each different row goes through it once. Chapter 01.
    """
    return score(algorithm, result.state, data.to(result.ids.device), positions(result.ids, data, "the data"))


def positions(ids: Tensor, data: ClientData, name: str) -> Tensor:
    """Where the clients of `data` stand among the training clients `ids`, which ascend."""
    wanted = data.id.to(ids.device)
    found = torch.searchsorted(ids, wanted).clamp(max=len(ids) - 1)
    unknown = wanted[ids[found] != wanted]
    if len(unknown):
        raise ValueError(f"{name} has clients that are not in training: ids {unknown[:5].tolist()}")
    return found


def score(algorithm: "Algorithm", state: Any, data: ClientData, clients: Tensor) -> pd.DataFrame:
    """`evaluate` for clients given by their positions (K,) in the state."""
    parts, predict = [], algorithm.predict
    with torch.no_grad():
        some_params = algorithm.client_params(state, clients[:1])
        dtype = next(iter(some_params.values())).dtype
        if predict is not None and _one_model(algorithm, state, clients):
            parts.append(_right(_shared_answers(algorithm, row(some_params, 0), data), data))
        else:
            size = max(1, _CHUNK_ENTRIES // (data.index.shape[1] * data.x[0].numel()))
            for chunk in torch.arange(len(data), device=data.n.device).split(size):
                params, some = algorithm.client_params(state, clients[chunk]), data[chunk]
                x, y, w = some.all_rows(dtype)
                if predict is None:
                    parts.append(torch.vmap(algorithm.loss)(params, (x, y, w)).cpu().double())
                else:
                    answers = torch.vmap(lambda p, x, y: _answer(predict(p, x), y))(params, x, y)
                    parts.append(_right(answers, some))
    name = "loss" if predict is None else "mse" if data.y.is_floating_point() else "accuracy"
    values = torch.cat(parts).double().numpy()
    return pd.DataFrame({"id": data.id.cpu().numpy(), "n": data.n.cpu().numpy(), name: values})


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


def _right(answers: Tensor, data: ClientData) -> Tensor:
    """Accuracy, or mean squared error, of each client's answers (K, n_max)."""
    real = torch.arange(data.y.shape[1], device=data.y.device) < data.n[:, None]
    hit = (answers - data.y).square() if data.y.is_floating_point() else answers == data.y
    return hit.masked_fill(~real, 0).sum(1).cpu().double() / data.n.cpu()
