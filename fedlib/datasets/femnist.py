"""FEMNIST, handwritten characters by writer, from the files of LEAF or of Flower."""

import io
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from tqdm import tqdm

from .registry import Arrays, Stats, package, train_and_test

__all__ = ["FEMNIST300", "flwr_femnist", "leaf"]

FEMNIST300 = tuple(Path(__file__).with_name("femnist300.txt").read_text("utf-8").split())
"""LEAF's names of the writers of the set ``femnist300``; a writer's number in the set is its position here."""

_LEAF, _FLOWER = "https://github.com/TalwalkarLab/leaf", "https://huggingface.co/datasets/flwrlabs/femnist"
_DAMAGED = (AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)  # raised by wrong files

Rows = tuple[list[str], np.ndarray, np.ndarray]  # writers, images (R, 784) from 0 to 255, classes (R,)


def leaf(path: str | Path, writers: Sequence[str] | None = None) -> Arrays:
    """Load FEMNIST from the JSON files of LEAF's ``preprocess.sh`` (chapter 10).

    Parameters
    ----------
    path : path
        The folder with ``train/*.json`` and, if present, ``test/*.json``; in LEAF, ``data/femnist/data``.
    writers : sequence of str, optional
        LEAF's names of the writers to keep, such as ``FEMNIST300``; all by default.

    Returns
    -------
    Arrays
        Images (R, 1, 28, 28). LEAF's pixels are k/255, so uint8 loses nothing; its white paper stays white. Classes
        0..61 are 0-9, A-Z, a-z. The kept writers of both splits are numbered together in sorted order of LEAF's names,
        so equal numbers mean the same person. Rows are ordered by file name, then as in the file.

    Raises
    ------
    FileNotFoundError
        ``train`` holds no JSON file.
    ValueError
        A file is damaged or belongs to another of LEAF's data sets; one of `writers` is in no file.

    Notes
    -----
    LEAF's ``-t sample`` puts every writer into both splits, and ``-t user`` into one of them. After ``-s iid`` users
    are not persons, because LEAF then distributes all images among artificial users.

    References
    ----------
    Caldas et al. LEAF: A benchmark for federated settings. 2018.
    """
    train, test = (sorted((Path(path) / split).glob("*.json")) for split in ("train", "test"))
    if not train:
        raise FileNotFoundError(
            f"{Path(path) / 'train'} holds no JSON file: expected train/*.json and, if there, test/*.json in {path}, "
            "as LEAF's preprocess.sh writes them into data/femnist/data"
        )
    note = "LEAF repeats the first image of every writer but one; split by sample, a copy may be in each split."
    licence = "LEAF: BSD 2-Clause; NIST's images: none stated"
    return _joined(_leaf_rows, train, test, writers, _LEAF, licence, note)


def flwr_femnist(path: str | Path, writers: Sequence[str] | None = None) -> Arrays:
    """Load FEMNIST from the parquet files of Flower's copy.

    Parameters
    ----------
    path : path
        A local copy of https://huggingface.co/datasets/flwrlabs/femnist. It must have ``data/train-*.parquet`` with the
        columns ``image`` (struct with PNG ``bytes``), ``writer_id`` (string) and ``character`` (integer 0..61).
    writers : sequence of str, optional
        Each ``writer_id`` to keep, such as ``FEMNIST300``; all by default.

    Returns
    -------
    Arrays
        Images (R, 1, 28, 28) as stored. Classes 0..61 are 0-9, A-Z, a-z. The kept writers are numbered in sorted order
        of ``writer_id``. Rows are ordered by file name, then as in the file. There is no test split.

    Raises
    ------
    FileNotFoundError
        There is no parquet file, or fewer or more than their names state (``...-of-00002.parquet``).
    ValueError
        A file is damaged or has other columns, labels or images; one of `writers` is in no file.
    ModuleNotFoundError
        The package pyarrow is missing.
    """
    files = sorted(Path(path).glob("data/train-*.parquet"))
    if not files or len(files) != int(files[-1].stem.rsplit("-", 1)[-1]):
        raise FileNotFoundError(
            f"{path} holds {len(files)} files data/train-*.parquet: copy all of one version from {_FLOWER}"
        )
    note = "The published set has 814,277 rows and no test split."
    return _joined(_flwr_rows, files, [], writers, _FLOWER, "BSD 2-Clause", note)


def _leaf_rows(file: Path) -> Rows:
    # 256 shared floats instead of one for each pixel
    users = json.loads(file.read_text("utf-8"), parse_float=lru_cache(1 << 12)(float))["user_data"]
    people = {name: rows for name, rows in users.items() if rows["y"]}  # LEAF leaves dropped users empty
    writers = [name for name, rows in people.items() for _ in rows["y"]]
    x = np.array([image for rows in people.values() for image in rows["x"]], float).reshape(-1, 784) * 255
    if not np.isclose(x, np.rint(x), rtol=0, atol=0.02).all():
        raise ValueError("pixels must be k / 255")
    return writers, np.rint(x), np.array([label for rows in people.values() for label in rows["y"]])


def _flwr_rows(file: Path) -> Rows:
    parquet, pillow = package("pyarrow.parquet"), package("PIL.Image")
    rows = parquet.read_table(file, columns=["image", "writer_id", "character"]).to_pylist()
    images = [np.asarray(pillow.open(io.BytesIO(row["image"]["bytes"])).convert("L")) for row in rows]
    x = np.reshape(images, (-1, 784))
    return [row["writer_id"] for row in rows], x, np.array([row["character"] for row in rows])


def _joined(
    read: Callable[[Path], Rows],
    train: Sequence[Path],
    test: Sequence[Path],
    wanted: Sequence[str] | None,
    source: str,
    licence: str,
    note: str,
) -> Arrays:
    """The rows of all files, training files first, and only those of the wanted writers if any are named."""
    writers: list[str] = []
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    for file in tqdm([*train, *test], "FEMNIST", unit="file"):
        try:
            names, x, y = read(file)
            wrong = y.dtype.kind != "i" or y.min() < 0 or y.max() > 61 or None in names
            if wrong or not len(names) == len(x) == len(y):
                raise ValueError("each row must have a writer, an image of 784 pixels and a class from 0 to 61")
        except _DAMAGED as error:
            raise ValueError(f"{file} is damaged or not FEMNIST from {source} ({error}): copy it again") from error
        kept = np.isin(names, list(wanted)) if wanted is not None else np.ones(len(names), bool)
        writers += np.array(names)[kept].tolist()
        parts.append((x[kept].astype(np.uint8), y[kept].astype(np.int64)))
    if missing := sorted(set(wanted or ()) - set(writers)):
        raise ValueError(f"{len(missing)} of the writers are in no file, such as {missing[0]}: get all of {source}")
    x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    ids, r = np.unique(writers, return_inverse=True)[1].astype(np.int64), sum(len(y) for _, y in parts[: len(train)])
    x, info = x.reshape(-1, 1, 28, 28), Stats(r, len(x) - r, (1, 28, 28), 62, source, licence, {}, note)
    return train_and_test(x, y, info, ids) if test else Arrays(x, y, writer=ids, stats=info)
