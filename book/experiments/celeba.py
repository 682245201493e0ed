"""LEAF's network for CelebA, which normalises by batches, and the same with a module for each domain (chapter 10)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

import fedlib
from fedlib import ClientData, Key, Params, evaluation
from fedlib.client.domain_net import DomainNet, part
from fedlib.losses import weighted_mean

EPS = 1e-3  # of LEAF's batch normalisation


@dataclass(frozen=True)
class CelebACNN:
    """LEAF's network for CelebA: four blocks, then a dense layer; 31,202 parameters.

    A block is a 3x3 convolution, batch normalisation, max-pooling by 2 that keeps odd borders, and ReLU. Normalisation
    takes mean and variance of the batch, at test too, as LEAF's ``training=True`` does: an answer depends on the other
    rows, so `scores_by_client` tests a client's rows as one batch. Rows with ``real = 0``, which are padding, do not
    count.
    """

    image: tuple[int, int, int] = (3, 84, 84)
    filters: int = 32
    blocks: int = 4
    classes: int = 2

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters."""
        inputs, height, width = self.image
        shapes: dict[str, tuple[int, ...]] = {}
        for n in range(1, self.blocks + 1):
            shapes |= {f"conv{n}.weight": (self.filters, inputs, 3, 3)}
            shapes |= {f"conv{n}.{name}": (self.filters,) for name in ("bias", "gamma", "beta")}
            inputs, height, width = self.filters, (height + 1) // 2, (width + 1) // 2
        return shapes | {"dense1.weight": (self.classes, inputs * height * width), "dense1.bias": (self.classes,)}

    def init(self, seed: int) -> Params:
        """Random start; gamma starts at 1 and beta at 0."""
        shapes, params, one = self.shapes(), {}, torch.zeros(1, dtype=torch.int64)
        for name, shape in shapes.items():
            layer, kind = name.split(".")
            bound = torch.Size(shapes[f"{layer}.weight"][1:]).numel() ** -0.5
            draw = (2 * Key(seed).uniform(one, f"init {name}", *shape)[0] - 1) * bound
            params[name] = draw.float() if kind in ("weight", "bias") else torch.full(shape, float(kind == "gamma"))
        return params

    def __call__(self, params: Params, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Logits of shape (B, classes) for x of shape (B, *image); `real` (B,) is 0 for padding."""
        return forward(self, params, x, real, {}, None)


@dataclass(frozen=True)
class CelebANet(DomainNet):
    """`CelebACNN` with a module for each domain in some of its layers, ``conv1`` to ``conv4`` and ``dense1``.

    The module of a block holds a convolution and the affine part of its normalisation, with one lambda. What is
    normalised is the sum of Eq. 4, with mean and variance that all domains share; to its gamma and beta then comes
    lambda times those of the sample's domains. The paper says that batch normalisation has domains' parts, not which
    ones. A module's gamma starts at 1, and its beta as its bias, since 0 would never learn behind FedCG's ReLU.
    """

    net: Any  # a CelebACNN

    def init(self, seed: int) -> Params:
        """Random start."""
        start = super().init(seed)
        gamma = {n: torch.ones_like(p) for n, p in start.items() if n.startswith("V.") and n.endswith(".gamma")}
        return start | gamma

    def __call__(self, params: Params, x: Tensor, w_d: Tensor | None = None, real: Tensor | None = None) -> Tensor:
        """Logits (B, classes) for x (B, *image), with the weights (B, D), or the student's; `real` is 0 for padding."""
        w_d = (self.weights(params, x) if w_d is None else w_d).to(x)
        modules = {}
        for layer in self.layers:
            modules[layer] = {n: params[f"lam.{layer}"] * v for n, v in part(params, f"V.{layer}").items()}
        return forward(self.net, params, x, real, modules, w_d)


def forward(
    net: CelebACNN, params: Params, x: Tensor, real: Tensor | None, modules: dict[str, Params], w_d: Tensor | None
) -> Tensor:
    """Logits of a batch, with the domains' modules, times lambda, of some layers."""
    real = x.new_ones(len(x)) if real is None else (real != 0).to(x)
    for layer in (f"conv{n}" for n in range(1, net.blocks + 1)):
        own, of_domains = part(params, layer), modules.get(layer)
        z, gamma, beta = F.conv2d(x, own["weight"], own["bias"], padding=1), own["gamma"], own["beta"]
        if of_domains is not None:
            z = z + residual(lambda w, b, x=x: F.conv2d(x, w, b, padding=1), of_domains, w_d)
            gamma, beta = gamma + w_d @ of_domains["gamma"], beta + w_d @ of_domains["beta"]
        x = F.relu(F.max_pool2d(normalise(z, real, gamma, beta), 2, ceil_mode=True))  # as TensorFlow's padding "same"
    x = x.flatten(1)
    z = F.linear(x, params["dense1.weight"], params["dense1.bias"])
    return z + residual(lambda w, b: F.linear(x, w, b), modules["dense1"], w_d) if "dense1" in modules else z


def residual(layer: Callable[[Tensor, Tensor], Tensor], modules: Params, w_d: Tensor) -> Tensor:
    """The sum over domains of w_d times the layer's output with the module of domain d."""
    branches = layer(modules["weight"].flatten(0, 1), modules["bias"].flatten()).unflatten(1, (w_d.shape[1], -1))
    return (branches * w_d.reshape(*w_d.shape, *[1] * (branches.ndim - 2))).sum(1)


def normalise(z: Tensor, real: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Batch normalisation of z (B, O, H, W) by the rows that are real; gamma and beta are (O,) or (B, O)."""
    share = (real / real.sum().clamp(min=1))[:, None]  # a batch may be all padding
    mean = (z.mean((2, 3)) * share).sum(0)[:, None, None]
    variance = ((z - mean).square().mean((2, 3)) * share).sum(0)
    scale = gamma * (variance + EPS).rsqrt()
    return (z - mean) * scale[..., None, None] + beta[..., None, None]


def scores_by_client(
    net: Callable[..., Tensor], algorithm: fedlib.Algorithm, result: fedlib.Result, data: ClientData
) -> pd.DataFrame:
    """Accuracy of each client with all its rows as one batch, as LEAF tests: ``id``, ``n`` and ``accuracy``."""

    def errors(params: Params, batch: Any) -> Tensor:
        x, y, real = batch
        return weighted_mean((net(params, x, real=real).argmax(-1) != y).to(x), real)

    scores = evaluation.evaluate(replace(algorithm, loss=errors, predict=None), result, data)
    return scores.assign(accuracy=1 - scores["loss"]).drop(columns="loss")
