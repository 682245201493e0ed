"""What chapter 12 says of its stored results."""

from book.claiming import beats, every, printed, says
from book.claims.reproduction_fedsgcnn import BOOK, DOSE, EARLY, LATE, PRINTED, TELLS, chained, level

PAGE = "notebooks/12_who_helps_whom.ipynb"
SAME_GROUP = "scale 0: Siamese GCN, paper"  # clients that differ in columns and rows only

CLAIMS = {
    "A federation of all clients does worse than training alone in every seed, and the true groups do better.": every(
        beats(DOSE, "standalone", "LG-FedAvg", "R2"), beats(DOSE, "true groups", "standalone", "R2")
    ),
    "Even after ten epochs its AUC of 0.82 is above that of the paper's network in every seed": every(
        printed(DOSE, {EARLY: "0.82"}, TELLS), beats(DOSE, EARLY, PRINTED, TELLS)
    ),
    "after a hundred its clusters beat training alone in every seed": beats(DOSE, LATE, "standalone", "R2"),
    "A Siamese network that learns the *size* of the gain (last row) draws level in AUC.": every(
        level(BOOK, LATE, TELLS, within=0.2), beats(DOSE, BOOK, PRINTED, TELLS)
    ),
    "At $\\varepsilon = 1/2$ it made one cluster of all clients in every seed.": chained,
    "If only columns and rows differ, as in the paper, its predictor is near chance.": every(
        printed("fedsgcnn", {f"boston, {SAME_GROUP}": "0.50", f"diabetes, {SAME_GROUP}": "0.48"}, "auc"),
        says("undecided", "fedsgcnn", [f"{table}, {SAME_GROUP}" for table in ("boston", "diabetes")], 0.5, "auc"),
    ),
}

GIVEN = []
