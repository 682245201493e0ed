"""Clients whose groups contradict each other, and CFL's steps as plainly as they can be, for tests of all its kinds."""

import numpy as np
import torch
from reference import batches, descend, mean_by_examples
from twins import LOCAL, classification_loss, rows_differ, twin

import fedlib

LOSS = classification_loss(twin("MLP")[1])


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


def begin(algorithm, n, params):
    """The state before round 1, of clients with n examples."""
    clients = fedlib.stack_clients([torch.zeros(int(m), 1) for m in n], [torch.zeros(int(m), 1) for m in n])
    return algorithm.init(params, clients, fedlib.Key(0))


def train_one(params, xy, client, t, seed, epochs=LOCAL["epochs"], loss=LOSS):
    """One client's local training: its update, and its steps."""
    x, y, w = *xy, torch.ones(len(xy[1])).double()
    steps = batches(client, len(y), fedlib.Key(seed, t), batch_size=LOCAL["batch_size"], epochs=epochs)
    end = descend(lambda p, rows: loss(p, (x[rows], y[rows], w[rows])), params, steps, LOCAL["lr"])
    return {name: p - params[name] for name, p in end.items()}, len(steps)


def recursion(params, clients, rounds, parts_of, t=0, seen=None):
    """CFL, depth first: the model of each client after `rounds` rounds, counted along the path.

    After a round, ``parts_of(before, trained, mean, clients, t, seen)`` gives the parts of a cluster, or None if it
    stays one, and what is seen of it in later rounds; `trained` has each client's update and number of steps.
    """
    while t < rounds:
        t += 1
        trained = {c: train_one(params, xy, c, t, seed=3) for c, xy in clients.items()}
        before, mean = params, mean_by_examples({c: update for c, (update, _) in trained.items()}, clients)
        params = {name: p + mean[name] for name, p in params.items()}
        parts, seen = parts_of(before, trained, mean, clients, t, seen)
        if parts:
            ends = {}
            for part in parts:
                some = {c: clients[c] for k, c in enumerate(clients) if k in part}
                ends |= recursion(params, some, rounds, parts_of, t, seen)
            return {c: ends[c] for c in clients}
    return dict.fromkeys(clients, params)


def assert_ends(algorithm, state, expected):
    """Whether each client holds the model that a recursion ends with."""
    held = algorithm.client_params(state, torch.arange(len(expected)))
    assert rows_differ(held, expected.values()) <= 1e-10


def weakest_cut(vectors):
    """Eq. 6 by trying every bipartition: the side of each."""
    unit = [v / v.norm() for v in vectors]
    best = None
    for code in range(1, 2 ** (len(unit) - 1)):
        side = [0] + [code >> i & 1 for i in range(len(unit) - 1)]
        worst = max(float(unit[i] @ unit[j]) for i in range(len(unit)) for j in range(i) if side[i] != side[j])
        if best is None or worst < best[0]:
            best = worst, side
    return best[1]


STILL = 20.0  # the target of a client whose loss does not depend on the parameters


def still_loss(params, batch):
    """Of clients of STILL the gradient is exactly 0."""
    error = (batch[0][:, :2] * params["w"]).sum(1) - batch[1]
    return ((error.square() * (batch[1] != STILL)) * batch[2]).sum() / batch[2].sum()


def with_a_still_client(signs=(1, 1, 1, -1, -1, -1), still=(0, 4)):
    """Clients of two signs, some of whom never move."""
    random, clients = np.random.RandomState(0), {}
    for k, sign in enumerate(signs):
        x = np.abs(random.standard_normal((12, 2)))
        y = np.full(12, STILL) if k in still else sign * x.sum(1) + 0.01 * random.standard_normal(12)
        clients[k] = torch.from_numpy(x), torch.from_numpy(y)
    return clients
