"""What chapter 10 says of its stored results."""

from book.claiming import UNDECIDED, beats, every, mean, says

PAGE = "notebooks/10_fedcg_graph.ipynb"
LAST = "fedcg_ablation", "turned, last layer, known"
LATE = "accuracy, late"
WHOLE, WITHOUT = "A + W + ReLU", "no graph"
RATES, TURNED = "fedcg_ablation_rates", "turned, last convolution"
TUNED = "accuracy, 300", "accuracy, 600"  # each arm at its best rate


def most_of_the_loss(read):
    """After 300 rounds, of one part alone, as a share of the whole graph's."""
    rows = read(RATES)[TURNED]
    lost = {part: mean(rows, WITHOUT, TUNED[0]) - mean(rows, part, TUNED[0]) for part in ("A", "ReLU", "W", WHOLE)}
    return min(lost["A"], lost["ReLU"]) > lost[WHOLE] / 2 > 0 >= lost["W"]


CLAIMS = {
    "$A$ alone or ReLU alone loses most of these points on average, and $W$ none.": most_of_the_loss,
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
