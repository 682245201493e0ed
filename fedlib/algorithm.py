"""What an algorithm is: four functions to write, and the settings of local training that all share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from .aggregate import Sums
from .checks import check_settings, number, whole
from .costs import TRAINING, current_costs, flops_of, record
from .data import Batches, ClientData, local_batches
from .keys import Key
from .local import Loss, Trained, local_update
from .params import Params, row
from .trial import check_optimizer

__all__ = ["Algorithm", "Update", "held"]

Predict = Callable[[Params, Tensor], Tensor]
_PROBE = 32  # examples on which operations are counted, at most
_BUSY = 1.5e9  # operations of a client's step, from which clients train one after another on a CPU


def held(by: Literal["server and clients", "server and its cluster", "client"]) -> dict[str, str]:
    """Metadata of a field of a state: who holds it beside the server; without it, the server alone.

    "server and clients": all clients of a cohort are sent the whole of it. "server and its cluster": a stack of M rows
    of which a client is sent the row of its ``assignment``. "client": a stack of K rows, each held by its client, and
    by nobody else. Write ``models: Params = field(metadata=held("server and clients"))``. `fedlib.engines.flower` sends
    what stands there (chapter 16).
    """
    return {"held": by}


def held_fields(state: Any, by: str) -> dict[str, Any]:
    """The fields of a state that are held so, see `held`: stacks, or dictionaries of them."""
    return {f.name: getattr(state, f.name) for f in fields(state) if f.metadata.get("held") == by}


def each(change: Callable[[Tensor], Tensor], held: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries with `change` of each of their tensors."""
    return {name: each(change, v) if isinstance(v, dict) else change(v) for name, v in held.items()}


@dataclass(frozen=True)
class Update:
    """What local training gives, sorted by who may see it.

    Attributes
    ----------
    clients : Tensor of shape (C,), int64
        Positions of the clients.
    summed : dict
        Sums over clients, such as the sum of n_k theta_k: all the server needs of them. They add over chunks. Each
        tensor has a leading axis of models; a client adds to one row of it, and that row is what it sends.
    per_client : dict of str to Tensor or Params
        What the server sees of each client, with a leading axis of C (CFL's updates).
    client_state : dict of str to Tensor or Params
        What never leaves a client: new rows of the state's field of that name. `fit` stores them; `aggregate` does not
        look at them.
    log : dict of str to Tensor of shape (C,)
        Numbers for the history.
    purpose : dict of str to str
        What an entry of `summed` or `per_client` is sent for, in the costs; "training" where nothing is said.
    key : Key, optional
        For random numbers of the server, such as noise for differential privacy. `train` leaves it out; the round sets
        its own key before `aggregate`, the same on one machine, in several processes and in Flower. A draw takes the
        ids of clients, and the server may take one number for itself: ``key.normal(torch.tensor([0]), "noise", 3)[0]``.
        Who knows the seed knows the draws, and in Flower clients do: this is for experiments, and protects nobody yet.
    """

    clients: Tensor
    summed: Sums = field(default_factory=dict)
    per_client: dict[str, Any] = field(default_factory=dict)
    client_state: dict[str, Any] = field(default_factory=dict)
    log: dict[str, Tensor] = field(default_factory=dict)
    purpose: dict[str, str] = field(default_factory=dict)
    key: Key | None = None


@dataclass(frozen=True)
class Algorithm(ABC):
    """Base of all algorithms: the settings of local training, and what a new algorithm must or may define.

    A new algorithm is a frozen dataclass that defines `init`, `train`, `aggregate` and `client_params`. Its state is
    another frozen dataclass; all that changes stands there, nothing on the algorithm.

    Parameters
    ----------
    loss : callable
        ``loss(params, batch) -> scalar`` of one client, ``batch = (x, y, w)``; w = 0 marks padding.
    lr : float
        Learning rate of local training.
    batch_size : int or None
        B, examples in a batch; None takes all at once.
    epochs : int
        E, local epochs. ``batch_size=None, epochs=1`` is FedSGD.
    predict : callable, optional
        ``predict(params, x) -> output`` of one client, for evaluation.
    optimizer : callable
        Local optimiser, made anew in each round as ``optimizer(parameters, lr=lr)``: `torch.optim.SGD`,
        ``partial(torch.optim.SGD, momentum=0.9)``, `torch.optim.Adam`. It sees the stacks (C, ...) of several clients,
        so it must treat each entry alone, or each row.
    chunk_size : int or "auto"
        Clients trained at once at the most; rounding apart, no result depends on it. "auto" is what memory holds, and
        on a CPU one after another where a step of one client is work enough.
    stragglers : float
        Chance that a client is slow in a round: it then takes a random number of its steps, each number from 1 to all
        equally likely. 0: nobody is slow.

    Raises
    ------
    ValueError
        A setting out of its range; an optimiser that mixes the rows of a stack.
    """

    loss: Loss
    lr: float = number(0.1, above=True)
    batch_size: int | None = whole(20)
    epochs: int = whole(1)
    predict: Predict | None = None
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD
    chunk_size: int | Literal["auto"] = whole("auto")
    stragglers: float = number(0.0, below=1)

    def __post_init__(self) -> None:
        if not callable(self.loss):
            raise TypeError(f"loss must be a function of parameters and a batch, got {self.loss!r}")
        check_settings(self)
        rule: Any = self.optimizer
        if "lr" in getattr(rule, "keywords", {}):
            raise ValueError(f"give the learning rate as lr={rule.keywords['lr']} of the algorithm, not the optimizer")
        if getattr(rule, "func", rule) is not torch.optim.SGD:  # whose probe would take a second for imports
            check_optimizer(rule)

    @abstractmethod
    def init(self, params: Params, data: ClientData, key: Key) -> Any:
        """State before the first round, from one set of parameters."""

    @abstractmethod
    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Client side: train any part of a cohort.

        `data` holds these clients and no others; `clients` (C,) are their positions in the state.
        """

    @abstractmethod
    def aggregate(self, state: Any, update: Update) -> Any:
        """Server side: the next state. Sees no data; draws random numbers, if any, from ``update.key``."""

    @abstractmethod
    def client_params(self, state: Any, clients: Tensor) -> Params:
        """The one question every algorithm answers: which parameters do these clients hold? A stack of C rows."""

    def prepare(self, state: Any, data: ClientData, key: Key) -> Any:
        """Once before round 1; by default nothing."""
        return state

    def cohort(self, state: Any, ids: Tensor, n: int, key: Key) -> Tensor:
        """Positions of the `n` clients of a round, in ascending order; by default each set is equally likely."""
        return key.choose(ids, n, "cohort")

    def download(self, state: Any, clients: Tensor) -> dict[str, Any]:
        """What the server sends these clients, by purpose, as stacks of C rows, or of one that all get.

        By default the fields of the state that say so (`held`); where no field says who holds it, the clients' models.
        """
        if not any("held" in f.metadata for f in getattr(state, "__dataclass_fields__", {}).values()):
            return {TRAINING: self.client_params(state, clients)}
        sent = each(lambda p: p[None], held_fields(state, "server and clients"))
        sent |= each(lambda p: p[state.assignment[clients]], held_fields(state, "server and its cluster"))
        return {TRAINING: sent} if sent else {}

    def unreached(self, state: Any, rounds: int) -> str:
        """What the settings promise and a run of `rounds` rounds never came to; `fit` warns of it. Empty if nothing."""
        return ""

    def new_clients(self, state: Any, data: ClientData, key: Key, rounds: int) -> Any:
        """State for clients never seen in training: rows that belong to clients are those of `data`.

        `rounds` is how many rounds of local training a new client may spend, for algorithms that need any.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not say how it serves clients never seen in training: define new_clients"
        )

    def local_training(
        self,
        start: Params,
        data: ClientData,
        key: Key,
        extras: Sequence[Any] = (),
        loss: Loss | None = None,
        frozen: Sequence[str] = (),
        purpose: str = TRAINING,
    ) -> Trained:
        """`fedlib.local.local_update` with this algorithm's settings, for the clients of `data`; enters its costs."""
        loss = loss or self.loss
        batches = local_batches(data, self.batch_size, self.epochs, key)
        if self.stragglers:
            slow = key.uniform(data.id, "slow") < self.stragglers
            most = 1 + (key.uniform(data.id, "steps of the slow") * batches.steps.to(slow.device)).long()
            batches = replace(batches, steps=torch.where(slow, most, batches.steps.to(slow.device)).cpu())
        flops, size = _flops_per_example(loss, start, batches, extras), self.chunk_size
        if size == "auto" and data.n.device.type == "cpu" and flops * batches.size > _BUSY:
            size = 1
        end = local_update(loss, start, batches, partial(self.optimizer, lr=self.lr), extras, frozen, size)
        examples = int(batches.examples.sum())
        record(purpose, examples=examples, flops=examples * flops)
        return end

    def local_rounds(self, start: Params, data: ClientData, key: Key, rounds: int, **task: Any) -> Params:
        """The models of clients after `rounds` rounds of `local_training` in which nothing is sent: `new_clients`."""
        for t in range(1, rounds + 1):
            start = self.local_training(start, data, Key(key.seed, t), **task).params
        return start


def _flops_per_example(loss: Loss, start: Params, batches: Batches, extras: Sequence[Any]) -> float:
    """Estimated once in a run, on a batch of the first client's examples: three times the loss's own operations.

    A step costs about three times its loss: the backward pass makes two products of each.
    """
    costs = current_costs()
    if costs is None:
        return 0.0
    which = getattr(loss, "__func__", loss)  # of a method of any copy of the algorithm
    known = id(which), *(p.shape[1:] for p in start.values())  # clients may have different networks
    if known not in costs.flops_per_example:
        data = batches.data[:1]
        position = torch.arange(min(_PROBE, batches.size), device=data.n.device)[None] % data.n[:, None]
        batch = data.batch(position, torch.ones_like(position, dtype=torch.bool), next(iter(start.values())).dtype)
        terms = [row(e, 0) if isinstance(e, dict) else e[0] for e in extras]
        flops = flops_of(loss, row(start, 0), tuple(part[0] for part in batch), *terms)
        costs.flops_per_example[known] = 3 * flops / position.shape[1], which
    return costs.flops_per_example[known][0]
