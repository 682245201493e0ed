"""FedProx, which penalises clients for moving away from the server's model."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..aggregate import cluster_sums
from ..algorithm import Update
from ..checks import number
from ..data import Batch, ClientData
from ..keys import Key
from ..params import Params
from .fedavg import FedAvg, FedAvgState

__all__ = ["FedProx"]


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose clients add mu/2 ||theta - theta_t||^2 to their loss, where theta_t is the model sent to them.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    mu : float
        Strength of the pull back to the server's model; 0 is FedAvg.

    Raises
    ------
    ValueError
        A negative `mu`.

    Notes
    -----
    The training loss in the history includes this term.

    References
    ----------
    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. Federated optimization in heterogeneous networks. MLSys 2020, Eq. 2.

    Examples
    --------
    With ``loss``, ``model`` and ``data`` as in the example of `fedlib.federation.fit`:

    >>> from fedlib.algorithms import FedProx
    >>> result = fit(FedProx(loss, mu=0.1, predict=model), model.init(0), data, rounds=3, progress=False)
    >>> len(result.history)
    3
    """

    mu: float = number(0.01)

    def train(self, state: FedAvgState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Train as in FedAvg, with the proximal term in the loss."""
        start = self.client_params(state, clients)
        end = self.local_training(start, data, key, extras=(start,), loss=self._proximal_loss)
        sums = cluster_sums(end.params, torch.zeros_like(clients), data.n, models=1)
        return Update(clients, summed=sums, log={"loss": end.loss})

    def _proximal_loss(self, params: Params, batch: Batch, start: Params) -> Tensor:
        distance = sum((p - start[name]).square().sum() for name, p in params.items())
        return self.loss(params, batch) + self.mu / 2 * distance
