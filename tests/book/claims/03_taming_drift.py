"""What chapter 3 says of its stored results."""

from book.claiming import at, compare, mean, shows, values

PAGE = "notebooks/03_taming_drift.ipynb"
FIRST, SCORE, LAST = "first twenty rounds", "chosen by validation", "last ten rounds"
SAME = "SCAFFOLD, lr 0.1", "FedAvg, lr 0.1"
OWN = "SCAFFOLD", "FedAvg"
PRINTED = {("SCAFFOLD", 0.1): "0.889", ("FedAvg", 0.1): "0.864", ("FedAvg", 0.3): "0.885", ("SCAFFOLD", 0.3): "0.873"}


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


def crossing(read):
    """SCAFFOLD is ahead at 0.1 and FedAvg at 0.3, each in all seeds."""
    f = skew(read)
    low = says(f, *SAME, SCORE) == ("holds", 5)
    high = says(f, "FedAvg, lr 0.3", "SCAFFOLD, lr 0.3", SCORE) == ("holds", 5)
    means = (mean(f, f"{name}, lr {lr}", SCORE) for name, lr in PRINTED)
    return low and high and all(shows(m, text) for m, text in zip(means, PRINTED.values(), strict=True))


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


def own_rates(read):
    """Each with the rate that validation chose in each seed: a third of the lead at 0.1."""
    f = skew(read)
    one, own = (mean(f, a, SCORE) - mean(f, b, SCORE) for a, b in (SAME, OWN))
    printed = shows(mean(f, "FedAvg", SCORE), "0.885") and shows(mean(f, "SCAFFOLD", SCORE), "0.893")
    return printed and undecided(f, *OWN, SCORE) and 0.3 < own / one < 0.37


def best_in_the_middle(read):
    """On average over seeds, each method's best rate is neither the first nor the last of its list."""
    f = skew(read)
    lists = {"FedAvg": (0.1, 0.3, 0.6), "SCAFFOLD": (0.03, 0.1, 0.3)}
    best = {n: max(rates, key=lambda lr, n=n: mean(f, f"{n}, lr {lr}", SCORE)) for n, rates in lists.items()}
    return best == {n: rates[1] for n, rates in lists.items()}


def end_of_the_curve(read):
    """Means over the last ten rounds."""
    f = skew(read)
    printed = shows(mean(f, "SCAFFOLD", LAST), "0.888") and shows(mean(f, "FedAvg", LAST), "0.865")
    return printed and says(f, *OWN, LAST) == ("holds", 5)


CLAIMS = [
    (
        "At 0.1, SCAFFOLD is ahead in all five seeds, with 0.889 against 0.864. At 0.3, FedAvg is ahead in all five, "
        "with 0.885 against 0.873.",
        crossing,
    ),
    (
        "FedAvg then reaches 0.885 and SCAFFOLD 0.893, a lead that is a third of that at 0.1 and not significant",
        own_rates,
    ),
    ("on average each method's best rate is in the middle of its list", best_in_the_middle),
    (
        "The vertical axis begins at 0.83, and FedAvg at 0.6 is far below it.",
        lambda read: mean(skew(read), "FedAvg, lr 0.6", SCORE) < 0.75,
    ),
    (
        "SCAFFOLD learns faster than FedAvg (first twenty rounds) in five of five seeds",
        lambda read: says(skew(read), *SAME, FIRST) == ("holds", 5),
    ),
    (
        "Over the last ten rounds its mean is 0.888 against FedAvg's 0.865, and higher in every seed",
        end_of_the_curve,
    ),
    ("SCAFFOLD again does not differ significantly from FedAvg, −0.005 ± 0.016", equal_bytes),
    (
        "is level with FedAvg, −0.002 ± 0.004, and validation chose weak bands for it ($\\mu$ = 0.01 or 0.1)",
        fedprox_is_level,
    ),
    (
        "On these digits, it remains usable.",
        lambda read: min(at(skew(read), "FedAvg", "last round").values()) > 0.8,
    ),
    (
        "A stored experiment has the same federation with 60 rounds, five seeds, and other rates.",
        lambda read: len(set(values(skew(read), "FedAvg", SCORE))) == 5,
    ),
]

GIVEN = [
    "They start at $\\theta = 2$ and take $S = 2$ steps at $\\eta = 0.5$, with all control variates zero.",
    "Client 1 goes from 2 to 3 and on to 3.5, so $c_1 \\leftarrow (2 - 3.5) / (2 \\cdot 0.5) = -1.5$",
    "the mean of its gradients $-2$ and $-1$. Client 2 goes to 1 and 0.5, so $c_2 \\leftarrow 1.5$.",
    "The server has $\\theta = 2$ again and $c = 0$.",
    "client 1 adds $c - c_1 = 1.5$ to its gradients and gets only to 2.25 and 2.375. The clients now drift a quarter",
    "for twenty rounds at the rate 0.1",
    "this run at the rate 0.1",
    "is SCAFFOLD's lead over FedAvg larger at the same rate 0.1",
    "At the same rate 0.1",
    "mean and 95 % interval over five seeds",
    "(95 % over seeds)",
]
