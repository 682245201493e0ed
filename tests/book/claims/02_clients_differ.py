"""What chapter 2 says of its stored results."""

from book.claiming import mean, shows, values

PAGE = "notebooks/02_clients_differ.ipynb"
METHODS = ("FedAvg", "FedProx", "SCAFFOLD")


def skew(read):
    """Figures of label skew."""
    return read("heterogeneity")


def writers(read):
    """Figures of natural clients."""
    return read("heterogeneity_writers")


def almost_half(read):
    """Share of clients that do better alone."""
    return (
        all(0.38 < mean(skew(read), name, "negative transfer") < 0.47 for name in METHODS)
        and mean(skew(read), "FedAvg", "negative transfer") > 0.45
    )


def gain(read, score):
    """What writers gain by FedAvg."""
    return mean(writers(read), "FedAvg", score) - mean(writers(read), "alone", score)


CLAIMS = [
    (
        "In another stored run, with this chapter's label skew, almost half of the clients would do better alone",
        almost_half,
    ),
    (
        "for five initialisations of the network",
        lambda read: len(set(values(writers(read), "the deal", "gradient dissimilarity"))) == 5,
    ),
    ("Writers are the mild end of the scale.", lambda read: gain(read, "pooled") > 0.02),
    (
        "about five writers in six do at least as well with FedAvg as alone",
        lambda read: 0.8 < 1 - mean(writers(read), "FedAvg", "negative transfer") < 0.87,
    ),
    (
        "the worst tenth reaches 0.80, compared with 0.56 for the worst tenth alone",
        lambda read: all(
            shows(mean(writers(read), name, "worst decile"), text)
            for name, text in (("FedAvg", "0.80"), ("alone", "0.56"))
        ),
    ),
    (
        "Their label distance is even smaller than that of the control",
        lambda read: (
            mean(writers(read), "the deal", "label distance") < mean(writers(read), "IID control", "label distance")
        ),
    ),
    (
        "Their $B^2$ is about a quarter larger than by chance",
        lambda read: (
            1.2
            < mean(writers(read), "the deal", "gradient dissimilarity")
            / mean(writers(read), "IID control", "gradient dissimilarity")
            < 1.3
        ),
    ),
]

GIVEN = ["Intervals are 95 % over these"]
