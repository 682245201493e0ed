"""What the first page says of stored results, in numbers that the README repeats."""

from book.claiming import OURS, printed, shows, times_as_long

PAGE = "book/index.md"
SPLIT, TUNED = {OURS: "89", "FedAvg": "23"}, {"FedAvg, fine-tuned": "74", "FedAvg": "71"}
CLAIMS = {
    "89 %, not 23 %": printed(("cfl",), SPLIT, "test accuracy", times=100),
    "74 %, not 71 %": printed(("personal_models_longer", "writers"), TUNED, "own", times=100),
    "6.9 times": lambda read: shows(times_as_long(read, "W1", "Flower"), "6.9"),
}
GIVEN = ["CC BY 4.0"]
