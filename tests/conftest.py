"""Settings of all tests: one thread a worker, every torch warning said each time."""

import pytest
import torch
from twins import ragged_clients

torch.set_num_threads(1)
torch.set_warn_always(True)  # else a repeated "performance drop" under vmap would be an error only once


@pytest.fixture
def clients():
    return ragged_clients()
