"""Networks with a module for each domain in some of their layers (FedCG Eq. 4), and the classifier of domains."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call

from ..checks import check_whole
from ..data import ClientData
from ..keys import Key
from ..models import CNN, Model
from ..params import Params, row

__all__ = ["DomainClassifier", "DomainNet", "part", "split"]


def each_row(function: Callable[[Tensor], Tensor], data: ClientData, dtype: torch.dtype) -> Tensor:
    """Results (K, N, p) of a function (B, ...) -> (B, p) for all samples, computed once for rows that clients share."""
    used, place = data.index.unique(return_inverse=True)
    return torch.cat([function(data.features(rows, dtype)) for rows in used.split(1024)])[place]


class DomainClassifier(CNN):
    """Teacher or student of FedCG: two 3x3 convolutions with ReLU, an average over the image, and a linear layer.

    Parameters
    ----------
    image : (channels, height, width)
    domains : int
        D, the number of logits.
    head : {"pooled", "flatten"}
        "pooled" is the paper's. "flatten" gives the linear layer each pixel of each channel, so that it can use
        positions in the image.
    channels, strides : tuple of int
        Number of filters and strides of the convolutions. The paper has 32 and 64 filters and names no strides.

    Notes
    -----
    FedCG Section 4.1. The parameters are named as in `fedlib.models.CNN`. Chapter 08.
    """

    def __init__(
        self,
        image: tuple[int, int, int],
        domains: int,
        head: str = "pooled",
        channels: tuple[int, ...] = (32, 64),
        strides: tuple[int, ...] = (1, 1),
    ) -> None:
        if head not in ("pooled", "flatten"):
            raise ValueError(f"head must be 'pooled' or 'flatten', got {head!r}")
        super().__init__(image, channels, (domains,), 3, 1, pool=1, strides=strides, pooled=head == "pooled")


@dataclass(frozen=True)
class DomainNet:
    """A network in which each domain adds its own output to some layers, weighted for each sample (FedCG Eq. 4).

    Parameters
    ----------
    net : Model of a torch.nn.Sequential, such as MLP or CNN
        The shared layers theta_a.
    domains : int
        D, the number of domains.
    layers : tuple of str
        Layers with domain modules theta_s, such as ``("conv2", "dense1")``.
    classifier : DomainClassifier, optional
        The student g, which gives the weights w_d of a sample at test. Without it, pass w_d in each call.

    Raises
    ------
    ValueError
        `layers` is empty or names layers that the network does not have, or the classifier has another number of
        domains.

    Notes
    -----
    The parameters are those of `net`, those of `classifier` with the prefix ``student.``, and for each layer
    ``V.dense1.weight`` (D, o, i), ``V.dense1.bias`` (D, o) and ``lam.dense1`` (). All lambdas start at 1; with 0, the
    network is the plain `net`. Chapter 10.
    """

    net: Model
    domains: int
    layers: tuple[str, ...]
    classifier: DomainClassifier | None = None

    def __post_init__(self) -> None:
        check_whole(self.domains, "domains")
        names = list(dict.fromkeys(name.split(".")[0] for name in self.net.shapes()))
        if not self.layers or not set(self.layers) <= set(names):
            raise ValueError(f"layers must name some of {names}; got {self.layers!r}")
        if self.classifier is not None and self.classifier.widths[-1] != self.domains:
            raise ValueError(f"the classifier must tell domains={self.domains}; got {self.classifier.widths[-1]}")

    def init(self, seed: int) -> Params:
        """Random initialisation, the same on every machine; each module is drawn like the layer itself."""
        plain = self.net.init(seed)
        params = dict(plain)
        for layer in self.layers:
            bound = 1 / math.sqrt(plain[f"{layer}.weight"][0].numel())
            for name, p in part(plain, layer).items():
                draw = Key(seed).uniform(torch.arange(self.domains), f"init V.{layer}.{name}", *p.shape)
                params[f"V.{layer}.{name}"] = ((2 * draw - 1) * bound).float()
            params[f"lam.{layer}"] = torch.tensor(1.0)
        if self.classifier is not None:
            params |= {f"student.{name}": p for name, p in self.classifier.init(seed).items()}
        return params

    def logits(self, params: Params, x: Tensor) -> Tensor:
        """Logits (B, D) of g, whose parameters are named ``student.*``, for x of shape (B, ...)."""
        if self.classifier is None:
            raise ValueError("this DomainNet has no classifier: FedCG needs one, and without it each call needs w_d")
        return self.classifier(part(params, "student"), x)

    def logits_of_all(self, params: Params, data: ClientData, dtype: torch.dtype) -> Tensor:
        """Logits (C, N, D) of g for all samples of each client; `params` is a stack of one row."""
        return each_row(partial(self.logits, row(params, 0)), data, dtype)

    def weights(self, params: Params, x: Tensor) -> Tensor:
        """The student's w_d = g(x), of shape (B, D), for x of shape (B, ...).

        If `params` contain ``prior`` (D,), the shares of the domains at a client divided by those of all clients, each
        probability is multiplied by it, and the sum is normalised to 1 (Bayes' rule).
        """
        logits = self.logits(params, x)
        return (logits + params["prior"].log() if "prior" in params else logits).softmax(-1)

    def __call__(self, params: Params, x: Tensor, w_d: Tensor | None = None) -> Tensor:
        """Outputs of shape (B, outputs) for x of shape (B, ...), with the weights (B, D), by default the student's."""
        w_d = self.weights(params, x) if w_d is None else w_d
        for name, layer in self.net.module.named_children():
            z = functional_call(layer, part(params, name), x)
            if name in self.layers:
                z = z + params[f"lam.{name}"] * self.residual(layer, part(params, f"V.{name}"), x, w_d)
            x = z
        return x

    def residual(self, layer: torch.nn.Module, modules: Params, x: Tensor, w_d: Tensor) -> Tensor:
        """The sum over domains of w_d f(x; theta_s^d), by one layer with D times the outputs, then weighted."""
        branches = functional_call(layer, {name: v.flatten(0, 1) for name, v in modules.items()}, x)
        branches = branches.unflatten(1, (self.domains, -1))  # (B, D, outputs, ...)
        w_d = w_d.to(branches).reshape(w_d.shape + (1,) * (branches.ndim - 2))
        return (w_d * branches).sum(1)


def part(params: Params, head: str) -> Params:
    """The parameters whose names begin with `head` and a dot, with this prefix removed."""
    return {name[len(head) + 1 :]: p for name, p in params.items() if name.startswith(f"{head}.")}


def split(params: Params) -> dict[str, Params]:
    """Parameters sorted by name into the fields "models", "modules", "graph" and "student" of FedCG's state."""
    parts: dict[str, Params] = {"models": {}, "modules": {}, "graph": {}, "student": {}}
    for name, p in params.items():
        parts[{"V": "modules", "W": "graph", "student": "student"}.get(name.split(".")[0], "models")][name] = p
    return parts
