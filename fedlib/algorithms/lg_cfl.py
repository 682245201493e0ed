"""CFL where clients read columns of their own: it splits by the layers that all have."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..algorithm import Update
from ..costs import TRAINING
from ..data import ClientData
from ..keys import Key
from ..params import Params, broadcast, sub, take
from .cfl import CFL, CFLState, _cosine
from .lg_fedavg import split_layers, train_local_layers

__all__ = ["LGCFL", "LGCFLState"]


@dataclass(frozen=True)
class LGCFLState(CFLState):
    """State of CFL for the shared layers, and the local ones beside it.

    Attributes
    ----------
    local : Params
        Stack of K rows, each client's own layers; empty where all layers are shared.
    start : Params
        Stack of one row: where the local layers started, for old and new clients alike.
    """

    local: Params
    start: Params


@dataclass(frozen=True)
class LGCFL(CFL):
    """CFL on the shared layers; the local ones stay on their client, as in LG-FedAvg.

    Parameters as in `fedlib.algorithms.cfl.CFL`, and

    Parameters
    ----------
    local : sequence of str
        As in `fedlib.algorithms.lg_fedavg.LGFedAvg`.

    Raises
    ------
    TypeError
        `local` is one string.
    ValueError
        A setting out of its range; a name in `local` that no parameter has; no layer that is shared.

    Notes
    -----
    FedSGCNN section 5.1.2 calls CFL "not readily applicable" where feature spaces differ. All clients share the later
    layers, though, and a split needs no more than their updates. With ``local=()`` it is CFL. Chapter 08.
    """

    local: Sequence[str] = ("dense1",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.local, str):
            raise TypeError(f"local must be a list of names, such as [{self.local!r}]; got {self.local!r}")

    def init(self, params: Params, data: ClientData, key: Key) -> LGCFLState:
        """One cluster of all clients, who also start with equal local layers."""
        shared, own = split_layers(params, self.local)
        if not shared:
            raise ValueError(f"local={self.local!r} leaves no layer to share, and CFL none to split by")
        local = {name: p.clone() for name, p in broadcast(own, len(data)).items()}
        return LGCFLState(**vars(super().init(shared, data, key)), local=local, start=broadcast(own, 1))

    def train(self, state: LGCFLState, data: ClientData, clients: Tensor, key: Key) -> Update:  # type: ignore[override]
        """Train all layers; the update of the shared ones goes to the server."""
        start = self.client_params(state, clients)
        end = self.local_training(start, data, key)
        shared, own = split_layers(end.params, self.local)
        rows = {"update": sub(shared, start), "n": data.n, "steps": end.steps.to(data.n.device)}
        return Update(clients, per_client=rows, client_state={"local": own}, log={"loss": end.loss})

    def client_params(self, state: LGCFLState, clients: Tensor) -> Params:  # type: ignore[override]
        """A client's own layers, and the shared ones of its cluster."""
        own = take(state.local, clients) if state.local else {}
        return own | super().client_params(state, clients)

    def download(self, state: LGCFLState, clients: Tensor) -> dict[str, Any]:
        """The shared layers."""
        return {TRAINING: super().client_params(state, clients)}

    def new_clients(self, state: LGCFLState, data: ClientData, key: Key, rounds: int) -> LGCFLState:  # type: ignore[override]
        """A new client walks down the split tree, with local layers fitted to the model of each node.

        These it trains for `rounds` rounds from the common start while the shared layers stay as they are; then, as in
        CFL, it trains everything once, and goes where the update of the shared layers points to.
        """
        assignment = torch.zeros(len(data), dtype=torch.int64, device=data.n.device)
        first = {name: p.expand(len(data), *p.shape[1:]) for name, p in state.start.items()}
        for cut in state.splits:
            shared = take(cut.start, torch.zeros_like(assignment))
            own = train_local_layers(self, shared, first, data, key, rounds)
            end = self.local_training(own | shared, data, key).params
            update = {name: end[name] - p for name, p in shared.items()}
            closeness = torch.stack([_cosine(update, cut.directions, side) for side in (0, 1)])
            goes_on = (assignment == cut.model) & (closeness[1] > closeness[0])
            assignment = torch.where(goes_on, cut.new, assignment)
        own = train_local_layers(self, take(state.models, assignment), first, data, key, rounds)
        return replace(state, assignment=assignment, local=own)
