"""What the page with CFL's figures says of our run of Figure 3."""

from tools import scoreboard

PAGE = "book/reproduction/cfl.md"


def of_the_run(read):
    """The three figures derived from the run on photos."""
    names = "before the first split", "gain at the first split", "at the end"
    return [scoreboard.DERIVED[name](read("cfl_photos_some"))[0] for name in names]


def as_printed(read):
    before, gain, end = of_the_run(read)
    return abs(before - 0.20) < 0.02 and abs(gain - 0.25) < 0.02 and end > 2 * before


CLAIMS = [
    (
        "One model stands still where the paper says, the first split brings what the paper says, "
        "and the end is more than twice the beginning.",
        as_printed,
    ),
]

GIVEN = ['"25% increase" is read as points']
