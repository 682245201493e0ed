"""LG-FedAvg against a loop over clients of their own widths, without padding, stacks or modules; float64."""

from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
import torch
from twins import classification_loss, client_data, largest_difference, ragged_clients, twin

import fedlib
from fedlib import Key
from fedlib.algorithms import FedAvg, LGFedAvg, LocalOnly
from fedlib.algorithms.lg_fedavg import first_layer
from fedlib.client.mmd import mmd2
from fedlib.losses import mse
from fedlib.models import MLP

SEED, BATCH, EPOCHS = 3, 4, 2
SIZES, WIDTHS, CLUSTERS = (1, 9, 5, 3, 12, 7, 4), (5, 2, 3, 5, 4, 1, 5), (0, 1, 0, 3, 1, 3, 1)  # nobody in cluster 2
ALONE = (0, 1, 0, 3, 1, 0, 1)  # cluster 3 is one client, whose centroid is its own start, where the norm has a kink
NET = MLP((5, 6, 4, 1))
START = {name: p.double() for name, p in NET.init(0).items()}
SGD, ADAM = partial(torch.optim.SGD, momentum=0.5), torch.optim.Adam


def loss(params, batch):
    return mse(NET(params, batch[0]), *batch[1:])


def narrow_clients(seed=0):
    """Clients of SIZES with columns of their own: x (n, width) and y (n,) by id."""
    random = np.random.RandomState(seed)
    sizes = zip(SIZES, WIDTHS, strict=True)
    draws = {10 + 3 * k: (random.standard_normal((n, i)), random.standard_normal(n)) for k, (n, i) in enumerate(sizes)}
    return {k: (torch.from_numpy(x), torch.from_numpy(y)) for k, (x, y) in draws.items()}


def padded(clients):
    pad = torch.nn.functional.pad
    return client_data({k: (pad(x, (0, 5 - x.shape[1])), y) for k, (x, y) in clients.items()})


DATA = padded(narrow_clients())


def make(**settings):
    return LGFedAvg(loss, **({"lr": 0.05, "batch_size": BATCH, "epochs": EPOCHS, "optimizer": SGD} | settings))


def fit(rounds=3, cohort=None, data=DATA, seed=SEED, checkpoint=None, **settings):
    run = {"seed": seed, "checkpoint": checkpoint, "progress": False}
    return fedlib.fit(make(**settings), START, data, rounds, cohort, **run)


def everything(state):
    """The state, side by side."""
    found = {}
    for f in fields(state):
        value = getattr(state, f.name)
        found |= {f"{f.name}.{n}": p for n, p in value.items()} if isinstance(value, dict) else {f.name: value}
    return {name: p.double() for name, p in found.items() if isinstance(p, torch.Tensor) and p.numel()}


def equal(a, b):
    a, b = everything(a), everything(b)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- the slow loop ----------------------------------------------------------------------------------------------------


def slow_mmd(x, y):
    """Section 4.4 with every distance written out."""

    def d2(a, b):
        return (a[:, None] - b).square().sum(-1)

    def k(a, b):
        return sum(torch.exp(-d2(a, b) / (f * width)).mean() for f in (0.25, 0.5, 1, 2, 4)) / 5

    rows = torch.cat([x, y]).detach()
    apart = d2(rows, rows).tolist()
    pairs = sorted(apart[i][j] for i in range(len(rows)) for j in range(i))
    width = max(pairs[(len(pairs) - 1) // 2], 1e-6)
    return (k(x, x) + k(y, y) - 2 * k(x, y) + 1e-12).sqrt()


def slow_loop(clients, rounds, assignment, cohort=None, **settings):
    """Algorithm 1 from line 15 on, one client after another."""
    s = {"mmd": 0.0, "pool": 64, "lr": 0.05, "optimizer": SGD} | settings
    ids, k_all, clusters = list(clients), len(clients), assignment
    members = [[k for k in range(k_all) if clusters[k] == m] for m in range(max(clusters) + 1)]
    own = [[START["dense1.weight"][:, : x.shape[1]].clone(), START["dense1.bias"].clone()] for x, _ in clients.values()]
    shared = [[START[n].clone() for n in START if not n.startswith("dense1")] for _ in members]
    xs, ys = [x for x, _ in clients.values()], [y for _, y in clients.values()]

    def embed(theta, x):
        return (x @ theta[0].T + theta[1]).clamp(min=0)

    def centroid(m, t):
        rows = [(k, j) for k in members[m] for j in range(len(xs[k]))]
        rows.sort(key=lambda r: int(Key(SEED, t).bits(torch.tensor([r[0]]), "pool", r[1] + 1)[0, r[1]]))
        return torch.stack([sent[k][j] for k, j in (rows * s["pool"])[: s["pool"]]]) if rows else None

    sent = [embed(own[k], xs[k]) for k in range(k_all)]
    pool = [centroid(m, 0) for m in range(len(members))]
    for t in range(1, rounds + 1):
        chosen = []
        for group in members:
            number = min(len(group), max(2, int(np.ceil((cohort or k_all) * len(group) / k_all - 1e-9))))
            group = sorted(group, key=lambda k: int(Key(SEED, t).bits(torch.tensor([ids[k]]), "cohort")[0]))
            chosen += group[:number]
        sums, new = {}, {}
        for k in sorted(chosen):
            theta = [p.clone().requires_grad_() for p in own[k] + shared[clusters[k]]]
            rule = s["optimizer"](theta, lr=s["lr"])
            me, n = torch.tensor([ids[k]]), torch.tensor([len(ys[k])])
            for order in Key(SEED, t).permutations(me, "batches", n, EPOCHS, len(ys[k]))[0]:
                for batch in order.split(BATCH):
                    q = embed(theta, xs[k][batch])
                    answer = (q @ theta[2].T + theta[3]).clamp(min=0) @ theta[4].T + theta[5]
                    value = ((answer[:, 0] - ys[k][batch]) ** 2).mean()
                    if s["mmd"]:
                        value = value + s["mmd"] * slow_mmd(q, pool[clusters[k]])
                    rule.zero_grad()
                    value.backward()
                    rule.step()
            new[k] = [p.detach() for p in theta]
            sums.setdefault(clusters[k], []).append(k)
        for m, group in sums.items():
            total = sum(len(ys[k]) for k in group)
            shared[m] = [sum(len(ys[k]) * new[k][i] for k in group) / total for i in range(2, 6)]
        for k, theta in new.items():
            own[k] = theta[:2]
            sent[k] = embed(own[k], xs[k])
        pool = [centroid(m, t) for m in range(len(members))]
    return shared, own, sent, pool


CASES = {
    "no MMD": {"assignment": ALONE},
    "no MMD, Adam, four of seven": {"optimizer": ADAM, "cohort": 4},
    "centroid": {"mmd": 0.5, "pool": 6},
    "centroid of more rows than there are, Adam": {"mmd": 0.5, "pool": 19, "optimizer": ADAM},
}


@pytest.mark.parametrize("case", CASES)
def test_equals_a_loop_over_clients_of_their_own_widths(case):
    rounds, settings = 3, {"assignment": CLUSTERS} | CASES[case]
    state = fit(rounds, **settings).state
    shared, own, sent, pool = slow_loop(narrow_clients(), rounds, **settings)
    for m, theta in enumerate(shared):
        found = [p[m] for n, p in state.models.items()]
        assert max(float((a - b).abs().max()) for a, b in zip(found, theta, strict=True)) <= 1e-10
    for k, ((w, b), width) in enumerate(zip(own, WIDTHS, strict=True)):
        found = state.local["dense1.weight"][k]
        assert (found[:, :width] - w).abs().max() <= 1e-10 and (state.local["dense1.bias"][k] - b).abs().max() <= 1e-10
        assert torch.equal(found[:, width:], START["dense1.weight"][:, width:])
    if not settings.get("mmd"):
        assert not state.embeddings.numel() and not state.centroid.numel()
        return
    for k, q in enumerate(sent):
        assert (state.embeddings[k, : len(q)] - q).abs().max() <= 1e-10 and not state.embeddings[k, len(q) :].any()
        assert state.real[k].tolist() == [j < len(q) for j in range(max(SIZES))]
    for m, q in enumerate(pool):
        assert (state.centroid[m] - (0 if q is None else q)).abs().max() <= 1e-10


# --- the lattice of algorithms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["MLP", "CNN"])
def test_all_shared_is_fedavg_and_nothing_shared_is_standalone(network):
    params, predict, _ = twin(network)
    settings = {"lr": 0.05, "batch_size": 8, "epochs": 2, "optimizer": ADAM, "predict": predict}
    clients = ragged_clients(sizes=(1, 2, 5, 9, 12, 7, 3))
    data, new = client_data(dict(list(clients.items())[:5])), client_data(dict(list(clients.items())[5:]))

    def run(kind, **more):
        algorithm = kind(classification_loss(predict), **settings, **more)
        result = fedlib.fit(algorithm, params, data, 3, 4, seed=3, eval_data=data, progress=False)
        enrolled = fedlib.new_clients(algorithm, result, new, rounds=2)
        held = [algorithm.client_params(r.state, torch.arange(len(r.ids))) for r in (result, enrolled)]
        costs = ["bytes_up", "bytes_down", "examples", "flops", "train_loss", "test_accuracy"]
        return held, result.history[costs]

    for kind, local in ((FedAvg, ()), (LocalOnly, tuple({name.split(".")[0] for name in params}))):
        (ours, our_costs), (theirs, their_costs) = run(LGFedAvg, local=local), run(kind)
        for a, b in zip(ours, theirs, strict=True):
            assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        assert our_costs.equals(their_costs)


def test_clusters_are_federations_of_their_own():
    together = fit(assignment=CLUSTERS).state
    for m in (0, 1, 3):
        here = torch.tensor(CLUSTERS) == m
        alone = fit(data=DATA[here]).state
        assert largest_difference({n: p[m : m + 1] for n, p in together.models.items()}, alone.models) <= 1e-12
        assert largest_difference({n: p[here] for n, p in together.local.items()}, alone.local) <= 1e-12


def test_without_mmd_no_embedding_is_made(monkeypatch):
    def never(*_):
        raise AssertionError("embed was called")

    monkeypatch.setattr(LGFedAvg, "embed", never)
    fit(cohort=4, pool=3)
    with pytest.raises(AssertionError, match="embed was called"):
        fit(mmd=0.1)


def test_mmd_brings_embeddings_together():
    """Of clients with columns of their own: far apart in the end without MMD, near with it."""
    data = padded({k: (x.repeat(20, 1)[:12] + 2, y.repeat(20)[:12]) for k, (x, y) in narrow_clients().items()})

    def apart(**settings):
        state = fit(15, data=data, lr=0.02, batch_size=None, **settings).state
        q = torch.vmap(first_layer)(state.local, data.all_rows(torch.float64)[0])
        return sum(float(mmd2(a, b)) for a in q for b in q)

    assert apart(mmd=1.0) < 0.8 * apart()


def test_a_subclass_says_what_is_compared_and_how():
    """Ten times the embeddings, compared with the first row of everybody's by their squares."""

    class Odd(LGFedAvg):
        def embed(self, params, data, key):
            q, real = super().embed(params, data, key)
            return 10 * q, real

        def centroids(self, state):
            return state.embeddings[:, :1].mean(0, keepdim=True)

        def discrepancy(self, q, w, centroid):
            seen.append(centroid.shape)
            return (((q - centroid) ** 2).sum(1) * w).sum() / w.sum()

    seen, settings = [], {"lr": 0.05, "batch_size": None, "optimizer": torch.optim.SGD, "mmd": 0.3}
    state = fedlib.fit(Odd(loss, **settings), START, DATA, 1, seed=SEED, progress=False).state
    x, y, w = DATA.all_rows(torch.float64)
    first = torch.stack([10 * first_layer(START, x[k])[0] for k in range(7)]).mean(0)
    assert set(seen) == {(1, 6)}
    for k, n in enumerate(SIZES):
        theta = {name: p.clone().requires_grad_() for name, p in START.items()}
        pull = ((first_layer(theta, x[k, :n]) - first) ** 2).sum(1).mean()
        (loss(theta, (x[k], y[k], w[k])) + 0.3 * pull).backward()
        wanted = START["dense1.bias"] - 0.05 * theta["dense1.bias"].grad
        assert (state.local["dense1.bias"][k] - wanted).abs().max() < 1e-12


def test_order_chunks_and_padding():
    settings = {"assignment": CLUSTERS, "mmd": 0.5, "pool": 9, "cohort": 4}
    state = fit(**settings).state
    order = torch.tensor([5, 0, 6, 2, 1, 4, 3])
    assert equal(fit(data=DATA[order], **settings).state, state)
    assert largest_difference(everything(fit(chunk_size=1, **settings).state), everything(state)) <= 1e-12
    longer = replace(
        DATA,
        index=torch.cat([DATA.index, DATA.index[:, :1].expand(-1, 40) * 0 + 3], 1),
        y=torch.cat([DATA.y, DATA.y[:, :1].expand(-1, 40)], 1),
    )
    other = everything(fit(data=longer, **settings).state)
    other |= {name: other[name][:, : max(SIZES)] for name in ("embeddings", "real")}
    assert largest_difference(other, everything(state)) <= 1e-12


# --- cohorts ----------------------------------------------------------------------------------------------------------


def state_with(assignment, **settings):
    k = len(assignment)
    data = fedlib.stack_clients([torch.zeros(2, 5).double()] * k, [torch.zeros(2).double()] * k)
    algorithm = make(assignment=assignment, **settings)
    return algorithm, algorithm.init(START, data, Key(0))


def test_cohorts_within_clusters():
    assignment = torch.tensor([0] * 30 + [1] * 11 + [3] * 3 + [4])[Key(1).choose(torch.arange(45), 45, "x")]
    algorithm, state = state_with(assignment)
    ids = torch.arange(45) * 2 + 1
    wanted = {1: (2, 2, 0, 2, 1), 9: (6, 3, 0, 2, 1), 10: (7, 3, 0, 2, 1), 45: (30, 11, 0, 3, 1)}
    for n, sizes in wanted.items():
        clients = algorithm.cohort(state, ids, n, Key(0, 1))
        assert clients.tolist() == sorted(set(clients.tolist()))
        assert torch.bincount(assignment[clients], minlength=5).tolist() == list(sizes)


def test_each_set_of_a_cluster_is_equally_likely():
    algorithm, state = state_with([1, 0, 1, 0, 0, 1, 0, 0, 0])
    seen = {}
    for t in range(1500):
        chosen = set(algorithm.cohort(state, torch.arange(9), 5, Key(7, t)).tolist()) & {0, 2, 5}
        seen[tuple(sorted(chosen))] = seen.get(tuple(sorted(chosen)), 0) + 1
    assert set(seen) == {(0, 2), (0, 5), (2, 5)} and all(abs(times - 500) < 95 for times in seen.values())


def test_one_cluster_has_the_cohorts_of_fedavg():
    algorithm, state = state_with([0] * 20)
    ids = torch.arange(20) + 5
    for n in (1, 2, 7, 20):
        assert torch.equal(algorithm.cohort(state, ids, n, Key(3, 1)), Key(3, 1).choose(ids, n, "cohort"))


def test_who_does_not_take_part_stays_as_it_is():
    settings = {"assignment": [0, 0, 0, 0, 2, 2, 2], "mmd": 0.5}
    algorithm, before = make(**settings), fit(2, 2, **settings).state
    after = fit(3, 2, **settings).state
    clients = algorithm.cohort(before, DATA.id, 2, Key(SEED, 3))
    rest = [k for k in range(7) if k not in clients]
    assert len(clients) == 4
    for name in ("dense1.weight", "dense1.bias"):
        moved = (before.local[name] != after.local[name]).flatten(1).any(1)
        assert moved[clients].all() and not moved[rest].any()
    assert torch.equal(before.embeddings[rest], after.embeddings[rest])
    assert all(torch.equal(p[1], START[name]) for name, p in after.models.items()) and not after.centroid[1].any()


# --- centroids --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", [4, 50])
def test_centroids_hold_real_rows_of_their_cluster(pool):
    algorithm = make(assignment=CLUSTERS, mmd=0.5, pool=pool)
    state = fit(2, assignment=CLUSTERS, mmd=0.5, pool=pool).state
    jitter = 1e-9 * torch.arange(7 * 12).view(7, 12, 1) * state.real[..., None]  # no two rows are equal
    state = replace(state, embeddings=state.embeddings + jitter)
    pools = [algorithm.centroids(replace(state, round=t)) for t in range(300)]
    assert torch.allclose(pools[2], state.centroid, atol=1e-6) and not torch.allclose(pools[3], pools[2], atol=1e-6)
    for m in (0, 1, 3):
        mine = [k for k in range(7) if CLUSTERS[k] == m]
        rows = torch.cat([state.embeddings[k, : SIZES[k]] for k in mine])
        which = [(p[m][:, None] == rows).all(2) for p in pools]
        assert all((w.sum(1) == 1).all() for w in which)
        times = torch.stack([w.sum(0) for w in which])  # (300, rows): how often each row was drawn
        low, high = pool // len(rows), -(-pool // len(rows))
        assert times.min() >= low and times.max() <= high
        share = pool / len(rows)
        assert ((times.double().mean(0) - share).abs() < 5 * (0.25 / 300) ** 0.5).all()


# --- costs ------------------------------------------------------------------------------------------------------------


def test_bytes_are_those_of_the_messages():
    cohort = 3
    settings = {"assignment": CLUSTERS, "mmd": 0.5, "pool": 9}
    result = fit(3, cohort, **settings)
    history, algorithm = result.history.set_index("round"), make(**settings)
    shared, one = 8 * (4 * 6 + 4 + 4 + 1), 8 * 6  # the layers after the first; one embedding
    assert history.loc[0, "bytes_up"] == history.loc[0, "bytes_up (mmd)"] == sum(SIZES) * one
    assert history.loc[0, "bytes_down"] == 0
    for t in (1, 2, 3):
        clients = algorithm.cohort(result.state, DATA.id, cohort, Key(SEED, t)).tolist()
        assert history.loc[t, "clients"] == len(clients)
        down = 9 * len(clients)
        assert history.loc[t, "bytes_down (mmd)"] == down * one
        assert history.loc[t, "bytes_down"] == down * one + len(clients) * shared
        up = sum(SIZES[k] for k in clients) * one
        assert history.loc[t, "bytes_up (mmd)"] == up
        assert history.loc[t, "bytes_up"] == up + len(clients) * (shared + 8)  # and the weight of each model


def test_without_mmd_only_shared_layers_travel():
    history = fit(2, 3).history
    shared = 8 * (4 * 6 + 4 + 4 + 1)
    assert history["bytes_down"].tolist() == [3 * shared] * 2
    assert history["bytes_up"].tolist() == [3 * (shared + 8)] * 2
    assert not [column for column in history if "mmd" in column]


# --- new clients, checkpoints, mistakes -------------------------------------------------------------------------------


def opposed(ids, n, sign, seed):
    """Clients with two columns in an order of their own and a target that depends on their sum."""
    random = np.random.RandomState(seed)
    clients = {}
    for k in ids:
        x = np.concatenate([random.standard_normal((n, 2)), np.zeros((n, 3))], 1)
        clients[k] = torch.from_numpy(x), torch.from_numpy(sign(k) * np.abs(x.sum(1)))
    return clients


def test_new_clients_find_their_cluster():
    """A positive and a negative target: the local layer cannot turn one into the other."""

    def sign(k):
        return 1 if k % 2 else -1

    data = client_data(opposed(range(8), 30, sign, 0))
    settings = {"assignment": [2 * (k % 2) for k in range(8)], "lr": 0.02, "mmd": 0.1, "pool": 20, "batch_size": 15}
    result, algorithm = fit(25, data=data, **settings), make(**settings)
    new = client_data(opposed(range(20, 26), 20, sign, 1))
    enrolled = fedlib.new_clients(algorithm, result, new, rounds=12)
    assert enrolled.state.assignment.tolist() == [0, 2] * 3
    held = algorithm.client_params(enrolled.state, torch.arange(6))
    for name, p in result.state.models.items():
        assert torch.equal(held[name], p[enrolled.state.assignment])
    predict = replace(algorithm, predict=NET)
    few, many = (fedlib.evaluate(predict, fedlib.new_clients(predict, result, new, r), new)["loss"] for r in (1, 12))
    assert many.mean() < 0.7 * few.mean()


def test_what_new_clients_are_given_by_hand():
    """Gradient descent on the local layer against each cluster's shared layers; a cluster without clients is none."""
    settings = {"assignment": [0, 0, 0, 2, 2, 2, 2], "batch_size": None, "optimizer": torch.optim.SGD}
    state, new = fit(4, **settings).state, padded(narrow_clients(seed=1))
    own = ("dense1.weight", "dense1.bias")
    chosen = set()
    for k in range(7):
        n, best = int(new.n[k]), []
        x, y, w = (part[0, :n] for part in new[k : k + 1].all_rows(torch.float64))
        for m in (0, 2):
            theta = {name: START[name] for name in own} | {name: p[m] for name, p in state.models.items()}
            for _ in range(3 * EPOCHS):
                theta |= {name: theta[name].clone().requires_grad_() for name in own}
                gradient = torch.autograd.grad(loss(theta, (x, y, w)), [theta[name] for name in own])
                theta |= {name: (theta[name] - 0.05 * g).detach() for name, g in zip(own, gradient, strict=True)}
            best.append((float(loss(theta, (x, y, w))), m, theta))
        _, cluster, theta = min(best, key=lambda b: b[0])
        tempting = {name: p[[0, cluster, 2]] for name, p in state.models.items()}  # of the cluster that nobody is in
        enrolled = make(**settings).new_clients(replace(state, models=tempting), new[k : k + 1], Key(0), rounds=3)
        chosen.add(cluster)
        assert enrolled.assignment.tolist() == [cluster]
        assert largest_difference({n: p[0] for n, p in enrolled.local.items()}, {n: theta[n] for n in own}) <= 1e-10
    assert chosen == {0, 2}


def test_new_clients_compare_with_what_a_subclass_says():
    """Half the MMD, counted twice; and, of all who were trained, those of the cluster that is tried."""

    class Twice(LGFedAvg):
        def comparison(self, state, clients):
            members = state.assignment[: len(state.embeddings)] == state.assignment[clients][:, None]
            seen.append(members.sum(1).tolist())
            return *super().comparison(state, clients), torch.full((len(clients),), 2.0).double()

        def discrepancy(self, q, w, centroid, times):
            return times * super().discrepancy(q, w, centroid)

    seen, settings = [], {"assignment": CLUSTERS, "pool": 9}
    state, new = fit(2, mmd=0.5, **settings).state, padded(narrow_clients(seed=1))
    ours, theirs = (
        kind(loss, lr=0.05, mmd=mmd, **settings).new_clients(state, new, Key(0), rounds=2)
        for kind, mmd in ((Twice, 0.25), (LGFedAvg, 0.5))
    )
    assert equal(ours, theirs)
    sizes = torch.bincount(torch.tensor(CLUSTERS)).tolist()
    assert seen == [[size for size in sizes for _ in range(len(new))]]


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    settings = {"assignment": CLUSTERS, "mmd": 0.5, "pool": 9, "cohort": 4}
    whole = fit(6, **settings)
    fit(2, checkpoint=fedlib.Checkpoint(tmp_path / "run"), **settings)
    resumed = fit(6, checkpoint=fedlib.Checkpoint(tmp_path / "run"), **settings)
    assert equal(whole.state, resumed.state) and (whole.state.round, whole.state.seed) == (6, SEED)
    assert resumed.state.round == 6 and resumed.state.seed == SEED
    assert whole.history["bytes_up"].equals(resumed.history["bytes_up"])
    with pytest.raises(ValueError, match=r"LGFedAvg.mmd: 0.5 there, 0.4 here"):
        fit(6, checkpoint=fedlib.Checkpoint(tmp_path / "run"), **(settings | {"mmd": 0.4}))


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ({"local": "dense1"}, TypeError, r"local must be a list of names, such as \['dense1'\]"),
        ({"local": ("dense",)}, ValueError, r"local names \['dense'\], which no parameter has; there are \['dense1"),
        ({"assignment": [0, 1]}, ValueError, r"must give 7 clients clusters from 0 to 6; got \[0, 1\]"),
        ({"assignment": [0, 1, -1, 0, 0, 0, 0]}, ValueError, "clusters from 0 to 6"),
        ({"mmd": -1}, ValueError, "mmd must be a number of at least 0; got -1"),
        ({"pool": 0}, ValueError, "pool must be a whole number of at least 1; got 0"),
    ],
)
def test_mistakes_are_told(wrong, kind, message):
    with pytest.raises(kind, match=message):
        fit(**wrong)


def test_clusters_may_be_given_as_any_sequence():
    states = [fit(1, assignment=kind(CLUSTERS)).state for kind in (torch.tensor, np.array, list)]
    assert equal(states[0], states[1]) and equal(states[0], states[2])
