"""FedCG's two settings of Section 4, from files to the accuracy on clients never seen, on small generated files."""

import json

import numpy as np
import pytest
import torch
from test_celeba import make_celeba

import fedlib
from fedlib import datasets
from fedlib.algorithms import FedCG
from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.datasets.faces import CelebACNN, CelebANet, celeba_clients, scores_by_client, split_users
from fedlib.evaluation import evaluate, pooled
from fedlib.losses import cross_entropy
from fedlib.models import femnist_cnn
from fedlib.params import count
from fedlib.partition import by_user
from fedlib.server.domain_graph import DomainGCN

# The paper's random teacher gives nearly all samples one domain, and the library says so.
pytestmark = pytest.mark.filterwarnings("ignore:the domains collapsed")

DOMAINS = 4


def celeba_preset(root=None, rounds=100, cohort=10, seed=0, fraction=(0.1, 0.2), verify=True, filters=32, **options):
    """CelebA as in the paper: 10 % of the celebrities train and 20 % test; domains in the last convolution.

    With 32 filters W is 9,312 x 9,312, 347 MB for each client of the cohort.
    """
    arrays = celeba_clients(root, fraction, seed=seed, verify=verify)
    train = by_user(arrays.writer).clients(arrays.x, arrays.y, classes=2)
    test = by_user(arrays.writer_test).clients(arrays.x_test, arrays.y_test, classes=2)
    student = DomainClassifier((3, 84, 84), DOMAINS)
    net = CelebANet(CelebACNN(filters=filters), DOMAINS, ("conv4",), student)

    def loss(params, batch, w_d=None):
        x, y, real = batch
        return cross_entropy(net(params, x, w_d, real), y, real)

    algorithm = FedCG.recipe("paper", rounds, loss=loss, lr=1e-3, batch_size=5, net=net, predict=net)
    result = fedlib.fit(algorithm, net.init(seed), train, rounds, cohort, seed=seed, **options)
    served = fedlib.new_clients(algorithm, result, test, seed=seed)
    return algorithm, result, scores_by_client(net, algorithm, served, test)  # LEAF's test: a client is a batch


def femnist_preset(path, rounds=1000, cohort=5, seed=0, factor=16, **options):
    """FEMNIST as in the paper: 60 % of the writers train, 20 % validate and 20 % test.

    With factor 16 the two matrices of W are 51,264 x 3,204 each, 1.3 GB for each client of the cohort.
    """
    arrays = datasets.leaf(path)
    parts = [[arrays.x, arrays.y, arrays.writer]]
    if arrays.x_test is not None:  # LEAF's own split does not matter here
        parts.append([arrays.x_test, arrays.y_test, arrays.writer_test])
    x, y, writer = (np.concatenate(part) for part in zip(*parts, strict=True))
    people = by_user(writer).clients(x, y, classes=62)
    train, validation, test = (
        people[torch.isin(people.id, torch.from_numpy(group))] for group in split_users(writer, seed=seed)
    )
    net = DomainNet(femnist_cnn(), DOMAINS, ("conv2",), DomainClassifier((1, 28, 28), DOMAINS))

    def loss(params, batch, w_d=None):
        x, y, real = batch
        return cross_entropy(net(params, x, w_d), y, real)

    gcn = DomainGCN("bottleneck", factor=factor)
    algorithm = FedCG.recipe("paper", rounds, loss=loss, lr=1e-3, batch_size=10, net=net, predict=net, gcn=gcn)
    result = fedlib.fit(algorithm, net.init(seed), train, rounds, cohort, seed=seed, **options)
    scores = {
        name: evaluate(algorithm, fedlib.new_clients(algorithm, result, some, seed=seed), some)
        for name, some in {"validation": validation, "test": test}.items()
    }
    return algorithm, result, scores


def as_the_paper_says(algorithm, result, rounds):
    assert (algorithm.teacher, algorithm.weights, algorithm.student_lr) == ("argmax", "hard", 1e-4)
    assert algorithm.refresh == algorithm.warm_up == max(1, rounds // 10)
    state = result.state
    assert state.round == rounds and not torch.equal(state.adjacency, torch.eye(DOMAINS).double())
    assert all(torch.equal(p, state.student[name]) for name, p in state.teacher.items())  # it was renewed
    assert np.isfinite(result.history["train_loss"]).all()
    assert (result.history["bytes_up (graph)"] > 0).all() and (result.history["bytes_up (domains)"] > 0).all()


def test_celeba(tmp_path):
    """A quarter of the filters: W is 600 x 600 in place of 9,312 x 9,312."""
    made = make_celeba(tmp_path, {person: 5 + person % 3 for person in range(1, 11)})
    small = {"fraction": (0.4, 0.3), "verify": False, "filters": 8, "cohort": 2, "progress": False}
    algorithm, result, scores = celeba_preset(tmp_path, rounds=2, **small)
    as_the_paper_says(algorithm, result, 2)
    assert len(result.ids) == 4 and len(scores) == 3 and not {*result.ids.tolist()} & {*scores["id"]}
    assert scores["n"].tolist() == [(made.persons == person).sum() for person in scores["id"]]
    assert 0 <= pooled(scores)["accuracy"] <= 1
    assert algorithm.batch_size == 5 and algorithm.gcn == DomainGCN() and algorithm.net.layers == ("conv4",)
    assert {name: p.shape[1:] for name, p in result.state.graph.items()} == {"W.conv4.W": (600, 600)}
    assert count(CelebACNN().init(0)) == 31_202  # what the paper trains
    again = celeba_preset(tmp_path, rounds=2, **small)
    assert all(torch.equal(p, again[1].state.models[name]) for name, p in result.state.models.items())


def leaf_file(path, people, random):
    """One file of LEAF's, with `people` and their numbers of characters."""
    data = {
        user: {"x": (random.randint(0, 256, (size, 784)) / 255).tolist(), "y": random.randint(0, 62, size).tolist()}
        for user, size in people.items()
    }
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"users": [*people], "num_samples": [*people.values()], "user_data": data}))


def test_femnist(tmp_path):
    """The bottleneck is 6 wide in place of 3,204, which would be 3.3e8 numbers for each client."""
    random = np.random.RandomState(0)
    leaf_file(tmp_path / "train/a.json", {f"f{k:02}_1": 4 + k for k in range(7)}, random)
    leaf_file(tmp_path / "test/a.json", {f"f{k:02}_1": 5 for k in range(7, 10)}, random)
    algorithm, result, scores = femnist_preset(tmp_path, rounds=2, cohort=2, factor=8192, progress=False)
    as_the_paper_says(algorithm, result, 2)
    groups = [{*result.ids.tolist()}, {*scores["validation"]["id"]}, {*scores["test"]["id"]}]
    assert [len(group) for group in groups] == [6, 2, 2] and set.union(*groups) == set(range(10))
    assert 0 <= pooled(scores["test"])["accuracy"] <= 1 and algorithm.batch_size == 10
    shapes = {name: tuple(p.shape[1:]) for name, p in result.state.graph.items()}
    assert shapes == {"W.conv2.W1": (51_264, 6), "W.conv2.W2": (6, 51_264)}
    assert 2 * 51_264 * (51_264 // 16) > 3.2e8
