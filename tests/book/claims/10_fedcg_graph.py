"""What chapter 10 says of its stored results."""

from book.claiming import OPPOSITE, UNDECIDED, beats, every, level, says

PAGE = "notebooks/10_fedcg_graph.ipynb"
RARE = "rare_domains"
TWINS = {t: f"rare twins: rare, {t}" for t in (50, 100)}
STRANGERS = {t: f"rare strangers: rare, {t}" for t in (50, 100)}
COMMON = {t: f"four turns: accuracy, {t}" for t in (50, 100)}

CLAIMS = {
    "**Rare twins are best served in pairs**, 6.8 points above modules after 50 rounds.": beats(
        RARE, "pair model", "modules", TWINS[50], points="6.8"
    ),
    "Without pairs, modules are 4.0 above an own model and 6.9 above FedAvg": every(
        beats(RARE, "modules", "own model", TWINS[50], points="4.0"),
        beats(RARE, "modules", "FedAvg", TWINS[50], points="6.9"),
    ),
    "which nearly catches up (2.3, not significant)": says(
        UNDECIDED, RARE, "modules", "FedAvg", TWINS[100], points="2.3"
    ),
    "For strangers, an own model is 28.6 above modules.": every(
        beats(RARE, "own model", "modules", STRANGERS[50], points="28.6"),
        beats(RARE, "own model", ("pair model", "modules", "FedAvg", "A", "ReLU", "FedCG"), *STRANGERS.values()),
    ),
    "$A$ alone nowhere": says(UNDECIDED, RARE, "A", "modules", *TWINS.values(), half=0.02),
    "For twins, FedCG ends 1.4 points above modules": every(
        beats(RARE, "FedCG", "modules", TWINS[100], points="1.4"), says(UNDECIDED, RARE, "FedCG", "modules", TWINS[50])
    ),
    "For strangers, $A$ costs 12.1 points, later 6.1.": every(
        says(OPPOSITE, RARE, "A", "modules", STRANGERS[50], points="-12.1"),
        says(OPPOSITE, RARE, "A", "modules", STRANGERS[100], points="-6.1"),
    ),
    "With a rate for each, both [were level](../book/reproduction/fedcg.md) after 600 rounds elsewhere.": level(
        ("fedcg_ablation_rates", "turned, last convolution"), "A + W + ReLU", "no graph", "accuracy, 600", half=0.03
    ),
}

GIVEN = []
