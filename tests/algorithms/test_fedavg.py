"""FedAvg and local training against the slow reference, in float64, over five rounds."""

from functools import partial

import pytest
import reference
import torch
from twins import classification_loss, client_data, largest_difference, twin

import fedlib
from fedlib.algorithms import FedAvg, LocalOnly

OPTIMIZERS = {
    "SGD": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "Adam": torch.optim.Adam,
}
CASES = [("MLP", "SGD", 8), ("CNN", "momentum", 3), ("torch module with GroupNorm", "Adam", 3), ("CNN", "Adam", 8)]
SETTINGS = {"batch_size": 8, "epochs": 2}
ROUNDS, SEED, LR = 5, 7, 0.05


@pytest.mark.parametrize(("network", "optimizer", "cohort"), CASES)
def test_fedavg_equals_the_reference(network, optimizer, cohort, clients):
    params, predict, module = twin(network)
    optimizer = OPTIMIZERS[optimizer]
    algorithm = FedAvg(classification_loss(predict), lr=LR, optimizer=optimizer, **SETTINGS)
    result = fedlib.fit(algorithm, params, client_data(clients), ROUNDS, cohort, seed=SEED, progress=False)
    server = reference.fedavg(
        module,
        clients,
        ROUNDS,
        cohort,
        seed=SEED,
        optimizer=partial(optimizer, lr=LR),
        criterion=torch.nn.functional.cross_entropy,
        **SETTINGS,
    )
    models = {name: p[0] for name, p in result.state.models.items()}
    assert largest_difference(models, dict(server.named_parameters())) <= 1e-10
    assert largest_difference(models, params) > 1e-3  # it did train


@pytest.mark.parametrize(("network", "optimizer", "cohort"), CASES)
def test_local_only_equals_the_reference(network, optimizer, cohort, clients):
    params, predict, module = twin(network)
    optimizer = OPTIMIZERS[optimizer]
    algorithm = LocalOnly(classification_loss(predict), lr=LR, optimizer=optimizer, **SETTINGS)
    result = fedlib.fit(algorithm, params, client_data(clients), ROUNDS, cohort, seed=SEED, progress=False)
    for position, (client, (x, y)) in enumerate(clients.items()):
        module.load_state_dict(params)
        for t in range(1, ROUNDS + 1):
            if position not in fedlib.Key(SEED, t).choose(torch.tensor(list(clients)), cohort, "cohort"):
                continue
            reference.local_training(
                module,
                x,
                y,
                client=client,
                key=fedlib.Key(SEED, t),
                optimizer=partial(optimizer, lr=LR),
                criterion=torch.nn.functional.cross_entropy,
                **SETTINGS,
            )
        ours = {name: p[position] for name, p in result.state.local.items()}
        assert largest_difference(ours, dict(module.named_parameters())) <= 1e-10


def test_train_loss_is_the_mean_over_steps_and_examples(clients):
    params, predict, module = twin("MLP")
    algorithm = FedAvg(classification_loss(predict), lr=LR, **SETTINGS)
    result = fedlib.fit(algorithm, params, client_data(clients), 1, seed=SEED, progress=False)
    total = 0.0
    for client, (x, y) in clients.items():
        module.load_state_dict(params)
        losses = reference.local_training(
            module,
            x,
            y,
            client=client,
            key=fedlib.Key(SEED, 1),
            optimizer=partial(torch.optim.SGD, lr=LR),
            criterion=torch.nn.functional.cross_entropy,
            **SETTINGS,
        )
        total += len(x) * sum(losses) / len(losses)
    assert result.history.train_loss[0] == pytest.approx(total / sum(len(x) for x, _ in clients.values()), abs=1e-12)


def test_fedsgd_is_one_gradient_step_on_all_data(clients):
    params, predict, module = twin("MLP")
    algorithm = FedAvg(classification_loss(predict), lr=LR, batch_size=None, epochs=1)
    result = fedlib.fit(algorithm, params, client_data(clients), 1, progress=False)
    x, y = (torch.cat(parts) for parts in zip(*clients.values(), strict=True))
    gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(module(x), y), list(module.parameters()))
    step = {n: p - LR * g for (n, p), g in zip(module.named_parameters(), gradients, strict=True)}
    assert largest_difference({n: p[0] for n, p in result.state.models.items()}, step) <= 1e-12


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
