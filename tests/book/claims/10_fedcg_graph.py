"""What chapter 10 says of its stored results."""

from functools import partial

from book.claiming import beats, between, every, printed, says
from book.claims import reproduction_fedcg as fedcg
from book.claims.reproduction_fedcg import FULL, OWN_CLIENTS, PACED, PACED_OWN, SLOW, lag, rare, unsure

PAGE = "notebooks/10_fedcg_graph.ipynb"
ALWAYS = {50: "", 100: ""}
WITH_MODULES = "modules", OWN_CLIENTS, PACED_OWN, "A", PACED, SLOW, FULL, "FedCG"
OTHERS = "opposite", "other rare"
LONGER, MATRIX, COMMON = "rare_domains_longer", "rare_domains_matrix", "rare_domains_common"
OWN_MODEL = rare(beats, "own model", "modules", "strangers", {50: "28.6", 100: "15.7"})
OWN_MODEL_LATE = beats(LONGER, "own model", "modules", "rare strangers: rare, 200", points="9.5")
PAIRS = rare(beats, "pair model", "modules", "twins", {50: "6.7"})

WHOLE = every(
    *(rare(partial(unsure, half=0.045), "FedCG", "A", kind, ALWAYS) for kind in ("twins", "strangers")),
    rare(partial(unsure, half=0.025), "FedCG", "modules", "twins", {50: ""}),
    rare(lag, "FedCG", "modules", "strangers", {50: "-13.0", 100: "-8.5"}),
)
CLAIMS = {
    "(by 18.0 points on average over ten stored runs). Random domains have as many modules and do not help.": every(
        beats(COMMON, "modules", "FedAvg", "four turns: all, 50", seeds=10, points="18.0"),
        says("", COMMON, "random domains", "FedAvg", "four turns: all, 50", within=0.02, half=0.03),
    ),
    "averaged over the clients of its domain alone, end a further 8.2 points higher (3.4 after 100 rounds)": every(
        beats(COMMON, "own model", "modules", "four turns: all, 50", seeds=10, points="8.2"),
        beats(COMMON, "own model", "modules", "four turns: all, 100", points="3.4"),
    ),
    "**A rare twin should share with its twin, and a stranger with no one.** Modules are never best here": every(
        PAIRS,
        rare(beats, "pair model", (*WITH_MODULES, "own model", "FedAvg"), "twins", ALWAYS),
        rare(beats, "own model", (*WITH_MODULES, "pair model", "FedAvg"), "strangers", ALWAYS),
    ),
    "The pair model serves twins best, and from round 50 on modules come second.": every(
        beats(LONGER, "pair model", "modules", "rare twins: rare, 50", "rare twins: rare, 200", seeds=9),
        beats(LONGER, "modules", "own model", "rare twins: rare, 50", "rare twins: rare, 200", seeds=9),
    ),
    "Strangers still do best with their own model, by 9.5 points after 200 rounds.": OWN_MODEL_LATE,
    "strangers gain 8.5 points after 50 rounds": rare(beats, OWN_CLIENTS, "modules", "strangers", {50: "8.5"}),
    "costs strangers 12.1 points": fedcg.pace_of_strangers,
    "Such small steps cost 5.4 without any mixing.": rare(lag, SLOW, "modules", "strangers", {50: "-5.4"}),
    "**FedCG is no better than $A$.**": WHOLE,
    "(*full pace*) costs 3.6 ± 2.0, though nothing measurable after 100 rounds. Twins then gain 2.7 ± 1.8": every(
        fedcg.pace_of_strangers,
        fedcg.paced_for_twins,
        rare(partial(unsure, half=0.03), PACED, "modules", "strangers", {100: ""}),
    ),
    "after 50 rounds about seven points worse than modules": every(
        rare(lag, "pair model", "modules", "strangers", {50: "-6.9"}),
        says("", LONGER, "pair model", "modules", "rare strangers: rare, 50", points="-7.4"),
    ),
    "it was right for all twenty rare twins and all twenty strangers": every(
        *(between(1, 1, (MATRIX, f"rare {kind}"), "rule") for kind in ("twins", "strangers"))
    ),
    "their mean cosine is at least 0.63 (0.67 on average), and with either of the other angles never above −0.2. A "
    "stranger's cosines are within 0.21 of zero.": every(
        printed((MATRIX, "rare twins"), {"neighbour, cosine": "0.67"}),
        between(0.63, 0.75, (MATRIX, "rare twins"), "neighbour, cosine"),
        between(-0.5, -0.2, (MATRIX, "rare twins"), [f"{k}, cosine" for k in OTHERS]),
        between(-0.21, 0.21, (MATRIX, "rare strangers"), [f"{k}, cosine" for k in ("neighbour", *OTHERS)]),
    ),
    "(0.23 against 0.14, in each of ten stored runs)": every(
        printed((MATRIX, "rare twins, own clients"), {"neighbour": "0.23", "other rare": "0.14"}),
        beats((MATRIX, "rare twins, own clients"), "neighbour", ["other rare", "opposite"], seeds=10),
    ),
    "takes just 0.17 from its twin and 0.19 from the other rare angle (means of ten stored runs": every(
        printed((MATRIX, "rare twins"), {"neighbour": "0.17", "other rare": "0.19"}),
        beats((MATRIX, "rare twins"), "other rare", "neighbour", seeds=10),
    ),
    "After 50 rounds, modules reach 0.81 for twins and 0.46 for strangers.": every(
        printed(fedcg.RARE, {"modules": "0.81"}, "rare twins: rare, 50"),
        printed(fedcg.RARE, {"modules": "0.46"}, "rare strangers: rare, 50"),
    ),
    "| a twin | a model with the twin | about 7 |": PAIRS,
    "| no twin | nothing | about 28 (9.5 after 200) |": every(
        OWN_MODEL, OWN_MODEL_LATE, beats(LONGER, "own model", "modules", "rare strangers: rare, 50", points="28.1")
    ),
}
