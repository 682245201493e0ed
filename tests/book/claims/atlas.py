"""What the atlas says of methods by the scoreboard's figures."""

from book.claiming import ahead, every, mean

PAGE = "book/atlas.md"
ALIKE = "equal clients", "label skew", "unequal sizes", "writers"


def in_every_seed(first, second, *kinds):
    """One method is ahead of the other in every seed, with each of these kinds of clients."""
    return ahead(("scoreboard", "grid", [*kinds]), first, second, "accuracy")


def near_training_alone(read):
    """Within eight points of it with each kind of clients."""
    columns = read("scoreboard")["grid"].values()
    gaps = [mean(rows, "FedProto", "accuracy") - mean(rows, "alone", "accuracy") for rows in columns]
    return -0.08 < min(gaps) < 0 < max(gaps) < 0.08


CLAIMS = {
    "It finds turned images in every seed of the scoreboard; under label skew and with unequal sizes it parts "
    "clients that belong together, and stays behind FedAvg in every seed": every(
        in_every_seed("PACFL", "FedAvg", "rotations"), in_every_seed("FedAvg", "PACFL", "label skew", "unequal sizes")
    ),
    "On the scoreboard it is behind FedAvg in every seed with equal clients, label skew, unequal sizes and "
    "writers, and ahead of it in every seed where images are turned or classes have other names": every(
        in_every_seed("FedAvg", "pFedGraph", *ALIKE),
        in_every_seed("pFedGraph", "FedAvg", "rotations", "label names", "label names, few take part"),
    ),
    "on the scoreboard it stays within a few points of training alone, and behind FedAvg in every seed wherever "
    "one model is right": every(near_training_alone, in_every_seed("FedAvg", "FedProto", *ALIKE)),
}
