"""What chapter 6 says of its stored runs."""

from book.claiming import OURS, ahead, beats, between, every, level, same
from book.claims.reproduction_cfl import AGREE, EVERYTHING, OWN, found, lengths_cost

PAGE = "notebooks/06_cfl.ipynb"
NAME = "cfl"
FOUR, SKEWED = "small clients, four groups", f"{OURS}, label skew"
SCORES = EVERYTHING, OWN


CLAIMS = {
    "it gains more than 50 points in every seed": every(
        ahead(NAME, OURS, "FedAvg", EVERYTHING, by=0.5),
        ahead(NAME, f"{OURS}, {FOUR}", f"FedAvg, {FOUR}", *SCORES, by=0.5),
    ),
    "a single model for all clients is stuck below one in four": between(0.2, 0.25, NAME, "FedAvg", EVERYTHING),
    "it never split, so it *is* FedAvg": every(
        between(0, 0, NAME, f"{OURS}, {AGREE}", "splits"), same(NAME, f"{OURS}, {AGREE}", f"FedAvg, {AGREE}", *SCORES)
    ),
    "The rule by lengths split in four of five and lost accuracy each time, so *always* does not hold.": lengths_cost,
    "it found the groups in 38 of 45 runs.": found(38, 45, "cfl_rule_unseen", "new photos", least=1),
    "it splits and loses about twelve points on all digits.": every(
        between(1, 39, NAME, SKEWED, "splits"), beats(NAME, "FedAvg, label skew", SKEWED, EVERYTHING, points="12")
    ),
    "On own mixes, the difference is not significant.": every(
        level(NAME, SKEWED, "FedAvg, label skew", OWN), between(0.8, 1, NAME, SKEWED, OWN)
    ),
}

GIVEN = ["below 0.15 and its cross above 0.4 (lines)"]
