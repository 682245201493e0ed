"""Split-half CFL with local layers: what split-half CFL is for the shared ones."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from cfl_worlds import conflicting
from twins import classification_loss, client_data, largest_difference, ragged_clients, twin

import fedlib
from fedlib import Key
from fedlib.algorithms import CFL, LGFedAvg
from fedlib.extensions import LGCFL, SplitHalfCFL
from fedlib.losses import mse
from fedlib.models import MLP
from fedlib.params import number_of_rows

PARAMS, PREDICT, _ = twin("MLP")
LOSS = classification_loss(PREDICT)
LOCAL = {"lr": 0.1, "batch_size": 8, "epochs": 2}
OFTEN = {"level": 0.9, "every": 3, "test_epochs": 4}
RAGGED, GROUPS = client_data(ragged_clients()), client_data(conflicting())


@dataclass(frozen=True)
class OneCut(LGCFL):
    """Cut once, after a given round."""

    level: float = 0.0
    after: int = 10

    def decide(self, state, c, *evidence):
        return state.round == self.after, False

    def cut(self, state, update, c, i):
        return CFL.cut(self, state, update, c, i)

    def part(self, state, update, i):
        return CFL.part(self, state, update, i)


def fit(algorithm, data=RAGGED, rounds=8, params=PARAMS, **more):
    return fedlib.fit(algorithm, params, data, rounds, seed=3, progress=False, **more)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_all_shared_is_split_half_cfl():
    ours, theirs = (
        fit(k(LOSS, **LOCAL, **OFTEN, **s), GROUPS) for k, s in ((LGCFL, {"local": ()}), (SplitHalfCFL, {}))
    )
    assert ours.state.splits and torch.equal(ours.state.assignment, theirs.state.assignment)
    assert same(ours.state.models, theirs.state.models) and torch.equal(ours.state.norms, theirs.state.norms)
    costs = ["bytes_down", "bytes_up", "flops", "train_loss"]
    assert ours.history[costs].equals(theirs.history[costs])


def test_never_split_is_lg_fedavg():
    ours = fit(LGCFL(LOSS, **LOCAL, level=0), clients_per_round=5)
    theirs = fit(LGFedAvg(LOSS, **LOCAL), clients_per_round=5)
    assert largest_difference(ours.state.models, theirs.state.models) <= 1e-12
    assert largest_difference(ours.state.local, theirs.state.local) <= 1e-12
    size = 8 * (4 * 8 + 4)  # the second layer
    assert ours.history["bytes_down"].tolist() == theirs.history["bytes_down"].tolist() == [5 * size] * 8
    assert ours.history["bytes_up"].tolist() == [5 * (size + 8)] * 8


def test_clusters_go_on_as_federations_of_lg_fedavg():
    """From the split on, each cluster trains as LG-FedAvg does from the same state."""
    before, after = (fit(OneCut(LOSS, **LOCAL, after=3, min_size=1), rounds=t).state for t in (3, 4))
    assert number_of_rows(before.models) == 2
    lg = LGFedAvg(LOSS, **LOCAL, assignment=before.assignment)
    state = replace(lg.init(PARAMS, RAGGED, Key(3)), models=before.models, local=before.local)
    update = lg.train(state, RAGGED, torch.arange(len(RAGGED)), Key(3, 4))
    assert largest_difference(after.models, lg.aggregate(state, update).models) <= 1e-12
    assert same(after.local, update.client_state["local"])


NET = MLP((5, 8, 6, 1))
START = {name: p.double() for name, p in NET.init(0).items()}
PLANTED = {"lr": 0.05, "batch_size": None, "epochs": 5}


def loss(params, batch):
    return mse(NET(params, batch[0]), *batch[1:])


def planted(ids, seed, n=30):
    """Clients that see one or two columns, padded; every second one has its target turned around and moved."""
    random, clients = np.random.RandomState(seed), {}
    for k in ids:
        x = np.concatenate([random.standard_normal((n, 1 + k % 3)), np.zeros((n, 4 - k % 3))], 1)
        clients[k] = torch.from_numpy(x), torch.from_numpy((-1) ** k * (2 + np.abs(x).sum(1)))
    return client_data(clients)


def test_planted_clusters_are_found_and_new_clients_join_them():
    algorithm = OneCut(loss, **PLANTED)
    result = fit(algorithm, planted(range(8), 0), 30, START)
    found = result.state.assignment
    assert len(result.state.splits) == 1 and ((found == found[0]) == (torch.arange(8) % 2 == 0)).all()
    data = planted(range(20, 26), 1)
    new = fedlib.new_clients(algorithm, result, data, rounds=10).state
    assert ((new.assignment == found[0]) == (torch.arange(6) % 2 == 0)).all()
    held = algorithm.client_params(new, torch.arange(6))
    assert all(torch.equal(held[name], p[new.assignment]) for name, p in new.models.items())
    value = torch.vmap(loss)(held, data.all_rows(torch.float64))
    assert value.max() < 0.5 * torch.vmap(loss)(held | START_LOCAL, data.all_rows(torch.float64)).max()


START_LOCAL = {name: START[name].expand(6, *START[name].shape) for name in ("dense1.weight", "dense1.bias")}


def test_what_new_clients_are_given_by_hand():
    """One node: fit the local layer to it, train once, compare; then fit the local layer to the cluster's model."""
    algorithm = OneCut(loss, **PLANTED, after=2)
    state = fit(algorithm, planted(range(8), 0), 4, START).state
    (cut,), one = state.splits, planted([21], 1)
    x, y, _ = one.all_rows(torch.float64)

    def train(shared, rounds, names):
        theta = {n: START[n] if n in START_LOCAL else shared[n] for n in START}
        for _ in range(rounds * 5):
            theta = {n: p.clone().requires_grad_() for n, p in theta.items()}
            value = ((NET(theta, x[0])[:, 0] - y[0]) ** 2).mean()
            gradient = dict(zip(theta, torch.autograd.grad(value, list(theta.values())), strict=True))
            theta = {n: (p - 0.05 * gradient[n] * (n in names)).detach() for n, p in theta.items()}
        return theta

    node = {n: p[0] for n, p in cut.start.items()}
    fitted = train(node, 3, START_LOCAL)
    theta = {n: p.clone().requires_grad_() for n, p in fitted.items()}
    for _ in range(5):
        value = ((NET(theta, x[0])[:, 0] - y[0]) ** 2).mean()
        gradient = torch.autograd.grad(value, list(theta.values()))
        theta = {n: (p - 0.05 * g).detach().requires_grad_() for (n, p), g in zip(theta.items(), gradient, strict=True)}
    update = torch.cat([(theta[n] - node[n]).detach().reshape(-1) for n in node])
    sides = [torch.cat([cut.directions[n][s].reshape(-1) for n in node]) for s in (0, 1)]
    cosine = [float(update @ d / d.norm()) for d in sides]
    goes = cut.new if cosine[1] > cosine[0] else 0
    new = algorithm.new_clients(state, one, Key(0), rounds=3)
    assert new.assignment.tolist() == [goes]
    expected = train({n: p[goes] for n, p in state.models.items()}, 3, START_LOCAL)
    assert largest_difference({n: p[0] for n, p in new.local.items()}, {n: expected[n] for n in START_LOCAL}) <= 1e-10


def test_a_run_that_was_lost_goes_on(tmp_path):
    algorithm, file = LGCFL(LOSS, **LOCAL, **OFTEN), fedlib.Checkpoint(tmp_path / "run")
    whole = fit(algorithm, GROUPS).state
    fit(algorithm, GROUPS, rounds=5, checkpoint=file)
    resumed = fit(algorithm, GROUPS, checkpoint=file).state
    assert len(whole.splits) == len(resumed.splits) >= 1 and torch.equal(whole.assignment, resumed.assignment)
    assert same(whole.models, resumed.models) and same(whole.local, resumed.local)


def test_mistakes_are_told():
    with pytest.raises(ValueError, match=r"local names \['dense3'\], which no parameter has"):
        fit(LGCFL(LOSS, local=["dense3"]))
    with pytest.raises(ValueError, match="leaves no layer to share"):
        fit(LGCFL(LOSS, local=["dense1", "dense2"]))
