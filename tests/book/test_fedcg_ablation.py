"""Chapter 10's arms side by side are those that FedCG trains one by one; found domains are those of a whole run."""

from functools import partial

import numpy as np
import pytest
import torch

import fedlib
from book.experiments import fedcg_ablation as chapter
from book.experiments.worlds import LowRank
from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.extensions.mixture import em_domains

graph = chapter.graph
pytestmark = pytest.mark.filterwarnings("ignore:FedCG ended with round")  # these runs are short


class NoW(fedlib.server.domain_graph.DomainGCN):
    """W is the identity for good."""

    def init(self, q, seed, layer=""):
        return {}

    def propagate(self, params, V, A):
        return A @ V


def alone(here, layer, arm, w, settings, seed):
    """The library's own run of an arm: the parameters that answer."""
    net = DomainNet(here.network, 4, (layer,), DomainClassifier(here.network.image, 4, "pooled", (1,), (7,)))
    net = net if arm.modules else here.network

    def loss(params, batch, *w_d):
        x, y, real = batch
        return fedlib.losses.cross_entropy(net(params, x, *w_d), y, real)

    if arm.modules:
        gcn = (LowRank if "W" in arm.parts else NoW)(relu="ReLU" in arm.parts) if arm.parts else None
        told = {"weights": "teacher", "teacher": lambda data, key: w}
        told |= {"net": net, "gcn": gcn, "warm_up": settings["warm_up"] if "A" in arm.parts else 10**6}
        rule = fedlib.extensions.FedCGKnownDomains(loss, predict=net, **told, **here.local)
    else:
        rule = fedlib.algorithms.FedAvg(loss, predict=net, **here.local)
    run = {"seed": seed, "dtype": torch.float64, "device": "cpu", "progress": False}
    state = fedlib.fit(rule, net.init(seed), here.train, settings["rounds"], here.cohort, **run).state
    return fedlib.params.row(rule.client_params(state, torch.arange(1)), 0)


@pytest.mark.parametrize(("regime", "layer"), [("turned", "conv2"), ("styles", "dense2")])
def test_arms_side_by_side_are_fedcgs(regime, layer):
    """Ragged clients; A is computed twice before the last round."""
    settings, here = chapter.tiny(regime)
    assert len(set(here.train.n.tolist())) > 1
    w, _ = chapter.told(here, "known", 0, settings)
    arms = chapter.WHO["known"]
    ours = chapter.train(here, layer, arms, w.double(), settings, 5, dtype=torch.float64)
    for m, arm in enumerate(arms):
        theirs = alone(here, layer, arm, w, settings, 5)
        shared = [n for n in ours if n in theirs]
        assert len(shared) == (len(ours) if arm.modules else len(ours) - 3)
        for n in shared:
            torch.testing.assert_close(ours[n][m], theirs[n], atol=1e-12, rtol=1e-9)
    weights = [ours[f"{layer}.weight"][m] for m in range(len(arms))]
    assert all((a - b).abs().max() > 1e-6 for i, a in enumerate(weights) for b in weights[:i]), "no two arms are equal"


def test_found_domains_are_those_of_a_run_with_the_student_in_it():
    settings, here = chapter.tiny("turned")
    w, said = chapter.found(settings, here, 3)
    assert set(said) == {2, 4} and ((w.sum(-1) == 1) == here.train.real).all()
    student = DomainClassifier(here.network.image, 4, "flatten", (8, 16), (2, 1))
    rule = graph.fedcg(here, student, teacher=partial(em_domains, domains=4, classes=10), weights="teacher")
    state = fedlib.fit(rule, rule.net.init(3), here.train, 4, here.cohort, seed=3, device="cpu", progress=False).state
    torch.testing.assert_close(said[4], graph.students_weights(rule, state, here.test))
    assert torch.equal(w, chapter.hard(state.domains))


def test_the_effect_of_a_part_is_a_mean_over_the_others():
    rows = {chapter.Arm(s).name: {"x": 4.0 * ("A" in s) + 2 * ("W" in s) * ("ReLU" in s)} for s in chapter.SETS}
    assert [chapter.effects(rows, p)[f"effect of {p}"]["x"] for p in chapter.PARTS] == [4, 1, 1]


def test_late_is_the_mean_of_the_last_three(monkeypatch):
    settings, here = chapter.tiny("turned")
    settings |= {"rounds": 3, "every": 1}
    monkeypatch.setattr(chapter, "told_once", lambda *args: (here, *chapter.told(here, "known", 0, settings)))
    rows = chapter.curves(settings, "turned", "last layer", "known", 0)
    assert set(rows) == {arm.name for arm in chapter.WHO["known"]} | {f"effect of {p}" for p in chapter.PARTS}
    one = rows["A + W + ReLU"]
    assert one["accuracy, late"] == pytest.approx(np.mean([one[f"accuracy, {t}"] for t in (1, 2, 3)]))


def test_each_arm_is_scored_at_the_rate_that_was_best_for_it():
    """Invented runs: an arm's accuracy falls with the distance of its rate from the best, which halves after 300."""
    settings = chapter.RATES | {"regimes": ["turned"], "seeds": [100, 101]}
    best = [{arm: settings["rates"][late + i % 3] for i, arm in enumerate(settings["arms"])} for late in (1, 0)]
    asked = []

    def keep(part, function, how, regime, place, who, seed, names):
        rate = how["conflict"]["lr"]
        assert (function, who, rate) == (chapter.curves, "known", how["scarce"]["lr"])
        asked.append((rate, seed, list(names)))
        gaps = {arm: {t: abs(rate - best[t > 300][arm]) for t in range(20, 601, 20)} for arm in names}
        return {arm: {f"accuracy, {t}": 0.9 - gap + seed / 1e4 for t, gap in gaps[arm].items()} for arm in names}

    found = chapter.measure_rates(settings, keep)["turned, last convolution"]
    for arm in settings["arms"]:
        assert [found[arm][f"rate, {horizon}"] for horizon in (300, 600)] == [rates[arm] for rates in best]
        for horizon in (300, 600):
            assert found[arm][f"accuracy, {horizon}"] == {"100": 0.91, "101": 0.9101}
    trials = [names for _, seed, names in asked if seed in settings["seeds of rates"]]
    assert trials == [settings["arms"]] * 8
    for rate, seed, names in asked[8:]:
        assert seed in settings["seeds"]
        assert names == [arm for arm in settings["arms"] if rate in (best[0][arm], best[1][arm])]
