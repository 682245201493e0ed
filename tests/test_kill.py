"""A run that is killed and resumed ends with the same bits as one that never stopped."""

import json
import os
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killed_runs.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill -9")
def test_killed_at_twenty_moments_and_resumed(run_python, tmp_path):
    report = json.loads(run_python("-W", "ignore", SCRIPT, tmp_path))
    assert report["resumed"] == [report["whole"]] * 20
    # Each of them was really killed: half of them in the middle of writing, the others some time after.
    assert all(report["signals"]) and report["inside a write"] >= 10
    assert not report["left behind"]
