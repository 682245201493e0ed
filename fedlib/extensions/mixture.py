"""Domains of single samples by federated EM, a mixture model fitted to clients' sums of features (not from a paper).

The method needs labels and the number of domains. The shares of the domains must vary from client to client, and the
domains must differ in the mean features of a class. The server sees each client's mean features.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from ..algorithms.fedcg import DOMAINS
from ..algorithms.fedem import responsibilities
from ..checks import check_whole
from ..client.domain_net import each_row
from ..costs import message_bytes, record, server_time
from ..data import ClientData, one_class
from ..keys import Key
from ..server.clusters import kmeans

__all__ = ["EMResult", "RandomFeatures", "em_domains", "federated_em", "nmi"]

MEAN_COUNT, VARIANCE_COUNT = 2.0, 20.0  # weight of the mixture's prior, in samples
FLOOR = 0.01  # smallest variance of a component


def nmi(true: Sequence[ArrayLike], w: Tensor) -> float:
    """Normalised mutual information of the true domains and each sample's domain of largest weight; 1 if they agree.

    Parameters
    ----------
    true : sequence of K arrays of shape (n_k,)
        For example, the `sample_group` of a `fedlib.partition.Partition`.
    w : Tensor of shape (K, N, D)
        Zeros for padding.

    Returns
    -------
    float
        From 0 to 1; the numbering of the domains does not matter. It is 0 if one of several domains has all samples.

    Raises
    ------
    ValueError
        A client's number of true domains differs from its number of samples. Chapter 09.
    """
    from sklearn.metrics import normalized_mutual_info_score

    real = (w.sum(-1) > 0).cpu()
    if [len(np.asarray(t)) for t in true] != real.sum(1).tolist():
        raise ValueError("true must hold one domain for each sample of each client, in the order of w")
    return float(normalized_mutual_info_score(np.concatenate(list(true)), w.argmax(-1).cpu()[real].numpy()))


def em_domains(data: ClientData, key: Key, domains: int, classes: int, **settings: Any) -> Tensor:
    """Responsibilities of `federated_em`; ``partial(em_domains, domains=4, classes=10)`` is a teacher of FedCG."""
    return federated_em(data, domains, classes, key.seed, **settings).r


@dataclass(frozen=True)
class RandomFeatures:
    """Frozen random features of images by a 3x3 convolution, ReLU, a 2x2 mean and a random orthonormal projection.

    Parameters
    ----------
    image : (channels, height, width)
    seed : int
        All clients draw the same weights from it, so none are sent.
    size : int
        p, the number of features.
    channels : int
        Filters of the convolution.

    Raises
    ------
    ValueError
        The images give fewer than `size` numbers after the 2x2 mean. Chapter 09.
    """

    image: tuple[int, int, int]
    seed: int
    size: int = 64
    channels: int = 8

    def __call__(self, x: Tensor) -> Tensor:
        """Features of shape (B, p) for x of shape (B, *image)."""
        key, one = Key(self.seed), torch.zeros(1, dtype=torch.int64)
        weight = key.normal(one, "domains: convolution", self.channels, self.image[0], 3, 3)[0]
        h = F.avg_pool2d(F.relu(F.conv2d(x, weight.to(x) / math.sqrt(weight[0].numel()))), 2).flatten(1)
        if h.shape[1] < self.size:
            raise ValueError(f"images {self.image} give {h.shape[1]} numbers, fewer than size={self.size}")
        projection, triangle = torch.linalg.qr(key.normal(one, "domains: projection", h.shape[1], self.size)[0])
        return h @ (projection * triangle.diagonal().sign()).to(x)  # fixed signs, so that every machine gets the same


@dataclass(frozen=True)
class EMResult:
    """Result of `federated_em`.

    Attributes
    ----------
    r : Tensor of shape (K, N, D)
        Responsibility of each domain for each sample, which stays with the client; zeros for padding.
    pi : Tensor of shape (K, D)
        Each client's shares of the domains, which stay with the client; the rows are equal if all clients share one
        prior.
    objective : Tensor of shape (iterations,)
        The objective that EM raises, as a mean over samples; see `federated_em`.
    start : Tensor of shape (K, D)
        The initial cluster of each client, one-hot.
    mean, variance : Tensor of shape (D, Y, p)
        Mean and variance of the standardised features in each domain and class.
    weight : Tensor of shape (D, Y)
        Share of each domain and class among all samples.
    shift, scale : Tensor of shape (p,)
        Shift and scale that standardise the features.
    temperature : float
        T, see `federated_em`.
    features : callable
        Maps rows (B, ...) to features (B, p).
    """

    r: Tensor
    pi: Tensor
    objective: Tensor
    start: Tensor
    mean: Tensor
    variance: Tensor
    weight: Tensor
    shift: Tensor
    scale: Tensor
    temperature: float
    features: Callable[[Tensor], Tensor]

    def score(
        self, data: ClientData, pi: Tensor | None = None, labels: bool = True, iterations: int = 15
    ) -> tuple[Tensor, Tensor]:
        """Responsibilities for other samples, of these clients or of new ones.

        Parameters
        ----------
        data : ClientData
            C clients.
        pi : Tensor of shape (C, D), optional
            The clients' shares, such as rows of `EMResult.pi`. By default, each client estimates its own, starting from
            equal shares, while mean and variance stay fixed.
        labels : bool
            False uses no labels, as at test time, so that the density of a sample is the mixture of all classes in a
            domain.
        iterations : int
            Number of iterations in which a client estimates its shares from all its samples in `data`; 0 leaves them
            equal.

        Returns
        -------
        r : Tensor of shape (C, N, D)
        pi : Tensor of shape (C, D)
        """
        x, real = (each_row(self.features, data, self.mean.dtype) - self.shift) / self.scale, data.real
        if labels:
            one_class(data.y, "a score with labels", 2)
            density = log_density(x, data.y, self.mean, self.variance) / self.temperature
        else:
            share = self.weight.clamp(min=torch.finfo(x.dtype).tiny)  # also for a domain without samples
            classes = (share / share.sum(1, keepdim=True)).log().T  # (Y, D)
            each = [log_density(x, torch.full_like(data.y, y), self.mean, self.variance) for y in range(len(classes))]
            density = (torch.stack(each) / self.temperature + classes[:, None, None]).logsumexp(0)
        if pi is None:
            pi = torch.full((len(data), len(self.mean)), 1 / len(self.mean)).to(x)
            for _ in range(iterations):
                pi = own_shares(responsibilities(density, pi, real)[0])
        return responsibilities(density, pi, real)[0], pi


def federated_em(
    data: ClientData,
    domains: int,
    classes: int,
    seed: int,
    iterations: int = 15,
    temperature: float | None = None,
    client_prior: bool = True,
    features: Callable[[Tensor], Tensor] | None = None,
    dtype: torch.dtype = torch.float32,
) -> EMResult:
    """Find the domains of samples by a mixture of Gaussians, in which each client has its own shares of the domains.

    A sample of class y at client c, with standardised random features x, has the density
    sum_d pi_c(d) N(x; mu_dy, diag v_dy). Clients send only sums, so a sample's domain never leaves its client. What a
    client's counts reveal about pi_c is hidden if the server sees only their sum over clients.

    Parameters
    ----------
    data : ClientData
        All K clients, with labels from 0 to `classes` - 1.
    domains, classes : int
        D and Y.
    seed : int
        From 0 to 2^32 - 1; determines the random features and the initialisation of k-means.
    iterations : int
        Number of iterations of EM; all clients take part in each.
    temperature : float, optional
        T, by which the logarithm of a density is divided, because correlated features are counted more than once. The
        default is p / 7; 1 is plain EM.
    client_prior : bool
        False uses one pi for all clients, as a mixture model without federation does.
    features : callable, optional
        Frozen map of rows (B, ...) to features (B, p), the same for all clients; `RandomFeatures` of the images by
        default.
    dtype : torch.dtype
        Type of features, sums and messages.

    Returns
    -------
    EMResult

    Raises
    ------
    ValueError
        There are fewer clients than domains, or fewer than one iteration.

    Notes
    -----
    Before the first iteration, each client sends n and the sums of its features and of their squares. From the sums of
    all clients the server derives the standardisation, and it clusters the clients by mean and mean square
    (`fedlib.server.clusters.kmeans`); all samples of a client start in its cluster. Then, in each iteration,

    - each client sends N, S1 and S2, the sums of r, r x and r x^2 for each domain and class, and one number, its
      contribution to the objective, in all 20.6 kB for D = 4, p = 64 and 10 classes in 32 bits;
    - the server computes mu = (S1 + 2 m) / (N + 2) and v = (S2 + 2 m^2 - (N + 2) mu^2 + 20 v0) / (N + 20), at least
      0.01, where m is the mean of the class over all domains and v0 the variance within classes;
    - client c computes r ~ pi_c(d) N(x; mu_dy, v_dy)^(1/T), and then pi_c = (sum r + 1) / (n_c + D).

    No step lowers the objective. It is the sum over samples of T log sum_d pi_c(d) N(x; mu_dy, v_dy)^(1/T), plus the
    logarithm of the prior that corresponds to the added numbers, namely T sum log pi_c(d) and
    -1/2 sum [2 (mu - m)^2 / v + 20 (log v + v0 / v)]. With T = 1, it is the logarithm of a posterior density, up to a
    constant.

    A domain without samples has the mean of each class and the variance v0, and a class without samples has mean 0. If
    a client has a single sample of a class, its sums reveal that sample's features, unless secure aggregation adds them
    up. Chapter 09.

    References
    ----------
    Dempster, Laird, Rubin. Maximum likelihood from incomplete data via the EM algorithm. 1977.
    """
    check_whole(iterations, "iterations")
    one_class(data.y, "federated_em", 2)
    clients, real = len(data), data.real
    view = RandomFeatures(tuple(data.x.shape[1:]), seed) if features is None else features  # type: ignore[arg-type]
    x = each_row(view, data, dtype)
    rows = x * real[..., None]
    sums = {"n": data.n[:, None].to(x), "sum": rows.sum(1), "square": rows.square().sum(1)}  # of each client
    with server_time(DOMAINS):
        shift, scale, first = standardise(sums)
        start = F.one_hot(kmeans(first, domains, seed).assignment, domains).to(x)
    down = message_bytes({"shift": shift[None], "scale": scale[None], "start": start})
    record(DOMAINS, bytes_up=clients * message_bytes(sums), bytes_down=clients * down)
    x = (x - shift) / scale
    temperature = x.shape[-1] / 7 if temperature is None else temperature

    def shares(r: Tensor) -> Tensor:
        return own_shares(r if client_prior else r.flatten(0, 1)[None]).expand(clients, -1)

    r, objective = start[:, None] * real[..., None], []
    pi = shares(r)
    for _ in range(iterations):
        moments = weighted_sums(r, x, data.y, classes)  # on the clients
        with server_time(DOMAINS):
            mu, v, log_prior = gaussians(*moments)
        r, evidence = responsibilities(log_density(x, data.y, mu, v) / temperature, pi, real)
        log_pi = pi[: clients if client_prior else 1].log().sum()  # a common prior counts once
        objective.append((temperature * (evidence.sum() + log_pi) + log_prior) / data.n.sum())
        pi = shares(r)
        up = sum(message_bytes(m[None]) for m in moments) + message_bytes(evidence)
        down = message_bytes(mu[None]) + message_bytes(v[None]) + (0 if client_prior else message_bytes(pi))
        record(DOMAINS, bytes_up=clients * up, bytes_down=clients * down)
    weight = moments[0] / moments[0].sum()
    return EMResult(r, pi, torch.stack(objective), start, mu, v, weight, shift, scale, temperature, view)


@torch.no_grad()
def standardise(sums: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Shift and scale (p,) of all features, and each client's standardised means and mean squares (K, 2 p)."""
    n, own, squares = sums.values()
    shift, square = own.sum(0) / n.sum(), squares.sum(0) / n.sum()
    variance = square - shift**2
    scale = torch.where(variance > 1e-6 * square, variance, 1).sqrt()  # a constant feature is not scaled
    mean_square = (squares / n - 2 * shift * own / n + shift**2) / scale**2
    return shift, scale, torch.cat([(own / n - shift) / scale, mean_square], 1)


def own_shares(r: Tensor) -> Tensor:
    """Shares pi (K, D) of the domains in r (K, N, D), with one sample added to each."""
    counts = r.sum(1) + 1
    return counts / counts.sum(1, keepdim=True)


def log_density(x: Tensor, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Log N(x; mu_dy, diag v_dy) of each sample in each domain, of shape (K, N, D)."""
    each = [((x - m[y]).square() / v[y]).sum(-1) + v.log().sum(1)[y] for m, v in zip(mean, variance, strict=True)]
    return -0.5 * (torch.stack(each, -1) + x.shape[-1] * math.log(2 * math.pi))


def weighted_sums(r: Tensor, x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """The totals N (D, Y), S1 (D, Y, p) and S2 (D, Y, p) of all clients' sums."""
    weight = r[..., None] * F.one_hot(y, classes)[:, :, None]  # (K, N, D, Y)
    columns, rows = weight.flatten(0, 1).flatten(1).T, x.flatten(0, 1)
    s1, s2 = ((columns @ t).unflatten(0, weight.shape[2:]) for t in (rows, rows.square()))
    return weight.sum((0, 1)), s1, s2


def gaussians(n: Tensor, s1: Tensor, s2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The server's mean and variance (D, Y, p) from the sums, and the logarithm of their prior."""
    n = n[..., None]
    of_class = n.sum(0).clamp(min=torch.finfo(n.dtype).tiny)  # (Y, 1)
    m = s1.sum(0) / of_class
    v0 = (s2.sum(0) - of_class * m**2).sum(0) / n.sum()
    mean = (s1 + MEAN_COUNT * m) / (n + MEAN_COUNT)
    squares = s2 + MEAN_COUNT * m**2 - (n + MEAN_COUNT) * mean**2
    variance = ((squares + VARIANCE_COUNT * v0) / (n + VARIANCE_COUNT)).clamp(min=FLOOR)
    prior = MEAN_COUNT * (mean - m) ** 2 / variance + VARIANCE_COUNT * (variance.log() + v0 / variance)
    return mean, variance, -0.5 * prior.sum()
