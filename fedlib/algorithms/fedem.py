"""FedEM: each client's data are a mixture of a few distributions that all share, each with a model of its own."""

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

__all__ = ["FedEM", "FedEMState", "Mixture"]

_FLOOR = 1e-30  # of a responsibility: a batch in which all are 0 would have no mean


@dataclass(frozen=True)
class Mixture:
    """A network for each component, and a client's answer: sum_m pi_m h_m(x), a mean of probabilities.

    Parameters
    ----------
    net : callable
        ``net(params, x) -> logits (B, classes)`` of one model, such as a `fedlib.models.MLP`.

    Notes
    -----
    Write the loss with it, ``cross_entropy(mixture(params, x), y, w)``: in training that is the loss of one model, and
    in an evaluation that of a client's mixture. Wherever a client has one model, it is `net`.
    """

    net: Callable[[Params, Tensor], Tensor]

    def __call__(self, params: Params, x: Tensor) -> Tensor:
        """Logits (B, classes); of a client of FedEM, which has ``pi`` (M,), the logarithms of its probabilities."""
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
        Stack of one row, with an axis of M behind it: the models theta_m of all components.
    pi : Tensor of shape (K, M)
        Weights of the components at each client; the rows sum to 1.
    """

    models: Params = field(metadata=held("server and clients"))
    pi: Tensor = field(metadata=held("client"))


@dataclass(frozen=True)
class FedEM(Algorithm):
    """IFCA made soft: each example of a client belongs to each of M models in part, and all models learn from it.

    A round: the server sends all models. A client computes how much each of them is responsible for each of its
    examples, from their losses and from its weights pi of the models (E-step). Its new pi are the means of that, and
    each model trains on all examples, weighted by its responsibility for them (M-step). The server takes the mean of
    each model, weighted by examples. A client predicts with the mean of all models' probabilities, weighted by pi,
    which never leaves it.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    loss : callable
        The negative logarithm of a likelihood, as a mean over rows weighted by w (`fedlib.losses.weighted_mean`): with
        classes `fedlib.losses.cross_entropy`. For real targets of variance s^2 it is (y - f(x))^2 / (2 s^2), so that
        their unit counts: `fedlib.losses.mse` alone means s^2 = 1/2.
    predict : callable, optional
        A `Mixture`, through which the loss should go too, or another function that knows what to do with M models and
        ``pi``. For real targets that is sum_m pi_m f_m(x).
    components : int
        M, the number of models; the paper has 3. 1 is FedAvg, to the last bit.

    Raises
    ------
    ValueError
        A setting out of its range; parameters that are all constant, so that the models would start equal.
    TypeError
        `predict` is the network of one model.

    Notes
    -----
    Algorithm 1, with l_im the loss of model m for example i of a client, and n_k its number of examples:

    - E-step, with the models as they come: q_im ~ pi_m exp(-l_im), where sum_m q_im = 1;
    - M-step: pi_m = (1/n_k) sum_i q_im; and local training of theta_m with the loss (1/B) sum_i q_im l_im of a batch.
      This is no weighted mean: a model that is responsible for little also learns little. q stays as it is until the
      next round;
    - server: theta_m <- sum_k n_k theta_km / sum_k n_k, whatever q says.

    pi starts at 1/M. The first model starts from the parameters given, the others from draws in which each tensor keeps
    its mean and its standard deviation: models that start equal stay equal. All models of a client see the same
    batches. The pi of clients that are not in the cohort stay. A q below 1e-30 counts as that. For clients never seen
    the models stay and pi is fitted, ``rounds`` times. The paper's text was not at hand; from memory and the authors'
    program (omarfoq/FedEM on GitHub), from which the atlas says what differs.

    In the costs the operations of the E-step have the purpose "mixture". M models cross the network both ways, and an
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
            raise TypeError("predict must know M models: net = Mixture(model), predict=net, and net in the loss too")

    def init(self, params: Params, data: ClientData, key: Key) -> FedEMState:
        """M different models for all; everybody weighs them equally."""
        models = {name: p[None] for name, p in different_starts(params, self.components, key).items()}
        return FedEMState(models, self._equal_weights(models, data))

    def _equal_weights(self, models: Params, data: ClientData) -> Tensor:
        return next(iter(models.values())).new_full((len(data), self.components), 1 / self.components)

    # ---- clients, each model of each as a client of its own ----

    def _pairs(self, models: Params, data: ClientData) -> tuple[Params, ClientData]:
        """C M rows of parameters and of data, client by client and model by model; `models` is a stack of one row."""
        c, m = (torch.arange(size, device=data.n.device) for size in (len(data), self.components))
        return take(row(models, 0), m.repeat(len(c))), data[c.repeat_interleave(len(m))]

    def losses(self, models: Params, data: ClientData) -> Tensor:
        """l_im (C, N, M), the loss of each model for each example of each client; `models` is a stack of one row.

        A loss is a mean over rows, L = sum w l / sum w. Where all w are 1, its slope in w_i is (l_i - L) / N.
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
        """Responsibilities q (C, N, M), 0 for padding, and the new pi (C, M): their mean over a client's examples."""
        q = responsibilities(-losses, pi, data.real)[0]
        return q, q.sum(1) / data.n[:, None]

    def train(self, state: FedEMState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """E-step and M-step."""
        q, pi = self.e_step(self.losses(state.models, data), state.pi[clients], data)
        start, each = self._pairs(state.models, data)
        end = self.local_training(
            start, replace(each, columns=each.columns | {"q": q.mT.flatten(0, 1)}), key, loss=self.weighted_loss
        )
        models = {name: p.unflatten(0, (len(data), -1)) for name, p in end.params.items()}
        sums = cluster_sums(models, torch.zeros_like(clients), data.n, models=1)
        return Update(clients, sums, client_state={"pi": pi}, log={"loss": end.loss.view(len(data), -1).sum(1)})

    def weighted_loss(self, params: Params, batch: Batch) -> Tensor:
        """(1/B) sum_i q_i l_i: the mean weighted by q, times the mean of q."""
        x, y, w, *columns, q = batch
        wq = w * q.clamp(min=_FLOOR)
        return self.loss(params, (x, y, wq, *columns)) * (wq.sum() / w.sum())

    def aggregate(self, state: FedEMState, update: Update) -> FedEMState:
        """theta_m <- sum of n_k theta_km / sum of n_k, for all m at once."""
        return replace(state, models=cluster_means(update.summed, previous=state.models))

    # ---- who holds what ----

    def client_params(self, state: FedEMState, clients: Tensor) -> Params:
        """All models (C, M, ...), and the client's weights ``pi`` (C, M): what a `Mixture` predicts with."""
        return take(state.models, torch.zeros_like(clients)) | {"pi": state.pi[clients]}

    def new_clients(self, state: FedEMState, data: ClientData, key: Key, rounds: int) -> FedEMState:
        """A new client takes the models as they are and learns its pi alone: E-step and M-step, `rounds` times."""
        losses, pi = self.losses(state.models, data), self._equal_weights(state.models, data)
        for _ in range(rounds):
            pi = self.e_step(losses, pi, data)[1]
        return replace(state, pi=pi)


def responsibilities(tempered: Tensor, pi: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """R (K, N, D) from log densities divided by T, and each client's sum of the logarithms of the mixture (K,)."""
    joint = tempered + pi.log()[:, None]
    evidence = joint.logsumexp(-1)
    return (joint - evidence[..., None]).exp() * real[..., None], (evidence * real).sum(1)
