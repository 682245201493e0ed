"""Maximum mean discrepancy (MMD), a distance between two samples of embeddings."""

from typing import Literal

import torch
from torch import Tensor

__all__ = ["mmd", "mmd2"]

Kernel = Literal["rbf", "linear"]

_FLOOR = 1e-6  # least bandwidth; samples closer together than this count as constant


def mmd2(
    x: Tensor,
    y: Tensor,
    wx: Tensor | None = None,
    wy: Tensor | None = None,
    kernel: Kernel = "rbf",
) -> Tensor:
    """Biased estimator of the squared MMD of two samples (FedSGCNN section 4.4, squared).

    Parameters
    ----------
    x : Tensor of shape (n, h)
    y : Tensor of shape (m, h)
    wx : Tensor of shape (n,), optional
        Weights of the rows, 1 for a real row and 0 for padding. With None, all rows are real.
    wy : Tensor of shape (m,), optional
    kernel : {"rbf", "linear"}
        "rbf" is the mean of exp(-d^2 / (f b)) over f = 1/4, 1/2, 1, 2, 4, where d is the distance between two rows.
        "linear" is the inner product of two rows, so that the result is the squared distance between the two means.

    Returns
    -------
    Tensor, scalar
        At least 0, and at most 2 with "rbf". It is 0 for equal samples, if all rows are equal, and if a sample has no
        real row, because there is then nothing to compare. A single row in a sample is enough.

    Raises
    ------
    ValueError
        The kernel is neither "rbf" nor "linear".

    Notes
    -----
    The bandwidth b is the lower median of d^2 over all pairs of distinct real rows of the joint sample, and at least
    1e-6 (for constant embeddings). No gradient flows through it. The estimator is biased because the mean over a sample
    includes the pairs of a row with itself. Two samples of one distribution therefore give a value above 0, of the
    order of 1/n + 1/m. The function works under `torch.vmap`. The paper names no kernel. Chapter 11.
    """
    if kernel not in ("rbf", "linear"):
        raise ValueError(f"kernel must be 'rbf' or 'linear', got {kernel!r}")
    z, c = _joint(x, y, wx, wy)
    if kernel == "linear":
        return (c @ z).square().sum()
    d2, c2 = _pairs(z, c)
    k = torch.exp(d2 / (-4 * _median(d2.detach(), c2)))
    total = k
    for _ in range(4):  # the kernel with half the bandwidth is the square of this one
        k = k.square()
        total = total + k
    return (c.square().sum() + 2 * (c2 @ total) / 5).clamp_min(0)  # k of a row with itself is exactly 1


def mmd(x: Tensor, y: Tensor, wx: Tensor | None = None, wy: Tensor | None = None, kernel: Kernel = "rbf") -> Tensor:
    """MMD of two samples, the norm in FedSGCNN section 4.4, computed as the root of `mmd2` + 1e-12.

    Parameters
    ----------
    x, y, wx, wy, kernel
        As in `mmd2`.

    Returns
    -------
    Tensor, scalar
        For equal samples it is 1e-6, with a finite gradient.

    Raises
    ------
    ValueError
        The kernel is neither "rbf" nor "linear".

    Notes
    -----
    Chapter 11.
    """
    return (mmd2(x, y, wx, wy, kernel) + 1e-12).sqrt()


def _joint(x: Tensor, y: Tensor, wx: Tensor | None, wy: Tensor | None) -> tuple[Tensor, Tensor]:
    """Rows (n + m, h) of both samples and c (n + m,), w / sum w for x and -w / sum w for y; MMD^2 is c' K c."""
    wx = x.new_ones(len(x)) if wx is None else wx.to(x.dtype)
    wy = y.new_ones(len(y)) if wy is None else wy.to(y.dtype)
    both = (wx.sum() > 0) & (wy.sum() > 0)  # otherwise there is nothing to compare, and c is 0
    cx, cy = (torch.where(both, w / w.sum().clamp_min(1e-30), 0) for w in (wx, wy))
    return torch.cat([x, y]), torch.cat([cx, -cy])


def _pairs(z: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances and products of c, each (N (N - 1) / 2,), of all pairs of distinct rows of z (N, h)."""
    first, second = torch.triu_indices(len(z), len(z), 1, device=z.device)
    place = first * len(z) + second  # index into the flat matrix, which is quicker than by row and column
    z = z - (c.abs() @ z.detach()) / 2  # centred, since smaller numbers have smaller rounding errors
    norm = z.square().sum(-1)
    d2 = (norm[:, None] + norm - 2 * (z @ z.T)).flatten().index_select(0, place)
    return d2.clamp_min(0), torch.outer(c, c).flatten().index_select(0, place)


def _median(d2: Tensor, c2: Tensor) -> Tensor:
    """Lower median of the squared distances of the real pairs, those with c2 != 0."""
    median = torch.where(c2 != 0, d2, torch.nan).nanmedian(-1).values
    return median.nan_to_num(_FLOOR).clamp_min(_FLOOR)
