"""The class `Partition` of a data set's rows among clients, and functions that share rows out with various skews."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..checks import check_number, check_whole
from ..data import ClientData, Rows, one_class, stack_rows, unmasked
from ..keys import whole_seed


@dataclass(frozen=True)
class Change:
    """How groups change their samples.

    Attributes
    ----------
    kind : str
        Name of the function that planted it.
    values : tuple
        One entry per group, which is the new label of each class (label_permutation), degrees (rotation) or a name
        (style); or one entry per client, which is its columns in ascending order (feature_subsets).
    seed : int
        Determines the noise of a style.
    width : int
        Columns that x must have (feature_subsets).
    """

    kind: str
    values: tuple[Any, ...]
    seed: int = 0
    width: int = 0

    def labels(self, y: Tensor, group: np.ndarray) -> Tensor:
        """Labels (R,) as their groups see them, where the shapes of `y` and `group` broadcast."""
        one_class(y, "label_permutation")
        return torch.tensor(self.values)[group, y.cpu()].to(y.device)

    def features(self, x: Tensor, rows: np.ndarray, seen_by: np.ndarray) -> Tensor:
        """A copy of row ``rows[i]`` of `x` as group (for feature_subsets, client) ``seen_by[i]`` sees it, for all i."""
        if self.kind == "feature_subsets":
            if x.ndim != 2 or x.shape[1] != self.width:
                raise ValueError(f"columns were drawn for x of shape (R, {self.width}); got {tuple(x.shape)}")
            table = np.full((len(self.values), max(map(len, self.values))), self.width)  # the column of zeros
            for client, columns in enumerate(self.values):
                table[client, : len(columns)] = columns
            padded = torch.cat([x, x.new_zeros(len(x), 1)], 1)
            return padded[rows[:, None], table[seen_by]]
        new = x[rows]
        for g in np.unique(seen_by):
            own = np.flatnonzero(seen_by == g)
            if self.kind == "rotation":
                new[own] = _rotated(new[own], self.values[g])
            else:
                new[own] = _styled(new[own], self.values[g], rows[own], self.seed)
        return new


def _rotated(x: Tensor, degrees: float) -> Tensor:
    if x.ndim < 3:
        raise ValueError(f"rotation needs images, one row (..., height, width); got {tuple(x.shape[1:])}: reshape x")
    if x.ndim > 3 and x.shape[-1] in (1, 3, 4) and x.shape[-3] not in (1, 3, 4):
        raise ValueError(f"rotation needs channels first: x.transpose(0, 3, 1, 2); got rows {tuple(x.shape[1:])}")
    turns = degrees / 90
    if turns in (1, 3) and x.shape[-1] != x.shape[-2]:
        raise ValueError(f"a turn by {degrees} degrees needs square images, got {tuple(x.shape[-2:])}: crop or pad x")
    if turns == int(turns):
        return torch.rot90(x, int(turns), (-2, -1))
    from scipy.ndimage import rotate

    new = rotate(x.cpu().double().numpy(), degrees, axes=(-2, -1), reshape=False, order=1)
    return torch.from_numpy(new if x.is_floating_point() else np.rint(new)).to(x)  # no value leaves the range of x


def _styled(x: Tensor, name: str, rows: np.ndarray, seed: int) -> Tensor:
    if x.dtype != torch.uint8:
        raise TypeError(f"style needs uint8 images, 0 to 255; got {x.dtype}: give the bytes, training scales them")
    if name == "inverted":
        return 255 - x
    if name == "low contrast":
        return x // 4 + 96
    if name == "noisy":
        # The noise of a row depends neither on its client nor on the order of the rows.
        noise = np.stack([random_of("noise", seed, row).randint(-128, 128, x.shape[1:]) for row in rows.tolist()])
        return (x + torch.from_numpy(noise).to(x.device)).clamp(0, 255).to(torch.uint8)
    return x


@dataclass(frozen=True, eq=False)
class Partition:
    """Which rows each client holds, and how it sees them.

    Attributes
    ----------
    rows : tuple of K integer arrays
        Row numbers of each client, ascending. No row belongs to two clients.
    group : array of shape (K,), int
        True group of each client, the main one if it has two; all 0 if no groups are planted.
    sample_group : tuple of K integer arrays
        True group of each sample, aligned with `rows`; differs from `group` only in mixtures.
    id : array of shape (K,), int64
        Ids of the clients, which are 0 to K - 1 or those of the writers.
    name : array of shape (K,), str, optional
        Names of the clients, if `by_user` was given names.
    change : Change or None
        How groups change their samples; None if they do not.
    total : int or None
        R, the number of rows that were shared out; None if unknown.
    """

    rows: tuple[np.ndarray, ...]
    group: np.ndarray
    sample_group: tuple[np.ndarray, ...]
    id: np.ndarray
    change: Change | None = None
    total: int | None = None
    name: np.ndarray | None = None

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """Columns of each client as K ascending integer arrays; only partitions by `feature_subsets` have them."""
        if self.change is None or not self._by_client:
            raise AttributeError("all clients see all columns; make the partition with feature_subsets")
        return tuple(np.array(c) for c in self.change.values)

    def clients(self, x: Rows, y: Rows, classes: int | None = None, pixels: bool | None = None) -> ClientData:
        """The clients as training data, each sample as its group sees it.

        Parameters
        ----------
        x : array of shape (R, ...)
            Never modified. If no features change, the result shares a tensor given here. Otherwise it holds a changed
            copy of the R' rows that the clients hold. After `feature_subsets` this copy has shape (R', k_max), with a
            client's columns in ascending order followed by zeros.
        y : array of shape (R,) or (R, ...)
        classes, pixels
            As in `fedlib.data.stack_rows`.

        Returns
        -------
        ClientData
        """
        whole = self._whole(x, y, classes, pixels)
        x, y = whole.x, whole.y[0]  # y is a copy
        rows, sizes = self.rows, [len(r) for r in self.rows]
        held = np.concatenate(rows)
        if len(x) != (self.total or len(x)) or held.max() >= len(x):
            raise ValueError(
                f"{self.total or held.max() + 1} rows were shared out, but x has {len(x)}; give the rows of which the "
                "partition was made. A common test set goes to tests()"
            )
        if self.change is not None and self.change.kind == "label_permutation":
            y[held] = self.change.labels(y[held], np.concatenate(self.sample_group))
        elif self.change is not None:
            seen_by = np.repeat(np.arange(len(rows)), sizes) if self._by_client else np.concatenate(self.sample_group)
            x, y = self.change.features(x, held, seen_by), y[held]
            rows = tuple(np.split(np.arange(len(held)), np.cumsum(sizes)[:-1]))
        return replace(stack_rows(x, y, rows, self.id.tolist(), classes, whole.pixels), name=self.name)

    def tests(self, x: Rows, y: Rows, classes: int | None = None, pixels: bool | None = None) -> ClientData:
        """A common test set for all clients, which each client sees as its group does.

        Parameters
        ----------
        x : array of shape (R, ...)
            Stored once if no features change; otherwise once per group, or per client after `feature_subsets`.
        y : array of shape (R,) or (R, ...)
        classes, pixels
            As in `fedlib.data.stack_rows`.

        Returns
        -------
        ClientData
            Every client has all R rows in order. A client of several groups sees the rows as these groups do, in the
            proportions of its samples and spread evenly over the rows of each label. Nothing is drawn at random.

        References
        ----------
        Sattler, Müller, Samek. Clustered federated learning. 2019.
        """
        whole = self._whole(x, y, classes, pixels)
        x, y, r, k = whole.x, whole.y[0], len(whole.x), len(self.rows)
        index, labels = whole.index.expand(k, r), y.expand(k, *y.shape)
        if self.change is not None and self.change.kind == "label_permutation":
            labels = self.change.labels(y, self._seen_by(y))
        elif self.change is not None:
            views = np.arange(len(self.change.values))
            x = self.change.features(x, np.tile(np.arange(r), len(views)), np.repeat(views, r))
            index = torch.from_numpy(self._seen_by(y) * r + np.arange(r))
        ids = torch.from_numpy(self.id.copy())
        return replace(whole, x=x, index=index, y=labels, n=whole.n.expand(k), id=ids, name=self.name)

    @property
    def _by_client(self) -> bool:
        return self.change is not None and self.change.kind == "feature_subsets"

    def _whole(self, x: Any, y: Any, classes: int | None, pixels: bool | None) -> ClientData:
        """All rows as those of one client, checked."""
        if self.change is not None and self.change.kind == "label_permutation":
            classes = len(self.change.values[0])
        return stack_rows(x, y, [np.arange(len(y))], classes=classes, pixels=pixels)

    def _seen_by(self, y: Tensor) -> np.ndarray:
        """Index of the change's entry with which each client sees each of R common rows, of shape (K, R)."""
        main = np.arange(len(self.rows)) if self._by_client else self.group
        seen, order = np.repeat(main[:, None], len(y), 1), np.argsort(y.cpu().numpy(), kind="stable")
        for k, own in enumerate(self.sample_group):
            if (own != self.group[k]).any():
                one_class(y, "a common test set of a mixture")
                groups, counts = np.unique(own, return_counts=True)
                sizes = apportion(len(y), counts)
                places = np.concatenate([(np.arange(n) + 0.5) / n for n in sizes])  # in [0, 1]: each group evenly
                seen[k, order] = np.repeat(groups, sizes)[np.argsort(places, kind="stable")]
        return seen

    def split(self, fractions: Sequence[float] = (0.6, 0.2, 0.2), seed: int = 0) -> tuple["Partition", ...]:
        """Split the rows of each client at random, for example into training, validation and test rows.

        Parameters
        ----------
        fractions : sequence of float
            Share of each split; they add up to 1. ``(1,)`` returns the whole partition.
        seed : int
            Together with a client's id it determines the draw, so other clients do not matter.

        Returns
        -------
        tuple of Partition
            One per split, with the same clients, groups and change. Sizes are as close to the fractions as whole
            numbers allow and at least 1, so a client with fewer rows than splits is an error.
        """
        shares, parts = shares_of(fractions, "fractions"), []
        for client, rows in zip(self.id.tolist(), self.rows, strict=True):
            if len(rows) < len(shares):
                raise ValueError(
                    f"client {client} has {len(rows)} rows, {len(shares)} parts need {len(shares)}; raise min_rows or "
                    "take fewer clients"
                )
            order = random_of("split", seed, client).permutation(len(rows))
            ends = np.cumsum(apportion(len(rows), shares, least=1))[:-1]
            parts.append([np.sort(part) for part in np.split(order, ends)])
        return tuple(
            replace(
                self,
                rows=tuple(r[o] for r, o in zip(self.rows, part, strict=True)),
                sample_group=tuple(g[o] for g, o in zip(self.sample_group, part, strict=True)),
            )
            for part in zip(*parts, strict=True)
        )


# ---- draws ----


def random_of(purpose: str, seed: int, *numbers: int) -> np.random.RandomState:
    """A separate random stream for each purpose.

    If all purposes shared a stream, `Partition.split` would put the samples that a mixture drew into the same split.
    Without a purpose, this is the stream of the seed itself. A seed that needs more than 32 bits has two words.
    """
    first, *words = (n >> shift & 0xFFFFFFFF for n in (whole_seed(seed), *numbers) for shift in (0, 32))
    words = [first, *words] if words[0] else [first, *words[1:]]
    if not purpose:
        return np.random.RandomState(words if len(words) > 1 else first)
    return np.random.RandomState([zlib.crc32(purpose.encode()), *words])


def apportion(total: int, shares: ArrayLike, least: int = 0) -> np.ndarray:
    """Whole numbers that add up to `total`, by largest remainders; the first of equal remainders wins."""
    exact = total * np.asarray(shares, float) / math.fsum(np.asarray(shares))
    sizes = np.floor(exact).astype(int)
    sizes[np.argsort(-np.round(exact - sizes, 9), kind="stable")[: total - sizes.sum()]] += 1
    while sizes.min() < least:
        sizes[sizes.argmax()] -= 1
        sizes[sizes.argmin()] += 1
    return sizes


def shares_of(values: Sequence[float], what: str) -> list[float]:
    """The values as floats, if they are shares of a whole."""
    if not np.iterable(values) or isinstance(values, str):
        raise TypeError(f"{what} must be a list of numbers that add up to 1; got {values!r:.80}")
    shares = [float(v) for v in values]
    if not shares or not min(shares) > 0 or not abs(math.fsum(shares) - 1) < 1e-6:
        raise ValueError(f"{what} must be positive and add up to 1; got {tuple(shares)}")
    return shares


def one_group(rows: Sequence[np.ndarray], total: int | None = None, ids: np.ndarray | None = None) -> Partition:
    """A partition with these rows, in which all clients belong to one group."""
    ids = np.arange(len(rows)) if ids is None else ids
    samples = tuple(np.zeros(len(r), np.int64) for r in rows)
    return Partition(tuple(map(np.sort, rows)), np.zeros(len(rows), np.int64), samples, ids, total=total)


# ---- partitions ----


def _labels(y: ArrayLike, n_clients: int, classes: bool = True) -> np.ndarray:
    unmasked(y, "y")
    y = np.asarray(y)
    if y.ndim == 0 or (classes and y.ndim > 1):
        raise ValueError(f"y must have one label a row, shape (R,); got {y.shape}")
    if classes and (y.dtype.kind in "fc" or (y.dtype.kind == "O" and any(isinstance(v, float) for v in y))):
        words = f"y holds {y.dtype}, and each value would be a class; give y.astype(int), or for a regression classes"
        raise TypeError(f"{words} by quantiles: np.digitize(y, np.quantile(y, [0.2, 0.4, 0.6, 0.8]))")
    if not (isinstance(n_clients, Integral) and 1 <= n_clients <= len(y)):
        raise ValueError(f"n_clients must be a whole number from 1 to the {len(y)} rows there are; got {n_clients!r}")
    return y


def iid(y: ArrayLike, n_clients: int, seed: int = 0) -> Partition:
    """Share rows out evenly at random, so that all clients have the same distribution (chapter 01).

    Parameters
    ----------
    y : array of shape (R, ...)
        Only its length matters.
    n_clients : int
        K; sizes differ by at most one.
    seed : int

    Returns
    -------
    Partition

    Examples
    --------
    >>> import numpy as np
    >>> from fedlib import partition
    >>> [len(rows) for rows in partition.iid(np.arange(10) % 2, 3).rows]
    [4, 3, 3]
    """
    y = _labels(y, n_clients, classes=False)
    return one_group(np.array_split(random_of("", seed).permutation(len(y)), n_clients), len(y))


def quantity(y: ArrayLike, n_clients: int, sigma: float, seed: int = 0) -> Partition:
    """Clients with the same distribution but different sizes, which are log-normal (chapter 02).

    Parameters
    ----------
    y : array of shape (R, ...)
        Only its length matters.
    n_clients : int
    sigma : float
        Standard deviation of the logarithm of the sizes; 0 gives equal sizes.
    seed : int

    Returns
    -------
    Partition
        Every client has at least one row.
    """
    y = _labels(y, n_clients, classes=False)
    check_number(sigma, "sigma")
    random = random_of("", seed)
    draw = sigma * random.standard_normal(n_clients)
    share = np.exp(draw - draw.max())  # no overflow
    # Each client gets one row, and the rest are divided by share.
    ends = np.round(np.cumsum(share / share.sum()) * (len(y) - n_clients)).astype(int) + np.arange(1, n_clients + 1)
    return one_group(np.split(random.permutation(len(y)), ends[:-1]), len(y))


def dirichlet(
    y: ArrayLike, n_clients: int, alpha: float, seed: int = 0, min_rows: int = 1, attempts: int = 1000
) -> Partition:
    """Label skew, where the clients' shares of each class are drawn from a Dirichlet distribution (chapter 02).

    Parameters
    ----------
    y : array of shape (R,)
        Class labels. Divide regression targets into classes first, for example into fifths by
        ``np.digitize(y, np.quantile(y, [0.2, 0.4, 0.6, 0.8]))``.
    n_clients : int
    alpha : float
        Concentration. Near 0 each class goes to a few clients; large values approach `iid`.
    seed : int
    min_rows : int
        Redraw until every client has at least this many rows.
    attempts : int
        Maximum number of draws.

    Returns
    -------
    Partition
        Sizes also differ, the more so the smaller `alpha` is.

    Raises
    ------
    TypeError
        Floating-point y.
    ValueError
        No draw gave all clients enough rows, or the first draws showed that none would.

    Notes
    -----
    A client is short if it gets too few rows. Because shares add up to one, a client that gets enough leaves less for
    the others. The chance of a draw without a short client is therefore at most (1 - q)^K, where q is the mean share of
    clients that are short in a draw. The function gives up when this bound, computed with q minus four standard errors,
    leaves a chance below 1 in 10,000 for all attempts together.

    References
    ----------
    Hsu, Qi, Brown. Measuring the effects of non-identical data distribution for federated visual classification. 2019.
    Yurochkin et al. Bayesian nonparametric federated learning of neural networks. ICML 2019 (this variant).

    Examples
    --------
    Three clients share 300 rows, and most rows of each class go to one client:

    >>> import numpy as np
    >>> from fedlib import partition
    >>> y = np.arange(300) % 3
    >>> skewed = partition.dirichlet(y, n_clients=3, alpha=0.1)
    >>> sum(len(rows) for rows in skewed.rows)
    300
    """
    y = _labels(y, n_clients)
    check_number(alpha, "alpha", above=True)
    if check_whole(min_rows, "min_rows", least=0) * n_clients > len(y):
        raise ValueError(f"{n_clients} clients of at least {min_rows} rows need more than the {len(y)} rows there are")
    random, short, draw = random_of("", seed), 0, 0
    members = [np.flatnonzero(y == label) for label in np.unique(y)]
    for draw in range(1, check_whole(attempts, "attempts") + 1):
        drawn = []  # for each class, its rows in random order and the end of each client's rows except the last
        for rows in map(random.permutation, members):
            with np.errstate(invalid="ignore"):
                share = random.dirichlet(np.full(n_clients, min(alpha, 1e100)))  # sums of more overflow
            if np.isnan(share).any():  # alpha is so small that all draws underflow, so one client takes the class
                share = np.eye(n_clients)[random.randint(n_clients)]
            drawn.append((rows, np.round(np.cumsum(share)[:-1] * len(rows)).astype(int)))
        sizes = np.sum([np.diff(ends, prepend=0, append=len(rows)) for rows, ends in drawn], 0)
        if sizes.min() >= min_rows:
            parts = [np.split(rows, ends) for rows, ends in drawn]
            return one_group([np.concatenate(own) for own in zip(*parts, strict=True)], len(y))
        short += np.count_nonzero(sizes < min_rows)
        q = (short - 4 * math.sqrt(short)) / draw / n_clients  # as of a Poisson number, which varies more
        if q > 0 and attempts * (1 - q) ** n_clients < 1e-4:
            break
    words = f"no draw of {draw} gave each of {n_clients} clients at least {min_rows} rows with alpha = {alpha}"
    raise ValueError(
        f"{words}; on average {short / draw:.3g} clients were short. Raise alpha, lower min_rows or n_clients"
    )


def pathological(y: ArrayLike, n_clients: int, shards_per_client: int = 2, seed: int = 0) -> Partition:
    """Label skew as in the first FedAvg paper, where clients get shards of rows sorted by label (chapter 01).

    Parameters
    ----------
    y : array of shape (R,)
        Class labels.
    n_clients : int
    shards_per_client : int
        Shards that each client gets; with 2, most clients see two classes.
    seed : int

    Returns
    -------
    Partition

    References
    ----------
    McMahan et al. Communication-efficient learning of deep networks from decentralized data. AISTATS 2017.
    """
    y = _labels(y, n_clients)
    shards = n_clients * check_whole(shards_per_client, "shards_per_client")
    if not 1 <= shards <= len(y):
        raise ValueError(
            f"{n_clients} clients x {shards_per_client} shards make {shards} shards, but there are {len(y)} rows"
        )
    random = random_of("", seed)
    shuffled = random.permutation(len(y))
    parts = np.array_split(shuffled[np.argsort(y[shuffled], kind="stable")], shards)
    dealt = random.permutation(shards).reshape(n_clients, shards_per_client)
    return one_group([np.concatenate([parts[s] for s in own]) for own in dealt], len(y))


def by_user(user: ArrayLike, *, min_rows: int = 1) -> Partition:
    """The natural partition, with one client per writer (chapter 02).

    Parameters
    ----------
    user : array of shape (R,), int or str
        The writer of each row, for example ``writer`` of `fedlib.datasets.Arrays`. Names are numbered from 0 in sorted
        order, including those that are left out, and kept in addition to the numbers.
    min_rows : int
        Leave out writers with fewer rows.

    Returns
    -------
    Partition
        Clients in ascending order of their ids, which are those of the writers.

    References
    ----------
    Caldas et al. LEAF: A benchmark for federated settings. 2018.
    """
    unmasked(user, "user")
    user, names = np.asarray(user), None
    if user.ndim == 1 and user.dtype.kind in "OUT":
        if bad := [row for row, name in enumerate(user) if not isinstance(name, str)]:
            raise TypeError(f"user must hold a name a row; got {user[bad[0]]!r} in row {bad[0]}: drop such rows")
        names, user = np.unique(user.astype(str), return_inverse=True)
    if user.ndim != 1 or user.dtype.kind not in "iu" or (user.dtype == np.uint64 and user.max(initial=0) >= 2**63):
        words = "a whole number below 2**63 or a name a row, shape (R,)"
        raise TypeError(f"user must hold {words}; got {user.dtype} {user.shape}")
    check_whole(min_rows, "min_rows", least=0)
    order = np.argsort(user, kind="stable")
    ids, start, size = np.unique(user[order].astype(np.int64), return_index=True, return_counts=True)
    kept = np.flatnonzero(size >= min_rows)
    if not len(kept):
        raise ValueError(f"none of the {len(ids)} writers has {min_rows} rows or more: lower min_rows")
    rows = np.split(order, start[1:])
    parts = one_group([rows[k] for k in kept], len(user), ids[kept])
    return replace(parts, name=None if names is None else names[ids[kept]])
