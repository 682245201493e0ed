"""The works that every contender does, on the same numbers.

    python -m benchmarks.works FOLDER

writes each work into a folder of its own, as `benchmarks.contenders.worker` reads it.
"""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedlib.keys import Key
from fedlib.models import CNN, MLP, femnist_cnn, lenet5

_ROUNDS = 16  # whose cohorts and orders are drawn; they come again after that


@dataclass(frozen=True)
class Work:
    """One work: data, network, local training by plain SGD.

    Attributes
    ----------
    model : MLP or CNN
        fedlib's network.
    clients, cohort : int
        K and C.
    rows : int
        Examples of each client.
    shape : tuple of int
        Shape of one example.
    classes : int
        0 for regression.
    """

    name: str
    model: MLP | CNN
    clients: int
    cohort: int
    rows: int
    shape: tuple[int, ...]
    classes: int
    lr: float
    batch_size: int
    epochs: int

    @property
    def examples(self) -> int:
        """Examples that a round trains on, all clients and epochs together."""
        return self.cohort * self.rows * self.epochs

    def data(self) -> tuple[Tensor, Tensor]:
        """Features (K, rows, *shape), float32, and labels (K, rows), int64 or float32."""
        ids = torch.arange(self.clients)
        x = Key(0).normal(ids, "x", self.rows, *self.shape).float()
        if self.classes:
            return x, (Key(0).uniform(ids, "y", self.rows) * self.classes).long()
        return x, Key(0).normal(ids, "y", self.rows).float()

    def plan(self) -> tuple[Tensor, Tensor]:
        """The cohorts (R, C) and orders of examples (R, C, E, rows) that `fedlib.fit` draws with seed 0."""
        lengths = torch.full((self.cohort,), self.rows)
        keys = [Key(0, t) for t in range(1, _ROUNDS + 1)]
        cohorts = [key.choose(torch.arange(self.clients), self.cohort, "cohort") for key in keys]
        orders = [
            key.permutations(cohort, "batches", lengths, self.epochs, self.rows)
            for key, cohort in zip(keys, cohorts, strict=True)
        ]
        return torch.stack(cohorts), torch.stack(orders)

    def write(self, folder: Path) -> None:
        """Write data, start, plan (.npz) and settings (.json)."""
        folder.mkdir(parents=True, exist_ok=True)
        (x, y), (cohorts, orders) = self.data(), self.plan()
        np.savez(folder / "data.npz", x=x, y=y)
        np.savez(folder / "start.npz", **self.model.init(0))
        np.savez(folder / "plan.npz", cohorts=cohorts, orders=orders)
        settings = {name: getattr(self, name) for name in ("name", "classes", "lr", "batch_size", "epochs")}
        settings |= {name: getattr(self.model, name, 1) for name in ("padding", "pool")}
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf8")

    def products(self) -> list[int]:
        """Multiplications of each layer's forward product for one example; a convolution's padding counts."""
        sides, counts = self.shape[1:], []
        for name, p in self.model.init(0).items():
            if p.ndim == 4:
                sides = tuple(s + 2 * self.model.padding - p.shape[2] + 1 for s in sides)
                counts.append(math.prod(sides) * p.numel())
                sides = tuple(s // self.model.pool for s in sides)
            elif name.endswith("weight"):
                counts.append(p.numel())
        return counts

    def flops(self) -> int:
        """Floating-point operations of a round's products: forward, weights' and inputs' gradients.

        Nobody asks for the gradient of the examples, so the first layer has two products and the others have three.
        """
        first, *others = self.products()
        return 2 * self.examples * (2 * first + 3 * sum(others))


_femnist = {"clients": 100, "cohort": 10, "rows": 40, "shape": (1, 28, 28), "classes": 62}
_sgd = {"lr": 0.01, "epochs": 1}
_works = (
    Work("W1", femnist_cnn(), **_femnist, **_sgd, batch_size=10),
    Work("W1s", CNN((1, 28, 28), channels=(16, 32), widths=(128, 62)), **_femnist, **_sgd, batch_size=10),
    Work(
        "W2",
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
    Work("W3", lenet5(), clients=20, cohort=20, rows=250, shape=(3, 32, 32), classes=10, **_sgd, batch_size=100),
)
WORKS = {work.name: work for work in _works}

if __name__ == "__main__":
    for work in WORKS.values():
        work.write(Path(sys.argv[1], work.name))
