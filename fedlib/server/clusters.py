"""Clusters of clients, found from their updates alone, so that the server sees no data.

Clustered federated learning (CFL) compares the directions of the updates (`cosine_similarity`) and splits the clients
into two clusters (`bipartition`). k-means on the updates (`kmeans`, `nearest`) is the baseline.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..keys import Key
from ..params import Params, number_of_rows, to_matrix

__all__ = [
    "Bipartition",
    "Centres",
    "bipartition",
    "cosine_similarity",
    "different_starts",
    "kmeans",
    "kmeans_seed",
    "nearest",
    "shuffle_within",
]

_LINKAGE = {"exact": "single", "complete": "complete", "average": "average"}
_GRID = 2.0**40  # similarities are multiples of 1 / _GRID, coarser than rounding errors, finer than noise


@torch.no_grad()
def cosine_similarity(updates: Params | Tensor) -> Tensor:
    """Cosine similarity alpha_ij of the updates of each pair of clients (CFL Eq. 4, with updates as gradients).

    Parameters
    ----------
    updates : Params or Tensor of shape (K, ...)
        Stack of K rows, or a matrix with a row for each client, of any real type.

    Returns
    -------
    Tensor of shape (K, K), float64
        Exactly symmetric, from -1 to 1, with 1 on the diagonal; on the device of `updates`.

    Raises
    ------
    ValueError
        Fewer than two clients; an update that is zero, and so has no direction, or holds NaN or infinite values.

    Notes
    -----
    Rows are divided by their largest entry and summed in float64, so updates of any size neither overflow nor vanish.
    Rounding errors, which depend on the machine, must not decide which clients are more similar. The result is
    therefore rounded to multiples of 2^-40, about 1e-12, and 0, 1 and -1 come out exactly. Clients whose similarity is
    then 1 have the same direction and get the same row, that of the first of them. The cost is K^2 P multiplications
    for P parameters. In addition to the updates, a few matrices of the result's size are in memory. Chapter 05.
    """
    stack = updates if isinstance(updates, dict) else {"": updates}
    clients = number_of_rows(stack)
    if clients < 2:
        raise ValueError(f"a similarity needs the updates of at least two clients; got {clients}")
    parts = [p.reshape(clients, -1) for p in stack.values() if p.numel()]
    columns = [c for p in parts for c in p.split(max(256, 2**16 // clients), dim=1)]  # in 64 bits one part at a time
    largest = torch.zeros(clients, dtype=torch.float64, device=next(iter(stack.values())).device)
    for c in columns:
        largest = largest.maximum(c.to(largest).abs().amax(1))
    _refuse(~largest.isfinite(), "NaN or infinite values. Lower the learning rate, or leave these clients out")
    _refuse(largest == 0, "zeros only, which have no direction. Did these clients train? If so, leave them out")

    gram = largest.new_zeros(clients, clients)
    for c in columns:
        scaled = c.to(largest) / largest[:, None]
        gram.addmm_(scaled, scaled.T)
    norm = gram.diagonal().sqrt()
    upper = (gram / (norm[:, None] * norm)).mul(_GRID).round().div(_GRID).clamp(-1, 1).triu(1)
    alpha = upper + upper.T + torch.eye(clients).to(upper)
    first = (alpha == 1).int().argmax(1)  # of the clients with the same direction
    return alpha[first][:, first]


@dataclass(frozen=True)
class Bipartition:
    """A split of m clients into two clusters.

    Attributes
    ----------
    assignment : Tensor of shape (m,), int64
        0 for the cluster of the first client, 1 for the other; both occur.
    objective : float
        The largest similarity of two clients in different clusters, which CFL Eq. 6 minimises.
    """

    assignment: Tensor
    objective: float


def bipartition(similarity: Tensor | ArrayLike, method: str = "exact") -> Bipartition:
    """Split clients into two clusters that minimise the largest similarity between them (CFL Eq. 6).

    Parameters
    ----------
    similarity : Tensor or array of shape (m, m)
        Symmetric, such as the rows and columns of one cluster's clients from `cosine_similarity`. The diagonal does not
        matter. If two mirrored entries differ by rounding, the larger one counts.
    method : {"exact", "complete", "average"}
        "exact" finds the minimum of Eq. 6 by single linkage, which deletes the weakest edge of the maximum spanning
        tree. "complete" and "average" linkage only approximate it. The authors' code uses "complete". "average" is the
        least sensitive to noise.

    Returns
    -------
    Bipartition
        Its `assignment` is on the device of `similarity`.

    Raises
    ------
    ValueError
        A matrix that is not square, not symmetric, smaller than 2 x 2 or not finite; an unknown method.

    Notes
    -----
    The exact split is sensitive to outliers. With strong noise, the minimum of Eq. 6 often splits off a single client.
    The cause is Eq. 6 and not the way to solve it, so look at the sizes of the clusters.

    With ties, several splits can reach the minimum. None of them separates two clients that are connected by a chain of
    similarities above the minimum, but there may be more than two such groups. "exact" then makes the first client's
    group cluster 0 and all other groups cluster 1, which is the last in lexicographic order of all optimal assignments
    that start with 0. So the answer depends only on the matrix and the order of its clients. "complete" and "average"
    leave ties to SciPy. Chapters 05 and 06.
    """
    from scipy.cluster.hierarchy import linkage, to_tree
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial.distance import squareform

    if method not in _LINKAGE:
        raise ValueError(f"method must be one of {list(_LINKAGE)}; got {method!r}")
    alpha = _symmetric(similarity)
    clients = len(alpha)
    # -alpha, not 1 - alpha, because negation is exact: different similarities stay different and equal ones equal
    tree = linkage(squareform(-alpha, checks=False), _LINKAGE[method])
    if method == "exact":
        group = connected_components(alpha > -tree[-1, 2], directed=False)[1]
    else:
        tree[:, 2] -= tree[0, 2]  # SciPy requires heights of at least 0
        group = np.isin(np.arange(clients), to_tree(tree).get_left().pre_order())  # before the last merge
    second = group != group[0]
    device = similarity.device if isinstance(similarity, Tensor) else None
    assignment = torch.as_tensor(second, dtype=torch.int64, device=device)
    return Bipartition(assignment, float(alpha[second[:, None] != second].max()))


@dataclass(frozen=True)
class Centres:
    """Clusters of clients, found by `kmeans`.

    Attributes
    ----------
    assignment : Tensor of shape (K,), int64
        The cluster of each client. Clusters are numbered in the order of their first clients.
    centres : Tensor of shape (M, P)
        The centre of each cluster, for `nearest`.
    """

    assignment: Tensor
    centres: Tensor


def kmeans(updates: Params | Tensor, clusters: int, seed: int) -> Centres:
    """k-means on the clients' updates, the baseline of FedCG's Table 4.

    Parameters
    ----------
    updates : Params or Tensor of shape (K, ...)
        Stack of K rows, or a matrix with a row for each client, all trained from the same initialisation.
    clusters : int
        M, the number of clusters.
    seed : int
        From 0 to 2^32 - 1; the same seed gives the same clusters.

    Returns
    -------
    Centres

    Raises
    ------
    ValueError
        Fewer clients than clusters; an update that holds NaN or infinite values.

    Notes
    -----
    The paper leaves the details open. Here the updates are projected to their first min(50, K, P) principal components,
    k-means++ starts 20 times, and the best result counts. The centres are given in the space of the updates. The
    nearest centre is the same before and after projection, because all centres are in the subspace of the components.
    Chapter 07.
    """
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    matrix = _matrix(updates)
    if not 1 <= clusters <= len(matrix):
        raise ValueError(f"clusters must be from 1 to the number of clients, {len(matrix)}; got {clusters}")
    _refuse(~matrix.isfinite().all(1), "NaN or infinite values. Lower the learning rate, or leave these clients out")
    if len(matrix) == 1:  # a single client has no principal components
        return Centres(torch.zeros(1, dtype=torch.int64, device=matrix.device), matrix)
    rows = matrix.cpu().numpy()
    pca = PCA(min(50, *rows.shape), random_state=seed).fit(rows)
    fitted = KMeans(clusters, n_init=20, random_state=seed).fit(pca.transform(rows))
    order = np.argsort([np.append(np.flatnonzero(fitted.labels_ == m), len(rows))[0] for m in range(clusters)])
    assignment = torch.from_numpy(np.argsort(order)[fitted.labels_])
    centres = torch.from_numpy(pca.inverse_transform(fitted.cluster_centers_[order]))
    return Centres(assignment.to(matrix.device), centres.to(matrix))


def kmeans_seed(key: Key) -> int:
    """The seed of `kmeans` in a run, from 0 to 2^32 - 1 for any seed of the run."""
    return int(key.uniform(torch.zeros(1, dtype=torch.int64), "k-means")[0] * 2**32)


def nearest(centres: Tensor, updates: Params | Tensor) -> Tensor:
    """The cluster with the nearest centre, for clients that `kmeans` never saw.

    Parameters
    ----------
    centres : Tensor of shape (M, P)
        From `kmeans`.
    updates : Params or Tensor of shape (K, ...)
        Trained from the same initialisation, and in the same way, as the updates given to `kmeans`.

    Returns
    -------
    Tensor of shape (K,), int64
        The first of equally near centres. Chapter 07.

    Raises
    ------
    ValueError
        A number that is NaN or infinite.
    """
    # without matrix products, because |a|^2 - 2 a b + |b|^2 cancels when updates are long and differ little
    mode = "donot_use_mm_for_euclid_dist"
    rows, centres = _matrix(updates), _matrix(centres)
    if not (rows.isfinite().all() and centres.isfinite().all()):
        raise ValueError("centres and updates must be finite; a client whose training diverged has no nearest centre")
    return torch.cdist(rows, centres, compute_mode=mode).argmin(1)


def different_starts(params: Params, models: int, key: Key) -> Params:
    """Initialisations of several models, among which each client finds those that fit it (IFCA, FedEM).

    Parameters
    ----------
    params : Params
        Initialisation of the first model.
    models : int
        M.
    key : Key

    Returns
    -------
    Params
        Stack of M rows. The other models are random draws with the mean and standard deviation of each tensor.

    Raises
    ------
    ValueError
        More than one model but only constant parameters, because models that start equal stay equal.
    """
    others, stack = torch.arange(1, models), {}
    for name, p in params.items():
        drawn = key.normal(others, f"start of {name}", *p.shape).to(p)
        stack[name] = torch.cat([p[None], p.mean() + p.std(correction=0) * drawn])
    if models > 1 and all((p == p[:1]).all() for p in stack.values()):
        raise ValueError("all models start equal, so none could be better for a client; give parameters that vary")
    return stack


def shuffle_within(cluster: Tensor, bits: Tensor, clusters: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sort items by cluster, in random order within each cluster, for draws that treat all clusters alike.

    Parameters
    ----------
    cluster : Tensor of shape (N,), int64
        Cluster of each item, from 0 to `clusters` - 1.
    bits : Tensor of shape (N,), int64
        Random bits of each item, from `fedlib.keys.Key.bits`; the smallest comes first.
    clusters : int
        M.

    Returns
    -------
    order : Tensor of shape (N,), int64
        Positions, cluster by cluster.
    first, size : Tensor of shape (M,), int64
        Where each cluster begins in `order`, and its size. Chapter 11.
    """
    order, size = bits.argsort(stable=True), torch.bincount(cluster, minlength=clusters)
    return order[cluster[order].argsort(stable=True)], size.cumsum(0) - size, size


def _matrix(updates: Params | Tensor) -> Tensor:
    """Updates as a matrix (K, P) of at least 32 bits."""
    matrix = to_matrix(updates if isinstance(updates, dict) else {"": updates}).detach()
    return matrix.to(torch.promote_types(matrix.dtype, torch.float32))


def _refuse(wrong: Tensor, what: str) -> None:
    """Refuse updates for the reason `what` if the mask `wrong` (K,) marks any."""
    if number := int(wrong.sum()):
        first = wrong.nonzero()[:10, 0].tolist()
        rest = f" and {number - 10} more" if number > 10 else ""
        raise ValueError(f"the updates of the clients at positions {first}{rest} hold {what}")


def _symmetric(similarity: Tensor | ArrayLike) -> np.ndarray:
    """The matrix for `bipartition`, checked, in float64 and exactly symmetric."""
    alpha = torch.as_tensor(similarity).detach().cpu().double().numpy()
    if alpha.ndim != 2 or len(alpha) != alpha.shape[1] or len(alpha) < 2:
        raise ValueError(f"similarity must be a square matrix of at least two clients; got shape {alpha.shape}")
    if not np.isfinite(alpha).all():
        raise ValueError("similarity must be finite; did the training of a client diverge?")
    if (difference := np.abs(alpha - alpha.T).max()) > 1e-5 * np.abs(alpha).max():
        raise ValueError(f"similarity must be symmetric; mirrored entries differ by up to {difference:g}")
    return np.maximum(alpha, alpha.T)
