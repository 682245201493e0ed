"""Clusters of clients: Eq. 6 against all bipartitions, cosines against the plain formula, k-means on planted groups."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from fedlib.params import take
from fedlib.server.clusters import bipartition, cosine_similarity, kmeans, nearest, shuffle_within
from fedlib.statistics import cluster_scores

METHODS = ("exact", "complete", "average")


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(shape))


def stack(clients=7, dtype=torch.float64, seed=0):
    """Updates with parameters of many shapes: scalars, and none at all, too."""
    shapes = {"weight": (5, 3), "scale": (), "kernel": (2, 3, 3), "none": (0,), "bias": (4,)}
    return {name: normal(clients, *shape, seed=seed + n).to(dtype) for n, (name, shape) in enumerate(shapes.items())}


def plain_cosine(updates):
    rows = [torch.cat([p[k].flatten() for p in updates.values()]) for k in range(len(updates["bias"]))]
    return torch.stack([torch.stack([a @ b / (a.norm() * b.norm()) for b in rows]) for a in rows])


def planted(groups, noise, seed, size=200):
    """Updates of clients that share a direction with their group."""
    centres = normal(max(groups) + 1, size, seed=seed)
    return centres[torch.tensor(groups)] + noise * normal(len(groups), size, seed=seed + 1000)


# Cosine similarity


def test_is_the_plain_formula():
    updates = stack()
    assert torch.allclose(cosine_similarity(updates), plain_cosine(updates), rtol=0, atol=1e-12)


def test_a_matrix_is_a_stack_of_one_name():
    matrix = normal(300, 700)
    found = cosine_similarity(matrix)  # more columns than are taken at a time
    unit = matrix / matrix.norm(dim=1, keepdim=True)
    assert torch.allclose(found, unit @ unit.T, rtol=0, atol=1e-12)
    split = {"a": matrix[:, :10], "b": matrix[:, 10:].view(300, 69, 10)}
    assert torch.allclose(cosine_similarity(split), found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_sums_are_taken_in_64_bits(dtype):
    updates = {name: (10 * p).to(dtype).requires_grad_(dtype.is_floating_point) for name, p in stack().items()}
    found = cosine_similarity(updates)
    assert found.dtype == torch.float64 and not found.requires_grad
    assert torch.allclose(found, plain_cosine({n: p.detach().double() for n, p in updates.items()}), rtol=0, atol=1e-12)


def test_exactly_symmetric_one_on_the_diagonal_and_in_range():
    updates = torch.cat([normal(150, 40), 3 * normal(150, 40), -0.1 * normal(150, 40)])  # multiples of each other
    found = cosine_similarity(updates)
    assert torch.equal(found, found.T) and (found.diagonal() == 1).all()
    assert found.min() == -1 and found.max() == 1


def test_equal_directions_are_tied_exactly():
    """Rounding errors depend on where a row stands; they must not decide who is nearer to whom."""
    directions, group = normal(60, 1000, seed=3), torch.arange(300) % 60
    factor = 10 ** normal(300, 1, seed=4)
    found = cosine_similarity(directions[group] * factor)
    assert torch.equal(found, found[:60, :60][group][:, group])
    assert torch.equal(found == 1, group[:, None] == group)
    assert torch.allclose(found[:60, :60], cosine_similarity(directions), rtol=0, atol=1e-12)


def test_directions_that_rounding_cannot_tell_apart_are_one():
    updates = torch.tensor([[1, 0], [1, 3e-7], [0, 2]], dtype=torch.float64)
    expected = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.float64)
    assert torch.equal(cosine_similarity(updates), expected)
    updates[1, 1] = 3e-6
    assert cosine_similarity(updates)[1, 2] == pytest.approx(3e-6, rel=1e-6)


def test_orthogonal_updates_are_tied_exactly():
    updates = torch.block_diag(normal(2, 50), normal(2, 50, seed=1).abs())
    assert (cosine_similarity(updates)[:2, 2:] == 0).all()
    quarters = normal(4, 64, seed=2)
    basis = torch.linalg.qr(quarters.T).Q.T  # orthogonal only up to rounding
    assert torch.equal(cosine_similarity(basis), torch.eye(4, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neither_huge_nor_tiny_updates_overflow_or_vanish(dtype):
    updates, info = normal(8, 30).to(dtype), torch.finfo(dtype)
    factor = torch.tensor([1, 7.3, 1e-3, info.max / 1e2, info.max / 10, info.tiny, info.tiny * 3, 2**20], dtype=dtype)
    scaled = updates * factor[:, None]
    assert scaled.isfinite().all()
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6  # the product is rounded to float32
    assert torch.allclose(cosine_similarity(scaled), cosine_similarity(updates), rtol=0, atol=tolerance)
    smallest = torch.tensor([[5e-324, 0], [0, 5e-324], [5e-324, 5e-324]], dtype=torch.float64)
    assert torch.allclose(cosine_similarity(smallest)[2, :2], torch.tensor(0.5).double().sqrt(), rtol=0, atol=1e-12)


def test_order_of_clients_and_inputs_left_alone():
    updates = stack(9)
    before = {name: p.clone() for name, p in updates.items()}
    order = torch.from_numpy(np.random.RandomState(0).permutation(9))
    found = cosine_similarity(updates)
    assert torch.allclose(cosine_similarity(take(updates, order)), found[order][:, order], rtol=0, atol=1e-12)
    assert all(torch.equal(p, before[name]) for name, p in updates.items())


def test_updates_need_not_be_contiguous():
    matrix = normal(40, 6).T
    assert torch.equal(cosine_similarity({"w": matrix.view(6, 5, 8).mT}), cosine_similarity(matrix.contiguous()))


def test_first_gradients_of_two_optima_point_in_opposite_directions():
    """Eq. 3 and 4: at a stationary point of two groups their gradients cancel, so alpha is 1 or -1."""
    optima = torch.tensor([[0.0, 2.0], [0.0, 2.0], [4.0, -1.0], [4.0, -1.0]])
    sign = torch.tensor([1, 1, -1, -1])
    assert torch.equal(cosine_similarity(optima - optima.mean(0)), torch.outer(sign, sign).double())


def test_updates_that_are_not_finite_are_named():
    updates = stack()
    updates["kernel"][4, 1, 2, 2], updates["scale"][2] = float("nan"), -float("inf")
    with pytest.raises(ValueError, match=r"positions \[2, 4\] hold NaN or infinite .* learning rate, or leave these"):
        cosine_similarity(updates)


def test_zero_updates_are_named():
    updates = stack()
    for p in updates.values():
        p[torch.tensor([0, 5])] = 0
    with pytest.raises(ValueError, match=r"positions \[0, 5\] hold zeros only.* leave them out"):
        cosine_similarity(updates)
    with pytest.raises(ValueError, match=r"positions \[0, 1, 2, 3, 4, 5, 6, 7, 8, 9\] and 3 more"):
        cosine_similarity(torch.zeros(13, 2))
    with pytest.raises(ValueError, match="zeros only"):
        cosine_similarity({"none": torch.zeros(3, 0)})


def test_other_mistakes_with_updates():
    for some in (normal(1, 4), normal(0, 4)):
        with pytest.raises(ValueError, match=f"at least two clients; got {len(some)}"):
            cosine_similarity(some)


# Bipartition


def best_cut(similarity):
    """Eq. 6 by trying all bipartitions: the minimum, and of all the best assignments the last in the alphabet."""
    clients = len(similarity)
    codes = np.arange(1, 2 ** (clients - 1))
    assignments = codes[:, None] >> np.arange(clients - 1, -1, -1) & 1
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


PROBLEMS = [
    (kind, clients, seed) for kind in (symmetric, cosines, integers) for clients in range(4, 13) for seed in range(20)
]


@pytest.mark.parametrize("kind", [symmetric, cosines, integers])
def test_exact_finds_the_minimum_of_all_bipartitions(kind):
    """540 problems; with ties, as the integers have, also the answer that the docstring promises."""
    several = 0
    for _, clients, seed in (p for p in PROBLEMS if p[0] is kind):
        similarity = kind(clients, np.random.RandomState(1000 * clients + seed))
        objective, assignment = best_cut(similarity)
        found = bipartition(similarity)
        assert found.objective == objective
        assert found.assignment.tolist() == assignment.tolist()
        several += best_cut(similarity[::-1, ::-1])[1][::-1].tolist() not in (
            assignment.tolist(),
            (1 - assignment).tolist(),
        )
    assert (several > 50) == (kind is integers)  # so ties did occur


@pytest.mark.parametrize("method", METHODS)
def test_objective_and_gap_are_those_of_the_assignment(method):
    for kind, clients, seed in PROBLEMS:
        similarity = kind(clients, np.random.RandomState(1000 * clients + seed))
        found = bipartition(similarity, method)
        first, second = (np.flatnonzero(found.assignment == c) for c in (0, 1))
        assert first[0] == 0 and len(second) and len(first) + len(second) == clients
        across = [similarity[i, j] for i in first for j in second]
        within = [similarity[i, j] for c in (first, second) for i in c for j in c if i < j]
        assert found.objective == max(across)
        assert found.gap == pytest.approx(min(within) - max(across), abs=1e-15)
        assert found.objective >= bipartition(similarity).objective


def test_linkages_differ():
    """Else "complete" could be "average" under another name."""
    similarities = [symmetric(10, np.random.RandomState(seed)) for seed in range(50)]
    cuts = {m: [tuple(bipartition(s, m).assignment.tolist()) for s in similarities] for m in METHODS}
    assert cuts["exact"] != cuts["complete"] != cuts["average"] != cuts["exact"]


def test_complete_linkage_is_that_of_the_authors_code():
    """They give minus the similarity to scikit-learn as a distance."""
    from sklearn.cluster import AgglomerativeClustering

    for method in ("complete", "average"):
        for seed in range(50):
            similarity = symmetric(12, np.random.RandomState(seed))
            theirs = AgglomerativeClustering(2, metric="precomputed", linkage=method).fit(-similarity).labels_
            assert bipartition(similarity, method).assignment.tolist() == (theirs != theirs[0]).astype(int).tolist()


@pytest.mark.parametrize(("method", "sizes"), [("exact", (1, 9)), ("complete", (10, 10)), ("average", (3, 17))])
def test_planted_clusters_are_found(method, sizes):
    for seed in range(20):
        groups = np.random.RandomState(seed).permutation(np.repeat([0, 1], sizes)).tolist()
        found = bipartition(cosine_similarity(planted(groups, 0.7, seed)), method)
        assert cluster_scores(groups, found.assignment)["ari"] == 1
        assert found.gap > 0


def test_four_planted_groups_are_never_torn():
    """The gap need not be positive then: one side holds groups that differ from each other."""
    groups = [k % 4 for k in range(20)]
    gaps = []
    for seed in range(20):
        found = bipartition(cosine_similarity(planted(groups, 0.5, seed)))
        assert all(len(set(found.assignment[g::4].tolist())) == 1 for g in range(4))
        gaps.append(found.gap)
    assert min(gaps) < 0


def test_the_minimum_may_set_one_client_apart():
    """Two pairs and an outlier, client 4: Eq. 6 isolates the outlier, since one link of .3 joins the pairs."""
    similarity = torch.tensor(
        [
            [1.0, 0.9, 0.3, -0.5, -0.4],
            [0.9, 1.0, -0.5, -0.5, -0.4],
            [0.3, -0.5, 1.0, 0.9, 0.2],
            [-0.5, -0.5, 0.9, 1.0, 0.2],
            [-0.4, -0.4, 0.2, 0.2, 1.0],
        ]
    )
    exact = bipartition(similarity)
    assert exact.assignment.tolist() == [0, 0, 0, 0, 1]
    assert exact.objective == pytest.approx(0.2) and exact.gap == pytest.approx(-0.7)
    for method in ("complete", "average"):
        found = bipartition(similarity, method)
        assert found.assignment.tolist() == [0, 0, 1, 1, 1]
        assert found.objective == pytest.approx(0.3) and found.gap == pytest.approx(-0.1)


def test_noise_makes_the_exact_cut_isolate_clients_and_average_linkage_less():
    groups, alone, right = [0] * 5 + [1] * 5, 0, dict.fromkeys(METHODS, 0)
    for seed in range(100):
        similarity = cosine_similarity(planted(groups, 3.0, seed, size=50))
        for method in METHODS:
            found = bipartition(similarity, method)
            right[method] += found.assignment.tolist() == groups
            if method == "exact" and int(found.assignment.sum()) in (1, 9):
                alone += 1
                assert found.objective == best_cut(similarity.numpy())[0]
    assert alone > 25
    assert right["exact"] < right["average"]


def test_permuting_clients_permutes_the_answer():
    for method in METHODS:
        for seed in range(30):
            random = np.random.RandomState(seed)
            similarity, order = symmetric(11, random), random.permutation(11)
            found, moved = bipartition(similarity, method), bipartition(similarity[order][:, order], method)
            expected = found.assignment[order]
            assert torch.equal(moved.assignment, expected ^ expected[0])
            assert moved.objective == found.objective and moved.gap == found.gap


@pytest.mark.parametrize("method", METHODS)
def test_clients_with_the_same_update_stay_together(method):
    for seed in range(20):
        who = np.random.RandomState(seed).permutation(np.repeat(np.arange(6), 3))
        distinct = normal(6, 40, seed=seed)
        few = bipartition(cosine_similarity(distinct), method)
        many = bipartition(cosine_similarity(distinct[who]), method)
        if method != "average":  # which weighs each client
            expected = few.assignment[who]
            assert torch.equal(many.assignment, expected ^ expected[0]) and many.objective == pytest.approx(
                few.objective, abs=1e-12
            )
        assert all(len(set(many.assignment[np.flatnonzero(who == k)].tolist())) == 1 for k in range(6))


def test_ties_go_by_the_order_of_clients():
    def cut(similarity):
        return bipartition(similarity).assignment.tolist()

    assert cut(np.ones((5, 5))) == cut(np.zeros((5, 5))) == cut(-np.eye(5)) == [0, 1, 1, 1, 1]
    pairs = np.kron(np.eye(3), np.ones((2, 2)))  # three pairs, orthogonal to each other
    assert cut(pairs) == [0, 0, 1, 1, 1, 1]
    order = [2, 0, 4, 1, 5, 3]
    assert cut(pairs[order][:, order]) == [0, 1, 1, 1, 1, 0]
    signed = np.where(pairs, 1, np.copysign(0.0, symmetric(6, np.random.RandomState(0))))
    assert cut(signed) == cut(pairs)  # 0.0 and -0.0 are one number


def test_similarities_that_differ_a_little_are_no_ties():
    """1 - alpha would round 1e-20 away."""
    similarity = np.eye(4)
    similarity[1, 2] = similarity[2, 1] = similarity[0, 3] = similarity[3, 0] = 1e-20
    assert bipartition(similarity).assignment.tolist() == [0, 1, 1, 0]
    similarity[0, 1] = similarity[1, 0] = 5e-21
    assert bipartition(similarity).objective == 5e-21


def test_two_clients_are_cut_apart():
    for method in METHODS:
        found = bipartition(torch.tensor([[1.0, 0.25], [0.25, 1.0]]), method)
        assert found.assignment.tolist() == [0, 1] and found.assignment.dtype == torch.int64
        assert (found.objective, found.gap) == (0.25, 0.75)


@pytest.mark.parametrize("method", METHODS)
def test_the_diagonal_and_rounding_do_not_matter(method):
    similarity = symmetric(8, np.random.RandomState(1))
    found, before = bipartition(similarity, method), similarity.copy()
    np.fill_diagonal(similarity, 0)
    other = bipartition(similarity, method)
    assert torch.equal(found.assignment, other.assignment)
    assert (found.objective, found.gap) == (other.objective, other.gap)
    np.fill_diagonal(similarity, before.diagonal())
    assert np.array_equal(similarity, before)
    assert torch.equal(found.assignment, bipartition(torch.tensor(similarity).requires_grad_(), method).assignment)
    skew = similarity - 1e-7 * np.tri(8)
    assert bipartition(skew, method).objective == bipartition(skew.T, method).objective == found.objective


def test_mistakes_with_similarities():
    fine = np.eye(3)
    for shape in ((2, 3), (4,), (1, 1), (0, 0), (2, 2, 2)):
        with pytest.raises(ValueError, match=r"square matrix of at least two clients; got shape \(" + str(shape[0])):
            bipartition(np.zeros(shape))
    for bad in (np.nan, np.inf):
        wrong = fine.copy()
        wrong[1, 2] = wrong[2, 1] = bad
        with pytest.raises(ValueError, match="must be finite; did the training of a client diverge"):
            bipartition(wrong)
    wrong = fine.copy()
    wrong[0, 2], wrong[2, 0] = 0.5, 0.4999
    with pytest.raises(ValueError, match=r"symmetric; mirrored entries differ by up to 0.0001"):
        bipartition(wrong)
    with pytest.raises(ValueError, match=r"one of \['exact', 'complete', 'average'\]; got 'single'"):
        bipartition(fine, "single")


# k-means


def test_kmeans_finds_planted_groups_and_sends_new_clients_to_them():
    groups = np.random.RandomState(0).permutation(np.repeat(range(4), 20)).tolist()
    updates = planted(groups, 1.0, 5)
    found = kmeans(updates, 4, seed=1)
    assert cluster_scores(groups, found.assignment)["ari"] == 1
    assert found.centres.shape == (4, 200) and found.centres.dtype == torch.float64
    new = planted(groups, 1.0, 5) + normal(80, 200, seed=9)
    assert torch.equal(nearest(found.centres, updates), found.assignment)
    assert torch.equal(nearest(found.centres, new), found.assignment)
    split = {"a": updates[:, :50].view(80, 5, 10), "b": updates[:, 50:]}
    assert torch.equal(kmeans(split, 4, seed=1).assignment, found.assignment)
    assert torch.equal(nearest(found.centres, split), found.assignment)


def test_clusters_are_numbered_by_their_first_clients():
    for seed in range(10):
        found = kmeans(planted([k % 5 for k in range(30)], 0.3, 2), 5, seed)
        assert found.assignment.tolist() == [k % 5 for k in range(30)]


def test_kmeans_is_the_same_for_a_seed():
    updates = normal(100, 600)  # no groups: the start decides; so large that the components are drawn, too
    first, again = (kmeans(updates, 6, 3) for _ in range(2))
    assert torch.equal(first.assignment, again.assignment) and torch.equal(first.centres, again.centres)
    assert any(not torch.equal(kmeans(updates, 6, seed).assignment, first.assignment) for seed in range(4, 8))


def test_the_best_of_twenty_starts_counts():
    groups = [k % 12 for k in range(48)]
    for seed in range(5):
        assert kmeans(planted(groups, 0.8, 0), 12, seed).assignment.tolist() == groups


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
    assert nearest(found.centres, updates).tolist() == groups


def test_kmeans_of_a_single_client():
    one = kmeans(torch.tensor([[3.0, 4.0]]), 1, 0)
    assert one.assignment.tolist() == [0] and one.centres.tolist() == [[3.0, 4.0]]


def test_nearest_of_centres_in_half_precision():
    centres = torch.tensor([[0.0, 0.0], [4.0, 4.0]], dtype=torch.bfloat16)
    assert nearest(centres, torch.tensor([[3.0, 3.0], [1.0, 1.0]], dtype=torch.bfloat16)).tolist() == [1, 0]


def test_mistakes_with_kmeans():
    for clusters in (0, 6):
        with pytest.raises(ValueError, match=f"from 1 to the number of clients, 5; got {clusters}"):
            kmeans(normal(5, 3), clusters, 0)
    updates = normal(5, 3)
    updates[3, 1] = float("nan")
    with pytest.raises(ValueError, match=r"positions \[3\] hold NaN"):
        kmeans(updates, 2, 0)


def test_shuffled_within_clusters_by_hand():
    cluster, bits = torch.tensor([2, 0, 2, 0, 2]), torch.tensor([5, 9, -1, 3, 5])
    order, first, size = shuffle_within(cluster, bits, 4)
    assert order.tolist() == [3, 1, 2, 0, 4]  # of equal bits the first
    assert (first.tolist(), size.tolist()) == ([0, 2, 2, 5], [2, 0, 3, 0])


def test_heavy_packages_wait_until_they_are_needed():
    code = "import sys, fedlib.server.clusters; print(*({'sklearn', 'scipy'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_same_on_a_gpu():
    groups = [k % 2 for k in range(300)]
    updates = planted(groups, 0.7, 0).float()
    similarity = cosine_similarity(updates.cuda())
    assert similarity.is_cuda and similarity.dtype == torch.float64
    assert torch.allclose(similarity.cpu(), cosine_similarity(updates), rtol=0, atol=1e-12)
    for method in METHODS:
        found = bipartition(similarity, method)
        assert found.assignment.is_cuda and found.assignment.tolist() == groups
    found = kmeans(updates.cuda(), 2, 0)
    assert found.centres.is_cuda and nearest(found.centres, updates.cuda()).tolist() == groups
