"""FedSGCNN against Algorithm 1 step by step, LG-FedAvg with the clusters it finds, and clusterings by hand; float64."""

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
from book.experiments import tabular
from book.experiments.pair_predictors import train_on_gains
from fedlib import Key
from fedlib.algorithms import FedSGCNN, LGFedAvg
from fedlib.algorithms.lg_fedavg import LGFedAvgState
from fedlib.data import local_batches, stack_clients
from fedlib.local import local_update
from fedlib.losses import cross_entropy, mse
from fedlib.models import MLP
from fedlib.params import row
from fedlib.server.distance_clusters import dbscan, linkage, same_sizes
from fedlib.server.model_graph import model_graph, train_siamese
from fedlib.server.transfer import hold_back, positive_transfer

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
QUICK = {"trainers": 3, "pair_rounds": 1, "snapshots": (1,), "learn": planted}


def fit(algorithm, rounds=3, cohort=None, data=DATA, start=START, **more):
    return fedlib.fit(algorithm, start, data, rounds, cohort, seed=SEED, progress=False, **more)


def make(**settings):
    return FedSGCNN(loss, **{**LOCAL, **QUICK, **settings})


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


@pytest.mark.parametrize(("settings", "cohort"), [({"mmd": 0.0}, 4), ({"pool": 9, "stragglers": 0.5}, None)])
def test_after_round_0_it_is_lg_fedavg(settings, cohort):
    """In one cluster, and in planted ones; nothing that happened before round 1 goes into it."""
    settings = {"mmd": 0.5, **settings}
    lg = partial(LGFedAvg, loss, **LOCAL, **settings)
    theirs, ours = fit(lg(), 2, cohort), fit(make(cluster=partial(linkage, clusters=1), **settings), 2, cohort)
    assert equal(ours.state, theirs.state, LGFedAvgState)
    clustered, known = fit(make(**settings), 2, cohort), fit(lg(assignment=PLANTED), 2, cohort)
    assert equal(clustered.state, known.state, LGFedAvgState) and not equal(
        clustered.state, theirs.state, LGFedAvgState
    )
    for a, b in ((ours, theirs), (clustered, known)):
        a, b = (r.history[r.history["round"] > 0].reset_index() for r in (a, b))
        columns = [c for c in b if c not in ("index", "seconds") and "server" not in c]
        assert a[columns].equals(b[columns])
    assert torch.equal(clustered.state.distance, Distance(PLANTED).distance(None))


def test_new_clients_enroll_as_in_lg_fedavg():
    new = client_data(rows((50, 51), (6, 5), seed=2))
    ours, theirs = make(), LGFedAvg(loss, **LOCAL, mmd=0.5, assignment=PLANTED)
    a, b = (fedlib.new_clients(algorithm, fit(algorithm, 1), new, rounds=1).state for algorithm in (ours, theirs))
    assert equal(a, b, LGFedAvgState)


# --- Algorithm 1, one step after another ------------------------------------------------------------------------------


def slow(algorithm, clusterings):
    """Lines 1 to 14: the trainers, gains, distances, and the best of the clusterings."""
    check = algorithm.validation if algorithm.validation is CHECK else None
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
    starts = [START, *({name: p.double() for name, p in start.items()} for start in algorithm.further_starts)]
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
    learned = algorithm.learn(picked, torch.tensor(pairs), gain.mean(0), seed=SEED)
    distance = learned.distance(graphs)

    scores = []
    for assignment in (make(distance).tolist() for make in clusterings):
        lg = LGFedAvg(**settings | {"assignment": assignment})
        table = fedlib.evaluate(lg, fit(lg, algorithm.pair_rounds, data=train), validation)
        scores.append((-float(table["loss"].mean()), assignment))
    return trainers, gain, distance, max(scores, key=lambda s: s[0])[1]


DBSCAN = [partial(dbscan, eps=eps) for eps in (0.3, 0.5, 0.7)]
LINKAGE = [partial(linkage, clusters=m) for m in (3, 1, 2)]
BOOK = {"learn": partial(train_on_gains, epochs=25), "snapshots": (1, 5), "further_starts": [NET.init(9)]}


@pytest.mark.parametrize(
    ("settings", "clusterings"),
    [
        ({"learn": partial(train_siamese, epochs=25), "trainers": 5, "pair_rounds": 2, "mmd": 0.0}, DBSCAN),
        ({**BOOK, "trainers": 3, "validation": CHECK}, DBSCAN[1:2]),
        ({**BOOK, "trainers": 4, "validation": 0.4, "pool": 100}, LINKAGE),
    ],
)
def test_equals_algorithm_1_step_by_step(settings, clusterings):
    several = len(clusterings) > 1
    algorithm = make(**settings, cluster=(lambda d: [c(d) for c in clusterings]) if several else clusterings[0])
    trainers, gain, distance, assignment = slow(algorithm, clusterings)
    state = fit(algorithm, 2).state
    assert state.trainers.tolist() == trainers
    assert state.gain.shape == gain.shape and (state.gain - gain).abs().max() <= 1e-10
    assert (state.distance - distance).abs().max() <= 1e-6 and distance.std() > 1e-3
    assert state.assignment.tolist() == assignment
    mmd = {"mmd": algorithm.mmd, "pool": algorithm.pool}
    lg = fit(LGFedAvg(loss, **LOCAL, **mmd, assignment=assignment), 2).state
    assert equal(state, lg, LGFedAvgState)


def test_trainers_are_drawn_by_chance():
    chosen = torch.stack([Key(seed).choose(DATA.id, 3, "trainers") for seed in range(200)])
    assert torch.bincount(chosen.flatten()).min() > 50
    states = [fedlib.fit(make(), START, DATA, 1, seed=seed, progress=False).state for seed in (3, 4, 5)]
    assert len({tuple(s.trainers.tolist()) for s in states}) > 1


def test_nobody_is_slow_before_round_1():
    a, b = (fit(make(stragglers=share), 1) for share in (0.0, 0.9))
    assert torch.equal(a.state.gain, b.state.gain) and a.history["examples"][0] == b.history["examples"][0]
    assert a.history["examples"][1] > b.history["examples"][1]


# --- validation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "sizes"), [(0.25, (2, 2, 2, 1, 3, 2, 2)), (0.01, (1,) * 7), (0.99, None)])
def test_rows_are_held_back_once(share, sizes):
    data = DATA.with_columns(row=torch.arange(DATA.index.numel()).view_as(DATA.index))
    known, check = hold_back(data, share, Key(SEED))
    assert check.n.tolist() == (list(sizes) if sizes else [n - 1 for n in SIZES])
    for k, n in enumerate(SIZES):
        parts = [p.index[k, : int(p.n[k])].tolist() for p in (known, check)]
        assert len(parts[0]) + len(parts[1]) == n and sorted(parts[0] + parts[1]) == DATA.index[k, :n].tolist()
        for p in (known, check):
            assert torch.allclose(p.y[k], p.x[p.index[k]].sum(1) * 0.2 ** (IDS[k] % 2))  # padding repeats a row
            assert torch.equal(DATA.index.flatten()[p.columns["row"][k]], p.index[k])
    again, _ = hold_back(data[2:4], share, Key(SEED))
    assert torch.equal(again.index[0, : int(known.n[2])], known.index[2, : int(known.n[2])])
    other, _ = hold_back(data, share, Key(SEED + 1))
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


def test_linkage_is_that_of_scipy():
    random = np.random.RandomState(0).uniform(size=(12, 12))
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


# --- costs ------------------------------------------------------------------------------------------------------------


def test_costs_before_round_1_by_hand():
    settings = {"trainers": 4, "pair_rounds": 3, "further_starts": [NET.init(9)], "snapshots": (2, 5)}
    two = [partial(linkage, clusters=m) for m in (2, 1)]
    result = fit(make(**settings, cluster=lambda d: [c(d) for c in two], pool=9), 1)
    history, state = result.history.set_index("round"), result.state
    known = [n - max(1, round(n * 0.25)) for n in SIZES]
    mine = [known[k] for k in state.trainers]
    models = 2 * 3 * 12  # repeats, rounds, two clients of each of six pairs
    down, up = {"transfer": models * SHARED}, {"transfer": models * (SHARED + 8)}
    examples = {"transfer": 2 * 3 * EPOCHS * (sum(mine) + 3 * sum(mine))}  # alone, and with three others
    down["clustering"], up["clustering"] = 7 * ALL, 2 * 7 * SHARED
    examples["clustering"] = (2 + 5) * sum(known)
    # and the two candidates are tried: with two centroids, or with one
    down["clustering"] += 2 * 3 * 7 * (SHARED + 9 * ONE)
    up["clustering"] += 2 * (sum(known) * ONE + 3 * (7 * (SHARED + 8) + sum(known) * ONE))
    examples["clustering"] += 2 * 3 * EPOCHS * sum(known)
    up["mmd"] = sum(SIZES) * ONE  # the first embeddings
    for column, parts in {"bytes_down": down, "bytes_up": up, "examples": examples}.items():
        for purpose, amount in parts.items():
            assert history.loc[0, f"{column} ({purpose})"] == amount
        assert history.loc[0, column] == sum(parts.values())
    assert history.loc[0, "server_seconds (clustering)"] > 0 and history.loc[0, "flops (transfer)"] > 0
    assert not history.loc[1].filter(regex=r"transfer|clustering").sum()


# --- invariances and checkpoints --------------------------------------------------------------------------------------


def test_order_of_clients_and_chunks():
    settings = {**BOOK, "trainers": 4, "pool": 9}
    state = fit(make(**settings), 2, 4).state
    assert equal(fit(make(**settings), 2, 4, data=DATA[[5, 0, 6, 2, 1, 4, 3]]).state, state)
    chunks = fit(make(**settings, chunk_size=2), 2, 4).state
    assert (chunks.gain - state.gain).abs().max() <= 1e-12 and torch.equal(chunks.assignment, state.assignment)
    assert largest_difference(chunks.models, state.models) <= 1e-12


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    settings = {"validation": CHECK, "pool": 9}
    whole = fit(make(**settings), 4, 4)
    fit(make(**settings), 2, 4, checkpoint=fedlib.Checkpoint(tmp_path / "run"))
    resumed = fit(
        make(**settings), 4, 4, checkpoint=fedlib.Checkpoint(tmp_path / "run")
    )  # what was before round 1 is not done again
    assert type(resumed.state) is type(whole.state) and equal(resumed.state, whole.state)
    columns = ["bytes_down", "bytes_up", "bytes_up (clustering)", "examples", "train_loss"]
    assert resumed.history[columns].equals(whole.history[columns]) and len(resumed.history) == 5
    for name, wrong in {"validation": replace(CHECK, y=CHECK.y + 1), "trainers": 4}.items():
        with pytest.raises(ValueError, match=f"FedSGCNN.{name}: "):
            fit(make(**settings | {name: wrong}), 4, 4, checkpoint=fedlib.Checkpoint(tmp_path / "run"))


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "data", "message"),
    [
        ({"validation": CHECK[2:]}, DATA, r"validation has no rows of clients \[9, 33\]; give rows of each client"),
        ({}, client_data(rows((1, 2, 3), (5, 1, 1))), "a share between 0 and 1 of at least 2 rows a client"),
        ({"validation": 1}, DATA, "validation=1 must be ClientData, or a share between 0 and 1"),
        ({"score": "r2"}, DATA, "score must be .* with predict .* got 'r2'"),
        ({"local": ("dense1", "dense2", "dense3")}, DATA, "layers must name dense layers .* at least one"),
    ],
)
def test_mistakes_in_the_data_are_told(settings, data, message):
    with pytest.raises(ValueError, match=message):
        fit(make(**settings), data=data)


def test_a_client_that_diverges_before_round_1_is_named():
    wild = replace(DATA, x=torch.where(torch.arange(len(DATA.x))[:, None] == DATA.index[3, 1], 1e200, DATA.x))
    algorithm = make(trainers=3, validation=CHECK)
    assert 3 not in Key(SEED).choose(DATA.id, 3, "trainers")
    with pytest.raises(FloatingPointError, match="client 12 became NaN or infinite in round 0"):
        fit(algorithm, 1, data=wild)


# --- scores, and tables of the paper's size ---------------------------------------------------------------------------


def test_pairs_without_a_gain_teach_nothing():
    """R2 of a client whose validation targets are all equal is NaN."""
    seen = []

    def look(graphs, pairs, gain, seed):
        seen.append((pairs.tolist(), gain))
        return Distance(PLANTED)

    flat = torch.where((CHECK.id == 9)[:, None], 1.0, CHECK.y)
    settings = {"learn": look, "score": "r2", "predict": NET, "trainers": 99, "further_starts": [NET.init(9)]}
    state = fit(make(**settings, validation=replace(CHECK, y=flat)), 1).state
    pairs = torch.tensor(list(combinations(range(7), 2)))
    of_9 = (pairs == IDS.index(9)).any(1)
    assert torch.equal(state.gain.isnan(), of_9.expand(2, -1))
    assert seen[0][0] == pairs[~of_9].tolist() and torch.equal(seen[0][1], state.gain[:, ~of_9].mean(0))


def test_a_table_of_the_papers_size():
    """Boston Housing's shape and the paper's setting, with fewer rounds."""
    random = np.random.RandomState(0)
    x = random.standard_normal((506, 13)).astype(np.float32)
    y = (x[:, :6].sum(1) + 0.1 * random.standard_normal(506)).astype(np.float32)
    table = tabular.Table("boston", x, y, tuple(map(str, range(13))), tuple((c,) for c in range(13)))
    s = tabular.SETTINGS["boston"]
    dealt = tabular.deal(table, s.clients, s.rows, s.features, groups=s.groups, plant="scale", strength=1.0)
    net = MLP((5, *s.hidden, 1))
    algorithm = FedSGCNN(
        lambda params, batch: mse(net(params, batch[0]), *batch[1:]),
        lr=s.lr,
        batch_size=s.batch_size,
        epochs=s.epochs,
        optimizer=partial(torch.optim.SGD, momentum=s.momentum),
        predict=net,
        trainers=4,
        pair_rounds=1,
        score="r2",
    )
    result = fedlib.fit(algorithm, net.init(0), dealt.train, 3, eval_data=dealt.test, progress=False)
    history, state = result.history, result.state
    assert history["test_r2"].iloc[-1] > history["test_r2"].iloc[1] and history["test_r2"].iloc[-1] > 0
    assert state.distance.shape == (20, 20) and 0 <= state.distance.min() <= state.distance.max() <= 1
    assert torch.equal(state.distance, state.distance.T) and not state.distance.diagonal().any()


PAPER, BOSTON, WINE, OBESITY = FedSGCNN(loss), *(tabular.SETTINGS[n] for n in ("boston", "wine_quality", "obesity"))
LITERAL = [  # line of the paper's text, what it says there, ours, theirs
    (130, "each possible pair 100 rounds", PAPER.pair_rounds, 100),
    (149, "at least 10 clients", PAPER.trainers >= 10, True),
    (151, "local training for E epochs", PAPER.snapshots, (BOSTON.epochs,)),
    (159, "only global layers", PAPER.local, ("dense1",)),
    (163, "DBSCAN", PAPER.cluster.func, dbscan),
    (179, "e.g., 10 clients", PAPER.trainers, 10),
    (243, "l, i.e. a loss", PAPER.score, "loss"),
    (251, "2 clusters; 2; 3", (BOSTON.groups, WINE.groups, OBESITY.groups), (2, 2, 3)),
    (261, "64, 32, and 16", BOSTON.hidden, (64, 32, 16)),
    (261, "16 and 8", (WINE.hidden, OBESITY.hidden), ((16, 8), (16, 8))),
    (261, "local epoch is 10", {s.epochs for s in tabular.SETTINGS.values()}, {10}),
    (261, "batch size is 32", {s.batch_size for s in tabular.SETTINGS.values()}, {32}),
    (261, "SGD", (BOSTON.optimizer, BOSTON.lr, BOSTON.momentum), ("sgd", 0.01, 0.5)),
    (261, "Adam", {(s.optimizer, s.lr) for s in (WINE, OBESITY)}, {("adam", 0.01)}),
    (261, "100 rounds with all", (BOSTON.rounds, BOSTON.share), (100, 1.0)),
    (261, "1,000 rounds, 10%", {(s.rounds, s.share) for s in (WINE, OBESITY)}, {(1000, 0.1)}),
    (261, "the first layer as local", PAPER.local, ("dense1",)),
    (261, "lambda is 0.5", PAPER.mmd, 0.5),
    (295, "5, 20, 20", (BOSTON.features, BOSTON.rows, BOSTON.clients), (5, 20, 20)),
    (296, "4, 10, 100", (WINE.features, WINE.rows, WINE.clients), (4, 10, 100)),
    (297, "4, 20, 100", (OBESITY.features, OBESITY.rows, OBESITY.clients), (4, 20, 100)),
]


@pytest.mark.parametrize(("line", "text", "ours", "theirs"), LITERAL)
def test_the_defaults_are_what_the_paper_states(line, text, ours, theirs):
    assert ours == theirs, f"line {line}: {text}"


def test_the_siamese_network_learns_as_the_paper_states(monkeypatch):
    """Lines 126, 130, 155 to 159 and 261: what it learns from, and how long; seen from outside, in a whole run."""
    steps, targets = [], []

    class Adam(torch.optim.Adam):
        def step(self, *args):
            steps.append({k: self.param_groups[0][k] for k in ("lr", "weight_decay")})
            return super().step(*args)

    def entropy(output, target):
        targets.append(target)
        return cross(output, target)

    cross = torch.nn.functional.binary_cross_entropy_with_logits
    monkeypatch.setattr(torch.optim, "Adam", Adam)
    monkeypatch.setattr(torch.nn.functional, "binary_cross_entropy_with_logits", entropy)
    seen = {}

    def spied(graphs, pairs, gain, seed):
        seen.update(graphs=graphs, pairs=pairs, gain=gain)
        seen["learned"] = train_siamese(graphs, pairs, gain, seed=seed)
        return seen["learned"]

    state = fit(FedSGCNN(loss, **LOCAL, trainers=5, pair_rounds=1, learn=spied), 1).state
    assert len(steps) == 100 * 10 and all(s == {"lr": 0.01, "weight_decay": 0} for s in steps), "line 261"
    assert len(seen["pairs"]) == len(state.gain[0]) == 10, "line 155: all pairs of those selected"
    assert all(len(t) == 10 for t in targets), "all of them in each epoch"
    assert all(torch.equal(t.bool(), ~(seen["gain"] > 0)) for t in targets), (
        "lines 130, 159: above 0 positive; 1 negative"
    )
    (net,), nodes = seen["learned"].networks, 6 + 4 + 1
    assert seen["graphs"][0].x.shape[1] == nodes, "line 159: the layers after the first"
    convolutions = [name for name, _ in net.named_children()]
    assert convolutions == ["first", "second", "compare"] and isinstance(net.compare, torch.nn.Linear), "line 261"
    assert torch.equal(state.assignment, dbscan(state.distance, 0.5)), "line 163, with our eps"


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
        cluster=partial(linkage, clusters=2),
        learn=train_on_gains,
    )
    result = fedlib.fit(algorithm, net.init(0), dealt.train, 6, eval_data=dealt.test, progress=False)
    assert result.history["test_accuracy"].iloc[-1] > 0.85
    tenths = result.state.gain[0] * 20  # of two clients with ten rows each
    assert (tenths - tenths.round()).abs().max() < 1e-9 and tenths.any()
    start, one = row(algorithm.client_params(result.state, torch.arange(1)), 0), torch.arange(8)
    assert (
        start["dense1.weight"].shape == (8, 5) and len(algorithm.client_params(result.state, one)["dense3.bias"]) == 8
    )
