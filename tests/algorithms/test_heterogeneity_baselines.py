"""FedProx, SCAFFOLD and FedOpt against slow loops written from their papers, in float64 on ragged clients."""

import copy
from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy
from twins import classification_loss, client_data, largest_difference, twin

import fedlib
from fedlib.algorithms import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedProx, FedYogi, Scaffold

ROUNDS, COHORT, SEED, LR = 5, 3, 7, 0.05
SETTINGS = {"lr": LR, "batch_size": 8, "epochs": 2}


def batches(key, client, n):
    """Rows of each step of a client, as the reference draws them."""
    shuffles = key.permutations(torch.tensor([client]), "batches", torch.tensor([n]), 2, n)[0]
    return [rows for order in shuffles for rows in order.split(8)]


def cohort_of(t, clients, size):
    ids = list(clients)
    return [ids[k] for k in fedlib.Key(SEED, t).choose(torch.tensor(ids), size, "cohort")]


def train(module, start, client, data, t, extra):
    """Plain SGD from `start` on loss + extra(name -> gradient to add); returns the end and the number of steps."""
    module.load_state_dict(start)
    steps = batches(fedlib.Key(SEED, t), client, len(data[0]))
    for rows in steps:
        gradients = torch.autograd.grad(cross_entropy(module(data[0][rows]), data[1][rows]), list(module.parameters()))
        with torch.no_grad():
            for (name, p), g in zip(module.named_parameters(), gradients, strict=True):
                p -= LR * (g + extra(name, p))
    return {name: p.detach().clone() for name, p in module.named_parameters()}, len(steps)


def weighted_mean(ends, clients):
    total = sum(len(clients[k][0]) for k in ends)
    names = next(iter(ends.values()))
    return {name: sum(len(clients[k][0]) / total * end[name] for k, end in ends.items()) for name in names}


def models(result):
    return {name: p[0] for name, p in result.state.models.items()}


@pytest.mark.parametrize("network", ["MLP", "CNN"])
@pytest.mark.parametrize("cohort", [COHORT, 8])
def test_fedprox(network, cohort, clients):
    params, predict, module = twin(network)
    algorithm = FedProx(classification_loss(predict), mu=0.3, **SETTINGS)
    result = fedlib.fit(algorithm, params, client_data(clients), ROUNDS, cohort, seed=SEED, progress=False)
    server = params
    for t in range(1, ROUNDS + 1):
        pull = partial(lambda name, p, server: 0.3 * (p - server[name]), server=server)
        ends = {k: train(module, server, k, clients[k], t, pull)[0] for k in cohort_of(t, clients, cohort)}
        server = weighted_mean(ends, clients)
    assert largest_difference(models(result), server) <= 1e-10


@pytest.mark.parametrize("network", ["MLP", "CNN"])
@pytest.mark.parametrize("cohort", [COHORT, 8])
def test_scaffold(network, cohort, clients):
    params, predict, module = twin(network)
    algorithm = Scaffold(classification_loss(predict), **SETTINGS)
    result = fedlib.fit(algorithm, params, client_data(clients), ROUNDS, cohort, seed=SEED, progress=False)
    server, c = params, {name: 0 * p for name, p in params.items()}
    c_i = {k: copy.deepcopy(c) for k in clients}
    for t in range(1, ROUNDS + 1):
        ends, new = {}, {}
        for k in cohort_of(t, clients, cohort):
            correct = partial(lambda name, p, k, c: c[name] - c_i[k][name], k=k, c=c)
            ends[k], steps = train(module, server, k, clients[k], t, correct)
            new[k] = {n: c_i[k][n] - c[n] + (server[n] - ends[k][n]) / (steps * LR) for n in server}
        c = {n: c[n] + sum(new[k][n] - c_i[k][n] for k in new) / len(clients) for n in c}
        c_i |= new
        server = weighted_mean(ends, clients)
    assert largest_difference(models(result), server) <= 1e-10
    assert largest_difference({n: p[0] for n, p in result.state.c.items()}, c) <= 1e-10
    for position, k in enumerate(clients):
        assert largest_difference({n: p[position] for n, p in result.state.c_i.items()}, c_i[k]) <= 1e-10


def test_scaffold_keeps_c_the_mean_of_all_c_i(clients):
    """Under partial participation too, since c moves by the sum of the changes over K."""
    params, predict, _ = twin("MLP")
    algorithm = Scaffold(classification_loss(predict), **SETTINGS)
    state = fedlib.fit(algorithm, params, client_data(clients), 4, COHORT, seed=SEED, progress=False).state
    mean = {name: p.mean(0, keepdim=True) for name, p in state.c_i.items()}
    assert largest_difference(mean, state.c) <= 1e-12
    assert largest_difference(state.c, {n: 0 * p for n, p in state.c.items()}) > 1e-3


def test_scaffold_reports_the_loss_of_the_task(clients):
    params, predict, _ = twin("MLP")
    fit = partial(fedlib.fit, params=params, data=client_data(clients), rounds=2, seed=SEED, progress=False)
    ours = fit(Scaffold(classification_loss(predict), lr=1e-9, batch_size=None)).history["train_loss"]
    plain = fit(FedAvg(classification_loss(predict), lr=1e-9, batch_size=None)).history["train_loss"]
    assert ours.tolist() == pytest.approx(plain.tolist(), abs=1e-7)


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


@pytest.mark.parametrize("rule", [FedAvgM, FedAdagrad, FedAdam, FedYogi])
@pytest.mark.parametrize("network", ["MLP", "CNN"])
def test_fedopt(rule, network, clients):
    params, predict, module = twin(network)
    algorithm = rule(classification_loss(predict), server_lr=0.5, **SETTINGS)
    result = fedlib.fit(algorithm, params, client_data(clients), 3, COHORT, seed=SEED, progress=False)
    server = {n: p.clone() for n, p in params.items()}
    m = {n: [0.0] * p.numel() for n, p in params.items()}
    v = {n: [1e-6] * p.numel() for n, p in params.items()}
    for t in range(1, 4):
        ends = {k: train(module, server, k, clients[k], t, lambda n, p: 0)[0] for k in cohort_of(t, clients, COHORT)}
        mean = weighted_mean(ends, clients)
        for n, p in server.items():
            delta, flat = (mean[n] - p).flatten().tolist(), p.flatten().tolist()
            steps = [server_step(rule.__name__, *entry) for entry in zip(flat, delta, m[n], v[n], strict=True)]
            theta, m[n], v[n] = (list(column) for column in zip(*steps, strict=True))
            server[n] = torch.tensor(theta, dtype=torch.float64).view_as(p)
    assert largest_difference(models(result), server) <= 1e-10


DEGENERATE = {
    "FedProx, mu = 0": (FedProx, {"mu": 0.0}, 3),
    "SCAFFOLD, round 1": (Scaffold, {}, 1),
    "FedAvgM, no momentum": (FedAvgM, {"beta1": 0.0}, 3),
}


@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_values_are_fedavg(case, clients):
    method, settings, rounds = DEGENERATE[case]
    params, predict, _ = twin("CNN")
    fit = partial(fedlib.fit, params=params, data=client_data(clients), rounds=rounds, clients_per_round=COHORT)
    ours = fit(method(classification_loss(predict), **SETTINGS, **settings), seed=SEED, progress=False)
    plain = fit(FedAvg(classification_loss(predict), **SETTINGS), seed=SEED, progress=False)
    assert largest_difference(models(ours), models(plain)) <= 1e-12


def test_adaptive_rules_approach_fedavg_for_a_huge_tau(clients):
    params, predict, _ = twin("MLP")
    fit = partial(fedlib.fit, params=params, data=client_data(clients), rounds=2, seed=SEED, progress=False)
    plain = models(fit(FedAvg(classification_loss(predict), **SETTINGS)))
    for rule in (FedAdagrad, FedAdam, FedYogi):
        # v starts at tau^2, so the root of v plus tau is 2 tau
        settings = {"tau": 1e6, "server_lr": 2e6, "beta1": 0.0} | ({} if rule is FedAdagrad else {"beta2": 0.999999})
        ours = models(fit(rule(classification_loss(predict), **SETTINGS, **settings)))
        assert largest_difference(ours, plain) <= 1e-5


MISTAKES = {
    "negative mu": (FedProx, {"mu": -1}, "mu must be at least 0, got -1"),
    "momentum under SCAFFOLD": (
        Scaffold,
        {"optimizer": partial(torch.optim.SGD, momentum=0.9)},
        "SCAFFOLD needs plain SGD",
    ),
    "zero server_lr": (FedAvgM, {"server_lr": 0}, "server_lr must be positive, got 0"),
    "beta1 of 1": (FedAdam, {"beta1": 1}, r"beta1 must lie in \[0, 1\), got 1"),
    "beta2 of 2": (FedYogi, {"beta2": 2}, r"beta2 must lie in \[0, 1\), got 2"),
    "zero tau": (FedAdagrad, {"tau": 0}, "tau must be positive, got 0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(mistake):
    method, settings, message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=message):
        method(classification_loss(None), **settings)
