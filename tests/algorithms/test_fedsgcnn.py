"""FedSGCNN against Algorithm 1 step by step, LG-FedAvg with the clusters it finds, and clusterings by hand; float64."""

import math
import warnings
from dataclasses import fields, replace
from functools import partial
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as tree
from scipy.spatial.distance import squareform
from twins import client_data, largest_difference

import fedlib
from fedlib import Key
from fedlib.algorithms import FedSGCNN, LGFedAvg, fedsgcnn
from fedlib.algorithms.fedsgcnn import dbscan, linkage, same_sizes
from fedlib.algorithms.lg_fedavg import LGFedAvgState
from fedlib.data import local_batches, stack_clients
from fedlib.local import local_update
from fedlib.losses import cross_entropy, mse
from fedlib.models import MLP
from fedlib.params import row
from fedlib.partition import tabular
from fedlib.server.model_graph import model_graph, train_siamese
from fedlib.server.transfer import positive_transfer

SEED, BATCH, EPOCHS = 3, 7, 2
IDS, SIZES = (4, 7, 9, 12, 20, 21, 33), (8, 6, 10, 5, 12, 7, 9)
PLANTED = (0, 1, 0, 2, 1, 2, 0)
NET = MLP((5, 6, 4, 1))
START = {name: p.double() for name, p in NET.init(SEED).items()}
SGD = partial(torch.optim.SGD, momentum=0.5)
SHARED, ALL, ONE = 8 * (4 * 6 + 4 + 4 + 1), 8 * (6 * 5 + 6 + 4 * 6 + 4 + 4 + 1), 8 * 6  # bytes: layers, one embedding


def loss(params, batch):
    return mse(NET(params, batch[0]), *batch[1:])


def rows(ids, sizes, seed=0):
    """Rows x (n, 5) and y (n,) of each client; every second client's target is small."""
    random = np.random.RandomState(seed)
    xs = [random.standard_normal((n, 5)) for n in sizes]
    return {i: (torch.from_numpy(x), torch.from_numpy(0.2 ** (i % 2) * x.sum(1))) for i, x in zip(ids, xs, strict=True)}


DATA = client_data(rows(IDS, SIZES))
CHECK = client_data(rows((33, 9, 4, 12, 5, 21, 20, 7), (3, 5, 4, 6, 2, 3, 4, 5), seed=1))  # any order, one more client


class Distance:
    """A predictor that knows the clusters."""

    def __init__(self, clusters):
        self.clusters = torch.as_tensor(clusters)

    def distance(self, graphs):
        return (self.clusters[:, None] != self.clusters).double()


def planted(graphs, pairs, gain, seed):
    return Distance(PLANTED)


LOCAL = {"lr": 0.05, "batch_size": BATCH, "epochs": EPOCHS, "optimizer": SGD}
QUICK = {"trainers": 3, "pair_rounds": 1, "snapshots": (1,), "predictor": planted}


def fit(algorithm, rounds=3, cohort=None, data=DATA, start=START, **more):
    return fedlib.fit(algorithm, start, data, rounds, cohort, seed=SEED, progress=False, **more)


def make(**settings):
    return FedSGCNN(loss, **{**LOCAL, **QUICK, **settings})


def one_cluster(algorithm, *args, **more):
    with pytest.warns(UserWarning, match="one cluster holds 7 of 7 clients: this is LG-FedAvg"):
        return fit(algorithm, *args, **more)


def quiet(algorithm, *args, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fit(algorithm, *args, **more)


def equal(a, b, kind=None):
    """All tensors of two states, or those that `kind` has, to the bit."""
    for f in fields(kind or type(a)):
        x, y = getattr(a, f.name), getattr(b, f.name)
        for p, q in [(x[n], y[n]) for n in {**x, **y}] if isinstance(x, dict) else [(x, y)]:
            if isinstance(p, torch.Tensor):
                same = p.dtype == q.dtype and p.shape == q.shape
                if not (same and bool(((p == q) | ((p != p) & (q != q))).all())):
                    return False
            elif p != q:
                return False
    return True


# --- LG-FedAvg with the clusters that are found -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "cohort"),
    [({"mmd": 0.0}, 4), ({"pool": 9, "noise": 0.1}, 3), ({"against": "pairs", "stragglers": 0.5}, None)],
)
def test_after_round_0_it_is_lg_fedavg(settings, cohort):
    """In one cluster, and in planted ones; nothing that happened before round 1 goes into it."""
    settings = {"mmd": 0.5, **settings}
    lg = partial(LGFedAvg, loss, **LOCAL, **settings)
    theirs, ours = fit(lg(), 2, cohort), one_cluster(make(levels=(1,), clustering="linkage", **settings), 2, cohort)
    assert equal(ours.state, theirs.state, LGFedAvgState)
    found, known = fit(make(**settings), 2, cohort), fit(lg(assignment=PLANTED), 2, cohort)
    assert equal(found.state, known.state, LGFedAvgState) and not equal(found.state, theirs.state, LGFedAvgState)
    for a, b in ((ours, theirs), (found, known)):
        a, b = (r.history[r.history["round"] > 0].reset_index() for r in (a, b))
        columns = [c for c in b if c not in ("index", "seconds") and "server" not in c]
        assert a[columns].equals(b[columns])
    assert torch.equal(found.state.distance, Distance(PLANTED).distance(None))


def test_new_clients_enroll_as_in_lg_fedavg():
    new = client_data(rows((50, 51), (6, 5), seed=2))
    ours, theirs = make(), LGFedAvg(loss, **LOCAL, mmd=0.5, assignment=PLANTED)
    a, b = (fedlib.new_clients(algorithm, fit(algorithm, 1), new, rounds=1).state for algorithm in (ours, theirs))
    assert equal(a, b, LGFedAvgState)


# --- Algorithm 1, one step after another ------------------------------------------------------------------------------


short_siamese = partial(train_siamese, epochs=25)


def slow(algorithm, check=None):
    """Lines 1 to 14: the trainers, gains, distances, clusters of each level and their scores."""
    key, k_all = Key(SEED), len(DATA)
    own = [(DATA.x[DATA.index[k, :n]], DATA.y[k, :n]) for k, n in enumerate(SIZES)]
    draws = [int(key.bits(torch.tensor([i]), "trainers")[0]) for i in IDS]
    trainers = sorted(sorted(range(k_all), key=lambda k: draws[k])[: algorithm.trainers])
    kept = held = own
    if check is None:
        order = [
            key.permutations(torch.tensor([i]), "validation", torch.tensor([n]), 1, n)[0, 0]
            for i, n in zip(IDS, SIZES, strict=True)
        ]
        back = [min(n - 1, max(1, round(n * algorithm.validation))) for n in SIZES]
        held = [(x[o[:b]], y[o[:b]]) for (x, y), o, b in zip(own, order, back, strict=True)]
        kept = [(x[o[b:]], y[o[b:]]) for (x, y), o, b in zip(own, order, back, strict=True)]
    else:
        held = [(check.x[check.index[c, :n]], check.y[c, :n]) for c, n in enumerate(check.n.tolist())]
        held = [held[check.id.tolist().index(i)] for i in IDS]
    train, validation = (stack_clients(*zip(*part, strict=True), ids=IDS) for part in (kept, held))
    settings = {f.name: getattr(algorithm, f.name) for f in fields(LGFedAvg)}
    starts = [START]
    for r in range(1, algorithm.repeats):
        starts.append({name: p.double() for name, p in algorithm.new_start(SEED + r).items()})
    gains, pairs = [], list(combinations(range(len(trainers)), 2))
    for i, j in pairs:
        two = torch.tensor([trainers[i], trainers[j]])
        lg, rounds = LGFedAvg(**settings | {"mmd": 0.0}), algorithm.pair_rounds
        gains.append(positive_transfer(lg, starts, train[two], validation[two], rounds, seed=SEED).gain)
    gain = torch.cat(gains, 1)

    graphs = []
    for epochs in algorithm.snapshots:
        ends = []
        for k in range(k_all):
            batches = local_batches(train[[k]], BATCH, epochs, key)
            ends.append(local_update(loss, {n: p[None] for n, p in START.items()}, batches, partial(SGD, lr=0.05)))
        stack = {n: torch.cat([end.params[n] for end in ends]) for n in START}
        graphs.append(model_graph(stack, ("dense2", "dense3")))
    picked = [g[torch.tensor(trainers)] for g in graphs]
    learned = short_siamese(picked, torch.tensor(pairs), gain.mean(0), algorithm.predictor, SEED)
    distance = learned.distance(graphs)

    make_clusters = dbscan if algorithm.clustering == "dbscan" else linkage
    clusters = [make_clusters(distance, level).tolist() for level in algorithm.levels]
    scores = [math.nan]
    if len(clusters) > 1:
        scores = []
        for assignment in clusters:
            lg = LGFedAvg(**settings | {"assignment": assignment})
            table = fedlib.evaluate(lg, fit(lg, algorithm.pair_rounds, data=train), validation)
            scores.append(-float(table["loss"].mean()))
    best = max(range(len(clusters)), key=lambda level: scores[level])
    return trainers, [[trainers[i], trainers[j]] for i, j in pairs], gain, distance, scores, clusters[best]


@pytest.mark.parametrize(
    "settings",
    [
        {"predictor": "paper", "levels": (0.3, 0.5, 0.7), "trainers": 5, "pair_rounds": 2, "mmd": 0.0},
        {"predictor": "book", "trainers": 3, "levels": (0.55,), "validation": CHECK},
        {
            "predictor": "book",
            "trainers": 4,
            "repeats": 2,
            "new_start": NET.init,
            "snapshots": (1, 5),
            "clustering": "linkage",
            "levels": (3, 1, 2),
            "validation": 0.4,
            "pool": 100,
        },
    ],
)
def test_equals_algorithm_1_step_by_step(settings, monkeypatch):
    algorithm = make(**settings)
    monkeypatch.setattr(fedsgcnn, "train_siamese", short_siamese)
    check = algorithm.validation if algorithm.validation is CHECK else None
    trainers, pairs, gain, distance, scores, assignment = slow(algorithm, check)
    state = quiet(algorithm, 2).state
    assert state.trainers.tolist() == trainers and state.pairs.tolist() == pairs
    assert state.gain.shape == (algorithm.repeats, len(pairs)) and (state.gain - gain).abs().max() <= 1e-10
    assert (state.distance - distance).abs().max() <= 1e-6 and distance.std() > 1e-3
    assert state.tried[:, 0].tolist() == list(algorithm.levels)
    assert state.tried[:, 1].tolist() == pytest.approx(scores, abs=1e-10, nan_ok=True)
    assert state.assignment.tolist() == assignment
    mmd = {"mmd": algorithm.mmd, "pool": algorithm.pool}
    lg = fit(LGFedAvg(loss, **LOCAL, **mmd, assignment=assignment), 2).state
    assert equal(state, lg, LGFedAvgState)


def test_trainers_are_drawn_by_chance():
    chosen = torch.stack([Key(seed).choose(DATA.id, 3, "trainers") for seed in range(200)])
    assert torch.bincount(chosen.flatten()).min() > 50
    states = [fedlib.fit(make(), START, DATA, 1, seed=seed, progress=False).state for seed in (3, 4, 5)]
    assert len({tuple(s.trainers.tolist()) for s in states}) > 1
    for s in states:
        i, j, k = s.trainers.tolist()
        assert s.pairs.tolist() == [[i, j], [i, k], [j, k]]


def test_nobody_is_slow_before_round_1():
    a, b = (fit(make(stragglers=share), 1) for share in (0.0, 0.9))
    assert torch.equal(a.state.gain, b.state.gain) and a.history["examples"][0] == b.history["examples"][0]
    assert a.history["examples"][1] > b.history["examples"][1]


def test_repeats_start_in_the_type_of_the_run():
    settings = {"repeats": 3, "new_start": NET.init}  # in 32 bits
    wide = fit(make(**settings), 1).state.gain
    new = [NET.init(SEED + r) for r in range(3)]
    doubled = fit(make(repeats=3, new_start=lambda seed: {n: p.double() for n, p in NET.init(seed).items()}), 1)
    assert torch.equal(wide, doubled.state.gain) and not any(torch.equal(wide[0], w) for w in wide[1:])
    assert new[0]["dense1.weight"].dtype == torch.float32


# --- validation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "sizes"), [(0.25, (2, 2, 2, 1, 3, 2, 2)), (0.01, (1,) * 7), (0.99, None)])
def test_rows_are_held_back_once(share, sizes):
    data = DATA[torch.tensor([4, 1, 0, 3, 2, 6, 5])].sorted()
    known, check = make(validation=share)._hold_back(data, Key(SEED))
    assert check.n.tolist() == (list(sizes) if sizes else [n - 1 for n in SIZES])
    for k, n in enumerate(SIZES):
        parts = [p.index[k, : int(p.n[k])].tolist() for p in (known, check)]
        assert len(parts[0]) + len(parts[1]) == n and sorted(parts[0] + parts[1]) == DATA.index[k, :n].tolist()
        for p in (known, check):
            assert torch.allclose(p.y[k], p.x[p.index[k]].sum(1) * 0.2 ** (IDS[k] % 2))  # padding repeats a row
            assert (p.index[k, int(p.n[k]) :] == p.index[k, 0]).all()
    again, _ = make(validation=share)._hold_back(data[2:4], Key(SEED))
    assert torch.equal(again.index[0, : int(known.n[2])], known.index[2, : int(known.n[2])])
    other, _ = make(validation=share)._hold_back(data, Key(SEED + 1))
    assert not torch.equal(other.index, known.index)


def test_all_rows_are_used_from_round_1_on():
    history = fit(make(validation=0.5), 2).history.set_index("round")
    assert history.loc[1, "examples"] == history.loc[2, "examples"] == EPOCHS * sum(SIZES)
    assert history.loc[1, "bytes_up (mmd)"] == ONE * sum(SIZES)


def test_validation_rows_are_matched_by_id():
    a = fit(make(validation=CHECK), 1).state
    b = fit(make(validation=CHECK.sorted().to("cpu", torch.float64)), 1).state
    other = fit(make(validation=replace(CHECK, id=CHECK.id.flip(0))), 1).state
    assert equal(a, b) and not torch.equal(a.gain, other.gain)


def test_rows_of_validation_change_nothing_but_the_clusters():
    a, b = (fit(make(validation=v), 2).state for v in (CHECK, 0.25))
    assert equal(a, b, LGFedAvgState) and not torch.equal(a.gain, b.gain)


# --- clusters ---------------------------------------------------------------------------------------------------------


def on_a_line(*places):
    places = torch.tensor(places, dtype=torch.float64)
    return (places[:, None] - places).abs()


def test_dbscan_by_hand():
    #     alone  chain of .5 steps, not in order      pair        alone
    line = (9.0, 1.5, 0.0, 0.5, 4.0, 1.0, 4.5, 12.0)
    d = on_a_line(*line)
    assert dbscan(d, 0.5).tolist() == [0, 1, 1, 1, 2, 1, 2, 3]  # 0.5 apart is near
    assert dbscan(d, 0.4999).tolist() == list(range(8))
    assert dbscan(d, 2.5).tolist() == [0, 1, 1, 1, 1, 1, 1, 2]
    assert dbscan(d, 100.0).tolist() == [0] * 8
    assert dbscan(d, 0.5, min_samples=3).tolist() == [0, 1, 1, 1, 2, 1, 3, 4]  # a pair has no core
    order = [7, 4, 3, 0, 6, 5, 2, 1]
    assert dbscan(d[order][:, order].numpy(), 0.5).tolist() == [0, 1, 2, 3, 1, 2, 2, 2]
    assert dbscan(d.float().requires_grad_(), 0.5).dtype == torch.int64
    assert dbscan(torch.zeros(1, 1), 0.5).tolist() == [0]


def in_order(labels):
    seen = []
    return [seen.index(label) for label in labels if label in seen or not seen.append(label)]


@pytest.mark.parametrize("seed", range(3))
def test_linkage_is_that_of_scipy(seed):
    random = np.random.RandomState(seed).uniform(size=(12, 12))
    d = np.triu(random, 1) + np.triu(random, 1).T
    joined = tree(squareform(d), "average")
    for clusters in range(1, 13):
        found = linkage(torch.from_numpy(d), clusters)
        assert found.dtype == torch.int64
        assert found.tolist() == in_order(fcluster(joined, clusters, "maxclust"))
    assert linkage(np.zeros((1, 1)), 1).tolist() == [0]
    for wrong in (0, 13):
        with pytest.raises(ValueError, match=f"from 1 to the number of clients, 12; got {wrong}"):
            linkage(d, wrong)


def test_random_clusters_of_the_same_sizes():
    given = [0] * 5 + [1] * 3 + [2] * 12
    found = [same_sizes(given, seed) for seed in range(200)]
    assert all(torch.bincount(f).tolist() == [5, 3, 12] for f in found)
    assert torch.equal(found[0], same_sizes(torch.tensor(given), 0)) and found[0].tolist() != found[1].tolist()
    share = torch.stack(found).eq(2).double().mean(0)  # each client is as likely in the big cluster
    assert ((share - 0.6).abs() < 5 * (0.24 / 200) ** 0.5).all()


# --- levels -----------------------------------------------------------------------------------------------------------


def try_levels(monkeypatch, score, **settings):
    """The state, and the clusterings that were tried, when `score` says how good so many clusters are."""
    tried = []

    def federated_score(algorithm, start, train, validation, rounds, kind, seed, purpose):
        assert (rounds, kind, seed, purpose) == (1, "loss", SEED, "clustering") and algorithm.mmd == 0.5
        assert torch.equal(train.n + validation.n, DATA.n)
        tried.append(algorithm.assignment)
        value = torch.full((7,), float(score[max(algorithm.assignment) + 1]))
        value[2] = torch.nan  # of a client that has no score
        return value

    monkeypatch.setattr(fedsgcnn, "federated_score", federated_score)
    return fit(make(clustering="linkage", **settings), 1).state, tried


def test_the_best_level_on_validation_rows_wins(monkeypatch):
    levels = (4, 2, 3, 5)
    for best in (2, 3, 4, 5):
        state, tried = try_levels(monkeypatch, {m: -abs(m - best) for m in levels}, levels=levels)
        assert [max(t) + 1 for t in tried] == list(levels)
        assert state.tried.tolist() == [[m, -abs(m - best)] for m in levels]
        assert state.assignment.tolist() == linkage(state.distance, best).tolist()
        assert len(state.pool) == len(state.models["dense2.bias"]) == best
    state, _ = try_levels(monkeypatch, dict.fromkeys(levels, 1.0), levels=levels)
    assert len(state.pool) == 4  # of equals the first


def test_equal_clusters_are_tried_once_and_a_single_level_never(monkeypatch):
    with monkeypatch.context() as patch:
        calls = []
        patch.setattr(fedsgcnn, "federated_score", lambda a, *_: (calls.append(a.assignment), torch.zeros(7))[1])
        state = fit(make(levels=(0.2, 0.5, 0.9)), 1).state  # planted distances are 0 and 1
        assert calls == [PLANTED] and state.tried.tolist() == [[0.2, 0], [0.5, 0], [0.9, 0]]
        for single in ((0.5,), (0.5, 0.5)):
            state = fit(make(levels=single), 1).state
            assert len(calls) == 1 and state.tried[:, 0].tolist() == [0.5] and state.tried[:, 1].isnan().all()


# --- warnings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        ((0,) * 7, "one cluster holds 7 of 7 clients"),
        (range(7), "each of the 7 clients is alone"),
        ((0,) * 6 + (1,), None),
        ((0,) * 18 + (1, 2), "one cluster holds 18 of 20 clients"),
        ((0,) * 17 + (1, 1, 2), None),
        ((0, 0), None),
        ((0, 1), "each of the 2 clients is alone"),
    ],
)
def test_clusters_that_are_none_are_told(clusters, message):
    n = len(clusters)
    algorithm = make(predictor=lambda *_: Distance(clusters), mmd=0.0)
    data = client_data(rows(range(n), [4] * n))
    if message is None:
        fit(algorithm, 1, data=data)
    else:
        with pytest.warns(UserWarning, match=message):
            fit(algorithm, 1, data=data)


# --- costs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [(0.5,), (0.5, 0.7, 2.0)])
def test_costs_before_round_1_by_hand(levels):
    settings = {"trainers": 4, "pair_rounds": 3, "repeats": 2, "new_start": NET.init, "snapshots": (2, 5)}
    result = quiet(make(**settings, levels=levels, pool=9), 1)
    history, state = result.history.set_index("round"), result.state
    known = [n - max(1, round(n * 0.25)) for n in SIZES]
    mine = [known[k] for k in state.trainers]
    models = 2 * 3 * 12  # repeats, rounds, two clients of each of six pairs
    down, up = {"transfer": models * SHARED}, {"transfer": models * (SHARED + 8)}
    examples = {"transfer": 2 * 3 * EPOCHS * (sum(mine) + 3 * sum(mine))}  # alone, and with three others
    down["clustering"], up["clustering"] = 7 * ALL, 2 * 7 * SHARED
    examples["clustering"] = (2 + 5) * sum(known)
    if len(levels) > 1:  # two clusterings: the planted one and a single cluster
        down["clustering"] += 2 * 3 * 7 * (SHARED + 9 * ONE)
        up["clustering"] += 2 * (sum(known) * ONE + 3 * (7 * (SHARED + 8) + sum(known) * ONE))
        examples["clustering"] += 2 * 3 * EPOCHS * sum(known)
        assert state.tried[0, 1] == state.tried[1, 1] != state.tried[2, 1]
    up["mmd"] = sum(SIZES) * ONE  # the first embeddings
    for column, parts in {"bytes_down": down, "bytes_up": up, "examples": examples}.items():
        for purpose, amount in parts.items():
            assert history.loc[0, f"{column} ({purpose})"] == amount
        assert history.loc[0, column] == sum(parts.values())
    assert history.loc[0, "server_seconds (clustering)"] > 0 and history.loc[0, "flops (transfer)"] > 0
    assert not history.loc[1].filter(regex=r"transfer|clustering").sum()


# --- invariances and checkpoints --------------------------------------------------------------------------------------


def test_order_of_clients_and_chunks():
    settings = {"predictor": "book", "trainers": 4, "levels": (0.5, 0.6), "pool": 9}
    state = quiet(make(**settings), 2, 4).state
    assert equal(quiet(make(**settings), 2, 4, data=DATA[[5, 0, 6, 2, 1, 4, 3]]).state, state)
    chunks = quiet(make(**settings, chunk_size=2), 2, 4).state
    assert (chunks.gain - state.gain).abs().max() <= 1e-12 and torch.equal(chunks.assignment, state.assignment)
    assert largest_difference(chunks.models, state.models) <= 1e-12


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    settings = {"validation": CHECK, "levels": (0.5, 2.0), "pool": 9}
    whole = quiet(make(**settings), 4, 4)
    quiet(make(**settings), 2, 4, checkpoint=fedlib.Checkpoint(tmp_path / "run"))
    resumed = fit(
        make(**settings), 4, 4, checkpoint=fedlib.Checkpoint(tmp_path / "run")
    )  # what was before round 1 is not done again
    assert type(resumed.state) is type(whole.state) and equal(resumed.state, whole.state)
    columns = ["bytes_down", "bytes_up", "bytes_up (clustering)", "examples", "train_loss"]
    assert resumed.history[columns].equals(whole.history[columns]) and len(resumed.history) == 5
    for name, wrong in {"validation": replace(CHECK, y=CHECK.y + 1), "levels": (0.5,), "trainers": 4}.items():
        with pytest.raises(ValueError, match=f"FedSGCNN.{name}: "):
            fit(make(**settings | {name: wrong}), 4, 4, checkpoint=fedlib.Checkpoint(tmp_path / "run"))


# --- recipes and mistakes ---------------------------------------------------------------------------------------------


def test_recipes():
    paper = FedSGCNN.recipe("paper", loss, lr=0.3)
    assert (paper.pair_rounds, paper.snapshots, paper.predictor) == (100, (10,), "paper")
    assert (paper.clustering, paper.levels, paper.repeats, paper.lr, paper.mmd) == ("dbscan", (0.5,), 1, 0.3, 0.5)
    book = FedSGCNN.recipe("book", loss, new_start=NET.init, levels=(2,))
    assert (book.pair_rounds, book.snapshots, book.predictor, book.repeats) == (20, (10, 100), "book", 4)
    assert (book.clustering, book.levels, book.trainers) == ("linkage", (2,), 10)
    assert FedSGCNN.recipe("book", loss, repeats=1).levels == (1, 2, 3, 4)
    with pytest.raises(ValueError, match="repeats=4 needs new_start"):
        FedSGCNN.recipe("book", loss)
    with pytest.raises(ValueError, match="recipe must be 'paper' or 'book', got 'other'"):
        FedSGCNN.recipe("other", loss)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"assignment": PLANTED}, "assignment is what FedSGCNN finds; for known clusters take LGFedAvg"),
        ({"trainers": 1}, "trainers must be a whole number of at least 2, got 1"),
        ({"trainers": 2.5}, "trainers must be a whole number of at least 2, got 2.5"),
        ({"pair_rounds": 0}, "pair_rounds must be a whole number of at least 1, got 0"),
        ({"repeats": 0}, "repeats must be a whole number of at least 1, got 0"),
        ({"repeats": 2}, "repeats=2 needs new_start, such as model.init"),
        ({"validation": 0.0}, "validation must be ClientData or a share between 0 and 1, got 0.0"),
        ({"validation": 1}, "validation must be ClientData or a share between 0 and 1, got 1"),
        ({"snapshots": ()}, r"snapshots must hold numbers of local epochs from 1, got \(\)"),
        ({"snapshots": (10, 0)}, "snapshots must hold numbers of local epochs from 1"),
        ({"snapshots": (0.5,)}, "snapshots must hold numbers of local epochs from 1"),
        ({"predictor": "paper "}, 'predictor must be "paper", "book" or a function'),
        ({"clustering": "kmeans"}, 'clustering must be "dbscan" or "linkage", got \'kmeans\''),
        ({"levels": ()}, "levels must hold at least one value"),
        ({"levels": (0.5, 0.0)}, r"levels must hold values of eps above 0, got \(0.5, 0.0\)"),
        ({"levels": (math.nan,)}, "levels must hold values of eps above 0"),
        ({"clustering": "linkage", "levels": (2, 1.5)}, r"levels must hold numbers of clusters from 1, got \(2, 1.5\)"),
        ({"clustering": "linkage", "levels": (0,)}, "levels must hold numbers of clusters from 1"),
        ({"pool": 0}, "pool must be a whole number"),
    ],
)
def test_mistakes_in_settings_are_told(wrong, message):
    with pytest.raises(ValueError, match=message):
        make(**wrong)


@pytest.mark.parametrize(
    ("settings", "data", "message"),
    [
        ({"clustering": "linkage", "levels": (1, 8)}, DATA, "not exceed the number of clients, 7; got \\(1, 8\\)"),
        ({}, DATA[:1], "FedSGCNN compares clients and needs at least 2, got 1; take LocalOnly"),
        ({"validation": CHECK[2:]}, DATA, r"validation has no rows of clients \[9, 33\]; give rows of each client"),
        ({}, client_data(rows((1, 2, 3), (5, 1, 1))), r"clients \[2, 3\] have one row, none to hold back"),
        ({"score": "r2"}, DATA, "score 'r2' needs an algorithm with predict"),
        ({"local": ("dense",)}, DATA, r"local names \['dense'\], which no parameter has"),
        ({"local": ("dense1", "dense2", "dense3")}, DATA, "layers must name at least one dense layer"),
    ],
)
def test_mistakes_in_the_data_are_told(settings, data, message):
    with pytest.raises(ValueError, match=message):
        fit(make(**settings), data=data)


def test_a_client_that_diverges_before_round_1_is_named():
    wild = replace(DATA, x=torch.where(torch.arange(len(DATA.x))[:, None] == DATA.index[3, 1], 1e200, DATA.x))
    algorithm = make(trainers=2, validation=CHECK)
    assert 3 not in Key(SEED).choose(DATA.id, 2, "trainers")
    with pytest.raises(
        FloatingPointError, match=r"parameters of clients \[12\] became NaN or infinite in 1 local epoch"
    ):
        fit(algorithm, 1, data=wild)


# --- scores, and tables of the paper's size ---------------------------------------------------------------------------


def test_pairs_without_a_gain_teach_nothing():
    """R2 of a client whose validation targets are all equal is NaN."""
    seen = []

    def look(graphs, pairs, gain, seed):
        seen.append((pairs.tolist(), gain))
        return Distance(PLANTED)

    flat = torch.where((CHECK.id == 9)[:, None], 1.0, CHECK.y)
    settings = {"predictor": look, "score": "r2", "predict": NET, "trainers": 99, "repeats": 2, "new_start": NET.init}
    state = fit(make(**settings, validation=replace(CHECK, y=flat)), 1).state
    mine = (state.pairs == IDS.index(9)).any(1)
    assert mine.sum() == 6 and torch.equal(state.gain.isnan(), mine.expand(2, -1))
    assert seen[0][0] == state.pairs[~mine].tolist() and torch.equal(seen[0][1], state.gain[:, ~mine].mean(0))


@pytest.mark.parametrize("recipe", ["paper", "book"])
def test_a_table_of_the_papers_size(recipe):
    """Boston Housing's shape and the paper's setting, with fewer rounds."""
    random = np.random.RandomState(0)
    x = random.standard_normal((506, 13)).astype(np.float32)
    y = (x[:, :6].sum(1) + 0.1 * random.standard_normal(506)).astype(np.float32)
    table = tabular.Table("boston", x, y, tuple(map(str, range(13))), tuple((c,) for c in range(13)))
    s = tabular.SETTINGS["boston"]
    dealt = tabular.deal(table, s.clients, s.rows, s.features, groups=s.groups, plant="scale", strength=1.0)
    net = MLP((5, *s.hidden, 1))
    algorithm = FedSGCNN.recipe(
        recipe,
        lambda params, batch: mse(net(params, batch[0]), *batch[1:]),
        lr=s.lr,
        batch_size=s.batch_size,
        epochs=s.epochs,
        optimizer=partial(torch.optim.SGD, momentum=s.momentum),
        predict=net,
        trainers=4,
        pair_rounds=1,
        score="r2",
        **({"new_start": net.init, "snapshots": (1, 3), "levels": (2,)} if recipe == "book" else {}),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        result = fedlib.fit(algorithm, net.init(0), dealt.train, 3, eval_data=dealt.test, progress=False)
    history, state = result.history, result.state
    assert history["test_r2"].iloc[-1] > history["test_r2"].iloc[1] and history["test_r2"].iloc[-1] > 0
    assert state.distance.shape == (20, 20) and 0 <= state.distance.min() <= state.distance.max() <= 1
    assert torch.equal(state.distance, state.distance.T) and not state.distance.diagonal().any()


def test_classes():
    """A table of classes, gains in accuracy."""
    table = tabular.table("breast_cancer")
    dealt = tabular.deal(table, 8, 20, (3, 5), validation=10)
    net = MLP((5, 8, 6, 2))
    algorithm = FedSGCNN(
        lambda params, batch: cross_entropy(net(params, batch[0]), *batch[1:]),
        **{**LOCAL, "lr": 0.1, "predict": net, "validation": dealt.validation, "score": "accuracy"},
        trainers=4,
        pair_rounds=3,
        clustering="linkage",
        levels=(2,),
        predictor="book",
    )
    result = fedlib.fit(algorithm, net.init(0), dealt.train, 6, eval_data=dealt.test, progress=False)
    assert result.history["test_accuracy"].iloc[-1] > 0.85
    tenths = result.state.gain[0] * 20  # of two clients with ten rows each
    assert (tenths - tenths.round()).abs().max() < 1e-9 and tenths.any()
    start, one = row(algorithm.client_params(result.state, torch.arange(1)), 0), torch.arange(8)
    assert (
        start["dense1.weight"].shape == (8, 5) and len(algorithm.client_params(result.state, one)["dense3.bias"]) == 8
    )
