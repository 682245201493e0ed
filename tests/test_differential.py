"""Five thousand rounds of `fit`, drawn at random, against a plain loop over clients (tests/differential.py)."""

import differential
import pytest

DRAWS, SHARDS = 5000, 20


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_round_is_a_loop_over_clients(shard):
    for number in range(shard, DRAWS, SHARDS):
        differential.try_case(number)
