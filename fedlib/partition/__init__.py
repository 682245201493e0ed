"""Deal the rows of a data set out to clients, and plant differences whose truth is known.

Each function gives a `Partition`: which rows each client holds, and the true group of each client and sample. Deal
first (`iid`, `quantity`, `dirichlet`, `pathological`, `by_user`); then, if you like, plant groups on what was dealt
(`label_permutation`, `rotation`, `style`, `feature_subsets`), and blur them with `mixture`. Draws come from NumPy's
legacy generator, whose stream never changes, so a seed means the same partition on every machine and for every version
of NumPy.
"""

import functools
import hashlib
import inspect
import itertools
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from numbers import Integral
from typing import Any, ParamSpec

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..data import ClientData, stack_rows

__all__ = [
    "Change",
    "Partition",
    "by_user",
    "dirichlet",
    "feature_subsets",
    "iid",
    "label_permutation",
    "mixture",
    "pathological",
    "quantity",
    "replay",
    "rotation",
    "style",
]

STYLES = ("plain", "inverted", "noisy", "low contrast")
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class Change:
    """What groups do to their samples.

    Attributes
    ----------
    kind : str
        Name of the function that planted it.
    values : tuple
        One entry a group: the new label of each class (label_permutation), degrees (rotation), a name (style); one
        entry a client: its columns, ascending (feature_subsets).
    seed : int
        Decides the noise of a style.
    width : int
        Columns that x must have (feature_subsets).
    """

    kind: str
    values: tuple[Any, ...]
    seed: int = 0
    width: int = 0

    def labels(self, y: Tensor, group: np.ndarray) -> Tensor:
        """Labels as their groups see them; the shapes of `y` and `group` broadcast."""
        if y.is_floating_point():
            raise TypeError(f"label_permutation needs class labels, whole numbers; y holds {y.dtype}")
        return torch.tensor(self.values)[group, y.cpu()].to(y.device)

    def features(self, x: Tensor, rows: np.ndarray, seen_by: np.ndarray) -> Tensor:
        """Row ``rows[i]`` of `x` as group (feature_subsets: client) ``seen_by[i]`` sees it; a copy."""
        if self.kind == "feature_subsets":
            if x.ndim != 2 or x.shape[1] != self.width:
                raise ValueError(f"columns were drawn for x of shape (R, {self.width}); got {tuple(x.shape)}")
            x = x if x.is_floating_point() else x.float()
            table = np.full((len(self.values), max(map(len, self.values))), self.width)  # the column of zeros
            for client, columns in enumerate(self.values):
                table[client, : len(columns)] = columns
            padded = torch.cat([x, x.new_zeros(len(x), 1)], 1)
            return padded[rows[:, None], table[seen_by]]
        new = x[rows]
        for g in np.unique(seen_by):
            mine = np.flatnonzero(seen_by == g)
            if self.kind == "rotation":
                new[mine] = _rotated(new[mine], self.values[g])
            else:
                new[mine] = _styled(new[mine], self.values[g], rows[mine], self.seed)
        return new


def _rotated(x: Tensor, degrees: float) -> Tensor:
    if x.ndim < 3:
        raise ValueError(f"rotation needs images, one row (..., height, width); got {tuple(x.shape[1:])}: reshape x")
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
        random = _random("noise", seed)
        noise = torch.empty(x.shape, dtype=torch.int16)
        for i, row in enumerate(rows.tolist()):  # a row has its own noise, whoever holds it and in whatever order
            random.seed(_words("noise", seed, row))
            noise[i] = torch.from_numpy(random.randint(-128, 128, x.shape[1:]))
        return (x + noise.to(x.device)).clamp(0, 255).to(torch.uint8)
    return x


@dataclass(frozen=True, eq=False)
class Partition:
    """Who holds which rows, and sees them how.

    Attributes
    ----------
    rows : tuple of K integer arrays
        Row numbers of each client, ascending. No row belongs to two clients.
    group : array of shape (K,), int
        True group of each client, the main one if it has two; all 0 where no groups are planted.
    sample_group : tuple of K integer arrays
        True group of each sample, aligned with `rows`; differs from `group` in mixtures only.
    id : array of shape (K,), int64
        Ids of the clients: 0 to K - 1, or those of the writers.
    change : Change or None
        What a group does to its samples; None: nothing.
    recipe : tuple of (str, dict)
        The calls that made it, with all their arguments but the data.
    total : int or None
        R, the rows of the data that were dealt out; None: unknown.
    """

    rows: tuple[np.ndarray, ...]
    group: np.ndarray
    sample_group: tuple[np.ndarray, ...]
    id: np.ndarray
    change: Change | None = None
    recipe: tuple[tuple[str, dict[str, Any]], ...] = ()
    total: int | None = None

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """Columns of each client, ascending: K integer arrays. `feature_subsets` draws them, others have none."""
        if self.change is None or not self._by_client:
            raise AttributeError("all clients see all columns; make the partition with feature_subsets")
        return tuple(np.array(c) for c in self.change.values)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of the SHA-256 of everything but `recipe`: equal for equal partitions."""
        text = json.dumps(None if self.change is None else astuple(self.change), separators=(",", ":"))
        digest = hashlib.sha256(text.encode())
        for array in (self.id, self.group, *self.rows, *self.sample_group):
            digest.update(np.append(array, len(array)).astype("<i8").tobytes())  # the length: no two lists look alike
        return digest.hexdigest()[:16]

    def record(self) -> dict[str, Any]:
        """What to save with a result, as JSON can hold it; `replay` makes the partition from it again."""
        return {"recipe": [[name, dict(arguments)] for name, arguments in self.recipe], "fingerprint": self.fingerprint}

    def clients(self, x: ArrayLike | Tensor, y: ArrayLike | Tensor, classes: int | None = None) -> ClientData:
        """The clients as training data, each sample as its group sees it.

        Parameters
        ----------
        x : array of shape (R, ...)
            Never modified. A tensor is shared with the result if no features change; else the result holds a changed
            copy of the R' rows that the clients hold, after `feature_subsets` of shape (R', k_max): a client's columns
            in ascending order, then zeros.
        y : array of shape (R,)
        classes : int, optional
            As in `fedlib.data.stack_rows`.

        Returns
        -------
        ClientData
        """
        x, y = self._checked(x, y, classes)
        rows, sizes = self.rows, [len(r) for r in self.rows]
        held = np.concatenate(rows)
        if len(x) != (self.total or len(x)) or held.max() >= len(x):
            raise ValueError(
                f"{self.total or held.max() + 1} rows were dealt out, but x has {len(x)}; give the rows of which the "
                "partition was made. A common test set goes to tests()"
            )
        if self.change is not None and self.change.kind == "label_permutation":
            y[held] = self.change.labels(y[held], np.concatenate(self.sample_group))
        elif self.change is not None:
            seen_by = np.repeat(np.arange(len(rows)), sizes) if self._by_client else np.concatenate(self.sample_group)
            x, y = self.change.features(x, held, seen_by), y[held]
            rows = tuple(np.split(np.arange(len(held)), np.cumsum(sizes)[:-1]))
        return stack_rows(x, y, rows, self.id.tolist(), classes)

    def tests(self, x: ArrayLike | Tensor, y: ArrayLike | Tensor, classes: int | None = None) -> ClientData:
        """A common test set for every client, as its own group sees it.

        Parameters
        ----------
        x : array of shape (R, ...)
            Stored once if no features change, else once for each group, after `feature_subsets` for each client.
        y : array of shape (R,)
        classes : int, optional
            As in `fedlib.data.stack_rows`.

        Returns
        -------
        ClientData
            Every client has all R rows, in order. A mixed client sees them under its groups in the proportions of its
            own samples, spread evenly over the rows of each label. Nothing is drawn.

        References
        ----------
        Sattler, Müller, Samek. Clustered federated learning. 2019.
        """
        x, y = self._checked(x, y, classes)
        r, k = len(y), len(self.rows)
        index, labels = torch.arange(r).expand(k, r), y.expand(k, r)
        if self.change is not None and self.change.kind == "label_permutation":
            labels = self.change.labels(y, self._seen_by(y))
        elif self.change is not None:
            views = np.arange(len(self.change.values))
            x = self.change.features(x, np.tile(np.arange(r), len(views)), np.repeat(views, r))
            index = torch.from_numpy(self._seen_by(y) * r + np.arange(r))
        return ClientData(x, index, labels, torch.tensor([r]).expand(k), torch.from_numpy(self.id.copy()))

    @property
    def _by_client(self) -> bool:
        return self.change is not None and self.change.kind == "feature_subsets"

    def _checked(self, x: ArrayLike | Tensor, y: ArrayLike | Tensor, classes: int | None) -> tuple[Tensor, Tensor]:
        if self.change is not None and self.change.kind == "label_permutation":
            classes = len(self.change.values[0])
        one = stack_rows(x, y, [np.arange(len(y))], classes=classes)  # type: ignore[arg-type]
        return one.x, one.y[0]  # y is a copy

    def _seen_by(self, y: Tensor) -> np.ndarray:
        """Entry of the change under which each client sees each of R common rows, shape (K, R)."""
        main = np.arange(len(self.rows)) if self._by_client else self.group
        seen, order = np.repeat(main[:, None], len(y), 1), np.argsort(y.cpu().numpy(), kind="stable")
        for k, mine in enumerate(self.sample_group):
            if (mine != self.group[k]).any():
                groups, counts = np.unique(mine, return_counts=True)
                sizes = _apportion(len(y), counts)
                places = np.concatenate([(np.arange(n) + 0.5) / n for n in sizes])  # in [0, 1]: each group evenly
                seen[k, order] = np.repeat(groups, sizes)[np.argsort(places, kind="stable")]
        return seen

    def split(self, fractions: Sequence[float] = (0.6, 0.2, 0.2), seed: int = 0) -> tuple["Partition", ...]:
        """Split the rows of each client at random, into training, validation and test rows for instance.

        Parameters
        ----------
        fractions : sequence of float
            Share of each part; they add up to 1. ``(1,)`` gives back the whole.
        seed : int
            With the client's id it decides the draw: other clients do not matter.

        Returns
        -------
        tuple of Partition
            One a part, with the same clients, groups and change. Sizes are as near to the fractions as whole numbers
            allow, and at least 1: a client with fewer rows than parts is an error.
        """
        p = len(fractions := _shares(fractions, "fractions"))
        sizes = np.array([len(rows) for rows in self.rows])
        if sizes.min() < p:
            client, few = self.id[sizes.argmin()], sizes.min()
            raise ValueError(
                f"client {client} has {few} rows, {p} parts need {p}; raise min_rows or take fewer clients"
            )
        ends = {n: np.cumsum(_apportion(n, fractions, least=1))[:-1].tolist() for n in np.unique(sizes).tolist()}
        random, parts = np.random.RandomState(), []
        for client, n in zip(self.id.tolist(), sizes.tolist(), strict=True):
            random.seed(_words("split", seed, client))
            order, stops = random.permutation(n), [0, *ends[n], n]
            parts.append([np.sort(order[a:b]) for a, b in itertools.pairwise(stops)])
        return tuple(
            replace(
                self,
                rows=tuple(r[o] for r, o in zip(self.rows, part, strict=True)),
                sample_group=tuple(g[o] for g, o in zip(self.sample_group, part, strict=True)),
                recipe=(*self.recipe, ("split", {"fractions": fractions, "seed": _plain(seed), "part": i})),
            )
            for i, part in enumerate(zip(*parts, strict=True))
        )


def replay(record: Mapping[str, Any], values: ArrayLike) -> Partition:
    """Make a partition again from its record and compare (chapter 02).

    Parameters
    ----------
    record : mapping
        What `Partition.record` gave, possibly read from JSON.
    values : array of shape (R,)
        The labels, or writers, that were dealt out then.

    Returns
    -------
    Partition

    Raises
    ------
    ValueError
        A step that this version does not know, or other labels or code: the fingerprint differs.
    """
    if not {"recipe", "fingerprint"} <= set(record):
        raise ValueError(f"a record holds recipe and fingerprint, as Partition.record gives; got {list(record)}")
    made: Any = values
    for name, arguments in record["recipe"]:
        if name not in _STEPS:
            raise ValueError(f"unknown step {name!r} in the recipe; this version knows {', '.join(sorted(_STEPS))}")
        made = _STEPS[name](made, **arguments)
    found = made.fingerprint if isinstance(made, Partition) else "no partition: the recipe is empty"
    if found != record["fingerprint"]:
        raise ValueError(
            f"the recipe makes another partition: fingerprint {found}, recorded {record['fingerprint']}; give the same "
            "labels or writers, or use the version of fedlib that made the record"
        )
    return made


_STEPS: dict[str, Callable[..., Partition]] = {
    "split": lambda base, part, **arguments: base.split(**arguments)[part],
}


def _step(make: Callable[Arguments, Partition]) -> Callable[Arguments, Partition]:
    """Let a function write its call into the recipe."""

    @functools.wraps(make)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Partition:
        made = make(*args, **kwargs)
        bound = inspect.signature(make).bind(*args, **kwargs)
        bound.apply_defaults()
        base, *given = bound.arguments.items()
        planted = isinstance(base[1], Partition)
        before, total = (base[1].recipe, base[1].total) if planted else ((), len(np.asarray(base[1])))
        return replace(
            made, total=total, recipe=(*before, (make.__name__, {name: _plain(value) for name, value in given}))
        )

    _STEPS[make.__name__] = call
    return call


def _plain(value: Any) -> Any:
    """The same value in the types of JSON."""
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic, Tensor)) else value


def _words(purpose: str, seed: int, *numbers: int) -> list[int]:
    return [zlib.crc32(purpose.encode()), seed, *(n >> s & 0xFFFFFFFF for n in numbers for s in (0, 32))]


def _random(purpose: str, seed: int, *numbers: int) -> np.random.RandomState:
    """A stream for each purpose: with one for all, a split would put the samples that a mixture drew into one part."""
    return np.random.RandomState(_words(purpose, seed, *numbers))


def _apportion(total: int, shares: ArrayLike, least: int = 0) -> np.ndarray:
    """Whole numbers that add up to `total`, by the largest remainder; of equal remainders the first wins."""
    exact = total * np.asarray(shares, float) / math.fsum(np.asarray(shares))
    sizes = np.floor(exact).astype(int)
    sizes[np.argsort(-np.round(exact - sizes, 9), kind="stable")[: total - sizes.sum()]] += 1
    while sizes.min() < least:
        sizes[sizes.argmax()] -= 1
        sizes[sizes.argmin()] += 1
    return sizes


def _shares(values: Sequence[float], what: str) -> list[float]:
    shares = [float(v) for v in values]
    if not shares or not min(shares) > 0 or not abs(math.fsum(shares) - 1) < 1e-6:
        raise ValueError(f"{what} must be positive and add up to 1; got {tuple(shares)}")
    return shares


def _one_group(rows: Sequence[np.ndarray], ids: np.ndarray | None = None) -> Partition:
    ids = np.arange(len(rows), dtype=np.int64) if ids is None else ids
    group = np.zeros(len(rows), np.int64)
    return Partition(tuple(map(np.sort, rows)), group, tuple(np.zeros(len(r), np.int64) for r in rows), ids)


def _planted(base: Partition, group: np.ndarray, change: Change) -> Partition:
    samples = tuple(np.full(len(r), g) for r, g in zip(base.rows, group, strict=True))
    return replace(base, group=group, sample_group=samples, change=change)


def _labels(y: ArrayLike, n_clients: int) -> np.ndarray:
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"y must have one label a row, shape (R,); got {y.shape}")
    if not (isinstance(n_clients, Integral) and 1 <= n_clients <= len(y)):
        raise ValueError(f"n_clients must be a whole number from 1 to the {len(y)} rows there are; got {n_clients!r}")
    return y


@_step
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


@_step
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


@_step
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


@_step
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


@_step
def by_user(user: ArrayLike, n_clients: int | None = None, min_rows: int = 1, seed: int = 0) -> Partition:
    """One client a writer: the natural partition (chapter 02).

    Parameters
    ----------
    user : array of shape (R,), int
        Who wrote each row, for example ``writer`` of `fedlib.datasets.Arrays`.
    n_clients : int, optional
        Keep so many writers, drawn at random; all by default.
    min_rows : int
        Leave out writers with fewer rows.
    seed : int
        Matters only if `n_clients` is given.

    Returns
    -------
    Partition
        Clients in ascending order of their ids, which are the writers'.

    References
    ----------
    Caldas et al. LEAF: A benchmark for federated settings. 2018.
    """
    user = np.asarray(user)
    if user.ndim != 1 or user.dtype.kind not in "iu":
        raise TypeError(
            f"user must hold one whole number a row, shape (R,); got {user.dtype} {user.shape}; number names with "
            "np.unique(names, return_inverse=True)[1]"
        )
    if user.size and int(user.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"writer {user.max()} does not fit into 64 bits with a sign; number the writers anew")
    order = np.argsort(user, kind="stable")
    ids, start, size = np.unique(user[order].astype(np.int64), return_index=True, return_counts=True)
    enough = np.flatnonzero(size >= min_rows)
    if not 1 <= (len(enough) if n_clients is None else n_clients) <= len(enough):
        raise ValueError(
            f"{len(enough)} of {len(ids)} writers have {min_rows} rows or more; got n_clients = {n_clients}: lower it "
            "or min_rows"
        )
    kept = np.sort(_random("by_user", seed).permutation(enough)[:n_clients])
    return _one_group([order[start[k] : start[k] + size[k]] for k in kept], ids[kept])


def _groups(base: Partition, groups: int, shares: Sequence[float] | None, seed: int, purpose: str) -> np.ndarray:
    """Which client gets which group. What the groups do is drawn elsewhere: it must not depend on the clients."""
    if not isinstance(base, Partition):
        raise TypeError(f"{purpose} needs a Partition, from iid for instance; got {type(base).__name__}")
    if base.change is not None:
        raise ValueError(f"the partition has a {base.change.kind} already; give {purpose} one without planted groups")
    if not 1 <= groups <= len(base.rows):
        raise ValueError(f"groups must lie between 1 and the {len(base.rows)} clients there are; got {groups}")
    shares = [1 / groups] * groups if shares is None else _shares(shares, "shares")
    if len(shares) != groups:
        raise ValueError(f"give one share for each of the {groups} groups; got {len(shares)} shares")
    sizes = _apportion(len(base.rows), shares, least=1)
    return _random(purpose, seed).permutation(np.repeat(np.arange(groups), sizes))


@_step
def label_permutation(
    base: Partition,
    groups: int = 4,
    classes: int = 10,
    kind: str = "cyclic",
    shares: Sequence[float] | None = None,
    seed: int = 0,
) -> Partition:
    """Each group names the classes in its own way: same images, conflicting labels (chapter 02, used in chapter 04).

    Parameters
    ----------
    base : Partition
        Any without planted groups.
    groups : int
        G; 1 permutes the labels of all clients alike, so that they still agree.
    classes : int
        Number of classes; labels are 0 to ``classes - 1``.
    kind : {"cyclic", "random"}
        ``"cyclic"``: one random permutation, shifted by g classes for group g, so that two groups agree on no class;
        needs ``groups <= classes``. One model for all then gets at most 1/G right (of equal groups). ``"random"``: a
        random permutation for each group, no two the same. Groups then agree on some classes by chance, and one model
        for all can get more: about .38 for 4 groups and 10 classes, depending on the seed.
    shares : sequence of G floats, optional
        Share of the clients in each group, equal by default; rounded by the largest remainder, and each group has at
        least one client.
    seed : int
        Decides which client belongs to which group and, whatever the clients, the permutations.

    Returns
    -------
    Partition

    References
    ----------
    Sattler, Müller, Samek. Clustered federated learning. 2019 (random permutations).
    """
    if kind not in ("cyclic", "random"):
        raise ValueError(f'kind must be "cyclic" or "random"; got {kind!r}')
    if kind == "cyclic" and groups > classes:
        raise ValueError(f"{classes} classes have {classes} cyclic shifts, too few for {groups} groups; lower groups")
    if kind == "random" and groups > math.factorial(min(classes, 20)):
        raise ValueError(f"{classes} classes have too few permutations for {groups} groups; lower groups")
    group, random = _groups(base, groups, shares, seed, "label_permutation"), _random("permutations", seed)
    first = random.permutation(classes)
    tables = [tuple(np.roll(first, -g).tolist()) for g in range(groups if kind == "cyclic" else 1)]
    while len(tables) < groups:
        table = tuple(random.permutation(classes).tolist())
        tables += [table] if table not in tables else []
    return _planted(base, group, Change("label_permutation", tuple(tables)))


@_step
def rotation(
    base: Partition,
    degrees: Sequence[float] = (0, 90, 180, 270),
    shares: Sequence[float] | None = None,
    seed: int = 0,
) -> Partition:
    """Each group turns its images, anticlockwise (chapter 02, used in chapter 05).

    Parameters
    ----------
    base : Partition
        Any without planted groups.
    degrees : sequence of G floats
        Turn of each group; 0 changes nothing. Multiples of 90 are exact; others are interpolated between pixels by
        scipy, zeros fill the corners, and whole numbers are rounded.
    shares, seed
        As in `label_permutation`.

    Returns
    -------
    Partition
        For images of shape (..., height, width), square ones for turns by 90 and 270 degrees.

    References
    ----------
    Ghosh et al. An efficient framework for clustered federated learning. NeurIPS 2020 (rotated MNIST).
    """
    turns = [float(d) for d in degrees]
    if not np.isfinite(turns).all() or len({d % 360 for d in turns}) < len(turns):
        raise ValueError(f"degrees must be finite and no two of them the same turn; got {tuple(turns)}")
    group = _groups(base, len(turns), shares, seed, "rotation")
    return _planted(base, group, Change("rotation", tuple(d % 360 for d in turns)))


@_step
def style(
    base: Partition, styles: Sequence[str] = STYLES, shares: Sequence[float] | None = None, seed: int = 0
) -> Partition:
    """Each group draws its images in another style (chapter 02, used in chapter 05).

    Parameters
    ----------
    base : Partition
        Any without planted groups.
    styles : sequence of G str
        Out of ``"plain"`` (changes nothing), ``"inverted"`` (255 - x), ``"noisy"`` (a whole number from -128 to 127
        added to each pixel, clipped; it depends on `seed` and the row number only) and ``"low contrast"`` (96 to 159).
    shares, seed
        As in `label_permutation`.

    Returns
    -------
    Partition
        For uint8 images only; whole numbers throughout, hence exact everywhere.
    """
    names = tuple(styles)
    if isinstance(styles, str) or not set(names) <= set(STYLES) or len(set(names)) < len(names):
        raise ValueError(f"styles must be different ones out of {', '.join(STYLES)}; got {styles!r}")
    group = _groups(base, len(names), shares, seed, "style")
    return _planted(base, group, Change("style", names, seed=int(seed)))


@_step
def feature_subsets(
    base: Partition,
    columns: int,
    k: int | tuple[int, int],
    groups: int = 1,
    seed: int = 0,
    shares: Sequence[float] | None = None,
) -> Partition:
    """Each client sees some of the columns of a table only (chapter 02, used in chapter 07).

    Parameters
    ----------
    base : Partition
        Any without planted groups.
    columns : int
        p, number of columns of x. A one-hot block counts as so many columns.
    k : int or pair of int
        Columns of each client; p gives all columns to all. A pair ``(least, most)`` draws the number for each client.
    groups : int
        G. 1: a client draws from all columns, so that there are no true groups. More: the columns are shuffled and cut
        into G pools of nearly equal size, and a client draws from the pool of its group.
    seed : int
        Decides pools and groups, and with the client's id its columns.
    shares : sequence of G floats, optional
        As in `label_permutation`.

    Returns
    -------
    Partition
        `Partition.columns` says who sees what. Clients are padded with zeros to the width k_max of the widest, which
        changes nothing in a linear layer.

    References
    ----------
    Suzuki, Banaei-Kashani. FedSGCNN (equal widths, one pool or groups of features).
    """
    width, pool = np.ravel(k), columns // max(groups, 1)
    if width.dtype.kind not in "iu" or len(width) > 2 or not 1 <= width[0] <= width[-1] <= pool:
        raise ValueError(
            f"k must be a whole number from 1 to {pool}, the smallest of {groups} pools of {columns} columns, or a "
            f"pair (least, most) of such; got {k}: lower k or groups"
        )
    group = _groups(base, groups, shares, seed, "feature_subsets")
    pools = np.array_split(_random("pools", seed).permutation(columns), groups)
    chosen = []
    for client, g in zip(base.id.tolist(), group, strict=True):
        own = _random("columns", seed, client)
        chosen.append(tuple(np.sort(own.permutation(pools[g])[: own.randint(width[0], width[-1] + 1)]).tolist()))
    return _planted(base, group, Change("feature_subsets", tuple(chosen), width=int(columns)))


@_step
def mixture(base: Partition, fraction: float = 0.5, share: float = 0.3, seed: int = 0) -> Partition:
    """Some clients get samples of a second group (chapter 02, used in chapter 05).

    Parameters
    ----------
    base : Partition
        From `label_permutation`, `rotation` or `style`, two groups or more.
    fraction : float
        Share of the clients that are mixed, drawn at random; 0 mixes none, 1 all.
    share : float
        Share of a mixed client's samples in the second group, below one half. At least one sample, and fewer than the
        main group keeps.
    seed : int
        Decides who is mixed; the second group, any other with the same chance; and, with the client's id, the samples.

    Returns
    -------
    Partition
        With the same `group`, and the second group in `sample_group`.
    """
    if not isinstance(base, Partition) or base.change is None or base.change.kind == "feature_subsets":
        raise ValueError("mixture needs planted groups: give it what label_permutation, rotation or style return")
    groups = len(base.change.values)
    if groups < 2 or any((s != g).any() for s, g in zip(base.sample_group, base.group, strict=True)):
        raise ValueError(f"mixture needs at least 2 groups, and clients that are not mixed yet; got {groups} groups")
    if not 0 <= fraction <= 1 or not 0 < share < 0.5:
        raise ValueError(f"fraction must lie in [0, 1] and share between 0 and 0.5; got {fraction} and {share}")
    least, client = min((len(r), int(i)) for r, i in zip(base.rows, base.id, strict=True))
    if fraction > 0 and least < 3:
        raise ValueError(f"client {client} has {least} rows, mixing needs 3; raise min_rows or take fewer clients")
    random = _random("mixture", seed)
    second = (base.group + 1 + random.randint(groups - 1, size=len(base.rows))) % groups
    samples = list(base.sample_group)
    for k in random.permutation(len(base.rows))[: int(fraction * len(base.rows) + 0.5)]:
        n = len(samples[k])
        taken = min(max(1, int(share * n + 0.5)), (n - 1) // 2)
        samples[k] = samples[k].copy()
        samples[k][_random("samples", seed, int(base.id[k])).permutation(n)[:taken]] = second[k]
    return replace(base, sample_group=tuple(samples))
