"""A federation: what an algorithm is, and the loop of rounds that runs any of them."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from .aggregate import Sums
from .data import ClientData, local_batches
from .evaluation import evaluate, pooled
from .keys import Key
from .local import Loss, Trained, local_update
from .params import Params, put

__all__ = ["Algorithm", "Result", "Update", "choose_device", "fit"]

Predict = Callable[[Params, Tensor], Tensor]
Callback = Callable[[int, Any, dict[str, Any]], None]


@dataclass(frozen=True)
class Update:
    """What local training gives, sorted by who may see it.

    Attributes
    ----------
    clients : Tensor of shape (C,), int64
        Positions of the clients.
    sums : dict
        Sums over clients, such as the sum of n_k theta_k: all the server needs of them. They add over chunks.
    rows : dict of str to Tensor or Params
        What the server sees of each client, with a leading axis of C (CFL's updates).
    kept : dict of str to Params
        What never leaves a client: new rows of the state's field of that name. `fit` stores them; `aggregate` does not
        look at them.
    log : dict of str to Tensor of shape (C,)
        Numbers for the history.
    """

    clients: Tensor
    sums: Sums = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Params] = field(default_factory=dict)
    log: dict[str, Tensor] = field(default_factory=dict)


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
        ``partial(torch.optim.SGD, momentum=0.9)``, `torch.optim.Adam`.
    chunk_size : int or "auto"
        Clients trained at once at the most; rounding apart, no result depends on it.

    Raises
    ------
    ValueError
        A setting out of its range.
    """

    loss: Loss
    lr: float = 0.1
    batch_size: int | None = 20
    epochs: int = 1
    predict: Predict | None = None
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD
    chunk_size: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        for name, value in (("loss", self.loss), ("optimizer", self.optimizer)):
            if not callable(value):
                raise TypeError(f"{name} must be a function, got {value!r}")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise ValueError(f"lr must be a positive number, got {self.lr}")
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {self.epochs}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, or None for all examples; got {self.batch_size}")
        if self.chunk_size != "auto" and self.chunk_size < 1:
            raise ValueError(f'chunk_size must be at least 1, or "auto"; got {self.chunk_size}')

    @abstractmethod
    def init(self, params: Params, data: ClientData, key: Key) -> Any:
        """State before the first round, from one set of parameters."""

    @abstractmethod
    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Client side: train any part of a cohort, given by positions (C,)."""

    @abstractmethod
    def aggregate(self, state: Any, update: Update) -> Any:
        """Server side: the next state. Sees no data."""

    @abstractmethod
    def client_params(self, state: Any, clients: Tensor) -> Params:
        """The one question every algorithm answers: which parameters do these clients hold? A stack of C rows."""

    def prepare(self, state: Any, data: ClientData, key: Key) -> Any:
        """Once before round 1; by default nothing."""
        return state

    def cohort(self, state: Any, ids: Tensor, n: int, key: Key) -> Tensor:
        """Positions of the `n` clients of a round, in ascending order; by default each set is equally likely."""
        return key.choose(ids, n, "cohort")

    def local_training(
        self,
        start: Params,
        data: ClientData,
        key: Key,
        extras: Sequence[Any] = (),
        loss: Loss | None = None,
    ) -> Trained:
        """`local_update` with the settings of this algorithm, for the clients of `data`."""
        return local_update(
            loss or self.loss,
            start,
            local_batches(data, self.batch_size, self.epochs, key),
            partial(self.optimizer, lr=self.lr),
            extras=extras,
            chunk_size=self.chunk_size,
        )


@dataclass(frozen=True)
class Result:
    """What `fit` gives.

    Attributes
    ----------
    state : object
        The algorithm's state after the last round. Rows that belong to clients are in ascending order of ids.
    history : pandas.DataFrame
        One row a round: ``round``, ``clients`` (in the cohort), ``train_loss`` (mean over the cohort's examples, before
        each step), the scores of `evaluate` pooled over examples with the name of the evaluation set in front
        (``test_accuracy``), ``seconds`` (training and aggregation).
    """

    state: Any
    history: pd.DataFrame


def fit(
    algorithm: Algorithm,
    params: Params,
    data: ClientData,
    rounds: int,
    clients_per_round: int | None = None,
    *,
    seed: int = 0,
    eval_data: ClientData | Mapping[str, ClientData] | None = None,
    eval_every: int = 1,
    callbacks: Sequence[Callback] = (),
    device: str | torch.device = "auto",
    dtype: torch.dtype | None = None,
    progress: bool = True,
) -> Result:
    """Run a federation.

    Parameters
    ----------
    algorithm : Algorithm
    params : Params
        One set of parameters, where all clients start.
    data : ClientData
        Training examples of K clients. They are sorted by id first, so the order given does not matter.
    rounds : int
        Rounds of communication.
    clients_per_round : int, optional
        C, clients in a cohort; all K by default.
    seed : int
        Seed of cohorts, shuffling and whatever the algorithm draws.
    eval_data : ClientData or mapping of str to ClientData, optional
        What is scored after a round. One set is called "test". Clients are matched by id.
    eval_every : int
        Score after every so many rounds, and after the last.
    callbacks : sequence of callable
        Called after each round as ``callback(round, state, record)``; what they add to the dictionary `record`
        becomes a column of the history.
    device : str or torch.device
        "auto" takes CUDA, else MPS where all operations work, else the CPU.
    dtype : torch.dtype, optional
        Floating-point type of training; that of `params` by default.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    Result

    Raises
    ------
    ValueError
        Settings that cannot be: no rounds, a cohort larger than the population, parameters that do not fit the model, a
        loss that sees padding. `params` and `data` are never modified.
    FloatingPointError
        A client's loss or update became NaN or infinite; says which client and round.

    Notes
    -----
    The same seed gives the same result for any order of the clients, and for evaluation on or off. Chapter 01.
    """
    device = choose_device(device)
    data = data.sorted().to(device)
    cohort_size = _cohort_size(clients_per_round, len(data), rounds, eval_every)
    params = {k: p.detach().to(device, dtype if p.is_floating_point() else None) for k, p in params.items()}
    _check_loss(algorithm, params, data)
    evaluations = _match(eval_data, data, device)
    state = algorithm.prepare(algorithm.init(params, data, Key(seed)), data, Key(seed))

    records = []
    for t in tqdm(range(1, rounds + 1), desc=type(algorithm).__name__, unit="round", disable=not progress):
        start, key = time.perf_counter(), Key(seed, t)
        clients = algorithm.cohort(state, data.id, cohort_size, key)
        update = algorithm.train(state, data, clients, key)
        _check_finite(algorithm, state, data, update, key)
        state = algorithm.aggregate(state, update)
        for name, rows in update.kept.items():  # each client's own memory
            state = replace(state, **{name: put(getattr(state, name), update.clients, rows)})
        record: dict[str, Any] = {"round": t, "clients": len(clients)}
        weight = data.n[clients].cpu().double()
        for name, values in update.log.items():
            record[f"train_{name}"] = float((values.cpu() * weight).sum() / weight.sum())
        record["seconds"] = time.perf_counter() - start
        if t % eval_every == 0 or t == rounds:
            for name, (rows_, positions) in evaluations.items():
                scores = pooled(evaluate(algorithm, state, rows_, positions))
                record |= {f"{name}_{score}": value for score, value in scores.items()}
        for callback in callbacks:
            callback(t, state, record)
        records.append(record)
    return Result(state, pd.DataFrame(records))


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """The device to train on: "auto" takes CUDA, else MPS where all operations work, else the CPU."""
    if device != "auto":
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available() and _works_on(torch.device("mps")):
        return torch.device("mps")
    return torch.device("cpu")


def _works_on(device: torch.device) -> bool:
    """Whether a small federation of convolutional networks gives on `device` what it gives on the CPU."""
    from .algorithms import FedAvg
    from .data import stack_clients
    from .losses import cross_entropy
    from .models import CNN

    model = CNN(image=(1, 8, 8), channels=(2,), widths=(3,), kernel=3, padding=1)
    x = Key(0).uniform(torch.arange(2), "probe", 4, 1, 8, 8).float()
    data = stack_clients(list(x), [torch.arange(4) % 3] * 2)
    algorithm = FedAvg(lambda p, b: cross_entropy(model(p, b[0]), *b[1:]), batch_size=3, predict=model)
    run = partial(fit, algorithm, model.init(0), data, rounds=2, eval_data=data, progress=False)
    try:
        here, there = run(device="cpu").state.models, run(device=device).state.models
    except (RuntimeError, TypeError, ValueError):
        return False
    return all(torch.allclose(here[name], there[name].cpu(), atol=1e-4) for name in here)


def _cohort_size(clients_per_round: int | None, population: int, rounds: int, eval_every: int) -> int:
    if rounds < 1 or eval_every < 1:
        raise ValueError(f"rounds and eval_every must be at least 1; got {rounds} and {eval_every}")
    size = population if clients_per_round is None else clients_per_round
    if not 1 <= size <= population:
        raise ValueError(f"clients_per_round must lie between 1 and the {population} clients there are; got {size}")
    return size


def _match(
    eval_data: ClientData | Mapping[str, ClientData] | None, data: ClientData, device: torch.device
) -> dict[str, tuple[ClientData, Tensor]]:
    """Each evaluation set with the positions of its clients in the training data."""
    sets = {"test": eval_data} if isinstance(eval_data, ClientData) else eval_data or {}
    matched = {}
    for name, some in sets.items():
        some = some.sorted().to(device)
        positions = torch.searchsorted(data.id, some.id).clamp(max=len(data) - 1)
        unknown = some.id[data.id[positions] != some.id]
        if len(unknown):
            raise ValueError(
                f"the evaluation set {name!r} has clients that are not in training: ids {unknown[:5].tolist()}"
            )
        matched[name] = (some, positions)
    return matched


def _check_loss(algorithm: Algorithm, params: Params, data: ClientData) -> None:
    """Run the loss once on one client: the parameters must fit, and padding must stay unseen."""
    dtype = next(iter(params.values())).dtype
    here = torch.zeros(1, 2, dtype=torch.int64, device=data.n.device)
    x, y, w = (b[0] for b in data[:1].batch(here, torch.tensor([[True, False]], device=here.device), dtype))
    other_x, other_y = x.clone(), y.clone()
    other_x[1], other_y[1] = 1 - x[1], 0 if y[1] != 0 or y.is_floating_point() else 1
    with torch.no_grad():
        try:
            value = algorithm.loss(params, (x, y, w))
        except (RuntimeError, KeyError, IndexError, TypeError, ValueError) as error:
            shapes = {name: tuple(p.shape) for name, p in params.items()}
            raise ValueError(
                f"the loss does not run with these parameters {shapes} and a batch x {tuple(x.shape)}, "
                f"y {tuple(y.shape)}, w {tuple(w.shape)}: {error}. Check the model's sizes against the data."
            ) from error
        if not isinstance(value, Tensor) or value.ndim != 0:
            raise ValueError(f"the loss must give one number (a tensor of shape ()), got {value!r:.200}")
        changed = algorithm.loss(params, (other_x, other_y, w))
    if value.isfinite() and not torch.allclose(value, changed, rtol=1e-4, atol=1e-6):
        raise ValueError(
            f"the loss sees padded rows: changing a row with w = 0 moved it from {value:.6g} to {changed:.6g}. "
            "Weight each row's loss with w, as fedlib.losses.cross_entropy(logits, y, w) does"
        )


def _check_finite(algorithm: Algorithm, state: Any, data: ClientData, update: Update, key: Key) -> None:
    """Name the client whose training diverged, before it spoils the average."""
    if _finite([update.log, update.sums, update.rows, update.kept]):
        return
    guilty = update.clients
    while len(guilty) > 1:  # training is deterministic: train one half again, and go on with the half that diverges
        half = guilty[: len(guilty) // 2]
        again = algorithm.train(state, data, half, key)
        guilty = guilty[len(half) :] if _finite([again.log, again.sums, again.rows, again.kept]) else half
    raise FloatingPointError(
        f"the loss or the parameters of client {int(data.id[guilty[0]])} became NaN or infinite in round {key.round}; "
        "lower the learning rate, or look for extreme values in this client's data"
    )


def _finite(tree: Any) -> bool:
    if isinstance(tree, Tensor):
        return bool(tree.isfinite().all())
    return all(map(_finite, tree.values() if isinstance(tree, dict) else tree))
