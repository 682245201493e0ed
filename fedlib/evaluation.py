"""The result of a run, and the scores of the models that clients hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from .algorithm import Algorithm
from .checks import answer, in_order
from .data import IGNORED, ClientData, positions
from .params import Params, row
from .stacked import still, vmap
from .trial import check_predict

__all__ = ["Result", "evaluate", "pooled", "score"]

_CHUNK_ENTRIES = 2**24  # of features, and of parameters, in one forward pass: 64 MB of float32


@dataclass(frozen=True)
class Result:
    """The result of `fit`.

    Attributes
    ----------
    state : object
        The algorithm's state after the last round. Rows that belong to clients are in ascending order of ids.
    ids : Tensor of shape (K,), int64
        Ids of the training clients, ascending.
    history : pandas.DataFrame
        One row for each round, with ``round``, ``clients`` (how many updates arrived), ``train_loss`` (the loss before
        each step, averaged over the steps of a client and then over the cohort, weighted by examples), the scores of
        `fedlib.evaluation.evaluate` pooled over examples and prefixed with the name of the evaluation set
        (``test_accuracy``), and ``seconds`` (training and aggregation). The costs of the round follow, namely
        ``bytes_down`` and ``bytes_up`` (all clients together, without headers), ``examples`` processed in training,
        ``flops`` (estimated as three times the matrix products and convolutions of the loss) and ``server_seconds``.
        Costs with a purpose other than training also have separate columns, such as ``bytes_up (clustering)``. Work
        before round 1 is in an extra row, round 0.
    name : array of shape (K,), str, optional
        Names of the clients, if they have any.
    columns : tuple of str
        Names of further columns of the training data, in the order in which the loss takes them; () leaves those of
        other data in their order.
    """

    state: Any
    ids: Tensor
    history: pd.DataFrame
    name: Any = None
    columns: tuple[str, ...] = ()


_KINDS = Algorithm, Result, ClientData


def evaluate(algorithm: Algorithm, result: Result, data: ClientData) -> pd.DataFrame:
    """Score every client's model on that client's rows of `data`.

    Parameters
    ----------
    algorithm : Algorithm
    result : Result
        From `fedlib.federation.fit`, or from `fedlib.federation.new_clients` for clients never seen in training.
    data : ClientData
        Test rows of some or all clients of the result, matched by id.

    Returns
    -------
    pandas.DataFrame
        One row for each client, in the order of `data`, with ``id``, ``n`` and ``loss`` (mean of the algorithm's loss
        over rows). If `predict` is given, class labels add ``accuracy``, and real targets add ``mse``, ``mae`` and
        ``r2`` with the ``target_mean`` and ``target_variance`` of the client. R2 is NaN where all targets are equal.
        Clients with names have a ``name``. If rows have several labels, ``labels`` counts those that are not -100, and
        the accuracy is the share of these that is right. `predict` then gives logits (B, L, classes), or (B, L) for
        labels of 0 and 1, where a logit above 0 means 1. If rows have several targets, there are only ``mse`` and
        ``mae``.

    Raises
    ------
    ValueError
        A client that is not in the result, rows that do not fit the models, an output that `predict` must not have, or
        a `predict` whose answer to a row depends on the rows beside it.
    TypeError
        A result of another algorithm.

    Notes
    -----
    When all clients hold the same model, each distinct row goes through `predict` once. Chapter 01.

    Examples
    --------
    With ``loss``, ``model`` and ``data`` as in the example of `fedlib.federation.fit`:

    >>> from fedlib import evaluate
    >>> algorithm = FedAvg(loss, predict=model)
    >>> result = fit(algorithm, model.init(0), data, rounds=2, progress=False)
    >>> evaluate(algorithm, result, data).columns.tolist()
    ['id', 'n', 'loss', 'accuracy']
    """
    check_result(algorithm, result, data)
    first = row(first_params(algorithm, result), 0)
    like = next(iter(first.values()))
    data = in_order(data.to(like.device), result.columns)
    clients = positions(result.ids.to(like.device), data, "the data", result.name)
    try:
        if algorithm.predict is not None:
            rows = data.index[[0, -1]][:, [0, -1]].flatten()
            check_predict(algorithm.predict, first, data.features(rows, like.dtype))
        table = score(algorithm, result.state, data, clients)
        if algorithm.predict is not None:
            losses = _losses(algorithm, result.state, data, clients).numpy()
            table.insert(table.columns.get_loc("n") + 1, "loss", losses)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        shapes = f"rows of shape {tuple(data.x.shape[1:])} and y of shape {tuple(data.y.shape[2:])}"
        raise ValueError(f"the models do not run on {shapes}: {error}. Do they fit the training data?") from error
    return table


def check_result(algorithm: Any, result: Any, data: Any) -> None:
    """Raise a TypeError if one of the three is something else, for example because their order is wrong."""
    for name, value, kind in zip(("algorithm", "result", "data"), (algorithm, result, data), _KINDS, strict=True):
        if not isinstance(value, kind):
            got = f"got {type(value).__name__}: give (algorithm, result, data)"
            raise TypeError(f"{name} must be of kind {kind.__name__}, {got}")


def first_params(algorithm: Algorithm, result: Result) -> Params:
    """Stack of one row with the first client's parameters; a TypeError if the result is of another algorithm."""
    try:
        return algorithm.client_params(result.state, torch.zeros(1, dtype=torch.int64, device=result.ids.device))
    except AttributeError as error:
        words = f"{type(algorithm).__name__} cannot read a {type(result.state).__name__}"
        raise TypeError(f"{words}; give the algorithm that made this result") from error


def score(algorithm: Algorithm, state: Any, data: ClientData, clients: Tensor) -> pd.DataFrame:
    """The scores of `evaluate` for clients at positions (K,) of the state; only the loss if `predict` is missing."""
    table: dict[str, Any] = {"id": data.id.cpu().numpy(), "name": data.name, "n": data.n.cpu().numpy()}
    table = {name: column for name, column in table.items() if column is not None}
    predict = algorithm.predict
    if predict is None:
        table["loss"] = _losses(algorithm, state, data, clients).numpy()
        if data.y.ndim > 2 and not data.y.is_floating_point():
            table["labels"] = _counted(data).flatten(1).sum(1).cpu().numpy()
        return pd.DataFrame(table)
    one = algorithm.client_params(state, clients[:1])
    dtype, parts = next(iter(one.values())).dtype, []
    with torch.no_grad():
        if _one_model(algorithm, state, clients):
            parts.append(_compare(_shared_answers(algorithm, row(one, 0), data), data))
        else:
            for params, some in _chunks(algorithm, state, data, clients):
                x, y, *_ = some.all_rows(dtype)
                answers = vmap(lambda p, x, y: answer(predict(p, x), y))(params, x, y)
                parts.append(_compare(answers, some))
    return pd.DataFrame(table | {name: torch.cat([p[name] for p in parts]).numpy() for name in parts[0]})


def pooled(scores: pd.DataFrame) -> dict[str, float]:
    """Each score of `evaluate` over all examples together, in which clients are weighted by their examples or labels.

    R2 is that of all examples as one set, one minus the squared errors over the squared distances to the common mean.
    """
    n = scores["labels" if "labels" in scores else "n"]

    def mean(values: pd.Series) -> float:
        return float((values * n).sum() / n.sum())

    pool = {name: mean(scores[name]) for name in scores if name in ("loss", "accuracy", "mse", "mae")}
    if "r2" in scores:
        centre = mean(scores["target_mean"])
        variance = mean(scores["target_variance"] + (scores["target_mean"] - centre) ** 2)
        constant = scores["target_mean"].nunique() == 1 and not scores["target_variance"].any()
        pool["r2"] = float("nan") if constant else 1 - pool["mse"] / variance
    return pool


def _one_model(algorithm: Algorithm, state: Any, clients: Tensor) -> bool:
    """Whether all clients hold the same row of a stack, which `params.take` then broadcasts."""

    def shared(some: Tensor) -> bool:
        return all(p.stride(0) == 0 for p in algorithm.client_params(state, some).values())

    return len(clients) == 1 or (shared(clients[:2]) and shared(clients))  # first of two: a stack of all may be large


def _shared_answers(algorithm: Algorithm, params: Params, data: ClientData) -> Tensor:
    """Answers of one model to all rows of all clients, in the shape of y."""
    index = data.index[:1] if data.index.stride(0) == 0 else data.index  # all clients may have the same rows
    rows, place = index.unique(return_inverse=True)
    dtype = next(iter(params.values())).dtype
    answers = []
    for r in rows.split(max(1, _CHUNK_ENTRIES // max(1, data.x[0].numel()))):
        with still():
            output = algorithm.predict(params, data.features(r, dtype))  # type: ignore[misc]
        answers.append(answer(output, data.y.new_empty(len(r), *data.y.shape[2:])))
    return torch.cat(answers)[place].expand_as(data.y)


def _counted(data: ClientData) -> Tensor:
    """Which labels or targets (K, n_max, ...) are neither padding nor left out."""
    counts = data.real.reshape(*data.index.shape, *[1] * (data.y.ndim - 2)).expand_as(data.y)
    return counts if data.y.is_floating_point() else counts & (data.y != IGNORED)


def _compare(answers: Tensor, data: ClientData) -> dict[str, Tensor]:
    """Each client's scores, given its answers (K, n_max, ...)."""
    several, counts = data.y.ndim > 2, _counted(data)
    n = counts.flatten(1).sum(1).cpu()

    def mean(values: Tensor) -> Tensor:
        return values.masked_fill(~counts, 0).flatten(1).sum(1).cpu().double() / n

    if not data.y.is_floating_point():
        return ({"labels": n} if several else {}) | {"accuracy": mean(answers == data.y)}
    y = data.y.to(torch.promote_types(data.y.dtype, torch.float32))  # sums of float16 overflow
    error = answers - y
    scores = {"mse": mean(error.square()), "mae": mean(error.abs())}
    if several:
        return scores
    first, centre = y[:, :1], mean(y)
    constant = ((y == first) | ~counts).all(1).cpu()
    centre = torch.where(constant, first[:, 0].cpu().double(), centre)  # exact, so that rounding creates no variance
    variance = mean((y - centre.to(y)[:, None]).square())
    r2 = torch.where(variance > 0, 1 - scores["mse"] / variance, torch.nan)
    return scores | {"r2": r2, "target_mean": centre, "target_variance": variance}


def _losses(algorithm: Algorithm, state: Any, data: ClientData, clients: Tensor) -> Tensor:
    """Mean loss of each client, of shape (K,)."""
    one = algorithm.client_params(state, clients[:1])
    dtype, everybody = next(iter(one.values())).dtype, len(data)
    same_rows = data.index.stride(0) == data.y.stride(0) == 0 and not data.columns
    if everybody > 1 and same_rows and _one_model(algorithm, state, clients):
        data, clients = data[:1], clients[:1]  # the same model on the same rows
    parts = []
    with torch.no_grad():
        for params, some in _chunks(algorithm, state, data, clients):
            parts.append(vmap(algorithm.loss)(params, some.all_rows(dtype)).cpu().double())
    return torch.cat(parts).expand(everybody)


def _chunks(algorithm: Algorithm, state: Any, data: ClientData, clients: Tensor) -> Iterator[tuple[Params, ClientData]]:
    """The models and the data of clients whose rows go through their models at once."""
    two = algorithm.client_params(state, clients[:2])
    own = sum(p[0].numel() for p in two.values() if p.stride(0))  # all others share their memory
    size = max(1, _CHUNK_ENTRIES // max(1, own, data.index.shape[1] * data.x[0].numel()))
    for chunk in torch.arange(len(data), device=data.n.device).split(size):
        yield algorithm.client_params(state, clients[chunk]), data[chunk]
