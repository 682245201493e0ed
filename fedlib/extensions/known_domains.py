"""Not from a paper: FedCG with domains that are known, or found before round 1, in place of its teacher's.

Limits: the teacher is asked once and sees all clients' samples, so a client that comes later has no domains of its own
and estimates its shares; and only as good as the teacher are they. Chapters 09, 10 and 15.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..algorithm import held
from ..algorithms.fedcg import FedCG, FedCGState
from ..data import ClientData
from ..keys import Key
from ..params import Params

__all__ = ["FedCGKnownDomains", "KnownDomainsState"]


@dataclass(frozen=True)
class KnownDomainsState(FedCGState):
    """State of FedCGKnownDomains: that of FedCG, without a network for a teacher.

    Attributes
    ----------
    domains : Tensor of shape (K, N, D)
        The teacher's weights of each client's samples; zeros for padding.
    prior : Tensor of shape (K, D)
        How often each client has a domain, as a multiple of its share in all samples.
    share : Tensor of shape (D,)
        Share of each domain in all samples.
    bias : Tensor of shape (D,)
        Not used, and so not sent.
    """

    bias: Tensor
    domains: Tensor = field(metadata=held("client"))
    prior: Tensor = field(metadata=held("client"))


@dataclass(frozen=True)
class FedCGKnownDomains(FedCG):
    """FedCG whose teacher is a function, asked once before round 1: the truth, or a way to find domains.

    Parameters as in `fedlib.algorithms.fedcg.FedCG`; `refresh` does nothing, and

    Parameters
    ----------
    teacher : callable
        ``teacher(data, key) -> w (K, N, D)``, the weights of the domains of each sample, called with all clients in
        ascending order of ids; such as ``partial(em_domains, domains=4, classes=10)``.
    weights : {"student", "teacher"}
        w_d in the training of the network: the student's probabilities, as at test; or, as in the paper, 1 for the
        domain that has the teacher's largest weight and 0 for the others. The student always learns the teacher's.

    Notes
    -----
    Beyond the paper: a client multiplies the student's probabilities by its own shares of the domains (Bayes' rule). A
    new client estimates these with the student, without labels. Chapters 09, 10 and 15.
    """

    teacher: Callable[[ClientData, Key], Tensor] = field(kw_only=True)
    weights: str = "student"
    student_lr: float = 0.1
    warm_up: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights not in ("student", "teacher"):
            raise ValueError(f"weights must be 'student' or 'teacher'; got {self.weights!r}")

    def prepare(self, state: FedCGState, data: ClientData, key: Key) -> KnownDomainsState:
        """The teacher says the domains of all training samples."""
        w, wanted = self.teacher(data, key).to(state.bias), (*data.index.shape, self.net.domains)
        if w.shape != wanted or not ((w.sum(-1) - 1).abs()[data.real] < 1e-3).all():
            raise ValueError(f"the teacher must give weights {wanted} that add up to 1 for each sample; got {w.shape}")
        w = w * data.real[..., None]
        share = w.sum((0, 1)) / w.sum()
        share = torch.where(share * int(data.n.sum()) < 1, 0, share)  # not one sample: its module learns nothing
        begun = vars(state) | {"teacher": {}, "share": share}
        return KnownDomainsState(**begun, domains=w, prior=prior(w, data.n, share))

    def d_hat(self, state: Any, data: ClientData, clients: Tensor) -> Tensor:
        """The teacher's weights."""
        return state.domains[clients]

    def w_d(self, state: Any, data: ClientData, clients: Tensor, d_hat: Tensor) -> Tensor:
        """The student's probabilities times the clients' own shares, or the teacher's likeliest domain."""
        if self.weights == "teacher":
            return F.one_hot(d_hat.argmax(-1), d_hat.shape[-1]).to(d_hat)
        logits = self.net.logits_of_all(state.student, data, state.bias.dtype)
        return (logits + state.prior[clients].log()[:, None]).softmax(-1)

    def client_params(self, state: Any, clients: Tensor) -> Params:
        """The model, the student and the client's own prior."""
        return super().client_params(state, clients) | {"prior": state.prior[clients]}

    def new_clients(self, state: Any, data: ClientData, key: Key, rounds: int) -> KnownDomainsState:
        """A new client estimates its shares of the domains with the student."""
        logits = self.net.logits_of_all(state.student, data, state.bias.dtype)
        own = (state.share > 0).to(logits).expand(len(data), -1)
        for _ in range(15):
            w = (logits + own.log()[:, None]).softmax(-1) * data.real[..., None]
            own = prior(w, data.n, state.share)
        return replace(state, prior=own, domains=logits[:, :0])


def prior(w: Tensor, n: Tensor, share: Tensor) -> Tensor:
    """Shares (C, D) of the domains in w (C, N, D), as multiples of those in all samples; 0 where there are none.

    D samples more, which are as all samples are, keep clients with few samples near 1.
    """
    d, least = len(share), torch.finfo(share.dtype).tiny
    return (w.sum(1) / share.clamp(min=least) + d) / (n[:, None] + d) * (share > 0)
