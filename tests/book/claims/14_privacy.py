"""What chapter 14 says of its stored results."""

from book.claiming import mean, shows, verdict

PAGE = "notebooks/14_privacy.ipynb"
NAME = "privacy"


def rebuilds(read, steps, text):
    """The share of eight images that 64 units give away."""
    return shows(100 * mean(read(NAME), f"64 units, {steps} steps, 8 images", "images"), text)


CLAIMS = [
    (
        "the server rebuilt TEN % of eight images from 64 units, and ONE % after one step.",
        lambda read: rebuilds(read, 10, "TEN") and rebuilds(read, 1, "ONE"),
    ),
]

GIVEN = []
