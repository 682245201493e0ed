"""FedCG on FEMNIST: the network in one convolution, who is scored on what, equal visits, and a run that goes on."""

import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import fedlib
from book.experiments import fedcg_femnist as chapter
from book.experiments.cfl_variants import RELATIVE
from book.experiments.worlds import EXACT
from fedlib.algorithms import FedCG
from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.models import CNN


@pytest.fixture(scope="module")
def here():
    return chapter.small()


@pytest.fixture
def checkpoints(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLIB_CHECKPOINTS", str(tmp_path))
    return tmp_path


def settings(**changes):
    return chapter.FULL | {"cohort": 3, "batch_size": 5, "width": 4, "every": 2} | changes


@pytest.mark.parametrize("told", [True, False])
def test_one_convolution_is_the_network_of_equation_4(told):
    plain, student = CNN((2, 9, 8), (3, 4), (5,), 3, 1), DomainClassifier((2, 9, 8), 3)
    nets = [kind(plain, 3, ("conv2",), student) for kind in (DomainNet, chapter.OneConvolution)]
    params = {name: p.double() for name, p in nets[0].init(0).items()} | {"lam.conv2": torch.tensor(0.7).double()}
    x = torch.rand(6, 2, 9, 8, dtype=torch.float64)
    w = (torch.eye(3)[[0, 1, 2, 0, 1, 2]].double(),) if told else ()

    def values(net):
        gradients, out = torch.func.grad_and_value(lambda p: net(p, x, *w).square().sum())(params)
        return torch.cat([out.reshape(1), *(g.flatten() for g in gradients.values())])

    found, wanted = map(values, reversed(nets))
    assert torch.allclose(found, wanted, rtol=1e-12, atol=1e-12) and wanted.abs().max() > 0.1


def test_equal_starts_are_equal():
    start = chapter.EqualNet(CNN((1, 8, 8), (2, 3), (4,), 3, 1), 3, ("conv2",)).init(1)
    modules = start["V.conv2.weight"]
    assert torch.equal(modules[0], modules[1]) and torch.equal(modules[0], modules[2]) and modules.std() > 0


def test_padding_is_that_of_the_public_program():
    net, x = chapter.Padded((1, 28, 28), (2, 3), (5, 4)), torch.rand(2, 1, 28, 28)
    params, z = net.init(0), x
    for layer in ("conv1", "conv2"):
        z = F.conv2d(z, params[f"{layer}.weight"], params[f"{layer}.bias"], padding=1)
        z = F.max_pool2d(z.relu(), 2, 2, padding=1)
    z = F.linear(z.flatten(1), params["dense1.weight"], params["dense1.bias"]).relu()
    torch.testing.assert_close(net(params, x), F.linear(z, params["dense2.weight"], params["dense2.bias"]))
    assert params["dense1.weight"].shape == (5, 3 * 7 * 7)


def test_batches_in_order_are_a_plain_loop(here):
    rule, rounds, cohort = chapter.method(settings(), here, "order", 0.1, 2)
    end = fedlib.fit(rule, here.network.init(0), here.train, rounds, len(here.train), **EXACT).state.models
    model = {n: p.double() for n, p in here.network.init(0).items()}
    for _ in range(rounds):
        ends = []
        for k, n in enumerate(here.train.n.tolist()):
            own = {name: p.clone().requires_grad_() for name, p in model.items()}
            for rows in torch.arange(n).split(5):
                x = here.train.features(here.train.index[k, rows], torch.float64)
                loss = F.cross_entropy(here.network(own, x), here.train.y[k, rows])
                steps = torch.autograd.grad(loss, list(own.values()))
                own = {m: (p - 0.1 * g).detach().requires_grad_() for (m, p), g in zip(own.items(), steps, strict=True)}
            ends.append({name: p.detach() * n for name, p in own.items()})
        model = {name: sum(e[name] for e in ends) / int(here.train.n.sum()) for name in model}
    for name, p in model.items():
        torch.testing.assert_close(end[name][0], p, atol=1e-12, rtol=1e-9)


def test_who_is_scored_on_what(monkeypatch):
    """60, 20 and 20 % of the writers with enough images, and no image in two places."""
    writer = np.repeat(np.arange(12), [100] * 10 + [99, 120])
    x = np.arange(len(writer)).reshape(-1, 1, 1, 1) % 256
    monkeypatch.setattr(chapter, "characters", lambda: (x.astype(np.uint8), np.arange(len(writer)) % 62, writer))
    found = chapter.world(chapter.FULL)
    parts = [found.train, *found.validation, *found.test]
    people = [set(p.id.tolist()) for p in parts]
    assert people[1] == people[2] and people[3] == people[4]
    assert [len(p) for p in people] == [7, 2, 2, 2, 2] and set.union(*people) == {*range(10), 11}
    for joining, scored in (found.validation, found.test):
        assert (joining.n.double() / (joining.n + scored.n) - 0.2).abs().max() < 0.01
        rows = joining.index[joining.real].tolist() + scored.index[scored.real].tolist()
        assert len(rows) == len(set(rows)) == int(joining.n.sum() + scored.n.sum())
    sizes = np.array([100] * 10 + [120])
    wanted = {"clients": 11, "samples": 1120, "mean": sizes.mean(), "stdev": sizes.std(), "classes": 62}
    assert found.statistics == pytest.approx(wanted)


def test_the_papers_settings(here):
    """Section 4.1: 1,000 rounds of 5 clients, batches of 10, a rate of 1e-3, one epoch, the last convolution."""
    paper = chapter.PAPER
    algorithm, rounds, cohort = chapter.method(paper, here, "FedCG, paper, D = 4", paper["rates"][0], paper["rounds"])
    assert (rounds, cohort, algorithm.batch_size, algorithm.lr, algorithm.epochs) == (1000, 5, 10, 1e-3, 1)
    assert algorithm.student_lr == 1e-4 and algorithm.net.layers == ("conv2",) and algorithm.net.domains == 4
    assert algorithm.net.classifier.channels == (32, 64) and algorithm.net.classifier.pooled
    assert algorithm.gcn.weights == "bottleneck" and algorithm.gcn.relu and algorithm.beta == 0.5
    assert type(algorithm) is FedCG and paper["fraction"] == [0.6, 0.2, 0.2]


def test_rates_are_chosen_by_validation_writers(here, checkpoints, monkeypatch):
    asked = []

    def at_once(name, function, *args, arms=()):
        return function(*args)

    def run(settings, name, seed, rate, rounds, group="test", here=None):
        asked.append((name, seed, rate, rounds, group))
        if rate == 0.3 or (seed, rate, group) == (1, 0.1, "test"):
            raise FloatingPointError
        return {"accuracy": rate}

    monkeypatch.setattr(chapter, "run", run)
    monkeypatch.setattr(chapter, "world", lambda settings: replace(here, statistics={"clients": 6}))
    methods = ["FedAvg", "FedCG, paper, D = 4", "FedCG, random domains", RELATIVE]
    figures = chapter.measure(settings(methods=[*methods, "FedAvg at 0.03"], seeds=[0, 1]), at_once)
    assert figures["rates"] == {"FedAvg": 0.1, "FedCG, paper, D = 4": 0.1}
    assert {a[1:] for a in asked if a[4] == "validation"} == {(9, r, 40, "validation") for r in (0.03, 0.06, 0.1, 0.3)}
    once_more_where_it_diverged = ((0, 0.1), (1, 0.1), (1, 0.06))
    tested = {(m, s, r, 150) for m in methods for s, r in once_more_where_it_diverged}
    tested |= {("FedAvg", s, 0.03, 150) for s in (0, 1)}  # as its row says
    assert {a[:4] for a in asked if a[4] == "test"} == tested and len(asked) == 2 * 4 + 3 * len(methods) + 2
    assert figures["FedAvg at 0.03"]["accuracy"] == {"0": 0.03, "1": 0.03}
    assert figures[RELATIVE]["accuracy"] == {"0": 0.1, "1": 0.06} and figures["data"] == {"clients": 6}
    del asked[:]
    one = chapter.measure(settings(methods=["FedAvg"], rates=[0.001], seeds=[0]), at_once)
    assert one["rates"] == {"FedAvg": 0.001} and len(asked) == 1 and asked[0][4] == "test"


def test_a_run_that_diverged_leaves_its_memory_to_the_next(monkeypatch):
    states = []

    def run(settings, name, seed, rate, rounds):
        if not states:
            state = torch.zeros(1)
            states.append(weakref.ref(state))
            raise FloatingPointError
        return {"rate": rate, "left": float(states[0]() is not None)}

    monkeypatch.setattr(chapter, "run", run)
    assert chapter.finished(chapter.FULL, "FedAvg", 0, 0.1) == {"rate": 0.06, "left": 0}
