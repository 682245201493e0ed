"""Positive transfer, the gain of two clients from federating, for all pairs at once (FedSGCNN section 4.1)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from .. import evaluation
from ..checks import check_whole
from ..costs import COLUMNS, open_costs, record
from ..data import ClientData
from ..keys import Key
from ..params import Params
from ..round import one_round
from ..trial import check_loss

__all__ = ["Score", "Transfer", "all_pairs", "best_clusters", "federated_score", "hold_back", "positive_transfer"]

Score = Literal["loss", "r2", "accuracy"]


@dataclass(frozen=True)
class Transfer:
    """Positive transfer of P pairs, measured R times.

    Attributes
    ----------
    pairs : Tensor of shape (P, 2), int64
        Positions of the clients in ascending order of ids.
    gain : Tensor of shape (R, P), float64
        PT, the mean over the pair of the score after federation minus the score alone; above 0, federating helps.
    local : Tensor of shape (R, K), float64
        Score of each client alone; NaN for a client that is in no pair.
    federated : Tensor of shape (R, P, 2), float64
        Scores of both clients after the federation of the pair.
    """

    pairs: Tensor
    gain: Tensor
    local: Tensor
    federated: Tensor


def hold_back(data: ClientData, share: float, key: Key) -> tuple[ClientData, ClientData]:
    """Split each client's rows for training and validation, holding back `share` of them, at least one and not all.

    Raises
    ------
    ValueError
        The share is not between 0 and 1, or a client has only one row.
    """
    n = data.n
    if not 0 < share < 1 or int(n.min()) < 2:
        raise ValueError(
            f"validation={share} must be ClientData, or a share between 0 and 1 of at least 2 rows a client"
        )
    back = (n * share).round().long().clamp(min=1).minimum(n - 1)
    order = key.permutations(data.id, "validation", n, 1, data.index.shape[1])[:, 0]

    def part(first: Tensor, size: Tensor) -> ClientData:
        place = torch.arange(int(size.max()), device=n.device)
        which = order.gather(1, first[:, None] + torch.where(place < size[:, None], place, 0))
        return data.at(which, size)

    return part(back, n - back), part(torch.zeros_like(n), back)


def all_pairs(clients: int) -> Tensor:
    """All pairs of K clients, (0, 1), (0, 2), ..., (K - 2, K - 1), of shape (K (K - 1) / 2, 2), int64."""
    return torch.triu_indices(clients, clients, 1).T.contiguous()


def positive_transfer(
    algorithm: Any,
    starts: Sequence[Params],
    train: ClientData,
    validation: ClientData,
    rounds: int,
    pairs: Tensor | None = None,
    score: Score = "loss",
    seed: int = 0,
) -> Transfer:
    """Let pairs of clients federate, each pair separately but all pairs in one stack (FedSGCNN Step 3).

    Parameters
    ----------
    algorithm : LGFedAvg
        How a pair federates; its `assignment` is not used. Alone, a client trains with the same settings but without
        the MMD, because all its layers are local.
    starts : sequence of R Params
        Initial parameters of all clients, one set for each repeat.
    train : ClientData
        Training rows of K clients.
    validation : ClientData
        Rows on which the gain is measured, matched by id; never those of the final test.
    rounds : int
        Rounds of each pair, and of each client alone.
    pairs : Tensor of shape (P, 2), int64, optional
        Positions in ascending order of ids; `all_pairs` by default.
    score : {"loss", "r2", "accuracy"}
        Score that measures the gain, either minus the algorithm's loss or the score of `predict` in
        `fedlib.evaluation.evaluate`.
    seed : int
        Seed of the draws; repeat r uses ``seed + r``.

    Returns
    -------
    Transfer
        On the CPU. With "r2", the gain of a pair is NaN if the validation targets of one of its clients are all equal.

    Raises
    ------
    ValueError
        A pair joins a client with itself, a client has no validation rows, or `predict` does not give the score.
    FloatingPointError
        A client's loss or update became NaN or infinite.

    Notes
    -----
    A pair gets the same result as from `fedlib.federation.fit` with its two clients and ``seed + r``. Draws depend on
    the clients' ids, so a client has the same mini-batches with each partner and alone. Only the centroid of the MMD is
    drawn by the number of the pair. Clients in no pair do not train. All costs, including the bytes of models, are
    added to the open costs under the purpose "transfer". One stack holds 2P models. Chapter 12.
    """
    check_whole(rounds, "rounds")
    dtype = next(iter(starts[0].values())).dtype
    train, validation = (data.to(train.n.device, dtype).sorted() for data in (train, validation))
    starts = [{name: p.detach().to(train.n.device) for name, p in start.items()} for start in starts]
    check_loss(algorithm.loss, algorithm.predict, starts[0], train, {"validation": validation})
    pairs = all_pairs(len(train)) if pairs is None else pairs.cpu()
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise ValueError("a pair must have two different clients; one of them is a client with itself")
    clients = pairs.unique()  # those in no pair do not train
    standalone = replace(algorithm, local=tuple(starts[0]), assignment=None, mmd=0.0)
    federation = replace(algorithm, assignment=torch.arange(len(pairs)).repeat_interleave(2))

    local = torch.full((len(starts), len(train)), torch.nan, dtype=torch.float64)  # l(theta_local)
    federated = torch.empty(len(starts), *pairs.shape, dtype=torch.float64)  # l(theta_fed)
    for r, start in enumerate(starts):
        options: dict[str, Any] = {"score": score, "seed": seed + r}
        local[r, clients] = federated_score(standalone, start, train[clients], validation, rounds, **options)
        both = federated_score(federation, start, train[pairs.flatten()], validation, rounds, **options)
        federated[r] = both.view_as(pairs)
    return Transfer(pairs, (federated - local[:, pairs]).mean(-1), local, federated)


def federated_score(
    algorithm: Any,
    start: Params,
    train: ClientData,
    validation: ClientData,
    rounds: int,
    score: Score = "loss",
    seed: int = 0,
    purpose: str = "transfer",
) -> Tensor:
    """Score of each client on its validation rows after all have federated, of shape (K,), float64, on the CPU.

    Parameters as in `positive_transfer`, with one start, and

    Parameters
    ----------
    algorithm : Algorithm
    train : ClientData
        Unlike in `fedlib.federation.fit`, in the order of the algorithm's clients, and a client may occur several
        times.
    purpose : str
        Purpose of the costs. Chapter 12.
    """
    dtype = next(iter(start.values())).dtype
    train, validation = train.to(train.n.device, dtype), validation.to(train.n.device, dtype).sorted()
    if len(missing := train.id[~torch.isin(train.id, validation.id)]):
        raise ValueError(f"validation has no rows of clients {missing[:5].tolist()}; give rows of each client")
    with open_costs() as costs:
        start = {name: p.detach().to(train.n.device) for name, p in start.items()}
        state = algorithm.prepare(algorithm.init(start, train, Key(seed)), train, Key(seed))
        entries: list[dict[str, Any]] = [costs.take()]
        for t in range(1, rounds + 1):
            state, entry = one_round(algorithm, state, train, len(train), Key(seed, t), costs)
            entries.append(entry)
    record(purpose, **{column: sum(entry[column] for entry in entries) for column in COLUMNS})
    if score == "loss":
        algorithm = replace(algorithm, predict=None)
    validation = validation[torch.searchsorted(validation.id, train.id)]
    table = evaluation.score(algorithm, state, validation, torch.arange(len(train), device=train.n.device))
    if score not in table:
        raise ValueError(f"score {score!r} needs an algorithm with predict; there are {', '.join(table.columns[2:])}")
    return torch.tensor(table[score].to_numpy()) * (-1 if score == "loss" else 1)


def best_clusters(
    algorithm: Any, candidates: Iterable[Tensor], start: Params, train: ClientData, validation: ClientData, **given: Any
) -> Tensor:
    """Choose the clustering with the best mean score on the validation rows after its clusters have federated.

    Parameters
    ----------
    algorithm : LGFedAvg
        How each cluster federates; its `assignment` is not used.
    candidates : iterable of Tensor of shape (K,), int64
    start, train, validation, **given
        As in `federated_score`.

    Returns
    -------
    Tensor of shape (K,), int64
        The first one in a tie. Chapter 12.
    """

    def trial(assignment: Tensor) -> float:
        clustered = replace(algorithm, assignment=assignment)
        return float(federated_score(clustered, start, train, validation, **given).nanmean())

    return max(candidates, key=trial)
