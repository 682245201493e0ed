"""Chapter 8's pairs side by side are those that FedCG trains one by one; images in bytes are the same images."""

import pytest
import torch

import fedlib
from book.experiments import fedcg_collapse as chapter

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
    trained = (fedlib.models.MLP((image.numel(), 6)), "dense1"), (chapter.network(here), "dense2")
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


def test_bytes_are_the_same_images_255_times_as_large():
    for kind in chapter.KINDS:
        here = chapter.world(kind, chapter.FEW | {"bytes": True}, 0, chapter.generated(kind)).train
        wide, plain = (data.all_rows(torch.float64)[0] for data in (chapter.in_bytes(here), here))
        torch.testing.assert_close(wide, 255 * plain)
        assert 100 < wide.max() <= 255 and wide.min() >= 0
