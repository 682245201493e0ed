"""Settings of all tests: one thread a worker, every torch warning said each time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from twins import ragged_clients

HERE = Path(__file__).parent
torch.set_num_threads(1)
torch.set_warn_always(True)  # else a repeated "performance drop" under vmap would be an error only once


def pytest_collection_modifyitems(items):
    """Mark, by fixture and by name, what `make flower-test` and `make data-test` run beside `make test`."""
    for item in items:
        if "flwr" in getattr(item, "fixturenames", ()):
            item.add_marker("flower")
        if "real" in item.name or "papers_settings" in item.name:
            item.add_marker("data")


@pytest.fixture
def clients():
    return ragged_clients()


@pytest.fixture(scope="session")
def run_python():
    """Run Python in a process of its own, with the helpers of the tests on its path; what it prints."""
    here = {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]), "OMP_NUM_THREADS": "1"}

    def run(*arguments, cwd=None, **environment):
        command = [sys.executable, *map(str, arguments)]
        known = os.environ | here | environment
        done = subprocess.run(command, env=known, cwd=cwd, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout

    return run
