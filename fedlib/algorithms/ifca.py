"""The iterative federated clustering algorithm (IFCA), in which each client takes the model that fits it best."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..algorithm import Update, held
from ..checks import whole
from ..costs import TRAINING, flops_of, record
from ..data import ClientData
from ..keys import Key
from ..local import clients_at_once
from ..params import Params, broadcast, put, row
from ..server.clusters import different_starts
from ..stacked import vmap
from .clustered import Clustered, ClusteredState

__all__ = ["IFCA", "IFCAState"]


@dataclass(frozen=True)
class IFCAState(ClusteredState):
    """State of IFCA.

    Attributes
    ----------
    models : Params
        Stack of M rows, one for each cluster, all sent to every client of the cohort.
    assignment : Tensor of shape (K,), int64
        The model that each client took last, or 0 if it has not taken part yet.
    """

    models: Params = field(metadata=held("server and clients"))


@dataclass(frozen=True)
class IFCA(Clustered):
    """The server sends M models, and each client trains the model with the smallest loss on its examples.

    The server then takes the mean of each model's clients, weighted by examples. It is not told which clients are
    alike; clusters form because a model improves for the clients that took it.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    clusters : int
        M, the number of models; 1 is FedAvg. More models than clients are allowed.

    Raises
    ------
    ValueError
        A setting out of its range; parameters that are all constant, since then the models would start equal and every
        client would always take the first.

    Notes
    -----
    Algorithm 1 of the paper with model averaging. The paper's clients have equally many examples, so it does not weigh
    them. The first model starts from the given parameters, the others from draws in which each tensor keeps its mean
    and standard deviation. The paper requires good initialisations, because a model that all clients take at first
    leaves the others without any; the only remedy is another seed. A model that no client takes in a round does not
    change. Between its rounds a client holds the current state of the model that it took last.

    All models are sent to the clients. In the costs, the purpose "clustering" has the models that a client does not
    take, the number of the one that it takes, and the operations of comparing them. Chapter 07.

    References
    ----------
    Ghosh, Chung, Yin, Ramchandran. An efficient framework for clustered federated learning. NeurIPS 2020.
    """

    clusters: int = whole(2)

    def init(self, params: Params, data: ClientData, key: Key) -> IFCAState:
        """M different models, of which all clients hold the first."""
        return IFCAState(different_starts(params, self.clusters, key), torch.zeros_like(data.n))

    def choose(self, models: Params, data: ClientData) -> Tensor:
        """The model with the smallest mean loss on each client's examples, argmin_j F_k(theta_j).

        Parameters
        ----------
        models : Params
            Stack of M rows.
        data : ClientData
            Examples of C clients.

        Returns
        -------
        Tensor of shape (C,), int64
            The first of equally good models.
        """
        dtype, size = next(iter(models.values())).dtype, clients_at_once(models, data, None) // self.clusters
        loss = vmap(self.loss, (None, 0))  # of one model, for each client
        chunks = torch.arange(len(data), device=data.n.device).split(max(1, size))
        batches = [data[chunk].all_rows(dtype) for chunk in chunks]
        each = [torch.cat([loss(row(models, m), batch) for batch in batches]) for m in range(self.clusters)]
        values = torch.stack(each)  # (M, C)
        example = tuple(part[0, :1] for part in data[:1].all_rows(dtype))
        record("clustering", flops=self.clusters * int(data.n.sum()) * flops_of(self.loss, row(models, 0), example))
        return values.nan_to_num(nan=torch.inf).argmin(0)

    def train(self, state: IFCAState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Take the model theta_j with the smallest F_k(theta_j), train it, and send it with j."""
        cluster = self.choose(state.models, data)
        chosen = replace(state, assignment=put(state.assignment, clients, cluster))
        update = super().train(chosen, data, clients, key)
        return replace(update, per_client={"cluster": cluster}, purpose={"cluster": "clustering"})

    def aggregate(self, state: IFCAState, update: Update) -> IFCAState:
        """Theta_j <- mean of the clients that took it, weighted by examples."""
        assignment = put(state.assignment, update.clients, update.per_client["cluster"])
        return replace(super().aggregate(state, update), assignment=assignment)

    def download(self, state: IFCAState, clients: Tensor) -> dict[str, Any]:
        """All M models, which are the one that is trained and M - 1 to compare it with."""
        others = broadcast({name: p[1:] for name, p in state.models.items()}, len(clients))
        return {TRAINING: self.client_params(state, clients), "clustering": others}

    def new_clients(self, state: IFCAState, data: ClientData, key: Key, rounds: int) -> IFCAState:
        """A new client takes the model with the smallest loss on its examples."""
        return replace(state, assignment=self.choose(state.models, data))
