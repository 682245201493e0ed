"""Tables 3 and 4 on other images: arms side by side are the library's runs, and domains are what they say."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fedlib
from book.experiments import fedcg_clusters as clusters
from book.experiments import fedcg_codes as chapter
from book.experiments.fedcg_femnist import EqualNet
from book.experiments.worlds import EXACT, LowRank, loss_of
from fedlib.algorithms import FedAvg
from fedlib.client.domain_net import DomainClassifier, part
from fedlib.extensions import FedCGKnownDomains
from fedlib.params import row, to_matrix

ARMS = {arm.name: arm for arm in chapter.ARMS}
pytestmark = pytest.mark.filterwarnings("ignore:FedCG ended with round")  # these runs are short


@dataclass(frozen=True)
class Fixed(LowRank):
    """The library's graph with a matrix A that stays."""

    A: Tensor = None

    def propagate(self, params, V, A):
        if "R" not in params:
            return self.A @ V
        return super().propagate(params, V, self.A)


class NoW(Fixed):
    """Without W."""

    def init(self, q, seed, layer=""):
        return {}


def clients(size=9):
    draw = np.random.RandomState(3)
    xs = [draw.randint(0, 256, (n, 1, 14, 14)).astype(np.uint8) for n in (size, 6, 3, 8, 5)]
    some = fedlib.stack_clients(xs, [draw.randint(10, size=len(x)) for x in xs], classes=10, pixels=True)
    w = F.one_hot(torch.as_tensor(draw.randint(chapter.D, size=(5, size))), chapter.D) * some.real[..., None]
    return some.with_columns(w_d=w.float())


SHORT = chapter.SETTINGS | {"rounds": 3, "cohort": 3, "batch_size": 4, "rates": [0.1, 0.3]}


@pytest.mark.parametrize("name", ["FedAvg", "FedCG, no graph", "FedCG U", "FedCG H W ReLU", "FedCG H ReLU"])
def test_an_arm_is_the_librarys_run(name):
    """With its second rate."""
    arm, data = ARMS[name], clients()
    ours = row(
        chapter.train(SHORT, data, chapter.arms_of(SHORT, data, [arm], 5, torch.float64), 5, dtype=torch.float64), 1
    )
    bare = replace(data, columns={})
    how = {"lr": 0.3, "batch_size": 4, "epochs": 1}
    if arm.modules:
        student = DomainClassifier((1, 14, 14), chapter.D, "pooled", (1,), (7,))
        net = EqualNet(chapter.NETWORK, chapter.D, chapter.LAYERS, student)
        graph = (Fixed if "W" in arm.parts else NoW)(relu="ReLU" in arm.parts, A=chapter.adjacency(arm.A).double())
        told = {"teacher": lambda *_: data.columns["w_d"], "weights": "teacher", "net": net, "gcn": graph}
        rule = FedCGKnownDomains(loss_of(net), predict=net, **told, **how)
    else:
        net, rule = chapter.NETWORK, FedAvg(loss_of(chapter.NETWORK), predict=chapter.NETWORK, **how)
    state = fedlib.fit(rule, net.init(5), bare, 3, 3, seed=5, **EXACT).state
    theirs = {n: p for held in ("models", "modules", "graph") for n, p in getattr(state, held, {}).items()}
    shared = [n for n in ours if n in theirs]
    assert len(shared) == len(theirs) >= len(chapter.NETWORK.shapes())
    for n in shared:
        torch.testing.assert_close(ours[n], theirs[n][0], atol=1e-12, rtol=1e-9)
    assert (ours["conv1.weight"] - net.init(5)["conv1.weight"]).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["GCN U", "GCN H W"])
def test_gcn_has_a_network_for_each_domain_and_no_shared_filters(name):
    arm, draw = ARMS[name], torch.Generator().manual_seed(0)
    start = chapter.NET.init(0)
    start |= chapter.W.start(start, chapter.LAYERS, 0)
    params = {n: torch.randn(p.shape, generator=draw).double() for n, p in start.items()}
    flags = {n: torch.tensor(float(n in arm.parts)).double() for n in ("W", "ReLU")}
    flags |= {"own": torch.tensor(0.0).double(), "modules": torch.tensor(1.0).double()}
    A, x = chapter.adjacency(arm.A).double(), torch.rand(6, 1, 14, 14, generator=draw).double()
    domain = torch.tensor([0, 3, 31, 7, 7, 16])
    found = chapter.NET(chapter.connected(params, A, flags), x, F.one_hot(domain, chapter.D).double())
    for k, d in enumerate(domain):
        own = {n: p for n, p in params.items() if n.startswith("dense")}
        for layer in chapter.LAYERS:
            V, w = to_matrix(part(params, f"V.{layer}")), part(params, f"W.{layer}")
            hat = A @ (V @ (torch.eye(V.shape[1]).double() + w["P"] @ w["R"].mT) if "W" in arm.parts else V)
            size = start[f"{layer}.weight"].numel()
            own |= {f"{layer}.weight": hat[d, :size].view_as(start[f"{layer}.weight"]), f"{layer}.bias": hat[d, size:]}
        torch.testing.assert_close(found[k], chapter.NETWORK(own, x[k : k + 1])[0])


def test_separate_networks_are_federations_of_their_own():
    """With one batch of all rows a client's images of other domains have no part in it."""
    data, settings = clients(), SHORT | {"rounds": 2, "cohort": 5, "batch_size": 9, "rates": [0.2]}
    w = data.columns["w_d"]
    stack = chapter.train(settings, data, chapter.separate(settings, data, 2, torch.float64), 2, dtype=torch.float64)
    start, seen = chapter.NETWORK.init(2), 0
    for d in range(chapter.D):
        own = [(data.x[data.index[k][w[k, :, d] > 0]].numpy(), data.y[k][w[k, :, d] > 0].numpy()) for k in range(5)]
        own = [(x, y) for x, y in own if len(x)]
        if own:
            some = fedlib.stack_clients(*map(list, zip(*own, strict=True)), classes=10, pixels=True)
            rule = FedAvg(loss_of(chapter.NETWORK), lr=0.2, batch_size=None, epochs=1)
            wanted = fedlib.fit(rule, start, some, 2, **EXACT).state.models
            seen += len(own) > 1
        else:
            wanted = {n: p[None].double() for n, p in start.items()}
        for n, p in wanted.items():
            torch.testing.assert_close(stack[n][d], p[0], atol=1e-12, rtol=1e-9)
    assert seen > 3


def test_the_inverse_hamming_distance_by_hand():
    U, H = chapter.adjacency("U"), chapter.adjacency("H")
    assert U[0, 0] == H[5, 5] == 0.5 and U[3, 4] == pytest.approx(0.5 / 31)
    total = 5 / 1 + 10 / 2 + 10 / 3 + 5 / 4 + 1 / 5  # so many codes at each distance
    assert [float(H[0, d]) * total * 2 for d in (1, 3, 7, 15, 31)] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert torch.allclose(H, H.T) and torch.equal(chapter.adjacency("I"), torch.eye(32))


def test_a_code_names_the_changes(monkeypatch):
    x = np.random.RandomState(0).randint(0, 256, (500, 1, 28, 28)).astype(np.uint8)
    for i, change in enumerate(chapter.CHANGES.values()):
        alone = chapter.changed(x[:2], np.array([1 << (4 - i)] * 2))
        assert np.array_equal(alone, chapter.shrunk(change(torch.as_tensor(x[:2]).float()).numpy()))
        assert np.abs(alone.astype(int) - chapter.changed(x[:2], np.array([0, 0]))).mean() > 3
    arrays = chapter.datasets.Arrays(x, np.arange(500) % 10, stats=chapter.datasets.stats("mnist5k"))
    monkeypatch.setattr(chapter.datasets, "load", lambda data: arrays)
    train, choose, test = chapter.groups(chapter.SETTINGS | {"clients": [9, 3, 2], "images": [40, 20, 15]}, "", 1)
    assert train.n.tolist() == [40] * 9 and len(choose) == 3 and test.x.shape[1:] == (1, 14, 14)
    codes = chapter.CODES[train.columns["w_d"].argmax(-1)]  # (K, N, 5)
    assert [len(mine.unique(dim=0)) for mine in codes] == [4] * 9
    assert len({tuple(mine[0].tolist()) for mine in codes}) > 4


# ---- Table 4 ----


def test_k_means_gives_a_client_one_domain_and_a_new_one_the_nearest(monkeypatch):
    seen, real = [], clusters.algorithm_of
    monkeypatch.setattr(clusters, "algorithm_of", lambda *args: seen.append(args[-1]) or real(*args))
    monkeypatch.setattr(clusters, "MODELS", [clusters.Model("k-means", domains=2)])
    clusters.probe()
    (w,) = seen
    assert w.shape == (5, 8, 2) and (w == w[:, :1]).all() and (w.sum(-1) == 1).all() and 0 < w[:, 0, 0].sum() < 5


def test_a_random_graph_starts_with_rows_that_sum_to_one():
    rule = clusters.algorithm_of(clusters.SETTINGS, clusters.Model(A="rand", domains=3), chapter.NETWORK)
    A = rule.init(rule.net.init(0), clients(), fedlib.Key(0)).adjacency
    assert torch.allclose(A.sum(1), torch.ones(3)) and A.min() > 0 and len(A.unique()) == 9
