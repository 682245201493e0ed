"""What chapter 6 says of its stored runs."""

from book.claiming import OURS, ahead, beats, between, every, level, same
from book.claims.reproduction_cfl import AGREE, EVERYTHING, OWN, found, lengths_cost, split

PAGE = "notebooks/06_cfl.ipynb"
NAME = "cfl"
FOUR, SKEWED = "small clients, four groups", f"{OURS}, label skew"
SCORES = EVERYTHING, OWN


def three_and_three(read):
    """So many sets of images, and of networks."""
    sets = read("cfl_rule")
    networks = {kind.partition(",")[0] for cases in sets.values() for kind in cases}
    return len(sets) == len(networks) == 3


ALWAYS = found(135, 135, "cfl_rule", least=1)

CLAIMS = {
    "split-half CFL is better in every seed, by more than 50 points": every(
        ahead(NAME, OURS, "FedAvg", EVERYTHING, by=0.5),
        ahead(NAME, f"{OURS}, {FOUR}", f"FedAvg, {FOUR}", *SCORES, by=0.5),
    ),
    "a single model for all clients is stuck below one in four": between(0.2, 0.25, NAME, "FedAvg", EVERYTHING),
    "it split in none of the five runs, so it *is* FedAvg": every(
        between(0, 0, NAME, f"{OURS}, {AGREE}", "splits"), same(NAME, f"{OURS}, {AGREE}", f"FedAvg, {AGREE}", *SCORES)
    ),
    "The rule by lengths split in four of the five, and each time this cost accuracy on all digits, "
    "up to 2.3 points": lengths_cost,
    "split-half CFL never split congruent clients": split(0, 195, "cfl_rule"),
    "with three sets of images and three networks": every(three_and_three, ALWAYS),
    "always found the true groups": ALWAYS,
    "it again split no congruent clients, but found the groups in 38 of 45 runs.": every(
        split(0, 55, "cfl_rule_unseen", "new photos"), found(38, 45, "cfl_rule_unseen", "new photos", least=1)
    ),
    "split-half CFL splits in all five runs.": between(1, 39, NAME, SKEWED, "splits"),
    "On all digits this costs about twelve points": beats(NAME, "FedAvg, label skew", SKEWED, EVERYTHING, points="12"),
    "On clients' own mixes, five seeds cannot distinguish it from FedAvg.": every(
        level(NAME, SKEWED, "FedAvg, label skew", OWN), between(0.8, 1, NAME, SKEWED, OWN)
    ),
    "The abstract's *always* therefore does not hold with finite data and such thresholds": lengths_cost,
}

GIVEN = ["below 0.15 and its cross above 0.4 (lines)"]
