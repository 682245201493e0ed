"""What chapter 10 says of its stored results."""

from functools import partial

from book.claiming import HOLDS, average, beats, between, every, printed, says, so_many, values
from book.claims import reproduction_fedcg as fedcg
from book.claims.reproduction_fedcg import FULL, OWN_CLIENTS, PACED, lag, rare, unsure

PAGE = "notebooks/10_fedcg_graph.ipynb"
ALWAYS = {50: "", 100: ""}
OTHERS = "opposite", "other rare"
LONGER, MATRIX, COMMON, ANGLES = (f"rare_domains_{kind}" for kind in ("longer", "matrix", "common", "angles"))
OWN_MODEL = rare(beats, "own model", "modules", "strangers", {50: "28.6", 100: "15.7"})
OWN_MODEL_LATE = beats(LONGER, "own model", "modules", "rare strangers: rare, 200", points="9.5")
PAIRS = rare(beats, "pair model", "modules", "twins", {50: "6.7", 100: "4.7"})

WHOLE = every(
    *(rare(partial(unsure, half=0.045), "FedCG", "A", kind, ALWAYS) for kind in ("twins", "strangers")),
    rare(partial(unsure, half=0.025), "FedCG", "modules", "twins", {50: ""}),
    rare(lag, "FedCG", "modules", "strangers", {50: "-13.0", 100: "-8.5"}),
)


def brought(read, alike):
    """What sharing brings, in points, in each run whose mean cosine is, or is not, at least one half."""
    for runs in read(ANGLES).values():
        three = zip(*(values(runs, n) for n in ("cosine", "pair model", "own model")), strict=True)
        yield from (100 * (pair - own) for cosine, pair, own in three if (cosine >= 0.5) == alike)


CLAIMS = {
    "(by 18.0 points on average over ten stored runs). Random domains have as many modules and do not help.": every(
        beats(COMMON, "modules", "FedAvg", "four turns: all, 50", seeds=10, points="18.0"),
        says("", COMMON, "random domains", "FedAvg", "four turns: all, 50", within=0.02, half=0.03),
    ),
    "averaged over the clients of its domain alone, end a further 8.2 points higher (3.4 after 100 rounds)": every(
        beats(COMMON, "own model", "modules", "four turns: all, 50", seeds=10, points="8.2"),
        beats(COMMON, "own model", "modules", "four turns: all, 100", points="3.4"),
    ),
    "The pair model serves twins best, and from round 50 on modules come second.": every(
        beats(LONGER, "pair model", "modules", "rare twins: rare, 50", "rare twins: rare, 200", seeds=9),
        beats(LONGER, "modules", "own model", "rare twins: rare, 50", "rare twins: rare, 200", seeds=9),
    ),
    "Strangers still do best with their own model, by 9.5 points after 200 rounds.": OWN_MODEL_LATE,
    "strangers gain 8.5 points after 50 rounds (2.7 after 100), and twins nothing.": every(
        rare(partial(says, ""), OWN_CLIENTS, "modules", "strangers", {50: "8.5", 100: "2.7"}),
        rare(partial(unsure, half=0.03), OWN_CLIENTS, "modules", "twins", {50: ""}),
        rare(lag, OWN_CLIENTS, "modules", "twins", {100: ""}),
    ),
    "12.1 points after 50 rounds. With full steps it costs 3.6 ± 2.0, and after 100 rounds nothing measurable. Twins "
    "gain 2.7 ± 1.8 points by it (1.9 ± 1.3 after 100 rounds), less than half of what a pair model brings. Compared "
    "with the same steps without mixing, that is 2.1 ± 2.3 and 1.3 ± 1.3": every(
        rare(lag, "A", "modules", "strangers", {50: "-12.1"}),
        rare(lag, PACED, "modules", "strangers", {50: "-3.6 ± 2.0"}),
        rare(partial(unsure, half=0.02), PACED, "modules", "strangers", {100: ""}),
        rare(beats, PACED, "modules", "twins", {50: "2.7 ± 1.8", 100: "1.9 ± 1.3"}),
        rare(partial(says, ""), PACED, FULL, "twins", {50: "2.1 ± 2.3", 100: "1.3 ± 1.3"}),
    ),
    "mixing with full steps adds 1.1 ± 1.4 points, and 2.0 ± 1.4 after 100 rounds.": fedcg.found_twins,
    "The whole is not measurably better than $A$ alone": WHOLE,
    "after 50 rounds on average about seven points worse than modules": every(
        rare(lag, "pair model", "modules", "strangers", {50: "-6.9"}),
        says("", LONGER, "pair model", "modules", "rare strangers: rare, 50", points="-7.4"),
    ),
    "a pair model beats an own model by 11.9 ± 2.5 points, at twenty by 4.6 ± 1.9. At thirty it loses "
    "5.4 ± 4.9, and the mean cosine is 0.41.": every(
        says(HOLDS, (ANGLES, "10"), "pair model", "own model", points="11.9 ± 2.5"),
        says(HOLDS, (ANGLES, "20"), "pair model", "own model", points="4.6 ± 1.9"),
        lag((ANGLES, "30"), "pair model", "own model", points="-5.4 ± 4.9"),
        average(0.405, 0.415, ANGLES, "30", "cosine"),
    ),
    "with a mean cosine of at least one half, sharing paid in 18, and of the forty others in three": every(
        so_many(18, 20, lambda read: (points > 0 for points in brought(read, True))),
        so_many(3, 40, lambda read: (points > 0 for points in brought(read, False))),
    ),
    "the neighbour always has the largest cosine": between(1, 1, ANGLES, ["10", "20", "30", "45"], "found"),
    "with a cosine of 0.67 on average over ten stored runs (at least 0.63, here a little less), and with either of the "
    "other angles never above −0.19. A stranger's cosines are within 0.21 of zero.": every(
        printed((MATRIX, "rare twins"), {"neighbour, cosine": "0.67"}),
        between(0.63, 0.75, (MATRIX, "rare twins"), "neighbour, cosine"),
        between(-0.5, -0.19, (MATRIX, "rare twins"), [f"{k}, cosine" for k in OTHERS]),
        between(-0.21, 0.21, (MATRIX, "rare strangers"), [f"{k}, cosine" for k in ("neighbour", *OTHERS)]),
    ),
    "(0.23 against 0.14, in each run)": every(
        printed((MATRIX, "rare twins, own clients"), {"neighbour": "0.23", "other rare": "0.14"}),
        beats((MATRIX, "rare twins, own clients"), "neighbour", ["other rare", "opposite"], seeds=10),
    ),
    "takes just 0.17 from its twin and 0.19 from the other rare angle (means of ten stored runs": every(
        printed((MATRIX, "rare twins"), {"neighbour": "0.17", "other rare": "0.19"}),
        beats((MATRIX, "rare twins"), "other rare", "neighbour", seeds=10),
    ),
    "| a twin | a model with the twin | about 7 (5 after 100) |": PAIRS,
    "| no twin | nothing | about 29 (16 after 100, 9.5 after 200) |": every(
        OWN_MODEL, OWN_MODEL_LATE, beats(LONGER, "own model", "modules", "rare strangers: rare, 50", points="28.1")
    ),
}

GIVEN = ["Up to 45 degrees", "(cosine 0.6)"]
