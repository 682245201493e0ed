"""The example runs a federation from the command line, alone and in two processes, and goes on from its checkpoint."""

from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("sklearn")
ROOT = Path(__file__).parents[1]
SETTINGS = """--data digits --partition label_permutation --deal groups=2 --algorithm SplitHalfCFL --set every=1
    --set lr=0.2 --hidden 8 --clients 6 --cohort 5 --dtype float64 --seed 3"""
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]


def test_federate(run_python, tmp_path):
    def federate(name, *options, launcher=()):
        """The history of a run, without times."""
        program = ROOT / "examples/federate.py"
        settings = (*SETTINGS.split(), "--out", name, *options)
        assert "test_accuracy" in run_python(*launcher, program, *settings, cwd=tmp_path)
        history = pd.read_csv(tmp_path / name)
        return history[[c for c in history if "seconds" not in c]]

    whole = federate("whole.csv", "--rounds", "3")
    assert whole["round"].tolist() == [1, 2, 3] and (whole["clients"] == 5).all()
    assert whole["test_accuracy"].between(0, 1).all() and whole["test_accuracy"].nunique() > 1
    first = federate("first.csv", "--rounds", "2", "--checkpoint", "run.safetensors")
    shared = federate("two.csv", "--rounds", "3", "--checkpoint", "run.safetensors", launcher=TORCHRUN)
    pd.testing.assert_frame_equal(first, whole[:2], atol=1e-12, rtol=0)
    pd.testing.assert_frame_equal(shared, whole, atol=1e-12, rtol=0)
