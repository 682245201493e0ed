"""Clusters of a distance matrix (FedSGCNN Step 6), and the random clusters to compare them with."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..keys import Key

__all__ = ["dbscan", "linkage", "same_sizes"]


def dbscan(distance: Tensor | ArrayLike, eps: float, min_samples: int = 2) -> Tensor:
    """Clusters of a distance matrix by scikit-learn's DBSCAN (FedSGCNN Step 6).

    Parameters
    ----------
    distance : Tensor or array of shape (K, K)
        At least 0, symmetric.
    eps : float
        Clients no farther apart than this are neighbours; above 0.
    min_samples : int
        Neighbours, itself included, that make a client the core of a cluster. 2: clusters are chains of neighbours.

    Returns
    -------
    Tensor of shape (K,), int64
        Clusters are numbered in the order of their first clients. What DBSCAN calls noise is a cluster of its own: such
        a client trains alone.

    Notes
    -----
    The paper states neither eps nor min_samples nor what becomes of noise. Chapter 12.
    """
    from sklearn.cluster import DBSCAN

    matrix = torch.as_tensor(distance).detach().cpu().double().numpy()
    labels = DBSCAN(eps=eps, min_samples=min_samples, metric="precomputed").fit(matrix).labels_
    noise = labels < 0
    labels[noise] = len(labels) + np.flatnonzero(noise)
    return _in_order(labels)


def linkage(distance: Tensor | ArrayLike, clusters: int | None = None, threshold: float | None = None) -> Tensor:
    """Clusters of a distance matrix by scikit-learn's average linkage: so many, or as a threshold makes them.

    Parameters
    ----------
    distance : Tensor or array of shape (K, K)
    clusters : int, optional
        From 1 to K.
    threshold : float, optional
        In place of `clusters`, at least 0: the two nearest clusters are joined as long as the mean distance between
        their clients is below it. With 0 every client is alone.

    Returns
    -------
    Tensor of shape (K,), int64
        Clusters are numbered in the order of their first clients. Chapter 12.

    Raises
    ------
    ValueError
        A number of clusters out of its range.
    """
    from sklearn.cluster import AgglomerativeClustering

    matrix = torch.as_tensor(distance).detach().cpu().double().numpy()
    if threshold is None and not 1 <= (clusters or 0) <= len(matrix):
        raise ValueError(f"clusters must be from 1 to the number of clients, {len(matrix)}; got {clusters}")
    if len(matrix) == 1:
        return torch.zeros(1, dtype=torch.int64)
    rule = AgglomerativeClustering(clusters, distance_threshold=threshold, metric="precomputed", linkage="average")
    return _in_order(rule.fit(matrix).labels_)


def same_sizes(assignment: Tensor | Sequence[int], seed: int) -> Tensor:
    """Random clusters of the same sizes: the control beside every clustering. Chapter 12."""
    given = torch.as_tensor(assignment)
    return given[Key(seed).bits(torch.arange(len(given)), "random clusters").argsort(stable=True).to(given.device)]


def _in_order(labels: np.ndarray) -> Tensor:
    """Numbers from 0 in the order of first occurrence."""
    _, first, place = np.unique(labels, return_index=True, return_inverse=True)
    return torch.from_numpy(first.argsort().argsort()[place]).long()
