"""Split-half CFL for clients with different columns, which splits by the layers that all share; not from a paper.

Its limits are those of `fedlib.extensions.split_half_cfl`. In addition, it does not detect groups that differ only in
their local layers.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from ..client.local_layers import LocalLayers, LocalLayersState, split_layers
from ..data import ClientData
from ..keys import Key
from ..params import Params, sub, take
from ..server.split_tree import walk
from .split_half_cfl import SplitHalfCFL, SplitHalfCFLState

__all__ = ["LGCFL", "LGCFLState"]


@dataclass(frozen=True)
class LGCFLState(LocalLayersState, SplitHalfCFLState):
    """State of split-half CFL for the shared layers, together with the local layers."""


@dataclass(frozen=True)
class LGCFL(LocalLayers, SplitHalfCFL):
    """Split-half CFL on the shared layers, while local layers stay on their client, as in LG-FedAvg.

    Parameters as in `fedlib.extensions.split_half_cfl.SplitHalfCFL`, and

    Parameters
    ----------
    local : sequence of str
        As in `fedlib.algorithms.lg_fedavg.LGFedAvg`; with ``()``, the algorithm is `SplitHalfCFL`.

    Raises
    ------
    ValueError
        A name in `local` matches no parameter, or no layer is shared.

    Notes
    -----
    FedSGCNN section 5.1.2 calls CFL "not readily applicable" where feature spaces differ. However, all clients share
    the later layers, and a split needs only the updates of those. Chapter 12.
    """

    def init(self, params: Params, data: ClientData, key: Key) -> LGCFLState:
        """One cluster of all clients, whose local layers also start equal."""
        shared, _ = split_layers(params, self.local)
        if not shared:
            raise ValueError(f"local={self.local!r} leaves no layer to share, and CFL none to split by")
        return LGCFLState(**vars(super().init(shared, data, key)), **vars(self.at_home(params, data)))

    def shared(self, params: Params) -> Params:
        """All layers except the local ones."""
        return split_layers(params, self.local)[0]

    def kept(self, params: Params) -> dict[str, Params]:
        """The local layers."""
        return {"local": split_layers(params, self.local)[1]}

    def new_clients(self, state: Any, data: ClientData, key: Key, rounds: int) -> LGCFLState:
        """A new client walks down the split tree, with local layers fitted to the model of each node.

        At each node, it trains its local layers for `rounds` rounds from the common initialisation while the shared
        layers are fixed. Then, as in CFL, it trains all layers once and follows the side to which the update of the
        shared layers points.
        """
        first = take(state.start, torch.zeros_like(data.n))

        def fitted(shared: Params) -> Params:
            return self.fitted(first, shared, data, key, rounds)

        def first_update(shared: Params) -> Params:
            return sub(self.shared(self.local_training(fitted(shared) | shared, data, key).params), shared)

        assignment = walk(state.splits, data.n, first_update)
        return replace(state, assignment=assignment, local=fitted(take(state.models, assignment)))
