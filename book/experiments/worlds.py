"""Losses, data and watchers that several experiments share; it is no experiment itself."""

from collections.abc import Callable

from torch import Tensor

from fedlib.losses import cross_entropy, mse


def squared_error(net: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The loss of a regression."""
    return lambda params, batch: mse(net(params, batch[0]), batch[1], batch[2])


def class_error(net: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The loss of a classification."""
    return lambda params, batch: cross_entropy(net(params, batch[0]), batch[1], batch[2])
