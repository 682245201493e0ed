"""What chapter 13 says of its stored results."""

from book.claiming import HOLDS, UNDECIDED, beats, every, gaps, mean, printed, says, so_many

PAGE = "notebooks/13_different_networks.ipynb"
MANY, FEW = "different_networks", "different_networks_few"
CONV, DENSE, ACROSS = "convolutional, 60", "dense, 60", "LG-FedAvg across designs"
EMBEDDINGS, OUTPUTS, BOTH = "small embeddings", "small outputs", "FedProto, small outputs"
HIGHER, RATES, WEIGHTS = "alone, rate 0.4", ("0.03", "0.1", "0.2", "0.4"), (", weight 0.3", ", weight 3")


def gains(points, *score, where=FEW, a="FedProto", b="alone", seeds=9):
    """That one row is above another, by so many points."""
    return says(HOLDS, where, a, b, *score, seeds=seeds, points=points)


def best(conv, dense, *points):
    """What a method brings, with the rate at which convolutional networks do best, and with that for dense ones."""

    def chosen(read, arm, kind):
        method = arm.partition(", rate")[0]
        arms = [method, *(f"{method}, rate {r}" for r in RATES)]
        return arm == max(arms, key=lambda arm: mean(read(FEW), arm, kind))

    arms = (conv, CONV), ("alone, rate 0.2", CONV), (dense, DENSE), (HIGHER, DENSE)
    ahead = (gains(p, k, a=a, b=b) for p, (a, k), (b, _) in zip(points, arms[::2], arms[1::2], strict=True))
    return every(*ahead, lambda read: all(chosen(read, *arm) for arm in arms))


def bring(a, conv, dense, **more):
    """What targets bring to networks of both kinds."""
    return every(gains(conv, CONV, a=a, **more), gains(dense, DENSE, a=a, **more))


GAINS = bring("FedProto", "7.3", "2.5", seeds=10)
LATER = every(gains("6.2", "convolutional, 120", seeds=10), gains("2.5", "dense, 120", seeds=10))

AHEAD = bring(OUTPUTS, "3.1 ± 0.9", "0.9 ± 0.6", b="FedProto")


def range_of(read, method, kind):
    """What it brings with each of three weights, from the least to the most."""
    gains_of = [g["difference"] for w in ("", *WEIGHTS) for g in gaps(read, FEW, method + w, "alone", kind)]
    return f"{100 * min(gains_of):.1f} to {100 * max(gains_of):.1f}"


TUNED = every(
    best("FedProto", "FedProto, rate 0.4", "4.9 ± 1.3", "2.2 ± 0.7"),
    best(f"{EMBEDDINGS}, rate 0.2", f"{EMBEDDINGS}, rate 0.4", "4.7 ± 0.8", "1.2 ± 0.7"),
    best(OUTPUTS, f"{OUTPUTS}, rate 0.4", "7.9 ± 1.1", "3.2 ± 0.7"),
)
OWN = [(f"own prototypes{rate}", f"alone{rate}") for rate in ("", *(f", rate {r}" for r in RATES))]
CLAIMS = {
    "dense networks gain nothing by it. They reach 0.94 on average after 20 and after 60 rounds,": every(
        says(UNDECIDED, MANY, "FedProto", "alone", "dense, 20", DENSE, within=0.005, half=0.01),
        *(printed(MANY, {"FedProto": "0.94", "alone": "0.94"}, at) for at in ("dense, 20", DENSE)),
    ),
    "learn more slowly, and FedProto puts them 7.9 ± 3.4 points ahead after 20 rounds": every(
        gains("7.9 ± 3.4", "convolutional, 20", where=MANY),
        beats((MANY, "alone"), "dense, 20", "convolutional, 20", seeds=10, by=0.05),
    ),
    "after 60 rounds the lead, 1.7 ± 2.1, may be chance": says(
        UNDECIDED, MANY, "FedProto", "alone", CONV, points="1.7 ± 2.1"
    ),
    "by FedProto is certain after 60 rounds": says(UNDECIDED, MANY, "FedProto", "alone", CONV, DENSE, half=0.04),
    "Not drawing each class to a client's own last mean (no measurable gain at any learning rate).": so_many(
        0, 10, lambda read: (g["verdict"] == HOLDS for pair in OWN for g in gaps(read, FEW, *pair, CONV, DENSE))
    ),
    "comes within 0.5 ± 0.6 points (convolutional) and 0.7 ± 0.4 (dense) of FedProto.": every(
        says(UNDECIDED, FEW, "FedProto", EMBEDDINGS, CONV, points="0.5 ± 0.6"),
        says(HOLDS, FEW, "FedProto", EMBEDDINGS, DENSE, points="0.7 ± 0.4"),
    ),
    "beat FedProto by 3.1 ± 0.9 and 0.9 ± 0.6 points": AHEAD,
    "adding FedProto to them changes nothing measurable": says(UNDECIDED, FEW, BOTH, OUTPUTS, CONV, DENSE, half=0.01),
    "With the best of five rates for each method (last table), a third of FedProto's 7.3 points is gone, and small "
    "outputs still lead.": every(
        GAINS, TUNED, AHEAD, gains("1.0 ± 0.5", DENSE, a=f"{OUTPUTS}, rate 0.4", b="FedProto, rate 0.4")
    ),
    "10.8 ± 1.8 points ahead of training alone after 20 rounds, further than FedProto (by 2.9 ± 2.4)": every(
        gains("10.8 ± 1.8", "convolutional, 20", where=MANY, a=EMBEDDINGS, seeds=10),
        gains("2.9 ± 2.4", "convolutional, 20", where=MANY, a=EMBEDDINGS, b="FedProto", seeds=8),
    ),
    "outputs bring 9.7 to 10.4 points (convolutional) and 3.1 to 3.6 (dense), FedProto 4.5 to 7.3 and 1.9 to 3.1": (
        lambda read: (
            [range_of(read, m, k) for m in (OUTPUTS, "FedProto") for k in (CONV, DENSE)]
            == ["9.7 to 10.4", "3.1 to 3.6", "4.5 to 7.3", "1.9 to 3.1"]
        )
    ),
    "FedAvg within a design brings convolutional networks from 0.58 to 0.88 and dense ones from 0.70 to 0.92": every(
        printed(FEW, {"alone": "0.58", "FedAvg within a design": "0.88"}, CONV),
        printed(FEW, {"alone": "0.70", "FedAvg within a design": "0.92"}, DENSE),
    ),
    "convolutional networks gain 3.2 ± 2.9 points less and dense ones 1.4 ± 1.1 more": every(
        gains("3.2 ± 2.9", CONV, b=ACROSS, seeds=6), gains("1.4 ± 1.1", DENSE, a=ACROSS, b="FedProto", seeds=8)
    ),
    "FedProto helps**, also after 120 rounds.": LATER,
    "Small outputs, which share nothing, bring more.": AHEAD,
    "averaging weights is worth far more** (one rate).": bring("FedAvg within a design", "29.7", "22.0", seeds=10),
    "| 4.9 points to convolutional networks, 2.2 to dense ones | 7.9 and 3.2 |": TUNED,
    "For dense networks the largest was best.": TUNED,
    "and for dense ones about half, needs neither other clients nor agreement.**": TUNED,
    "For other designs, a penalty on outputs is the control to beat.": beats(
        FEW, OUTPUTS, "FedProto", CONV, DENSE, seeds=9
    ),
}
