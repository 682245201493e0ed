"""Clients whose groups contradict each other, and CFL's steps as plainly as they can be, for tests of all its kinds."""

import numpy as np
import torch
from twins import classification_loss, twin

from fedlib import Key

PREDICT = twin("MLP")[1]
LOSS = classification_loss(PREDICT)
LOCAL = {"lr": 0.1, "batch_size": 8, "epochs": 2}


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


def train_one(params, xy, client, t, seed, epochs=LOCAL["epochs"], loss=LOSS):
    """One client's local training, the loop of a textbook: its update, and its steps."""
    theta = {name: p.clone().requires_grad_() for name, p in params.items()}
    rule = torch.optim.SGD(theta.values(), lr=LOCAL["lr"])
    x, y = xy
    me, n = torch.tensor([client]), torch.tensor([len(y)])
    steps = 0
    for order in Key(seed, t).permutations(me, "batches", n, epochs, len(y))[0]:
        for batch in order.split(LOCAL["batch_size"]):
            rule.zero_grad()
            loss(theta, (x[batch], y[batch], torch.ones(len(batch), dtype=torch.float64))).backward()
            rule.step()
            steps += 1
    return {name: (p - params[name]).detach() for name, p in theta.items()}, steps


def flat(update):
    return torch.cat([p.reshape(-1) for p in update.values()])


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
