"""What chapter 13 says of its stored results."""

from book.claiming import HOLDS, OPPOSITE, every, level, mean, printed, ratio, says, verdict

PAGE = "notebooks/13_different_networks.ipynb"
BOARD = "scoreboard", "grid"
SKEW = *BOARD, "label skew"


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


CLAIMS = {
    "LG-FedAvg sends as much as FedProto on images and mostly does as well or better.": as_many_kilobytes,
    "FedProto and training alone cannot be distinguished.": level(SKEW, "FedProto", "alone", "accuracy"),
    "With label skew FedAvg reaches 0.890, at twenty times the traffic.": every(
        printed(SKEW, {"FedAvg": "0.890"}, "accuracy"),
        proto(OPPOSITE, "FedAvg", "label skew"),
        ratio(19, 21, SKEW, "FedAvg", "FedProto", "kB down"),
    ),
    "Compared with training alone, it gains 3.6 points with unequal sizes and 2.9 with rotations, but loses 7 with "
    "writers and 5 with columns without names.": every(
        proto(HOLDS, "alone", "unequal sizes", "3.6"),
        proto(HOLDS, "alone", "rotations", "2.9"),
        proto(OPPOSITE, "alone", "writers", "-7"),
        proto(OPPOSITE, "alone", "columns without names", "-5"),
    ),
}

GIVEN = []
