"""What the page on batch normalisation says of the stored experiment."""

from book.claiming import ahead, every, mean, printed, same

PAGE = "book/normalisation.md"
NAME = "normalisation"
COLUMNS = [(kind, score) for kind in ("label skew", "styles") for score in ("own digits", "all digits")]
NONE, GROUP, AVERAGED, AT_HOME, OF_THE_BATCH = ROWS = {
    "none": "| none | 0.925 | 0.923 | 0.857 | 0.856 |",
    "GroupNorm": "| GroupNorm | 0.928 | 0.930 | 0.887 | 0.887 |",
    "BatchNorm, averaged": "| BatchNorm, averaged | 0.942 | 0.938 | 0.686 | 0.679 |",
    "BatchNorm, at home": "| BatchNorm, kept by the clients | 0.936 | 0.903 | 0.878 | 0.877 |",
    "BatchNorm, of the batch": "| BatchNorm, of the batch | 0.934 | 0.937 | 0.896 | 0.896 |",
}


def row(arm, line):
    """A row of the page's table."""
    cells = zip(COLUMNS, line.split(" | ")[1:], strict=True)
    return every(*(printed(NAME, {f"{kind}: {arm}": text.strip(" |")}, score) for (kind, score), text in cells))


def in_front(kind, arms, other, *scores, points=""):
    """In every seed, and by so many points on average."""
    return ahead(NAME, [f"{kind}: {arm}" for arm in arms], f"{kind}: {other}", *scores, points=points)


one_rate = same(NAME, f"styles: {AVERAGED}", f"styles: {OF_THE_BATCH}", "rate")  # and so one training


def near_the_best(read):
    scores = [{arm: mean(read(NAME), f"{kind}: {arm}", score) for arm in ROWS} for kind, score in COLUMNS]
    return all(max(column.values()) - column[GROUP] < 0.015 for column in scores)


CLAIMS = {line: row(arm, line) for arm, line in ROWS.items()} | {
    "It is 20 points behind GroupNorm, and behind each other answer that normalises, in every seed.": every(
        in_front("styles", [GROUP], AVERAGED, "own digits", points="20"),
        in_front("styles", [GROUP, AT_HOME, OF_THE_BATCH], AVERAGED, "own digits", "all digits"),
    ),
    "are the same trained networks, and they differ by 21 points": every(
        one_rate, in_front("styles", [OF_THE_BATCH], AVERAGED, "own digits", points="21")
    ),
    "It is ahead of GroupNorm on all digits in every seed, by 0.8 points.": in_front(
        "label skew", [AVERAGED], GROUP, "all digits", points="0.8"
    ),
    "costs 3.5 points on all digits compared with averaging, again in every seed": in_front(
        "label skew", [AVERAGED], AT_HOME, "all digits", points="3.5"
    ),
    "It is within 1.5 points of the best row in all four columns": near_the_best,
}
