"""What chapter 10 says of its stored results."""

from book.claiming import UNDECIDED, beats, every, says

PAGE = "notebooks/10_fedcg_graph.ipynb"
LAST = "fedcg_ablation", "turned, last layer, known"
LATE = "accuracy, late"
WHOLE, WITHOUT = "A + W + ReLU", "no graph"
RATES, TURNED = "fedcg_ablation_rates", "turned, last convolution"
TUNED = "accuracy, 300", "accuracy, 600"  # each arm at its best rate

CLAIMS = {
    "a model for each domain wins in experiment 1, and is 6.1 points ahead of FedCG on chapter 15's rotations": beats(
        ("scoreboard", "grid", "rotations"), "true groups", "FedCG", "accuracy", points="6.1"
    ),
    "Without any graph they beat FedAvg in all five seeds.": every(
        *(beats((RATES, TURNED), WITHOUT, "FedAvg", at) for at in TUNED), beats(LAST, WITHOUT, "FedAvg", LATE)
    ),
    "After 300 rounds the whole graph (last row) is 1.9 points behind the modules alone, and ahead in no seed.": beats(
        (RATES, TURNED), WITHOUT, WHOLE, TUNED[0], points="1.9"
    ),
    "After 600, 0.4 points are left (not significant).": says(
        UNDECIDED, (RATES, TURNED), WITHOUT, WHOLE, TUNED[1], points="0.4"
    ),
}

GIVEN = []
