"""CFL against the paper's recursion, written as plainly as it can be."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from twins import classification_loss, client_data, largest_difference, ragged_clients, twin

import fedlib
from fedlib import Key, datasets, partition
from fedlib.algorithm import Update
from fedlib.algorithms.cfl import CFL
from fedlib.algorithms.fedavg import FedAvg
from fedlib.data import halves
from fedlib.params import row
from fedlib.server.clusters import bipartition
from fedlib.server.halves import chance_of_shared_cut, cosines_of_halves
from fedlib.server.split_tree import replay

PREDICT = twin("MLP")[1]
LOSS = classification_loss(PREDICT)
LOCAL = {"lr": 0.1, "batch_size": 8, "epochs": 2}


class LengthCFL(CFL):
    """Relative lengths decide; it changes no method."""


class PaperCFL(CFL):
    """The thresholds are lengths, as in the paper."""

    def must_split(self, t, since, mean, longest, pace):
        return since >= self.rest and mean < self.eps1 and longest >= self.eps2


def conflicting(groups=3, each=3, n=24, seed=0):
    """Clients of groups that call the same inputs by other names; float64."""
    random = np.random.RandomState(seed)
    centres = random.standard_normal((4, 1, 6, 6))
    clients = {}
    for k in range(groups * each):
        y = random.randint(0, 4, n + k % 3)
        x = centres[y] + 0.3 * random.standard_normal((len(y), 1, 6, 6))
        clients[5 + 7 * k] = (torch.from_numpy(x), torch.from_numpy((y + k % groups) % 4))
    return clients


def train_one(params, xy, client, t, seed, epochs=LOCAL["epochs"]):
    """One client's local training: the loop of a textbook."""
    theta = {name: p.clone().requires_grad_() for name, p in params.items()}
    rule = torch.optim.SGD(theta.values(), lr=LOCAL["lr"])
    x, y = xy
    me, n = torch.tensor([client]), torch.tensor([len(y)])
    steps = 0
    for order in Key(seed, t).permutations(me, "batches", n, epochs, len(y))[0]:
        for batch in order.split(LOCAL["batch_size"]):
            rule.zero_grad()
            LOSS(theta, (x[batch], y[batch], torch.ones(len(batch), dtype=torch.float64))).backward()
            rule.step()
            steps += 1
    return {name: (p - params[name]).detach() for name, p in theta.items()}, steps


def flat(update):
    return torch.cat([p.reshape(-1) for p in update.values()])


def weakest_cut(vectors):
    """Eq. 6 by trying every bipartition."""
    unit = [v / v.norm() for v in vectors]
    best = None
    for code in range(1, 2 ** (len(unit) - 1)):
        side = [0] + [code >> i & 1 for i in range(len(unit) - 1)]
        worst = max(float(unit[i] @ unit[j]) for i in range(len(unit)) for j in range(i) if side[i] != side[j])
        if best is None or worst < best[0]:
            best = worst, side
    return best[1]


def average_linkage(vectors):
    """Two sides, by joining again and again the two whose vectors have the highest mean inner product."""
    sides = [[i] for i in range(len(vectors))]
    while len(sides) > 2:
        pairs = [(a, b) for a in range(len(sides)) for b in range(a)]
        a, b = max(
            pairs, key=lambda p: np.mean([float(vectors[i] @ vectors[j]) for i in sides[p[0]] for j in sides[p[1]]])
        )
        sides[b] += sides.pop(a)
    return sides


def half_size(clients):
    """Examples in a half: half of the mean, rounded up."""
    return math.ceil(sum(len(xy[1]) for xy in clients.values()) / len(clients) / 2)


def halves_after(params, clients, t, seed, epochs, size, before=None):
    """Of each client a vector for either half of its examples: the updates of all tests, each of length 1, in a row."""
    found = {}
    for c, (x, y) in clients.items():
        order = Key(seed).permutations(torch.tensor([c]), "halves", torch.tensor([len(y)]), 1, len(y))[0, 0]
        rows = [[int(half[j % len(half)]) for j in range(size)] for half in (order[::2], order[1::2])]
        pair = [flat(train_one(params, (x[half], y[half]), c, t, seed, epochs)[0]) for half in rows]
        pair = [u / u.norm() for u in pair]
        found[c] = [torch.cat([old, u]) for old, u in zip(before[c], pair, strict=True)] if before else pair
    return found


def chance(halves):
    """Does a cut of one half show in the other, do clients differ in groups? By inner products, sums of cosines."""
    both, found = list(halves.values()), [0.5]
    everybody = range(len(both))
    for one, other in ((0, 1), (1, 0)):
        sides = average_linkage([pair[one] for pair in both])
        if min(map(len, sides)) > 1:
            peers, own = [], []
            for i in everybody:
                peer = max((j for j in everybody if j != i), key=lambda j: float(both[i][one] @ both[j][one]))
                peers.append(float(both[i][other] @ both[peer][other]))
                own.append(float(both[i][0] @ both[i][1]))
            strangers = [float(both[i][other] @ both[j][other]) for i in sides[0] for j in sides[1]]
            if np.mean(peers) <= (np.mean(own) + np.mean(strangers)) / 2:  # they differ one by one
                continue
            middle = [sum(both[i][one] for i in side) / len(side) for side in sides]
            places = [[float(both[i][other] @ (middle[n] - middle[1 - n])) for i in sides[n]] for n in (0, 1)]
            variance = sum(np.var(place) * len(place) for place in places) / (len(both) - 2)
            t = min(np.mean(place) / (variance / len(place)) ** 0.5 for place in places)
            found.append(stats.t.sf(t, len(both) - 2))
    return 2 * min(found)


def recursion(kind, params, clients, settings, rounds, t=0, seed=3, size=None, halves=None):
    """Algorithm 2, depth first: the model of each client after `rounds` rounds, along the path, as are tests."""
    begun, size = t, size or half_size(clients)
    while t < rounds:
        t += 1
        trained = {c: train_one(params, xy, c, t, seed) for c, xy in clients.items()}
        params_before = params
        total = sum(len(xy[1]) for xy in clients.values())
        mean = {name: sum(len(clients[c][1]) / total * trained[c][0][name] for c in clients) for name in params}
        params = {name: p + mean[name] for name, p in params.items()}
        longest = max(float(flat(u).norm()) for u, _ in trained.values())
        pace = max(float(flat(u).norm()) / (LOCAL["lr"] * steps) for u, steps in trained.values())
        length = float(flat(mean).norm())
        if kind is PaperCFL:
            due = length < settings["eps1"] and longest >= settings["eps2"]
        elif kind is LengthCFL:
            due = length < settings["eps1"] * longest and pace >= settings["eps2"]
        elif due := t % settings["rest"] == 0 and len(clients) > 1:
            halves = halves_after(params_before, clients, t, seed, settings["test_epochs"], size, halves)
            due = len(clients) > 3 and chance(halves) < settings["level"]
        if due and t - begun >= settings["rest"] and len(clients) > 1:
            vectors = [flat(u) for u, _ in trained.values()]
            if kind is CFL:
                sides = average_linkage([one + other for one, other in halves.values()])
                side = [int((i in sides[0]) != (0 in sides[0])) for i in range(len(clients))]
            else:
                side = weakest_cut(vectors)
            parts = [{c: xy for (c, xy), s in zip(clients.items(), side, strict=True) if s == part} for part in (0, 1)]
            if min(map(len, parts)) >= settings["min_size"]:
                return {
                    c: model
                    for part in parts
                    for c, model in recursion(
                        kind, params, part, settings, rounds, t, seed, size, halves and {c: halves[c] for c in part}
                    ).items()
                }
    return dict.fromkeys(clients, params)


SETTINGS = {
    CFL: {"level": 0.2, "rest": 3, "min_size": 2, "test_epochs": 4},
    LengthCFL: {"level": 1, "eps1": 0.8, "eps2": 0.1, "rest": 3, "min_size": 2},
    PaperCFL: {"level": 1, "eps1": 0.5, "eps2": 0.1, "rest": 2, "min_size": 1},
}
LENGTHS = SETTINGS[LengthCFL]


@pytest.mark.parametrize("kind", SETTINGS)
def test_equals_the_recursion_of_the_paper(kind):
    params, clients, settings = twin("MLP")[0], conflicting(), SETTINGS[kind]
    algorithm = kind(LOSS, **LOCAL, **settings)
    state = fedlib.fit(algorithm, params, client_data(clients), 14, seed=3, progress=False).state
    expected = recursion(kind, params, clients, settings, 14)
    assert 2 <= len(state.splits) <= 8
    held = algorithm.client_params(state, torch.arange(len(clients)))
    for k, client in enumerate(clients):
        assert largest_difference(row(held, k), expected[client]) <= 1e-10


def begin(algorithm, n, params):
    """The state before round 1, of clients with n examples."""
    clients = fedlib.stack_clients([torch.zeros(int(m), 1) for m in n], [torch.zeros(int(m), 1) for m in n])
    return algorithm.init(params, clients, Key(0))


class OneCutARound(CFL):
    """After each round the cluster with the widest gap is split."""

    def must_split(self, t, since, mean, longest, pace):
        return True

    def cuts(self, state, update, due):
        return sorted(super().cuts(state, update, due), key=lambda cut: -cut.gap)[:1]


def test_indices_after_the_third_split():
    """Each split speaks of positions in the population, not of places in the cluster that is split."""
    group = [3, 0, 2, 1, 0, 3, 1, 2, 2, 0]
    directions = {0: [1.0, 0, 0.1], 1: [0.9, 0.2, -0.3], 2: [-1.0, 0.1, 0.3], 3: [-0.9, 0.2, -0.4]}
    algorithm = OneCutARound(LOSS, lr=0.1, level=1)
    everybody, one = torch.arange(10), torch.ones(10, dtype=torch.int64)
    state = begin(algorithm, one, {"w": torch.zeros(3)})
    random = np.random.RandomState(0)
    for _ in range(3):
        noise = torch.from_numpy(0.01 * random.standard_normal((10, 3)))
        delta = {"w": torch.tensor([directions[g] for g in group]).double() + noise}
        state = algorithm.aggregate(state, Update(everybody, per_client={"update": delta, "n": one, "steps": one}))
    assert len(state.splits) == 3 and len(state.models["w"]) == 4
    for cut in state.splits:
        assert cut.members.tolist() == sorted(cut.members.tolist())
        assert (state.assignment[cut.members[cut.part == 1]] != cut.model).all()
    pairs = [[bool(state.assignment[i] == state.assignment[j]) for j in range(10)] for i in range(10)]
    assert pairs == [[a == b for b in group] for a in group]


def test_never_split_is_fedavg(clients):
    params, data = twin("MLP")[0], client_data(clients)
    run = {"params": params, "data": data, "rounds": 4, "clients_per_round": 5, "progress": False}
    ours = fedlib.fit(CFL(LOSS, **LOCAL, eps1=0), **run).state
    theirs = fedlib.fit(FedAvg(LOSS, **LOCAL), **run).state
    assert not ours.splits and largest_difference(ours.models, theirs.models) <= 1e-12


@pytest.mark.filterwarnings("ignore:CFL tested no cluster")
@pytest.mark.parametrize("missing", [0, 1])
def test_a_cluster_is_tested_only_when_all_take_part(missing):
    params, clients = twin("MLP")[0], conflicting(groups=2)
    settings = LENGTHS | {"rest": 1, "eps1": 10.0}
    cohort = len(clients) - missing
    state = fedlib.fit(CFL(LOSS, **LOCAL, **settings), params, client_data(clients), 1, cohort, progress=False).state
    assert len(state.splits) == 1 - missing and len(state.norms) == 1 - missing


WHOLE = "rest={} rounds and needs all clients of a cluster of {} or more"


@pytest.mark.parametrize(
    ("settings", "cohort", "said"),
    [
        ({}, 9, WHOLE.format(20, 4)),  # too short for the default
        ({"rest": 1}, 5, WHOLE.format(1, 4)),  # never all clients
        ({"rest": 4}, 9, ""),
        ({"level": 1, "rest": 7}, 9, WHOLE.format(7, 2)),
        ({"level": 1, "rest": 6}, 9, ""),
        ({"level": 0}, 9, ""),  # FedAvg on purpose
    ],
)
def test_a_run_that_could_test_nothing_says_so_at_its_end(settings, cohort, said):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        algorithm = CFL(LOSS, **LOCAL, **settings, test_epochs=1)
        fedlib.fit(algorithm, twin("MLP")[0], client_data(conflicting()), 6, cohort, progress=False)
    assert len(found) == bool(said) and all(said in str(w.message) and "round 6" in str(w.message) for w in found)


def test_three_clients_are_too_few_for_halves():
    with pytest.warns(UserWarning, match="stayed in one: .* a cluster of 4 or more"):
        fedlib.fit(CFL(LOSS, rest=1), twin("MLP")[0], client_data(conflicting(1)), 1, progress=False)


def test_a_round_without_halves_is_no_test():
    """All clients took part once, in a round in which nothing was tested: that does not silence the warning."""
    algorithm = CFL(LOSS, rest=2)
    state = begin(algorithm, [9] * 8, {"w": torch.zeros(3)})
    for round_, told in ((1, True), (2, False)):
        seen = replace(state, norms=torch.tensor([[round_, 0, 1, 1, 1, 0, 1.0]]).double())
        assert bool(algorithm.unreached(seen, 6)) == told


def test_sums_of_halves_are_made_by_the_first_test(tmp_path):
    """3 K^2 numbers, in each checkpoint too: not before a whole cluster has been tested."""
    params, data = twin("MLP")[0], client_data(conflicting())
    run, file = {"params": params, "data": data, "progress": False}, fedlib.Checkpoint(tmp_path / "run")
    algorithm = CFL(LOSS, **LOCAL, rest=3, test_epochs=2, level=0.2)
    with pytest.warns(UserWarning, match="CFL tested no cluster"):
        assert fedlib.fit(algorithm, rounds=2, checkpoint=file, **run).state.halves.shape == (3, 0, 0)
    with pytest.warns(UserWarning, match="CFL tested no cluster"):
        assert fedlib.fit(algorithm, rounds=3, clients_per_round=8, **run).state.halves.shape == (3, 0, 0)
    resumed, whole = fedlib.fit(algorithm, rounds=7, checkpoint=file, **run), fedlib.fit(algorithm, rounds=7, **run)
    assert whole.state.halves.shape == (3, 9, 9) and whole.state.splits
    assert torch.equal(resumed.state.halves, whole.state.halves)
    assert torch.equal(resumed.state.assignment, whole.state.assignment)


STILL = 20.0  # the target of a client whose loss does not depend on the parameters


def still_loss(params, batch):
    """Of clients of STILL the gradient is exactly 0."""
    error = (batch[0][:, :2] * params["w"]).sum(1) - batch[1]
    return ((error.square() * (batch[1] != STILL)) * batch[2]).sum() / batch[2].sum()


def with_a_still_client(signs=(1, 1, 1, -1, -1, -1), still=(0, 4)):
    random, clients = np.random.RandomState(0), {}
    for k, sign in enumerate(signs):
        x = np.abs(random.standard_normal((12, 2)))
        y = np.full(12, STILL) if k in still else sign * x.sum(1) + 0.01 * random.standard_normal(12)
        clients[k] = torch.from_numpy(x), torch.from_numpy(y)
    return client_data(clients)


@pytest.mark.parametrize("still", [(0,), (4,), (0, 4)])
@pytest.mark.parametrize(
    "settings",
    [{"level": 1, "method": "exact"}, {"level": 1, "method": "average"}, {"level": 0.2, "test_epochs": 1}],
)
def test_a_zero_update_has_no_direction_and_its_client_keeps_its_model(settings, still):
    """The paper's cosine is undefined for it; the others are split, and the run goes on."""
    signs, params = (1, 1, 1, -1, -1, -1, 1, -1), {"w": torch.tensor([0.1, -0.1], dtype=torch.float64)}
    algorithm, data = CFL(still_loss, lr=0.01, batch_size=None, rest=2, **settings), with_a_still_client(signs, still)
    result = fedlib.fit(algorithm, params, data, 3, progress=False)
    first = result.state.splits[0]
    others = [k for k in range(8) if k not in still]
    assert first.members.tolist() == others
    assert first.part.tolist() == [int(signs[k] != signs[others[0]]) for k in others]
    assert all(p.isfinite().all() for p in (*first.directions.values(), first.similarity))
    assert all(result.state.assignment[k] == 0 for k in still)
    new = with_a_still_client((1, -1, 1), (2,))
    placed = fedlib.new_clients(algorithm, result, replace(new, id=new.id + 100)).state.assignment
    assert [int(placed[k]) for k in (0, 1)] == [int(result.state.assignment[k]) for k in (1, 3)] and placed[2] == 0


@pytest.mark.filterwarnings("ignore:CFL tested no cluster")
def test_clients_that_all_stand_still_are_not_split():
    data = with_a_still_client(still=range(5))
    for settings in ({"level": 1, "rest": 1}, {"level": 1, "rest": 1, "min_size": 1}, {"level": 0.5, "rest": 1}):
        state = fedlib.fit(CFL(still_loss, **settings), {"w": torch.ones(2).double()}, data, 2, progress=False).state
        assert not state.splits and len(state.norms) == 2


def test_halves_of_a_client_that_stands_still_say_nothing_of_it_and_all_of_the_others():
    random = np.random.RandomState(0)
    first, second = updates(random, 9, torch.tensor([[1.0], [-1.0]]).repeat(5, 1)[:9] * torch.ones(30).double())
    gone = cosines_of_halves({"w": first.index_fill(0, torch.tensor([2]), 0)}, {"w": second})
    rest = [k for k in range(9) if k != 2]
    assert torch.equal(gone[:, rest][:, :, rest], cosines_of_halves({"w": first[rest]}, {"w": second[rest]}))
    assert not gone[:, 2].any() and not gone[:, :, 2].any()
    assert chance_of_shared_cut(gone) == shared(first[rest], second[rest]) < 0.01


def test_replay_finds_the_first_decision_that_differs():
    params, data = twin("MLP")[0], client_data(conflicting())

    def run(**thresholds):
        algorithm = CFL(LOSS, **LOCAL, **(LENGTHS | thresholds))
        return algorithm, fedlib.fit(algorithm, params, data, 14, progress=False).state

    algorithm, state = run()
    rounds = [cut.round for cut in state.splits]
    assert len(rounds) >= 2 and replay(algorithm, state) is None
    settings = [{"eps1": e} for e in (0, 0.1, 0.2, 0.3, 0.5, 0.8)] + [{"eps2": e} for e in (0, 0.2, 0.4, 0.8, 9)]
    seen = set()
    for other in [*settings, {"rest": 1}, {"rest": 8}]:
        again, truth = run(**other)
        departs = replay(again, state)
        seen.add(departs is None)
        if departs is None:
            assert torch.equal(truth.norms, state.norms) and torch.equal(truth.assignment, state.assignment)
            assert [cut.round for cut in truth.splits] == rounds
        else:
            t, model, splits = departs
            before = truth.norms[:, 0] < t
            assert torch.equal(truth.norms[before], state.norms[state.norms[:, 0] < t])
            due = [state.norms[(state.norms[:, :2] == torch.tensor([t, model])).all(1), 5] for state in (truth, state)]
            assert due[0].tolist() == [splits] and due[1].tolist() == [not splits]
    assert seen == {True, False}
    often, state = run(eps1=2.0, eps2=0.0, min_size=1)  # split whenever the clusters have rested
    assert len(state.splits) > 4 and replay(often, state) is None


def test_a_cut_that_leaves_too_few_is_refused():
    params, clients = twin("MLP")[0], conflicting(groups=2, each=1)
    run = {"params": params, "data": client_data(clients), "rounds": 3, "progress": False}
    settings = {"level": 1, "eps1": 10.0, "eps2": 0.1, "rest": 1, "min_size": 1}
    assert len(fedlib.fit(CFL(LOSS, **LOCAL, **settings), **run).state.splits) == 1
    assert not fedlib.fit(CFL(LOSS, **LOCAL, **(settings | {"min_size": 2})), **run).state.splits


def test_the_inequalities_are_those_of_the_paper():
    """Mean < eps1 stands still; longest >= eps2 is incongruent: equality splits for eps2 and does not for eps1."""
    two, one = torch.arange(2), torch.ones(2, dtype=torch.int64)
    delta = {"w": torch.tensor([[3.0, 4.0], [-1.0, 0.0]]).double()}  # lengths 5 and 1, mean (1, 2)
    update = Update(two, per_client={"update": delta, "n": one, "steps": one})
    length = 5**0.5

    def splits(eps1, eps2):
        algorithm = PaperCFL(LOSS, level=1, eps1=eps1, eps2=eps2, rest=0, min_size=1)
        state = begin(algorithm, one, {"w": torch.zeros(2)})
        return len(algorithm.aggregate(state, update).splits)

    assert splits(length + 1e-9, 5.0) == 1
    assert splits(length - 1e-9, 5.0) == 0 and splits(length + 1e-9, 5.0 + 1e-9) == 0
    mean = float(torch.tensor([1.0, 2.0]).double().norm())
    assert splits(mean, 5.0) == 0


def test_a_run_that_was_lost_goes_on_with_its_tree(tmp_path):
    params, data = twin("MLP")[0], client_data(conflicting())
    algorithm, file = CFL(LOSS, **LOCAL, **LENGTHS), fedlib.Checkpoint(tmp_path / "run")
    run = {"params": params, "data": data, "progress": False}
    whole = fedlib.fit(algorithm, rounds=12, **run).state
    fedlib.fit(algorithm, rounds=7, checkpoint=file, **run)
    resumed = fedlib.fit(algorithm, rounds=12, checkpoint=file, **run).state
    assert len(whole.splits) >= 2 and torch.equal(whole.norms, resumed.norms)
    assert torch.equal(whole.assignment, resumed.assignment)
    for a, b in zip(whole.splits, resumed.splits, strict=True):
        assert (a.round, a.model, a.new, a.objective) == (b.round, b.model, b.new, b.objective)
        assert all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("members", "part", "similarity"))
        for name in ("start", "directions"):
            assert all(torch.equal(p, getattr(b, name)[n]) for n, p in getattr(a, name).items())


def test_new_clients_walk_down_the_tree():
    params, everybody = twin("MLP")[0], conflicting(groups=4, each=5)
    seen, new = dict(list(everybody.items())[:16]), dict(list(everybody.items())[16:])
    algorithm = CFL(LOSS, **LOCAL, **(LENGTHS | {"eps1": 0.6}))
    result = fedlib.fit(algorithm, params, client_data(seen), 20, progress=False)
    assert len(result.state.splits) == 3 and len({cut.model for cut in result.state.splits}) >= 2
    group = torch.arange(16) % 4
    enrolled = fedlib.new_clients(algorithm, result, client_data(new))
    for g, mine in enumerate(enrolled.state.assignment):
        assert (result.state.assignment[group == g] == mine).all()


@pytest.mark.parametrize("columns", [{}, {"weight": (2,)}])
def test_halves_part_the_rows_and_have_one_size(columns):
    data = client_data(ragged_clients((1, 2, 5, 33)))
    data = data.with_columns(**{n: torch.rand(*data.y.shape, *shape) for n, shape in columns.items()})
    pair, again, other = halves(data, Key(3, 1), 17), halves(data, Key(3, 9), 17), halves(data, Key(4), 17)
    assert [p.n.tolist() for p in pair] == [[17] * 4] * 2 and pair[0].index.shape == (4, 17)
    assert torch.equal(pair[0].index, again[0].index) and not torch.equal(pair[0].index, other[0].index)
    for k, n in enumerate(data.n.tolist()):
        own = [set(part.index[k].tolist()) for part in pair]
        assert own[0] | own[1] == set(data.index[k, :n].tolist())
        assert (own[0].isdisjoint(own[1]) and len(own[0]) - len(own[1]) == n % 2) or n == 1
        for part in pair:
            times = torch.unique(part.index[k], return_counts=True)[1]
            assert times.max() - times.min() <= 1  # repeated in turn
            for j in range(17):
                place = data.index[k, :n].tolist().index(int(part.index[k, j]))
                assert part.y[k, j] == data.y[k, place]
                assert all(torch.equal(part.columns[c][k, j], data.columns[c][k, place]) for c in columns)
    few = halves(data, Key(3, 1), 2)  # some of the same
    assert all(torch.equal(part.index, whole.index[:, :2]) for part, whole in zip(few, pair, strict=True))


def shared(first, second):
    """The test of two halves' updates, each a matrix with a row for each client."""
    return chance_of_shared_cut(cosines_of_halves({"w": first}, {"w": second}))


def updates(random, clients, signal, dimensions=30):
    """Halves' updates with a signal for each client, and noise of which a few directions have the most."""
    scale = 1 / torch.arange(1, dimensions + 1).double().sqrt()
    return [signal + torch.from_numpy(random.standard_normal((clients, dimensions))) * scale for _ in range(2)]


def test_the_test_errs_as_rarely_as_it_says():
    random = np.random.RandomState(0)
    for clients in (4, 10, 25):
        found = [shared(*updates(random, clients, torch.ones(30).double())) for _ in range(500)]
        assert np.mean(np.array(found) < 0.05) < 0.03 and min(found) < 0.5


def test_the_test_errs_as_rarely_after_many_tests():
    """Of halves whose examples stay the same, so that their updates err the same way in every test, in part."""
    random, found = np.random.RandomState(0), []
    for _ in range(200):
        lasting = [0.5 * half for half in updates(random, 10, 0.0)]
        tests = [
            cosines_of_halves(*({"w": half + old} for half, old in zip(updates(random, 10, 0.7), lasting, strict=True)))
            for _ in range(6)
        ]
        found.append(chance_of_shared_cut(sum(tests)))
    assert np.mean(np.array(found) < 0.05) < 0.03 and min(found) < 0.5


def test_clients_with_noisier_updates_are_no_group():
    """All have one way in common, with more or less noise. The sides differ, as a two-sample test says too often."""
    random, found, naive = np.random.RandomState(0), [], []
    for _ in range(200):
        sure = torch.from_numpy(np.exp(random.standard_normal((20, 1))))
        cosines = cosines_of_halves(*({"w": half} for half in updates(random, 20, 0.3 * sure)))
        found.append(chance_of_shared_cut(cosines))
        side = bipartition(cosines[0], "average").assignment == 1
        if found[-1] < 1 and 1 < side.sum() < 19:
            place = cosines[2].T[:, side].mean(1) - cosines[2].T[:, ~side].mean(1)
            naive.append(stats.ttest_ind(place[side], place[~side], alternative="greater").pvalue)
    assert np.mean(np.array(found) < 0.05) < 0.03 and np.mean(np.array(naive) < 0.05) > 0.1


def test_the_test_sees_groups():
    random = np.random.RandomState(0)
    side = torch.arange(10)[:, None] % 2 * 2.0 - 1
    line = torch.zeros(30).double()
    line[5] = 1
    groups = updates(random, 10, side * line)
    assert shared(*groups) < 1e-3
    assert shared(*(half[side[:, 0] > 0] for half in groups)) > 0.01  # one group alone


def test_tests_add_up():
    """Groups that most tests do not see alone."""
    random = np.random.RandomState(0)
    side = torch.arange(10)[:, None] % 2 * 2.0 - 1
    line = torch.zeros(30).double()
    line[5] = 0.6
    tests = [cosines_of_halves(*({"w": half} for half in updates(random, 10, side * line))) for _ in range(40)]
    assert np.median([chance_of_shared_cut(one) for one in tests]) > 0.05 and chance_of_shared_cut(sum(tests)) < 1e-6


@pytest.mark.parametrize("clients", [5, 10, 20])
def test_clients_that_differ_one_by_one_are_no_groups(clients):
    """Each resembles its own other half and nobody else, as when a model has learned its examples by heart."""
    random = np.random.RandomState(0)
    side = torch.arange(clients)[:, None] % 2 * 2.0 - 1

    def chance(signal):
        own, one, other = torch.from_numpy(random.standard_normal((3, clients, 1000)))
        return shared(signal + own + 0.3 * one, signal + own + 0.3 * other)

    assert all(chance(0.0) == 1 for _ in range(50))
    assert max(chance(1.5 * side) for _ in range(50)) < (0.02 if clients == 5 else 1e-3)  # five are few


def test_the_probabilities_of_two_tests_are_those_of_plain_loops():
    """Of clients in four groups, and of clients that agree."""
    start = twin("MLP")[0]
    for groups in (4, 1):
        for seed in (2, 3, 4):
            clients = conflicting(groups, 2 if groups == 4 else 12, seed=seed)
            algorithm = CFL(LOSS, **LOCAL, rest=1, test_epochs=3, level=1e-30)
            run = {"data": client_data(clients), "seed": seed, "progress": False}
            found = fedlib.fit(algorithm, start, rounds=2, **run).state.norms[:, 6].tolist()
            middle = row(fedlib.fit(replace(algorithm, level=0), start, rounds=1, **run).state.models, 0)
            halves = None
            for t, params in ((1, start), (2, middle)):
                halves = halves_after(params, clients, t, seed, 3, half_size(clients), halves)
                assert found[t - 1] == pytest.approx(chance(halves), rel=1e-6)
                assert groups == 1 or found[t - 1] < 0.1


def test_the_test_at_its_ends():
    same = torch.ones(4, 3).double()
    assert shared(same, same) == 1  # no update differs
    parts = torch.tensor([[1.0, 0, 0], [0, 1, 0]]).double().repeat(2, 1)
    assert shared(parts, parts) == 0  # groups without noise
    assert shared(parts[:3], parts[:3]) == 1  # three are too few
    assert shared(0 * same, parts) == shared(parts, 0 * same) == 1
    assert chance_of_shared_cut(torch.zeros(3, 4, 4).double()) == 1


def told(n, halves, update=None):
    """One round of CFL, with a test, of clients with n examples whose halves have these updates."""
    n, pair = torch.as_tensor(n), [{"w": half} for half in halves]
    algorithm = CFL(LOSS, rest=1)
    entry = {"update": {"w": update} if update is not None else pair[0], "n": n, "steps": torch.ones_like(n)}
    entry |= {"first half": pair[0], "second half": pair[1]}
    return algorithm.aggregate(
        begin(algorithm, n, {"w": torch.zeros(len(halves[0][0]))}), Update(torch.arange(len(n)), per_client=entry)
    )


def test_a_client_with_one_example_is_not_tested():
    """It has no halves. But it is parted with the others."""
    random = np.random.RandomState(0)
    side = torch.tensor([1.0, -1]).repeat(5)[:, None] * torch.tensor([1.0, 0, 0, 0]).double()
    halves = [side + torch.from_numpy(0.1 * random.standard_normal((10, 4))) for _ in range(2)]
    halves = [torch.cat([halves[0][:1], h[1:]]) for h in halves]
    ends = [told([n] + [9] * 9, halves) for n in (1, 9)]
    found, alone = [float(end.norms[0, 6]) for end in ends], shared(*(h[1:] for h in halves))
    assert found[0] == pytest.approx(alone, rel=1e-6, abs=0) and found[1] < alone / 10
    assert alone < 1e-3 and ends[0].assignment.tolist() == [0, 1] * 5


@pytest.mark.filterwarnings("ignore:CFL tested no cluster")
def test_halves_are_trained_in_rounds_of_a_test_only():
    params, data = twin("MLP")[0], client_data(ragged_clients())
    size = 8 * sum(p.numel() for p in params.values())
    for settings, tests in (({"rest": 2}, [2, 4]), ({"rest": 0}, [1, 2, 3, 4]), ({"level": 1}, []), ({"level": 0}, [])):
        history = fedlib.fit(CFL(LOSS, **LOCAL, **settings), params, data, 4, progress=False).history
        up = history.get("bytes_up (clustering)", history["round"] * 0.0).fillna(0)
        assert up.tolist() == [2 * len(data) * size * (t in tests) for t in range(1, 5)]


def test_halves_know_no_stragglers():
    """Slow clients that stopped early in both halves would look like a group."""
    params, data = twin("MLP")[0], client_data(ragged_clients())
    a, b = (
        fedlib.fit(CFL(LOSS, **LOCAL, rest=1, stragglers=s), params, data, 1, progress=False).state for s in (0.0, 0.9)
    )
    assert torch.equal(a.halves, b.halves) and not torch.equal(*(s.models["dense1.bias"] for s in (a, b)))


def test_groups_with_a_common_direction_are_parted():
    """The rule asks whether clients differ in groups, not whether they are far from a common model."""
    random = np.random.RandomState(0)
    side = torch.tensor([1.0, -1]).repeat(4)[:, None] * torch.tensor([1.0, 0, 0, 0]).double()
    common = torch.tensor([0.0, 3, 0, 0]).double()
    update, *halves = (side + common + torch.from_numpy(0.1 * random.standard_normal((8, 4))) for _ in range(3))
    (cut,) = told([9] * 8, halves, update).splits
    assert cut.part.tolist() == [0, 1] * 4 and cut.similarity.min() > 0


@pytest.mark.filterwarnings("ignore:CFL tested no cluster")
def test_ledger_counts_one_model_each_way():
    params, data = twin("MLP")[0], client_data(ragged_clients())
    history = fedlib.fit(CFL(LOSS), params, data, 2, 5, progress=False).history
    size = 8 * sum(p.numel() for p in params.values())
    assert history["bytes_down"].tolist() == [5 * size] * 2
    assert history["bytes_up"].tolist() == [5 * (size + 16)] * 2  # and how many examples and steps


def test_mistakes_are_told():
    for name, value, message in (
        ("eps1", -1, "a number of at least 0; got -1"),
        ("eps2", float("nan"), "a number of at least 0; got nan"),
        ("level", 1.5, "a probability, from 0 to 1; got 1.5"),
        ("level", -0.1, "a number of at least 0; got -0.1"),
        ("rest", -2, "a whole number of at least 0; got -2"),
        ("test_epochs", 0, "a whole number of at least 1; got 0"),
        ("min_size", 0, "a whole number of at least 1; got 0"),
        ("method", "single", '"exact", "complete" or "average"; got \'single\''),
    ):
        with pytest.raises(ValueError, match=f"{name} must be {message}"):
            CFL(LOSS, **{name: value})


def test_permuted_labels_are_told_apart():
    digits = datasets.load("mnist5k")
    order = np.random.RandomState(0).permutation(5000)[:1200]
    x, y = digits.x[order].reshape(-1, 14, 2, 14, 2).mean((2, 4)).astype("uint8"), digits.y[order]
    dealt = partition.label_permutation(partition.iid(y, 8), groups=2)
    model = fedlib.models.MLP((196, 32, 10))
    loss = classification_loss(model)
    algorithm = CFL(loss, lr=0.1, batch_size=50, epochs=3, predict=model)
    result = fedlib.fit(algorithm, model.init(0), dealt.clients(x, y), 60, progress=False)
    (cut,) = result.state.splits
    assert torch.equal(cut.part ^ cut.part[0], torch.from_numpy(dealt.group ^ dealt.group[0]))
    assert cut.gap > 0 and replace(cut, new=1).new == 1
