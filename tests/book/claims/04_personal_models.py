"""What chapter 4 says of its stored results."""

from book.claiming import beats, every, level, ratio, values

PAGE = "notebooks/04_personal_models.ipynb"
SKEW, NAMES = ("personal_models", "label skew"), ("personal_models", "label names")
LONGER = ("personal_models_longer", "writers")
OWN, ALL, TUNED, GROUPS = "own", "all classes", "FedAvg, fine-tuned", "true groups"


def one_list(read):
    """The rates of fine-tuning and those of training are from the same three."""
    figures, kinds = read("personal_models"), ("label skew", "label names")
    chosen = [rate for kind in kinds for rate in figures["rates"][kind].values()]
    at_home = [rate for kind in kinds for rate in values(figures[kind], TUNED, "rate at home")]
    return {*chosen, *at_home} <= {0.1, 0.3, 0.9} and len(at_home) == 10 and len(chosen) == 17


CLAIMS = {
    "Learning rates, including that of fine-tuning, come from one list and are chosen on validation digits": one_list,
    "fine-tuning beats FedAvg on the own mix in all five seeds, by 6.4 points on average": beats(
        SKEW, TUNED, "FedAvg", OWN, points="6.4"
    ),
    "For the worst tenth of the clients, the difference is not significant.": level(
        SKEW, TUNED, "FedAvg", "worst decile", within=0.1
    ),
    "On all classes, fine-tuning loses 7 points.": beats(SKEW, "FedAvg", TUNED, ALL, points="7"),
    "It is ahead of Ditto and FedRep on the own mix, in both federations and all five seeds (not all in the table), "
    "and Ditto computes about twice as much.": every(
        beats([SKEW, NAMES], TUNED, ("Ditto", "FedRep"), OWN), ratio(1.7, 2.2, SKEW, "Ditto", TUNED, "Gflops a client")
    ),
    "fine-tuning at the training rate makes FedAvg worse on the writers' own characters": beats(
        LONGER, "FedAvg", f"{TUNED} at the same rate", OWN, seeds=4
    ),
    "tuned rate makes it better in all five seeds, by 3 points": beats(LONGER, TUNED, "FedAvg", OWN, points="3"),
    "With permuted labels, true groups are 61 points ahead of FedAvg": beats(NAMES, GROUPS, "FedAvg", OWN, points="61"),
    "Fine-tuning alone brings 54, so the groups are worth 7 points more, and they are ahead in all five seeds.": every(
        beats(NAMES, TUNED, "FedAvg", OWN, points="54"), beats(NAMES, GROUPS, TUNED, OWN, points="7")
    ),
}

GIVEN = ["training rate, 0.1, and once at 0.03", "Both axes begin at 0.3.", "the vertical axis begins at 0.6"]
