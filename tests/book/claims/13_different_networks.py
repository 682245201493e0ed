"""What chapter 13 says of its stored results."""

from book.claiming import HOLDS, UNDECIDED, beats, every, printed, says

PAGE = "notebooks/13_different_networks.ipynb"
MANY, FEW = "different_networks", "different_networks_few"
CONV, DENSE = "convolutional, 60", "dense, 60"
FROZEN, SWAPPED = "FedProto, frozen, short", "frozen, digits swapped, short"
DRAWN, OUTPUTS, BOTH = "drawn alone", "small outputs", "FedProto, small outputs"
SHORT = "own prototypes, short"
RATES = ["alone, half the rate", "alone, a third more"]


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
CLAIMS = {
    "Over ten stored runs, dense networks do not gain at all": says(
        UNDECIDED, MANY, "FedProto", "alone", "dense, 20", DENSE, within=0.005, half=0.01
    ),
    "which learn more slowly, gain 7.9 points after 20 rounds": every(
        gains("7.9", "convolutional, 20", where=MANY),
        beats((MANY, "alone"), "dense, 20", "convolutional, 20", seeds=10, by=0.05),
    ),
    "but after 60 only 1.7 ± 2.1": says(UNDECIDED, MANY, "FedProto", "alone", CONV, points="1.7 ± 2.1"),
    "no gain after 60 rounds is certain": says(UNDECIDED, MANY, "FedProto", "alone", CONV, DENSE, half=0.04),
    "FedProto brings convolutional networks 7.3 points and dense ones 2.5.": GAINS,
    "The penalty brings 3.1 ± 0.9 and 0.9 ± 0.6 points more": AHEAD,
    "the penalty is still ahead for convolutional networks. For dense ones, FedProto with three times the weight comes "
    "near.": every(
        beats(FEW, weighted(OUTPUTS), weighted("FedProto"), CONV, seeds=8),
        says(UNDECIDED, FEW, OUTPUTS, "FedProto, weight 3", DENSE, within=0.01, half=0.01),
    ),
    "own means cost convolutional networks 4.0 points and bring dense ones nothing": every(
        says("", FEW, "own prototypes", "alone", CONV, points="-4.0"),
        says(UNDECIDED, FEW, "own prototypes", "alone", DENSE, within=0.005, half=0.01),
    ),
    "Own means help as well once they are short, by 5.8 and 1.7 points": bring(SHORT, "5.8", "1.7"),
    "FedProto's targets bring 7.2 and 2.5 points, those of the wrong digit still 6.1 and 1.0, and places that each "
    "client drew alone 6.9 and 1.7.": every(
        bring(FROZEN, "7.2", "2.5", seeds=10), bring(SWAPPED, "6.1", "1.0"), bring(DRAWN, "6.9", "1.7", seeds=10)
    ),
    "these for dense networks, by 0.8 ± 0.4 points, and for convolutional ones not measurably.": every(
        says(HOLDS, FEW, FROZEN, DRAWN, DENSE, seeds=9, points="0.8 ± 0.4"),
        says(UNDECIDED, FEW, FROZEN, DRAWN, CONV, within=0.01, half=0.02),
    ),
    "FedProto on top of it adds nothing (0.1 ± 0.7 and −0.1 ± 0.3).": every(
        says(UNDECIDED, FEW, BOTH, OUTPUTS, CONV, points="0.1 ± 0.7"),
        says(UNDECIDED, FEW, BOTH, OUTPUTS, DENSE, points="-0.1 ± 0.3"),
    ),
    "FedProto helps**, by 7.3 and 2.5 points, and 6.2 and 2.5 after 120 rounds.": every(GAINS, LATER),
    "Alone, convolutional networks reach 0.58 and dense ones 0.70.": every(
        printed(FEW, {"alone": "0.58"}, CONV), printed(FEW, {"alone": "0.70"}, DENSE)
    ),
    "No learning rate that we tried lifts clients alone as far": beats(
        FEW, "FedProto", ["alone", *RATES], CONV, DENSE, seeds=10
    ),
    "**A penalty on outputs helps more**, by 3.1 ± 0.9 and 0.9 ± 0.6 points over FedProto": every(
        AHEAD, beats(FEW, OUTPUTS, ["zero", FROZEN], CONV, DENSE, seeds=8)
    ),
    "With it, FedProto adds nothing certain.": says(
        UNDECIDED, FEW, BOTH, OUTPUTS, CONV, DENSE, within=0.002, half=0.01
    ),
    "but a penalty on outputs did more and needs no other client": beats(
        FEW, OUTPUTS, "FedProto", CONV, DENSE, seeds=9
    ),
}
