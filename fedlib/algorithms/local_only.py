"""Every client for itself: the baseline that a federation has to beat."""

from dataclasses import dataclass

from torch import Tensor

from ..data import ClientData
from ..federation import Algorithm, Update
from ..keys import Key
from ..params import Params, broadcast, take

__all__ = ["LocalOnly", "LocalOnlyState"]


@dataclass(frozen=True)
class LocalOnlyState:
    """State of local training.

    Attributes
    ----------
    local : Params
        Stack of K rows, each client's own model.
    """

    local: Params


@dataclass(frozen=True)
class LocalOnly(Algorithm):
    """Each client trains its own model on its own data; nothing is sent.

    Parameters as in `fedlib.federation.Algorithm`. Called "standalone" in FedSGCNN. Chapter 01.
    """

    def init(self, params: Params, data: ClientData, key: Key) -> LocalOnlyState:
        """All clients start from the same parameters."""
        return LocalOnlyState({name: p.clone() for name, p in broadcast(params, len(data)).items()})

    def train(self, state: LocalOnlyState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Train on; what comes out never leaves the client."""
        end = self.local_training(self.client_params(state, clients), data, key)
        return Update(clients, kept={"local": end.params}, log={"loss": end.loss})

    def aggregate(self, state: LocalOnlyState, update: Update) -> LocalOnlyState:
        """The server has nothing to do."""
        return state

    def client_params(self, state: LocalOnlyState, clients: Tensor) -> Params:
        """Each client holds its own row."""
        return take(state.local, clients)
