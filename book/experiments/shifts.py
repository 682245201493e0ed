"""Four ways in which clients' data can differ, in grades, and clients never seen: the methods of the scoreboard.

The joint distribution of an image x and its label y may differ between clients in P(x), P(y), P(y | x) or P(x | y).
Fenoglio et al. (FLUX, NeurIPS 2025) compare methods under each of the four, in eight grades, with clients from the
generator ANDA (Li). `shifted` follows the generator's rules, written anew from its description:

- P(x): a client's images are turned and coloured in one of several ways; 2 to 5 turns, from grade 5 on in 3 colours.
- P(y): a client has one of five sets of classes, each of 10 to 3 classes; its digits of other classes are replaced by
  repetitions of those that it has.
- P(y | x): among 1 to 8 classes, the same for all clients, each client shuffles the labels.
- P(x | y): each client turns each of 1 to 8 classes, the same for all clients, by 0, 90, 180 or 270 degrees.

Unlike there, digits have 14 x 14 pixels, a client has 200 of them and not 6,000, and 20 clients train, with five more
that are never seen. Networks, methods and their settings are those of `book.experiments.scoreboard`; all clients take
part in each round. A method chooses its learning rates in each shift and grade by the validation rows of another seed.
Who wants a number of groups is told how many ways there are among the clients, at most five. Preset ``full`` takes
less than two hours on one core.
"""

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np
import torch
from torchvision.transforms.functional import rotate

import fedlib
from book.experiments import running, scoreboard
from book.experiments.scoreboard import CONTROLS, METHODS, PARTS, Board, Nets, World, cells
from book.experiments.worlds import enter, shrunk
from fedlib import ClientData, datasets, evaluation, stack_rows

SHIFTS = ("P(x)", "P(y)", "P(y given x)", "P(x given y)")
WITHOUT_LABELS = ("FedAvg", "FedProx", "SCAFFOLD", "FedAdam", "PACFL", "FedCG")  # serve a new client by its images
COLOURS = ("red", "green", "blue")
TURNS, BANK = (0.0, 90.0, 180.0, 270.0), 5
SETTINGS = {"grades": [2, 8], "clients": 20, "new": 5, "digits": 200, "rounds": 40, "batch_size": 40, "epochs": 2}
SETTINGS |= {"new rounds": 10}  # of local training that a new client may spend; those that train alone have all
SETTINGS |= {"rates": [0.02, 0.05, 0.15, 0.45, 0.9], "rate of FedAdam's clients": 0.1}
SETTINGS |= {"trainers": 8, "pair rounds": 20, "seeds": [100, 101, 102, 103, 104], "seed that chooses": 0}

# ---- the four shifts ----


@cache
def large_digits() -> tuple[np.ndarray, np.ndarray]:
    """The 5,000 digits of mnist5k with 28 x 28 pixels, and their labels."""
    arrays = datasets.load("mnist5k")
    return arrays.x.reshape(-1, 28, 28), arrays.y


def turned(x: np.ndarray, angle: float) -> np.ndarray:
    """Images (N, 28, 28), each turned about its middle."""
    return rotate(torch.as_tensor(x), angle).numpy() if angle else x


def shifted(
    shift: str, grade: int, x: np.ndarray, y: np.ndarray, owner: np.ndarray, part: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images (N, channels, 14, 14) and labels as each owner has them, and each owner's way: equal numbers, equal ways.

    Digits that a client repeats (P(y)) come from the same part of its rows: training, validation or test.
    """
    rng, clients = np.random.RandomState(seed), np.unique(owner)
    x, y = x.copy(), y.copy()
    if shift == "P(x)":
        angles = 360.0 / (2 + (grade - 1) % 4) * np.arange(2 + (grade - 1) % 4)
        bank = [*product(angles, COLOURS if grade > 4 else ("grey",))]
        ways = rng.randint(len(bank), size=(len(clients), 1))
        found = np.empty((len(x), 3 if grade > 4 else 1, 14, 14), np.uint8)
        for client, way in zip(clients, ways[:, 0], strict=True):
            angle, colour = bank[way]
            found[owner == client] = shrunk(turned(x[owner == client], angle))
            if colour != "grey":  # of three channels that of the colour is full everywhere
                found[owner == client, COLOURS.index(colour)] = 255
        return found, y, distinct(ways)
    if shift == "P(y)":
        bank = [np.sort(rng.choice(10, 11 - grade, replace=False)) for _ in range(BANK)]
        ways = rng.randint(BANK, size=(len(clients), 1))
        for (client, way), p in product(zip(clients, ways[:, 0], strict=True), np.unique(part)):
            here = np.flatnonzero((owner == client) & (part == p))
            kept = here[np.isin(y[here], bank[way])]
            gone = np.setdiff1d(here, kept)
            again = rng.choice(kept, len(gone))
            x[gone], y[gone] = x[again], y[again]
    else:
        classes = rng.choice(10, grade, replace=False)
        if shift == "P(y given x)":
            ways = np.stack([rng.permutation(classes) for _ in clients])
        else:
            ways = rng.randint(len(TURNS), size=(len(clients), grade))
        old, pictures = y.copy(), x.copy()
        for (c, client), (i, label) in product(enumerate(clients), enumerate(classes)):
            here = (owner == client) & (old == label)
            if shift == "P(y given x)":
                y[here] = ways[c, i]
            else:
                x[here] = turned(pictures[here], TURNS[ways[c, i]])
    return shrunk(x), y, distinct(ways)


def distinct(ways: np.ndarray) -> np.ndarray:
    """The number of each row, the same for equal ones."""
    return np.unique(ways, axis=0, return_inverse=True)[1].reshape(-1)


# ---- federations and runs ----


@dataclass(frozen=True)
class Shifted(World):
    """A federation, and clients that never take part: their training and test rows."""

    new: tuple[ClientData, ...] = ()


class Shifts(Board):
    """The scoreboard's protocol with kinds such as ("P(x), 4"), and with new clients."""

    def drawn(self, kind: str) -> int:
        """All clients."""
        return self.settings["clients"]

    @lru_cache(maxsize=2)  # noqa: B019
    def world(self, kind: str, seed: int) -> Shifted:
        """The federation of a shift and a grade."""
        shift, grade = kind.split(", ")
        clients, new, digits = (self.settings[name] for name in ("clients", "new", "digits"))
        x, y = large_digits()
        order = np.random.RandomState(seed).permutation(len(y))[: (clients + new) * digits]
        owner = np.arange(len(order)) // digits
        cuts = np.cumsum(PARTS)[:-1] * digits
        part = np.searchsorted(cuts.round(), np.arange(len(order)) % digits, side="right")
        x, y, ways = shifted(shift, int(grade), x[order], y[order], owner, part, seed)

        def rows(p: int, clients: range) -> ClientData:
            return stack_rows(x, y, [np.flatnonzero((owner == c) & (part == p)) for c in clients], [*clients], 10, True)

        old, later = range(clients), range(clients, clients + new)
        group = distinct(ways[:clients, None])
        groups = min(int(group.max()) + 1, BANK)
        nets = Nets((x[0].size, 32, 10), max(groups, 2), x.shape[1:])
        three = [rows(p, old) for p in range(3)]
        return Shifted(*three, group, groups, nets, new=(rows(0, later), rows(2, later)))

    def cell(self, name: str, kind: str, seed: int, *more: Any) -> dict[str, float]:
        """As on the scoreboard, with the accuracy of the new clients."""
        found = super().cell(name, kind, seed, *more)
        rate, _, at_home = (*more, None)[:3]
        run, here = self.train(name, kind, seed, rate, at_home), self.world(kind, seed)
        algorithm = self.methods(here, seed, run.rate, found.get("rate at home"))[name]()
        end = fedlib.Result(run.state, here.train.id, run.history)
        given = self.settings
        rounds = {"alone": given["rounds"], "FedAvg, fine-tuned": 1}.get(name, given["new rounds"])
        own, test = here.new
        scores = evaluation.evaluate(algorithm, fedlib.new_clients(algorithm, end, own, rounds, seed), test)
        return found | {"new clients": round(float(scores["accuracy"].mean()), 5)}


def measure(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """Score -> method -> shift and grade -> seed; ``validation`` and ``rates``: shift and grade -> method."""
    board, figures = Shifts(settings), dict[str, Any]()
    for kind in (f"{shift}, {grade}" for shift, grade in product(SHIFTS, settings["grades"])):
        arms = {name: (name, "alone", kind) for name in (*METHODS, *CONTROLS)}
        for seed, name, cell in cells(keep, board, kind, arms, list(arms), figures):
            for score, value in cell.items():
                enter(figures.setdefault(score, {}), seed, {name: {kind: value}})
    return figures


def probe() -> running.Probe:
    """What the methods compute on the scoreboard; of each shift the images and labels, and FedAvg's run."""
    found = {name: numbers for name, numbers in scoreboard.probe().items() if name in (*METHODS, *CONTROLS)}
    board = Shifts(SETTINGS | {"clients": 6, "new": 2, "digits": 100, "rounds": 2})
    for shift, grade in product(SHIFTS, SETTINGS["grades"]):
        here = board.world(f"{shift}, {grade}", 0)
        assert here.group is not None
        drawn = [float(part.x.double().square().mean()) for part in (here.train, *here.new)]
        ways = [float(n) for n in (*here.group, here.test.y.sum())]
        algorithm = board.methods(here, 0, 0.3)["FedAvg"]()
        trace = running.trace(algorithm, here.nets.model.init(0), here.train)
        found[f"{shift}, {grade}"] = drawn + ways + trace
    return found


PRESETS = {"full": running.Experiment("shifts", SETTINGS, measure, probe, data=("mnist5k",))}
