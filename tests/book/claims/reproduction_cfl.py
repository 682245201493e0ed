"""What the page with CFL's figures says of our run of Figure 3, and of when CFL may split."""

import math
import re
import statistics

import numpy as np
from book.claiming import OURS, RELATIVE, claim, every, ratio, shows, so_many, values

from fedlib.extensions import SplitHalfCFL

PAGE = "book/reproduction/cfl.md"
PHOTOS = "cfl_photos"


# ---- photos ----


def of_the_run(read):
    """Accuracy on photos as they are before the first split, the largest gain of a part by it, and the end."""
    run = read(PHOTOS)
    accuracy, at = np.array(run["accuracy"]), run["rounds"].index(50)
    gain, part = accuracy[at + 1] - accuracy[at], np.array(run["clusters"][at + 1])
    return accuracy[at].mean(), max(gain[part == p].mean() for p in set(part)), accuracy[-1].mean()


def beside(read, name):
    """Another run on these photos."""
    return read(PHOTOS)["others"][name]


def best_and_end(run, best, when, end):
    """The best accuracy of a run, its round, and the last accuracy."""
    top = max(run["accuracy"])
    return run["rounds"][run["accuracy"].index(top)] == when and shows(top, best) and shows(run["accuracy"][-1], end)


def as_printed(read):
    before, _, end = of_the_run(read)
    return abs(before - 0.20) < 0.02 and shows(end, "0.48") and end > 2 * before


def first_split(read):
    """Two groups on either side; what they gain."""
    found = read(PHOTOS)
    groups, clusters = np.array(found["groups"]), np.array(found["clusters"])[found["rounds"].index(55)]
    sides = [len(set(groups[clusters == c])) for c in set(clusters)]
    return sides == [2, 2] and shows(100 * of_the_run(read)[1], "8")


def second_split(read):
    """The two groups with models of their own after it."""
    found = read(PHOTOS)
    before, after = (np.array(found["accuracy"][found["rounds"].index(t)]) for t in (100, 105))
    gains = sorted((after - before)[np.array(found["groups"]) == g].mean() for g in range(4))
    return gains[1] < 0.05 and gains[2] > 0.2


def wider(read):
    """Accuracy of the wider network after each split, and its groups."""
    one = beside(read, "wider: CFL, paper's schedule")
    at = [one["accuracy"][read(PHOTOS)["rounds"].index(t)] for t in (50, 55, 105, 200)]
    same = one["ARI"] == 1 and one["splits"] == [50, 100, 150]
    return same and all(map(shows, at, ("0.20", "0.34", "0.44", "0.53"))) and at[1] - at[0] > of_the_run(read)[1]


def given_groups(read):
    return best_and_end(beside(read, "five layers: true groups"), "0.49", 25, "0.46")


def other_methods(read):
    """IFCA, and those that sort clients once."""
    ifca, *once = (beside(read, f"five layers: {m}") for m in ("IFCA", "k-means on updates", "FedGroup", "PACFL"))
    return [run["ARI"] for run in once] == [1, 1, 0] and shows(ifca["accuracy"][-1], "0.30") and 0 < ifca["ARI"] < 0.9


def default_rule(read):
    """Its splits, accuracy, and clusters."""
    one, given = (beside(read, f"five layers: {m}") for m in (OURS, "true groups"))
    loses = min(max(run["accuracy"]) - run["accuracy"][-1] for run in (one, given)) > 0.02
    return best_and_end(one, "0.50", 45, "0.47") and (one["splits"], one["ARI"]) == ([20, 40, 40], 1) and loses


@claim
def prepared(read, how, best, when, end):
    """A line on one group by itself."""
    ((_, run),) = read("cfl_figure3_group")[f"five layers: {how}"].items()
    return best_and_end(run, best, when, end) and run["rounds"][-1] == run["lasted"] == 60


SMALLER, WIDER = "five layers: all three", "wider: all three"


def whole(read, network=SMALLER, seed=0, result="cfl_figure3"):
    """A run of Figure 3 as it was meant."""
    run = read(result)[network][str(seed)]
    return run if run["lasted"] == 200 else {}


@claim
def in_round(read, *when, **which):
    """The accuracy of such a run after some rounds is as printed."""
    run = whole(read, **which)
    return all(shows(run["accuracy"][run["rounds"].index(t)], printed) for t, printed in when)


def triples(read):
    before, after = (whole(read)["accuracy"][whole(read)["rounds"].index(t)] for t in (50, 200))
    return 2.7 < after / before < 3


IN_HALVES = [[50, 10, 10], [100, 5, 5], [150, 5, 5]]


def two_of_three(read):
    """Two seeds of either network split the groups in halves, and the third sets one apart."""
    for network in read("cfl_figure3"):
        *good, bad = (whole(read, network, seed) for seed in range(3))
        if not all(run["splits"] == IN_HALVES and run["ARI"] == 1 for run in good) or bad["splits"][0] != [50, 15, 5]:
            return False
    return True


def wrong_one(read):
    """After the first split of the third seed the smaller network's later ones only divide the five."""
    run = whole(read, seed=2)
    return run["splits"] == [[50, 15, 5], [100, 3, 2], [150, 1, 1]] and run["ARI"] < 0.3


def torn(read, **when):
    """The third seed with the other choice."""
    return whole(read, seed=2, result="cfl_figure3_torn", **when)


def one_by_one(read):
    run = torn(read)
    return run["splits"] == [[50, 15, 5], [100, 10, 5], [150, 5, 5]] and run["ARI"] == 1


three_and_one = every(one_by_one, in_round((200, "0.64"), seed=2, result="cfl_figure3_torn"))
good_seeds = every(in_round((200, "0.64")), in_round((200, "0.65"), seed=1), two_of_three)


def leaps(read):
    """The clients of the smaller side, five rounds after the first split and before it."""
    run = torn(read)
    at = run["rounds"].index(50)
    clients, part = np.array(run["clients"]), np.array(run["clusters"][at + 1])
    five = part == np.bincount(part).argmin()
    return five.sum() == 5 and shows(clients[at, five].mean(), "0.22") and shows(clients[at + 1, five].mean(), "0.59")


def longest_is_not_enough(read):
    """After round 100 the five have the longest update, and the others the shorter mean beside it."""
    run = torn(read)
    (_, _, mean, longest), (_, _, mean_5, longest_5) = [row for row in run["lengths"] if row[0] == 100]
    return longest_5 > longest and mean / longest < mean_5 / longest_5


def on_digits(read):
    """In how many of ten seeds each choice finds the groups."""
    found = {rule: [run["ARI"] == 1 for run in runs.values()] for rule, runs in read("cfl_figure3_digits").items()}
    counts = {rule: (sum(each), len(each)) for rule, each in found.items()}
    return counts == {"widest gap": (8, 10), "shortest mean": (10, 10), "longest update": (10, 10)}


# ---- when CFL may split ----

AGREE = "small clients, one group"
EVERYTHING, OWN = "test accuracy", "on its own mix"


def lengths_cost(read):
    """The rule by lengths splits clients that agree in four seeds; what that cost in these."""
    found = read("cfl")
    ends = [values(found, f"{rule}, {AGREE}", EVERYTHING) for rule in ("FedAvg", RELATIVE)]
    splits = values(found, f"{RELATIVE}, {AGREE}", "splits")
    lost = [plain - cut for plain, cut, number in zip(*ends, splits, strict=True) if number > 0]
    return (len(splits), len(lost)) == (5, 4) and min(lost) > 0 and shows(100 * max(lost), "2.3")


def cases(read, name, planted, which=""):
    """The cases of a result of `cfl_rule`: with planted groups, or with clients that agree; their data and kind."""
    found = {f"{data}: {kind}": case for data, cases in read(name).items() for kind, case in cases.items()}
    groups = re.compile("permuted|rotated")
    return [c for kind, c in found.items() if bool(groups.search(kind)) == planted and re.search(which, kind)]


def ends(read, name, planted, which=""):
    return [run for case in cases(read, name, planted, which) for run in case["whole"].values()]


def split(number, runs, name, which=""):
    """So many of these runs of clients that agree were split by split-half CFL."""
    return so_many(number, runs, lambda read: (r["ARI"] != 1 or r["splits"] for r in ends(read, name, False, which)))


def found(number, runs, name, which="", least=0.95):
    """In so many of these runs with planted groups split-half CFL found them."""
    return so_many(number, runs, lambda read: (least <= run["ARI"] <= 1 for run in ends(read, name, True, which)))


def half_an_epoch(read):
    """Two halves in ten epochs, every twentieth round, beside one epoch of all examples a round."""
    rule = SplitHalfCFL(print)
    return 2 * rule.test_epochs == rule.every == 20 and ratio(1.045, 1.055, "cfl", OURS, "FedAvg", "megabytes")(read)


def low(number, tests, name, last, which):
    """Of so many last tests of clients that agree, so many probabilities are below .05."""

    def ask(read):
        runs = [run for case in cases(read, name, False) for run in case["rules"].values()]
        return (0 < chance < 0.05 for run in runs for chance in run[which][-last:])

    return so_many(number, tests, ask)


def first_cuts(read, rule, name, planted):
    """For each run, when a rule would first split it, and whether rightly; None where it would not."""
    first = [run["first"].get(rule) for case in cases(read, name, planted) for run in case["rules"].values()]
    asked = {cut[0] for cut in first if cut}
    assert asked <= set(range(20, 121, 5)), "rules are asked in every fifth round from the twentieth on"
    return first


def by_lengths(number, runs, name):
    """So many runs of clients that agree would be split by the rule of lengths."""
    return so_many(number, runs, lambda read: (cut is not None for cut in first_cuts(read, "lengths", name, False)))


def calm(lengths, runs, name):
    """Split-half CFL split none of these runs of clients that agree; so many would be split by the rule of lengths."""
    return every(split(0, runs, name), by_lengths(lengths, runs, name))


@claim
def rule_row(read, rule, *rightly, median):
    """A rule that splits no clients that agree, and so many runs rightly, at first and aside; the median round."""
    sets = "cfl_rule", "cfl_rule_aside"
    calm = [cut for name in sets for cut in first_cuts(read, rule, name, planted=False) if cut]
    first, aside = (first_cuts(read, rule, name, planted=True) for name in sets)
    right = [(sum(cut is not None and cut[1] for cut in cuts), len(cuts)) for cuts in (first, aside)]
    waits = statistics.median(cut[0] if cut else math.inf for cut in first)
    return not calm and right == [*rightly] and all(cut[1] for cut in first if cut) and waits == median


CLAIMS = {
    "The first split has two groups on either side, which gain 8 points": first_split,
    "The two groups that get separate models at the second split gain 20 points or more.": second_split,
    "The single model converges where the paper says, and splitting more than doubles its accuracy, but to 0.48, "
    "not near 0.6.": as_printed,
    "The wider network finds the same groups and goes from 0.20 to 0.34, 0.44 and 0.53.": wider,
    "**Photos as they are end at 0.48.**": as_printed,
    "the smaller network is at its best, 0.49, after 25 rounds, and ends at 0.46.": given_groups,
    "IFCA, with as many rounds, ends at 0.30, and groups share models.\nk-means on the first updates and "
    "FedGroup find the four groups before round 1; PACFL leaves all clients together.": other_methods,
    "splits after rounds 20 and 40, has the four groups then, and splits no further.\nIt is at its best, "
    "0.50, after 45 rounds, and ends at 0.47, so it loses by training on, as do the true groups.": default_rule,
    "lead to 0.49 after 30 rounds, and to 0.46 at the end": prepared("as they are", "0.49", 30, "0.46"),
    "lead to 0.51 after 15 rounds, and to 0.49 at the end": prepared("normalised", "0.51", 15, "0.49"),
    "lead to 0.54 after 55 rounds, and to 0.54 at the end": prepared("cropped and flipped", "0.54", 55, "0.54"),
    "lead to 0.60 at the end, which is also the best": prepared("all three", "0.60", 60, "0.60"),
    "**With these photos, the whole figure ends at 0.64 or more if the right clusters are split.**": good_seeds,
    "One model is at 0.23 after 50 rounds": in_round((50, "0.23")),
    "accuracy is 0.40 and 0.56, and at the end 0.64": in_round((100, "0.40"), (150, "0.56"), (200, "0.64")),
    "nearly three times the accuracy of one model": triples,
    "A second seed ends at 0.65.\nA wider network, with as many layers and eight times the parameters, ends at "
    "0.71 and 0.70": every(
        in_round((200, "0.65"), seed=1),
        in_round((200, "0.71"), network=WIDER),
        in_round((200, "0.70"), network=WIDER, seed=1),
    ),
    "The widest gap is then found in the group already by itself, and later in a part of it": wrong_one,
    "clients end at 0.36, or at 0.38 with the wider network": every(
        in_round((200, "0.36"), seed=2), in_round((200, "0.38"), network=WIDER, seed=2)
    ),
    "the third seed of the smaller network finds the four groups, one at each split, and ends at 0.64": three_and_one,
    "leaps from 0.22 to 0.59": leaps,
    "after round 100 that of the separated group is longer than that of the others": longest_is_not_enough,
    "the four groups in eight of ten seeds, and the shortest mean in all ten, as does the longest update": on_digits,
    "this takes half as many operations again as FedAvg, and 5 % more bytes": half_an_epoch,
    "Split-half CFL split them in none of 195 runs, the rule by lengths in 59": calm(59, 195, "cfl_rule"),
    "Split-half CFL found them in all 135 runs": found(135, 135, "cfl_rule"),
    "It split clients with {term}`label skew` in 31 of 45 runs, and writers of FEMNIST in 8 of 15": every(
        split(31, 45, "cfl_rule_skew", "label skew"), split(8, 15, "cfl_rule_skew", "writers")
    ),
    "it finds all groups in 37 of 45 runs with 100 or 200 photos a client, in 29 of 30 with 600, and in "
    "20 of 20 with wines": every(
        found(37, 45, "cfl_rule_aside", "cifar10.*[12]00 rows"),
        found(29, 30, "cfl_rule_aside", "cifar10.*600 rows"),
        found(20, 20, "cfl_rule_aside", "wine"),
    ),
    "it split clients that agree in none of 115 runs, the rule by lengths in 61": calm(61, 115, "cfl_rule_aside"),
    "it split clients that agree in none of 95 runs, the rule by lengths in 35, and it found the groups in all "
    "65": every(calm(35, 95, "cfl_rule_later"), found(65, 65, "cfl_rule_later")),
    "it split clients that agree in none of 165 runs; it found the groups in 78 of 90 runs with photos "
    "and in 43 of 45 with digits": every(
        split(0, 165, "cfl_rule_unseen"),
        found(78, 90, "cfl_rule_unseen", "photos"),
        found(43, 45, "cfl_rule_unseen", "optical"),
    ),
    "There the groups were found in 38 of 45 runs, and clients that agree were split in none of 55": every(
        found(38, 45, "cfl_rule_unseen", "new photos"), split(0, 55, "cfl_rule_unseen", "new photos")
    ),
    "With 100 examples a client, five epochs a round and 200 rounds, a test of single rounds gives 40 of "
    "90 probabilities below .05 in its last three tests, and with the question about groups, 2.": every(
        low(40, 90, "cfl_rule_longer", 3, "one by one"), low(2, 90, "cfl_rule_longer", 3, "chance")
    ),
    "never split clients that agree, but it gave a right first split in only 26 of the 95 runs": rule_row(
        "sign", (125, 135), (26, 95), median=60
    ),
    "never split clients that agree either, and gave a right first split in 7 of 135 and 10 of 95 runs": rule_row(
        "longer paper", (7, 135), (10, 95), median=math.inf
    ),
}

GIVEN = ['We read "25% increase" as points', "The learning rate was 0.1 in all runs", "at the level .02"]
