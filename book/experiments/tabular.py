"""Tables shared out among clients that hold different columns: one task, many feature spaces.

`table` reads a data set, `deal` gives each client rows and columns of its own, and `SETTINGS` states the experiments of
the FedSGCNN paper. `deal` can also plant a difference between the clients' targets, whose truth is then known.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedlib import ClientData, datasets, stack_rows
from fedlib.checks import check_number, check_whole
from fedlib.partition.groups import feature_subsets
from fedlib.partition.labels import one_group, random_of

__all__ = ["PLANTS", "SETTINGS", "TABLES", "Setting", "TabularClients", "Table", "deal", "table"]

TABLES = ("boston", "wine_quality", "obesity", "diabetes", "breast_cancer", "wine")
PLANTS = ("scale", "sign")


@dataclass(frozen=True, eq=False)
class Table:
    """A data set of numbers in columns (chapter 11).

    Parameters
    ----------
    name : str
    x : ndarray of shape (R, p), float32
        Not standardised.
    y : ndarray of shape (R,)
        Targets (float32) or classes from 0 (int64).
    columns : tuple of p str
        A one-hot column is named ``"<raw column>=<value>"``.
    blocks : tuple of tuples of int
        For each raw column the columns of `x` that belong to it: several where it is one-hot, else one. Each column
        belongs to one block.
    classes : int or None
        Number of classes; None for regression.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    columns: tuple[str, ...]
    blocks: tuple[tuple[int, ...], ...]
    classes: int | None = None


def table(name: str, without: Iterable[str] = ()) -> Table:
    """Read a table (chapter 11).

    Parameters
    ----------
    name : str
        Out of `TABLES`. The first three are the paper's. Column B of ``"boston"`` encodes race, and scikit-learn
        removed the set for that: prefer another one, or leave the column out.
    without : iterable of str
        Raw columns to leave out. Height and Weight nearly determine the class of ``"obesity"``, which is a band of
        weight / height^2.

    Returns
    -------
    Table

    Raises
    ------
    ValueError
        The name is not in `TABLES`, or the table has no column of a name in `without`.

    Notes
    -----
    The paper states 17 features of ``"obesity"``; 16 exist, the 17th is the class. 1,179 rows of ``"wine_quality"``
    and 24 of ``"obesity"`` repeat another row with its class. They are kept, as in the paper, so that a test row can
    equal a training row.
    """
    if name not in TABLES:
        raise ValueError(f"unknown table {name!r}; known: {', '.join(TABLES)}")
    arrays, left_out = datasets.load(name), set(without)
    raw = [column.split("=")[0] for column in arrays.columns]
    if unknown := sorted(left_out - set(raw)):
        raise ValueError(f"{name} has no raw column {', '.join(unknown)}; it has {', '.join(dict.fromkeys(raw))}")
    kept = [c for c, r in enumerate(raw) if r not in left_out]
    blocks: dict[str, list[int]] = {}
    for place, c in enumerate(kept):
        blocks.setdefault(raw[c], []).append(place)
    columns = tuple(arrays.columns[c] for c in kept)
    return Table(name, arrays.x[:, kept], arrays.y, columns, tuple(map(tuple, blocks.values())), arrays.stats.classes)


@dataclass(frozen=True)
class Setting:
    """An experiment of the FedSGCNN paper: its Table 4 and section 5.1.3 (chapter 12).

    Parameters
    ----------
    clients : int
    rows : int
        Rows of a client. The paper does not state which of them it tests on.
    features : int
        Raw columns of a client.
    groups : int
        Groups of features in the clustered variant; the other one has 1.
    hold_out : int
        Rows of the common test set: those that no client holds. The paper states none.
    hidden : tuple of int
        Widths of the hidden layers; the first one is local.
    rounds : int
    share : float
        Share of the clients that join a round.
    optimizer : {"sgd", "adam"}
    lr, momentum : float
        The momentum is SGD's.
    epochs : int
        Local epochs of a round.
    batch_size : int

    References
    ----------
    Suzuki, Banaei-Kashani. FedSGCNN.
    """

    clients: int
    rows: int
    features: int
    groups: int
    hold_out: int
    hidden: tuple[int, ...]
    rounds: int
    share: float
    optimizer: Literal["sgd", "adam"]
    lr: float = 0.01
    momentum: float = 0.0
    epochs: int = 10
    batch_size: int = 32


SETTINGS = {
    "boston": Setting(20, 20, 5, 2, 106, (64, 32, 16), 100, 1.0, "sgd", momentum=0.5),
    "wine_quality": Setting(100, 10, 4, 2, 5_497, (16, 8), 1_000, 0.1, "adam"),
    "obesity": Setting(100, 20, 4, 3, 111, (16, 8), 1_000, 0.1, "adam"),
}


@dataclass(frozen=True, eq=False)
class TabularClients:
    """What `deal` returns: K clients with columns of their own (chapter 11).

    Attributes
    ----------
    train : ClientData
        Ids 0 to K - 1. x holds a client's columns in ascending order, then zeros to the width of the widest client.
    validation : ClientData or None
        Further rows of each client; None if none were asked for.
    test : ClientData
        The hold-out, the same rows in the same order for all, each client with its own columns and scaling.
    columns : tuple of K integer arrays
        Raw columns of each client, ascending: positions in `Table.blocks`.
    widths : Tensor of shape (K,), int64
        Real inputs of each client, with every column of its one-hot blocks.
    group : array of shape (K,), int
        True feature group of each client.
    planted : array of shape (K,), int
        1 where the target was changed; all 0 without a plant.
    """

    train: ClientData
    validation: ClientData | None
    test: ClientData
    columns: tuple[np.ndarray, ...]
    widths: Tensor
    group: np.ndarray
    planted: np.ndarray

    def in_double(self) -> "TabularClients":
        """The same in double precision, on the CPU."""
        parts = {name: getattr(self, name) for name in ("train", "validation", "test")}
        return replace(self, **{name: d and d.to("cpu", torch.float64) for name, d in parts.items()})


def deal(
    table: Table,
    clients: int,
    rows: int,
    features: int | tuple[int, int],
    validation: int = 0,
    hold_out: int | None = None,
    groups: int = 1,
    overlap: bool = False,
    plant: str | None = None,
    strength: float = 0.0,
    seed: int = 0,
) -> TabularClients:
    """Share rows and columns of a table out among clients (chapters 11 and 12).

    Parameters
    ----------
    table : Table
    clients : int
        K.
    rows : int
        Training rows of each client.
    features : int or pair of int
        Raw columns of each client, drawn by `fedlib.partition.feature_subsets`; a one-hot block counts as one and stays
        whole. A pair ``(least, most)`` draws the number for each client.
    validation : int
        Further rows of each client; none of them is among its training rows.
    hold_out : int, optional
        Rows of the common test set, which no client holds. By default the paper's (`SETTINGS`); a fifth of the rows
        for other tables.
    groups : int
        Groups of features: a client draws its columns from the pool of its group. 1: all draw from all.
    overlap : bool
        False: no row belongs to two clients. True: each client draws from all rows outside the hold-out.
    plant : {None, "scale", "sign"}
        Change the standardised target y of half of the clients (rounded down), in all parts: ``y exp(-2 strength)``,
        or ``-y`` if ``strength > 0``. Who they are does not depend on the feature groups. For
        regression only.
    strength : float
        At least 0; 0 changes nothing, but the clients are marked as `TabularClients.planted`.
    seed : int

    Returns
    -------
    TabularClients

    Raises
    ------
    ValueError
        The table has too few rows or columns, numbers out of range, an unknown plant, or one on classes.

    Notes
    -----
    Features, and targets of a regression, are standardised by mean and (biased) standard deviation of the client's own
    training rows; validation and test rows get the same two numbers. What is constant on the training rows is only
    centred. A column that is nearly constant there can be large elsewhere.

    A client's rows and scaling depend on `seed`, its id and the table, never on how many other clients there are; nor
    do its columns where ``groups=1``. The width of the padding does. Groups, of features and planted, have fixed sizes,
    so which client is in which depends on `clients`. The hold-out depends on `seed` and its size only; training rows
    depend on that size too, but not on `validation`.

    Rows that equal others may come to different parts (see `table`).

    References
    ----------
    Suzuki, Banaei-Kashani. FedSGCNN (section 5.1, where the paper is silent on hold-out, validation and scaling).
    """
    if hold_out is None:
        hold_out = SETTINGS[table.name].hold_out if table.name in SETTINGS else len(table.x) // 5
    for name, value, least in (("clients", clients, 1), ("hold_out", hold_out, 1), ("validation", validation, 0)):
        check_whole(value, name, least=least)
    check_whole(rows, "rows", least=2)  # one row alone is its own mean: all its features become 0
    check_number(strength, "strength")
    if plant not in (None, *PLANTS) or (plant is not None and table.classes is not None):
        raise ValueError(f"plant must be None, or for a regression one of {', '.join(PLANTS)}; got {plant!r}")
    test, train, further = _rows(len(table.x), clients, rows, validation, hold_out, overlap, seed)
    parted = feature_subsets(one_group(list(train)), len(table.blocks), features, groups, seed)
    real = [sorted(c for raw in own for c in table.blocks[raw]) for own in parted.columns]
    widths = torch.tensor([len(own) for own in real])
    seen = np.full((clients, int(widths.max())), table.x.shape[1])  # the column of zeros
    for k, own in enumerate(real):
        seen[k, : len(own)] = own
    x = np.pad(table.x.astype(float), ((0, 0), (0, 1)))
    planted = np.zeros(clients, np.int64)
    if plant is not None:
        planted[random_of("planted", seed).permutation(clients)[: clients // 2]] = 1
    factor = {"scale": math.exp(-2 * strength), "sign": -1 if strength > 0 else 1}.get(plant or "", 1)
    mean, deviation = _moments(x[train[:, :, None], seen[:, None]])
    y_mean, y_deviation = _moments(table.y[train].astype(float))

    def part(rows: np.ndarray) -> ClientData:
        new = (x[rows[:, :, None], seen[:, None]] - mean) / deviation
        y = table.y[rows]
        if table.classes is None:
            y = (y - y_mean) / y_deviation
            y = np.where(planted[:, None] == 1, y * factor, y).astype(np.float32)
        new, places = new.reshape(rows.size, -1).astype(np.float32), np.arange(rows.size).reshape(rows.shape)
        return stack_rows(new, y.ravel(), list(places), classes=table.classes)

    common = part(np.broadcast_to(test, (clients, hold_out)))
    held = part(further) if validation else None
    return TabularClients(part(train), held, common, parted.columns, widths, parted.group, planted)


def _rows(
    total: int, clients: int, rows: int, validation: int, hold_out: int, overlap: bool, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row numbers of the hold-out (H,), of training (K, rows) and of validation (K, validation), each ascending."""
    apart = 1 if overlap else clients
    if hold_out + apart * (rows + validation) > total:
        raise ValueError(
            f"{apart} x ({rows} + {validation}) rows and a hold-out of {hold_out} are more than the {total} rows there "
            "are: lower one of them, or set overlap=True"
        )
    order = random_of("hold-out", seed).permutation(total)
    test, rest = np.sort(order[:hold_out]), order[hold_out:]
    # Training rows come from the front, validation rows from the back: neither depends on the number of the other.
    if overlap:
        own = np.stack([random_of("rows", seed, k).permutation(rest) for k in range(clients)])
        train, further = own[:, :rows], own[:, ::-1][:, :validation]
    else:
        train = rest[: clients * rows].reshape(clients, rows)
        further = rest[::-1][: clients * validation].reshape(clients, validation)
    return test, np.sort(train), np.sort(further)


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over the rows, axis 1, which stays; 1 for the deviation of what is constant."""
    deviation = values.std(1, keepdims=True)
    return values.mean(1, keepdims=True), np.where(np.ptp(values, 1, keepdims=True) == 0, 1.0, deviation)
