"""Stacks of parameters."""

import torch

from fedlib import params as P
from fedlib.aggregate import cluster_means, cluster_sums


def stack(rows=3):
    """A matrix and a scalar for each row."""
    generator = torch.Generator().manual_seed(0)
    return {
        "w": torch.randn(rows, 2, 2, generator=generator, dtype=torch.float64),
        "s": torch.randn(rows, generator=generator, dtype=torch.float64),
    }


def test_one_row_is_broadcast_not_copied():
    one = P.take(stack(1), torch.zeros(1000, dtype=torch.int64))
    assert one["w"].shape == (1000, 2, 2) and one["w"].stride(0) == 0
    assert P.take({}, torch.zeros(1000, dtype=torch.int64)) == {}


def test_weighted_means_and_an_empty_cluster_that_keeps_its_model():
    assignment, weight = torch.tensor([0, 2, 0]), torch.tensor([1, 5, 3])
    matrix = torch.tensor([[0.25, 0, 0.75], [0, 0, 0], [0, 1, 0]], dtype=torch.float64)
    previous = {name: p * 0 + 7 for name, p in stack().items()}
    means = P.to_matrix(cluster_means(cluster_sums(stack(), assignment, weight, 3), previous))
    torch.testing.assert_close(means[[0, 2]], matrix[[0, 2]] @ P.to_matrix(stack()))
    assert (means[1] == 7).all()


def test_half_precision_is_summed_in_single():
    """Sixteen bits would make 30.125 of the mean of 200 equal models, and infinity of their sum."""
    for dtype in (torch.float16, torch.bfloat16):
        equal = {"w": torch.full((200, 1), 30.0, dtype=dtype)}
        sums = cluster_sums(equal, torch.zeros(200, dtype=torch.int64), torch.full((200,), 601), 1)
        mean = cluster_means(sums, {"w": torch.zeros(1, 1, dtype=dtype)})["w"]
        assert mean.dtype == dtype and mean.item() == 30
