"""FedProto against a slow loop over clients, each with a torch module of its own architecture, in float64."""

from functools import partial

import pytest
import torch
from reference import batches, cohort, mean_by_examples
from torch import nn
from torch.nn.functional import cross_entropy
from twins import PlainCNN, classification_loss, client_data, ragged_clients, start_of

import fedlib
from fedlib.client.prototype_net import PrototypeNet
from fedlib.models import CNN, MLP

SEED, ROUNDS, CLASSES, SIZE = 3, 4, 5, 8
LOCAL = {"lr": 0.1, "batch_size": 6, "epochs": 2}
DENSE = MLP((36, SIZE, CLASSES))
IMAGES = CNN((1, 6, 6), channels=(3, 2), widths=(SIZE, CLASSES), kernel=3, padding=1)
SIZES = (1, 2, 5, 7, 20, 33)
SGD, ADAM = partial(torch.optim.SGD, momentum=0.5), torch.optim.Adam


def few_classes(sizes=SIZES, first=0, seed=0):
    """Ragged clients, each with two classes of its own: class 3 is at clients 2 and 3 alone, class 4 nowhere."""
    clients = {}
    for k, (client, (x, y)) in enumerate(ragged_clients(sizes, seed=seed).items()):
        clients[first + client] = x, (y + k) % 2 + (2 if k % 6 in (2, 3) else k % 2)
    return clients


def make(nets=(DENSE, IMAGES), **settings):
    net = PrototypeNet(nets)
    settings = LOCAL | {"architecture": range(len(nets)), "optimizer": SGD} | settings
    return fedlib.algorithms.FedProto(classification_loss(net), net=net, predict=net.nearest, **settings)


def fit(algorithm, rounds=ROUNDS, size=None, **settings):
    data = client_data(few_classes())
    settings = {"seed": SEED, "eval_data": data, "progress": False} | settings
    return fedlib.fit(algorithm, start_of(algorithm.net), data, rounds, size, **settings)


# --- the slow loop ----------------------------------------------------------------------------------------------------


class PlainDense(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense1, self.dense2 = nn.Linear(36, SIZE), nn.Linear(SIZE, CLASSES)

    def embed(self, x):
        return torch.relu(self.dense1(x.flatten(1)))


class PlainImages(PlainCNN):
    def __init__(self):
        super().__init__()
        self.dense1, self.dense2 = nn.Linear(2, SIZE), nn.Linear(SIZE, CLASSES)

    def embed(self, x):
        return torch.relu(self.forward(x))


def plain(number):
    module = (PlainDense, PlainImages)[number]().double()
    module.load_state_dict(start_of((DENSE, IMAGES)[number]))
    return module


def train(module, x, y, prototypes, client, key, lam, optimizer):
    """Local training; `prototypes` has the global prototype of each class that has one."""
    rule, found = optimizer(module.parameters(), lr=LOCAL["lr"]), []
    for rows in batches(client, len(y), key, batch_size=LOCAL["batch_size"], epochs=LOCAL["epochs"]):
        rule.zero_grad()
        value = 0.0
        for i in rows:
            h = module.embed(x[i : i + 1])
            value = value + cross_entropy(module.dense2(h), y[i : i + 1]) / len(rows)
            if int(y[i]) in prototypes:
                value = value + lam * ((h[0] - prototypes[int(y[i])]) ** 2).mean() / len(rows)
        value.backward()
        rule.step()
        found.append(float(value.detach()))
    return sum(found) / len(found)


def slow_loop(clients, numbers, size, lam=1.0, optimizer=SGD):
    modules, prototypes, history = {k: plain(numbers[k]) for k in clients}, {}, []
    for key in (fedlib.Key(SEED, t) for t in range(1, ROUNDS + 1)):
        here = cohort(clients, size, key)
        trained = {k: {"loss": train(modules[k], *clients[k], prototypes, k, key, lam, optimizer)} for k in here}
        history.append(mean_by_examples(trained, clients)["loss"])
        for j in range(CLASSES):
            mine = {k: (x[y == j], y[y == j]) for k, (x, y) in clients.items() if k in here and (y == j).any()}
            own = {k: {"prototype": modules[k].embed(x).detach().mean(0)} for k, (x, _) in mine.items()}
            if own:
                prototypes = prototypes | {j: mean_by_examples(own, mine)["prototype"]}
    return modules, prototypes, history


CASES = {
    "two architectures, all clients": ((DENSE, IMAGES), (0, 1), 6, {}),
    "two architectures, three of six": ((DENSE, IMAGES), (0, 0, 1), 3, {"lam": 3.0}),
    "one architecture, Adam": ((DENSE,), (0,), 4, {"optimizer": ADAM}),
    "no pull": ((DENSE, IMAGES), (1, 0), 6, {"lam": 0.0}),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_slow_loop(case):
    nets, architecture, size, settings = CASES[case]
    clients = few_classes()
    algorithm = make(nets, architecture=architecture, **settings)
    result = fit(algorithm, size=size)
    numbers = {k: architecture[k % len(architecture)] for k in clients}
    modules, prototypes, history = slow_loop(clients, numbers, size, **settings)
    begin, state = start_of(algorithm.net), result.state
    for i, k in enumerate(clients):
        for name, p in modules[k].named_parameters():
            assert (state.local[f"{numbers[k]}.{name}"][i] - p).abs().max() <= 1e-10
        for name in begin:  # networks that it does not have stand still
            if name[0].isdigit() and not name.startswith(f"{numbers[k]}."):
                assert torch.equal(state.local[name][i], begin[name])
        assert state.local["architecture"][i].argmax() == numbers[k]
    assert state.prototypes["known"][0].tolist() == [float(j in prototypes) for j in range(CLASSES)]
    assert 4 not in prototypes and 3 in prototypes
    for j, c in prototypes.items():
        assert (state.prototypes["prototype"][0, j] - c).abs().max() <= 1e-10
    assert result.history["train_loss"].tolist() == pytest.approx(history, abs=1e-10)
    scores = fedlib.evaluate(algorithm, result, client_data(clients))
    for k, (_, score) in zip(clients, scores.iterrows(), strict=True):
        x, y = clients[k]
        h = modules[k].embed(x).detach()
        answers = [min(prototypes, key=lambda j: float((row - prototypes[j]).norm())) for row in h]
        assert score["accuracy"] == pytest.approx(sum(a == int(b) for a, b in zip(answers, y, strict=True)) / len(y))
        assert score["loss"] == pytest.approx(float(cross_entropy(modules[k].dense2(h), y).detach()), abs=1e-10)


# --- new clients, costs, checkpoints ------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 3])
def test_new_clients_train_with_the_prototypes_as_they_are(rounds):
    new = few_classes((4, 9, 1), first=1000, seed=5)
    algorithm = make()
    result = fit(algorithm)
    served = fedlib.new_clients(algorithm, result, client_data(new), rounds, seed=9)
    for name in ("prototype", "known"):
        assert torch.equal(served.state.prototypes[name], result.state.prototypes[name])
    known = {j: c for j, c in enumerate(result.state.prototypes["prototype"][0]) if j != 4}
    for i, (k, (x, y)) in enumerate(new.items()):
        module = plain(k % 2)
        for t in range(1, rounds + 1):
            train(module, x, y, known, k, fedlib.Key(9, t), 1.0, SGD)
        for name, p in module.named_parameters():
            assert (served.state.local[f"{k % 2}.{name}"][i] - p).abs().max() <= 1e-10


def test_costs():
    """Prototypes and counts alone; operations of each architecture by formula."""
    clients, history = few_classes(), fit(make(), size=4).history.set_index("round")
    assert (history[["bytes_down", "bytes_up"]] == 4 * 8 * CLASSES * (SIZE + 1)).all(axis=None)
    embed = (2 * 36 * SIZE, 2 * (36 * 3 * 9 + 9 * 2 * 3 * 9 + 2 * SIZE))
    for t, entry in history.iterrows():
        drawn = cohort(clients, 4, fedlib.Key(SEED, t))
        n = [sum(len(clients[k][1]) for k in drawn if k % 2 == a) for a in (0, 1)]
        assert entry["examples"] == 2 * sum(n) and entry["flops (prototypes)"] == n[0] * embed[0] + n[1] * embed[1]
        trained = sum(2 * n[a] * 3 * (embed[a] + 2 * SIZE * CLASSES) for a in (0, 1))
        assert entry["flops"] - entry["flops (prototypes)"] == trained
