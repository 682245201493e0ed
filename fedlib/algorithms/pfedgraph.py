"""pFedGraph mixes a model for each client from all models, with weights that the server infers in each round."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ..algorithm import Algorithm, Update, held
from ..checks import number
from ..costs import server_time
from ..data import Batch, ClientData
from ..keys import Key
from ..params import Params, broadcast, mix, per_row, put, row, sub, take, to_matrix

__all__ = ["PFedGraph", "PFedGraphState", "project_to_simplex"]


def project_to_simplex(rows: Tensor) -> Tensor:
    """The nearest point of the probability simplex to each row, by sorting.

    Parameters
    ----------
    rows : Tensor of shape (N, C)
        Floating point.

    Returns
    -------
    Tensor of shape (N, C)
        max(v - tau, 0) for each row v, with the unique tau for which it sums to 1.

    Notes
    -----
    Exact up to rounding. The algorithm of Held, Wolfe and Crowder (1974).
    """
    rows = rows - rows.amax(-1, keepdim=True)  # changes no projection, and keeps small differences of large numbers
    descending = rows.sort(-1, descending=True).values
    excess = descending.cumsum(-1) - 1
    place = torch.arange(1, rows.shape[-1] + 1, device=rows.device)
    support = (descending * place > excess).sum(-1, keepdim=True)
    return (rows - excess.gather(-1, support - 1) / support).clamp(min=0)


@dataclass(frozen=True)
class PFedGraphState:
    """State of pFedGraph.

    Attributes
    ----------
    models : Params
        Stack of K rows, one model per client, which is the mixture of its last round or the common initialisation.
    assignment : Tensor of shape (K,), int64
        The row of `models` that belongs to each client, which is the client's position.
    graph : Tensor of shape (K, K), float64
        The collaboration graph. Row i holds the weights w_ij of the clients j in the model of client i from its last
        round. It sums to 1, or is 0 for a client that has not taken part yet. The matrix is not symmetric. After
        `new_clients` it has a row for each new client with its weights of the K old ones; 1 minus their sum is its
        weight of itself.
    start : Params
        Stack of one row, the common initialisation.
    examples : Tensor of shape (K,), int64
        n_k.
    """

    models: Params = field(metadata=held("server and its cluster"))
    assignment: Tensor
    graph: Tensor
    start: Params
    examples: Tensor


@dataclass(frozen=True)
class PFedGraph(Algorithm):
    """Each client's model is a weighted mean of the cohort's models, with separate weights for each client.

    The weights w_i of client i solve a quadratic programme on the probability simplex,

        min over w of  alpha sum_j (w_j - p_j)^2  -  sum_j w_j cos(theta_i - theta^0, theta_j - theta^0),

    where p_j is the share of client j in the examples of the cohort, theta_j its trained model, and theta^0 the common
    initialisation before round 1. So a client collaborates with clients whose models have moved in the same direction
    as its own, and otherwise with clients that hold much data. The solution is the projection of
    p_j + cos(...) / (2 alpha) onto the simplex. The client then holds the sum of w_ij theta_j, and trains it with the
    loss F_i(theta) - lam cos(theta, sum of w_ij theta_j).

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    alpha : float
        Penalty on deviations from the weights p_j, above 0. A huge value gives w = p, which is FedAvg if all clients
        take part in each round. A value of at most (1 - cos) / (2 (1 - p_i + p_j)) for all j gives client i the weight
        1 of itself; if this is so for all clients and ``lam=0``, the algorithm is LocalOnly.
    lam : float
        Strength of the pull towards the direction of the mixture; 0 turns it off.

    Raises
    ------
    ValueError
        A setting out of its range.

    Notes
    -----
    In round 1 there is no mixture yet and hence no pull. A client outside the cohort keeps its model and its row of the
    graph. The server sees each client's model and solves C programmes with C^2 P products. K models are in memory. The
    training loss in the history includes the pull. A new client trains the mean of the clients' models, weighted by
    examples, for `rounds` rounds without a pull. It then solves its own programme with the models of the known clients,
    except those that never took part. The paper's text was not available, so the code was checked against the authors'
    program (MediaBrain-SJTU/pFedGraph on GitHub, "pfedgraph_approx"); the atlas lists the differences.

    References
    ----------
    Ye, Ni, Wu, Chen, Wang. Personalized federated learning with inferred collaboration graphs. ICML 2023.
    """

    alpha: float = number(0.8, above=True)
    lam: float = number(0.01)

    def init(self, params: Params, data: ClientData, key: Key) -> PFedGraphState:
        """All clients start from the same parameters, and no client has a neighbour."""
        k, own = len(data), torch.arange(len(data), device=data.n.device)
        graph = torch.zeros(k, k, dtype=torch.float64, device=data.n.device)
        return PFedGraphState(broadcast(params, k), own, graph, broadcast(params, 1), data.n)

    def train(self, state: PFedGraphState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Continue training from the mixture with a pull towards it, and send the model."""
        start = self.client_params(state, clients)
        pull: dict[str, Any] = {"extras": (start,), "loss": self._pulled_loss} if self.lam and key.round > 1 else {}
        end = self.local_training(start, data, key, **pull)
        return Update(clients, per_client={"model": end.params}, log={"loss": end.loss})

    def _pulled_loss(self, params: Params, batch: Batch, mixture: Params) -> Tensor:
        """F_i(theta) - lam cos(theta, mixture)."""
        pairs = (params, mixture), (params, params), (mixture, mixture)
        inner, one, other = (torch.stack([(a[n] * b[n]).sum() for n in params]).sum() for a, b in pairs)
        return self.loss(params, batch) - self.lam * inner / (one * other).clamp(min=1e-30).sqrt()

    def aggregate(self, state: PFedGraphState, update: Update) -> PFedGraphState:
        """Compute new rows of the graph for the cohort, and its mixtures."""
        trained, cohort = update.per_client["model"], update.clients
        with server_time("graph"):
            moved = sub(trained, state.start)
            weight = self.weights(_cosines(moved, moved), state.examples[cohort])
            rows = state.graph.new_zeros(len(cohort), len(state.graph)).index_copy(1, cohort, weight)
        mixture = {name: p.to(trained[name].dtype) for name, p in mix(weight, trained).items()}
        return replace(state, models=put(state.models, cohort, mixture), graph=put(state.graph, cohort, rows))

    def weights(self, cosines: Tensor, examples: Tensor) -> Tensor:
        """The programme's solutions (N, C) for cosines of shape (N, C) and numbers of examples (C,) or (N, C)."""
        p = examples.to(cosines) / examples.sum(-1, keepdim=True)
        return project_to_simplex(p + cosines / (2 * self.alpha))

    def client_params(self, state: PFedGraphState, clients: Tensor) -> Params:
        """Each client holds its mixture."""
        return take(state.models, state.assignment[clients])

    def new_clients(self, state: PFedGraphState, data: ClientData, key: Key, rounds: int) -> PFedGraphState:
        """Train the mean model for `rounds` rounds, then mix each result with the known clients' models."""
        active, c = state.graph.sum(1) > 0, len(data)
        known = (active | ~active.any()).nonzero()[:, 0]  # all, if no client took part
        models, n = take(state.models, known), state.examples[known].double()
        mean = row(mix((n / n.sum())[None], models), 0)
        start = broadcast({name: p.to(models[name].dtype) for name, p in mean.items()}, c)
        own = self.local_rounds(start, data, key, rounds)
        cosines = _cosines(sub(own, state.start), sub(models, state.start))
        examples = torch.cat([n.expand(c, -1), data.n[:, None]], 1)
        weight = self.weights(torch.cat([cosines, torch.ones_like(cosines[:, :1])], 1), examples)
        others, itself = mix(weight[:, :-1], models), weight[:, -1]
        mixture = {name: (others[name] + per_row(itself, p) * p).to(p.dtype) for name, p in own.items()}
        graph = state.graph.new_zeros(c, len(state.graph)).index_copy(1, known, weight[:, :-1])
        return PFedGraphState(mixture, torch.arange(c, device=known.device), graph, state.start, data.n)


def _cosines(a: Params, b: Params) -> Tensor:
    """Cosines (N, C), float64, of the rows of two stacks; 0 if a row is zero."""
    rows = [to_matrix(stack) for stack in (a, b)]
    left, right = (normalize(r.to(torch.promote_types(r.dtype, torch.float32)), eps=1e-30) for r in rows)
    return (left @ right.T).double()
