"""FedEM models each client's data as a mixture of a few distributions that all clients share, with a model for each."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..aggregate import cluster_means, cluster_sums
from ..algorithm import Algorithm, Update, held
from ..checks import whole
from ..costs import flops_of, record
from ..data import Batch, ClientData, one_class
from ..keys import Key
from ..local import clients_at_once
from ..models import Model
from ..params import Params, row, take
from ..server.clusters import different_starts
from ..stacked import vmap
from ..trial import check_weighted_mean

__all__ = ["FedEM", "FedEMState", "Mixture"]

_Q = "FedEM's q"  # a column, under a name that users do not give
_FLOOR = 1e-30  # of a responsibility, because a batch in which all are 0 would have no mean


@dataclass(frozen=True)
class Mixture:
    """A network for each component, with the mean of their probabilities, sum_m pi_m h_m(x), as a client's prediction.

    Parameters
    ----------
    net : callable
        ``net(params, x) -> logits (B, classes)`` of one model, such as a `fedlib.models.MLP`.

    Notes
    -----
    Use it in the loss as ``cross_entropy(mixture(params, x), y, w)``, which is the loss of one model in training and
    that of a client's mixture in evaluation. For a client with a single model, it is `net`.
    """

    net: Callable[[Params, Tensor], Tensor]

    def __call__(self, params: Params, x: Tensor) -> Tensor:
        """Logits (B, classes); for a client of FedEM, which has ``pi`` (M,), the logarithms of its probabilities."""
        if "pi" not in params:
            return self.net(params, x)
        models = {name: p for name, p in params.items() if name != "pi"}
        logits = torch.stack([self.net(row(models, m), x) for m in range(len(params["pi"]))])  # (M, B, classes)
        return (logits.log_softmax(-1) + params["pi"].log()[:, None, None]).logsumexp(0)


@dataclass(frozen=True)
class FedEMState:
    """State of FedEM.

    Attributes
    ----------
    models : Params
        Stack of one row, followed by an axis of M, with the models theta_m of all components.
    pi : Tensor of shape (K, M)
        Weights of the components at each client; the rows sum to 1.
    """

    models: Params = field(metadata=held("server and clients"))
    pi: Tensor = field(metadata=held("client"))


@dataclass(frozen=True)
class FedEM(Algorithm):
    """A soft version of IFCA, in which each example belongs partly to each of M models, and all models learn from it.

    In a round, the server sends all models. From their losses and its own weights pi of the models, a client computes
    how responsible each model is for each of its examples (E-step). The means of these responsibilities are its new pi,
    and each model trains on all examples, weighted by its responsibility for them (M-step). The server takes the mean
    of each model, weighted by examples. A client predicts with the mean of all models' probabilities, weighted by pi,
    which never leaves the client.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    loss : callable
        The negative logarithm of a likelihood, as a mean over rows weighted by w (`fedlib.losses.weighted_mean`). For
        classes, take `fedlib.losses.cross_entropy`. For real targets of variance s^2, it is (y - f(x))^2 / (2 s^2), so
        the unit of the targets matters; `fedlib.losses.mse` alone means s^2 = 1/2.
    predict : callable, optional
        A `Mixture`, which the loss should also use, or another function that can predict with M models and ``pi``. For
        real targets that is sum_m pi_m f_m(x).
    components : int
        M, the number of models; the paper has 3. With 1, it is FedAvg, to the last bit.

    Raises
    ------
    ValueError
        A setting is out of its range, all parameters are constant, so that the models would start equal, or the loss
        is not the mean of the rows' losses weighted by w.
    TypeError
        `predict` is the network of one model.

    Notes
    -----
    Algorithm 1, where l_im is the loss of model m for example i of a client, and n_k the client's number of examples:

    - In the E-step, q_im ~ pi_m exp(-l_im) with the models as received, where sum_m q_im = 1.
    - In the M-step, pi_m = (1/n_k) sum_i q_im, and theta_m is trained locally with the loss (1/B) sum_i q_im l_im of a
      batch. This is not a weighted mean, so a model that is responsible for little also learns little. q is fixed until
      the next round.
    - The server computes theta_m <- sum_k n_k theta_km / sum_k n_k, whatever q is.

    pi starts at 1/M. The first model starts from the given parameters. The others start from draws in which each tensor
    keeps its mean and its standard deviation, because models that start equal stay equal. All models of a client see
    the same batches. The pi of clients outside the cohort do not change. A q below 1e-30 counts as 1e-30. For clients
    never seen in training, the models are fixed and pi is fitted, ``rounds`` times. The paper's text was not available,
    so this file was written from memory and the authors' program (omarfoq/FedEM on GitHub); the atlas lists the
    differences from that program.

    In the costs, the operations of the E-step have the purpose "mixture". M models cross the network both ways, and an
    example counts M times. The training loss in the history is the sum of the weighted losses of a client's models.
    Chapter 07.

    References
    ----------
    Marfoq, Neglia, Bellet, Kameni, Vidal. Federated multi-task learning under a mixture of distributions. NeurIPS 2021.
    """

    components: int = whole(3)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.predict, Model):
            raise TypeError("predict must handle M models: net = Mixture(model), predict=net, and net in the loss too")

    def init(self, params: Params, data: ClientData, key: Key) -> FedEMState:
        """M different models, the same for all clients, each of which weights them equally."""
        models = {name: p[None] for name, p in different_starts(params, self.components, key).items()}
        return FedEMState(models, self._equal_weights(models, data))

    def _equal_weights(self, models: Params, data: ClientData) -> Tensor:
        return next(iter(models.values())).new_full((len(data), self.components), 1 / self.components)

    # ---- clients, where each pair of a client and a model is treated as a client ----

    def _pairs(self, models: Params, data: ClientData) -> tuple[Params, ClientData]:
        """C M rows of parameters and of data, ordered by client and then model; `models` is a stack of one row."""
        c, m = (torch.arange(size, device=data.n.device) for size in (len(data), self.components))
        return take(row(models, 0), m.repeat(len(c))), data[c.repeat_interleave(len(m))]

    def losses(self, models: Params, data: ClientData) -> Tensor:
        """l_im (C, N, M), the loss of each model for each example of each client; `models` is a stack of one row.

        A loss is a mean over rows, L = sum w l / sum w. If all w are 1, its derivative in w_i is (l_i - L) / N, which
        gives l_i.
        """
        if isinstance(self.predict, Mixture) or data.y.ndim > 2:
            one_class(data.y, "FedEM with a Mixture", 2)
        values, dtype = [], next(iter(models.values())).dtype
        size = max(1, clients_at_once(models, data, None) // self.components)
        for chunk in torch.arange(len(data), device=data.n.device).split(size):
            params, pairs = self._pairs(models, data[chunk])
            x, y, w, *columns = pairs.all_rows(dtype)
            w = torch.ones_like(w).requires_grad_()
            mean = vmap(self.loss)(params, (x, y, w, *columns))
            (slope,) = torch.autograd.grad(mean.sum(), w)
            values.append(mean.detach()[:, None] + w.shape[1] * slope)
        example = tuple(part[0, :1] for part in data[:1].all_rows(dtype))
        forward = flops_of(self.loss, row(row(models, 0), 0), example)
        record("mixture", flops=self.components * int(data.n.sum()) * forward)
        return torch.cat(values).unflatten(0, (len(data), self.components)).mT

    def e_step(self, losses: Tensor, pi: Tensor, data: ClientData) -> tuple[Tensor, Tensor]:
        """Responsibilities q (C, N, M), 0 for padding, and their mean over a client's examples, the new pi (C, M)."""
        q = responsibilities(-losses, pi, data.real)[0]
        return q, (q.sum(1) / data.n[:, None]).to(pi)

    def train(self, state: FedEMState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Run the E-step and the M-step."""
        if key.round == 1:
            check_weighted_mean(self.loss, row(row(state.models, 0), 0), data)
        q, pi = self.e_step(self.losses(state.models, data), state.pi[clients], data)
        start, each = self._pairs(state.models, data)
        each = replace(each, columns=each.columns | {_Q: q.mT.flatten(0, 1)})
        end = self.local_training(start, each, key, loss=self.weighted_loss)
        models = {name: p.unflatten(0, (len(data), -1)) for name, p in end.params.items()}
        sums = cluster_sums(models, torch.zeros_like(clients), data.n, models=1)
        return Update(clients, sums, client_state={"pi": pi}, log={"loss": end.loss.view(len(data), -1).sum(1)})

    def weighted_loss(self, params: Params, batch: Batch) -> Tensor:
        """(1/B) sum_i q_i l_i, computed as the mean weighted by q, times the mean of q."""
        x, y, w, *columns, q = batch
        wq = w * q.clamp(min=_FLOOR)
        return self.loss(params, (x, y, wq, *columns)) * (wq.sum() / w.sum())

    def aggregate(self, state: FedEMState, update: Update) -> FedEMState:
        """theta_m <- sum of n_k theta_km / sum of n_k, for all m at once."""
        return replace(state, models=cluster_means(update.summed, previous=state.models))

    # ---- who holds what ----

    def client_params(self, state: FedEMState, clients: Tensor) -> Params:
        """All models (C, M, ...) and the client's weights ``pi`` (C, M), from which a `Mixture` predicts."""
        return take(state.models, torch.zeros_like(clients)) | {"pi": state.pi[clients]}

    def new_clients(self, state: FedEMState, data: ClientData, key: Key, rounds: int) -> FedEMState:
        """A new client keeps the models fixed and learns only its pi, by `rounds` E-steps and M-steps."""
        losses, pi = self.losses(state.models, data), self._equal_weights(state.models, data)
        for _ in range(rounds):
            pi = self.e_step(losses, pi, data)[1]
        return replace(state, pi=pi)


def responsibilities(tempered: Tensor, pi: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """R (K, N, D) from log densities divided by T, and each client's sum of the logarithms of the mixture (K,)."""
    joint = tempered + pi.log()[:, None]
    evidence = joint.logsumexp(-1)
    return (joint - evidence[..., None]).exp() * real[..., None], (evidence * real).sum(1)
