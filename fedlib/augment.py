"""Augmentation of images inside a loss, with different draws for each client, round, step and image.

Each function changes the images while `fedlib.federation.fit` trains and otherwise returns them unchanged, so scores
are computed on the original images. `fedlib.chance` says what the draws depend on. If you normalise the images, do so
in the loss after these functions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .chance import in_training
from .checks import check_number, check_whole

__all__ = ["crop", "flip", "noise"]


def flip(x: Tensor, p: float = 0.5) -> Tensor:
    """Mirror each image left to right with probability `p`; 0 mirrors none.

    Parameters
    ----------
    x : Tensor of shape (B, ..., W)
    p : float

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> from fedlib import augment
    >>> def loss(params, batch):
    ...     x, y, w = batch
    ...     return losses.cross_entropy(model(params, augment.crop(augment.flip(x), 4)), y, w)
    """
    check_number(p, "p", most=1)
    if not in_training(x):
        return x
    mirrored = torch.rand(len(x), device=x.device) < p
    return torch.where(mirrored.view(-1, *[1] * (x.ndim - 1)), x.flip(-1), x)


def crop(x: Tensor, padding: int) -> Tensor:
    """Shift each image by up to `padding` pixels in either direction, and fill the border with zeros.

    This is the same as padding with zeros and cropping a random window of the original size. ``padding=0`` shifts
    nothing.

    Parameters
    ----------
    x : Tensor of shape (B, ..., H, W)
    padding : int

    Returns
    -------
    Tensor of the same shape
    """
    check_whole(padding, "padding", least=0)
    if not in_training(x):
        return x
    padded = F.pad(x, [padding] * 4)
    for axis in (-2, -1):
        first = torch.randint(2 * padding + 1, (len(x),), device=x.device)
        place = first[:, None] + torch.arange(x.shape[axis], device=x.device)  # (B, H) or (B, W)
        shape = [len(x)] + [1] * (x.ndim - 1)
        shape[axis] = x.shape[axis]
        padded = padded.take_along_dim(place.view(shape), axis)
    return padded


def noise(x: Tensor, std: float) -> Tensor:
    """Add normal noise with standard deviation `std`, in the unit of `x`; 0 adds none.

    Parameters
    ----------
    x : Tensor
    std : float

    Returns
    -------
    Tensor of the same shape
    """
    check_number(std, "std")
    return x + std * torch.randn_like(x) if in_training(x) else x
