"""What chapter 13 says of its stored results."""

from book.claiming import every, mean, shows, verdict

from book import claiming

PAGE = "notebooks/13_different_networks.ipynb"
BOARD = "scoreboard"


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


CLAIMS = [
    ("from 7 points below training alone to 4 above.", extremes),
    ("LG-FedAvg sends as much as FedProto on images and mostly does as well or better.", as_many_kilobytes),
    (
        "FedProto reaches 0.727 and training alone 0.736, which cannot be distinguished.",
        every(board("0.727", "FedProto"), board("0.736", "alone"), proto("undecided", "alone")),
    ),
    (
        "With label skew FedAvg reaches 0.890, for twenty times the kilobytes.",
        every(board("0.890", "FedAvg"), proto("the opposite holds", "FedAvg"), twenty_times),
    ),
    (
        "It gains 3.6 points with unequal sizes and 2.9 with rotations, but loses 7 with writers and 5 with columns "
        "without names.",
        every(
            *(points(*place) for place in (("3.6", "unequal sizes"), ("2.9", "rotations"))),
            *(proto("holds", "alone", kind) for kind in ("unequal sizes", "rotations")),
            *(points(*place) for place in (("-7", "writers"), ("-5", "columns without names"))),
            *(proto("the opposite holds", "alone", kind) for kind in ("writers", "columns without names")),
        ),
    ),
]

GIVEN = [
    "($\\lambda = 0$)",
]
