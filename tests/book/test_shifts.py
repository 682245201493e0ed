"""New clients in the four shifts: who they are, and which methods serve them by their images alone."""

from dataclasses import replace

import pytest
import torch

import fedlib
from book.experiments import shifts
from book.experiments.shifts import SETTINGS, SHIFTS, WITHOUT_LABELS, shifted


@pytest.mark.parametrize("shift", SHIFTS)
def test_new_clients_share_no_digit_with_the_others(shift):
    here = shifts.Shifts(SETTINGS | {"clients": 4, "new": 2, "digits": 50}).world(f"{shift}, 5", 1)
    assert here.new[0].id.tolist() == here.new[1].id.tolist() == [4, 5]
    assert not set(here.train.id.tolist()) & {4, 5}
    parts = here.train, here.validation, here.test, *here.new
    assert all((some.n > 0).all() for some in parts) and [int(some.n.sum()) for some in parts[:3]] == [80, 40, 80]


def test_who_serves_new_clients_by_images_alone():
    few = {"clients": 5, "new": 3, "digits": 100, "rounds": 3, "trainers": 3, "pair rounds": 1}
    board, kind = shifts.Shifts(SETTINGS | few), "P(x), 8"
    here = board.world(kind, 0)
    own, test = here.new
    shuffled, alike = replace(own, y=own.y.flip(0)), set()
    assert not torch.equal(own.y, shuffled.y)
    methods = board.methods(here, 0, 0.15, 0.15)
    for name in methods.keys() - set(shifts.CONTROLS):
        run = board.train(name, kind, 0, 0.15, 0.15 if name == "FedAvg, fine-tuned" else None)
        algorithm, end = methods[name](), fedlib.Result(run.state, here.train.id, run.history)
        new = (fedlib.new_clients(algorithm, end, data, 1) for data in (own, shuffled))
        first, second = (fedlib.evaluate(algorithm, some, test)["loss"].tolist() for some in new)
        alike |= {name} if first == second else set()
    assert set(WITHOUT_LABELS) <= alike


def test_what_the_page_says_of_kinds_of_clients(monkeypatch):
    """How many there are, and which of them new clients bring that no training client has."""
    board, drawn = shifts.Shifts(SETTINGS), []
    monkeypatch.setattr(shifts, "shifted", lambda *how: drawn.append(shifted(*how)) or drawn[-1])
    colours = [len(set(board.world("P(x), 8", seed).group.tolist())) for seed in SETTINGS["seeds"]]
    assert (min(colours), max(colours)) == (11, 13)
    for shift in ("P(y given x)", "P(x given y)"):
        for seed in SETTINGS["seeds"]:
            board.world(f"{shift}, 8", seed)
            ways = drawn[-1][2].tolist()
            assert len(ways) == 25 and not set(ways[20:]) & set(ways[:20])
