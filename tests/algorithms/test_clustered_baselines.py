"""IFCA, FeSEM, FedGroup and k-means on updates against slow loops written from their papers, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cfl_worlds import conflicting
from reference import cohort, drawn_starts, flat, mean, mean_by_examples, trained
from sklearn.cluster import KMeans
from torch.nn.functional import cross_entropy
from twins import SEED, client_data, count, fit, make, ragged_clients, rows_differ, twin

import fedlib
from fedlib import Key
from fedlib.algorithms import IFCA, ClusteredKMeans, FedGroup, FeSEM
from fedlib.algorithms.fedgroup import decomposed_cosines
from fedlib.statistics import cluster_scores

ROUNDS, COHORT = 4, 5
KEYS = [Key(SEED, t) for t in range(1, ROUNDS + 1)]
WARM = [FeSEM, FedGroup, ClusteredKMeans]


# --- the slow loops ---------------------------------------------------------------------------------------------------


def local_ends(module, starts, clients, key, **settings):
    """What clients end with that start each from its own."""
    return {k: trained(module, start, clients[k], k, key, **settings) for k, start in starts.items()}


def average_clusters(models, ends, cluster, average):
    """The mean of each cluster's clients; where there are none, the old model."""
    members = [{k: end for k, end in ends.items() if cluster[k] == m} for m in range(len(models))]
    return [average(mine) if mine else old for mine, old in zip(members, models, strict=True)]


def smallest_loss(module, models, data):
    losses = []
    for model in models:
        module.load_state_dict(model)
        losses.append(cross_entropy(module(data[0]), data[1]).item())
    return losses.index(min(losses))


def groups_of(points, clusters):
    """k-means without any projection, groups numbered by their first point."""
    labels = KMeans(clusters, n_init=50, random_state=0).fit(np.stack(points)).labels_.tolist()
    order = list(dict.fromkeys(labels))
    return [order.index(label) for label in labels]


def one_round(module, models, cluster, clients, drawn, key):
    """Of clustered FedAvg."""
    ends = local_ends(module, {k: models[cluster[k]] for k in drawn}, clients, key)
    return average_clusters(models, ends, cluster, lambda mine: mean_by_examples(mine, clients))


def compare(result, models, cluster, clients):
    assert result.state.assignment.tolist() == [cluster[k] for k in clients]
    assert rows_differ(result.state.models, models) <= 1e-10


@pytest.mark.parametrize(("network", "size"), [("MLP", 8), ("CNN", COHORT)])
def test_ifca(network, size, clients):
    params, _, module = twin(network)
    models, cluster, taken = drawn_starts(params, 3), dict.fromkeys(clients, 0), []
    for key in KEYS:
        drawn = cohort(clients, size, key)
        cluster |= {k: smallest_loss(module, models, clients[k]) for k in drawn}
        taken.append({cluster[k] for k in drawn})
        models = one_round(module, models, cluster, clients, drawn, key)
    assert len(set.union(*taken)) > 1 and (size == 8 or min(map(len, taken)) < 3)  # that nobody takes is left alone
    compare(fit(IFCA, clients, network, ROUNDS, size, clusters=3)[1], models, cluster, clients)


@pytest.mark.parametrize(("network", "size"), [("MLP", 12), ("CNN", COHORT)])
def test_fesem(network, size):
    params, _, module = twin(network)
    clients = conflicting(3, 4)
    own = local_ends(module, dict.fromkeys(clients, params), clients, Key(SEED, 0), epochs=6)
    cluster = dict(zip(clients, groups_of([flat(model).numpy() for model in own.values()], 3), strict=True))
    centres = average_clusters([params] * 3, own, cluster, lambda mine: mean(mine.values()))
    for key in KEYS:
        ends = local_ends(module, {k: centres[cluster[k]] for k in cohort(clients, size, key)}, clients, key)
        for k, end in ends.items():
            distance = [float((flat(end) - flat(centre)).norm()) for centre in centres]
            cluster[k] = distance.index(min(distance))
        centres = average_clusters(centres, ends, cluster, lambda mine: mean(mine.values()))
    compare(fit(FeSEM, clients, network, ROUNDS, size, clusters=3, warmup=6)[1], centres, cluster, clients)


def cold_start(params, updates, drawn):
    """FedGroup's: groups of those drawn by decomposed cosines, the others by directions; where the groups begin."""
    vectors = {k: flat(u).numpy() for k, u in updates.items()}
    _, _, directions = np.linalg.svd(np.stack([vectors[k] for k in drawn]))
    cosines = [[v @ d / np.linalg.norm(v) for d in directions[:3]] for v in (vectors[k] for k in drawn)]
    cluster = dict(zip(drawn, groups_of(cosines, 3), strict=True))
    towards = [mean(updates[k] for k in drawn if cluster[k] == m) for m in range(3)]
    for k in set(updates) - set(drawn):
        alike = [float(torch.cosine_similarity(flat(updates[k]), flat(d), dim=0)) for d in towards]
        cluster[k] = alike.index(max(alike))
    return cluster, [{n: params[n] + d[n] for n in params} for d in towards]


FOUND = [(ClusteredKMeans, "MLP", COHORT, None), (ClusteredKMeans, "CNN", 12, None)]
FOUND += [(FedGroup, "MLP", 12, 6), (FedGroup, "CNN", COHORT, 12), (FedGroup, "MLP", COHORT, 6)]


@pytest.mark.parametrize(("kind", "network", "size", "drawn"), FOUND)
def test_clusters_that_a_first_training_finds(kind, network, size, drawn, monkeypatch):
    monkeypatch.setattr("fedlib.algorithms.fedgroup._DRAWN", 20 if drawn == 12 else 2)  # for each of three groups
    params, _, module = twin(network)
    clients = conflicting(3, 4)
    ends = local_ends(module, dict.fromkeys(clients, params), clients, Key(SEED, 0), epochs=6)
    updates = {k: {n: end[n] - params[n] for n in end} for k, end in ends.items()}
    cluster = dict(zip(clients, groups_of([flat(u).numpy() for u in updates.values()], 3), strict=True))
    models = [params] * 3
    if kind is FedGroup:
        places = Key(SEED).choose(torch.tensor(list(clients)), drawn, "cold start")
        cluster, models = cold_start(params, updates, [list(clients)[k] for k in places])
    for key in KEYS:
        models = one_round(module, models, cluster, clients, cohort(clients, size, key), key)
    compare(fit(kind, clients, network, ROUNDS, size, clusters=3, warmup=6)[1], models, cluster, clients)


# --- single steps -----------------------------------------------------------------------------------------------------


def test_an_update_of_zeros_has_no_direction():
    """Updates on two axes, which are the singular vectors."""
    cosines = decomposed_cosines(torch.tensor([[3.0, 0, 0], [-4.0, 0, 0], [0, 2.0, 0], [0, 0, 0]]), 2)
    assert cosines.abs().tolist() == [[1, 0], [1, 0], [0, 1], [0, 0]] and cosines[0, 0] == -cosines[1, 0]


def test_who_is_drawn_stays_in_its_group():
    """Updates at 0, 30, 42, 80 and 80 degrees: the groups are the first three and the last two.

    The client at 42 degrees stays in its group, though the other group's direction, 80, is nearer than that of its own,
    about 1. A newcomer at 42 degrees goes to it.
    """
    angles, lengths = torch.tensor([0, 30, 42, 80, 80]).deg2rad(), torch.tensor([100.0, 1, 1, 1, 2])
    update = {"w": torch.stack([angles.cos(), angles.sin()], 1).double() * lengths[:, None]}
    algorithm, data = make(FedGroup, clusters=2), client_data(ragged_clients())[:5]
    state = algorithm.group(algorithm.init({"w": torch.zeros(2).double()}, data, Key(SEED)), update, data, Key(SEED))
    assert state.assignment.tolist() == [0, 0, 0, 1, 1]
    assert algorithm.place(state, {"w": update["w"][2:3]}).tolist() == [1]


# --- memory and chance -----------------------------------------------------------------------------------------------


def test_ifca_compares_in_chunks_that_fit(clients, monkeypatch):
    params, _, module = twin("CNN")
    algorithm, data = make(IFCA, "CNN", clusters=4), client_data(clients)
    models = algorithm.init(params, data, Key(SEED)).models
    expected = [smallest_loss(module, drawn_starts(params, 4), xy) for xy in clients.values()]
    assert algorithm.choose(models, data).tolist() == expected and len(set(expected)) > 1
    monkeypatch.setattr("fedlib.algorithms.ifca.clients_at_once", lambda *_: 3 * 4)
    seen, loss = [], algorithm.loss
    watched = replace(algorithm, loss=lambda p, b: (seen.append(1), loss(p, b))[1])
    assert watched.choose(models, data).tolist() == expected
    assert len(seen) == 4 * 3 + 1  # chunks of 3, 3 and 2 clients, and one example whose operations are counted


@pytest.mark.parametrize("algorithm", WARM)
def test_the_first_training_knows_no_stragglers_and_any_seed(algorithm):
    for seed in (-1, 2**63 - 1):
        settings = {"rounds": 1, "clusters": 3, "seed": seed}
        a, b = (fit(algorithm, conflicting(3, 4), stragglers=s, **settings)[1].state for s in (0.0, 0.9))
        assert torch.equal(a.centres, b.centres) and not torch.equal(*(s.models["dense1.bias"] for s in (a, b)))


# --- costs -----------------------------------------------------------------------------------------------------------


def test_costs_of_ifca(clients):
    """All models down and compared for all examples, one up with its weight and its number."""
    history, forward = fit(IFCA, clients, cohort=COHORT, clusters=3)[1].history, 2 * (36 * 8 + 8 * 4)
    examples = [sum(len(clients[k][1]) for k in cohort(clients, COHORT, key)) for key in KEYS]
    assert history["flops (clustering)"].tolist() == [3 * n * forward for n in examples]
    assert (history["flops"] - history["flops (clustering)"]).tolist() == [2 * n * 3 * forward for n in examples]
    size, columns = 8 * count(twin("MLP")[0]), ["bytes_down", "bytes_up"]
    assert (history[columns] == [COHORT * 3 * size, COHORT * (size + 8 + 8)]).all(axis=None)
    of_clusters = history[[f"{column} (clustering)" for column in columns]]
    assert (of_clusters == [COHORT * 2 * size, COHORT * 8]).all(axis=None)


# --- planted groups --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [IFCA, *WARM])
def test_planted_groups_are_told_apart_and_new_clients_join_them(algorithm):
    clients, group = conflicting(3, 6), np.arange(18) % 3
    old, new = ({k: xy for i, (k, xy) in enumerate(clients.items()) if (i < 12) == known} for known in (True, False))
    made, result = fit(algorithm, old, rounds=10, clusters=3, seed=3)  # IFCA misses seeds 2, 7 and 9
    assert cluster_scores(group[:12], result.state.assignment)["ari"] == 1
    enrolled = fedlib.new_clients(made, result, client_data(new))
    both = torch.cat([result.state.assignment, enrolled.state.assignment])
    assert cluster_scores(group, both)["ari"] == 1
    assert fedlib.evaluate(made, enrolled, client_data(new))["accuracy"].mean() > 0.9


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_ifca_allows_more_clusters_than_clients():
    state = fit(IFCA, ragged_clients(sizes=(5, 9)), clusters=4)[1].state
    assert len(state.models["dense1.bias"]) == 4 and len(state.assignment) == 2


@pytest.mark.parametrize("algorithm", WARM)
def test_a_first_training_that_diverges(algorithm, clients):
    x, y = clients[16]
    message = "client 16 became NaN or infinite in round 0; lower the learning rate"
    with pytest.raises(FloatingPointError, match=message):
        fit(algorithm, clients | {16: (x * 1e200, y)}, clusters=3)
