"""Split-half CFL against the same rule in plain loops."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from cfl_worlds import LOSS, assert_ends, begin, conflicting, recursion, train_one
from reference import flat
from scipy import stats
from twins import LOCAL, client_data, fit, ragged_clients, twin

import fedlib
from fedlib import Key
from fedlib.data import halves
from fedlib.extensions.split_half_cfl import SplitHalfCFL, chance_of_shared_cut, cosines_of_halves


def average_linkage(vectors):
    """Two sides, by joining again and again the two whose vectors have the highest mean inner product."""
    sides, likeness = [[i] for i in range(len(vectors))], [[float(u @ v) for v in vectors] for u in vectors]
    while len(sides) > 2:
        pairs = [(a, b) for a in range(len(sides)) for b in range(a)]
        a, b = max(pairs, key=lambda p: np.mean([likeness[i][j] for i in sides[p[0]] for j in sides[p[1]]]))
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


OFTEN = {"level": 0.2, "every": 3, "min_size": 2, "test_epochs": 4}


def test_equals_the_recursion_in_plain_loops():
    params, clients = twin("MLP")[0], conflicting()
    size = half_size(clients)

    def parts_of(before, trained, mean, clients, t, halves):
        if t % OFTEN["every"] or len(clients) == 1:
            return None, halves
        known = {c: halves[c] for c in clients} if halves else None
        halves = halves_after(before, clients, t, 3, OFTEN["test_epochs"], size, known)
        sides = average_linkage([one + other for one, other in halves.values()])
        due = len(clients) > 3 and chance(halves) < OFTEN["level"] and min(map(len, sides)) >= OFTEN["min_size"]
        return sides if due else None, halves

    algorithm, result = fit(SplitHalfCFL, clients, rounds=14, seed=3, **OFTEN)
    assert 2 <= len(result.state.splits) <= 8 and not result.state.finished.any()
    assert_ends(algorithm, result.state, recursion(params, clients, 14, parts_of))


WHOLE = "every={} rounds and needs all clients of a cluster of 4 or more"


SHORT = [
    ({}, 9, WHOLE.format(20), 0),  # too short for the default
    ({"every": 1}, 3, WHOLE.format(1), 3),  # three clients are too few for halves
    ({"every": 1}, 5, WHOLE.format(1), 0),  # never all clients
    ({"every": 4}, 9, "", 9),
    ({"level": 0}, 9, "", 0),  # FedAvg on purpose
]


@pytest.mark.parametrize(("settings", "cohort", "said", "sums"), SHORT)
def test_a_run_that_could_test_nothing_says_so_at_its_end(settings, cohort, said, sums, recwarn):
    """And has no sums of halves, 3 K^2 numbers in each checkpoint, before all clients of a cluster had some."""
    clients = conflicting(1) if cohort == 3 else conflicting()
    state = fit(SplitHalfCFL, clients, rounds=6, cohort=cohort, test_epochs=1, **settings)[1].state
    assert state.halves.shape == (3, sums, sums)
    assert len(recwarn) == bool(said) and all(said in str(w.message) and "round 6" in str(w.message) for w in recwarn)


def test_a_round_without_halves_is_no_test():
    """All clients took part once, in a round in which nothing was tested: that does not silence the warning."""
    algorithm = SplitHalfCFL(LOSS, every=2)
    state = begin(algorithm, [9] * 8, {"w": torch.zeros(3)})
    for round_, told in ((1, True), (2, False)):
        seen = replace(state, norms=torch.tensor([[round_, 0, 1, 1, 1.0, 0]]).double())
        assert bool(algorithm.unreached(seen, 6)) == told


def test_halves_of_a_client_that_stands_still_say_nothing_of_it_and_all_of_the_others():
    first, second = updates(np.random.RandomState(0), 9, in_turn(9) * torch.ones(30).double())
    gone, rest = summed([first.index_fill(0, torch.tensor([2]), 0), second]), [k for k in range(9) if k != 2]
    assert torch.equal(gone[:, rest][:, :, rest], summed([first[rest], second[rest]]))
    assert not gone[:, 2].any() and not gone[:, :, 2].any()
    assert chance_of_shared_cut(gone) == shared(first[rest], second[rest]) < 0.01


def test_halves_part_the_rows_and_have_one_size():
    """Every second row in an order that the seed draws; some left out, or repeated in turn. A single row is in both."""
    data = client_data(ragged_clients((1, 2, 5, 33)))
    for size in (2, 17):
        pair = halves(data, Key(3, 1), size)
        for k, n in enumerate(data.n.tolist()):
            order = Key(3).permutations(data.id[[k]], "halves", data.n[[k]], 1, n)[0, 0]
            for part, half in zip(pair, (order[::2], order[n > 1 :: 2]), strict=True):
                place = half[torch.arange(size) % len(half)]
                assert part.n[k] == size and torch.equal(part.index[k], data.index[k, place])
                assert torch.equal(part.y[k], data.y[k, place])


def shared(first, second):
    """The test of two halves' updates, each a matrix with a row for each client."""
    return chance_of_shared_cut(summed((first, second)))


def updates(random, clients, signal, dimensions=30):
    """Halves' updates with a signal for each client, and noise of which a few directions have the most."""
    scale = 1 / torch.arange(1, dimensions + 1).double().sqrt()
    return [signal + torch.from_numpy(random.standard_normal((clients, dimensions))) * scale for _ in range(2)]


def in_turn(clients):
    """1 and -1 in turn."""
    return 1 - 2.0 * (torch.arange(clients)[:, None] % 2)


def rare(chances):
    """Of 200 or more tests at 5 % fewer than 3 % are significant, for there are no groups; but p-values vary."""
    return np.mean(np.array(chances) < 0.05) < 0.03 and min(chances) < 0.5


def summed(halves):
    """The cosines of two halves' updates."""
    return cosines_of_halves(*({"w": half} for half in halves))


@pytest.mark.parametrize("clients", [4, 10, 25])
def test_the_test_errs_as_rarely_as_it_says(clients):
    random, signal = np.random.RandomState(0), torch.ones(30).double()
    assert rare([shared(*updates(random, clients, signal)) for _ in range(500)])


def test_the_test_errs_as_rarely_after_many_tests():
    """Of halves whose examples stay the same, so that their updates err the same way in every test, in part."""
    random, found = np.random.RandomState(0), []
    for _ in range(200):
        lasting = [0.5 * half for half in updates(random, 10, 0.0)]
        tests = [summed(map(torch.add, updates(random, 10, 0.7), lasting)) for _ in range(6)]
        found.append(chance_of_shared_cut(sum(tests)))
    assert rare(found)


def test_clients_with_noisier_updates_are_no_group():
    """All have one way in common, with more or less noise. The sides differ, as a two-sample test says too often."""
    random, found, naive = np.random.RandomState(0), [], []
    for _ in range(200):
        sure = torch.from_numpy(np.exp(random.standard_normal((20, 1))))
        cosines = summed(updates(random, 20, 0.3 * sure))
        found.append(chance_of_shared_cut(cosines))
        side = fedlib.server.clusters.bipartition(cosines[0], "average").assignment == 1
        if found[-1] < 1 and 1 < side.sum() < 19:
            place = cosines[2].T[:, side].mean(1) - cosines[2].T[:, ~side].mean(1)
            naive.append(stats.ttest_ind(place[side], place[~side], alternative="greater").pvalue)
    assert np.mean(np.array(found) < 0.05) < 0.03 and np.mean(np.array(naive) < 0.05) > 0.1


@pytest.mark.parametrize("clients", [5, 10, 20])
def test_clients_that_differ_one_by_one_are_no_groups(clients):
    """Each resembles its own other half and nobody else, as when a model has learned its examples by heart."""
    random = np.random.RandomState(0)

    def chance(signal):
        own, one, other = torch.from_numpy(random.standard_normal((3, clients, 1000)))
        return shared(signal + own + 0.3 * one, signal + own + 0.3 * other)

    assert all(chance(0.0) == 1 for _ in range(50))
    assert max(chance(1.5 * in_turn(clients)) for _ in range(50)) < (0.02 if clients == 5 else 1e-3)  # five are few


def test_the_probabilities_of_two_tests_are_those_of_plain_loops():
    """Of clients in four groups, and of clients that agree."""
    start = twin("MLP")[0]
    algorithm = SplitHalfCFL(LOSS, **LOCAL, every=1, test_epochs=3, level=1e-30)
    for (groups, each), seed in product([(4, 2), (1, 12)], [2, 3, 4]):
        clients = conflicting(groups, each, seed=seed)
        run = {"data": client_data(clients), "seed": seed, "progress": False}
        found = fedlib.fit(algorithm, start, rounds=2, **run).state.norms[:, 4].tolist()
        middle = fedlib.params.row(fedlib.fit(replace(algorithm, level=0), start, rounds=1, **run).state.models, 0)
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


def told(n, halves):
    """One round of CFL, with a test, of clients with n examples whose halves have these updates."""
    first, second = ({"w": half} for half in halves)
    entry = {"update": first, "first half": first, "second half": second, "n": torch.as_tensor(n)}
    algorithm = SplitHalfCFL(LOSS, every=1)
    start = begin(algorithm, n, {"w": torch.zeros(halves[0].shape[1])})
    return algorithm.aggregate(start, fedlib.algorithm.Update(torch.arange(len(n)), per_client=entry))


def test_a_client_with_one_example_is_not_tested():
    """It has no halves. But it is parted with the others."""
    random = np.random.RandomState(0)
    side = in_turn(10) * torch.tensor([1.0, 0, 0, 0]).double()
    halves = [side + torch.from_numpy(0.1 * random.standard_normal((10, 4))) for _ in range(2)]
    halves = [torch.cat([halves[0][:1], h[1:]]) for h in halves]
    ends = [told([n] + [9] * 9, halves) for n in (1, 9)]
    found, alone = [float(end.norms[0, 4]) for end in ends], shared(*(h[1:] for h in halves))
    assert found[0] == pytest.approx(alone, rel=1e-6, abs=0) and found[1] < alone / 10
    assert alone < 1e-3 and ends[0].assignment.tolist() == [0, 1] * 5


def test_halves_know_no_stragglers():
    """Slow clients that stopped early in both halves would look like a group."""
    settings = {"rounds": 1, "every": 1}
    a, b = (fit(SplitHalfCFL, ragged_clients(), stragglers=s, **settings)[1].state for s in (0.0, 0.9))
    assert torch.equal(a.halves, b.halves) and not torch.equal(*(s.models["dense1.bias"] for s in (a, b)))


def test_groups_with_a_common_direction_are_parted():
    """The rule asks whether clients differ in groups, not whether they are far from a common model."""
    random = np.random.RandomState(0)
    shift = in_turn(8) * torch.tensor([1.0, 0, 0, 0]).double() + torch.tensor([0.0, 3, 0, 0]).double()
    (cut,) = told([9] * 8, [shift + torch.from_numpy(0.1 * random.standard_normal((8, 4))) for _ in range(2)]).splits
    assert cut.part.tolist() == [0, 1] * 4 and cut.similarity.min() > 0
