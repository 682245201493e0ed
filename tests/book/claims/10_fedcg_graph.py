"""What chapter 10 says of its stored results."""

from functools import partial

from book.claiming import UNDECIDED, beats, every, level, says
from book.claims import reproduction_fedcg as fedcg
from book.claims.reproduction_fedcg import PACED, UNIFORM, lag, rare, unsure

PAGE = "notebooks/10_fedcg_graph.ipynb"
ALWAYS = {50: "", 100: ""}
WITH_MODULES = "modules", "A", PACED, UNIFORM, "ReLU", "FedCG"

CLAIMS = {
    "**Rare twins are best served in pairs**, 6.8 points above modules.": every(
        rare(beats, "pair model", "modules", "twins", {50: "6.8"}),
        rare(beats, "pair model", (*WITH_MODULES, "own model", "FedAvg"), "twins", ALWAYS),
    ),
    "These are 4.0 above an own model, later 8.3, and 6.9 above FedAvg, later 2.3 (not significant).": every(
        rare(beats, "modules", "own model", "twins", {50: "4.0", 100: "8.3"}),
        rare(beats, "modules", "FedAvg", "twins", {50: "6.9"}),
        rare(partial(says, UNDECIDED), "modules", "FedAvg", "twins", {100: "2.3"}),
    ),
    "**Rare strangers need an own model**, 28.6 above modules, later 15.7.": every(
        rare(beats, "own model", "modules", "strangers", {50: "28.6", 100: "15.7"}),
        rare(beats, "own model", (*WITH_MODULES, "pair model", "FedAvg"), "strangers", ALWAYS),
    ),
    "**The strangers' loss with $A$ is mostly pace**, 12.1 points, later 6.1, but at full pace 3.6 and later "
    "nothing measurable.": every(fedcg.pace_of_strangers, rare(beats, PACED, "A", "strangers", ALWAYS)),
    "It costs strangers 12 points after 50 rounds, and gives twins nothing.": every(
        rare(lag, "A", "modules", "strangers", {50: "-12.1"}), rare(unsure, "A", "modules", "twins", ALWAYS)
    ),
    "**At full pace, the graph helps twins**, by 2.7, later 1.9 points.": fedcg.paced_for_twins,
    "Uniform mixing is 2.2 behind it, later not significantly.": fedcg.uniform_behind,
    "And twins now *gain*, but not if $A$ is uniform.": fedcg.uniform_gains_nothing,
    "since modules gained 4 points for a twin and lost 29 for a stranger": every(
        rare(beats, "modules", "own model", "twins", {50: "4.0"}),
        rare(beats, "own model", "modules", "strangers", {50: "28.6"}),
    ),
    "**FedCG as printed** ends 1.4 above modules for twins, and 8.5 below for strangers.": every(
        fedcg.graph_for_twins, rare(lag, "FedCG", "modules", "strangers", {100: "-8.5"})
    ),
    "With tuned rates both [were level](../book/reproduction/fedcg.md) after 600 rounds elsewhere.": level(
        ("fedcg_ablation_rates", "turned, last convolution"), "A + W + ReLU", "no graph", "accuracy, 600", half=0.03
    ),
}
