"""Averages as sums, which can be added over clients, chunks and machines, and the means computed from them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .low_rank import LowRank
from .params import Params, mix, per_row

__all__ = ["Sums", "add_sums", "cluster_means", "cluster_sums", "membership", "part_sums"]

Sums = dict[str, Any]  # nested dictionaries of tensors


def membership(assignment: Tensor, weight: Tensor, models: int) -> Tensor:
    """Matrix of shape (M, C) with the weight of each client in the row of its model and 0 in the other rows.

    Its product with a stack of C rows sums over each model's clients (`fedlib.params.mix`). If the rows of the matrix
    are divided by their sums, the product gives means instead. `assignment` (C,) holds numbers from 0 to `models` - 1.
    """
    return (assignment == torch.arange(models, device=assignment.device)[:, None]) * weight


def cluster_sums(params: Mapping[str, Tensor | LowRank], assignment: Tensor, weight: Tensor, models: int) -> Sums:
    """Weighted sums of the clients' parameters for each model, which are all that the server needs from a cohort.

    Parameters
    ----------
    params : Params
        Stack of C rows; wide dense layers may be in low-rank form (the ``ends`` of `fedlib.local.Trained`).
    assignment : Tensor of shape (C,), int64
        Number of each client's model, from 0 to `models` - 1.
    weight : Tensor of shape (C,)
        Weight of each client, such as its number of examples n_k.
    models : int
        M, number of models.

    Returns
    -------
    dict
        ``params``, the sum of n_k theta_k (M, ...), and ``weight``, the sum of n_k (M,).
    """
    wide = torch.promote_types(next(iter(params.values())).dtype, torch.float32)
    matrix = membership(assignment, weight.to(wide), models)  # (M, C)
    return {"params": dict(mix(matrix, params)), "weight": matrix.sum(1)}


def part_sums(parts: Params, weight: Tensor) -> Sums:
    """As `cluster_sums`, for one model of D parts (C, D, ...) with separate weights (C, D), such as FedCG's modules."""
    wide = weight.to(torch.promote_types(next(iter(parts.values())).dtype, torch.float32))
    total = {name: torch.einsum("cd,cd...->d...", wide, p.to(wide))[None] for name, p in parts.items()}
    return {"params": total, "weight": wide.sum(0)[None]}


def add_sums(a: Sums, b: Sums) -> Sums:
    """Add a and b entry by entry, so that the sums of two chunks of a cohort become the sums of both."""
    return {name: add_sums(value, b[name]) if isinstance(value, dict) else value + b[name] for name, value in a.items()}


def cluster_means(sums: Sums, previous: Params) -> Params:
    """Weighted mean of each model's clients (FedCG Eq. 2; FedAvg if there is one model; chapter 01).

    Parameters
    ----------
    sums : dict
        From `cluster_sums`.
    previous : Params
        Stack of M rows; a model to which no client has contributed keeps its row.

    Returns
    -------
    Params
        Stack of M rows.
    """
    total, weight = sums["params"], sums["weight"]
    empty, divisor = weight == 0, weight.clamp(min=1e-30)
    means = {name: (total[name] / per_row(divisor, total[name])).to(p.dtype) for name, p in previous.items()}
    if not empty.any():
        return means
    return {name: torch.where(per_row(empty, p).bool(), p, means[name]) for name, p in previous.items()}
