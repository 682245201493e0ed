"""What chapter 1 says of its stored results."""

from book.claiming import compare, mean, shows, verdict

PAGE = "notebooks/01_fedavg.ipynb"
NAME = "fedavg"
IID, SKEWED = "rounds, IID", "rounds, two digits each"
METHODS = "FedSGD", "FedAvg, E = 1", "FedAvg, E = 5"


def printed(text, *place):
    """The mean that stands at a place is printed so."""
    return lambda read: shows(mean(read(NAME), *place), text)


def every(*claims):
    """All of them hold."""
    return lambda read: all(claim(read) for claim in claims)


def holds(a, b):
    """A is larger than B, with its whole interval."""
    return lambda read: verdict(read(NAME), a, b) == "holds"


def fewer_with_more_work(where):
    """The more work in a round, the fewer rounds."""
    return every(*(holds((a, where), (b, where)) for a, b in zip(METHODS, METHODS[1:], strict=False)))


def average(start, better):
    """The network half way is better, or worse, than both, in accuracy and in loss."""
    half = "average, same start" if start == "same" else "average, own starts"
    ends = "a network", f"another, {start} start"
    pairs = [(half, end) if better else (end, half) for end in ends]
    return every(
        *(holds((a, "accuracy"), (b, "accuracy")) for a, b in pairs),
        *(holds((b, "loss"), (a, "loss")) for a, b in pairs),
    )


def in_all_seeds(read):
    """Ten of ten, both ways."""
    found = read(NAME)
    for a, b in (("average, same start", "a network"), ("a network", "average, own starts")):
        gap = compare(found, (a, "accuracy"), (b, "accuracy"))
        if gap["agree"] != 10 or gap["seeds"] != 10:
            return False
    return True


def points(a, b, text):
    """Difference of two means in points."""
    return lambda read: shows(100 * (mean(read(NAME), a, "accuracy") - mean(read(NAME), b, "accuracy")), text)


def rates_are_the_best(read):
    """Those of the cell are the stored ones, which had the fewest rounds on other seeds."""
    found = read(NAME)
    for method, rate in zip(METHODS, (0.8, 0.2, 0.1), strict=True):
        tried = found[method]["tried, IID"]
        if (
            [float(lr) for lr in tried] != [0.05, 0.1, 0.2, 0.4, 0.8]
            or found[method]["rate, IID"] != rate
            or tried[str(rate)] > min(tried.values())
        ):
            return False
    return True


CLAIMS = [
    ("With a common start the mean of two networks is better than either.", average("same", better=True)),
    ("With two starts it is worse than both.", average("own", better=False)),
    (
        "The more the clients work in a round, the fewer rounds it takes to the dotted line, 85 % of the test digits.",
        fewer_with_more_work(IID),
    ),
    ("each method at its best of five learning rates from 0.05 to 0.8", rates_are_the_best),
    (
        "FedSGD needs several times as many",
        lambda read: mean(read(NAME), "FedSGD", IID) > 3 * mean(read(NAME), "FedAvg, E = 1", IID),
    ),
    (
        "Label skew slows FedAvg down and makes its curve restless; in the end the model still "
        "gets more than four fifths of all digits right.",
        every(
            holds(("skew: IID", "first rounds"), ("skew: two digits each", "first rounds")),
            lambda read: mean(read(NAME), "skew: two digits each", "last rounds") > 0.8,
        ),
    ),
    (
        "On IID data FedAvg with one epoch needs 7.5 rounds instead of FedSGD's 32.8, and with five epochs 2.8.",
        every(*(printed(t, m, IID) for m, t in zip(METHODS, ("32.8", "7.5", "2.8"), strict=True))),
    ),
    (
        "Under label skew more rounds are needed, and work at home is worth less: 24.7 and 17.4 rounds instead of "
        "43.1.",
        every(
            fewer_with_more_work(SKEWED),
            *(printed(t, m, SKEWED) for m, t in zip(METHODS, ("43.1", "24.7", "17.4"), strict=True)),
            lambda read: all(
                mean(read(NAME), "FedSGD", SKEWED) / mean(read(NAME), m, SKEWED)
                < mean(read(NAME), "FedSGD", IID) / mean(read(NAME), m, IID)
                for m in METHODS[1:]
            ),
        ),
    ),
    (
        "on IID data FedSGD's best rate is the highest of those tried",
        lambda read: read(NAME)["FedSGD"]["rate, IID"] == max(map(float, read(NAME)["FedSGD"]["tried, IID"])),
    ),
    ("In all ten seeds the mean of two networks was better than the first of them with a common start", in_all_seeds),
    ("by 1.4 points of accuracy on average", points("average, same start", "a network", "1.4")),
    ("by 4.7 points", points("a network", "average, own starts", "4.7")),
]

GIVEN = [
    "cross the dotted line, 85 % of the test digits,",
    "until the server's model gets 85 % of the test digits right: means of ten seeds with 95 % intervals",
]
