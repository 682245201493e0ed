"""What chapter 11 says of its stored results."""

from functools import partial

from book.claiming import every, mean, shows, values, verdict

from book import claiming

PAGE = "notebooks/11_different_columns.ipynb"
NAME = "feature_spaces"
PLAIN, OWN = "diabetes, as dealt: ", "diabetes, own signs: "
BOARD = "scoreboard"


printed = partial(claiming.printed, NAME)
beats = partial(claiming.beats, NAME)
undecided = partial(claiming.level, NAME, within=0.1, half=0.1)


def gains(rows, low, high):
    """What LG-FedAvg gains over training alone on diabetes, with so many rows a client."""

    def ask(read):
        ours, alone = (mean(read(NAME), f"diabetes, {rows} rows: {m}", "chosen") for m in ("LG-FedAvg", "standalone"))
        return low <= ours - alone < high

    return ask


def nothing_known(read):
    """An R2 of about 0 with habits of one's own; something is learned without them."""
    method = "FedAvg by position"
    return abs(mean(read(NAME), OWN + method, "chosen")) < 0.03 < 0.1 < mean(read(NAME), PLAIN + method, "chosen")


def three_of_ten(read):
    return all(
        0.25 <= mean(read(NAME), f"{table}, as dealt: LG-FedAvg", "worse than standalone") <= 0.35
        for table in ("diabetes", "breast_cancer")
    )


OTHER = "MMD^2, other group"


def closer_by_less_than_a_tenth(read):
    ours, plain = (mean(read(NAME), f"space: {n}", OTHER) for n in ("centroid", "no MMD"))
    return 0.9 < ours / plain < 1


def half_the_spread(read):
    strong, plain = (mean(read(NAME), f"space: {n}", "spread") for n in ("centroid, weight 20", "no MMD"))
    return 0.45 < strong / plain < 0.6


def board(text, method, kind="label skew"):
    """The mean accuracy on the scoreboard is printed so."""
    return lambda read: shows(mean(read(BOARD), "grid", kind, method, "accuracy"), text)


def proto(wanted, rival, kind="label skew"):
    """Of "FedProto is better than this rival" on the scoreboard."""
    places = ("FedProto", "accuracy"), (rival, "accuracy")
    return lambda read: verdict(read(BOARD)["grid"][kind], *places) == wanted


def twenty_times(read):
    found = read(BOARD)["grid"]["label skew"]
    ours, all_of_it = (mean(found, m, "kB down") for m in ("FedProto", "FedAvg"))
    return 19 < all_of_it / ours < 21


def points(text, kind):
    """FedProto less training alone on the scoreboard."""

    return claiming.points((BOARD, "grid", kind), "FedProto", "alone", "accuracy", text)


def extremes(read):
    """FedProto less training alone, over all columns of the scoreboard."""
    gaps = [
        100 * (mean(found, "FedProto", "accuracy") - mean(found, "alone", "accuracy"))
        for found in read(BOARD)["grid"].values()
    ]
    return shows(min(gaps), "-7") and shows(max(gaps), "4")


def as_many_kilobytes(read):
    """Where clients hold images: FedProto's and LG-FedAvg's; and the latter's accuracy."""
    grid = read(BOARD)["grid"]
    images = [kind for kind in grid if kind != "columns without names"]
    sent = all(
        abs(mean(grid[kind], "FedProto", f"kB {way}") / mean(grid[kind], "LG-FedAvg", f"kB {way}") - 1) < 0.01
        for kind in images
        for way in ("down", "up")
    )
    better = [proto("holds", "LG-FedAvg", kind)(read) for kind in images]
    return sent and len(images) == 9 and sum(better) == 1


def still_rising(read):
    """By name on breast cancer validation chose the last round in three seeds of five."""
    chosen = values(read(NAME), "breast_cancer, as dealt: FedAvg by name", "round")
    return len(chosen) == 5 and chosen.count(40) == chosen.count(max(chosen)) == 3


def same_patient(read):
    """Distance of one row's embeddings at two clients, over that of two rows."""
    arms = ("space: at the start", "space: standalone", "space: no MMD", "space: centroid")
    return all(shows(mean(read(NAME), arm, "same row / other row"), "0.83") for arm in arms)


CLAIMS = [
    (
        "Two clients place the same patient 0.83 times as far apart as two different ones, with and without the MMD",
        same_patient,
    ),
    ("from 7 points below training alone to 4 above.", extremes),
    ("LG-FedAvg sends as much on images and mostly does as well or better.", as_many_kilobytes),
    (
        "In the chosen round LG-FedAvg reaches 0.198 and standalone training 0.132, "
        "with LG-FedAvg ahead in every seed.",
        every(
            printed("0.198", PLAIN + "LG-FedAvg", "chosen"),
            printed("0.132", PLAIN + "standalone", "chosen"),
            beats(PLAIN + "LG-FedAvg", PLAIN + "standalone", "chosen"),
        ),
    ),
    (
        "LG-FedAvg falls later and from a higher peak",
        every(*(beats(PLAIN + "LG-FedAvg", PLAIN + "standalone", what) for what in ("max", "last"))),
    ),
    (
        "But where columns have names, FedAvg can average first layers by name and reaches 0.252.",
        every(
            printed("0.252", PLAIN + "FedAvg by name", "chosen"),
            beats(PLAIN + "FedAvg by name", PLAIN + "LG-FedAvg", "chosen"),
        ),
    ),
    (
        "On breast cancer LG-FedAvg classifies 0.839 of the test rows correctly, standalone training 0.802, "
        "and FedAvg by name 0.717 and rising.",
        every(
            still_rising,
            printed("0.717", "breast_cancer, as dealt: FedAvg by name", "chosen"),
            printed("0.839", "breast_cancer, as dealt: LG-FedAvg", "chosen"),
            printed("0.802", "breast_cancer, as dealt: standalone", "chosen"),
            beats("breast_cancer, as dealt: LG-FedAvg", "breast_cancer, as dealt: standalone", "chosen"),
        ),
    ),
    (
        "With 48 rows per client the gain of LG-FedAvg on diabetes is gone.",
        every(
            gains(6, 0.115, 0.125),
            gains(48, -0.05, 0.001),
            beats("diabetes, 6 rows: LG-FedAvg", "diabetes, 6 rows: standalone", "chosen", seeds=4),
            undecided("diabetes, 48 rows: LG-FedAvg", "diabetes, 48 rows: standalone", "chosen"),
        ),
    ),
    ("about three clients of ten are worse off with it", three_of_ten),
    (
        "On diabetes with own habits, FedAvg falls to the level of knowing nothing, by position and by name.",
        every(nothing_known, lambda read: mean(read(NAME), OWN + "FedAvg by name", "chosen") < 0.01),
    ),
    ("when each client codes its columns by its own habit, FedAvg by position learns next to nothing", nothing_known),
    (
        "LG-FedAvg reaches 0.130 and standalone training 0.138, which cannot be distinguished.",
        every(
            printed("0.130", OWN + "LG-FedAvg", "chosen"),
            printed("0.138", OWN + "standalone", "chosen"),
            undecided(OWN + "LG-FedAvg", OWN + "standalone", "chosen"),
        ),
    ),
    (
        "Training the first layers alone beforehand does not help (0.130 again).",
        every(
            printed("0.130", OWN + "LG-FedAvg, warmed up", "chosen"),
            undecided(OWN + "LG-FedAvg", OWN + "LG-FedAvg, warmed up", "chosen"),
            undecided(OWN + "LG-FedAvg, warmed up", OWN + "standalone", "chosen"),
        ),
    ),
    (
        "Still, LG-FedAvg keeps a federation from collapsing.",
        beats(OWN + "LG-FedAvg", OWN + "FedAvg by position", "chosen"),
    ),
    (
        "$R^2$ is 0.151 with the paper's weight and 0.150 without",
        every(
            printed("0.151", "space: centroid", "R2"),
            printed("0.150", "space: no MMD", "R2"),
            undecided("space: centroid", "space: no MMD", "R2"),
        ),
    ),
    (
        "The clouds of the two groups come closer by less than a tenth of their squared MMD",
        every(closer_by_less_than_a_tenth, beats("space: no MMD", "space: centroid", OTHER)),
    ),
    (
        "while a client's traffic rises from 4 to 14 kB per round",
        every(printed("14", "space: centroid", "kB"), printed("4", "space: no MMD", "kB")),
    ),
    (
        "A weight of 20 halves the spread and loses in every seed.",
        every(half_the_spread, beats("space: no MMD", "space: centroid, weight 20", "R2")),
    ),
    (
        "On Boston Housing, the paper's own table, the effect is not significant either.",
        every(
            *(
                undecided(f"{who}: LG-FedAvg + MMD", f"{who}: LG-FedAvg", score)
                for who in ("groups", "random columns")
                for score in ("pooled", "cut", "median")
            )
        ),
    ),
    (
        "With label skew it reaches 0.727 and training alone 0.736, which cannot be distinguished.",
        every(board("0.727", "FedProto"), board("0.736", "alone"), proto("undecided", "alone")),
    ),
    (
        "FedAvg reaches 0.890, for twenty times the kilobytes.",
        every(board("0.890", "FedAvg"), proto("the opposite holds", "FedAvg"), twenty_times),
    ),
    (
        "FedProto gains 3.6 points with unequal sizes and 2.9 with rotations, but loses 7 with writers and 5 with "
        "columns without names.",
        every(
            *(points(*place) for place in (("3.6", "unequal sizes"), ("2.9", "rotations"))),
            *(proto("holds", "alone", kind) for kind in ("unequal sizes", "rotations")),
            *(points(*place) for place in (("-7", "writers"), ("-5", "columns without names"))),
            *(proto("the opposite holds", "alone", kind) for kind in ("writers", "columns without names")),
        ),
    ),
]

GIVEN = [
    "the weight $\\lambda$ of the MMD at 0, at the paper's 0.5, and at 20",
]
