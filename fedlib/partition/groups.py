"""Groups of clients that are planted on a partition, so that the true groups are known.

Each group changes the samples of its clients in its own way, which is recorded in `fedlib.partition.Change`. `mixture`
blurs the groups.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..checks import check_number, check_whole
from .labels import Change, Partition, apportion, random_of, shares_of

STYLES = ("plain", "inverted", "noisy", "low contrast")


def _groups(base: Partition, groups: int, shares: Sequence[float] | None, seed: int, purpose: str) -> np.ndarray:
    """The group of each client. The groups' changes are drawn elsewhere, since they must not depend on the clients."""
    if not isinstance(base, Partition):
        raise TypeError(f"{purpose} needs a Partition, from iid for instance; got {type(base).__name__}")
    if base.change is not None:
        raise ValueError(f"the partition has a {base.change.kind} already; give {purpose} one without planted groups")
    if not 1 <= check_whole(groups, "groups", least=0) <= len(base.rows):
        raise ValueError(f"groups must lie between 1 and the {len(base.rows)} clients there are; got {groups}")
    shares = [1 / groups] * groups if shares is None else shares_of(shares, "shares")
    if len(shares) != groups:
        raise ValueError(f"give one share for each of the {groups} groups; got {len(shares)} shares")
    sizes = apportion(len(base.rows), shares, least=1)
    return random_of(purpose, seed).permutation(np.repeat(np.arange(groups), sizes))


def _planted(base: Partition, group: np.ndarray, change: Change) -> Partition:
    samples = tuple(np.full(len(r), g) for r, g in zip(base.rows, group, strict=True))
    return replace(base, group=group, sample_group=samples, change=change)


def label_permutation(
    base: Partition, groups: int = 4, classes: int = 10, seed: int = 0, *, cyclic: bool = True
) -> Partition:
    """Permute the labels in each group, so the same images get conflicting labels (chapter 02, used in chapter 06).

    Parameters
    ----------
    base : Partition
        Any partition without planted groups.
    groups : int
        G, at most `classes` if `cyclic`; 1 permutes the labels of all clients alike, so that they still agree. Clients
        are distributed evenly among the groups.
    classes : int
        Number of classes; labels are 0 to ``classes - 1``.
    seed : int
        Determines which client belongs to which group, and also the permutations, which do not depend on the clients.
    cyclic : bool
        True shifts one random permutation by g classes for group g, so that two groups agree on no class and one model
        for all gets at most 1/G of the labels right. False draws a random permutation for each group, as in the paper;
        two groups then agree on one class on average.

    Returns
    -------
    Partition

    References
    ----------
    Sattler, Müller, Samek. Clustered federated learning. 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from fedlib import partition
    >>> y = np.arange(40) % 10
    >>> renamed = partition.label_permutation(partition.iid(y, 8), groups=4)
    >>> np.bincount(renamed.group).tolist()  # the true group of each client
    [2, 2, 2, 2]
    """
    if check_whole(groups, "groups", least=0) > check_whole(classes, "classes") and cyclic:
        raise ValueError(f"{classes} classes have {classes} cyclic shifts, too few for {groups} groups; lower groups")
    group = _groups(base, groups, None, seed, "label_permutation")
    draw = random_of("permutations", seed)
    first = draw.permutation(classes)
    each = [np.roll(first, -g) if cyclic or not g else draw.permutation(classes) for g in range(groups)]
    values = tuple(tuple(names.tolist()) for names in each)
    return _planted(base, group, Change("label_permutation", values))


def rotation(
    base: Partition, degrees: Sequence[float] = (0, 90, 180, 270), shares: Sequence[float] | None = None, seed: int = 0
) -> Partition:
    """Rotate the images of each group anticlockwise (chapter 02, used in chapter 08).

    Parameters
    ----------
    base : Partition
        Any partition without planted groups.
    degrees : sequence of G floats
        Angle of each group; 0 changes nothing. Multiples of 90 are exact. For other angles, scipy interpolates between
        pixels, zeros fill the corners, and whole numbers are rounded.
    shares : sequence of G floats, optional
        Share of the clients in each group, equal by default. Group sizes are rounded by the largest remainder, and each
        group has at least one client.
    seed : int
        Determines which client belongs to which group.

    Returns
    -------
    Partition
        It applies to images of shape (..., height, width), which must be square for rotations by 90 or 270 degrees.

    References
    ----------
    Ghosh et al. An efficient framework for clustered federated learning. NeurIPS 2020 (rotated MNIST).
    """
    if not np.iterable(degrees):
        raise TypeError(f"degrees must be a list of one turn a group, such as (0, 90); got {degrees!r:.80}")
    turns = [float(d) for d in degrees]
    if not np.isfinite(turns).all() or len({d % 360 for d in turns}) < len(turns):
        raise ValueError(f"degrees must be finite and no two of them the same turn; got {tuple(turns)}")
    group = _groups(base, len(turns), shares, seed, "rotation")
    return _planted(base, group, Change("rotation", tuple(d % 360 for d in turns)))


def style(
    base: Partition, styles: Sequence[str] = STYLES, shares: Sequence[float] | None = None, seed: int = 0
) -> Partition:
    """Draw the images of each group in a different style (chapter 02, used in chapter 08).

    Parameters
    ----------
    base : Partition
        Any partition without planted groups.
    styles : sequence of G str
        Different ones of ``"plain"`` (changes nothing), ``"inverted"`` (255 - x), ``"noisy"`` (adds a whole number from
        -128 to 127 to each pixel and clips the result; the noise depends only on `seed` and the row number) and
        ``"low contrast"`` (values from 96 to 159).
    shares : sequence of G floats, optional
        Share of the clients in each group, equal by default. Group sizes are rounded by the largest remainder, and each
        group has at least one client.
    seed : int
        Determines which client belongs to which group.

    Returns
    -------
    Partition
        It applies only to uint8 images, and is exact on every machine because it uses only whole numbers.
    """
    names = tuple(styles)
    if isinstance(styles, str) or not set(names) <= set(STYLES) or len(set(names)) < len(names):
        raise ValueError(f"styles must be different ones out of {', '.join(STYLES)}; got {styles!r}")
    group = _groups(base, len(names), shares, seed, "style")
    return _planted(base, group, Change("style", names, seed=int(seed)))


def feature_subsets(
    base: Partition, columns: int, k: int | tuple[int, int], groups: int = 1, seed: int = 0
) -> Partition:
    """Each client sees only some of the columns of a table (chapter 11).

    Parameters
    ----------
    base : Partition
        Any partition without planted groups.
    columns : int
        p, the number of columns of x. A one-hot block counts as several columns, one for each category.
    k : int or pair of int
        Number of columns of each client; p gives all columns to every client. With a pair ``(least, most)``, the number
        is drawn for each client.
    groups : int
        G. With 1, a client draws from all columns, so that there are no true groups. With more, the columns are
        shuffled and split into G pools of nearly equal size, and a client draws from the pool of its group.
    seed : int
        Determines the pools and groups and, together with a client's id, its columns.

    Returns
    -------
    Partition
        `Partition.columns` lists the columns of each client. Clients are padded with zeros to the width k_max of the
        widest one, which changes nothing in a linear layer.

    References
    ----------
    Suzuki, Banaei-Kashani. FedSGCNN (equal widths, one pool or groups of features).
    """
    check_whole(groups, "groups")
    width, pool = np.ravel(k), check_whole(columns, "columns") // groups
    if width.dtype.kind not in "iu" or len(width) > 2 or not 1 <= width[0] <= width[-1] <= pool:
        raise ValueError(
            f"k must be a whole number from 1 to {pool}, the smallest of {groups} pools of {columns} columns, or a "
            f"pair (least, most) of such; got {k}: lower k or groups"
        )
    group = _groups(base, groups, None, seed, "feature_subsets")
    pools = np.array_split(random_of("pools", seed).permutation(columns), groups)
    chosen = []
    for client, g in zip(base.id.tolist(), group, strict=True):
        own = random_of("columns", seed, client)
        chosen.append(tuple(np.sort(own.permutation(pools[g])[: own.randint(width[0], width[-1] + 1)]).tolist()))
    return _planted(base, group, Change("feature_subsets", tuple(chosen), width=int(columns)))


def mixture(base: Partition, fraction: float = 0.5, share: float = 0.3, seed: int = 0) -> Partition:
    """Give some clients samples of a second group (chapter 08).

    Parameters
    ----------
    base : Partition
        From `label_permutation`, `rotation` or `style`, with at least two groups.
    fraction : float
        Share of the clients that are mixed; they are drawn at random. 0 mixes no client and 1 mixes all.
    share : float
        Share of a mixed client's samples in the second group, below one half. The second group gets at least one
        sample, and fewer than the main group keeps.
    seed : int
        Determines which clients are mixed, their second group (each other group is equally likely) and, together with a
        client's id, the samples.

    Returns
    -------
    Partition
        It has the same `group`, and `sample_group` contains the second groups.
    """
    if not isinstance(base, Partition) or base.change is None or base.change.kind == "feature_subsets":
        raise ValueError("mixture needs planted groups: give it what label_permutation, rotation or style return")
    check_number(fraction, "fraction")
    check_number(share, "share")
    groups = len(base.change.values)
    if groups < 2 or any((s != g).any() for s, g in zip(base.sample_group, base.group, strict=True)):
        raise ValueError(f"mixture needs at least 2 groups, and clients that are not mixed yet; got {groups} groups")
    if not 0 <= fraction <= 1 or not 0 < share < 0.5:
        raise ValueError(f"fraction must lie in [0, 1] and share between 0 and 0.5; got {fraction} and {share}")
    least, client = min((len(r), int(i)) for r, i in zip(base.rows, base.id, strict=True))
    if fraction > 0 and least < 3:
        raise ValueError(f"client {client} has {least} rows, mixing needs 3; raise min_rows or take fewer clients")
    random = random_of("mixture", seed)
    second = (base.group + 1 + random.randint(groups - 1, size=len(base.rows))) % groups
    samples = list(base.sample_group)
    for k in random.permutation(len(base.rows))[: int(fraction * len(base.rows) + 0.5)]:
        n = len(samples[k])
        taken = min(max(1, int(share * n + 0.5)), (n - 1) // 2)
        samples[k] = samples[k].copy()
        samples[k][random_of("samples", seed, int(base.id[k])).permutation(n)[:taken]] = second[k]
    return replace(base, sample_group=tuple(samples))
