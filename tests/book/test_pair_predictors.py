"""Chapter 12's distances and scores of pairs, which its experiment holds, against plain loops."""

import math

import numpy as np
import pytest
import torch
from twins import close, normal

from book.experiments import pair_predictors as chapter


def test_distances_by_double_loops():
    flat = normal(7, 5)
    close(chapter.l2_distance(flat), torch.stack([torch.stack([(a - b).norm() for b in flat]) for a in flat]))


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
