"""What chapter 6 says of its stored runs."""

from book.claiming import mean, shows, values, verdict

PAGE = "notebooks/06_cfl.ipynb"

OURS = "split-half CFL (ours)"
FEDAVG, LENGTHS, CFL = (f"{name}, small clients, one group" for name in ("FedAvg", "CFL, relative lengths", OURS))
SKEW = [f"{name}, label skew" for name in ("FedAvg", OURS)]
FOUR = [f"{name}, small clients, four groups" for name in ("FedAvg", OURS)]
SCORES = "test accuracy", "on its own mix"


def chapter(function):
    """A claim about the digits."""
    return lambda read: function(read("cfl"))


def gaps(f, a, b, score="test accuracy"):
    """a - b, seed by seed."""
    return [x - y for x, y in zip(values(f, a, score), values(f, b, score), strict=True)]


def five(numbers, test):
    """Of five seeds."""
    return len(numbers) == 5 and all(test(v) for v in numbers)


def by_lengths(f):
    """It splits congruent clients in four seeds; what that cost in these."""
    splits = values(f, LENGTHS, "splits")
    lost = [v for v, s in zip(gaps(f, FEDAVG, LENGTHS), splits, strict=True) if s > 0]
    return len(splits) == 5 and len(lost) == 4 and min(lost) > 0 and shows(100 * max(lost), "2.3")


def planted(name):
    """Whether clients come in groups."""
    return "permuted" in name or "rotated" in name


def all_cases(read):
    """Of the sets on which rules were chosen."""
    return [case for data in read("cfl_rule").values() for case in data.items()]


def congruent(read):
    """It splits no run without groups."""
    runs = [run for name, c in all_cases(read) if not planted(name) for run in c["whole"].values()]
    return len(runs) == 195 and all(run["ARI"] == 1 and not run["splits"] for run in runs)


def kinds(read):
    """Runs with groups, and in how many of them it ends with these; of how many sets of images and networks."""
    data = read("cfl_rule")
    found = [run["ARI"] for name, c in all_cases(read) if planted(name) for run in c["whole"].values()]
    networks = {name.partition(",")[0] for one in data.values() for name in one}
    return len(data) == len(networks) == 3 and len(found) == 135 and sum(v == 1 for v in found) == 135


def new_photos(read):
    """Photos that were seen after the rule's last change: no congruent clients split, and runs with groups found."""
    runs = {True: [], False: []}
    for name, case in read("cfl_rule_unseen")["new photos"].items():
        runs[planted(name)] += case["whole"].values()
    found = [run["ARI"] == 1 for run in runs[True]]
    return (
        (sum(found), len(found)) == (38, 45)
        and len(runs[False]) == 55
        and all(run["ARI"] == 1 and not run["splits"] for run in runs[False])
    )


CLAIMS = [
    (
        "split-half CFL is better in every seed, by more than 50 points",
        chapter(
            lambda f: (
                five(gaps(f, OURS, "FedAvg"), lambda v: v > 0.5)
                and all(five(gaps(f, FOUR[1], FOUR[0], score), lambda v: v > 0.5) for score in SCORES)
            )
        ),
    ),
    (
        "a single model for all clients is stuck below one in four",
        chapter(lambda f: five(values(f, "FedAvg", "test accuracy"), lambda v: 0.2 < v < 0.25)),
    ),
    (
        "it split in none of the five runs, so it *is* FedAvg",
        chapter(
            lambda f: (
                five(values(f, CFL, "splits"), lambda v: v == 0)
                and all(five(gaps(f, CFL, FEDAVG, score), lambda v: v == 0) for score in SCORES)
            )
        ),
    ),
    (
        "The rule by lengths split in four of the five, and each time this cost accuracy on all digits, "
        "up to 2.3 points",
        chapter(by_lengths),
    ),
    ("split-half CFL never split congruent clients", congruent),
    ("with three sets of images and three networks", kinds),
    ("always found the true groups", kinds),
    (
        "it again split no congruent clients, but found the groups in 38 of 45 runs.",
        new_photos,
    ),
    (
        "split-half CFL splits in all five runs.",
        chapter(lambda f: five(values(f, SKEW[1], "splits"), lambda v: v > 0)),
    ),
    (
        "On all digits this costs about twelve points",
        chapter(lambda f: five(gaps(f, *SKEW), lambda v: v > 0) and shows(100 * sum(gaps(f, *SKEW)) / 5, "12")),
    ),
    (
        "On clients' own mixes, five seeds cannot distinguish it from FedAvg.",
        chapter(
            lambda f: (
                verdict(f, (SKEW[1], SCORES[1]), (SKEW[0], SCORES[1])) == "undecided"
                and 0.85 < mean(f, SKEW[1], SCORES[1]) < 0.95
            )
        ),
    ),
    (
        "The abstract's *always* therefore does not hold with finite data and such thresholds",
        chapter(by_lengths),
    ),
]

GIVEN = [
    "five stored runs of 110 rounds (means with 95 % intervals)",
    "below 0.15 and its cross above 0.4 (lines)",
]
