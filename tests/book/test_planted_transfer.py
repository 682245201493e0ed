"""The world in which federating helps: what is planted."""

import numpy as np
import pytest
import torch

from book.experiments import planted_transfer as chapter

FEW = chapter.SETTINGS | {"clients": 6, "trainers": 4, "validation": 10, "rounds": 3, "every": 1}


def test_no_sign_of_the_components_matters():
    """A singular vector has no sign of its own; neither group's target may depend on it."""
    x = np.random.RandomState(2).gamma(2.0, size=(300, 6))
    flipped = chapter.two_targets(x[:, ::-1], 0.5)
    np.testing.assert_allclose(flipped, chapter.two_targets(x, 0.5), atol=1e-9)


def test_groups_differ_in_their_targets_only():
    ends = [chapter.world_of(FEW, dose, 3).clients for dose in (0.0, 1.0)]
    torch.testing.assert_close(ends[0].train.x, ends[1].train.x)
    group = torch.from_numpy(ends[0].planted)
    same = [bool(torch.allclose(a, b, atol=1e-4)) for a, b in zip(ends[0].train.y, ends[1].train.y, strict=True)]
    assert group.sum() == 3 and not any(same)
    hills, bowls = (ends[1].test.y[group == g] for g in (1, 0))
    # Each client scales targets by its own rows; up to that a hill is a bowl upside down.
    assert np.corrcoef(hills[0], bowls[0])[0, 1] < -0.999 < 0.999 < np.corrcoef(bowls[0], bowls[1])[0, 1]


def test_the_notebooks_clients_differ_in_nothing_but_the_hill():
    mixed, bowls = (chapter.notebook_world(FEW, strength, 3).clients for strength in (1.0, 0.0))
    hill = torch.from_numpy(mixed.planted)
    assert hill.sum() == 3 and torch.equal(mixed.train.x, bowls.train.x)
    torch.testing.assert_close(mixed.train.y, torch.where(hill[:, None] == 1, -1, 1) * bowls.train.y)


def test_without_hills_no_pair_has_two_kinds():
    """So no score of kinds is stored, and no clusters are tried."""
    few = chapter.CHAPTER | {"clients": 6, "trainers": 4, "validation": 10, "rounds": 1, "pair_rounds": 1, "every": 1}
    few |= {"snapshots": [1], "clusters": [2]}
    some = chapter.of_target(few, "bowls only", 3)
    assert {"all together", "alone", "cosine", "predictor", "measured again"} < set(some)
    assert not any("AUC, groups" in row for row in some.values()) and "R2" not in some["cosine"]


def test_all_rows_are_those_of_training_and_then_those_of_validation():
    world = chapter.notebook_world(FEW, 1.0, 3)
    whole = chapter.with_all_rows(world).clients.train
    parts = world.clients.train, world.clients.validation
    torch.testing.assert_close(whole.y, torch.cat([d.y for d in parts], 1))
    torch.testing.assert_close(whole.x[whole.index], torch.cat([d.x[d.index] for d in parts], 1))


def test_validation_chooses_among_the_clusters_of_all_radii(monkeypatch):
    monkeypatch.setattr(chapter.transfer, "best_clusters", lambda rule, candidates, *more, **how: candidates)
    places = torch.tensor([0.0, 1.0, 3.0, 3.0, 7.0, 12.0])
    world = chapter.notebook_world(FEW, 1.0, 3)
    found = chapter.clustered(FEW, world, (places[:, None] - places).abs(), 0, radius=True)
    assert sorted(c.tolist() for c in found) == [
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1],
        [0, 0, 0, 0, 1, 2],
        [0, 0, 1, 1, 2, 3],
    ]


def test_radii_at_which_dbscan_finds_the_kinds():
    places, group = torch.tensor([0.0, 1, 2, 5, 6, 7.5]), torch.tensor([0, 0, 0, 1, 1, 1])
    distance = (places[:, None] - places).abs()
    right = {"right, 2": 1.0, "right, 4": 0.0, "right, 6": 0.0}  # no client has three neighbours of its kind
    assert chapter.radii(distance, group) == pytest.approx({"radius, kinds": 1.5, "radius, both": 3.0} | right)
    distance[2, 3] = distance[3, 2] = 0
    assert chapter.radii(distance, group) == pytest.approx(
        {"radius, kinds": 1.5, "radius, both": 0} | dict.fromkeys(right, 0)
    )
