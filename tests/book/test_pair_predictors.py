"""Chapter 12's distances and scores of pairs, which its experiment holds, against plain loops."""

import math

import numpy as np
import pytest
import torch
from twins import close, normal

from book.experiments import pair_predictors as chapter
from fedlib.server.transfer import all_pairs


def test_distances_by_double_loops():
    flat = normal(7, 5)
    close(chapter.l2_distance(flat), torch.stack([torch.stack([(a - b).norm() for b in flat]) for a in flat]))


@pytest.mark.parametrize("features", [5, 200])
def test_learned_distances_know_unseen_clients(features):
    """There are two kinds of clients, seen in half of the features; pairs of different kinds lose."""
    f, kind, pairs = normal(20, features) * 3 + 10, torch.arange(20) % 2, all_pairs(20)
    f[:, : features // 2] += 12 * kind[:, None]  # a direction for principal components to find
    across = kind[pairs[:, 0]] != kind[pairs[:, 1]]
    gain = np.where(across, -1, 1) + 0.3 * np.random.RandomState(0).standard_normal(len(pairs))
    mine, test = chapter.between(pairs, torch.arange(12)), chapter.between(pairs, torch.arange(12, 20))
    distance, other = (chapter.ridge_pairs(x, pairs[mine], gain[mine]) for x in (f, 3 * f + 1))
    d = distance(f)
    assert d.dtype == torch.float64 and torch.equal(d, d.T) and not d.diagonal().any()
    assert d.min() >= 0 and d.max() <= 1
    close(distance(f[12:]), d[12:, 12:])
    assert chapter.auc(gain[test] <= 0, d[tuple(pairs[test].T)].numpy()) > 0.95
    close(other(3 * f[12:] + 1), distance(f[12:]), 1e-6)


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
        wins = [(d > e) + (d == e) / 2 for d in distance[negative] for e in distance[~negative]]
        close(chapter.auc(negative, distance), float(np.mean(wins)))
    assert math.isnan(chapter.auc(np.array([True, True]), np.array([0.2, 0.8])))
    assert chapter.pair_accuracy([True, True, False, False], torch.tensor([0.2, 0.8, 0.9, 0.5]), 0.5) == 0.5
