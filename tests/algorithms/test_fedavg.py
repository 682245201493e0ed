"""FedAvg against the slow reference, in float64, over five rounds."""

from functools import partial

import pytest
import torch
from reference import averaged, cohort
from twins import SEED, fit, largest_difference, twin

import fedlib

SGD, MOMENTUM, ADAM = torch.optim.SGD, partial(torch.optim.SGD, momentum=0.9), torch.optim.Adam
CASES = [("MLP", SGD, 8), ("CNN", MOMENTUM, 3), ("torch module with GroupNorm", ADAM, 3), ("CNN", ADAM, 8)]
ROUNDS, LR = 5, 0.05
KEYS = [fedlib.Key(SEED, t) for t in range(1, ROUNDS + 1)]


@pytest.mark.parametrize(("network", "optimizer", "size"), CASES)
def test_fedavg_equals_the_reference(network, optimizer, size, clients):
    params, _, module = twin(network)
    _, result = fit(fedlib.algorithms.FedAvg, clients, network, ROUNDS, size, lr=LR, optimizer=optimizer)
    server, models = params, fedlib.params.row(result.state.models, 0)
    for key in KEYS:
        server = averaged(module, server, clients, cohort(clients, size, key), key, lr=LR, optimizer=optimizer)
    assert largest_difference(models, server) <= 1e-10
    assert largest_difference(models, params) > 1e-3  # it did train
