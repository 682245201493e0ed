"""Each client trains alone, which is the baseline that a federation has to beat."""

from dataclasses import dataclass, replace

from torch import Tensor

from ..algorithm import Algorithm, Update
from ..client.local_layers import LocalLayersState
from ..data import ClientData
from ..keys import Key
from ..params import Params, broadcast, row, take

__all__ = ["LocalOnly", "LocalOnlyState"]


@dataclass(frozen=True)
class LocalOnlyState(LocalLayersState):
    """State of local training, in which all layers are local."""


@dataclass(frozen=True)
class LocalOnly(Algorithm):
    """Each client trains its own model on its own data; nothing is sent.

    Parameters as in `fedlib.algorithm.Algorithm`. Called "standalone" in FedSGCNN. Chapter 01.

    Examples
    --------
    With ``loss``, ``model`` and ``data`` as in the example of `fedlib.federation.fit`:

    >>> from fedlib.algorithms import LocalOnly
    >>> result = fit(LocalOnly(loss, predict=model), model.init(0), data, rounds=3, progress=False)
    >>> int(result.history["bytes_up"].sum())
    0
    """

    def init(self, params: Params, data: ClientData, key: Key) -> LocalOnlyState:
        """Start all clients from the same parameters."""
        local = {name: p.clone() for name, p in broadcast(params, len(data)).items()}
        return LocalOnlyState(local, broadcast(params, 1))

    def train(self, state: LocalOnlyState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Continue training each client's own model, which never leaves the client."""
        end = self.local_training(self.client_params(state, clients), data, key)
        return Update(clients, client_state={"local": end.params}, log={"loss": end.loss})

    def aggregate(self, state: LocalOnlyState, update: Update) -> LocalOnlyState:
        """The server has nothing to do."""
        return state

    def client_params(self, state: LocalOnlyState, clients: Tensor) -> Params:
        """Each client holds its own row."""
        return take(state.local, clients)

    def new_clients(self, state: LocalOnlyState, data: ClientData, key: Key, rounds: int) -> LocalOnlyState:
        """A new client starts from the common initialisation and trains alone for `rounds` rounds."""
        start = broadcast(row(state.start, 0), len(data))
        return replace(state, local=self.local_rounds(start, data, key, rounds))
