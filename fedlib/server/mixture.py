"""Domains of single samples, found without sending one: the classifiers of FedCG, and ways to find what they teach.

FedCG lets a teacher network give each image a domain and a student learn it (Eq. 3). A random teacher puts nearly all
images into one domain, which `occupancy` shows. The mends are a bias on its logits (`assign`), the clusters of the
clients (`kmeans_labels`), and a mixture model fitted from sums of all clients (`federated_em`). Each gives weights
w (K, N, D): of each sample, padded as `fedlib.data.ClientData` pads it, for each domain; padding has zeros. What
clients and server send each other is entered in the ledger with the purpose "domains".
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from ..costs import message_bytes, record, server_time
from ..data import ClientData, to_features
from ..keys import Key
from ..params import Params
from .clusters import Centres, kmeans

__all__ = [
    "EMResult",
    "RandomFeatures",
    "assign",
    "domain_bias",
    "em_domains",
    "federated_em",
    "kmeans_labels",
    "nmi",
    "occupancy",
    "spread",
]

_DOMAINS = "domains"  # in the ledger
_MEAN_COUNT, _VARIANCE_COUNT = 2.0, 20.0  # samples that the prior of the mixture is worth
_FLOOR = 0.01  # least variance of a component


def domain_bias(
    logits: Tensor,
    real: Tensor,
    mode: str = "argmax",
    temperature: float = 0.1,
    target: ArrayLike | Tensor | None = None,
    iterations: int = 100,
) -> Tensor:
    """What to add to a teacher's logits, so that not all samples get the same domain.

    Parameters
    ----------
    logits : Tensor of shape (C, N, D)
    real : Tensor of shape (C, N), bool
        False for padding.
    mode : {"argmax", "centred", "sinkhorn"}
        "argmax" is the paper's d-hat below Eq. 3: the bias is 0. "centred" takes off the mean logit of all samples.
        "sinkhorn" finds the bias with which the samples' softmax probabilities have the mean `target`.
    temperature : float
        tau of "sinkhorn": probabilities are softmax((logits + bias) / tau). With a tau much above the spread of the
        logits it does what "centred" does.
    target : D numbers, optional
        Shares of "sinkhorn", all above 0; equal by default, which is wrong if a domain is rare.
    iterations : int
        Most iterations of "sinkhorn"; it ends when no share is off by more than 1e-3 / D.

    Returns
    -------
    Tensor of shape (D,)
        Its mean is 0.

    Raises
    ------
    ValueError
        An unknown mode, logits that are not finite, no samples, a temperature or target of 0 or less.

    Notes
    -----
    Message of a client: "centred" its mean logit, D numbers; "sinkhorn" the sum of its probabilities, D numbers in
    each iteration, for D numbers of the server. "sinkhorn" balances probabilities; the arg max of each sample can
    still give unequal shares, which `occupancy` tells. Chapter 05.

    References
    ----------
    Asano, Rupprecht, Vedaldi. Self-labelling via simultaneous clustering and representation learning. ICLR 2020.
    """
    if mode not in ("argmax", "centred", "sinkhorn"):
        raise ValueError(f"mode must be 'argmax', 'centred' or 'sinkhorn', got {mode!r}")
    clients, _, domains = logits.shape
    rows = logits[real]
    if not len(rows) or not rows.isfinite().all():
        raise ValueError("no samples, or logits with NaN or infinite values; lower the classifier's learning rate")
    bias, message = rows.new_zeros(domains), clients * message_bytes(rows[:1])
    if mode == "centred":
        record(_DOMAINS, bytes_up=message, bytes_down=message)
        return (rows.mean() - rows.mean(0)).detach()
    if mode == "sinkhorn":
        wanted = torch.ones(domains) if target is None else torch.as_tensor(target)
        wanted = wanted.to(rows) / wanted.sum()
        if not temperature > 0 or wanted.shape != (domains,) or not (wanted > 0).all():
            raise ValueError(f"give a temperature above 0 and {domains} shares above 0; got {temperature}, {target!r}")
        for _ in range(iterations):
            share = ((rows + bias) / temperature).softmax(1).mean(0)
            record(_DOMAINS, bytes_up=message, bytes_down=message)
            if (share - wanted).abs().max() <= 1e-3 / domains:
                break
            bias = bias + temperature * (wanted.log() - share.clamp(min=torch.finfo(share.dtype).tiny).log())
    return (bias - bias.mean()).detach()


def assign(logits: Tensor, real: Tensor, mode: str = "argmax", soft: bool = False, **settings: Any) -> Tensor:
    """Domains of samples by a teacher's logits: d-hat of FedCG's Eq. 3, or one of its mends.

    Parameters
    ----------
    logits : Tensor of shape (C, N, D)
    real : Tensor of shape (C, N), bool
        False for padding.
    mode, **settings
        As in `domain_bias`.
    soft : bool
        Give probabilities, not the arg max; with the temperature of "sinkhorn", else with 1.

    Returns
    -------
    Tensor of shape (C, N, D)
        One-hot rows, or probabilities; zeros for padding. Of equal logits the first domain gets the sample.

    Raises
    ------
    ValueError
        As `domain_bias`. Chapter 05.
    """
    z = logits + domain_bias(logits, real, mode, **settings)
    tau = settings.get("temperature", 0.1) if mode == "sinkhorn" else 1.0
    w = (z / tau).softmax(-1) if soft else F.one_hot(z.argmax(-1), z.shape[-1]).to(z.dtype)
    return w.masked_fill(~real[..., None], 0)


def occupancy(w: Tensor, least: float = 0.5) -> tuple[Tensor, float]:
    """How the samples are spread over the domains.

    Parameters
    ----------
    w : Tensor of shape (C, N, D)
        Weights of the domains; zeros for padding.
    least : float
        Entropy below which the domains count as collapsed.

    Returns
    -------
    share : Tensor of shape (D,)
        Share of each domain in the weights of all samples.
    entropy : float
        Of `share`, in units of log D: 1 if all domains have as many samples, 0 if one has all. 1 for D = 1.

    Warns
    -----
    UserWarning
        The entropy is below `least`: then most domain modules never learn.

    Raises
    ------
    ValueError
        No samples.

    Notes
    -----
    Message of a client: its sums, D numbers. Chapter 05.
    """
    sums = w.detach().sum((0, 1))
    record(_DOMAINS, bytes_up=len(w) * message_bytes(sums[None]))
    return spread(sums, least)


def spread(sums: Tensor, least: float = 0.5) -> tuple[Tensor, float]:
    """`occupancy` of sums (D,) that have been sent."""
    if not sums.sum() > 0:
        raise ValueError("w gives no sample a domain: all weights are 0")
    share = sums / sums.sum()
    entropy = float(torch.special.entr(share).sum()) / math.log(len(share)) if len(share) > 1 else 1.0
    if entropy < least:
        warnings.warn(
            f"the domains collapsed: one of {len(share)} has {float(share.max()):.0%} of the samples (entropy "
            f"{entropy:.2f} log D). Balance the teacher (mode='sinkhorn') or find domains with federated_em",
            stacklevel=3,
        )
    return share, entropy


def nmi(true: Sequence[ArrayLike], w: Tensor) -> float:
    """Normalised mutual information of true domains and the largest weight of each sample: 1 if they agree.

    Parameters
    ----------
    true : sequence of K arrays of shape (n_k,)
        Such as the `sample_group` of a `fedlib.partition.Partition`.
    w : Tensor of shape (K, N, D)
        Zeros for padding.

    Returns
    -------
    float
        From 0 to 1; which number a domain has does not matter. 0 if one of several domains has all samples.

    Raises
    ------
    ValueError
        Not as many true domains as samples. Chapter 05.
    """
    from sklearn.metrics import normalized_mutual_info_score

    real = (w.sum(-1) > 0).cpu()
    if [len(np.asarray(t)) for t in true] != real.sum(1).tolist():
        raise ValueError("true must hold one domain for each sample of each client, in the order of w")
    return float(normalized_mutual_info_score(np.concatenate(list(true)), w.argmax(-1).cpu()[real].numpy()))


def kmeans_labels(updates: Params | Tensor, data: ClientData, domains: int, seed: int) -> tuple[Tensor, Centres]:
    """Domains by k-means on the clients' updates: all samples of a client get its cluster (FedCG's Table 4).

    Parameters
    ----------
    updates : Params or Tensor of shape (K, ...)
        Of these clients after local training from one start.
    data : ClientData
        The K clients.
    domains, seed : int
        `clusters` and `seed` of `fedlib.server.clusters.kmeans`.

    Returns
    -------
    w : Tensor of shape (K, N, D)
    centres : Centres
        With `fedlib.server.clusters.nearest` for new clients.

    Raises
    ------
    ValueError
        As `fedlib.server.clusters.kmeans`; not one update for each client.

    Notes
    -----
    Message of a client: its update. The server's model and the local training are entered by who does the training.
    A client with two domains gets one of them. Chapter 05.
    """
    stack = updates if isinstance(updates, dict) else {"": updates}
    if {len(p) for p in stack.values()} != {len(data)}:
        raise ValueError(f"give one update for each of the {len(data)} clients")
    record(_DOMAINS, bytes_up=len(data) * message_bytes(stack))
    with server_time(_DOMAINS):
        found = kmeans(updates, domains, seed)
    w = F.one_hot(found.assignment.to(data.n.device), domains).float()
    return w[:, None] * _real(data)[..., None], found


# ---- federated EM ----


def em_domains(data: ClientData, key: Key, domains: int, classes: int, **settings: Any) -> Tensor:
    """Responsibilities of `federated_em`; ``partial(em_domains, domains=4, classes=10)`` is a teacher of FedCG."""
    return federated_em(data, domains, classes, key.seed, **settings).r


@dataclass(frozen=True)
class RandomFeatures:
    """A frozen random view of images: 3x3 convolution, ReLU, 2x2 mean, random orthonormal projection.

    Parameters
    ----------
    image : (channels, height, width)
    seed : int
        All clients draw the same weights from it, so none are sent.
    size : int
        p, the number of features.
    channels : int
        Filters of the convolution. Chapter 05.
    """

    image: tuple[int, int, int]
    seed: int
    size: int = 64
    channels: int = 8

    def __post_init__(self) -> None:
        if len(self.image) != 3 or min(self.image[1:]) < 4:
            raise ValueError(f"image must be (channels, height, width), at least 4 x 4; got {self.image}")
        if not 1 <= self.size <= self._inputs:
            raise ValueError(
                f"{self.channels} filters give {self._inputs} numbers; size must lie below, not {self.size}"
            )

    @property
    def _inputs(self) -> int:
        return self.channels * ((self.image[1] - 2) // 2) * ((self.image[2] - 2) // 2)

    def __call__(self, x: Tensor) -> Tensor:
        """Features of shape (B, p) for x of shape (B, *image)."""
        key, one = Key(self.seed), torch.zeros(1, dtype=torch.int64)
        weight = key.normal(one, "domains: convolution", self.channels, self.image[0], 3, 3)[0]
        draw = key.normal(one, "domains: projection", self._inputs, self.size)[0]
        projection, triangle = torch.linalg.qr(draw)
        projection = projection * triangle.diagonal().sign()  # the same on every machine
        h = F.avg_pool2d(F.relu(F.conv2d(x, weight.to(x) / math.sqrt(weight[0].numel()))), 2)
        return h.flatten(1) @ projection.to(x)


@dataclass(frozen=True)
class EMResult:
    """What `federated_em` found.

    Attributes
    ----------
    r : Tensor of shape (K, N, D)
        Responsibility of each domain for each sample; stays with the client. Zeros for padding.
    pi : Tensor of shape (K, D)
        Each client's own shares of the domains; stays with the client. Equal rows with one prior for all.
    objective : Tensor of shape (iterations,)
        What EM raises, as a mean over samples: see `federated_em`.
    start : Tensor of shape (K, D)
        One-hot: the cluster that each client started in.
    mean, variance : Tensor of shape (D, Y, p)
        Of the standardised features in each domain and class; Y = 1 if not class-conditional.
    weight : Tensor of shape (D, Y)
        Share of each domain and class in all samples.
    shift, scale : Tensor of shape (p,)
        Standardise the features.
    temperature : float
        T.
    features : callable
        Rows (B, ...) to features (B, p).
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
            The clients' shares, such as rows of `EMResult.pi`. By default each client finds its own, from equal
            ones, while mean and variance stay.
        labels : bool
            False uses no label, as at test: the density of a sample is the mixture of all classes in a domain.
        iterations : int
            In which a client finds its shares, from all its samples in `data`; 0 leaves them equal.

        Returns
        -------
        r : Tensor of shape (C, N, D)
        pi : Tensor of shape (C, D)

        Raises
        ------
        ValueError
            Labels that `mean` has no class for.

        Notes
        -----
        A client is sent `mean`, `variance`, `shift` and `scale`, without labels `weight` too, and sends nothing.
        """
        x = (_rows(data, self.features, self.mean.dtype) - self.shift) / self.scale
        real, classes = _real(data), self.mean.shape[1]
        sent = [self.mean, self.variance, self.shift, self.scale] + ([] if labels else [self.weight])
        record(_DOMAINS, bytes_down=len(data) * sum(message_bytes(t[None]) for t in sent))
        if labels:
            density = _log_density(x, _classes(data, classes), self.mean, self.variance) / self.temperature
        else:
            share = self.weight.clamp(min=torch.finfo(x.dtype).tiny)  # of a domain without samples too
            share = (share / share.sum(1, keepdim=True)).log()
            each = [_log_density(x, torch.full_like(data.index, c), self.mean, self.variance) for c in range(classes)]
            density = torch.stack([d / self.temperature + share[:, c] for c, d in enumerate(each)]).logsumexp(0)
        if pi is not None:
            return _responsibilities(density, pi, real)[0], pi
        pi = torch.full((len(data), len(self.mean)), 1 / len(self.mean)).to(x)
        for _ in range(iterations):
            pi = _shares(_responsibilities(density, pi, real)[0])
        return _responsibilities(density, pi, real)[0], pi


def federated_em(
    data: ClientData,
    domains: int,
    classes: int,
    seed: int,
    iterations: int = 15,
    temperature: float | None = None,
    class_conditional: bool = True,
    client_prior: bool = True,
    features: Callable[[Tensor], Tensor] | None = None,
    dtype: torch.dtype = torch.float32,
) -> EMResult:
    """Domains of samples by a mixture of Gaussians, in which each client has its own shares of the domains.

    A sample x of class y at client c has the density sum_d pi_c(d) N(x; mu_dy, diag v_dy), with x a standardised
    random view of the image. Clients send sums only; pi_c and the samples' domains never leave them.

    Parameters
    ----------
    data : ClientData
        All K clients, labels from 0 to `classes` - 1.
    domains : int
        D.
    classes : int
        Y.
    seed : int
        From 0 to 2^32 - 1: draws the features and starts k-means.
    iterations : int
        Rounds of EM, in which all clients take part.
    temperature : float, optional
        T: the logarithm of a density is divided by it, since features that hang together count too often. p / 7 by
        default; 1 is plain EM.
    class_conditional : bool
        False has one Gaussian a domain, and uses no label.
    client_prior : bool
        False has one pi for all clients, as a mixture model without federation has.
    features : callable, optional
        Frozen, the same for all clients: rows (B, ...) to (B, p). `RandomFeatures` of the images by default.
    dtype : torch.dtype
        In which features, sums and messages are taken.

    Returns
    -------
    EMResult

    Raises
    ------
    ValueError
        Fewer clients than domains; labels out of range; no images and no `features`; iterations or a temperature that
        are not positive.

    Notes
    -----
    Before the first iteration a client sends n and the sums of its features and of their squares. The server
    standardises by the sums of all and groups the clients by mean and mean square (`fedlib.server.clusters.kmeans`); all
    samples of a client start in its cluster. Then, in each iteration,

    - clients send N, S1 and S2, the sums of r, r x and r x^2 for each domain and class, and one number, their part of
      the objective: 20.6 kB for D = 4, p = 64 and 10 classes in 32 bits;
    - server: mu = (S1 + 2 m) / (N + 2) and v = (S2 + 2 m^2 - (N + 2) mu^2 + 20 v0) / (N + 20), at least 0.01, with m
      the mean of the class over all domains and v0 the variance within classes;
    - client c: r ~ pi_c(d) N(x; mu_dy, v_dy)^(1/T), then pi_c = (sum r + 1) / (n_c + D).

    No step lowers the objective, the sum over samples of T log sum_d pi_c(d) N(x; mu_dy, v_dy)^(1/T), plus the
    logarithm of the prior that the added numbers stand for: T sum log pi_c(d), and
    -1/2 sum [2 (mu - m)^2 / v + 20 (log v + v0 / v)]. With T = 1 it is a posterior density.

    A domain without samples has the mean of each class and the variance v0; a class without samples has mean 0. With
    one sample of a class at a client, the sums are its features, unless they are summed by secure aggregation.
    Chapter 05.

    References
    ----------
    Dempster, Laird, Rubin. Maximum likelihood from incomplete data via the EM algorithm. 1977.
    """
    if not 1 <= domains <= len(data):
        raise ValueError(f"domains must be from 1 to the number of clients, {len(data)}; got {domains}")
    if iterations < 1 or not (temperature is None or 0 < temperature < math.inf):
        raise ValueError(f"iterations and temperature must be positive; got {iterations} and {temperature}")
    order = data.id.argsort()  # so that the order of the clients changes nothing
    data, clients = data[order], len(data)
    view = RandomFeatures(tuple(data.x.shape[1:]), seed) if features is None else features  # type: ignore[arg-type]
    classes = classes if class_conditional else 1
    x, y, real = _rows(data, view, dtype), _classes(data, classes), _real(data)

    def shares(r: Tensor) -> Tensor:
        return _shares(r if client_prior else r.flatten(0, 1)[None]).expand(clients, -1)

    mine = real[..., None].to(x)
    sums = {"n": mine.sum(1), "sum": (mine * x).sum(1), "square": (mine * x**2).sum(1)}  # a row a client
    with server_time(_DOMAINS):
        total = {name: s.sum(0) for name, s in sums.items()}
        shift, square = total["sum"] / total["n"], total["square"] / total["n"]
        spread = square - shift**2
        scale = torch.where(spread > 1e-6 * square, spread, 1).sqrt()  # a constant feature stays as it is
        mean = (sums["sum"] / sums["n"] - shift) / scale
        squares = (sums["square"] / sums["n"] - 2 * shift * sums["sum"] / sums["n"] + shift**2) / scale**2
        start = kmeans(torch.cat([mean, squares], 1), domains, seed).assignment
    start = F.one_hot(start, domains).to(x)
    down = message_bytes(shift[None]) + message_bytes(scale[None]) + message_bytes(start)
    record(_DOMAINS, bytes_up=clients * message_bytes(sums), bytes_down=clients * down)
    x = (x - shift) / scale
    temperature = x.shape[-1] / 7 if temperature is None else float(temperature)

    r, objective = start[:, None] * mine, []
    pi = shares(r)
    for _ in range(iterations):
        moments = _moments(r, x, y, classes)
        with server_time(_DOMAINS):
            mu, v, log_prior = _gaussians(moments)
        r, evidence = _responsibilities(_log_density(x, y, mu, v) / temperature, pi, real)
        log_shares = pi.log().sum(1)
        own = temperature * (evidence + log_shares if client_prior else evidence)  # (K,)
        once = 0 if client_prior else temperature * log_shares[0]
        objective.append((own.sum() + log_prior + once) / real.sum())
        pi = shares(r)
        up = sum(message_bytes(m[None]) for m in moments) + message_bytes(own)
        down = message_bytes(mu[None]) + message_bytes(v[None]) + (0 if client_prior else message_bytes(pi))
        record(_DOMAINS, bytes_up=clients * up, bytes_down=clients * down)
    back, weight = order.argsort(), moments[0] / moments[0].sum()
    rows = (r[back], pi[back], torch.stack(objective), start[back])
    return EMResult(*rows, mu, v, weight, shift, scale, temperature, view)


def _real(data: ClientData) -> Tensor:
    """Which places of a client's rows hold a sample, of shape (K, N)."""
    return torch.arange(data.index.shape[1], device=data.n.device) < data.n[:, None]


def _classes(data: ClientData, classes: int) -> Tensor:
    """Labels (K, N), all 0 if one class is asked for."""
    if classes == 1:
        return torch.zeros_like(data.index)
    if data.y.is_floating_point() or data.y.max() >= classes:
        raise ValueError(f"labels must be whole numbers from 0 to {classes - 1}; set classes or class_conditional")
    return data.y


@torch.no_grad()
def _rows(data: ClientData, features: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Tensor:
    """Features of each sample, of shape (K, N, p); rows that several clients hold are computed once."""
    used, place = data.index.unique(return_inverse=True)
    return torch.cat([features(to_features(data.x[rows], dtype)) for rows in used.split(4096)])[place]


def _shares(r: Tensor) -> Tensor:
    """Pi (K, D): shares of the domains in r (K, N, D), with one sample more in each."""
    counts = r.sum(1) + 1
    return counts / counts.sum(1, keepdim=True)


def _log_density(x: Tensor, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Log N(x; mu_dy, diag v_dy) of each sample in each domain, of shape (K, N, D)."""
    each = [((x - m[y]).square() / v[y]).sum(-1) + v.log().sum(1)[y] for m, v in zip(mean, variance, strict=True)]
    return -0.5 * (torch.stack(each, -1) + x.shape[-1] * math.log(2 * math.pi))


def _responsibilities(tempered: Tensor, pi: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """R (K, N, D) from log densities divided by T, and each client's sum of the logarithms of the mixture (K,)."""
    joint = tempered + pi.log()[:, None]
    evidence = joint.logsumexp(-1)
    return (joint - evidence[..., None]).exp() * real[..., None], (evidence * real).sum(1)


def _moments(r: Tensor, x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """N (D, Y), S1 (D, Y, p) and S2 (D, Y, p): what all clients' sums add up to."""
    rows, squares = x.flatten(0, 1), x.flatten(0, 1).square()
    member = F.one_hot(y.flatten(), classes).to(x)
    each = [member * w[:, None] for w in r.flatten(0, 1).unbind(1)]  # D of (K N, Y)
    n, s1, s2 = ([f(m) for m in each] for f in (lambda m: m.sum(0), lambda m: m.T @ rows, lambda m: m.T @ squares))
    return torch.stack(n), torch.stack(s1), torch.stack(s2)


def _gaussians(moments: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The server's mean and variance (D, Y, p) from the sums, and the logarithm of their prior."""
    n, s1, s2 = moments
    n = n[..., None]
    of_class = n.sum(0).clamp(min=torch.finfo(n.dtype).tiny)  # (Y, 1)
    m = s1.sum(0) / of_class
    v0 = (s2.sum(0) - of_class * m**2).sum(0) / n.sum()
    mean = (s1 + _MEAN_COUNT * m) / (n + _MEAN_COUNT)
    squares = s2 + _MEAN_COUNT * m**2 - (n + _MEAN_COUNT) * mean**2
    variance = ((squares + _VARIANCE_COUNT * v0) / (n + _VARIANCE_COUNT)).clamp(min=_FLOOR)
    prior = _MEAN_COUNT * (mean - m) ** 2 / variance + _VARIANCE_COUNT * (variance.log() + v0 / variance)
    return mean, variance, -0.5 * prior.sum()
