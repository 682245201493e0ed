"""Not from a paper: split-half CFL where clients read columns of their own; it splits by the layers that all have.

Limits: those of `fedlib.extensions.split_half_cfl`; and groups that differ in their local layers only are not seen.
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
    """State of split-half CFL for the shared layers, and the local ones beside it."""


@dataclass(frozen=True)
class LGCFL(LocalLayers, SplitHalfCFL):
    """Split-half CFL on the shared layers; the local ones stay on their client, as in LG-FedAvg.

    Parameters as in `fedlib.extensions.split_half_cfl.SplitHalfCFL`, and

    Parameters
    ----------
    local : sequence of str
        As in `fedlib.algorithms.lg_fedavg.LGFedAvg`; with ``()`` it is `SplitHalfCFL`.

    Raises
    ------
    ValueError
        A name in `local` that no parameter has; no layer that is shared.

    Notes
    -----
    FedSGCNN section 5.1.2 calls CFL "not readily applicable" where feature spaces differ. All clients share the later
    layers, though, and a split needs no more than their updates. Chapter 12.
    """

    def init(self, params: Params, data: ClientData, key: Key) -> LGCFLState:
        """One cluster of all clients, who also start with equal local layers."""
        shared, _ = split_layers(params, self.local)
        if not shared:
            raise ValueError(f"local={self.local!r} leaves no layer to share, and CFL none to split by")
        return LGCFLState(**vars(super().init(shared, data, key)), **vars(self.at_home(params, data)))

    def shared(self, params: Params) -> Params:
        """All but the local layers."""
        return split_layers(params, self.local)[0]

    def kept(self, params: Params) -> dict[str, Params]:
        """The local layers."""
        return {"local": split_layers(params, self.local)[1]}

    def new_clients(self, state: Any, data: ClientData, key: Key, rounds: int) -> LGCFLState:
        """A new client walks down the split tree, with local layers fitted to the model of each node.

        These it trains for `rounds` rounds from the common start while the shared layers stay as they are; then, as in
        CFL, it trains everything once, and goes where the update of the shared layers points to.
        """
        first = take(state.start, torch.zeros_like(data.n))

        def fitted(shared: Params) -> Params:
            return self.fitted(first, shared, data, key, rounds)

        def first_update(shared: Params) -> Params:
            return sub(self.shared(self.local_training(fitted(shared) | shared, data, key).params), shared)

        assignment = walk(state.splits, data.n, first_update)
        return replace(state, assignment=assignment, local=fitted(take(state.models, assignment)))
