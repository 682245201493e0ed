"""Wide dense layers of many clients without a matrix for each of them.

If clients start from one matrix W (O, I) and take steps of plain SGD, client k's weights after s steps are
W - lr sum_s D_ks^T X_ks, where X_ks (B, I) is the layer's input in step s and D_ks (B, O) the gradient of its output.
As long as the factors have few rows compared with the matrix, it is cheaper to keep them instead, because all clients
share one product with W, no gradient is as large as W, and the server's mean is W plus one product of the factors. The
results are those of SGD, up to rounding.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

__all__ = ["LowRank", "NeedsMatrix"]


class NeedsMatrix(Exception):
    """A loss uses a wide weight for more than one product per step with a batch of each client."""


@dataclass
class LowRank:
    """The weights W + P_k^T X_k of one dense layer of C clients.

    Attributes
    ----------
    start : Tensor of shape (O, I)
        W, from which all clients start.
    given : Tensor of shape (C, R, I)
        X_k, the layer's inputs in all steps, one after another.
    pull : Tensor of shape (C, R, O)
        P_k, -lr times the gradients of the layer's outputs; zeros for steps still to come.
    used : int
        Number of the R rows that have been written.
    call : (Tensor of shape (C, B, I), GradientEdge) or None
        The layer's input in the current step, and where the gradient of its output (C, B, O) arrives.
    """

    start: Tensor
    given: Tensor
    pull: Tensor
    used: int = 0
    call: tuple[Tensor, GradientEdge] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        return self.start.dtype

    @classmethod
    def of(cls, start: Tensor, clients: int, rows: int) -> "LowRank":
        """The layer of C clients that have taken no step yet and will see `rows` examples each."""
        outputs, inputs = start.shape
        return cls(start, start.new_zeros(clients, rows, inputs), start.new_zeros(clients, rows, outputs))

    def __getitem__(self, clients: Tensor | slice) -> "LowRank":
        return replace(self, given=self.given[clients], pull=self.pull[clients])

    def takes(self, rows: int) -> bool:
        """Whether the layer can take this many rows; it allows one call per step, and no more rows than are left."""
        return self.call is None and self.used + rows <= self.given.shape[1]

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """The layer's outputs (C, B, O) for x (C, B, I) and bias (C, O)."""
        out = (x.flatten(0, 1) @ self.start.mT).unflatten(0, x.shape[:2])
        if bias is not None:
            out = out + bias[:, None].to(out.dtype)  # to which autocast may have given 16 bits
        if self.used:
            out = torch.baddbmm(out, x @ self.given[:, : self.used].mT, self.pull[:, : self.used])
        if not out.requires_grad:  # and is not a leaf, which may not be written into
            out = out.add_(out.new_zeros(()).requires_grad_())
        self.call = x.detach(), get_gradient_edge(out)  # of what it is now, and not after `relu_`
        return out

    def step(self, gradient: Tensor, lr: float, clients: int) -> None:
        """Take a step of SGD for the first `clients` clients, with the gradient (C, B, O) of the layer's outputs."""
        assert self.call is not None
        rows = slice(self.used, self.used + gradient.shape[1])
        self.given[:clients, rows] = self.call[0][:clients]  # the other clients do not matter
        torch.mul(gradient[:clients], -lr, out=self.pull[:clients, rows])
        self.used, self.call = rows.stop, None

    def dense(self) -> Tensor:
        """The weights themselves, of shape (C, O, I)."""
        with torch.autocast(self.start.device.type, enabled=False):  # weights are not rounded to 16 bits
            return torch.baddbmm(self.start.expand(len(self.pull), -1, -1), self.pull.mT, self.given)

    def mixed(self, matrix: Tensor) -> Tensor:
        """Weighted sums (M, O, I) of the clients' weights, in at least 32 bits, with coefficients `matrix` (M, C)."""
        kind = torch.promote_types(self.dtype, torch.float32)
        start, given, pull, matrix = (t.to(kind) for t in (self.start, self.given.flatten(0, 1), self.pull, matrix))
        sums = start.new_empty(len(matrix), *start.shape)
        with torch.autocast(start.device.type, enabled=False):
            for out, weight, total in zip(sums, matrix, matrix.sum(1).tolist(), strict=True):
                pulls = (pull * weight[:, None, None]).flatten(0, 1)
                torch.addmm(start, pulls.mT, given, beta=total, out=out)
        return sums
