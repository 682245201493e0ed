"""What chapter 10 says of its stored results."""

from functools import partial

from book.claiming import UNDECIDED, beats, every, printed, says
from book.claims import reproduction_fedcg as fedcg
from book.claims.reproduction_fedcg import FULL, OWN_CLIENTS, PACED, PACED_OWN, SLOW, UNIFORM, lag, rare, unsure

PAGE = "notebooks/10_fedcg_graph.ipynb"
ALWAYS = {50: "", 100: ""}
WITH_MODULES = "modules", OWN_CLIENTS, PACED_OWN, "A", PACED, UNIFORM, SLOW, FULL, "FedCG"
LONGER, MATRIX, COMMON = "rare_domains_longer", "rare_domains_matrix", "rare_domains_common"
OWN_MODEL = rare(beats, "own model", "modules", "strangers", {50: "28.6", 100: "15.7"})
OWN_OF_TWINS = rare(beats, "modules", "own model", "twins", {50: "4.0", 100: ""})
OWN_MODEL_LATE = beats(LONGER, "own model", "modules", "rare strangers: rare, 200", points="9.5")
PAIRS = rare(beats, "pair model", "modules", "twins", {50: "6.7"})
CATCHES_UP = says(UNDECIDED, LONGER, "modules", "FedAvg", "rare twins: rare, 200", within=0.02, half=0.03)

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
    "Twins are served best by the model of their pair, and then by modules.": every(
        beats(LONGER, "pair model", "modules", "rare twins: rare, 50", "rare twins: rare, 200", seeds=9),
        beats(LONGER, "modules", ["own model", "FedAvg"], "rare twins: rare, 50", "rare twins: rare, 100", seeds=9),
    ),
    "FedAvg catches up with modules by round 200.": CATCHES_UP,
    "Modules are 4.0 above a separate model.": OWN_OF_TWINS,
    "**Rare strangers need their own model**, 28.6 points above modules, and 15.7 after 100 rounds.": every(
        OWN_MODEL, rare(beats, "own model", (*WITH_MODULES, "pair model", "FedAvg"), "strangers", ALWAYS)
    ),
    "More rounds bring modules nearer, but 9.5 points remain after 200.": OWN_MODEL_LATE,
    "costs strangers 13.0 points after 50 rounds and brings twins little (0.7 ± 2.1, and 1.4 ± 1.3 after 100). $A$ "
    "alone, without $W$ and ReLU, costs strangers as much.": every(
        WHOLE,
        rare(partial(says, ""), "FedCG", "modules", "twins", {50: "0.7 ± 2.1", 100: "1.4 ± 1.3"}),
        fedcg.pace_of_strangers,
    ),
    "After 50 rounds, slowness costs twins 6.6 points and strangers 5.4. Mixing helps twins (7.3 ± 2.7) and hurts "
    "strangers (−6.6 ± 4.1).": every(
        fedcg.mixing_for_twins,
        fedcg.mixing_for_strangers,
        rare(beats, "A", SLOW, "twins", {50: "7.3 ± 2.7"}),
        rare(lag, "A", SLOW, "strangers", {50: "-6.6 ± 4.1"}),
    ),
    "mixing is worth less to twins (2.1 ± 2.3), and strangers still lose 4.4 ± 2.0. After 100 rounds it brings both "
    "one or two.": every(
        rare(partial(says, ""), PACED, FULL, "twins", {50: "2.1 ± 2.3", 100: "1.3 ± 1.3"}),
        rare(partial(says, ""), PACED, FULL, "strangers", {50: "-4.4 ± 2.0", 100: "2.2 ± 1.9"}),
    ),
    "averaged over their own clients (stored), 20.1 and 12.9 are left.": rare(
        beats, "own model", OWN_CLIENTS, "strangers", {50: "20.1", 100: "12.9"}
    ),
    "so that $A$ does find it, mixing brings twins 1.1 ± 1.4 and later 2.0 ± 1.4.": fedcg.found_twins,
    "mixing brings twins 2.1 ± 2.3 points and costs strangers 4.4 ± 2.0; after 100 rounds it brings both one or two.": (
        every(
            rare(beats, PACED, FULL, "strangers", {100: "2.2 ± 1.9"}),
            rare(lag, PACED, FULL, "strangers", {50: "-4.4 ± 2.0"}),
            rare(partial(unsure, half=0.03), PACED, FULL, "twins", {50: ""}),
        )
    ),
    "(in each of ten stored runs, 0.23 against 0.14)": every(
        printed((MATRIX, "rare twins, own clients"), {"neighbour": "0.23", "other rare": "0.14"}),
        beats((MATRIX, "rare twins, own clients"), "neighbour", ["other rare", "opposite"], seeds=10),
    ),
    "(in each of ten stored runs, 0.19 against 0.17 on average)": every(
        printed((MATRIX, "rare twins"), {"neighbour": "0.17", "other rare": "0.19"}),
        beats((MATRIX, "rare twins"), "other rare", "neighbour", seeds=10),
    ),
    "After 50 rounds, quoted below, modules reach 0.81 for twins and 0.46 for strangers.": every(
        printed(fedcg.RARE, {"modules": "0.81"}, "rare twins: rare, 50"),
        printed(fedcg.RARE, {"modules": "0.46"}, "rare strangers: rare, 50"),
    ),
    "| a twin that you know | a model with the twin | 6.7 (4.8) above modules |": every(
        PAIRS, beats(LONGER, "pair model", "modules", "rare twins: rare, 200", points="4.8")
    ),
    "modules | 4.0 (8.3) above its own model, but FedAvg catches up | | no twin | nothing | 28.6 (9.5) above "
    "modules, 20.1 if these are averaged likewise": every(
        rare(beats, "own model", OWN_CLIENTS, "strangers", {50: "20.1"}),
        beats(LONGER, "modules", "own model", "rare twins: rare, 200", points="8.3"),
        *(CATCHES_UP, OWN_OF_TWINS, OWN_MODEL, OWN_MODEL_LATE),
    ),
    "For twins the two cancelled, and without the slowness mixing brought little, so here modules need not learn": rare(
        partial(says, "", within=0.03), PACED, FULL, "twins", {50: "2.1 ± 2.3", 100: "1.3 ± 1.3"}
    ),
}
