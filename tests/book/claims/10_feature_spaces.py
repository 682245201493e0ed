"""What chapter 10 says of its stored results."""

import numpy as np
from book.claiming import at, compare, mean, shows, values, verdict

PAGE = "notebooks/10_feature_spaces.ipynb"
NAME = "feature_spaces"
TABLES = ("diabetes", "breast_cancer")
READINGS = ("pooled", "cut", "median")
WEIGHTS = np.array([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1, 2])


def printed(text, *place):
    """The mean that stands at a place is printed so."""
    return lambda read: shows(mean(read(NAME), *place), text)


def every(*checks):
    """All of these hold."""
    return lambda read: all(check(read) for check in checks)


def says(wanted, a, b, *scores):
    """The verdict on "a is larger than b", in each of these scores."""
    return lambda read: all(verdict(read(NAME), (a, s), (b, s)) == wanted for s in scores)


def agree(seeds, a, b, *scores):
    """In so many seeds a is larger than b, in each of these scores."""
    return lambda read: all(compare(read(NAME), (a, s), (b, s))["agree"] == seeds for s in scores)


def gap(read, a, b, score):
    return compare(read(NAME), (a, score), (b, score))["difference"]


def holds(*places):
    return says("holds", *places)


def undecided(a, b, *scores):
    """As `says`, of scores that lie close enough together for the word to mean something."""

    def ask(read):
        found = [compare(read(NAME), (a, s), (b, s)) for s in scores]
        return all(f["verdict"] == "undecided" and f["half_width"] < 0.3 for f in found)

    return ask


def worse(*places):
    return says("the opposite holds", *places)


# ---- experiments 1 and 2 ----


def standalone_overfits(read):
    """It ends below 0 in every seed, far below on average; its best round is an early one."""
    found = at(read(NAME), "diabetes, as dealt: standalone")
    curve = read(NAME)["curves"]["diabetes, as dealt: standalone"]
    early = max(curve, key=curve.get)
    return max(values(found, "last")) < 0 and mean(found, "last") < -0.2 and int(early) <= 10 and curve[early] > 0.1


def five_seeds(read):
    return all(len(v) == 5 for name, found in read(NAME).items() if name != "curves" for v in found.values())


def averaging_hardly_falls(read):
    for how in ("position", "name"):
        curve = list(read(NAME)["curves"][f"diabetes, as dealt: FedAvg by {how}"].values())
        if not (max(curve) > 0.1 and max(curve) - curve[-1] < 0.02):
            return False
    return True


def level_of_knowing_nothing(read):
    found = read(NAME)
    majority = mean(found, "breast_cancer: majority class", "chosen")
    for how in ("position", "name"):
        if not -0.05 < mean(found, f"diabetes, own signs: FedAvg by {how}", "chosen") < 0.02:
            return False
        if not abs(mean(found, f"breast_cancer, own signs: FedAvg by {how}", "chosen") - majority) < 0.03:
            return False
    return True


def two_thirds(read):
    dealt, own = (mean(read(NAME), f"diabetes, {c}: LG-FedAvg", "chosen") for c in ("as dealt", "own signs"))
    return 0.6 < own / dealt < 0.73 and shows(own, "0.130") and shows(dealt, "0.198")


def catches_up_at_the_end(read):
    """On the mean of five seeds; for half of the rounds it is well behind."""
    alone, ours = (read(NAME)["curves"][f"breast_cancer, own signs: {m}"] for m in ("standalone", "LG-FedAvg"))
    return all(alone[str(t)] > ours[str(t)] + 0.02 for t in range(8, 30, 2)) and abs(alone["40"] - ours["40"]) < 0.01


def gains(rows, table="diabetes", what="chosen"):
    stem = f"{table}, {rows} rows: "
    return lambda read: gap(read, stem + "LG-FedAvg", stem + "standalone", what)


def more_rows(wanted, rows, *tables, what="chosen"):
    return every(*(says(wanted, f"{t}, {rows} rows: LG-FedAvg", f"{t}, {rows} rows: standalone", what) for t in tables))


def signs_hardly_matter_alone(read):
    for t in TABLES:
        dealt, own = (mean(read(NAME), f"{t}, {c}: standalone", "chosen") for c in ("as dealt", "own signs"))
        if not abs(dealt - own) < 0.02 < dealt:
            return False
    return True


def nothing_from_shuffled(read):
    found = read(NAME)
    learned = every(*(
        holds(f"{t}, {c}: LG-FedAvg", f"{t}, {c}: LG-FedAvg, shuffled targets", "chosen")
        for t in TABLES for c in ("as dealt", "own signs")
    ))(read)  # fmt: skip
    majority = mean(found, "breast_cancer: majority class", "chosen")
    shuffled = [mean(found, f"{t}, as dealt: LG-FedAvg, shuffled targets", "chosen") for t in TABLES]
    return learned and shuffled[0] < 0.02 and abs(shuffled[1] - majority) < 0.03


def worse_off(codes, low, high):
    return lambda read: all(
        low <= mean(read(NAME), f"{t}, {codes}: LG-FedAvg", "worse than standalone") <= high for t in TABLES
    )


LADDER = every(
    more_rows("holds", 6, *TABLES),
    more_rows("undecided", 12, "breast_cancer"),
    more_rows("undecided", 48, *TABLES),
    lambda read: all(gains(48, t)(read) < 0.001 for t in TABLES),
)
DEALT = every(
    *(
        check
        for t in TABLES
        for pair in [(f"{t}, as dealt: LG-FedAvg", f"{t}, as dealt: standalone", "chosen")]
        for check in (holds(*pair), agree(5, *pair))
    )
)
OWN = every(*(undecided(f"{t}, own signs: LG-FedAvg", f"{t}, own signs: standalone", "chosen") for t in TABLES))
BETTER_THAN_ALL = every(
    *(
        agree(5, f"{t}, own signs: LG-FedAvg", f"{t}, own signs: FedAvg by {how}", "chosen")
        for t in TABLES
        for how in ("position", "name")
    )
)
FAILS = every(
    level_of_knowing_nothing,
    *(worse(f"{t}, own signs: FedAvg by position", f"{t}, own signs: standalone", "chosen") for t in TABLES),
)


# ---- experiment 3 ----


def in_each_seed(check, *arms):
    """check(numbers of the arms, each a dict of scores) in every seed."""

    def ask(read):
        found = [read(NAME)[f"space: {arm}"] for arm in arms]
        seeds = next(iter(found[0].values()))
        return all(check(*({what: v[s] for what, v in f.items() if s in v} for f in found)) for s in seeds)

    return ask


OTHER, OWN_GROUP, SELF = "MMD^2, other group", "MMD^2, own group", "MMD^2, itself"


def three_times(read):
    start = at(read(NAME), "space: at the start")
    return all(2.8 < mean(start, what) / mean(start, SELF) < 3.6 for what in (OTHER, OWN_GROUP))


FURTHER = in_each_seed(lambda a, b: all(a[w] < b[w] for w in (OTHER, OWN_GROUP)), "at the start", "no MMD")
PART_BACK = in_each_seed(lambda a, c, b: a[OTHER] < c[OTHER] < b[OTHER], "at the start", "centroid", "no MMD")
STRONG_TOO = in_each_seed(
    lambda a, c: a[OTHER] < c[OTHER] and min(c[OTHER], c[OWN_GROUP]) > 2 * c[SELF],
    "at the start",
    "centroid, weight 20",
)


def half_the_spread(read):
    weak, strong = (mean(read(NAME), f"space: {n}", "spread") for n in ("no MMD", "centroid, weight 20"))
    return 0.45 < strong / weak < 0.6


def groups_hardly_stand_out(read):
    found = at(read(NAME), "space: no MMD")
    return 0 < mean(found, OTHER) - mean(found, OWN_GROUP) < 0.2 * mean(found, OTHER)


def stays_near_start(read):
    what = "same row / other row"
    start = mean(read(NAME), "space: at the start", what)
    return start > 0.5 and all(
        abs(mean(read(NAME), f"space: {n}", what) - start) < 0.05
        for n in ("no MMD", "centroid", "centroid, weight 20", "all pairs")
    )


def dearer(read):
    found = read(NAME)
    return all(
        mean(found, "space: all pairs", what)
        > 2 * mean(found, "space: centroid", what)
        > 4 * mean(found, "space: mean", what)
        > 0
        for what in ("kB", "Mflop")
    )


def closer_by_a_tenth(read):
    gain = gap(read, "space: no MMD", "space: centroid", OTHER)
    return 0 < gain < 0.1 * mean(read(NAME), "space: no MMD", OTHER)


# ---- Boston ----


def lines(read, what):
    """Correlation of weight and score for each seed, up to 0.5 and beyond."""
    found, low, high = read(NAME), WEIGHTS <= 0.5, WEIGHTS >= 0.5
    out = []
    for s in found["weight 0"][what]:
        v = np.array([found[f"weight {w:g}"][what][s] for w in WEIGHTS])
        if np.ptp(v[low]) == 0 or np.ptp(v[high]) == 0:
            raise ValueError("scores without a slope")
        out.append((np.corrcoef(WEIGHTS[low], v[low])[0, 1], np.corrcoef(WEIGHTS[high], v[high])[0, 1]))
    return out


def shown(found):
    return [(a, b) for a, b in found if a > 0 > b]


def two_show(read):
    seeds = shown(lines(read, "max"))
    return len(seeds) == 2 and all(a > 0.70 and b < -0.43 for a, b in seeds)


def faster(read):
    curves = read(NAME)["curves"]
    true, ours, random = (curves[f"groups, cut: {m}"] for m in ("true groups", "LG-FedAvg", "random groups"))
    ahead = all(true[t] > max(ours[t], random[t]) + 0.01 for t in ("20", "30"))
    return ahead and abs(true["50"] - max(ours["50"], random["50"])) < 0.005


def second_bar(read):
    return all(gap(read, "groups: LG-FedAvg", "groups: standalone", w) >= 0.0 for w in READINGS) and any(
        gap(read, "groups: LG-FedAvg", "groups: standalone", w) > 0.04 for w in READINGS
    )


def first_bar(read):
    met = [gap(read, "groups: true groups", "groups: LG-FedAvg", w) >= 0.01 for w in READINGS]
    return met == [False, False, True]


def one_wild_seed(read):
    wild = read(NAME)["groups: standalone"]
    return sum(v < -1 for v in wild["pooled"].values()) == 1 and min(wild["cut"].values()) > 0.2


GROUPS = every(
    agree(5, "groups: LG-FedAvg", "groups: standalone", *READINGS),
    holds("groups: LG-FedAvg", "groups: standalone", "cut", "median"),
)
MMD_SCORES = every(
    undecided("groups: LG-FedAvg + MMD", "groups: LG-FedAvg", *READINGS),
    undecided("groups: true groups + MMD", "groups: true groups", *READINGS),
    undecided("random columns: LG-FedAvg + MMD", "random columns: LG-FedAvg", *READINGS),
    undecided("weight 0.5", "weight 0", "max"),
    undecided("weight 2", "weight 0", "max"),
    undecided("space: centroid", "space: no MMD", "R2"),
)

CLAIMS = [
    # experiment 1
    ("five further seeds, whose means we quote", every(five_seeds, standalone_overfits)),
    ("and then the curve falls far below zero, in every seed", standalone_overfits),
    (
        "LG-FedAvg reaches a better maximum and falls more slowly, in every seed too",
        agree(5, "diabetes, as dealt: LG-FedAvg", "diabetes, as dealt: standalone", "max", "last"),
    ),
    ("its curves hardly fall", averaging_hardly_falls),
    (
        "on diabetes it cannot be told from LG-FedAvg, on breast cancer not from standalone training",
        every(
            undecided("diabetes, as dealt: LG-FedAvg", "diabetes, as dealt: FedAvg by position", "chosen"),
            undecided("breast_cancer, as dealt: FedAvg by position", "breast_cancer, as dealt: standalone", "chosen"),
        ),
    ),
    ("standalone training should hardly notice", signs_hardly_matter_alone),
    ("FedAvg falls to about the level of knowing nothing", level_of_knowing_nothing),
    ("keeps two thirds of its $R^2$ (0.130 of 0.198)", two_thirds),
    (
        "cannot be told from standalone training (0.138) any more",
        every(OWN, printed("0.138", "diabetes, own signs: standalone", "chosen")),
    ),
    ("on breast cancer it needs, on the mean of the seeds, the whole run to catch up with it", catches_up_at_the_end),
    # experiment 2
    ("over five seeds it gains 0.12 with six rows", lambda read: shows(gains(6)(read), "0.12")),
    (
        "with 48, if the round is chosen well, nothing is left of its lead",
        every(more_rows("undecided", 48, "diabetes"), lambda read: gains(48)(read) < 0.001 < gains(24)(read)),
    ),
    (
        "it is worth something at all sizes, still 0.06 with 48 rows",
        every(
            *(more_rows("holds", k, "diabetes", what="last") for k in (6, 12, 24, 48)),
            lambda read: shows(gains(48, what="last")(read), "0.06"),
        ),
    ),
    # experiment 3
    ("two clients with different columns are far apart, three times the floor", three_times),
    ("it moves them *further* apart, a little, in every seed", FURTHER),
    ("Feature groups hardly stand out", groups_hardly_stand_out),
    ("a part of that move is taken back, and no more", PART_BACK),
    ("with the paper's weight and even with 40 times that weight", every(PART_BACK, STRONG_TOO)),
    ("the cloud shrinks to about half", half_the_spread),
    (
        "with weight 20 it is worse than without any MMD, in every seed",
        agree(0, "space: centroid, weight 20", "space: no MMD", "R2"),
    ),
    (
        "the row *weight decay, no MMD*, whose spread falls too",
        holds("space: no MMD", "space: weight decay, no MMD", "spread"),
    ),
    ("*Same row / other row* stays near its start too", stays_near_start),
    ("That part of the paper's claim holds for twenty clients: less is sent and computed", dearer),
    # the stored tables
    ("on breast cancer the majority class has 0.646", printed("0.646", "breast_cancer: majority class", "chosen")),
    # the bars
    ("The second bar is met in all three readings", second_bar),
    ("The first is **missed** in two of three", first_bar),
    ("they are ahead of both other federations at round 20 and 30, on average", faster),
    (
        "the difference is large and undecided, since one seed makes nearly all of it",
        every(says("undecided", "groups: LG-FedAvg", "groups: standalone", "pooled"), one_wild_seed),
    ),
    # read together
    ("**LG-FedAvg helps clients with few rows**, on both tables as dealt, in every seed of Experiment 1", DEALT),
    ("the gain with six rows is told from zero on both tables", LADDER),
    ("on breast cancer it no longer is with 12, and with 48 nothing is left on either", LADDER),
    ("With shuffled targets nothing is learned", nothing_from_shuffled),
    ("about three clients of ten are worse off with it than alone", worse_off("as dealt", 0.25, 0.35)),
    ("**Once each client codes its columns by its own habit, that gain cannot be told from zero**", OWN),
    ("Averaging everything fails there altogether", FAILS),
    ("against that LG-FedAvg is better in every seed", BETTER_THAN_ALL),
    ("four to five clients of ten are worse off than alone", worse_off("own signs", 0.38, 0.53)),
    (
        "FedAvg by name is better than LG-FedAvg in every seed",
        every(
            agree(0, "diabetes, as dealt: LG-FedAvg", "diabetes, as dealt: FedAvg by name", "chosen"),
            worse("diabetes, as dealt: LG-FedAvg", "diabetes, as dealt: FedAvg by name", "chosen"),
        ),
    ),
    (
        "it is worse in every seed; its curve still rises after 40 rounds",
        every(
            agree(5, "breast_cancer, as dealt: LG-FedAvg", "breast_cancer, as dealt: FedAvg by name", "chosen"),
            lambda read: (
                (c := read(NAME)["curves"]["breast_cancer, as dealt: FedAvg by name"])["40"]
                > c["34"] + 0.01
                > c["28"] + 0.02
            ),
        ),
    ),
    ("in the score, on diabetes and on Boston: undecided in every reading", MMD_SCORES),
    (
        "closer than LG-FedAvg alone does, in every seed, by less than a tenth of their distance",
        every(
            closer_by_a_tenth,
            agree(5, "space: no MMD", "space: centroid", OTHER),
            holds("space: no MMD", "space: centroid", OTHER),
        ),
    ),
    ("and still further apart than at the start", PART_BACK),
    (
        "Far more of it shrinks the cloud and hurts, in every seed",
        every(
            agree(0, "space: centroid, weight 20", "space: no MMD", "R2"),
            worse("space: centroid, weight 20", "space: no MMD", "R2"),
            agree(5, "space: no MMD", "space: centroid, weight 20", "spread"),
        ),
    ),
    (
        "In score pairs, centroid and mean cannot be told apart, and the mean is the cheapest by far",
        every(
            undecided("space: all pairs", "space: centroid", "R2"),
            undecided("space: centroid", "space: mean", "R2"),
            dearer,
        ),
    ),
    ("two of our five seeds show its rise and fall, with correlations even larger than its own", two_show),
    (
        "In the reading that cuts off wild values, only one seed shows it",
        lambda read: len(shown(lines(read, "cut, last"))) == 1,
    ),
    (
        "beyond 0.5 the score falls in four seeds of five, and in all five after the last round",
        lambda read: [sum(b < 0 for _, b in lines(read, w)) for w in ("max", "cut, last")] == [4, 5],
    ),
    (
        "the means for weight 0 and 0.5 differ by less than a thousandth",
        every(
            lambda read: abs(gap(read, "weight 0.5", "weight 0", "max")) < 0.001,
            lambda read: mean(read(NAME), "weight 0", "max") > 0.3,
        ),
    ),
    ("LG-FedAvg is better than standalone in every seed and all readings", GROUPS),
    ("in one seed a few wild answers drag standalone training far below zero", one_wild_seed),
    (
        "**With random columns** it is undecided",
        undecided("random columns: LG-FedAvg", "random columns: standalone", *READINGS),
    ),
    (
        "FedAvg by position, tried with random columns, is worse than LG-FedAvg in all readings",
        holds("random columns: LG-FedAvg", "random columns: FedAvg by position", *READINGS),
    ),
    (
        "True groups cannot be told from random groups of the same sizes, in any reading",
        undecided("groups: true groups", "groups: random groups", *READINGS),
    ),
    (
        "on the fresh seeds federations of true feature groups are not better than one federation of all",
        every(undecided("groups: true groups", "groups: LG-FedAvg", *READINGS), first_bar),
    ),
]

GIVEN = [
    "mean and 95 % interval",
    "as means with 95 % intervals over the seeds",
    "if the whole 95 % interval of the difference",
    # Figure 5 of the paper
    "with the weight up to 0.5 (Pearson correlation 0.70) and falls beyond (-0.43), and 0.5 is what it uses",
    "the paper states 0.70 up to the weight 0.5, which is its best, and -0.43 beyond",
    # arithmetic: Exercise 5
    "as here up to 0.5, a correlation of 0.70 is reached or passed by pure chance in about one case of eight",
    # set before the runs
    "better than LG-FedAvg by 0.01 at least",
    # Table 5 of the paper
    "with what it calls a 95 % confidence interval over three seeds",
    "| standalone | 0.1344 ± 0.0433 | 0.0973 ± 0.0357 |",
    "| LG-FedAvg | 0.1285 ± 0.0333 | 0.0764 ± 0.0551 |",
    "| LG-FedAvg + MMD | 0.1297 ± 0.0158 | 0.1130 ± 0.0547 |",
    "| LG-FedAvg + MMD, random clusters | 0.1363 ± 0.0240 | 0.1256 ± 0.0320 |",
    # settings
    "SGD 0.01, momentum 0.5, 10 epochs",
    "SGD 0.02, 5 epochs",
]
