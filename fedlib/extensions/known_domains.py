"""FedCG with domains that are known, or found before round 1, instead of its teacher's; not from a paper.

Its limits are that the teacher is called once and sees all clients' samples. A client that joins later therefore has
no domains from the teacher and estimates its shares, and all domains are only as good as the teacher.
Chapters 09, 10 and 15.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..algorithm import held
from ..algorithms.fedcg import FedCG, FedCGState
from ..checks import number, whole
from ..data import ClientData
from ..keys import Key
from ..params import Params

__all__ = ["FedCGKnownDomains", "KnownDomainsState"]


@dataclass(frozen=True)
class KnownDomainsState(FedCGState):
    """State of FedCGKnownDomains, which is that of FedCG without a teacher network.

    Attributes
    ----------
    domains : Tensor of shape (K, N, D)
        The teacher's weights of the domains for each client's samples; zeros for padding.
    prior : Tensor of shape (K, D)
        Share of each domain at each client, as a multiple of its share in all samples.
    share : Tensor of shape (D,)
        Share of each domain in all samples.
    bias : Tensor of shape (D,)
        Unused, and therefore not sent.
    """

    bias: Tensor
    domains: Tensor = field(metadata=held("client"))
    prior: Tensor = field(metadata=held("client"))


@dataclass(frozen=True)
class FedCGKnownDomains(FedCG):
    """FedCG whose teacher is a function, called once before round 1, that knows the domains or finds them.

    Parameters as in `fedlib.algorithms.fedcg.FedCG`, where `refresh` has no effect, and

    Parameters
    ----------
    teacher : callable
        ``teacher(data, key) -> w (K, N, D)``, the weights of the domains for each sample, such as
        ``partial(em_domains, domains=4, classes=10)``. It is called with all clients in ascending order of ids.
    weights : {"student", "teacher"}
        Choice of w_d while the network is trained. "student" takes the student's probabilities, as at test. "teacher",
        as in the paper, takes 1 for the domain with the teacher's largest weight and 0 for the others. In both cases,
        the student learns the teacher's weights.

    Notes
    -----
    Unlike in the paper, a client multiplies the student's probabilities by its own shares of the domains (Bayes' rule).
    A new client estimates these shares with the student, without labels. Chapters 09, 10 and 15.
    """

    teacher: Callable[[ClientData, Key], Tensor] = field(kw_only=True)
    weights: str = "student"
    student_lr: float = number(0.1, above=True)
    warm_up: int = whole(20, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights not in ("student", "teacher"):
            raise ValueError(f"weights must be 'student' or 'teacher'; got {self.weights!r}")

    def prepare(self, state: FedCGState, data: ClientData, key: Key) -> KnownDomainsState:
        """Call the teacher for the domains of all training samples."""
        w, wanted = self.teacher(data, key).to(state.bias), (*data.index.shape, self.net.domains)
        if w.shape != wanted or not ((w.sum(-1) - 1).abs()[data.real] < 1e-3).all():
            raise ValueError(f"the teacher must give weights {wanted} that add up to 1 for each sample; got {w.shape}")
        w = w * data.real[..., None]
        share = w.sum((0, 1)) / w.sum()
        share = torch.where(share * int(data.n.sum()) < 1, 0, share)  # the module of an empty domain learns nothing
        begun = vars(state) | {"teacher": {}, "share": share}
        return KnownDomainsState(**begun, domains=w, prior=prior(w, data.n, share))

    def d_hat(self, state: Any, data: ClientData, clients: Tensor) -> Tensor:
        """The teacher's weights."""
        return state.domains[clients]

    def w_d(self, state: Any, data: ClientData, clients: Tensor, d_hat: Tensor) -> Tensor:
        """The student's probabilities times the clients' own shares, or the teacher's most likely domain."""
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
    """Shares (C, D) of the domains in w (C, N, D), as multiples of those in all samples; 0 if these are 0.

    D pseudo-samples, distributed like all samples, keep clients with few samples near 1.
    """
    d, least = len(share), torch.finfo(share.dtype).tiny
    return (w.sum(1) / share.clamp(min=least) + d) / (n[:, None] + d) * (share > 0)
