"""Layers for one client that stay fast when `torch.vmap` stacks clients.

Under plain vmap a dense layer becomes one batched matrix product, which is fast; a convolution becomes a grouped
convolution in a memory layout in which it is slower than a Python loop over clients. `conv_relu_pool` therefore brings
its own kernel for a stack, and `mlp` its own backward pass. A loss never sees the difference: it calls the layer for
one client. `make bench` times them.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["conv_relu_pool", "dense", "mlp", "stackable"]


def still_batched(args: Iterable) -> bool:
    """Whether a vmap is at work on any of these arguments: then it has no memory that could be asked for."""

    def has_memory(a: Tensor) -> bool:
        try:
            a.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return False
        return True

    return any(isinstance(a, Tensor) and not has_memory(a) for a in args)


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
                if still_batched(args):
                    return torch.vmap(plain, in_dims)(*args), 0
                stacked = [_client_axis_first(a, d, info.batch_size) for a, d in zip(args, in_dims, strict=True)]
                return fast(*stacked), 0

        @functools.wraps(plain)
        def operation(*args):
            return Operation.apply(*args)

        return operation

    return decorate


def _client_axis_first(argument: Any, axis: int | None, clients: int) -> Any:
    if not isinstance(argument, Tensor):
        return argument
    return argument.expand(clients, *argument.shape) if axis is None else argument.movedim(axis, 0)


_LARGE_IMAGE = 2**8  # pixels from which the cost of a call for each client does not matter


class _MLPStack(torch.autograd.Function):
    """`mlp` for a stack, with the backward pass written out: the cheapest products, and nothing between them.

    autograd would derive transposed weight gradients, which cost several times as much, and three more operations for
    each layer. The hidden values are outputs, so that second derivatives flow through them.
    """

    @staticmethod
    def forward(x, *layers):
        hidden = []
        for i in range(0, len(layers), 2):
            x = x.relu_() if i else x
            hidden.append(x)
            x = torch.baddbmm(layers[i + 1][:, None], x, layers[i].mT)
        return x, *hidden[1:]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], *output[1:], *inputs[1::2])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, g, *more):
        layers = len(ctx.saved_tensors) // 2
        inputs, weights = ctx.saved_tensors[:layers], ctx.saved_tensors[layers:]
        found = []
        for i in reversed(range(layers)):
            if g is None:  # only a second derivative asks for less than all
                g = torch.zeros_like(inputs[i] @ weights[i].mT)
            found += [g.sum(1), g.mT @ inputs[i]]
            if i or ctx.needs_input_grad[0]:
                g = g @ weights[i]
            if i:
                g = g if more[i - 1] is None else g + more[i - 1]
                g = torch.ops.aten.threshold_backward(g, inputs[i], 0)  # where ReLU let something through
        return g if ctx.needs_input_grad[0] else None, *reversed(found)


def _plain_mlp(x: Tensor, *layers: Tensor) -> Tensor:
    for i in range(0, len(layers), 2):
        x = F.linear(torch.relu(x) if i else x, layers[i], layers[i + 1])
    return x


_mlp = stackable(lambda *args: _MLPStack.apply(*args)[0])(_plain_mlp)


def mlp(x: Tensor, *layers: Tensor) -> Tensor:
    """Fully connected layers with ReLU between them.

    Parameters
    ----------
    x : Tensor of shape (B, inputs)
    *layers : Tensor
        Weight (outputs, inputs) and bias (outputs,) of each layer in turn.

    Returns
    -------
    Tensor of shape (B, outputs of the last layer)

    Notes
    -----
    `fedlib.models.MLP` and the dense layers of `fedlib.models.CNN` are made of it (chapter 01). Inputs with another
    number of axes take torch's own layers.
    """
    return _mlp(x, *layers) if x.ndim == 2 else _plain_mlp(x, *layers)


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
    An `mlp` of one layer; chapter 06 adds domain modules to it.
    """
    return mlp(x, weight, bias)


def _conv_relu_pool_stack(x: Tensor, weight: Tensor, bias: Tensor, padding: int, pool: int) -> Tensor:
    """`conv_relu_pool` for x (C, B, I, H, W), weight (C, O, I, h, w) and bias (C, O): one grouped convolution.

    In channels_last memory the grouped convolution and the max-pool are vectorised; pooling before ReLU gives the same
    numbers, since ReLU never changes which entry is largest, and leaves ReLU less to do. On a CPU a grouped convolution
    of two to five channels is several times slower than single ones, so large images of that kind go one client after
    another.
    """
    clients, batch, *image = x.shape
    outputs = weight.shape[1]
    if x.device.type == "cpu" and 1 < image[0] < 6 and image[-1] * image[-2] >= _LARGE_IMAGE:
        x = x.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, (clients, batch))
        each = zip(x.unbind(), weight.unbind(), bias.unbind(), strict=True)
        return torch.stack([F.relu(_pool(F.conv2d(*one, padding=padding), pool)) for one in each])
    x = x.transpose(0, 1).reshape(batch, clients * image[0], *image[1:])
    x = x.contiguous(memory_format=torch.channels_last)
    z = F.conv2d(x, weight.flatten(0, 1), bias.flatten(), padding=padding, groups=clients)
    return F.relu(_pool(z, pool)).unflatten(1, (clients, outputs)).transpose(0, 1)


def _pool(z: Tensor, side: int) -> Tensor:
    return F.max_pool2d(z, side) if side > 1 else z


@stackable(_conv_relu_pool_stack)
def _conv_relu_pool(x: Tensor, weight: Tensor, bias: Tensor, padding: int, pool: int) -> Tensor:
    return F.relu(_pool(F.conv2d(x, weight, bias, padding=padding), pool))


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
