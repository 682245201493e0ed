"""What the first page says of stored results, in numbers that the README repeats."""

import statistics

from book.claiming import OURS, printed, shows

PAGE = "book/index.md"
PEERS = "../../benchmarks/results/intel-r-xeon-r-processor_peers"  # the run of which the page speaks


def faster(read):
    """Seconds of Flower over those of fedlib: the median of pairs."""
    (row,) = (row for row in read(PEERS)["rows"] if (row["work"], row["contender"]) == ("W1", "Flower"))
    return shows(statistics.median(cpu for _, cpu in row["against"]["fedlib"]), "6.9")


SPLIT, TUNED = {OURS: "89", "FedAvg": "23"}, {"FedAvg, fine-tuned": "74", "FedAvg": "71"}
CLAIMS = {
    "89 %, not 23 %": printed(("cfl",), SPLIT, "test accuracy", times=100),
    "74 %, not 71 %": printed(("personal_models_longer", "writers"), TUNED, "own", times=100),
    "6.9 times": faster,
}
GIVEN = ["CC BY 4.0"]
