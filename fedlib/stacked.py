"""Plain PyTorch for one client, fast for a stack of them: kernels for torch's own functions inside a vmap.

Under `torch.vmap` alone a convolution of a stack of clients can be slower on a CPU than a loop over them. Inside the
`vmap` of this module clients become channels: the convolution of C clients is one with C times the groups, and pooling
and group norm are themselves on C times the channels. In channels_last memory these are fast, and one hands its output
to the next without a copy. A loss never sees the difference: it calls `F.conv2d` for one client.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

try:
    from torch._C._functorch import (
        _add_batch_dim,
        get_interpreter_stack,
        get_unwrapped,
        is_batchedtensor,
        maybe_get_bdim,
    )
    from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack

    PRIVATE_NAMES = True
except ImportError:  # another torch: `_Operation` asks for public names alone
    PRIVATE_NAMES = False

__all__ = ["vmap"]

# Without AVX-512 the weight gradient of a grouped convolution of two to five channels is several times slower than that
# of single ones, so large images of that kind go one client after another.
_ONE_BY_ONE = not torch.backends.cpu.get_cpu_capability().startswith("AVX512")
_LARGE_IMAGE = 2**8  # pixels from which the cost of a call for each client does not matter


def vmap(function: Callable[..., Any], in_dims: Any = 0) -> Callable[..., Any]:
    """`torch.vmap` with the kernels of this module (chapter 10).

    Parameters
    ----------
    function : callable
        Of one client, in plain PyTorch.
    in_dims : int, None or nested structure
        The axis of the clients in each argument, as `torch.vmap` takes it.

    Returns
    -------
    callable
        The same function of a stack; equal to `torch.vmap(function, in_dims)`, rounding apart.

    Notes
    -----
    A kernel takes the place of a function whose tensors are all stacked by this one vmap. What clients share, a further
    vmap around or inside, and `torch.func.grad` inside are left to torch.
    """

    def with_kernels(*args: Any) -> Any:
        with _Kernels():
            return function(*args)

    return torch.vmap(with_kernels, in_dims)


class _Kernels(TorchFunctionMode):
    """While it is open, torch's functions run the kernels of this module."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        kernel, axes = _KERNELS.get(func, (None, 0))
        if kernel is None or args[0].ndim != axes:
            return func(*args, **kwargs)
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        run = _on_stacks if PRIVATE_NAMES else _Operation.apply
        return run(_of_tensors(func, args, kwargs), _of_tensors(kernel, args, kwargs), *tensors)


def _of_tensors(function: Callable[..., Tensor], args: tuple, kwargs: dict[str, Any]) -> Callable[..., Tensor]:
    """`function` of the tensors among its arguments, the others as they are."""

    def call(*tensors: Tensor) -> Tensor:
        rest = iter(tensors)
        values = [next(rest) if isinstance(a, Tensor) else a for a in (*args, *kwargs.values())]
        return function(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))

    return call


def _on_stacks(plain: Callable[..., Tensor], kernel: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """What `kernel` gives for the stacks behind the tensors of one vmap; `plain` under anything else."""
    levels = get_interpreter_stack() or ()
    if len(levels) != 1 or not all(map(is_batchedtensor, tensors)):
        return plain(*tensors)
    with temporarily_pop_interpreter_stack():
        out = kernel(*(_clients_first(get_unwrapped(t), maybe_get_bdim(t)) for t in tensors))
    return _add_batch_dim(out, 0, levels[0].level())


class _Operation(torch.autograd.Function):
    """`_on_stacks` by public names, slower to call: torch hands the stacks to `vmap`."""

    @staticmethod
    def forward(plain, kernel, *tensors):
        return plain(*tensors)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.plain, _, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, gradient):
        tensors = (t.contiguous() for t in ctx.saved_tensors)  # torch's vmap of pooling loops over channels_last ones
        return None, None, *torch.func.vjp(ctx.plain, *tensors)[1](gradient)

    @staticmethod
    def vmap(info, in_dims, plain, kernel, *tensors):
        axes = in_dims[2:]
        if None in axes or not all(map(_has_memory, tensors)):
            return torch.vmap(plain, axes)(*tensors), 0
        return kernel(*map(_clients_first, tensors, axes)), 0


def _has_memory(tensor: Tensor) -> bool:
    """Whether no vmap is at work on a tensor."""
    try:
        return tensor.untyped_storage() is not None
    except (NotImplementedError, RuntimeError):
        return False


def _clients_first(stack: Tensor, axis: int) -> Tensor:
    return stack.movedim(axis, 0) if axis else stack


# ---- the kernels: torch's functions with a client axis first in all tensors ----


def _as_channels(x: Tensor) -> Tensor:
    """(C, B, I, H, W) as (B, C I, H, W) in channels_last memory; for what these kernels give, no copy."""
    return x.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)


def _as_clients(x: Tensor, clients: int) -> Tensor:
    return x.unflatten(1, (clients, -1)).transpose(0, 1)


def _flat(p: Any) -> Any:
    return None if p is None else p.flatten(0, 1)


def _conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    clients, batch, channels, *side = x.shape
    if x.device.type == "cpu" and _ONE_BY_ONE and 1 < channels < 6 and side[0] * side[1] >= _LARGE_IMAGE:
        x = x.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, (clients, batch))
        each = zip(x, weight, [None] * clients if bias is None else bias, strict=True)
        return torch.stack([F.conv2d(*one, stride, padding, dilation, groups) for one in each])
    z = F.conv2d(_as_channels(x), _flat(weight), _flat(bias), stride, padding, dilation, clients * groups)
    return _as_clients(z, clients)


def _group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    return _as_clients(F.group_norm(_as_channels(x), len(x) * groups, _flat(weight), _flat(bias), eps), len(x))


def _by_channel(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, *args, **kwargs: _as_clients(function(_as_channels(x), *args, **kwargs), len(x))


class _Linear(torch.autograd.Function):
    """Dense layers, the backward pass written out: a weight's gradient has the weight's layout, for the step."""

    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight)
        return x @ weight.mT if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)

    @staticmethod
    def backward(ctx, gradient):
        (x, weight), (of_x, of_weight, *of_bias) = ctx.saved_tensors, ctx.needs_input_grad
        return (
            gradient @ weight if of_x else None,
            gradient.mT @ x if of_weight else None,
            *(gradient.sum(1) if of_one else None for of_one in of_bias),
        )


_KERNELS: dict[Any, tuple[Callable[..., Tensor], int]] = {
    F.conv2d: (_conv2d, 4),
    F.max_pool2d: (_by_channel(F.max_pool2d), 4),
    F.avg_pool2d: (_by_channel(F.avg_pool2d), 4),
    F.adaptive_avg_pool2d: (_by_channel(F.adaptive_avg_pool2d), 4),
    F.group_norm: (_group_norm, 4),
}  #: For a function of torch: what takes its place, and the axes that its first argument must have.
if PRIVATE_NAMES:  # a call of `_Operation` takes longer than a small dense layer
    _KERNELS[F.linear] = _Linear.apply, 2


# ==== To be deleted, with all that follows: layers of the library's own. ====

import functools  # noqa: E402
from collections.abc import Iterable  # noqa: E402


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
