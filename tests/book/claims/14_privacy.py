"""What chapter 14 says of its stored results."""

from book.claiming import mean, shows, verdict

PAGE = "notebooks/14_privacy.ipynb"
NAME = "privacy"
SHORT = "50 clients, clipped at 0.3"


def rebuilds(read, steps, text):
    """The share of eight images that 64 units give away, in percent."""
    return shows(100 * mean(read(NAME), f"64 units, {steps} steps, 8 images", "images"), text)


def loses(read, clients, before, after):
    """Points of accuracy from one column to another."""
    found = read(NAME)
    return 100 * (mean(found, f"{clients} clients", before) - mean(found, f"{clients} clients", after))


def cheap_in_a_crowd(read):
    """Accuracy without noise and with much of it."""
    found = read(NAME)
    return (
        shows(mean(found, "50 clients", "noise 0"), "0.87")
        and shows(mean(found, "50 clients", "noise 8"), "0.68")
        and shows(loses(read, 200, "noise 0", "noise 8"), "3")
        and 0 < loses(read, 800, "noise 0", "noise 8") < 1
    )


def shorter_helps(read):
    """At much noise, and not without any."""
    found = read(NAME)
    return (
        verdict(found, (SHORT, "noise 8"), ("50 clients", "noise 8")) == "holds"
        and verdict(found, ("50 clients", "noise 0"), (SHORT, "noise 0")) == "holds"
    )


CLAIMS = [
    (
        "the server rebuilt 63 % of eight images from 64 units, compared with 72.5 % after one step.",
        lambda read: rebuilds(read, 10, "63") and rebuilds(read, 1, "72.5"),
    ),
    (
        "50 clients fall from 0.87 to 0.68, 200 clients lose three points and 800 clients less than one.",
        cheap_in_a_crowd,
    ),
    ("At this noise a shorter clipping length helps the small federation", shorter_helps),
    (
        "shortening them costs a point and a half before any noise is added",
        lambda read: 1.3 < loses(read, 800, "FedAvg", "noise 0") < 1.7,
    ),
]

GIVEN = [
    "We count an image as rebuilt if one of the candidates correlates with it by more than 0.95",
]
