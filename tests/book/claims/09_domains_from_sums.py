"""What chapter 9 says of its stored results."""

from book.claiming import ahead, beats, each_seed, every, printed

PAGE = "notebooks/09_domains_from_sums.ipynb"
RESULT = "fedcg_domains"
NOTHING, GUESSED, OWN = "nothing", "shares, guessed here", "shares, from training"
FULL, ONE_PRIOR, CLIENTS = "EM: in full", "EM: one prior for all", "mend: perfect clustering of clients"
STUDENT, MIXTURE = "held out: student", "held out: mixture, no labels"


def almost_as_good(read):
    """Estimated shares, in every seed: they bring at least four fifths of what own shares bring."""
    some = zip(*(each_seed(read, RESULT, MIXTURE, kind) for kind in (NOTHING, GUESSED, OWN)), strict=True)
    return all(guessed - alone > 0.8 * (own - alone) > 0 for alone, guessed, own in some)


CLAIMS = {
    "With own shares, EM corrects individual images, and nearly all end up with their rotation. With the same shares "
    "for all clients, it makes things worse than they were.": every(
        ahead(RESULT, FULL, CLIENTS, "NMI", by=0.2), ahead(RESULT, CLIENTS, ONE_PRIOR, "NMI", by=0.1)
    ),
    "Estimated shares are almost as good as those from training.": almost_as_good,
    "Labels improve the domains": ahead(RESULT, FULL, "EM: no class", "NMI", by=0.1),
    "Own shares, labels, temperature and the right number of domains all matter.": ahead(
        RESULT, FULL, [ONE_PRIOR, "EM: no class", "EM: temperature 1", "EM: D = 3", "EM: D = 5"], "NMI", by=0.02
    ),
    "held-out images are most likely under four domains": ahead(
        RESULT, FULL, [f"EM: D = {n}" for n in (2, 3, 5, 6)], "evidence"
    ),
    "FedCG's student, trained on EM's domains for 100 rounds, reaches an NMI of 0.67 alone, 0.88 with its client's "
    "shares and 0.84 with estimated ones.": every(
        beats((RESULT, [STUDENT, MIXTURE]), OWN, NOTHING),
        printed((RESULT, STUDENT), {NOTHING: "0.67", OWN: "0.88", GUESSED: "0.84"}),
    ),
}
