"""LG-FedAvg against a loop over clients of their own widths, without padding, stacks or modules; float64."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from reference import batches, descend
from test_mmd import slow_mmd2
from twins import client_data, close, largest_difference, regression_loss, start_of

import fedlib
from fedlib import Key
from fedlib.algorithms import LGFedAvg

SEED, BATCH, EPOCHS = 3, 4, 2
SIZES, WIDTHS, CLUSTERS = (1, 9, 5, 3, 12, 7, 4), (5, 2, 3, 5, 4, 1, 5), (0, 1, 0, 3, 1, 3, 1)  # nobody in cluster 2
ALONE = (0, 1, 0, 3, 1, 0, 1)  # cluster 3 is one client, whose centroid is its own start, where the norm has a kink
NET = fedlib.models.MLP((5, 6, 4, 1))
loss, START = regression_loss(NET), start_of(NET)
SGD, ADAM = partial(torch.optim.SGD, momentum=0.5), torch.optim.Adam


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


def fit(rounds=3, cohort=None, **settings):
    return fedlib.fit(make(**settings), START, DATA, rounds, cohort, seed=SEED, progress=False)


# --- the slow loop ----------------------------------------------------------------------------------------------------


def slow_loop(clients, rounds, assignment, cohort=None, **settings):
    """Algorithm 1 from line 15 on, one client after another."""
    s = {"mmd": 0.0, "pool": 64, "lr": 0.05, "optimizer": SGD} | settings
    ids, k_all, clusters = list(clients), len(clients), list(map(int, assignment))
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
            for batch in batches(ids[k], len(ys[k]), Key(SEED, t), batch_size=BATCH, epochs=EPOCHS):
                q = embed(theta, xs[k][batch])
                answer = (q @ theta[2].T + theta[3]).clamp(min=0) @ theta[4].T + theta[5]
                value = ((answer[:, 0] - ys[k][batch]) ** 2).mean()
                if s["mmd"]:
                    value = value + s["mmd"] * (slow_mmd2(q, pool[clusters[k]]) + 1e-12).sqrt()
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
    "centroid, four of seven": {"mmd": 0.5, "pool": 6, "cohort": 4, "assignment": torch.tensor(CLUSTERS)},
    "centroid of more rows, Adam": {"mmd": 0.5, "pool": 19, "optimizer": ADAM, "assignment": np.array(CLUSTERS)},
}


@pytest.mark.parametrize("case", CASES)
def test_equals_a_loop_over_clients_of_their_own_widths(case):
    settings = {"assignment": CLUSTERS} | CASES[case]
    state = fit(**settings).state
    shared, own, sent, pool = slow_loop(narrow_clients(), 3, **settings)

    for m, theta in enumerate(shared):
        for found, wanted in zip(state.models.values(), theta, strict=True):
            close(found[m], wanted)
    for k, ((w, b), width) in enumerate(zip(own, WIDTHS, strict=True)):
        close(state.local["dense1.weight"][k, :, :width], w)
        close(state.local["dense1.bias"][k], b)
        assert torch.equal(state.local["dense1.weight"][k, :, width:], START["dense1.weight"][:, width:])
    if not settings.get("mmd"):
        assert not state.embeddings.numel() and not state.centroid.numel()
        return
    for k, q in enumerate(sent):
        close(state.embeddings[k, : len(q)], q)
        assert not state.embeddings[k, len(q) :].any()
        assert state.real[k].tolist() == [j < len(q) for j in range(max(SIZES))]
    for m, q in enumerate(pool):
        close(state.centroid[m], torch.zeros_like(state.centroid[m]) if q is None else q)


# --- what a subclass may say ------------------------------------------------------------------------------------------


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
    first = torch.stack([10 * fedlib.algorithms.lg_fedavg.first_layer(START, x[k])[0] for k in range(7)]).mean(0)
    assert set(seen) == {(1, 6)}
    for k, n in enumerate(SIZES):
        theta = {name: p.clone().requires_grad_() for name, p in START.items()}
        pull = ((fedlib.algorithms.lg_fedavg.first_layer(theta, x[k, :n]) - first) ** 2).sum(1).mean()
        (loss(theta, (x[k], y[k], w[k])) + 0.3 * pull).backward()
        wanted = START["dense1.bias"] - 0.05 * theta["dense1.bias"].grad
        assert (state.local["dense1.bias"][k] - wanted).abs().max() < 1e-12


# --- cohorts ----------------------------------------------------------------------------------------------------------


def test_cohorts_within_clusters():
    assignment, ids = torch.tensor([0] * 30 + [1] * 11 + [3] * 3 + [4]), torch.arange(45) * 2 + 1
    assignment = assignment[Key(1).choose(torch.arange(45), 45, "x")]
    data = fedlib.stack_clients([torch.zeros(2, 5).double()] * 45, [torch.zeros(2).double()] * 45)
    algorithm = make(assignment=assignment)
    state = algorithm.init(START, data, Key(0))
    for n, sizes in {1: [2, 2, 0, 2, 1], 9: [6, 3, 0, 2, 1], 10: [7, 3, 0, 2, 1], 45: [30, 11, 0, 3, 1]}.items():
        clients = algorithm.cohort(state, ids, n, Key(0, 1))
        assert clients.tolist() == sorted(set(clients.tolist()))
        assert torch.bincount(assignment[clients], minlength=5).tolist() == sizes


# --- new clients ------------------------------------------------------------------------------------------------------


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
            theta = descend(lambda p, _: loss(p, (x, y, w)), theta, range(3 * EPOCHS), 0.05, own)
            best.append((float(loss(theta, (x, y, w))), m, theta))
        _, cluster, theta = min(best, key=lambda b: b[0])
        tempting = {name: p[[0, cluster, 2]] for name, p in state.models.items()}  # of the cluster that nobody is in
        enrolled = make(**settings).new_clients(replace(state, models=tempting), new[k : k + 1], Key(0), rounds=3)
        chosen.add(cluster)
        assert enrolled.assignment.tolist() == [cluster]
        assert largest_difference(fedlib.params.row(enrolled.local, 0), {n: theta[n] for n in own}) <= 1e-10
    assert chosen == {0, 2}
