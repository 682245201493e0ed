"""Transfer between pairs against federations of two, one after another; predictors and scores against plain loops."""

import math
from functools import partial
from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fedlib import fit
from fedlib.algorithms.lg_fedavg import LGFedAvg
from fedlib.algorithms.local_only import LocalOnly
from fedlib.costs import open_costs, record
from fedlib.data import stack_clients
from fedlib.evaluation import evaluate
from fedlib.losses import cross_entropy, mse
from fedlib.models import MLP
from fedlib.params import count, row, to_matrix
from fedlib.server.transfer import (
    all_pairs,
    answer_distance,
    between,
    cosine_distance,
    feature_overlap,
    federated_score,
    fit_threshold,
    hand_made,
    l2_distance,
    logistic_pairs,
    majority,
    pair_scores,
    positive_transfer,
    repeat_auc,
    ridge_pairs,
    sign_agreement,
)

NET = MLP((3, 6, 4, 1))
CLASSIFIER = MLP((3, 6, 4, 3))


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(shape))


def close(a, b, atol=1e-10):
    torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), atol=atol, rtol=0, equal_nan=True)


def start(net=NET, seed=0):
    return {name: p.double() for name, p in net.init(seed).items()}


def lg(net=NET, **settings):
    if net is NET:

        def loss(params, batch):
            return mse(net(params, batch[0])[:, 0], *batch[1:])
    else:

        def loss(params, batch):
            return cross_entropy(net(params, batch[0]), *batch[1:])

    local = {"lr": 0.05, "batch_size": 4, "epochs": 2, "optimizer": partial(torch.optim.SGD, momentum=0.5)}
    return LGFedAvg(loss, **{**local, "predict": net, **settings})


def clients(ids, sizes, seed=0, classes=False, targets=None):
    """Rows of each client; its targets belong to its id."""
    xs = [normal(n, 3, seed=seed + i) for i, n in zip(ids, sizes, strict=True)]
    ys = [targets(i, x) if targets else (1 + i % 3) * x[:, 0] - x[:, (i + 1) % 3] for i, x in zip(ids, xs, strict=True)]
    return stack_clients(xs, [(y > 0).long() + (y > 1).long() if classes else y for y in ys], ids)


TRAIN = clients([11, 3, 8, 5], [6, 9, 5, 7])
VALIDATION = clients([5, 11, 3, 20, 8], [4, 7, 3, 5, 6], seed=100)


def one_after_another(algorithm, start, train, validation, rounds, column, seed):
    """Each client alone, then each pair as a federation of its own; in ascending order of ids."""
    ids = sorted(train.id.tolist())

    def scores(algorithm, some):
        mine = train[torch.isin(train.id, torch.tensor(some))]
        result = fit(algorithm, start, mine, rounds, seed=seed, progress=False)
        table = evaluate(algorithm, result, validation[torch.isin(validation.id, torch.tensor(some))])
        return table.set_index("id")[column].loc[some].tolist()

    settings = ("loss", "lr", "batch_size", "epochs", "predict", "optimizer")
    alone = LocalOnly(**{name: getattr(algorithm, name) for name in settings})
    local = [scores(alone, [i])[0] for i in ids]
    federated = [scores(algorithm, list(pair)) for pair in combinations(ids, 2)]
    sign = -1 if column == "loss" else 1
    return sign * torch.tensor(local, dtype=torch.float64), sign * torch.tensor(federated, dtype=torch.float64)


@pytest.mark.parametrize(
    ("settings", "column"),
    [
        ({}, "loss"),
        ({"optimizer": torch.optim.Adam, "batch_size": None}, "r2"),
        ({"local": ("dense1", "dense3.bias")}, "loss"),
        ({"net": CLASSIFIER}, "accuracy"),
        ({"mmd": 0.5, "against": "mean"}, "loss"),
        ({"mmd": 0.5, "against": "pairs", "noise": 0.1, "squared": True}, "loss"),
        ({"mmd": 0.5, "pool": 10}, "loss"),
    ],
)
def test_all_pairs_at_once_equal_one_after_another(settings, column):
    algorithm = lg(**settings)
    classes, train = settings.get("net") is CLASSIFIER, TRAIN
    if "pool" in settings:  # all rows of a pair: the one pool that does not depend on the draw
        train = clients([11, 3, 8, 5], [5] * 4)
    elif classes:
        train = clients([11, 3, 8, 5], [6, 9, 5, 7], classes=True)
    validation = clients([5, 11, 3, 20, 8], [4, 7, 3, 5, 6], seed=100, classes=True) if classes else VALIDATION
    starts = [start(settings.get("net", NET), seed) for seed in range(1 if settings else 2)]
    train = train[:3]  # ids 11, 3 and 8
    found = positive_transfer(algorithm, starts, train, validation, 2, score=column, seed=7)
    for r in range(len(starts)):
        local, federated = one_after_another(algorithm, starts[r], train, validation, 2, column, 7 + r)
        close(found.local[r], local)
        close(found.federated[r], federated)
        gain = [sum(pair) / 2 - (local[i] + local[j]) / 2 for pair, (i, j) in zip(federated, found.pairs, strict=True)]
        close(found.gain[r], torch.stack(gain))
    assert found.gain.dtype == torch.float64 and found.gain.abs().max() > 1e-3


def test_some_pairs():
    everything = positive_transfer(lg(), [start()], TRAIN, VALIDATION, 2)
    some = positive_transfer(lg(), [start()], TRAIN, VALIDATION, 2, pairs=torch.tensor([[3, 0], [0, 1]]))
    assert everything.pairs.tolist() == [list(pair) for pair in combinations(range(4), 2)]
    close(some.gain, everything.gain[:, [2, 0]])
    close(some.federated, torch.stack([everything.federated[:, 2].flip(1), everything.federated[:, 0]], 1))
    assert some.local[0].isnan().tolist() == [False, False, True, False]
    close(some.local[0, [0, 1, 3]], everything.local[0, [0, 1, 3]])


def test_a_score_of_ones_own():
    def score(params, batch):
        x, y, w = batch
        return -((NET(params, x)[:, 0] - y).abs() * w).sum() / w.sum()

    algorithm = lg()
    found = positive_transfer(algorithm, [start()], TRAIN, VALIDATION, 2, score=score)
    local, federated = one_after_another(algorithm, start(), TRAIN, VALIDATION, 2, "mae", 0)
    close(found.local[0], -local)
    close(found.federated[0], -federated)


def test_a_federation_of_more_than_two():
    algorithm = lg(assignment=[0, 1, 0, 0])
    result = fit(algorithm, start(), TRAIN, 2, seed=3, progress=False)
    expected = torch.tensor(evaluate(algorithm, result, VALIDATION[[0, 1, 2, 4]].sorted())["r2"].to_numpy())
    with open_costs() as ledger:
        found = federated_score(
            algorithm, start(), TRAIN, VALIDATION[[0, 1, 2, 4]], 2, "r2", seed=3, purpose="choice of eps"
        )
    close(found, expected)
    assert ledger.entries["choice of eps"]["examples"] == 2 * 2 * int(TRAIN.n.sum()) and len(ledger.entries) == 1


def test_equal_targets_have_no_r2():
    validation = clients([3, 5, 8, 11], [4] * 4, 100, targets=lambda i, x: x[:, 0] if i != 5 else 0 * x[:, 0] + 2)
    gain = positive_transfer(lg(), [start()], TRAIN, validation, 1, score="r2").gain
    assert gain[0].isnan().tolist() == [1 in pair for pair in all_pairs(4).tolist()]


@pytest.mark.parametrize("score", ["loss", "r2"])
@pytest.mark.parametrize(("local", "factor"), [((), -1), ((), 0.1), (("dense1",), 0.01)])
def test_helpful_and_harmful_pairs(local, factor, score):
    """Clients 0 and 1 have one task and few rows; 2 and 3 have many, 3 has targets of another scale or sign."""

    def data(sizes, seed):
        return clients(range(4), sizes, seed, targets=lambda i, x: (factor if i == 3 else 1) * x.sum(1))

    algorithm, starts = lg(local=local, lr=0.1, batch_size=None, epochs=5), [start()]
    pairs = torch.tensor([[0, 1], [2, 3]])
    found = positive_transfer(algorithm, starts, data([5, 5, 40, 40], 0), data([99] * 4, 50), 10, pairs, score)
    assert (found.gain[:, 0] > 0).all() and (found.gain[:, 1] < 0).all(), found.gain


def test_costs():
    algorithm, pairs = lg(mmd=0.5, pool=8, epochs=3), torch.tensor([[0, 1], [1, 2]])
    with open_costs() as ledger:
        record("training", examples=5)
        positive_transfer(algorithm, [start(), start(seed=1)], TRAIN, VALIDATION, 4, pairs)
    assert ledger.entries["training"]["examples"] == 5 and set(ledger.entries) == {"training", "transfer"}
    entry, (repeats, rounds) = ledger.entries["transfer"], (2, 4)
    n = dict(zip([3, 5, 8], [9, 7, 5], strict=True))
    in_pairs = [n[3], n[5], n[5], n[8]]
    assert entry["examples"] == repeats * rounds * 3 * (sum(n.values()) + sum(in_pairs))
    shared = 8 * count({name: p for name, p in start().items() if not name.startswith("dense1.")})
    embedding = 8 * 6
    assert entry["bytes_down"] == repeats * rounds * 4 * (shared + 8 * embedding)
    weight = 8  # a client's number of examples, which goes with its sums
    up = rounds * (4 * (shared + weight) + sum(in_pairs) * embedding) + sum(in_pairs) * embedding
    assert entry["bytes_up"] == repeats * up
    assert entry["flops"] > 300 * entry["examples"] and entry["server_seconds"] > 0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"starts": []}, ValueError, "starts is empty"),
        ({"rounds": 0}, ValueError, "rounds must be a whole number"),
        ({"pairs": torch.tensor([0, 1])}, ValueError, r"pairs must be whole numbers of shape \(P, 2\)"),
        ({"pairs": torch.zeros(0, 2).long()}, ValueError, "at least one pair"),
        ({"pairs": torch.tensor([[0, 1], [2, 4]])}, ValueError, r"positions from 0 to 3; got \[2, 4\]"),
        ({"pairs": torch.tensor([[1, 1]])}, ValueError, r"two different positions.*got \[1, 1\]"),
        ({"validation": VALIDATION[[0, 1, 3]]}, ValueError, r"no rows of clients \[3, 8\]"),
        ({"score": "mae"}, ValueError, "score must be 'loss', 'r2', 'accuracy' or a function, got 'mae'"),
        ({"score": "accuracy"}, ValueError, "score 'accuracy' needs .* classes in the data"),
        ({"algorithm": lg(predict=None), "score": "r2"}, ValueError, "score 'r2' needs an algorithm with predict"),
        ({"train": VALIDATION[[0, 0]]}, ValueError, "data holds a client twice"),
        ({"starts": [start(MLP((4, 6, 4, 1)))]}, ValueError, "the loss does not run with parameters"),
        ({"algorithm": lg(lr=1e9)}, FloatingPointError, r"client \d+ became NaN or infinite in round"),
    ],
)
def test_refuses(change, error, message):
    given = {"algorithm": lg(), "starts": [start()], "train": TRAIN, "validation": VALIDATION, "rounds": 5}
    with pytest.raises(error, match=message):
        positive_transfer(**{**given, **change})


# ---- how well one run tells of another ----


def slow_auc(negative, distance):
    told = list(zip(distance, negative, strict=True))
    wins = [(d > e) + (d == e) / 2 for d, a in told if a for e, b in told if not b]
    return sum(wins) / len(wins) if wins else math.nan


def test_repeats():
    gain = normal(4, 30, seed=1).round(decimals=1).numpy() + np.linspace(-1, 1, 30)
    gain[1, 3], gain[2, 5] = 0, np.nan
    agree, areas = [], []
    for a, b in permutations(range(4), 2):
        real = [p for p in range(30) if not np.isnan(gain[a, p]) and not np.isnan(gain[b, p])]
        agree += [(gain[a, p] > 0) == (gain[b, p] > 0) for p in real]
        areas.append(slow_auc([gain[b, p] <= 0 for p in real], [-gain[a, p] for p in real]))
    assert sign_agreement(gain) == pytest.approx(np.mean(agree), abs=1e-12)
    assert repeat_auc(torch.from_numpy(gain)) == pytest.approx(np.mean(areas), abs=1e-12)
    assert 0.5 < sign_agreement(gain) < 1 and 0.5 < repeat_auc(gain) < 1

    assert math.isnan(sign_agreement(gain[:1])) and math.isnan(repeat_auc(gain[0]))
    assert sign_agreement([[1, -1], [2, 0]]) == repeat_auc([[1, -1], [2, 0]]) == 1
    one_sign = [[1, 2, 3], [3, 2, -1]]  # only the second has two signs
    assert sign_agreement(one_sign) == pytest.approx(2 / 3) and repeat_auc(one_sign) == 0
    assert math.isnan(repeat_auc([[1, 2], [2, 1]]))


def test_the_bound_from_agreement():
    """The best guess for a pair that gains with chance p, against what two runs agree on."""
    random = np.random.RandomState(0)
    p = random.uniform(size=2000)
    agreement = sign_agreement(random.uniform(size=(20, 2000)) - 1 + p)
    assert np.maximum(p, 1 - p).mean() <= (1 + math.sqrt(2 * agreement - 1)) / 2 + 0.01
    same = sign_agreement(random.uniform(size=(20, 2000)) - 0.2)
    assert pytest.approx((1 + math.sqrt(2 * same - 1)) / 2, abs=0.01) == 0.8


def test_pairs_and_their_ends():
    assert all_pairs(4).tolist() == [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert all_pairs(1).shape == (0, 2)
    assert between(all_pairs(4), [3, 0, 2]).tolist() == [False, True, True, False, False, True]


# ---- distances ----


def stack(clients=7, seed=0):
    return {name: normal(clients, *p.shape, seed=seed + i) for i, (name, p) in enumerate(NET.init(0).items())}


def square(distance, clients):
    rows = [[float(distance(i, j)) for j in range(clients)] for i in range(clients)]
    return torch.tensor(rows, dtype=torch.float64)


def test_distances_by_double_loops():
    some = stack()
    flat = [torch.cat([p[k].flatten() for p in some.values()]) for k in range(7)]

    def cosine(i, j):
        return 1 - (flat[i] @ flat[j]) / (flat[i].norm() * flat[j].norm())

    close(cosine_distance(some), square(cosine, 7))
    close(l2_distance(some), square(lambda i, j: (flat[i] - flat[j]).norm(), 7))
    close(l2_distance(to_matrix(some)), l2_distance(some), 0)

    probe, net = normal(9, 3, seed=9), MLP((3, 6, 4, 2))
    some = {name: normal(7, *p.shape, seed=i) for i, (name, p) in enumerate(net.init(0).items())}
    answers = [net(row(some, k), probe) for k in range(7)]
    found = answer_distance(net, some, probe)
    close(found, square(lambda i, j: (answers[i] - answers[j]).square().mean().sqrt(), 7))
    assert torch.equal(found, found.T) and not found.diagonal().any()


def test_feature_overlap():
    columns = [np.array([0, 3, 5]), np.array([5, 3, 0]), np.array([1, 3, 5, 7]), np.array([2]), np.array([], int)]
    expected = torch.tensor([[0, 0, 3 / 5], [0, 0, 3 / 5], [3 / 5, 3 / 5, 0]], dtype=torch.float64)
    found = feature_overlap(columns)
    close(found[:3, :3], expected)
    assert (found[3, [0, 1, 2, 4]] == 1).all() and found[4, 4] == 0 and torch.equal(found, found.T)


def test_hand_made_numbers():
    some = stack()
    found = hand_made(some, ["dense2", "dense3"])
    assert found.shape == (7, 16)
    for k in range(7):
        expected = []
        for layer in ("dense2", "dense3"):
            w, b = some[f"{layer}.weight"][k].numpy().ravel(), some[f"{layer}.bias"][k].numpy().ravel()
            expected += [w.mean(), w.std(), np.sqrt((w**2).sum()), np.quantile(w, 0.1), np.quantile(w, 0.9)]
            expected += [b.mean(), b.std(), np.sqrt((b**2).sum())]
        close(found[k], torch.tensor(expected, dtype=torch.float64))
    order = torch.randperm(4, generator=torch.Generator().manual_seed(0))
    moved = some | {"dense2.weight": some["dense2.weight"][:, order], "dense2.bias": some["dense2.bias"][:, order]}
    close(hand_made(moved, ["dense2", "dense3"]), found)


# ---- learned distances ----

TRAINING, UNSEEN = range(12), range(12, 20)


def described(features, pairs):
    """Pair features, of features standardised on the training clients."""
    rows = features.numpy()
    seen = np.array([rows[k] for k in TRAINING])
    rows = (rows - seen.mean(0)) / seen.std(0)
    return np.array([np.concatenate([np.abs(rows[i] - rows[j]), rows[i] * rows[j]]) for i, j in pairs])


def planted(features=5, seed=0):
    """Two kinds of clients, seen in the first feature; pairs of different kinds lose."""
    f, kind = normal(20, features, seed=seed) * 3 + 10, np.arange(20) % 2
    f[:, 0] += 12 * torch.from_numpy(kind)
    pairs = all_pairs(20)
    across = kind[pairs[:, 0]] != kind[pairs[:, 1]]
    gain = np.where(across, -1, 1) + 0.3 * np.random.RandomState(seed).standard_normal(len(pairs))
    return f, pairs, gain


def check_distance(d):
    assert d.dtype == torch.float64 and torch.equal(d, d.T) and not d.diagonal().any()
    assert d.min() >= 0 and d.max() <= 1


def test_logistic_regression_of_pairs():
    f, pairs, gain = planted()
    mine = between(pairs, TRAINING)
    negative = (gain <= 0) ^ (np.arange(len(gain)) % 7 == 0)
    distance = logistic_pairs(f, pairs[mine], negative[mine], seed=0)
    check_distance(distance(f))
    model = LogisticRegression(max_iter=1000).fit(described(f, pairs[mine].tolist()), negative[mine])
    expected = model.predict_proba(described(f, pairs.tolist()))[:, 1]
    close(distance(f)[pairs[:, 0], pairs[:, 1]], torch.from_numpy(expected))
    close(distance(f[UNSEEN]), distance(f)[12:, 12:])
    close(logistic_pairs(f, pairs[mine].flip(1), negative[mine], seed=0)(f), distance(f))


def test_one_sign_only():
    f, pairs, _ = planted()
    for negative in (True, False):
        found = logistic_pairs(f, pairs, np.full(len(pairs), negative), seed=0)(f[:3])
        assert torch.equal(found, negative * (1 - torch.eye(3).double()))


def test_ridge_regression_of_pairs():
    f, pairs, gain = planted()
    mine = between(pairs, TRAINING)
    gain[3] = -50  # a pair of training clients, which must not rule
    assert mine[3]
    x, y = described(f, pairs[mine].tolist()), gain[mine]
    bound = np.quantile(np.abs(y), 0.9)
    y = np.clip(y, -bound, bound) / bound

    def solve(x, y, alpha):
        centre = x.mean(0)
        w = np.linalg.solve((x - centre).T @ (x - centre) + alpha * np.eye(x.shape[1]), (x - centre).T @ (y - y.mean()))
        return lambda z: (z - centre) @ w + y.mean()

    def left_out(alpha):
        keep = ~np.eye(len(y), dtype=bool)
        return sum((solve(x[k], y[k], alpha)(x[i]) - y[i]) ** 2 for i, k in enumerate(keep))

    best = min(np.logspace(-1, 5, 13), key=left_out)
    expected = 1 / (1 + np.exp(solve(x, y, best)(described(f, pairs.tolist()))))
    distance = ridge_pairs(f, pairs[mine], gain[mine])
    check_distance(distance(f))
    close(distance(f)[pairs[:, 0], pairs[:, 1]], torch.from_numpy(expected))
    close(distance(f[UNSEEN]), distance(f)[12:, 12:])


@pytest.mark.parametrize("features", [5, 200])
@pytest.mark.parametrize("learn", ["logistic", "ridge"])
def test_learned_distances_know_unseen_clients(learn, features):
    f, pairs, gain = planted(features)
    f[:, : features // 2] += 12 * (torch.arange(20) % 2)[:, None]  # a direction for principal components to find
    mine, test = between(pairs, TRAINING), between(pairs, UNSEEN)
    given = (f, pairs[mine], gain[mine] <= 0, 0) if learn == "logistic" else (f, pairs[mine], gain[mine])
    distance = (logistic_pairs if learn == "logistic" else ridge_pairs)(*given)
    check_distance(distance(f))
    told = distance(f)[tuple(pairs[test].T)]
    assert pair_scores(gain[test] <= 0, told, 0.5)["auc"] > 0.95
    shifted = distance(f[UNSEEN])
    again = (logistic_pairs if learn == "logistic" else ridge_pairs)(3 * f + 1, *given[1:])
    close(again((3 * f + 1)[UNSEEN]), shifted, 1e-6)


# ---- scores ----


def test_threshold_by_trying_all():
    random = np.random.RandomState(0)
    for _ in range(300):
        size = random.randint(1, 9)
        distance, negative = random.randint(0, 5, size) / 4, random.rand(size) < 0.5
        found = fit_threshold(distance, negative)
        tries = [-math.inf, *np.arange(-0.125, 1.2, 0.125), math.inf]
        accuracy = [((distance > t) == negative).mean() for t in tries]
        assert ((distance > found) == negative).mean() == max(accuracy)
        best = {tuple(distance > t) for t, a in zip(tries, accuracy, strict=True) if a == max(accuracy)}
        assert (distance > found).sum() == max(sum(b) for b in best)  # the smallest of equally good ones
    assert fit_threshold([0.2, 0.6], [False, True]) == pytest.approx(0.4)
    assert (
        fit_threshold([0.2, 0.6], [True, True]) == -math.inf and fit_threshold([0.2, 0.6], [False, False]) == math.inf
    )
    for wrong in ([], [0.1, np.nan]):
        with pytest.raises(ValueError, match="at least one pair and no NaN"):
            fit_threshold(wrong, [True] * len(wrong))


def test_scores_of_pairs():
    random = np.random.RandomState(0)
    for _ in range(50):
        negative, distance = random.rand(12) < 0.4, random.randint(0, 6, 12) / 5
        found = pair_scores(torch.from_numpy(negative), torch.from_numpy(distance), 0.5)
        right = [(d > 0.5) == bool(a) for d, a in zip(distance, negative, strict=True)]
        kinds = [[r for r, a in zip(right, negative, strict=True) if a == kind] for kind in (True, False)]
        both = all(kinds)
        assert found["accuracy"] == pytest.approx(np.mean(right))
        close(found["balanced_accuracy"], float(np.mean([np.mean(k) for k in kinds])) if both else math.nan)
        close(found["auc"], float(slow_auc(negative, distance)))
    one_kind = pair_scores([True, True], [0.2, 0.8], 0.5)
    assert one_kind["accuracy"] == 0.5
    assert math.isnan(one_kind["balanced_accuracy"]) and math.isnan(one_kind["auc"])


def test_majority():
    assert majority([True, True, False], [True, False, False, False]) == 0.25
    assert majority([False, True, False], [True, False, False, False]) == 0.75
    assert majority([False, True], [True, True, False]) == pytest.approx(2 / 3)
