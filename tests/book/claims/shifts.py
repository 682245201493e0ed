"""What the page on four kinds of shift says of the stored experiment."""

from book.claiming import HOLDS, OPPOSITE, ahead, beats, every, mean, says, verdict

from book.experiments.scoreboard import METHODS
from book.experiments.shifts import SETTINGS, SHIFTS, WITHOUT_LABELS

PAGE = "book/shifts.md"
HOME, NEW = ("shifts", "accuracy"), ("shifts", "new clients")
KINDS = [f"{shift}, {grade}" for shift in SHIFTS for grade in SETTINGS["grades"]]
TUNED, TRUE = "FedAvg, fine-tuned", "true groups"
FINDERS = ("IFCA", "FeSEM", "FedGroup", "k-means", "PACFL")  # and split-half CFL (ours)


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
    chosen = [rate for rates in read("shifts")["rates"].values() for rate in rates.values()]
    return (chosen.count(max(SETTINGS["rates"])), len(chosen)) == (108, 176)


def at(score, kind, name):
    return lambda read: round(100 * mean(read("shifts"), score, name, kind))


def turned(read):
    scores = [at("accuracy", "P(x), 2", name)(read) for name in (*FINDERS, "pFedGraph")]
    gaps = [name for name in scores if name < at("accuracy", "P(x), 2", TUNED)(read) + 8]
    return (min(scores), max(scores), gaps) == (86, 88, [])


def shuffled(read):
    found = [mean(read("shifts"), "accuracy", n, "P(y given x), 8") for n in (*FINDERS, "split-half CFL (ours)")]
    return at("accuracy", "P(y given x), 8", "FedAvg")(read) == 34 and max(found) < 0.5


def coloured(read):
    return at("accuracy", "P(x), 8", "FedAvg")(read) == 45


def without_labels(read):
    return max(mean(read("shifts"), "new clients", n, "P(y given x), 8") for n in WITHOUT_LABELS) < 0.28


def one_model(read):
    """The methods that send one model to all, and are worse than training alone with colours."""
    worse = says(OPPOSITE, HOME, ("FedAvg", "FedProx", "SCAFFOLD"), "alone", "P(x), 8")
    return worse(read) and not says(OPPOSITE, HOME, "FedAdam", "alone", "P(x), 8")(read)


OTHERS = [name for name in METHODS if name != "FedRep"]
CLAIMS = {
    "In 108 of 176 choices the largest rate of the list won, 0.9": largest_rate,
    "is better than FedAvg in five of eight columns and worse in none.": tuned_home,
    "In four columns no method is better than it.": unbeaten,
    "IFCA, FeSEM, FedGroup, k-means, PACFL and pFedGraph reach 86 to 88 %, at least 8 points": turned,
    "even the true groups are worse than FedAvg, by 3.4 and by 5.3 points.": every(
        beats(HOME, "FedAvg", TRUE, "P(y), 2", points="3.4"),
        beats(HOME, "FedAvg", TRUE, "P(x given y), 2", points="5.3"),
    ),
    "FedAvg falls to 34 %, and no method that finds groups reaches half.": shuffled,
    "reaches 80 % and is better than all other methods.": every(
        lambda read: at("accuracy", "P(y given x), 8", "FedRep")(read) == 80,
        beats(HOME, "FedRep", OTHERS, "P(y given x), 8"),
    ),
    "FedAvg ends at 45 %, 13 points below clients that train alone.": every(
        coloured, ahead(HOME, "alone", "FedAvg", "P(x), 8", points="13")
    ),
    "Of the methods with one model for all, only FedAdam is not worse than these.": one_model,
    "reaches 88 % for clients never seen, where FedAvg has 71 %.": lambda read: (
        (at("new clients", "P(x), 2", "PACFL")(read), at("new clients", "P(x), 2", "FedAvg")(read)) == (88, 71)
    ),
    "no method without labels exceeds 28 %.": without_labels,
    "is better than FedAvg for new clients in seven of eight columns.": tuned_new,
}
GIVEN = [
    "{cite:t}`fenoglio2025`",
    "0, 90, 180 or 270 degrees",
    "of 14 x 14 pixels",
    "6,000 digits",
    "the 95 % interval",
]
