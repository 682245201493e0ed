"""What chapter 10 says of its stored results."""

from book.claiming import OPPOSITE, UNDECIDED, beats, every, level, says

PAGE = "notebooks/10_fedcg_graph.ipynb"
RARE = "rare_domains"
TWINS = {t: f"rare twins: rare, {t}" for t in (50, 100)}
STRANGERS = {t: f"rare strangers: rare, {t}" for t in (50, 100)}
COMMON = {t: f"four turns: accuracy, {t}" for t in (50, 100)}

CLAIMS = {
    "**Modules serve rare twins best** after 50 rounds, 4.0 points above an own model and 6.9 above FedAvg": every(
        beats(RARE, "modules", "own model", TWINS[50], points="4.0"),
        beats(RARE, "modules", "FedAvg", TWINS[50], points="6.9"),
    ),
    "which nearly catches up (2.3, not significant)": says(
        UNDECIDED, RARE, "modules", "FedAvg", TWINS[100], points="2.3"
    ),
    "Elsewhere **an own model wins**, for strangers by 28.6 points": every(
        beats(RARE, "own model", ("modules", "FedAvg", "A", "ReLU", "FedCG"), *STRANGERS.values(), *COMMON.values()),
        beats(RARE, "own model", "modules", STRANGERS[50], points="28.6"),
    ),
    "For twins, $A$ changes nothing measurable": says(UNDECIDED, RARE, "A", "modules", *TWINS.values(), half=0.02),
    "FedCG ends 1.4 points ahead of modules, just significantly": every(
        beats(RARE, "FedCG", "modules", TWINS[100], points="1.4"), says(UNDECIDED, RARE, "FedCG", "modules", TWINS[50])
    ),
    "For strangers, $A$ costs 12.1 points, and later 6.1.": every(
        says(OPPOSITE, RARE, "A", "modules", STRANGERS[50], points="-12.1"),
        says(OPPOSITE, RARE, "A", "modules", STRANGERS[100], points="-6.1"),
    ),
    "with a rate for each, the graph [drew level](../book/reproduction/fedcg.md) elsewhere after 600 rounds": level(
        ("fedcg_ablation_rates", "turned, last convolution"), "A + W + ReLU", "no graph", "accuracy, 600", half=0.03
    ),
}

GIVEN = []
