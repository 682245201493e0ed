"""The four shifts against the rules that they state, and which methods serve a new client by its images alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fedlib
from book.experiments import shifts
from book.experiments.shifts import BANK, SETTINGS, SHIFTS, TURNS, WITHOUT_LABELS, shifted
from book.experiments.worlds import shrunk
from fedlib.datasets import load

CLIENTS, EACH = 9, 60
owner = np.arange(CLIENTS * EACH) // EACH
part = np.arange(CLIENTS * EACH) % EACH // (EACH // 3)


def digits():
    arrays, order = load("mnist5k"), np.random.RandomState(3).permutation(5000)[: CLIENTS * EACH]
    return arrays.x.reshape(-1, 28, 28)[order], arrays.y[order]


x, y = digits()
small = shrunk(x)


def turn(images, angle):
    """By numpy, for the four quarters."""
    return np.rot90(images, int(angle) // 90, (1, 2))


@pytest.mark.parametrize("grade", range(1, 9))
def test_inputs_are_turned_and_coloured(grade):
    found, labels, ways = shifted("P(x)", grade, x, y, owner, part, seed=grade)
    channels, turns = 3 if grade > 4 else 1, 2 + (grade - 1) % 4
    assert np.array_equal(labels, y) and found.shape[1] == channels and ways.max() < turns * channels
    pictures, _, _ = shifted("P(x)", grade, x[:1].repeat(len(x), 0), y, owner, part, seed=grade)
    for c in range(CLIENTS):
        mine = found[owner == c]
        full = [channel for channel in range(channels) if (mine[:, channel] == 255).all()]
        assert len(full) == (grade > 4)
        free = next(channel for channel in range(channels) if channel not in full)
        if turns in (2, 4):
            steps = range(0, 360, 360 // turns)
            assert any(np.array_equal(mine[:, free], shrunk(turn(x[owner == c], a))[:, 0]) for a in steps)
        for b in range(c):  # clients of one kind, and no others, see a picture in the same way
            same = np.array_equal(pictures[owner == c][0], pictures[owner == b][0])
            assert same == (ways[c] == ways[b])


@pytest.mark.parametrize("grade", range(1, 8))
def test_clients_have_one_of_five_sets_of_classes(grade):
    found, labels, ways = shifted("P(y)", grade, x, y, owner, part, seed=grade)
    sets = {way: set(labels[np.isin(owner, np.flatnonzero(ways == way))].tolist()) for way in ways}
    assert ways.max() < BANK and all(len(classes) <= 11 - grade for classes in sets.values())
    kept = 0
    for c in range(CLIENTS):
        for p in range(3):
            here = (owner == c) & (part == p)
            has = {image.tobytes(): int(label) for image, label in zip(small[here], y[here], strict=True)}
            for image, label in zip(found[here], labels[here], strict=True):
                assert has[image.tobytes()] == label  # nothing from another part or client, and its own label
        stays = (owner == c) & np.isin(y, list(sets[ways[c]]))
        assert np.array_equal(found[stays], small[stays])
        kept += int(stays.sum())
    assert (kept == len(x)) == (grade == 1)


@pytest.mark.parametrize("grade", range(1, 9))
def test_labels_are_shuffled_among_common_classes(grade):
    found, labels, ways = shifted("P(y given x)", grade, x, y, owner, part, seed=grade)
    assert np.array_equal(found, small)
    maps = [dict(zip(y[owner == c].tolist(), labels[owner == c].tolist(), strict=True)) for c in range(CLIENTS)]
    moved = {a for here in maps for a, b in here.items() if a != b}
    assert (3 if grade > 4 else -1) < len(moved) <= grade
    for c, here in enumerate(maps):
        assert len(set(here.values())) == len(here)
        for d in range(c):
            assert (here == maps[d]) == (ways[c] == ways[d]) or not here.keys() == maps[d].keys() == set(range(10))


@pytest.mark.parametrize("grade", range(1, 9))
def test_common_classes_are_turned_by_each_client(grade):
    found, labels, _ = shifted("P(x given y)", grade, x, y, owner, part, seed=grade)
    assert np.array_equal(labels, y)
    turned = set()
    for c in range(CLIENTS):
        for label in range(10):
            here = (owner == c) & (y == label)
            angles = [a for a in TURNS if np.array_equal(found[here], shrunk(turn(x[here], a)))]
            assert angles or not here.any()
            turned |= {label} if angles and 0 not in angles else set()
    assert 0 < len(turned) <= grade


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
