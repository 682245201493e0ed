"""What chapter 9 says of its stored results."""

from book.claiming import compare, every, mean, shows, values

PAGE = "notebooks/09_domains_from_sums.ipynb"
RESULT = "fedcg_domains"
NOTHING, GUESSED, OWN = "nothing", "shares, guessed here", "shares, from training"


def nmi(read, row):
    return values(read(RESULT), row, "NMI")


def beyond(a, b, least=0.0):
    """In every seed the NMI of one row is larger than that of another, by more than this."""
    return lambda read: min(x - y for x, y in zip(nmi(read, a), nmi(read, b), strict=True)) > least


def printed(text, *place):
    """The mean that stands at a place is printed so."""
    return lambda read: shows(mean(read(RESULT), *place), text)


def likeliest(read):
    """Four domains, on held-out images, in every seed."""
    f = read(RESULT)
    four = values(f, "EM: in full", "evidence")
    return all(
        min(a - b for a, b in zip(four, values(f, f"EM: D = {n}", "evidence"), strict=True)) > 0 for n in (2, 3, 5, 6)
    )


def shares_help(read):
    """The mixture and the student on held-out images, in every seed."""
    f = read(RESULT)
    gaps = [compare(f, (row, OWN), (row, NOTHING)) for row in ("held out: student", "held out: mixture, no labels")]
    return all(gap["verdict"] == "holds" and gap["agree"] == gap["seeds"] == 5 for gap in gaps)


def almost_as_good(read):
    """Estimated shares, in every seed: they bring at least four fifths of what own shares bring."""
    f, row = read(RESULT), "held out: mixture, no labels"
    some = zip(*(values(f, row, kind) for kind in (NOTHING, GUESSED, OWN)), strict=True)
    return all(guessed - alone > 0.8 * (own - alone) > 0 for alone, guessed, own in some)


CLAIMS = [
    (
        "With own shares, EM corrects single images, and nearly all end up with their rotation. With the same shares "
        "for all clients, it makes things worse than they were.",
        every(
            beyond("EM: in full", "mend: perfect clustering of clients", 0.2),
            beyond("mend: perfect clustering of clients", "EM: one prior for all", 0.1),
        ),
    ),
    ("Estimated shares are almost as good as those from training.", almost_as_good),
    ("Labels improve the domains", beyond("EM: in full", "EM: no class", 0.1)),
    (
        "Own shares, labels, temperature and the right number of domains all matter.",
        every(
            *(beyond("EM: in full", f"EM: {row}", 0.02) for row in ("one prior for all", "no class", "temperature 1")),
            *(beyond("EM: in full", f"EM: D = {n}", 0.02) for n in (3, 5)),
        ),
    ),
    ("held-out images are most likely under four domains", likeliest),
    (
        "FedCG's student, trained on EM's domains for 100 rounds, reaches an NMI of 0.67 alone, 0.88 with its client's "
        "shares and 0.84 with estimated ones.",
        every(
            shares_help,
            printed("0.67", "held out: student", NOTHING),
            printed("0.88", "held out: student", OWN),
            printed("0.84", "held out: student", GUESSED),
        ),
    ),
]

GIVEN = ["Means with 95 % intervals from a stored experiment with five other seeds"]
