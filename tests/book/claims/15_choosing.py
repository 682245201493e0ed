"""What chapter 15 says of its grid."""

from book.claiming import every, mean, shows, values, verdict

from book import claiming

PAGE = "notebooks/15_choosing.ipynb"
HOLDS, OPPOSITE, UNDECIDED = "holds", "the opposite holds", "undecided"
OURS = "split-half CFL (ours)"
FINDERS = OURS, "IFCA", "FeSEM", "FedGroup", "k-means", "PACFL", "FedSGCNN", "pFedGraph"
AGREE = "equal clients", "unequal sizes", "writers"
FEW = "label names, few take part"
KINDS = *AGREE, "label skew", "styles", "features by position", "rotations", "label names", FEW, "columns without names"


def grid(read):
    return read("scoreboard")["grid"]


def against(read, kind, method, other="FedAvg"):
    return verdict(grid(read)[kind], (method, "accuracy"), (other, "accuracy"))


def so(word, kind, *methods, other="FedAvg"):
    """The verdict on "is better than the other" is this word for each method."""
    return lambda read: all(against(read, kind, method, other) == word for method in methods)


def prints(text, kind, method, score="accuracy"):
    """A mean of the grid is printed so."""
    return claiming.printed(("scoreboard", "grid", kind), text, method, score)


def points(text, kind, method, other="FedAvg"):
    """Difference of two means in points."""
    return claiming.points(("scoreboard", "grid", kind), method, other, "accuracy", text)


def none_beats(kinds, methods):
    return lambda read: not any(against(read, k, m) == HOLDS for k in kinds for m in methods if m in grid(read)[k])


def others(read, kind):
    return [m for m in grid(read)[kind] if m != "FedAvg" and not m.endswith("groups")]


def no_row_is_orange(read):
    """Each method's mean is not above FedAvg's in some column, though most methods beat it in another."""
    found, winners = grid(read), 0
    for m in others(read, "rotations"):
        means = {k: (mean(c[m], "accuracy"), mean(c["FedAvg"], "accuracy")) for k, c in found.items() if m in c}
        if all(own > fedavg for own, fedavg in means.values()):
            return False
        winners += against(read, "label names", m) == HOLDS
    return winners > 10


def same_scores(kind, a, b):
    return lambda read: values(grid(read), kind, a, "accuracy") == values(grid(read), kind, b, "accuracy")


def as_many_as(kind, method, wanted):
    """So many clusters in every seed."""
    return lambda read: set(values(grid(read), kind, method, "clusters")) == {wanted}


def highest(kind, method):
    def holds(read):
        means = {m: mean(grid(read), kind, m, "accuracy") for m in others(read, kind)}
        return max(means, key=means.get) == method

    return holds


def largest_rate(read):
    """In so many columns FedAvg chose the largest of its rates."""
    rates = [column["FedAvg"] for column in read("scoreboard")["rates"].values()]
    return len(rates) == 10 and rates.count(max(rates)) == 6


def keep_layers_at_home(read):
    """What these lose to FedAvg, in points."""
    six = list(grid(read))[:6]
    lost = [
        100 * (mean(grid(read), kind, "FedAvg", "accuracy") - mean(grid(read), kind, method, "accuracy"))
        for kind in six
        for method in ("FedProto", "LG-FedAvg", "FedSGCNN")
    ]
    return shows(min(lost), "12") and shows(max(lost), "46")


SERVERS = every(
    *(so(HOLDS, kind, "FedAdam") for kind in ("unequal sizes", "label skew", "writers", "features by position")),
    so(UNDECIDED, "equal clients", "FedAdam"),
)

CLAIMS = [
    # ---- the live columns, whose words hold of the stored seeds as well ----
    (
        "With rotated images, PACFL does as well as the true groups, and random groups fall behind one model for all.",
        every(same_scores("rotations", "PACFL", "true groups"), so(OPPOSITE, "rotations", "random groups")),
    ),
    ("a client that continues alone with twenty images forgets some", so(OPPOSITE, "rotations", "FedAvg, fine-tuned")),
    (
        "With permuted labels, PACFL is level with FedAvg, far below clients alone. "
        "The right groups bring more than anything else.",
        every(
            same_scores("label names", "PACFL", "FedAvg"),
            so(HOLDS, "label names", "alone"),
            lambda read: all(
                against(read, "label names", m, "true groups") != HOLDS for m in others(read, "rotations")
            ),
        ),
    ),
    (
        "so it makes one cluster",
        as_many_as("label names", "PACFL", 1.0),
    ),
    (
        "FedAvg and FedAdam are far below *alone*",
        every(*(so(OPPOSITE, "label names", m, other="alone") for m in ("FedAvg", "FedAdam"))),
    ),
    # ---- the grid ----
    ("No method is orange everywhere", no_row_is_orange),
    (
        "With equal clients, unequal sizes, real writers and styles, no method that finds clusters of clients beats "
        "FedAvg.",
        none_beats((*AGREE, "styles"), FINDERS),
    ),
    (
        "(FedCG, which finds domains of images, gains 0.8 points for writers.)",
        every(so(HOLDS, "writers", "FedCG"), points("0.8", "writers", "FedCG")),
    ),
    (
        "FedAdam beats FedAvg with unequal sizes, with label skew, for writers (by 3.7 points) "
        "and with features by position",
        every(SERVERS, points("3.7", "writers", "FedAdam")),
    ),
    (
        "SCAFFOLD does so for writers and with label skew",
        every(so(HOLDS, "writers", "SCAFFOLD"), so(HOLDS, "label skew", "SCAFFOLD")),
    ),
    (
        "With equal clients, nothing beats FedAvg",
        lambda read: not any(against(read, "equal clients", m) == HOLDS for m in others(read, "equal clients")),
    ),
    (
        "FedGroup, which makes four clusters, loses 6.0 points there",
        every(points("-6.0", "equal clients", "FedGroup"), as_many_as("equal clients", "FedGroup", 4.0)),
    ),
    (
        "Fine-tuning has the highest mean, 0.920, and beats FedAvg by 3.0 points, but it "
        "cannot be distinguished from FedAdam",
        every(
            highest("label skew", "FedAvg, fine-tuned"),
            prints("0.920", "label skew", "FedAvg, fine-tuned"),
            points("3.0", "label skew", "FedAvg, fine-tuned"),
            so(HOLDS, "label skew", "FedAvg, fine-tuned"),
            so(UNDECIDED, "label skew", "FedAdam", other="FedAvg, fine-tuned"),
        ),
    ),
    (
        "PACFL, which mistakes different digits for different kinds of images, loses 11 points",
        every(points("-11", "label skew", "PACFL"), so(OPPOSITE, "label skew", "PACFL")),
    ),
    (
        "the same five local epochs cost 2.1 points",
        every(
            points("-2.1", "equal clients", "FedAvg, fine-tuned"), so(OPPOSITE, "equal clients", "FedAvg, fine-tuned")
        ),
    ),
    (
        "PACFL finds the true groups in all five seeds and has their accuracy, 0.824, against FedAvg's 0.631",
        every(
            lambda read: values(grid(read), "rotations", "PACFL", "ARI") == [1.0] * 5,
            same_scores("rotations", "PACFL", "true groups"),
            prints("0.824", "rotations", "PACFL"),
            prints("0.631", "rotations", "FedAvg"),
        ),
    ),
    (
        "pFedGraph is level with it",
        every(so(UNDECIDED, "rotations", "pFedGraph", other="PACFL"), so(HOLDS, "rotations", "pFedGraph")),
    ),
    (
        "Split-half CFL finds the groups in three seeds and leaves two together in the others. It gains 14.5 points on "
        "FedAvg, but is behind PACFL",
        every(
            lambda read: sorted(values(grid(read), "rotations", OURS, "clusters")) == [3, 3, 4, 4, 4],
            lambda read: values(grid(read), "rotations", OURS, "ARI").count(1.0) == 3,
            points("14.5", "rotations", OURS),
            so(HOLDS, "rotations", OURS),
            so(OPPOSITE, "rotations", OURS, other="PACFL"),
        ),
    ),
    (
        "FedAvg falls to 0.214, and 0.95 of the clients would have done better alone",
        every(prints("0.214", "label names", "FedAvg"), prints("0.95", "label names", "FedAvg", "negative transfer")),
    ),
    ("True groups reach 0.821", prints("0.821", "label names", "true groups")),
    (
        "pFedGraph, k-means, FeSEM and split-half CFL cannot be distinguished from them, and IFCA finds the groups in "
        "three seeds of five",
        every(
            lambda read: values(grid(read), "label names", "IFCA", "ARI").count(1.0) == 3,
            so(UNDECIDED, "label names", "pFedGraph", "k-means", "FeSEM", OURS, other="true groups"),
        ),
    ),
    (
        "PACFL has FedAvg's accuracy to the last digit, because it sees nothing to split",
        every(same_scores("label names", "PACFL", "FedAvg"), as_many_as("label names", "PACFL", 1.0)),
    ),
    (
        "FeSEM and k-means still reach the true groups. Split-half CFL stays at FedAvg",
        every(
            so(UNDECIDED, FEW, "FeSEM", "k-means", other="true groups"),
            so(UNDECIDED, FEW, OURS),
            as_many_as(FEW, OURS, 1.0),
        ),
    ),
    (
        "loses 13.0 points against training alone",
        every(points("-13.0", "columns without names", "FedAvg", "alone"), so(HOLDS, "columns without names", "alone")),
    ),
    (
        "Keeping the first layer local and sharing the rest (LG-FedAvg; here also split-half CFL and both controls) "
        "avoids that, but cannot be distinguished from training alone",
        every(
            so(HOLDS, "columns without names", "LG-FedAvg"),
            so(UNDECIDED, "columns without names", "LG-FedAvg", other="alone"),
        ),
    ),
    (
        "Even the true groups are 1.7 points above *alone*, which is not significant",
        every(
            points("1.7", "columns without names", "true groups", "alone"),
            so(UNDECIDED, "columns without names", "true groups", other="alone"),
        ),
    ),
    (
        "FeSEM, k-means and FedGroup (chapter 7) make as many clusters as they are told, which is the true number "
        "where there are groups, and they lose where clients are equal.",
        every(
            so(OPPOSITE, "equal clients", "FeSEM", "k-means", "FedGroup"),
            *(as_many_as("equal clients", method, 4.0) for method in ("FeSEM", "k-means", "FedGroup")),
            as_many_as("columns without names", "k-means", 2.0),
        ),
    ),
    (
        "Split-half CFL splits only in *rotations* and *label names*, because in seven columns too few take part, "
        "and in *columns without names* it is LG-FedAvg.",
        every(
            as_many_as("label names", OURS, 4.0),
            *(as_many_as(kind, OURS, 1.0) for kind in KINDS if kind not in ("rotations", "label names")),
            same_scores("columns without names", OURS, "LG-FedAvg"),
        ),
    ),
    ("FedAvg's best was the largest in six columns", largest_rate),
    ("in the first six columns they lose 12 to 46 points", keep_layers_at_home),
    (
        "FedAdam and, in two columns, SCAFFOLD help one model, and FedProx in none. "
        "None can help where one model is wrong.",
        every(
            lambda read: sum(against(read, kind, "SCAFFOLD") == HOLDS for kind in grid(read)) == 2,
            none_beats(KINDS, ("FedProx",)),
            *(none_beats(("label names", FEW), ("FedAdam", "SCAFFOLD", "FedProx")),),
            prints("0.21", "label names", "FedAvg"),
        ),
    ),
]

GIVEN = ["For a number in brackets, the 95 % interval of the difference contains 0"]
