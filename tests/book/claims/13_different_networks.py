"""What chapter 13 says of its stored results."""

from book.claiming import HOLDS, OPPOSITE, UNDECIDED, beats, every, says

PAGE = "notebooks/13_different_networks.ipynb"


def nets(word, a, *scores, **more):
    """Of "this method is better than training alone" with two architectures."""
    return says(word, "different_networks", a, "alone", *scores, **more)


EARLY, LATE = ["dense, 20", "convolutional, 20"], ["dense, 60", "convolutional, 60"]
BY, AVERAGED = "FedProto by architecture", "FedAvg by architecture"
TUNED = f"{AVERAGED}, fine-tuned"

CLAIMS = {
    "The convolutional ones gain in nine of the ten stored runs below": nets(HOLDS, "FedProto", EARLY[1], seeds=9),
    "After 20 rounds convolutional networks are 7.9 points better than alone": nets(
        HOLDS, "FedProto", EARLY[1], points="7.9"
    ),
    "which neither half nor twice the learning rate achieves": every(
        nets(UNDECIDED, "alone, half the rate", EARLY[1], within=0.005, half=0.03),
        beats("different_networks", "alone", "alone, twice the rate", EARLY[1], seeds=10, by=0.15),
    ),
    "Among themselves they gain 8.8 points, 6 more than with own prototypes,": every(
        nets(HOLDS, BY, EARLY[1], seeds=10, points="8.8"),
        says(HOLDS, "different_networks", BY, "own prototypes", EARLY[1], seeds=9, points="6"),
    ),
    "The dense ones add nothing measurable": says(
        UNDECIDED, "different_networks", BY, "FedProto", EARLY[1], within=0.015, half=0.03
    ),
    "After 60 rounds no gain is certain": nets(UNDECIDED, ["FedProto", BY], LATE[1], half=0.03),
    "and dense networks gain nothing at either time": nets(
        UNDECIDED, ["FedProto", BY], EARLY[0], LATE[0], within=0.005, half=0.01
    ),
    "loses to training alone after 20 rounds, even fine-tuned, and not after 60": every(
        nets(OPPOSITE, [AVERAGED, TUNED], *EARLY), nets(UNDECIDED, TUNED, *LATE)
    ),
}

GIVEN = []
