"""Federated averaging, slow and obvious: one client after another, one batch after another.

What the tests hold the stacked core to. It shares nothing with the core but the random numbers of `Key`, which fix the
cohorts and the order of the examples.
"""

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from fedlib import Key

__all__ = ["fedavg", "local_training"]


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
    shuffles = key.permutations(torch.tensor([client]), "batches", torch.tensor([len(x)]), epochs, len(x))[0]
    losses = []
    for order in shuffles:
        for rows in order.split(batch_size or len(x)):
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
    batch_size: int | None,
    epochs: int,
    optimizer: Callable[..., torch.optim.Optimizer],
    criterion: Callable[[Tensor, Tensor], Tensor],
) -> nn.Module:
    """FedAvg (FedCG Eq. 1-2; CFL Alg. 1).

    Parameters
    ----------
    module : torch.nn.Module
        The server's model at the start; not modified.
    clients : mapping of int to (x, y)
        Examples of each client, by id.
    rounds, clients_per_round : int
    seed, batch_size, epochs, optimizer, criterion
        As in `local_training`; the seed also draws the cohorts.

    Returns
    -------
    torch.nn.Module
        The server's model after the last round.
    """
    server, ids = copy.deepcopy(module), sorted(clients)
    for t in range(1, rounds + 1):
        key = Key(seed, t)
        cohort = [ids[k] for k in key.choose(torch.tensor(ids), clients_per_round, "cohort")]
        total = {name: torch.zeros_like(p) for name, p in server.named_parameters()}
        examples = sum(len(clients[k][0]) for k in cohort)
        for k in cohort:
            local = copy.deepcopy(server)
            local_training(
                local,
                *clients[k],
                client=k,
                key=key,
                batch_size=batch_size,
                epochs=epochs,
                optimizer=optimizer,
                criterion=criterion,
            )
            for name, p in local.named_parameters():
                total[name] += len(clients[k][0]) / examples * p.detach()
        server.load_state_dict(total)
    return server
