"""A thousand rounds of `fit`, drawn at random, against a plain loop over clients (tests/differential.py)."""

import differential
import pytest
import torch

DRAWS, SHARDS = 1000, 20


GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_round_is_a_loop_over_clients(shard, device, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # torch's default, too coarse to compare
    for number in range(shard, DRAWS, SHARDS):
        differential.try_case(number, device)
