"""Local layers, which stay on their client, for the algorithms that have them (LG-FedAvg, FedRep, LG-CFL)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..algorithm import Algorithm, held
from ..data import ClientData
from ..keys import Key
from ..params import Params, broadcast, take

__all__ = ["LocalLayers", "LocalLayersState", "split_layers"]


def split_layers(params: Params, local: Sequence[str]) -> tuple[Params, Params]:
    """Split parameters, or a stack of them, into those that are shared and those that stay on the client.

    Parameters
    ----------
    params : Params
    local : sequence of str
        Names of parameters, or the beginnings of names up to a dot.

    Returns
    -------
    shared, own : Params
        Either may be empty.

    Raises
    ------
    ValueError
        A name that no parameter has.
    """
    meant = {name: [part for part in local if name == part or name.startswith(f"{part}.")] for name in params}
    if unknown := set(local) - {part for parts in meant.values() for part in parts}:
        raise ValueError(f"local names {sorted(unknown)}, which no parameter has; there are {list(params)}")
    return {n: p for n, p in params.items() if not meant[n]}, {n: p for n, p in params.items() if meant[n]}


@dataclass(frozen=True)
class LocalLayersState:
    """The local layers in the state of an algorithm that has them; ``models`` then holds only the shared layers.

    Attributes
    ----------
    local : Params
        Stack of K rows with each client's local layers; empty if all layers are shared.
    start : Params
        Stack of one row, the initial local layers of old and new clients alike.
    """

    local: Params = field(metadata=held("client"))
    start: Params


@dataclass(frozen=True)
class LocalLayers(Algorithm):
    """Add local layers to an algorithm for the shared layers, as in ``class FedRep(LocalLayers, FedAvg)``.

    Parameters as in the other algorithm, and

    Parameters
    ----------
    local : sequence of str
        Layers that stay on the client, see `split_layers`.
    """

    local: Sequence[str] = ("dense1",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.local, str) or not isinstance(self.local, Iterable):
            like = self.local if isinstance(self.local, str) else "dense1"
            raise TypeError(f"local must be a list of names, such as [{like!r}]; got {self.local!r:.80}")
        object.__setattr__(self, "local", tuple(sorted(self.local)))  # an iterator could be read only once

    def at_home(self, params: Params, data: ClientData) -> LocalLayersState:
        """The local layers before round 1, taken from one set of parameters and equal for all clients."""
        _, own = split_layers(params, self.local)
        clones = {name: p.clone() for name, p in broadcast(own, len(data)).items()}
        return LocalLayersState(clones, broadcast(own, 1))

    def client_params(self, state: Any, clients: Tensor) -> Params:
        """A client's local layers and the shared ones."""
        return take(state.local, clients) | super().client_params(state, clients)  # type: ignore[safe-super]

    def fitted(self, own: Params, shared: Params, data: ClientData, key: Key, rounds: int, **task: Any) -> Params:
        """Local layers after some rounds with the shared ones frozen, as new clients train them.

        Parameters
        ----------
        own, shared : Params
            Stacks of C rows; either may be empty.
        data : ClientData
            Examples of the C clients.
        key : Key
        rounds : int
        **task
            `extras` and `loss`, as in `fedlib.algorithm.Algorithm.local_training`.

        Returns
        -------
        Params
            A stack of C rows with the names of `own`.
        """
        end = self.local_rounds(own | shared, data, key, rounds if own else 0, frozen=tuple(shared), **task)
        return {name: end[name] for name in own}
