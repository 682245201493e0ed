"""The benchmark's parts: the works, the contenders that the project brings, the table."""

import os
import platform
import select
from contextlib import suppress
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch

from benchmarks import driver, table
from benchmarks.contenders import worker
from benchmarks.driver import LIMIT, OWN, Row
from benchmarks.peers import __main__ as peers
from benchmarks.works import WORKS
from fedlib.costs import flops_of


class Enough(Exception):
    """Enough rounds."""


class Rounds:
    """In place of the driver: some rounds, and the parameters after them."""

    def __init__(self, rounds):
        self.rounds, self.done, self.end = rounds, 0, {}

    def next_round(self, parameters):
        if self.done == self.rounds:
            self.end = {name: np.array(p) for name, p in parameters().items()}
            raise Enough
        self.done += 1
        return self.done - 1


def trained(program, folder, rounds=3):
    session = Rounds(rounds)
    with pytest.raises(Enough):
        import_module(f"benchmarks.contenders.{program}").run(worker.load(str(folder), "float64"), session)
    return session.end


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """W2 with 3 of 5 clients in a round, and batches that leave a rest."""
    folder = tmp_path_factory.mktemp("W2")
    replace(WORKS["W2"], clients=5, cohort=3, batch_size=8, epochs=2).write(folder)
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """W1s with fewer and smaller clients."""
    folder = tmp_path_factory.mktemp("W1s")
    replace(WORKS["W1s"], clients=3, cohort=2, rows=5, batch_size=2, lr=0.1).write(folder)
    return folder


@pytest.fixture
def environments(monkeypatch, tmp_path):
    """An empty folder in place of that of the peers' environments."""
    for module in (driver, peers):
        monkeypatch.setattr(module, "ENVIRONMENTS", tmp_path)
    return tmp_path


@pytest.mark.parametrize("program", sorted(set(OWN.values()) - {"fedlib"}))
@pytest.mark.parametrize("work", ["small", "images"])
def test_the_contenders_reach_fedlibs_parameters(program, work, request):
    folder = request.getfixturevalue(work)
    start = worker.load(str(folder), "float64").start
    right, found = trained("fedlib", folder), trained(program, folder)
    assert right.keys() == found.keys() == start.keys()
    for name in right:
        assert abs(right[name] - start[name]).max() > 1e-4, name
        np.testing.assert_allclose(found[name], right[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["W1s", "W2", "W3"])
def test_the_limit_counts_the_products_that_the_ledger_sees(name):
    work = WORKS[name]
    products = work.products()
    assert 2 * sum(products) == flops_of(work.model, work.model.init(0), torch.zeros(1, *work.shape))
    assert work.flops() == 2 * work.examples * (3 * sum(products) - products[0])
    by_hand = {"W2": [13 * 64, 64 * 32, 32 * 16, 16]}
    by_hand["W3"] = [28 * 28 * 6 * 75, 10 * 10 * 16 * 150, 400 * 120, 120 * 84, 84 * 10]
    assert products == by_hand.get(name, products)


def test_a_contender_runs_as_a_program(small):
    with driver.Contender("naive loop", small, "float64") as contender:
        found, facts = contender.save()
        wall, cpu = contender.run()
    right = trained("fedlib", small, rounds=2)
    assert driver._distance(found, right) < 1e-12 and contender.startup > wall > 0 and cpu > 0
    versions = {"python": platform.python_version(), "torch": torch.__version__.split("+")[0]}
    assert facts["versions"] == versions and facts["peak_mib"] > 50
    assert contender._process.poll() is not None


NOT_THERE = {"pfl": "not installed: make bench-peers", "Flower": "no certifi"}
NOT_THERE["broken"] = r"No module named benchmarks.contenders.no_such_program \(see .*log"


@pytest.mark.parametrize("label", NOT_THERE)
def test_a_contender_that_fails_says_why(label, environments, monkeypatch):
    """And one that is not there: it is a line of the table."""
    monkeypatch.setitem(OWN, "broken", "no_such_program")
    (environments / "flower").mkdir()
    (environments / "flower/failed").write_text("cannot be installed: no certifi")
    with pytest.raises(driver.Failed, match=NOT_THERE[label]):
        driver.Contender(label, environments, "float32")


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_a_contender_that_hangs_is_killed_with_its_children(monkeypatch, environments):
    """The children too that have left its group, as Ray's do; the table says so, and goes on."""
    python, child = environments / "flower/bin/python", environments / "child"
    python.parent.mkdir(parents=True)
    (environments / "flower/ready").touch()
    python.write_text(f"#!/bin/sh\nsetsid sleep 60 >&2 &\necho $! >{child}\nprintf '{{'\nexec sleep 60 2>&2\n")
    python.chmod(0o755)
    monkeypatch.setattr(driver, "_PATIENCE", 3)
    monkeypatch.setattr(driver, "_GOODBYE", 1)
    with pytest.raises(driver.Failed, match="no answer in 3 s, so it was killed"):
        driver.Contender("Flower", environments, "float32")
    with suppress(ProcessLookupError):  # it is gone already
        assert select.select([os.pidfd_open(int(child.read_text()))], [], [], 10)[0], "its child goes on"


def measured():
    """A work in which the naive loop takes 30, 20 and 40 times fedlib's seconds, and the limit half of them."""
    rows = {label: Row("W2", label, 400) for label in ("fedlib", "naive loop", "pfl", LIMIT)}
    for times in (30, 20, 40):
        seconds = {"fedlib": 1.0, "naive loop": times, LIMIT: 0.5}
        driver._enter(rows, {label: (s, s) for label, s in seconds.items()})
    rows["naive loop"].difference, rows["pfl"].reason = 1e-9, "not installed"
    return table.summary(list(rows.values()))


def test_the_table():
    lines = table.frame(measured())
    lines.index = lines[("", "contender")]
    assert lines.loc["naive loop", ("v fedlib", "CPU")] == "30 (20-40)"
    assert lines.loc["naive loop", ("v fedlib", "target")] == table.verdict(30, table.TARGETS["W2"]["naive loop"])
    assert lines.loc["naive loop", ("", "note")] == "TRAINS SOMETHING ELSE"  # 1e-9 is allowed to a peer, not to a loop
    assert lines.loc[LIMIT, ("v fedlib", "target")] == ""
    assert lines.loc["fedlib", ("", "of limit")] == "0.5" and lines.loc["fedlib", ("", "examples/s")] == "400"
    assert lines.loc["fedlib", ("v fedlib", "CPU")] == ""
    assert lines.loc["pfl", ("", "note")] == "not installed" and lines.loc["pfl", ("", "s a round")] == ""
