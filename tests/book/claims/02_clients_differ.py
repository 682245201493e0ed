"""What chapter 2 says of its stored results."""

from book.claiming import apart, average, every, printed, ratio

PAGE = "notebooks/02_clients_differ.ipynb"
SKEW, WRITERS = "heterogeneity", "heterogeneity_writers"


def better_alone(low, high, result, *methods):
    """The share of clients that do better alone."""
    return average(low, high, result, [*methods], "negative transfer")


CLAIMS = {
    "In another stored run, with this chapter's label skew, almost half of the clients would do better alone": every(
        better_alone(0.38, 0.47, SKEW, "FedAvg", "FedProx", "SCAFFOLD"), better_alone(0.45, 0.47, SKEW, "FedAvg")
    ),
    "Writers are the mild end of the scale.": apart(0.02, 1, WRITERS, "FedAvg", "alone", "pooled"),
    "About five in six do at least as well with FedAvg as alone": better_alone(0.13, 0.2, WRITERS, "FedAvg"),
    "worst tenth reaches 0.80 instead of 0.56": printed(WRITERS, {"FedAvg": "0.80", "alone": "0.56"}, "worst decile"),
    "and their label distance is smaller": ratio(0, 1, WRITERS, "the deal", "IID control", "label distance"),
    "Their $B^2$ is about a quarter larger than by chance": ratio(
        1.2, 1.3, WRITERS, "the deal", "IID control", "gradient dissimilarity"
    ),
}
