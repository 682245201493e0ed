"""What chapter 7 says of its stored runs."""

import numpy as np
from book.claiming import OURS, between, each_seed, every, ratio, same, shows

PAGE = "notebooks/07_clustering_rivals.ipynb"
NAME, SCORE = "cfl", "test accuracy"
FOUND = [OURS, "k-means on updates", "FeSEM", "FedGroup"]


def accuracies(read, *rows):
    """Of all seeds."""
    return np.array([each_seed(read, NAME, row, SCORE) for row in rows])


def alike(read):
    """They found the groups and end within a point of each other and of given clusters, seed by seed."""
    found = set(each_seed(read, NAME, FOUND, "ARI")) == {1}
    return found and np.ptp(accuracies(read, *FOUND, "true groups"), axis=0).max() < 0.01


def once_stuck(read):
    """IFCA misses the groups in one seed."""
    wrong = accuracies(read, "IFCA")[0, np.array(each_seed(read, NAME, "IFCA", "ARI")) < 1]
    return len(wrong) == 1 and shows(wrong[0], "0.67")


def uneven(read):
    """The worst and the best seed."""
    ends = accuracies(read, "FedEM")
    return shows(ends.min(), "0.43") and shows(ends.max(), "0.82")


CLAIMS = {
    "Split-half CFL, k-means on updates, FeSEM and FedGroup (not shown) found them in every seed and end within a "
    "point of clusters given in advance.": alike,
    "Random clusters stay below 0.36": between(0, 0.36, NAME, "random clusters", SCORE),
    "It found the groups in four seeds.": once_stuck,
    "In the fifth, two groups share a model, and accuracy stays at 0.67.": once_stuck,
    "**PACFL is FedAvg here**, in every seed": same(NAME, "PACFL", "FedAvg", SCORE),
    "Its accuracy ranges from 0.43 to 0.82, at four times FedAvg's megabytes.": every(
        uneven, ratio(3.5, 4.5, NAME, "FedEM", "FedAvg", "megabytes")
    ),
    "all methods had 160 rounds": same(NAME, OURS, "IFCA", "rounds"),
}
