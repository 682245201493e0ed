"""What chapter 13 says of its stored results."""

from book.claiming import HOLDS, OPPOSITE, UNDECIDED, every, mean, says, verdict

PAGE = "notebooks/13_different_networks.ipynb"
BOARD = "scoreboard", "grid"


def proto(word, rival, kind, points=""):
    """Of "FedProto is better than this rival" on the scoreboard."""
    return says(word, (*BOARD, kind), "FedProto", rival, "accuracy", points=points)


def as_many_kilobytes(read):
    """Where clients hold images: FedProto's and LG-FedAvg's; and the latter's accuracy."""
    images = {kind: rows for kind, rows in read("scoreboard")["grid"].items() if kind != "columns without names"}
    sent = [
        [mean(rows, m, f"kB {way}") for rows in images.values() for way in ("down", "up")]
        for m in ("FedProto", "LG-FedAvg")
    ]
    better = [verdict(rows, ("FedProto", "accuracy"), ("LG-FedAvg", "accuracy")) for rows in images.values()]
    alike = all(abs(ours / theirs - 1) < 0.01 for ours, theirs in zip(*sent, strict=True))
    return alike and len(images) == 9 and better.count(HOLDS) == 1


def nets(word, a, *scores, **more):
    """Of "this method is better than training alone" with two architectures."""
    return says(word, "different_networks", a, "alone", *scores, **more)


EARLY, LATE = ["dense, 20", "convolutional, 20"], ["dense, 60", "convolutional, 60"]

CLAIMS = {
    "LG-FedAvg sends as much on images, and mostly does as well or better.": as_many_kilobytes,
    "in most runs the pull speeds them up": nets(HOLDS, "FedProto", EARLY[1], seeds=9),
    "After 20 rounds the convolutional networks are 7.9 points better than alone": nets(
        HOLDS, "FedProto", EARLY[1], points="7.9"
    ),
    "but after 60 a gain is no longer certain": nets(UNDECIDED, "FedProto", LATE[1], half=0.03),
    "The dense networks gain nothing at either time.": nets(
        UNDECIDED, "FedProto", EARLY[0], LATE[0], within=0.005, half=0.01
    ),
    "**Averaging within an architecture** loses to training alone": nets(
        OPPOSITE, "FedAvg by architecture", *EARLY, *LATE
    ),
    "FedProto gains 3.6 points over training alone with unequal sizes but loses 7 with writers": every(
        proto(HOLDS, "alone", "unequal sizes", "3.6"), proto(OPPOSITE, "alone", "writers", "-7")
    ),
}

GIVEN = []
