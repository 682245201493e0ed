"""What chapter 15 says of its grid, and what its table of ten federations rests on."""

from functools import partial

from book.claiming import HOLDS, OPPOSITE, OURS, UNDECIDED, average, between, claim, every, gaps, same, says, values

PAGE = "notebooks/15_choosing.ipynb"
GRID = "scoreboard", "grid"
ALWAYS_FOUR = "FeSEM", "FedGroup", "k-means"
FINDERS = OURS, "IFCA", "PACFL", "FedSGCNN", "pFedGraph", *ALWAYS_FOUR
FIRST_FIVE = ["equal clients", "unequal sizes", "writers", "label skew", "styles"]
FEW = "label names, few take part"
COLUMNS = "columns without names"


def so(word, kinds, *methods, other="FedAvg"):
    """The verdict on "is better than the other" is this word for each method, with each of these kinds of clients."""
    return says(word, (*GRID, kinds), methods, other, "accuracy")


gains, loses = partial(so, HOLDS), partial(so, OPPOSITE)


@claim
def best(read, kind, *methods, among=None):
    """None of the others is significantly above these; of fine-tuning the chapter gives no verdict."""
    rows = read("scoreboard")["grid"][kind]
    others = among or [m for m in rows if m not in ("FedAvg", "FedAvg, fine-tuned") and not m.endswith("groups")]
    return HOLDS not in [gap["verdict"] for gap in gaps(read, (*GRID, kind), others, methods, "accuracy")]


def wins(kind, *methods):
    """They are better than FedAvg, and none of the others is better than they."""
    return every(gains(kind, *methods), best(kind, *methods))


def clusters(number, *kinds, of):
    """So many in every seed."""
    return between(number, number, *GRID, [*kinds], [*of], "clusters")


def all_ran(read):
    """Twenty methods, ten kinds and five seeds."""
    found = read("scoreboard")["grid"]
    names = {m for rows in found.values() for m in rows if not m.endswith("groups")}
    seeds = {len(values(row, "accuracy")) for rows in found.values() for row in rows.values()}
    sent = values(found, "equal clients", "FedAvg", "kB up")
    return (len(found), len(names), seeds) == (10, 20, {5}) and min(sent) > 0


CLAIMS = {
    # ---- the live columns, whose words hold of the stored seeds as well ----
    "With rotations, PACFL reaches the true groups; with label names it stays at FedAvg, and split-half CFL is "
    "near the true groups.": every(
        same((*GRID, "rotations"), "PACFL", "true groups", "accuracy"),
        same((*GRID, "label names"), "PACFL", "FedAvg", "accuracy"),
        between(1, 1, [(*GRID, "rotations", "PACFL"), (*GRID, "label names", OURS)], "ARI"),
    ),
    "In *label names* it makes a single group, because images look alike in all groups, and so it equals FedAvg. "
    "There split-half CFL comes near the true groups. With *rotations*, random groups fall behind FedAvg.": every(
        clusters(1, "label names", of=["PACFL"]),
        so(UNDECIDED, "label names", OURS, other="true groups"),
        loses("rotations", "random groups"),
    ),
    "With *label names* FedAvg fails on most of its training images, and nearly every client loses.": every(
        average(0, 0.5, *GRID, "label names", "FedAvg", "accuracy"),
        average(0.9, 1, *GRID, "label names", "FedAvg", "negative transfer"),
    ),
    # ---- the table of ten federations ----
    "| 1 | are alike (*equal clients*) | FedAvg, FedAdam |": best("equal clients", "FedAvg", "FedAdam"),
    "| 2 | differ in size or handwriting (*unequal sizes*, *writers*) | FedAdam |": every(
        wins("unequal sizes", "FedAdam"), wins("writers", "FedAdam")
    ),
    "| 3 | differ in class frequencies (*label skew*) | FedAdam, SCAFFOLD; if tested on their own classes": every(
        gains("label skew", "FedAdam", "SCAFFOLD"), best("label skew", "FedAdam", "Ditto")
    ),
    "| 4 | each mix several looks (*styles*) | FedAvg, FedAdam |": best("styles", "FedAvg", "FedAdam"),
    "look different in groups (*rotations*) | PACFL |": wins("rotations", "PACFL"),
    "| 6 | lack some of the columns (*features by position*) | FedAdam |": wins("features by position", "FedAdam"),
    "| 7 | have columns that no one has matched (*columns without names*) | alone, LG-FedAvg |": every(
        gains(COLUMNS, "alone", "LG-FedAvg"), best(COLUMNS, "alone"), so(UNDECIDED, COLUMNS, "LG-FedAvg", other="alone")
    ),
    "| 9 | contradict each other (*label names*) | split-half CFL (ours), pFedGraph; k-means on updates if": wins(
        "label names", OURS, "pFedGraph", "k-means"
    ),
    "| 10 | the same, and few take part | k-means or FeSEM; IFCA if updates must stay hidden |": every(
        gains(FEW, "k-means", "FeSEM", "IFCA"), so(UNDECIDED, FEW, "k-means", "FeSEM", other="true groups")
    ),
    "CFL compares the updates of a whole cluster in one round. If few clients take part, it never splits.": every(
        clusters(1, FEW, of=[OURS]), clusters(4, "label names", of=[OURS])
    ),
    # ---- the grid ----
    "We ran twenty methods in ten federations, with five seeds and 150 rounds.": all_ran,
    "In the first five, no method that groups clients is significantly better than FedAvg, and those that always make "
    "four groups (FeSEM, FedGroup, k-means) lose.": every(
        *(best(kind, "FedAvg", among=FINDERS) for kind in FIRST_FIVE),
        loses(FIRST_FIVE, *ALWAYS_FOUR),
        clusters(4, *FIRST_FIVE, of=ALWAYS_FOUR),
    ),
    "In *rotations* and *label names* these three beat it.": gains(["rotations", "label names"], *ALWAYS_FOUR),
}
