"""What chapter 13 says of its stored results."""

from book.claiming import HOLDS, OPPOSITE, UNDECIDED, beats, every, printed, says, so_many

PAGE = "notebooks/13_different_networks.ipynb"


def nets(word, a, *scores, **more):
    """Of "this method is better than training alone" with two architectures."""
    return says(word, "different_networks", a, "alone", *scores, **more)


def by_seed(read):
    """Whether FedProto is better than training alone, for convolutional networks after 20 rounds."""
    found = read("different_networks")
    alone = found["alone"][EARLY[1]]
    return [accuracy > alone[seed] for seed, accuracy in found["FedProto"][EARLY[1]].items()]


EARLY, LATE = ["dense, 20", "convolutional, 20"], ["dense, 60", "convolutional, 60"]
OWN, DENSE, BY, AVERAGED = "own prototypes", "FedProto from dense", "FedProto by architecture", "FedAvg by architecture"
TUNED, PULLED = f"{AVERAGED}, fine-tuned", [OWN, DENSE, BY, "FedProto"]
ALONE = "different_networks", "alone"
NO_MORE = says(UNDECIDED, "different_networks", BY, "FedProto", EARLY[1], within=0.015, half=0.03)

CLAIMS = {
    "whether the convolutional ones gain depends on the seed": so_many(9, 10, by_seed),
    "Alone, the convolutional networks learn more slowly, so they have more to gain": every(
        beats(ALONE, "dense, 20", "convolutional, 20", seeds=10, by=0.05),
        beats(ALONE, "convolutional, 60", "convolutional, 20", seeds=10, by=0.05),
    ),
    "Whether their own prototypes help is uncertain": nets(UNDECIDED, OWN, EARLY[1], half=0.05),
    "Pulled to the means of their architecture they gain 8.8 points, in ten of ten seeds": nets(
        HOLDS, BY, EARLY[1], seeds=10, points="8.8"
    ),
    "and to dense means 5.6 (nine seeds)": nets(HOLDS, DENSE, EARLY[1], seeds=9, points="5.6"),
    "to all means 7.9": nets(HOLDS, "FedProto", EARLY[1], points="7.9"),
    "but adding those of the other design to their own brings nothing": NO_MORE,
    "The dense networks gain from none": nets(UNDECIDED, PULLED, EARLY[0], within=0.005, half=0.01),
    "For dense clients, *from dense* and *by architecture* are the same": lambda read: all(
        read("different_networks")[DENSE][score] == read("different_networks")[BY][score] for score in EARLY[:1]
    ),
    "as good with the means of their architecture (0.871) as with all (0.862)": every(
        printed("different_networks", {BY: "0.871", "FedProto": "0.862"}, EARLY[1]), NO_MORE
    ),
    "give 6 points more than own prototypes, dense means not certainly more": every(
        says(HOLDS, "different_networks", BY, OWN, EARLY[1], seeds=9, points="6"),
        says(UNDECIDED, "different_networks", DENSE, OWN, EARLY[1], half=0.06),
    ),
    "half or twice the rate does not make up for it": every(
        nets(UNDECIDED, "alone, half the rate", EARLY[1], within=0.005, half=0.03),
        beats("different_networks", "alone", "alone, twice the rate", EARLY[1], seeds=10, by=0.15),
    ),
    "After 60 rounds, none is significant": nets(UNDECIDED, PULLED, LATE[1], half=0.04),
    "Dense networks never gain": nets(UNDECIDED, PULLED, EARLY[0], LATE[0], within=0.005, half=0.01),
    "is worse than training alone at both times": nets(OPPOSITE, AVERAGED, *EARLY, *LATE),
    "fine-tuned, level after 60 rounds": every(
        nets(OPPOSITE, TUNED, *EARLY), nets(UNDECIDED, TUNED, *LATE, within=0.01)
    ),
    "Here this sped up slow networks, and those of another design added nothing": every(
        nets(HOLDS, BY, EARLY[1], seeds=10), NO_MORE
    ),
}

GIVEN = ["at the same rate of 0.3"]
