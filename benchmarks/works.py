"""The works that every contender does, on the same numbers."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedlib.keys import Key
from fedlib.models import CNN, MLP, femnist_cnn, lenet5


@dataclass(frozen=True)
class Work:
    """One work: data, network, local training by plain SGD.

    Attributes
    ----------
    model : Model
        fedlib's network.
    module : callable
        Makes the same network as a torch module, with the same names of parameters.
    clients, cohort : int
        K and C.
    rows : int
        Examples of each client.
    shape : tuple of int
        Shape of one example.
    classes : int
        0 for regression.
    """

    model: Callable
    module: Callable[[], nn.Module]
    clients: int
    cohort: int
    rows: int
    shape: tuple[int, ...]
    classes: int
    lr: float
    batch_size: int
    epochs: int

    def data(self) -> tuple[Tensor, Tensor]:
        """Features (K, rows, *shape) and labels (K, rows), float64 so that each contender can round them."""
        ids = torch.arange(self.clients)
        x = Key(0).normal(ids, "x", self.rows, *self.shape)
        if self.classes:
            return x, (Key(0).uniform(ids, "y", self.rows) * self.classes).long()
        return x, Key(0).normal(ids, "y", self.rows)


class Net(nn.Module):
    """An MLP or a CNN of plain torch layers, with fedlib's names."""

    def __init__(self, model):
        super().__init__()
        self.model = (model,)  # hidden from torch: settings only
        for name, p in model.init(0).items():
            if name.endswith("weight"):
                layer = nn.Conv2d if p.ndim == 4 else nn.Linear
                self.add_module(
                    name.removesuffix(".weight"), layer(p.shape[1], p.shape[0], *p.shape[2:3], **self._padding(p))
                )
        self.load_state_dict(model.init(0))

    def _padding(self, p: Tensor) -> dict[str, int]:
        return {"padding": self.model[0].padding} if p.ndim == 4 else {}

    def forward(self, x: Tensor) -> Tensor:
        """Logits, or predictions."""
        layers = list(self.children())
        for i, layer in enumerate(layers):
            if isinstance(layer, nn.Conv2d):
                x = nn.functional.max_pool2d(nn.functional.relu(layer(x)), self.model[0].pool)
            else:
                x = layer(x.flatten(1))
                x = nn.functional.relu(x) if i + 1 < len(layers) else x
        return x


def _work(model, **settings) -> Work:
    return Work(model=model, module=lambda: Net(model), **settings)


_femnist = {"clients": 100, "cohort": 10, "rows": 40, "shape": (1, 28, 28), "classes": 62}
_sgd = {"lr": 0.01, "epochs": 1}
WORKS = {
    "W1": _work(femnist_cnn(), **_femnist, **_sgd, batch_size=10),
    "W1s": _work(CNN((1, 28, 28), channels=(16, 32), widths=(128, 62)), **_femnist, **_sgd, batch_size=10),
    "W2": _work(
        MLP((13, 64, 32, 16, 1)),
        clients=100,
        cohort=100,
        rows=20,
        shape=(13,),
        classes=0,
        lr=0.01,
        batch_size=32,
        epochs=10,
    ),
    "W3": _work(lenet5(), clients=20, cohort=20, rows=250, shape=(3, 32, 32), classes=10, **_sgd, batch_size=100),
}
