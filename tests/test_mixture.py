"""Federated EM against loops over clients, samples and features; random features; scores of found domains."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score
from torch import nn
from twins import close, normal

import fedlib
from fedlib.algorithms.fedcg import occupancy
from fedlib.extensions.mixture import RandomFeatures, federated_em, nmi
from fedlib.server.clusters import kmeans

DOUBLE = torch.float64


def test_occupancy_and_its_warning():
    with pytest.warns(UserWarning, match="99%"):
        share, entropy = occupancy(torch.tensor([98, 1, 0, 0]))
    p = torch.tensor([98 / 99, 1 / 99])
    torch.testing.assert_close(share[:2], p)
    assert entropy == pytest.approx(float(-(p * p.log()).sum()) / math.log(4), rel=1e-5)
    assert occupancy(torch.tensor([1.0, 1, 0, 0]))[1] == pytest.approx(0.5)  # two of four: on the border, no warning
    assert occupancy(torch.tensor([3]))[1] == 1


def test_nmi_reads_samples_in_the_order_of_the_partition():
    true, w = [np.array([0, 1, 1]), np.array([2])], torch.zeros(2, 3, 3)
    w[0, 0, 2] = w[0, 1, 0] = w[0, 2, 0] = w[1, 0, 1] = 1
    assert nmi(true, w) == pytest.approx(1)
    w[0, 2] = torch.tensor([0, 0.6, 0.4])
    assert nmi(true, w) == pytest.approx(normalized_mutual_info_score([0, 1, 1, 2], [2, 0, 1, 1]))


# Federated EM


def planted(seed=0, clients=6, p=3, classes=2):
    """Ragged clients of two domains; the first and the last client hold both. Features are the rows themselves."""
    random, xs, ys, true = np.random.RandomState(seed), [], [], []
    centre = 3 * random.standard_normal((2, classes, p))
    for k in range(clients):
        n = 12 + 3 * k
        true.append(d := np.full(n, k % 2))
        if k in (0, clients - 1):
            d[: n // 3] = 1 - k % 2
        ys.append(y := random.randint(0, classes, n))
        xs.append(centre[d, y] + random.standard_normal((n, p)))
    return fedlib.stack_clients(xs, ys, ids=[5, 3, 8, 1, 9, 4]), true


def fit(data, **settings):
    settings = {"domains": 2, "classes": 2, "seed": 0, "iterations": 6, "temperature": 1.5, **settings}
    return federated_em(data, features=lambda x: x, dtype=DOUBLE, **settings)


def slow_em(data, start, iterations, temperature, classes, client_prior=True):
    """The same, one domain and one sample after another, without padding."""
    places = [(k, i) for k, n in enumerate(data.n.tolist()) for i in range(n)]
    client = np.array([k for k, _ in places])
    label = np.array([int(data.y[place]) for place in places])
    x = np.stack([data.x[data.index[place]].numpy() for place in places])
    x = (x - x.mean(0)) / x.std(0)
    m = np.stack([x[label == y].mean(0) for y in range(classes)])
    v0 = ((x - m[label]) ** 2).mean(0)
    r, domains = start.numpy()[client], start.shape[1]

    def shares():
        groups = [r[client == k] if client_prior else r for k in range(len(data))]
        return np.stack([(rows.sum(0) + 1) / (len(rows) + domains) for rows in groups])

    pi, objective = shares(), []
    for _ in range(iterations):
        mu, var, value = np.zeros((domains, *m.shape)), np.zeros((domains, *m.shape)), 0.0
        for d, y in product(range(domains), range(classes)):
            w, mine = r[label == y, d], x[label == y]
            mu[d, y] = (w @ mine + 2 * m[y]) / (w.sum() + 2)
            around = w @ (mine - mu[d, y]) ** 2 + 2 * (mu[d, y] - m[y]) ** 2
            var[d, y] = np.maximum((around + 20 * v0) / (w.sum() + 20), 0.01)
            value -= ((mu[d, y] - m[y]) ** 2 / var[d, y] + 10 * (np.log(var[d, y]) + v0 / var[d, y])).sum()
        for i, (k, y) in enumerate(zip(client, label, strict=True)):
            each = (x[i] - mu[:, y]) ** 2 / var[:, y] + np.log(2 * np.pi * var[:, y])
            joint = pi[k] * np.exp(-0.5 * each.sum(1) / temperature)
            value += temperature * np.log(joint.sum())
            r[i] = joint / joint.sum()
        value += temperature * np.log(pi if client_prior else pi[:1]).sum()
        objective.append(value / len(x))
        pi = shares()
    return [r[client == k] for k in range(len(data))], pi, mu, var, objective


@pytest.mark.parametrize(("classes", "client_prior"), [(2, True), (2, False), (1, True)])
def test_em_equals_loops_over_clients_and_samples(classes, client_prior):
    data, _ = planted()
    data = data if classes > 1 else replace(data, y=0 * data.y)  # one class asks for no label
    found = fit(data, classes=classes, client_prior=client_prior)
    r, pi, mean, variance, objective = slow_em(data, found.start, 6, 1.5, classes, client_prior)
    for k, rows in enumerate(r):
        close(found.r[k, : len(rows)], torch.from_numpy(rows))
        assert not found.r[k, len(rows) :].any()
    for ours, slow in [(found.pi, pi), (found.mean, mean), (found.variance, variance), (found.objective, objective)]:
        close(ours, torch.as_tensor(np.array(slow)))
    soft = found.r[..., 0] * (1 - found.r[..., 0])
    assert float(soft.sum()) > 0.05  # not all decided: the comparison means something


def test_em_finds_planted_domains_in_clients_of_two():
    """From the clusters that k-means finds in standardised means and mean squares."""
    data, true = planted()
    found = fit(data, iterations=15)
    assert nmi(true, found.start[:, None] * (found.r.sum(-1, keepdim=True) > 0)) < 0.8 and nmi(true, found.r) > 0.9
    close(found.pi[0].sort().values, torch.tensor([5.0, 9]).to(DOUBLE) / 14, 0.02)
    rows = [data.x[data.index[k, : int(data.n[k])]] for k in range(6)]
    every = torch.cat(rows)
    rows = [(x - every.mean(0)) / every.std(0, correction=0) for x in rows]
    each = torch.stack([torch.cat([x.mean(0), (x**2).mean(0)]) for x in rows])
    assert torch.equal(fit(data, domains=3, seed=7).start.argmax(1), kmeans(each, 3, 7).assignment)


@pytest.mark.parametrize(("temperature", "client_prior"), [(1.0, True), (2.5, True), (1.0, False)])
def test_no_iteration_lowers_the_objective(temperature, client_prior):
    for seed in range(5):
        data, _ = planted(seed)
        found = fit(data, temperature=temperature, client_prior=client_prior, iterations=25, domains=3, seed=seed)
        assert found.objective.diff().min() > -1e-12 and found.objective[-1] > found.objective[0] + 1e-3


def test_messages_weigh_what_the_notes_say():
    data = fedlib.stack_clients([normal(3, 1, 10, 12, seed=k).float() for k in range(5)], [[0, 1, 9]] * 5)
    with fedlib.costs.open_costs() as ledger:
        federated_em(data, 4, 10, 0, iterations=3)
    with fedlib.costs.open_costs() as one:
        federated_em(data, 4, 10, 0, iterations=3, client_prior=False)
    entry, first, each = ledger.entries["domains"], 4 * (1 + 2 * 64), 20_640
    assert each == 4 * 4 * 10 * (1 + 2 * 64)
    assert entry["bytes_up"] == one.total("bytes_up") == 5 * (first + 3 * (each + 4))
    assert entry["bytes_down"] == 5 * (4 * (2 * 64 + 4) + 3 * 4 * 4 * 10 * 2 * 64)
    assert one.total("bytes_down") == entry["bytes_down"] + 5 * 3 * 4 * 4  # pi too
    assert entry["server_seconds"] > 0 and set(ledger.entries) == {"domains"}


def test_scores_with_labels_repeat_the_training_and_without_labels_mix_the_classes():
    data, _ = planted()
    found = fit(data, iterations=30)
    r, pi = found.score(data, pi=found.pi)
    close(r, found.r, 1e-4)  # EM has converged
    assert torch.equal(pi, found.pi)
    own_r, own_pi = found.score(data[[2, 0]], iterations=50)
    close(own_pi, found.pi[[2, 0]], 1e-3)
    close(own_r, found.r[[2, 0]], 1e-2)
    assert not own_r[0, int(data.n[2]) :].any()

    blind, _ = found.score(data, pi=found.pi, labels=False)
    assert torch.equal(found.score(replace(data, y=1 - data.y), pi=found.pi, labels=False)[0], blind)
    share = found.weight / found.weight.sum(1, keepdim=True)
    around = torch.distributions.Normal(found.mean, found.variance.sqrt())
    close(found.weight.sum(), torch.tensor(1.0, dtype=DOUBLE))
    for k, i in product((0, 3), (0, 5)):
        x = (data.x[data.index[k, i]] - found.shift) / found.scale
        joint = found.pi[k] * (share * (around.log_prob(x).sum(-1) / 1.5).exp()).sum(1)
        close(blind[k, i], joint / joint.sum())


def test_degenerate_data_stays_finite():
    x = torch.stack([torch.zeros(12), torch.arange(12.0), torch.zeros(12)], 1).double()  # two constant features
    data = fedlib.stack_clients(list(x.split(4)), [[0, 0, 2, 2]] * 3)  # class 1 has no sample
    for domains in (1, 3):
        found = fit(data, classes=3, domains=domains)
        scored, _ = found.score(data, labels=False)
        for values in (found.r, found.pi, found.objective, found.mean, found.variance, scored):
            assert values.isfinite().all()
        assert (found.variance >= 0.01).all()
        close(found.r.sum(-1), torch.ones(3, 4, dtype=DOUBLE))
    assert not fit(data, classes=3, domains=1).mean[:, 1].any()


def test_random_features_are_a_frozen_projection_of_a_convolution():
    view = RandomFeatures((1, 10, 12), 3, size=20)
    x = normal(6, 1, 10, 12)
    assert view(x).shape == (6, 20) and torch.equal(view(x), RandomFeatures((1, 10, 12), 3, size=20)(x))
    assert not torch.equal(view(x), RandomFeatures((1, 10, 12), 4, size=20)(x))
    torch.testing.assert_close(view(2 * x), 2 * view(x))  # no bias, ReLU
    whole = RandomFeatures((1, 10, 12), 3, size=160)  # orthonormal and square: lengths stay
    conv = nn.Conv2d(1, 8, 3, bias=False).double()
    weight = fedlib.Key(3).normal(torch.zeros(1, dtype=torch.int64), "domains: convolution", 8, 1, 3, 3)[0]
    conv.load_state_dict({"weight": weight / 3})
    h = nn.functional.avg_pool2d(conv(x).relu(), 2).flatten(1).detach()
    torch.testing.assert_close(whole(x).norm(dim=1), h.norm(dim=1))
