"""A cohort shared by several processes gives what one process gives: float64, 1e-12."""

import json
import os
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("ranks.py")


@pytest.fixture(scope="module")
def report(run_python, tmp_path_factory):
    if not hasattr(os, "fork"):
        pytest.skip("needs fork and kill -9")
    return json.loads(run_python("-W", "ignore", SCRIPT, tmp_path_factory.mktemp("ranks")))


def test_same_parameters(report):
    assert len(report["states"]) == 20
    assert {run: d for run, d in report["states"].items() if not d <= 1e-12} == {}


def test_same_history(report):
    for run, (one, several) in report["histories"].items():
        one, several = json.loads(one), json.loads(several)
        assert one.keys() == several.keys(), run
        for column, values in one.items():
            assert several[column] == pytest.approx(values, abs=1e-12, nan_ok=True), (run, column)


def test_killed_and_resumed_on_another_number_of_processes(report):
    assert report["killed"]["ended"] == [1, -9] and report["killed"]["round"] == 3
    assert "another process of this run is gone" in report["killed"]["reason"]
    assert report["resumed"]["ended"] == [0, 0, 0] and report["resumed"]["difference"] <= 1e-12


def test_killed_inside_any_write_and_resumed_to_the_same_bits(report):
    """The file of the write before is still there, the new one half written beside it; nothing is left of that."""
    assert report["writes"] == [[-9, write > 1, True, 0, True, False] for write in range(1, 7)]


def test_a_failure_ends_all_processes_with_its_reason(report):
    assert report["diverged"]["ended"] == [1, 1]
    assert any("client" in reason for reason in report["diverged"]["reasons"])
    assert all("NaN or infinite" in r for r in report["diverged"]["reasons"])
