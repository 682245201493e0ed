"""FedSGCNN against Algorithm 1 step by step, LG-FedAvg with the clusters it finds, and clusterings by hand; float64."""

from dataclasses import fields, replace
from functools import partial
from itertools import combinations
from operator import attrgetter

import numpy as np
import pytest
import torch
from refusals import refusals
from twins import assert_same, client_data, regression_loss, start_of

import fedlib
from book.experiments import tabular
from book.experiments.pair_predictors import train_on_gains
from fedlib.algorithms import FedSGCNN, LGFedAvg
from fedlib.algorithms.lg_fedavg import LGFedAvgState
from fedlib.local import local_update
from fedlib.server.distance_clusters import dbscan, linkage, same_sizes
from fedlib.server.model_graph import model_graph, train_siamese
from fedlib.server.transfer import hold_back, positive_transfer

SEED, BATCH, EPOCHS = 3, 7, 2
IDS, SIZES = (4, 7, 9, 12, 20, 21, 33), (8, 6, 10, 5, 12, 7, 9)
PLANTED = (0, 1, 0, 2, 1, 2, 0)
NET = fedlib.models.MLP((5, 6, 4, 1))
loss, START = regression_loss(NET), start_of(NET, SEED)
SGD = partial(torch.optim.SGD, momentum=0.5)
SHARED, ALL, ONE = 8 * (4 * 6 + 4 + 4 + 1), 8 * (6 * 5 + 6 + 4 * 6 + 4 + 4 + 1), 8 * 6  # bytes: layers, one embedding


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


LOCAL = {"lr": 0.05, "batch_size": BATCH, "epochs": EPOCHS, "optimizer": SGD}
QUICK = {"trainers": 3, "pair_rounds": 1, "snapshots": (1,), "learn": lambda *_, seed: Distance(PLANTED)}


def fit(algorithm, rounds=3, cohort=None, data=DATA, start=START, **more):
    return fedlib.fit(algorithm, start, data, rounds, cohort, seed=SEED, progress=False, **more)


def make(**settings):
    return FedSGCNN(loss, **{**LOCAL, **QUICK, **settings})


def federation(state):
    """The part that LG-FedAvg has too."""
    return LGFedAvgState(**{f.name: getattr(state, f.name) for f in fields(LGFedAvgState)})


# --- LG-FedAvg with the clusters that are found -----------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "cohort"), [({"mmd": 0.0}, 4), ({"pool": 9, "stragglers": 0.5}, None)])
def test_after_round_0_it_is_lg_fedavg(settings, cohort):
    """In the clusters it found; nothing that happened before round 1 goes into it, nor into new clients."""
    settings = {"mmd": 0.5, **settings}
    algorithms = make(**settings), LGFedAvg(loss, **LOCAL, **settings, assignment=PLANTED)
    ours, theirs = (fit(algorithm, 2, cohort) for algorithm in algorithms)
    assert_same(federation(ours.state), theirs.state)
    a, b = (r.history.query("round > 0").reset_index(drop=True) for r in (ours, theirs))
    columns = [c for c in b if "seconds" not in c]
    assert a[columns].equals(b[columns])
    assert torch.equal(ours.state.distance, Distance(PLANTED).distance(None))
    new = client_data(rows((50, 51), (6, 5), seed=2))
    enrolled = [fedlib.new_clients(*pair, new, rounds=1).state for pair in zip(algorithms, (ours, theirs), strict=True)]
    assert_same(federation(enrolled[0]), enrolled[1])


# --- Algorithm 1, one step after another ------------------------------------------------------------------------------


def slow(algorithm, clusterings):
    """Lines 1 to 14: the trainers, gains, distances, and the best of the clusterings."""
    key, k_all = fedlib.Key(SEED), len(DATA)
    draws = [int(key.bits(torch.tensor([i]), "trainers")[0]) for i in IDS]
    trainers = sorted(sorted(range(k_all), key=lambda k: draws[k])[: algorithm.trainers])
    of_others = CHECK[[CHECK.id.tolist().index(i) for i in IDS]]
    own = algorithm.validation is not CHECK
    train, validation = hold_back(DATA, algorithm.validation, key) if own else (DATA, of_others)
    settings = {f.name: getattr(algorithm, f.name) for f in fields(LGFedAvg)}
    pairs, lg = list(combinations(range(len(trainers)), 2)), LGFedAvg(**settings | {"mmd": 0.0})
    gains, score = [], {"score": algorithm.score, "seed": SEED}
    for i, j in pairs:
        two = torch.tensor([trainers[i], trainers[j]])
        gains.append(positive_transfer(lg, [START], train[two], validation[two], algorithm.pair_rounds, **score).gain)
    gain, graphs = torch.cat(gains, 1), []
    for epochs in algorithm.snapshots:
        ends = []
        for k in range(k_all):
            batches = fedlib.data.local_batches(train[[k]], BATCH, epochs, key)
            ends.append(local_update(loss, {n: p[None] for n, p in START.items()}, batches, partial(SGD, lr=0.05)))
        stack = {n: torch.cat([end.params[n] for end in ends]) for n in START}
        graphs.append(model_graph(stack, ("dense2", "dense3")))
    picked = [g[torch.tensor(trainers)] for g in graphs]
    distance = algorithm.learn(picked, torch.tensor(pairs), gain[0], seed=SEED).distance(graphs)

    scores = []
    for assignment in (make(distance).tolist() for make in clusterings):
        lg = LGFedAvg(**settings | {"assignment": assignment})
        table = fedlib.evaluate(lg, fit(lg, algorithm.pair_rounds, data=train), validation)
        scores.append(((-1 if algorithm.score == "loss" else 1) * float(table[algorithm.score].mean()), assignment))
    return trainers, gain, distance, max(scores, key=lambda s: s[0])[1]


DBSCAN = [partial(dbscan, eps=eps) for eps in (0.3, 0.5, 0.7)]
LINKAGE = [partial(linkage, clusters=m) for m in (3, 1, 2)]
BOOK = {"learn": partial(train_on_gains, epochs=25), "snapshots": (1, 5)}


CASES = [
    ({"learn": partial(train_siamese, epochs=25), "trainers": 5, "pair_rounds": 2, "mmd": 0.0}, DBSCAN),
    ({**BOOK, "trainers": 3, "validation": 0.01}, DBSCAN[1:2]),
    ({**BOOK, "trainers": 3, "validation": CHECK, "score": "r2", "predict": NET}, LINKAGE),
    ({**BOOK, "trainers": 4, "validation": 0.4, "pool": 100}, LINKAGE),
]


@pytest.mark.parametrize(("settings", "clusterings"), CASES)
def test_equals_algorithm_1_step_by_step(settings, clusterings):
    several = len(clusterings) > 1
    algorithm = make(**settings, cluster=(lambda d: [c(d) for c in clusterings]) if several else clusterings[0])
    trainers, gain, distance, assignment = slow(algorithm, clusterings)
    state = fit(algorithm, 1).state
    assert state.trainers.tolist() == trainers
    assert state.gain.shape == gain.shape and (state.gain - gain).abs().max() <= 1e-10
    assert (state.distance - distance).abs().max() <= 1e-6 and distance.std() > 1e-3
    assert state.assignment.tolist() == assignment


def test_nobody_is_slow_before_round_1():
    a, b = (fit(make(stragglers=share), 1) for share in (0.0, 0.9))
    assert torch.equal(a.state.gain, b.state.gain) and a.history["examples"][0] == b.history["examples"][0]
    assert a.history["examples"][1] > b.history["examples"][1]


def test_rows_held_back_take_their_columns_with_them_and_padding_repeats_a_row():
    data = DATA.with_columns(row=torch.arange(DATA.index.numel()).view_as(DATA.index))
    for share in (0.01, 0.25, 0.99):
        known, check = hold_back(data, share, fedlib.Key(SEED))
        for k, n in enumerate(SIZES):
            parts = [p.index[k, : int(p.n[k])].tolist() for p in (known, check)]
            assert sorted(parts[0] + parts[1]) == DATA.index[k, :n].tolist()
            assert len(parts[1]) == min(n - 1, max(1, round(n * share)))
            for p in (known, check):
                assert torch.allclose(p.y[k], p.x[p.index[k]].sum(1) * 0.2 ** (IDS[k] % 2))
                assert torch.equal(DATA.index.flatten()[p.columns["row"][k]], p.index[k])


# --- clusters ---------------------------------------------------------------------------------------------------------


def test_dbscan_by_hand():
    #             alone  chain of .5 steps, not in order      pair        alone
    line = torch.tensor([9.0, 1.5, 0.0, 0.5, 4.0, 1.0, 4.5, 12.0]).double()
    d = (line[:, None] - line).abs()
    assert dbscan(d, 0.5).tolist() == [0, 1, 1, 1, 2, 1, 2, 3]  # 0.5 apart is near
    assert dbscan(d, 0.4999).tolist() == list(range(8))
    assert dbscan(d, 2.5).tolist() == [0, 1, 1, 1, 1, 1, 1, 2]
    assert dbscan(d, 100.0).tolist() == [0] * 8
    assert dbscan(d, 0.5, min_samples=3).tolist() == [0, 1, 1, 1, 2, 1, 3, 4]  # a pair has no core
    order = [7, 4, 3, 0, 6, 5, 2, 1]
    assert dbscan(d[order][:, order].numpy(), 0.5).tolist() == [0, 1, 2, 3, 1, 2, 2, 2]
    assert dbscan(d.float().requires_grad_(), 0.5).dtype == torch.int64
    assert dbscan(torch.zeros(1, 1), 0.5).tolist() == [0]


def test_random_clusters_of_the_same_sizes():
    given = [0] * 5 + [1] * 3 + [2] * 12
    found = torch.stack([same_sizes(given, seed) for seed in range(200)])
    assert all(torch.bincount(f).tolist() == [5, 3, 12] for f in found)
    assert torch.equal(found[0], same_sizes(torch.tensor(given), 0)) and not torch.equal(found[0], found[1])
    share = found.eq(2).double().mean(0)  # each client is as likely in the big cluster
    assert ((share - 0.6).abs() < 5 * (0.24 / 200) ** 0.5).all()


# --- costs ------------------------------------------------------------------------------------------------------------


def test_costs_before_round_1_by_hand():
    """Of the clustering; those of the transfer are in `test_transfer`."""
    settings = {"trainers": 4, "pair_rounds": 3, "snapshots": (2, 5), "pool": 9}
    history = fit(make(**settings, cluster=lambda d: [linkage(d, m) for m in (2, 1)]), 1).history.set_index("round")
    n = sum(n - max(1, round(n * 0.25)) for n in SIZES)
    # each client's networks after 2 and 5 epochs; then two candidates are tried, with two centroids or with one
    clustering = {
        "bytes_down": 7 * ALL + 2 * 3 * 7 * (SHARED + 9 * ONE),
        "bytes_up": 2 * 7 * SHARED + 2 * (n * ONE + 3 * (7 * (SHARED + 8) + n * ONE)),
        "examples": (2 + 5) * n + 2 * 3 * EPOCHS * n,
    }
    first = {"bytes_down": 0, "bytes_up": sum(SIZES) * ONE, "examples": 0}  # embeddings
    for column, amount in clustering.items():
        assert history.loc[0, f"{column} (clustering)"] == amount
        assert history.loc[0, column] == amount + history.loc[0, f"{column} (transfer)"] + first[column]
    assert history.loc[0, "server_seconds (clustering)"] > 0 and history.loc[0, "flops (transfer)"] > 0
    assert not history.loc[1].filter(regex=r"transfer|clustering").sum()


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_run_that_is_resumed_knows_its_settings(tmp_path):
    """Validation rows too. That it ends as an uninterrupted one says `test_second_device`."""
    settings, stored = {"validation": CHECK}, fedlib.Checkpoint(tmp_path / "run")
    fit(make(**settings), 2, checkpoint=stored)
    for name, wrong in {"validation": replace(CHECK, y=CHECK.y + 1), "trainers": 4}.items():
        with pytest.raises(ValueError, match=f"FedSGCNN.{name}: "):
            fit(make(**settings | {name: wrong}), 3, checkpoint=stored)


# --- mistakes ---------------------------------------------------------------------------------------------------------


WILD = replace(DATA, x=torch.where(torch.arange(len(DATA.x))[:, None] == DATA.index[3, 1], 1e200, DATA.x))
assert 3 not in fedlib.Key(SEED).choose(DATA.id, 3, "trainers")  # the client that diverges
MISTAKES = {
    r"validation has no rows of clients \[9, 33\]; give rows of each client": {"validation": CHECK[2:]},
    "a share between 0 and 1 of at least 2 rows a client": {"data": client_data(rows((1, 2, 3), (5, 1, 1)))},
    "validation=1 must be ClientData, or a share between 0 and 1": {"validation": 1},
    "layers must name dense layers .* at least one": {"local": ("dense1", "dense2", "dense3")},
}
DIVERGED = {"client 12 became NaN or infinite in round 0": {"data": WILD, "validation": CHECK}}
test_mistakes_in_the_data_are_told = refusals(
    {ValueError: MISTAKES, FloatingPointError: DIVERGED},
    lambda given: fit(make(**{n: v for n, v in given.items() if n != "data"}), data=given.get("data", DATA)),
)


# --- scores, and what the paper states --------------------------------------------------------------------------------


def test_pairs_without_a_gain_teach_nothing():
    """R2 of a client whose validation targets are all equal is NaN."""
    seen = []

    def look(graphs, pairs, gain, seed):
        seen.append((pairs.tolist(), gain))
        return Distance(PLANTED)

    flat = torch.where((CHECK.id == 9)[:, None], 1.0, CHECK.y)
    settings = {"learn": look, "score": "r2", "predict": NET, "trainers": 99}
    state = fit(make(**settings, validation=replace(CHECK, y=flat)), 1).state
    pairs = torch.tensor(list(combinations(range(7), 2)))
    of_9 = (pairs == IDS.index(9)).any(1)
    assert torch.equal(state.gain.isnan(), of_9[None])
    assert seen[0][0] == pairs[~of_9].tolist() and torch.equal(seen[0][1], state.gain[0, ~of_9])


PAPER, BOSTON, WINE, OBESITY = FedSGCNN(loss), *(tabular.SETTINGS[n] for n in ("boston", "wine_quality", "obesity"))
TRAINING = attrgetter("hidden", "optimizer", "lr", "momentum", "epochs", "batch_size", "rounds", "share")
LITERAL = [  # line of the paper's text, what it says there, ours, theirs; its data are in verdicts.csv
    (130, "each possible pair 100 rounds", PAPER.pair_rounds, 100),
    (151, "local training for E epochs", PAPER.snapshots, (BOSTON.epochs,)),
    (159, "only global layers", PAPER.local, ("dense1",)),  # line 261: "the first layer as local"
    (155, "the Siamese network", PAPER.learn, train_siamese),
    (163, "DBSCAN, with our eps", (PAPER.cluster.func, PAPER.cluster.keywords), (dbscan, {"eps": 0.5})),
    (179, "e.g., 10 clients", PAPER.trainers, 10),  # line 149: "at least 10 clients"
    (243, "l, i.e. a loss", PAPER.score, "loss"),
    (261, "SGD; 100 rounds with all", TRAINING(BOSTON), ((64, 32, 16), "sgd", 0.01, 0.5, 10, 32, 100, 1.0)),
    (261, "Adam; 1,000, 10%", {TRAINING(WINE), TRAINING(OBESITY)}, {((16, 8), "adam", 0.01, 0.0, 10, 32, 1000, 0.1)}),
    (261, "lambda is 0.5", PAPER.mmd, 0.5),
]


@pytest.mark.parametrize(("line", "text", "ours", "theirs"), LITERAL)
def test_the_defaults_are_what_the_paper_states(line, text, ours, theirs):
    assert ours == theirs, f"line {line}: {text}"


def test_the_siamese_network_learns_as_the_paper_states(monkeypatch):
    """Line 261. From what it learns is above, and how its answers follow in `test_model_graph`."""
    steps = []

    class Adam(torch.optim.Adam):
        def step(self, *args):
            steps.append({name: self.param_groups[0][name] for name in ("lr", "weight_decay")})
            return super().step(*args)

    monkeypatch.setattr(torch.optim, "Adam", Adam)
    graphs = model_graph({name: torch.stack([p, 2 * p, -p]) for name, p in START.items()}, ("dense2", "dense3"))
    train_siamese([graphs], torch.combinations(torch.arange(3)), torch.tensor([1.0, 0.5, -1.0]))
    assert steps == [{"lr": 0.01, "weight_decay": 0}] * 1000
