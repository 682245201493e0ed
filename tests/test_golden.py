"""The golden file: what the library computes has not moved since it was written."""

import json
import math

import golden
import pytest

from fedlib import algorithms

pytestmark = pytest.mark.xdist_group("golden")  # one worker computes all
STORED = json.loads(golden.STORED.read_text(encoding="utf8"))


@pytest.fixture(scope="module")
def computed():
    return golden.compute()


def test_golden_file_names_every_run(computed):
    assert list(STORED) == list(computed), "`make golden` writes the file"
    assert {name.split()[0] for name in STORED} >= set(algorithms.__all__)


@pytest.mark.parametrize("name", STORED)
def test_golden(computed, name):
    near = golden.TOLERANCE
    moved = [
        f"number {i}: {old!r} stored, {new!r} computed"
        for i, (old, new) in enumerate(zip(STORED[name], computed[name], strict=True))
        if not math.isclose(old, new, rel_tol=near, abs_tol=near)
    ]
    assert not moved, f"{name} has moved; {moved[:3]}"
