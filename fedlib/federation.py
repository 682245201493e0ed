"""A federation: what an algorithm is, and the loop of rounds that runs any of them."""

import math
import operator
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
import torch
from torch import Tensor

from . import distributed
from .aggregate import Sums, add_sums
from .bars import rounds_of
from .data import ClientData, local_batches, to_features
from .evaluation import held_params, pooled, positions, score
from .keys import Key
from .ledger import TRAINING, Ledger, current_ledger, flops_of, message_bytes, open_ledger, record, server_time
from .local import Loss, Trained, clients_at_once, local_update
from .params import Params, put, row

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

__all__ = ["Algorithm", "Result", "Update", "choose_device", "enroll", "fit"]

Predict = Callable[[Params, Tensor], Tensor]
_PROBE = 32  # examples on which operations are counted
_NOT_ENTRY_BY_ENTRY = {"Adafactor", "LBFGS", "Muon"}
Callback = Callable[[int, Any, dict[str, Any]], None]


@dataclass(frozen=True)
class Update:
    """What local training gives, sorted by who may see it.

    Attributes
    ----------
    clients : Tensor of shape (C,), int64
        Positions of the clients.
    sums : dict
        Sums over clients, such as the sum of n_k theta_k: all the server needs of them. They add over chunks. Each
        tensor has a leading axis of models; a client adds to one row of it, and that row is what it sends.
    rows : dict of str to Tensor or Params
        What the server sees of each client, with a leading axis of C (CFL's updates).
    kept : dict of str to Tensor or Params
        What never leaves a client: new rows of the state's field of that name. `fit` stores them; `aggregate` does not
        look at them.
    log : dict of str to Tensor of shape (C,)
        Numbers for the history.
    purpose : dict of str to str
        What an entry of `sums` or `rows` is sent for, in the ledger; "training" where nothing is said.
    """

    clients: Tensor
    sums: Sums = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    log: dict[str, Tensor] = field(default_factory=dict)
    purpose: dict[str, str] = field(default_factory=dict)


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
    stragglers : float
        Chance that a client is slow in a round: it then takes a random number of its steps, each number from 1 to all
        equally likely. 0: nobody is slow. Chapter 02.

    Raises
    ------
    ValueError
        A setting out of its range; an optimiser that does not treat each entry alone.
    """

    loss: Loss
    lr: float = 0.1
    batch_size: int | None = 20
    epochs: int = 1
    predict: Predict | None = None
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD
    chunk_size: int | Literal["auto"] = "auto"
    stragglers: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss", "optimizer", "predict"):
            value = getattr(self, name)
            if not (callable(value) or (name == "predict" and value is None)):
                raise TypeError(f"{name} must be a function, got {value!r}")
        if not (isinstance(self.lr, Real) and self.lr > 0 and math.isfinite(self.lr)):
            raise ValueError(f"lr must be a positive number, got {self.lr!r}")
        _whole(self.epochs, "epochs")
        if self.batch_size is not None:
            _whole(self.batch_size, "batch_size", ", or None for all examples")
        if self.chunk_size != "auto":
            _whole(self.chunk_size, "chunk_size", ', or "auto"')
        _share(self.stragglers, "stragglers")
        rule, options = self.optimizer, {}
        if isinstance(rule, partial):
            rule, options = rule.func, rule.keywords
        if "lr" in options:
            raise ValueError(f"give the learning rate as lr={options['lr']} of the algorithm, not of the optimizer")
        if getattr(rule, "__name__", "") in _NOT_ENTRY_BY_ENTRY:
            raise ValueError(
                f"{rule!r} looks at many entries of a tensor at once, so clients in a stack would mix; use a rule that "
                "treats each entry alone, such as SGD or Adam"
            )

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

    def download(self, state: Any, clients: Tensor) -> dict[str, Any]:
        """What the server sends these clients in a round, by purpose: stacks of C rows. By default their models."""
        return {TRAINING: self.client_params(state, clients)}

    def enroll(self, state: Any, data: ClientData, key: Key, rounds: int) -> Any:
        """State for clients never seen in training: rows that belong to clients are those of `data`.

        `rounds` is how many rounds of local training a new client may spend, for algorithms that need any.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not say how it serves clients never seen in training: define enroll"
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
        end = local_update(loss, start, batches, partial(self.optimizer, lr=self.lr), extras, frozen, self.chunk_size)
        examples = int(batches.examples.sum())
        record(purpose, examples=examples, flops=examples * _flops_per_example(loss, start, data, extras))
        return end


@dataclass(frozen=True)
class Result:
    """What `fit` gives.

    Attributes
    ----------
    state : object
        The algorithm's state after the last round. Rows that belong to clients are in ascending order of ids.
    ids : Tensor of shape (K,), int64
        Ids of the training clients, ascending.
    history : pandas.DataFrame
        One row a round: ``round``, ``clients`` (whose updates arrived), ``train_loss`` (a client's mean over its steps
        of the loss before the step; then the mean over the cohort, weighted by examples), the scores of
        `fedlib.evaluation.evaluate` pooled over examples with the name of the evaluation set in front
        (``test_accuracy``), ``seconds`` (training and aggregation), and the costs of the round:
        ``bytes_down`` and ``bytes_up`` (all clients together, without headers), ``examples`` processed in training,
        ``flops`` (an estimate: three times the products of matrices and convolutions of the loss), ``server_seconds``.
        Costs with a purpose other than training also stand apart, as in ``bytes_up (clustering)``. Work before round 1
        has a row of its own, round 0.
    """

    state: Any
    ids: Tensor
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
    drop_out: float = 0.0,
    checkpoint: "str | os.PathLike | Checkpoint | None" = None,
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
        becomes a column of the history. One that raises StopIteration ends the run after this round.
    drop_out : float
        Chance that a client of the cohort is lost in mid-round: it gets the model, but nothing of it comes back, and
        it forgets the round. A round in which all are lost changes nothing. 0: nobody is lost. Chapter 02.
    checkpoint : path or Checkpoint, optional
        Where the run is stored from time to time (`fedlib.checkpoint.Checkpoint`; a path alone: every 30 seconds, and
        after the last round). If the file is there, the run goes on from it and ends as if it had never stopped. More
        `rounds` make a finished run longer; its old last round stays scored.
    device : str or torch.device
        "auto" takes CUDA, else MPS where all operations work, else the CPU.
    dtype : torch.dtype, optional
        Floating-point type of training; that of `params` by default.
    progress : bool
        Show a progress bar on stderr, or move that of `fedlib.bars.progress` around it.

    Returns
    -------
    Result

    Raises
    ------
    ValueError
        Settings that cannot be: no rounds, a cohort larger than the population, parameters that do not fit the model, a
        loss that sees padding; a checkpoint of another run (algorithm, data, seed, what the loss computes), with what
        differs. `params` and `data` are never modified.
    FloatingPointError
        A client's loss or update became NaN or infinite; says which client and round.
    ConnectionError
        Another process of the run failed, or is gone.

    Notes
    -----
    The same seed gives the same result for any order of the clients, and for evaluation on or off. Where a process
    group is open (`fedlib.distributed`), each process trains its share of a cohort, and all of them end with the same
    result; callbacks run on each of them, and the first writes the checkpoint. Chapter 01.
    """
    device = choose_device(device)
    evaluations = {"test": eval_data} if isinstance(eval_data, ClientData) else dict(eval_data or {})
    _check_types(algorithm, params, data, evaluations, callbacks)
    for name, number in {"rounds": rounds, "eval_every": eval_every}.items():
        _whole(number, name)
    size = len(data) if clients_per_round is None else _whole(clients_per_round, "clients_per_round")
    if size > len(data):
        raise ValueError(f"clients_per_round must lie between 1 and the {len(data)} clients there are; got {size}")
    _share(drop_out, "drop_out")
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype must be a floating-point type such as torch.float64, got {dtype!r}")
    if "train" in evaluations:
        raise ValueError('an evaluation set cannot be called "train": train_loss is the loss in training')
    dtype = dtype or next(iter(params.values())).dtype
    params = {name: p.detach().to(device, dtype).contiguous() for name, p in params.items()}
    data = data.to(device, dtype).sorted()
    evaluations = {name: some.to(device, dtype) for name, some in evaluations.items()}
    _check_loss(algorithm, params, data, evaluations)
    writer = None
    if checkpoint is not None:
        settings = {"seed": operator.index(seed), "clients_per_round": size, "drop_out": float(drop_out)}
        settings["eval_every"] = operator.index(eval_every)
        writer = _open_checkpoint(checkpoint, algorithm, params, data, evaluations, settings, device)
    matched = {
        name: (some, positions(data.id, some, f"the evaluation set {name!r}")) for name, some in evaluations.items()
    }
    stored = writer and writer.read(device)
    if stored and stored[0] > rounds:
        raise ValueError(
            f"the checkpoint is at round {stored[0]}, beyond the {rounds} rounds asked for; give rounds={stored[0]} or "
            "more, or another path"
        )
    if writer and stored and writer.stopped and callbacks:  # a callback ended this run
        rounds = stored[0]
    name = type(algorithm).__name__
    first = distributed.rank() == 0
    with open_ledger() as ledger, rounds_of(name, rounds, progress and first) as advance:
        done, state, records = stored or _before_round_1(algorithm, params, data, Key(seed), ledger)
        if writer and first and not stored:
            writer.write(state, 0, records, last=True)  # what cannot be stored is said before the work, not after
        advance(done)
        for t in range(done + 1, rounds + 1):
            state, entry = _round(algorithm, state, data, size, drop_out, Key(seed, t), ledger)
            if t % eval_every == 0 or t == rounds:
                for name, (rows, places) in matched.items():
                    scores = pooled(score(algorithm, state, rows, places))
                    entry |= {f"{name}_{column}": value for column, value in scores.items()}
            stop = t == rounds
            for callback in callbacks:
                try:
                    callback(t, state, entry)
                except StopIteration:
                    stop = True
            entry = {column: _plain(value) for column, value in entry.items()}
            records.append(writer.as_stored(entry) if writer else entry)
            advance(1, entry)
            if writer and first:
                writer.write(state, t, records, last=stop, stopped=stop and t < rounds)
            if stop:
                break
    return Result(state, data.id, pd.DataFrame(records))


def _before_round_1(
    algorithm: Algorithm, params: Params, data: ClientData, key: Key, ledger: Ledger
) -> tuple[int, Any, list[dict[str, Any]]]:
    start = time.perf_counter()
    state = algorithm.prepare(algorithm.init(params, data, key), data, key)
    costs = ledger.take()
    entry = {"round": 0, "clients": len(data), "seconds": time.perf_counter() - start, **costs}
    return 0, state, [entry] if any(costs.values()) else []


def first_round(algorithm: Algorithm, params: Params, data: ClientData, size: int, key: Key) -> Any:
    """The state after round 1, without work before it; `fedlib.identity` asks what it computes."""
    with open_ledger() as ledger:
        return _round(algorithm, algorithm.init(params, data, Key(key.seed)), data, size, 0.0, key, ledger)[0]


def _round(
    algorithm: Algorithm, state: Any, data: ClientData, size: int, drop_out: float, key: Key, ledger: Ledger
) -> tuple[Any, dict[str, Any]]:
    """One round: draw a cohort, train it, aggregate; the next state and the record of the round."""
    start = time.perf_counter()
    ledger.entries.clear()  # of what callbacks did
    cohort = clients = algorithm.cohort(state, data.id, size, key).sort().values
    if drop_out:
        clients = clients[key.uniform(data.id[clients], "drop-out") >= drop_out]
    entry: dict[str, Any] = {"round": key.round, "clients": len(clients)}
    update = _train(algorithm, state, data, clients, key, ledger) if len(clients) else None
    for purpose, message in algorithm.download(state, cohort[:1]).items():
        record(purpose, bytes_down=len(cohort) * message_bytes(message))
    if update is not None:
        for name, message in (*update.sums.items(), *update.rows.items()):
            record(update.purpose.get(name, TRAINING), bytes_up=len(clients) * message_bytes(message))
        with server_time(TRAINING):
            state = algorithm.aggregate(state, update)
            weight = data.n[clients].cpu().double()
            for name, values in update.log.items():  # on a GPU this waits for the server's work
                entry[f"train_{name}"] = float((values.cpu() * weight).sum() / weight.sum())
        for name, rows in update.kept.items():  # each client's own memory
            state = replace(state, **{name: put(getattr(state, name), update.clients, rows)})
    return state, entry | {"seconds": time.perf_counter() - start} | ledger.take()


def _train(algorithm: Algorithm, state: Any, data: ClientData, clients: Tensor, key: Key, ledger: Ledger) -> Update:
    """The update of a cohort: chunk by chunk, so that memory suffices, and each process of the run its share."""
    size = algorithm.chunk_size
    if size == "auto":
        size = clients_at_once(algorithm.client_params(state, clients[:1]), data, algorithm.batch_size)
    mine, found, failure = distributed.share(clients), [], None
    try:
        for part in mine.split(operator.index(size)) if len(mine) else ():
            found.append(algorithm.train(state, data[part], part, key))
            _check_finite(algorithm, state, data, found[-1], key)
            if len(found) > 1:
                found[0] = replace(found[0], sums=add_sums(found[0].sums, found[-1].sums))
                found[-1] = replace(found[-1], sums={})
    except Exception as error:
        if distributed.world() == 1:
            raise
        failure = error
    if distributed.world() > 1:
        return _over_processes(found, ledger, failure, data.n.device)
    return found[0] if len(found) == 1 else Update(sums=found[0].sums, purpose=found[0].purpose, **_joined(found))


def _joined(updates: list[Update]) -> dict[str, Any]:
    """What belongs to single clients, in their order."""

    def join(trees: list[Any]) -> Any:
        return {n: join([t[n] for t in trees]) for n in trees[0]} if isinstance(trees[0], dict) else torch.cat(trees)

    return {name: join([getattr(u, name) for u in updates]) for name in ("clients", "rows", "kept", "log")}


def _over_processes(found: list[Update], ledger: Ledger, failure: Exception | None, device: torch.device) -> Update:
    """The update of the whole cohort, the same on every process, from those of its share."""
    sums, rows, purpose = (found[0].sums, _joined(found), found[0].purpose) if found and not failure else ({}, {}, {})
    costs = {"purpose": purpose, "ledger": ledger.entries}
    sums, rows, told = distributed.together(sums, rows, costs, failure, device)
    ledger.entries.clear()
    for other in told:
        for what, amounts in other["ledger"].items():
            record(what, **amounts)
    purpose = next((other["purpose"] for other in told if other["purpose"]), {})
    return Update(**({"sums": sums, "purpose": purpose, "rows": {}, "kept": {}, "log": {}} | rows))


def enroll(algorithm: Algorithm, result: Result, data: ClientData, rounds: int = 1, seed: int = 0) -> Result:
    """Serve clients that were never seen in training, by the one rule each algorithm has for them.

    Parameters
    ----------
    algorithm : Algorithm
    result : Result
        Of the training.
    data : ClientData
        Examples of the new clients to adapt to; keep others for the test.
    rounds : int
        Rounds of local training that a new client may spend where the algorithm needs any: all of them for
        `fedlib.algorithms.local_only.LocalOnly`; FedAvg, FedProx, SCAFFOLD and FedOpt hand out the server's model and
        need none.
    seed : int

    Returns
    -------
    Result
        As of `fit`, with the new clients in place of the old: `fedlib.evaluation.evaluate` takes it.

    Raises
    ------
    ValueError
        A client that was in training.
    FloatingPointError
        Local training of the new clients diverged.

    Notes
    -----
    Chapter 02.
    """
    device = result.ids.device
    _check_data(data, "data")
    known = data.id[torch.isin(data.id, result.ids.to(data.id.device))]
    if len(known):
        raise ValueError(f"clients {known[:5].tolist()} were in training; enroll is for clients never seen")
    ids = torch.zeros(1, dtype=torch.int64, device=device)
    dtype = next(iter(held_params(algorithm, result.state, ids).values())).dtype
    data = data.to(device, dtype).sorted()
    state = algorithm.enroll(result.state, data, Key(seed), _whole(rounds, "rounds"))
    everybody = torch.arange(len(data), device=device)
    if not _finite(Update(everybody, rows=algorithm.client_params(state, everybody))):
        raise FloatingPointError("the parameters of a new client became NaN or infinite; lower the learning rate")
    return Result(state, data.id, result.history)


def _open_checkpoint(
    checkpoint: Any,
    algorithm: Algorithm,
    params: Params,
    data: ClientData,
    evaluations: Mapping[str, ClientData],
    settings: dict[str, Any],
    device: torch.device,
) -> Any:
    from .checkpoint import Checkpoint, Writer
    from .identity import run_identity

    if isinstance(checkpoint, (str, os.PathLike)):
        checkpoint = Checkpoint(checkpoint)
    elif not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"checkpoint must be a path or a Checkpoint, got {checkpoint!r}")
    machine = {"device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type}
    machine |= {"torch": torch.__version__, "threads": str(torch.get_num_threads())}
    return Writer(checkpoint, run_identity(algorithm, params, data, evaluations, **settings), machine)


def _flops_per_example(loss: Loss, start: Params, data: ClientData, extras: Sequence[Any]) -> float:
    """Estimated once in a run, on the first client's examples: three times the loss's own operations.

    A step costs about three times its loss: the backward pass makes two products of each.
    """
    ledger = current_ledger()
    if ledger is None:
        return 0.0
    which = id(getattr(loss, "__func__", loss))
    if which not in ledger.flops_per_example:
        position = torch.arange(_PROBE, device=data.n.device)[None] % data.n[:1, None]
        batch = data[:1].batch(position, torch.ones_like(position, dtype=torch.bool), next(iter(start.values())).dtype)
        terms = [row(e, 0) if isinstance(e, dict) else e[0] for e in extras]
        flops = flops_of(loss, row(start, 0), tuple(part[0] for part in batch), *terms)
        ledger.flops_per_example[which] = 3 * flops / position.shape[1]
    return ledger.flops_per_example[which]


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """The device to train on: "auto" takes CUDA, else MPS where all operations work, else the CPU."""
    if device != "auto":
        try:
            return torch.device(device)
        except RuntimeError as error:
            raise ValueError(
                f'device must be "auto" or one of torch, such as "cpu" or "cuda"; got {device!r}'
            ) from error
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


def _plain(value: Any) -> Any:
    """Python's numbers in place of torch's and numpy's, and lists in place of arrays."""
    if not (hasattr(value, "tolist") and hasattr(value, "shape")):
        return value
    return value.item() if math.prod(value.shape) == 1 else value.tolist()


def _whole(number: Any, name: str, otherwise: str = "") -> int:
    """A count as the user gave it, if it is a whole number of at least 1."""
    try:
        value = operator.index(number)
    except TypeError:
        value = 0
    if value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1{otherwise}; got {number!r}")
    return value


def _share(number: Any, name: str) -> None:
    if not (isinstance(number, Real) and 0 <= float(number) < 1):
        raise ValueError(f"{name} must be a number from 0 to below 1, got {number!r}")


def _check_types(algorithm: Any, params: Any, data: Any, evaluations: Mapping[str, Any], callbacks: Any) -> None:
    if not isinstance(algorithm, Algorithm):
        raise TypeError(f"algorithm must be an instance such as FedAvg(loss), got {algorithm!r}")
    if not isinstance(params, dict) or not params or not all(isinstance(p, Tensor) for p in params.values()):
        raise TypeError(
            f"params must be a dictionary of tensors, as model.init(0) or from_module(m)[0] gives; got {type(params)}"
        )
    for name, p in params.items():
        if not p.is_floating_point():
            raise TypeError(f"parameter {name!r} has the type {p.dtype}; only floating-point numbers can be trained")
    for name, some in {"data": data, **{f"eval_data[{n!r}]": e for n, e in evaluations.items()}}.items():
        _check_data(some, name)
    if not all(callable(c) for c in callbacks):
        raise TypeError("callbacks must be a list of functions callback(round, state, record)")


def _check_data(data: Any, name: str) -> None:
    if not isinstance(data, ClientData):
        raise TypeError(f"{name} must be ClientData, as stack_clients or stack_rows makes; got {type(data)}")
    if len(data.id.unique()) != len(data):
        raise ValueError(f"{name} holds a client twice; ids must differ")


def _check_loss(algorithm: Algorithm, params: Params, data: ClientData, evaluations: Mapping[str, ClientData]) -> None:
    """Try the loss and `predict` before the first round: parameters and labels must fit, padding must stay unseen."""
    one, dtype = torch.zeros(1, dtype=torch.int64), next(iter(params.values())).dtype
    # Away from the start: where all rows have the same loss, seeing padding would not show.
    moved = {name: p + 0.1 * Key(0).normal(one, name, *p.shape)[0].to(p) for name, p in params.items()}
    # Three real rows, one with the largest label: real rows are what padding is made of.
    places = [(0, 0), (len(data) - 1, int(data.n[-1]) - 1), divmod(int(data.y.argmax()), data.y.shape[1])]
    x = to_features(data.x[torch.stack([data.index[k, i] for k, i in places])], dtype)
    y = torch.stack([data.y[k, i] for k, i in places])

    def attempt(rows: list[int], w: list[float]) -> Tensor:
        batch = x[rows], y[rows], torch.tensor(w, dtype=dtype, device=x.device)
        try:
            with torch.no_grad():
                value = algorithm.loss(moved, batch)
        except (RuntimeError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            shapes = {name: tuple(p.shape) for name, p in params.items()}
            raise ValueError(
                f"the loss does not run with parameters {shapes} and a batch x {tuple(batch[0].shape)}, y "
                f"{batch[1].tolist()} ({y.dtype}): {error}. Do the model's inputs fit x, and its outputs y?"
            ) from error
        if not isinstance(value, Tensor) or value.ndim != 0:
            raise ValueError(f"the loss must give one number (a tensor of shape ()), got {value!r:.200}")
        return value

    for a, b in ((0, 1), (1, 2), (2, 0)):
        alone, padded = attempt([a], [1.0]), attempt([a, b], [1.0, 0.0])
        if alone.isfinite() and padded.isfinite() and not torch.allclose(alone, padded, rtol=1e-3, atol=1e-5):
            raise ValueError(
                f"the loss sees padded rows: a row with w = 0 moved it from {alone:.6g} to {padded:.6g}. Take the mean "
                "weighted by w, (values * w).sum() / w.sum(), as fedlib.losses.cross_entropy(logits, y, w) does"
            )
    if algorithm.predict is None:
        return
    for name, some in {"training": data, **evaluations}.items():
        try:
            with torch.no_grad():
                output = algorithm.predict(params, to_features(some.x[some.index[0, :1]], dtype))
        except (RuntimeError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"predict does not run on the {name} data, rows {tuple(some.x.shape[1:])}: {error}"
            ) from error
        if not some.y.is_floating_point() and output.ndim == 2 and int(some.y.max()) >= output.shape[1] >= 2:
            raise ValueError(
                f"the {name} data have the label {int(some.y.max())}, but the model has {output.shape[1]} outputs"
            )


def _check_finite(algorithm: Algorithm, state: Any, data: ClientData, update: Update, key: Key) -> None:
    """Name the client whose training diverged, before it spoils the average."""
    if _finite(update):
        return
    guilty = update.clients
    while len(guilty) > 1:  # training is deterministic: train one half again, and go on with the half that diverges
        half = guilty[: len(guilty) // 2]
        guilty = guilty[len(half) :] if _finite(algorithm.train(state, data[half], half, key)) else half
    if _finite(algorithm.train(state, data[guilty], guilty, key)):
        raise FloatingPointError(
            f"the sum over the cohort became NaN or infinite in round {key.round}, though no client's parameters did; "
            "use a wider dtype"
        )
    raise FloatingPointError(
        f"the loss or the parameters of client {int(data.id[guilty[0]])} became NaN or infinite in round {key.round}; "
        "lower the learning rate, or look for extreme values in this client's data"
    )


def _finite(update: Update) -> bool:
    """Whether all numbers of an update are finite; asks the device once."""
    flags: list[Tensor] = []

    def collect(tree: Any) -> None:
        if isinstance(tree, Tensor):
            flags.append(tree.isfinite().all())
        elif isinstance(tree, dict):
            for branch in tree.values():
                collect(branch)

    for tree in (update.log, update.sums, update.rows, update.kept):
        collect(tree)
    return not flags or bool(torch.stack(flags).all())
