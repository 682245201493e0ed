"""What chapter 11 says of its stored results."""

from functools import partial

from book.claiming import every, mean

from book import claiming

PAGE = "notebooks/11_different_columns.ipynb"
NAME = "feature_spaces"
PLAIN, CODED = "diabetes, as dealt: ", "diabetes, own signs: "
LG, ALONE, BY_NAME, BY_PLACE = "LG-FedAvg", "standalone", "FedAvg by name", "FedAvg by position"
printed, beats = partial(claiming.printed, NAME), partial(claiming.beats, NAME)
undecided = partial(claiming.level, NAME, within=0.1, half=0.1)


def gains(rows, low, high):
    """What LG-FedAvg gains over training alone on diabetes, with so many rows a client."""
    ours, alone = (f"diabetes, {rows} rows: {method}" for method in (LG, ALONE))
    return lambda read: low <= mean(read(NAME), ours, "chosen") - mean(read(NAME), alone, "chosen") < high


def nothing_known(read):
    """An R2 of about 0 with habits of one's own; something is learned without them."""
    coded, plain = (mean(read(NAME), habits + BY_PLACE, "chosen") for habits in (CODED, PLAIN))
    return abs(coded) < 0.03 < 0.1 < plain


def three_of_ten(read):
    rows = [f"{table}, as dealt: {LG}" for table in ("diabetes", "breast_cancer")]
    return all(0.25 <= mean(read(NAME), row, "worse than standalone") <= 0.35 for row in rows)


CLAIMS = {
    "In the chosen round LG-FedAvg reaches 0.198 and standalone training 0.132, "
    "with LG-FedAvg ahead in every seed.": every(
        printed({PLAIN + LG: "0.198", PLAIN + ALONE: "0.132"}, "chosen"), beats(PLAIN + LG, PLAIN + ALONE, "chosen")
    ),
    "LG-FedAvg falls later and from a higher peak": beats(PLAIN + LG, PLAIN + ALONE, "max", "last"),
    "Where columns have names, FedAvg can average first layers by name and reaches 0.252.": every(
        printed({PLAIN + BY_NAME: "0.252"}, "chosen"), beats(PLAIN + BY_NAME, PLAIN + LG, "chosen")
    ),
    "With 48 rows per client the gain is gone.": every(
        gains(6, 0.115, 0.125),
        gains(48, -0.05, 0.001),
        beats(f"diabetes, 6 rows: {LG}", f"diabetes, 6 rows: {ALONE}", "chosen", seeds=4),
        undecided(f"diabetes, 48 rows: {LG}", f"diabetes, 48 rows: {ALONE}", "chosen"),
    ),
    "about three clients of ten are worse off with it": three_of_ten,
    "when each client codes its columns in its own way, FedAvg by position learns next to nothing": nothing_known,
    "LG-FedAvg reaches 0.130 and standalone training 0.138, which cannot be distinguished.": every(
        printed({CODED + LG: "0.130", CODED + ALONE: "0.138"}, "chosen"),
        undecided(CODED + LG, CODED + ALONE, "chosen"),
    ),
    "The MMD had no significant effect on the score.": undecided("space: centroid", "space: no MMD", "R2"),
}

GIVEN = []
