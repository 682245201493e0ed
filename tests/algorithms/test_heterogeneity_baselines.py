"""FedProx, SCAFFOLD and FedOpt against slow loops written from their papers, in float64 on ragged clients."""

import copy
from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy
from twins import classification_loss, client_data, largest_difference, ragged_clients, twin

import fedlib
from fedlib.algorithms import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedProx, FedYogi, Scaffold
from fedlib.losses import mse

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


@pytest.mark.parametrize(("network", "cohort"), [("MLP", 8), ("CNN", COHORT)])
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


def scaffold_reference(module, params, clients, cohort, server_step):
    """Algorithm 1 of Karimireddy et al. (2020), option II; `server_step(x, c, y, change) -> x, c` is the server's part.

    All are dictionaries by name; y and change have those of each client of the cohort.
    """
    x, c = dict(params), {name: torch.zeros_like(p) for name, p in params.items()}
    c_i = {k: copy.deepcopy(c) for k in clients}
    for t in range(1, ROUNDS + 1):
        y, change = {}, {}
        for k in cohort_of(t, clients, cohort):
            y[k], steps = train(module, x, k, clients[k], t, lambda name, p, k=k, c=c: c[name] - c_i[k][name])
            plus = {n: c_i[k][n] - c[n] + (x[n] - y[k][n]) / (steps * LR) for n in x}
            change[k] = {n: plus[n] - c_i[k][n] for n in x}
            c_i[k] = plus
        x, c = server_step(x, c, y, change)
    return x, c, c_i


def scaffold_and_reference(network, clients, cohort, server_step):
    params, predict, module = twin(network)
    algorithm = Scaffold(classification_loss(predict), **SETTINGS)
    result = fedlib.fit(algorithm, params, client_data(clients), ROUNDS, cohort, seed=SEED, progress=False)
    x, c, c_i = scaffold_reference(module, params, clients, cohort, server_step)
    assert largest_difference(models(result), x) <= 1e-10
    assert largest_difference({n: p[0] for n, p in result.state.c.items()}, c) <= 1e-10
    for position, k in enumerate(clients):
        assert largest_difference({n: p[position] for n, p in result.state.c_i.items()}, c_i[k]) <= 1e-10
    assert largest_difference(c, {n: 0 * p for n, p in c.items()}) > 1e-3


@pytest.mark.parametrize(("network", "cohort"), [("MLP", 8), ("CNN", COHORT)])
def test_scaffold_weighs_by_examples(network, cohort, clients):
    n = {k: len(y) for k, (_, y) in clients.items()}

    def server_step(x, c, y, change):
        x = weighted_mean(y, clients)
        return x, {name: c[name] + sum(n[k] / sum(n.values()) * change[k][name] for k in change) for name in c}

    scaffold_and_reference(network, clients, cohort, server_step)


@pytest.mark.parametrize(("network", "cohort"), [("MLP", 8), ("CNN", COHORT)])
def test_scaffold_with_equal_sizes_is_the_papers(network, cohort):
    """Lines 16 and 17: plain means over the cohort, and c + |S| / N times the mean change."""
    clients = ragged_clients(sizes=(21,) * 8)

    def server_step(x, c, y, change):
        x = {name: p + sum(y[k][name] - p for k in y) / len(y) for name, p in x.items()}
        part = len(change) / len(clients)
        return x, {name: p + part * sum(change[k][name] for k in change) / len(change) for name, p in c.items()}

    scaffold_and_reference(network, clients, cohort, server_step)


def test_scaffold_keeps_c_the_mean_of_all_c_i_by_examples(clients):
    """Under partial participation and drop-out too."""
    params, predict, _ = twin("MLP")
    algorithm = Scaffold(classification_loss(predict), **SETTINGS)
    n = torch.tensor([len(y) for _, y in clients.values()], dtype=torch.float64)

    def holds(t, state, record):
        mean = {name: torch.einsum("k,k...->...", n / n.sum(), p)[None] for name, p in state.c_i.items()}
        assert largest_difference(mean, state.c) <= 1e-12

    options = {"seed": SEED, "lost": 0.3, "callbacks": [holds], "progress": False}
    state = fedlib.fit(algorithm, params, client_data(clients), 6, COHORT, **options).state
    assert largest_difference(state.c, {n: 0 * p for n, p in state.c.items()}) > 1e-3


@pytest.mark.parametrize("copies", [(1, 9), (9, 1)])
def test_scaffold_ends_at_the_optimum_of_all_examples(copies):
    """Two clients with quadratic losses, of 2 and 18 rows: equal weights of c would miss it by .69."""
    steep = torch.tensor([[[3.0, 0.0], [0.0, 1.0]], [[0.8, 0.0], [0.0, 2.0]]], dtype=torch.float64)
    optima = torch.tensor([[-1.0, 0.8], [1.0, -0.6]], dtype=torch.float64)
    x = [rows.repeat(times, 1) for rows, times in zip(steep, copies, strict=True)]
    y = [rows @ own for rows, own in zip(x, optima, strict=True)]
    best = torch.linalg.lstsq(torch.cat(x), torch.cat(y)[:, None]).solution[:, 0]

    def loss(params, batch):
        return mse(batch[0] @ params["theta"], *batch[1:])

    algorithm = Scaffold(loss, lr=LR, batch_size=None, epochs=20)
    start = {"theta": torch.tensor([1.0, 1.1], dtype=torch.float64)}
    result = fedlib.fit(algorithm, start, fedlib.stack_clients(x, y), 100, progress=False)
    assert (result.state.models["theta"][0] - best).norm() <= 1e-6
    assert largest_difference(result.state.c, {"theta": torch.zeros(1, 2)}) <= 1e-6


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


RULES = [(FedAvgM, "MLP"), (FedAdagrad, "CNN"), (FedAdam, "MLP"), (FedYogi, "CNN")]


@pytest.mark.parametrize(("rule", "network"), RULES)
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


def test_mistakes_are_told():
    for method, settings, message in (
        (FedProx, {"mu": -1}, "mu must be a number of at least 0; got -1"),
        (Scaffold, {"optimizer": partial(torch.optim.SGD, momentum=0.9)}, "SCAFFOLD needs plain SGD"),
        (FedAvgM, {"server_lr": 0}, "server_lr must be a number above 0; got 0"),
        (FedAdam, {"beta1": 1}, "beta1 must be a number of at least 0 and below 1; got 1"),
        (FedYogi, {"beta2": 2}, "beta2 must be a number of at least 0 and below 1; got 2"),
        (FedAdagrad, {"tau": 0}, "tau must be a number above 0; got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            method(classification_loss(None), **settings)
