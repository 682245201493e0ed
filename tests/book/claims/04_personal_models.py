"""What chapter 4 says of its stored results."""

from book.claiming import beats, every, level, mean, points

PAGE = "notebooks/04_personal_models.ipynb"
SKEW, NAMES = ("personal_models", "label skew"), ("personal_models", "label names")
LONGER = ("personal_models_longer", "writers")
OWN, WORST, ALL, NEW = "own", "worst decile", "all classes", "new"
TUNED = "FedAvg, fine-tuned"


def work(read):
    """Operations of Ditto over those of fine-tuning."""
    ditto, tuned = (mean(read(SKEW[0]), SKEW[1], name, "Gflops a client") for name in ("Ditto", TUNED))
    return 1.7 < ditto / tuned < 2.2


def one_rate(read):
    """All fine-tuned rows have the rate that was chosen for the training."""
    name = SKEW[0]
    return all(
        set(read(name)[kind][TUNED]["rate"].values()) == {read(name)["rates"][kind][TUNED]} == {0.9}
        for kind in (SKEW[1], NAMES[1])
    )


CLAIMS = [
    (
        "Under label skew, fine-tuning beats FedAvg on the own mix in all five seeds, by 4.4 points on average.",
        every(beats(SKEW, TUNED, "FedAvg", OWN), points(SKEW, TUNED, "FedAvg", OWN, "4.4")),
    ),
    (
        "For the worst tenth of the clients, the difference is not significant.",
        level(SKEW, TUNED, "FedAvg", WORST),
    ),
    (
        "On all classes, fine-tuning loses 16 points.",
        every(beats(SKEW, "FedAvg", TUNED, ALL), points(SKEW, "FedAvg", TUNED, ALL, "16")),
    ),
    (
        "With permuted labels, IFCA is 61 points ahead of FedAvg.",
        every(beats(NAMES, "IFCA", "FedAvg", OWN), points(NAMES, "IFCA", "FedAvg", OWN, "61")),
    ),
    (
        "fine-tuning alone brings 55.",
        every(beats(NAMES, TUNED, "FedAvg", OWN), points(NAMES, TUNED, "FedAvg", OWN, "55")),
    ),
    (
        "Clusters gain 6 points more and are ahead in all five seeds (the gain may be smaller, because of "
        "the flaw below).",
        every(beats(NAMES, "IFCA", TUNED, OWN), points(NAMES, "IFCA", TUNED, OWN, "6")),
    ),
    (
        "Under label skew, IFCA cannot be distinguished from FedAvg and is behind fine-tuning in all five seeds.",
        every(level(SKEW, "IFCA", "FedAvg", OWN), beats(SKEW, TUNED, "IFCA", OWN)),
    ),
    (
        "Under label skew, Ditto cannot be distinguished from fine-tuning, with about twice the computation. With "
        "permuted labels, it is behind fine-tuning.",
        every(level(SKEW, "Ditto", TUNED, OWN), work, beats(NAMES, TUNED, "Ditto", OWN)),
    ),
    (
        "FedRep is behind fine-tuning in both federations.",
        every(*(beats(world, TUNED, "FedRep", OWN) for world in (SKEW, NAMES))),
    ),
    (
        "Fine-tuning has the learning rate of the training, 0.9, the highest of three that were tried. Its rate was "
        "not tuned separately",
        one_rate,
    ),
    (
        "At the training rate, fine-tuning makes FedAvg worse on the writers' own characters.",
        beats(LONGER, "FedAvg", f"{TUNED} at the same rate", OWN, seeds=4),
    ),
    (
        "With its own rate, it beats FedAvg in all five seeds, by 3 points, and IFCA in all five seeds as well. The "
        "worst tenth gains 10 points.",
        every(
            beats(LONGER, TUNED, "FedAvg", OWN, WORST),
            points(LONGER, TUNED, "FedAvg", OWN, "3"),
            beats(LONGER, TUNED, "IFCA", OWN),
            points(LONGER, TUNED, "FedAvg", WORST, "10"),
        ),
    ),
]

GIVEN = [
    "at the learning rate of the training, 0.1, and once at a third of it",
    "Both axes begin at 0.3.",
    "Intervals are 95 % over seeds.",
    "the vertical axis begins at 0.6",
]
