"""What chapter 8 says of its stored results."""

from book.claiming import at, every, values, verdict

PAGE = "notebooks/08_fedcg_domains.ipynb"
RESULT, SWEEP = "fedcg_domains", "fedcg_collapse"
KINDS = ("digits, turned", "digits, styles", "photos, turned", "FEMNIST")
TURNED = ("digits, turned", "photos, turned")
HEADS = ("pooled", "4x4", "flatten")
RATES = ("0.0001", "0.01", "0.1")
EVERY = (1, 3, 10, 30, 100)


def runs(read, score, kinds=KINDS, heads=HEADS, rates=RATES, every=EVERY):
    """Of these pairs of teacher and student, all seeds."""
    f = read(SWEEP)
    arms = [f"rate {rate}, T = {t}" for rate in rates for t in every]
    return [v for kind in kinds for head in heads for arm in arms for v in values(f, f"{kind}, {head}", arm, score)]


def nmi(read, row):
    return values(read(RESULT), row, "NMI")


def one_domain_before_training(read):
    """The pooled head of a random teacher, and the spread within its outputs against that between them."""
    pooled, flatten = (at(read(RESULT), f"random teachers: {head}") for head in ("pooled", "flatten"))
    flat = [w / b for w, b in zip(values(pooled, "within"), values(pooled, "between"), strict=True)]
    thick = [w / b for w, b in zip(values(flatten, "within"), values(flatten, "between"), strict=True)]
    return 0.9 < min(values(pooled, "largest domain")) <= 1 and 0 < max(flat) < 0.1 and min(thick) > 0.3


def several_before_training(read):
    return all(0.25 <= v < 0.95 for v in values(read(RESULT), "random teachers: flatten", "largest domain"))


def balanced_without_meaning(read):
    """Four domains in use, and hardly more of the turns than a fifth of what EM finds."""
    return min(values(read(RESULT), "mend: sinkhorn", "entropy")) > 0.9 and all(
        0 < s < 0.2 * em for s, em in zip(nmi(read, "mend: sinkhorn"), nmi(read, "mend: federated EM"), strict=True)
    )


def loss_finds_digits(read):
    digit = values(read(RESULT), "mend: loss", "NMI with the digit")
    return (
        min(values(read(RESULT), "mend: loss", "entropy")) > 0.9 and max(nmi(read, "mend: loss")) < 0.02 < min(digit)
    ) and min(digit) > 0.6


def clients_clustered_perfectly(read):
    mine = nmi(read, "mend: k-means on clients, linear")
    return mine == nmi(read, "mend: perfect clustering of clients") and min(mine) > 0.5


def small_rounds(read):
    found = runs(read, "largest domain", rates=("0.01", "0.1"), every=(1, 3))
    return len(found) == 480 and set(found) == {1.0}


def verdicts_of_t(read):
    """On "a larger largest domain with T = 1 than with T = 100", by kind."""
    f, score = read(SWEEP), "largest domain"
    return [
        (kind, verdict(f, (place, f"rate {rate}, T = 1", score), (place, f"rate {rate}, T = 100", score)))
        for kind in KINDS
        for place in (f"{kind}, {head}" for head in HEADS)
        for rate in RATES
    ]


def mostly_undecided(read):
    found = verdicts_of_t(read)
    decided = [kind for kind, said in found if said == "holds"]
    some = len(found) == 36 and [v for _, v in found].count("undecided") == 32
    f, arms = read(SWEEP), [(f"{kind}, {head}", rate) for kind in KINDS for head in HEADS for rate in RATES]
    first, last = ([values(f, p, f"rate {r}, T = {t}", "largest domain") for p, r in arms] for t in (1, 100))
    same = sum(a == b for a, b in zip(first, last, strict=True))
    return some and decided == ["photos, turned"] * 4 and same == 19 == 32 - 13


def styles(read):
    found = runs(read, "NMI", kinds=("digits, styles",))
    return len(found) == 450 and sum(v > 0.5 for v in found) == 33


def nothing_elsewhere(read):
    """No other federation comes near one half."""
    return 0 <= max(runs(read, "NMI", kinds=(*TURNED, "FEMNIST"))) < 0.5


def most_runs(read):
    """The flatten head."""
    found = runs(read, "largest domain", heads=("flatten",))
    others = runs(read, "NMI", kinds=(*TURNED, "FEMNIST"), heads=("flatten",))
    return sum(0.95 <= v <= 1 for v in found) > 0.75 * len(found) and 0 <= max(others) < 0.06


def balanced(read):
    """And beyond nothing: four domains."""
    return balanced_without_meaning(read) and loss_finds_digits(read)


def one_domain(read):
    return 0.9 < min(values(read(RESULT), "mend: argmax", "largest domain")) <= 1


def clients_only(read):
    """The linear network's updates: perfectly, and still far from the domains of samples."""
    return clients_clustered_perfectly(read) and max(nmi(read, "mend: k-means on clients, linear")) < 0.7


def photos_only(read):
    """What T does to the largest domain; and with turned images no NMI is worth the name."""
    return mostly_undecided(read) and max(runs(read, "NMI", kinds=TURNED)) < 0.06


CLAIMS = [
    (
        "With the pooled head the outputs form four flat bands, and the highest wins nearly every image before any "
        "training.",
        one_domain_before_training,
    ),
    ("so several domains get images", several_before_training),
    (
        "In most runs one domain has all or nearly all images, "
        "and with rotations and writers the NMI is near zero at any $T$.",
        every(most_runs, small_rounds),
    ),
    (
        "A large $T$ clearly keeps more domains in use only on the photos, and they are not the rotations either.",
        photos_only,
    ),
    (
        "Styles, which differ in grey level, were found (NMI above one half) in 33 of their 450 runs.",
        every(styles, nothing_elsewhere),
    ),
    ("Teacher and student end with nearly all images in one domain.", one_domain),
    ("Balanced, they use four that say little about the rotations, and *loss* finds the digits.", balanced),
    (
        "Clustering the updates of a linear network finds each client's main rotation, but no second one.",
        clients_only,
    ),
]

GIVEN = ["Means with 95 % intervals from a stored experiment with five other seeds"]
