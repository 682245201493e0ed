"""FedCG on FEMNIST: the network in one convolution, who is scored on what, the paper's settings, choice of a rate."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fedlib
from book.experiments import fedcg_femnist as chapter
from book.experiments.cfl_variants import RELATIVE
from fedlib.client.domain_net import DomainClassifier, DomainNet


@pytest.fixture(scope="module")
def here():
    return chapter.small()


@pytest.mark.parametrize("told", [True, False])
def test_one_convolution_is_the_network_of_equation_4(told):
    plain, student = fedlib.models.CNN((2, 9, 8), (3, 4), (5,), 3, 1), DomainClassifier((2, 9, 8), 3)
    nets = [kind(plain, 3, ("conv2",), student) for kind in (DomainNet, chapter.OneConvolution)]
    params = {name: p.double() for name, p in nets[0].init(0).items()} | {"lam.conv2": torch.tensor(0.7).double()}
    x = torch.rand(6, 2, 9, 8, dtype=torch.float64)
    w = (torch.eye(3)[[0, 1, 2, 0, 1, 2]].double(),) if told else ()

    def values(net):
        gradients, out = torch.func.grad_and_value(lambda p: net(p, x, *w).square().sum())(params)
        return torch.cat([out.reshape(1), *(g.flatten() for g in gradients.values())])

    found, wanted = map(values, reversed(nets))
    assert torch.allclose(found, wanted, rtol=1e-12, atol=1e-12) and wanted.abs().max() > 0.1


def test_who_is_scored_on_what(monkeypatch):
    """60, 20 and 20 % of the writers with enough images, and no image in two places."""
    writer = np.repeat(np.arange(12), [100] * 10 + [99, 120])
    x = np.arange(len(writer)).reshape(-1, 1, 1, 1) % 256
    monkeypatch.setattr(chapter, "femnist", lambda: (x.astype(np.uint8), np.arange(len(writer)) % 62, writer))
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
    assert type(algorithm) is fedlib.algorithms.FedCG and paper["fraction"] == [0.6, 0.2, 0.2]


def test_rates_are_chosen_by_validation_writers(here, monkeypatch):
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
    figures = chapter.measure(chapter.FULL | {"methods": [*methods, "FedAvg at 0.03"], "seeds": [0, 1]}, at_once)
    assert figures["rates"] == {"FedAvg": 0.1, "FedCG, paper, D = 4": 0.1}
    assert {a[1:] for a in asked if a[4] == "validation"} == {(9, r, 40, "validation") for r in (0.03, 0.06, 0.1, 0.3)}
    once_more_where_it_diverged = ((0, 0.1), (1, 0.1), (1, 0.06))
    tested = {(m, s, r, 150) for m in methods for s, r in once_more_where_it_diverged}
    tested |= {("FedAvg", s, 0.03, 150) for s in (0, 1)}  # as its row says
    assert {a[:4] for a in asked if a[4] == "test"} == tested and len(asked) == 2 * 4 + 3 * len(methods) + 2
    assert figures["FedAvg at 0.03"]["accuracy"] == {"0": 0.03, "1": 0.03}
    assert figures[RELATIVE]["accuracy"] == {"0": 0.1, "1": 0.06} and figures["data"] == {"clients": 6}
    del asked[:]
    one = chapter.measure(chapter.FULL | {"methods": ["FedAvg"], "rates": [0.001], "seeds": [0]}, at_once)
    assert one["rates"] == {"FedAvg": 0.001} and len(asked) == 1 and asked[0][4] == "test"
