"""What chapter 13 says of its stored results."""

from book.claiming import HOLDS, OPPOSITE, UNDECIDED, beats, every, gaps, printed, says, shows

PAGE = "notebooks/13_different_networks.ipynb"
MANY, FEW = "different_networks", "different_networks_few"
CONV, DENSE = "convolutional, 60", "dense, 60"
LENGTHS = "convolutional length, 60", "dense length, 60"
FROZEN, SWAPPED = "FedProto, frozen", "frozen, digits swapped"
SHORT, LONG = "own prototypes, short", "own prototypes, long"
RATES = ["alone, half the rate", "alone, a third more"]


def gains(points, *score, where=FEW, a="FedProto", b="alone", seeds=9):
    """That one row is above another, by so many points."""
    return says(HOLDS, where, a, b, *score, seeds=seeds, points=points)


def bring(a, conv, dense, seeds=9):
    """What targets bring to networks of both kinds."""
    return every(gains(conv, CONV, a=a, seeds=seeds), gains(dense, DENSE, a=a, seeds=seeds))


GAINS = bring("FedProto", "7.3", "2.5", seeds=10)
ZERO = bring("zero", "6.8", "1.8", seeds=10)
LATER = every(gains("6.2", "convolutional, 120", seeds=10), gains("2.5", "dense, 120", seeds=10))
SHARED = every(
    gains("0.7", DENSE, b="zero", seeds=8),
    says(UNDECIDED, FEW, "FedProto", "zero", CONV, within=0.02, half=0.02),
)

CLAIMS = {
    "Over ten stored runs, dense networks do not gain at all": says(
        UNDECIDED, MANY, "FedProto", "alone", "dense, 20", DENSE, within=0.005, half=0.01
    ),
    "which learn more slowly, gain 7.9 points after 20 rounds": every(
        gains("7.9", "convolutional, 20", where=MANY),
        beats((MANY, "alone"), "dense, 20", "convolutional, 20", seeds=10, by=0.05),
    ),
    "but after 60 only 1.7 ± 2.1": every(
        says(UNDECIDED, MANY, "FedProto", "alone", CONV, points="1.7"),
        lambda read: all(shows(100 * g["half_width"], "2.1") for g in gaps(read, MANY, "FedProto", "alone", CONV)),
    ),
    "no gain after 60 rounds is certain": says(UNDECIDED, MANY, "FedProto", "alone", CONV, DENSE, half=0.04),
    "FedProto brings convolutional networks 7.3 points and dense ones 2.5, in each of ten seeds": GAINS,
    "and the means of the other design alone bring about as much": every(
        beats(FEW, "other design", "alone", CONV, DENSE, seeds=10),
        says(UNDECIDED, FEW, "other design", "FedProto", CONV, DENSE, within=0.01, half=0.02),
    ),
    "own means cost convolutional networks 4.0 and bring dense ones nothing.": every(
        says("", FEW, "own prototypes", "alone", CONV, points="-4.0"),
        says(UNDECIDED, FEW, "own prototypes", "alone", DENSE, within=0.005, half=0.01),
    ),
    "Places that each client drew alone bring 6.9 and 1.7 points.": bring("drawn alone", "6.9", "1.7"),
    "Even zero, one target for all digits, brings 6.8 and 1.8.": ZERO,
    "Their mean length on test images ends at 1.8 and 1.7, and at 10.7 and 7.2 for networks that train alone": every(
        printed(FEW, {"zero": "1.8", "alone": "10.7"}, LENGTHS[0]),
        printed(FEW, {"zero": "1.7", "alone": "7.2"}, LENGTHS[1]),
    ),
    "FedProto's embeddings end at about 3.2": every(*(printed(FEW, {"FedProto": "3.2"}, s) for s in LENGTHS)),
    "Made short, they bring 5.8 and 1.7 points. Made long, they cost convolutional networks 11.1 and bring dense ones "
    "nothing.": every(
        bring(SHORT, "5.8", "1.7"),
        says(OPPOSITE, FEW, LONG, "alone", CONV, points="-11.1"),
        says(UNDECIDED, FEW, LONG, "alone", DENSE, within=0.005, half=0.01),
    ),
    "but cost convolutional networks 3.2 points and dense ones 4.8 compared with zero.": every(
        gains("3.2", CONV, a="zero", b=SWAPPED), gains("4.8", DENSE, a="zero", b=SWAPPED)
    ),
    "Right ones (frozen) add only 1.2 points to zero, for dense networks.": every(
        gains("1.2", DENSE, a=FROZEN, b="zero"),
        says(UNDECIDED, FEW, FROZEN, "zero", CONV, within=0.01, half=0.02),
    ),
    "FedProto helps**, by 7.3 and 2.5 points, and 6.2 and 2.5 after 120 rounds.": every(GAINS, LATER),
    "No learning rate that we tried lifts clients alone as far": beats(
        FEW, "FedProto", ["alone", *RATES], CONV, DENSE, seeds=10
    ),
    "A pull to zero brings 6.8 and 1.8 points.": ZERO,
    "sharing adds 0.7 for dense networks, and nothing certain for convolutional ones": SHARED,
    "but mostly because its targets are short, which needs no other client": every(ZERO, bring(SHORT, "5.8", "1.7")),
}
