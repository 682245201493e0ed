"""Graphs between domains: FedCG's adjacency matrix, its GCN over domain modules, and the residual branches.

FedCG gives every domain a module of its own in some layers. The modules of one layer are the rows of V (D, q). The
server computes from their distances who should learn from whom (`domain_adjacency`), a graph convolution mixes them
(`DomainGCN`), and what comes out is added to the shared layer, weighted for each sample (`domain_dense`,
`domain_conv_relu_pool`).
"""

import functools
import math
import operator
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ..keys import Key
from ..params import Params, to_matrix
from ..stacked import dense, stackable

__all__ = ["DomainGCN", "adjacency", "domain_adjacency", "domain_conv_relu_pool", "domain_dense", "hamming", "route"]

_FLOOR = 1e-3  # shortest distance that counts, as a share of the mean distance
_WEIGHTS = {"none": (), "full": ("W",), "bottleneck": ("W1", "W2"), "low rank": ("P", "R")}


@torch.no_grad()
def domain_adjacency(V: Params | Tensor, beta: float = 0.5) -> Tensor:
    """Adjacency matrix A of the domains, from the distances of their modules (FedCG Eq. 6 and the line below it).

    Parameters
    ----------
    V : Params or Tensor of shape (D, ...)
        The domains' modules: a matrix (D, q), or a stack of D rows, such as the modules of all layers together.
    beta : float
        From 0 to 1: the diagonal, which is each domain's weight for itself. 1 gives the identity: no domain learns
        from another.

    Returns
    -------
    Tensor of shape (D, D), float64
        Rows sum to 1; not symmetric, because each row is divided by its own sum. No gradient flows through it.

    Raises
    ------
    ValueError
        `beta` outside of 0 to 1; no domain, or modules without parameters; NaN or infinite parameters.

    Notes
    -----
    Eq. 6 divides by the distance of two domains, which may be 0. Here a distance counts as 1/1000 of the mean distance
    at least: above this the equation holds exactly. If all domains are equal, each row is uniform beside its diagonal.
    One domain has A = [[1]], where the paper's formula gives [[beta]]. Parameters of any finite size neither overflow
    nor vanish. Domains that start from different random draws are about equally far apart, and A is then nearly
    uniform. The cost is D^2 q. Chapter 06.
    """
    stack = V if isinstance(V, dict) else {"": V}
    if len({len(p) for p in stack.values()}) != 1:
        raise ValueError(f"all parts of V need the same number of domains; got {[len(p) for p in stack.values()]}")
    if not sum(p.numel() for p in stack.values()):
        raise ValueError("V must hold at least one domain, and its modules at least one parameter; it is empty")
    rows = to_matrix(stack)
    rows = (rows.cpu() if rows.device.type == "mps" else rows).double()  # MPS has no float64
    if wrong := (~rows.isfinite().all(1)).nonzero()[:, 0].tolist():
        raise ValueError(f"the modules of domains {wrong} hold NaN or infinite values. Lower the learning rate")
    if rows.abs().max() > 2.0**1000:
        rows = rows / 16  # differences stay finite
    scale = (rows - rows[0]).abs().max().item() or 1.0  # squares neither overflow nor vanish
    return _inverse_distance(torch.stack([((rows - one) / scale).norm(dim=1) for one in rows]), beta)


def _inverse_distance(distance: Tensor, beta: float) -> Tensor:
    """A (D, D) from distances (D, D): h = 1 / distance, rows divided by their sums, `beta` on the diagonal."""
    if not 0 <= beta <= 1:
        raise ValueError(f"beta must be from 0 to 1; got {beta}")
    domains = len(distance)
    if domains == 1:
        return torch.ones_like(distance)
    mean = distance.sum() / (domains * (domains - 1))
    h = (1 / distance.clamp(min=_FLOOR * mean.clamp(min=1e-300))).fill_diagonal_(0)
    return ((1 - beta) * (h / h.sum(1, keepdim=True))).fill_diagonal_(beta)


def hamming(metadata: Tensor | ArrayLike, beta: float = 0.5) -> Tensor:
    """Adjacency matrix from attributes of the domains: inverse Hamming distances (H in FedCG's Table 3).

    Parameters
    ----------
    metadata : Tensor or array of shape (D, attributes)
        Discrete values. The distance of two domains is the number of attributes in which they differ.
    beta : float
        From 0 to 1: the diagonal.

    Returns
    -------
    Tensor of shape (D, D), float64
        As from `domain_adjacency`, with its rules for equal domains and for one domain. ValueErrors say what is wrong
        with `beta` or the metadata, which may not hold NaN. Chapter 06.
    """
    rows = torch.as_tensor(metadata)
    if rows.ndim != 2 or not len(rows):
        raise ValueError(f"metadata must have one row of attributes for each domain; got shape {tuple(rows.shape)}")
    if rows.isnan().any():
        raise ValueError("metadata hold NaN, which equals nothing. Give missing attributes a value of their own")
    return _inverse_distance((rows[:, None] != rows).sum(2).double(), beta)


def adjacency(kind: str, domains: int, beta: float = 0.5, seed: int = 0) -> Tensor:
    """Adjacency matrices that know nothing of the domains, for the ablations of FedCG's Tables 3 and 4.

    Parameters
    ----------
    kind : {"eye", "uniform", "random"}
        "eye": no domain learns from another. "uniform": all others alike. "random": uniform draws divided by the sum
        of their row.
    domains : int
        D, at least 1.
    beta : float
        From 0 to 1: the diagonal of "uniform"; ``1 / domains`` makes all entries equal.
    seed : int
        For "random".

    Returns
    -------
    Tensor of shape (D, D), float64
        Rows sum to 1; [[1]] for one domain. ValueErrors say what is wrong with the arguments. Chapter 06.
    """
    if operator.index(domains) < 1:
        raise ValueError(f"domains must be at least 1; got {domains}")
    if kind == "eye":
        return torch.eye(domains, dtype=torch.float64)
    if kind == "uniform":
        return _inverse_distance(torch.zeros(domains, domains, dtype=torch.float64), beta)
    if kind == "random":
        draw = 1 - Key(seed).uniform(torch.zeros(1, dtype=torch.int64), "adjacency", domains, domains)[0]  # above 0
        return draw / draw.sum(1, keepdim=True)
    raise ValueError(f"kind must be 'eye', 'uniform' or 'random'; got {kind!r}")


@functools.cache
def _graph_convolution(projects: bool) -> nn.Module:
    """torch-geometric's layer as a shell without numbers: each call brings its own weight, of any shape."""

    def make() -> nn.Module:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore", FutureWarning)  # importing torch-geometric uses what newer torch deprecates
            from torch_geometric.nn import DenseGCNConv

            return DenseGCNConv(1, 1, bias=False)

    with ThreadPoolExecutor(1) as other:  # making it draws a weight, which a vmap around this call would forbid
        layer = other.submit(make).result()
    if not projects:
        layer.lin = nn.Identity()
    return layer


def _propagate(A: Tensor, V: Tensor, W: Tensor | None = None) -> Tensor:
    """A V W, of shape (D, q'), for A (D, D), V (D, q) and W (q, q'); without W, A V."""
    weight = {} if W is None else {"lin.weight": W.mT}
    layer = _graph_convolution(W is not None)
    return torch.func.functional_call(layer, weight, (V, A), {"add_loop": False})[0]


@dataclass(frozen=True)
class DomainGCN:
    """Graph convolution over the domains' modules, V-hat = sigma(A V W) (FedCG Eq. 5).

    Parameters
    ----------
    weights : {"full", "none", "bottleneck", "low rank"}
        What W is. "full": a matrix (q, q) that starts at the identity. "none": the identity for good. "bottleneck":
        two layers, sigma(A relu(A V W1) W2), with W1 of shape (q, q // factor); they start at random. "low rank":
        W = I + P R^T with P and R of shape (q, rank); P starts at random and R at zero, so W starts at the identity.
    relu : bool
        Whether sigma is ReLU, as in the paper, or leaves its input alone. ReLU makes all parameters of the modules
        zero or positive. What is negative gets no gradient, so V = 0 never learns.
    factor : int
        By how much the bottleneck is narrower than q, at least 1; a width below 1 becomes 1.
    rank : int
        Rank of P R^T, at least 1.
    single_propagation : bool
        The bottleneck as one layer with the projection W1 W2: sigma(A V W1 W2).

    Raises
    ------
    ValueError
        Other weights; a factor or rank below 1.

    Notes
    -----
    The layer is torch-geometric's ``DenseGCNConv``, called for one client, under `torch.vmap` too. It divides A by the
    square roots of the row sums on both sides; sums of 1 or less leave A as it is, larger ones would shrink it. The
    inner ReLU of the bottleneck stays without `relu`.

    Each client trains and sends W: q^2 numbers, 2 q^2 / factor, or 2 q rank. For inference V-hat can be computed once.
    ``weights="none"``, ``relu=False`` and A = I change nothing: V-hat = V. Chapter 06.
    """

    weights: str = "full"
    relu: bool = True
    factor: int = 16
    rank: int = 16
    single_propagation: bool = False

    def __post_init__(self) -> None:
        if self.weights not in _WEIGHTS:
            raise ValueError(f"weights must be one of {list(_WEIGHTS)}; got {self.weights!r}")
        if min(operator.index(self.factor), operator.index(self.rank)) < 1:
            raise ValueError(f"factor and rank must be at least 1; got {self.factor} and {self.rank}")

    def init(self, q: int, seed: int, layer: str = "") -> Params:
        """Start for modules of `q` parameters, float32; draws depend on `seed` and on the name `layer`, if any.

        The names are ``W``; ``W1`` and ``W2``; ``P`` and ``R``; or there are none.
        """
        if self.weights == "full":
            return {"W": torch.eye(q)}
        width = max(1, q // self.factor)
        shapes = {"W1": (q, width), "W2": (width, q), "P": (q, self.rank), "R": (q, self.rank)}
        params = {}
        for name in _WEIGHTS[self.weights]:
            draw = Key(seed).uniform(torch.zeros(1, dtype=torch.int64), f"init {layer} {name}", *shapes[name])[0]
            params[name] = ((2 * draw - 1) * math.sqrt(6 / sum(shapes[name]))).float()  # Glorot's, as torch-geometric
        if self.weights == "low rank":
            params["R"].zero_()
        return params

    def __call__(self, params: Params, V: Any, A: Tensor) -> Any:
        """V-hat, in the form of V: a Tensor of shape (D, q), or Params with the same names and shapes.

        `params` are those of `init` and `A` is of shape (D, D), in any floating type.
        """
        if isinstance(V, dict):
            rows = self(params, to_matrix(V), A).split([p[0].numel() for p in V.values()], dim=1)
            return {name: part.reshape(p.shape) for (name, p), part in zip(V.items(), rows, strict=True)}
        A = A.to(V)
        if self.weights == "full":
            out = _propagate(A, V, params["W"])
        elif self.weights == "none":
            out = _propagate(A, V)
        elif self.weights == "low rank":
            out = _propagate(A, V + (V @ params["P"]) @ params["R"].mT)
        else:
            hidden = V @ params["W1"] if self.single_propagation else torch.relu(_propagate(A, V, params["W1"]))
            out = _propagate(A, hidden, params["W2"])
        return torch.relu(out) if self.relu else out


def route(branches: Tensor, w: Tensor) -> Tensor:
    """Sum over domains of w_d times the output of domain d, for each sample (the sum in FedCG Eq. 4).

    Parameters
    ----------
    branches : Tensor of shape (B, D, ...)
        What each domain's module gives for each sample; finite, since 0 times infinity is NaN.
    w : Tensor of shape (B, D)
        One-hot rows choose one domain, a row of zeros none. The result is of shape (B, ...). Chapter 06.
    """
    weights = w.to(branches).reshape(w.shape + (1,) * (branches.ndim - w.ndim))
    return (branches * weights).sum(w.ndim - 1)


def domain_dense(
    x: Tensor, weight: Tensor, bias: Tensor, domain_weight: Tensor, domain_bias: Tensor, lam: Tensor, w: Tensor
) -> Tensor:
    """Fully connected layer with a residual branch for each domain (FedCG Eq. 4).

    Parameters
    ----------
    x : Tensor of shape (B, inputs)
    weight, bias : Tensor of shape (outputs, inputs) and (outputs,)
        The shared layer.
    domain_weight, domain_bias : Tensor of shape (D, outputs, inputs) and (D, outputs)
        The domains' modules, V or V-hat.
    lam : Tensor of shape ()
        lambda of this layer. 0 gives what `fedlib.stacked.dense` gives, and the same gradients, bit for bit but for the
        sign of zeros, as long as the branches are finite.
    w : Tensor of shape (B, D)
        Weights of the domains for each sample: one-hot, or probabilities.

    Returns
    -------
    Tensor of shape (B, outputs)
        All D branches are computed for every sample, which costs D times the shared layer. Chapter 06.
    """
    branches = dense(x, domain_weight.flatten(0, 1), domain_bias.flatten()).unflatten(-1, domain_bias.shape)
    return dense(x, weight, bias) + lam * route(branches, w)


def _domain_channels(x: Tensor, vw: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Samples with channels (d, i), w_d times channel i, and filters to match; maybe with client axes in front.

    Convolution is linear: w_1 (V_1 * x) + ... + w_D (V_D * x) = [V_1 ... V_D] * [w_1 x; ...; w_D x], so the outputs of
    single domains, mostly larger than x, need not be held.
    """
    channels = x.unsqueeze(-4) * w[..., None, None, None]  # (..., B, D, I, H, W)
    return channels.flatten(-4, -3), vw.transpose(-5, -4).flatten(-4, -3)


def _domain_conv_relu_pool_stack(
    x: Tensor, weight: Tensor, bias: Tensor, vw: Tensor, vb: Tensor, lam: Tensor, w: Tensor, padding: int, pool: int
) -> Tensor:
    """`domain_conv_relu_pool` with a client axis first in all tensors: two grouped convolutions in channels_last.

    The shared one is that of `fedlib.stacked.conv_relu_pool`; one convolution for both would round differently.
    """
    clients = len(x)

    def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        x = x.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)
        return F.conv2d(x, weight.flatten(0, 1), bias, padding=padding, groups=clients)

    z = convolve(x, weight, bias.flatten())
    residual = convolve(*_domain_channels(x, vw, w)).unflatten(1, (clients, -1))  # (B, C, O, H, W)
    residual = lam[:, None, None, None] * (residual + (w @ vb).transpose(0, 1)[..., None, None])
    z = z + residual.flatten(1, 2)
    if pool > 1:
        z = F.max_pool2d(z, pool)
    return F.relu(z).unflatten(1, (clients, -1)).transpose(0, 1)


@stackable(_domain_conv_relu_pool_stack)
def _domain_conv_relu_pool(
    x: Tensor, weight: Tensor, bias: Tensor, vw: Tensor, vb: Tensor, lam: Tensor, w: Tensor, padding: int, pool: int
) -> Tensor:
    residual = F.conv2d(*_domain_channels(x, vw, w), padding=padding) + (w @ vb)[..., None, None]
    z = F.relu(F.conv2d(x, weight, bias, padding=padding) + lam * residual)
    return F.max_pool2d(z, pool) if pool > 1 else z


def domain_conv_relu_pool(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    domain_weight: Tensor,
    domain_bias: Tensor,
    lam: Tensor,
    w: Tensor,
    padding: int = 0,
    pool: int = 1,
) -> Tensor:
    """Convolution with a residual branch for each domain (FedCG Eq. 4), then ReLU and max-pooling of the sum.

    Parameters
    ----------
    x : Tensor of shape (B, I, H, W)
    weight, bias : Tensor of shape (O, I, h, w) and (O,)
    domain_weight, domain_bias : Tensor of shape (D, O, I, h, w) and (D, O)
    lam, w
        As in `domain_dense`; with lam = 0 this is `fedlib.stacked.conv_relu_pool`.
    padding, pool : int
        As in `fedlib.stacked.conv_relu_pool`.

    Returns
    -------
    Tensor of shape (B, O, (H + 2 padding - h + 1) // pool, (W + 2 padding - w + 1) // pool). Chapter 06.
    """
    return _domain_conv_relu_pool(x, weight, bias, domain_weight, domain_bias, lam, w.to(x), padding, pool)
