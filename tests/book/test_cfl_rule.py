"""The tests that CFL's default is compared with: of a single round."""

import numpy as np
import torch

from book.experiments import cfl_rule as chapter


def test_the_question_for_groups_refuses_clients_that_differ_one_by_one():
    side = torch.arange(10)[:, None] % 2 * 2.0 - 1
    random, refused = np.random.RandomState(0), 0
    for _ in range(20):
        own = torch.from_numpy(random.standard_normal((10, 30)))
        noise = 0.5 * torch.from_numpy(random.standard_normal((2, 10, 30)))
        refused += chapter.chance_of_a_cut(*(own + noise)) < 0.05 and chapter.chance_of_a_cut(*(own + noise), True) == 1
        assert chapter.chance_of_a_cut(*(2 * side + own + noise), in_groups=True) < 1e-3
    assert refused > 5
