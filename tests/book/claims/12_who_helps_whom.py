"""What chapter 12 says of its stored results."""

from book.claiming import UNDECIDED, beats, every, printed, says
from book.claims.reproduction_fedsgcnn import BOOK, DOSE, EARLY, LATE, PLANTED, PRINTED, TELLS, chained

PAGE = "notebooks/12_who_helps_whom.ipynb"
SAME_GROUP = "scale 0: Siamese GCN, paper"  # clients that differ in columns and rows only

NO_KINDS, GAINS = (PLANTED, "dose 0"), "AUC, gain"

CLAIMS = {
    "In every seed, all clients together do worse than alone, and the true groups better.": every(
        beats(DOSE, "standalone", "LG-FedAvg", "R2"), beats(DOSE, "true groups", "standalone", "R2")
    ),
    "a wrong partner costs 0.28 of $R^2$ on average, and a right one brings 0.06": printed(
        (*DOSE, "pairs"), {"gain across": "-0.28", "gain inside": "0.06"}
    ),
    "After 100 epochs its clusters beat training alone in every seed.": beats(DOSE, LATE, "standalone", "R2"),
    "After ten, its AUC beats *paper*'s, not *book*'s.": every(
        beats(DOSE, EARLY, PRINTED, TELLS), says(UNDECIDED, DOSE, EARLY, BOOK, TELLS)
    ),
    "On *paper*'s distances, DBSCAN always made one cluster.": chained,
    "neither cosine nor network is better than guessing (AUC for gains: 0.52 and 0.45, not significant)": every(
        printed(NO_KINDS, {LATE: "0.52", PRINTED: "0.45"}, GAINS),
        says(UNDECIDED, NO_KINDS, (LATE, PRINTED), 0.5, GAINS, half=0.1),
        printed("fedsgcnn", {f"boston, {SAME_GROUP}": "0.50", f"diabetes, {SAME_GROUP}": "0.48"}, "auc"),
        says(UNDECIDED, "fedsgcnn", [f"{table}, {SAME_GROUP}" for table in ("boston", "diabetes")], 0.5, "auc"),
    ),
}

GIVEN = []
