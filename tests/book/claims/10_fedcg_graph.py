"""What chapter 10 says of its stored results."""

from book.claiming import OPPOSITE, UNDECIDED, beats, every, level, says

PAGE = "notebooks/10_fedcg_graph.ipynb"
RARE, PACED, UNIFORM = "rare_domains", "A, full pace", "uniform A, full pace"
TWINS = {t: f"rare twins: rare, {t}" for t in (50, 100)}
STRANGERS = {t: f"rare strangers: rare, {t}" for t in (50, 100)}
WITH_MODULES = "modules", "A", PACED, UNIFORM, "ReLU", "FedCG"

CLAIMS = {
    "**Rare twins are best served in pairs**, 6.8 points above modules.": every(
        beats(RARE, "pair model", "modules", TWINS[50], points="6.8"),
        beats(RARE, "pair model", (*WITH_MODULES, "own model", "FedAvg"), *TWINS.values()),
    ),
    "These are 4.0 above an own model, later 8.3, and 6.9 above FedAvg, later 2.3 (not significant).": every(
        beats(RARE, "modules", "own model", TWINS[50], points="4.0"),
        beats(RARE, "modules", "own model", TWINS[100], points="8.3"),
        beats(RARE, "modules", "FedAvg", TWINS[50], points="6.9"),
        says(UNDECIDED, RARE, "modules", "FedAvg", TWINS[100], points="2.3"),
    ),
    "**Rare strangers need an own model**, 28.6 above modules, later 15.7.": every(
        beats(RARE, "own model", "modules", STRANGERS[50], points="28.6"),
        beats(RARE, "own model", "modules", STRANGERS[100], points="15.7"),
        beats(RARE, "own model", (*WITH_MODULES, "pair model", "FedAvg"), *STRANGERS.values()),
    ),
    "**The strangers' loss with $A$ is mostly pace**, 12.1 points, later 6.1, but at full pace 3.6 and later "
    "nothing measurable.": every(
        says(OPPOSITE, RARE, "A", "modules", STRANGERS[50], points="-12.1"),
        says(OPPOSITE, RARE, "A", "modules", STRANGERS[100], points="-6.1"),
        says(OPPOSITE, RARE, PACED, "modules", STRANGERS[50], points="-3.6"),
        says(UNDECIDED, RARE, PACED, "modules", STRANGERS[100], half=0.02),
        beats(RARE, PACED, "A", *STRANGERS.values()),
    ),
    "It costs strangers 12 points after 50 rounds, and gives twins nothing.": every(
        says(OPPOSITE, RARE, "A", "modules", STRANGERS[50], points="-12.1"),
        says(UNDECIDED, RARE, "A", "modules", *TWINS.values(), half=0.02),
    ),
    "**At full pace, the graph helps twins**, by 2.7, later 1.9 points.": every(
        beats(RARE, PACED, "modules", TWINS[50], points="2.7"),
        beats(RARE, PACED, "modules", TWINS[100], points="1.9"),
    ),
    "Uniform mixing is 2.2 behind it, later not significantly.": every(
        beats(RARE, PACED, UNIFORM, TWINS[50], points="2.2"),
        says(UNDECIDED, RARE, PACED, UNIFORM, TWINS[100], half=0.02),
    ),
    "And twins now *gain*, but not if $A$ is uniform.": says(
        UNDECIDED, RARE, UNIFORM, "modules", *TWINS.values(), half=0.02
    ),
    "since modules gained 4 points for a twin and lost 29 for a stranger": every(
        beats(RARE, "modules", "own model", TWINS[50], points="4.0"),
        beats(RARE, "own model", "modules", STRANGERS[50], points="28.6"),
    ),
    "**FedCG as printed** ends 1.4 above modules for twins, and 8.5 below for strangers.": every(
        beats(RARE, "FedCG", "modules", TWINS[100], points="1.4"),
        says(OPPOSITE, RARE, "FedCG", "modules", STRANGERS[100], points="-8.5"),
    ),
    "With tuned rates both [were level](../book/reproduction/fedcg.md) after 600 rounds elsewhere.": level(
        ("fedcg_ablation_rates", "turned, last convolution"), "A + W + ReLU", "no graph", "accuracy, 600", half=0.03
    ),
}

GIVEN = []
