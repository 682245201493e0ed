"""What chapter 15 says of its grid, and what its table of ten federations rests on."""

from book.claiming import every, mean, values, verdict

PAGE = "notebooks/15_choosing.ipynb"
HOLDS, OPPOSITE, UNDECIDED = "holds", "the opposite holds", "undecided"
OURS = "split-half CFL (ours)"
FINDERS = OURS, "IFCA", "FeSEM", "FedGroup", "k-means", "PACFL", "FedSGCNN", "pFedGraph"
ALWAYS_FOUR = "FeSEM", "FedGroup", "k-means"
FIRST_FIVE = "equal clients", "unequal sizes", "writers", "label skew", "styles"
FEW = "label names, few take part"
TUNED_AGAIN = "FedAvg, fine-tuned"  # of which the chapter gives no verdict


def grid(read):
    return read("scoreboard")["grid"]


def against(read, kind, method, other="FedAvg"):
    return verdict(grid(read)[kind], (method, "accuracy"), (other, "accuracy"))


def so(word, kind, *methods, other="FedAvg"):
    """The verdict on "is better than the other" is this word for each method."""
    return lambda read: all(against(read, kind, method, other) == word for method in methods)


def none_beats(kinds, methods, other="FedAvg"):
    return lambda read: not any(against(read, k, m, other) == HOLDS for k in kinds for m in methods)


def others(read, kind):
    """What can be chosen instead of FedAvg."""
    return [m for m in grid(read)[kind] if m not in ("FedAvg", TUNED_AGAIN) and not m.endswith("groups")]


def best(kind, method):
    """No method is significantly above this one."""
    return lambda read: all(against(read, kind, m, method) != HOLDS for m in others(read, kind) if m != method)


def nothing_beats(kind):
    return lambda read: not any(against(read, kind, m) == HOLDS for m in others(read, kind))


def same_scores(kind, a, b):
    return lambda read: values(grid(read), kind, a, "accuracy") == values(grid(read), kind, b, "accuracy")


def as_many_as(kind, method, wanted):
    """So many clusters in every seed."""
    return lambda read: set(values(grid(read), kind, method, "clusters")) == {wanted}


def finds_the_groups(kind, method):
    return lambda read: values(grid(read), kind, method, "ARI") == [1.0] * 5


def less_than_half(kind, method):
    return lambda read: mean(grid(read), kind, method, "accuracy") < 0.5


def settings(read):
    """Twenty methods, ten kinds and five seeds."""
    found = grid(read)
    names = {m for column in found.values() for m in column if not m.endswith("groups")}
    seeds = {len(values(found, kind, m, "accuracy")) for kind in found for m in found[kind]}
    return (
        len(found) == 10 and len(names) == 20 and seeds == {5} and mean(found, "equal clients", "FedAvg", "kB up") > 0
    )


CLAIMS = [
    # ---- the live columns, whose words hold of the stored seeds as well ----
    (
        "With rotations, PACFL reaches the true groups; with label names it stays at FedAvg, and split-half CFL is "
        "near the true groups.",
        every(
            same_scores("rotations", "PACFL", "true groups"),
            finds_the_groups("rotations", "PACFL"),
            same_scores("label names", "PACFL", "FedAvg"),
            finds_the_groups("label names", OURS),
        ),
    ),
    (
        "In *label names* it makes a single group, because images look alike in all of them, and so it equals FedAvg. "
        "There split-half CFL comes near the true groups. With *rotations*, random groups fall behind FedAvg.",
        every(
            as_many_as("label names", "PACFL", 1.0),
            so(UNDECIDED, "label names", OURS, other="true groups"),
            so(OPPOSITE, "rotations", "random groups"),
        ),
    ),
    (
        "With *label names* FedAvg fails on most of its training images, and nearly every client loses.",
        every(
            less_than_half("label names", "FedAvg"),
            lambda read: mean(grid(read), "label names", "FedAvg", "negative transfer") > 0.9,
        ),
    ),
    # ---- the table of ten federations ----
    (
        "| 1 | are alike (*equal clients*) | FedAvg, FedAdam |",
        every(nothing_beats("equal clients"), best("equal clients", "FedAdam")),
    ),
    (
        "| 2 | differ in size or handwriting (*unequal sizes*, *writers*) | FedAdam |",
        every(*(every(so(HOLDS, kind, "FedAdam"), best(kind, "FedAdam")) for kind in ("unequal sizes", "writers"))),
    ),
    (
        "| 3 | differ in class frequencies (*label skew*) | FedAdam, SCAFFOLD; if tested on their own classes",
        every(
            so(HOLDS, "label skew", "FedAdam", "SCAFFOLD"),
            best("label skew", "FedAdam"),
            best("label skew", "Ditto"),
        ),
    ),
    (
        "| 4 | each mix several looks (*styles*) | FedAvg, FedAdam,",
        every(nothing_beats("styles"), best("styles", "FedAdam")),
    ),
    (
        "| 5 | look different in groups (*rotations*) | PACFL |",
        every(so(HOLDS, "rotations", "PACFL"), best("rotations", "PACFL")),
    ),
    (
        "| 6 | lack some of the columns (*features by position*) | FedAdam |",
        every(so(HOLDS, "features by position", "FedAdam"), best("features by position", "FedAdam")),
    ),
    (
        "| 7 | have columns that no one has matched (*columns without names*) | alone, LG-FedAvg |",
        every(
            so(HOLDS, "columns without names", "alone", "LG-FedAvg"),
            best("columns without names", "alone"),
            so(UNDECIDED, "columns without names", "LG-FedAvg", other="alone"),
        ),
    ),
    (
        "| 9 | contradict each other (*label names*) | split-half CFL (ours); k-means on updates if you know",
        every(*(every(so(HOLDS, "label names", m), best("label names", m)) for m in (OURS, "k-means"))),
    ),
    (
        "| 10 | the same, and few take part | k-means or FeSEM; IFCA if updates must stay hidden |",
        every(
            so(HOLDS, FEW, "k-means", "FeSEM", "IFCA"),
            *(so(UNDECIDED, FEW, m, other="true groups") for m in ("k-means", "FeSEM")),
        ),
    ),
    (
        "CFL compares the updates of a whole cluster in one round. If few clients take part, it never splits.",
        every(as_many_as(FEW, OURS, 1.0), as_many_as("label names", OURS, 4.0)),
    ),
    # ---- the grid ----
    ("Twenty methods ran in ten federations, with five seeds and 150 rounds.", settings),
    (
        "In the first five, no method that groups clients beats FedAvg, and those that always make four groups (FeSEM, "
        "FedGroup, k-means) lose.",
        every(
            none_beats(FIRST_FIVE, FINDERS),
            *(so(OPPOSITE, kind, *ALWAYS_FOUR) for kind in FIRST_FIVE),
            *(as_many_as(kind, m, 4.0) for kind in FIRST_FIVE for m in ALWAYS_FOUR),
        ),
    ),
    (
        "In *rotations* and *label names* these three beat it.",
        every(*(so(HOLDS, kind, *ALWAYS_FOUR) for kind in ("rotations", "label names"))),
    ),
]

GIVEN: list[str] = []
