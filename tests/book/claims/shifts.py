"""What the page on four kinds of shift says of the stored experiment."""

from book.claiming import HOLDS, OPPOSITE, UNDECIDED, ahead, beats, every, gaps, level, mean, printed, says, so_often

from book.experiments.scoreboard import CONTROLS, METHODS
from book.experiments.shifts import SETTINGS, SHIFTS, WITHOUT_LABELS

PAGE = "book/shifts.md"
HOME, NEW = ("shifts", "accuracy"), ("shifts", "new clients")
KINDS = [f"{shift}, {grade}" for shift in SHIFTS for grade in SETTINGS["grades"]]
TUNED, TRUE, OURS = "FedAvg, fine-tuned", "true groups", "split-half CFL (ours)"
TOLD = ("IFCA", "FeSEM", "FedGroup", "k-means", "PACFL")
COLOURS, SHUFFLED = "P(x), 8", "P(y given x), 8"
SWAPPED = "P(y given x), 2"
OTHERS = [name for name in METHODS if name != "alone"]


def tuned_better(number, where, word=HOLDS):
    """In so many of the eight columns fine-tuning is better than FedAvg."""
    return so_often(number, 8, word, where, TUNED, "FedAvg", *KINDS)


def unbeaten(read):
    """Columns in which no method is better than fine-tuning."""
    others = [name for name in METHODS if name != TUNED]
    return sum(HOLDS not in [gap["verdict"] for gap in gaps(read, HOME, others, TUNED, k)] for k in KINDS) == 4


def largest_rate(read):
    each = [rate for kind, rates in read("shifts")["rates"].items() if kind != COLOURS for rate in rates.values()]
    return (each.count(max(SETTINGS["rates"])), len(each)) == (107, 154)


def small_rates(read):
    large = {name for name, rate in read("shifts")["rates"][COLOURS].items() if rate > 0.15}
    return large == {"FedAdam", "FedEM"} and round(100 * read("shifts")["validation"][COLOURS]["FedAvg"]["0.45"]) == 13


def per_cent(where, kind, **rows):
    """These rows have these whole numbers of per cent."""
    return printed(where, {row: str(number) for row, number in rows.items()}, kind, times=100)


def most(below, where, kind, rows):
    return lambda read: max(mean(read("shifts"), where[1], row, kind) for row in rows) < below


def turned(read):
    scores = [100 * mean(read("shifts"), "accuracy", name, "P(x), 2") for name in (*TOLD, "pFedGraph")]
    ours = 100 * mean(read("shifts"), "accuracy", TUNED, "P(x), 2")
    return (round(min(scores)), round(max(scores))) == (86, 88) and min(scores) - ours > 8


def best_alone(read):
    rows = {name: mean(read("shifts"), "new clients", name, COLOURS) for name in (*METHODS, *CONTROLS)}
    return max(rows, key=rows.get) == "alone"


CLAIMS = {
    "In 107 of 154 choices without colours the largest rate won, 0.9": largest_rate,
    "is better than FedAvg in five of eight columns and worse in none.": every(
        tuned_better(5, HOME), tuned_better(0, HOME, OPPOSITE)
    ),
    "In four columns no method is better than it.": unbeaten,
    "With three turns it is 11 points below the true groups, and with colours 12 points below training alone.": every(
        ahead(HOME, TRUE, TUNED, "P(x), 2", points="11"), ahead(HOME, "alone", TUNED, COLOURS, points="12")
    ),
    "IFCA, FeSEM, FedGroup, k-means and PACFL reach 86 to 88 %, at least 8 points": turned,
    "With two swapped labels the true groups cannot be distinguished from fine-tuning": level(
        HOME, TRUE, TUNED, SWAPPED, half=0.03
    ),
    "three classes per client they are 1.6 points better.": beats(HOME, TRUE, TUNED, "P(y), 8", seeds=0, points="1.6"),
    "even the true groups are worse than FedAvg, by 3.4 and by 5.3 points.": every(
        beats(HOME, "FedAvg", TRUE, "P(y), 2", points="3.4"),
        beats(HOME, "FedAvg", TRUE, "P(x given y), 2", points="5.3"),
    ),
    "If eight classes are shuffled, FedAvg falls to 34 %.": per_cent(HOME, SHUFFLED, FedAvg=34),
    "PACFL and split-half CFL stay below 46 %.": most(0.46, HOME, SHUFFLED, (*TOLD, OURS)),
    "keep the first of two layers, reaches 72 %, about as much as a client alone.": per_cent(
        HOME, SHUFFLED, FedSGCNN=72, alone=73
    ),
    "reaches 80 % and is better than all other methods.": every(
        per_cent(HOME, SHUFFLED, FedRep=80),
        beats(HOME, "FedRep", [name for name in METHODS if name != "FedRep"], SHUFFLED),
    ),
    "Split-half CFL finds both and reaches 90 %, and FedRep is not better than FedAvg there.": every(
        lambda read: mean(read("shifts"), "ARI", OURS, SWAPPED) == 1,
        per_cent(HOME, SWAPPED, **{OURS: 90}),
        says(UNDECIDED, HOME, "FedRep", "FedAvg", SWAPPED),
    ),
    "no method is better than training alone.": so_often(0, len(OTHERS), HOLDS, HOME, OTHERS, "alone", COLOURS),
    "FedAvg ends 13 points below it.": ahead(HOME, "alone", "FedAvg", COLOURS, points="13"),
    "The true groups reach 66 %, 8 points above it, but no method finds them.": every(
        per_cent(HOME, COLOURS, **{TRUE: 66}),
        beats(HOME, TRUE, "alone", COLOURS, points="8"),
        lambda read: max(mean(row, COLOURS) for row in read("shifts")["ARI"].values()) < 0.4,
    ),
    "chose a rate of 0.15 or less, and with 0.45 FedAvg has 13 % on validation digits.": small_rates,
    "FedAvg reaches 89 % for new clients where a class is missing, and 86 % where two classes are turned.": every(
        per_cent(NEW, "P(y), 2", FedAvg=89), per_cent(NEW, "P(x given y), 2", FedAvg=86)
    ),
    "reaches 88 %, and FedAvg 71 %.": per_cent(NEW, "P(x), 2", PACFL=88, FedAvg=71),
    "no method without labels exceeds 28 %.": most(0.28, NEW, SHUFFLED, WITHOUT_LABELS),
    "It is better than FedAvg for them in seven of eight columns.": tuned_better(7, NEW),
    "With colours a new client does best alone.": best_alone,
}

GIVEN = ["There are 11 to 13 kinds of clients"]  # tests/book/test_shifts.py
