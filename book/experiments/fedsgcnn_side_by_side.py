"""Many federations of the paper's clients in one stack, and the readings of their curves (FedSGCNN's Table 5)."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from book.experiments import tabular
from book.experiments.pair_predictors import Scores
from book.experiments.worlds import loss_and_predict
from fedlib import ClientData, Key, Params, evaluation, models
from fedlib.algorithms import LGFedAvg
from fedlib.costs import Costs
from fedlib.local import Trained
from fedlib.round import one_round
from fedlib.server import transfer
from fedlib.server.clusters import shuffle_within

# ---- the paper's clients ----


@dataclass(frozen=True)
class Task:
    """Clients as in the paper's Table 4."""

    setting: tabular.Setting
    clients: tabular.TabularClients
    net: models.MLP
    loss: Callable[..., Tensor]
    how: dict[str, Any]

    @property
    def score(self) -> Literal["r2", "accuracy"]:
        """What Table 5 prints."""
        return "r2" if self.clients.train.y.is_floating_point() else "accuracy"


def task_of(
    setting: tabular.Setting, table: tabular.Table, clustered: bool, seed: int, most: int, overlap: bool = False
) -> Task:
    """A setting of the paper; a fifth of a client's rows is kept to score on, and at most `most` of the hold-out's."""
    own, groups = setting.rows // 5, setting.groups if clustered else 1
    how = {"validation": own, "groups": groups, "overlap": overlap, "seed": seed}
    clients = tabular.deal(table, setting.clients, setting.rows - own, setting.features, **how)
    if (rows := clients.test.index.shape[1]) > most:
        some = torch.from_numpy(np.random.RandomState(seed).permutation(rows)[:most])
        index, y = clients.test.index[:, some], clients.test.y[:, some]
        test = replace(clients.test, index=index, y=y, n=torch.full_like(clients.test.n, most))
        clients = replace(clients, test=test)
    net = models.MLP((int(clients.widths.max()), *setting.hidden, table.classes or 1))
    sgd = functools.partial(torch.optim.SGD, momentum=setting.momentum, fused=True)
    adam = functools.partial(torch.optim.Adam, fused=True)
    how = {n: getattr(setting, n) for n in ("lr", "batch_size", "epochs")} | loss_and_predict(net, table.classes)
    how["optimizer"] = sgd if setting.optimizer == "sgd" else adam
    return Task(setting, clients, net, how.pop("loss"), how)


def in_double(task: Task) -> Task:
    """The same in double precision."""
    return replace(task, clients=task.clients.in_double())


# ---- many federations at once ----


class Mmd(torch.autograd.Function):
    """`fedlib.client.mmd.mmd` of a stack of samples without padding, with its gradient written out."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, pool: Tensor, apart: Tensor) -> Tensor:
        """MMD of q (C, n, h) and pool (C, S, h), given the squared distances `apart` (C, S (S - 1) / 2) in the pool."""
        n, s, middle = q.shape[1], pool.shape[1], pool.mean(1, keepdim=True)
        z = torch.cat([q, pool], 1) - middle
        q, length = z[:, :n], z.square().sum(2)
        d2 = (length[:, :n, None] + length[:, None] - 2 * (q @ z.mT)).clamp_min_(0)  # (C, n, n + S)
        first, second = torch.triu_indices(n, n, 1)
        pairs = torch.cat([d2[:, first, second], d2[:, :, n:].flatten(1), apart], 1).numpy()
        place = (pairs.shape[1] - 1) // 2  # the lower median; NumPy's partition is ten times as quick as torch's
        bandwidth = torch.from_numpy(np.partition(pairs, place)[:, place].copy()).clamp_min(1e-6)
        k, inner = (d2 / (-4 * bandwidth[:, None, None])).exp_(), (apart / (-4 * bandwidth[:, None])).exp_()
        total, slope, own = k.clone(), k.clone(), inner.sum(1)
        for power in (2, 4, 8, 16):  # the kernel of half the bandwidth is the square of this one
            total.add_(k.square_())
            slope.add_(k, alpha=power)
            own.add_(inner.square_().sum(1))
        within, across = total[:, :, :n].sum((1, 2)), total[:, :, n:].sum((1, 2))
        mmd2 = within / (5 * n**2) + 1 / s + 2 * own / (5 * s**2) - 2 * across / (5 * n * s)
        value = (mmd2.clamp_min(0) + 1e-12).sqrt()
        slope[:, :, :n] *= 2 / n**2
        slope[:, :, n:] *= -2 / (n * s)
        slope *= ((mmd2 > 0) / (-20 * bandwidth * value))[:, None, None]
        ctx.save_for_backward(slope.sum(2, keepdim=True) * q - slope @ z)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        """Of q alone."""
        return upstream[:, None, None] * ctx.saved_tensors[0], None, None


@dataclass(frozen=True)
class SideBySide(LGFedAvg):
    """Several federations of the same clients in one stack; each draws as it would alone.

    Client k of federation a is row a K + k, of K `clients`. A round's share is drawn from each group of `joins`, and
    the MMD of row i counts with ``weight[i]`` times `mmd`.
    """

    clients: int = 1
    joins: Tensor | None = None
    weight: Tensor | None = None

    def cohort(self, state: Any, ids: Tensor, n: int, key: Key) -> Tensor:
        """That of LG-FedAvg, of other groups."""
        return super().cohort(replace(state, assignment=self.joins), ids, n, key)

    def centroids(self, state: Any) -> Tensor:
        """Those of LG-FedAvg, where row a K + k draws as row k does."""
        q = state.embeddings
        k, j = state.real.nonzero(as_tuple=True)
        bits = Key(state.seed, state.round).bits(torch.arange(len(q)) % self.clients, "pool", q.shape[1])
        order, first, size = shuffle_within(state.assignment[k], bits[k, j], len(state.centroid))
        turn = torch.arange(self.pool) % size.clamp(min=1)[:, None]
        drawn = order[(first[:, None] + turn).clamp(max=len(order) - 1)]
        return torch.where(size[:, None, None] > 0, q[k[drawn], j[drawn]], 0)

    def comparison(self, state: Any, clients: Tensor) -> tuple[Tensor, ...]:
        """The centroid, the squared distances inside it, and the weight."""
        pool = state.centroid[state.assignment[clients]]
        z = pool - pool.mean(1, keepdim=True)
        length = z.square().sum(2)
        first, second = torch.triu_indices(self.pool, self.pool, 1)
        apart = (length[:, :, None] + length[:, None] - 2 * (z @ z.mT)).flatten(1)
        return pool, apart[:, first * self.pool + second].clamp_min(0), self.weight[clients].to(pool)

    def local_training(
        self, start: Params, data: ClientData, key: Key, extras: Any = (), *_: Any, **__: Any
    ) -> Trained:
        """The same without `torch.vmap`: dense layers, batches of all rows, and no client with fewer than another."""
        end = {name: p.clone().requires_grad_() for name, p in start.items()}
        x, y, _ = data.all_rows(end["dense1.weight"].dtype)
        rule, losses = self.optimizer(list(end.values()), lr=self.lr), []
        if extras:
            pulled, weight = extras[2].nonzero()[:, 0], self.mmd * extras[2]
            pool, apart = (part[pulled] for part in extras[:2])
        for _ in range(self.epochs):
            h = [x]
            for layer in range(1, len(end) // 2 + 1):
                h.append(torch.baddbmm(end[f"dense{layer}.bias"][:, None], h[-1], end[f"dense{layer}.weight"].mT))
                h[layer] = h[layer] if 2 * layer == len(end) else h[layer].relu()
            if y.is_floating_point():
                loss = (h[-1][..., 0] - y).square().mean(1)
            else:
                loss = torch.nn.functional.cross_entropy(h[-1].mT, y, reduction="none").mean(1)
            if extras:
                loss = loss.index_add(0, pulled, weight[pulled] * Mmd.apply(h[1][pulled], pool, apart))
            rule.zero_grad()
            loss.sum().backward()
            rule.step()
            losses.append(loss.detach())
        steps = torch.full((len(x),), self.epochs)
        return Trained({name: p.detach() for name, p in end.items()}, torch.stack(losses).mean(0), steps)


@dataclass(frozen=True)
class Curve:
    """Scores of K clients on some rows after each of T rounds.

    `error` (T, K) over `spread` (K,) is what is missing to a score of 1: squared errors over the variance of the
    targets, or wrong answers over 1. `centre` (K,) is the mean of the targets, or 0.
    """

    error: np.ndarray
    spread: np.ndarray
    centre: np.ndarray

    @property
    def single(self) -> np.ndarray:
        """Each client's score, of shape (T, K); NaN where all targets are equal."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.spread > 0, 1 - self.error / self.spread, np.nan)

    def of(self, clients: Any = slice(None)) -> np.ndarray:
        """The score of some clients' rows together, of shape (T,), as `fedlib.evaluation.pooled` has it."""
        centre = self.centre[clients]
        spread = self.spread[clients] + (centre - centre.mean()) ** 2
        return 1 - self.error[:, clients].mean(1) / spread.mean()


PLAIN = ("Standalone", "LG-FedAvg")  # arms without MMD


def side_by_side(
    task: Task, arms: Mapping[str, Tensor], start: Params, rounds: int, seed: int
) -> dict[str, dict[str, Curve]]:
    """Curves of several federations, on the clients' own rows and on the hold-out, scored at most fifty times.

    The arms "Standalone" and "LG-FedAvg" have no MMD. Of "Standalone" a share of all clients takes part in a round; of
    the others, as in LG-FedAvg, of each cluster.
    """
    train, sets = task.clients.train.sorted(), {"own": task.clients.validation, "hold-out": task.clients.test}
    k, rows = len(train), torch.arange(len(train)).repeat(len(arms))
    first = np.cumsum([0, *(int(a.max()) + 1 for a in arms.values())])
    assignment = torch.cat([a + int(f) for a, f in zip(arms.values(), first, strict=False)])
    alone = torch.tensor([name == "Standalone" for name in arms]).repeat_interleave(k)
    where = torch.as_tensor(first[:-1]).repeat_interleave(k)
    side = {"joins": torch.where(alone, where, assignment), "clients": k}
    side["weight"] = torch.tensor([name not in PLAIN for name in arms]).repeat_interleave(k)
    algorithm = SideBySide(task.loss, mmd=0.5, assignment=assignment, **side, **task.how)
    stack, checks = train[rows], {name: some.sorted()[rows] for name, some in sets.items()}
    state = algorithm.prepare(algorithm.init(start, stack, Key(seed)), stack, Key(seed))
    cohort, everybody = max(1, round(task.setting.share * k)) * len(arms), torch.arange(len(stack))
    found: dict[str, list[pd.DataFrame]] = {name: [] for name in checks}
    for t in range(1, rounds + 1):
        state, _ = one_round(algorithm, state, stack, cohort, Key(seed, t), Costs())
        if t % max(1, rounds // 50) == 0:
            for name, some in checks.items():
                found[name].append(evaluation.score(algorithm, state, some, everybody))

    def curve(tables: Sequence[pd.DataFrame]) -> Curve:
        if task.score == "accuracy":
            return Curve(1 - np.stack([t["accuracy"] for t in tables]), np.ones(k), np.zeros(k))
        spread, centre = (tables[0][c].to_numpy() for c in ("target_variance", "target_mean"))
        return Curve(np.stack([t["mse"] for t in tables]), spread, centre)

    part = {arm: slice(i * k, (i + 1) * k) for i, arm in enumerate(arms)}
    return {arm: {name: curve([t[p] for t in tables]) for name, tables in found.items()} for arm, p in part.items()}


def readings(curves: Mapping[str, Curve], clusters: Tensor) -> Scores:
    """ "Maximum test" scores in five readings, and three that are no maximum of what they report.

    Each client's best round, each cluster's, or that of all together; on the few own rows or on the common hold-out.
    """
    own, test = curves["own"], curves["hold-out"]
    members = [(clusters == c).numpy() for c in clusters.unique()]

    def best(scores: np.ndarray) -> float:
        top = np.where(np.isnan(scores), -np.inf, scores).max(0)
        return float(top[np.isfinite(top)].mean())

    def of_clusters(curve: Curve) -> float:
        return float(sum(m.sum() * np.max(curve.of(m)) for m in members) / len(clusters))

    return {
        "paper": best(own.single),  # each client's best round on its own rows
        "each client, hold-out": best(test.single),
        "each cluster, own rows": of_clusters(own),
        "each cluster, hold-out": of_clusters(test),
        "all, hold-out": float(test.of().max()),
        "sound": float(test.of()[own.of().argmax()]),  # one round, chosen on the own rows
        "last round": float(test.of()[-1]),
        "last round, own rows": float(own.of()[-1]),
    }


def pair_run(
    task: Task, start: Params, train: ClientData, rounds: int, seed: int
) -> Callable[[ClientData, transfer.Score], Tensor]:
    """All pairs federate; what is returned gives `fedlib.server.transfer.positive_transfer` on some rows by a score."""
    train, pairs = train.sorted(), transfer.all_pairs(len(train))
    who = torch.cat([pairs.flatten(), torch.arange(len(train))])  # LG-FedAvg of one client is training alone
    group = torch.cat([torch.arange(len(pairs)).repeat_interleave(2), len(pairs) + torch.arange(len(train))])
    algorithm, stack = SideBySide(task.loss, assignment=group, joins=group, **task.how), train[who]
    state = algorithm.init(start, stack, Key(seed))
    for t in range(1, rounds + 1):
        state, _ = one_round(algorithm, state, stack, len(stack), Key(seed, t), Costs())

    def gain(check: ClientData, score: transfer.Score) -> Tensor:
        rows = check.sorted()
        rows = rows[torch.searchsorted(rows.id, stack.id)]
        one = replace(algorithm, predict=None) if score == "loss" else algorithm
        value = torch.tensor(evaluation.score(one, state, rows, torch.arange(len(stack)))[score].to_numpy())
        value = -value if score == "loss" else value
        together, alone = value[: 2 * len(pairs)].view(-1, 2), value[2 * len(pairs) :]
        return (together - alone[pairs]).mean(1)

    return gain
