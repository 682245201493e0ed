"""The world in which federating helps: what is planted, and pFedGraph on shared layers."""

import numpy as np
import torch

from book.experiments import planted_transfer as chapter
from fedlib.algorithms import LGFedAvg, LocalOnly
from fedlib.params import to_matrix

FEW = chapter.SETTINGS | {"clients": 6, "trainers": 4, "validation": 10, "rounds": 3, "every": 1}


def test_both_groups_have_the_same_targets_in_another_order():
    x = np.random.RandomState(0).standard_normal((400, 5)) @ np.random.RandomState(1).standard_normal((5, 8))
    for dose, correlation in ((0.0, 1.0), (0.5, 0.0), (1.0, -1.0)):
        bowl, hill = chapter.two_targets(x, dose)
        np.testing.assert_allclose(np.sort(bowl), np.sort(hill), atol=1e-12)
        assert abs(np.corrcoef(bowl, hill)[0, 1] - correlation) < 0.25
        assert abs(bowl.mean()) < 1e-9 and abs(bowl.std() - 1) < 0.01


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


def test_a_matrix_of_pairs():
    pairs = torch.tensor([[0, 1], [1, 2]])
    expected = [[0.0, 5.0, 0.0], [5.0, 0.0, -2.0], [0.0, -2.0, 0.0]]
    assert chapter.square(3, pairs, torch.tensor([5.0, -2.0])).tolist() == expected


def test_without_hills_no_pair_has_two_kinds():
    """So no score of kinds is stored, and no clusters are tried."""
    few = chapter.CHAPTER | {"clients": 6, "trainers": 4, "validation": 10, "rounds": 1, "pair_rounds": 1, "every": 1}
    few |= {"snapshots": [1], "clusters": [2]}
    some = chapter.of_target(few, "bowls only", 3)
    assert {"LG-FedAvg", "standalone", "cosine", "Siamese GCN", "measured again"} < set(some)
    assert not any("AUC, groups" in row for row in some.values()) and "R2" not in some["cosine"]


def final(algorithm, world):
    end = chapter.federate(FEW, world, algorithm, 3)
    return to_matrix(algorithm.client_params(end.state, torch.arange(6))), end


def test_pfedgraph_on_shared_layers_at_its_ends():
    """With a huge alpha it is LG-FedAvg, with a tiny one everybody is alone."""
    world = chapter.world_of(FEW, 1.0, 3, torch.float64)
    all_equal, end = final(chapter.LGPFedGraph(**world.how, alpha=1e9), world)
    torch.testing.assert_close(all_equal, final(LGFedAvg(**world.how), world)[0], atol=1e-6, rtol=0)
    alone, other = final(chapter.LGPFedGraph(**world.how, alpha=1e-9), world)
    torch.testing.assert_close(alone, final(LocalOnly(**world.how), world)[0], atol=1e-9, rtol=0)
    assert not torch.allclose(all_equal, alone, atol=1e-3)
    shared = 3 * 32 + 33 * 16 + 17
    assert end.history["bytes_up"].iloc[-1] == 6 * shared * 8 and other.state.graph.diagonal().min() == 1
