"""Groups of clients that are planted on a partition, so that the truth is known.

The clients of a group see their samples in a way of their own, which `fedlib.partition.Change` says. `mixture` blurs
the groups.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..checks import check_number, check_whole
from .labels import Change, Partition, apportion, random_of, shares_of

STYLES = ("plain", "inverted", "noisy", "low contrast")


def _groups(base: Partition, groups: int, shares: Sequence[float] | None, seed: int, purpose: str) -> np.ndarray:
    """Which client gets which group. What the groups do is drawn elsewhere: it must not depend on the clients."""
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
    """Each group names the classes in its own way: same images, conflicting labels (chapter 02, used in chapter 06).

    Parameters
    ----------
    base : Partition
        Any without planted groups.
    groups : int
        G, at most as many as classes; 1 permutes the labels of all clients alike, so that they still agree. Clients
        are shared evenly among the groups.
    classes : int
        Number of classes; labels are 0 to ``classes - 1``.
    seed : int
        Decides which client belongs to which group and, whatever the clients, the permutations.
    cyclic : bool
        True: one random permutation, shifted by g classes for group g, so that two groups agree on no class and one
        model for all gets at most 1/G of the labels right. False: a random permutation for each group, as in the paper;
        two groups agree on one class on average.

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
    """Each group turns its images, anticlockwise (chapter 02, used in chapter 08).

    Parameters
    ----------
    base : Partition
        Any without planted groups.
    degrees : sequence of G floats
        Turn of each group; 0 changes nothing. Multiples of 90 are exact; others are interpolated between pixels by
        scipy, zeros fill the corners, and whole numbers are rounded.
    shares : sequence of G floats, optional
        Share of the clients in each group, equal by default; rounded by the largest remainder, and each group has at
        least one client.
    seed : int
        Decides which client belongs to which group.

    Returns
    -------
    Partition
        For images of shape (..., height, width), square ones for turns by 90 and 270 degrees.

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
    """Each group draws its images in another style (chapter 02, used in chapter 08).

    Parameters
    ----------
    base : Partition
        Any without planted groups.
    styles : sequence of G str
        Out of ``"plain"`` (changes nothing), ``"inverted"`` (255 - x), ``"noisy"`` (a whole number from -128 to 127
        added to each pixel, clipped; it depends on `seed` and the row number only) and ``"low contrast"`` (96 to 159).
    shares : sequence of G floats, optional
        Share of the clients in each group, equal by default; rounded by the largest remainder, and each group has at
        least one client.
    seed : int
        Decides which client belongs to which group.

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


def feature_subsets(
    base: Partition, columns: int, k: int | tuple[int, int], groups: int = 1, seed: int = 0
) -> Partition:
    """Each client sees some of the columns of a table only (chapter 11).

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

    Returns
    -------
    Partition
        `Partition.columns` says who sees what. Clients are padded with zeros to the width k_max of the widest, which
        changes nothing in a linear layer.

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
    """Some clients get samples of a second group (chapter 08).

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
