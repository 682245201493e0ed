"""What the account of FedSGCNN says of its stored runs."""

from book.claiming import compare

PAGE = "book/reproduction/fedsgcnn.md"
CLASSES = "Wine", "Wine(c)", "Obesity", "Obesity(c)"


def above(read, score):
    """FedSGCNN and random clusters less LG-FedAvg."""
    found, ways = read("fedsgcnn_paper"), ("FedSGCNN", "+ random clusters")
    return [compare(found[n], (way, score), ("LG-FedAvg", score)) for n in CLASSES for way in ways]


CLAIMS = [
    (
        "by it FedSGCNN is up to ten points above LG-FedAvg, and random clusters of the same sizes are, too; the same "
        "runs on rows that nobody holds show no difference",
        lambda read: (
            all(gap["verdict"] == "holds" for gap in above(read, "paper"))
            and all(gap["verdict"] == "undecided" for gap in above(read, "all, hold-out"))
            and 0.095 < max(gap["difference"] for gap in above(read, "paper")) < 0.105
            and all(abs(gap["difference"]) < 0.005 for gap in above(read, "all, hold-out"))
        ),
    ),
]

GIVEN: list[str] = []
