"""What chapter 4 says of its stored results."""

from book.claiming import beats, every, level

PAGE = "notebooks/04_personal_models.ipynb"
SKEW, NAMES = ("personal_models", "label skew"), ("personal_models", "label names")
OWN, ALL, TUNED, GROUPS = "own", "all classes", "FedAvg, fine-tuned", "true groups"


CLAIMS = {
    "fine-tuning gains 6.4 points on the own mix and loses 7 points on all classes": every(
        beats(SKEW, TUNED, "FedAvg", OWN, points="6.4"), beats(SKEW, "FedAvg", TUNED, ALL, points="7")
    ),
    "The worst tenth's gain is not significant.": level(SKEW, TUNED, "FedAvg", "worst decile", within=0.1),
    "It is ahead of Ditto and FedRep (not shown) in all seeds": beats([SKEW, NAMES], TUNED, ("Ditto", "FedRep"), OWN),
    "With permuted labels, true groups gain 61 points over FedAvg, of which fine-tuning alone brings 54.": every(
        beats(NAMES, GROUPS, "FedAvg", OWN, points="61"),
        beats(NAMES, TUNED, "FedAvg", OWN, points="54"),
        beats(NAMES, GROUPS, TUNED, OWN, points="7"),
    ),
}

GIVEN = ["training rate, 0.1, and once at 0.03", "Both axes begin at 0.3.", "the vertical axis begins at 0.6"]
