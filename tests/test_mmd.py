"""MMD against its definition, pair by pair, and the samples that leave a kernel nothing to measure."""

import math
import statistics

import pytest
import torch
from twins import close, normal

from fedlib.client.mmd import mmd, mmd2

FLOOR = 1e-6
KERNELS = ["rbf", "linear"]


def number(value):
    return value.detach().item()


def padded(x, rows, seed=9):
    """A sample with further rows of weight 0, in its midst and at its end, and its weights."""
    fill = 5 * normal(rows, x.shape[1], seed=seed) + 7
    w = torch.ones(len(x), dtype=x.dtype)
    return torch.cat([x[:1], fill[:1], x[1:], fill[1:]]), torch.cat([w[:1], 0 * w[:1], w[1:], w.new_zeros(rows - 1)])


def slow_median(x, y):
    z = [*x, *y]
    return statistics.median_low(float((z[i] - z[j]).square().sum()) for i in range(len(z)) for j in range(i))


def slow_mmd2(x, y, kernel="rbf", bandwidth=None):
    """By the kernel of each pair of rows, which autograd differentiates, but not through the width of the Gaussians."""
    z = torch.cat([x, y])
    bandwidth = slow_median(x.detach(), y.detach()) if bandwidth is None else bandwidth
    d2 = (z[:, None] - z).square().sum(-1)
    gaussians = sum(torch.exp(-d2 / (f * bandwidth)) for f in (0.25, 0.5, 1, 2, 4)) / 5
    c = torch.cat([torch.ones(len(x)).to(x) / len(x), -torch.ones(len(y)).to(x) / len(y)])
    return c @ (gaussians if kernel == "rbf" else z @ z.T) @ c


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 2), (1, 4), (6, 1), (5, 8)])  # even and odd numbers of pairs
def test_equals_a_loop_over_pairs_of_rows_with_its_gradients(kernel, n, m):
    x, y = (3 + normal(n, 4)).requires_grad_(), (2.5 + 0.7 * normal(m, 4, seed=1)).requires_grad_()
    slow = slow_mmd2(x, y, kernel)
    for found, wanted in ((mmd2(x, y, kernel=kernel), slow), (mmd(x, y, kernel=kernel), (slow + 1e-12).sqrt())):
        assert number(found) == pytest.approx(number(wanted), abs=1e-12)
        close(*(torch.autograd.grad(value, (x, y), retain_graph=True) for value in (found, wanted)))


@pytest.mark.parametrize("kernel", KERNELS)
def test_padding_changes_nothing(kernel):
    x, y = normal(5, 4).requires_grad_(), normal(8, 4, seed=1)
    (x2, wx), (y2, wy) = padded(x, 3), padded(y, 2)
    plain, with_padding = mmd2(x, y, kernel=kernel), mmd2(x2, y2, wx, wy, kernel)
    assert number(with_padding) == pytest.approx(number(plain), abs=1e-14)
    a, b = (torch.autograd.grad(value, x)[0] for value in (plain, with_padding))
    close(a, b, 1e-14)
    leaf = x2.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(mmd2(leaf, y2, wx, wy, kernel), leaf)
    assert torch.equal(gradient[wx == 0], torch.zeros(3, 4, dtype=x.dtype))


def test_weights_count_rows():
    x, y, w = normal(3, 4), normal(4, 4, seed=1), torch.tensor([2.0, 1.0, 1.0])
    twice = torch.cat([x, x[:1]])
    expected = {"rbf": slow_mmd2(twice, y, "rbf", slow_median(x, y)), "linear": mmd2(twice, y, kernel="linear")}
    for kernel, value in expected.items():
        assert number(mmd2(x, y, w, kernel=kernel)) == pytest.approx(number(value), abs=1e-14)


KINDS = [("rbf", torch.float32), ("rbf", torch.float64), ("linear", torch.float32)]


@pytest.mark.parametrize(("kernel", "dtype"), KINDS)
def test_zero_for_equal_samples(kernel, dtype):
    x = normal(7, 4).to(dtype).requires_grad_()
    (x2, wx), eps = padded(x.detach(), 3), torch.finfo(dtype).eps
    assert 0 <= number(mmd2(x, x.detach(), kernel=kernel)) <= 4 * eps
    assert 0 <= number(mmd2(x2, x.detach(), wx, kernel=kernel)) <= 4 * eps
    norm = mmd(x, x.detach()[[3, 1, 6, 0, 2, 5, 4]], kernel=kernel)
    assert 0.999e-6 < number(norm) <= math.sqrt(1e-12 + 4 * eps) * (1 + eps)
    (gradient,) = torch.autograd.grad(norm, x)
    assert number(gradient.abs().max()) <= 1e7 * eps  # of zero, within rounding, over 2e-6


NOTHING = {"equal": (torch.full((6, 4), 1e3), torch.full((5, 4), 1e3)), "one row": (torch.ones(1, 4),) * 2}
NOTHING |= {"dead ReLUs": (torch.zeros(6, 4), torch.zeros(5, 4)), "one row each": (torch.zeros(1, 4), torch.ones(1, 4))}
NOTHING["nothing and axes"] = (torch.zeros(6, 4), torch.eye(4))


@pytest.mark.parametrize(("function", "kernel"), [(mmd2, "rbf"), (mmd, "rbf"), (mmd, "linear")])
@pytest.mark.parametrize("case", NOTHING)
def test_nothing_to_measure_gives_no_nan(function, kernel, case):
    x, y = NOTHING[case]
    x = x.clone().requires_grad_()
    value = function(x, y, kernel=kernel)
    (gradient,) = torch.autograd.grad(value, x)
    assert value.isfinite() and gradient.isfinite().all()
    # 1000 in float32 has seven digits
    assert number(value) == pytest.approx(0, abs=2e-3) if torch.equal(x[:1], y[:1]) else number(value) > 0.1


def test_rounding_in_float32():
    x, y = normal(300, 7, 4), normal(300, 9, 4, seed=1)
    far = torch.vmap(mmd2)((x + 1000).float(), (y + 1000).float())
    close(far.double(), torch.vmap(mmd2)(x, y), 1e-4)
    same = torch.vmap(mmd2)(x.float(), x.float().flip(1))
    assert (same >= 0).all() and torch.vmap(mmd)(x.float(), x.float().flip(1)).isfinite().all()
    outliers = torch.cat([torch.zeros(300, 30, 4), (1000 * x[:, :1]).float().expand(-1, 3, -1)], 1)  # of one value
    assert torch.vmap(mmd2)(outliers, outliers).isfinite().all()


def test_bandwidth_of_constant_embeddings_is_the_floor():
    x, y, none = torch.ones(6, 4).double(), torch.ones(5, 4).double(), torch.zeros(6)
    y[0, 0] += 1e-3  # so most pairs are of equal rows
    assert number(mmd2(x, y)) == pytest.approx(number(slow_mmd2(x, y, "rbf", FLOOR)), abs=1e-12) != 0
    assert mmd2(x, y, none) == mmd2(x, y, none, none[:5], kernel="linear") == 0  # no real row gives no NaN
