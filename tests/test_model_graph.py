"""Networks as graphs against a loop over weights; what the pair network may not depend on; planted rules."""

import math
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from twins import close

from book.experiments.pair_predictors import GainGCN, train_on_gains
from fedlib.server.model_graph import SiameseGCN, model_graph, train_siamese

LAYERS = ("dense2", "dense3", "dense4")
NETWORK = {"paper": partial(SiameseGCN, hidden=7), "book": partial(GainGCN, hidden=7)}
TRAIN = {"paper": train_siamese, "book": train_on_gains}


def networks(clients, sizes=(6, 5, 4, 1), seed=0, dtype=torch.float64):
    """Random stacks with a private first layer that no graph may look at."""
    random = np.random.RandomState(seed)
    stack = {"dense1.weight": random.standard_normal((clients, sizes[0], 3))}
    for name, (inputs, outputs) in zip(LAYERS, zip(sizes, sizes[1:], strict=False), strict=False):
        stack[f"{name}.weight"] = random.standard_normal((clients, outputs, inputs))
        stack[f"{name}.bias"] = random.standard_normal((clients, outputs))
    return {name: torch.from_numpy(p).to(dtype) for name, p in stack.items()}


def families(clients, seed=0):
    """Two families that differ in the distribution of the second layer; a pair across families is harmed."""
    stack = networks(clients, sizes=(24, 12, 1), seed=seed, dtype=torch.float32)
    family = torch.arange(clients) % 2
    skewed = torch.from_numpy(np.random.RandomState(seed + 1).exponential(size=(clients, 12, 24)) - 0.5).float()
    stack["dense2.weight"] = torch.where(family[:, None, None] == 1, skewed, stack["dense2.weight"])
    pairs = torch.combinations(torch.arange(clients))
    negative = family[pairs[:, 0]] != family[pairs[:, 1]]
    noise = torch.from_numpy(np.random.RandomState(seed + 2).standard_normal(len(pairs)))
    return model_graph(stack, LAYERS[:2]), pairs, negative, torch.where(negative, -1.0, 1.0) + 0.3 * noise


def siamese(graphs, network=NETWORK["book"]):
    net = network(graphs.x.shape[2], int(graphs.layer.max()) + 1).to(graphs.x.dtype)
    for i, p in enumerate(net.parameters()):  # biases too
        p.data += 0.3 * torch.from_numpy(np.random.RandomState(i).standard_normal(p.shape)).to(p)
    return net


def test_graph_is_what_a_loop_over_weights_draws():
    stack = networks(3)
    graphs = model_graph(stack, LAYERS)
    first = {"dense2": 0, "dense3": 6, "dense4": 11}  # where the inputs of a layer begin
    sizes = (6, 5, 4, 1)
    x, adjacency = torch.zeros(3, 16, 7, dtype=torch.float64), torch.zeros(3, 2, 16, 16, dtype=torch.float64)
    for layer, size, place in zip(range(4), sizes, (0, 6, 11, 15), strict=True):
        x[:, place : place + size, layer] = 1
    for k, (name, size) in product(range(3), zip(LAYERS, sizes, strict=False)):
        weight = stack[f"{name}.weight"][k]
        for o in range(weight.shape[0]):
            to = first[name] + size + o
            x[k, to, 4] = stack[f"{name}.bias"][k, o]
            x[k, to, 5] = math.hypot(*weight[o].tolist())
            for i in range(weight.shape[1]):
                node, w = first[name] + i, float(weight[o, i])
                x[k, node, 6] = math.hypot(*weight[:, i].tolist())
                adjacency[k, int(w < 0), node, to] = adjacency[k, int(w < 0), to, node] = abs(w)
    close(graphs.x, x, 1e-12)
    close(graphs.adjacency, adjacency, 0)
    assert graphs.layer.tolist() == [0] * 6 + [1] * 5 + [2] * 4 + [3]
    some = graphs[torch.tensor([2, 0])]
    assert len(graphs) == 3 and len(some) == 2
    assert some.x.equal(graphs.x[[2, 0]]) and some.adjacency.equal(adjacency[[2, 0]]) and some.layer.equal(graphs.layer)


def test_embedding_is_two_graph_convolutions_and_a_mean_for_each_layer():
    graphs = model_graph(networks(2), LAYERS)
    net = siamese(graphs)
    with torch.no_grad():
        for k in range(2):
            x = graphs.x[k]
            for convolutions in (net.first, net.second):
                total = 0
                for channel, convolution in enumerate(convolutions):
                    a = graphs.adjacency[k, channel] + torch.eye(16, dtype=torch.float64)
                    d = a.sum(1)
                    total = total + (a / (d[:, None] * d).sqrt()) @ x @ convolution.lin.weight.T + convolution.bias
                x = total.clamp(min=0)
            means = torch.cat([x[graphs.layer == j].mean(0) for j in range(4)])
            close(net.embed(graphs)[k], means)
            b = net.embed(graphs)[0]
            both = torch.cat([(means - b).abs(), means * b, means + b])
            close(net(graphs, torch.tensor([[k, 0]])), net.compare(both))


@pytest.mark.parametrize("recipe", TRAIN)
def test_exactly_symmetric(recipe):
    graphs = model_graph(networks(9, dtype=torch.float32), LAYERS)
    pairs = torch.combinations(torch.arange(9))
    net = siamese(graphs, NETWORK[recipe])
    assert net(graphs, pairs).equal(net(graphs, pairs.flip(1)))
    predictor = TRAIN[recipe]([graphs, graphs], pairs, torch.linspace(-1, 1, len(pairs)), epochs=3)
    assert predictor.score([graphs] * 2, pairs).equal(predictor.score([graphs] * 2, pairs.flip(1)))
    distance = predictor.distance([graphs] * 2)
    assert distance.equal(distance.T) and not distance.diagonal().any()
    assert distance.min() >= 0 and distance.max() <= 1 and len(distance.unique()) > 30
    score = predictor.score([graphs] * 2, pairs)
    torch.testing.assert_close(distance[pairs[:, 0], pairs[:, 1]], 1 / (1 + torch.exp(-score)))


@pytest.mark.parametrize(
    ("recipe", "kind"), [("paper", "negative"), ("paper", "equal"), ("book", "zero"), ("book", "huge")]
)
def test_no_nan(recipe, kind):
    change = {"negative": lambda p: -p.abs(), "zero": torch.zeros_like, "equal": lambda p: p[:1].expand_as(p)}
    stack = {name: change.get(kind, lambda p: 1e6 * p)(p) for name, p in networks(6, dtype=torch.float32).items()}
    graphs, pairs = model_graph(stack, LAYERS), torch.combinations(torch.arange(6))
    for gain in (torch.linspace(-1, 1, len(pairs)), torch.ones(len(pairs)), torch.zeros(len(pairs))):
        predictor = TRAIN[recipe]([graphs], pairs, gain, epochs=5)
        assert predictor.score([graphs], pairs).isfinite().all() and predictor.distance([graphs]).isfinite().all()


@pytest.mark.parametrize("recipe", TRAIN)
def test_planted_families_are_told_apart_in_networks_never_seen(recipe):
    graphs, pairs, negative, gain = families(40)
    seen, unseen = (pairs < 24).all(1), (pairs >= 24).all(1)
    predictor = TRAIN[recipe]([graphs], pairs[seen], gain[seen], epochs=50 if recipe == "book" else 150)
    score = predictor.score([graphs], pairs[unseen])
    assert roc_auc_score(negative[unseen], score) >= 0.95
    # and the balance point is where it should be: half of the scores on either side
    assert ((score > 0) == negative[unseen]).float().mean() > 0.8


def test_the_same_seed_gives_the_same_and_global_state_stays():
    graphs, pairs, _, gain = families(12)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    scores = [train_siamese([graphs], pairs, gain, s, epochs=4).score([graphs], pairs) for s in (0, 1)]
    assert torch.get_rng_state().equal(before)
    torch.manual_seed(6)
    again = train_siamese([graphs], pairs, gain, 0, epochs=4).score([graphs], pairs)
    assert scores[0].equal(again) and not torch.allclose(*scores)


def test_clients_outside_the_training_pairs_are_not_looked_at():
    graphs, pairs, _, gain = families(12)
    seen = (pairs < 8).all(1)
    spoiled = families(12)[0]
    spoiled.x[8:] = torch.nan
    spoiled.adjacency[8:] = torch.nan
    ways = [train_on_gains([g], pairs[seen], gain[seen], epochs=4) for g in (graphs, spoiled, graphs[:8])]
    scores = [way.score([graphs], pairs) for way in ways]
    assert scores[0].equal(scores[1]) and scores[0].equal(scores[2])


def test_the_paper_trains_on_all_pairs():
    """Nobody is held out: with nothing to learn but noise, it is learned by heart."""
    graphs, pairs, _, gain = families(8)
    noise = gain[torch.from_numpy(np.random.RandomState(0).permutation(len(gain)))]
    noise[0] = 0  # no gain is none
    score = train_siamese([graphs], pairs, noise).score([graphs], pairs)
    assert ((score > 0) == (noise <= 0)).all()


def test_snapshots_are_summed_in_units_of_their_deviation():
    graphs, pairs, _, gain = families(12)
    later = model_graph(networks(12, (24, 12, 1), 9, torch.float32), LAYERS[:2])
    both = train_on_gains([graphs, later], pairs, 1000 * gain, epochs=4)  # the scale of the gain does not matter
    total = 0
    for s, g in enumerate((graphs, later)):
        score = train_on_gains([g], pairs, gain, seed=1000 * s, epochs=4).score([g], pairs)
        torch.testing.assert_close(score.std(correction=0), torch.tensor(1.0))
        total = total + score
    torch.testing.assert_close(both.score([graphs, later], pairs), total)


@pytest.mark.parametrize("recipe", TRAIN)
def test_one_pair_has_no_deviation_to_divide_by(recipe):
    """Such as of a federation of two: its distance follows its gain; the book's others are neither 0 nor 1."""
    graphs, pairs, *_ = families(6)
    for gain, near in ((1.0, True), (-1.0, False)):
        predictor = TRAIN[recipe]([graphs], pairs[:1], torch.tensor([gain]), epochs=50)
        distance = predictor.distance([graphs])
        assert distance[0, 1] < 0.4 if near else distance[0, 1] > 0.6
        if recipe == "book":
            others = distance[~torch.eye(6, dtype=torch.bool)]
            assert predictor.networks[0].unit == 1 and 1e-4 < others.min() < others.max() < 1 - 1e-4
