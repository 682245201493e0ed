"""Settings of all tests: one thread a worker, every torch warning said each time."""

import pytest
import torch
from twins import ragged_clients

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
