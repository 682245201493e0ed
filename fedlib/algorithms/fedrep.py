"""FedRep: clients share a representation, and each trains a head of its own on it first."""

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
    """State of FedRep: `models` is the representation phi, `local` holds the heads h_k."""


@dataclass(frozen=True)
class FedRep(LocalLayers, FedAvg):
    """Each client fits its head to the representation that it was sent, then the representation to its head.

    The last layers are the head h_k, which stays on its client; the layers before them are the representation phi,
    whose mean the server takes. In a round a client first trains h_k for `head_epochs` epochs while phi stays as it
    came, then phi for `epochs` epochs while the new h_k stays as it is, and sends phi.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    local : sequence of str
        The head: the parameters with these names, or whose names begin with one of them and a dot. (): no head, which
        is FedAvg.
    head_epochs : int
        Epochs of the head in a round, the paper's tau; `epochs` are those of the representation.

    Raises
    ------
    TypeError
        `local` is one string.
    ValueError
        A setting out of its range; a name in `local` that no parameter has; no layer that is shared.

    Notes
    -----
    Algorithm 1 counts tau steps of the head and one of the representation; here both are epochs, as in the authors'
    experiments, which take 10 and 1 or 5. Both parts shuffle alike. The mean is weighted by examples. A client that is
    not in the cohort predicts with the head of its last round on the newest representation. A new client trains a head,
    from where all heads started, while the representation stays as it is. The training loss in the history is that of
    the representation's epochs. The paper's text was not at hand; from memory and the authors' program
    (lgcollins/FedRep on GitHub).

    FedPer (Arivazhagan, Aggarwal, Singh, Choudhary, 2019) shares the same layers and trains head and representation at
    once: ``LGFedAvg(loss, local=...)`` with the same names. Chapter 04.

    References
    ----------
    Collins, Hassani, Mokhtari, Shakkottai. Exploiting shared representations for personalized federated learning. ICML
    2021, Algorithm 1.
    """

    local: Sequence[str] = ("dense2",)
    head_epochs: int = whole(10)

    def init(self, params: Params, data: ClientData, key: Key) -> FedRepState:
        """One representation, and equal heads."""
        phi, _ = split_layers(params, self.local)
        if not phi:
            raise ValueError(f"local={self.local!r} leaves no layer to share; without one, take LocalOnly")
        return FedRepState(**vars(super().init(phi, data, key)), **vars(self.at_home(params, data)))

    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """The head first, with the representation as it came; then the representation, with the new head."""
        params = self.client_params(state, clients)
        if state.local:
            params = self.for_heads().local_training(params, data, key, frozen=tuple(state.models)).params
        end = self.local_training(params, data, key, frozen=tuple(state.local))
        phi, head = split_layers(end.params, self.local)
        sums = cluster_sums(phi, torch.zeros_like(clients), data.n, models=1)
        return Update(clients, summed=sums, client_state={"local": head}, log={"loss": end.loss})

    def for_heads(self) -> "FedRep":
        """The same algorithm, with the epochs of the head."""
        return replace(self, epochs=self.head_epochs)

    def new_clients(self, state: Any, data: ClientData, key: Key, rounds: int) -> FedRepState:
        """A new client trains a head for `rounds` rounds while the representation stays as it is."""
        one = torch.zeros_like(data.n)
        head = self.for_heads().fitted(take(state.start, one), take(state.models, one), data, key, rounds)
        return replace(state, local=head)
