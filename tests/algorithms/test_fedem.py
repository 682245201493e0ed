"""FedEM against a slow loop, one client, one model and one example after another, in float64."""

import math
from dataclasses import replace

import pytest
import torch
from reference import batches, cohort, drawn_starts, mean_by_examples
from torch.nn.functional import cross_entropy
from twins import LOCAL, SEED, classification_loss, client_data, largest_difference, ragged_clients, rows_differ, twin

import fedlib
from fedlib import Key
from fedlib.algorithms import FedAvg, FedEM
from fedlib.params import row

ROUNDS, M = 4, 3
NEW = {1000 + k: rows for k, rows in ragged_clients((1, 9, 4), seed=5).items()}
DATA = client_data(ragged_clients())


def make(kind=FedEM, network="MLP", **settings):
    mixture = fedlib.algorithms.fedem.Mixture(twin(network)[1])
    return kind(classification_loss(mixture), predict=mixture, **(LOCAL | settings))


def fit(algorithm, network="MLP", rounds=ROUNDS, size=None, data=DATA, **settings):
    settings = {"seed": SEED, "eval_data": data, "progress": False} | settings
    return fedlib.fit(algorithm, twin(network)[0], data, rounds, size, **settings)


# --- the slow loop ----------------------------------------------------------------------------------------------------


def answers(module, model, x):
    module.load_state_dict(model)
    return module(x).detach()


def posterior(module, models, pi, x, y):
    """The E-step: q (n, M)."""
    q = torch.zeros(len(y), M, dtype=torch.float64)
    for i in range(len(y)):
        one = x[i : i + 1], y[i : i + 1]
        for m, model in enumerate(models):
            q[i, m] = pi[m] * math.exp(-float(cross_entropy(answers(module, model, one[0]), one[1])))
        q[i] /= q[i].sum()
    return q


def train(module, start, q, x, y, client, key, optimizer):
    """Local training of one model, in which example i has the weight q_i."""
    module.load_state_dict(start)
    rule, losses = optimizer(module.parameters(), lr=LOCAL["lr"]), []
    for rows in batches(client, len(y), key, batch_size=LOCAL["batch_size"], epochs=LOCAL["epochs"]):
        rule.zero_grad()
        loss = sum(q[i] * cross_entropy(module(x[i : i + 1]), y[i : i + 1]) for i in rows) / len(rows)
        loss.backward()
        rule.step()
        losses.append(float(loss.detach()))
    return {n: p.detach().clone() for n, p in module.named_parameters()}, sum(losses) / len(losses)


def slow_loop(clients, network, size, optimizer):
    params, _, module = twin(network)
    models, history = drawn_starts(params, M), []
    pi = {k: [1 / M] * M for k in clients}
    for key in (Key(SEED, t) for t in range(1, ROUNDS + 1)):
        ends, losses = [{} for _ in range(M)], {}
        for k in cohort(clients, size, key):
            x, y = clients[k]
            q = posterior(module, models, pi[k], x, y)
            pi[k] = [float(q[:, m].sum()) / len(y) for m in range(M)]
            losses[k] = {"loss": 0.0}
            for m, model in enumerate(models):
                ends[m][k], loss = train(module, model, q[:, m], x, y, k, key, optimizer)
                losses[k]["loss"] += loss
        models = [mean_by_examples(end, clients) for end in ends]
        history.append(mean_by_examples(losses, clients)["loss"])
    return module, models, pi, history


CASES = {
    "all clients": ("MLP", None, torch.optim.SGD),
    "convolutions, five of eight": ("CNN", 5, torch.optim.SGD),
    "Adam, three of eight": ("torch module with GroupNorm", 3, torch.optim.Adam),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_slow_loop(case, monkeypatch):
    """However many clients fit into memory: here two, of three models."""
    monkeypatch.setattr("fedlib.algorithms.fedem.clients_at_once", lambda *_: 7)
    network, size, optimizer = CASES[case]
    clients = ragged_clients()
    algorithm = make(network=network, optimizer=optimizer, components=M)
    result = fit(algorithm, network, size=size)
    module, models, pi, losses = slow_loop(clients, network, size, optimizer)
    assert rows_differ(row(result.state.models, 0), models) <= 1e-10
    want = torch.tensor([pi[k] for k in clients], dtype=torch.float64)
    assert (result.state.pi - want).abs().max() <= 1e-10 and want.std(0).min() > 1e-3  # they do differ
    assert result.history["train_loss"].tolist() == pytest.approx(losses, abs=1e-10)
    scores = fedlib.evaluate(algorithm, result, DATA)
    for (k, (x, y)), (_, score) in zip(clients.items(), scores.iterrows(), strict=True):
        p = sum(p * answers(module, model, x).softmax(-1) for p, model in zip(pi[k], models, strict=True))
        assert score["loss"] == pytest.approx(-float(p[range(len(y)), y].log().mean()), abs=1e-10)
        assert score["accuracy"] == pytest.approx(float((p.argmax(1) == y).double().mean()))


# --- its parts --------------------------------------------------------------------------------------------------------


def test_a_model_that_answers_for_nothing_stands_still():
    """Its likelihoods underflow to 0 in 32 bits: the other model learns as in FedAvg, and nothing is NaN."""
    data, params = DATA.to("cpu", torch.float32), {name: p.float() for name, p in twin("MLP")[0].items()}
    never = {name: p * 0 for name, p in params.items()} | {"dense2.bias": torch.tensor([0.0, 0, 0, 1e4])}
    data = replace(data, y=data.y % 3)  # nobody has class 3, of which it is sure
    models = {name: torch.stack([p, never[name]])[None] for name, p in params.items()}
    algorithm, plain, everybody = make(components=2), make(FedAvg), torch.arange(8)
    state = replace(algorithm.init(params, data, Key(SEED)), models=models)
    update = algorithm.train(state, data, everybody, Key(SEED, 1))
    end, pi = algorithm.aggregate(state, update).models, update.client_state["pi"]
    assert all(torch.allclose(p[0, 1], never[name], rtol=1e-6, atol=1e-20) for name, p in end.items())
    alone = plain.init(params, data, Key(SEED))
    alone = plain.aggregate(alone, plain.train(alone, data, everybody, Key(SEED, 1)))
    assert largest_difference({name: p[:, 0] for name, p in end.items()}, alone.models) <= 1e-6
    state = replace(state, pi=pi)
    again = algorithm.train(state, data, everybody, Key(SEED, 2)).client_state["pi"]
    assert pi.tolist() == again.tolist() == [[1.0, 0.0]] * 8  # a weight of 0 stays 0
    assert algorithm.predict(row(algorithm.client_params(state, everybody), 0), data.x[:2].float()).isfinite().all()


# --- what equals what -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["MLP", "CNN"])
def test_one_component_is_fedavg(network):
    """To the last bit, costs and stragglers included."""
    algorithms = make(components=1, network=network, stragglers=0.4), make(FedAvg, network=network, stragglers=0.4)
    a, b = (fit(algorithm, network, size=5) for algorithm in algorithms)
    assert all(torch.equal(p[:, 0], b.state.models[n]) for n, p in a.state.models.items()) and (a.state.pi == 1).all()
    columns = ["train_loss", "test_accuracy", "examples", "bytes_up", "bytes_down"]
    assert a.history[columns].equals(b.history[columns])
    assert (a.history["flops"] - a.history["flops (mixture)"]).equals(b.history["flops"])


# --- new clients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 5])
def test_new_clients_learn_their_weights_alone(rounds):
    algorithm = make()
    result = fit(algorithm)
    served = fedlib.new_clients(algorithm, result, client_data(NEW), rounds)
    assert all(torch.equal(p, result.state.models[n]) for n, p in served.state.models.items())
    module, models = twin("MLP")[2], [row(row(result.state.models, 0), m) for m in range(M)]
    for c, (x, y) in enumerate(NEW.values()):
        pi = [1 / M] * M
        for _ in range(rounds):
            pi = posterior(module, models, pi, x, y).mean(0).tolist()
        assert (served.state.pi[c] - torch.tensor(pi, dtype=torch.float64)).abs().max() <= 1e-12


# --- costs, checkpoints, mistakes -------------------------------------------------------------------------------------


def test_costs():
    """M models down, and up with one weight; pi stays at home."""
    clients, history, forward = ragged_clients(), fit(make(), size=5).history, 2 * (36 * 8 + 8 * 4)
    models = M * sum(p.nbytes for p in twin("MLP")[0].values())
    assert (history[["bytes_down", "bytes_up"]] == [5 * models, 5 * (models + 8)]).all(axis=None)
    examples = [M * sum(len(clients[k][1]) for k in cohort(clients, 5, Key(SEED, t))) for t in history["round"]]
    assert history["examples"].tolist() == [2 * n for n in examples]
    assert history["flops (mixture)"].tolist() == [n * forward for n in examples]
    assert (history["flops"] - history["flops (mixture)"]).tolist() == [2 * n * 3 * forward for n in examples]
