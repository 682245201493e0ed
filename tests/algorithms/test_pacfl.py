"""PACFL against a slow loop, in float64; its angles and clusters against SciPy's."""

import numpy as np
import pytest
import torch
from reference import averaged, cohort
from scipy.cluster.hierarchy import average, fcluster
from scipy.linalg import subspace_angles
from scipy.spatial.distance import squareform
from twins import SEED, client_data, fit, ragged_clients, rows_differ, twin

import fedlib
from fedlib import Key
from fedlib.algorithms.pacfl import PACFL, principal_angles, signature
from fedlib.server.distance_clusters import linkage

ROUNDS, COHORT = 4, 5
APART = 65.0  # degrees; makes four clusters of the ragged clients


# --- the slow loop ----------------------------------------------------------------------------------------------------


def basis(x, p):
    """An orthonormal basis (d, p) of the span of the first p left singular vectors of the data matrix (d, n).

    They are eigenvectors of its product with its transpose; there are no more of them than its rank.
    """
    matrix = x.reshape(len(x), -1).numpy().T
    values, vectors = np.linalg.eigh(matrix @ matrix.T)
    rank = np.linalg.matrix_rank(matrix)
    return vectors[:, np.argsort(-values)[: min(p, rank)]]


def smallest_angle(a, b):
    return np.degrees(subspace_angles(a, b).min())


def agglomerate(distance, limit, criterion="distance"):
    """SciPy's average linkage, numbered by their first clients."""
    tree = average(squareform(distance, checks=False))
    labels = fcluster(tree, limit - 1e-9 * (criterion == "distance"), criterion).tolist()
    return [[*dict.fromkeys(labels)].index(label) for label in labels]


def slow(clients, network, size, p, threshold):
    """The cluster of each client, by id, and the clusters' models."""
    start, _, module = twin(network)
    bases = [basis(x, p) for x, _ in clients.values()]
    distance = np.array([[smallest_angle(a, b) for b in bases] for a in bases])
    cluster = dict(zip(clients, agglomerate(distance, threshold), strict=True))
    models = [start] * (1 + max(cluster.values()))
    for key in (Key(SEED, t) for t in range(1, ROUNDS + 1)):
        drawn = cohort(clients, size, key)
        for m in {cluster[k] for k in drawn}:
            models[m] = averaged(module, models[m], clients, [k for k in drawn if cluster[k] == m], key)
    return cluster, models


CASES = [("MLP", 8, 3, APART), ("CNN", COHORT, 3, APART), ("CNN", 4, 5, 55.0)]


@pytest.mark.parametrize(("network", "size", "p", "threshold"), CASES)
def test_pacfl(network, size, p, threshold, clients):
    """Two clients have fewer examples than vectors."""
    _, result = fit(PACFL, clients, network, ROUNDS, size, vectors=p, threshold=threshold)
    cluster, models = slow(clients, network, size, p, threshold)
    assert result.state.assignment.tolist() == list(cluster.values()) and 2 < len(models) < 8
    assert rows_differ(result.state.models, models) <= 1e-10


# --- signatures, angles, clusters -------------------------------------------------------------------------------------


def test_what_repeats_or_is_zero_adds_no_direction():
    x = ragged_clients((4,))[10][0]
    assert signature(torch.cat([x, 2 * x, 0 * x]), 6).any(1).tolist() == [True] * 4 + [False] * 2
    assert not signature(torch.zeros(3, 5), 2).any()


def test_principal_angles_are_scipys():
    random = np.random.RandomState(0)
    a, b = ([np.linalg.qr(random.standard_normal((9, 3)))[0] for _ in range(n)] for n in (4, 2))
    found = principal_angles(*(torch.from_numpy(np.stack([u.T for u in some])) for some in (a, b)))
    np.testing.assert_allclose(found, [[smallest_angle(u, v) for v in b] for u in a], rtol=0, atol=1e-10)
    turned = torch.from_numpy(a[0].T)[None].flip(1) * -1  # order and signs do not matter
    assert principal_angles(turned, torch.from_numpy(a[0].T)[None]).item() < 1e-5
    vectors = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 0], [0.5**0.5, 0.5**0.5, 0]])[:, None]  # zeros: nothing
    assert principal_angles(vectors, vectors[:1])[:, 0].tolist() == pytest.approx([0, 90, 90, 45], abs=1e-5)


def test_clusters_by_a_threshold_and_by_their_number():
    """At 0 each is alone, also one whose inputs are those of another."""
    points, equal = np.random.RandomState(3).standard_normal((9, 2)), np.zeros((3, 3))
    distance = np.linalg.norm(points[:, None] - points, axis=-1)
    for threshold in (0, 0.3, 0.8, 1.3, 2, 9):
        assert linkage(distance, threshold=threshold).tolist() == agglomerate(distance, threshold)
    for clusters in range(1, 10):
        assert linkage(torch.from_numpy(distance), clusters).tolist() == agglomerate(distance, clusters, "maxclust")
    assert linkage(equal, threshold=0).tolist() == [0, 1, 2] and linkage(equal, threshold=1e-9).tolist() == [0, 0, 0]
    assert linkage(np.zeros((1, 1)), threshold=5).tolist() == [0]
    assert linkage(np.zeros((1, 1)), 1).tolist() == [0]
    for wrong in (None, 0, 4):
        with pytest.raises(ValueError, match=f"clusters must be from 1 to the number of clients, 3; got {wrong}"):
            linkage(equal, wrong)


# --- new clients ------------------------------------------------------------------------------------------------------


def test_new_clients_take_the_nearest_cluster_on_average(clients):
    algorithm, result = fit(PACFL, clients, threshold=APART)
    new = {1000 + k: rows for k, rows in ragged_clients((1, 2, 9, 30, 60, 4), seed=5).items()}
    placed, cluster = fedlib.new_clients(algorithm, result, client_data(new)).state, result.state.assignment.numpy()
    expected = []
    for x, _ in new.values():
        angles = np.array([smallest_angle(basis(x, 3), basis(other, 3)) for other, _ in clients.values()])
        expected.append(int(np.argmin([angles[cluster == m].mean() for m in range(cluster.max() + 1)])))
    assert placed.assignment.tolist() == expected and len(set(expected)) > 1
    assert placed.signatures.shape == (6, 3, 36)
    held = algorithm.client_params(placed, torch.arange(6))
    assert all(torch.equal(p, result.state.models[name][expected]) for name, p in held.items())
