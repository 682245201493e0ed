"""pFedGraph against a slow loop, in float64; its quadratic programme against a search over all supports."""

from itertools import combinations

import numpy as np
import pytest
import torch
from reference import cohort, flat, mean, trained
from twins import SEED, SIZES, client_data, count, fit, largest_difference, make, ragged_clients, twin

import fedlib
from fedlib.algorithms.pfedgraph import PFedGraph, project_to_simplex
from fedlib.params import row

# --- the quadratic programme ------------------------------------------------------------------------------------------


def solve(cosines, p, alpha):
    """The minimum over the simplex of alpha |w - p|^2 - cosines . w: the best of the stationary points of all faces."""
    best, found = np.inf, None
    for size in range(1, len(p) + 1):
        for face in map(list, combinations(range(len(p)), size)):
            # on the face, 2 alpha (w - p) - cosines is the same number for all entries, and they sum to 1
            w = np.zeros(len(p))
            free = p[face] + cosines[face] / (2 * alpha)
            w[face] = free + (1 - free.sum()) / size
            value = alpha * ((w - p) ** 2).sum() - cosines @ w
            if (w >= 0).all() and value < best:
                best, found = value, w
    return found


@pytest.mark.parametrize("alpha", [0.05, 0.8, 10])
def test_the_programme_is_solved(alpha):
    random, algorithm = np.random.RandomState(0), PFedGraph(lambda params, batch: None, alpha=alpha)
    for clients in (1, 2, 3, 6):
        cosines, n = random.uniform(-1, 1, (4, clients)), random.randint(1, 50, clients)
        weights = algorithm.weights(torch.from_numpy(cosines), torch.from_numpy(n))
        for w, c in zip(weights.numpy(), cosines, strict=True):
            np.testing.assert_allclose(w, solve(c, n / n.sum(), alpha), rtol=0, atol=1e-12)


def test_projections_onto_the_simplex():
    """Ties, and large numbers that differ little; others are in the programme."""
    rows = torch.tensor([[1, 1, 0], [-5, -5, -5], [1e9 + 0.25, 1e9, 1e9 - 5]], dtype=torch.float64)
    expected = torch.tensor([[0.5, 0.5, 0], [1 / 3] * 3, [0.625, 0.375, 0]], dtype=torch.float64)
    torch.testing.assert_close(project_to_simplex(rows), expected, rtol=0, atol=1e-15)


# --- the slow loop ----------------------------------------------------------------------------------------------------


def cosines(one, others):
    return np.array([float(torch.cosine_similarity(one, other, dim=0)) for other in others])


def slow(clients, network, size, alpha, lam, rounds):
    """One client after another, whose loss is less lam cos(theta, start); models and rows of the graph by id."""
    start, _, module = twin(network)
    models, graph = dict.fromkeys(clients, start), {}
    for t in range(1, rounds + 1):
        drawn, ends = cohort(clients, size, fedlib.Key(SEED, t)), {}
        for k in drawn:
            target = flat(models[k])

            def pull(theta):
                return -lam * torch.cosine_similarity(flat(theta), target, dim=0) if t > 1 else 0

            ends[k] = trained(module, models[k], clients[k], k, fedlib.Key(SEED, t), penalty=pull)
        sizes = np.array([len(clients[k][1]) for k in drawn])
        moved = {k: flat(end) - flat(start) for k, end in ends.items()}
        for i in drawn:
            w = solve(cosines(moved[i], [moved[j] for j in drawn]), sizes / sizes.sum(), alpha)
            graph[i] = dict(zip(drawn, w, strict=True))
            models[i] = mean(ends.values(), w)
    return models, graph


CASES = [("MLP", 8, 0.8, 0.0, 4), ("MLP", 3, 0.3, 0.5, 3), ("CNN", 5, 0.8, 0.2, 4)]


@pytest.mark.parametrize(("network", "size", "alpha", "lam", "rounds"), CASES)
def test_pfedgraph(network, size, alpha, lam, rounds, clients):
    _, result = fit(PFedGraph, clients, network, rounds, size, alpha=alpha, lam=lam)
    history, sent = result.history, size * 8 * count(twin(network)[0])
    assert (history[["bytes_down", "bytes_up"]] == sent).all(axis=None)
    assert (history["server_seconds (graph)"] > 0).all()
    models, graph = slow(clients, network, size, alpha, lam, rounds)
    for i, k in enumerate(clients):
        assert largest_difference(row(result.state.models, i), models[k]) <= 1e-10
        expected = [graph.get(k, {}).get(j, 0.0) for j in clients]
        assert np.abs(result.state.graph[i].numpy() - expected).max() <= 1e-10
    shares = [w for weights in graph.values() for w in weights.values()]
    assert (len(graph) < 8) == (rounds == 3)  # who has never taken part keeps the start
    assert any(0.01 < w < 0.99 for w in shares)  # else the programme would not show
    assert alpha > 0.5 or min(shares) == 0


# --- new clients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "rounds"), [(8, 2), (3, 1)])
def test_new_clients(size, rounds, clients):
    """Two newcomers, one of one example; with a small cohort some known clients have never taken part."""
    alpha, (start, _, module) = 0.4, twin("MLP")
    algorithm, result = fit(PFedGraph, clients, rounds=1, cohort=size, alpha=alpha)
    new = {1000 + k: rows for k, rows in ragged_clients((1, 12), seed=5).items()}
    placed = fedlib.new_clients(algorithm, result, client_data(new), rounds, seed=SEED).state
    models, graph = slow(clients, "MLP", size, alpha, 0.01, rounds=1)
    known = [k for k in clients if k in graph]
    n = [len(clients[k][1]) for k in known]
    for i, (k, data) in enumerate(new.items()):
        own = mean([models[k] for k in known], n)
        for t in range(1, rounds + 1):
            own = trained(module, own, data, k, fedlib.Key(SEED, t))
        moved = [flat(model) - flat(start) for model in (*(models[j] for j in known), own)]
        sizes = np.array([*n, len(data[1])])
        w = solve(cosines(moved[-1], moved), sizes / sizes.sum(), alpha)
        assert largest_difference(row(placed.models, i), mean([*(models[j] for j in known), own], w)) <= 1e-10
        expected = [dict(zip(known, w, strict=False)).get(j, 0.0) for j in clients]
        assert np.abs(placed.graph[i].numpy() - expected).max() <= 1e-10
        assert 0.01 < w[-1] < 0.99
    assert len(known) == size and placed.assignment.tolist() == [0, 1]


def test_new_clients_of_a_federation_in_which_all_were_lost(clients):
    """Everybody counts with the start. The newcomer's cosine with itself is 1, and 0 with those that never moved."""
    params, predict, module = twin("MLP")
    algorithm = make(PFedGraph)
    state, new = algorithm.init(params, client_data(clients), fedlib.Key(SEED)), ragged_clients((9,))[10]
    placed = algorithm.new_clients(state, client_data({1000: new}), fedlib.Key(SEED), 1)
    own, n = trained(module, params, new, 1000, fedlib.Key(SEED, 1)), np.array([*SIZES, 9])
    w = solve(np.append(np.zeros(8), 1.0), n / n.sum(), algorithm.alpha)
    assert largest_difference(row(placed.models, 0), mean([own, params], [w[-1], 1 - w[-1]])) <= 1e-12


# --- what equals what -------------------------------------------------------------------------------------------------


def test_from_which_alpha_on_nobody_else_counts():
    """As the page names it. What the models are at both ends says `test_limits`."""
    cosines, n = torch.tensor([[1.0, 0.2]]).double(), torch.tensor([3, 1])
    limit = (1 - 0.2) / (2 * (1 - 3 / 4 + 1 / 4))
    rules = (make(PFedGraph, alpha=limit * by) for by in (0.999, 1.001))
    alone, others = (rule.weights(cosines, n)[0, 0] for rule in rules)
    assert alone == 1 > others > 0.99
