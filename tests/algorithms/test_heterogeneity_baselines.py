"""FedProx, SCAFFOLD and FedOpt against slow loops written from their papers, in float64 on ragged clients."""

import pytest
import torch
from reference import averaged, batches, cohort, mean_by_examples, trained
from twins import LOCAL, SEED, fit, largest_difference, rows_differ, twin

import fedlib
from fedlib.algorithms import FedAdagrad, FedAdam, FedAvgM, FedProx, FedYogi, Scaffold

ROUNDS, COHORT = 4, 3
KEYS = [fedlib.Key(SEED, t) for t in range(1, ROUNDS + 1)]
NETWORKS = pytest.mark.parametrize(("network", "size"), [("MLP", 8), ("CNN", COHORT)])


@NETWORKS
def test_fedprox(network, size, clients):
    _, result = fit(FedProx, clients, network, ROUNDS, size, mu=0.3)
    server, _, module = twin(network)

    def pull(theta):
        return 0.3 / 2 * sum((p - server[name]).square().sum() for name, p in theta.items())

    for key in KEYS:
        server = averaged(module, server, clients, cohort(clients, size, key), key, penalty=pull)
    assert largest_difference(fedlib.params.row(result.state.models, 0), server) <= 1e-10


@NETWORKS
def test_scaffold(network, size, clients):
    """Algorithm 1 of Karimireddy et al. (2020), option II, with means by examples.

    If all clients have equally many, the means are lines 16 and 17 of the paper: those over the cohort, and
    c + |S| / N times the mean change.
    """
    _, result = fit(Scaffold, clients, network, ROUNDS, size)
    x, _, module = twin(network)
    c = {name: torch.zeros_like(p) for name, p in x.items()}
    c_i, n = dict.fromkeys(clients, c), {k: len(y) for k, (_, y) in clients.items()}
    total = sum(n.values())
    for key in KEYS:
        y, change = {}, {}
        for k in cohort(clients, size, key):
            correction = {name: c[name] - c_i[k][name] for name in c}

            def penalty(theta):
                return sum((correction[name] * p).sum() for name, p in theta.items())

            y[k] = trained(module, x, clients[k], k, key, penalty=penalty)
            steps = len(batches(k, n[k], key, batch_size=LOCAL["batch_size"], epochs=LOCAL["epochs"]))
            plus = {name: (x[name] - y[k][name]) / (steps * LOCAL["lr"]) - correction[name] for name in x}
            change[k] = {name: plus[name] - c_i[k][name] for name in x}
            c_i[k] = plus
        x = mean_by_examples(y, clients)
        c = {name: p + sum(n[k] / total * change[k][name] for k in change) for name, p in c.items()}
    assert largest_difference(fedlib.params.row(result.state.models, 0), x) <= 1e-10
    assert largest_difference(fedlib.params.row(result.state.c, 0), c) <= 1e-10
    assert rows_differ(result.state.c_i, c_i.values()) <= 1e-10
    assert largest_difference(c, {name: 0 * p for name, p in c.items()}) > 1e-3


def server_step(rule, theta, delta, m, v):
    """One entry of Algorithm 2 of Reddi et al. (FedAvgM: Hsu et al.), in plain numbers."""
    if rule == "FedAvgM":
        m = 0.9 * m + delta
        return theta + 0.5 * m, m, v
    m = 0.9 * m + 0.1 * delta
    if rule == "FedAdagrad":
        v = v + delta**2
    elif rule == "FedAdam":
        v = 0.99 * v + 0.01 * delta**2
    else:
        v = v - 0.01 * delta**2 * ((v > delta**2) - (v < delta**2))
    return theta + 0.5 * m / (v**0.5 + 1e-3), m, v


RULES = [(FedAvgM, "MLP"), (FedAdagrad, "CNN"), (FedAdam, "MLP"), (FedYogi, "CNN")]


@pytest.mark.parametrize(("rule", "network"), RULES)
def test_fedopt(rule, network, clients):
    _, result = fit(rule, clients, network, 3, COHORT, server_lr=0.5)
    server, _, module = twin(network)
    m = {n: [0.0] * p.numel() for n, p in server.items()}
    v = {n: [1e-6] * p.numel() for n, p in server.items()}
    for key in KEYS[:3]:
        mean = averaged(module, server, clients, cohort(clients, COHORT, key), key)
        for n, p in server.items():
            delta, flat = (mean[n] - p).flatten().tolist(), p.flatten().tolist()
            steps = [server_step(rule.__name__, *entry) for entry in zip(flat, delta, m[n], v[n], strict=True)]
            theta, m[n], v[n] = (list(column) for column in zip(*steps, strict=True))
            server[n] = torch.tensor(theta, dtype=torch.float64).view_as(p)
    assert largest_difference(fedlib.params.row(result.state.models, 0), server) <= 1e-10
