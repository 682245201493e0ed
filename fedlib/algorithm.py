"""The base class of all algorithms, with four functions to write and the settings of local training that all share."""

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
_BUSY = 1.5e9  # operations in a client's step, above which clients train one after another on a CPU


def held(by: Literal["server and clients", "server and its cluster", "client"]) -> dict[str, str]:
    """Metadata that says who holds a field of a state; a field without it is held by the server alone.

    With "server and clients", every client of a cohort is sent the whole field. With "server and its cluster", the
    field is a stack of M rows, and each client is sent the row of its ``assignment``. With "client", it is a stack of K
    rows, each held only by its client. Write ``models: Params = field(metadata=held("server and clients"))``.
    `fedlib.engines.flower` sends what this metadata names (chapter 16).
    """
    if by not in (kinds := ("server and clients", "server and its cluster", "client")):
        raise ValueError(f"held must be one of {kinds}, got {by!r}; a field of the server alone needs no metadata")
    return {"held": by}


def held_fields(state: Any, by: str) -> dict[str, Any]:
    """The fields of a state whose `held` metadata is `by`, as stacks or dictionaries of stacks."""
    return {f.name: getattr(state, f.name) for f in fields(state) if f.metadata.get("held") == by}


def each(change: Callable[[Tensor], Tensor], held: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries with `change` applied to each of their tensors."""
    return {name: each(change, v) if isinstance(v, dict) else change(v) for name, v in held.items()}


@dataclass(frozen=True)
class Update:
    """The results of local training, sorted by who may see them.

    Attributes
    ----------
    clients : Tensor of shape (C,), int64
        Positions of the clients.
    summed : dict
        Sums over clients that are all the server needs from them, such as the sum of n_k theta_k. They are added
        over chunks. Each tensor has a leading axis of models. A client adds to one row of it and sends that row.
    per_client : dict of str to Tensor or Params
        Results of single clients that the server sees, with a leading axis of C (CFL's updates).
    client_state : dict of str to Tensor or Params
        Results that never leave a client, as new rows of the state's field of that name. `fit` stores them; `aggregate`
        does not look at them.
    log : dict of str to Tensor of shape (C,)
        Numbers for the history.
    purpose : dict of str to str
        Purpose in the costs of an entry of `summed` or `per_client`; "training" by default.
    key : Key, optional
        Source of the server's random numbers, such as noise for differential privacy. `train` leaves it out; the round
        sets its own key before `aggregate`, the same on one machine, in several processes and in Flower. A draw takes
        the ids of clients; for the server itself, use one number, as in
        ``key.normal(torch.tensor([0]), "noise", 3)[0]``. Anyone with the seed can reproduce the draws, and in Flower
        the clients have it, so these draws are for experiments and do not protect anyone yet.
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
    """Base class of all algorithms, with the settings of local training and the methods of an algorithm.

    A new algorithm is a frozen dataclass that must define `init`, `train`, `aggregate` and `client_params`, and may
    define the other methods. Its state is another frozen dataclass, which holds everything that changes; the algorithm
    itself never changes.

    Parameters
    ----------
    loss : callable
        ``loss(params, batch) -> scalar`` of one client, with ``batch = (x, y, w)``; w = 0 marks padding.
    lr : float
        Learning rate of local training.
    batch_size : int or None
        B, the number of examples in a batch; None takes all at once.
    epochs : int
        E, the number of local epochs. ``batch_size=None, epochs=1`` is FedSGD.
    predict : callable, optional
        ``predict(params, x) -> output`` of one client, for evaluation.
    optimizer : callable
        Local optimiser, created in each round as ``optimizer(parameters, lr=lr)``, such as `torch.optim.SGD`,
        ``partial(torch.optim.SGD, momentum=0.9)`` or `torch.optim.Adam`. It sees the stacks (C, ...) of several
        clients, so it must treat each entry, or at least each row, independently.
    chunk_size : int or "auto"
        Largest number of clients that are trained at once; no result depends on it, except for rounding. "auto" takes
        as many as fit into memory, but a single one on a CPU if one client's step is already enough work.
    stragglers : float
        Probability that a client is slow in a round. A slow client takes a random number of its steps, each number from
        1 to all of them equally likely. With 0, no client is slow.

    Raises
    ------
    ValueError
        A setting is out of its range, or the optimiser mixes the rows of a stack.
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
        if hidden := [f.name for f in fields(self) if getattr(type(self), f.name, f.default) is not f.default]:
            raise TypeError(
                f"{type(self).__name__} sets {hidden[0]!r} in its class, where the setting hides it. Give it when you "
                f"make the algorithm; for another default, `{hidden[0]}: type = value` in a @dataclass(frozen=True)"
            )
        check_settings(self)
        rule: Any = self.optimizer
        if "lr" in getattr(rule, "keywords", {}):
            raise ValueError(f"give the learning rate as lr={rule.keywords['lr']} of the algorithm, not the optimizer")
        if not callable(rule):
            raise ValueError(f"optimizer must be a class such as torch.optim.SGD or a partial of it; got {rule!r:.80}")
        if getattr(rule, "func", rule) is not torch.optim.SGD:  # for SGD, the imports of the probe would take a second
            check_optimizer(rule)

    @abstractmethod
    def init(self, params: Params, data: ClientData, key: Key) -> Any:
        """State before the first round, from one set of parameters."""

    @abstractmethod
    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Train any subset of a cohort, on the clients.

        `data` holds only these clients; `clients` (C,) are their positions in the state.
        """

    @abstractmethod
    def aggregate(self, state: Any, update: Update) -> Any:
        """The next state, computed by the server, which sees no data; any random numbers come from ``update.key``."""

    @abstractmethod
    def client_params(self, state: Any, clients: Tensor) -> Params:
        """The parameters that these clients hold, as a stack of C rows; every algorithm must answer this question."""

    def prepare(self, state: Any, data: ClientData, key: Key) -> Any:
        """The state after any preparations, which happen once before round 1; unchanged by default."""
        return state

    def cohort(self, state: Any, ids: Tensor, n: int, key: Key) -> Tensor:
        """Positions of the `n` clients of a round, in ascending order; by default each set is equally likely."""
        return key.choose(ids, n, "cohort")

    def download(self, state: Any, clients: Tensor) -> dict[str, Any]:
        """Parameters that the server sends these clients, by purpose, as stacks of C rows, or of one row for all.

        By default these are the fields of the state that `held` marks for sending or, if no field says who holds it,
        the clients' models.
        """
        if not any("held" in f.metadata for f in getattr(state, "__dataclass_fields__", {}).values()):
            return {TRAINING: self.client_params(state, clients)}
        sent = each(lambda p: p[None], held_fields(state, "server and clients"))
        sent |= each(lambda p: p[state.assignment[clients]], held_fields(state, "server and its cluster"))
        return {TRAINING: sent} if sent else {}

    def unreached(self, state: Any, rounds: int) -> str:
        """A warning for `fit` if `rounds` rounds are too few for something that the settings promise; else empty."""
        return ""

    def new_clients(self, state: Any, data: ClientData, key: Key, rounds: int) -> Any:
        """State for clients never seen in training; its rows for clients are those of `data`.

        `rounds` is the number of rounds of local training that a new client may spend, for algorithms that need any.
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
        """Run `fedlib.local.local_update` with this algorithm's settings on the clients of `data`; record the costs.

        `fit` tries only the algorithm's own loss before round 1; a `loss` given here must ignore rows with w = 0 too.
        """
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
        """The clients' models after `rounds` rounds of `local_training` with nothing sent, for `new_clients`."""
        for t in range(1, rounds + 1):
            start = self.local_training(start, data, Key(key.seed, t), **task).params
        return start


def _flops_per_example(loss: Loss, start: Params, batches: Batches, extras: Sequence[Any]) -> float:
    """Estimate of a step's operations for one example, made once in a run on a batch of the first client's examples.

    A step costs about three times as many operations as its loss, because the backward pass computes two products for
    each product of the loss.
    """
    costs = current_costs()
    if costs is None:
        return 0.0
    which = getattr(loss, "__func__", loss)  # the method itself, whichever copy of the algorithm it is bound to
    known = id(which), *(p.shape[1:] for p in start.values())  # clients may have different networks
    if known not in costs.flops_per_example:
        data = batches.data[:1]
        position = torch.arange(min(_PROBE, batches.size), device=data.n.device)[None] % data.n[:, None]
        batch = data.batch(position, torch.ones_like(position, dtype=torch.bool), next(iter(start.values())).dtype)
        terms = [row(e, 0) if isinstance(e, dict) else e[0] for e in extras]
        flops = flops_of(loss, row(start, 0), tuple(part[0] for part in batch), *terms)
        costs.flops_per_example[known] = 3 * flops / position.shape[1], which
    return costs.flops_per_example[known][0]
