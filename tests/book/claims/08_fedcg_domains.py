"""What chapter 8 says of its stored results."""

from book.claiming import HOLDS, UNDECIDED, between, each_seed, every, gaps
from book.claims.reproduction_fedcg import HEADS, KINDS, RATES, after_few_steps, pairs, styles_separated

PAGE = "notebooks/08_fedcg_domains.ipynb"
RESULT, SWEEP, LARGEST = "fedcg_domains", "fedcg_collapse", "largest domain"
TURNED = "digits, turned", "photos, turned"


def nmi(read, row):
    return each_seed(read, RESULT, f"mend: {row}", "NMI")


def spread(read, head):
    """Within the outputs of random teachers, over that between them, of every seed."""
    both = (each_seed(read, RESULT, f"random teachers: {head}", where) for where in ("within", "between"))
    return [within / between for within, between in zip(*both, strict=True)]


def flat_bands(read):
    return 0 < max(spread(read, "pooled")) < 0.1 and min(spread(read, "flatten")) > 0.3


def say_little(read):
    """Hardly more of the turns than a fifth of what EM finds."""
    return all(0 < s < 0.2 * em for s, em in zip(nmi(read, "sinkhorn"), nmi(read, "federated EM"), strict=True))


def main_rotations(read):
    """The linear network's updates: clients perfectly, and still far from the domains of samples."""
    mine = nmi(read, "k-means on clients, linear")
    return mine == nmi(read, "perfect clustering of clients") and min(mine) > 0.5 and max(mine) < 0.7


def most_runs(read):
    """The flatten head."""
    found = pairs(read, LARGEST, heads=("flatten",))
    others = pairs(read, "NMI", kinds=(*TURNED, "FEMNIST"), heads=("flatten",))
    return sum(0.95 <= v <= 1 for v in found) > 0.75 * len(found) and 0 <= max(others) < 0.06


def photos_only(read):
    """On "a larger largest domain with T = 1 than with T = 100"; and with turned images no NMI is worth the name."""
    arms = [(kind, head, rate) for kind in KINDS for head in HEADS for rate in RATES]
    ends = [((SWEEP, f"{kind}, {head}"), f"rate {rate}, T = 1", f"rate {rate}, T = 100") for kind, head, rate in arms]
    found = [gaps(read, *two, LARGEST)[0] for two in ends]
    words = [gap["verdict"] for gap in found]
    decided = [(kind, word) for (kind, *_), word in zip(arms, words, strict=True) if word != UNDECIDED]
    same = sum(gap["difference"] == gap["half_width"] == 0 for gap in found)
    return decided == [("photos, turned", HOLDS)] * 4 and same == 19 and max(pairs(read, "NMI", kinds=TURNED)) < 0.06


# And no other federation comes near one half.
styles = every(styles_separated, lambda read: 0 <= max(pairs(read, "NMI", kinds=(*TURNED, "FEMNIST"))) < 0.5)

CLAIMS = {
    "With the pooled head the outputs form four flat bands, and the highest wins nearly every image before any "
    "training.": every(flat_bands, between(0.9, 1, RESULT, "random teachers: pooled", LARGEST)),
    "so several domains get images": between(0.25, 0.95, RESULT, "random teachers: flatten", LARGEST),
    "In most runs one domain has all or nearly all images, "
    "and with rotations and writers the NMI is near zero at any $T$.": every(most_runs, after_few_steps),
    "Only on the photos does a large $T$ clearly keep more domains in use, and even these are not the "
    "rotations.": photos_only,
    "Styles, which differ in grey level, were found (NMI above one half) in 33 of their 450 runs.": styles,
    "Teacher and student end with nearly all images in one domain.": between(0.9, 1, RESULT, "mend: argmax", LARGEST),
    "When balanced, they use four that say little about the rotations, and *loss* finds the digits.": every(
        say_little,
        between(0.9, 1, RESULT, ["mend: sinkhorn", "mend: loss"], "entropy"),
        between(-1, 0.02, RESULT, "mend: loss", "NMI"),
        between(0.6, 1, RESULT, "mend: loss", "NMI with the digit"),
    ),
    "Clustering the updates of a linear network finds each client's main rotation, but no second one.": main_rotations,
}

GIVEN = ["(88.74 against k-means' 87.21 in Table 4)"]
