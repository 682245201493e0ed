"""What chapter 13 says of its stored results."""

from book.claiming import HOLDS, OPPOSITE, UNDECIDED, every, says

PAGE = "notebooks/13_different_networks.ipynb"
BOARD = "scoreboard", "grid"


def proto(word, rival, kind, points=""):
    """Of "FedProto is better than this rival" on the scoreboard."""
    return says(word, (*BOARD, kind), "FedProto", rival, "accuracy", points=points)


def nets(word, a, *scores, **more):
    """Of "this method is better than training alone" with two architectures."""
    return says(word, "different_networks", a, "alone", *scores, **more)


EARLY, LATE = ["dense, 20", "convolutional, 20"], ["dense, 60", "convolutional, 60"]

CLAIMS = {
    "in nine of the ten stored runs below the pull speeds them up": nets(HOLDS, "FedProto", EARLY[1], seeds=9),
    "After 20 rounds the convolutional networks are 7.9 points better than alone": nets(
        HOLDS, "FedProto", EARLY[1], points="7.9"
    ),
    "After 60 rounds a gain is no longer certain": nets(UNDECIDED, "FedProto", LATE[1], half=0.03),
    "and the dense networks gain nothing at either time": nets(
        UNDECIDED, "FedProto", EARLY[0], LATE[0], within=0.005, half=0.01
    ),
    "**Averaging within an architecture** loses to training alone, by less after 60 rounds.": every(
        nets(OPPOSITE, "FedAvg by architecture", *EARLY), nets(OPPOSITE, "FedAvg by architecture", *LATE, within=0.1)
    ),
    "Most of it comes from the other clients' prototypes, since with own prototypes they are 5 points lower on "
    "average, and lower in seven seeds.": every(
        says(HOLDS, "different_networks", "FedProto", "own prototypes", EARLY[1], seeds=7, points="5"),
        nets(UNDECIDED, "own prototypes", EARLY[1], half=0.05),
    ),
    "FedProto gains 3.6 points over training alone where clients have unequally many images and loses 7 where each "
    "client is a writer": every(
        proto(HOLDS, "alone", "unequal sizes", "3.6"), proto(OPPOSITE, "alone", "writers", "-7")
    ),
}

GIVEN = []
