"""What chapter 3 says of its stored results."""

from book.claiming import at, compare, mean, shows, values

PAGE = "notebooks/03_taming_drift.ipynb"
FIRST, SCORE, LAST, JUMPS = "first twenty rounds", "chosen by validation", "last ten rounds", "jumps"
SAME = "SCAFFOLD, lr 0.1", "FedAvg, lr 0.1"
OWN = "SCAFFOLD", "FedAvg"


def skew(read):
    """Figures of label skew."""
    return read("heterogeneity")


def says(figures, a, b, score):
    """The verdict of "a is larger than b", and in how many seeds it is."""
    found = compare(figures, (a, score), (b, score))
    assert found["seeds"] == 5
    return found["verdict"], found["agree"]


def undecided(figures, a, b, *scores):
    """Five seeds cannot tell, for any of these scores, though both learn."""
    learns = min(mean(figures, row, SCORE) for row in (a, b)) > 0.8
    return learns and all(says(figures, a, b, score)[0] == "undecided" for score in scores)


def at_the_same_rate(read):
    """All that SCAFFOLD promises, at rate 0.1."""
    f = skew(read)
    higher = [says(f, *SAME, score) == ("holds", 5) for score in (FIRST, SCORE)]
    return all(higher) and says(f, *SAME[::-1], JUMPS) == ("holds", 4)


def equal_bytes(read):
    """SCAFFOLD with half of the rounds."""
    found = compare(skew(read), ("SCAFFOLD, half the rounds", SCORE), ("FedAvg", SCORE))
    printed = shows(found["difference"], "-0.005") and shows(found["half_width"], "0.016")
    return printed and found["verdict"] == "undecided" and found["seeds"] == 5


def fedprox_is_level(read):
    """With rate and band by validation."""
    f = skew(read)
    found = compare(f, ("FedProx", SCORE), ("FedAvg", SCORE))
    printed = shows(found["difference"], "-0.002") and shows(found["half_width"], "0.004")
    return printed and undecided(f, "FedProx", "FedAvg", SCORE) and set(values(f, "FedProx", "mu")) == {0.01, 0.1}


def lead_over_rates(read):
    """How many times as large SCAFFOLD's lead is at one rate as with a rate of its own for each."""
    f = skew(read)
    one, own = (mean(f, a, SCORE) - mean(f, b, SCORE) for a, b in (SAME, OWN))
    return 2.7 < one / own < 3


def end_of_the_curve(read):
    """Means over the last ten rounds."""
    f = skew(read)
    printed = shows(mean(f, "SCAFFOLD", LAST), "0.888") and shows(mean(f, "FedAvg", LAST), "0.865")
    return printed and says(f, *OWN, LAST) == ("holds", 5)


def rate_matters_as_much(read):
    """A better rate gives FedAvg about what SCAFFOLD gives at the same rate."""
    f = skew(read)
    gap = mean(f, "SCAFFOLD, lr 0.1", SCORE) - mean(f, "FedAvg, lr 0.1", SCORE)
    return abs(mean(f, "FedAvg, lr 0.3", SCORE) - mean(f, "FedAvg, lr 0.1", SCORE) - gap) < 0.01 < gap


CLAIMS = [
    (
        "a stored experiment with the same federation, five seeds and 60 rounds",
        lambda read: len(set(values(skew(read), "FedAvg", SCORE))) == 5,
    ),
    (
        "It learns faster than FedAvg (first twenty rounds) and reaches a higher accuracy in five of five seeds. In "
        "four of them, its last ten rounds also vary less",
        at_the_same_rate,
    ),
    (
        "FedAvg's best rate was 0.3 in all five seeds, while SCAFFOLD's ranged from 0.03 to 0.3",
        lambda read: (
            values(skew(read), "FedAvg", "lr") == [0.3] * 5
            and {min(v := values(skew(read), "SCAFFOLD", "lr")), max(v)} == {0.03, 0.3}
        ),
    ),
    (
        "In two seeds it was at one end of its list, so a longer list might contain a better rate",
        lambda read: sum(lr in (0.03, 0.3) for lr in values(skew(read), "SCAFFOLD", "lr")) == 2,
    ),
    (
        "from 0.864 to 0.885. SCAFFOLD reaches 0.893, and five seeds cannot distinguish the two methods",
        lambda read: (
            shows(mean(skew(read), "FedAvg", SCORE), "0.885")
            and shows(mean(skew(read), "FedAvg, lr 0.1", SCORE), "0.864")
            and shows(mean(skew(read), "SCAFFOLD", SCORE), "0.893")
            and undecided(skew(read), *OWN, SCORE)
        ),
    ),
    (
        "Over the last ten rounds SCAFFOLD's mean is 0.888 against FedAvg's 0.865, and higher in every seed",
        end_of_the_curve,
    ),
    ("the difference between SCAFFOLD and FedAvg is again not significant, −0.005 ± 0.016", equal_bytes),
    (
        "FedProx is level with FedAvg, −0.002 ± 0.004, and validation chose weak bands for it ($\\mu$ = 0.01 or 0.1)",
        fedprox_is_level,
    ),
    ("After sixty (table below), it is nearly three times as large at one rate", lead_over_rates),
    (
        "On these digits, FedAvg remains usable",
        lambda read: min(at(skew(read), "FedAvg", "last round").values()) > 0.8,
    ),
    ("its learning rate matters as much as the choice of method", rate_matters_as_much),
]

GIVEN = [
    "FedAvg could choose from the rates 0.1, 0.3 and 0.6, SCAFFOLD from 0.03, 0.1 and 0.3",
    "with the rates 0.03, 0.1 and 0.3",
    "at the same rate 0.1",
    "Intervals are 95 % over seeds",
    "FedCG's Table 5 quotes 75.0 % for FedProx and 84.2 % for SCAFFOLD",
]
