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
    """What a function (B, ...) -> (B, p) says of each sample, (K, N, p); rows of several clients are computed once."""
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
        "pooled" is the paper's. "flatten" gives the linear layer each pixel of each channel, so that it knows where in
        the image something is.
    channels, strides : tuple of int
        Filters and steps of the convolutions. The paper has 32 and 64 filters and names no steps.

    Notes
    -----
    FedCG Section 4.1. Parameters as of `fedlib.models.CNN`. Chapter 08.
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
    """A network in which every domain adds an output of its own to some layers, weighted for each sample (FedCG Eq. 4).

    Parameters
    ----------
    net : Model of a torch.nn.Sequential, such as MLP or CNN
        The shared layers theta_a.
    domains : int
        D.
    layers : tuple of str
        Layers with domain modules theta_s, such as ``("conv2", "dense1")``.
    classifier : DomainClassifier, optional
        The student g, which gives the weights w_d of a sample at test. Without one, give w_d in each call.

    Raises
    ------
    ValueError
        Layers that the network does not have, or none; a classifier for another number of domains.

    Notes
    -----
    To the parameters of `net` and, behind ``student.``, of `classifier` come ``V.dense1.weight`` (D, o, i),
    ``V.dense1.bias`` (D, o) and ``lam.dense1`` () for each layer. All lambdas start at 1; at 0 the network is the plain
    one. Chapter 10.
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
        """Random start, the same on every machine; each module is drawn as the layer itself is."""
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
        """The same (C, N, D) for all samples of each client; `params` is a stack of one row."""
        return each_row(partial(self.logits, row(params, 0)), data, dtype)

    def weights(self, params: Params, x: Tensor) -> Tensor:
        """The student's w_d = g(x), of shape (B, D), for x of shape (B, ...).

        With ``prior`` (D,) in `params`, the shares of the domains at a client over those of all clients, each
        probability is multiplied by it and the sum made 1 again (Bayes' rule).
        """
        logits = self.logits(params, x)
        return (logits + params["prior"].log() if "prior" in params else logits).softmax(-1)

    def __call__(self, params: Params, x: Tensor, w_d: Tensor | None = None) -> Tensor:
        """Outputs of shape (B, outputs) for x of shape (B, ...), with the weights (B, D), or with the student's."""
        w_d = self.weights(params, x) if w_d is None else w_d
        for name, layer in self.net.module.named_children():
            z = functional_call(layer, part(params, name), x)
            if name in self.layers:
                z = z + params[f"lam.{name}"] * self.residual(layer, part(params, f"V.{name}"), x, w_d)
            x = z
        return x

    def residual(self, layer: torch.nn.Module, modules: Params, x: Tensor, w_d: Tensor) -> Tensor:
        """The sum over domains of w_d f(x; theta_s^d): one layer with D times the outputs, which are then weighed."""
        branches = functional_call(layer, {name: v.flatten(0, 1) for name, v in modules.items()}, x)
        branches = branches.unflatten(1, (self.domains, -1))  # (B, D, outputs, ...)
        w_d = w_d.to(branches).reshape(w_d.shape + (1,) * (branches.ndim - 2))
        return (w_d * branches).sum(1)


def part(params: Params, head: str) -> Params:
    """The parameters whose names begin with `head` and a dot, without that."""
    return {name[len(head) + 1 :]: p for name, p in params.items() if name.startswith(f"{head}.")}


def split(params: Params) -> dict[str, Params]:
    """The fields of FedCG's state, by the names of parameters: "models", "modules", "graph" and "student"."""
    parts: dict[str, Params] = {"models": {}, "modules": {}, "graph": {}, "student": {}}
    for name, p in params.items():
        parts[{"V": "modules", "W": "graph", "student": "student"}.get(name.split(".")[0], "models")][name] = p
    return parts
