"""Do clients differ in groups? Their updates on two random halves of their examples tell (`fedlib.algorithms.cfl.CFL`).

What the first halves show must show in the second ones too, or it was chance. The server sees no data. Chapter 06.
"""

import torch
from torch import Tensor

from ..algorithm import Update
from ..params import Params, number_of_rows, take, to_matrix
from .clusters import bipartition, cosine_similarity

__all__ = ["add_cosines", "chance_of_shared_cut", "cosines_of_halves", "shared_cut"]


def cosines_of_halves(first: Params, second: Params) -> Tensor:
    """How alike clients are, by two updates of each, from the same start, on two random halves of its examples.

    Parameters
    ----------
    first, second : Params
        Stacks of m rows.

    Returns
    -------
    Tensor of shape (3, m, m), float64
        Cosines of the first halves, of the second halves, and of the first half of the row's client with the second of
        the column's. A zero update has no direction: the rows and columns of a client with one are 0.
    """
    moved = (to_matrix(first).any(1) & to_matrix(second).any(1)).nonzero()[:, 0]
    cosines = torch.zeros(3, *[number_of_rows(first)] * 2, dtype=torch.float64, device=moved.device)
    if m := len(moved):
        cosine = cosine_similarity({name: torch.cat([p[moved], second[name][moved]]) for name, p in first.items()})
        cosines[:, moved[:, None], moved] = torch.stack([cosine[:m, :m], cosine[m:, m:], cosine[:m, m:]])
    return cosines


def add_cosines(sums: Tensor, update: Update, assignment: Tensor) -> Tensor:
    """Sums over tests of `cosines_of_halves`, with those of one more round.

    Parameters
    ----------
    sums : Tensor of shape (3, K, K), float64
        Or (3, 0, 0) before the first test.
    update : Update
        With "first half" and "second half" in `per_client`, stacks of C rows; without, there was no test.
    assignment : Tensor of shape (K,), int64
        Index of each client's cluster. Two clients count if they are in one cluster, and all its clients take part.

    Returns
    -------
    Tensor of shape (3, K, K), float64
    """
    if "first half" not in update.per_client:
        return sums
    sums, size, cluster = sums.clone(), assignment.bincount(), assignment[update.clients]
    for c in cluster.unique().tolist():
        i = (cluster == c).nonzero()[:, 0]
        if 2 <= len(i) == size[c]:
            sums = sums if sums.numel() else sums.new_zeros(3, len(assignment), len(assignment))
            own = update.clients[i]
            first, second = (take(update.per_client[f"{which} half"], i) for which in ("first", "second"))
            sums[:, own[:, None], own] += cosines_of_halves(first, second).to(sums)
    return sums


def chance_of_shared_cut(cosines: Tensor) -> float:
    """How likely congruent clients are to fall in two groups as clearly as these: a p-value, by halves of their data.

    Parameters
    ----------
    cosines : Tensor of shape (3, m, m)
        Of `cosines_of_halves`; or the sum of those of several tests, with the same halves.

    Returns
    -------
    float
        From 0 to 1; 1 if there are fewer than four clients, those of whom nothing is known (all cosines 0) left out, if
        every cut leaves a client alone, or if clients differ one by one but not in groups.

    Notes
    -----
    The first halves are cut in two by average linkage. Had all clients one distribution, this cut would mean nothing to
    the second halves. Each client's other half has a place: its mean cosine with the first halves of one side minus
    that with those of the other. Is each side closer to its own first halves? Two t-tests, one-sided, with the
    variance within both sides and so m - 2 degrees of freedom for m clients, ask; since both must hold, the larger
    p-value counts. (That sides differ is not enough: clients whose updates are noisier than the others', for example,
    differ from them in either half, and are no closer to each other.) Then the halves change places, and the smaller
    p-value counts, times two (Bonferroni). A cut that leaves a client alone is not tested. With four clients, and so
    two degrees of freedom, hardly any difference is large enough: use a higher level there.

    Clients may also differ one by one, for example when a model knows their examples by heart, and then a cut of one
    half may show in the other without any groups. But members of a group stand in for each other. So each client's
    nearest peer is sought in the first halves, and the test counts only if, in the second halves, the mean cosine of
    such pairs lies above the midpoint between the mean cosine across the cut and that of a client's own two halves.
    What follows: groups whose members differ strongly among themselves are not parted, least of all a small group
    beside a large one; and clients that differ in few directions, as under label skew, have peers and may be parted.

    The test compares one number a client, not the many entries of the updates, which are far from independent. It needs
    halves of one size (`fedlib.data.halves`): of others, those that take as many steps are alike.
    """
    from scipy.special import stdtr

    known = cosines[0].diagonal() > 0
    first, second, across = cosines[:, known][:, :, known]
    own, chances = across.diag().mean(), [0.5]
    if (m := len(first)) < 4:
        return 1.0
    for one, other, alike in ((first, second, across.T), (second, first, across)):
        side = bipartition(one, "average").assignment.double()
        peer = one.clone().fill_diagonal_(-torch.inf).argmax(1)
        n, strangers = side.sum(), other[side[:, None] != side].mean()
        if 1 < n < m - 1 and 2 * other.gather(1, peer[:, None]).mean() > own + strangers:
            line = alike @ (side / n - (1 - side) / (m - n))
            x, y = line[side == 1], line[side == 0]
            spread = ((x - x.mean()).square().sum() + (y - y.mean()).square().sum()) / (m - 2)
            t = torch.minimum(x.mean() * len(x) ** 0.5, -y.mean() * len(y) ** 0.5) / spread.sqrt()
            chances.append(float(stdtr(m - 2, -float(t.nan_to_num(0.0)))))
    return 2 * min(chances)


def shared_cut(cosines: Tensor) -> Tensor:
    """Clients cut in two by both halves together, by average linkage.

    Parameters
    ----------
    cosines : Tensor of shape (3, m, m)
        As in `chance_of_shared_cut`.

    Returns
    -------
    Tensor of shape (m,), int64
        0 for the side of the first client, 1 for the other.
    """
    first, second, across = cosines
    return bipartition(first + second + across + across.T, "average").assignment
