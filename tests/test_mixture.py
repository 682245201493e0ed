"""Federated EM against loops over clients, samples and features; random features; scores of found domains."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score
from torch import nn

import fedlib
from fedlib.algorithms.fedcg import occupancy
from fedlib.costs import open_costs
from fedlib.extensions.mixture import RandomFeatures, federated_em, nmi
from fedlib.partition import iid, mixture, rotation
from fedlib.server.clusters import kmeans

DOUBLE = torch.float64


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(shape))


def test_occupancy_and_its_warning():
    with pytest.warns(UserWarning, match="99%"):
        share, entropy = occupancy(torch.tensor([98, 1, 0, 0]))
    p = torch.tensor([98 / 99, 1 / 99])
    torch.testing.assert_close(share[:2], p)
    assert entropy == pytest.approx(float(-(p * p.log()).sum()) / math.log(4), rel=1e-5)
    assert occupancy(torch.tensor([1.0, 1, 0, 0]))[1] == pytest.approx(0.5)  # two of four: on the border, no warning
    assert occupancy(torch.tensor([3]))[1] == 1


def test_nmi_reads_samples_in_the_order_of_the_partition():
    true = [np.array([0, 1, 1]), np.array([2])]
    w = torch.zeros(2, 3, 3)
    w[0, 0, 2] = w[0, 1, 0] = w[0, 2, 0] = w[1, 0, 1] = 1
    assert nmi(true, w) == pytest.approx(1)
    w[0, 2] = torch.tensor([0, 0.6, 0.4])
    assert nmi(true, w) == pytest.approx(normalized_mutual_info_score([0, 1, 1, 2], [2, 0, 1, 1]))
    with pytest.raises(ValueError, match="one domain for each"):
        nmi(true[:1], w)


# Federated EM


def planted(seed=0, clients=6, p=3, classes=2):
    """Ragged clients of two domains; the first and the last client hold both. Features are the rows themselves."""
    random, xs, ys, true = np.random.RandomState(seed), [], [], []
    centre = 3 * random.standard_normal((2, classes, p))
    for k in range(clients):
        n = 12 + 3 * k
        d = np.full(n, k % 2)
        if k in (0, clients - 1):
            d[: n // 3] = 1 - k % 2
        y = random.randint(0, classes, n)
        xs.append(centre[d, y] + random.standard_normal((n, p)))
        ys.append(y)
        true.append(d)
    return fedlib.stack_clients(xs, ys, ids=[5, 3, 8, 1, 9, 4]), true


def fit(data, **settings):
    settings = {"domains": 2, "classes": 2, "seed": 0, "iterations": 6, "temperature": 1.5, **settings}
    return federated_em(data, features=lambda x: x, dtype=DOUBLE, **settings)


def slow_em(data, start, iterations, temperature, classes, client_prior=True):
    """The same, one client, sample and feature after another."""
    clients = [[data.x[i].tolist() for i in data.index[k, : int(data.n[k])]] for k in range(len(data))]
    labels = [data.y[k, : len(c)].tolist() for k, c in enumerate(clients)]
    p, domains = len(clients[0][0]), start.shape[1]
    every = [x for c in clients for x in c]
    total = len(every)
    shift = [sum(x[j] for x in every) / total for j in range(p)]
    scale = [math.sqrt(sum((x[j] - shift[j]) ** 2 for x in every) / total) for j in range(p)]
    clients = [[[(x[j] - shift[j]) / scale[j] for j in range(p)] for x in c] for c in clients]
    m, v0 = [[0.0] * p for _ in range(classes)], [0.0] * p
    for y in range(classes):
        mine = [x for c, ls in zip(clients, labels, strict=True) for x, label in zip(c, ls, strict=True) if label == y]
        for j in range(p):
            m[y][j] = sum(x[j] for x in mine) / len(mine)
            v0[j] += sum((x[j] - m[y][j]) ** 2 for x in mine) / total
    r = [[start[k].tolist() for _ in c] for k, c in enumerate(clients)]

    def shares():
        if client_prior:
            return [[(sum(s[d] for s in rows) + 1) / (len(rows) + domains) for d in range(domains)] for rows in r]
        one = [(sum(s[d] for rows in r for s in rows) + 1) / (total + domains) for d in range(domains)]
        return [one] * len(r)

    pi, objective = shares(), []
    for _ in range(iterations):
        mu = [[[0.0] * p for _ in range(classes)] for _ in range(domains)]
        var = [[[0.0] * p for _ in range(classes)] for _ in range(domains)]
        value = 0.0
        for d in range(domains):
            for y in range(classes):
                pairs = [(r[k][i][d], clients[k][i]) for k in range(len(clients)) for i in range(len(clients[k]))
                         if labels[k][i] == y]  # fmt: skip
                n = sum(w for w, _ in pairs)
                for j in range(p):
                    mean = (sum(w * x[j] for w, x in pairs) + 2 * m[y][j]) / (n + 2)
                    around = sum(w * (x[j] - mean) ** 2 for w, x in pairs) + 2 * (mean - m[y][j]) ** 2
                    variance = max((around + 20 * v0[j]) / (n + 20), 0.01)
                    mu[d][y][j], var[d][y][j] = mean, variance
                    value -= (mean - m[y][j]) ** 2 / variance + 10 * (math.log(variance) + v0[j] / variance)
        for k, rows in enumerate(clients):
            for i, x in enumerate(rows):
                y = labels[k][i]
                joint = []
                for d in range(domains):
                    log = sum(
                        -0.5 * ((x[j] - mu[d][y][j]) ** 2 / var[d][y][j] + math.log(2 * math.pi * var[d][y][j]))
                        for j in range(p)
                    )
                    joint.append(pi[k][d] * math.exp(log / temperature))
                value += temperature * math.log(sum(joint))
                r[k][i] = [z / sum(joint) for z in joint]
        for one in pi if client_prior else pi[:1]:
            value += temperature * sum(math.log(z) for z in one)
        objective.append(value / total)
        pi = shares()
    return r, pi, mu, var, objective


@pytest.mark.parametrize(("classes", "client_prior"), [(2, True), (2, False), (1, True)])
def test_em_equals_loops_over_clients_and_samples(classes, client_prior):
    data, _ = planted()
    data = data if classes > 1 else replace(data, y=0 * data.y)  # one class asks for no label
    found = fit(data, classes=classes, client_prior=client_prior)
    r, pi, mean, variance, objective = slow_em(data, found.start, 6, 1.5, classes, client_prior)
    for k, rows in enumerate(r):
        torch.testing.assert_close(found.r[k, : len(rows)], torch.tensor(rows, dtype=DOUBLE), rtol=0, atol=1e-10)
        assert not found.r[k, len(rows) :].any()
    for ours, slow in [(found.pi, pi), (found.mean, mean), (found.variance, variance), (found.objective, objective)]:
        torch.testing.assert_close(ours, torch.tensor(slow, dtype=DOUBLE), rtol=0, atol=1e-10)
    soft = found.r[..., 0] * (1 - found.r[..., 0])
    assert float(soft.sum()) > 0.05  # not all decided: the comparison means something


def test_start_is_kmeans_on_standardised_means_and_mean_squares():
    data, _ = planted()
    rows = [data.x[data.index[k, : int(data.n[k])]] for k in range(6)]
    every = torch.cat(rows)
    rows = [(x - every.mean(0)) / every.std(0, correction=0) for x in rows]
    each = torch.stack([torch.cat([x.mean(0), (x**2).mean(0)]) for x in rows])
    assert torch.equal(fit(data, domains=3, seed=7).start.argmax(1), kmeans(each, 3, 7).assignment)


def test_em_finds_planted_domains_in_clients_of_two():
    data, true = planted()
    found = fit(data, iterations=15)
    assert nmi(true, found.start[:, None] * (found.r.sum(-1, keepdim=True) > 0)) < 0.8
    assert nmi(true, found.r) > 0.9
    torch.testing.assert_close(found.pi[0].sort().values, torch.tensor([5.0, 9]).to(DOUBLE) / 14, rtol=0, atol=0.02)


@pytest.mark.parametrize(("temperature", "client_prior"), [(1.0, True), (2.5, True), (1.0, False)])
def test_no_iteration_lowers_the_objective(temperature, client_prior):
    for seed in range(5):
        data, _ = planted(seed)
        found = fit(data, temperature=temperature, client_prior=client_prior, iterations=25, domains=3, seed=seed)
        assert found.objective.diff().min() > -1e-12
        assert found.objective[-1] > found.objective[0] + 1e-3


def test_nothing_depends_on_the_order_of_samples_or_on_padding():
    data, _ = planted()
    found = fit(data)
    longer = fedlib.ClientData(
        data.x,
        torch.cat([data.index, data.index[:, :1].expand(-1, 4)], 1),
        torch.cat([data.y, data.y[:, :1].expand(-1, 4)], 1),
        data.n,
        data.id,
    )
    other = fit(longer)
    torch.testing.assert_close(other.r[:, :-4], found.r, rtol=0, atol=1e-10)
    assert not other.r[:, -4:].any()

    index, y = data.index.clone(), data.y.clone()
    shuffles = [torch.from_numpy(np.random.RandomState(k).permutation(n)) for k, n in enumerate(data.n.tolist())]
    for k, s in enumerate(shuffles):
        index[k, : len(s)], y[k, : len(s)] = index[k][s], y[k][s]
    other = fit(fedlib.ClientData(data.x, index, y, data.n, data.id))
    for k, s in enumerate(shuffles):
        torch.testing.assert_close(other.r[k, : len(s)], found.r[k][s], rtol=0, atol=1e-10)


def test_messages_weigh_what_the_notes_say():
    data = fedlib.stack_clients([normal(3, 1, 10, 12, seed=k).float() for k in range(5)], [[0, 1, 9]] * 5)
    with open_costs() as ledger:
        federated_em(data, 4, 10, 0, iterations=3)
        entry = ledger.entries["domains"]
    first, each = 4 * (1 + 2 * 64), 4 * 4 * 10 * (1 + 2 * 64)
    assert each == 20_640
    assert entry["bytes_up"] == 5 * (first + 3 * (each + 4))
    assert entry["bytes_down"] == 5 * (4 * (2 * 64 + 4) + 3 * 4 * 4 * 10 * 2 * 64)
    assert entry["server_seconds"] > 0 and set(ledger.entries) == {"domains"}
    with open_costs() as one:
        federated_em(data, 4, 10, 0, iterations=3, client_prior=False)
    assert one.total("bytes_up") == entry["bytes_up"]
    assert one.total("bytes_down") == entry["bytes_down"] + 5 * 3 * 4 * 4  # pi too


def test_scores_with_labels_repeat_the_training_and_without_labels_mix_the_classes():
    data, true = planted()
    found = fit(data, iterations=30)
    r, pi = found.score(data, pi=found.pi)
    torch.testing.assert_close(r, found.r, rtol=0, atol=1e-4)  # EM has converged
    assert torch.equal(pi, found.pi)

    own_r, own_pi = found.score(data[[2, 0]], iterations=50)
    torch.testing.assert_close(own_pi, found.pi[[2, 0]], rtol=0, atol=1e-3)
    torch.testing.assert_close(own_r, found.r[[2, 0]], rtol=0, atol=1e-2)
    assert not own_r[0, int(data.n[2]) :].any()

    blind, _ = found.score(data, pi=found.pi, labels=False)
    relabelled = fedlib.ClientData(data.x, data.index, 1 - data.y, data.n, data.id)
    assert torch.equal(found.score(relabelled, pi=found.pi, labels=False)[0], blind)
    share = found.weight / found.weight.sum(1, keepdim=True)
    torch.testing.assert_close(found.weight.sum(), torch.tensor(1.0, dtype=DOUBLE))
    for k in (0, 3):
        for i in (0, 5):
            x = (data.x[data.index[k, i]] - found.shift) / found.scale
            joint = torch.zeros(2, dtype=DOUBLE)
            for d in range(2):
                for y in range(2):
                    density = (
                        torch.distributions.Normal(found.mean[d, y], found.variance[d, y].sqrt()).log_prob(x).sum()
                    )
                    joint[d] += found.pi[k, d] * share[d, y] * (density / 1.5).exp()
            torch.testing.assert_close(blind[k, i], joint / joint.sum(), rtol=0, atol=1e-10)


def test_degenerate_data_stays_finite():
    x = torch.zeros(12, 3, dtype=DOUBLE)
    x[:, 1] = torch.arange(12.0)  # two constant features
    data = fedlib.stack_clients(list(x.split(4)), [[0, 0, 2, 2]] * 3)  # class 1 has no sample
    for settings in ({"domains": 1}, {"domains": 3}):
        found = fit(data, classes=3, **settings)
        for values in (found.r, found.pi, found.objective, found.mean, found.variance):
            assert values.isfinite().all()
        assert (found.variance >= 0.01).all()
        torch.testing.assert_close(found.r.sum(-1), torch.ones(3, 4, dtype=DOUBLE))
        assert found.score(data, labels=False)[0].isfinite().all()
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"domains": 7}, "1 to the number of clients, 6"), ({"iterations": 0}, "iterations must be a whole number")],
)
def test_em_refuses(settings, message):
    with pytest.raises(ValueError, match=message):
        fit(planted()[0], **settings)
    with pytest.raises(ValueError, match="give 8 numbers, fewer than size=64"):
        RandomFeatures((1, 4, 4), 0)(normal(2, 1, 4, 4))


def test_on_rotated_images_the_classes_and_the_own_priors_matter():
    """Bars of the measured ablation, on few images: stripes of four directions, a width for each class."""
    random = np.random.RandomState(0)
    y = random.randint(0, 3, 600)
    rows, columns = np.mgrid[:12, :12]
    waves = [np.sin(rows / (1 + c)) * (columns < 4 + 2 * c) for c in range(3)]
    x = np.stack([waves[c] for c in y])[:, None] + 0.7 * random.standard_normal((600, 1, 12, 12))
    part = mixture(rotation(iid(y, 20, 0), seed=0), 0.5, 0.3, 0)
    data = part.clients(x.astype(np.float32), y)
    full = federated_em(data, 4, 3, 0)
    score = nmi(part.sample_group, full.r)
    assert score > nmi(part.sample_group, full.start[:, None].expand_as(full.r)) + 0.2
    assert full.r.dtype == torch.float32 and not full.r.requires_grad
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert occupancy(full.r.sum((0, 1)))[1] > 0.8
