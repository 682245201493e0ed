"""What chapter 5 says of its stored results."""

from book.claiming import at, mean, shows, values, verdict

PAGE = "notebooks/05_cfl_geometry.ipynb"
NAME = "cfl_geometry"
INCONGRUENT = ("XOR, linear", "diverging conditionals, linear", "diverging conditionals, 8 hidden units")
CONGRUENT = "XOR, 8 hidden units"
LINKAGES = ("exact", "complete", "average")
NOISE = (0.5, 1.0, 1.5, 2.0, 3.0)


def one_right_cut(read, *cases):
    """CFL cuts once in every seed, along the true clusters, and both halves are well served."""
    found = read(NAME)
    return all(
        set(values(found, case, "splits")) == set(values(found, case, "true clusters")) == {1}
        and min(values(found, case, "CFL")) >= 0.98
        for case in cases
    )


def no_cut(read):
    """The network that solves XOR is left alone in every seed."""
    found = read(NAME)
    return set(values(found, CONGRUENT, "splits")) == {0} and min(values(found, CONGRUENT, "CFL")) >= 0.98


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
    return set(only["splits"].values()) == {1} and mean(only, "CFL") > mean(found, CONGRUENT, "FedAvg") - 0.005


def formula_is_near(read):
    """From 16 examples on the formula is off by less than 0.03, and by less than 0.05 for 8."""
    found = read(NAME)
    return all(
        abs(mean(found, f"{n} examples", where) - mean(found, f"{n} examples", f"expected {where}"))
        < (0.05 if n == 8 else 0.03)
        for n in (8, 16, 32, 64, 128, 256)
        for where in ("within", "across")
    )


def mostly_fail(read):
    """With eight examples; the exact cut most often."""
    few = at(read(NAME), "8 examples")
    share = {method: mean(few, method) for method in LINKAGES}
    return max(share.values()) < 0.5 and all(
        verdict(few, method, "exact") == "holds" for method in ("complete", "average")
    )


def exact_attains_the_minimum(read):
    """Always, and the others less and less often as noise grows."""
    found = read(NAME)
    reached = {m: [mean(found, f"{m}, noise {level}", "minimum of Eq. 6") for level in NOISE] for m in LINKAGES}
    return set(reached["exact"]) == {1} and all(
        reached[m] == sorted(reached[m], reverse=True) and reached[m][-1] < 0.5 for m in ("complete", "average")
    )


def others_find_more(read):
    """From noise 1.5 on, complete and average linkage find the clusters more often."""
    found = read(NAME)
    return all(
        verdict(found, (f"{m}, noise {level}", "true clusters"), (f"exact, noise {level}", "true clusters")) == "holds"
        for m in ("complete", "average")
        for level in NOISE[2:]
    )


def mild_noise_is_harmless(read):
    """Up to noise 1 all three find the clusters in practically every draw."""
    found = read(NAME)
    return all(mean(found, f"{m}, noise {level}", "true clusters") > 0.995 for m in LINKAGES for level in NOISE[:2])


CLAIMS = [
    (
        "A single linear model gets little more than half of the examples right",
        lambda read: fails(read, "XOR, linear", "diverging conditionals, linear"),
    ),
    (
        "CFL's default rule cuts once, along the true clusters, and both halves are well served.",
        lambda read: one_right_cut(read, "XOR, linear"),
    ),
    ("With eight hidden units XOR is no problem any more, and CFL makes *no* cut", no_cut),
    (
        "For the diverging conditionals eight hidden units help FedAvg nothing, and CFL cuts.",
        lambda read: fails(read, INCONGRUENT[2]) and one_right_cut(read, INCONGRUENT[2]),
    ),
    ("so a rule with only the first condition cuts them too", needless_cuts),
    ("the simple formula says how far away", formula_is_near),
    (
        "with 32 examples it found the true clusters in all of 2,000 draws with ten seeds, though the mean cosine "
        "within a cluster is 0.36",
        lambda read: (
            all(values(read(NAME), "32 examples", m) == [1.0] * 10 for m in LINKAGES)
            and shows(mean(read(NAME), "32 examples", "within"), "0.36")
        ),
    ),
    ("With eight, all three ways to cut mostly fail, and the exact one most often.", mostly_fail),
    ("Exact linkage attains the minimum always, the others ever less often as noise grows.", exact_attains_the_minimum),
    (
        "it prefers to set one client apart: at noise 3 in 0.56 of the draws",
        lambda read: shows(mean(read(NAME), "exact, noise 3.0", "one client apart"), "0.56"),
    ),
    ("When noise is mild, all three agree, and the choice does not matter.", mild_noise_is_harmless),
    (
        "decides rightly in all runs of experiment 1",
        lambda read: one_right_cut(read, *INCONGRUENT) and no_cut(read),
    ),
    (
        "true on our toys",
        lambda read: all(
            at(read(NAME), case, "CFL", seed) >= alone
            for case in (*INCONGRUENT, CONGRUENT)
            for seed, alone in at(read(NAME), case, "FedAvg").items()
        ),
    ),
    (
        "In every seed the linear model fails on XOR and on the diverging conditionals, the default rule cuts once and "
        "rightly, and it leaves the network that solves XOR alone.",
        lambda read: fails(read, *INCONGRUENT) and one_right_cut(read, *INCONGRUENT) and no_cut(read),
    ),
    (
        "In every seed the cosines of that network's clients would have cut it all the same",
        would_cut_all_the_same,
    ),
    (
        "without the second condition (the last row of the first table) all of these runs are cut before they end. The "
        "accuracy does not suffer here",
        needless_cuts,
    ),
    (
        "average and complete find noisy clusters more often than the exact cut from noise 1.5 on",
        others_find_more,
    ),
    ("the exact cut is the only one that always does what Equation 6 says", exact_attains_the_minimum),
    ("With mild noise there is nothing to choose.", mild_noise_is_harmless),
]

GIVEN = [
    "is shorter than 0.15 times the longest update",
    "is at least 0.4.",
    r"with $\varepsilon_2 = 0.4$ *for the gradient*",
    "as means with 95 % intervals over the seeds",
]
