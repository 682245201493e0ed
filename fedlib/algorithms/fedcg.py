"""FedCG, with a domain for each sample, a residual module for each domain, and a graph convolution over the modules.

Caldarola, Mancini, Galasso, Ciccone, Rodolà, Caputo. Cluster-driven graph federated learning over multiple domains.
CVPR workshops 2021. Equation numbers are the paper's.
"""

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..aggregate import cluster_means, cluster_sums, part_sums
from ..algorithm import Algorithm, Update, held
from ..checks import number, whole
from ..client.domain_net import DomainNet, split
from ..costs import TRAINING
from ..data import Batch, ClientData
from ..keys import Key
from ..losses import weighted_mean
from ..params import Params, broadcast, row, take
from ..server.domain_graph import DomainGCN, domain_adjacency

__all__ = ["FedCG", "FedCGState", "occupancy"]

DOMAINS = "domains"  #: Purpose, in the costs, of everything that finds domains.


@dataclass(frozen=True)
class FedCGState:
    """State of FedCG.

    A stack of one row has a leading axis of length 1, because there is one global model.

    Attributes
    ----------
    round : int
    share : Tensor of shape (D,)
        Share of each domain in the samples of the last cohort; NaN before round 1.
    models : Params
        Stack of one row, theta_a and ``lam.*``.
    modules : Params
        theta_s, the modules of the domains, ``V.*`` (1, D, ...).
    graph : Params
        Stack of one row, ``W.*`` of the GCN; empty without one.
    student, teacher : Params
        Stacks of one row, varphi and phi, both named ``student.*``; `teacher` is empty if the teacher is a function
        (`fedlib.extensions.known_domains`).
    bias : Tensor of shape (D,)
        Added to the teacher's logits. It is zero here, as in the paper; subclasses use it to balance the domains. Each
        new teacher resets it to zero.
    adjacency : Tensor of shape (D, D)
        A, which the server computes and sends.
    """

    round: int
    share: Tensor
    models: Params = field(metadata=held("server and clients"))
    modules: Params = field(metadata=held("server and clients"))
    graph: Params = field(metadata=held("server and clients"))
    student: Params = field(metadata=held("server and clients"))
    teacher: Params = field(metadata=held("server and clients"))
    bias: Tensor = field(metadata=held("server and clients"))
    adjacency: Tensor = field(metadata=held("server and clients"))


@dataclass(frozen=True)
class FedCG(Algorithm):
    """Each sample has a domain, each domain has a module in some layers, and a GCN shares what the modules learn.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    net : DomainNet
        The network f with its modules, and with a classifier g, the student. `loss` is
        ``loss(params, batch, w_d=None)``, which calls ``net(params, x, w_d)``; `predict` is `net`.
    gcn : DomainGCN or None
        By default W has the shape (q, q), and sigma is ReLU. With None, V-hat = V.
    refresh : int
        T, the period in rounds at which the student's parameters replace the teacher's; 0 never replaces them.
    student_lr : float
        Learning rate of the student, which is trained by plain SGD.
    warm_up : int
        Number of rounds in which A is the identity; 0 is the same as 1, since Eq. 6 follows a round.
    beta : float
        Diagonal of A after the warm-up, from 0 to 1; 1 keeps the identity.

    Warns
    -----
    UserWarning
        At the end of a run that was too short for the warm-up to end or for a second teacher to be used.

    Notes
    -----
    FedCG Eq. 1-6, as printed. C is the size of the cohort (the paper's K), N the number of a client's samples, and D
    the number of domains. The paper names neither T nor the first round with Eq. 6; both defaults are a tenth of 100
    rounds. A starts as the identity. Teacher and student, as printed, collapse into one domain;
    `fedlib.extensions.known_domains.FedCGKnownDomains` has another teacher. If a subclass fixes lambda at 0, a round
    equals one of FedAvg, bit for bit.

    A client receives the model, student and teacher, W and A. It sends the model, W and the student. Beyond the paper,
    it also sends the number of its samples in each domain, which only `share` needs. Chapters 08 and 10.

    References
    ----------
    Caldarola, Mancini, Galasso, Ciccone, Rodolà, Caputo. Cluster-driven graph federated learning over multiple domains.
    CVPR workshops 2021.
    """

    net: DomainNet = field(kw_only=True)
    gcn: DomainGCN | None = DomainGCN()  # noqa: RUF009  (it is frozen)
    refresh: int = whole(10, least=0)
    student_lr: float = number(1e-4, above=True)
    warm_up: int = whole(10, least=0)
    beta: float = number(0.5, most=1)

    def init(self, params: Params, data: ClientData, key: Key) -> FedCGState:
        """Take theta and varphi from `params`, W from the GCN, and phi (the teacher) from another draw of g."""
        like, d = next(iter(params.values())), self.net.domains
        graph = self.gcn.start(params, self.net.layers, key.seed) if self.gcn else {}
        draw = int(key.bits(torch.zeros(1, dtype=torch.int64), "teacher")[0]) % 2**32  # so that phi is not varphi
        parts = split(params | graph) | {"teacher": split(self.net.init(draw))["student"]}
        stacks = {name: {n: p.to(like)[None] for n, p in stack.items()} for name, stack in parts.items()}
        bias, a = like.new_zeros(d), torch.eye(d).to(like)
        return FedCGState(round=0, share=bias + torch.nan, **stacks, bias=bias, adjacency=a)

    # ---- clients ----

    def train(self, state: FedCGState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Train theta_k and W_k on the samples' labels (Eq. 1, 4, 5), and the student on their domains (Eq. 3)."""
        d_hat = self.d_hat(state, data, clients)
        columns = {"FedCG's w_d": self.w_d(state, data, clients, d_hat), "FedCG's d_hat": d_hat}
        data = replace(data, columns=data.columns | columns)
        # row 0 of each stack for every client
        one, a = torch.zeros_like(clients), state.adjacency.expand(len(clients), -1, -1)
        # Eq. 1, with Eq. 4 and 5 in the loss
        theta_k = self.local_training(take(state.models | state.modules | state.graph, one), data, key, (a,), self.task)
        # Eq. 3, the student by plain SGD with its own learning rate
        by_sgd = replace(self, lr=self.student_lr, optimizer=torch.optim.SGD)
        varphi_k = by_sgd.local_training(take(state.student, one), data, key, (), self.imitate, purpose=DOMAINS)
        parts = split(theta_k.params | varphi_k.params)
        modules = part_sums(parts.pop("modules"), self.counts(data, d_hat))
        sums = {name: cluster_sums(p, one, data.n, models=1) for name, p in parts.items() if p} | {"modules": modules}
        if state.teacher:
            sums["domains"] = {"count": d_hat.sum((0, 1))[None]}
        # the purposes under which the costs of each part are recorded
        purpose = {"student": DOMAINS, "domains": DOMAINS, "graph": "graph"}
        return Update(clients, summed=sums, log={"loss": theta_k.loss, "student": varphi_k.loss}, purpose=purpose)

    def d_hat(self, state: FedCGState, data: ClientData, clients: Tensor) -> Tensor:
        """The teacher's pseudo-labels, one-hot (C, N, D); zeros for padding (below Eq. 3)."""
        best = (self.net.logits_of_all(state.teacher, data, state.bias.dtype) + state.bias).argmax(-1)
        return F.one_hot(best, self.net.domains).to(state.bias) * data.real[..., None]

    def w_d(self, state: FedCGState, data: ClientData, clients: Tensor, d_hat: Tensor) -> Tensor:
        """Weights of the domains in training, 1 for d_hat, else 0 (below Eq. 4); at test, `net` uses the student's."""
        return d_hat

    def counts(self, data: ClientData, d_hat: Tensor) -> Tensor:
        """Weight (C, D) of each client in the mean of a domain's modules, n_k for all domains as in Eq. 2.

        A subclass may use `d_hat`.
        """
        return data.n[:, None].expand(-1, self.net.domains)

    def task(self, params: Params, batch: Batch, a: Tensor) -> Tensor:
        """The task's loss (Eq. 1) of the network (Eq. 4), with V-hat instead of V."""
        x, y, real, *columns, w_d, _ = batch
        return self.loss(self.connect(params, a), (x, y, real, *columns), w_d)  # type: ignore[call-arg]

    def imitate(self, params: Params, batch: Batch) -> Tensor:
        """Cross-entropy between the teacher's domains and the student's (Eq. 3)."""
        x, _, real, *_, d_hat = batch
        return weighted_mean(-(d_hat * self.net.logits(params, x).log_softmax(-1)).sum(-1), real)

    def connect(self, params: Params, a: Tensor) -> Params:
        """Replace V by V-hat = sigma(A V W), and leave out W (Eq. 5)."""
        return params if self.gcn is None else self.gcn.connect(params, self.net.layers, a)

    # ---- server ----

    def aggregate(self, state: FedCGState, update: Update) -> FedCGState:
        """Average theta, W and the student (Eq. 2), compute A (Eq. 6), and renew the teacher after T rounds."""
        sums, t = update.summed, state.round + 1
        # Eq. 2
        means: Any = {name: cluster_means(sums[name], vars(state)[name]) for name in sums if name != "domains"}
        new = replace(state, round=t, **means)
        if "domains" in sums:
            new = replace(new, share=occupancy(sums["domains"]["count"][0])[0].to(state.bias))
        if t >= self.warm_up:  # Eq. 6; `domain_adjacency` keeps distances above 0
            new = replace(new, adjacency=domain_adjacency(row(new.modules, 0), self.beta).to(state.bias))
        if state.teacher and self.refresh and t % self.refresh == 0:  # every T rounds: phi <- varphi
            new = replace(new, teacher=new.student, bias=torch.zeros_like(state.bias))
        return new

    def unreached(self, state: FedCGState, rounds: int) -> str:
        """A warning if the run is too short for the end of the warm-up or for a second teacher; else empty."""
        warming = self.gcn and self.beta < 1 and rounds < self.warm_up
        said = [f"A stayed the identity (warm_up={self.warm_up})"] if warming else []
        if state.teacher and 0 < self.refresh >= rounds:
            said += [f"the first teacher, drawn at random, taught alone (refresh={self.refresh})"]
        return f"FedCG ended with round {rounds}, up to which {' and '.join(said)}" if said else ""

    def client_params(self, state: FedCGState, clients: Tensor) -> Params:
        """The model with V-hat computed, and the student, which together are all a client needs to predict."""
        theta = row(state.models | state.modules | state.graph, 0)
        return broadcast(self.connect(theta, state.adjacency) | row(state.student, 0), len(clients))

    def download(self, state: FedCGState, clients: Tensor) -> dict[str, Any]:
        """The model, student and teacher, W and A."""
        graph = {"W": state.graph, "A": state.adjacency[None]} if self.gcn else {}
        teacher = {"teacher": state.teacher, "bias": state.bias[None]} if state.teacher else {}
        return {TRAINING: state.models | state.modules, DOMAINS: {"student": state.student} | teacher, "graph": graph}

    def new_clients(self, state: FedCGState, data: ClientData, key: Key, rounds: int) -> FedCGState:
        """A new client holds the server's model and student."""
        return state


def occupancy(counts: Tensor) -> tuple[Tensor, float]:
    """Measure how evenly the samples are spread over the domains.

    Parameters
    ----------
    counts : Tensor of shape (D,)
        Number of samples, or sum of weights, of each domain.

    Returns
    -------
    share : Tensor of shape (D,)
        Share of each domain in all samples.
    entropy : float
        Entropy of `share`, in units of log D. It is 1 if all domains have equally many samples and 0 if one domain has
        all of them; for D = 1 it is 1.

    Warns
    -----
    UserWarning
        The entropy is below 0.5, so that most domain modules never learn. Chapter 08.
    """
    share = counts / counts.sum()
    entropy = float(torch.special.entr(share).sum()) / math.log(len(share)) if len(share) > 1 else 1.0
    if entropy < 0.5:
        largest = f"one of {len(share)} has {float(share.max()):.0%} of the samples (entropy {entropy:.2f} log D)"
        remedy = "Find domains with fedlib.extensions.mixture.em_domains"
        warnings.warn(f"the domains collapsed: {largest}. {remedy}", stacklevel=2)
    return share, entropy
