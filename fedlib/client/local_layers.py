"""Layers that stay on their client: which they are, and how new clients train theirs (LG-FedAvg, LG-CFL)."""

from collections.abc import Sequence
from typing import Any

from ..algorithm import Algorithm
from ..data import ClientData
from ..keys import Key
from ..params import Params

__all__ = ["split_layers", "train_local_layers"]


def split_layers(params: Params, local: Sequence[str]) -> tuple[Params, Params]:
    """Parameters (or a stack) as those that are shared and those that stay on the client.

    Parameters
    ----------
    params : Params
    local : sequence of str
        Names, or what names begin with before a dot.

    Returns
    -------
    shared, own : Params
        Either may be empty.

    Raises
    ------
    TypeError
        `local` is one string.
    ValueError
        A name that no parameter has.
    """
    if isinstance(local, str):
        raise TypeError(f"local must be a list of names, such as [{local!r}]; got {local!r}")
    meant = {name: [part for part in local if name == part or name.startswith(f"{part}.")] for name in params}
    if unknown := set(local) - {part for parts in meant.values() for part in parts}:
        raise ValueError(f"local names {sorted(unknown)}, which no parameter has; there are {list(params)}")
    return {n: p for n, p in params.items() if not meant[n]}, {n: p for n, p in params.items() if meant[n]}


def train_local_layers(
    algorithm: Algorithm, shared: Params, own: Params, data: ClientData, key: Key, rounds: int, **task: Any
) -> Params:
    """The local layers `own` of new clients after some rounds in which their shared layers stay as they are.

    Parameters
    ----------
    algorithm : Algorithm
        Its settings are those of the training.
    shared, own : Params
        Stacks of C rows; either may be empty.
    data : ClientData
        Of the C clients.
    key : Key
    rounds : int
    **task
        `extras` and `loss`, as in `fedlib.algorithm.Algorithm.local_training`.

    Returns
    -------
    Params
        A stack of C rows with the names of `own`.
    """
    for t in range(1, rounds + 1) if own else ():
        end = algorithm.local_training(own | shared, data, Key(key.seed, t), frozen=tuple(shared), **task)
        own = {name: end.params[name] for name in own}
    return own
