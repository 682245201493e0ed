"""Who gains by federating with whom, foretold from two clients: scores of a prediction, and the predictors.

Shared by the experiments of chapter 12 and the scoreboard; it is none itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from scipy.spatial.distance import squareform
from sklearn import decomposition, linear_model, metrics, pipeline, preprocessing
from torch import Tensor

from fedlib.params import Params
from fedlib.server import transfer
from fedlib.server.model_graph import ModelGraphs, PairPredictor, SiameseGCN, train_siamese

Scores = dict[str, float]
Table = dict[str, Scores]  # what is scored -> score -> number


# ---- tables of scores ----


def plain(function: Callable[..., Table], *args: Any) -> Table:
    """What a function gives, as numbers that JSON can hold; without what is NaN or infinite."""
    found = function(*args)
    return {name: {what: float(v) for what, v in s.items() if np.isfinite(v)} for name, s in found.items()}


def numbers(table: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Of each distance matrix some numbers that depend on every pair."""
    return {name: [float(d.double().sum()), float((d.double() @ d.double()[0]).sum())] for name, d in table.items()}


# ---- pairs: how one run tells of another, how a distance is judged ----


def between(pairs: Tensor, clients: Tensor) -> Tensor:
    """Which pairs have both ends in `clients`; of shape (P,), bool."""
    return torch.isin(pairs, clients).all(1)


def auc(negative: np.ndarray, distance: np.ndarray) -> float:
    """Chance that a negative pair is farther than a positive one, ties counting half; NaN without one of the two."""
    if negative.all() or not negative.any():
        return float("nan")
    return float(metrics.roc_auc_score(negative, distance))


def fit_threshold(distance: ArrayLike, negative: ArrayLike) -> float:
    """The threshold with the best accuracy on training pairs, where a pair above it is called negative.

    Half way between two distances, or -inf (all are called negative) or inf (none); the smallest of equally good ones.
    """
    distance, negative = np.asarray(distance, float), np.asarray(negative, bool)
    values, place = np.unique(distance, return_inverse=True)
    # With the threshold above the i smallest values: positive pairs below it, and negative ones above, are right.
    gained = np.bincount(place, weights=1.0 - 2 * negative, minlength=len(values))
    right = np.concatenate([[0.0], gained.cumsum()])
    cuts = np.concatenate([[-np.inf], (values[1:] + values[:-1]) / 2, [np.inf]])
    return float(cuts[right.argmax()])


def pair_accuracy(negative: ArrayLike, distance: ArrayLike, threshold: float) -> float:
    """How often a distance tells negative pairs (gain <= 0) from positive ones; one above the threshold is negative."""
    return float(((np.asarray(distance, float) > threshold) == np.asarray(negative)).mean())


def majority_pairs(negative_train: ArrayLike, negative_test: ArrayLike) -> float:
    """Accuracy on test pairs of always saying what most training pairs are; in a tie, negative."""
    return float(np.mean(np.asarray(negative_test, bool) == (np.asarray(negative_train, bool).mean() >= 0.5)))


# ---- distances of clients that need no graph ----


def l2_distance(matrix: Tensor) -> Tensor:
    """Euclidean distance of each two rows; of shape (K, K), float64."""
    matrix = matrix.detach().flatten(1).double()
    return torch.cdist(matrix, matrix, compute_mode="donot_use_mm_for_euclid_dist")


def hand_made(stack: Params, layers: Sequence[str]) -> Tensor:
    """Eight numbers for each dense layer of each network; of shape (K, 8 * layers), float64.

    Of the weights: mean, standard deviation, norm, and the quantiles 0.1 and 0.9; of the biases: mean, standard
    deviation (0 for one unit), norm.
    """
    numbers = []
    for layer in layers:
        w, b = (stack[f"{layer}.{kind}"].detach().flatten(1).double() for kind in ("weight", "bias"))
        numbers += [w.mean(1), w.std(1, correction=0), w.norm(dim=1), *w.quantile(w.new_tensor([0.1, 0.9]), dim=1)]
        numbers += [b.mean(1), b.std(1, correction=0), b.norm(dim=1)]
    return torch.stack(numbers, 1)


def ridge_pairs(features: Tensor, pairs: Tensor, gain: ArrayLike, seed: int = 0) -> Callable[[Tensor], Tensor]:
    """Ridge regression of the gain on two clients' `features` (K, F).

    It gives ``distance(features) -> (K, K)``: a falling function of the predicted gain, 1/2 where that is 0. Gains are
    clipped to the 0.9 quantile of their size, so that no single pair rules; the penalty is chosen by leaving out one
    pair after another.
    """
    gain = np.asarray(gain, float)
    describe = _describe(features, pairs, seed)
    bound = np.quantile(np.abs(gain), 0.9) or 1.0
    described, target = describe(features, pairs), gain.clip(-bound, bound) / bound
    model = linear_model.RidgeCV(np.logspace(-1, 5, 13)).fit(described, target)

    def distance(features: Tensor) -> Tensor:
        gain = model.predict(describe(features, transfer.all_pairs(len(features))))
        return torch.from_numpy(squareform(1 / (1 + np.exp(gain))))

    return distance


def _describe(features: Tensor, pairs: Tensor, seed: int) -> Callable[[Tensor, Tensor], np.ndarray]:
    """What gives |a - b| and a b of pairs (P, 2 F), standardised on their clients; 16 components of more features."""
    clients = pairs.unique()
    steps: list[Any] = [preprocessing.StandardScaler()]
    if features.shape[1] > 16:
        steps.append(decomposition.PCA(min(16, len(clients) - 1), whiten=True, random_state=seed))
    client = pipeline.make_pipeline(*steps).fit(features[clients].detach().cpu().double().numpy())

    def describe(features: Tensor, pairs: Tensor) -> np.ndarray:
        a, b = client.transform(features.detach().cpu().double().numpy())[pairs.T.cpu().numpy()]
        return np.concatenate([np.abs(a - b), a * b], 1)

    return describe


# ---- the Siamese network of the book ----


class GainGCN(SiameseGCN):
    """A Siamese network that learns how much a pair gains, not only the sign; its answers are in units of its own."""

    rate, decay = 0.02, 0.01

    def __init__(self, features: int, layers: int, hidden: int = 16, seed: int = 0):
        super().__init__(features, layers, hidden, seed)
        self.unit = 1.0

    def forward(self, graphs: ModelGraphs, pairs: Tensor) -> Tensor:
        """One number for each pair (P,), in units."""
        return super().forward(graphs, pairs) / self.unit

    def both(self, a: Tensor, b: Tensor) -> Tensor:
        """Also the sum."""
        return torch.cat([super().both(a, b), a + b], 1)

    def loss(self, output: Tensor, gain: Tensor) -> Tensor:
        """The squared error of minus the gain, which is in units of its median size and clipped at 2 of them."""
        return F.mse_loss(output, -(gain / gain.abs().median().clamp(min=1e-12)).clamp(-2, 2).to(output))


def train_on_gains(
    graphs: Sequence[ModelGraphs], pairs: Tensor, gain: Tensor, seed: int = 0, epochs: int = 50
) -> PairPredictor:
    """`GainGCN` in place of the paper's network; the snapshots count alike.

    Each network's unit is the deviation of its answers over the training pairs; 1 where all are equal, as of one pair.
    """
    predictor = train_siamese(graphs, pairs, gain, seed, epochs, GainGCN)
    for net, answers in zip(predictor.networks, predictor.outputs(graphs, pairs), strict=True):
        deviation = float(answers.std(correction=0))
        net.unit = deviation if deviation > 1e-8 else 1.0
    return predictor


RECIPES = {"paper": train_siamese, "book": train_on_gains}
