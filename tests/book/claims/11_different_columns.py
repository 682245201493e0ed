"""What chapter 11 says of its stored results."""

from functools import partial

from book.claiming import apart, average, every

from book import claiming

PAGE = "notebooks/11_different_columns.ipynb"
NAME = "feature_spaces"
PLAIN, CODED = "diabetes, as dealt: ", "diabetes, own signs: "
LG, ALONE, BY_NAME, BY_PLACE = "LG-FedAvg", "standalone", "FedAvg by name", "FedAvg by position"
printed, beats = partial(claiming.printed, NAME), partial(claiming.beats, NAME)
undecided = partial(claiming.level, NAME, within=0.1, half=0.1)


SIX, MANY = ([f"diabetes, {rows} rows: {method}" for method in (LG, ALONE)] for rows in (6, 48))

CLAIMS = {
    "LG-FedAvg reaches 0.198 and standalone training 0.132, with LG-FedAvg ahead in every seed.": every(
        printed({PLAIN + LG: "0.198", PLAIN + ALONE: "0.132"}, "chosen"), beats(PLAIN + LG, PLAIN + ALONE, "chosen")
    ),
    "LG-FedAvg falls later and from a higher peak": beats(PLAIN + LG, PLAIN + ALONE, "max", "last"),
    "By name, FedAvg reaches 0.252.": every(
        printed({PLAIN + BY_NAME: "0.252"}, "chosen"), beats(PLAIN + BY_NAME, PLAIN + LG, "chosen")
    ),
    "last round, averaging by position beats LG-FedAvg in every seed.": beats(PLAIN + BY_PLACE, PLAIN + LG, "last"),
    "With 48 rows per client the gain is gone.": every(
        apart(0.115, 0.125, NAME, *SIX, "chosen"),
        apart(-0.05, 0.001, NAME, *MANY, "chosen"),
        beats(*SIX, "chosen", seeds=4),
        undecided(*MANY, "chosen"),
    ),
    "about three clients in ten are worse off": average(
        0.25, 0.35, NAME, [PLAIN + LG, f"breast_cancer, as dealt: {LG}"], "worse than standalone"
    ),
    "when each client codes its columns in its own way, FedAvg by position learns next to nothing": every(
        average(-0.03, 0.03, NAME, CODED + BY_PLACE, "chosen"), average(0.1, 1, NAME, PLAIN + BY_PLACE, "chosen")
    ),
    "LG-FedAvg reaches 0.130 and standalone training 0.138 (not significant).": every(
        printed({CODED + LG: "0.130", CODED + ALONE: "0.138"}, "chosen"), undecided(CODED + LG, CODED + ALONE, "chosen")
    ),
    "The MMD had no significant effect on the score": undecided("space: centroid", "space: no MMD", "R2"),
}
