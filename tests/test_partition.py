"""Partitions: nothing lost, nothing twice, and the skew that was asked for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib import partition

Y = np.repeat(np.arange(10), 50)
PARTITIONERS = {
    "iid": lambda y, k, seed: partition.iid(y, k, seed),
    "quantity": lambda y, k, seed: partition.quantity(y, k, sigma=1.5, seed=seed),
    "dirichlet": lambda y, k, seed: partition.dirichlet(y, k, alpha=0.5, seed=seed),
    "pathological": lambda y, k, seed: partition.pathological(y, k, seed=seed),
}


@pytest.mark.parametrize("name", PARTITIONERS)
@settings(max_examples=25, deadline=None)
@given(k=st.integers(1, 20), seed=st.integers(0, 2**31), rows=st.integers(60, 400))
def test_every_row_goes_to_one_client(name, k, seed, rows):
    y = np.random.RandomState(seed).randint(0, 5, rows)
    parts = PARTITIONERS[name](y, k, seed)
    assert len(parts.rows) == len(parts.group) == k
    assert all(len(r) >= 1 for r in parts.rows)
    assert sorted(np.concatenate(parts.rows)) == list(range(rows))


def label_shares(parts):
    return np.array([np.bincount(Y[r], minlength=10) / len(r) for r in parts.rows])


def test_iid_sizes_differ_by_one_at_most():
    sizes = [len(r) for r in partition.iid(Y, 12).rows]
    assert max(sizes) - min(sizes) == 1


def test_quantity():
    assert {len(r) for r in partition.quantity(Y, 10, sigma=0).rows} == {50}
    sizes = [len(r) for r in partition.quantity(Y, 10, sigma=2).rows]
    assert max(sizes) > 5 * min(sizes)


def test_dirichlet_skew_falls_with_alpha():
    skew = [
        np.mean([label_shares(partition.dirichlet(Y, 10, a, s)).max(1).mean() for s in range(5)])
        for a in (0.05, 1, 1000)
    ]
    assert skew[0] > 0.6 > skew[1] > 0.2 > skew[2] > 0.1


def test_dirichlet_min_rows():
    assert min(len(r) for r in partition.dirichlet(Y, 10, 0.3, min_rows=15).rows) >= 15


def test_pathological_clients_see_few_classes():
    assert ((label_shares(partition.pathological(Y, 10, 2)) > 0).sum(1) <= 2).all()
    assert (label_shares(partition.pathological(Y, 10, 1)).max(1) == 1).all()


def test_extreme_skew_is_its_limit():
    """All shares underflow: each class goes to one client, not always to the last one."""
    parts = partition.dirichlet(Y, 4, 1e-6, seed=3, min_rows=0)
    shares = np.array([[np.isin(r, np.flatnonzero(c == Y)).sum() for c in range(10)] for r in parts.rows])
    assert set(shares.flatten()) == {0, 50} and (shares.sum(1) > 0).sum() > 1
    assert min(len(r) for r in partition.quantity(Y, 10, sigma=1000).rows) == 1
