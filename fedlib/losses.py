"""Losses for one client.

A loss of fedlib is a function ``loss(params, batch, *extras) -> scalar`` of ONE client, written the way a paper writes
it; `fedlib.local.local_update` maps it over a stack of clients. The batch is ``(x, y, w)``: w is 1 for a real row
and 0 for padding, so a mean over the batch is a weighted mean.
"""

import torch.nn.functional as F
from torch import Tensor

__all__ = ["cross_entropy", "mse", "weighted_mean"]


def weighted_mean(values: Tensor, w: Tensor) -> Tensor:
    """Mean of `values` (B,) with weights `w` (B,): the mean over the real rows of a padded batch."""
    return (values * w).sum() / w.sum()


def cross_entropy(logits: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Mean cross-entropy of a batch (FedCG Eq. 1; chapter 01).

    Parameters
    ----------
    logits : Tensor of shape (B, classes)
    y : Tensor of shape (B,), int64
    w : Tensor of shape (B,)
        1 for real rows, 0 for padding.

    Returns
    -------
    Tensor, scalar
        In nats.

    Examples
    --------
    A row of weight 0 is padding; the other is right with probability one half:

    >>> import torch
    >>> from fedlib.losses import cross_entropy
    >>> loss = cross_entropy(torch.zeros(2, 2), torch.tensor([0, 1]), torch.tensor([1.0, 0.0]))
    >>> f"{loss:.3f}"
    '0.693'
    """
    return weighted_mean(F.cross_entropy(logits, y, reduction="none"), w)


def mse(prediction: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Mean squared error of a batch, in the squared unit of `y`.

    Parameters
    ----------
    prediction : Tensor of shape (B,) or (B, 1)
    y : Tensor of shape (B,)
    w : Tensor of shape (B,)
        1 for real rows, 0 for padding.

    Returns
    -------
    Tensor, scalar

    Raises
    ------
    ValueError
        Targets of another shape.
    """
    if y.ndim != 1:
        raise ValueError(f"y must have one target a row, shape (B,); got {tuple(y.shape)}: use y[:, 0]")
    return weighted_mean((prediction.reshape(y.shape) - y).square(), w)
