"""What chapter 13 says of its stored results."""

from book.claiming import HOLDS, OPPOSITE, UNDECIDED, beats, every, says

PAGE = "notebooks/13_different_networks.ipynb"
MANY, FEW = "different_networks", "different_networks_few"
CONV, DENSE = "convolutional, 60", "dense, 60"
OTHERS = ["own design", "other design", "FedProto"]
FROZEN, SWAPPED, TURNED = "FedProto, frozen", "frozen, digits swapped", "frozen, turned"
RATES = ["alone, half the rate", "alone, twice the rate"]


def gains(points, *score, where=FEW, a="FedProto", b="alone", seeds=9):
    """That one row is above another, by so many points."""
    return says(HOLDS, where, a, b, *score, seeds=seeds, points=points)


NO_DESIGN = says(UNDECIDED, FEW, OTHERS[1:], "own design", CONV, DENSE, within=0.02, half=0.025)
GAINS = every(gains("7.2", CONV, seeds=10), gains("2.4", DENSE, seeds=10))
AS_MUCH_LATER = every(gains("7.2", "convolutional, 120", seeds=10), gains("2.4", "dense, 120", seeds=10))

TURNED_AS_WELL = every(
    beats(FEW, TURNED, "alone", CONV, DENSE, seeds=10),
    says(UNDECIDED, FEW, FROZEN, TURNED, DENSE, within=0.002, half=0.006),
    says(UNDECIDED, FEW, FROZEN, TURNED, CONV, within=0.01, half=0.015),
)

CLAIMS = {
    "Over ten stored runs, dense networks do not gain at all": says(
        UNDECIDED, MANY, "FedProto", "alone", "dense, 20", DENSE, within=0.005, half=0.01
    ),
    "which learn more slowly, gain 7.9 points after 20 rounds": every(
        gains("7.9", "convolutional, 20", where=MANY),
        beats((MANY, "alone"), "dense, 20", "convolutional, 20", seeds=10, by=0.05),
    ),
    "but not significantly after 60": says(UNDECIDED, MANY, "FedProto", "alone", CONV, half=0.04),
    "no gain after 60 rounds is certain": says(UNDECIDED, MANY, "FedProto", "alone", CONV, DENSE, half=0.04),
    "own means do not help, and cost convolutional networks 4.9 points": every(
        gains("4.9", CONV, a="alone", b="own prototypes", seeds=9),
        says(UNDECIDED, FEW, "own prototypes", "alone", DENSE, within=0.005, half=0.01),
    ),
    "in each of ten seeds with FedProto (7.2 points for convolutional, 2.4 for dense networks)": GAINS,
    "and the other design helps about as much as one's own": every(beats(FEW, OTHERS, "alone", CONV, DENSE), NO_DESIGN),
    "Dense networks gain 2.9 points, and as much from turned targets": every(
        gains("2.9", DENSE, a=FROZEN, seeds=10), gains("2.9", DENSE, a=TURNED, seeds=10), TURNED_AS_WELL
    ),
    "With swapped digits they *lose* 2.8": gains("2.8", DENSE, a="alone", b=SWAPPED, seeds=10),
    "Turned, it helps as much": TURNED_AS_WELL,
    "gain 4.1 points from frozen places even with swapped digits, and 3.2 more with the right ones": every(
        gains("4.1", CONV, a=SWAPPED, seeds=10), gains("3.2", CONV, a=FROZEN, b=SWAPPED)
    ),
    "FedProto brings 7.2 and 2.4 points, and as much after 120 rounds": every(GAINS, AS_MUCH_LATER),
    "No learning rate that we tried lifts clients alone this far": beats(
        FEW, "FedProto", ["alone", *RATES], CONV, DENSE, seeds=10
    ),
    "Swapped digits turn the gain of dense networks into a loss": every(
        says(HOLDS, FEW, FROZEN, "alone", DENSE, seeds=10), says(OPPOSITE, FEW, SWAPPED, "alone", DENSE)
    ),
    "Convolutional ones gain from any fixed places, and more from the right ones": every(
        beats(FEW, SWAPPED, "alone", CONV, seeds=10), beats(FEW, FROZEN, SWAPPED, CONV, seeds=9)
    ),
    "made networks more accurate where each had seen little": beats(FEW, "FedProto", "alone", CONV, DENSE, seeds=10),
}
