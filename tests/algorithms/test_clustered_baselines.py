"""IFCA, FeSEM, FedGroup and k-means on updates against slow loops written from their papers, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import cohort, flat, mean, mean_by_examples, trained
from sklearn.cluster import KMeans
from torch.nn.functional import cross_entropy
from twins import LOCAL, SEED, classification_loss, client_data, count, largest_difference, make, ragged_clients, twin
from twins import fit as fit_on

import fedlib
from fedlib import Key, datasets, partition
from fedlib.algorithm import Update
from fedlib.algorithms.fedgroup import FedGroup, decomposed_cosines
from fedlib.algorithms.fesem import FeSEM
from fedlib.algorithms.ifca import IFCA
from fedlib.algorithms.kmeans import ClusteredKMeans, KMeansState
from fedlib.params import row
from fedlib.statistics import cluster_scores

ROUNDS, COHORT = 4, 5
KEYS = [Key(SEED, t) for t in range(1, ROUNDS + 1)]
ALL = [IFCA, FeSEM, FedGroup, ClusteredKMeans]
WARM = [FeSEM, FedGroup, ClusteredKMeans]


def planted():
    """Twelve ragged clients of three groups that call the same inputs by other names; float64."""
    centres = np.random.RandomState(100).standard_normal((4, 1, 6, 6))
    random = np.random.RandomState(0)
    clients = {}
    for k in range(12):
        y = random.randint(0, 4, 20 + 7 * k % 23)
        x = centres[y] + 0.3 * random.standard_normal((len(y), 1, 6, 6))
        clients[5 + 7 * k] = (torch.from_numpy(x), torch.from_numpy((y + k % 3) % 4))
    return clients


def fit(kind, clients, network="MLP", size=None, rounds=ROUNDS, **settings):
    return fit_on(kind, clients, network, rounds, size, **({"clusters": 3} | settings))[1]


def rows(stack):
    return [row(stack, m) for m in range(len(next(iter(stack.values()))))]


# --- the slow loops ---------------------------------------------------------------------------------------------------


def local_ends(module, starts, clients, key, **settings):
    """What clients end with that start each from its own."""
    return {k: trained(module, start, clients[k], k, key, **(LOCAL | settings)) for k, start in starts.items()}


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


def first_updates(module, params, clients, warmup):
    ends = local_ends(module, dict.fromkeys(clients, params), clients, Key(SEED, 0), epochs=warmup)
    return {k: {n: end[n] - params[n] for n in end} for k, end in ends.items()}


def one_round(module, models, cluster, clients, drawn, key):
    """Of clustered FedAvg."""
    ends = local_ends(module, {k: models[cluster[k]] for k in drawn}, clients, key)
    return average_clusters(models, ends, cluster, lambda mine: mean_by_examples(mine, clients))


def compare(result, models, cluster, clients):
    assert result.state.assignment.tolist() == [cluster[k] for k in clients]
    for ours, theirs in zip(rows(result.state.models), models, strict=True):
        assert largest_difference(ours, theirs) <= 1e-10


@pytest.mark.parametrize(("network", "size"), [("MLP", 8), ("CNN", COHORT)])
def test_ifca(network, size, clients):
    params, _, module = twin(network)
    models = rows(make(IFCA, network, clusters=3).init(params, client_data(clients), Key(SEED)).models)
    cluster, seen = dict.fromkeys(clients, 0), set()
    for key in KEYS:
        drawn = cohort(clients, size, key)
        cluster |= {k: smallest_loss(module, models, clients[k]) for k in drawn}
        seen |= {cluster[k] for k in drawn}
        models = one_round(module, models, cluster, clients, drawn, key)
    assert len(seen) > 1
    compare(fit(IFCA, clients, network, size), models, cluster, clients)


@pytest.mark.parametrize(("network", "size"), [("MLP", 12), ("CNN", COHORT)])
def test_fesem(network, size):
    params, _, module = twin(network)
    clients = planted()
    own = local_ends(module, dict.fromkeys(clients, params), clients, Key(SEED, 0), epochs=6)
    cluster = dict(zip(clients, groups_of([flat(model).numpy() for model in own.values()], 3), strict=True))
    centres = average_clusters([params] * 3, own, cluster, lambda mine: mean(mine.values()))
    for key in KEYS:
        ends = local_ends(module, {k: centres[cluster[k]] for k in cohort(clients, size, key)}, clients, key)
        for k, end in ends.items():
            distance = [float((flat(end) - flat(centre)).norm()) for centre in centres]
            cluster[k] = distance.index(min(distance))
        centres = average_clusters(centres, ends, cluster, lambda mine: mean(mine.values()))
    compare(fit(FeSEM, clients, network, size, warmup=6), centres, cluster, clients)


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


@pytest.mark.parametrize(
    ("kind", "network", "size", "drawn"),
    [
        (ClusteredKMeans, "MLP", COHORT, None),
        (ClusteredKMeans, "CNN", 12, None),
        (FedGroup, "MLP", 12, 6),
        (FedGroup, "CNN", COHORT, 12),
        (FedGroup, "MLP", COHORT, 6),
    ],
)
def test_clusters_that_a_first_training_finds(kind, network, size, drawn, monkeypatch):
    monkeypatch.setattr("fedlib.algorithms.fedgroup._DRAWN", 20 if drawn == 12 else 2)  # for each of three groups
    params, _, module = twin(network)
    clients = planted()
    updates = first_updates(module, params, clients, 6)
    cluster = dict(zip(clients, groups_of([flat(u).numpy() for u in updates.values()], 3), strict=True))
    models = [params] * 3
    if kind is FedGroup:
        places = Key(SEED).choose(torch.tensor(list(clients)), drawn, "cold start")
        cluster, models = cold_start(params, updates, [list(clients)[k] for k in places])
    for key in KEYS:
        models = one_round(module, models, cluster, clients, cohort(clients, size, key), key)
    compare(fit(kind, clients, network, size, warmup=6), models, cluster, clients)


# --- by hand ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "cohort", "models", "after", "centres"),
    [
        # 4 goes to 0; 6 and 9 go to 10, whose mean is 7.5; client 2 is not in the cohort and stays
        ([1, 0, 0, 1], [0, 1, 3], [4.0, 6.0, 9.0], [0, 1, 0, 1], [4.0, 7.5]),
        # nobody is near 10, which stays
        ([1, 1], [0, 1], [1.0, 3.0], [0, 0], [2.0, 10.0]),
    ],
)
def test_fesem_by_hand(before, cohort, models, after, centres):
    """Centres 0 and 10: a client of the cohort moves to the nearest, and a centre to the mean of its clients."""
    start = {"w": torch.tensor([[0.0], [10.0]])}
    state = KMeansState(start, torch.tensor(before), {"w": torch.zeros(1, 1)}, torch.zeros(2, 1))
    update = Update(torch.tensor(cohort), per_client={"model": {"w": torch.tensor(models)[:, None]}})
    new = FeSEM(classification_loss(None), clusters=2).aggregate(state, update)
    assert new.assignment.tolist() == after and new.models["w"][:, 0].tolist() == centres


def test_decomposed_cosines_of_a_plane():
    """Three updates on the first axis and one on the second, longest first: the axes are the singular vectors."""
    updates = torch.tensor([[3.0, 0, 0], [-4.0, 0, 0], [0, 2.0, 0], [5.0, 0, 0], [0, 0, 0]])
    cosines = decomposed_cosines(updates, 2)
    signs = torch.stack([cosines[0, 0], cosines[2, 1]])
    expected = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [1, 0], [0, 0]])
    assert torch.allclose(cosines * signs, expected.double(), atol=1e-15) and (signs.abs() == 1).all()


def test_fedgroup_groups_by_directions_not_lengths():
    """Updates at 0, 30, 42, 80 and 80 degrees, the first of them long: the groups are the first three and the last two.

    k-means on the updates themselves would set the long one apart. The client at 42 degrees stays in its group, though
    the other group's direction, 80, is nearer than that of its own, about 1. A newcomer at 42 degrees goes to it.
    """
    angles, lengths = torch.tensor([0, 30, 42, 80, 80]).deg2rad(), torch.tensor([100.0, 1, 1, 1, 2])
    update = {"w": torch.stack([angles.cos(), angles.sin()], 1).double() * lengths[:, None]}
    algorithm, data = FedGroup(classification_loss(None), clusters=2), client_data(ragged_clients())[:5]
    state = algorithm.init({"w": torch.tensor([5.0, 7.0]).double()}, data, Key(SEED))
    state = algorithm.group(state, update, data, Key(SEED))
    assert state.assignment.tolist() == [0, 0, 0, 1, 1]
    means = torch.stack([update["w"][:3].mean(0), update["w"][3:].mean(0)])
    assert torch.allclose(state.models["w"], means + torch.tensor([5.0, 7.0])) and torch.allclose(state.centres, means)
    assert algorithm.place(state, {"w": update["w"][2:3]}).tolist() == [1]


def test_ifca_draws_its_starts():
    params = {"w": torch.randn(200, 50, generator=torch.Generator().manual_seed(0)) + 3, "gain": torch.ones(5)}
    params["other"] = params["w"].clone()
    data = client_data(ragged_clients())

    def starts(seed=1):
        return IFCA(classification_loss(None), clusters=3).init(params, data, Key(seed)).models

    models = starts()
    assert torch.equal(models["w"][0], params["w"]) and torch.equal(models["gain"], torch.ones(3, 5))
    for m in (1, 2):
        assert abs(models["w"][m].mean() - params["w"].mean()) < 0.05
        assert abs(models["w"][m].std() - params["w"].std()) < 0.05
        assert abs(torch.corrcoef(torch.stack([models["w"][m].flatten(), params["w"].flatten()]))[0, 1]) < 0.05
    assert abs(torch.corrcoef(models["w"][1:].flatten(1))[0, 1]) < 0.05
    assert not torch.equal(models["other"][1:], models["w"][1:])
    assert torch.equal(starts()["w"], models["w"]) and not torch.equal(starts(2)["w"][1], models["w"][1])


def test_ifca_leaves_alone_a_model_that_nobody_takes(clients):
    params, data = twin("MLP")[0], client_data(clients)
    algorithm = make(IFCA, clusters=3)
    models = {n: torch.stack([p, p * 0.9, 1000 * p + 7]) for n, p in params.items()}
    state, everybody = replace(algorithm.init(params, data, Key(SEED)), models=models), torch.arange(len(data))
    end = algorithm.aggregate(state, algorithm.train(state, data, everybody, Key(SEED, 1)))
    assert set(end.assignment.tolist()) == {0, 1}
    assert largest_difference(row(end.models, 2), row(models, 2)) == 0
    assert largest_difference(row(end.models, 1), row(models, 1)) > 1e-3


@pytest.mark.parametrize("algorithm", ALL)
def test_a_cluster_without_clients_in_the_cohort_keeps_its_model(algorithm):
    """With one client a round, one model moves in each round."""
    seen = []
    fit(algorithm, planted(), size=1, rounds=6, callbacks=[lambda t, state, entry: seen.append(state.models)])
    weights = torch.stack([models["dense1.weight"] for models in seen])
    assert (weights.diff(dim=0) != 0).flatten(2).any(2).sum(1).tolist() == [1] * 5


# --- memory and chance -----------------------------------------------------------------------------------------------


def test_ifca_compares_in_chunks_that_fit(clients, monkeypatch):
    params, _, module = twin("CNN")
    algorithm, data = make(IFCA, "CNN", clusters=4), client_data(clients)
    models = algorithm.init(params, data, Key(SEED)).models
    expected = [smallest_loss(module, rows(models), xy) for xy in clients.values()]
    assert algorithm.choose(models, data).tolist() == expected and len(set(expected)) > 1
    monkeypatch.setattr("fedlib.algorithms.ifca.clients_at_once", lambda *_: 3 * 4)
    seen, loss = [], algorithm.loss
    watched = replace(algorithm, loss=lambda p, b: (seen.append(1), loss(p, b))[1])
    assert watched.choose(models, data).tolist() == expected
    assert len(seen) == 4 * 3 + 1  # chunks of 3, 3 and 2 clients, and one example whose operations are counted


@pytest.mark.parametrize("algorithm", WARM)
def test_the_first_training_knows_no_stragglers_and_any_seed(algorithm):
    for seed in (-1, 2**63 - 1):
        a, b = (fit(algorithm, planted(), rounds=1, stragglers=s, seed=seed).state for s in (0.0, 0.9))
        assert torch.equal(a.centres, b.centres) and not torch.equal(*(s.models["dense1.bias"] for s in (a, b)))


# --- costs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("c", "clusters"), [(COHORT, 1), (8, 3)])
def test_costs_of_ifca(c, clusters, clients):
    history, size = fit(IFCA, clients, size=c, clusters=clusters).history, 8 * count(twin("MLP")[0])
    assert history["round"].tolist() == [1, 2, 3, 4]
    assert (history["bytes_down"] == c * clusters * size).all()
    assert (history["bytes_up"] == c * (size + 8 + 8)).all()  # the model, its weight, its number
    if clusters > 1:
        assert (history["bytes_down (clustering)"] == c * (clusters - 1) * size).all()
    assert (history["bytes_up (clustering)"] == c * 8).all()
    examples = [sum(len(clients[k][1]) for k in cohort(clients, c, key)) for key in KEYS]
    forward = 2 * (36 * 8 + 8 * 4)
    assert history["flops (clustering)"].tolist() == [clusters * n * forward for n in examples]
    assert (history["flops"] - history["flops (clustering)"]).tolist() == [2 * n * 3 * forward for n in examples]


@pytest.mark.parametrize("algorithm", WARM)
def test_costs_of_the_first_training(algorithm):
    clients = planted()
    history, size = fit(algorithm, clients, size=COHORT, warmup=4).history, 8 * count(twin("MLP")[0])
    first, later = history.iloc[0], history.iloc[1:]
    assert history["round"].tolist() == [0, 1, 2, 3, 4] and first["clients"] == 12
    for column in ("bytes_down", "bytes_up"):
        assert first[column] == first[f"{column} (clustering)"] == 12 * size
    examples = 4 * sum(len(xy[1]) for xy in clients.values())
    assert first["examples"] == first["examples (clustering)"] == examples
    assert first["flops"] == first["flops (clustering)"] == examples * 3 * 2 * (36 * 8 + 8 * 4)
    assert first["server_seconds (clustering)"] > 0
    assert (later["bytes_down"] == COHORT * size).all()
    assert (later["bytes_up"] == COHORT * (size + 8 * (algorithm is not FeSEM))).all()
    assert later[["bytes_down (clustering)", "bytes_up (clustering)"]].isna().all(axis=None)


# --- planted groups --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALL)
def test_permuted_labels_are_told_apart(algorithm):
    digits = datasets.load("mnist5k")
    order = np.random.RandomState(0).permutation(5000)
    x, y = digits.x.reshape(-1, 14, 2, 14, 2).mean((2, 4)).astype("uint8"), digits.y
    rows, held = order[:4000], order[4000:]
    dealt = partition.label_permutation(partition.iid(y[rows], 24), groups=4)
    data, test = dealt.clients(x[rows], y[rows]), dealt.tests(x[held], y[held])
    model = fedlib.models.MLP((196, 32, 10))
    made = algorithm(classification_loss(model), lr=0.1, batch_size=50, epochs=3, predict=model, clusters=4)
    old, new = torch.arange(20), torch.arange(20, 24)
    result = fedlib.fit(made, model.init(0), data[old], 10, seed=3, progress=False)  # IFCA misses seeds 0, 1, 2
    assert cluster_scores(dealt.group[:20], result.state.assignment)["ari"] == 1
    enrolled = fedlib.new_clients(made, result, data[new])
    both = torch.cat([result.state.assignment, enrolled.state.assignment])
    assert cluster_scores(dealt.group, both)["ari"] == 1
    assert fedlib.evaluation.evaluate(made, enrolled, test[new])["accuracy"].mean() > 0.6


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_ifca_allows_more_clusters_than_clients():
    state = fit_on(IFCA, ragged_clients(sizes=(5, 9)), clusters=4)[1].state
    assert len(state.models["dense1.bias"]) == 4 and len(state.assignment) == 2


@pytest.mark.parametrize("algorithm", WARM)
def test_a_first_training_that_diverges(algorithm, clients):
    x, y = clients[16]
    message = "client 16 became NaN or infinite in round 0; lower the learning rate"
    with pytest.raises(FloatingPointError, match=message):
        fit(algorithm, clients | {16: (x * 1e200, y)})


def test_constant_parameters_make_no_starts_for_ifca(clients):
    zeros = {n: 0 * p for n, p in twin("MLP")[0].items()}
    with pytest.raises(ValueError, match="all models start equal"):
        fedlib.fit(make(IFCA, clusters=2), zeros, client_data(clients), 1, progress=False)
