"""The graph between domains, with FedCG's adjacency matrix (Eq. 6) and convolution over the modules (Eq. 5)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..checks import check_settings, whole
from ..client.domain_net import part
from ..keys import Key
from ..params import Params, to_matrix

__all__ = ["DomainGCN", "domain_adjacency"]


@torch.no_grad()
def domain_adjacency(modules: Params | Tensor, beta: float = 0.5) -> Tensor:
    """Adjacency matrix A of the domains, from the distances of their modules (FedCG Eq. 6 and the line below it).

    Parameters
    ----------
    modules : Params or Tensor of shape (D, ...)
        theta_s^d as a matrix (D, q) or as a stack of D rows, such as the modules of all layers together.
    beta : float
        The diagonal, each domain's weight for itself, from 0 to 1. With 1, A is the identity and no domain learns from
        another.

    Returns
    -------
    Tensor of shape (D, D), float64
        Rows sum to 1. A is not symmetric, because each row is divided by its sum.

    Raises
    ------
    ValueError
        `beta` outside the range from 0 to 1.

    Notes
    -----
    Eq. 6 divides by the distance between two domains, which may be 0. Here each distance is raised to at least 1/1000
    of the mean distance, and above this the equation holds exactly. If all domains are equal, each row is uniform off
    the diagonal. One domain has A = [[1]], where the paper's formula gives [[beta]]. Domains with different random
    initialisations are about equally far apart, so A is nearly uniform off the diagonal. Chapter 10.
    """
    if not 0 <= beta <= 1:
        raise ValueError(f"beta must be from 0 to 1; got {beta}")
    rows = to_matrix(modules if isinstance(modules, dict) else {"": modules})
    rows = (rows.cpu() if rows.device.type == "mps" else rows).double()  # MPS has no float64
    domains = len(rows)
    if domains == 1:
        return torch.ones(1, 1).to(rows)
    distance = torch.stack([(rows - one).norm(dim=1) for one in rows])
    mean = distance.sum() / (domains * (domains - 1))
    h = (1 / distance.clamp(min=1e-3 * mean.clamp(min=1e-300))).fill_diagonal_(0)  # Eq. 6
    return ((1 - beta) * (h / h.sum(1, keepdim=True))).fill_diagonal_(beta)


@dataclass(frozen=True)
class DomainGCN:
    """Graph convolution over the domains' modules, V-hat = sigma(A V W) (FedCG Eq. 5).

    Parameters
    ----------
    weights : {"full", "bottleneck"}
        With "full", W is a matrix (q, q), initialised to the identity. With "bottleneck", there are two layers,
        sigma(A relu(A V W1) W2) with W1 of shape (q, q // factor), which are initialised at random (FedCG Section 4.1).
    relu : bool
        Whether sigma is ReLU, as in the paper, or the identity. ReLU makes all parameters of the modules zero or
        positive, and V = 0 never learns.
    factor : int
        How many times narrower than q the bottleneck is; a width below 1 becomes 1.

    Notes
    -----
    A subclass may define another W by `init` and `propagate`. Each client trains and sends W, which has q^2 numbers, or
    2 q^2 / factor. For inference V-hat can be computed once. With W = I, A = I and without `relu`, V-hat = V. The rows
    of A are not normalised, even if they sum to more than 1. Chapter 10.
    """

    weights: Literal["full", "bottleneck"] = "full"
    relu: bool = True
    factor: int = whole(16)

    def __post_init__(self) -> None:
        check_settings(self)

    def init(self, q: int, seed: int, layer: str = "") -> Params:
        """Initial float32 ``W`` for modules of `q` parameters, or ``W1`` and ``W2``, which also depend on `layer`."""
        if self.weights == "full":
            return {"W": torch.eye(q)}
        width = max(1, q // self.factor)
        return {"W1": glorot(f"{layer} W1", seed, q, width), "W2": glorot(f"{layer} W2", seed, width, q)}

    def propagate(self, params: Params, V: Tensor, A: Tensor) -> Tensor:
        """A V W of shape (D, q), for V (D, q) and A (D, D)."""
        if self.weights == "full":
            return A @ V @ params["W"]
        return A @ torch.relu(A @ V @ params["W1"]) @ params["W2"]

    def __call__(self, params: Params, modules: Params, A: Tensor) -> Params:
        """V-hat for the modules of one layer, given as stacks of D rows that form V side by side."""
        hat = self.propagate(params, to_matrix(modules), A)
        hat = torch.relu(hat) if self.relu else hat
        columns = hat.split([v[0].numel() for v in modules.values()], dim=1)
        return {name: c.reshape(v.shape) for (name, v), c in zip(modules.items(), columns, strict=True)}

    def start(self, params: Params, layers: Sequence[str], seed: int) -> Params:
        """W of each layer as `init` draws it, named ``W.dense1.W`` for modules ``V.dense1.*`` among `params`."""
        sizes = {layer: sum(v[0].numel() for v in part(params, f"V.{layer}").values()) for layer in layers}
        return {f"W.{at}.{n}": w for at, q in sizes.items() for n, w in self.init(q, seed, at).items()}

    def connect(self, params: Params, layers: Sequence[str], A: Tensor) -> Params:
        """Replace V by V-hat in each layer, and leave W out."""
        out = {n: p for n, p in params.items() if not n.startswith("W.")}
        for at in layers:
            hat = self(part(params, f"W.{at}"), part(params, f"V.{at}"), A)
            out |= {f"V.{at}.{n}": p for n, p in hat.items()}
        return out


def glorot(name: str, seed: int, *shape: int) -> Tensor:
    """A matrix of draws from Glorot's uniform distribution."""
    draw = Key(seed).uniform(torch.zeros(1, dtype=torch.int64), f"init {name}", *shape)[0]
    return ((2 * draw - 1) * math.sqrt(6 / sum(shape))).float()
