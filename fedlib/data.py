"""The data of all clients on one device, and the mini-batches of local training.

Rows are stored flat and in their original type, and a client is a list of row numbers. A row that many clients share is
stored once, and a batch is gathered and converted when it is used. The content of x determines what a model gets, as
the table shows.

======================================  ==========================================================
x                                       in a batch
======================================  ==========================================================
floating point, bool                    numbers in the type of the parameters
uint8 images, ``pixels=True``           numbers from 0 to 1 in that type: bytes divided by 255
any other whole numbers (also uint8)    int64, as an embedding of tokens or categories expects
======================================  ==========================================================
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, default_collate

from .keys import Key

__all__ = [
    "Batch",
    "Batches",
    "ClientData",
    "Pixels",
    "halves",
    "local_batches",
    "positions",
    "same_rows",
    "stack_clients",
    "stack_rows",
]

Rows = ArrayLike | Tensor
Ids = Sequence[int] | None
Batch = tuple[Tensor, ...]  # x, y, w and any further columns; w = 0 marks padding
IGNORED = -100  # torch's marker for a position without a label


class Pixels(np.ndarray):
    """An array whose bytes are marked as pixels, such as the images that `fedlib.datasets.load` returns.

    Slices, sums, means and concatenated arrays keep the mark, comparisons lose it, and ``np.asarray(x)`` removes it.
    You can mark your own array with ``pixels=True`` when you make clients from it. The mark matters only if the array
    is uint8.
    """

    __array_priority__ = 1.0  # so that concatenated arrays keep the mark

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        if array.ndim == 0:
            return array[()]
        return array.view(np.ndarray if array.dtype == bool else Pixels)


@dataclass(frozen=True)
class ClientData:
    """The examples of K clients.

    Create it with `stack_clients`, `stack_rows` or `same_rows`. Indexing by positions, ``data[clients]``, selects
    clients and shares the rows.

    Attributes
    ----------
    x : Tensor of shape (R, ...)
        Rows of features, flat over all clients, in their stored type.
    index : Tensor of shape (K, n_max), int64
        Row numbers of each client; after a client's `n` real ones, its first row is repeated.
    y : Tensor of shape (K, n_max, ...)
        Labels (int64) or targets (floating point), in the order of `index`; usually one per row.
    n : Tensor of shape (K,), int64
        Number of examples of each client.
    id : Tensor of shape (K,), int64
        Unique ids. Random draws depend on the id, not on the position.
    columns : dict of str to Tensor of shape (K, n_max, ...)
        Further values for each example, such as the weights of its domains, in the order of `index`. A batch then ends
        with them, as ``(x, y, w, *columns)``. Usually there are none.
    pixels : bool
        Whether the bytes of x are pixels, which a batch contains as numbers from 0 to 1.
    name : array of shape (K,), str, optional
        Names of the clients, if they have any besides their ids (`fedlib.partition.by_user`).

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
    pixels: bool = False
    name: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.n)

    def __getitem__(self, clients: Tensor | Sequence[int] | slice) -> "ClientData":
        if not isinstance(clients, slice):
            clients = torch.as_tensor(clients, device=self.n.device)
            nobody = not (clients.any() if clients.dtype == torch.bool else clients.numel())
            if clients.ndim != 1 or clients.is_floating_point() or nobody:
                raise TypeError(f"index clients by a slice or a list of positions, not by {clients.tolist()}")
            clients = clients if clients.dtype == torch.bool else clients.long()
        some: dict[str, Any] = {name: getattr(self, name)[clients] for name in ("index", "y", "n", "id")}
        if self.name is not None:
            some["name"] = self.name[clients if isinstance(clients, slice) else clients.cpu().numpy()]
        return replace(self, **some, columns={name: column[clients] for name, column in self.columns.items()})

    def with_columns(self, **columns: Rows) -> "ClientData":
        """Return the same examples with further columns of shape (K, n_max, ...) that contain finite numbers."""
        more = {name: _array(column, f"the column {name!r}").to(self.n.device) for name, column in columns.items()}
        for name, column in more.items():
            if column.shape[:2] != self.index.shape:
                words = f"a number for each example, (K, n_max, ...) = {(*self.index.shape, '...')}"
                raise ValueError(f"the column {name!r} must have {words}; got {tuple(column.shape)}")
        return replace(self, columns=self.columns | more)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "ClientData":
        """Return the same data on another device and, with `dtype`, its floating-point values in that type."""

        def move(t: Tensor) -> Tensor:
            t = t.to(dtype) if dtype is not None and t.is_floating_point() else t
            if len(t) > 1 and t.stride(0) == 0:  # rows that all clients share stay stored once
                return t[:1].to(device).expand_as(t)
            return t.to(device)

        moved: dict[str, Any] = {name: move(getattr(self, name)) for name in ("x", "index", "y", "n", "id")}
        return replace(self, **moved, columns={name: move(column) for name, column in self.columns.items()})

    def sorted(self) -> "ClientData":
        """Return the same clients in ascending order of their ids, which must be unique."""
        if len(self.id.unique()) != len(self):
            raise ValueError(f"the data hold a client twice; ids must differ, got {self.id[:10].tolist()}")
        return self[self.id.argsort()]

    def at(self, position: Tensor, n: Tensor) -> "ClientData":
        """Return each client's examples at these positions (K, m), of which the first n (K,) are real."""

        columns = {name: _gather(column, position) for name, column in self.columns.items()}
        return replace(self, index=_gather(self.index, position), y=_gather(self.y, position), n=n, columns=columns)

    def features(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Return rows of x as a model gets them: this type for numbers, 0 to 1 for pixels, int64 for whole numbers."""
        x = self.x[rows]
        if self.pixels and x.dtype == torch.uint8:
            return x.to(dtype).div_(255)
        return x.to(dtype if x.is_floating_point() or x.dtype == torch.bool else torch.int64)

    def batch(self, position: Tensor, real: Tensor, dtype: torch.dtype) -> Batch:
        """Gather one batch for each client.

        Parameters
        ----------
        position : Tensor of shape (K, B), int64
            Which of its examples each client takes.
        real : Tensor of shape (K, B), bool
            False for padding.
        dtype : torch.dtype
            Floating-point type of the batch.

        Returns
        -------
        x of shape (K, B, ...), y of shape (K, B, ...), w of shape (K, B), and each of `columns`, of shape (K, B, ...)
        """
        index, y, *columns = (_gather(t, position) for t in (self.index, self.y, *self.columns.values()))
        y, *columns = (t.to(dtype) if t.is_floating_point() else t for t in (y, *columns))
        return self.features(index, dtype), y, real.to(dtype), *columns

    @property
    def real(self) -> Tensor:
        """Which entries of `index` hold an example and not padding, of shape (K, n_max), bool."""
        return torch.arange(self.index.shape[1], device=self.n.device) < self.n[:, None]

    def all_rows(self, dtype: torch.dtype) -> Batch:
        """Return one batch for each client with all its examples, padded to the size of the largest client."""
        position = torch.arange(self.index.shape[1], device=self.n.device).expand_as(self.index)
        return self.batch(position, self.real, dtype)


def _gather(t: Tensor, position: Tensor) -> Tensor:
    """Select the entries at each client's positions (K, m) from all its entries (K, n_max, ...)."""
    if t.ndim == 2:
        return t.gather(1, position)
    return t[torch.arange(len(t), device=t.device)[:, None], position]


def positions(ids: Tensor, data: ClientData, name: str, names: np.ndarray | None = None) -> Tensor:
    """Positions of the clients of `data` among the training clients `ids`, which ascend and may have `names`."""
    wanted = data.id.to(ids.device)
    place = torch.searchsorted(ids, wanted).clamp(max=len(ids) - 1)
    unknown = wanted[ids[place] != wanted]
    if len(unknown):
        raise ValueError(f"{name} has clients that are not in training: ids {unknown[:5].tolist()}")
    if names is not None and data.name is not None and (wrong := data.name != names[place.cpu().numpy()]).any():
        who = f"{name} has clients {data.name[wrong][:3]} with ids that others have in training"
        raise ValueError(f"{who}; number all names in one call of by_user, and split its result")
    return place


def _array(values: Any, what: str) -> Tensor:
    """Convert any array of numbers to a tensor."""
    if isinstance(values, Dataset):
        raise TypeError(f"{what} is a {type(values).__name__}; stack_clients reads data sets of pairs: leave ys out")
    if isinstance(values, (pd.DataFrame, pd.Series)):
        values = _columns(values, what)
    if hasattr(values, "toarray") or (isinstance(values, Tensor) and (values.layout != torch.strided)):
        raise TypeError(f"{what} is sparse; give the result of .toarray(), or .to_dense() for a tensor")
    unmasked(values, what)
    ragged = f"{what} has rows of different lengths; pad to one length"
    if isinstance(values, (list, tuple)) and values and all(isinstance(v, Tensor) for v in values):
        if len({v.shape for v in values}) > 1:
            raise ValueError(ragged)
        values = torch.stack([*values])
    if not isinstance(values, Tensor):
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise ValueError(ragged) from error
        size = array.dtype.itemsize
        if array.dtype.kind not in "biuf" or (array.dtype == np.uint64 and (array >> np.uint64(63)).any()):
            raise TypeError(f"{what} must hold numbers, got the type {array.dtype}; encode other columns first")
        kind = "i8" if array.dtype.kind == "u" and size > 1 else f"{array.dtype.kind}{min(size, 8)}"
        values = torch.from_numpy(array.astype(kind))  # a copy, since arrays may be read-only or reversed
    if values.dtype == torch.uint64 and (values.view(torch.int64) < 0).any():
        raise TypeError(f"{what} has whole numbers of 2**63 or more, which int64 cannot hold; renumber them")
    if values.is_complex():
        raise TypeError(f"{what} must hold numbers, got the type {values.dtype}; give real and imaginary parts")
    if values.is_floating_point() and not values.isfinite().all():
        bad = int((~values.isfinite()).reshape(len(values), -1).any(1).nonzero()[0])
        raise ValueError(f"{what} has a missing, NaN or infinite value in row {bad}; drop or impute such rows first")
    return values.detach()


def unmasked(values: Any, what: str) -> None:
    """Refuse masked rows, whose masks NumPy would drop without a word."""
    rows = values if isinstance(values, (list, tuple)) or np.ma.is_masked(values) else ()
    if masked := [k for k, row in enumerate(rows) if np.ma.is_masked(row)]:
        raise ValueError(f"{what} is masked in row {masked[0]}; drop or impute such rows first")


def _columns(table: Any, what: str) -> np.ndarray:
    """Convert a pandas DataFrame or Series to an array, whatever kinds of numbers its columns hold."""
    columns = []
    for name, column in table.items() if table.ndim == 2 else [(table.name, table)]:
        kind = getattr(column.dtype, "numpy_dtype", None)  # for a nullable column
        if not pd.api.types.is_numeric_dtype(column.dtype):
            words = f"{what} must hold numbers, but its column {name!r} is of type {column.dtype}"
            raise TypeError(f"{words}: pd.get_dummies and pd.factorize encode categories, pd.to_numeric objects")
        columns.append(column.to_numpy(float, na_value=np.nan) if column.hasnans else column.to_numpy(kind))
    return np.stack(columns, 1) if table.ndim == 2 else columns[0]


def _same_columns(tables: Sequence[Any], names: Sequence[int]) -> None:
    """Refuse clients whose pandas tables differ in the names or the order of their columns."""
    frames = [(k, list(t)) for k, t in zip(names, tables, strict=True) if isinstance(t, pd.DataFrame)]
    for client, own in frames:
        if own != frames[0][1]:
            words = f"client {client} has columns {own!s:.80}, client {frames[0][0]} {frames[0][1]!s:.80}"
            raise ValueError(f"{words}; give all the same, in the same order: table.reindex(columns=..., fill_value=0)")


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Join all clients' rows; whole numbers mixed with floats become float64, as narrower types could round them."""
    mixed = len({part.is_floating_point() for part in parts}) > 1
    return torch.cat([part if part.is_floating_point() or not mixed else part.double() for part in parts])


def _labels(values: Any, classes: int | None, what: str) -> Tensor:
    y = _array(values, what)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim and not len(y):
        raise ValueError(f"{what} has no examples: leave such a client out, or give every client at least one")
    if classes is not None and (not isinstance(classes, Integral) or classes < 1):
        kind = ValueError if isinstance(classes, Integral) else TypeError
        raise kind(f"classes must be the number of classes, at least 1; got {classes!r:.80}")
    if y.ndim == 0 or 0 in y.shape[1:]:
        raise ValueError(f"{what} must have a label or target per row, shape (R,) or (R, ...); got {tuple(y.shape)}")
    if y.is_floating_point():
        return y
    y = y.long()
    counts = (y != IGNORED) | (y.ndim == 1)  # a row may leave out some of several labels, not all
    if len(bad := (~counts.reshape(len(y), -1).any(1)).nonzero()):
        raise ValueError(f"{what} leaves out all labels of row {int(bad[0])} ({IGNORED}): drop this row")
    wrong = y[counts & ((y < 0) | (y >= (classes or torch.iinfo(y.dtype).max)))]
    if len(wrong):
        upper = "" if classes is None else f" to {classes - 1}"
        raise ValueError(f"{what} has the label {int(wrong.max())}; labels are whole numbers from 0{upper}")
    return y


def one_class(y: Tensor, who: str, shape: int = 1) -> None:
    """Refuse y without exactly one class per row, which the method `who` needs; `shape` counts the axes of rows."""
    if y.is_floating_point() or y.ndim > shape:
        words = f"{y.dtype}, {'one' if y.ndim == shape else tuple(y.shape[shape:])} per row"
        raise TypeError(f"{who} needs class labels, whole numbers, one per row; y holds {words}")


def _marked(pixels: bool | None, x: Tensor, array: Any) -> bool:
    """Whether x holds pixels, as requested or, by default, as the array is marked."""
    if pixels and x.dtype != torch.uint8:
        raise TypeError(f"pixels=True is for bytes from 0 to 255, uint8; x holds {x.dtype}, which needs no mark")
    return x.dtype == torch.uint8 and (isinstance(array, Pixels) if pixels is None else bool(pixels))


def _ids(ids: Sequence[int] | ArrayLike | Tensor | None, clients: int) -> Tensor:
    array = np.arange(clients) if ids is None else np.asarray(ids.cpu() if isinstance(ids, Tensor) else ids)
    good = array.dtype.kind in "iu" and array.shape == (clients,) and (array <= np.iinfo(np.int64).max).all()
    if not good or len(np.unique(array)) != clients:
        words = f"{clients} different whole numbers below 2**63, one for each client"
        raise ValueError(f"ids must be {words}; got {array.tolist()!r:.80}")
    return torch.from_numpy(array.astype(np.int64))


def _row_numbers(rows: ArrayLike, length: int, client: int) -> np.ndarray:
    if isinstance(rows, pd.Index):  # labels equal row numbers only if the table was never filtered or sorted
        raise TypeError(f"client {client} has pandas labels, not row numbers; take .indices of groupby, not .groups")
    r = np.asarray(rows)
    if not r.size:
        raise ValueError(f"client {client} has no examples; leave it out, or give every client at least one")
    if r.dtype.kind not in "iu" or r.ndim != 1 or r.min() < 0 or r.max() >= length:
        raise ValueError(f"client {client}: give a list of whole row numbers from 0 to {length - 1}; got {rows!r:.80}")
    return r.astype(np.int64)


def stack_rows(
    x: Rows, y: Rows, rows: Sequence[ArrayLike], ids: Ids = None, classes: int | None = None, pixels: bool | None = None
) -> ClientData:
    """Make clients from lists of row numbers into shared arrays, as a partition gives them.

    Parameters
    ----------
    x : array of shape (R, ...)
        Features of any numeric type; a tensor is not copied. Whole numbers reach the model as int64, as an embedding
        expects; if they are quantities, pass ``x.astype("float32")``.
    y : array of shape (R,) or (R, ...)
        Whole numbers are class labels, and floating-point numbers are targets. A row may have several, for example
        labels of positions such as next tokens (-100 is left out), labels of 0 and 1, or targets.
    rows : sequence of K arrays
        Row numbers of each client.
    ids : sequence of K int, optional
        Ids of the clients; 0 to K - 1 by default.
    classes : int, optional
        Number of classes; if given, labels of `classes` or more are an error.
    pixels : bool, optional
        True if x holds images as bytes, which a model gets as numbers from 0 to 1. By default, images from
        `fedlib.datasets.load` and from PIL are pixels (`Pixels`), and other arrays are not.

    Returns
    -------
    ClientData

    Raises
    ------
    ValueError
        No clients, a client without examples, x and y of different lengths, a row number out of range, NaN or infinite
        features, labels out of range, or repeated ids.
    TypeError
        Values that are not numbers, with the name of the column, or pixels that are not bytes.
    """
    x = _pictures(x)
    flat_x, flat_y = _array(x, "x"), _labels(y, classes, "y")
    if len(flat_x) != len(flat_y):
        raise ValueError(f"x has {len(flat_x)} rows and y has {len(flat_y)}; they must have equally many")
    if isinstance(rows, Mapping) or not hasattr(rows, "__len__") or not len(rows):
        words = "give at least one list of rows, for a partition its .rows"
        raise ValueError(f"{words}, and for a mapping rows=list(m.values()) and ids=list(m)")
    names = _ids(ids, len(rows))
    lists = [_row_numbers(r, len(flat_x), k) for k, r in zip(names.tolist(), rows, strict=True)]
    n = np.array([len(r) for r in lists])
    index = np.repeat(np.array([r[0] for r in lists])[:, None], n.max(), 1)  # padding repeats a client's first row
    index[np.arange(n.max()) < n[:, None]] = np.concatenate(lists)
    numbers = torch.from_numpy(index)
    mark = _marked(pixels, flat_x, x)
    return ClientData(flat_x, numbers, flat_y[numbers], torch.from_numpy(n), names, pixels=mark)


def _item(value: Any, name: str) -> Any:
    """Convert x or y of a data set's item to a tensor or an array; an image in y is a mask of classes."""
    if not hasattr(value, "getbands") or name == "y":
        return value if isinstance(value, (Tensor, np.ndarray)) else np.asarray(value)
    if value.mode not in ("L", "LA", "RGB", "RGBA"):
        raise TypeError(f'a PIL image of mode {value.mode!r} has no colour bytes; use image.convert("RGB")')
    return np.atleast_3d(np.asarray(value)).transpose(2, 0, 1).view(Pixels)


def _pictures(x: Any) -> Any:
    """Convert a list of PIL images to one array of pixels; return anything else unchanged."""
    listed = isinstance(x, (list, tuple)) and len(x) > 0 and all(hasattr(value, "getbands") for value in x)
    return np.stack([_item(value, "x") for value in x]) if listed else x


def _read(source: Any, who: str) -> list[Any]:
    """Read a data set item by item, and stack its x and its y."""
    endless = isinstance(source, Dataset) and not isinstance(source, IterableDataset) and not hasattr(source, "__len__")
    if endless or isinstance(source, (pd.DataFrame, pd.Series, Mapping)) or hasattr(source, "toarray"):
        got = f"a {type(source).__name__}{' without __len__' if endless else ''}"
        raise TypeError(f"{who}: without ys, a client is a data set whose items are pairs (x, y); got {got}")
    if isinstance(source, DataLoader):  # read in the order of its data set, since the seed draws batches later
        rows = [] if isinstance(source.dataset, IterableDataset) else sorted(source.sampler)
        if source.batch_size is None or source.collate_fn is not default_collate or len(set(rows)) < len(rows):
            raise TypeError(f"{who}: this DataLoader draws or collates in its own way; give its dataset instead")
        source = Subset(source.dataset, rows) if rows else source.dataset
    listed = hasattr(source, "__getitem__") and hasattr(source, "__len__") and not isinstance(source, IterableDataset)
    items: list[Any] = [source[i] for i in range(len(source))] if listed else list(source)
    wrong = [item for item in items if not isinstance(item, (tuple, list)) or len(item) != 2]
    if wrong or not items:
        got = f"a {type(wrong[0]).__name__}, {wrong[0]!r:.60}: make a list of pairs" if wrong else "none"
        raise TypeError(f"{who}: without ys, a client is a data set whose items are pairs (x, y); got {got}")
    stacked = []
    for name, column in zip("xy", zip(*items, strict=True), strict=True):
        parts = [_item(part, name) for part in column]
        kinds = {f"{tuple(part.shape)} of {part.dtype}": None for part in parts}
        if len(kinds) > 1 or len(set(map(type, parts))) > 1:
            words = f"{who}: its items have {name} of different kinds, {' and '.join(list(kinds)[:2])}"
            raise ValueError(f"{words}; give all one size and type in the transform of the data set")
        unmasked(parts, f"{name} of {who}")
        stacked.append(torch.stack(parts) if isinstance(parts[0], Tensor) else np.stack(parts))
    return stacked


def stack_clients(
    xs: Sequence[Any],
    ys: Sequence[ArrayLike | Tensor] | None = None,
    ids: Sequence[int] | None = None,
    classes: int | None = None,
    pixels: bool | None = None,
) -> ClientData:
    """Make clients, each from one array of features and one of labels, or from one torch data set.

    Parameters
    ----------
    xs : sequence of K arrays of shape (n_k, ...), or of K data sets
        A data set is anything with items (x, y), such as a torch Dataset, Subset or DataLoader, or a list of pairs. It
        is read into memory once, in its own order. A random transform would therefore apply only once to each image, so
        leave it out and augment inside the loss (``fedlib.augment``). PIL images become pixels, channels first.
    ys : sequence of K arrays of shape (n_k,) or (n_k, ...)
        Omitted if xs are data sets.
    ids, classes, pixels
        As in `stack_rows`.

    Returns
    -------
    ClientData

    Raises
    ------
    ValueError
        As in `stack_rows`, and if a client's x and y differ in length, clients differ in the shape of a row, or items
        of a data set cannot be stacked.

    Examples
    --------
    >>> import numpy as np
    >>> from fedlib import stack_clients
    >>> hospital, school = np.zeros((4, 2), "float32"), np.ones((6, 2), "float32")
    >>> stack_clients([hospital, school], [np.array([0, 1, 0, 1]), np.array([0, 1, 2, 0, 1, 2])]).n
    tensor([4, 6])
    """
    if not all(hasattr(a, "__len__") and not isinstance(a, Mapping) for a in (xs, () if ys is None else ys)):
        words = "xs and ys must be sequences: give list(xs)"
        raise TypeError(f"{words}, and for mappings list(xs.values()), list(ys.values()) and ids=list(xs)")
    if not len(xs) or len(xs) != len(xs if ys is None else ys):
        raise ValueError(
            f"no clients, or not one y for each x: got {len(xs)} arrays x and {len(xs if ys is None else ys)} y"
        )
    names = _ids(ids, len(xs)).tolist()
    if ys is None:
        xs, ys = zip(*(_read(x, f"client {k}") for k, x in zip(names, xs, strict=True)), strict=True)
    xs = [_pictures(x) for x in xs]
    _same_columns(xs, names)
    _same_columns(ys, names)
    tx = [_array(x, f"x of client {k}") for k, x in zip(names, xs, strict=True)]
    ty = [_labels(y, classes, f"y of client {k}") for k, y in zip(names, ys, strict=True)]
    for client, x, y in zip(names, tx, ty, strict=True):
        if x.shape != (len(y), *tx[0].shape[1:]) or y.shape[1:] != ty[0].shape[1:]:
            like = f"{tuple(tx[0].shape[1:])} and {tuple(ty[0].shape[1:])} as client {names[0]} has"
            raise ValueError(
                f"client {client} has x of shape {tuple(x.shape)} and y of shape {tuple(y.shape)}; give as many rows "
                f"of both, of shape {like}: pad narrower clients with zero columns"
            )
    kinds = [(x.dtype == torch.uint8, _marked(pixels, x, given)) for x, given in zip(tx, xs, strict=True)]
    if len(set(kinds)) > 1:
        other = names[[kind == kinds[0] for kind in kinds].index(False)]
        raise TypeError(
            f"clients {names[0]} and {other}: only one x holds bytes, or pixels; give one type, or say pixels="
        )
    rows = np.split(np.arange(sum(map(len, tx))), np.cumsum([len(x) for x in tx])[:-1])
    return stack_rows(_joined(tx), _joined(ty), rows, ids, classes, kinds[0][1])


def same_rows(x: Rows, y: Rows, ids: Sequence[int] | Tensor, pixels: bool | None = None) -> ClientData:
    """Give every client all rows, stored once, for example as a common test set for personal models.

    Parameters
    ----------
    x : array of shape (R, ...)
    y : array of shape (R,) or (R, ...)
    ids : sequence of K int
        Ids of the clients.
    pixels : bool, optional
        As in `stack_rows`.

    Returns
    -------
    ClientData
    """
    if isinstance(ids, ClientData) or not hasattr(ids, "__len__"):
        raise TypeError(f"ids must be a list of whole numbers, as data.id is; got a {type(ids).__name__}")
    flat = _array(x, "x")
    one, k = stack_rows(flat, y, [np.arange(len(flat))], pixels=_marked(pixels, flat, x)), len(ids)
    index, y, n = (t.expand(k, *t.shape[1:]) for t in (one.index, one.y, one.n))
    return replace(one, index=index, y=y, n=n, id=_ids(ids, k))


@dataclass(frozen=True)
class Batches:
    """The mini-batches of local training, which `iterate` yields; indexing selects some clients.

    Attributes
    ----------
    data : ClientData
        The C clients.
    size : int
        B, examples in a batch.
    epochs : int
        E, local epochs.
    key : Key
        Determines how each client shuffles its examples.
    steps : Tensor of shape (C,), int64, on the CPU
        Number of steps that each client takes, those of all its epochs or fewer for a straggler.
    """

    data: ClientData
    size: int
    epochs: int
    key: Key
    steps: Tensor

    def __len__(self) -> int:
        return int(self.steps.max())

    def __getitem__(self, clients: Tensor) -> "Batches":
        return replace(self, data=self.data[clients.to(self.data.n.device)], steps=self.steps[clients])

    @property
    def examples(self) -> Tensor:
        """Number of examples that each client processes in its steps, of shape (C,), on the CPU."""
        n = self.data.n.cpu()
        per_epoch = (n + self.size - 1) // self.size
        return self.steps // per_epoch * n + self.steps % per_epoch * self.size

    @property
    def seeds(self) -> Tensor:
        """Seeds of the random numbers in each client's loss (`fedlib.chance`), of shape (C,), int64."""
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
        """Yield x (C, B, ...), y (C, B, ...) and w (C, B) of each step; B is as small as the clients' rows allow."""
        position, real = self.plan()
        for step, rows in enumerate(real.sum(2).amax(0).tolist()):  # real rows come first
            yield self.data.batch(position[:, step, :rows], real[:, step, :rows], dtype)


def local_batches(data: ClientData, batch_size: int | None, epochs: int, key: Key) -> Batches:
    """Make the mini-batches of a cohort, in which every client reshuffles its examples in each local epoch.

    Parameters
    ----------
    data : ClientData
        The C clients of the cohort.
    batch_size : int or None
        B, examples in a batch; the last batch of an epoch may have fewer. None takes all examples of a client at once
        (with ``epochs=1`` this is FedSGD).
    epochs : int
        E, local epochs.
    key : Key
        A client's shuffling depends only on this key and on the client's id.

    Returns
    -------
    Batches
        Clients run in step, so a client that has used up its examples waits for the others.

    Notes
    -----
    Nothing is drawn until the batches are used, and then only for the clients that train together. Each of these
    clients needs E x n_max numbers of 8 bytes, a few times over. Chapter 01.
    """
    n = data.n.cpu()
    size = data.index.shape[1] if batch_size is None else min(batch_size, int(n.max()))
    return Batches(data, size, epochs, key, (n + size - 1) // size * epochs)


def halves(data: ClientData, key: Key, size: int) -> tuple[ClientData, ClientData]:
    """Split each client's examples into two random halves, fixed for the run and of the same size for all clients.

    Parameters
    ----------
    data : ClientData
    key : Key
        Only its seed counts.
    size : int
        Examples in each half, at least 1. A client whose half is smaller repeats its examples; one whose half is larger
        leaves some out.

    Returns
    -------
    tuple of two ClientData
        No example is in both halves, unless a client has only one.
    """
    order = Key(key.seed).permutations(data.id, "halves", data.n, 1, data.index.shape[1])[:, 0]

    def half(n: Tensor, first: Tensor) -> ClientData:  # every second one, beginning with the first
        place = order.gather(1, first[:, None] + 2 * (torch.arange(size, device=n.device) % n[:, None]))
        return data.at(place, torch.full_like(n, size))

    return half((data.n + 1) // 2, torch.zeros_like(data.n)), half((data.n // 2).clamp(min=1), (data.n > 1).long())
