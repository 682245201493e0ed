"""What chapter 10 says of its stored results."""

from functools import partial

from book.claiming import beats, between, every, printed, says
from book.claims import reproduction_fedcg as fedcg
from book.claims.reproduction_fedcg import FULL, OWN_CLIENTS, PACED, PACED_OWN, SLOW, lag, rare, unsure

PAGE = "notebooks/10_fedcg_graph.ipynb"
ALWAYS = {50: "", 100: ""}
WITH_MODULES = "modules", OWN_CLIENTS, PACED_OWN, "A", PACED, SLOW, FULL, "FedCG"
LONGER, MATRIX, COMMON = "rare_domains_longer", "rare_domains_matrix", "rare_domains_common"
OWN_MODEL = rare(beats, "own model", "modules", "strangers", {50: "28.6", 100: "15.7"})
OWN_OF_TWINS = rare(beats, "modules", "own model", "twins", {50: "4.0", 100: ""})
OWN_MODEL_LATE = beats(LONGER, "own model", "modules", "rare strangers: rare, 200", points="9.5")
PAIRS = rare(beats, "pair model", "modules", "twins", {50: "6.7"})

WHOLE = every(
    *(rare(partial(unsure, half=0.045), "FedCG", "A", kind, ALWAYS) for kind in ("twins", "strangers")),
    rare(partial(unsure, half=0.025), "FedCG", "modules", "twins", {50: ""}),
    rare(lag, "FedCG", "modules", "strangers", {50: "-13.0", 100: "-8.5"}),
)
CLAIMS = {
    "(18.0 points over ten stored runs). Random domains have as many modules and do not help.": every(
        beats(COMMON, "modules", "FedAvg", "four turns: all, 50", seeds=10, points="18.0"),
        says("", COMMON, "random domains", "FedAvg", "four turns: all, 50", within=0.02, half=0.03),
    ),
    "averaged over the clients of its domain alone, end a further 8.2 points higher (3.4 after 100 rounds)": every(
        beats(COMMON, "own model", "modules", "four turns: all, 50", seeds=10, points="8.2"),
        beats(COMMON, "own model", "modules", "four turns: all, 100", points="3.4"),
    ),
    "**Rare twins are best served in pairs**, 6.7 points above modules.": every(
        PAIRS, rare(beats, "pair model", (*WITH_MODULES, "own model", "FedAvg"), "twins", ALWAYS)
    ),
    "The pair model serves twins best, and from round 50 on modules come second.": every(
        beats(LONGER, "pair model", "modules", "rare twins: rare, 50", "rare twins: rare, 200", seeds=9),
        beats(LONGER, "modules", "own model", "rare twins: rare, 50", "rare twins: rare, 200", seeds=9),
    ),
    "Modules are 4.0 above a separate model.": OWN_OF_TWINS,
    "**Rare strangers do best alone**, 28.6 points above modules, and 15.7 after 100 rounds.": every(
        OWN_MODEL, rare(beats, "own model", (*WITH_MODULES, "pair model", "FedAvg"), "strangers", ALWAYS)
    ),
    "More rounds bring modules nearer, but 9.5 points remain after 200.": OWN_MODEL_LATE,
    "costs strangers 13.0 points after 50 rounds and brings twins little (0.7 ± 2.1). $A$ alone, without $W$ and "
    "ReLU, costs strangers as much.": every(
        WHOLE,
        rare(partial(says, ""), "FedCG", "modules", "twins", {50: "0.7 ± 2.1"}),
        fedcg.pace_of_strangers,
    ),
    "compensate, $A$ costs strangers 3.6 ± 2.0 points and brings twins 2.7 ± 1.8": every(
        fedcg.pace_of_strangers,
        rare(beats, PACED, "modules", "twins", {50: "2.7 ± 1.8"}),
        rare(lag, PACED, "modules", "strangers", {50: "-3.6 ± 2.0"}),
    ),
    "it reads 86 % of a twin's images with the twin's module, and at most 52 % with another one. Of a stranger's, it "
    "reads at most 32 % with another module.": every(
        printed((MATRIX, "rare twins"), {"neighbour, read": "0.86"}),
        between(0.2, 0.52, (MATRIX, "rare twins"), ["opposite, read", "other rare, read"]),
        between(0.1, 0.32, (MATRIX, "rare strangers"), [f"{k}, read" for k in ("neighbour", "opposite", "other rare")]),
    ),
    "misses the twin**, and costs strangers 13.0 points (8.5 after 100 rounds). Trying the modules on images": every(
        rare(lag, "FedCG", "modules", "strangers", {50: "-13.0", 100: "-8.5"}),
        beats((MATRIX, "rare twins"), "neighbour, read", ["other rare, read", "opposite, read"], seeds=10),
    ),
    "(in each of ten stored runs, 0.23 against 0.14)": every(
        printed((MATRIX, "rare twins, own clients"), {"neighbour": "0.23", "other rare": "0.14"}),
        beats((MATRIX, "rare twins, own clients"), "neighbour", ["other rare", "opposite"], seeds=10),
    ),
    "(in each of ten stored runs, 0.19 against 0.17 on average)": every(
        printed((MATRIX, "rare twins"), {"neighbour": "0.17", "other rare": "0.19"}),
        beats((MATRIX, "rare twins"), "other rare", "neighbour", seeds=10),
    ),
    "After 50 rounds, modules reach 0.81 for twins and 0.46 for strangers.": every(
        printed(fedcg.RARE, {"modules": "0.81"}, "rare twins: rare, 50"),
        printed(fedcg.RARE, {"modules": "0.46"}, "rare strangers: rare, 50"),
    ),
    "| a twin | a model with the twin | 6.7 |": PAIRS,
    "| no twin | nothing | 28.6 |": OWN_MODEL,
}
