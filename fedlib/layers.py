"""Layers for one client that stay fast when `torch.vmap` stacks clients.

Under plain vmap a dense layer becomes one batched matrix product, which is fast; a convolution becomes a grouped
convolution in a memory layout in which it is slower than a Python loop over clients. `conv_relu_pool` therefore brings
its own kernel for a stack. A loss never sees the difference: it calls the layer for one client.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["conv_relu_pool", "dense", "stackable"]


def _still_batched(args: tuple) -> bool:
    """Whether another vmap is at work on these arguments; the one place that uses torch's private name for it."""
    return any(isinstance(a, Tensor) and torch._C._functorch.is_batchedtensor(a) for a in args)


def stackable(fast: Callable[..., Tensor]) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Decorate a plain operation of one client with a fast kernel for a stack of clients.

    Parameters
    ----------
    fast : callable
        The same operation for tensors that all have a leading client axis, in ordinary differentiable torch
        operations: autograd stands outside vmap and differentiates it.

    Returns
    -------
    callable
        A decorator. The decorated function takes tensors first, then other settings, all by position, and composes
        with autograd, `torch.func.grad`, `vjp` and any nesting of vmap.

    Notes
    -----
    Outside vmap the plain operation runs. Inside one vmap the fast kernel runs. Inside two, the inner one runs the
    plain operation, so the outer one may again reach the fast kernel. Derivatives taken inside vmap are those of
    the plain operation.
    """

    def decorate(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
        class Operation(torch.autograd.Function):
            @staticmethod
            def forward(*args):
                return plain(*args)

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*(a for a in inputs if isinstance(a, Tensor)))
                ctx.settings = [a for a in inputs if not isinstance(a, Tensor)]

            @staticmethod
            def backward(ctx, gradient):
                pullback = torch.func.vjp(lambda *tensors: plain(*tensors, *ctx.settings), *ctx.saved_tensors)[1]
                return *pullback(gradient), *[None] * len(ctx.settings)

            @staticmethod
            def vmap(info, in_dims, *args):
                if _still_batched(args):
                    return torch.vmap(plain, in_dims)(*args), 0
                stacked = [_client_axis_first(a, d, info.batch_size) for a, d in zip(args, in_dims, strict=True)]
                return fast(*stacked), 0

        Operation.__name__ = Operation.__qualname__ = plain.__name__
        return Operation.apply

    return decorate


def _client_axis_first(argument: Any, axis: int | None, clients: int) -> Any:
    if not isinstance(argument, Tensor):
        return argument
    return argument.expand(clients, *argument.shape) if axis is None else argument.movedim(axis, 0)


_LARGE = 2**16  # entries of a weight from which the cheaper products outweigh the cost of the call (on a CPU)


class _DenseStack(torch.autograd.Function):
    """`dense` for x (C, B, i), weight (C, o, i) and bias (C, o), with the cheapest products in each direction.

    autograd would derive ``weight^T g^T`` or a transposed weight gradient; both cost several times as much.
    """

    @staticmethod
    def forward(x, weight, bias):
        return torch.baddbmm(bias[:, None], x, weight.mT)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        needed = ctx.needs_input_grad
        return (g @ weight if needed[0] else None), (g.mT @ x if needed[1] else None), g.sum(1)


@stackable(_DenseStack.apply)
def _dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(x, weight, bias)


def dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Fully connected layer, x @ weight.T + bias.

    Parameters
    ----------
    x : Tensor of shape (B, inputs)
    weight : Tensor of shape (outputs, inputs)
    bias : Tensor of shape (outputs,)

    Returns
    -------
    Tensor of shape (B, outputs)

    Notes
    -----
    A small layer is written as ``(W x^T + b)^T``: under vmap one batched product, whose weight gradient comes out
    contiguous. For a large one the products of `_DenseStack` are worth the cost of a function of our own.
    """
    if weight.numel() < _LARGE or x.ndim != 2:
        return (weight @ x.mT + bias[:, None]).mT
    return _dense(x, weight, bias)


def _conv_relu_pool_stack(x: Tensor, weight: Tensor, bias: Tensor, padding: int, pool: int) -> Tensor:
    """`conv_relu_pool` for x (C, B, I, H, W), weight (C, O, I, h, w) and bias (C, O): one grouped convolution.

    In channels_last memory the grouped convolution and the max-pool are vectorised; pooling before ReLU gives the same
    numbers, since ReLU never changes which entry is largest, and leaves ReLU less to do.
    """
    clients, batch, *image = x.shape
    outputs = weight.shape[1]
    x = x.transpose(0, 1).reshape(batch, clients * image[0], *image[1:])
    x = x.contiguous(memory_format=torch.channels_last)
    z = F.conv2d(x, weight.flatten(0, 1), bias.flatten(), padding=padding, groups=clients)
    if pool > 1:
        z = F.max_pool2d(z, pool)
    return F.relu(z).unflatten(1, (clients, outputs)).transpose(0, 1)


@stackable(_conv_relu_pool_stack)
def _conv_relu_pool(x: Tensor, weight: Tensor, bias: Tensor, padding: int, pool: int) -> Tensor:
    z = F.relu(F.conv2d(x, weight, bias, padding=padding))
    return F.max_pool2d(z, pool) if pool > 1 else z


def conv_relu_pool(x: Tensor, weight: Tensor, bias: Tensor, padding: int = 0, pool: int = 1) -> Tensor:
    """Convolution, ReLU, then max-pooling.

    Parameters
    ----------
    x : Tensor of shape (B, I, H, W)
    weight : Tensor of shape (O, I, h, w)
    bias : Tensor of shape (O,)
    padding : int
        Zeros added on each side of the image; 0 adds none.
    pool : int
        Side of the squares of which the largest entry is kept; 1 keeps all.

    Returns
    -------
    Tensor of shape (B, O, (H + 2 padding - h + 1) // pool, (W + 2 padding - w + 1) // pool)
    """
    return _conv_relu_pool(x, weight, bias, padding, pool)
