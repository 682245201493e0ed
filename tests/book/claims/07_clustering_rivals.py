"""What chapter 7 says of its stored runs."""

import numpy as np
from book.claiming import mean, shows, values

PAGE = "notebooks/07_clustering_rivals.ipynb"
OURS = "split-half CFL (ours)"
FOUND = OURS, "k-means on updates", "FeSEM", "FedGroup"


def chapter(function):
    """A claim about the digits."""
    return lambda read: function(read("cfl"))


def five(numbers, test):
    """Of five seeds."""
    return len(numbers) == 5 and all(test(v) for v in numbers)


def accuracies(f, name):
    """Of all seeds."""
    return values(f, name, "test accuracy")


def alike(f):
    """They found the groups and end within a point of each other and of given clusters, seed by seed."""
    ends = np.array([accuracies(f, name) for name in (*FOUND, "true groups")])
    return all(five(values(f, name, "ARI"), lambda v: v == 1) for name in FOUND) and np.ptp(ends, axis=0).max() < 0.01


def once_stuck(f):
    """IFCA misses the groups in one seed."""
    found, scores = values(f, "IFCA", "ARI"), accuracies(f, "IFCA")
    wrong = [a for a, ari in zip(scores, found, strict=True) if ari < 1]
    return len(found) == 5 and len(wrong) == 1 and shows(wrong[0], "0.67")


def uneven(f):
    """FedEM's worst and best seed, and what it sends."""
    ends = accuracies(f, "FedEM")
    times = mean(f, "FedEM", "megabytes") / mean(f, "FedAvg", "megabytes")
    alone = mean(f, "alone", "test accuracy")
    return shows(min(ends), "0.43") and shows(max(ends), "0.82") and shows(alone, "0.81") and shows(times, "4")


CLAIMS = [
    (
        "Split-half CFL and k-means on updates found all four groups in every seed, and so did FeSEM and FedGroup, "
        "which are not in the table.",
        chapter(alike),
    ),
    ("end within a point of each other and of clusters given from the start", chapter(alike)),
    (
        "Random clusters of the same sizes stay below 0.36",
        chapter(lambda f: five(accuracies(f, "random clusters"), lambda v: v < 0.36)),
    ),
    ("It found the groups in four of five seeds.", chapter(once_stuck)),
    ("In the fifth, two groups share a model, and accuracy stays at 0.67.", chapter(once_stuck)),
    (
        "**PACFL is FedAvg here** to the last digit, in every seed",
        chapter(lambda f: accuracies(f, "PACFL") == accuracies(f, "FedAvg")),
    ),
    (
        "After the same rounds, its accuracy ranges from 0.43 to 0.82, at four times FedAvg's megabytes, whereas a "
        "client alone has 0.81.",
        chapter(uneven),
    ),
    ("in which all methods had 160 rounds", chapter(lambda f: mean(f, OURS, "rounds") == mean(f, "IFCA", "rounds"))),
]

GIVEN: list[str] = []
