"""What the page on four kinds of shift says of the stored experiment."""

from book.claiming import HOLDS, OPPOSITE, UNDECIDED, ahead, beats, every, level, mean, says, verdict

from book.experiments.scoreboard import CONTROLS, METHODS
from book.experiments.shifts import SETTINGS, SHIFTS, WITHOUT_LABELS

PAGE = "book/shifts.md"
HOME, NEW = ("shifts", "accuracy"), ("shifts", "new clients")
KINDS = [f"{shift}, {grade}" for shift in SHIFTS for grade in SETTINGS["grades"]]
TUNED, TRUE, OURS = "FedAvg, fine-tuned", "true groups", "split-half CFL (ours)"
TOLD = ("IFCA", "FeSEM", "FedGroup", "k-means", "PACFL")
COLOURS, SHUFFLED = "P(x), 8", "P(y given x), 8"
SWAPPED = "P(y given x), 2"


def words(read, score, a, b):
    """The verdict on "a is better than b" in each column."""
    return [verdict(read("shifts"), (score, a, kind), (score, b, kind)) for kind in KINDS]


def tuned_home(read):
    found = words(read, "accuracy", TUNED, "FedAvg")
    return (found.count(HOLDS), found.count(OPPOSITE), len(found)) == (5, 0, 8)


def tuned_new(read):
    found = words(read, "new clients", TUNED, "FedAvg")
    return (found.count(HOLDS), len(found)) == (7, 8)


def unbeaten(read):
    """Columns in which no method is better than fine-tuning."""
    others = [words(read, "accuracy", name, TUNED) for name in METHODS if name != TUNED]
    return [HOLDS in column for column in zip(*others, strict=True)].count(False) == 4


def largest_rate(read):
    chosen = {kind: [*rates.values()] for kind, rates in read("shifts")["rates"].items() if kind != COLOURS}
    each = [rate for rates in chosen.values() for rate in rates]
    return (each.count(max(SETTINGS["rates"])), len(each)) == (107, 154)


def small_rates(read):
    large = {name for name, rate in read("shifts")["rates"][COLOURS].items() if rate > 0.15}
    return large == {"FedAdam", "FedEM"} and round(100 * read("shifts")["validation"][COLOURS]["FedAvg"]["0.45"]) == 13


def per_cent(score, kind, **rows):
    """These rows have these whole numbers of per cent."""
    return lambda read: all(round(100 * mean(read("shifts"), score, n, kind)) == v for n, v in rows.items())


def turned(read):
    scores = [100 * mean(read("shifts"), "accuracy", name, "P(x), 2") for name in (*TOLD, "pFedGraph")]
    ours = 100 * mean(read("shifts"), "accuracy", TUNED, "P(x), 2")
    return (round(min(scores)), round(max(scores))) == (86, 88) and min(scores) - ours > 8


def shuffled(read):
    return max(mean(read("shifts"), "accuracy", name, SHUFFLED) for name in (*TOLD, OURS)) < 0.46


def nobody_above_alone(read):
    return not any(beats(HOME, name, "alone", COLOURS, seeds=0)(read) for name in METHODS if name != "alone")


def without_labels(read):
    return max(mean(read("shifts"), "new clients", name, SHUFFLED) for name in WITHOUT_LABELS) < 0.28


def best_alone(read):
    rows = {name: mean(read("shifts"), "new clients", name, COLOURS) for name in (*METHODS, *CONTROLS)}
    return max(rows, key=rows.get) == "alone"


CLAIMS = {
    "In 107 of 154 choices without colours the largest rate won, 0.9": largest_rate,
    "is better than FedAvg in five of eight columns and worse in none.": tuned_home,
    "In four columns no method is better than it.": unbeaten,
    "With three turns it is 11 points below the true groups, and with colours 12 points below training alone.": every(
        ahead(HOME, TRUE, TUNED, "P(x), 2", points="11"), ahead(HOME, "alone", TUNED, COLOURS, points="12")
    ),
    "IFCA, FeSEM, FedGroup, k-means and PACFL reach 86 to 88 %, at least 8 points": turned,
    "With two swapped labels the true groups cannot be distinguished from fine-tuning": level(
        HOME, TRUE, TUNED, SWAPPED, half=0.03
    ),
    "with three classes per client they are 1.6 points better.": says(
        HOLDS, HOME, TRUE, TUNED, "P(y), 8", points="1.6"
    ),
    "even the true groups are worse than FedAvg, by 3.4 and by 5.3 points.": every(
        beats(HOME, "FedAvg", TRUE, "P(y), 2", points="3.4"),
        beats(HOME, "FedAvg", TRUE, "P(x given y), 2", points="5.3"),
    ),
    "If eight classes are shuffled, FedAvg falls to 34 %.": per_cent("accuracy", SHUFFLED, FedAvg=34),
    "PACFL and split-half CFL stay below 46 %.": shuffled,
    "keep the first of two layers, reaches 72 %, about as much as a client alone.": every(
        per_cent("accuracy", SHUFFLED, FedSGCNN=72, alone=73),
    ),
    "reaches 80 % and is better than all other methods.": every(
        per_cent("accuracy", SHUFFLED, FedRep=80),
        beats(HOME, "FedRep", [name for name in METHODS if name != "FedRep"], SHUFFLED),
    ),
    "Split-half CFL finds both and reaches 90 %, and FedRep is not better than FedAvg there.": every(
        lambda read: mean(read("shifts"), "ARI", OURS, SWAPPED) == 1,
        per_cent("accuracy", SWAPPED, **{OURS: 90}),
        says(UNDECIDED, HOME, "FedRep", "FedAvg", SWAPPED),
    ),
    "no method is better than training alone.": nobody_above_alone,
    "FedAvg ends 13 points below it.": ahead(HOME, "alone", "FedAvg", COLOURS, points="13"),
    "The true groups reach 66 %, 8 points above it, but no method finds them.": every(
        per_cent("accuracy", COLOURS, **{TRUE: 66}),
        beats(HOME, TRUE, "alone", COLOURS, points="8"),
        lambda read: max(mean(row, COLOURS) for row in read("shifts")["ARI"].values()) < 0.4,
    ),
    "chose a rate of 0.15 or less, and with 0.45 FedAvg has 13 % on validation digits.": small_rates,
    "FedAvg reaches 89 % for new clients where a class is missing, and 86 % where two classes are turned.": every(
        per_cent("new clients", "P(y), 2", FedAvg=89), per_cent("new clients", "P(x given y), 2", FedAvg=86)
    ),
    "reaches 88 %, and FedAvg 71 %.": per_cent("new clients", "P(x), 2", PACFL=88, FedAvg=71),
    "no method without labels exceeds 28 %.": without_labels,
    "It is better than FedAvg for them in seven of eight columns.": tuned_new,
    "With colours a new client does best alone.": best_alone,
}
GIVEN = [
    "{cite:t}`fenoglio2025`",
    "0, 90, 180 or 270 degrees",
    "of 14 x 14 pixels",
    "6,000 digits",
    "on 80 digits each",
    "in each of 40 rounds",
    "trains for 40 rounds",
    "95 % intervals",
    "the 95 % interval",
    "There are 11 to 13 kinds of clients",  # tests/book/test_shifts.py
]
