"""What the account of FedCG says of its runs on FEMNIST."""

from book.claiming import at, mean, shows

PAGE = "book/reproduction/fedcg.md"
NAME, FEDCG = "fedcg_femnist_paper", "FedCG, paper, D = 4"
METHODS = "FedAvg", FEDCG, "FedProx", "SCAFFOLD"


def accuracy(text, method):
    """Printed so, after a thousand rounds in a single run."""

    def holds(read):
        run = at(read(NAME), method)
        return shows(mean(run, "accuracy"), text) and len(run["rounds"]) == 1 and mean(run, "rounds") == 1000

    return holds


def still_rise(read):
    """All are highest at the end."""
    curves = [[mean(at(read(NAME), m), f"after {v} visits") for v in (4000, 5000)] for m in METHODS]
    return all(late > early + 0.02 for early, late in curves)


def points(read):
    """FedCG less FedAvg."""
    fedavg, fedcg = (mean(at(read(NAME), m), "accuracy") for m in METHODS[:2])
    return 100 * (fedcg - fedavg)


CLAIMS = [
    (
        "ends with FedAvg to the last digit",
        lambda read: mean(read(NAME), "FedProx", "accuracy") == mean(read(NAME), "FedAvg", "accuracy") > 0,
    ),
    ("SCAFFOLD ends at 0.47, too.", accuracy("0.47", "SCAFFOLD")),
    ("272 of 3,550", lambda read: at(read(NAME), "data", "clients") == 272),
    (
        "FedAvg ends at 0.47, and all curves still rise",
        lambda read: accuracy("0.47", "FedAvg")(read) and still_rise(read),
    ),
    (
        "FedCG ends 3.9 points higher, at 0.51.",
        lambda read: accuracy("0.51", FEDCG)(read) and shows(points(read), "3.9"),
    ),
    (
        "Its student, though, had put all images into one domain",
        lambda read: mean(read(NAME), FEDCG, "largest domain") > 0.999,
    ),
]

GIVEN = ["its learning rate of 0.001", "FedProx ($\\mu$ = 0.1)", "in 150 rounds"]
