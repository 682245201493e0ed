"""The experiment of personal models: its own ways to the same models as the library's."""

import numpy as np
import pytest
import torch

from book.experiments import personal_models as chapter
from book.experiments.worlds import EXACT


@pytest.fixture(scope="module")
def federation():
    return chapter.small()


def same(a, b):
    return all(torch.allclose(a[name], b[name], rtol=0, atol=1e-12) for name in a)


def test_fine_tuning_of_any_model_is_that_of_the_library(federation):
    """New clients of FineTunedFedAvg draw the same shuffles; both have the same rate at home."""
    tuned, by_epochs, _ = chapter.trained(*federation, "FedAvg, fine-tuned", 0, chapter.Tuning(0.3, None, 0.1), **EXACT)
    plain, results, _ = chapter.trained(*federation, "FedAvg", 0, chapter.Tuning(0.3), **EXACT)
    assert sorted(by_epochs) == [1, 3, 10] and [len(r.history) for r in by_epochs.values()] == [3, 5, 12]
    new = chapter.enrolled(*federation, "FedAvg", plain, results[0], 0)
    at_home, other = (chapter.finetuned(plain, new, federation[1].new, 0, rate) for rate in (0.1, 0.3))
    for epochs, result in by_epochs.items():
        enrolled = chapter.enrolled(*federation, "FedAvg, fine-tuned", tuned, result, epochs)
        held = tuned.client_params(enrolled.state, torch.arange(len(enrolled.ids)))
        assert same(held, at_home[epochs].state.local)
    assert not same(at_home[1].state.local, at_home[3].state.local)
    assert not same(at_home[1].state.local, other[1].state.local)


def test_no_digit_is_used_twice():
    settings = chapter.SETTINGS
    for kind in settings["worlds"]:
        here = chapter.world(settings, kind, 0)
        held = here.everything
        if kind == "label skew":  # the names of others are permuted
            assert torch.bincount(held.y[0]).tolist() == [settings["tests of a class"]] * 10
        parts = [here.train, here.validation, here.test, here.new, here.new_test]
        images = torch.cat([p.x[p.index[p.real]].flatten(1) for p in parts] + [held.x[held.index[0]].flatten(1)])
        assert len(images) > 4500 and len(images) - len(images.unique(dim=0)) < 10, "a few digits look alike"
        assert (len(here.train), len(here.new)) == (settings["clients"], settings["new clients"])


def test_no_writer_is_two_clients(monkeypatch):
    """Known, new and other writers are other people, and those for whom rates are chosen meet no other seed."""
    chapter.world_by_key.cache_clear()
    sizes = np.r_[np.full(62, 100), np.full(8, 99)]  # the last ones wrote too little
    writer = np.repeat(np.arange(70), sizes)
    y = np.arange(len(writer)) % 62
    x = np.repeat(writer, 196).reshape(-1, 1, 14, 14).astype(np.uint8)  # an image shows its writer
    monkeypatch.setattr(chapter, "small_characters", lambda: (x, y, writer))
    settings = chapter.WRITERS | {"clients": 20, "new clients": 10, "clients of the seed that chooses": 12}
    chosen = set()
    for seed in (9, 0, 1):
        here = chapter.world(settings, "writers", seed)
        parts = [here.train, here.validation, here.test, here.new, here.new_test, here.everything]
        seen = [{int(v) for v in p.x[p.index[p.real]][:, 0, 0, 0]} for p in parts]
        people, new = set(here.train.id.tolist()), set(here.new.id.tolist())
        assert seen[:5] == [people] * 3 + [new] * 2 and not people & new and max(people | new) < 62
        rows = [p.index[p.real].tolist() for p in parts[:3]]
        assert len({row for some in rows for row in some}) == sum(map(len, rows)) == 100 * len(people)
        if seed == 9:
            chosen = people | new
            assert (len(people), len(new)) == (8, 4)
        else:
            assert (len(people), len(new)) == (20, 10)
            assert torch.bincount(here.everything.y[0]).tolist() == [10] * 62
            assert not (people | new | seen[5]) & chosen and not seen[5] & (people | new)
    chapter.world_by_key.cache_clear()


def test_longer_runs_are_fine_tuned_as_the_others(federation, monkeypatch):
    """At the training's rate these are the rows of the other presets; another rate gives others."""
    settings, here = federation
    monkeypatch.setattr(chapter, "world", lambda *_: here)
    settings |= {"rates at home": [0.3, 0.05], "rate": 0.3, "IFCA": 2, "seeds": [0]}
    arm = chapter.arm(settings, "writers", "IFCA", 0, chapter.Tuning(0.3, 2))
    figures = chapter.measure_longer(settings, lambda name, function, *args: function(*args))["writers"]
    scores = ("own", "worst decile", "all classes", "new", "validation")
    assert {s: figures["IFCA"][s]["0"] for s in scores} == {s: arm["as trained"][s] for s in scores}
    rows = [row for row in figures if row.startswith("FedAvg, rate")]
    assert len(rows) == 6
    assert figures["FedAvg, fine-tuned"] == figures[max(rows, key=lambda row: figures[row]["validation"]["0"])]
    assert figures["FedAvg, rate 0.3, epochs 10"] != figures["FedAvg, rate 0.05, epochs 10"]
