"""What chapter 13 says of its stored results."""

from book.claiming import HOLDS, OPPOSITE, UNDECIDED, beats, every, printed, says

PAGE = "notebooks/13_different_networks.ipynb"
MANY, FEW = "different_networks", "different_networks_few"
CONV, DENSE = "convolutional, 60", "dense, 60"
EMBEDDINGS, OUTPUTS, BOTH = "small embeddings", "small outputs", "FedProto, small outputs"
OWN, RESCALED = "own prototypes", "own prototypes, rescaled"
HIGHER = "alone, rate 0.4"


def gains(points, *score, where=FEW, a="FedProto", b="alone", seeds=9):
    """That one row is above another, by so many points."""
    return says(HOLDS, where, a, b, *score, seeds=seeds, points=points)


def weighted(method):
    """With weight 1, a third of it, and three times as much."""
    return [method, f"{method}, weight 0.3", f"{method}, weight 3"]


def bring(a, conv, dense, seeds=9):
    """What targets bring to networks of both kinds."""
    return every(gains(conv, CONV, a=a, seeds=seeds), gains(dense, DENSE, a=a, seeds=seeds))


GAINS = bring("FedProto", "7.3", "2.5", seeds=10)
LATER = every(gains("6.2", "convolutional, 120", seeds=10), gains("2.5", "dense, 120", seeds=10))

AHEAD = every(
    gains("3.1 ± 0.9", CONV, a=OUTPUTS, b="FedProto", seeds=10), gains("0.9 ± 0.6", DENSE, a=OUTPUTS, b="FedProto")
)
PROTOTYPES = every(
    says(UNDECIDED, FEW, "FedProto", EMBEDDINGS, CONV, points="0.5 ± 0.6"),
    says(HOLDS, FEW, "FedProto", EMBEDDINGS, DENSE, points="0.7 ± 0.4"),
)
CLAIMS = {
    "Over ten stored runs, dense networks do not gain at all (0.94 both ways).": every(
        says(UNDECIDED, MANY, "FedProto", "alone", "dense, 20", DENSE, within=0.005, half=0.01),
        printed(MANY, {"FedProto": "0.94", "alone": "0.94"}, "dense, 20"),
    ),
    "which learn more slowly, are 7.9 ± 3.4 points ahead after 20 rounds": every(
        gains("7.9 ± 3.4", "convolutional, 20", where=MANY),
        beats((MANY, "alone"), "dense, 20", "convolutional, 20", seeds=10, by=0.05),
    ),
    "but after 60 not certainly (1.7 ± 2.1)": says(UNDECIDED, MANY, "FedProto", "alone", CONV, points="1.7 ± 2.1"),
    "no gain is certain after 60 rounds": says(UNDECIDED, MANY, "FedProto", "alone", CONV, DENSE, half=0.04),
    "FedProto brings convolutional networks 7.3 points and dense ones 2.5.": GAINS,
    "But pulling everything to 0 already brings 6.8 and 1.8, so the prototypes themselves add 0.5 ± 0.6 and 0.7 ± "
    "0.4 (certain for dense networks only).": every(bring(EMBEDDINGS, "6.8", "1.8", seeds=10), PROTOTYPES),
    "Small outputs bring 3.1 ± 0.9 and 0.9 ± 0.6 points more than FedProto": AHEAD,
    "For convolutional networks, they win at every weight tried (0.3, 1, 3). For dense ones, FedProto at weight 3 "
    "draws level.": every(
        beats(FEW, weighted(OUTPUTS), weighted("FedProto"), CONV, seeds=8),
        says(UNDECIDED, FEW, OUTPUTS, "FedProto, weight 3", DENSE, within=0.01, half=0.01),
    ),
    "Own means cost convolutional networks 4.0 ± 3.6 points and bring dense ones nothing": every(
        says("", FEW, OWN, "alone", CONV, points="-4.0 ± 3.6"),
        says(UNDECIDED, FEW, OWN, "alone", DENSE, within=0.005, half=0.01),
    ),
    "own means help as well, by 4.2 and 1.7 points, so most of the difference was spread. Others' means are then "
    "3.1 ± 1.4 and 0.7 ± 0.4 points ahead, but a pull to 0 does nearly as much": every(
        bring(RESCALED, "4.2", "1.7"),
        gains("3.1 ± 1.4", CONV, b=RESCALED, seeds=8),
        gains("0.7 ± 0.4", DENSE, b=RESCALED, seeds=8),
        gains("8.3", CONV, a=RESCALED, b=OWN),
    ),
    "at a rate a third higher, convolutional networks lose 20.8 ± 6.3 points (dense ones gain 0.7 ± 0.3).": every(
        says(OPPOSITE, FEW, HIGHER, "alone", CONV, points="-20.8 ± 6.3"),
        says(HOLDS, FEW, HIGHER, "alone", DENSE, points="0.7 ± 0.3"),
    ),
    "FedProto on top of them adds nothing measurable (0.1 ± 0.7 and −0.1 ± 0.3).": every(
        says(UNDECIDED, FEW, BOTH, OUTPUTS, CONV, points="0.1 ± 0.7"),
        says(UNDECIDED, FEW, BOTH, OUTPUTS, DENSE, points="-0.1 ± 0.3"),
    ),
    "FedProto helps**, also after 120 rounds (6.2 and 2.5 points).": LATER,
    "Alone, convolutional networks reach 0.58, dense ones 0.70.": every(
        printed(FEW, {"alone": "0.58"}, CONV), printed(FEW, {"alone": "0.70"}, DENSE)
    ),
    "At equal weight, small embeddings trail by 0.5 and 0.7 points.": PROTOTYPES,
    "Averaged among ten, they bring 29.7 and 22.0 points.": bring("FedAvg within a design", "29.7", "22.0", seeds=10),
    "With small outputs, FedProto adds nothing measurable.": says(
        UNDECIDED, FEW, BOTH, OUTPUTS, CONV, DENSE, within=0.002, half=0.01
    ),
    "but a penalty on outputs did at least as much and needs no other client": beats(
        FEW, OUTPUTS, "FedProto", CONV, DENSE, seeds=9
    ),
}
