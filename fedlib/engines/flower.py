"""Run an algorithm of fedlib as a Flower app, with separate programs for the server and each client.

The ServerApp holds the algorithm's state, draws cohorts and aggregates. A ClientApp holds the examples of one client
and the fields of the state that this client keeps. It runs `fedlib.algorithm.Algorithm.train` on a state of one client,
in which only the fields from the server and the client's own rows are filled in. The fields of the state declare what
is sent and what a client keeps (`fedlib.algorithm.held`). Random numbers depend on a client's id and the round, so the
result is that of `fedlib.federation.fit` with the same seed, up to rounding.

Tensors travel as arrays of Flower's messages, and numbers as their configuration and metrics; nothing is pickled.
Flower is imported only when an app is created. Install it with ``pip install "fedlib-book[flower]"``.
"""

import logging
import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from ..algorithm import Algorithm, Update, each, held_fields
from ..checks import check_whole
from ..data import ClientData
from ..evaluation import Result
from ..federation import choose_device
from ..keys import Key
from ..params import Params, number_of_rows
from ..round import refuse_divergence
from ..trial import check_loss
from .checkpoint import Checkpoint, load_state, save_state
from .paths import flatten, unflatten

__all__ = ["client_app", "leaves_client", "load_result", "server_app"]

Arrays = dict[str, Tensor]  # what crosses the wire, by paths such as models/dense1.weight
_LOOK_SECONDS = 1.0  # between two polls for answers and returning clients
_PATIENCE = 600.0  # seconds until a silent client is asked again, in case a message was lost; doubled each time
_GONE = (3, 4, 5, 8)  # Flower's codes for a message, a reply, a node or a client's program that is lost
_log = logging.getLogger("flwr")


# ---- the work of both sides, without Flower ----


class _Refused(ValueError):
    """An access to examples on the server, which has none."""


class _IdsOnly(ClientData):
    """Clients as the server knows them, with ids and numbers of examples only."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("x", "y", "index"):
            raise _Refused(name)
        return super().__getattribute__(name)


@dataclass(frozen=True)
class _Answer:
    """A client's answer, with its sums and rows, the index of the model they are for, and numbers for the history."""

    arrays: Arrays
    place: int
    log: dict[str, float]


def _start(algorithm: Algorithm, params: Params, ids: Tensor, n: Tensor, seed: int) -> Any:
    """The server's state before round 1; in fields that clients keep, the K rows are empty."""
    none = torch.zeros(0)
    data = _IdsOnly(none, none, none, n, ids)
    try:
        state = algorithm.prepare(algorithm.init(params, data, Key(seed)), data, Key(seed))
    except _Refused:
        raise ValueError(
            f"{type(algorithm).__name__}, with these settings, cannot be served: before round 1 it looks at the "
            "examples of all clients, which here nobody has. Run it with fedlib.fit, or take another algorithm"
        ) from None
    if not any("held" in f.metadata for f in fields(state)):
        raise ValueError(f"{type(state).__name__} does not say who holds its fields; see fedlib.algorithm.held")
    return replace(state, **each(lambda p: p.new_zeros(len(ids), 0), held_fields(state, "client")))


def _message(state: Any, position: int) -> Arrays:
    """Fields of the state for the client at this position, some with only the row of its cluster."""
    of_its_cluster = each(
        lambda p: p[state.assignment[position : position + 1]], held_fields(state, "server and its cluster")
    )
    return flatten(held_fields(state, "server and clients") | of_its_cluster)


def _train(
    algorithm: Algorithm, params: Params, data: ClientData, sent: Arrays, key: Key, kept: Mapping[str, Any] | None
) -> tuple[_Answer, dict[str, Any]]:
    """One client's work in a round, which gives its answer and the fields that it keeps if the round counts.

    `kept` holds the fields that it kept after the last round that counted, or None if there was none.
    """
    algorithm = _for_one(algorithm)
    state = replace(algorithm.init(params, data, Key(key.seed)), **unflatten(sent), **(kept or {}))
    update = algorithm.train(state, data, torch.zeros_like(data.n), key)
    refuse_divergence(update, data.id, key)
    sums = flatten({"summed": update.summed})
    rows = {i for p in sums.values() for i in p.reshape(len(p), -1).any(1).nonzero()[:, 0].tolist()}
    (place,) = rows or {0}  # a client contributes to the sums of one model
    arrays = {path: p[place : place + 1] for path, p in sums.items()} | flatten({"per_client": update.per_client})
    return _Answer(arrays, place, {name: float(v[0]) for name, v in update.log.items()}), update.client_state


def _aggregate(algorithm: Algorithm, state: Any, answers: Mapping[int, _Answer], key: Key) -> Any:
    """The server's state after a round, from the answers that arrived, in ascending order of clients' positions."""
    clients, parts = torch.tensor(list(answers)), list(answers.values())
    places = torch.tensor([a.place for a in parts])
    if held_fields(state, "server and its cluster"):
        places = state.assignment[clients]
    models = number_of_rows(state.models) if getattr(state, "models", None) else 1
    tree = unflatten({path: torch.cat([a.arrays[path] for a in parts]) for path in parts[0].arrays})
    summed = each(lambda p: p.new_zeros(models, *p.shape[1:]).index_add_(0, places, p), tree.get("summed", {}))
    return algorithm.aggregate(state, Update(clients, summed, tree.get("per_client", {}), key=key))


def leaves_client(algorithm: Algorithm, params: Params, data: ClientData) -> pd.DataFrame:
    """Everything that one client sends in a round, from a trial of the first round.

    Parameters
    ----------
    algorithm : Algorithm
    params : Params
    data : ClientData
        The trial takes its first client.

    Returns
    -------
    pandas.DataFrame
        ``name``, ``shape``, ``type`` and ``bytes`` (of the numbers, without headers) of each item sent. When it is
        first seen, and again after a restart, a client also sends its id and its number of examples.

    Raises
    ------
    ValueError
        An algorithm that cannot be served.
    """
    one = data[:1].to("cpu", next(iter(params.values())).dtype)
    sent = _message(_start(_for_one(algorithm), params, one.id, one.n, 0), 0)
    answer, _ = _train(algorithm, params, one, sent, Key(0, 1), None)
    rows = [(name, tuple(p.shape), str(p.dtype).removeprefix("torch."), p.nbytes) for name, p in answer.arrays.items()]
    rows += [(f"log/{name}", (), "float64", 8) for name in answer.log] + [("place", (), "int64", 8)]
    return pd.DataFrame(rows, columns=["name", "shape", "type", "bytes"])


def _for_one(algorithm: Algorithm) -> Algorithm:
    """The algorithm without the assignment of all K clients to clusters, which only the server applies."""
    given = getattr(algorithm, "assignment", None)
    return algorithm if given is None else replace(algorithm, assignment=None)  # type: ignore[call-arg]


# ---- the server ----


def server_app(
    algorithm: Algorithm,
    params: Params,
    clients: int,
    rounds: int,
    checkpoint: str | os.PathLike,
    clients_per_round: int | None = None,
    *,
    seed: int = 0,
    timeout: float | None = None,
) -> Any:
    """The ServerApp of a federation.

    Parameters
    ----------
    algorithm, params, rounds, clients_per_round, seed
        As in `fedlib.federation.fit`.
    clients : int
        K. Round 1 begins once K clients with different ids are connected; later ones do not take part. A run that
        resumes from its checkpoint waits for the clients that it began with.
    checkpoint : path
        File in which the server's state is stored after each round; `load_result` reads it. If the file exists, the run
        resumes from it.
    timeout : float, optional
        Seconds after which a client that has not answered is lost for the round and forgets it, as with `lost` in
        `fedlib.federation.fit`. None waits for as long as it takes. If a client comes back in time, as a new node after
        a restart, it is asked again and nothing is lost. A silent client is asked again after 10 minutes, and then
        after twice as long each time.

    Returns
    -------
    flwr.serverapp.ServerApp

    Raises
    ------
    ImportError
        Flower is not installed.
    ValueError
        A setting out of its range; an algorithm that cannot be served; a checkpoint of another run.
    """
    flwr = _flwr()
    check_whole(rounds, "rounds")
    size = check_whole(clients if clients_per_round is None else clients_per_round, "clients_per_round", most=clients)
    params = {name: p.detach().cpu().contiguous() for name, p in params.items()}
    some = torch.arange(clients)
    _start(algorithm, params, some, some + 1, seed)  # raises before any waiting if the algorithm cannot be served
    app = flwr.serverapp.ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        nodes = _Nodes(flwr, grid, math.inf if timeout is None else timeout)
        settings = {"algorithm": algorithm, "seed": seed, "clients": clients, "clients_per_round": size}
        file = Checkpoint(checkpoint, every_seconds=0)
        stored = file.open(settings, {"params": params})
        ids = nodes.wait_for(clients, None if stored is None else stored[2]["ids"].tolist())
        if stored is None:
            n = torch.tensor([nodes.n[i] for i in ids.tolist()])
            state = _start(algorithm, params, ids, n, seed)
            # `counted` is the last round of each client that counted; `run` names the run and outlives this program.
            stored = 0, False, {"state": state, "ids": ids, "counted": ids * 0, "run": str(context.run_id)}, []
        done, _, run, history = stored
        for t in range(done + 1, rounds + 1):
            run, entry = _round(algorithm, run, size, Key(seed, t), nodes)
            history.append(entry)
            file.write(run, t, history)
            _log.info("round %d of %d, %d of %d clients, %.1f s", t, rounds, entry["clients"], size, entry["seconds"])
        if unreached := algorithm.unreached(run["state"], rounds):
            _log.warning(unreached)

    return app


def _round(algorithm: Algorithm, run: dict[str, Any], size: int, key: Key, nodes: "_Nodes") -> tuple[Any, Any]:
    """Run one round, which gives what is stored after it and its entry in the history."""
    start, state, ids, counted = time.perf_counter(), run["state"], run["ids"].tolist(), run["counted"]
    cohort = algorithm.cohort(state, run["ids"], size, key).sort().values.tolist()
    sent = {k: _message(state, k) for k in cohort}
    about = {"run": run["run"], "seed": str(key.seed), "round": key.round}  # text, as integers end at 2^63
    messages = {ids[k]: _record(nodes.flwr, sent[k], about | {"counted": int(counted[k])}) for k in cohort}
    replies = nodes.ask(messages, key.round)
    answers = {k: _read(replies[ids[k]]) for k in cohort if ids[k] in replies}
    entry: dict[str, Any] = {"round": key.round, "clients": len(answers)}
    if answers:
        state = _aggregate(algorithm, state, answers, key)
        counted = counted.index_fill(0, torch.tensor(list(answers)), key.round)
        n = {k: nodes.n[ids[k]] for k in answers}
        for name in next(iter(answers.values())).log:
            entry[f"train_{name}"] = sum(n[k] * a.log[name] for k, a in answers.items()) / sum(n.values())
    entry["seconds"] = time.perf_counter() - start
    entry["bytes_down"] = sum(p.nbytes for arrays in sent.values() for p in arrays.values())
    entry["bytes_up"] = sum(p.nbytes for a in answers.values() for p in a.arrays.values())
    return {**run, "state": state, "counted": counted}, entry


class _Nodes:
    """The Flower node of each client; a client that comes back has a new node."""

    def __init__(self, flwr: Any, grid: Any, timeout: float) -> None:
        self.flwr, self.grid, self.timeout = flwr, grid, timeout
        self.node: dict[int, int] = {}  # by client
        self.n: dict[int, int] = {}
        self.known: set[int] = set()
        self.greeted: dict[str, int] = {}  # nodes that have not identified themselves yet, by message

    def look(self) -> None:
        """Ask new nodes which client they serve, and read the answers."""
        for node in set(self.grid.get_node_ids()) - self.known:
            if self._push(_record(self.flwr, {}, {}), node, "query", 0, self.greeted, node):
                self.known.add(node)
        for node, reply in self._pull(self.greeted):
            if reply is None:
                self.known.discard(node)
            else:
                client = reply["config"]["client"]
                self.node[client], self.n[client] = node, reply["config"]["n"]
                _log.info("client %d is there, at node %d; the number of clients is %d", client, node, len(self.n))

    def wait_for(self, clients: int, known: list[int] | None) -> Tensor:
        """Ids of the first `clients` clients, or of those `known` from an earlier start, in ascending order."""
        while not (len(self.n) >= clients if known is None else self.n.keys() >= set(known)):
            self.look()
            time.sleep(_LOOK_SECONDS)
        return torch.tensor(sorted(known or list(self.n)[:clients]))

    def ask(self, messages: Mapping[int, Any], round: int) -> dict[int, Any]:
        """Answers by client, without the clients that have not answered in time."""
        end = time.monotonic() + self.timeout
        asked: dict[int, tuple[int, float, float]] = {}  # node, when to ask again, and how long after that, by client
        waiting: dict[str, tuple[int, int]] = {}  # client and node, by message
        answers: dict[int, Any] = {}
        while True:
            self.look()
            now = time.monotonic()
            for client in (messages.keys() - answers.keys()) & self.node.keys():
                here, (node, again, patience) = self.node[client], asked.get(client, (-1, now, _PATIENCE))
                if node == here and now < again:
                    continue  # else this is the first request, or the client is back or silent
                if self._push(messages[client], here, "train", round, waiting, (client, here)):
                    asked[client] = here, now + patience, 2 * patience
            for (client, node), reply in self._pull(waiting):
                if reply is not None:
                    answers[client] = reply
                elif self.node.get(client) == node:  # if its program is gone but not the node, greet the node again
                    self.known.discard(self.node.pop(client))
                    asked.pop(client, None)
            if len(answers) == len(messages) or time.monotonic() > end:
                return answers
            time.sleep(_LOOK_SECONDS)

    def _push(self, content: Any, node: int, kind: str, round: int, waiting: dict[str, Any], who: Any) -> bool:
        message = self.flwr.app.Message(content, dst_node_id=node, message_type=kind, group_id=str(round))
        sent = next(iter(self.grid.push_messages([message])), None)
        if sent is not None:
            waiting[sent] = who
        return sent is not None

    def _pull(self, waiting: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        """Pairs of a recipient and its answer, or None if it is gone; an error at a client ends the run."""
        for reply in self.grid.pull_messages(list(waiting)) if waiting else ():
            who = waiting.pop(reply.metadata.reply_to_message_id)
            if reply.has_error() and reply.error.code not in _GONE:
                raise RuntimeError(f"Flower could not run a client's program: {reply.error.reason}")
            if not reply.has_error() and "error" in reply.content["config"]:
                raise RuntimeError(reply.content["config"]["error"])
            yield who, None if reply.has_error() else reply.content


def load_result(checkpoint: str | os.PathLike) -> Result:
    """The result that a server has stored.

    Returns
    -------
    Result
        As of `fedlib.federation.fit`, except that the rows of fields that clients keep are empty. The history has the
        training loss, seconds and bytes. The algorithm's module must be imported.
    """
    run, meta = load_state(checkpoint)
    return Result(run["state"], run["ids"], pd.DataFrame(meta["history"]))


# ---- a client ----


class _ClientError(ValueError):
    """An error that a client reports to the server; its text contains no data."""


def client_app(
    algorithm: Algorithm,
    params: Params,
    data_of: Callable[[Any], ClientData],
    folder: str | os.PathLike | None = None,
    device: str | torch.device = "auto",
) -> Any:
    """The ClientApp of a federation.

    Parameters
    ----------
    algorithm, params
        As in `server_app`.
    data_of : callable
        ``data_of(context) -> ClientData`` of this client alone, with its id; `context` is Flower's, and
        ``context.node_config["partition-id"]`` is the client's number if the node was started with one.
    folder : path, optional
        Where the client stores what it keeps, in a separate file that survives a restart. Required if the algorithm
        lets clients keep anything, as SCAFFOLD, LocalOnly, LG-FedAvg and LGCFL do.
    device : str or torch.device
        As in `fedlib.federation.fit`.

    Returns
    -------
    flwr.clientapp.ClientApp

    Raises
    ------
    ImportError
        Flower is not installed.
    ValueError
        An algorithm that cannot be served; a folder that is missing.
    """
    flwr, one = _flwr(), torch.ones(1, dtype=torch.int64)
    keeps = held_fields(_start(_for_one(algorithm), params, one, one, 0), "client")
    if keeps and folder is None:
        raise ValueError(f"{type(algorithm).__name__} lets clients keep {', '.join(keeps)}; say in which folder")
    app, place = flwr.clientapp.ClientApp(), choose_device(device)
    params = {name: p.to(place) for name, p in params.items()}

    def own(context: Any) -> ClientData:
        data = data_of(context)
        if not isinstance(data, ClientData) or len(data) != 1:
            raise _ClientError("data_of must give the ClientData of one client, such as all_clients[[k]]")
        return data.to(place, next(iter(params.values())).dtype)

    def hello(message: Any, context: Any) -> Any:
        data = own(context)
        check_loss(algorithm.loss, algorithm.predict, params, data, {})
        return _record(flwr, {}, {"client": int(data.id[0]), "n": int(data.n[0])})

    def train(message: Any, context: Any) -> Any:
        data, about = own(context), message.content["config"]
        sent = {name: p.to(place) for name, p in message.content["arrays"].to_torch_state_dict().items()}
        key, counted = Key(int(about["seed"]), about["round"]), about["counted"]
        file = Path(folder or "") / f"client{int(data.id[0])}.safetensors"
        kept = _recall(file, about["run"], counted, place) if keeps and counted else None
        answer, new = _train(algorithm, params, data, sent, key, kept)
        if keeps:
            # Store both, because only the server knows whether this answer arrives, and tells which round counted
            # last. So a client that is asked twice gives the same answer twice.
            file.parent.mkdir(parents=True, exist_ok=True)
            save_state(file, {"run": about["run"], "rounds": {counted: kept, key.round: new}}, {})
        return _record(flwr, answer.arrays, {"place": answer.place}, answer.log)

    def answering(work: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def answer(message: Any, context: Any) -> Any:
            try:
                content = work(message, context)
            except Exception as error:
                _log.exception("this client could not answer")
                known = isinstance(error, (_ClientError, FloatingPointError))  # other messages might reveal data
                reason = str(error) if known else f"{type(error).__name__}; the log of this client says more"
                content = _record(flwr, {}, {"error": f"node {context.node_id}: {reason}"})
            return flwr.app.Message(content, reply_to=message)

        return answer

    app.query()(answering(hello))
    app.train()(answering(train))
    return app


def _recall(file: Path, run: str, round: int, device: torch.device) -> Any:
    """The fields that a client kept after this round of this run."""
    stored = load_state(file, device)[0] if file.exists() else {"run": None, "rounds": {}}
    if stored["run"] != run or round not in stored["rounds"]:
        raise _ClientError(
            f"{file.stem} has lost what it kept after round {round} of run {run}: {file} is missing or belongs to "
            "another run. Bring it back, or start a new run with another checkpoint"
        )
    return stored["rounds"][round]


# ---- Flower ----


def _flwr() -> Any:
    try:
        import flwr.app
        import flwr.clientapp
        import flwr.serverapp
    except ImportError as error:
        raise ImportError(f'this needs Flower ({error}): pip install "flwr[simulation]"') from error
    return flwr


def _record(flwr: Any, arrays: Arrays, config: dict[str, Any], log: dict[str, float] | None = None) -> Any:
    tensors = flwr.app.ArrayRecord(torch_state_dict=OrderedDict(arrays))
    numbers = {"config": flwr.app.ConfigRecord(config), "log": flwr.app.MetricRecord(log or {})}
    return flwr.app.RecordDict({"arrays": tensors, **numbers})


def _read(reply: Any) -> _Answer:
    return _Answer(reply["arrays"].to_torch_state_dict(), reply["config"]["place"], dict(reply["log"]))
