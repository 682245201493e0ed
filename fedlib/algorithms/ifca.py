"""The iterative federated clustering algorithm (IFCA): several models, and each client takes the one that fits it."""

import math
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from ..aggregate import cluster_means, cluster_sums
from ..algorithm import Algorithm, Update
from ..costs import TRAINING, current_costs, flops_of, record
from ..data import ClientData
from ..keys import Key
from ..params import Params, broadcast, number_of_rows, put, row, take

__all__ = ["IFCA", "IFCAState"]

_CLUSTERING = "clustering"  # in the ledger
_CHUNK_ENTRIES = 2**24  # feature entries that go through the models at once, each model counted


@dataclass(frozen=True)
class IFCAState:
    """State of IFCA.

    Attributes
    ----------
    models : Params
        Stack of M rows, one for each cluster.
    assignment : Tensor of shape (K,), int64
        The model that each client took last; 0 for a client that has not taken part yet.
    """

    models: Params
    assignment: Tensor


@dataclass(frozen=True)
class IFCA(Algorithm):
    """The server sends M models, each client trains the one with the smallest loss on its examples.

    The server then takes the mean of each model's clients, weighted by examples. No client is asked what it is like:
    clusters come about because a model gets better for the clients that took it.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    clusters : int
        M, the number of models; 1 is FedAvg. More models than clients are allowed.
    spread : float
        How far the other models start from the first one, which starts from the parameters given: 1 draws them anew,
        0.1 changes them a little. Each tensor keeps its mean and its standard deviation; a constant one, such as a bias
        of zeros, stays as it is.
    starts : Params, optional
        Stack of M rows where the models start, in place of such draws.

    Raises
    ------
    ValueError
        A setting out of its range; starts that do not fit the model; starts that are all equal, since then no client
        would ever take another model than the first.

    Notes
    -----
    Algorithm 1 of the paper with model averaging; its clients have equally many examples, so it does not weigh them.
    The paper wants good starts: a model to which all clients run at first leaves the others without any, and there is
    no cure but to start again with another seed. A model that nobody takes in a round stays as it is. Between its
    rounds a client holds the current state of the model that it took last. `choose` lets it choose again, as in
    ``replace(state, assignment=algorithm.choose(state.models, data))`` with clients in ascending order of ids.

    All models cross the wire. In the ledger those that a client does not take, the number of the one that it does, and
    the operations of comparing them have the purpose "clustering". Chapter 04.

    References
    ----------
    Ghosh, Chung, Yin, Ramchandran. An efficient framework for clustered federated learning. NeurIPS 2020.
    """

    clusters: int = 2
    spread: float = 1.0
    starts: Params | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.clusters, Integral) and self.clusters >= 1):
            raise ValueError(f"clusters must be a whole number of at least 1, got {self.clusters!r}; 1 is FedAvg")
        if not 0 < self.spread <= 1:
            raise ValueError(f"spread must be above 0 and at most 1, got {self.spread!r}: equal models never part")

    def init(self, params: Params, data: ClientData, key: Key) -> IFCAState:
        """M different models; everybody holds the first."""
        models = self._drawn(params, key) if self.starts is None else self._given(params)
        if self.clusters > 1 and all((p == p[:1]).all() for p in models.values()):
            raise ValueError("all models start equal, so none could be better for a client; give different starts")
        return IFCAState(models, torch.zeros(len(data), dtype=torch.int64, device=data.n.device))

    def _drawn(self, params: Params, key: Key) -> Params:
        number, keep = torch.arange(self.clusters), math.sqrt(1 - self.spread**2)
        models = {}
        for name, p in params.items():
            drawn = self.spread * key.normal(number[1:], f"start of {name}", *p.shape).to(p) * p.std(correction=0)
            models[name] = torch.cat([p[None], p.mean() + keep * (p - p.mean()) + drawn])
        return models

    def _given(self, params: Params) -> Params:
        found = {name: tuple(p.shape) for name, p in (self.starts or {}).items()}
        needed = {name: (self.clusters, *p.shape) for name, p in params.items()}
        if found != needed:
            raise ValueError(f"starts must be a stack of clusters={self.clusters} rows, {needed}; got {found}")
        return {name: self.starts[name].detach().to(p) for name, p in params.items()}  # type: ignore[index]

    @torch.no_grad()
    def choose(self, models: Params, data: ClientData) -> Tensor:
        """The model with the smallest mean loss on each client's examples; the first of equal ones.

        Parameters
        ----------
        models : Params
            Stack of M rows.
        data : ClientData
            Examples of C clients.

        Returns
        -------
        Tensor of shape (C,), int64
        """
        m, dtype = number_of_rows(models), next(iter(models.values())).dtype
        size = max(1, _CHUNK_ENTRIES // (m * data.index.shape[1] * data.x[0].numel()))
        size = size if self.chunk_size == "auto" else self.chunk_size
        losses = torch.vmap(torch.vmap(self.loss, (None, 0)), (0, None))  # of each model, of each client
        chunks = torch.arange(len(data), device=data.n.device).split(size)
        values = torch.cat([losses(models, data[chunk].all_rows(dtype)) for chunk in chunks], 1)  # (M, C)
        if current_costs() is not None:
            batch = data[:1].batch(data.n[:1, None] * 0, data.n[:1, None] > 0, dtype)
            flops = flops_of(self.loss, row(models, 0), tuple(part[0] for part in batch))
            record(_CLUSTERING, flops=m * int(data.n.sum()) * flops)
        return values.nan_to_num(nan=math.inf).argmin(0)

    def train(self, state: IFCAState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Take the model theta_j with the smallest F_k(theta_j), train it, send it and j."""
        cluster = self.choose(state.models, data)
        end = self.local_training(take(state.models, cluster), data, key)
        sums = cluster_sums(end.params, cluster, data.n, self.clusters)
        rows, purpose = {"cluster": cluster}, {"cluster": _CLUSTERING}
        return Update(clients, summed=sums, per_client=rows, log={"loss": end.loss}, purpose=purpose)

    def aggregate(self, state: IFCAState, update: Update) -> IFCAState:
        """Theta_j <- mean of the clients that took it, weighted by examples."""
        assignment = put(state.assignment, update.clients, update.per_client["cluster"])
        return replace(state, models=cluster_means(update.summed, previous=state.models), assignment=assignment)

    def client_params(self, state: IFCAState, clients: Tensor) -> Params:
        """Each client holds the model that it took last."""
        return take(state.models, state.assignment[clients])

    def download(self, state: IFCAState, clients: Tensor) -> dict[str, Any]:
        """All M models: the one that is trained, and M - 1 to compare it with."""
        others = broadcast({name: p[1:] for name, p in state.models.items()}, len(clients))
        return {TRAINING: self.client_params(state, clients), _CLUSTERING: others}

    def new_clients(self, state: IFCAState, data: ClientData, key: Key, rounds: int) -> IFCAState:
        """A new client takes the model with the smallest loss on its examples."""
        return replace(state, assignment=self.choose(state.models, data))
