"""CelebA as LEAF and FedCG use it: photos of celebrities, who smile or do not.

Each celebrity is a client: ``fedlib.partition.by_user(faces.writer)``. `split_users` and `client_statistics` serve
other data sets with users too, such as FEMNIST from `fedlib.datasets.leaf`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from tqdm import tqdm

from fedlib.datasets.registry import Arrays, Stats, data_folder, need, package
from fedlib.partition.labels import random_of

__all__ = ["STATS", "celeba_clients", "client_statistics", "identities", "split_users"]

TARGET = "Smiling"
_SIDE = 84
_IDENTITY, _ATTRIBUTES, _PHOTOS = "identity_CelebA.txt", "list_attr_celeba.txt", "img_align_celeba"
_PAGE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
_GET = (
    "CelebA's licence allows non-commercial research only, so fedlib does not download it: get img_align_celeba.zip, "
    f"list_attr_celeba.txt and identity_CelebA.txt (its authors send it on request) from {_PAGE}, put them into one "
    "folder 'celeba', and unpack the photos there as celeba/img_align_celeba/*.jpg"
)
_MD5 = {_IDENTITY: "md5:32bd1bd63d3c78cd57e08160ec5ed1e2", _ATTRIBUTES: "md5:75e246fa4810816ffd6ee81facbd244c"}
_NOTE = "Photos of celebrities: smiling (1) or not, 40 attributes, and whom they show."
STATS = Stats(202_599, 0, (3, _SIDE, _SIDE), 2, _PAGE, "non-commercial research only", _MD5, _NOTE)


def identities() -> np.ndarray:
    """Which celebrity each photo shows, int64 (R,) (chapter 10); needs the file identity_CelebA.txt only.

    ``client_statistics(identities(), min_rows=5)`` is the first row of FedCG's Table 1. Errors are those of
    `celeba_clients`.
    """
    return np.array([person for _, person in _words(_place(), _IDENTITY)], np.int64)


def celeba_clients(fraction: Sequence[float] = (0.1, 0.2), min_rows: int = 5, seed: int = 0) -> Arrays:
    """Draw celebrities for training and others for the test, and read their photos (chapter 10).

    They lie in the folder ``celeba``, as torchvision lays it out, or in LEAF's ``celeba/data/raw``, of the folder that
    the environment variable ``FEDLIB_DATA`` names, else of ``~/.cache/fedlib``.

    Parameters
    ----------
    fraction : pair of float
        Shares of the celebrities for training and for the test, both of all that have `min_rows` photos. The default
        is FedCG's (Section 4.1). LEAF's own ``--sf`` counts photos instead.
    min_rows : int
        Leave out celebrities with fewer photos, as LEAF does.
    seed : int
        Decides who is drawn.

    Returns
    -------
    Arrays
        Photos (R, 3, 84, 84), uint8; y is 1 for Smiling, else 0; ``writer`` is the number of the celebrity. No
        celebrity is in both splits. Rows are in the order of the files. The default reads 3 in 10 photos, 1.3 GB.

    Raises
    ------
    FileNotFoundError
        A file is missing; says where to get it. Nothing is downloaded.
    ValueError
        A text file differs from its published checksum, or a photo is damaged; shares that cannot be.

    References
    ----------
    Liu, Luo, Wang, Tang. Deep learning face attributes in the wild. ICCV 2015.
    Caldas et al. LEAF: A benchmark for federated settings. 2018.
    """
    place, persons = _place(), identities()
    _, names, *table = _words(place, _ATTRIBUTES)
    smiling = np.array([row[1 + names.index(TARGET)] == "1" for row in table], np.int64)
    train, test = (np.isin(persons, group) for group in split_users(persons, fraction, min_rows, seed))
    x, x_test = (_photos(place, [table[row][0] for row in np.flatnonzero(part)]) for part in (train, test))
    stats, writers = replace(STATS, rows=len(x), test_rows=len(x_test)), (persons[train], persons[test])
    return Arrays(x, smiling[train], x_test, smiling[test], (), *writers, stats=stats)


def _place() -> Path:
    """The folder of the files: torchvision's celeba, or LEAF's celeba/data/raw."""
    folder = data_folder() / "celeba"
    raw = folder / "data" / "raw"
    return raw if (raw / _IDENTITY).is_file() else folder


def _words(place: Path, file: str) -> list[list[str]]:
    """The words of each line of a file, which is the published one."""
    return [line.split() for line in need(place / file, _MD5[file], _GET).decode().splitlines()]


def _photos(place: Path, names: Sequence[str]) -> np.ndarray:
    """Photos (R, 3, 84, 84), uint8, made smaller as LEAF does: without regard to their proportions."""
    pillow = package("PIL.Image")
    x = np.empty((len(names), 3, _SIDE, _SIDE), np.uint8)
    for row, name in enumerate(tqdm(names, "celeba", unit="photo")):
        path = place / _PHOTOS / name
        if not path.is_file():
            raise FileNotFoundError(f"{path} is not there. {_GET}")
        try:
            with pillow.open(path) as image:
                small = image.resize((_SIDE, _SIDE), pillow.Resampling.BICUBIC)  # Pillow's default since version 7
                x[row] = np.asarray(small.convert("RGB")).transpose(2, 0, 1)
        except (OSError, SyntaxError, ValueError) as error:
            raise ValueError(f"{path} cannot be read as an image ({error}): unpack it again") from error
    return x


def split_users(
    user: ArrayLike, shares: Sequence[float] = (0.6, 0.2, 0.2), min_rows: int = 1, seed: int = 0
) -> tuple[np.ndarray, ...]:
    """Split users into groups, no user in two of them: for training and for tests on unseen users (chapter 10).

    Parameters
    ----------
    user : array of shape (R,), int
        Whose each row is.
    shares : sequence of float
        Share of the users in each group, at most 1 together; what is left is not used. The default is FedCG's for
        FEMNIST.
    min_rows : int
        Leave out users with fewer rows; shares are of the others.
    seed : int

    Returns
    -------
    tuple of ndarray
        The users of each group, ascending.

    Raises
    ------
    ValueError
        Shares that are not above 0 or are more than 1 together; a group without users.
    """
    parts = [float(share) for share in shares]
    if not parts or not all(0 < part <= 1 for part in parts) or math.fsum(parts) > 1 + 1e-9:
        raise ValueError(f"shares must be above 0 and at most 1 together; got {tuple(parts)}")
    ids, counts = np.unique(np.asarray(user), return_counts=True)
    enough = ids[counts >= min_rows]
    ends = np.floor(np.cumsum(parts) * len(enough) + 0.5 + 1e-9).astype(int)
    if len(enough) < ends[-1] or np.diff(ends, prepend=0).min() < 1:
        raise ValueError(
            f"{len(enough)} of {len(ids)} users have {min_rows} rows or more, too few for shares {tuple(parts)}: a "
            "group would be empty; raise its share or lower min_rows"
        )
    order = random_of("split_users", seed).permutation(enough)
    return tuple(np.sort(group) for group in np.split(order, ends)[: len(parts)])


def client_statistics(user: ArrayLike, min_rows: int = 1) -> dict[str, float]:
    """Clients, samples, and mean and standard deviation of the samples a client: FedCG's Table 1 (chapter 10).

    Parameters
    ----------
    user : array of shape (R,)
        Whose each row is: ``identities()``, or of both splits of FEMNIST
        ``np.concatenate([arrays.writer, arrays.writer_test])``.
    min_rows : int
        Leave out users with fewer rows; 5 for CelebA.

    Returns
    -------
    dict
        ``clients``, ``samples``, ``mean`` and ``stdev``, which divides by the number of clients.
    """
    counts = np.unique(np.asarray(user), return_counts=True)[1]
    counts = counts[counts >= min_rows]
    if not len(counts):
        raise ValueError(f"no user has {min_rows} rows or more; lower min_rows")
    found = {"clients": len(counts), "samples": int(counts.sum())}
    return found | {"mean": float(counts.mean()), "stdev": float(counts.std())}
