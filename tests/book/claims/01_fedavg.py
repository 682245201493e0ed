"""What chapter 1 says of its stored results."""

from functools import partial

from book.claiming import HOLDS, between, every, mean, ratio, says

from book import claiming
from book.experiments.fedavg import SETTINGS, place

PAGE = "notebooks/01_fedavg.ipynb"
NAME = "fedavg"
METHODS = SGD, ONE, FIVE = "FedSGD", "FedAvg, E = 1", "FedAvg, E = 5"
TARGETS = [place(name, target) for name, some in SETTINGS["targets"].items() for target in some]
IID, HIGH, SKEWED = (f"rounds, {target}" for target in TARGETS)
ALONE, TOGETHER = "a network", "a network on both"
SAME, OWN = "average, same start", "average, own starts"
EVEN, SKEW, ALL = "skew: IID", "skew: two digits each", "skew: two digits each, all clients"
holds, printed = partial(says, HOLDS, NAME), partial(claiming.printed, NAME)


def the_cells_rates(read):
    """Those of the cell that runs on the page are best for its lower line."""
    best = [float(read(NAME)[m][f"rate, {TARGETS[0]}"]) for m in METHODS]
    return best == [0.8, 0.2, 0.2] and float(read(NAME)[ONE][f"rate, {TARGETS[2]}"]) == 0.2


def local_work_is_worth_less(read):
    """With skew, FedSGD needs fewer times as many rounds."""
    skewed, iid = ({m: mean(read(NAME), m, target) for m in METHODS} for target in (SKEWED, IID))
    return all(skewed[SGD] / skewed[m] < iid[SGD] / iid[m] for m in (ONE, FIVE))


def fewer_with_more_work(*targets):
    return every(holds(SGD, ONE, *targets), holds(ONE, FIVE, *targets))


CLAIMS = {
    "With a common start, the mean of two networks is better than either.": every(
        holds(SAME, (ALONE, "another, same start"), "accuracy"), holds((ALONE, "another, same start"), SAME, "loss")
    ),
    "With two starts, it is worse than both.": every(
        holds((ALONE, "another, own start"), OWN, "accuracy"), holds(OWN, (ALONE, "another, own start"), "loss")
    ),
    "A network trained on all of them at once (dashed) is better still.": every(
        holds(TOGETHER, SAME, "accuracy"), holds(SAME, TOGETHER, "loss")
    ),
    "The more steps the clients take in a round, the fewer rounds they need to reach the dotted lines, 85 % and "
    "90 % of the test examples.": fewer_with_more_work(IID, HIGH),
    "FedSGD needs 4 and 14 times as many (means over ten seeds)": every(
        ratio(3.5, 4.5, NAME, SGD, ONE, IID),
        ratio(13.5, 14.5, NAME, SGD, FIVE, IID),
        lambda read: len(read(NAME)[SGD][IID]) == 10,
    ),
    "if each may use its best learning rate": the_cells_rates,
    "slows FedAvg down and makes its curve zigzag. With all forty clients in each round, the zigzag is gone.": every(
        holds(EVEN, SKEW, "first rounds"), holds(SKEW, (EVEN, ALL), "step"), ratio(0, 1.5, NAME, ALL, EVEN, "step")
    ),
    "they train a network that recognises most examples of all ten": between(0.7, 1, NAME, SKEW, "last rounds"),
    "the smooth curve rises more slowly than the IID one": holds(EVEN, ALL, "first rounds"),
    "FedSGD needs 32.8 rounds of one epoch, FedAvg 7.5, and FedAvg with five epochs 2.3, or 11.5 epochs.": every(
        printed({SGD: "32.8", ONE: "7.5", FIVE: "2.3"}, IID), printed({FIVE: "11.5"}, IID, times=5)
    ),
    "**Under label skew, local work is worth less.** FedAvg needs 24.7 and 17.4 rounds, and FedSGD 43.1.": every(
        printed({SGD: "43.1", ONE: "24.7", FIVE: "17.4"}, SKEWED),
        fewer_with_more_work(SKEWED),
        local_work_is_worth_less,
    ),
    "the mean of two networks is 1.5 points of accuracy better than the first": holds(
        SAME, ALONE, "accuracy", points="1.5"
    ),
    "With two starts, it is 4.0 points worse.": holds(ALONE, OWN, "accuracy", points="4.0"),
}

GIVEN = ["line, 85 % of the test examples,", "until 85 % or 90 % of the test examples", "For 85 % on IID clients"]
