"""Run a federation, with everything around the rounds and nothing specific to a method."""

import builtins
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from .algorithm import Algorithm
from .checks import check_alike, check_digits, check_number, check_params, check_whole, in_order
from .costs import open_costs
from .data import ClientData, positions
from .evaluation import Result, check_result, first_params, pooled, score
from .keys import Key
from .params import Params
from .progress_bar import rounds_of
from .round import all_finite, one_round
from .trial import check_loss

__all__ = ["choose_device", "fit", "new_clients"]

Callback = Callable[[int, Any, dict[str, Any]], None]


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
    lost: float = 0.0,
    checkpoint: Any = None,
    device: str | torch.device = "auto",
    dtype: torch.dtype | None = None,
    progress: bool = True,
) -> Result:
    """Run a federation.

    Parameters
    ----------
    algorithm : Algorithm
    params : Params
        One set of parameters, from which all clients start.
    data : ClientData
        Training examples of K clients. They are sorted by id first, so the given order does not matter.
    rounds : int
        Communication rounds.
    clients_per_round : int, optional
        C, the number of clients in a cohort; all K by default.
    seed : int
        Seed of cohorts, shuffling and everything that the algorithm draws.
    eval_data : ClientData or mapping of str to ClientData, optional
        Evaluation sets, scored after a round; a single set is called "test". Clients are matched by id.
    eval_every : int
        Score after each round whose number is a multiple of this, and after the last.
    callbacks : sequence of callable
        Called after each round as ``callback(round, state, record)``; the numbers that they add to the dictionary
        `record` become columns of the history. A callback that raises StopIteration ends the run after this round.
    lost : float
        Probability that a client of the cohort is lost in mid-round. Such a client receives the model, but sends
        nothing back and forgets the round. A round in which all clients are lost changes nothing. With 0, no client is
        lost.
    checkpoint : Checkpoint, optional
        Where the run is stored from time to time (`fedlib.engines.checkpoint.Checkpoint`). If the file exists, the run
        resumes from it and ends as if it had never stopped. More `rounds` extend a finished run; its former last round
        stays scored.
    device : str or torch.device
        "auto" is CUDA if available, otherwise the CPU.
    dtype : torch.dtype, optional
        Floating-point type for training; by default that of `params`.
    progress : bool
        Show a progress bar on stderr; inside `fedlib.progress_bar.progress`, advance that bar instead.

    Returns
    -------
    Result

    Raises
    ------
    ValueError
        Invalid arguments (no rounds, a cohort larger than the population, parameters that do not fit the model, a loss
        that counts padding), or a checkpoint of another run; the message says what differs.
    FloatingPointError
        A client's loss or update became NaN or infinite; the message names the client and the round.
    TypeError
        `aggregate` changed the type of a model.

    Warns
    -----
    UserWarning
        The run was too short for something that the settings of `algorithm` promise, such as fine-tuning or a test for
        clusters, or `dtype` cannot distinguish the targets.

    Notes
    -----
    The same seed gives the same result for any order of the clients, with or without evaluation. `params` and `data`
    are never modified. On a CPU, torch's kernels use one thread for each core, unless ``OMP_NUM_THREADS`` or
    `torch.set_num_threads` says otherwise. Chapters 01 and 16.

    Examples
    --------
    Thirty rows of two features in three classes, distributed among three clients:

    >>> import torch
    >>> from fedlib import fit, losses, models, partition
    >>> from fedlib.algorithms import FedAvg
    >>> x, y = torch.randn(30, 2), torch.arange(30) % 3
    >>> data = partition.iid(y, 3).clients(x, y)
    >>> model = models.MLP((2, 8, 3))
    >>> def loss(params, batch):
    ...     x, y, w = batch
    ...     return losses.cross_entropy(model(params, x), y, w)
    >>> result = fit(FedAvg(loss, predict=model), model.init(0), data, rounds=5, eval_data=data, progress=False)
    >>> len(result.history)
    5
    """
    if not (eval_data is None or isinstance(eval_data, (ClientData, Mapping))):
        got = type(eval_data).__name__
        raise TypeError(f"eval_data must be ClientData, or a dictionary of ClientData by name; got a {got}")
    tests = {"test": eval_data} if isinstance(eval_data, ClientData) else dict(eval_data or {})
    _check(algorithm, callbacks, checkpoint, {"data": data} | {f"eval_data[{n!r}]": some for n, some in tests.items()})
    check_params(params)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype must be a floating-point type such as torch.float64, got {dtype!r}")
    device, dtype = choose_device(device), dtype or next(iter(params.values())).dtype
    params = {name: p.detach().to(device, dtype, copy=True).contiguous() for name, p in params.items()}
    check_digits(data.y, dtype)
    data = data.to(device, dtype).sorted()
    tests = {name: some.to(device, dtype) for name, some in tests.items()}
    places = {name: positions(data.id, some, f"the evaluation set {name!r}", data.name) for name, some in tests.items()}
    tests = {n: check_alike(data, some, n, algorithm.predict is None) for n, some in tests.items()}
    check_whole(rounds, "rounds")
    check_whole(eval_every, "eval_every")
    check_number(lost, "lost", below=1)
    size = len(data) if clients_per_round is None else clients_per_round
    check_whole(size, "clients_per_round", most=len(data))
    check_loss(algorithm.loss, algorithm.predict, params, data, tests)
    stored: Any = (0, False, None, [])
    if checkpoint is not None:
        settings = {"seed": seed, "clients_per_round": size, "lost": lost, "eval_every": eval_every}
        parts = {"params": params, "data": data} | {f"evaluation set {n}": some for n, some in tests.items()}
        stored = checkpoint.open(settings | {"algorithm": algorithm}, parts) or stored
    done, stopped, state, history = stored
    if done > rounds:
        raise ValueError(f"the checkpoint is at round {done}, beyond rounds={rounds}; give more rounds or another path")
    rounds, stopped = (done if stopped and callbacks else rounds), False  # a callback ended the run there
    with open_costs() as costs, rounds_of(type(algorithm).__name__, rounds, progress) as advance:
        if state is None:
            start = time.perf_counter()
            state = algorithm.prepare(algorithm.init(params, data, Key(seed)), data, Key(seed))
            before = costs.take()
            if any(before.values()):
                history = [{"round": 0, "clients": len(data), "seconds": time.perf_counter() - start} | before]
            if checkpoint is not None:
                checkpoint.write(state, 0, history, last=True)  # a state that cannot be stored fails before the work
        advance(done)
        try:
            for t in range(done + 1, rounds + 1):
                after, entry = one_round(algorithm, state, data, size, Key(seed, t), costs, lost)
                scored = t % eval_every == 0 or t == rounds
                if scored:
                    served = algorithm.client_params(after, torch.zeros_like(data.id[:1]))
                    if drift := [n for n, p in served.items() if p.is_floating_point() and p.dtype != dtype]:
                        raise TypeError(
                            f"after round {t} {drift[0]!r} is {served[drift[0]].dtype} in a run with {dtype}; cast "
                            "in aggregate, such as p + step.to(p)"
                        )
                    if not all_finite([served]):
                        raise FloatingPointError(
                            f"the server's model became NaN or infinite in round {t}, after finite updates; lower its "
                            "learning rate, or look at aggregate. The rounds before are in error.result"
                        )
                    entry |= _scores(algorithm, after, tests, places)
                for callback in callbacks:
                    try:
                        callback(t, after, entry)
                    except StopIteration:
                        stopped = True
                if stopped and not scored:
                    entry |= _scores(algorithm, after, tests, places)
                state = after  # together with the history, so that after an error both are of the same round
                history.append({c: v.squeeze().tolist() if hasattr(v, "squeeze") else v for c, v in entry.items()})
                advance(1, history[-1])
                if checkpoint is not None:
                    checkpoint.write(state, t, history, last=stopped or t == rounds, stopped=stopped and t < rounds)
                if stopped:
                    break
        except BaseException as error:
            so_far = Result(state, data.id, pd.DataFrame(history), data.name, tuple(data.columns))
            error.result = so_far  # type: ignore[attr-defined]
            if not (isinstance(error, KeyboardInterrupt) and hasattr(builtins, "get_ipython") and history):
                raise
            warnings.warn(f"interrupted: the result holds {len(history)} rows of the history", stacklevel=2)
            return so_far
    if unreached := algorithm.unreached(state, history[-1]["round"]):
        warnings.warn(unreached, stacklevel=2)
    return Result(state, data.id, pd.DataFrame(history), data.name, tuple(data.columns))


def _scores(
    algorithm: Algorithm, state: Any, tests: Mapping[str, ClientData], places: Mapping[str, torch.Tensor]
) -> dict[str, float]:
    """The history's columns for the evaluation sets."""
    found = {name: pooled(score(algorithm, state, some, places[name])) for name, some in tests.items()}
    return {f"{name}_{column}": value for name, scores in found.items() for column, value in scores.items()}


def _check(algorithm: Any, callbacks: Any, checkpoint: Any, data: Mapping[str, Any]) -> None:
    if not isinstance(algorithm, Algorithm):
        raise TypeError(f"algorithm must be an instance such as FedAvg(loss), got {algorithm!r}")
    if not isinstance(callbacks, (list, tuple)) or not all(map(callable, callbacks)):
        raise TypeError("callbacks must be a list of functions callback(round, state, record)")
    if checkpoint is not None and not hasattr(checkpoint, "write"):
        raise TypeError(f"checkpoint must be an object such as fedlib.Checkpoint(path), got {checkpoint!r}")
    for name, some in data.items():
        if not isinstance(some, ClientData):
            raise TypeError(f"{name} must be ClientData, as stack_clients or stack_rows makes it; got {type(some)}")
    if "eval_data['train']" in data:
        raise ValueError('an evaluation set cannot be called "train": train_loss is the loss in training')


def new_clients(algorithm: Algorithm, result: Result, data: ClientData, rounds: int = 1, seed: int = 0) -> Result:
    """Serve clients that were never seen in training, by the rule that the algorithm has for them.

    Parameters
    ----------
    algorithm : Algorithm
    result : Result
        Result of the training.
    data : ClientData
        Examples to which the new clients adapt; keep others for testing.
    rounds : int
        Rounds of local training that a new client may spend if the algorithm needs any.
        `fedlib.algorithms.local_only.LocalOnly` uses all of them; FedAvg, FedProx, SCAFFOLD and FedOpt hand out the
        server's model and need none.
    seed : int

    Returns
    -------
    Result
        As of `fit`, with the new clients instead of the old ones, for `fedlib.evaluation.evaluate`.

    Raises
    ------
    ValueError
        A client that was in training.
    TypeError
        A result of another algorithm.
    FloatingPointError
        Local training of the new clients diverged.

    Examples
    --------
    With ``loss``, ``model`` and ``data`` as in the example of `fedlib.federation.fit`:

    >>> from fedlib import new_clients
    >>> from fedlib.algorithms import LocalOnly
    >>> alone = LocalOnly(loss, predict=model)
    >>> result = fit(alone, model.init(0), data[[0, 1]], rounds=2, progress=False)
    >>> new_clients(alone, result, data[[2]], rounds=2).state is not None
    True
    """
    check_result(algorithm, result, data)
    first = next(iter(first_params(algorithm, result).values()))
    known = data.id[torch.isin(data.id, result.ids.to(data.id.device))]
    if len(known):
        raise ValueError(f"clients {known[:5].tolist()} were in training; new_clients is for clients never seen")
    data = in_order(data.to(first.device, first.dtype).sorted(), result.columns)
    state = algorithm.new_clients(result.state, data, Key(seed), check_whole(rounds, "rounds"))
    if not all_finite(algorithm.client_params(state, torch.arange(len(data), device=first.device))):
        raise FloatingPointError("the parameters of a new client became NaN or infinite; lower the learning rate")
    return Result(state, data.id, result.history, data.name, result.columns)


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """The device to train on, where "auto" is CUDA if available and otherwise the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)
