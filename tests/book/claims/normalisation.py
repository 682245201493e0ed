"""What the page on batch normalisation says of the stored experiment."""

from book.claiming import mean, shows, values

PAGE = "book/normalisation.md"
COLUMNS = [(kind, score) for kind in ("label skew", "styles") for score in ("own digits", "all digits")]
ARMS = ("none", "GroupNorm", "BatchNorm, averaged", "BatchNorm, at home", "BatchNorm, of the batch")


def accuracy(read, arm, kind, score):
    return mean(read("normalisation"), f"{kind}: {arm}", score)


def row(arm, *printed):
    """A row of the table."""
    return lambda read: all(shows(accuracy(read, arm, *c), text) for c, text in zip(COLUMNS, printed, strict=True))


def ahead(read, kind, score, a, b):
    """In every seed."""
    found = read("normalisation")
    pairs = zip(values(found, f"{kind}: {a}", score), values(found, f"{kind}: {b}", score), strict=True)
    return all(x > y for x, y in pairs)


def gap(read, kind, score, a, b):
    """Points between two arms."""
    return 100 * (accuracy(read, a, kind, score) - accuracy(read, b, kind, score))


def averaged_fails(read):
    """With styles, on the own mix and on all digits."""
    better, worse = [ARMS[1], *ARMS[3:]], ARMS[2]
    behind = all(ahead(read, "styles", score, arm, worse) for arm in better for score in ("own digits", "all digits"))
    return behind and shows(gap(read, "styles", "own digits", "GroupNorm", worse), "20")


def only_the_record(read):
    """One rate, so one training."""
    found = read("normalisation")
    same = found["styles: BatchNorm, averaged"]["rate"] == found["styles: BatchNorm, of the batch"]["rate"]
    return same and shows(gap(read, "styles", "own digits", ARMS[4], ARMS[2]), "21")


def averaged_is_fine(read):
    c = "label skew", "all digits"
    return ahead(read, *c, ARMS[2], "GroupNorm") and shows(gap(read, *c, ARMS[2], "GroupNorm"), "0.8")


def at_home_costs(read):
    c = "label skew", "all digits"
    return ahead(read, *c, ARMS[2], ARMS[3]) and shows(gap(read, *c, ARMS[2], ARMS[3]), "3.5")


def near_the_best(read):
    return all(max(accuracy(read, a, *c) for a in ARMS) - accuracy(read, "GroupNorm", *c) < 0.015 for c in COLUMNS)


CLAIMS = [
    ("| none | 0.925 | 0.923 | 0.857 | 0.856 |", row("none", "0.925", "0.923", "0.857", "0.856")),
    ("| GroupNorm | 0.928 | 0.930 | 0.887 | 0.887 |", row("GroupNorm", "0.928", "0.930", "0.887", "0.887")),
    (
        "| BatchNorm, averaged | 0.942 | 0.938 | 0.686 | 0.679 |",
        row("BatchNorm, averaged", "0.942", "0.938", "0.686", "0.679"),
    ),
    (
        "| BatchNorm, kept by the clients | 0.936 | 0.903 | 0.878 | 0.877 |",
        row("BatchNorm, at home", "0.936", "0.903", "0.878", "0.877"),
    ),
    (
        "| BatchNorm, of the batch | 0.934 | 0.937 | 0.896 | 0.896 |",
        row("BatchNorm, of the batch", "0.934", "0.937", "0.896", "0.896"),
    ),
    (
        "It is 20 points behind GroupNorm, and behind each other answer that normalises, in every seed.",
        averaged_fails,
    ),
    ("are the same trained networks, and they differ by 21 points", only_the_record),
    ("It is ahead of GroupNorm on all digits in every seed, by 0.8 points.", averaged_is_fine),
    (
        "costs 3.5 points on all digits compared with averaging, again in every seed",
        at_home_costs,
    ),
    ("It is within 1.5 points of the best row in all four columns", near_the_best),
]

GIVEN = ["share 4,000 digits", "$\\alpha = 0.3$", "after 60 rounds"]
