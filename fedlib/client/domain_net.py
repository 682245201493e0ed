"""Networks with a module for each domain in some of their layers (FedCG Eq. 4)."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..keys import Key
from ..models import CNN, MLP
from ..params import Params
from ..server.domain_graph import domain_dense, route

__all__ = ["DomainClassifier", "DomainNet"]


@dataclass(frozen=True)
class DomainClassifier:
    """Teacher or student of FedCG: two 3x3 convolutions with ReLU, then an average over the image and a linear layer.

    Parameters
    ----------
    image, domains
        (channels, height, width); and D, the number of logits.
    head : {"pooled", "flatten"}
        "pooled" is the paper's. "flatten" gives the linear layer each pixel of each channel: it knows where in the
        image something is.
    channels, strides : tuple of int
        Filters and steps of the convolutions. The paper has 32 and 64, and names no steps; chapter 05 also has a small
        network, 8 and 16 filters with steps 2 and 1.

    Notes
    -----
    Parameters ``conv1.weight`` (o, i, 3, 3), ``conv1.bias``, ..., ``dense1.weight`` (D, inputs), ``dense1.bias``.
    Convolutions see one row of zeros around the image.

    References
    ----------
    Caldarola et al. Cluster-driven graph federated learning over multiple domains. CVPR workshops 2021.
    """

    image: tuple[int, int, int]
    domains: int
    head: str = "pooled"
    channels: tuple[int, ...] = (32, 64)
    strides: tuple[int, ...] = (1, 1)

    def __post_init__(self) -> None:
        if self.head not in ("pooled", "flatten"):
            raise ValueError(f"head must be 'pooled' or 'flatten', got {self.head!r}")
        if self.domains < 1:
            raise ValueError(f"domains must be at least 1; got {self.domains}")
        _ = self._net  # says what is wrong with the rest

    @functools.cached_property
    def _net(self) -> CNN:
        widths, pooled = (self.domains,), self.head == "pooled"
        return CNN(self.image, self.channels, widths, 3, 1, pool=1, strides=self.strides, pooled=pooled)

    def init(self, seed: int) -> Params:
        """Random start, the same on every machine."""
        return self._net.init(seed)

    def __call__(self, params: Params, x: Tensor) -> Tensor:
        """Logits of shape (B, D) for x of shape (B, *image)."""
        return self._net(params, x)


# ---- assignments from logits ----


@dataclass(frozen=True)
class DomainNet:
    """A network in which every domain adds an output of its own to some layers, weighted for each sample (FedCG Eq. 4).

    Parameters
    ----------
    net : MLP or CNN
        The shared layers.
    domains : int
        D.
    layers : tuple of str
        Layers with domain modules, by the names of their parameters, such as ``("conv2", "dense1")``.
    classifier : DomainClassifier, optional
        The student, which gives the weights w_d of a sample at test. Without one, give w_d in each call.
    shared : bool
        False: these layers have the domains' modules only, no shared part and no lambda ("GCN" in FedCG's Table 3; with
        all layers, separate models).
    start : {"random", "equal"}
        Whether the modules start from different draws or from one.
    lam : float
        Where lambda starts in each layer; 0 gives the plain network, as long as it is frozen there.

    Raises
    ------
    ValueError
        Layers that the network does not have, or none; a classifier for another number of domains.

    Notes
    -----
    To the names of `net` and, behind ``student.``, of `classifier` come ``V.dense1.weight`` (D, o, i),
    ``V.dense1.bias`` (D, o) and ``lam.dense1`` () for each layer. Chapter 06.
    """

    net: CNN | MLP
    domains: int
    layers: tuple[str, ...]
    classifier: DomainClassifier | None = None
    shared: bool = True
    start: str = "random"
    lam: float = 1.0

    def __post_init__(self) -> None:
        names = dict.fromkeys(name.split(".")[0] for name in self.net.shapes())
        if not self.layers or not set(self.layers) <= set(names):
            raise ValueError(f"layers must name some of {list(names)}; got {self.layers!r}")
        if self.domains < 1 or (self.classifier is not None and self.classifier.domains != self.domains):
            raise ValueError(f"domains must be at least 1, and the classifier must have as many; got {self.domains}")
        if self.start not in ("random", "equal"):
            raise ValueError(f"start must be 'random' or 'equal', got {self.start!r}")

    def init(self, seed: int) -> Params:
        """Random start, the same on every machine."""
        plain = self.net.init(seed)
        draws = torch.arange(self.domains) if self.start == "random" else torch.zeros(self.domains, dtype=torch.int64)
        params = {name: p for name, p in plain.items() if self.shared or name.split(".")[0] not in self.layers}
        for name, p in plain.items():
            layer, kind = name.split(".")
            if layer in self.layers:  # as the layer itself starts
                spread = 1 / math.sqrt(math.prod(plain[f"{layer}.weight"].shape[1:]))
                draw = Key(seed).uniform(draws, f"init V.{name}", *p.shape)
                params[f"V.{name}"] = ((2 * draw - 1) * spread).float()
                if kind == "bias" and self.shared:
                    params[f"lam.{layer}"] = torch.tensor(float(self.lam))
        if self.classifier is not None:
            params |= {f"student.{name}": p for name, p in self.classifier.init(seed).items()}
        return params

    def weights(self, params: Params, x: Tensor) -> Tensor:
        """w_d = g_phi(x), of shape (B, D), for x of shape (B, ...).

        With ``prior`` (D,) in `params`, which says how often a client has a domain where all clients together have it
        once, each probability is multiplied by it and the sum made 1 again (Bayes' rule).
        """
        if self.classifier is None:
            raise ValueError("a DomainNet without a classifier needs the weights of the domains, w_d, in each call")
        logits = self.classifier(part(params, "student"), x)
        return (logits + params["prior"].log() if "prior" in params else logits).softmax(-1)

    def __call__(self, params: Params, x: Tensor, w_d: Tensor | None = None) -> Tensor:
        """Outputs of shape (B, outputs) for x of shape (B, ...), with the weights (B, D), or with the student's."""
        w_d = self.weights(params, x) if w_d is None else w_d
        convolutions = 0 if isinstance(self.net, MLP) else len(self.net.channels)
        for layer in range(1, convolutions + 1):
            x = self._convolution(x, layer, self._layer(params, f"conv{layer}", w_d))
        x = x.mean((-2, -1)) if getattr(self.net, "pooled", False) else x.flatten(1)
        for layer in range(1, len(self.net.widths) + (1 if convolutions else 0)):
            own = self._layer(params, f"dense{layer}", w_d)
            x = torch.relu(x) if layer > 1 else x
            x = F.linear(x, own[0], own[1]) if len(own) == 2 else domain_dense(x, *own)
        return x

    def _convolution(self, x: Tensor, layer: int, own: Any) -> Tensor:
        """Output of a convolution and ReLU, with the domains' modules if there are any."""
        net, stride = self.net, self.net.strides[layer - 1]  # type: ignore[union-attr]
        z = F.conv2d(x, own[0], own[1], stride, net.padding)  # type: ignore[union-attr]
        if len(own) > 2:
            modules, biases, lam, w_d = own[2:]
            branches = F.conv2d(x, modules.flatten(0, 1), biases.flatten(), stride, net.padding)  # type: ignore[union-attr]
            z = z + lam * route(branches.unflatten(1, biases.shape), w_d)
        return torch.relu(F.max_pool2d(z, net.pool) if net.pool > 1 else z)  # type: ignore[union-attr]

    def _layer(self, params: Params, layer: str, w_d: Tensor) -> tuple[Tensor, ...]:
        """What the layer's function takes: weight and bias; with domains also those of V, lambda and w_d."""
        names = f"{layer}.weight", f"{layer}.bias"
        if layer not in self.layers:
            return tuple(params[n] for n in names)
        modules = [params[f"V.{n}"] for n in names]
        if self.shared:
            return *(params[n] for n in names), *modules, params[f"lam.{layer}"], w_d
        return *(torch.zeros_like(v[0]) for v in modules), *modules, modules[0].new_ones(()), w_d


def part(params: Params, head: str) -> Params:
    """The parameters whose names begin with `head` and a dot, without that."""
    return {name[len(head) + 1 :]: p for name, p in params.items() if name.startswith(f"{head}.")}
