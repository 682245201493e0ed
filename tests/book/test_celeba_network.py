"""LEAF's network for CelebA with a module for each domain, and the runs of the paper's setting, on generated images."""

import importlib
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from twins import close, count, normal

import fedlib
from book.experiments.celeba import CelebACNN, CelebANet, scores_by_client
from fedlib.algorithms import FedAvg
from fedlib.server.domain_graph import DomainGCN

SMALL = CelebACNN((2, 11, 9), filters=3, blocks=3, classes=2)  # odd sides at each block


def test_leafs_network():
    params = CelebACNN().init(0)
    assert count(params) == 31_202
    assert params["dense1.weight"].shape == (2, 32 * 6 * 6)  # 84, 42, 21, 11, 6
    assert CelebACNN()(params, torch.rand(2, 3, 84, 84)).shape == (2, 2)
    with_modules = CelebANet(CelebACNN(), 4, ("conv4",)).init(0)
    assert all(torch.equal(p, with_modules[name]) for name, p in params.items())
    assert count(with_modules) == 31_202 + 4 * (9 * 32 * 32 + 3 * 32) + 1
    assert (with_modules["V.conv4.gamma"] == 1).all() and (with_modules["V.conv4.beta"] != 0).all()


def by_hand(net, params, x, w_d, real):
    """Eq. 4 with a loop over samples and domains; moments over all pixels of the real rows."""
    samples = [image[None] for image in x]

    def mixed(layer, k, function):
        out = function(lambda kind: params[f"{layer}.{kind}"])
        for d in range(net.domains if layer in net.layers else 0):
            out = out + params[f"lam.{layer}"] * w_d[k, d] * function(lambda kind, d=d: params[f"V.{layer}.{kind}"][d])
        return out

    def each(layer, function):
        return [mixed(layer, k, lambda p, s=s: function(s, p("weight"), p("bias"))) for k, s in enumerate(samples)]

    for layer in ("conv1", "conv2", "conv3"):
        z = each(layer, partial(F.conv2d, padding=1))
        pixels = torch.cat([one for one, counts in zip(z, real, strict=True) if counts])
        mean, variance = pixels.mean((0, 2, 3)), pixels.var((0, 2, 3), correction=0)
        samples = []
        for k, one in enumerate(z):
            gamma, beta = (mixed(layer, k, lambda p, kind=kind: p(kind)) for kind in ("gamma", "beta"))
            x_hat = (one - mean[:, None, None]) / torch.sqrt(variance + 1e-3)[:, None, None]
            out = gamma[:, None, None] * x_hat + beta[:, None, None]
            samples.append(torch.relu(F.max_pool2d(out, 2, ceil_mode=True)))
    return torch.cat(each("dense1", lambda s, weight, bias: F.linear(s.flatten(1), weight, bias)))


@pytest.mark.parametrize("layers", [("conv3",), ("conv1", "conv2", "conv3", "dense1")], ids=["last", "all"])
def test_equation_4_by_hand(layers):
    """Away from a start where gamma is 1 and beta 0."""
    net = CelebANet(SMALL, 3, layers)
    params = {n: p.double() + 0.3 * normal(*p.shape, seed=2 + k) for k, (n, p) in enumerate(net.init(0).items())}
    x, w_d, real = normal(5, 2, 11, 9), normal(5, 3, seed=1).softmax(-1), torch.tensor([1, 1, 0, 1, 0]).double()
    close(net(params, x, w_d, real), by_hand(net, params, x, w_d, real), atol=1e-12)
    assert net(params, x, w_d, 0 * real).isfinite().all(), "of a client without a row in the batch"


def federation(image, classes, sizes=(5, 3, 4), seed=0):
    xs = [normal(n, *image, seed=seed + k).float() for k, n in enumerate(sizes)]
    ys = [torch.arange(n) % classes for n in sizes]
    return fedlib.stack_clients(xs, ys, ids=[10 * seed + k for k in range(len(sizes))])


def test_scores_take_the_rows_of_a_client_as_one_batch():
    data = federation((2, 11, 9), 2)
    plain = FedAvg(lambda p, b: fedlib.losses.cross_entropy(SMALL(p, b[0], b[2]), *b[1:]), predict=SMALL, batch_size=2)
    result = fedlib.fit(plain, SMALL.init(0), data, 1, progress=False)
    table = scores_by_client(SMALL, plain, result, data)
    assert list(table.columns) == ["id", "n", "accuracy"]
    for k, n in enumerate((5, 3, 4)):
        right = SMALL(fedlib.params.row(result.state.models, 0), data.x[data.index[k, :n]]).argmax(1) == data.y[k, :n]
        assert table["accuracy"][k] == pytest.approx(float(right.double().mean()))


@pytest.mark.filterwarnings("ignore:the domains collapsed")  # of a random teacher
@pytest.mark.parametrize("name", ["CelebA", "FEMNIST"])
def test_the_papers_setting_from_training_to_clients_never_seen(name, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_CHECKPOINTS", str(tmp_path))
    chapter = importlib.import_module("book.experiments.fedcg_graph")
    classifier = fedlib.client.domain_net.DomainClassifier((2, 11, 9), 3, channels=(3, 4))
    plain, gcn = SMALL, DomainGCN()
    net = CelebANet(plain, 3, ("conv3",), classifier)
    if name == "FEMNIST":
        plain, gcn = fedlib.models.CNN((2, 11, 9), (3, 3), (4, 2)), DomainGCN("bottleneck", factor=4)
        net = fedlib.client.domain_net.DomainNet(plain, 3, ("conv2",), classifier)
    settings = chapter.PAPER[name] | {"rounds": 2, "cohort": 2}
    train, test = federation((2, 11, 9), 2), federation((2, 11, 9), 2, (2, 6), seed=7)
    scores = chapter.on_new_clients(name, net, gcn, train, test, settings, 0)
    assert all(0 <= scores[title] <= 1 for title in ("FedAvg", "FedCG")) and scores["lambda"] != 1
    _, algorithm = chapter.printed(net, gcn, 40)["FedCG"]
    assert (algorithm.refresh, algorithm.warm_up, algorithm.student_lr, algorithm.beta) == (4, 4, 1e-4, 0.5)
    defaults = type(algorithm)(algorithm.loss, net=net, gcn=gcn, predict=net)
    assert replace(algorithm, refresh=10, warm_up=10) == defaults  # all else is a default
