"""What the atlas says of methods by the scoreboard's figures."""

from book.claiming import every, mean, values

PAGE = "book/atlas.md"
AGREE = "equal clients", "label skew", "unequal sizes", "writers"


def grid(read):
    return read("scoreboard")["grid"]


def in_every_seed(ahead, behind, *kinds):
    """One method is ahead of the other in every seed, with each of these kinds of clients."""

    def holds(read):
        pairs = [
            zip(*(values(grid(read)[k], name, "accuracy") for name in (ahead, behind)), strict=True) for k in kinds
        ]
        return all(a > b for pair in pairs for a, b in pair)

    return holds


def near_training_alone(read):
    """Within eight points of it with each kind of clients."""
    gaps = [mean(g, "FedProto", "accuracy") - mean(g, "alone", "accuracy") for g in grid(read).values()]
    return all(abs(gap) < 0.08 for gap in gaps) and any(gap > 0 for gap in gaps) and any(gap < 0 for gap in gaps)


CLAIMS = [
    (
        "It finds turned images in every seed of the scoreboard; under label skew and with unequal sizes it parts "
        "clients that belong together, and stays behind FedAvg in every seed",
        every(
            in_every_seed("PACFL", "FedAvg", "rotations"),
            in_every_seed("FedAvg", "PACFL", "label skew", "unequal sizes"),
        ),
    ),
    (
        "On the scoreboard it is behind FedAvg in every seed with equal clients, label skew, unequal sizes and "
        "writers, and ahead of it in every seed where images are turned or classes have other names",
        every(
            in_every_seed("FedAvg", "pFedGraph", *AGREE),
            in_every_seed("pFedGraph", "FedAvg", "rotations", "label names", "label names, few take part"),
        ),
    ),
    (
        "on the scoreboard it stays within a few points of training alone, and behind FedAvg in every seed wherever "
        "one model is right",
        every(near_training_alone, in_every_seed("FedAvg", "FedProto", *AGREE)),
    ),
]

GIVEN: list[str] = []
