"""Stacks of parameters."""

import torch

from fedlib import params as P
from fedlib.aggregate import cluster_means, cluster_sums


def test_one_row_is_broadcast_not_copied():
    one = P.take({"w": torch.ones(1, 2, 2)}, torch.zeros(1000, dtype=torch.int64))
    assert one["w"].shape == (1000, 2, 2) and one["w"].stride(0) == 0
    assert P.take({}, torch.zeros(1000, dtype=torch.int64)) == {}


def test_half_precision_is_summed_in_single():
    """Sixteen bits would make 30.125 of the mean of 200 equal models, and infinity of their sum."""
    for dtype in (torch.float16, torch.bfloat16):
        equal = {"w": torch.full((200, 1), 30.0, dtype=dtype)}
        sums = cluster_sums(equal, torch.zeros(200, dtype=torch.int64), torch.full((200,), 601), 1)
        mean = cluster_means(sums, {"w": torch.zeros(1, 1, dtype=dtype)})["w"]
        assert mean.dtype == dtype and mean.item() == 30
