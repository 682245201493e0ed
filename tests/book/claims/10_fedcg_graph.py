"""What chapter 10 says of its stored results."""

from functools import partial

from book.claiming import UNDECIDED, beats, every, says
from book.claims import reproduction_fedcg as fedcg
from book.claims.reproduction_fedcg import PACED, UNIFORM, lag, rare, unsure

PAGE = "notebooks/10_fedcg_graph.ipynb"
ALWAYS = {50: "", 100: ""}
OWN_CLIENTS = "modules, own clients"
PACE = "pace of A"
WITH_MODULES = "modules", OWN_CLIENTS, "A", PACED, UNIFORM, PACE, "ReLU", "FedCG"
LONGER = "rare_domains_longer"
OWN_MODEL = rare(beats, "own model", "modules", "strangers", {50: "28.6", 100: ""})
OWN_OF_TWINS = rare(beats, "modules", "own model", "twins", {50: "4.0", 100: ""})
REMAINS = rare(beats, "own model", OWN_CLIENTS, "strangers", {50: "20.1", 100: ""})
FOR_TWINS = rare(beats, PACED, "modules", "twins", {50: "2.7", 100: "1.9"})

CLAIMS = {
    "**Rare twins are best served in pairs**, 6.8 points above modules.": every(
        rare(beats, "pair model", "modules", "twins", {50: "6.8"}),
        rare(beats, "pair model", (*WITH_MODULES, "own model", "FedAvg"), "twins", ALWAYS),
    ),
    "Twins are served best by the model of their pair, and then by modules.": every(
        beats(LONGER, "pair model", "modules", "rare twins: rare, 50", "rare twins: rare, 200", seeds=9),
        beats(LONGER, "modules", ["own model", "FedAvg"], "rare twins: rare, 50", "rare twins: rare, 100", seeds=9),
    ),
    "catches up with modules only after 200 rounds": says(
        UNDECIDED, LONGER, "modules", "FedAvg", "rare twins: rare, 200", within=0.02, half=0.03
    ),
    "Modules are 4.0 above their own model.": OWN_OF_TWINS,
    "**Rare strangers need their own model**, 28.6 points above modules, 20.1 above modules averaged over own "
    "clients.": every(
        OWN_MODEL, REMAINS, rare(beats, "own model", (*WITH_MODULES, "pair model", "FedAvg"), "strangers", ALWAYS)
    ),
    "More rounds bring modules nearer, but 9.5 points remain after 200.": beats(
        LONGER, "own model", "modules", "rare strangers: rare, 200", points="9.5"
    ),
    "Strangers gain 8.5 points by this after 50 rounds, but 20.1 to their own model remain. Twins gain nothing "
    "certain.": every(
        rare(beats, OWN_CLIENTS, "modules", "strangers", {50: "8.5"}),
        REMAINS,
        rare(partial(says, UNDECIDED, within=0.02, half=0.025), OWN_CLIENTS, "modules", "twins", {50: ""}),
    ),
    "After 50 rounds, this has cost strangers 12 points, and gives twins nothing.": every(
        rare(lag, "A", "modules", "strangers", {50: "-12.1"}), rare(unsure, "A", "modules", "twins", ALWAYS)
    ),
    "At full pace strangers lose 3.6 points instead of 12.1, so most of their loss is pace.": every(
        fedcg.pace_of_strangers, rare(beats, PACED, "A", "strangers", ALWAYS)
    ),
    "Without a mixture they lose nothing measurable": every(
        rare(unsure, PACE, "modules", "strangers", ALWAYS), rare(beats, PACE, PACED, "strangers", {50: "4.4"})
    ),
    "Twins gain 2.7 points. This is 2.2 more than with a uniform $A$": every(
        FOR_TWINS, rare(beats, PACED, UNIFORM, "twins", {50: "2.2"})
    ),
    "It is also 2.1 more than by the pace alone, which is not quite significant.": rare(
        partial(says, UNDECIDED, half=0.025), PACED, PACE, "twins", {50: "2.1"}
    ),
    "Its pace alone, without a mixture, does neither harm nor good.": every(
        *(rare(unsure, PACE, "modules", kind, ALWAYS) for kind in ("twins", "strangers"))
    ),
    "**What $A$ costs strangers is mostly pace**, 12.1 points, but 3.6 at full pace.": fedcg.pace_of_strangers,
    "**At full pace, the graph helps twins**, by 2.7 points. A uniform $A$ does not.": every(
        FOR_TWINS, fedcg.uniform_gains_nothing, fedcg.uniform_behind
    ),
    "since modules gained 4.0 points for a twin and lost 28.6 for a stranger": every(OWN_OF_TWINS, OWN_MODEL),
    "**FedCG as printed** brings twins nothing certain, and costs strangers 13.0 points.": every(
        rare(partial(unsure, half=0.025), "FedCG", "modules", "twins", {50: ""}),
        rare(lag, "FedCG", "modules", "strangers", {50: "-13.0", 100: "-8.5"}),
    ),
    "After 100 rounds, twins gain 1.9 points at full pace, and 1.4 with FedCG as printed.": every(
        FOR_TWINS, fedcg.graph_for_twins
    ),
}
