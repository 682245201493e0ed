"""The data of all clients on one device, and the mini-batches of local training.

Rows lie flat in their stored type, uint8 images stay uint8; a client is a list of row numbers. A row that many clients
hold is stored once, and a batch is gathered and converted when it is used.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .keys import Key

__all__ = [
    "Batch",
    "Batches",
    "ClientData",
    "halves",
    "local_batches",
    "positions",
    "same_rows",
    "stack_clients",
    "stack_rows",
    "to_features",
]

Batch = tuple[Tensor, ...]  # x, y, w and further columns, if there are any; w = 0 marks padding


@dataclass(frozen=True)
class ClientData:
    """The examples of K clients.

    Make one with `stack_clients`, `stack_rows` or `same_rows`. Indexing with positions, ``data[clients]``, keeps some
    clients and shares the rows.

    Attributes
    ----------
    x : Tensor of shape (R, ...)
        Rows of features, flat over all clients, in their stored type.
    index : Tensor of shape (K, n_max), int64
        Row numbers of each client; past a client's `n` real ones its first row repeats.
    y : Tensor of shape (K, n_max)
        Labels (int64) or targets (floating point), in the order of `index`.
    n : Tensor of shape (K,), int64
        Number of examples of each client.
    id : Tensor of shape (K,), int64
        Ids, all different. Random draws follow the id, not the position.
    columns : dict of str to Tensor of shape (K, n_max, ...)
        What else is known of each example, such as the weights of its domains, in the order of `index`. A batch then
        ends with them: ``(x, y, w, *columns)``. Mostly there are none.

    Examples
    --------
    >>> import torch
    >>> from fedlib import stack_clients
    >>> data = stack_clients([torch.zeros(4, 2), torch.ones(6, 2)], [torch.zeros(4), torch.ones(6)])
    >>> data.n.tolist(), data[[1]].id.tolist()
    ([4, 6], [1])
    """

    x: Tensor
    index: Tensor
    y: Tensor
    n: Tensor
    id: Tensor
    columns: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.n)

    def __getitem__(self, clients: Tensor | Sequence[int] | slice) -> "ClientData":
        if not isinstance(clients, slice):
            clients = torch.as_tensor(clients, device=self.n.device)
            nobody = not (clients.any() if clients.dtype == torch.bool else clients.numel())
            if clients.ndim != 1 or clients.is_floating_point() or nobody:
                raise TypeError(f"index clients by a slice or a list of positions, not by {clients.tolist()}")
            clients = clients if clients.dtype == torch.bool else clients.long()
        some = {name: getattr(self, name)[clients] for name in ("index", "y", "n", "id")}
        return replace(self, **some, columns={name: column[clients] for name, column in self.columns.items()})

    def with_columns(self, **columns: Tensor) -> "ClientData":
        """The same examples, with further columns of shape (K, n_max, ...)."""
        return replace(self, columns=self.columns | columns)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "ClientData":
        """The same data on another device, floating-point features and targets in another type."""

        def move(t: Tensor) -> Tensor:
            t = t.to(dtype) if dtype is not None and t.is_floating_point() else t
            if len(t) > 1 and t.stride(0) == 0:  # rows that all clients share stay stored once
                return t[:1].to(device).expand_as(t)
            return t.to(device)

        moved = {name: move(getattr(self, name)) for name in ("x", "index", "y", "n", "id")}
        return ClientData(**moved, columns={name: move(column) for name, column in self.columns.items()})

    def sorted(self) -> "ClientData":
        """The same clients in ascending order of their ids, which must differ."""
        if len(self.id.unique()) != len(self):
            raise ValueError(f"the data hold a client twice; ids must differ, got {self.id[:10].tolist()}")
        return self[self.id.argsort()]

    def batch(self, position: Tensor, real: Tensor, dtype: torch.dtype) -> Batch:
        """Gather one batch of each client.

        Parameters
        ----------
        position : Tensor of shape (K, B), int64
            Which of its examples each client takes.
        real : Tensor of shape (K, B), bool
            False for padding.
        dtype : torch.dtype
            Floating-point type of the batch. Bytes (uint8 images) become numbers in [0, 1].

        Returns
        -------
        x of shape (K, B, ...), y of shape (K, B), w of shape (K, B), and each of `columns`, of shape (K, B, ...)
        """
        x = to_features(self.x[self.index.gather(1, position)], dtype)
        client = torch.arange(len(self), device=position.device)[:, None] if self.columns else None
        more = [column[client, position] for column in self.columns.values()]
        y, *more = (t.to(dtype) if t.is_floating_point() else t for t in (self.y.gather(1, position), *more))
        return x, y, real.to(dtype), *more

    @property
    def real(self) -> Tensor:
        """Which places of `index` hold an example and are no padding, of shape (K, n_max), bool."""
        return torch.arange(self.index.shape[1], device=self.n.device) < self.n[:, None]

    def all_rows(self, dtype: torch.dtype) -> Batch:
        """One batch of each client that holds all its examples, padded to the largest client."""
        position = torch.arange(self.index.shape[1], device=self.n.device).expand_as(self.index)
        return self.batch(position, self.real, dtype)


def positions(ids: Tensor, data: ClientData, name: str) -> Tensor:
    """Where the clients of `data` stand among the training clients `ids`, which ascend."""
    wanted = data.id.to(ids.device)
    place = torch.searchsorted(ids, wanted).clamp(max=len(ids) - 1)
    unknown = wanted[ids[place] != wanted]
    if len(unknown):
        raise ValueError(f"{name} has clients that are not in training: ids {unknown[:5].tolist()}")
    return place


def to_features(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows in the type of the parameters; bytes (uint8 images) become numbers in [0, 1]."""
    return rows.to(dtype).div_(255) if rows.dtype == torch.uint8 else rows.to(dtype)


def _array(values: ArrayLike | Tensor, what: str) -> Tensor:
    if not isinstance(values, Tensor):
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{what} must hold numbers, got the type {array.dtype}; encode other columns first")
        values = torch.from_numpy(np.array(array))  # a copy: also of read-only and reversed arrays
    if values.is_floating_point() and not values.isfinite().all():
        bad = int((~values.isfinite()).reshape(len(values), -1).any(1).nonzero()[0])
        raise ValueError(f"{what} has a NaN or infinite value in row {bad}; drop or impute such rows first")
    return values


def _labels(values: ArrayLike | Tensor, classes: int | None, what: str) -> Tensor:
    y = _array(values, what)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1:
        raise ValueError(f"{what} must have one label or target a row, shape (R,); got {tuple(y.shape)}")
    if y.is_floating_point():
        return y
    y = y.long()
    wrong = y[(y < 0) | (y >= (classes or torch.iinfo(y.dtype).max))]
    if len(wrong):
        upper = "" if classes is None else f" to {classes - 1}"
        raise ValueError(f"{what} has the label {int(wrong.max())}; labels are whole numbers from 0{upper}")
    return y


def _ids(ids: Sequence[int] | ArrayLike | Tensor | None, clients: int) -> Tensor:
    array = np.arange(clients) if ids is None else np.asarray(ids.cpu() if isinstance(ids, Tensor) else ids)
    if array.dtype.kind not in "iu" or array.shape != (clients,) or len(np.unique(array)) != clients:
        raise ValueError(f"ids must be {clients} different whole numbers, one for each client; got {array[:10]}")
    return torch.from_numpy(array.astype(np.int64))


def _row_numbers(rows: ArrayLike, length: int, client: int) -> np.ndarray:
    r = np.asarray(rows)
    if not r.size:
        raise ValueError(f"client {client} has no examples; leave it out, or give every client at least one")
    if r.dtype.kind not in "iu" or r.ndim != 1 or r.min() < 0 or r.max() >= length:
        raise ValueError(f"client {client}: give a list of whole row numbers from 0 to {length - 1}; got {rows!r:.80}")
    return r.astype(np.int64)


def stack_rows(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    rows: Sequence[ArrayLike],
    ids: Sequence[int] | None = None,
    classes: int | None = None,
) -> ClientData:
    """Clients as lists of row numbers into shared arrays: what a partition gives.

    Parameters
    ----------
    x : array of shape (R, ...)
        Features; uint8 images stay uint8. A tensor is not copied.
    y : array of shape (R,)
        Whole numbers are class labels, floating-point numbers are regression targets.
    rows : sequence of K arrays
        Row numbers of each client.
    ids : sequence of K int, optional
        Ids of the clients; 0 to K - 1 by default.
    classes : int, optional
        Number of classes; labels of `classes` or more are then an error.

    Returns
    -------
    ClientData

    Raises
    ------
    ValueError
        No clients, a client without examples, x and y of different lengths, a row number out of range, NaN or infinite
        features, labels out of range, ids that repeat.
    TypeError
        Something else than numbers.
    """
    flat_x, flat_y = _array(x, "x"), _labels(y, classes, "y")
    if len(flat_x) != len(flat_y):
        raise ValueError(f"x has {len(flat_x)} rows and y has {len(flat_y)}; they must have as many")
    if isinstance(rows, Mapping) or not len(rows):
        raise ValueError("give at least one list of rows, and of a mapping rows=list(m.values()) and ids=list(m)")
    names = _ids(ids, len(rows))
    lists = [_row_numbers(r, len(flat_x), k) for k, r in zip(names.tolist(), rows, strict=True)]
    n = np.array([len(r) for r in lists])
    index = np.repeat(np.array([r[0] for r in lists])[:, None], n.max(), 1)  # padding repeats a client's first row
    index[np.arange(n.max()) < n[:, None]] = np.concatenate(lists)
    numbers = torch.from_numpy(index)
    return ClientData(flat_x, numbers, flat_y[numbers], torch.from_numpy(n), names)


def stack_clients(
    xs: Sequence[ArrayLike | Tensor],
    ys: Sequence[ArrayLike | Tensor],
    ids: Sequence[int] | None = None,
    classes: int | None = None,
) -> ClientData:
    """Clients from one array of features and one of labels each.

    Parameters
    ----------
    xs : sequence of K arrays of shape (n_k, ...)
    ys : sequence of K arrays of shape (n_k,)
    ids, classes
        As in `stack_rows`.

    Returns
    -------
    ClientData

    Raises
    ------
    ValueError
        As `stack_rows`, and when a client's x and y differ in length or clients differ in the shape of a row.

    Examples
    --------
    >>> import numpy as np
    >>> from fedlib import stack_clients
    >>> hospital, school = np.zeros((4, 2), "float32"), np.ones((6, 2), "float32")
    >>> stack_clients([hospital, school], [np.array([0, 1, 0, 1]), np.array([0, 1, 2, 0, 1, 2])]).n
    tensor([4, 6])
    """
    if isinstance(xs, Mapping) or isinstance(ys, Mapping):
        raise TypeError("xs and ys must be sequences; give list(xs.values()), list(ys.values()) and ids=list(xs)")
    if not len(xs) or len(xs) != len(ys):
        raise ValueError(f"no clients, or not one y for each x: got {len(xs)} arrays x and {len(ys)} arrays y")
    names = _ids(ids, len(xs)).tolist()
    tx = [_array(x, f"x of client {k}") for k, x in zip(names, xs, strict=True)]
    ty = [_labels(y, classes, f"y of client {k}") for k, y in zip(names, ys, strict=True)]
    for client, x, y in zip(names, tx, ty, strict=True):
        if x.shape != (len(y), *tx[0].shape[1:]):
            raise ValueError(
                f"client {client} has x of shape {tuple(x.shape)} and {len(y)} labels; give one label a row, and rows "
                f"of shape {tuple(tx[0].shape[1:])} as client {names[0]} has: pad narrower clients with zero columns"
            )
    rows = np.split(np.arange(sum(map(len, tx))), np.cumsum([len(x) for x in tx])[:-1])
    return stack_rows(torch.cat(tx), torch.cat(ty), rows, ids, classes)


def same_rows(x: ArrayLike | Tensor, y: ArrayLike | Tensor, ids: Sequence[int] | Tensor) -> ClientData:
    """Give every client all rows, stored once: one common test set for personal models.

    Parameters
    ----------
    x : array of shape (R, ...)
    y : array of shape (R,)
    ids : sequence of K int
        Ids of the clients.

    Returns
    -------
    ClientData
    """
    x = _array(x, "x")
    one, k = stack_rows(x, y, [np.arange(len(x))]), len(ids)
    return ClientData(one.x, one.index.expand(k, -1), one.y.expand(k, -1), one.n.expand(k), _ids(ids, k))


@dataclass(frozen=True)
class Batches:
    """The mini-batches of local training: iterate over it, or slice some clients out of it.

    Attributes
    ----------
    data : ClientData
        The C clients.
    batch_size : int or None
        B; None takes all examples of a client at once.
    epochs : int
        E, local epochs.
    key : Key
        Decides how each client shuffles.
    steps : Tensor of shape (C,), int64, on the CPU
        How many steps each client takes; all of its epochs, or fewer for a straggler.
    """

    data: ClientData
    batch_size: int | None
    epochs: int
    key: Key
    steps: Tensor

    def __len__(self) -> int:
        return int(self.steps.max())

    def __getitem__(self, clients: Tensor) -> "Batches":
        return replace(self, data=self.data[clients.to(self.data.n.device)], steps=self.steps[clients])

    @property
    def size(self) -> int:
        """Rows of a batch: B, or those of the largest client if these are fewer."""
        most = self.data.index.shape[1]
        return most if self.batch_size is None else min(self.batch_size, most)

    @property
    def examples(self) -> Tensor:
        """How many examples each client goes through in its steps, of shape (C,), on the CPU."""
        n = self.data.n.cpu()
        per_epoch = (n + self.size - 1) // self.size
        return self.steps // per_epoch * n + self.steps % per_epoch * self.size

    @property
    def seeds(self) -> Tensor:
        """Of the random numbers of each client's loss (`fedlib.chance`), of shape (C,), int64."""
        return self.key.bits(self.data.id, "loss")

    def plan(self) -> tuple[Tensor, Tensor]:
        """Which of its examples each client takes in each step.

        Returns
        -------
        position : Tensor of shape (C, S, B), int64
            A client with fewer than S steps repeats its last batch.
        real : Tensor of shape (C, S, B), bool
            False for padding.
        """
        n, longest = self.data.n, self.data.index.shape[1]
        order = self.key.permutations(self.data.id, "batches", n, self.epochs, longest)  # (C, E, n_max)
        per_epoch = (n + self.size - 1) // self.size
        last = self.steps.to(n.device) - 1
        step = torch.arange(len(self), device=n.device).minimum(last[:, None])  # (C, S)
        epoch, batch = step // per_epoch[:, None], step % per_epoch[:, None]
        place = batch[..., None] * self.size + torch.arange(self.size, device=n.device)  # in the shuffled epoch
        real = place < n[:, None, None]
        flat = epoch[..., None] * longest + place * real
        return order.flatten(1).gather(1, flat.flatten(1)).view_as(flat), real

    def iterate(self, dtype: torch.dtype) -> Iterator[Batch]:
        """Yield x (C, B, ...), y (C, B) and w (C, B) of each step; B is as small as all the clients' rows allow."""
        position, real = self.plan()
        for step, rows in enumerate(real.sum(2).amax(0).tolist()):  # real ones come first
            yield self.data.batch(position[:, step, :rows], real[:, step, :rows], dtype)


def local_batches(data: ClientData, batch_size: int | None, epochs: int, key: Key) -> Batches:
    """The mini-batches of a cohort: every client shuffles its own examples anew in each local epoch.

    Parameters
    ----------
    data : ClientData
        The C clients of the cohort.
    batch_size : int or None
        B, examples in a batch; the last batch of an epoch may hold fewer. None takes all examples of a client at
        once (with ``epochs=1`` this is FedSGD).
    epochs : int
        E, local epochs.
    key : Key
        The shuffling of a client depends on this and on the client's id only.

    Returns
    -------
    Batches
        Clients are in step: a client whose examples are used up waits for the others.

    Notes
    -----
    Nothing is drawn before the batches are used, and then only for the clients that train together: E x n_max numbers
    of 8 bytes for each of them, a few times over. Chapter 01.
    """
    n = data.n.cpu()
    steps = torch.ones_like(n) if batch_size is None else (n + batch_size - 1) // batch_size
    return Batches(data, batch_size, epochs, key, steps * epochs)


def halves(data: ClientData, key: Key, size: int) -> tuple[ClientData, ClientData]:
    """Two random halves of each client's examples, the same in every round of a run, and of one size for all clients.

    Parameters
    ----------
    data : ClientData
    key : Key
        Only its seed counts.
    size : int
        Examples in either half, at least 1. A client whose half is smaller repeats it; one with a larger half leaves
        some out.

    Returns
    -------
    tuple of two ClientData
        No example is in both, except where a client has only one.
    """
    order = Key(key.seed).permutations(data.id, "halves", data.n, 1, data.index.shape[1])[:, 0]

    def half(n: Tensor, first: Tensor) -> ClientData:  # every second from the first on
        place = order.gather(1, first[:, None] + 2 * (torch.arange(size, device=n.device) % n[:, None]))
        columns = {name: c[torch.arange(len(c), device=c.device)[:, None], place] for name, c in data.columns.items()}
        rows = {"index": data.index.gather(1, place), "y": data.y.gather(1, place)}
        return replace(data, n=torch.full_like(n, size), columns=columns, **rows)

    return half((data.n + 1) // 2, torch.zeros_like(data.n)), half((data.n // 2).clamp(min=1), (data.n > 1).long())
