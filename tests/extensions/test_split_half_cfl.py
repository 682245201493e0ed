"""Split-half CFL against the same rule in plain loops."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from cfl_worlds import LOCAL, LOSS, conflicting, flat, still_loss, train_one, with_a_still_client
from scipy import stats
from twins import classification_loss, client_data, largest_difference, ragged_clients, twin

import fedlib
from fedlib import Key, datasets, partition
from fedlib.algorithm import Update
from fedlib.algorithms.fedavg import FedAvg
from fedlib.data import halves
from fedlib.extensions.split_half_cfl import SplitHalfCFL, chance_of_shared_cut, cosines_of_halves
from fedlib.params import row
from fedlib.server.clusters import bipartition


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


def recursion(params, clients, settings, rounds, t=0, seed=3, size=None, halves=None):
    """CFL, depth first: the model of each client after `rounds` rounds. Rounds count along the path, as do tests."""
    size = size or half_size(clients)
    while t < rounds:
        t += 1
        trained = {c: train_one(params, xy, c, t, seed)[0] for c, xy in clients.items()}
        before, total = params, sum(len(xy[1]) for xy in clients.values())
        mean = {name: sum(len(clients[c][1]) / total * trained[c][name] for c in clients) for name in params}
        params = {name: p + mean[name] for name, p in params.items()}
        if t % settings["every"] or len(clients) == 1:
            continue
        halves = halves_after(before, clients, t, seed, settings["test_epochs"], size, halves)
        if len(clients) > 3 and chance(halves) < settings["level"]:
            sides = average_linkage([one + other for one, other in halves.values()])
            parts = [{c: clients[c] for k, c in enumerate(clients) if k in side} for side in sides]
            if min(map(len, parts)) >= settings["min_size"]:
                ends = {}
                for part in parts:
                    known = {c: halves[c] for c in part}
                    ends |= recursion(params, part, settings, rounds, t, seed, size, known)
                return ends
    return dict.fromkeys(clients, params)


OFTEN = {"level": 0.2, "every": 3, "min_size": 2, "test_epochs": 4}


def test_equals_the_recursion_in_plain_loops():
    params, clients = twin("MLP")[0], conflicting()
    algorithm = SplitHalfCFL(LOSS, **LOCAL, **OFTEN)
    state = fedlib.fit(algorithm, params, client_data(clients), 14, seed=3, progress=False).state
    expected = recursion(params, clients, OFTEN, 14)
    assert 2 <= len(state.splits) <= 8 and not state.finished.any()
    held = algorithm.client_params(state, torch.arange(len(clients)))
    for k, client in enumerate(clients):
        assert largest_difference(row(held, k), expected[client]) <= 1e-10


def begin(algorithm, n, params):
    """The state before round 1, of clients with n examples."""
    clients = fedlib.stack_clients([torch.zeros(int(m), 1) for m in n], [torch.zeros(int(m), 1) for m in n])
    return algorithm.init(params, clients, Key(0))


def test_never_tested_is_fedavg(clients):
    params, data = twin("MLP")[0], client_data(clients)
    run = {"params": params, "data": data, "rounds": 4, "clients_per_round": 5, "progress": False}
    ours = fedlib.fit(SplitHalfCFL(LOSS, **LOCAL, level=0), **run)
    theirs = fedlib.fit(FedAvg(LOSS, **LOCAL), **run)
    assert not ours.state.splits and largest_difference(ours.state.models, theirs.state.models) <= 1e-12
    assert not len(ours.state.size) and "bytes_up (clustering)" not in ours.history


WHOLE = "every={} rounds and needs all clients of a cluster of 4 or more"


@pytest.mark.parametrize(
    ("settings", "cohort", "said"),
    [
        ({}, 9, WHOLE.format(20)),  # too short for the default
        ({"every": 1}, 5, WHOLE.format(1)),  # never all clients
        ({"every": 4}, 9, ""),
        ({"level": 0}, 9, ""),  # FedAvg on purpose
    ],
)
def test_a_run_that_could_test_nothing_says_so_at_its_end(settings, cohort, said):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        algorithm = SplitHalfCFL(LOSS, **LOCAL, **settings, test_epochs=1)
        fedlib.fit(algorithm, twin("MLP")[0], client_data(conflicting()), 6, cohort, progress=False)
    assert len(found) == bool(said) and all(said in str(w.message) and "round 6" in str(w.message) for w in found)


def test_three_clients_are_too_few_for_halves():
    with pytest.warns(UserWarning, match="stayed in one: .* a cluster of 4 or more"):
        fedlib.fit(SplitHalfCFL(LOSS, every=1), twin("MLP")[0], client_data(conflicting(1)), 1, progress=False)


def test_a_round_without_halves_is_no_test():
    """All clients took part once, in a round in which nothing was tested: that does not silence the warning."""
    algorithm = SplitHalfCFL(LOSS, every=2)
    state = begin(algorithm, [9] * 8, {"w": torch.zeros(3)})
    for round_, told in ((1, True), (2, False)):
        seen = replace(state, norms=torch.tensor([[round_, 0, 1, 1, 1.0, 0]]).double())
        assert bool(algorithm.unreached(seen, 6)) == told


def test_sums_of_halves_are_made_by_the_first_test(tmp_path):
    """3 K^2 numbers, in each checkpoint too: not before a whole cluster has been tested."""
    params, data = twin("MLP")[0], client_data(conflicting())
    run, file = {"params": params, "data": data, "progress": False}, fedlib.Checkpoint(tmp_path / "run")
    algorithm = SplitHalfCFL(LOSS, **LOCAL, every=3, test_epochs=2, level=0.2)
    with pytest.warns(UserWarning, match="CFL tested no cluster"):
        assert fedlib.fit(algorithm, rounds=2, checkpoint=file, **run).state.halves.shape == (3, 0, 0)
    with pytest.warns(UserWarning, match="CFL tested no cluster"):
        assert fedlib.fit(algorithm, rounds=3, clients_per_round=8, **run).state.halves.shape == (3, 0, 0)
    resumed, whole = fedlib.fit(algorithm, rounds=7, checkpoint=file, **run), fedlib.fit(algorithm, rounds=7, **run)
    assert whole.state.halves.shape == (3, 9, 9) and whole.state.splits
    assert torch.equal(resumed.state.halves, whole.state.halves)
    assert torch.equal(resumed.state.assignment, whole.state.assignment)


@pytest.mark.parametrize("still", [(0,), (4,), (0, 4)])
def test_a_client_that_stands_still_keeps_its_model_and_the_others_are_split(still):
    signs, params = (1, 1, 1, -1, -1, -1, 1, -1), {"w": torch.tensor([0.1, -0.1], dtype=torch.float64)}
    algorithm = SplitHalfCFL(still_loss, lr=0.01, batch_size=None, every=2, level=0.2, test_epochs=1)
    result = fedlib.fit(algorithm, params, client_data(with_a_still_client(signs, still)), 3, progress=False)
    first, others = result.state.splits[0], [k for k in range(8) if k not in still]
    assert first.members.tolist() == others
    assert first.part.tolist() == [int(signs[k] != signs[others[0]]) for k in others]
    assert all(result.state.assignment[k] == 0 for k in still)
    new = client_data(with_a_still_client((1, -1, 1), (2,)))
    placed = fedlib.new_clients(algorithm, result, replace(new, id=new.id + 100)).state.assignment
    assert [int(placed[k]) for k in (0, 1)] == [int(result.state.assignment[k]) for k in (1, 3)] and placed[2] == 0


@pytest.mark.filterwarnings("ignore:CFL tested no cluster")
def test_clients_that_all_stand_still_are_not_split():
    data = client_data(with_a_still_client(still=range(5)))
    algorithm = SplitHalfCFL(still_loss, level=0.5, every=1)
    state = fedlib.fit(algorithm, {"w": torch.ones(2).double()}, data, 2, progress=False).state
    assert not state.splits and len(state.norms) == 2


def test_halves_of_a_client_that_stands_still_say_nothing_of_it_and_all_of_the_others():
    random = np.random.RandomState(0)
    first, second = updates(random, 9, torch.tensor([[1.0], [-1.0]]).repeat(5, 1)[:9] * torch.ones(30).double())
    gone = cosines_of_halves({"w": first.index_fill(0, torch.tensor([2]), 0)}, {"w": second})
    rest = [k for k in range(9) if k != 2]
    assert torch.equal(gone[:, rest][:, :, rest], cosines_of_halves({"w": first[rest]}, {"w": second[rest]}))
    assert not gone[:, 2].any() and not gone[:, :, 2].any()
    assert chance_of_shared_cut(gone) == shared(first[rest], second[rest]) < 0.01


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
            algorithm = SplitHalfCFL(LOSS, **LOCAL, every=1, test_epochs=3, level=1e-30)
            run = {"data": client_data(clients), "seed": seed, "progress": False}
            found = fedlib.fit(algorithm, start, rounds=2, **run).state.norms[:, 4].tolist()
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
    algorithm = SplitHalfCFL(LOSS, every=1)
    entry = {"update": {"w": update} if update is not None else pair[0], "n": n}
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
    found, alone = [float(end.norms[0, 4]) for end in ends], shared(*(h[1:] for h in halves))
    assert found[0] == pytest.approx(alone, rel=1e-6, abs=0) and found[1] < alone / 10
    assert alone < 1e-3 and ends[0].assignment.tolist() == [0, 1] * 5


@pytest.mark.filterwarnings("ignore:CFL tested no cluster")
def test_halves_are_trained_in_rounds_of_a_test_only():
    params, data = twin("MLP")[0], client_data(ragged_clients())
    size = 8 * sum(p.numel() for p in params.values())
    for settings, tests in (({"every": 2}, [2, 4]), ({"every": 1}, [1, 2, 3, 4]), ({"level": 0}, [])):
        history = fedlib.fit(SplitHalfCFL(LOSS, **LOCAL, **settings), params, data, 4, progress=False).history
        up = history.get("bytes_up (clustering)", history["round"] * 0.0).fillna(0)
        assert up.tolist() == [2 * len(data) * size * (t in tests) for t in range(1, 5)]


def test_halves_know_no_stragglers():
    """Slow clients that stopped early in both halves would look like a group."""
    params, data = twin("MLP")[0], client_data(ragged_clients())
    rules = (SplitHalfCFL(LOSS, **LOCAL, every=1, stragglers=s) for s in (0.0, 0.9))
    a, b = (fedlib.fit(rule, params, data, 1, progress=False).state for rule in rules)
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
    history = fedlib.fit(SplitHalfCFL(LOSS), params, data, 2, 5, progress=False).history
    size = 8 * sum(p.numel() for p in params.values())
    assert history["bytes_down"].tolist() == [5 * size] * 2
    assert history["bytes_up"].tolist() == [5 * (size + 8)] * 2  # and how many examples


def test_mistakes_are_told():
    for name, value, message in (
        ("level", 1.0, "a number of at least 0 and below 1; got 1.0"),
        ("level", -0.1, "a number of at least 0 and below 1; got -0.1"),
        ("every", 0, "a whole number of at least 1; got 0"),
        ("test_epochs", 0, "a whole number of at least 1; got 0"),
        ("min_size", 0, "a whole number of at least 1; got 0"),
    ):
        with pytest.raises(ValueError, match=f"{name} must be {message}"):
            SplitHalfCFL(LOSS, **{name: value})


def test_permuted_labels_are_told_apart():
    digits = datasets.load("mnist5k")
    order = np.random.RandomState(0).permutation(5000)[:1200]
    x, y = digits.x[order].reshape(-1, 14, 2, 14, 2).mean((2, 4)).astype("uint8"), digits.y[order]
    dealt = partition.label_permutation(partition.iid(y, 8), groups=2)
    model = fedlib.models.MLP((196, 32, 10))
    loss = classification_loss(model)
    algorithm = SplitHalfCFL(loss, lr=0.1, batch_size=50, epochs=3, predict=model)
    result = fedlib.fit(algorithm, model.init(0), dealt.clients(x, y), 60, progress=False)
    (cut,) = result.state.splits
    assert torch.equal(cut.part ^ cut.part[0], torch.from_numpy(dealt.group ^ dealt.group[0]))
    assert cut.gap > 0 and replace(cut, new=1).new == 1
