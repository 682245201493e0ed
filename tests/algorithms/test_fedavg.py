"""FedAvg and local training against the slow reference, in float64, over five rounds."""

from functools import partial

import pytest
import reference
import torch
from torch.nn.functional import cross_entropy
from twins import SEED, fit, largest_difference, twin

import fedlib
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


def test_fedsgd_is_one_gradient_step_on_all_data(clients):
    module = twin("MLP")[2]
    _, result = fit(FedAvg, clients, rounds=1, lr=LR, batch_size=None, epochs=1)
    x, y = (torch.cat(parts) for parts in zip(*clients.values(), strict=True))
    gradients = torch.autograd.grad(cross_entropy(module(x), y), list(module.parameters()))
    step = {n: p - LR * g for (n, p), g in zip(module.named_parameters(), gradients, strict=True)}
    assert largest_difference(row(result.state.models, 0), step) <= 1e-12


def test_one_parameter_by_hand():
    """Two clients pull one number theta towards the means of their targets.

    Loss of a client: mean of (theta - y)^2, so one step of rate 1/4 on all its examples moves theta half way to the
    mean of its targets. Client 0 holds y = 4 (one example), client 1 holds y = -2 and 0 (mean -1). From theta = 0:
    theta_0 = 2, theta_1 = -1/2; the mean by examples is (1 * 2 + 2 * (-1/2)) / 3 = 1/3. Then theta_0 = 13/6,
    theta_1 = -1/3, and (13/6 - 2/3) / 3 = 1/2.
    """
    data = fedlib.stack_clients([[[1.0]], [[1.0], [1.0]]], [[4.0], [-2.0, 0.0]])

    def loss(params, batch):
        return fedlib.losses.mse(params["theta"].expand(len(batch[1])), batch[1], batch[2])

    algorithm = FedAvg(loss, lr=0.25, batch_size=None)
    start = {"theta": torch.zeros((), dtype=torch.float64)}
    for rounds, theta in ((1, 1 / 3), (2, 1 / 2)):
        result = fedlib.fit(algorithm, start, data, rounds, progress=False)
        assert result.state.models["theta"].tolist() == pytest.approx([theta], abs=1e-15)
