"""What chapter 12 says of its stored results."""

from book.claiming import every, mean, shows, values, verdict

from book import claiming

PAGE = "notebooks/12_who_helps_whom.ipynb"
NAME, OPPOSITE = "planted_transfer", "dose 1"
GROUPS, PAPER, BOOK = "AUC, groups", "Siamese GCN, paper", "Siamese GCN, book"
LATE, EARLY = "cosine, 100 epochs", "cosine, 10 epochs"


def beats(a, b, score="R2", seeds=0):
    """As `claiming.beats`, in R2."""
    return claiming.beats((NAME, OPPOSITE), a, b, score, seeds=seeds)


def undecided(a, b, score="R2", within=0.2):
    """As `claiming.level`, in R2."""
    return claiming.level((NAME, OPPOSITE), a, b, score, within=within)


def every_run_is_one_federation(read):
    """DBSCAN's clusters, and the score that follows."""
    found = read(NAME)[OPPOSITE]
    one = values(found, f"{PAPER}, DBSCAN", "clusters")
    return one == [1] * 5 and values(found, f"{PAPER}, DBSCAN", "R2") == values(found, "LG-FedAvg", "R2")


def near_chance(read):
    """The paper's recipe on clients that differ in columns and rows only."""
    figures = read("fedsgcnn")
    places = {"0.50": ("boston, scale 0: Siamese GCN, paper", "auc"), "0.48": ("diabetes, scale 0: " + PAPER, "auc")}
    return all(
        shows(mean(figures, *place), text) and verdict(figures, place, 0.5) == "undecided"
        for text, place in places.items()
    )


CLAIMS = [
    (
        "A federation of all does worse than training alone in every seed, and the true groups do better.",
        every(beats("standalone", "LG-FedAvg", seeds=5), beats("true groups", "standalone", seeds=5)),
    ),
    (
        "Even after ten epochs its AUC of 0.82 is above that of the paper's network in every seed",
        every(
            lambda read: shows(mean(read(NAME)[OPPOSITE], EARLY, GROUPS), "0.82"), beats(EARLY, PAPER, GROUPS, seeds=5)
        ),
    ),
    ("after a hundred its clusters beat training alone in every seed", beats(LATE, "standalone", seeds=5)),
    (
        "A Siamese network that learns the *size* of the gain (last row) draws level in AUC.",
        every(undecided(BOOK, LATE, GROUPS), beats(BOOK, PAPER, GROUPS)),
    ),
    ("At $\\varepsilon = 1/2$ it made one cluster of all clients in every seed.", every_run_is_one_federation),
    ("If only columns and rows differ, as in the paper, its predictor is near chance.", near_chance),
]

GIVEN: list[str] = []
