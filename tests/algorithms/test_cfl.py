"""CFL against Algorithms 1 and 2 of the paper, written as plainly as they stand there."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from cfl_worlds import LOCAL, LOSS, conflicting, flat, still_loss, train_one, weakest_cut, with_a_still_client
from twins import classification_loss, client_data, largest_difference, ragged_clients, twin

import fedlib
from fedlib import Key
from fedlib.algorithm import Update
from fedlib.algorithms.cfl import CFL
from fedlib.algorithms.fedavg import FedAvg
from fedlib.losses import mse
from fedlib.params import row

SETTINGS = {"eps1": 0.5, "eps2": 0.6}


# ---- the paper ----


def federated_learning(theta, c, world, t):
    """Algorithm 1, up to the last round: the model, the latest updates, the round, and whether line 8 ended it."""
    total = sum(len(world["clients"][i][1]) for i in c)
    while t < world["rounds"]:
        t += 1
        delta = {i: train_one(theta, world["clients"][i], i, t, seed=3, loss=world["loss"])[0] for i in c}
        mean = {n: sum(len(world["clients"][i][1]) / total * delta[i][n] for i in c) for n in theta}
        theta = {n: theta[n] + mean[n] for n in theta}
        if float(flat(mean).norm()) < world["eps1"]:
            return theta, delta, t, True
    return theta, {}, t, False


def clustered_federated_learning(theta, c, world, t=0):
    """Algorithm 2: theta_i of each client, the round in which its cluster returned (None: not yet), and its cluster."""
    theta, delta, t, stationary = federated_learning(theta, c, world, t)
    if stationary and max(float(flat(d).norm()) for d in delta.values()) >= world["eps2"]:  # line 4
        side = weakest_cut([flat(d) for d in delta.values()])
        c1, c2 = ([i for i, s in zip(c, side, strict=True) if s == part] for part in (0, 1))
        return clustered_federated_learning(theta, c1, world, t) | clustered_federated_learning(theta, c2, world, t)
    return {i: (theta, t if stationary else None, tuple(c)) for i in c}


def linear_loss(params, batch):
    x, y, w = batch
    return mse(x @ params["w"] + params["b"], y, w)


def world(number):
    """Clients in one to three groups, with thresholds and sizes drawn at random; every fourth has convolutions."""
    random = np.random.RandomState(number)
    groups, each = random.randint(1, 4), random.randint(2, 4)
    if number % 4 == 3:
        params, predict, _ = twin("CNN")
        drawn = {"clients": conflicting(groups, 2, 9, number), "loss": classification_loss(predict), "rounds": 5}
        return drawn | {"params": params, "eps1": random.uniform(0.05, 0.4), "eps2": random.uniform(0.4, 0.6)}
    truth, clients = random.standard_normal((groups, 5)), {}
    for k in range(groups * each):
        x = random.standard_normal((random.randint(9, 30), 5))
        y = x @ truth[k % groups] + 0.2 * random.standard_normal(len(x))
        clients[3 * k + 2] = torch.from_numpy(x), torch.from_numpy(y)
    params = {"w": torch.zeros(5).double(), "b": torch.zeros(()).double()}
    drawn = {"clients": clients, "loss": linear_loss, "params": params, "rounds": random.randint(8, 20)}
    return drawn | {"eps1": 10 ** random.uniform(-1.6, -0.5), "eps2": 10 ** random.uniform(-0.5, 0.2)}


@pytest.fixture(scope="module")
def worlds():
    """Of each: the world, CFL's end, and the recursion's."""
    ends = []
    for number in range(16):
        drawn = world(number)
        algorithm = CFL(drawn["loss"], **LOCAL, eps1=drawn["eps1"], eps2=drawn["eps2"])
        run = {"data": client_data(drawn["clients"]), "rounds": drawn["rounds"], "seed": 3, "progress": False}
        state = fedlib.fit(algorithm, drawn["params"], **run).state
        expected = clustered_federated_learning(drawn["params"], list(drawn["clients"]), drawn)
        ends.append((algorithm, state, [expected[i] for i in drawn["clients"]]))
    return ends


@pytest.mark.parametrize("number", range(16))
def test_equals_the_recursion_of_the_paper(worlds, number):
    algorithm, state, expected = worlds[number]
    held = algorithm.client_params(state, torch.arange(len(expected)))
    for k, (theta, returned, _) in enumerate(expected):
        assert largest_difference(row(held, k), theta) <= 1e-10
        assert bool(state.finished[state.assignment[k]]) == (returned is not None)
    same = [[a == b for *_, b in expected] for *_, a in expected]
    assert (state.assignment[:, None] == state.assignment).tolist() == same


def test_the_worlds_have_all_that_may_happen(worlds):
    """Cuts, clusters that return long before the end beside others that go on, and clusters that do not return."""
    cuts = [len(state.splits) for _, state, _ in worlds]
    assert sorted(set(cuts))[:3] == [0, 1, 2]
    returned = [[t for _, t, _ in expected] for *_, expected in worlds]
    assert sum(None in times and any(times) for times in returned) >= 2 and [None] in [[*set(t)] for t in returned]
    assert any(len(set(times)) > 2 for times in returned)


# ---- single steps ----


def begin(algorithm, n, params):
    """The state before round 1, of clients with n examples."""
    clients = fedlib.stack_clients([torch.zeros(int(m), 1) for m in n], [torch.zeros(int(m), 1) for m in n])
    return algorithm.init(params, clients, Key(0))


def test_the_inequalities_are_those_of_the_paper():
    """Mean < eps1 stands still; longest >= eps2 is incongruent: equality splits for eps2 and does not for eps1."""
    two, one = torch.arange(2), torch.ones(2, dtype=torch.int64)
    delta = {"w": torch.tensor([[3.0, 4.0], [-1.0, 0.0]]).double()}  # lengths 5 and 1, mean (1, 2)
    update = Update(two, per_client={"update": delta, "n": one})
    length = float(torch.tensor([1.0, 2.0]).double().norm())

    def after(eps1, eps2):
        algorithm = CFL(LOSS, eps1=eps1, eps2=eps2)
        state = algorithm.aggregate(begin(algorithm, one, {"w": torch.zeros(2)}), update)
        return len(state.splits), bool(state.finished.all())

    assert after(length + 1e-9, 5.0) == (1, False)
    assert after(length, 5.0) == (0, False)
    assert after(length + 1e-9, 5.0 + 1e-9) == (0, True)


def test_a_finished_cluster_keeps_its_model_and_is_never_cut():
    """Algorithm 2, line 9, though its clients would pull later; the other cluster goes on."""
    algorithm, one, everybody = CFL(LOSS, eps1=0.5, eps2=2.0), torch.ones(4, dtype=torch.int64), torch.arange(4)
    state = begin(algorithm, one, {"w": torch.zeros(2).double()})
    rounds = [
        [[3.0, 0.1], [3.0, 0.0], [-3.0, 0.0], [-3.0, 0.1]],  # cut
        [[0.1, 0.0], [0.2, 0.0], [1.0, 0.0], [1.0, 0.0]],  # the first part is done, the second moves on
        [[9.0, 0.0], [-9.0, 0.1], [1.0, 0.0], [1.0, 0.0]],
    ]
    for delta in rounds:
        update = Update(everybody, per_client={"update": {"w": torch.tensor(delta).double()}, "n": one})
        state = algorithm.aggregate(state, update)
    assert state.assignment.tolist() == [0, 0, 1, 1] and state.finished.tolist() == [True, False]
    assert state.models["w"][:, 0].tolist() == pytest.approx([0.15, 2.0]) and len(state.norms) == 4


class OneCutARound(CFL):
    """After each round the cluster with the widest gap is split."""

    def decide(self, state, c, *evidence):
        return True, False

    def cuts(self, state, update, due):
        return sorted(super().cuts(state, update, due), key=lambda cut: -cut.gap)[:1]


def test_indices_after_the_third_split():
    """Each split speaks of positions in the population, not of places in the cluster that is split."""
    group = [3, 0, 2, 1, 0, 3, 1, 2, 2, 0]
    directions = {0: [1.0, 0, 0.1], 1: [0.9, 0.2, -0.3], 2: [-1.0, 0.1, 0.3], 3: [-0.9, 0.2, -0.4]}
    algorithm = OneCutARound(LOSS, lr=0.1, **SETTINGS)
    everybody, one = torch.arange(10), torch.ones(10, dtype=torch.int64)
    state = begin(algorithm, one, {"w": torch.zeros(3)})
    random = np.random.RandomState(0)
    for _ in range(3):
        noise = torch.from_numpy(0.01 * random.standard_normal((10, 3)))
        delta = {"w": torch.tensor([directions[g] for g in group]).double() + noise}
        state = algorithm.aggregate(state, Update(everybody, per_client={"update": delta, "n": one}))
    assert len(state.splits) == 3 and len(state.models["w"]) == len(state.finished) == 4
    for cut in state.splits:
        assert cut.members.tolist() == sorted(cut.members.tolist())
        assert (state.assignment[cut.members[cut.part == 1]] != cut.model).all()
    pairs = [[bool(state.assignment[i] == state.assignment[j]) for j in range(10)] for i in range(10)]
    assert pairs == [[a == b for b in group] for a in group]


def test_never_split_is_fedavg(clients):
    params, data = twin("MLP")[0], client_data(clients)
    run = {"params": params, "data": data, "rounds": 4, "clients_per_round": 5, "progress": False}
    ours = fedlib.fit(CFL(LOSS, **LOCAL, eps1=0, eps2=0), **run).state
    theirs = fedlib.fit(FedAvg(LOSS, **LOCAL), **run).state
    assert not ours.splits and largest_difference(ours.models, theirs.models) <= 1e-12


@pytest.mark.parametrize(("settings", "cohort", "told"), [({}, 9, False), ({}, 8, True), ({"eps1": 0}, 8, False)])
def test_a_cluster_is_tested_only_when_all_take_part(settings, cohort, told):
    """And a run in which that never happens says so at its end, unless it is FedAvg on purpose."""
    algorithm, clients = CFL(LOSS, **LOCAL, **{"eps1": 1e9, "eps2": 0} | settings), conflicting()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        state = fedlib.fit(algorithm, twin("MLP")[0], client_data(clients), 1, cohort, progress=False).state
    assert len(state.splits) == len(state.norms) == (cohort == 9)
    assert [("no cluster up to round 1" in str(w.message), w.category) for w in said] == [(True, UserWarning)] * told


@pytest.mark.parametrize("still", [(0,), (4,), (0, 4)])
def test_a_zero_update_has_no_direction_and_its_client_keeps_its_model(still):
    """The paper's cosine is undefined for it; the others are split."""
    signs, params = (1, 1, 1, -1, -1, -1, 1, -1), {"w": torch.tensor([0.1, -0.1], dtype=torch.float64)}
    algorithm = CFL(still_loss, lr=0.01, batch_size=None, eps1=0.03, eps2=0.001)
    data = client_data(with_a_still_client(signs, still))
    result = fedlib.fit(algorithm, params, data, 1, progress=False)
    first = result.state.splits[0]
    others = [k for k in range(8) if k not in still]
    assert first.members.tolist() == others
    assert first.part.tolist() == [int(signs[k] != signs[others[0]]) for k in others]
    assert all(p.isfinite().all() for p in (*first.directions.values(), first.similarity))
    assert all(result.state.assignment[k] == 0 for k in still)
    new = client_data(with_a_still_client((1, -1, 1), (2,)))
    placed = fedlib.new_clients(algorithm, result, replace(new, id=new.id + 100)).state.assignment
    assert [int(placed[k]) for k in (0, 1)] == [int(result.state.assignment[k]) for k in (1, 3)] and placed[2] == 0


def test_clients_that_all_stand_still_are_not_split():
    data = client_data(with_a_still_client(still=range(5)))
    run = {"params": {"w": torch.ones(2).double()}, "data": data, "rounds": 2, "progress": False}
    state = fedlib.fit(CFL(still_loss, eps1=1e9, eps2=0), **run).state
    assert not state.splits and len(state.norms) == 2


def test_a_run_that_was_lost_goes_on_with_its_tree(tmp_path):
    params, data = twin("MLP")[0], client_data(conflicting())
    algorithm, file = CFL(LOSS, **LOCAL, **SETTINGS), fedlib.Checkpoint(tmp_path / "run")
    run = {"params": params, "data": data, "progress": False}
    whole = fedlib.fit(algorithm, rounds=12, **run).state
    fedlib.fit(algorithm, rounds=7, checkpoint=file, **run)
    resumed = fedlib.fit(algorithm, rounds=12, checkpoint=file, **run).state
    assert len(whole.splits) >= 2 and torch.equal(whole.norms, resumed.norms)
    assert torch.equal(whole.assignment, resumed.assignment) and torch.equal(whole.finished, resumed.finished)
    for a, b in zip(whole.splits, resumed.splits, strict=True):
        assert (a.round, a.model, a.new, a.objective) == (b.round, b.model, b.new, b.objective)
        assert all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("members", "part", "similarity"))
        for name in ("start", "directions"):
            assert all(torch.equal(p, getattr(b, name)[n]) for n, p in getattr(a, name).items())


def test_new_clients_walk_down_the_tree():
    params, everybody = twin("MLP")[0], conflicting(groups=4, each=5)
    seen, new = dict(list(everybody.items())[:16]), dict(list(everybody.items())[16:])
    algorithm = CFL(LOSS, **LOCAL, eps1=0.35, eps2=0.7)
    result = fedlib.fit(algorithm, params, client_data(seen), 20, progress=False)
    assert len(result.state.splits) == 3 and len({cut.model for cut in result.state.splits}) >= 2
    group = torch.arange(16) % 4
    enrolled = fedlib.new_clients(algorithm, result, client_data(new))
    for g, mine in enumerate(enrolled.state.assignment):
        assert (result.state.assignment[group == g] == mine).all()


@pytest.mark.filterwarnings("ignore:CFL tested no cluster")
def test_ledger_counts_one_model_each_way():
    params, data = twin("MLP")[0], client_data(ragged_clients())
    history = fedlib.fit(CFL(LOSS, **SETTINGS), params, data, 2, 5, progress=False).history
    size = 8 * sum(p.numel() for p in params.values())
    assert history["bytes_down"].tolist() == [5 * size] * 2
    assert history["bytes_up"].tolist() == [5 * (size + 8)] * 2  # and how many examples


def test_mistakes_are_told():
    for name, value, message in (
        ("eps1", -1, "a number of at least 0; got -1"),
        ("eps2", float("nan"), "a number of at least 0; got nan"),
    ):
        with pytest.raises(ValueError, match=f"{name} must be {message}"):
            CFL(LOSS, **SETTINGS | {name: value})
    with pytest.raises(TypeError, match="missing 2 required keyword-only arguments: 'eps1' and 'eps2'"):
        CFL(LOSS)  # the paper gives no values
