"""A run that is killed and resumed ends with the same bits as one that never stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill -9")
def test_killed_at_twenty_moments_and_resumed(tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])}
    script = [sys.executable, "-W", "ignore", str(HERE / "killed_runs.py"), str(tmp_path)]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert report["resumed"] == [report["whole"]] * 20
    # Each of them was really killed: half of them in the middle of writing, the others some time after.
    assert all(report["signals"]) and report["inside a write"] >= 10
    assert not report["left behind"]
