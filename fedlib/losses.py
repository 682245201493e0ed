"""Losses for one client.

A loss of fedlib is a function ``loss(params, batch, *extras) -> scalar`` of ONE client, written the way a paper writes
it; `fedlib.local.local_update` maps it over a stack of clients. The batch is ``(x, y, w)``, where w is 1 for a real row
and 0 for padding, so a mean over the batch is a weighted mean. If a row has several labels or targets, the mean is over
all of them in the real rows, as in torch, and labels of -100 are left out.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .data import IGNORED

__all__ = ["bce", "cross_entropy", "mse", "weighted_mean"]


def weighted_mean(values: Tensor, w: Tensor) -> Tensor:
    """Mean of `values` (B,) with weights `w` (B,), that is, the mean over the real rows of a padded batch."""
    if values.ndim > w.ndim:  # (B, 1) times (B,) would be (B, B)
        raise ValueError(f"values of shape {tuple(values.shape)} are not one for each row {tuple(w.shape)}")
    values = values * w
    if values.dtype in (torch.float16, torch.bfloat16):  # a sum of float16 overflows beyond 65,504
        values, w = values.float(), w.float()
    return values.sum() / w.sum()


def _mean(values: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Mean of `values` (B, ...) over the real rows, without the labels that y (B, ...) leaves out."""
    if y.ndim > 1:
        w = w.reshape(-1, *[1] * (y.ndim - 1)) * (torch.ones_like(values) if y.is_floating_point() else y != IGNORED)
    return weighted_mean(values, w)


def _fitting(output: Tensor, y: Tensor, what: str) -> Tensor:
    """The output in the shape of y (B, ...); it may have an additional last axis of 1."""
    given, shape = output.shape, y.shape  # each access takes time inside a vmap
    if given not in (shape, (*shape, 1)):
        raise ValueError(f"{what} of shape {tuple(given)} do not fit y of shape {tuple(shape)}: give equally many")
    return output.reshape(shape)


def cross_entropy(logits: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Mean cross-entropy of a batch (FedCG Eq. 1; chapter 01).

    Parameters
    ----------
    logits : Tensor of shape (B, ..., classes)
        For y of shape (B, ...), with one class per row, or one per position, such as the next token. Torch has the
        classes in axis 1 instead.
    y : Tensor of shape (B, ...), int64
        If there are several per row, -100 leaves a position out.
    w : Tensor of shape (B,)
        1 for real rows, 0 for padding.

    Returns
    -------
    Tensor, scalar
        In nats.

    Raises
    ------
    ValueError
        Logits of another shape.

    Examples
    --------
    The row with weight 0 is padding; the other one is predicted with probability one half:

    >>> import torch
    >>> from fedlib.losses import cross_entropy
    >>> loss = cross_entropy(torch.zeros(2, 2), torch.tensor([0, 1]), torch.tensor([1.0, 0.0]))
    >>> f"{loss:.3f}"
    '0.693'
    """
    if logits.shape[:-1] != y.shape:
        words = f"logits of shape {tuple(logits.shape)} do not fit y of shape {tuple(y.shape)}"
        raise ValueError(f"{words}: classes come last, (*y.shape, classes); from torch's order, logits.movedim(1, -1)")
    if y.ndim > 1:
        logits = logits.movedim(-1, 1)  # torch's order
    return _mean(F.cross_entropy(logits, y, reduction="none", ignore_index=IGNORED), y, w)


def bce(logits: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Mean binary cross-entropy of a batch whose rows may have several labels at once.

    Parameters
    ----------
    logits : Tensor of shape (B, L)
        One number per label, where above 0 means yes. With one label per row, (B,) or (B, 1) are also allowed.
    y : Tensor of shape (B, L)
        0 or 1. If there are several labels per row, the whole number -100 marks an unknown one; floating-point numbers
        may also be between 0 and 1.
    w : Tensor of shape (B,)
        1 for real rows, 0 for padding.

    Returns
    -------
    Tensor, scalar
        In nats, the mean over labels.

    Raises
    ------
    ValueError
        Logits of another shape.
    """
    values = F.binary_cross_entropy_with_logits(_fitting(logits, y, "logits"), y.to(logits.dtype), reduction="none")
    return _mean(values, y, w)


def mse(prediction: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Mean squared error of a batch, in the squared unit of `y`.

    Parameters
    ----------
    prediction : Tensor of shape (B, ...) or (B, ..., 1)
    y : Tensor of shape (B, ...)
        One target per row, or several.
    w : Tensor of shape (B,)
        1 for real rows, 0 for padding.

    Returns
    -------
    Tensor, scalar

    Raises
    ------
    ValueError
        Predictions of another shape.
    """
    error = _fitting(prediction, y, "predictions") - y
    return _mean(error.square(), error, w)  # no target is left out, even if y holds whole numbers
