"""FedAvg and local training against the slow reference, in float64, over five rounds."""

from functools import partial

import pytest
import reference
import torch
from torch.nn.functional import cross_entropy
from twins import SEED, fit, largest_difference, twin

from fedlib import Key
from fedlib.algorithms import FedAvg, LocalOnly
from fedlib.params import row

SGD, MOMENTUM, ADAM = torch.optim.SGD, partial(torch.optim.SGD, momentum=0.9), torch.optim.Adam
CASES = [("MLP", SGD, 8), ("CNN", MOMENTUM, 3), ("torch module with GroupNorm", ADAM, 3), ("CNN", ADAM, 8)]
ROUNDS, LR = 5, 0.05


def rules(optimizer):
    return {"batch_size": 8, "epochs": 2, "optimizer": partial(optimizer, lr=LR), "criterion": cross_entropy}


@pytest.mark.parametrize(("network", "optimizer", "cohort"), CASES)
def test_fedavg_equals_the_reference(network, optimizer, cohort, clients):
    params, _, module = twin(network)
    _, result = fit(FedAvg, clients, network, ROUNDS, cohort, lr=LR, optimizer=optimizer)
    server = reference.fedavg(module, clients, ROUNDS, cohort, seed=SEED, **rules(optimizer))
    models = row(result.state.models, 0)
    assert largest_difference(models, dict(server.named_parameters())) <= 1e-10
    assert largest_difference(models, params) > 1e-3  # it did train


@pytest.mark.parametrize(("network", "optimizer", "cohort"), CASES)
def test_local_only_equals_the_reference(network, optimizer, cohort, clients):
    params, _, module = twin(network)
    _, result = fit(LocalOnly, clients, network, ROUNDS, cohort, lr=LR, optimizer=optimizer)
    for position, (client, examples) in enumerate(clients.items()):
        module.load_state_dict(params)
        for key in (Key(SEED, t) for t in range(1, ROUNDS + 1)):
            if client in reference.cohort(clients, cohort, key):
                reference.local_training(module, *examples, client=client, key=key, **rules(optimizer))
        assert largest_difference(row(result.state.local, position), dict(module.named_parameters())) <= 1e-10
