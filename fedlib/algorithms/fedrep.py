"""FedRep, in which clients share a representation and each first trains a personal head on it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..aggregate import cluster_sums
from ..algorithm import Update
from ..checks import whole
from ..client.local_layers import LocalLayers, LocalLayersState, split_layers
from ..data import ClientData
from ..keys import Key
from ..params import Params, take
from .fedavg import FedAvg, FedAvgState

__all__ = ["FedRep", "FedRepState"]


@dataclass(frozen=True)
class FedRepState(LocalLayersState, FedAvgState):
    """State of FedRep, with the representation phi in `models` and the heads h_k in `local`."""


@dataclass(frozen=True)
class FedRep(LocalLayers, FedAvg):
    """Each client fits its head to the representation it received, then the representation to its head.

    The last layers are the head h_k, which stays on its client; the layers before them are the representation phi,
    which the server averages. In a round, a client first trains h_k for `head_epochs` epochs with phi frozen, then phi
    for `epochs` epochs with the new h_k frozen, and sends phi.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    local : sequence of str
        Names of the head's parameters, or prefixes of such names before a dot. With (), there is no head, which is
        FedAvg.
    head_epochs : int
        Epochs in which the head trains in a round, the paper's tau; `epochs` are those of the representation.

    Raises
    ------
    TypeError
        `local` is a single string.
    ValueError
        A setting is out of range, a name in `local` matches no parameter, or no layer is shared.

    Notes
    -----
    Algorithm 1 counts tau steps for the head and one for the representation. Here both are counted in epochs, as in the
    authors' experiments, which use 10 and 1 or 5. A client shuffles its examples in the same way for both. The mean is
    weighted by examples. A client outside the cohort predicts with its head from the last round in which it took part,
    on the newest representation. A new client trains a head from the initialisation that all heads share, with the
    representation frozen. The training loss in the history is that of the representation's epochs. The paper's text was
    not available, so the implementation follows memory and the authors' program (lgcollins/FedRep on GitHub).

    FedPer (Arivazhagan, Aggarwal, Singh, Choudhary, 2019) shares the same layers but trains head and representation
    together, as ``LGFedAvg(loss, local=...)`` with the same names does. Chapter 04.

    References
    ----------
    Collins, Hassani, Mokhtari, Shakkottai. Exploiting shared representations for personalized federated learning. ICML
    2021, Algorithm 1.
    """

    local: Sequence[str] = ("dense2",)
    head_epochs: int = whole(10)

    def init(self, params: Params, data: ClientData, key: Key) -> FedRepState:
        """Start from one representation and equal heads."""
        phi, _ = split_layers(params, self.local)
        if not phi:
            raise ValueError(f"local={self.local!r} leaves no layer to share; without one, take LocalOnly")
        return FedRepState(**vars(super().init(phi, data, key)), **vars(self.at_home(params, data)))

    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Train the head with the representation as received, then the representation with the new head."""
        params = self.client_params(state, clients)
        if state.local:
            params = self.for_heads().local_training(params, data, key, frozen=tuple(state.models)).params
        end = self.local_training(params, data, key, frozen=tuple(state.local))
        phi, head = split_layers(end.params, self.local)
        sums = cluster_sums(phi, torch.zeros_like(clients), data.n, models=1)
        return Update(clients, summed=sums, client_state={"local": head}, log={"loss": end.loss})

    def for_heads(self) -> "FedRep":
        """Return the same algorithm with the head's number of epochs."""
        return replace(self, epochs=self.head_epochs)

    def new_clients(self, state: Any, data: ClientData, key: Key, rounds: int) -> FedRepState:
        """Train a head for each new client for `rounds` rounds with the representation frozen."""
        one = torch.zeros_like(data.n)
        head = self.for_heads().fitted(take(state.start, one), take(state.models, one), data, key, rounds)
        return replace(state, local=head)
