"""What the page of claims says, by the stored results."""

import numpy as np
from book.claiming import beats, compare, every, level, mean, part, shows, values, verdict
from book.claims.reproduction_cfl import prepared
from book.claims.reproduction_fedcg import KNOWN, WHOLE, adds, femnist, pairs, places, undecided
from book.claims.reproduction_fedsgcnn import (
    foreseen,
    mmd_gains,
    near_chance,
    next_to_nothing,
    partners,
    simple_numbers_as_well,
    table5,
)

from book.experiments import verdicts

PAGE = "book/what_held.md"
OURS, RELATIVE = "split-half CFL (ours)", "CFL, relative lengths"
HOLDS, OPPOSITE, UNDECIDED = "holds", "the opposite holds", "undecided"


def says(wanted, file, a, b, *scores):
    """The verdict on "a is larger than b" in a result, in each of these scores."""
    return lambda read: all(verdict(read(file), (a, s), (b, s)) == wanted for s in scores)


def cut_rightly_at_rest(read):
    """Each cut of a model that stood still made the true clusters."""
    cuts = [arm for arm in read("cfl_geometry").values() if isinstance(arm, dict) and "round of the split" in arm]
    return len(cuts) == 3 and all(v == 1 for arm in cuts for v in values(arm, "true clusters"))


def known_from_first_updates(read):
    """FedGroup sorts clients by the directions of their first updates."""
    others, names = read("cfl_photos_some")["others"], ("FedGroup", "k-means on updates")
    photos = [others[f"five layers: {name}"] for name in names]
    return all(ari == 1 for name in names for ari in values(read("cfl"), name, "ARI")) and all(
        one["ARI"] == 1 and one["rounds"] == [1] for one in photos
    )


def blurred(read):
    def falls(arms, what):
        found = [mean(read("cfl_geometry"), arm, what) for arm in arms]
        return found[0] == 1 and found[-1] < 0.2 and found == sorted(found, reverse=True)

    noises = (0.5, 1.0, 1.5, 2.0, 3.0)
    return falls([f"exact, noise {s}" for s in noises], "true clusters") and falls(
        [f"{n} examples" for n in (256, 128, 64, 32, 16, 8)], "exact"
    )


SMALL = "small clients, one group"


def splits(read, rule, world):
    return values(read("cfl"), f"{rule}, {world}", "splits")


def parted(rule, seeds):
    return lambda read: sum(v > 0 for v in splits(read, rule, SMALL)) == seeds


def cost_them(read):
    """Where the rule by lengths split clients that agree, they end below FedAvg."""
    ends = [values(read("cfl"), f"{rule}, {SMALL}", "test accuracy") for rule in (RELATIVE, "FedAvg")]
    pairs = zip(*ends, splits(read, RELATIVE, SMALL), strict=True)
    return [a < b for a, b, number in pairs if number] == [True] * 4


def known_and_found(read):
    """What modules gain where domains are found, and where they are known."""
    gains = [
        compare(read("fedcg_graph"), (a, "accuracy"), (b, "accuracy"))
        for a, b in (
            ("turned: residual, no graph", "turned: FedAvg"),
            ("found, 100 rounds: residual, w from the student", "found, 100 rounds: FedAvg"),
        )
    ]
    return all(g["verdict"] == HOLDS for g in gains) and gains[0]["difference"] > gains[1]["difference"]


def few_rows(read):
    """LG-FedAvg gains with few rows, but not with many, and not where columns do not resemble each other."""
    found = read("feature_spaces")

    def gains(name):
        return verdict(found, (f"{name}: LG-FedAvg", "chosen"), (f"{name}: standalone", "chosen"))

    tables = ("diabetes", "breast_cancer")
    return all(
        gains(f"{t}, {rows}") == wanted
        for t in tables
        for rows, wanted in (
            ("as dealt", HOLDS),
            ("6 rows", HOLDS),
            ("48 rows", UNDECIDED),
            ("own signs", UNDECIDED),
        )
    )


def some_lose(read):
    return all(
        0 < v < 1
        for t in ("diabetes", "breast_cancer")
        for v in values(read("feature_spaces"), f"{t}, as dealt: LG-FedAvg", "worse than standalone")
    )


def sweeps_show_anything(read):
    """By seed, the correlation of weight and score lies anywhere between -1 and 1."""
    with np.errstate(invalid="ignore"):
        found = verdicts.DERIVED["correlation up to 0.5"](read("feature_spaces"))
    return min(found) < -0.9 and max(found) > 0.9


TELLS, PRINTED, LATE = "AUC, groups", "Siamese GCN, paper", "cosine, 100 epochs"


SKEW, NAMES = ("personal_models", "label skew"), ("personal_models", "label names")
SHORTER, LONGER = ("personal_models_writers", "writers"), ("personal_models_longer", "writers")
TUNED = "FedAvg, fine-tuned"
OWN, ALL, NEW = "own", "all classes", "new"


def lifted(read):
    before, after = (mean(part(read, NAMES), name, OWN) for name in ("FedAvg", TUNED))
    return 0.2 < before < 0.25 and 0.75 < after < 0.8


def nowhere_ahead(read):
    """The whole graph against modules without one, domains known or found."""
    pairs = [("fedcg_ablation", at) for at in KNOWN] + [("fedcg_ablation_others", at) for at in places("found")]
    found = [compare(read(r)[at], (WHOLE, "accuracy, late"), ("no graph", "accuracy, late")) for r, at in pairs]
    return all(f["verdict"] != HOLDS and f["difference"] < 0 for f in found)


FOUR_SLOW, ONE_SLOW = (f"FedCG, book, D = {d} at 0.03" for d in (4, 1))


def figure_3(read):
    """Where the run with the paper's schedule begins and ends, and where that with the wider network does."""
    found = read("cfl_photos_some")
    before, end = (verdicts.DERIVED[name](found)[0] for name in ("before the first split", "at the end"))
    wider = found["others"]["wider: CFL, paper's schedule"]
    same = wider["splits"] == found["splits"] == [50, 100, 150]
    return same and all(map(shows, (before, end, wider["accuracy"][-1]), ("0.20", "0.48", "0.53")))


def columns_above(read, way, score):
    """Columns of Table 5 in which a way is above LG-FedAvg, and below it."""
    columns = [name + c for name in ("Boston", "Wine", "Obesity") for c in ("", "(c)")]
    found = {n: verdict(read("fedsgcnn_paper")[n], (way, score), ("LG-FedAvg", score)) for n in columns}
    return [[n for n, word in found.items() if word == wanted] for wanted in (HOLDS, OPPOSITE)]


def weight_of_one_domain(read):
    """FedCG's lambda with one domain less that with four."""
    found = compare(read("fedcg_femnist"), (ONE_SLOW, "lambda"), (FOUR_SLOW, "lambda"))
    rates = [set(values(read("fedcg_femnist"), row, "rate")) for row in (ONE_SLOW, FOUR_SLOW)]
    return (found["verdict"], found["agree"], found["seeds"]) == (HOLDS, 5, 5) and rates == [{0.03}, {0.03}]


CLAIMS = [
    (
        "They do so where training has converged, and with contradictory labels from the first updates on.",
        every(cut_rightly_at_rest, known_from_first_updates),
    ),
    ("Noise and small data sets blur them", blurred),
    ("raises accuracy from 0.20 to 0.48, with one run", figure_3),
    ("they end at 0.48, or at 0.53 with a wider network.", figure_3),
    ("One group by itself reaches 0.60, in one run", prepared("all three", "0.60", 60, "0.60")),
    (
        "On digits, split-half CFL (ours) is far above FedAvg in every seed",
        lambda read: (
            says(HOLDS, "cfl", OURS, "FedAvg", "test accuracy")(read)
            and compare(read("cfl"), (OURS, "test accuracy"), ("FedAvg", "test accuracy"))["agree"] == 5
        ),
    ),
    (
        "CFL by lengths (ours) separated clients that agree in four of five seeds, and each time accuracy fell",
        cost_them,
    ),
    ("Split-half CFL (ours) did so in none", parted(OURS, 0)),
    (
        "its models are worse than FedAvg's in all seeds if they are tested on all classes",
        lambda read: (
            (
                gap := compare(
                    read("cfl"), ("FedAvg, label skew", "test accuracy"), (f"{OURS}, label skew", "test accuracy")
                )
            )["verdict"]
            == HOLDS
            and gap["agree"] == gap["seeds"]
        ),
    ),
    (
        "on a client's own mix this is undecided",
        undecided("cfl", "FedAvg, label skew", f"{OURS}, label skew", "on its own mix"),
    ),
    (
        "one domain ends with nearly all images in 589 of 600 runs",
        lambda read: (
            [0.95 <= v <= 1 for v in pairs(read, "largest domain", heads=("pooled",))].count(True) == 589
            and len(pairs(read, "largest domain", heads=("pooled",))) == 600
        ),
    ),
    (
        "They do where domains contradict each other and are known, and gain less where a mixture model "
        "(ours) has found them.",
        known_and_found,
    ),
    (
        "With teacher and student as printed, this is undecided",
        undecided("fedcg_graph", "found, 100 rounds: FedCG, as printed", "found, 100 rounds: FedAvg", "accuracy"),
    ),
    ("it is nowhere ahead of modules without a graph", nowhere_ahead),
    (
        "mixing by $A$ slows training",
        lambda read: all(adds(read, at, "A", "accuracy, 100")[1] == OPPOSITE for at in KNOWN[:2]),
    ),
    ("on 272 of 3,550 writers, one run of FedCG is 3.9 points above FedAvg", femnist),
    (
        "With a rate chosen on validation writers, the two cannot be distinguished",
        level("fedcg_femnist", ["FedCG, paper, D = 4"], "FedAvg", "accuracy"),
    ),
    (
        "at the same rate, $\\lambda$ ends higher with a single domain than with four, in every seed",
        weight_of_one_domain,
    ),
    (
        "They do if they have few rows and their columns resemble each other, but some clients lose",
        every(few_rows, some_lose),
    ),
    (
        "At the paper's weight it changes the score by next to nothing, and a sweep of weights with one seed "
        "can look like anything.",
        every(next_to_nothing, sweeps_show_anything),
    ),
    (
        "It gains on Wine and Obesity if each client may choose its best round; if each cluster does, as we "
        "read the paper, this is undecided",
        every(mmd_gains(HOLDS, "paper"), mmd_gains(UNDECIDED, "each cluster, own rows")),
    ),
    ("the printed recipe stays near chance", near_chance),
    (
        "it predicts part of it, but simpler measures do as well or better",
        every(
            foreseen,
            simple_numbers_as_well,
            partners(HOLDS, PRINTED, 0.5, TELLS, at_least=5),
            partners(HOLDS, LATE, PRINTED, TELLS, at_least=5),
        ),
    ),
    (
        "FedSGCNN is above LG-FedAvg in one of six columns, and above random clusters of the same sizes in none.",
        lambda read: (
            [*table5(read, "LG-FedAvg", "each cluster, own rows").values()].count(HOLDS) == 1
            and HOLDS not in table5(read, "+ random clusters", "each cluster, own rows").values()
            and len(values(read("fedsgcnn_paper")["Wine"], "FedSGCNN", "each cluster, own rows")) == 10
        ),
    ),
    ("it is below LG-FedAvg in one column", lambda read: columns_above(read, "FedSGCNN", "sound") == [[], ["Wine(c)"]]),
    (
        "FedSGCNN is above LG-FedAvg in two columns",
        lambda read: (
            columns_above(read, "FedSGCNN, gain by score", "each cluster, own rows") == [["Wine(c)", "Obesity(c)"], []]
        ),
    ),
    (
        "Fine-tuning beats both FedAvg and training alone on the clients' own digits, in every seed.",
        beats(SKEW, [TUNED], ["FedAvg", "alone"], OWN),
    ),
    (
        "Ditto, FedRep, IFCA, FedEM and split-half CFL (ours) stay behind it in every seed.",
        beats(SKEW, [TUNED], ["Ditto", "FedRep", "IFCA", "FedEM", OURS], OWN),
    ),
    (
        "All personal models pay for it on all classes, where FedAvg is best in every seed.",
        beats(SKEW, ["FedAvg"], [TUNED, "Ditto", "FedRep", "IFCA", "FedEM", OURS, "alone"], ALL),
    ),
    (
        "Split-half CFL and IFCA beat the fine-tuned single model on the clients' own digits and on all "
        "classes, in every seed.",
        beats(NAMES, [OURS, "IFCA"], [TUNED], OWN, ALL),
    ),
    ("fine-tuning alone lifts FedAvg from less than a quarter of right answers to more than three quarters", lifted),
    (
        "At the learning rate of the training, fine-tuning makes FedAvg worse on the writers' own characters.",
        beats(LONGER, ["FedAvg"], [f"{TUNED} at the same rate"], OWN, seeds=4),
    ),
    (
        "With a rate chosen for it, it lifts FedAvg in every seed, on own characters and for new writers, in short "
        "training as in training three times as long.",
        every(*(beats(world, [TUNED], ["FedAvg"], OWN, NEW) for world in (SHORTER, LONGER))),
    ),
    (
        "IFCA cannot be distinguished from FedAvg, and in both it stays behind the fine-tuned single model "
        "in every seed.",
        every(level(LONGER, ["IFCA"], "FedAvg", OWN, NEW), beats(LONGER, [TUNED], ["IFCA"], OWN, NEW)),
    ),
]

GIVEN = [
    "beyond the 95 % interval over their seeds",
    "FedCG is 5.6 points above FedAvg on FEMNIST.",
    "The split models reach close to 60 % (Figure 3).",
]
