"""Split-half CFL with local layers: what split-half CFL is for the shared ones."""

from dataclasses import fields, replace

import numpy as np
import torch
from cfl_worlds import LOSS, conflicting
from reference import descend, flat
from twins import LOCAL, assert_same, client_data, largest_difference, ragged_clients, regression_loss, start_of, twin

import fedlib
from book.experiments.cfl_variants import OneCut
from fedlib.extensions import LGCFL, SplitHalfCFL, lg_cfl
from fedlib.params import number_of_rows, row
from fedlib.server.split_tree import walk

PARAMS = twin("MLP")[0]
OFTEN = {"level": 0.9, "every": 3, "test_epochs": 4}
RAGGED, GROUPS = client_data(ragged_clients()), client_data(conflicting())


def fit(algorithm, data=RAGGED, rounds=8, params=PARAMS, **more):
    return fedlib.fit(algorithm, params, data, rounds, seed=3, progress=False, **more)


def test_all_shared_is_split_half_cfl():
    kinds = LGCFL(LOSS, **LOCAL, **OFTEN, local=()), SplitHalfCFL(LOSS, **LOCAL, **OFTEN)
    ours, theirs = (fit(kind, GROUPS) for kind in kinds)
    held = {f.name: getattr(ours.state, f.name) for f in fields(theirs.state)}
    assert_same(type(theirs.state)(**held), theirs.state)
    costs = ["bytes_down", "bytes_up", "flops", "train_loss"]
    assert ours.history[costs].equals(theirs.history[costs]) and ours.state.splits


def test_clusters_go_on_as_federations_of_lg_fedavg():
    """From the split on, each cluster trains as LG-FedAvg does from the same state."""
    before, after = (fit(OneCut(LOSS, **LOCAL, after=3, min_size=1), rounds=t).state for t in (3, 4))
    assert number_of_rows(before.models) == 2
    lg = fedlib.algorithms.LGFedAvg(LOSS, **LOCAL, assignment=before.assignment)
    state = replace(lg.init(PARAMS, RAGGED, fedlib.Key(3)), models=before.models, local=before.local)
    update = lg.train(state, RAGGED, torch.arange(len(RAGGED)), fedlib.Key(3, 4))
    assert largest_difference(after.models, lg.aggregate(state, update).models) <= 1e-12
    assert largest_difference(after.local, update.client_state["local"]) == 0


NET = fedlib.models.MLP((5, 8, 6, 1))
loss, START = regression_loss(NET), start_of(NET)
PLANTED = {"lr": 0.05, "batch_size": None, "epochs": 5}


def planted(ids, seed, n=30):
    """Clients that see one or two columns, padded; every second one has its target turned around and moved."""
    random, clients = np.random.RandomState(seed), {}
    for k in ids:
        x = np.concatenate([random.standard_normal((n, 1 + k % 3)), np.zeros((n, 4 - k % 3))], 1)
        clients[k] = torch.from_numpy(x), torch.from_numpy((-1) ** k * (2 + np.abs(x).sum(1)))
    return client_data(clients)


START_LOCAL = {name: START[name] for name in ("dense1.weight", "dense1.bias")}


def test_what_new_clients_are_given_by_hand(monkeypatch):
    """One node: fit the local layer to it, train once, compare; then fit the local layer to the cluster's model."""
    algorithm = OneCut(loss, **PLANTED, after=2)
    state = fit(algorithm, planted(range(8), 0), 4, START).state
    (cut,), one = state.splits, planted([21], 1)
    x, y, _ = one.all_rows(torch.float64)

    def train(theta, steps, names=None):
        return descend(lambda p, _: ((NET(p, x[0])[:, 0] - y[0]) ** 2).mean(), theta, range(steps), 0.05, names)

    node = {n: p[0] for n, p in cut.start.items()}
    theta = train(train(START | node, 3 * 5, START_LOCAL), 5)
    moved, seen = {n: theta[n] - node[n] for n in node}, []
    update = flat(moved)
    sides = [flat(row({n: cut.directions[n] for n in node}, s)) for s in (0, 1)]
    cosine = [float(update @ d / d.norm()) for d in sides]
    goes = cut.new if cosine[1] > cosine[0] else 0

    def watched(splits, clients, first_update):
        return walk(splits, clients, lambda shared: seen.append(first_update(shared)) or seen[-1])

    monkeypatch.setattr(lg_cfl, "walk", watched)
    new = algorithm.new_clients(state, one, fedlib.Key(0), rounds=3)
    assert largest_difference(row(seen[0], 0), moved) <= 1e-10
    assert new.assignment.tolist() == [goes]
    expected = train(START | row(state.models, goes), 3 * 5, START_LOCAL)
    assert largest_difference(row(new.local, 0), {n: expected[n] for n in START_LOCAL}) <= 1e-10
