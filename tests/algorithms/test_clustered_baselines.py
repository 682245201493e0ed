"""IFCA, FeSEM, FedGroup and k-means on updates against slow loops written from their papers, in float64."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import reference
import torch
from sklearn.cluster import KMeans
from torch.nn.functional import cross_entropy
from twins import SIZES, classification_loss, client_data, largest_difference, ragged_clients, twin

import fedlib
from fedlib import Key, datasets, partition
from fedlib.algorithm import Update
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.fedgroup import FedGroup, decomposed_cosines
from fedlib.algorithms.fesem import FeSEM
from fedlib.algorithms.ifca import IFCA
from fedlib.algorithms.kmeans import ClusteredKMeans, KMeansState
from fedlib.params import row
from fedlib.statistics import cluster_scores

SEED, ROUNDS, COHORT = 7, 4, 5
LOCAL = {"lr": 0.1, "batch_size": 8, "epochs": 2}
ALL = [IFCA, FeSEM, FedGroup, ClusteredKMeans]
WARM = [FeSEM, FedGroup, ClusteredKMeans]


def planted(groups=3, each=4, seed=0, first=0):
    """Ragged clients of groups that call the same inputs by other names; float64. Client number k is of group k % M."""
    centres = np.random.RandomState(100).standard_normal((4, 1, 6, 6))
    random = np.random.RandomState(seed)
    clients = {}
    for k in range(first, first + groups * each):
        y = random.randint(0, 4, 20 + 7 * k % 23)
        x = centres[y] + 0.3 * random.standard_normal((len(y), 1, 6, 6))
        clients[5 + 7 * k] = (torch.from_numpy(x), torch.from_numpy((y + k % groups) % 4))
    return clients


def fit(algorithm, clients, network="MLP", rounds=ROUNDS, cohort=None, **settings):
    params, predict, _ = twin(network)
    if isinstance(algorithm, type):
        algorithm = algorithm(classification_loss(predict), **LOCAL, **settings)
    return fedlib.fit(algorithm, params, client_data(clients), rounds, cohort, seed=SEED, progress=False)


def make(algorithm, network="MLP", **settings):
    return algorithm(classification_loss(twin(network)[1]), **(LOCAL | settings))


def rows(stack):
    return [row(stack, m) for m in range(len(next(iter(stack.values()))))]


def flat(params):
    return torch.cat([p.reshape(-1) for p in params.values()])


# --- the slow loops ---------------------------------------------------------------------------------------------------


def train(module, start, client, data, t, epochs=LOCAL["epochs"]):
    module.load_state_dict(start)
    reference.local_training(
        module,
        *data,
        client=client,
        key=Key(SEED, t),
        batch_size=LOCAL["batch_size"],
        epochs=epochs,
        optimizer=partial(torch.optim.SGD, lr=LOCAL["lr"]),
        criterion=cross_entropy,
    )
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def mean(models, weights=None):
    weights = weights or [1] * len(models)
    return {n: sum(w / sum(weights) * m[n] for w, m in zip(weights, models, strict=True)) for n in models[0]}


def cohort_of(t, clients, size):
    ids = list(clients)
    return [ids[k] for k in Key(SEED, t).choose(torch.tensor(ids), size, "cohort")]


def average_clusters(models, ends, cluster, weight):
    """The weighted mean of each cluster's clients; where there are none, the old model."""
    new = []
    for m, old in enumerate(models):
        mine = [k for k in ends if cluster[k] == m]
        new.append(mean([ends[k] for k in mine], [weight[k] for k in mine]) if mine else old)
    return new


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
    ends = {k: train(module, params, k, xy, 0, warmup) for k, xy in clients.items()}
    return {k: {n: end[n] - params[n] for n in end} for k, end in ends.items()}


def federate(module, models, cluster, clients, cohort):
    """Clustered FedAvg with fixed clusters."""
    weight = {k: len(xy[1]) for k, xy in clients.items()}
    for t in range(1, ROUNDS + 1):
        ends = {k: train(module, models[cluster[k]], k, clients[k], t) for k in cohort_of(t, clients, cohort)}
        models = average_clusters(models, ends, cluster, weight)
    return models


def compare(result, models, cluster, clients):
    assert result.state.assignment.tolist() == [cluster[k] for k in clients]
    for ours, theirs in zip(rows(result.state.models), models, strict=True):
        assert largest_difference(ours, theirs) <= 1e-10


@pytest.mark.parametrize(("network", "cohort"), [("MLP", 8), ("CNN", COHORT)])
def test_ifca(network, cohort, clients):
    params, _, module = twin(network)
    algorithm = make(IFCA, network, clusters=3)
    result = fit(algorithm, clients, network, cohort=cohort)
    models = rows(algorithm.init(params, client_data(clients), Key(SEED)).models)
    weight, cluster, seen = {k: len(xy[1]) for k, xy in clients.items()}, dict.fromkeys(clients, 0), set()
    for t in range(1, ROUNDS + 1):
        here = cohort_of(t, clients, cohort)
        cluster |= {k: smallest_loss(module, models, clients[k]) for k in here}
        seen |= {cluster[k] for k in here}
        ends = {k: train(module, models[cluster[k]], k, clients[k], t) for k in here}
        models = average_clusters(models, ends, cluster, weight)
    assert len(seen) > 1
    compare(result, models, cluster, clients)


@pytest.mark.parametrize(("network", "cohort"), [("MLP", COHORT), ("CNN", 12)])
def test_kmeans(network, cohort):
    params, _, module = twin(network)
    clients = planted()
    result = fit(ClusteredKMeans, clients, network, cohort=cohort, clusters=3, warmup=6)
    updates = first_updates(module, params, clients, 6)
    cluster = dict(zip(clients, groups_of([flat(u).numpy() for u in updates.values()], 3), strict=True))
    compare(result, federate(module, [params] * 3, cluster, clients, cohort), cluster, clients)


@pytest.mark.parametrize(("network", "cohort"), [("MLP", 12), ("CNN", COHORT)])
def test_fesem(network, cohort):
    params, _, module = twin(network)
    clients = planted()
    result = fit(FeSEM, clients, network, cohort=cohort, clusters=3, warmup=6)
    own = {k: train(module, params, k, xy, 0, 6) for k, xy in clients.items()}
    cluster = dict(zip(clients, groups_of([flat(model).numpy() for model in own.values()], 3), strict=True))
    weight = dict.fromkeys(clients, 1)
    centres = average_clusters([params] * 3, own, cluster, weight)
    for t in range(1, ROUNDS + 1):
        ends = {k: train(module, centres[cluster[k]], k, clients[k], t) for k in cohort_of(t, clients, cohort)}
        for k, end in ends.items():
            distance = [float((flat(end) - flat(centre)).norm()) for centre in centres]
            cluster[k] = distance.index(min(distance))
        centres = average_clusters(centres, ends, cluster, weight)
    compare(result, centres, cluster, clients)


@pytest.mark.parametrize(("network", "cohort", "per_group"), [("MLP", 12, 2), ("CNN", COHORT, 20), ("MLP", COHORT, 2)])
def test_fedgroup(network, cohort, per_group, monkeypatch):
    monkeypatch.setattr("fedlib.algorithms.fedgroup._DRAWN", per_group)
    params, _, module = twin(network)
    clients = planted()
    result = fit(FedGroup, clients, network, cohort=cohort, clusters=3, warmup=6)
    updates = first_updates(module, params, clients, 6)
    drawn = [list(clients)[k] for k in Key(SEED).choose(torch.tensor(list(clients)), min(6, 12), "cold start")]
    drawn = list(clients) if per_group == 20 else drawn
    vectors = {k: flat(u).numpy() for k, u in updates.items()}
    _, _, directions = np.linalg.svd(np.stack([vectors[k] for k in drawn]))
    cosines = [[v @ d / np.linalg.norm(v) for d in directions[:3]] for v in (vectors[k] for k in drawn)]
    cluster = dict(zip(drawn, groups_of(cosines, 3), strict=True))
    towards = [mean([updates[k] for k in drawn if cluster[k] == m]) for m in range(3)]
    for k in set(clients) - set(drawn):
        alike = [float(torch.cosine_similarity(flat(updates[k]), flat(d), dim=0)) for d in towards]
        cluster[k] = alike.index(max(alike))
    models = [{n: params[n] + d[n] for n in params} for d in towards]
    compare(result, federate(module, models, cluster, clients, cohort), cluster, clients)


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_fesem_moves_a_client_to_the_nearest_centre():
    """Centres 0 and 10. Models 4, 6 and 9 of clients 0, 1 and 3: 4 goes to 0; 6 and 9 go to 10, whose mean is 7.5.

    Client 2 is not in the cohort and stays; client 0 came from the other centre.
    """
    algorithm = FeSEM(classification_loss(None), clusters=2)
    models = {"w": torch.tensor([[0.0], [10.0]])}
    state = KMeansState(models, torch.tensor([1, 0, 0, 1]), {"w": torch.zeros(1, 1)}, torch.zeros(2, 1))
    update = Update(torch.tensor([0, 1, 3]), per_client={"model": {"w": torch.tensor([[4.0], [6.0], [9.0]])}})
    new = algorithm.aggregate(state, update)
    assert new.assignment.tolist() == [0, 1, 0, 1]
    assert new.models["w"].tolist() == [[4.0], [7.5]]


def test_fesem_keeps_a_centre_without_models():
    algorithm = FeSEM(classification_loss(None), clusters=2)
    models = {"w": torch.tensor([[0.0], [10.0]])}
    state = KMeansState(models, torch.tensor([1, 1]), {"w": torch.zeros(1, 1)}, torch.zeros(2, 1))
    new = algorithm.aggregate(state, Update(torch.arange(2), per_client={"model": {"w": torch.tensor([[1.0], [3.0]])}}))
    assert new.assignment.tolist() == [0, 0] and new.models["w"].tolist() == [[2.0], [10.0]]


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
    moved, before = [], None

    def callback(t, state, entry):
        nonlocal before
        if before is not None:
            moved.append(sum(bool((state.models["dense1.weight"][m] != before[m]).any()) for m in range(3)))
        before = state.models["dense1.weight"]

    params = twin("MLP")[0]
    made, data = make(algorithm, clusters=3), client_data(planted())
    fedlib.fit(made, params, data, 6, 1, seed=SEED, callbacks=[callback], progress=False)
    assert moved == [1] * 5


# --- what equals what ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("network", "cohort"), [("MLP", COHORT), ("CNN", None)])
@pytest.mark.parametrize("algorithm", ALL)
def test_one_cluster_is_fedavg(algorithm, network, cohort):
    """To the last bit; where the models start from a first training, so does FedAvg.

    Clients have equally many examples, by which FeSEM does not weigh them.
    """
    clients = ragged_clients((20,) * 8) if algorithm is FeSEM else ragged_clients()
    params, _, _ = twin(network)
    ours = make(algorithm, network, clusters=1)
    data = client_data(clients)
    start = row(ours.prepare(ours.init(params, data, Key(SEED)), data, Key(SEED)).models, 0)
    if algorithm in (IFCA, ClusteredKMeans):
        assert largest_difference(start, params) == 0
    else:
        assert largest_difference(start, params) > 1e-3
    found = fedlib.fit(ours, params, data, ROUNDS, cohort, seed=SEED, progress=False).state.models
    plain = fedlib.fit(make(FedAvg, network), start, data, ROUNDS, cohort, seed=SEED, progress=False).state.models
    tolerance = 1e-12 if algorithm is FeSEM else 0  # sums of 20 theta_k, over 20 K, round otherwise
    assert largest_difference(found, plain) <= tolerance


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
    params, data = twin("MLP")[0], client_data(planted())
    for seed in (-1, 2**63 - 1):
        a, b = (
            fedlib.fit(make(algorithm, clusters=3, stragglers=s), params, data, 1, seed=seed, progress=False).state
            for s in (0.0, 0.9)
        )
        assert torch.equal(a.centres, b.centres) and not torch.equal(*(s.models["dense1.bias"] for s in (a, b)))


# --- costs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cohort", "clusters"), [(COHORT, 1), (None, 3)])
def test_costs_of_ifca(cohort, clusters, clients):
    history, c = fit(IFCA, clients, cohort=cohort, clusters=clusters).history, cohort or len(clients)
    size = 8 * sum(p.numel() for p in twin("MLP")[0].values())
    assert history["round"].tolist() == [1, 2, 3, 4]
    assert (history["bytes_down"] == c * clusters * size).all()
    assert (history["bytes_up"] == c * (size + 8 + 8)).all()  # the model, its weight, its number
    if clusters > 1:
        assert (history["bytes_down (clustering)"] == c * (clusters - 1) * size).all()
    assert (history["bytes_up (clustering)"] == c * 8).all()
    sizes = dict(zip(clients, SIZES, strict=True))
    examples = [sum(sizes[k] for k in cohort_of(t, clients, c)) for t in range(1, ROUNDS + 1)]
    forward = 2 * (36 * 8 + 8 * 4)
    assert history["flops (clustering)"].tolist() == [clusters * n * forward for n in examples]
    assert (history["flops"] - history["flops (clustering)"]).tolist() == [2 * n * 3 * forward for n in examples]


@pytest.mark.parametrize("algorithm", WARM)
def test_costs_of_the_first_training(algorithm):
    clients = planted()
    history = fit(algorithm, clients, cohort=COHORT, clusters=3, warmup=4).history
    size = 8 * sum(p.numel() for p in twin("MLP")[0].values())
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


@pytest.mark.parametrize(
    ("algorithm", "network"),
    [(IFCA, "CNN"), (FeSEM, "MLP"), (FedGroup, "CNN"), (ClusteredKMeans, "MLP"), (IFCA, "MLP")],
)
def test_finds_planted_groups_and_the_place_of_new_clients(algorithm, network):
    seen, new = planted(), planted(seed=5, first=300)
    cnn = partial(fedlib.models.CNN, (1, 6, 6), channels=(6, 8), widths=(4,), kernel=3, padding=1)
    model = fedlib.models.MLP((36, 16, 4)) if network == "MLP" else cnn()
    params = {name: p.double() for name, p in model.init(0).items()}
    made = algorithm(classification_loss(model), lr=0.1, batch_size=10, epochs=3, clusters=3)
    result = fedlib.fit(made, params, client_data(seen), 10, progress=False)  # IFCA misses 2 of the first 8 seeds
    group = np.arange(12) % 3
    found = result.state.assignment.numpy()
    assert cluster_scores(group, found)["ari"] == 1
    enrolled = fedlib.new_clients(made, result, client_data(new)).state.assignment
    assert enrolled.tolist() == [found[k % 3] for k in range(300, 312)]


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


def test_mistakes_are_told():
    for algorithm, settings, message in (
        (IFCA, {"clusters": 0}, "clusters must be a whole number of at least 1; got 0"),
        (ClusteredKMeans, {"clusters": 2.5}, "clusters must be a whole number of at least 1; got 2.5"),
        (FedGroup, {"clusters": "3"}, "clusters must be a whole number of at least 1; got '3'"),
        (FeSEM, {"warmup": 0}, "warmup must be a whole number of at least 1; got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            make(algorithm, **settings)


@pytest.mark.parametrize("algorithm", WARM)
def test_more_clusters_than_clients(algorithm, clients):
    with pytest.raises(ValueError, match="clusters must be from 1 to the number of clients, 8; got 9"):
        fit(algorithm, clients, clusters=9)


def test_ifca_allows_more_clusters_than_clients():
    state = fit(IFCA, ragged_clients(sizes=(5, 9)), clusters=4).state
    assert len(state.models["dense1.bias"]) == 4 and len(state.assignment) == 2


@pytest.mark.parametrize("algorithm", WARM)
def test_a_first_training_that_diverges(algorithm, clients):
    x, y = clients[16]
    wild = clients | {16: (x * 1e200, y)}
    with pytest.raises(
        FloatingPointError, match="client 16 became NaN or infinite in round 0; lower the learning rate"
    ):
        fit(algorithm, wild, clusters=2)


def test_constant_parameters_make_no_starts_for_ifca(clients):
    zeros = {n: 0 * p for n, p in twin("MLP")[0].items()}
    with pytest.raises(ValueError, match="all models start equal"):
        fedlib.fit(make(IFCA, clusters=2), zeros, client_data(clients), 1, progress=False)
