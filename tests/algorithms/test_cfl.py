"""CFL against Algorithms 1 and 2 of the paper, written as plainly as they stand there."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from cfl_worlds import LOSS, begin, conflicting, still_loss, train_one, weakest_cut, with_a_still_client
from reference import flat, mean_by_examples
from twins import LOCAL, classification_loss, client_data, fit, largest_difference, regression_loss, twin

import fedlib
from fedlib.algorithms.cfl import CFL
from fedlib.extensions import SplitHalfCFL

# ---- the paper ----


def federated_learning(theta, c, world, t):
    """Algorithm 1, up to the last round: the model, the latest updates, the round, and whether line 8 ended it."""
    while t < world["rounds"]:
        t += 1
        delta = {i: train_one(theta, world["clients"][i], i, t, seed=3, loss=world["loss"])[0] for i in c}
        mean = mean_by_examples(delta, world["clients"])
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
    linear = regression_loss(lambda p, x: x @ p["w"] + p["b"])
    drawn = {"clients": clients, "loss": linear, "params": params, "rounds": random.randint(8, 20)}
    return drawn | {"eps1": 10 ** random.uniform(-1.6, -0.5), "eps2": 10 ** random.uniform(-0.5, 0.2)}


@cache
def ends(number):
    """CFL, how its run ends, and how the recursion does."""
    drawn = world(number)
    algorithm = CFL(drawn["loss"], **LOCAL, eps1=drawn["eps1"], eps2=drawn["eps2"])
    run = {"data": client_data(drawn["clients"]), "rounds": drawn["rounds"], "seed": 3, "progress": False}
    expected = clustered_federated_learning(drawn["params"], list(drawn["clients"]), drawn)
    return algorithm, fedlib.fit(algorithm, drawn["params"], **run).state, [expected[i] for i in drawn["clients"]]


@pytest.mark.parametrize("number", range(16))
def test_equals_the_recursion_of_the_paper(number):
    algorithm, state, expected = ends(number)
    held = algorithm.client_params(state, torch.arange(len(expected)))
    for k, (theta, returned, _) in enumerate(expected):
        assert largest_difference(fedlib.params.row(held, k), theta) <= 1e-10
        assert bool(state.finished[state.assignment[k]]) == (returned is not None)
    same = [[a == b for *_, b in expected] for *_, a in expected]
    assert (state.assignment[:, None] == state.assignment).tolist() == same
    for cut in state.splits:
        alpha, side, m = cut.similarity, cut.part.tolist(), range(len(cut.part))
        within = min(float(alpha[i, j]) for i in m for j in m if side[i] == side[j])
        across = max(float(alpha[i, j]) for i in m for j in m if side[i] != side[j])
        assert (cut.objective, cut.gap) == (across, within - across)


def test_the_worlds_have_all_that_may_happen():
    """Cuts, clusters that return long before the end beside others that go on, and clusters that do not return."""
    worlds = [ends(number) for number in range(16)]
    cuts = [len(state.splits) for _, state, _ in worlds]
    assert sorted(set(cuts))[:3] == [0, 1, 2]
    returned = [[t for _, t, _ in expected] for *_, expected in worlds]
    assert sum(None in times and any(times) for times in returned) >= 2 and [None] in [[*set(t)] for t in returned]
    assert any(len(set(times)) > 2 for times in returned)


# ---- single steps ----


def test_the_inequalities_are_those_of_the_paper():
    """Mean < eps1 stands still; longest >= eps2 is incongruent: equality splits for eps2 and does not for eps1."""
    length = float(torch.tensor([1.0, 2.0]).double().norm())

    def after(eps1, eps2):
        algorithm = CFL(LOSS, eps1=eps1, eps2=eps2)
        start = begin(algorithm, [1, 1], {"w": torch.zeros(2)})
        delta = torch.tensor([[3.0, 4.0], [-1.0, 0.0]]).double()  # lengths 5 and 1, mean (1, 2)
        entry = {"update": {"w": delta}, "n": torch.tensor([1, 1])}
        state = algorithm.aggregate(start, fedlib.algorithm.Update(torch.arange(2), per_client=entry))
        return len(state.splits), bool(state.finished.all())

    assert after(length + 1e-9, 5.0) == (1, False)
    assert after(length, 5.0) == (0, False)
    assert after(length + 1e-9, 5.0 + 1e-9) == (0, True)


@pytest.mark.parametrize(("settings", "cohort", "warned"), [({}, 9, False), ({}, 8, True), ({"eps1": 0}, 8, False)])
def test_a_cluster_is_tested_only_when_all_take_part(settings, cohort, warned, recwarn):
    """And a run in which that never happens says so at its end, unless it is FedAvg on purpose."""
    state = fit(CFL, conflicting(), rounds=1, cohort=cohort, **{"eps1": 1e9, "eps2": 0} | settings)[1].state
    assert len(state.splits) == len(state.norms) == (cohort == 9)
    said = [("no cluster up to round 1" in str(w.message), w.category) for w in recwarn]
    assert said == [(True, UserWarning)] * warned


STEADY = {"lr": 0.01, "batch_size": None}
KINDS = {  # of clients that may stand still, and in which round they first split
    "CFL": (CFL(still_loss, **STEADY, eps1=0.03, eps2=0.001), 1),
    "split-half CFL": (SplitHalfCFL(still_loss, **STEADY, every=2, level=0.2, test_epochs=1), 2),
}


@pytest.mark.parametrize("still", [(0,), (4,), (0, 4)])
@pytest.mark.parametrize("case", KINDS)
def test_a_zero_update_has_no_direction_and_its_client_keeps_its_model(case, still):
    """The paper's cosine is undefined for it; the others are split."""
    (algorithm, rounds), signs = KINDS[case], (1, 1, 1, -1, -1, -1, 1, -1)
    params, data = {"w": torch.tensor([0.1, -0.1]).double()}, client_data(with_a_still_client(signs, still))
    result = fedlib.fit(algorithm, params, data, rounds, progress=False)
    first, others = result.state.splits[0], [k for k in range(8) if k not in still]
    assert first.members.tolist() == others
    assert first.part.tolist() == [int(signs[k] != signs[others[0]]) for k in others]
    assert all(p.isfinite().all() for p in (*first.directions.values(), first.similarity))
    assert all(result.state.assignment[k] == 0 for k in still)
    new = client_data(with_a_still_client((1, -1, 1), (2,)))
    placed = fedlib.new_clients(algorithm, result, replace(new, id=new.id + 100)).state.assignment
    assert [int(placed[k]) for k in (0, 1)] == [int(result.state.assignment[k]) for k in (1, 3)] and placed[2] == 0


@pytest.mark.filterwarnings("ignore:CFL tested no cluster")
@pytest.mark.parametrize("algorithm", [CFL(still_loss, eps1=1e9, eps2=0), SplitHalfCFL(still_loss, level=0.5, every=1)])
def test_clients_that_all_stand_still_are_not_split(algorithm):
    data = client_data(with_a_still_client(still=range(5)))
    state = fedlib.fit(algorithm, {"w": torch.ones(2).double()}, data, 2, progress=False).state
    assert not state.splits and len(state.norms) == 2


def test_new_clients_walk_down_the_tree():
    everybody = conflicting(groups=4, each=5)
    seen, new = dict(list(everybody.items())[:16]), dict(list(everybody.items())[16:])
    algorithm, result = fit(CFL, seen, rounds=20, seed=0, eps1=0.35, eps2=0.7)
    assert len(result.state.splits) == 3 and len({cut.model for cut in result.state.splits}) >= 2
    group = torch.arange(16) % 4
    enrolled = fedlib.new_clients(algorithm, result, client_data(new))
    for g, mine in enumerate(enrolled.state.assignment):
        assert (result.state.assignment[group == g] == mine).all()
