"""What chapter 3 says of its stored results."""

from functools import partial

from book.claiming import UNDECIDED, average, every, mean, shows, values

from book import claiming

PAGE = "notebooks/03_taming_drift.ipynb"
NAME = "heterogeneity"
FIRST, SCORE, LAST = "first twenty rounds", "chosen by validation", "last ten rounds"
beats, printed = partial(claiming.beats, NAME), partial(claiming.printed, NAME)


@claiming.claim
def undecided(read, a, b, difference, half_width):
    """Five seeds cannot tell, and this is the interval."""
    (found,) = claiming.gaps(read, NAME, a, b, SCORE)
    told = shows(found["difference"], difference) and shows(found["half_width"], half_width)
    return told and (found["verdict"], found["seeds"]) == (UNDECIDED, 5)


def a_third_of_the_lead(read):
    """With the rate that validation chose in each seed, beside the lead of SCAFFOLD at 0.1."""
    ours, plain = ([mean(read(NAME), f"{n}{lr}", SCORE) for lr in ("", ", lr 0.1")] for n in ("SCAFFOLD", "FedAvg"))
    return 0.3 < (ours[0] - plain[0]) / (ours[1] - plain[1]) < 0.37


def best_in_the_middle(read):
    """On average over seeds, each method's best rate is neither the first nor the last of its list."""
    lists = {"FedAvg": (0.1, 0.3, 0.6), "SCAFFOLD": (0.03, 0.1, 0.3)}
    best = {n: max(rates, key=lambda lr, n=n: mean(read(NAME), f"{n}, lr {lr}", SCORE)) for n, rates in lists.items()}
    return best == {n: rates[1] for n, rates in lists.items()}


CLAIMS = {
    "At 0.1, SCAFFOLD is ahead in all five seeds, with 0.889 against 0.864. At 0.3, FedAvg is ahead in all five, "
    "with 0.885 against 0.873.": every(
        beats("SCAFFOLD, lr 0.1", "FedAvg, lr 0.1", SCORE),
        beats("FedAvg, lr 0.3", "SCAFFOLD, lr 0.3", SCORE),
        printed({"SCAFFOLD, lr 0.1": "0.889", "FedAvg, lr 0.1": "0.864"}, SCORE),
        printed({"FedAvg, lr 0.3": "0.885", "SCAFFOLD, lr 0.3": "0.873"}, SCORE),
    ),
    "FedAvg then reaches 0.885 and SCAFFOLD 0.893, a lead of 0.009 ± 0.018, a third of that at 0.1 and not "
    "significant": every(
        printed({"FedAvg": "0.885", "SCAFFOLD": "0.893"}, SCORE),
        undecided("SCAFFOLD", "FedAvg", "0.009", "0.018"),
        a_third_of_the_lead,
    ),
    "on average each method's best rate is in the middle of its list": best_in_the_middle,
    "vertical axis begins at 0.83, and FedAvg at 0.6 is far below it": average(0, 0.75, NAME, "FedAvg, lr 0.6", SCORE),
    "SCAFFOLD learns faster than FedAvg (first twenty rounds) in five of five seeds": beats(
        "SCAFFOLD, lr 0.1", "FedAvg, lr 0.1", FIRST
    ),
    "its mean over the last ten rounds is 0.888 against 0.865, higher in every seed": every(
        beats("SCAFFOLD", "FedAvg", LAST), printed({"SCAFFOLD": "0.888", "FedAvg": "0.865"}, LAST)
    ),
    "does not differ significantly from FedAvg, −0.005 ± 0.016": undecided(
        "SCAFFOLD, half the rounds", "FedAvg", "-0.005", "0.016"
    ),
    "is level with FedAvg, −0.002 ± 0.004, and validation chose weak bands for it": every(
        undecided("FedProx", "FedAvg", "-0.002", "0.004"),
        lambda read: set(values(read(NAME), "FedProx", "mu")) == {0.01, 0.1},
    ),
}

GIVEN = ["to 3 and on to 3.5,", "goes to 1 and 0.5,", "only 2.25 and 2.375.", "at the rate 0.1", "the same rate 0.1"]
