"""What chapter 1 says of its stored results."""

from book.claiming import compare, every, mean, shows, verdict

from book import claiming
from book.experiments.fedavg import SETTINGS, place

PAGE = "notebooks/01_fedavg.ipynb"
NAME = "fedavg"
METHODS = "FedSGD", "FedAvg, E = 1", "FedAvg, E = 5"
TARGETS = [place(name, target) for name, some in SETTINGS["targets"].items() for target in some]
IID, HIGH, SKEWED = TARGETS


def printed(texts, where):
    """The mean rounds of the methods are printed so."""
    pairs = list(zip(METHODS, texts, strict=True))
    return lambda read: all(shows(mean(read(NAME), m, f"rounds, {where}"), text) for m, text in pairs)


def holds(a, b):
    """A is larger than B, with its whole interval."""
    return lambda read: verdict(read(NAME), a, b) == "holds"


def fewer_with_more_work(where):
    """The more work in a round, the fewer rounds."""
    pairs = zip(METHODS, METHODS[1:], strict=False)
    return every(*(holds((a, f"rounds, {where}"), (b, f"rounds, {where}")) for a, b in pairs))


def average(start, better):
    """The network half way is better, or worse, than both, in accuracy and in loss."""
    half = "average, same start" if start == "same" else "average, own starts"
    ends = "a network", f"another, {start} start"
    pairs = [(half, end) if better else (end, half) for end in ends]
    return every(
        *(holds((a, "accuracy"), (b, "accuracy")) for a, b in pairs),
        *(holds((b, "loss"), (a, "loss")) for a, b in pairs),
    )


def points(a, b, text):
    """Difference of two means in points, the first being larger."""
    return every(claiming.points(NAME, a, b, "accuracy", text), holds((a, "accuracy"), (b, "accuracy")))


def rates(read):
    """For each method and target: the best rate and the rounds of all that were tried, on other seeds."""
    found = read(NAME)
    for method in METHODS:
        for where in TARGETS:
            tried = {float(lr): rounds for lr, rounds in found[method][f"tried, {where}"].items()}
            yield method, where, float(found[method][f"rate, {where}"]), tried


def no_best_rate_is_at_an_end(read):
    """Of five that were tried it has the fewest rounds, and fewer than both ends."""
    return all(
        len(tried) == 5 and tried[best] == min(tried.values()) < min(tried[min(tried)], tried[max(tried)])
        for _, _, best, tried in rates(read)
    )


def the_cells_rates(read):
    """Those of the cell that runs on the page are best for its lower line."""
    best = {(method, where): rate for method, where, rate, _ in rates(read)}
    return [best[m, IID] for m in METHODS] == [0.8, 0.2, 0.2] and best["FedAvg, E = 1", SKEWED] == 0.2


def step(skewed, text):
    """How far the accuracy moves between scored rounds, in points."""
    return lambda read: shows(100 * mean(read(NAME), skewed, "step"), text)


SKEW, ALL = "skew: two digits each", "skew: two digits each, all clients"

CLAIMS = [
    ("With a common start, the mean of two networks is better than either.", average("same", better=True)),
    ("With two starts, it is worse than both.", average("own", better=False)),
    (
        "A network trained on all of them at once (dashed) is better still.",
        every(
            holds(("a network on both", "accuracy"), ("average, same start", "accuracy")),
            holds(("average, same start", "loss"), ("a network on both", "loss")),
        ),
    ),
    (
        "The more steps the clients take in a round, the fewer rounds they need to reach the dotted lines, 85 % and "
        "90 % of the test examples.",
        every(fewer_with_more_work(IID), fewer_with_more_work(HIGH)),
    ),
    (
        "FedSGD needs more than three times as many",
        lambda read: (
            mean(read(NAME), "FedSGD", f"rounds, {IID}") > 3 * mean(read(NAME), "FedAvg, E = 1", f"rounds, {IID}")
        ),
    ),
    ("if each may use its best learning rate", the_cells_rates),
    ("No best rate was the lowest or the highest of its five", no_best_rate_is_at_an_end),
    (
        "Label skew slows FedAvg down and makes its curve zigzag. With all forty clients in each round, the zigzag is "
        "gone.",
        every(
            holds(("skew: IID", "first rounds"), (SKEW, "first rounds")),
            holds((SKEW, "step"), ("skew: IID", "step")),
            holds((SKEW, "step"), (ALL, "step")),
            lambda read: mean(read(NAME), ALL, "step") < 1.5 * mean(read(NAME), "skew: IID", "step"),
        ),
    ),
    (
        "together they train a network that recognises most examples of all ten",
        lambda read: mean(read(NAME), SKEW, "last rounds") > 0.7,
    ),
    (
        "the smooth curve rises more slowly than the IID one",
        holds(("skew: IID", "first rounds"), (ALL, "first rounds")),
    ),
    (
        "| FedSGD | 32.8 | 1 | 32.8 | | FedAvg, E = 1 | 7.5 | 1 | 7.5 | | FedAvg, E = 5 | 2.3 | 5 | 11.5 |",
        every(
            printed(("32.8", "7.5", "2.3"), IID),
            lambda read: shows(5 * mean(read(NAME), METHODS[2], f"rounds, {IID}"), "11.5"),
        ),
    ),
    (
        "Under label skew, local work is worth less, with 24.7 and 17.4 rounds instead of FedSGD's 43.1.",
        every(
            printed(("43.1", "24.7", "17.4"), SKEWED),
            fewer_with_more_work(SKEWED),
            lambda read: all(
                mean(read(NAME), "FedSGD", f"rounds, {SKEWED}") / mean(read(NAME), m, f"rounds, {SKEWED}")
                < mean(read(NAME), "FedSGD", f"rounds, {IID}") / mean(read(NAME), m, f"rounds, {IID}")
                for m in METHODS[1:]
            ),
        ),
    ),
    (
        "Over ten seeds, the mean of two networks with a common start was better than the first of them",
        lambda read: (
            compare(read(NAME), ("average, same start", "accuracy"), ("a network", "accuracy"))["seeds"] == 10
            and verdict(read(NAME), ("average, same start", "accuracy"), ("a network", "accuracy")) == "holds"
        ),
    ),
    ("by 1.5 points of accuracy on average", points("average, same start", "a network", "1.5")),
    ("With two starts, it was worse, by 4.0 points", points("a network", "average, own starts", "4.0")),
    (
        "it was 1.1 points better than the first network, although its loss was not lower (0.50 against 0.49)",
        every(
            points("average, own starts, matched", "a network", "1.1"),
            lambda read: shows(mean(read(NAME), "average, own starts, matched", "loss"), "0.50"),
            lambda read: shows(mean(read(NAME), "a network", "loss"), "0.49"),
        ),
    ),
    (
        "We scored every second round from 22 to 40. Under label skew, the accuracy changed by 2.3 points on average "
        "from one scored round to the next. With all forty clients in each round, it changed by 0.4, as little as with "
        "IID clients of whom ten take part",
        every(step(SKEW, "2.3"), step(ALL, "0.4"), step("skew: IID", "0.4"), holds((SKEW, "step"), (ALL, "step"))),
    ),
]

GIVEN = [
    "cross the lower dotted line, 85 % of the test examples,",
    "until the server's model gets 85 % or 90 % of the test examples right, as means with 95 % intervals",
    "for 85 % on IID clients",
]
