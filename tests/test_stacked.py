"""Kernels for a stack of clients: equal to plain torch under every composition (float64, 1e-12)."""

import importlib
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, jacrev
from twins import normal

from fedlib import stacked

PRIVATE = "torch._C._functorch.maybe_get_bdim"


@pytest.fixture(params=["private names", "another torch"])
def names(request, monkeypatch):
    """fedlib.stacked as this torch gives it, and without kernels, as a torch gives it that lacks a private name."""
    if request.param == "another torch":
        with monkeypatch.context() as hidden:
            hidden.delattr(PRIVATE)
            importlib.reload(stacked)
    assert request.param == "another torch" or stacked.PRIVATE_NAMES
    assert (F.linear in stacked._KERNELS) == stacked.PRIVATE_NAMES == (request.param == "private names")
    yield
    importlib.reload(stacked)


def network(x, w, b, v, c, s, t):
    """Every function that has a kernel."""
    z = F.group_norm(F.conv2d(x, w, b, padding=1), 2, s, t)
    z = F.avg_pool2d(F.max_pool2d(torch.relu(z), 2), 2, stride=1)
    return F.linear((z + F.adaptive_avg_pool2d(z, 1)).flatten(1), v, c)


SHAPES = [(5, 3, 8, 6), (4, 3, 3, 3), (4,), (3, 24), (3,), (4,), (4,)]


def tensors(*lead, shapes=SHAPES):
    """Arguments with the same leading axes."""
    return [normal(*lead, *shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]


close = partial(torch.testing.assert_close, atol=1e-12, rtol=1e-10)


def same(run):
    """A run gives the same with fedlib's vmap as with torch's."""
    close(run(stacked.vmap), run(torch.vmap))


def scalar(f):
    return lambda *args: (f(*args) ** 2).sum()


def first(f, *args):
    return torch.autograd.grad(scalar(f)(*args), args)


def second(f, *args):
    gradients = torch.autograd.grad(scalar(f)(*args), args, create_graph=True)
    return torch.autograd.grad(sum((g**2).sum() for g in gradients), args)


@pytest.fixture
def kernels(monkeypatch):
    """Names of the kernels that run."""
    ran = []
    for func, (kernel, axes) in stacked._KERNELS.items():
        spy = lambda *a, kernel=kernel, name=func.__name__, **k: ran.append(name) or kernel(*a, **k)  # noqa: E731
        monkeypatch.setitem(stacked._KERNELS, func, (spy, axes))
    return ran


@pytest.mark.parametrize("clients", [1, 6])
@pytest.mark.parametrize("derivative", [lambda f, *args: f(*args), first, second], ids=["value", "first", "second"])
def test_autograd_outside(names, derivative, clients):
    args = tensors(clients)
    same(lambda vmap: derivative(vmap(network), *args))


def test_the_kernels_are_what_runs(names, kernels):
    every = ["conv2d", "group_norm", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "linear"]
    stacked.vmap(network)(*tensors(6))
    assert [name.replace("boolean_dispatch", "max_pool2d") for name in kernels] == every * stacked.PRIVATE_NAMES


def test_an_argument_without_client_axis_or_with_one_elsewhere(names):
    for shared in range(len(SHAPES)):
        args = tensors(6)
        args[shared] = args[shared][0].detach().requires_grad_()
        dims = tuple(None if i == shared else 0 for i in range(len(args)))
        same(lambda vmap: first(vmap(network, dims), *args))
    args = tensors(6)
    args[0], args[3] = args[0].movedim(0, 2), args[3].movedim(0, 1)
    same(lambda vmap: vmap(network, (2, 0, 0, 1, 0, 0, 0))(*args))


def test_functions_of_torch_func(names):
    args, one = tensors(4), tensors()
    inside = grad(scalar(network), argnums=(0, 1, 3, 5))
    same(lambda vmap: vmap(inside)(*args))
    same(lambda vmap: grad(scalar(vmap(network)), argnums=(1, 4))(*args))
    same(lambda vmap: jacrev(vmap(network), argnums=1)(*args))
    alone = torch.stack([network(x, *one[1:]) for x in args[0]])
    close(stacked.vmap(network, (0, *[None] * 6))(args[0], *one[1:]), alone)


@pytest.mark.parametrize("order", ["models outside", "clients outside", "both everywhere"])
def test_two_vmaps(names, order):
    """IFCA evaluates M models on C clients: x has the client axis, the parameters have the model axis."""
    x, *own = tensors(2, 3) if order == "both everywhere" else [tensors(6)[0], *tensors(2)[1:]]

    def both(outer, inner):
        if order == "models outside":
            out = outer(lambda *p: inner(lambda x: network(x, *p))(x))(*own)
        elif order == "clients outside":
            out = outer(lambda x: inner(lambda *p: network(x, *p))(*own))(x)
        else:
            out = outer(inner(network))(x, *own)
        return out, torch.autograd.grad((out**2).sum(), (x, *own))

    expected = both(torch.vmap, torch.vmap)
    for pair in ((stacked.vmap, torch.vmap), (torch.vmap, stacked.vmap), (stacked.vmap, stacked.vmap)):
        close(both(*pair), expected)


NO_KERNEL = {  # images without a batch, dense layers of sequences, other functions
    F.conv2d: [(3, 8, 6), (4, 3, 3, 3), (4,)],
    F.linear: [(2, 5, 3), (6, 3)],
    F.conv1d: [(2, 3, 9), (5, 3, 4)],
    partial(F.max_pool2d, kernel_size=2, return_indices=True): [(2, 3, 6, 6)],
}


def test_what_has_no_kernel_is_left_to_torch(names, kernels):
    for function, shapes in NO_KERNEL.items():
        same(lambda vmap: vmap(function)(*tensors(4, shapes=shapes)))
    assert set(kernels) <= {"boolean_dispatch"}  # max_pool2d, whose kernel looks for indices itself


@pytest.mark.parametrize("kind", [torch.int64, torch.bfloat16, torch.float32])
def test_other_types(names, kind):
    """Small whole numbers: no rounding in any type."""
    x, w, v, c = (t.detach().round().to(kind) for t in tensors(4, shapes=[(2, 3, 8, 6), (4, 3, 3, 3), (5, 8), (5,)]))
    pairs = [(F.linear, (v[:, :2], v, c)), (lambda x, w: F.max_pool2d(F.conv2d(x, w), 2), (x, w))]
    for f, args in pairs[: 1 + kind.is_floating_point]:
        assert torch.equal(stacked.vmap(f)(*args), torch.vmap(f)(*args))


def test_fedlib_runs_without_the_private_names(run_python):
    """As in the plain loops over clients of `differential`."""
    begin = f"import torch._functorch.vmap\ndel {PRIVATE}\nimport differential, fedlib\n"
    tries = "[differential.try_case(number) for number in range(40)]"
    run_python("-W", "ignore", "-c", f"{begin}assert not fedlib.stacked.PRIVATE_NAMES\n{tries}")
