"""SCAFFOLD, in which clients correct their gradients by how they differ from those of all clients."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..aggregate import cluster_means, cluster_sums
from ..algorithm import Algorithm, Update, held
from ..data import Batch, ClientData
from ..keys import Key
from ..params import Params, broadcast, mix, per_row, row, take

__all__ = ["Scaffold", "ScaffoldState"]


@dataclass(frozen=True)
class ScaffoldState:
    """State of SCAFFOLD.

    Attributes
    ----------
    models : Params
        Stack of one row, the server's model.
    c : Params
        Stack of one row with the server's control variate, the mean of all `c_i` weighted by examples.
    c_i : Params
        Stack of K rows with the clients' control variates, which stay with the clients.
    examples : Tensor of shape ()
        N, the number of examples of all clients together.
    """

    models: Params = field(metadata=held("server and clients"))
    c: Params = field(metadata=held("server and clients"))
    c_i: Params = field(metadata=held("client"))
    examples: Tensor


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """FedAvg whose clients use g(theta) - c_i + c instead of the gradient g(theta).

    c_i estimates the client's mean gradient and c that of all examples, so the correction removes what pulls the client
    away from the others. Parameters as in `fedlib.algorithm.Algorithm`.

    Raises
    ------
    ValueError
        An optimiser other than plain SGD, because c_i is the mean local gradient only for plain SGD at a constant rate.

    Notes
    -----
    The new c_i follows option II of the paper, c_i - c + (theta_t - theta_i) / (steps_i lr), where steps_i is the
    client's own number of steps. If c = c_i, as in round 1, the round is one of FedAvg. The server's step size is 1.

    The paper weights clients equally, so c moves by the cohort's share of the K clients times the mean change within
    the cohort. Here c moves by the sum over the cohort of n_k / N times the change, which is the paper's rule if all
    clients have equal sizes. As a result c is always the sum of n_k c_k / N over all K clients, whichever of them took
    part, and vanishes where the objective, the sum of n_k F_k / N, is lowest. The weights of c matter. With equal
    weights SCAFFOLD converges to the optimum of the plain mean of the F_k, however models are averaged.

    References
    ----------
    Karimireddy, Kale, Mohri, Reddi, Stich, Suresh. SCAFFOLD: stochastic controlled averaging for federated learning.
    ICML 2020, Algorithm 1.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer is not torch.optim.SGD:
            raise ValueError(f"SCAFFOLD needs plain SGD, optimizer=torch.optim.SGD; got {self.optimizer!r}")

    def init(self, params: Params, data: ClientData, key: Key) -> ScaffoldState:
        """Start with all control variates at zero."""
        c = {name: torch.zeros_like(p)[None] for name, p in params.items()}
        c_i = {name: p.repeat_interleave(len(data), 0) for name, p in c.items()}
        return ScaffoldState(broadcast(params, 1), c, c_i, data.n.sum())

    def train(self, state: ScaffoldState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Train locally with corrected gradients, then compute each client's new control variate."""
        start, old = self.client_params(state, clients), take(state.c_i, clients)
        correction = {name: c - old[name] for name, c in state.c.items()}
        end = self.local_training(start, data, key, extras=(correction,), loss=self._corrected_loss)
        steps = end.steps.to(data.n.device)
        gradient = {name: (start[name] - p) / (per_row(steps, p) * self.lr) for name, p in end.params.items()}
        change = {name: g - state.c[name] for name, g in gradient.items()}  # c_i+ - c_i, option II
        sums = cluster_sums(end.params, torch.zeros_like(clients), data.n, models=1)
        c_i = {name: old[name] + delta for name, delta in change.items()}
        return Update(
            clients,
            summed={"models": sums, "change of c_i": mix(data.n[None], change)},
            client_state={"c_i": c_i},
            log={"loss": end.loss},
        )

    def _corrected_loss(self, params: Params, batch: Batch, correction: Params) -> Tensor:
        """The task's loss with the gradient of <c - c_i, theta> added, but with its value unchanged."""
        pull = sum((correction[name] * (p - p.detach())).sum() for name, p in params.items())
        return self.loss(params, batch) + pull

    def aggregate(self, state: ScaffoldState, update: Update) -> ScaffoldState:
        """Theta <- weighted mean; c <- c + (sum over the cohort of n_k times the change of c_k) / N."""
        models = cluster_means(update.summed["models"], previous=state.models)
        change = row(update.summed["change of c_i"], 0)
        c = {name: (c + change[name] / state.examples).to(c.dtype) for name, c in state.c.items()}
        return replace(state, models=models, c=c)

    def client_params(self, state: ScaffoldState, clients: Tensor) -> Params:
        """All clients hold the server's model."""
        return take(state.models, torch.zeros_like(clients))

    def new_clients(self, state: ScaffoldState, data: ClientData, key: Key, rounds: int) -> ScaffoldState:
        """Give new clients the server's model and a control variate of zero."""
        return replace(state, c_i={n: torch.zeros_like(p).repeat_interleave(len(data), 0) for n, p in state.c.items()})
