"""What chapter 5 says of its stored results."""

from book.claiming import at, mean, shows, values, verdict

PAGE = "notebooks/05_cfl_geometry.ipynb"
NAME = "cfl_geometry"
INCONGRUENT = ("XOR, linear", "diverging conditionals, linear", "diverging conditionals, 8 hidden units")
CONGRUENT = "XOR, 8 hidden units"
LINKAGES = ("exact", "complete", "average")


def one_right_cut(read, *cases):
    """The rule cuts once in every seed, along the true clusters, and both halves are well served."""
    found = read(NAME)
    return all(
        set(values(found, case, "splits")) == set(values(found, case, "true clusters")) == {1}
        and min(values(found, case, "CFL, relative lengths")) >= 0.98
        for case in cases
    )


def no_cut(read):
    """The network that solves XOR is left alone in every seed."""
    found = read(NAME)
    return (
        set(values(found, CONGRUENT, "splits")) == {0}
        and min(values(found, CONGRUENT, "CFL, relative lengths")) >= 0.98
    )


def fails(read, *cases):
    """FedAvg serves little more than half of the examples in every seed."""
    return all(0.4 < share < 0.6 for case in cases for share in values(read(NAME), case, "FedAvg"))


def would_cut_all_the_same(read):
    """The cosines of congruent clients would have cut along the clusters."""
    found = read(NAME)
    return (
        set(values(found, CONGRUENT, "cosines would cut rightly")) == {1}
        and max(values(found, CONGRUENT, "cosine across")) < -0.5
    )


def needless_cuts(read):
    """Without the second condition every run is cut, and loses nothing."""
    found = read(NAME)
    only = at(found, "XOR, 8 hidden units, eps2=0")
    return (
        set(only["splits"].values()) == {1}
        and mean(only, "CFL, relative lengths") > mean(found, CONGRUENT, "FedAvg") - 0.005
    )


def mostly_fail(read):
    """With eight examples; the exact cut most often."""
    few = at(read(NAME), "8 examples")
    share = {method: mean(few, method) for method in LINKAGES}
    return max(share.values()) < 0.5 and all(
        verdict(few, method, "exact") == "holds" for method in ("complete", "average")
    )


CLAIMS = [
    (
        "In every seed the linear model fails on both toys",
        lambda read: fails(read, "XOR, linear", "diverging conditionals, linear"),
    ),
    (
        "the rule splits once and along the true clusters, and it leaves the network that solves XOR alone.",
        lambda read: one_right_cut(read, *INCONGRUENT) and no_cut(read),
    ),
    (
        "In every seed Eq. 6 would still have split that network's clients into the two clusters",
        would_cut_all_the_same,
    ),
    (
        "Without the condition on the longest update (last row), all of these runs are split. "
        "The accuracy does not suffer",
        needless_cuts,
    ),
    (
        "In a stored run it found the true clusters with 32 examples in all of 2,000 draws, "
        "although the mean cosine within a cluster is 0.36.",
        lambda read: (
            all(values(read(NAME), "32 examples", m) == [1.0] * 10 for m in LINKAGES)
            and shows(mean(read(NAME), "32 examples", "within"), "0.36")
        ),
    ),
    ("With eight examples it mostly fails", mostly_fail),
    (
        'Eq. 6 split off a single client in 56 % of draws, and average linkage (`method="average"`), '
        "which compares mean cosines, in 7 %",
        lambda read: all(
            shows(100 * mean(read(NAME), f"{method}, noise 3.0", "one client apart"), text)
            for method, text in (("exact", "56"), ("average", "7"))
        ),
    ),
]

GIVEN = [
    "at least 20 rounds have passed, the mean update is below 0.15 of the longest, "
    "and the longest is at least 0.4 times",
    "Intervals are 95 %",
    "when mean cosines within a cluster fall below 0.9, below 0.5, or even later",
]
