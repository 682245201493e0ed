"""Chapter 8's pairs side by side are those that FedCG trains one by one; its worlds are what its text says."""

import numpy as np
import pytest
import torch

import fedlib
from book.experiments import fedcg_collapse as chapter
from fedlib import models

SETTINGS = chapter.FEW | {"rounds": 5}
pytestmark = pytest.mark.filterwarnings("ignore:FedCG ended with round", "ignore:the domains collapsed")


@pytest.mark.parametrize("head", chapter.HEADS)
@pytest.mark.parametrize("kind", ["digits, turned", "photos, turned"])
def test_pairs_side_by_side_are_fedcgs(kind, head):
    """Ragged clients, several T and rates, whatever network is trained beside them."""
    here, arms = chapter.tiny(kind), [(1, 0.5), (2, 0.1), (3, 0.5), (100, 0.3)]
    image = here.train.x.shape[1:]
    net = chapter.classifier(image, head)
    students, teachers = chapter.train_pairs(here, net, arms, SETTINGS, 7, dtype=torch.float64)
    trained = (models.MLP((image.numel(), 6)), "dense1"), (chapter.network(here), "dense2")
    for place, (every, rate) in enumerate(arms):
        local = {"lr": 0.2, "batch_size": SETTINGS["batch_size"], "refresh": every, "student_lr": rate}
        rule = chapter.fedcg(net, *trained[place % 2], **local)
        run = rule, rule.net.init(7), here.train, SETTINGS["rounds"], SETTINGS["cohort"]
        state = fedlib.fit(*run, seed=7, dtype=torch.float64, progress=False).state
        for ours, theirs in ((students, state.student), (teachers, state.teacher)):
            for name, p in ours.items():
                torch.testing.assert_close(p[place], theirs[f"student.{name}"][0], atol=1e-12, rtol=1e-9)
        start = chapter.starts(here, net, 7, torch.float64)[0]
        assert max((p[0] - students[n][place]).abs().max() for n, p in start.items()) > 1e-3


def test_the_grid_of_4_by_4_sees_means_of_parts():
    net = chapter.classifier((1, 16, 16), "4x4")
    flat = chapter.classifier((1, 16, 16), "flatten")
    params = {n: p.double() for n, p in net.init(1).items()}
    wide = {n: p.double() for n, p in flat.init(1).items()}
    grid = params["dense1.weight"].view(4, chapter.FILTERS[-1], 4, 4)
    spread = grid.repeat_interleave(2, 2).repeat_interleave(2, 3) / 4
    x = torch.rand(3, 1, 16, 16, dtype=torch.float64)
    same = flat(wide | {"dense1.weight": spread.flatten(1), "dense1.bias": params["dense1.bias"]}, x)
    torch.testing.assert_close(net(params, x), same)


@pytest.mark.parametrize("kind", chapter.KINDS)
def test_worlds(kind):
    source = chapter.generated(kind)
    here, other = (chapter.world(kind, chapter.FEW, seed, source) for seed in (0, 1))
    assert here.train.index.shape == (8, 8) and here.test.index.shape == (8, 4)
    assert here.train.x.shape[1:] == ((3, 16, 16) if kind.startswith("photos") else (1, 16, 16))
    assert len(np.concatenate(here.truth)) == 64
    assert not torch.equal(here.train.x, other.train.x)
    domains = [1] * 4 + [2] * 4 if kind.endswith("turned") else [1] * 8
    assert sorted(len(set(t)) for t in here.truth) == domains
    if kind == "FEMNIST":
        assert len({t[0] for t in here.truth}) == 8
    if kind.startswith("photos"):
        x = here.train.all_rows(torch.float64)[0]
        assert x.mean((0, 1, 3, 4)).abs().max() < 1e-6
        torch.testing.assert_close(x.std((0, 1, 3, 4)), torch.ones(3).double(), atol=1e-4, rtol=0)


def test_images_of_half_the_side():
    x = np.zeros((1, 1, 28, 28), np.uint8)
    x[0, 0, 0, 0] = 200
    for edge in (0, 255):
        seen = chapter.small(x, edge)
        assert seen.shape == (1, 1, 16, 16) and seen[0, 0, 1, 1] == 50 and seen[0, 0, 0, 0] == edge


def test_scores_of_known_domains():
    here = chapter.tiny("digits, turned")
    truth = torch.zeros(here.train.index.shape, dtype=torch.int64)
    for k, own in enumerate(here.truth):
        truth[k, : len(own)] = torch.as_tensor(own)
    found = chapter.scores_of(here, truth)
    shares = np.bincount(np.concatenate(here.truth)) / len(np.concatenate(here.truth))
    assert found["NMI"] == pytest.approx(1) and found["largest domain"] == pytest.approx(shares.max())
    alone = chapter.scores_of(here, 0 * truth)
    assert alone["largest domain"] == 1 and alone["NMI"] == 0 == alone["entropy"]


def test_bytes_are_the_same_images_255_times_as_large():
    for kind in chapter.KINDS:
        here = chapter.world(kind, chapter.FEW | {"bytes": True}, 0, chapter.generated(kind)).train
        wide, plain = (data.all_rows(torch.float64)[0] for data in (chapter.in_bytes(here), here))
        torch.testing.assert_close(wide, 255 * plain)
        assert 100 < wide.max() <= 255 and wide.min() >= 0
