"""Networks with domain modules: Eq. 4 of FedCG for one sample after another, its limits, and the domain classifier."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from twins import close, normal

from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.models import CNN, MLP

D = 3
NETS = {
    "MLP": MLP((36, 5, 6, 4)),
    "CNN": CNN((1, 6, 6), (2, 3), (5, 4), kernel=3, padding=1),
    "StridedCNN": CNN((1, 6, 6), (2, 3), (5, 4), 3, 1, pool=1, strides=(2, 1)),
    "pooled StridedCNN": CNN((1, 6, 6), (3,), (4,), 3, 1, pool=1, strides=(1,), pooled=True),
}
STUDENT = DomainClassifier((1, 6, 6), D, "flatten", (2, 3), (2, 1))
CHOICES = [
    ("MLP", ("dense2",)),
    ("MLP", ("dense1", "dense2", "dense3")),
    ("CNN", ("conv1",)),
    ("CNN", ("conv1", "conv2", "dense1", "dense2")),
    ("StridedCNN", ("conv2", "dense1")),
    ("pooled StridedCNN", ("conv1", "dense1")),
]


def moved(net, seed=0):
    """Parameters in float64, away from the start, so that lambdas differ and biases are not small."""
    return {n: p.double() + 0.2 * normal(*p.shape, seed=seed + i) for i, (n, p) in enumerate(net.init(seed).items())}


def weights(kind, samples=7):
    scores = normal(samples, D, seed=5)
    return F.one_hot(scores.argmax(-1), D).double() if kind == "hard" else scores.softmax(-1)


def slow(net, params, x, w):
    """Eq. 4, sample after sample and domain after domain."""
    convolutions = sum(name.startswith("conv") and name.endswith("weight") for name in net.net.init(0))
    denses, rows = len(net.net.init(0)) // 2 - convolutions, []
    for b in range(len(x)):

        def layer(name, f, z):
            out, (v, c) = f(z, params[f"{name}.weight"], params[f"{name}.bias"]), (f"V.{name}.weight", f"V.{name}.bias")
            for d in range(D if name in net.layers else 0):
                out = out + params[f"lam.{name}"] * w[b, d] * f(z, params[v][d], params[c][d])
            return out

        z = x[b : b + 1]
        for i in range(1, convolutions + 1):
            z = layer(f"conv{i}", partial(F.conv2d, stride=net.net.strides[i - 1], padding=1), z).relu()
            z = F.max_pool2d(z, net.net.pool)
        z = z.mean((2, 3)) if getattr(net.net, "pooled", False) else z.flatten(1)
        for i in range(1, denses + 1):
            z = layer(f"dense{i}", F.linear, z if i == 1 else z.relu())
        rows.append(z[0])
    return torch.stack(rows)


def test_modules_begin_beside_the_network_and_count_in_full():
    net = DomainNet(NETS["CNN"], D, ("conv2", "dense1"), STUDENT)
    params, plain = net.init(3), NETS["CNN"].init(3) | {f"student.{n}": p for n, p in STUDENT.init(3).items()}
    assert all(torch.equal(params[n], p) for n, p in plain.items()) and len(params) == len(plain) + 2 * 3
    assert params["lam.conv2"] == params["lam.dense1"] == 1


@pytest.mark.parametrize(("name", "layers"), CHOICES)
def test_equals_a_loop_over_samples(name, layers):
    net, x = DomainNet(NETS[name], D, layers), normal(7, 1, 6, 6, seed=2)
    params = moved(net)
    for w in (weights("hard"), weights("soft")):
        close(net(params, x, w), slow(net, params, x, w))


def test_weights_by_hand():
    net = DomainNet(NETS["MLP"], D, ("dense1",), STUDENT)
    params, x = moved(net), normal(7, 1, 6, 6, seed=2)
    logits = STUDENT({n[8:]: p for n, p in params.items() if n.startswith("student.")}, x)
    found, prior = net.weights(params, x), torch.tensor([0.5, 2.0, 3.0]).double()
    with_prior = net.weights(params | {"prior": prior}, x)
    for given, factor in ((found, torch.ones(D)), (with_prior, prior)):
        p = logits.double().exp() * factor
        close(given, p / p.sum(1, keepdim=True))
    close(net.weights(params | {"prior": 7 * torch.ones(D)}, x), found, 1e-12)
    close(net(params, x), net(params, x, found), 0)
    close(net(params | {"prior": prior}, x), slow(net, params, x, with_prior))


# ---- the classifier ----


@pytest.mark.parametrize("head", ["pooled", "flatten"])
def test_classifier_equals_plain_torch(head):
    classifier = DomainClassifier((2, 9, 7), D, head, (4, 5), (2, 1))
    params, x = moved(classifier), normal(5, 2, 9, 7)
    pool, inputs = {"pooled": ([nn.AdaptiveAvgPool2d(1)], 5), "flatten": ([], 5 * 5 * 4)}[head]
    convolutions = [nn.Conv2d(2, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 5, 3, 1, 1), nn.ReLU()]
    net = nn.Sequential(*convolutions, *pool, nn.Flatten(), nn.Linear(inputs, D)).double()
    net.load_state_dict(dict(zip(net.state_dict(), params.values(), strict=True)))
    close(classifier(params, x), net(x))


def test_classifier_of_the_paper():
    """Two convolutions of 32 and 64 filters, an average over the image, a linear layer (Section 4.1)."""
    shapes = {n: tuple(p.shape) for n, p in DomainClassifier((3, 84, 84), 4).init(0).items() if n.endswith("weight")}
    assert shapes == {"conv1.weight": (32, 3, 3, 3), "conv2.weight": (64, 32, 3, 3), "dense1.weight": (4, 64)}
