"""Chapter 12's distances and scores of pairs, which its experiment holds, against plain loops."""

import math

import numpy as np
import pytest
import torch
from twins import close, normal

from book.experiments import pair_predictors as chapter
from fedlib.server.transfer import all_pairs


def slow_auc(negative, distance):
    told = list(zip(distance, negative, strict=True))
    wins = [(d > e) + (d == e) / 2 for d, a in told if a for e, b in told if not b]
    return sum(wins) / len(wins) if wins else math.nan


# ---- distances ----


def square(distance, clients):
    rows = [[float(distance(i, j)) for j in range(clients)] for i in range(clients)]
    return torch.tensor(rows, dtype=torch.float64)


def test_distances_by_double_loops():
    flat = normal(7, 5)
    close(chapter.l2_distance(flat), square(lambda i, j: (flat[i] - flat[j]).norm(), 7))


def test_hand_made_numbers():
    layers = ["dense2", "dense3"]
    some = {f"{layer}.{kind}": normal(7, 4, 2, seed=ord(kind[0])) for layer in layers for kind in ("weight", "bias")}
    some["dense3.weight"] = normal(7, 6, seed=1)
    found = chapter.hand_made(some, layers)
    for k in range(7):
        expected = []
        for layer in layers:
            w, b = (some[f"{layer}.{kind}"][k].numpy().ravel() for kind in ("weight", "bias"))
            expected += [w.mean(), w.std(), np.sqrt((w**2).sum()), np.quantile(w, 0.1), np.quantile(w, 0.9)]
            expected += [b.mean(), b.std(), np.sqrt((b**2).sum())]
        close(found[k], torch.tensor(expected, dtype=torch.float64))


# ---- learned distances ----

TRAINING, UNSEEN = torch.arange(12), torch.arange(12, 20)


def described(features, pairs):
    """Pair features, of features standardised on the training clients."""
    rows = features.numpy()
    seen = np.array([rows[k] for k in TRAINING])
    rows = (rows - seen.mean(0)) / seen.std(0)
    return np.array([np.concatenate([np.abs(rows[i] - rows[j]), rows[i] * rows[j]]) for i, j in pairs])


def planted(features=5, seed=0):
    """Two kinds of clients, seen in the first feature; pairs of different kinds lose."""
    f, kind = normal(20, features, seed=seed) * 3 + 10, np.arange(20) % 2
    f[:, 0] += 12 * torch.from_numpy(kind)
    pairs = all_pairs(20)
    across = kind[pairs[:, 0]] != kind[pairs[:, 1]]
    gain = np.where(across, -1, 1) + 0.3 * np.random.RandomState(seed).standard_normal(len(pairs))
    return f, pairs, gain


def check_distance(distance, features, pairs=None, expected=None):
    """Of all clients and of unseen ones, and as expected for these pairs."""
    d = distance(features)
    assert d.dtype == torch.float64 and torch.equal(d, d.T) and not d.diagonal().any()
    assert d.min() >= 0 and d.max() <= 1
    close(distance(features[UNSEEN]), d[12:, 12:])
    if pairs is not None:
        close(d[tuple(pairs.T)], torch.as_tensor(expected))


def test_ridge_regression_of_pairs():
    f, pairs, gain = planted()
    mine = chapter.between(pairs, TRAINING)
    gain[3] = -50  # a pair of training clients, which must not rule
    assert mine[3]
    x, y = described(f, pairs[mine].tolist()), gain[mine]
    bound = np.quantile(np.abs(y), 0.9)
    y = np.clip(y, -bound, bound) / bound

    def solve(x, y, alpha):
        centre = x.mean(0)
        w = np.linalg.solve((x - centre).T @ (x - centre) + alpha * np.eye(x.shape[1]), (x - centre).T @ (y - y.mean()))
        return lambda z: (z - centre) @ w + y.mean()

    def left_out(alpha):
        keep = ~np.eye(len(y), dtype=bool)
        return sum((solve(x[k], y[k], alpha)(x[i]) - y[i]) ** 2 for i, k in enumerate(keep))

    best = min(np.logspace(-1, 5, 13), key=left_out)
    expected = 1 / (1 + np.exp(solve(x, y, best)(described(f, pairs.tolist()))))
    check_distance(chapter.ridge_pairs(f, pairs[mine], gain[mine]), f, pairs, expected)


@pytest.mark.parametrize("features", [5, 200])
def test_learned_distances_know_unseen_clients(features):
    f, pairs, gain = planted(features)
    f[:, : features // 2] += 12 * (torch.arange(20) % 2)[:, None]  # a direction for principal components to find
    mine, test = chapter.between(pairs, TRAINING), chapter.between(pairs, UNSEEN)
    distance, other = (chapter.ridge_pairs(x, pairs[mine], gain[mine]) for x in (f, 3 * f + 1))
    check_distance(distance, f)
    told = distance(f)[tuple(pairs[test].T)]
    assert chapter.auc(gain[test] <= 0, told.numpy()) > 0.95
    close(other((3 * f + 1)[UNSEEN]), distance(f[UNSEEN]), 1e-6)


# ---- scores ----


def test_threshold_by_trying_all():
    random = np.random.RandomState(0)
    for _ in range(300):
        size = random.randint(1, 9)
        distance, negative = random.randint(0, 5, size) / 4, random.rand(size) < 0.5
        found = chapter.fit_threshold(distance, negative)
        tries = [-math.inf, *np.arange(-0.125, 1.2, 0.125), math.inf]
        accuracy = [((distance > t) == negative).mean() for t in tries]
        assert ((distance > found) == negative).mean() == max(accuracy)
        best = {tuple(distance > t) for t, a in zip(tries, accuracy, strict=True) if a == max(accuracy)}
        assert (distance > found).sum() == max(sum(b) for b in best)  # the smallest of equally good ones
    assert chapter.fit_threshold([0.2, 0.6], [False, True]) == pytest.approx(0.4)
    assert chapter.fit_threshold([0.2, 0.6], [True, True]) == -math.inf
    assert chapter.fit_threshold([0.2, 0.6], [False, False]) == math.inf


def test_scores_of_pairs():
    random = np.random.RandomState(0)
    for _ in range(50):
        negative, distance = random.rand(12) < 0.4, random.randint(0, 6, 12) / 5
        close(chapter.auc(negative, distance), float(slow_auc(negative, distance)))
    assert math.isnan(chapter.auc(np.array([True, True]), np.array([0.2, 0.8])))
    assert chapter.pair_accuracy([True, True, False, False], torch.tensor([0.2, 0.8, 0.9, 0.5]), 0.5) == 0.5
