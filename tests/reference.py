"""Federated averaging, slow and obvious: one client after another, one batch after another.

What the tests hold the stacked core to. It shares nothing with the core but the random numbers of `Key`, which fix the
cohorts and the order of the examples.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedlib import Key


def cohort(clients: Iterable[int], size: int | None, key: Key) -> list[int]:
    """Ids of the clients of a round, in ascending order of ids; None is all of them."""
    ids = sorted(clients)
    return [ids[k] for k in key.choose(torch.tensor(ids), len(ids) if size is None else size, "cohort")]


def batches(client: int, n: int, key: Key, *, batch_size: int | None, epochs: int) -> list[Tensor]:
    """Rows of each step of a client with n examples."""
    shuffles = key.permutations(torch.tensor([client]), "batches", torch.tensor([n]), epochs, n)[0]
    return [rows for order in shuffles for rows in order.split(batch_size or n)]


def mean(models: Iterable[Mapping[str, Tensor]], weights: Iterable[float] | None = None) -> dict[str, Tensor]:
    """The weighted mean of sets of parameters; without weights, the plain one."""
    models = list(models)
    weights = [1] * len(models) if weights is None else [float(w) for w in weights]
    return {
        name: sum(w / sum(weights) * model[name] for w, model in zip(weights, models, strict=True))
        for name in models[0]
    }


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
    lr: float,
    batch_size: int | None,
    epochs: int,
    moving: Callable[[str], bool] = lambda name: True,
    penalty: Callable[[dict[str, Tensor]], Tensor | float] | None = None,
) -> dict[str, Tensor]:
    """One client's parameters after plain SGD from `start`.

    Parameters
    ----------
    moving : callable
        Which parameters train, by their names; all.
    penalty : callable, optional
        ``penalty(parameters) -> scalar``, which is added to the cross-entropy of each batch.
    """
    module.load_state_dict(start)
    theta = dict(module.named_parameters())

    def criterion(output, y):
        return cross_entropy(output, y) + (penalty(theta) if penalty else 0)

    for name, p in theta.items():
        p.requires_grad_(moving(name))
    settings = {"batch_size": batch_size, "epochs": epochs, "optimizer": partial(torch.optim.SGD, lr=lr)}
    local_training(module, *examples, client=client, key=key, criterion=criterion, **settings)
    module.requires_grad_(True)
    return {name: p.detach().clone() for name, p in theta.items()}


def local_training(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    client: int,
    key: Key,
    batch_size: int | None,
    epochs: int,
    optimizer: Callable[..., torch.optim.Optimizer],
    criterion: Callable[[Tensor, Tensor], Tensor],
) -> list[float]:
    """Train `module` in place on one client's examples.

    Parameters
    ----------
    module : torch.nn.Module
    x : Tensor of shape (n, ...)
    y : Tensor of shape (n,)
    client : int
        Id of the client: its shuffling depends on it.
    key : Key
    batch_size : int or None
        None takes all examples at once.
    epochs : int
    optimizer : callable
        ``optimizer(parameters)``.
    criterion : callable
        ``criterion(output, y) -> scalar``, a mean over the batch.

    Returns
    -------
    list of float
        The loss before each step.
    """
    rule = optimizer(module.parameters())
    losses = []
    for rows in batches(client, len(x), key, batch_size=batch_size, epochs=epochs):
        rule.zero_grad()
        loss = criterion(module(x[rows]), y[rows])
        loss.backward()
        rule.step()
        losses.append(float(loss.detach()))
    return losses


def fedavg(
    module: nn.Module,
    clients: Mapping[int, tuple[Tensor, Tensor]],
    rounds: int,
    clients_per_round: int,
    *,
    seed: int,
    **training: object,
) -> nn.Module:
    """FedAvg (FedCG Eq. 1-2; CFL Alg. 1).

    Parameters
    ----------
    module : torch.nn.Module
        The server's model at the start; not modified.
    clients : mapping of int to (x, y)
        Examples of each client, by id.
    rounds, clients_per_round : int
    seed : int
        Draws the cohorts and the order of examples.
    **training
        `batch_size`, `epochs`, `optimizer` and `criterion` as in `local_training`.

    Returns
    -------
    torch.nn.Module
        The server's model after the last round.
    """
    server = copy.deepcopy(module)
    for t in range(1, rounds + 1):
        key, ends = Key(seed, t), {}
        for k in cohort(clients, clients_per_round, key):
            local = copy.deepcopy(server)
            local_training(local, *clients[k], client=k, key=key, **training)
            ends[k] = {name: p.detach() for name, p in local.named_parameters()}
        server.load_state_dict(mean_by_examples(ends, clients))
    return server
