"""Positive transfer: what two clients gain by federating, for all pairs at once, and simple ways to foresee it.

FedSGCNN section 4.1. A predictor gives a distance for each two clients; large means that they should not federate.
`fedlib.server.model_graph` has the paper's predictor; here are those to compare it with, and scores of any of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import permutations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .. import evaluation
from ..algorithm import Algorithm, Predict
from ..algorithms.local_only import LocalOnly
from ..checks import check_data, check_loss, check_params, check_whole
from ..costs import COLUMNS, open_costs, record
from ..data import Batch, ClientData
from ..keys import Key
from ..params import Params, to_matrix
from ..round import one_round
from .clusters import cosine_similarity

if TYPE_CHECKING:
    from ..algorithms.lg_fedavg import LGFedAvg

__all__ = [
    "Transfer",
    "all_pairs",
    "answer_distance",
    "between",
    "cosine_distance",
    "feature_overlap",
    "federated_score",
    "fit_threshold",
    "hand_made",
    "l2_distance",
    "logistic_pairs",
    "majority",
    "pair_scores",
    "positive_transfer",
    "repeat_auc",
    "ridge_pairs",
    "sign_agreement",
]

Score = Literal["loss", "r2", "accuracy"] | Callable[[Params, Batch], Tensor]
_COMPONENTS = 16  # principal components that stand for a client's features where these are more


@dataclass(frozen=True)
class Transfer:
    """Positive transfer of P pairs, measured R times.

    Attributes
    ----------
    pairs : Tensor of shape (P, 2), int64
        Positions of the clients in ascending order of ids.
    gain : Tensor of shape (R, P), float64
        Mean score of the pair after federation minus that of each alone: above 0 federating helps.
    local : Tensor of shape (R, K), float64
        Score of each client alone; NaN for one that is in no pair.
    federated : Tensor of shape (R, P, 2), float64
        Scores of both clients after the federation of the pair.
    """

    pairs: Tensor
    gain: Tensor
    local: Tensor
    federated: Tensor


def all_pairs(clients: int) -> Tensor:
    """Each two of K clients once: (0, 1), (0, 2), ..., (K - 2, K - 1); of shape (K (K - 1) / 2, 2), int64."""
    return torch.triu_indices(clients, clients, 1).T.contiguous()


def positive_transfer(
    algorithm: "LGFedAvg",
    starts: Sequence[Params],
    train: ClientData,
    validation: ClientData,
    rounds: int,
    pairs: Tensor | None = None,
    score: Score = "loss",
    seed: int = 0,
) -> Transfer:
    """Let pairs of clients federate, each pair for itself and all pairs in one stack (FedSGCNN Step 3).

    Parameters
    ----------
    algorithm : LGFedAvg
        How a pair federates; its `assignment` is not used. Alone, a client trains with the same settings, as
        `fedlib.algorithms.local_only.LocalOnly` and so without the MMD term.
    starts : sequence of R Params
        Where all clients start, one set of parameters for each repeat.
    train : ClientData
        Training rows of K clients.
    validation : ClientData
        Rows on which the gain is measured, matched by id; never those of the final test.
    rounds : int
        Rounds of each pair, and of each client alone.
    pairs : Tensor of shape (P, 2), int64, optional
        Positions in ascending order of ids; `all_pairs` by default.
    score : {"loss", "r2", "accuracy"} or callable
        What is gained: minus the algorithm's loss, or what `predict` scores in `fedlib.evaluation.evaluate`, or
        ``score(params, batch) -> scalar`` of one client. High is good.
    seed : int
        Repeat r draws with ``seed + r``.

    Returns
    -------
    Transfer
        On the CPU. With "r2", a pair has the gain NaN if one of its clients has equal validation targets only.

    Raises
    ------
    ValueError
        No starts; pairs that are none, or of clients that do not exist; a client of a pair without validation rows; a
        score that does not exist, or that `predict` does not give.
    FloatingPointError
        A client's loss or update became NaN or infinite.

    Notes
    -----
    The paper prints the difference of the losses the other way round, against its own text. Here a gain above 0 helps.
    A pair gets what `fedlib.federation.fit` gives for its two clients and ``seed + r``: draws follow the clients' ids,
    so a client has the same mini-batches with each partner and alone. Only the pool of the MMD term is drawn by the
    number of the pair. Clients in no pair do not train. All costs, bytes of models among them, go into the open ledger
    with the purpose "transfer". One stack holds 2P models. Chapter 08.
    """
    if not len(starts):
        raise ValueError("starts is empty: give one set of parameters for each repeat")
    if not (callable(score) or score in ("loss", "r2", "accuracy")):
        raise ValueError(f"score must be 'loss', 'r2', 'accuracy' or a function, got {score!r}")
    check_whole(rounds, "rounds")
    for start in starts:
        check_params(start)
    check_data(train, "train")
    check_data(validation, "validation")
    dtype = next(iter(starts[0].values())).dtype
    train = train.to(train.n.device, dtype).sorted()
    check_loss(algorithm.loss, algorithm.predict, starts[0], train, {"validation": validation})
    pairs = all_pairs(len(train)) if pairs is None else _checked(pairs, len(train))
    named, place = pairs.unique(return_inverse=True)  # the clients in pairs, and the pairs as places among these
    alone = train[named]
    if len(missing := alone.id[~torch.isin(alone.id, validation.id.to(alone.id.device))]):
        raise ValueError(
            f"validation has no rows of clients {missing[:5].tolist()}; give rows of each client in a pair"
        )
    validation = validation.to(train.n.device, dtype).sorted()
    validation = validation[evaluation.positions(validation.id, alone, "train")]
    partners = torch.arange(len(pairs)).repeat_interleave(2)
    together = replace(algorithm, assignment=partners.to(train.n.device))
    standalone = LocalOnly(**{f.name: getattr(algorithm, f.name) for f in fields(Algorithm)})

    local = torch.full((len(starts), len(train)), torch.nan, dtype=torch.float64)
    federated = torch.empty(len(starts), *pairs.shape, dtype=torch.float64)
    for r, start in enumerate(starts):
        state = _run(standalone, start, alone, rounds, seed + r)
        local[r, named] = _score(standalone, state, validation, score)
        state = _run(together, start, alone[place.flatten()], rounds, seed + r)
        federated[r] = _score(together, state, validation[place.flatten()], score).view_as(pairs)
    return Transfer(pairs, (federated - local[:, pairs]).mean(-1), local, federated)


def federated_score(
    algorithm: Algorithm,
    start: Params,
    train: ClientData,
    validation: ClientData,
    rounds: int,
    score: Score = "loss",
    seed: int = 0,
    purpose: str = "transfer",
) -> Tensor:
    """Score of each client on its validation rows after a federation of all, of shape (K,), float64, on the CPU.

    Parameters
    ----------
    algorithm : Algorithm
    start : Params
    train, validation : ClientData
        Of the same K clients.
    rounds : int
        With all clients in each.
    score
        As in `positive_transfer`.
    seed : int
    purpose : str
        Of the costs, in the open ledger. Chapter 08.
    """
    dtype = next(iter(start.values())).dtype
    train, validation = (d.to(train.n.device, dtype).sorted() for d in (train, validation))
    return _score(algorithm, _run(algorithm, start, train, rounds, seed, purpose), validation, score)


def _checked(pairs: Tensor, clients: int) -> Tensor:
    pairs = torch.as_tensor(pairs).cpu()
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs) or pairs.is_floating_point():
        raise ValueError(f"pairs must be whole numbers of shape (P, 2), at least one pair; got {pairs.tolist()!r:.80}")
    wrong = (pairs < 0).any(1) | (pairs >= clients).any(1) | (pairs[:, 0] == pairs[:, 1])
    if wrong.any():
        raise ValueError(
            f"a pair is two different positions from 0 to {clients - 1}; got {pairs[wrong][0].tolist()} among the pairs"
        )
    return pairs.long()


def _run(
    algorithm: Algorithm, start: Params, data: ClientData, rounds: int, seed: int, purpose: str = "transfer"
) -> Any:
    """The state after `rounds` rounds with all clients. Unlike `fit`, it takes the same client many times over."""
    like = data.x.new_empty(0, dtype=next(iter(start.values())).dtype)
    start = {name: p.detach().to(like) for name, p in start.items()}
    with open_costs() as ledger:
        state = algorithm.prepare(algorithm.init(start, data, Key(seed)), data, Key(seed))
        entries: list[dict[str, Any]] = [ledger.take()]
        for t in range(1, rounds + 1):
            state, entry = one_round(algorithm, state, data, len(data), Key(seed, t), ledger)
            entries.append(entry)
    record(purpose, **{column: sum(entry[column] for entry in entries) for column in COLUMNS})
    return state


def _score(algorithm: Algorithm, state: Any, data: ClientData, score: Score) -> Tensor:
    everybody = torch.arange(len(data), device=data.n.device)
    if score not in ("r2", "accuracy"):
        loss = algorithm.loss if score == "loss" else lambda params, batch: -score(params, batch)  # type: ignore[operator]
        table = evaluation.score(replace(algorithm, loss=loss, predict=None), state, data, everybody)
        return -torch.tensor(table["loss"].to_numpy())
    table = evaluation.score(algorithm, state, data, everybody)
    if score not in table:
        raise ValueError(
            f"score {score!r} needs an algorithm with predict, and {'real targets' if score == 'r2' else 'classes'} "
            f"in the data; there are {', '.join(table.columns[2:])}"
        )
    return torch.tensor(table[score].to_numpy())


def sign_agreement(gain: ArrayLike) -> float:
    """Share of (pair, two repeats) in which the two repeats agree whether the pair gains.

    Parameters
    ----------
    gain : array of shape (R, P)
        0 counts as no gain. A pair is left out of two repeats if one is NaN.

    Returns
    -------
    float
        From 0 to 1, a; NaN for a single repeat.

    Notes
    -----
    It bounds every predictor that does not know the start of the run, but is not the bound: if a pair gains in a share
    p of all runs, two runs agree with chance p^2 + (1 - p)^2, and the best guess is right with chance max(p, 1 - p). So
    such a predictor cannot be expected to be right about a run more often than (1 + sqrt(2 a - 1)) / 2; a = 0.68 gives
    0.80. Chapter 08.
    """
    gain = np.atleast_2d(np.asarray(gain, float))
    first, second = np.triu_indices(len(gain), 1)
    real = ~np.isnan(gain[first] + gain[second])
    agree = (gain[first] > 0) == (gain[second] > 0)
    return float(agree[real].mean()) if real.any() else float("nan")


def repeat_auc(gain: ArrayLike) -> float:
    """AUC with which the gain of one repeat predicts the sign of another, mean over ordered pairs of repeats.

    Parameters
    ----------
    gain : array of shape (R, P)
        As in `sign_agreement`. Two repeats are left out if the second has one sign only.

    Returns
    -------
    float
        NaN if no two repeats are left. What a predictor reaches that has seen the gain of one run; the mean gain of
        many runs may do better. Chapter 08.
    """
    gain = np.atleast_2d(np.asarray(gain, float))
    areas = []
    for seen, wanted in permutations(gain, 2):
        real = ~np.isnan(seen + wanted)
        areas.append(_auc(wanted[real] <= 0, -seen[real]))
    areas = [a for a in areas if not np.isnan(a)]
    return float(np.mean(areas)) if areas else float("nan")


def _auc(negative: np.ndarray, distance: np.ndarray) -> float:
    """Chance that a negative pair is farther than a positive one, ties counting half; NaN without one of the two."""
    from sklearn.metrics import roc_auc_score

    if negative.all() or not negative.any():
        return float("nan")
    return float(roc_auc_score(negative, distance))


def between(pairs: Tensor, clients: Tensor | Sequence[int]) -> Tensor:
    """Which pairs have both ends in `clients`; of shape (P,), bool."""
    return torch.isin(pairs, torch.as_tensor(clients, device=pairs.device)).all(1)


def cosine_distance(stack: Params | Tensor) -> Tensor:
    """One minus the cosine of each two rows, from 0 to 2; of shape (K, K), float64.

    As `fedlib.server.clusters.cosine_similarity`, errors included: fewer than two rows, a row of zeros.
    """
    return 1 - cosine_similarity(stack)


def l2_distance(stack: Params | Tensor) -> Tensor:
    """Euclidean distance of each two rows; of shape (K, K), float64, exactly symmetric with zeros on the diagonal."""
    return _l2(to_matrix(stack) if isinstance(stack, dict) else stack)


def _l2(matrix: Tensor) -> Tensor:
    matrix = matrix.detach().flatten(1).double()
    return torch.cdist(matrix, matrix, compute_mode="donot_use_mm_for_euclid_dist")


def feature_overlap(columns: Sequence[ArrayLike]) -> Tensor:
    """One minus the Jaccard index of each two clients' sets of columns; of shape (K, K), float64.

    Parameters
    ----------
    columns : sequence of K arrays of int
        Numbers of each client's columns. Two clients without any have the distance 0.
    """
    sets = [set(np.asarray(c).tolist()) for c in columns]
    apart = [[1 - len(a & b) / len(a | b) if a | b else 0.0 for b in sets] for a in sets]
    return torch.tensor(apart, dtype=torch.float64)


def answer_distance(predict: Predict, stack: Params, probe: Tensor) -> Tensor:
    """Root mean squared difference of each two networks' answers to the same inputs.

    Parameters
    ----------
    predict : callable
        ``predict(params, probe) -> output`` of one network, such as the shared layers alone.
    stack : Params
        Stack of K rows.
    probe : Tensor of shape (B, ...)
        Inputs that all networks understand; of clients with different columns, points of the common space.

    Returns
    -------
    Tensor of shape (K, K), float64
        In the unit of the outputs; 0 on the diagonal.

    Notes
    -----
    Not in the paper: a control that needs a probe, but no measured pair. Chapter 08.
    """
    with torch.no_grad():
        answers = torch.vmap(predict, in_dims=(0, None))(stack, probe).flatten(1)
    return _l2(answers) / answers.shape[1] ** 0.5


def hand_made(stack: Params, layers: Sequence[str]) -> Tensor:
    """A few numbers for each network: 8 for each dense layer.

    Parameters
    ----------
    stack : Params
        Stack of K rows.
    layers : sequence of str
        Names such as "dense2", each with ``.weight`` and ``.bias``.

    Returns
    -------
    Tensor of shape (K, 8 * number of layers), float64
        Of the weights: mean, standard deviation, norm, and the quantiles 0.1 and 0.9; of the biases: mean, standard
        deviation (0 for one unit), norm. Chapter 08.
    """
    numbers = []
    for layer in layers:
        w, b = (stack[f"{layer}.{kind}"].detach().flatten(1).double() for kind in ("weight", "bias"))
        numbers += [w.mean(1), w.std(1, correction=0), w.norm(dim=1), *w.quantile(w.new_tensor([0.1, 0.9]), dim=1)]
        numbers += [b.mean(1), b.std(1, correction=0), b.norm(dim=1)]
    return torch.stack(numbers, 1)


def logistic_pairs(features: Tensor, pairs: Tensor, negative: ArrayLike, seed: int) -> Callable[[Tensor], Tensor]:
    """Logistic regression of negative transfer on two clients' features.

    Parameters
    ----------
    features : Tensor of shape (K, F)
        One row a client: the parameters or updates side by side (`fedlib.params.to_matrix`), or `hand_made`.
    pairs : Tensor of shape (P, 2), int64
        Training pairs, as rows of `features`. The clients in them are the training clients.
    negative : array of shape (P,), bool
        Whether the pair loses by federating.
    seed : int
        Of the principal components.

    Returns
    -------
    callable
        ``distance(features) -> (K, K)`` for these or other clients: the chance of negative transfer, float64,
        symmetric, 0 on the diagonal. If all training pairs have one sign, this is everybody's.

    Notes
    -----
    Features are standardised, and reduced to at most 16 principal components, on the training clients. A pair has the
    features ``|a - b|`` and ``a b``, so its order does not matter. Chapter 08.
    """
    from sklearn.linear_model import LogisticRegression

    negative = np.asarray(negative, bool)
    describe = _describe(features, pairs, seed)
    if negative.all() or not negative.any():
        return lambda features: _square(len(features), lambda pairs: np.full(len(pairs), float(negative.all())))
    model = LogisticRegression(max_iter=1000).fit(describe(features, pairs), negative)
    return lambda features: _square(len(features), lambda pairs: model.predict_proba(describe(features, pairs))[:, 1])


def ridge_pairs(features: Tensor, pairs: Tensor, gain: ArrayLike, seed: int = 0) -> Callable[[Tensor], Tensor]:
    """Ridge regression of the gain on two clients' features; arguments and notes as of `logistic_pairs`.

    Parameters
    ----------
    features, pairs, seed
        As there.
    gain : array of shape (P,)
        Of the training pairs. It is clipped to the 0.9 quantile of its size, so that no single pair rules.

    Returns
    -------
    callable
        ``distance(features) -> (K, K)``, from 0 to 1: a falling function of the predicted gain, 1/2 where that is 0.
        The strength of the penalty is chosen by leaving out one pair after another.
    """
    from sklearn.linear_model import RidgeCV

    gain = np.asarray(gain, float)
    describe = _describe(features, pairs, seed)
    bound = np.quantile(np.abs(gain), 0.9) or 1.0
    model = RidgeCV(np.logspace(-1, 5, 13)).fit(describe(features, pairs), gain.clip(-bound, bound) / bound)
    return lambda features: _square(
        len(features), lambda pairs: 1 / (1 + np.exp(model.predict(describe(features, pairs))))
    )


def _describe(features: Tensor, pairs: Tensor, seed: int) -> Callable[[Tensor, Tensor], np.ndarray]:
    """What gives features of pairs, of shape (P, F)."""
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    clients = pairs.unique()
    steps = [StandardScaler()]
    if features.shape[1] > _COMPONENTS:
        steps.append(PCA(min(_COMPONENTS, len(clients) - 1), whiten=True, random_state=seed))
    client = make_pipeline(*steps).fit(_numbers(features[clients]))

    def describe(features: Tensor, pairs: Tensor) -> np.ndarray:
        a, b = client.transform(_numbers(features))[pairs.T.cpu().numpy()]
        return np.concatenate([np.abs(a - b), a * b], 1)

    return describe


def _numbers(features: Tensor) -> np.ndarray:
    return features.detach().cpu().double().numpy()


def _square(clients: int, distance: Callable[[Tensor], np.ndarray]) -> Tensor:
    """The matrix (K, K) of a distance of pairs."""
    matrix, pairs = torch.zeros(clients, clients, dtype=torch.float64), all_pairs(clients)
    matrix[pairs[:, 0], pairs[:, 1]] = torch.from_numpy(distance(pairs))
    return matrix + matrix.T


def fit_threshold(distance: ArrayLike, negative: ArrayLike) -> float:
    """The threshold with the best accuracy on training pairs, where a pair above it is called negative.

    Parameters
    ----------
    distance : array of shape (P,)
    negative : array of shape (P,), bool

    Returns
    -------
    float
        Half way between two distances, or -inf (all are called negative) or inf (none); the smallest of equally good
        ones. Chapter 08.

    Raises
    ------
    ValueError
        No pairs, or distances that are NaN.
    """
    distance, negative = np.asarray(distance, float), np.asarray(negative, bool)
    if not len(distance) or np.isnan(distance).any():
        raise ValueError(f"a threshold needs at least one pair and no NaN; got {distance[:5]}")
    values, place = np.unique(distance, return_inverse=True)
    # With the threshold above the i smallest values: positive pairs below it, and negative ones above, are right.
    gained = np.bincount(place, weights=1.0 - 2 * negative, minlength=len(values))
    right = np.concatenate([[0.0], gained.cumsum()])
    cuts = np.concatenate([[-np.inf], (values[1:] + values[:-1]) / 2, [np.inf]])
    return float(cuts[right.argmax()])


def pair_scores(negative: ArrayLike, distance: ArrayLike, threshold: float) -> dict[str, float]:
    """How well a distance tells negative pairs from positive ones.

    Parameters
    ----------
    negative : array of shape (P,), bool
        Whether the pair loses by federating: gain <= 0.
    distance : array of shape (P,)
        Large where negative transfer is expected.
    threshold : float
        A pair above it is called negative; from `fit_threshold`, on other pairs.

    Returns
    -------
    dict
        ``accuracy``; ``balanced_accuracy``, the mean of the accuracies on negative and on positive pairs; ``auc``, the
        chance that a negative pair has the larger distance, which no threshold enters. The last two are NaN if one
        kind is missing. Chapter 08.
    """
    negative, distance = np.asarray(negative), np.asarray(distance, float)
    if negative.dtype != bool:
        raise TypeError(f"negative must hold True and False, such as gain <= 0; got {negative.dtype}")
    right = (distance > threshold) == negative
    both = negative.any() and not negative.all()
    balanced = (right[negative].mean() + right[~negative].mean()) / 2 if both else float("nan")
    return {
        "accuracy": float(right.mean()),
        "balanced_accuracy": float(balanced),
        "auc": _auc(negative, distance),
    }


def majority(negative_train: ArrayLike, negative_test: ArrayLike) -> float:
    """Accuracy on test pairs of always saying what most training pairs are; in a tie, negative."""
    return float(np.mean(np.asarray(negative_test, bool) == (np.asarray(negative_train, bool).mean() >= 0.5)))
