"""Federated averaging, slow and obvious: one client after another, one batch after another.

What the tests hold the stacked core to. It shares nothing with the core but the random numbers of `Key`, which fix the
cohorts and the order of the examples.
"""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedlib import Key


def cohort(clients: Iterable[int], size: int | None, key: Key) -> list[int]:
    """Ids of the clients of a round, in ascending order of ids; None is all of them."""
    ids = sorted(clients)
    return [ids[k] for k in key.choose(torch.tensor(ids), len(ids) if size is None else size, "cohort")]


def batches(
    client: int, n: int, key: Key, *, batch_size: int | None, epochs: int, stragglers: float = 0.0
) -> list[Tensor]:
    """Rows of each step of a client with n examples, of whom such a share is slow and stops after some steps."""
    me = torch.tensor([client])
    shuffles = key.permutations(me, "batches", torch.tensor([n]), epochs, n)[0]
    steps = [rows for order in shuffles for rows in order.split(batch_size or n)]
    slow = float(key.uniform(me, "slow")) < stragglers
    return steps[: 1 + int(float(key.uniform(me, "steps of the slow")) * len(steps))] if slow else steps


def descend(
    objective: Callable[[dict[str, Tensor], Tensor], Tensor],
    start: Mapping[str, Tensor],
    steps: Iterable[Tensor],
    lr: float,
    moving: Iterable[str] | None = None,
) -> dict[str, Tensor]:
    """The loop of a textbook, with ``objective(parameters, rows)``; `moving` names what trains, or None for all."""
    p = {n: v.clone().requires_grad_() for n, v in start.items()}
    for rows in steps:
        gradients = torch.autograd.grad(objective(p, rows), list(p.values()), allow_unused=True)
        with torch.no_grad():
            for (n, v), g in zip(p.items(), gradients, strict=True):
                v -= lr * (0 if g is None or (moving and n not in moving) else g)
    return {n: v.detach() for n, v in p.items()}


def mean(models: Iterable[Mapping[str, Tensor]], weights: Iterable[float] | None = None) -> dict[str, Tensor]:
    """The weighted mean of sets of parameters; without weights, the plain one."""
    models = list(models)
    weights = [1] * len(models) if weights is None else [float(w) for w in weights]
    shares = [w / sum(weights) for w in weights]
    return {name: sum(w * model[name] for w, model in zip(shares, models, strict=True)) for name in models[0]}


def mean_by_examples(ends: Mapping[int, Mapping[str, Tensor]], clients: Mapping[int, tuple]) -> dict[str, Tensor]:
    """The mean of what some clients have, each weighted by how many examples it has."""
    return mean(ends.values(), [len(clients[k][1]) for k in ends])


def drawn_starts(params: Mapping[str, Tensor], models: int, seed: int = 7) -> list[dict[str, Tensor]]:
    """The start itself, and draws with its means and standard deviations."""
    found = [dict(params)]
    for m in range(1, models):
        draws = {n: Key(seed).normal(torch.tensor([m]), f"start of {n}", *p.shape)[0] for n, p in params.items()}
        found.append({n: p.mean() + p.std(correction=0) * draws[n] for n, p in params.items()})
    return found


def flat(params: Mapping[str, Tensor]) -> Tensor:
    """All numbers of one set of parameters in a row."""
    return torch.cat([p.reshape(-1) for p in params.values()])


def trained(
    module: nn.Module,
    start: Mapping[str, Tensor],
    examples: tuple[Tensor, Tensor],
    client: int,
    key: Key,
    *,
    lr: float = 0.1,
    batch_size: int | None = 8,
    epochs: int = 2,
    stragglers: float = 0.0,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    moving: Callable[[str], bool] = lambda name: True,
    penalty: Callable[[dict[str, Tensor]], Tensor | float] | None = None,
) -> dict[str, Tensor]:
    """One client's parameters after training from `start`, by default with the settings of `twins.LOCAL`.

    Parameters
    ----------
    module : torch.nn.Module
        Whose parameters are overwritten.
    moving : callable
        Which parameters train, by their names; all.
    penalty : callable, optional
        ``penalty(parameters) -> scalar``, which is added to the cross-entropy of each batch.
    """
    module.load_state_dict(start)
    theta, (x, y) = dict(module.named_parameters()), examples
    for name, p in theta.items():
        p.requires_grad_(moving(name))
    rule = optimizer(module.parameters(), lr=lr)
    for rows in batches(client, len(x), key, batch_size=batch_size, epochs=epochs, stragglers=stragglers):
        rule.zero_grad()
        loss = cross_entropy(module(x[rows]), y[rows]) + (penalty(theta) if penalty else 0)
        loss.backward()
        rule.step()
    module.requires_grad_(True)
    return {name: p.detach().clone() for name, p in theta.items()}


def averaged(
    module: nn.Module,
    model: Mapping[str, Tensor],
    clients: Mapping[int, tuple[Tensor, Tensor]],
    drawn: Iterable[int],
    key: Key,
    **training,
) -> dict[str, Tensor]:
    """The server's model after a round of FedAvg (FedCG Eq. 1-2; CFL Alg. 1) with the clients that were drawn."""
    ends = {k: trained(module, model, clients[k], k, key, **training) for k in drawn}
    return mean_by_examples(ends, clients)
