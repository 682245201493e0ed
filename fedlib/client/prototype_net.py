"""Networks of possibly different architectures that share an embedding space, in which classes have prototypes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..models import Model
from ..params import Params
from .domain_net import part

__all__ = ["PrototypeNet"]


@dataclass(frozen=True)
class PrototypeNet:
    """One or more architectures, of which each client has one; its layers embed the input, and the last one classifies.

    Parameters
    ----------
    nets : tuple of Model of a torch.nn.Sequential, such as MLP or CNN
        The last layer of each is a `torch.nn.Linear`, of the same shape in all of them, and its input is the embedding.

    Raises
    ------
    ValueError
        There are no networks, one of them is not a chain of layers that ends with a linear one, or the last layers
        differ in shape.

    Notes
    -----
    Parameters of network 0 are named ``0.dense1.weight`` and so on. A further entry is ``architecture`` (A,), which is
    1 for the network that a client has and 0 for the others. Two more are known to all clients, namely ``prototype``
    (Y, h), an embedding for each class, and ``known`` (Y,), which is 1 if a class has one. If the parameters of several
    architectures are given, all of them run and ``architecture`` selects the output, because a stack of clients needs
    equal shapes. In training, only those of the client's own architecture are given.
    """

    nets: tuple[Model, ...]

    def __post_init__(self) -> None:
        chains = all(isinstance(net.module, nn.Sequential) for net in self.nets)
        if not self.nets or not chains or not all(isinstance(_last(net), nn.Linear) for net in self.nets):
            raise ValueError("nets must be a tuple of Model of a torch.nn.Sequential that ends with a torch.nn.Linear")
        if len(shapes := {(_last(net).out_features, _last(net).in_features) for net in self.nets}) > 1:
            raise ValueError(f"the last layers must have one shape (classes, embedding) in all nets; got {shapes}")

    def init(self, seed: int) -> Params:
        """Random initialisation of all architectures; the client has the first one, and no prototype is known."""
        params = {f"{a}.{name}": p for a, net in enumerate(self.nets) for name, p in net.init(seed).items()}
        own, prototypes = torch.eye(len(self.nets))[0], torch.zeros(self.shape)
        return params | {"architecture": own, "prototype": prototypes, "known": torch.zeros(self.shape[0])}

    @property
    def shape(self) -> tuple[int, int]:
        """Y and h, the number of classes and the size of an embedding."""
        return _last(self.nets[0]).out_features, _last(self.nets[0]).in_features

    def embed(self, params: Params, x: Tensor) -> Tensor:
        """Embeddings (B, h) of x (B, ...)."""

        def body(net: Model, own: Params) -> Tensor:
            *layers, _ = net.module.named_children()
            h = x
            for name, layer in layers:
                h = functional_call(layer, part(own, name), h)
            return h

        return self._own(params, body)

    def __call__(self, params: Params, x: Tensor, h: Tensor | None = None) -> Tensor:
        """Logits (B, Y) of the last layer, for x (B, ...) or for its embeddings h (B, h)."""
        h = self.embed(params, x) if h is None else h

        def head(net: Model, own: Params) -> Tensor:
            *_, (name, layer) = net.module.named_children()
            return functional_call(layer, part(own, name), h)

        return self._own(params, head)

    def nearest(self, params: Params, x: Tensor) -> Tensor:
        """Logits (B, Y) for the nearest prototype, minus the squared distances; -inf for a class without one."""
        distance = (self.embed(params, x)[:, None] - params["prototype"]).square().sum(-1)
        return torch.where(params["known"] > 0, -distance, -torch.inf)

    def _own(self, params: Params, function: Callable[[Model, Params], Tensor]) -> Tensor:
        """The result of `function` for the client's own architecture."""
        parts = [(net, part(params, str(a))) for a, net in enumerate(self.nets)]
        each = [function(net, own) for net, own in parts if own]
        if len(each) == 1:
            return each[0]
        return sum(share * out for share, out in zip(params["architecture"], each, strict=True))  # type: ignore[return-value]


def _last(net: Model) -> nn.Linear:
    return list(net.module.children())[-1]  # type: ignore[return-value]
