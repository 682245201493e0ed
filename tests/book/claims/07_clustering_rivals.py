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


def photos(read):
    """A run of CFL on all photos with each network."""
    f = read("cfl_photos_some")
    wider = f["others"]["wider: CFL, paper's schedule"]
    small = np.mean(f["accuracy"], axis=1)
    found = [one["splits"] == [50, 100, 150] and one["ARI"] == 1 for one in (f, wider)]
    before, after = f["rounds"].index(50), (small[-1], wider["accuracy"][-1])
    early = all(abs(curve[before] - 0.2) < 0.02 for curve in (small, wider["accuracy"]))
    return all(found) and early and shows(after[0], "0.48") and shows(after[1], "0.53")


def photos_of_rivals(read):
    """Clusters given from the start, and IFCA."""
    f = read("cfl_photos_some")
    given, ifca = (f["others"][f"five layers: {name}"] for name in ("true groups", "IFCA"))
    late = np.mean(f["accuracy"], axis=1)[-1] >= given["accuracy"][-1]
    ends = shows(max(given["accuracy"]), "0.49") and shows(given["accuracy"][-1], "0.46")
    return late and ends and shows(ifca["accuracy"][-1], "0.30") and 0 < ifca["ARI"] < 0.9


CLAIMS = [
    (
        "Split-half CFL and k-means on updates found all four groups in every seed, and so did FeSEM and FedGroup, "
        "which are not in the table.",
        chapter(alike),
    ),
    ("end within a point of each other and of clusters given from the start", chapter(alike)),
    ("on such clients they find the same groups as k-means", chapter(alike)),
    (
        "Random clusters of the same sizes stay below 0.36",
        chapter(lambda f: five(accuracies(f, "random clusters"), lambda v: v < 0.36)),
    ),
    ("It found the groups in four of five seeds.", chapter(once_stuck)),
    ("In the fifth, two groups share a model, and accuracy stays at 0.67.", chapter(once_stuck)),
    (
        "IFCA sends 2.4 times the megabytes of split-half CFL.",
        chapter(lambda f: shows(mean(f, "IFCA", "megabytes") / mean(f, OURS, "megabytes"), "2.4")),
    ),
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
    (
        "CFL found the four groups, and the mean accuracy rose from one in five before the first split to 0.48 "
        "(LeNet-5) and 0.53 (eight times the parameters), "
        "where the paper ends near 0.6.",
        photos,
    ),
    (
        "With clusters given from the start, LeNet-5 peaks at 0.49 and ends at 0.46, so splitting late costs nothing "
        "here. IFCA ends at 0.30, with groups sharing models.",
        photos_of_rivals,
    ),
]

GIVEN: list[str] = []
