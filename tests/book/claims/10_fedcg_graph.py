"""What chapter 10 says of its stored results."""

from functools import partial

from book.claiming import UNDECIDED, beats, every, level, says
from book.claims import reproduction_fedcg as fedcg
from book.claims.reproduction_fedcg import PACED, UNIFORM, lag, rare, unsure

PAGE = "notebooks/10_fedcg_graph.ipynb"
ALWAYS = {50: "", 100: ""}
OWN_CLIENTS = "modules, own clients"
WITH_MODULES = "modules", OWN_CLIENTS, "A", PACED, UNIFORM, "ReLU", "FedCG"
OWN_MODEL = rare(beats, "own model", "modules", "strangers", {50: "28.6", 100: "15.7"})
OWN_OF_TWINS = rare(beats, "modules", "own model", "twins", {50: "4.0", 100: "8.3"})
REMAINS = rare(beats, "own model", OWN_CLIENTS, "strangers", {50: "20.1", 100: "12.9"})

CLAIMS = {
    "**Rare twins are best served in pairs**, 6.8 points above modules.": every(
        rare(beats, "pair model", "modules", "twins", {50: "6.8"}),
        rare(beats, "pair model", (*WITH_MODULES, "own model", "FedAvg"), "twins", ALWAYS),
    ),
    "Modules are 4.0 above their own model (later 8.3).": OWN_OF_TWINS,
    "**Rare strangers need their own model**, 28.6 points above modules (later 15.7).": every(
        OWN_MODEL, rare(beats, "own model", (*WITH_MODULES, "pair model", "FedAvg"), "strangers", ALWAYS)
    ),
    "With modules averaged over own clients, 20.1 remain (later 12.9).": REMAINS,
    "Strangers gain 8.5 points by this, but 20.1 to their own model remain. Twins gain nothing certain.": every(
        rare(beats, OWN_CLIENTS, "modules", "strangers", {50: "8.5"}),
        REMAINS,
        rare(partial(says, UNDECIDED, within=0.02, half=0.025), OWN_CLIENTS, "modules", "twins", {50: ""}),
    ),
    "**The strangers' loss with $A$ is mostly pace**, 12.1 points (later 6.1), but 3.6 at full pace (later nothing "
    "measurable).": every(fedcg.pace_of_strangers, rare(beats, PACED, "A", "strangers", ALWAYS)),
    "This costs strangers 12 points after 50 rounds, and gives twins nothing.": every(
        rare(lag, "A", "modules", "strangers", {50: "-12.1"}), rare(unsure, "A", "modules", "twins", ALWAYS)
    ),
    "**At full pace, the graph helps twins**, by 2.7 points (later 1.9).": fedcg.paced_for_twins,
    "A uniform $A$ is 2.2 behind (later not significantly).": fedcg.uniform_behind,
    "And twins now *gain*, but not if $A$ is uniform.": fedcg.uniform_gains_nothing,
    "since modules gained 4.0 points for a twin and lost 28.6 for a stranger (later 8.3 and 15.7)": every(
        OWN_OF_TWINS, OWN_MODEL
    ),
    "**FedCG as printed** is later 1.4 above modules for twins, and 8.5 below for strangers.": every(
        fedcg.graph_for_twins, rare(lag, "FedCG", "modules", "strangers", {100: "-8.5"})
    ),
    "Elsewhere, tuned rates [made it level with modules](../book/reproduction/fedcg.md).": level(
        ("fedcg_ablation_rates", "turned, last convolution"), "A + W + ReLU", "no graph", "accuracy, 600", half=0.03
    ),
}
