"""What chapter 13 says of its stored results."""

from book.claiming import HOLDS, UNDECIDED, beats, every, says

PAGE = "notebooks/13_different_networks.ipynb"
MANY, FEW = "different_networks", "different_networks_few"
CONV, DENSE = "convolutional, 60", "dense, 60"
OTHERS = ["own design", "other design", "FedProto"]
FROZEN, SWAPPED, TURNED = "FedProto, frozen", "frozen, digits swapped", "frozen, turned"
EQUIDISTANT, DRAWN = "equidistant targets", "drawn alone, length 1"
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

ENOUGH_FOR_CONV = every(
    gains("6.8", CONV, a=EQUIDISTANT, seeds=10),
    says(UNDECIDED, FEW, FROZEN, EQUIDISTANT, CONV, within=0.01, half=0.015),
)
ARRANGED = gains("1.4", DENSE, a=FROZEN, b=EQUIDISTANT, seeds=10)
SWAPPED_BEHIND = every(
    gains("2.7", CONV, a=EQUIDISTANT, b=SWAPPED, seeds=10), gains("4.3", DENSE, a=EQUIDISTANT, b=SWAPPED, seeds=10)
)
OWN_SPREAD = "own prototypes, spread"
SPREAD = every(gains("6.1", CONV, a=OWN_SPREAD, seeds=10), gains("1.6", DENSE, a=OWN_SPREAD, seeds=10))
ALONE = every(gains("6.8", CONV, a=DRAWN, seeds=10), gains("1.7", DENSE, a=DRAWN, seeds=10))
SHARED = every(
    gains("0.8", DENSE, b=DRAWN, seeds=8),
    says(UNDECIDED, FEW, "FedProto", DRAWN, CONV, within=0.02, half=0.02),
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
    "own means do not help, and cost convolutional networks 4.9 points on average, mostly in three seeds": every(
        gains("4.9", CONV, a="alone", b="own prototypes", seeds=9),
        says(UNDECIDED, FEW, "own prototypes", "alone", DENSE, within=0.005, half=0.01),
    ),
    "in each of ten seeds with FedProto (7.2 points for convolutional, 2.4 for dense networks)": GAINS,
    "and the other design helps about as much as one's own": every(beats(FEW, OTHERS, "alone", CONV, DENSE), NO_DESIGN),
    "Turned targets help as much as frozen ones": TURNED_AS_WELL,
    "bring convolutional networks 6.8 points, to which the right arrangement adds nothing certain": ENOUGH_FOR_CONV,
    "To dense networks they bring 1.5 points": gains("1.5", DENSE, a=EQUIDISTANT, seeds=9),
    "that is *which digit is near which*, 1.4 more": ARRANGED,
    "A wrong arrangement costs 2.7 and 4.3 points compared with equidistant targets.": SWAPPED_BEHIND,
    "FedProto helps**, by 7.2 and 2.4 points, and as much after 120 rounds": every(GAINS, AS_MUCH_LATER),
    "No learning rate that we tried lifts clients alone as far": beats(
        FEW, "FedProto", ["alone", *RATES], CONV, DENSE, seeds=10
    ),
    "Those that each client drew *alone* bring 6.8 and 1.7 points": ALONE,
    "(lengths of 2 and 4 about as much)": every(
        gains("5.8", CONV, a="drawn alone, length 2"),
        gains("6.1", CONV, a="drawn alone, length 4", seeds=10),
        gains("1.5", DENSE, a="drawn alone, length 2"),
        gains("1.4", DENSE, a="drawn alone, length 4"),
    ),
    "FedProto is 0.8 points above them for dense networks, and not certainly above for convolutional ones.": SHARED,
    "Own means bring 6.1 and 1.6 points once they are *spread*.": SPREAD,
    "A client's own means, spread, bring 6.1 and 1.6 points, fixed ones drawn alone 6.8 and 1.7.": every(SPREAD, ALONE),
    "sharing adds 0.8 for dense networks, and nothing certain for convolutional ones": every(SHARED, ARRANGED),
    "but targets that a client makes alone, far from each other, did most of it": every(ALONE, SPREAD),
    "made networks more accurate where each had seen little": beats(FEW, "FedProto", "alone", CONV, DENSE, seeds=10),
}
