"""SCAFFOLD: each client corrects its gradients by how they differ from everybody's."""

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
        Stack of one row: the server's model.
    c : Params
        Stack of one row: the server's control variate, the mean of all `c_i`, weighted by examples.
    c_i : Params
        Stack of K rows: each client's control variate, which stays with the client.
    examples : Tensor of shape ()
        N, examples of all clients together.
    """

    models: Params = field(metadata=held("server and clients"))
    c: Params = field(metadata=held("server and clients"))
    c_i: Params = field(metadata=held("client"))
    examples: Tensor


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """FedAvg whose clients take the gradient g(theta) - c_i + c in place of g(theta).

    c_i estimates the client's mean gradient and c that of all examples, so that the correction takes out what pulls the
    client away from the others. Parameters as in `fedlib.algorithm.Algorithm`.

    Raises
    ------
    ValueError
        An optimiser other than plain SGD: c_i is the mean local gradient for plain SGD at a constant rate only.

    Notes
    -----
    The new c_i is option II of the paper, c_i - c + (theta_t - theta_i) / (steps_i lr), with the client's own number of
    steps. With c = c_i, as in round 1, a round is one of FedAvg. The server's step size is 1.

    The paper weighs clients equally: c moves by the cohort's share in all K clients times the mean change in it. Here c
    moves by the sum over the cohort of n_k / N times the change, which is the paper's rule where clients have equal
    sizes. So c is the sum of n_k c_k / N over all K clients at any time, whoever took part, and vanishes where the
    objective, the sum of n_k F_k / N, is lowest. The weights of c decide: with equal ones SCAFFOLD ends at the optimum
    of the plain mean of the F_k, however models are averaged.

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
        """All control variates start at zero."""
        c = {name: torch.zeros_like(p)[None] for name, p in params.items()}
        c_i = {name: p.repeat_interleave(len(data), 0) for name, p in c.items()}
        return ScaffoldState(broadcast(params, 1), c, c_i, data.n.sum())

    def train(self, state: ScaffoldState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Local training with corrected gradients, then the new control variate of each client."""
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
        """The task's loss with the gradient of <c - c_i, theta> added, and nothing added to its value."""
        pull = sum((correction[name] * (p - p.detach())).sum() for name, p in params.items())
        return self.loss(params, batch) + pull

    def aggregate(self, state: ScaffoldState, update: Update) -> ScaffoldState:
        """Theta <- weighted mean; c <- c + (sum over the cohort of n_k times the change of c_k) / N."""
        models = cluster_means(update.summed["models"], previous=state.models)
        change = row(update.summed["change of c_i"], 0)
        c = {name: (c + change[name] / state.examples).to(c.dtype) for name, c in state.c.items()}
        return replace(state, models=models, c=c)

    def client_params(self, state: ScaffoldState, clients: Tensor) -> Params:
        """Everybody holds the server's model."""
        return take(state.models, torch.zeros_like(clients))

    def new_clients(self, state: ScaffoldState, data: ClientData, key: Key, rounds: int) -> ScaffoldState:
        """A new client holds the server's model, and no control variate yet."""
        return replace(state, c_i={n: torch.zeros_like(p).repeat_interleave(len(data), 0) for n, p in state.c.items()})
