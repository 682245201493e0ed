"""What must not change a result: float64, to 1e-12; where nothing is reordered, to the last bit."""

from dataclasses import fields, replace
from functools import partial

import pytest
import torch
from twins import classification_loss, client_data, largest_difference, ragged_clients, twin

import fedlib
from fedlib.algorithms import (
    CFL,
    IFCA,
    LGCFL,
    ClusteredKMeans,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
    LGFedAvg,
    LocalOnly,
    Scaffold,
)

ALL = [
    FedAvg,
    FedProx,
    Scaffold,
    FedAvgM,
    FedAdam,
    LocalOnly,
    CFL,
    IFCA,
    ClusteredKMeans,
    LGFedAvg,
    LGCFL,
]

ADAM = {"optimizer": torch.optim.Adam, "lr": 0.05, "batch_size": 8, "epochs": 2}


def run(data, algorithm=FedAvg, rounds=2, cohort=None, network="CNN", **settings):
    """The whole state, side by side."""
    params, predict, _ = twin(network)
    algorithm = algorithm(classification_loss(predict), **(settings_of(algorithm, network) | settings))
    return everything(fedlib.fit(algorithm, params, data, rounds, cohort, seed=3, progress=False).state)


def settings_of(algorithm, network="CNN"):
    """Adam, but for SCAFFOLD, which is made for SGD; a local layer that the network has."""
    own = {"local": ("conv",)} if algorithm in (LGFedAvg, LGCFL) and "GroupNorm" in network else {}
    return ADAM | ({"optimizer": torch.optim.SGD} if algorithm is Scaffold else {}) | own


def everything(state):
    found = {}
    for f in fields(state):
        value = getattr(state, f.name)
        found |= {f"{f.name}.{name}": p for name, p in value.items()} if isinstance(value, dict) else {f.name: value}
    return {name: p for name, p in found.items() if isinstance(p, torch.Tensor) and p.numel()}


@pytest.mark.parametrize("algorithm", ALL)
def test_order_of_clients(clients, algorithm):
    data = client_data(clients)
    shuffled = data[torch.tensor([5, 0, 7, 2, 1, 6, 4, 3])]
    a, b = run(data, algorithm, cohort=5), run(shuffled, algorithm, cohort=5)
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("algorithm", ALL)
@pytest.mark.parametrize("extra", [1, 60])
def test_length_of_padding(clients, algorithm, extra):
    data = client_data(clients)
    other = data.index[:, :1] * 0 + 11  # any row will do
    longer = replace(
        data,
        index=torch.cat([data.index, other.expand(-1, extra)], 1),
        y=torch.cat([data.y, data.y[:, :1].expand(-1, extra)], 1),
    )
    assert largest_difference(run(longer, algorithm), run(data, algorithm)) <= 1e-12


@pytest.mark.parametrize("algorithm", ALL)
@pytest.mark.parametrize("network", ["MLP", "CNN", "torch module with GroupNorm"])
@pytest.mark.parametrize("chunk_size", [1, 3])
def test_chunk_size(clients, algorithm, network, chunk_size):
    data = client_data(clients)
    a, b = (run(data, algorithm, network=network, chunk_size=size) for size in (chunk_size, len(data)))
    assert largest_difference(a, b) <= 1e-12


def test_duplicate_client_counts_twice():
    """A client that stands twice in the federation weighs as much as one whose weight is doubled."""
    clients = ragged_clients(sizes=(6, 9))
    (a, (xa, ya)), (b, (xb, yb)) = clients.items()
    settings = {"batch_size": None, "epochs": 3}  # without shuffling, equal clients train equally
    twice = run(fedlib.stack_clients([xa, xb, xb], [ya, yb, yb]), rounds=1, **settings)
    data = fedlib.stack_clients([xa, xb], [ya, yb])
    local = run(data, LocalOnly, rounds=1, **settings)
    weight = torch.tensor([6.0, 18.0], dtype=torch.float64) / 24
    mean = {name: torch.einsum("k,k...->...", weight, local[name.replace("models", "local")])[None] for name in twice}
    assert largest_difference(twice, mean) <= 1e-12


@pytest.mark.parametrize("algorithm", ALL)
def test_inputs_are_not_modified(clients, algorithm):
    data = client_data(clients)
    params, predict, _ = twin("CNN")
    before = {name: p.clone() for name, p in params.items()}
    columns = {name: getattr(data, name).clone() for name in ("x", "index", "y", "n", "id")}
    algorithm = algorithm(classification_loss(predict), predict=predict, **settings_of(algorithm))
    result = fedlib.fit(algorithm, params, data, 2, seed=3, eval_data=data, progress=False)
    state = {name: p.clone() for name, p in everything(result.state).items()}
    update = algorithm.train(result.state, data[:3], torch.arange(3), fedlib.Key(0, 3))
    algorithm.aggregate(result.state, update)
    algorithm.new_clients(result.state, data[:3], fedlib.Key(0), 1)
    assert all(torch.equal(before[name], params[name]) and not params[name].requires_grad for name in params)
    assert all(torch.equal(value, getattr(data, name)) for name, value in columns.items())
    assert all(torch.equal(state[name], p) for name, p in everything(result.state).items())


@pytest.mark.parametrize("algorithm", ALL)
def test_evaluation_changes_nothing(clients, algorithm):
    data = client_data(clients)
    params, predict, _ = twin("CNN")
    algorithm = algorithm(classification_loss(predict), predict=predict, **settings_of(algorithm))
    fit = partial(fedlib.fit, algorithm, params, data, 3, 4, seed=3, progress=False)
    a, b = everything(fit().state), everything(fit(eval_data=data, eval_every=2).state)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_unsampled_clients_keep_their_models(clients):
    data = client_data(clients)
    params, predict, _ = twin("MLP")
    algorithm = LocalOnly(classification_loss(predict), **ADAM)
    result = fedlib.fit(algorithm, params, data, 1, 3, seed=3, progress=False)
    cohort = fedlib.Key(3, 1).choose(data.id, 3, "cohort").tolist()
    for client in range(len(data)):
        moved = largest_difference({n: p[client] for n, p in result.state.local.items()}, params) > 0
        assert moved == (client in cohort)
