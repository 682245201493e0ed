"""Deal the rows of a data set out to clients.

Each partitioner takes the labels and gives a `Partition`: which rows each client holds, and the true group of each
client where groups are planted. Draws come from NumPy's legacy generator, whose stream never changes, so a seed means
the same partition on every machine and for every version of NumPy.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .data import ClientData, stack_rows

__all__ = ["Partition", "dirichlet", "iid", "pathological", "quantity"]


@dataclass(frozen=True)
class Partition:
    """Who holds which rows.

    Attributes
    ----------
    rows : tuple of K integer arrays
        Row numbers of each client, ascending. No row belongs to two clients, and none is left out.
    group : array of shape (K,), int
        True group of each client; all 0 where no groups are planted.
    """

    rows: tuple[np.ndarray, ...]
    group: np.ndarray

    def clients(self, x: ArrayLike, y: ArrayLike, classes: int | None = None) -> ClientData:
        """The clients as training data; see `fedlib.data.stack_rows`."""
        return stack_rows(x, y, self.rows, classes=classes)


def _one_group(rows: list[np.ndarray]) -> Partition:
    return Partition(tuple(np.sort(r) for r in rows), np.zeros(len(rows), int))


def _labels(y: ArrayLike, n_clients: int) -> np.ndarray:
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"y must have one label a row, shape (R,); got {y.shape}")
    if not 1 <= n_clients <= len(y):
        raise ValueError(f"n_clients must lie between 1 and the {len(y)} rows there are; got {n_clients}")
    return y


def iid(y: ArrayLike, n_clients: int, seed: int = 0) -> Partition:
    """Deal rows out evenly at random: all clients have the same distribution (chapter 01).

    Parameters
    ----------
    y : array of shape (R,)
    n_clients : int
        K; sizes differ by one at the most.
    seed : int

    Returns
    -------
    Partition
    """
    y = _labels(y, n_clients)
    return _one_group(np.array_split(np.random.RandomState(seed).permutation(len(y)), n_clients))


def quantity(y: ArrayLike, n_clients: int, sigma: float, seed: int = 0) -> Partition:
    """Same distribution, different amounts: sizes are log-normal (chapter 01).

    Parameters
    ----------
    y : array of shape (R,)
    n_clients : int
    sigma : float
        Standard deviation of the logarithm of the sizes; 0 gives equal sizes.
    seed : int

    Returns
    -------
    Partition
        Every client has at least one row.
    """
    y = _labels(y, n_clients)
    if not 0 <= sigma < np.inf:
        raise ValueError(f"sigma must be at least 0 and finite, got {sigma}")
    random = np.random.RandomState(seed)
    draw = sigma * random.standard_normal(n_clients)
    share = np.exp(draw - draw.max())  # no overflow
    # One row each, the rest by share.
    ends = np.round(np.cumsum(share / share.sum()) * (len(y) - n_clients)).astype(int) + np.arange(1, n_clients + 1)
    return _one_group(np.split(random.permutation(len(y)), ends[:-1]))


def dirichlet(
    y: ArrayLike, n_clients: int, alpha: float, seed: int = 0, min_rows: int = 1, attempts: int = 1000
) -> Partition:
    """Label skew: of each class, clients get shares drawn from a Dirichlet distribution (chapter 01).

    Parameters
    ----------
    y : array of shape (R,)
        Class labels.
    n_clients : int
    alpha : float
        Concentration. Near 0 each class goes to a few clients; large values approach `iid`.
    seed : int
    min_rows : int
        Draw again until every client has at least so many rows.
    attempts : int
        How often to try.

    Returns
    -------
    Partition
        Sizes differ too, the more so the smaller `alpha` is.

    References
    ----------
    Hsu, Qi, Brown. Measuring the effects of non-identical data distribution for federated visual classification. 2019.
    Yurochkin et al. Bayesian nonparametric federated learning of neural networks. ICML 2019 (this variant).
    """
    y = _labels(y, n_clients)
    if not (alpha > 0 and np.isfinite(alpha)):
        raise ValueError(f"alpha must be a positive number, got {alpha}; use iid for equal shares")
    if min_rows * n_clients > len(y):
        raise ValueError(f"{n_clients} clients of at least {min_rows} rows need more than the {len(y)} rows there are")
    random = np.random.RandomState(seed)
    for _ in range(attempts):
        rows: list[list[np.ndarray]] = [[] for _ in range(n_clients)]
        for label in np.unique(y):
            members = random.permutation(np.flatnonzero(y == label))
            with np.errstate(invalid="ignore"):
                share = random.dirichlet(np.full(n_clients, alpha))
            if np.isnan(share).any():  # alpha so small that all draws underflow: one client takes the class
                share = np.eye(n_clients)[random.randint(n_clients)]
            for client, part in enumerate(
                np.split(members, np.round(np.cumsum(share)[:-1] * len(members)).astype(int))
            ):
                rows[client].append(part)
        merged = [np.concatenate(r) for r in rows]
        if min(map(len, merged)) >= min_rows:
            return _one_group(merged)
    raise ValueError(
        f"no draw in {attempts} gave each of {n_clients} clients at least {min_rows} rows with alpha = {alpha}; "
        "raise alpha, lower min_rows or n_clients"
    )


def pathological(y: ArrayLike, n_clients: int, shards_per_client: int = 2, seed: int = 0) -> Partition:
    """Label skew as in the first FedAvg paper: rows sorted by label, cut into shards, dealt out (chapter 01).

    Parameters
    ----------
    y : array of shape (R,)
        Class labels.
    n_clients : int
    shards_per_client : int
        Shards that each client gets; with 2 most clients see two classes.
    seed : int

    Returns
    -------
    Partition

    References
    ----------
    McMahan et al. Communication-efficient learning of deep networks from decentralized data. AISTATS 2017.
    """
    y = _labels(y, n_clients)
    shards = n_clients * shards_per_client
    if not 1 <= shards <= len(y):
        raise ValueError(
            f"{n_clients} clients x {shards_per_client} shards make {shards} shards, but there are {len(y)} rows"
        )
    random = np.random.RandomState(seed)
    shuffled = random.permutation(len(y))
    parts = np.array_split(shuffled[np.argsort(y[shuffled], kind="stable")], shards)
    dealt = random.permutation(shards).reshape(n_clients, shards_per_client)
    return _one_group([np.concatenate([parts[s] for s in mine]) for mine in dealt])
