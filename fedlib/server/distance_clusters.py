"""Clusters from a distance matrix (FedSGCNN Step 6), and random clusters as their control."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..keys import Key

__all__ = ["dbscan", "linkage", "same_sizes"]


def dbscan(distance: Tensor | ArrayLike, eps: float, min_samples: int = 2) -> Tensor:
    """Cluster a distance matrix by scikit-learn's DBSCAN (FedSGCNN Step 6).

    Parameters
    ----------
    distance : Tensor or array of shape (K, K)
        Symmetric, with entries of at least 0.
    eps : float
        Clients no farther apart than this are neighbours; above 0.
    min_samples : int
        Number of neighbours, itself included, that make a client the core of a cluster. With 2, clusters are chains of
        neighbours.

    Returns
    -------
    Tensor of shape (K,), int64
        Clusters are numbered in the order of their first clients. A client that DBSCAN calls noise is a separate
        cluster, so it trains alone.

    Notes
    -----
    The paper states neither eps nor min_samples, nor how to treat noise. Chapter 12.
    """
    from sklearn.cluster import DBSCAN

    matrix = torch.as_tensor(distance).detach().cpu().double().numpy()
    labels = DBSCAN(eps=eps, min_samples=min_samples, metric="precomputed").fit(matrix).labels_
    noise = labels < 0
    labels[noise] = len(labels) + np.flatnonzero(noise)
    return torch.from_numpy(pd.factorize(labels)[0])  # numbers from 0 in the order of first occurrence


def linkage(distance: Tensor | ArrayLike, clusters: int | None = None, threshold: float | None = None) -> Tensor:
    """Cluster a distance matrix by scikit-learn's average linkage, up to a number of clusters or to a threshold.

    Parameters
    ----------
    distance : Tensor or array of shape (K, K)
    clusters : int, optional
        From 1 to K.
    threshold : float, optional
        At least 0, given instead of `clusters`. The two nearest clusters are joined as long as the mean distance
        between their clients is below it. With 0 every client is alone.

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
    return torch.from_numpy(pd.factorize(rule.fit(matrix).labels_)[0])


def same_sizes(assignment: Tensor | Sequence[int], seed: int) -> Tensor:
    """Random clusters of the same sizes, as a control for every clustering. Chapter 12."""
    given = torch.as_tensor(assignment)
    return given[Key(seed).bits(torch.arange(len(given)), "random clusters").argsort(stable=True).to(given.device)]
