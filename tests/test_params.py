"""Stacks of parameters."""

import torch

from fedlib import params as P
from fedlib.aggregate import add_sums, cluster_means, cluster_sums, membership


def stack(rows=3):
    """A matrix and a scalar for each row."""
    generator = torch.Generator().manual_seed(0)
    return {
        "w": torch.randn(rows, 2, 2, generator=generator, dtype=torch.float64),
        "s": torch.randn(rows, generator=generator, dtype=torch.float64),
    }


def test_take_put_row_and_stack():
    a = stack()
    index = torch.tensor([2, 0])
    taken = P.take(a, index)
    assert torch.equal(taken["w"], a["w"][[2, 0]])
    put = P.put(a, index, {"w": torch.zeros(2, 2, 2).double(), "s": torch.ones(2).double()})
    assert put["s"].tolist() == [1, float(a["s"][1]), 1] and a["s"][0] != 1
    assert P.put(a["s"], index, torch.zeros(2).double()).tolist() == [0, float(a["s"][1]), 0]
    assert P.number_of_rows(a) == 3


def test_one_row_is_broadcast_not_copied():
    one = P.take(stack(1), torch.zeros(1000, dtype=torch.int64))
    assert one["w"].shape == (1000, 2, 2) and one["w"].stride(0) == 0
    assert P.take({}, torch.zeros(1000, dtype=torch.int64)) == {}


def test_matrix_dot_norm_and_mix():
    a, b = stack(), {name: p.flip(0) for name, p in stack().items()}
    flat, flat_b = P.to_matrix(a), P.to_matrix(b)
    assert flat.shape == (3, 5)
    torch.testing.assert_close(P.dot(a, b), (flat * flat_b).sum(1))
    torch.testing.assert_close(P.norm(a), flat.norm(dim=1))
    torch.testing.assert_close(P.to_matrix(P.sub(a, b)), flat - flat_b)
    matrix = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(P.to_matrix(P.mix(matrix, a)), matrix @ flat)


def test_membership_has_each_weight_once_in_its_models_row():
    matrix = membership(torch.tensor([2, 0, 2]), torch.tensor([3, 5, 1]), 4)
    assert matrix.tolist() == [[0, 5, 0], [0, 0, 0], [3, 0, 1], [0, 0, 0]]


def test_one_number_for_each_row():
    a, values = stack(), torch.tensor([2, 0, -1])
    scaled = {name: P.per_row(values, p) * p for name, p in a.items()}
    torch.testing.assert_close(P.to_matrix(scaled), values[:, None] * P.to_matrix(a))
    assert P.per_row(values, a["w"]).dtype == torch.float64


def test_weighted_means_and_an_empty_cluster_that_keeps_its_model():
    assignment, weight = torch.tensor([0, 2, 0]), torch.tensor([1, 5, 3])
    matrix = torch.tensor([[0.25, 0, 0.75], [0, 0, 0], [0, 1, 0]], dtype=torch.float64)
    previous = {name: p * 0 + 7 for name, p in stack().items()}
    means = P.to_matrix(cluster_means(cluster_sums(stack(), assignment, weight, 3), previous))
    torch.testing.assert_close(means[[0, 2]], matrix[[0, 2]] @ P.to_matrix(stack()))
    assert (means[1] == 7).all()


def test_sums_of_chunks_add_up():
    assignment, weight = torch.tensor([0, 1, 0]), torch.tensor([1, 5, 3])
    whole = cluster_sums(stack(), assignment, weight, 2)
    parts = [cluster_sums(P.take(stack(), i), assignment[i], weight[i], 2) for i in torch.arange(3).split(2)]
    added = add_sums(*parts)
    torch.testing.assert_close(P.to_matrix(added["params"]), P.to_matrix(whole["params"]))
    assert added["weight"].tolist() == whole["weight"].tolist() == [4, 5]


def test_half_precision_is_summed_in_single():
    """Sixteen bits would make 30.125 of the mean of 200 equal models, and infinity of their sum."""
    for dtype in (torch.float16, torch.bfloat16):
        equal = {"w": torch.full((200, 1), 30.0, dtype=dtype)}
        sums = cluster_sums(equal, torch.zeros(200, dtype=torch.int64), torch.full((200,), 601), 1)
        mean = cluster_means(sums, {"w": torch.zeros(1, 1, dtype=dtype)})["w"]
        assert mean.dtype == dtype and mean.item() == 30
