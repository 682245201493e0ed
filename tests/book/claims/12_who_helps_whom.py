"""What chapter 12 says of its stored results."""

from book.claiming import OPPOSITE, UNDECIDED, beats, every, gaps, printed, says, so_many, values

PAGE = "notebooks/12_who_helps_whom.ipynb"
NAME = "planted_transfer_chapter"
HILLS, BOWLS, LOSSES = (NAME, "bowls and hills"), (NAME, "bowls only"), "AUC, gain"
COSINE, LEARNED, ALONE = "cosine", "Siamese GCN", "standalone"


CLAIMS = {
    "Alone beats *all together* in every seed, and true kinds beat alone in nine of ten.": every(
        beats(HILLS, ALONE, "LG-FedAvg", "R2", seeds=10),
        beats(HILLS, "true groups", ALONE, "R2", seeds=9),
        lambda read: gaps(read, HILLS, "true groups", ALONE, "R2")[0]["agree"] == 9,
    ),
    "It foresees harm (AUC 0.75) about as well as measuring again (0.78).": every(
        printed(HILLS, {COSINE: "0.75", "measured again": "0.78"}, LOSSES),
        says(UNDECIDED, HILLS, COSINE, "measured again", LOSSES, within=0.1, half=0.15),
    ),
    "Whether it beats the predictor (0.68) is undecided": every(
        printed(HILLS, {LEARNED: "0.68"}, LOSSES),
        says(UNDECIDED, HILLS, COSINE, LEARNED, LOSSES, within=0.1, half=0.15),
    ),
    "Its clusters beat alone in every seed.": beats(HILLS, COSINE, ALONE, "R2", seeds=10),
    "the cosine does worse than guessing (0.39)": every(
        printed(BOWLS, {COSINE: "0.39"}, LOSSES), says(OPPOSITE, BOWLS, COSINE, 0.5, LOSSES)
    ),
    "The predictor (0.53) and even measuring again (0.55) are not significantly better than guessing.": every(
        printed(BOWLS, {LEARNED: "0.53", "measured again": "0.55"}, LOSSES),
        says(UNDECIDED, BOWLS, ("measured again", LEARNED), 0.5, LOSSES, within=0.1, half=0.15),
    ),
    "all together beat alone ($R^2$ 0.58 against 0.35).": every(
        printed(BOWLS, {"LG-FedAvg": "0.58", ALONE: "0.35"}, "R2"),
        beats(BOWLS, "LG-FedAvg", ALONE, "R2", seeds=9),
    ),
    "In the ten federations of the last table, DBSCAN with the predictor finds the kinds once": so_many(
        1, 10, lambda read: (ari == 1 for ari in values(read(NAME), "bowls and hills", f"{LEARNED}, DBSCAN", "ARI"))
    ),
    "its clusters do not beat training alone (an $R^2$ of 0.22 against 0.34)": every(
        printed(HILLS, {f"{LEARNED}, DBSCAN": "0.22", ALONE: "0.34"}, "R2"),
        says(UNDECIDED, HILLS, f"{LEARNED}, DBSCAN", ALONE, "R2", half=0.2),
    ),
    "the cosine averages 0.75, the predictor 0.68, and even knowing the true kinds only 0.80": printed(
        HILLS, {LEARNED: "0.68", COSINE: "0.75", "true groups": "0.80"}, LOSSES
    ),
    "a predictor that needed 91 measured pairs showed no advantage over it": says(
        UNDECIDED, HILLS, COSINE, LEARNED, LOSSES, "AUC, groups", "R2", within=0.2
    ),
}

GIVEN = [
    "Eq. 4.1 for two pairs.",
    "Now Eq. 4.1 for client 0, once with",
    "for 70 % of pairs, the cosine for 40 %.",  # Tables 2 and 3, with 20 clients
]
