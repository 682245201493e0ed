"""A cohort shared by several processes gives what one process gives: float64, 1e-12."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    if not hasattr(os, "fork"):
        pytest.skip("needs fork and kill -9")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]), "OMP_NUM_THREADS": "1"}
    script = [sys.executable, "-W", "ignore", str(HERE / "ranks.py"), str(tmp_path_factory.mktemp("ranks"))]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


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


def test_a_failure_ends_all_processes_with_its_reason(report):
    assert report["diverged"]["ended"] == [1, 1]
    assert any("client" in r and "NaN or infinite" in r for r in report["diverged"]["reasons"])
    assert all("NaN or infinite" in r for r in report["diverged"]["reasons"])
