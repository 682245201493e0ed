"""What chapter 14 says of its stored results."""

from book.claiming import HOLDS, apart, every, printed, says

PAGE = "notebooks/14_privacy.ipynb"
NAME = "privacy"
FEW, SHORT = "50 clients", "50 clients, clipped at 0.3"


def loses(clients, before, after, low, high):
    """Points of accuracy from one column to another."""
    return apart(low / 100, high / 100, (NAME, f"{clients} clients"), before, after)


CLAIMS = {
    "The same guarantee costs 50 clients much of their accuracy and 200 clients much less": every(
        *(loses(50, "noise 0", f"noise {z}", low, 100) for z, low in ((4, 5), (8, 15), (16, 30))),
        *(loses(200, "noise 0", f"noise {z}", 0, high) for z, high in ((4, 2), (8, 5), (16, 10))),
    ),
    "the server rebuilt 63 % of eight images from 64 units, compared with 72.5 % after one step.": printed(
        NAME, {"64 units, 10 steps, 8 images": "63", "64 units, 1 steps, 8 images": "72.5"}, "images", times=100
    ),
    "50 clients fall from 0.87 to 0.68, 200 clients lose three points and 800 clients less than one.": every(
        printed((NAME, FEW), {"noise 0": "0.87", "noise 8": "0.68"}),
        loses(200, "noise 0", "noise 8", 2.5, 3.5),
        loses(800, "noise 0", "noise 8", 0, 1),
    ),
    "With noise, a shorter clipping length helps the small federation": every(
        says(HOLDS, NAME, SHORT, FEW, "noise 4", "noise 8", "noise 16"), says(HOLDS, NAME, FEW, SHORT, "noise 0")
    ),
    "it costs a point and a half before any noise is added": loses(800, "FedAvg", "noise 0", 1.3, 1.7),
}

GIVEN = ["correlates with it by more than 0.95"]
