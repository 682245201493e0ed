"""FedCG's graph: Eq. 4, Eq. 5, Eq. 6 and the adjacency matrix against explicit loops, and their limits."""

import itertools
import math
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedlib.losses import cross_entropy
from fedlib.params import row, to_matrix
from fedlib.server.domain_graph import (
    DomainGCN,
    adjacency,
    domain_adjacency,
    domain_conv_relu_pool,
    domain_dense,
    hamming,
    route,
)
from fedlib.stacked import conv_relu_pool, dense

float64 = torch.float64


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(shape))


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


def loop_adjacency(V, beta):
    """Eq. 6 and the definition of A, one entry after another; a distance counts as 1/1000 of the mean at least."""
    D = len(V)
    if D == 1:
        return torch.ones(1, 1, dtype=float64)
    d = {(i, j): math.dist(V[i].tolist(), V[j].tolist()) for i in range(D) for j in range(D) if i != j}
    mean = sum(d.values()) / len(d)
    h = {pair: 1 / max(x, 1e-3 * mean) if mean else 1.0 for pair, x in d.items()}
    A = torch.zeros(D, D, dtype=float64)
    for i, j in itertools.product(range(D), repeat=2):
        A[i, j] = beta if i == j else (1 - beta) * h[i, j] / sum(h[i, k] for k in range(D) if k != i)
    return A


# Adjacency (Eq. 6)

domains = array_shapes(min_dims=2, max_dims=2, max_side=7)
modules = arrays(np.float64, domains, elements=st.floats(-1e3, 1e3).map(lambda x: round(x, 4)))


@settings(deadline=None)
@given(modules, st.floats(0, 1))
def test_adjacency_equals_a_loop(V, beta):
    V = torch.from_numpy(V)
    A = domain_adjacency(V, beta)
    close(A, loop_adjacency(V, beta))
    close(A.sum(1), torch.ones(len(V), dtype=float64))
    assert (A >= 0).all() and (len(V) == 1 or (A.diagonal() == beta).all())


def test_adjacency_by_hand():
    """Domains at 0, 1 and 3: distances 1, 3 and 2, so row 0 shares .5 as 1 : 1/3, row 1 as 1 : 1/2, row 2 as 2 : 3."""
    expected = torch.tensor([[1 / 2, 3 / 8, 1 / 8], [1 / 3, 1 / 2, 1 / 6], [1 / 5, 3 / 10, 1 / 2]], dtype=float64)
    close(domain_adjacency(torch.tensor([[0.0], [1], [3]])), expected)


def test_a_stack_is_the_matrix_of_all_its_names():
    V = {"weight": normal(4, 3, 2).float(), "bias": normal(4, 3, seed=1).float(), "scale": normal(4, seed=2).float()}
    V["weight"].requires_grad_()
    A = domain_adjacency(V)
    close(A, loop_adjacency(to_matrix(V).detach().double(), 0.5))
    assert A.dtype == float64 and not A.requires_grad


@settings(deadline=None)
@given(arrays(np.float64, domains, elements=st.integers(-50, 50)), st.randoms(), st.integers(-900, 900))
def test_order_scale_and_place_of_the_domains(V, random, exponent):
    V = torch.from_numpy(V)
    A = domain_adjacency(V)
    order = list(range(len(V)))
    random.shuffle(order)
    close(domain_adjacency(V[order]), A[order][:, order])
    close(domain_adjacency(V + torch.arange(V.shape[1]) * 1e6), A)
    close(domain_adjacency(V * 2.0**exponent), A)


@pytest.mark.parametrize("scale", [5e-324, 1e-320, 1e-310, 1e-200, 1e200, 1.7e307, 1.7e308 / 7])
def test_neither_huge_nor_tiny_distances_overflow_or_vanish(scale):
    V = torch.tensor([[-7, 0], [7, 0], [0, 7.0], [0, 0]], dtype=float64)
    close(domain_adjacency(V * scale), loop_adjacency(V, 0.5))


def test_a_far_domain_beside_close_ones():
    V = torch.tensor([[0.0], [1e-300], [1e300], [-1e300]], dtype=float64)
    A = domain_adjacency(V, 0.2)
    close(A, loop_adjacency(V, 0.2))
    assert A[0, 1] > 0.79  # the floor, which two equal domains have too


@pytest.mark.parametrize("D", [2, 3, 7])
@pytest.mark.parametrize("value", [0.0, 3.0, -1.7e308])
def test_equal_domains_are_uniform(D, value):
    expected = torch.full((D, D), 0.5 / (D - 1), dtype=float64).fill_diagonal_(0.5)
    close(domain_adjacency(torch.full((D, 3), value, dtype=float64)), expected)
    close(adjacency("uniform", D), expected)


def test_two_equal_domains_among_others():
    V = normal(4, 9)
    V[2] = V[0]
    A = domain_adjacency(V, 0.3)
    close(A, loop_adjacency(V, 0.3))
    assert 0.69 < A[0, 2] < 0.7 and A[0, 1] > 0
    V[2] += 1e-9  # below the floor, nothing changes
    assert (domain_adjacency(V, 0.3) - A)[:, 2].abs().max() < 1e-8


def test_the_floor_is_a_thousandth_of_the_mean_distance():
    """Two domains at distance d and a third at 1: the pair counts with max(d, (d + 2) / 3000), about 1/1500."""
    at = [domain_adjacency(torch.tensor([[0.0], [d], [1]], dtype=float64), 0)[0, 1] for d in (0, 6e-4, 7e-4)]
    close(at[0], torch.tensor(1500 / 1501, dtype=float64))
    close(at[1], at[0], atol=1e-6)
    close(at[2], torch.tensor(1 / (1 + 7e-4), dtype=float64))


def test_one_domain_and_the_ends_of_beta():
    assert domain_adjacency(normal(1, 5)).tolist() == [[1]] == hamming([[0, 1]]).tolist()
    assert torch.equal(domain_adjacency(normal(3, 5), 1), torch.eye(3, dtype=float64))
    A = domain_adjacency(normal(3, 5), 0)
    assert (A.diagonal() == 0).all()
    close(A.sum(1), torch.ones(3, dtype=float64))


@pytest.mark.parametrize(
    ("V", "beta", "message"),
    [
        (torch.tensor([[1.0], [math.nan], [math.inf]]), 0.5, r"domains \[1, 2\] hold NaN or infinite"),
        (torch.zeros(0, 3), 0.5, "at least one domain"),
        (torch.zeros(3, 0), 0.5, "at least one parameter"),
        ({"a": torch.zeros(2, 3), "b": torch.zeros(3, 3)}, 0.5, r"same number of domains; got \[2, 3\]"),
        (torch.zeros(2, 3), -0.1, "beta must be from 0 to 1; got -0.1"),
        (torch.zeros(1, 3), 1.1, "beta must be from 0 to 1; got 1.1"),
        (torch.zeros(2, 3), math.nan, "beta must be from 0 to 1; got nan"),
    ],
)
def test_adjacency_refuses(V, beta, message):
    with pytest.raises(ValueError, match=message):
        domain_adjacency(V, beta)


def test_hamming_counts_differing_attributes():
    """Distances 1, 3 and 2: the matrix worked out by hand above, in any coding of the attributes."""
    by_hand = domain_adjacency(torch.tensor([[0.0], [1], [3]]))
    bits = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 1]])
    for metadata in (bits, bits.astype(bool), torch.tensor(bits), 7.0 - 5 * bits):
        close(hamming(metadata), by_hand)
    close(hamming([[0, 1], [0, 1], [0, 1]], 0.4), adjacency("uniform", 3, 0.4))
    A = hamming([[0, 0], [0, 0], [1, 0]], 0.5)  # equal domains: floor of 1/1000 of the mean 2/3
    close(A[0], torch.tensor([0.5, 0.5 * 1500 / 1501, 0.5 / 1501], dtype=float64))
    for wrong, message in (
        ([1, 2], r"one row .* got shape \(2,\)"),
        (np.zeros((0, 3)), "one row"),
        ([[math.nan]], "NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            hamming(wrong)
    with pytest.raises(ValueError, match="beta"):
        hamming(bits, 2)


def test_adjacency_without_knowledge():
    assert torch.equal(adjacency("eye", 3), torch.eye(3, dtype=float64))
    close(adjacency("uniform", 4, 0.25), torch.full((4, 4), 0.25, dtype=float64))
    A = adjacency("random", 5, seed=3)
    assert torch.equal(A, adjacency("random", 5, seed=3)) and not torch.equal(A, adjacency("random", 5, seed=4))
    assert (A > 0).all() and A.std() > 0.05 and not torch.allclose(A, A.T)
    close(A.sum(1), torch.ones(5, dtype=float64))
    assert all(adjacency(kind, 1).tolist() == [[1]] for kind in ("eye", "uniform", "random"))
    for wrong in (("eyes", 3), ("eye", 0), ("uniform", 3, 1.5)):
        with pytest.raises(ValueError, match="must be"):
            adjacency(*wrong)


# Graph convolution (Eq. 5)

GCNS = {
    "none": DomainGCN("none"),
    "none, no ReLU": DomainGCN("none", relu=False),
    "full": DomainGCN(),
    "full, no ReLU": DomainGCN("full", relu=False),
    "bottleneck": DomainGCN("bottleneck", factor=4),
    "bottleneck, no ReLU": DomainGCN("bottleneck", relu=False, factor=4),
    "bottleneck, one layer": DomainGCN("bottleneck", factor=4, single_propagation=True),
    "bottleneck, one layer, no ReLU": DomainGCN("bottleneck", relu=False, factor=4, single_propagation=True),
    "low rank": DomainGCN("low rank", rank=3),
    "low rank, no ReLU": DomainGCN("low rank", relu=False, rank=3),
}


def product(*matrices):
    """A product of matrices, entry by entry."""
    out = matrices[0]
    for m in matrices[1:]:
        out = torch.stack(
            [
                torch.stack([sum(out[i, k] * m[k, j] for k in range(len(m))) for j in range(m.shape[1])])
                for i in range(len(out))
            ]
        )
    return out


def loop_mix(gcn, p, V, A):
    relu = partial(torch.clamp, min=0)
    if gcn.weights == "none":
        out = product(A, V)
    elif gcn.weights == "full":
        out = product(A, V, p["W"])
    elif gcn.weights == "low rank":
        out = product(A, V, torch.eye(V.shape[1], dtype=V.dtype) + product(p["P"], p["R"].T))
    elif gcn.single_propagation:
        out = product(A, V, p["W1"], p["W2"])
    else:
        out = product(A, relu(product(A, V, p["W1"])), p["W2"])
    return relu(out) if gcn.relu else out


def mixing(gcn, clients, D=3, q=9):
    """Stacks for each client: W moved away from its start, V, and an A whose columns do not sum to 1."""
    p = {name: w.double() + 0.3 * normal(clients, *w.shape, seed=5) for name, w in gcn.init(q, seed=1).items()}
    V = normal(clients, D, q, seed=2)
    A = torch.stack([domain_adjacency(v, 0.3) for v in V])
    return {name: w.requires_grad_() for name, w in p.items()}, V.requires_grad_(), A


@pytest.mark.parametrize("name", GCNS)
def test_mixing_equals_a_loop_with_its_gradients(name):
    gcn = GCNS[name]
    p, V, A = mixing(gcn, 4)
    assert (A.sum(1) - 1).abs().max() > 0.05
    leaves = [V, *p.values()]
    pull = normal(*V.shape, seed=8)

    def gradients(out):
        return torch.autograd.grad((out * pull).sum(), leaves)

    expected = torch.stack([loop_mix(gcn, row(p, k), V[k], A[k]) for k in range(4)])
    alone = torch.stack([gcn(row(p, k), V[k], A[k]) for k in range(4)])
    stacked = torch.vmap(gcn)(p, V, A)
    close(alone, expected)
    close(stacked, expected)
    slow = gradients(expected)
    close(gradients(stacked), slow)
    close(gradients(alone), slow)
    inside = torch.vmap(torch.func.grad(lambda p, V, A, pull: (gcn(p, V, A) * pull).sum(), argnums=1))(p, V, A, pull)
    close(inside, slow[0])


def test_a_stack_of_modules_keeps_its_form():
    gcn = DomainGCN()
    V = {"weight": normal(3, 4, 2), "bias": normal(3, 4, seed=1), "scale": normal(3, seed=2)}
    A, p = adjacency("random", 3), {"W": normal(13, 13, seed=3)}
    found = gcn(p, V, A)
    assert {name: v.shape for name, v in found.items()} == {name: v.shape for name, v in V.items()}
    assert torch.equal(to_matrix(found), gcn(p, to_matrix(V), A))
    stacked = torch.vmap(gcn, in_dims=(None, 0, None))(p, {name: torch.stack([v, 2 * v]) for name, v in V.items()}, A)
    close(row(stacked, 0), found)


def test_the_adjacency_takes_the_type_of_the_modules():
    gcn, V = DomainGCN(), normal(3, 5).float()
    assert gcn(gcn.init(5, 0), V, adjacency("random", 3)).dtype == torch.float32


@pytest.mark.parametrize("weights", ["none", "full", "low rank"])
def test_what_changes_nothing(weights):
    gcn, V = DomainGCN(weights, relu=False), normal(4, 20).float()
    p, A = gcn.init(20, seed=0), adjacency("random", 4)
    assert torch.equal(gcn(p, V, adjacency("eye", 4)), V)
    assert torch.equal(gcn(p, V[:1], adjacency("eye", 1)), V[:1])
    close(gcn(p, V, A), A.float() @ V, atol=1e-6)  # W starts at the identity
    with_relu = DomainGCN(weights)
    assert torch.equal(with_relu(p, V, adjacency("eye", 4)), V.relu())


def test_the_start_of_w():
    def shapes(gcn, q):
        return {name: tuple(w.shape) for name, w in gcn.init(q, 0).items()}

    assert torch.equal(DomainGCN().init(7, 0)["W"], torch.eye(7)) and DomainGCN("none").init(7, 0) == {}
    assert shapes(DomainGCN("bottleneck"), 50) == {"W1": (50, 3), "W2": (3, 50)}
    assert shapes(DomainGCN("bottleneck"), 5) == {"W1": (5, 1), "W2": (1, 5)}
    assert shapes(DomainGCN("low rank"), 50) == {"P": (50, 16), "R": (50, 16)}
    low = DomainGCN("low rank").init(50, 0)
    assert not low["R"].any() and low["P"].std() > 0.1

    gcn = DomainGCN("bottleneck")
    w = gcn.init(320, seed=1, layer="conv2")
    bound = math.sqrt(6 / 340)  # Glorot and Bengio's
    for value in w.values():
        assert value.dtype == torch.float32 and 0.99 * bound < value.abs().max() <= bound
        assert abs(value.mean()) < 0.05 * bound and value.std() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    others = [gcn.init(320, 2, "conv2"), gcn.init(320, 1, "conv1"), gcn.init(320, 1)]
    assert torch.equal(w["W1"], gcn.init(320, 1, "conv2")["W1"])
    assert not any(torch.equal(w["W1"], other["W1"]) for other in others)
    assert not torch.equal(w["W1"][:20, :20], w["W2"][:20, :20])


def test_low_rank_learns_from_its_start():
    gcn = DomainGCN("low rank", relu=False)
    p = {name: w.requires_grad_() for name, w in gcn.init(20, 0).items()}
    gcn(p, normal(3, 20).float(), adjacency("uniform", 3)).square().sum().backward()
    assert p["R"].grad.abs().max() > 0  # with P = R = 0 neither would ever move


def test_relu_holds_zero_modules_fast():
    gcn, V = DomainGCN(), torch.zeros(3, 6, requires_grad=True)
    gcn(gcn.init(6, 0), V, adjacency("uniform", 3)).sum().backward()
    assert not V.grad.any()


def test_the_layer_is_that_of_torch_geometric():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        from torch_geometric.nn import DenseGCNConv
    V, A = normal(4, 12), domain_adjacency(normal(4, 12, seed=1))
    one, two = (DenseGCNConv(*sizes, bias=False).double() for sizes in ((12, 3), (3, 12)))
    p = {"W1": one.lin.weight.T, "W2": two.lin.weight.T}
    expected = two(one(V, A, add_loop=False).relu(), A, add_loop=False)[0].relu()
    close(DomainGCN("bottleneck", factor=4)(p, V, A), expected)


def test_gcn_refuses():
    for wrong, message in (({"weights": "W"}, "weights must be"), ({"rank": 0}, "rank"), ({"factor": 0}, "factor")):
        with pytest.raises(ValueError, match=message):
            DomainGCN(**wrong)


def test_torch_geometric_is_imported_when_used():
    """And its import warns of nothing, though warnings are errors."""
    code = (
        "import sys, torch, fedlib.server.domain_graph as g\n"
        "g.domain_adjacency(torch.eye(3)); assert 'torch_geometric' not in sys.modules\n"
        "g.DomainGCN('none')({}, torch.eye(3), torch.eye(3)); assert 'torch_geometric' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error::FutureWarning", "-c", code], check=True)


# Residual branches (Eq. 4)

B, D = 6, 3


def weights(kind, *lead, seed=9):
    scores = normal(*lead, B, D, seed=seed)
    return F.one_hot(scores.argmax(-1), D).double() if kind == "hard" else scores.softmax(-1)


def tensors(layer, *lead):
    """x, weight and bias, those of the domains, and lambda, each with the same leading axes."""
    shapes = {
        "dense": [(B, 5), (4, 5), (4,), (D, 4, 5), (D, 4)],
        "conv": [(B, 2, 6, 7), (4, 2, 3, 3), (4,), (D, 4, 2, 3, 3), (D, 4)],
    }[layer]
    return [normal(*lead, *s, seed=i).requires_grad_() for i, s in enumerate([*shapes, ()])]


def loop_dense(x, weight, bias, vw, vb, lam, w):
    """Eq. 4 for one sample after another."""
    rows = []
    for b in range(len(x)):
        y = weight @ x[b] + bias
        for d in range(len(vw)):
            y = y + lam * w[b, d] * (vw[d] @ x[b] + vb[d])
        rows.append(y)
    return torch.stack(rows)


def loop_conv(x, weight, bias, vw, vb, lam, w):
    rows = []
    for b in range(len(x)):
        y = F.conv2d(x[b : b + 1], weight, bias, padding=1)
        for d in range(len(vw)):
            y = y + lam * w[b, d] * F.conv2d(x[b : b + 1], vw[d], vb[d], padding=1)
        rows.append(F.max_pool2d(y.relu(), 2)[0])
    return torch.stack(rows)


LAYERS = {"dense": (domain_dense, loop_dense), "conv": (partial(domain_conv_relu_pool, padding=1, pool=2), loop_conv)}


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("layer", LAYERS)
def test_routing_equals_a_loop_over_samples_with_its_gradients(layer, kind):
    ours, loop = LAYERS[layer]
    args, w = tensors(layer, 5), weights(kind, 5)
    expected = torch.stack([loop(*(a[k] for a in args), w[k]) for k in range(5)])
    alone = torch.stack([ours(*(a[k] for a in args), w[k]) for k in range(5)])
    stacked = torch.vmap(ours)(*args, w)
    pull = normal(*expected.shape, seed=11)
    gradients = [torch.autograd.grad((out * pull).sum(), args) for out in (expected, alone, stacked)]
    close(alone, expected, atol=1e-10)
    close(stacked, expected, atol=1e-10)
    close(gradients[1], gradients[0], atol=1e-10)
    close(gradients[2], gradients[0], atol=1e-10)

    def scalar(*args):
        return (ours(*args[:-1]) * args[-1]).sum()

    inside = torch.vmap(torch.func.grad(scalar, argnums=tuple(range(6))))(*args, w, pull)
    close(inside, gradients[0], atol=1e-10)


@pytest.mark.parametrize("layer", LAYERS)
def test_modules_shared_by_all_clients(layer):
    """At inference V-hat, lambda and the shared layer have no client axis; only x and w have one."""
    ours, loop = LAYERS[layer]
    x, *shared = tensors(layer)
    xs, w = torch.stack([x, x.flip(0)]), weights("soft", 2)
    found = torch.vmap(ours, in_dims=(0, *[None] * 5, 0))(xs, *shared, w)
    close(found, torch.stack([loop(xs[k], *shared, w[k]) for k in range(2)]), atol=1e-10)


@pytest.mark.parametrize("layer", LAYERS)
def test_no_domain_one_domain_and_whole_numbers_as_weights(layer):
    ours, _ = LAYERS[layer]
    x, weight, bias, vw, vb, lam = tensors(layer)
    shared = {"dense": dense, "conv": partial(conv_relu_pool, padding=1, pool=2)}[layer]
    close(ours(x, weight, bias, vw, vb, lam, torch.zeros(B, D)), shared(x, weight, bias))
    one = ours(x, weight, bias, vw[:1], vb[:1], lam, torch.ones(B, 1, dtype=torch.int64))
    close(one, shared(x, weight + lam * vw[0], bias + lam * vb[0]))


def test_route():
    branches, w = normal(B, D, 2, 3), weights("hard")
    assert torch.equal(route(branches, w), branches[torch.arange(B), w.argmax(1)])
    assert torch.equal(route(branches, w.int()), route(branches, w))
    assert route(branches.float(), w).dtype == torch.float32


def network(p, x, extra=None):
    """Two convolutions and two dense layers; `extra` puts domain branches into all of them."""

    def layer(name, x, *settings):
        shared, ours = (conv_relu_pool, domain_conv_relu_pool) if name[0] == "c" else (dense, domain_dense)
        if extra is None:
            return shared(x, p[name], p[name + "b"], *settings)
        V, lam, w = extra
        return ours(x, p[name], p[name + "b"], V[name], V[name + "b"], lam, w, *settings)

    h = layer("c2", layer("c1", x, 2, 2), 1, 2).flatten(1)
    return layer("d2", layer("d1", h).relu())


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("sizes", [(5, 4, 6, 7, 9, 3), (10, 20, 8, 16, 300, 4), (3, 1, 6, 7, 9, 1)])
def test_lambda_zero_is_the_shared_network_bit_for_bit(sizes, stacked):
    """Values and gradients in float32, with branches in every layer; dense layers on both sides of the large ones."""
    clients, batch, c1, c2, hidden, D = sizes
    shapes = {"c1": (c1, 3, 5, 5), "c1b": (c1,), "c2": (c2, c1, 3, 3), "c2b": (c2,)}
    shapes |= {"d1": (hidden, 9 * c2), "d1b": (hidden,), "d2": (5, hidden), "d2b": (5,)}
    p = {name: 0.3 * normal(clients, *s, seed=n).float() for n, (name, s) in enumerate(shapes.items())}
    V = {name: normal(clients, D, *s, seed=50 + n).float() for n, (name, s) in enumerate(shapes.items())}
    x, w = normal(clients, batch, 3, 12, 12).float(), normal(clients, batch, D, seed=1).softmax(2).float()
    y = torch.arange(clients * batch).view(clients, batch) % 5

    def run(lam):
        leaves = {name: value.clone().requires_grad_() for name, value in p.items()}
        image = x.clone().requires_grad_()

        def loss(p, x, y, V, lam, w):
            return cross_entropy(network(p, x, None if lam is None else (V, lam, w)), y, torch.ones_like(y) * 1.0)

        args = (leaves, image, y, V, None if lam is None else torch.full((clients,), lam), w)
        if stacked:
            value = torch.vmap(loss, in_dims=(0, 0, 0, 0, None if lam is None else 0, 0))(*args)
        else:
            value = loss(*(row(a, 0) if isinstance(a, dict) else a if a is None else a[0] for a in args))
        return [value, *torch.autograd.grad(value.sum(), [image, *leaves.values()])]

    without, zero, one = run(None), run(0.0), run(1.0)
    assert all(torch.equal(a, b) for a, b in zip(without, zero, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(without, one, strict=True))


def test_the_stack_kernel_is_what_runs(monkeypatch):
    """Under one vmap two grouped convolutions do the work, for any number of clients and domains."""
    groups = []
    convolve = F.conv2d
    monkeypatch.setattr(F, "conv2d", lambda *a, **k: groups.append(k.get("groups")) or convolve(*a, **k))
    torch.vmap(domain_conv_relu_pool)(*tensors("conv", 7), weights("soft", 7))
    assert groups == [7, 7]


def test_precomputed_modules_equal_the_graph():
    """At inference V-hat is computed once and stands in for V."""
    gcn = DomainGCN()
    x, weight, bias, vw, vb, lam = tensors("dense", 2)
    V, w = {"weight": vw, "bias": vb}, weights("soft", 2)
    p, A = {"W": normal(2, 24, 24, seed=20)}, adjacency("random", D)

    def with_graph(x, weight, bias, V, lam, w, p):
        mixed = gcn(p, V, A)
        return domain_dense(x, weight, bias, mixed["weight"], mixed["bias"], lam, w)

    ready = torch.vmap(gcn, in_dims=(0, 0, None))(p, V, A)
    found = torch.vmap(domain_dense)(x, weight, bias, ready["weight"], ready["bias"], lam, w)
    close(found, torch.vmap(with_graph)(x, weight, bias, V, lam, w, p))
