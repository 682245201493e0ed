"""FedCG's graph: Eq. 5, Eq. 6 and the adjacency matrix against explicit loops, and their limits."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
import twins
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from twins import normal

from fedlib.params import row, to_matrix
from fedlib.server.domain_graph import DomainGCN, domain_adjacency

float64 = torch.float64
close = partial(twins.close, atol=1e-12)


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
@example(np.zeros((4, 3)), 0.5)  # equal domains are uniform
@example(np.full((4, 3), 3.0), 0.5)
@example(normal(4, 9)[[0, 1, 0, 3]].numpy(), 0.3)  # two of them among others
@example(normal(1, 5).numpy(), 0.5)  # one domain
@example(normal(3, 5).numpy(), 0.0)  # the ends of beta
@example(normal(3, 5).numpy(), 1.0)
def test_adjacency_equals_a_loop(V, beta):
    V = torch.from_numpy(V)
    A = domain_adjacency(V, beta)
    close(A, loop_adjacency(V, beta))
    close(A.sum(1), torch.ones(len(V), dtype=float64))
    assert (A >= 0).all() and (len(V) == 1 or (A.diagonal() == beta).all())


@settings(deadline=None)
@given(arrays(np.float64, domains, elements=st.integers(-50, 50)), st.randoms(), st.integers(-300, 300))
def test_order_scale_and_place_of_the_domains(V, random, exponent):
    V = torch.from_numpy(V)
    A = domain_adjacency(V)
    order = list(range(len(V)))
    random.shuffle(order)
    close(domain_adjacency(V[order]), A[order][:, order])
    close(domain_adjacency(V + torch.arange(V.shape[1]) * 1e6), A)
    close(domain_adjacency(V * 2.0**exponent), A)


# Graph convolution (Eq. 5)

GCNS = {
    "full": DomainGCN(),
    "full, no ReLU": DomainGCN(relu=False),
    "bottleneck": DomainGCN("bottleneck", factor=4),
    "bottleneck, no ReLU": DomainGCN("bottleneck", relu=False, factor=4),
}


def product(*matrices):
    """A product of matrices, entry by entry."""
    out = matrices[0]
    for m in matrices[1:]:
        rows = [[sum(out[i, k] * m[k, j] for k in range(len(m))) for j in range(m.shape[1])] for i in range(len(out))]
        out = torch.stack([torch.stack(r) for r in rows])
    return out


def loop_mix(gcn, p, V, A):
    if gcn.weights == "full":
        out = product(A, V, p["W"])
    else:
        out = product(A, product(A, V, p["W1"]).clamp(min=0), p["W2"])
    return out.clamp(min=0) if gcn.relu else out


@pytest.mark.parametrize("name", GCNS)
def test_mixing_equals_a_loop_with_its_gradients(name):
    """W moved away from its start; columns of A that do not sum to 1, and rows that sum to more than 1."""
    gcn = GCNS[name]
    p = {n: (w.double() + 0.3 * normal(4, *w.shape, seed=5)).requires_grad_() for n, w in gcn.init(9, seed=1).items()}
    V = {"weight": normal(4, 3, 2, 3, seed=2).requires_grad_(), "bias": normal(4, 3, 3, seed=3).requires_grad_()}
    A = torch.stack([domain_adjacency(row(V, k), 0.3) + 0.4 * (k % 2) for k in range(4)])
    assert A.sum(2).max() > 2

    def gradients(out):
        return torch.autograd.grad((out * normal(*out.shape, seed=8)).sum(), [*V.values(), *p.values()])

    expected = torch.stack([loop_mix(gcn, row(p, k), to_matrix(row(V, k)), A[k]) for k in range(4)])
    hat = torch.vmap(gcn)(p, V, A)
    assert {n: v.shape for n, v in hat.items()} == {n: v.shape for n, v in V.items()}
    stacked = torch.cat([v.flatten(2) for v in hat.values()], 2)
    close(stacked, expected)
    close(torch.stack([to_matrix(gcn(row(p, k), row(V, k), A[k])) for k in range(4)]), expected)
    close(gradients(stacked), gradients(expected))
