"""What chapter 11 says of its stored results."""

from functools import partial

from book.claiming import every, mean

from book import claiming

PAGE = "notebooks/11_different_columns.ipynb"
NAME = "feature_spaces"
PLAIN, OWN = "diabetes, as dealt: ", "diabetes, own signs: "


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


CLAIMS = [
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
        "Where columns have names, FedAvg can average first layers by name and reaches 0.252.",
        every(
            printed("0.252", PLAIN + "FedAvg by name", "chosen"),
            beats(PLAIN + "FedAvg by name", PLAIN + "LG-FedAvg", "chosen"),
        ),
    ),
    (
        "With 48 rows per client the gain is gone.",
        every(
            gains(6, 0.115, 0.125),
            gains(48, -0.05, 0.001),
            beats("diabetes, 6 rows: LG-FedAvg", "diabetes, 6 rows: standalone", "chosen", seeds=4),
            undecided("diabetes, 48 rows: LG-FedAvg", "diabetes, 48 rows: standalone", "chosen"),
        ),
    ),
    ("about three clients of ten are worse off with it", three_of_ten),
    ("when each client codes its columns in its own way, FedAvg by position learns next to nothing", nothing_known),
    (
        "LG-FedAvg reaches 0.130 and standalone training 0.138, which cannot be distinguished.",
        every(
            printed("0.130", OWN + "LG-FedAvg", "chosen"),
            printed("0.138", OWN + "standalone", "chosen"),
            undecided(OWN + "LG-FedAvg", OWN + "standalone", "chosen"),
        ),
    ),
    (
        "The MMD had no significant effect on the score.",
        undecided("space: centroid", "space: no MMD", "R2"),
    ),
]

GIVEN = []
