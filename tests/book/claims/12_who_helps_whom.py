"""What chapter 12 says of its stored results."""

from book.claiming import HOLDS, UNDECIDED, beats, every, printed, says
from book.claims.reproduction_fedsgcnn import BOOK, DOSE, EARLY, GROUPS, LATE, PLANTED, PRINTED, TELLS, chained, level

PAGE = "notebooks/12_who_helps_whom.ipynb"
SAME_GROUP = "scale 0: Siamese GCN, paper"  # clients that differ in columns and rows only

NO_KINDS, GAINS = (PLANTED, "dose 0"), "AUC, gain"

CLAIMS = {
    "A federation of all clients does worse than training alone in every seed, and the true groups do better.": every(
        beats(DOSE, "standalone", "LG-FedAvg", "R2"), beats(DOSE, "true groups", "standalone", "R2")
    ),
    "a wrong partner costs 0.28 of $R^2$ on average, and a right one brings 0.06": printed(
        (*DOSE, "pairs"), {"gain across": "-0.28", "gain inside": "0.06"}
    ),
    "Even after ten epochs its AUC, 0.82, is above that of this chapter's predictor (*paper*, here 0.69) in every "
    "seed.": every(printed(DOSE, {EARLY: "0.82", PRINTED: "0.69"}, TELLS), beats(DOSE, EARLY, PRINTED, TELLS)),
    "After a hundred epochs its clusters beat training alone in every seed": beats(DOSE, LATE, "standalone", "R2"),
    "It also predicts who *gains*, with an AUC of 0.83, and the true kinds have 0.86.": every(
        printed(DOSE, {LATE: "0.83", GROUPS: "0.86"}, GAINS), says(HOLDS, DOSE, LATE, 0.5, GAINS)
    ),
    "A Siamese network that learns the *size* of the gain (*book*) draws level.": every(
        level(BOOK, LATE, TELLS, within=0.2), beats(DOSE, BOOK, PRINTED, TELLS)
    ),
    "On the paper's distances, $\\varepsilon = 1/2$ gave one cluster of all clients here, in every seed.": chained,
    "yes, but neither is the network (AUC for gains: 0.52 and 0.45)": every(
        printed(NO_KINDS, {LATE: "0.52", PRINTED: "0.45"}, GAINS),
        says(UNDECIDED, NO_KINDS, (LATE, PRINTED), 0.5, GAINS, half=0.1),
        printed("fedsgcnn", {f"boston, {SAME_GROUP}": "0.50", f"diabetes, {SAME_GROUP}": "0.48"}, "auc"),
        says(UNDECIDED, "fedsgcnn", [f"{table}, {SAME_GROUP}" for table in ("boston", "diabetes")], 0.5, "auc"),
    ),
}

GIVEN = []
