"""The convolution with its own kernel for stacks: equal to plain torch under every composition (float64, 1e-12)."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, jacrev, vmap

import fedlib
from fedlib.stacked import conv_relu_pool, dense, mlp

PADDING, POOL = 1, 2


def plain(x, w, b):
    return F.max_pool2d(F.relu(F.conv2d(x, w, b, padding=PADDING)), POOL)


def ours(x, w, b):
    return conv_relu_pool(x, w, b, PADDING, POOL)


def draw(*shape, seed=0):
    flat = fedlib.Key(seed).normal(torch.arange(1), "test", torch.Size(shape).numel())
    return flat.reshape(shape).requires_grad_()


def tensors(*lead):
    """x, weight and bias with the same leading axes."""
    return [draw(*lead, *shape, seed=i) for i, shape in enumerate([(4, 3, 7, 6), (5, 3, 3, 3), (5,)])]


def close(a, b):
    return torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)


def scalar(f):
    return lambda *args: (f(*args) ** 2).sum()


def test_without_vmap():
    x, w, b = tensors()
    close(ours(x, w, b), plain(x, w, b))
    close(torch.autograd.grad(scalar(ours)(x, w, b), (x, w, b)), torch.autograd.grad(scalar(plain)(x, w, b), (x, w, b)))


def test_autograd_outside_vmap():
    args = tensors(6)
    close(vmap(ours)(*args), vmap(plain)(*args))
    close(
        torch.autograd.grad(scalar(vmap(ours))(*args), args),
        torch.autograd.grad(scalar(vmap(plain))(*args), args),
    )


def test_the_stack_kernel_is_what_runs(monkeypatch):
    """Under one vmap a single grouped convolution does the work, for any number of clients."""
    groups = []
    convolve = F.conv2d
    monkeypatch.setattr(F, "conv2d", lambda *a, **k: groups.append(k.get("groups")) or convolve(*a, **k))
    vmap(ours)(*tensors(6))
    assert groups == [6]


def test_grad_inside_vmap():
    args = tensors(6)
    close(vmap(grad(scalar(ours), argnums=(0, 1, 2)))(*args), vmap(grad(scalar(plain), argnums=(0, 1, 2)))(*args))


def test_grad_without_vmap():
    args = tensors()
    close(grad(scalar(ours), argnums=(0, 1, 2))(*args), grad(scalar(plain), argnums=(0, 1, 2))(*args))
    close(jacrev(ours, argnums=1)(*args), jacrev(plain, argnums=1)(*args))


@pytest.mark.parametrize("order", ["models outside", "clients outside"])
def test_two_vmaps(order):
    """IFCA evaluates M models on C clients: x has the client axis, the parameters have the model axis."""
    x = tensors(6)[0]
    w, b = tensors(2)[1:]
    if order == "models outside":
        both = [vmap(lambda w, b, f=f: vmap(lambda x: f(x, w, b))(x))(w, b) for f in (ours, plain)]
    else:
        both = [vmap(lambda x, f=f: vmap(lambda w, b: f(x, w, b))(w, b))(x) for f in (ours, plain)]
    close(*both)
    close(*(torch.autograd.grad((r**2).sum(), (x, w, b)) for r in both))


def test_two_axes_on_all_arguments():
    args = tensors(2, 3)
    both = [vmap(vmap(f))(*args) for f in (ours, plain)]
    close(*both)
    close(*(torch.autograd.grad((r**2).sum(), args) for r in both))


def test_chunk_remainder():
    args = tensors(7)
    close(vmap(ours, chunk_size=3)(*args), vmap(plain)(*args))


@pytest.mark.parametrize("shared", [0, 1, 2], ids=["x", "weight", "bias"])
def test_an_argument_without_client_axis(shared):
    args = tensors(6)
    args[shared] = args[shared][0]
    dims = tuple(None if i == shared else 0 for i in range(3))
    both = [vmap(f, in_dims=dims)(*args) for f in (ours, plain)]
    close(*both)
    close(*(torch.autograd.grad((r**2).sum(), args, allow_unused=True) for r in both))


def test_client_axis_elsewhere():
    x, w, b = tensors(6)
    x = x.movedim(0, 2)
    close(vmap(ours, in_dims=(2, 0, 0))(x, w, b), vmap(plain, in_dims=(2, 0, 0))(x, w, b))


@pytest.mark.parametrize("stacked", [False, True])
def test_second_derivative(stacked):
    args = tensors(3) if stacked else tensors()

    def second(f):
        f = vmap(f) if stacked else f
        first = torch.autograd.grad(scalar(f)(*args), args, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), args)

    close(second(ours), second(plain))


@pytest.mark.parametrize(("padding", "pool"), [(0, 1), (0, 2), (2, 1), (2, 3)])
def test_padding_and_pooling(padding, pool):
    args = tensors(4)
    expected = vmap(lambda x, w, b: F.max_pool2d(F.relu(F.conv2d(x, w, b, padding=padding)), pool))(*args)
    close(vmap(lambda *a: conv_relu_pool(*a, padding=padding, pool=pool))(*args), expected)


def plain_mlp(x, *layers):
    for i in range(0, len(layers), 2):
        x = F.linear(x.relu() if i else x, layers[i], layers[i + 1])
    return x


@pytest.mark.parametrize("widths", [(3, 6), (3, 5, 1), (3, 6, 4, 2)], ids=str)
def test_mlp(widths):
    args = [draw(5, 4, widths[0])]
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:], strict=False)):
        args += draw(5, outputs, inputs, seed=2 * i + 1), draw(5, outputs, seed=2 * i + 2)
    single, n = [a[0] for a in args], len(args)
    ours = dense if n == 3 else mlp
    expected = vmap(plain_mlp)
    close(ours(*single), plain_mlp(*single))
    close(ours(single[0][0], *single[1:]), plain_mlp(single[0][0], *single[1:]))  # a row alone
    close(vmap(ours)(*args), expected(*args))
    close(vmap(ours, chunk_size=2)(*args), expected(*args))
    for i in range(n):  # one argument shared by all clients
        dims = [None if j == i else 0 for j in range(n)]
        some = [a[0] if j == i else a for j, a in enumerate(args)]
        close(vmap(ours, tuple(dims))(*some), vmap(plain_mlp, tuple(dims))(*some))

    def gradients(f, *args):
        return torch.autograd.grad(scalar(f)(*args), args)

    def second(f, *args):
        first = torch.autograd.grad(scalar(f)(*args), args, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), args)

    for derivative in (gradients, second):
        close(derivative(ours, *single), derivative(plain_mlp, *single))
        close(derivative(vmap(ours), *args), derivative(expected, *args))
    inner = [vmap(grad(scalar(f), argnums=tuple(range(n)))) for f in (ours, plain_mlp)]
    close(inner[0](*args), inner[1](*args))
    twice = [vmap(lambda x, f=f: vmap(lambda *own: f(x, *own))(*args[1:])) for f in (ours, plain_mlp)]
    close(twice[0](args[0]), twice[1](args[0]))
    outside = [grad(scalar(vmap(f)))(*args) for f in (ours, plain_mlp)]
    close(*outside)


@pytest.mark.parametrize("channels", [1, 3, 6])
def test_large_images(channels):
    """On a CPU, two to five channels are convolved one client after another."""
    args = [draw(*shape, seed=i) for i, shape in enumerate([(3, 2, channels, 16, 16), (3, 4, channels, 3, 3), (3, 4)])]
    close(vmap(ours)(*args), vmap(plain)(*args))
    close(*(torch.autograd.grad(scalar(vmap(f))(*args), args) for f in (ours, plain)))
