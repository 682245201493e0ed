"""FedCG: domains of single samples, a residual module for each domain, and a graph convolution over the modules.

Caldarola, Mancini, Galasso, Ciccone, Rodolà, Caputo. Cluster-driven graph federated learning over multiple domains.
CVPR workshops 2021. Equation numbers are the paper's.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..aggregate import Sums, cluster_means, cluster_sums
from ..algorithm import Algorithm, Update, held
from ..checks import check_number, check_whole
from ..client.domain_net import DomainNet, part
from ..costs import TRAINING
from ..data import Batch, ClientData
from ..keys import Key
from ..losses import weighted_mean
from ..params import Params, broadcast, row
from ..server.domain_graph import DomainGCN, domain_adjacency
from ..server.mixture import DOMAINS, each_row, is_real, occupancy

__all__ = ["FedCG", "FedCGState"]

GRAPH = "graph"  # purpose in the costs


@dataclass(frozen=True)
class FedCGState:
    """State of FedCG.

    Attributes
    ----------
    round : int
    share : Tensor of shape (D,)
        Share of each domain in the samples of the last cohort; NaN before round 1.
    models : Params
        Stack of one row: theta_a, the domains' modules ``V.*`` (1, D, ...), ``lam.*``, and ``W.*`` of the GCN.
    student, teacher : Params
        Stacks of one row, varphi and phi; `teacher` is empty if the teacher is not a network.
    bias : Tensor of shape (D,)
        Added to the teacher's logits: zeros in the paper. Chapter 05 balances the domains by it.
    adjacency : Tensor of shape (D, D)
        A, which the server computes and sends.
    """

    round: int
    share: Tensor
    models: Params = field(metadata=held("server and clients"))
    student: Params = field(metadata=held("server and clients"))
    teacher: Params = field(metadata=held("server and clients"))
    bias: Tensor = field(metadata=held("server and clients"))
    adjacency: Tensor = field(metadata=held("server and clients"))


@dataclass(frozen=True)
class FedCG(Algorithm):
    """Each sample gets a domain and each domain a module in some layers; a GCN lets the modules learn from each other.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    net : DomainNet
        The network f with its modules, and with a classifier g, the student. `loss` is
        ``loss(params, batch, w_d=None)``, which calls ``net(params, x, w_d)``; `predict` is `net`.
    gcn : DomainGCN or None
        None: the modules are used as they are.
    refresh : int
        T: each time so many rounds are over, the teacher becomes the student. 0: never.
    student_lr : float
        Learning rate of the student, which is trained by plain SGD.
    warm_up : int
        Rounds in which A is the identity.
    beta : float
        Diagonal of A after them, from 0 to 1; 1 keeps the identity.

    Notes
    -----
    FedCG Eq. 1-6. With lambda kept at 0 a round is one of FedAvg, bit for bit. The paper names neither T nor when the
    server first computes A; a tenth of all rounds suits both. Teacher and student as printed collapse into one domain
    (chapter 05): `fedlib.algorithms.fedcg_known.FedCGKnownDomains` has another teacher.

    A client is sent the model, student and teacher, W and A. It sends the model, W, the student, and how many of its
    samples each domain has. Chapters 05 and 06.

    References
    ----------
    Caldarola, Mancini, Galasso, Ciccone, Rodolà, Caputo. Cluster-driven graph federated learning over multiple domains.
    CVPR workshops 2021.
    """

    net: DomainNet = None  # type: ignore[assignment]  # comes after fields with defaults; checked below
    gcn: DomainGCN | None = DomainGCN()  # noqa: RUF009  (it is frozen)
    refresh: int = 10
    student_lr: float = 1e-4
    warm_up: int = 10
    beta: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.net, DomainNet) or self.net.classifier is None:
            raise ValueError("FedCG needs net=DomainNet(...) with a classifier, the student")
        check_whole(self.refresh, "refresh", least=0), check_whole(self.warm_up, "warm_up", least=0)
        check_number(self.student_lr, "student_lr", above=True)
        domain_adjacency(torch.eye(self.net.domains), self.beta)  # says what is wrong with beta

    def init(self, params: Params, data: ClientData, key: Key) -> FedCGState:
        """Theta and the student as `DomainNet.init` gave them, W as `DomainGCN.init`; the teacher from another draw."""
        one = next(iter(params.values()))
        theta = {n: p for n, p in params.items() if not n.startswith("student.")}
        for layer in self.net.layers if self.gcn is not None else ():
            q = sum(v[0].numel() for v in part(params, f"V.{layer}").values())
            theta |= {f"W.{layer}.{n}": w.to(one) for n, w in self.gcn.init(q, key.seed, layer).items()}  # type: ignore[union-attr]
        g: Any = self.net.classifier
        draw = int(key.bits(torch.zeros(1, dtype=torch.int64), "teacher")[0]) % 2**32  # no seed of a user's
        return FedCGState(
            round=0,
            share=torch.full((self.net.domains,), torch.nan).to(one),
            models=broadcast(theta, 1),
            student=broadcast(part(params, "student"), 1),
            teacher=broadcast({n: p.to(one) for n, p in g.init(draw).items()}, 1),
            bias=torch.zeros(self.net.domains).to(one),
            adjacency=torch.eye(self.net.domains).to(one),
        )

    # ---- clients ----

    def train(self, state: FedCGState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Theta_k and W_k learn their samples' labels (Eq. 1, 4, 5), and the student their domains (Eq. 3)."""
        d_hat = self.d_hat(state, data, clients)
        data = data.with_columns(w_d=self.w_d(state, data, clients, d_hat), d_hat=d_hat)
        theta, phi = (broadcast(row(p, 0), len(clients)) for p in (state.models, state.student))
        theta_k = self.local_training(theta, data, key, (state.adjacency.expand(len(clients), -1, -1),), self.task)
        student = replace(self, lr=self.student_lr, optimizer=torch.optim.SGD)
        phi_k = student.local_training(phi, data, key, (), self.imitate, purpose=DOMAINS)
        shared, modules, graph = split(theta_k.params)
        everybody, parts = torch.zeros_like(clients), {"models": shared, "graph": graph, "student": phi_k.params}
        sums = {name: cluster_sums(p, everybody, data.n, models=1) for name, p in parts.items() if p}
        sums["modules"] = module_sums(modules, self.counts(data, d_hat))
        if state.teacher:
            sums["domains"] = {"count": d_hat.sum((0, 1))[None]}
        purpose = {"student": DOMAINS, "domains": DOMAINS, "graph": GRAPH}
        return Update(clients, summed=sums, log={"loss": theta_k.loss, "student": phi_k.loss}, purpose=purpose)

    def d_hat(self, state: FedCGState, data: ClientData, clients: Tensor) -> Tensor:
        """The teacher's pseudo-labels, one-hot (C, N, D); zeros for padding (below Eq. 3)."""
        best = (self.logits(state.teacher, data) + state.bias).argmax(-1)
        return F.one_hot(best, self.net.domains).to(state.bias) * is_real(data)[..., None]

    def w_d(self, state: FedCGState, data: ClientData, clients: Tensor, d_hat: Tensor) -> Tensor:
        """Weights of the domains in training: 1 for d_hat, else 0 (below Eq. 4). At test `net` asks the student."""
        return d_hat

    def counts(self, data: ClientData, d_hat: Tensor) -> Tensor:
        """Weight (C, D) of a client in the mean of each domain's modules: n_k, as in Eq. 2."""
        return data.n[:, None].expand(-1, self.net.domains)

    def logits(self, classifier: Params, data: ClientData) -> Tensor:
        """Logits (C, N, D) of a classifier, a stack of one row."""
        phi, g = row(classifier, 0), self.net.classifier
        return each_row(lambda x: g(phi, x), data, next(iter(phi.values())).dtype)  # type: ignore[misc]

    def task(self, params: Params, batch: Batch, a: Tensor) -> Tensor:
        """The task's loss (Eq. 1) with V-hat for V."""
        x, y, real, w_d, _ = batch
        return self.loss(self.connect(params, a), (x, y, real), w_d)  # type: ignore[call-arg]

    def imitate(self, params: Params, batch: Batch) -> Tensor:
        """Cross-entropy between the teacher's domains and the student's (Eq. 3)."""
        x, _, real, _, d_hat = batch
        log_g = self.net.classifier(params, x).log_softmax(-1)  # type: ignore[misc]
        return weighted_mean(-(d_hat * log_g).sum(-1), real)

    def connect(self, params: Params, a: Tensor) -> Params:
        """V-hat = sigma(A V W) in the place of V, and W left out (Eq. 5)."""
        out = {n: p for n, p in params.items() if not n.startswith("W.")}
        for layer in self.net.layers if self.gcn is not None else ():
            hat = self.gcn(part(params, f"W.{layer}"), part(params, f"V.{layer}"), a)  # type: ignore[misc]
            out |= {f"V.{layer}.{n}": p for n, p in hat.items()}
        return out

    # ---- server ----

    def aggregate(self, state: FedCGState, update: Update) -> FedCGState:
        """Weighted means of theta, W and the student (Eq. 2); A from the new modules (Eq. 6); perhaps a new teacher."""
        sums, t = update.summed, state.round + 1
        shared, modules, graph = split(state.models)
        parts = {"models": shared, "graph": graph, "student": state.student}
        means = {name: cluster_means(sums[name], p) if p else p for name, p in parts.items()}
        of_modules = {"params": row(sums["modules"]["params"], 0), "weight": sums["modules"]["weight"][0]}
        modules = cluster_means(of_modules, row(modules, 0))  # D rows
        renew = self.refresh > 0 and t % self.refresh == 0 and len(state.teacher) > 0
        return replace(
            state,
            round=t,
            share=occupancy(sums["domains"]["count"][0])[0].to(state.bias) if "domains" in sums else state.share,
            models=means["models"] | broadcast(modules, 1) | means["graph"],
            student=means["student"],
            teacher=means["student"] if renew else state.teacher,
            bias=torch.zeros_like(state.bias) if renew else state.bias,
            adjacency=domain_adjacency(modules, self.beta).to(state.bias) if t >= self.warm_up else state.adjacency,
        )

    def client_params(self, state: FedCGState, clients: Tensor) -> Params:
        """The model with V-hat computed, and the student: what a client needs to answer."""
        model = self.connect(row(state.models, 0), state.adjacency)
        return broadcast(model | {f"student.{n}": p[0] for n, p in state.student.items()}, len(clients))

    def download(self, state: FedCGState, clients: Tensor) -> dict[str, Any]:
        """Model, student and teacher, W and A."""
        shared, modules, graph = split(state.models)
        teacher = {"teacher": state.teacher, "bias": state.bias[None]} if state.teacher else {}
        a = {"A": state.adjacency[None]} if self.gcn is not None else {}
        return {TRAINING: shared | modules, DOMAINS: {"student": state.student} | teacher, GRAPH: graph | a}

    def new_clients(self, state: FedCGState, data: ClientData, key: Key, rounds: int) -> FedCGState:
        """A new client holds the server's model and student."""
        return state


def split(params: Params) -> tuple[Params, Params, Params]:
    """The domain-agnostic parameters theta_a, the modules theta_s, and W, by their names."""
    parts: dict[str, Params] = {"": {}, "V": {}, "W": {}}
    for name, p in params.items():
        parts[name[0] if name[:2] in ("V.", "W.") else ""][name] = p
    return parts[""], parts["V"], parts["W"]


def module_sums(modules: Params, counts: Tensor) -> Sums:
    """Sums over clients of the domains' modules (C, D, ...), each with its own weight (C, D)."""
    wide = counts.to(torch.promote_types(next(iter(modules.values())).dtype, torch.float32))
    total = {n: torch.einsum("cd,cd...->d...", wide, p.to(wide))[None] for n, p in modules.items()}
    return {"params": total, "weight": wide.sum(0)[None]}
