"""What chapter 12 says of its stored results."""

from functools import partial

from book.claiming import every, mean, shows, values, verdict

from book import claiming

PAGE = "notebooks/12_who_helps_whom.ipynb"
NAME, OPPOSITE, QUARTER = "planted_transfer", "dose 1", "dose 0.25"
GROUPS, PAPER, BOOK = "AUC, groups", "Siamese GCN, paper", "Siamese GCN, book"
LATE, EARLY = "cosine, 100 epochs", "cosine, 10 epochs"


printed = partial(claiming.printed, (NAME, OPPOSITE))


def beats(a, b, score="R2", seeds=0):
    """As `claiming.beats`, in R2."""
    return claiming.beats((NAME, OPPOSITE), a, b, score, seeds=seeds)


def undecided(a, b, score="R2", within=0.2):
    """As `claiming.level`, in R2."""
    return claiming.level((NAME, OPPOSITE), a, b, score, within=within)


def lengths_say_nothing(read):
    """After 10 epochs and after 100, in forty seeds each."""
    found = read("planted_transfer_lengths")[OPPOSITE]
    rows = [f"length, {epochs} epochs" for epochs in (10, 100)]
    seeds = {len(values(found, row, GROUPS)) for row in rows} == {40}
    calm = all(
        verdict(found, (row, GROUPS), 0.5) != "holds" and abs(mean(found, row, GROUPS) - 0.5) < 0.05 for row in rows
    )
    return seeds and calm and shows(mean(found, rows[1], GROUPS), "0.50")


def every_run_is_one_federation(read):
    """DBSCAN's clusters, and the score that follows."""
    found = read(NAME)[OPPOSITE]
    one = values(found, f"{PAPER}, DBSCAN", "clusters")
    return one == [1] * 5 and values(found, f"{PAPER}, DBSCAN", "R2") == values(found, "LG-FedAvg", "R2")


def nobody_tells_the_groups(read):
    """No distance is decidedly above one half."""
    found = read(NAME)[QUARTER]
    rows = [row for row, scores in found.items() if GROUPS in scores and row != "true groups"]
    return len(rows) == 12 and all(
        verdict(found, (row, GROUPS), 0.5) != "holds" and 0.4 < mean(found, row, GROUPS) < 0.6 for row in rows
    )


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
        "The true groups reach an $R^2$ of 0.51, clients alone 0.35, and all together 0.15, "
        "in this order in every seed.",
        every(
            printed("0.51", "true groups", "R2"),
            printed("0.35", "standalone", "R2"),
            printed("0.15", "LG-FedAvg", "R2"),
            beats("true groups", "standalone", seeds=5),
            beats("standalone", "LG-FedAvg", seeds=5),
        ),
    ),
    (
        "Of all pairs across the groups, 97 % lose.",
        lambda read: shows(100 * mean(read(NAME)[OPPOSITE], "pairs", "share that loses across"), "97"),
    ),
    (
        "has an AUC of 0.69, clearly above one half",
        every(printed("0.69", PAPER, GROUPS), beats(PAPER, 0.5, GROUPS)),
    ),
    (
        "But the cosine, which measures and learns nothing, reaches 0.82 at ten epochs and 0.96 after a hundred.",
        every(
            printed("0.82", EARLY, GROUPS),
            printed("0.96", LATE, GROUPS),
            beats(EARLY, PAPER, GROUPS, seeds=5),
            beats(LATE, PAPER, GROUPS, seeds=5),
        ),
    ),
    (
        "from networks of 10 and of 100 epochs, reaches 0.92 and cannot be distinguished from the cosine",
        every(printed("0.92", BOOK, GROUPS), undecided(BOOK, LATE, GROUPS)),
    ),
    (
        "L2 distances do as well as the cosine, whereas lengths say nothing (0.50 over forty further seeds).",
        every(undecided("L2, 100 epochs", LATE, GROUPS, 0.05), lengths_say_nothing),
    ),
    ("made one cluster in all five seeds, so it *was* one federation of all", every_run_is_one_federation),
    (
        "it is far better than that, but cannot be distinguished from training alone",
        every(
            beats(PAPER, "LG-FedAvg", seeds=5),
            lambda read: mean(read(NAME)[OPPOSITE], PAPER, "R2") > 3 * mean(read(NAME)[OPPOSITE], "LG-FedAvg", "R2"),
            undecided(PAPER, "standalone"),
        ),
    ),
    (
        "The clusters of the cosine are better than training alone in every seed, and so is pFedGraph.",
        every(beats(LATE, "standalone", seeds=5), beats("pFedGraph", "standalone", seeds=5)),
    ),
    (
        "It is worse than training alone in every seed (0.28), although in four its groups are nearly right.",
        every(
            beats("standalone", "CFL, one cut", seeds=5),
            printed("0.28", "CFL, one cut", "R2"),
            lambda read: sum(v > 0.85 for v in values(read(NAME)[OPPOSITE], "CFL, one cut", "ARI")) == 4,
        ),
    ),
    (
        "In the paper's own setting its accuracy is 0.49",
        lambda read: shows(
            mean(read("fedsgcnn_paper")["Tables 2 and 3, own 4 rows"], "SGCNN, 20 clients", "accuracy"), "0.49"
        ),
    ),
    ("no distance in that experiment is clearly better than guessing the groups", nobody_tells_the_groups),
    (
        "its predictor is near chance. The AUC for pairs that lose is 0.50 on Boston Housing and 0.48 on diabetes",
        near_chance,
    ),
]

GIVEN = ["the paper has about 0.7."]
