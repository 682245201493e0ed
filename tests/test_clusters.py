"""Clusters of clients: Eq. 6 against all bipartitions, cosines against the plain formula, k-means on planted groups."""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.cluster import AgglomerativeClustering
from twins import close, normal

import fedlib
from fedlib.server.clusters import bipartition, cosine_similarity, kmeans, kmeans_seed, nearest
from fedlib.statistics import cluster_scores

METHODS = ("exact", "complete", "average")
assert_near = partial(close, atol=1e-12)
each_method = pytest.mark.parametrize("method", METHODS)


def stack():
    """Updates of seven clients with parameters of many shapes: scalars, and none at all, too."""
    shapes = {"weight": (5, 3), "scale": (), "kernel": (2, 3, 3), "none": (0,), "bias": (4,)}
    return {name: normal(7, *shape, seed=n) for n, (name, shape) in enumerate(shapes.items())}


def plain_cosine(updates):
    rows = [torch.cat([p[k].flatten() for p in updates.values()]) for k in range(len(updates["bias"]))]
    return torch.stack([torch.stack([a @ b / (a.norm() * b.norm()) for b in rows]) for a in rows])


def planted(groups, noise, seed, size=200):
    """Updates of clients that share a direction with their group."""
    centres = normal(max(groups) + 1, size, seed=seed)
    return centres[torch.tensor(groups)] + noise * normal(len(groups), size, seed=seed + 1000)


# Cosine similarity


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
def test_is_the_plain_formula(dtype):
    updates = {name: (10 * p).to(dtype).requires_grad_(dtype.is_floating_point) for name, p in stack().items()}
    found = cosine_similarity(updates)
    assert found.dtype == torch.float64 and not found.requires_grad
    assert_near(found, plain_cosine({name: p.detach().double() for name, p in updates.items()}))
    matrix = normal(300, 700)  # a stack of one name; more columns than are taken at a time
    unit = matrix / matrix.norm(dim=1, keepdim=True)
    assert_near(cosine_similarity(matrix), unit @ unit.T)
    assert_near(cosine_similarity({"a": matrix[:, :10], "b": matrix[:, 10:].view(300, 69, 10)}), unit @ unit.T)


def test_exactly_symmetric_one_on_the_diagonal_and_in_range():
    """At a stationary point of two groups their gradients cancel, so alpha is 1 or -1 (Eq. 3 and 4)."""
    updates = torch.cat([normal(150, 40), 3 * normal(150, 40), -0.1 * normal(150, 40)])  # multiples of each other
    found = cosine_similarity(updates)
    assert torch.equal(found, found.T) and (found.diagonal() == 1).all()
    assert found.min() == -1 and found.max() == 1
    optima, sign = torch.tensor([[0.0, 2.0], [0.0, 2.0], [4.0, -1.0], [4.0, -1.0]]), torch.tensor([1, 1, -1, -1])
    assert torch.equal(cosine_similarity(optima - optima.mean(0)), torch.outer(sign, sign).double())


def test_equal_directions_are_tied_exactly():
    """Rounding errors depend on where a row stands; they must not decide who is nearer to whom."""
    directions, group = normal(60, 1000, seed=3), torch.arange(300) % 60
    found = cosine_similarity(directions[group] * (10 ** normal(300, 1, seed=4)))
    assert torch.equal(found, found[:60, :60][group][:, group])
    assert torch.equal(found == 1, group[:, None] == group)
    assert_near(found[:60, :60], cosine_similarity(directions))


def test_directions_that_rounding_cannot_tell_apart_are_one_and_orthogonal_ones_are_tied():
    updates = torch.tensor([[1, 0], [1, 3e-7], [0, 2]], dtype=torch.float64)
    assert cosine_similarity(updates).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    updates[1, 1] = 3e-6
    assert cosine_similarity(updates)[1, 2] == pytest.approx(3e-6, rel=1e-6)
    updates = torch.block_diag(normal(2, 50), normal(2, 50, seed=1).abs())
    assert (cosine_similarity(updates)[:2, 2:] == 0).all()
    basis = torch.linalg.qr(normal(4, 64, seed=2).T).Q.T  # orthogonal only up to rounding
    assert torch.equal(cosine_similarity(basis), torch.eye(4, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neither_huge_nor_tiny_updates_overflow_or_vanish(dtype):
    updates, info = normal(8, 30).to(dtype), torch.finfo(dtype)
    factor = torch.tensor([1, 7.3, 1e-3, info.max / 1e2, info.max / 10, info.tiny, info.tiny * 3, 2**20], dtype=dtype)
    scaled = updates * factor[:, None]
    assert scaled.isfinite().all()
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6  # the product is rounded to float32
    assert_near(cosine_similarity(scaled), cosine_similarity(updates), atol=tolerance)
    smallest = torch.tensor([[5e-324, 0], [0, 5e-324], [5e-324, 5e-324]], dtype=torch.float64)
    assert_near(cosine_similarity(smallest)[2, :2], torch.full((2,), 0.5).double().sqrt())


# Bipartition


def best_cut(similarity):
    """Eq. 6 by trying all bipartitions: the minimum, and of all the best assignments the last in the alphabet."""
    clients = len(similarity)
    assignments = np.arange(1, 2 ** (clients - 1))[:, None] >> np.arange(clients - 1, -1, -1) & 1
    across = assignments[:, :, None] != assignments[:, None, :]
    worst = np.where(across, similarity, -np.inf).max((1, 2))
    return worst.min(), assignments[worst == worst.min()][-1]


def symmetric(clients, random):
    matrix = random.standard_normal((clients, clients))
    return np.triu(matrix) + np.triu(matrix, 1).T


def cosines(clients, random):
    return cosine_similarity(torch.from_numpy(random.standard_normal((clients, random.randint(2, 30))))).numpy()


def integers(clients, random):
    matrix = random.randint(-2, 3, (clients, clients)) if random.rand() < 0.5 else random.randint(0, 2, (clients,) * 2)
    return (np.triu(matrix) + np.triu(matrix, 1).T).astype(float)


KINDS = (symmetric, cosines, integers)


def problems(kind):
    """180 similarities of 4 to 12 clients."""
    for clients, seed in product(range(4, 13), range(20)):
        yield kind(clients, np.random.RandomState(1000 * clients + seed))


@pytest.mark.parametrize("kind", KINDS)
def test_exact_finds_the_minimum_of_all_bipartitions(kind):
    """With ties, as the integers have, also the answer that the docstring promises."""
    several = 0
    for similarity in problems(kind):
        objective, assignment = best_cut(similarity)
        found = bipartition(similarity)
        assert found.objective == objective and found.assignment.tolist() == assignment.tolist()
        backward = best_cut(similarity[::-1, ::-1])[1][::-1]
        several += backward.tolist() not in (assignment.tolist(), (1 - assignment).tolist())
    assert (several > 50) == (kind is integers)  # so ties did occur


@each_method
@pytest.mark.parametrize("kind", KINDS)
def test_the_objective_is_that_of_the_assignment(kind, method):
    for similarity in problems(kind):
        found = bipartition(similarity, method)
        first, second = (np.flatnonzero(found.assignment == c) for c in (0, 1))
        assert first[0] == 0 and len(second) and len(first) + len(second) == len(similarity)
        across = [similarity[i, j] for i in first for j in second]
        assert found.objective == max(across)
        assert found.objective >= bipartition(similarity).objective


@pytest.mark.parametrize("method", ["complete", "average"])
def test_other_linkages_are_those_of_scikit_learn(method):
    """The authors' code gives minus the similarity to it as a distance, with complete linkage."""
    for seed in range(50):
        similarity = symmetric(12, np.random.RandomState(seed))
        theirs = AgglomerativeClustering(2, metric="precomputed", linkage=method).fit(-similarity).labels_
        assert bipartition(similarity, method).assignment.tolist() == (theirs != theirs[0]).astype(int).tolist()


@each_method
def test_clients_with_the_same_update_stay_together(method):
    for seed in range(20):
        who = np.random.RandomState(seed).permutation(np.repeat(np.arange(6), 3))
        distinct = normal(6, 40, seed=seed)
        few = bipartition(cosine_similarity(distinct), method)
        many = bipartition(cosine_similarity(distinct[who]), method)
        if method != "average":  # which weighs each client
            expected = few.assignment[who]
            assert torch.equal(many.assignment, expected ^ expected[0])
            assert many.objective == pytest.approx(few.objective, abs=1e-12)
        assert all(len(set(many.assignment[np.flatnonzero(who == k)].tolist())) == 1 for k in range(6))


def test_similarities_are_compared_exactly():
    """Zeros of either sign are one number, and the smallest number is not zero, though 1 minus it is 1."""
    pairs = np.kron(np.eye(3), np.ones((2, 2)))  # three pairs, orthogonal to each other
    signed = np.where(pairs, 1, np.copysign(0.0, symmetric(6, np.random.RandomState(0))))
    assert bipartition(signed).assignment.tolist() == [0, 0, 1, 1, 1, 1]
    near = np.eye(4)
    near[[1, 2, 0, 3], [2, 1, 3, 0]] = 1e-20
    assert bipartition(near).assignment.tolist() == [0, 1, 1, 0]
    near[[0, 1], [1, 0]] = 5e-21
    assert bipartition(near).objective == 5e-21


@each_method
def test_the_diagonal_and_rounding_do_not_matter(method):
    found = bipartition(torch.tensor([[1.0, 0.25], [0.25, 1.0]]), method)  # two clients are cut apart
    assert found.assignment.tolist() == [0, 1] and found.assignment.dtype == torch.int64
    assert found.objective == 0.25
    similarity = symmetric(8, np.random.RandomState(1))
    found, before = bipartition(similarity, method), similarity.copy()
    np.fill_diagonal(similarity, 0)
    other = bipartition(similarity, method)
    assert torch.equal(found.assignment, other.assignment) and found.objective == other.objective
    np.fill_diagonal(similarity, before.diagonal())
    assert np.array_equal(similarity, before)
    assert torch.equal(found.assignment, bipartition(torch.tensor(similarity).requires_grad_(), method).assignment)
    skew = similarity - 1e-7 * np.tri(8)
    assert bipartition(skew, method).objective == bipartition(skew.T, method).objective == found.objective


# k-means


def test_kmeans_finds_planted_groups_and_sends_new_clients_to_them():
    groups = np.random.RandomState(0).permutation(np.repeat(range(4), 20)).tolist()
    updates = planted(groups, 1.0, 5)
    found, split = kmeans(updates, 4, seed=1), {"a": updates[:, :50].view(80, 5, 10), "b": updates[:, 50:]}
    assert cluster_scores(groups, found.assignment)["ari"] == 1
    assert found.centres.shape == (4, 200) and found.centres.dtype == torch.float64
    for some in (updates, updates + normal(80, 200, seed=9), split):
        assert torch.equal(nearest(found.centres, some), found.assignment)
    assert torch.equal(kmeans(split, 4, seed=1).assignment, found.assignment)


def test_kmeans_is_the_same_for_a_seed():
    updates = normal(100, 600)  # no groups: the start decides; so large that the components are drawn, too
    first, again = (kmeans(updates, 6, 3) for _ in range(2))
    assert torch.equal(first.assignment, again.assignment) and torch.equal(first.centres, again.centres)
    assert any(not torch.equal(kmeans(updates, 6, seed).assignment, first.assignment) for seed in range(4, 8))


def test_every_seed_and_round_has_a_seed_of_its_own():
    drawn = {kmeans_seed(fedlib.Key(seed, t)) for seed in (0, 1, -(2**63)) for t in (1, 2)}
    assert len(drawn) == 6 and all(0 <= seed < 2**32 for seed in drawn)


def test_the_best_of_twenty_starts_counts_and_clusters_are_numbered_by_their_first_clients():
    groups = [k % 12 for k in range(48)]
    for seed in range(5):
        assert kmeans(planted(groups, 0.8, 0), 12, seed).assignment.tolist() == groups
    one = kmeans(torch.tensor([[3.0, 4.0]]), 1, 0)
    assert one.assignment.tolist() == [0] and one.centres.tolist() == [[3.0, 4.0]]


def test_the_centres_are_means_where_no_component_is_lost():
    updates = normal(12, 7)
    found = kmeans(updates, 3, 0)
    means = torch.stack([updates[found.assignment == m].mean(0) for m in range(3)])
    assert torch.allclose(found.centres, means, atol=1e-12)


def test_clients_beyond_fifty_are_compared_in_fifty_components():
    """The centres lie in an affine space of 49 or 50 dimensions, and the nearest is that of the projections."""
    updates = normal(120, 300)
    found = kmeans(updates, 60, 0)
    centred = found.centres - updates.mean(0)
    assert torch.linalg.matrix_rank(centred, atol=1e-8) == 50
    basis = torch.linalg.svd(centred).Vh[:50]
    low = torch.cdist((updates - updates.mean(0)) @ basis.T, centred @ basis.T).argmin(1)
    assert torch.equal(low, nearest(found.centres, updates)) and torch.equal(low, found.assignment)


def test_nearest_holds_out_against_cancellation_and_takes_the_first_of_ties():
    centres = torch.tensor([[10000.0, 0.0], [10000.01, 0.0], [10000.01, 0.0]])
    rows = torch.tensor([[10000.0, 0.0], [10000.01, 0.0]]).repeat(50, 1)
    assert nearest(centres, rows).tolist() == [0, 1] * 50


def test_kmeans_in_half_precision():
    groups = [0, 1, 1, 0, 1, 0]
    updates = planted(groups, 0.1, 0).bfloat16().requires_grad_()
    found = kmeans(updates, 2, 0)
    assert found.assignment.tolist() == groups and found.centres.dtype == torch.float32
    assert nearest(found.centres, updates).tolist() == nearest(found.centres.bfloat16(), updates).tolist() == groups
