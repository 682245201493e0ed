"""FedCG: domains of single samples, a residual module for each domain, and a graph convolution over the modules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..aggregate import Sums, cluster_means, cluster_sums
from ..algorithm import Algorithm, Update
from ..client.domain_net import DomainNet, part
from ..costs import TRAINING
from ..data import Batch, ClientData, to_features
from ..keys import Key
from ..losses import weighted_mean
from ..params import Params, broadcast, row, take
from ..server.domain_graph import DomainGCN, adjacency, domain_adjacency
from ..server.mixture import assign, spread

__all__ = ["FedCG", "FedCGState"]

DOMAINS, GRAPH = "domains", "graph"  # purposes in the ledger
TEACHERS = ("argmax", "centred", "sinkhorn", "loss")
_TAU = 0.1  # of "sinkhorn"
_ROWS = 1024  # that go through a classifier at once
_EM_STEPS = 15  # in which a new client finds its shares of the domains


@dataclass(frozen=True)
class FedCGState:
    """State of FedCG.

    Attributes
    ----------
    models : Params
        Stack of one row: shared layers, the domains' modules ``V.*`` (1, D, ...) and ``lam.*``.
    graph : Params
        Stack of one row: W of each layer, such as ``W.dense1.W``; empty without a GCN, or with one that has no W.
    student, teacher : Params
        Stacks of one row; `teacher` is empty if the teacher is not a network.
    bias : Tensor of shape (D,)
        Added to the teacher's logits; zeros for "argmax".
    adjacency : Tensor of shape (D, D)
        A, which the server computes and sends.
    share : Tensor of shape (D,)
        Share of each domain: in the samples of the last cohort, NaN before round 1; in all samples, if the teacher is a
        function.
    round : int
    found : Tensor of shape (K, N, D)
        What a teacher that is a function said of each client's samples; otherwise N = 0. Stays with the clients.
    prior : Tensor of shape (K, D)
        How often each client has a domain, as a multiple of its share in all samples; ones without `own_prior`, and if
        the teacher is not a function. Stays with the clients.
    """

    models: Params
    graph: Params
    student: Params
    teacher: Params
    bias: Tensor
    adjacency: Tensor
    share: Tensor
    round: int
    found: Tensor
    prior: Tensor


@dataclass(frozen=True)
class FedCG(Algorithm):
    """Each sample gets a domain and each domain a module in some layers; a GCN lets the modules learn from each other.

    Parameters
    ----------
    net : DomainNet
        With a classifier, the student. `loss` is ``loss(params, batch, w_d=None)``, which calls
        ``net(params, x, w_d)``; `predict` is `net`.
    teacher : {"argmax", "centred", "sinkhorn", "loss"} or callable
        Who says the domains of training samples. "argmax": a second network like the student, by its largest logit
        (Eq. 3). "centred", "sinkhorn": so, with a bias on the logits as in `fedlib.server.mixture.domain_bias`, of which the
        server takes one step in each round. "loss": the domain whose module gives the sample the smallest loss. Or a
        function ``teacher(data, key) -> w (K, N, D)``, called once before round 1 with all clients in ascending order
        of ids.
    refresh : int
        T: each time so many rounds are over, the teacher network becomes the student. 0: never.
    student_lr : float
        Learning rate of the student, which is trained by plain SGD.
    weights : {"hard", "soft", "student"}
        w_d in the training of the network: one-hot at the teacher's largest weight; the teacher's weights; or the
        probabilities of the student that was sent. The student always learns the teacher's weights.
    own_prior : bool
        Whether a client multiplies the student's probabilities by its own shares of the domains, if the teacher is a
        function. A new client estimates them with the student, without labels.
    gcn : DomainGCN or None
        None: the modules are used as they are.
    adjacency : {"distance", "eye", "uniform", "random"} or D rows of D numbers
        "distance": Eq. 6, computed by the server after each round from round `warm_up` on. The others stay as
        they are (`fedlib.server.domain_graph.adjacency`, `fedlib.server.domain_graph.hamming`).
    first : {"eye", "uniform", "random"}
        A before "distance" is computed.
    warm_up : int
        Rounds with the first A.
    beta : float
        Diagonal of A, from 0 to 1; with "distance", 1 is the identity.
    by_count : bool
        The mean of a domain's modules weighs a client by its samples of the domain, not by all its samples.
    frozen : tuple of str
        Parameters that stay as they are, such as ``("lam.dense1",)``.

    The other parameters are those of `fedlib.algorithm.Algorithm`.

    Raises
    ------
    ValueError
        A setting that is none of these; a net without a classifier.

    Notes
    -----
    FedCG Eq. 3-6. With lambda frozen at 0 a round is one of FedAvg, bit for bit. With ``gcn=None`` there is no graph,
    and with ``DomainNet(shared=False)`` no residual. `FedCG.recipe` has the settings of the paper and those of the
    book; the defaults are those of the book, but for the teacher and `weights`.

    A client is sent the model, the student and the teacher (if that is a network), W and A. It sends the model, the
    student, W, and how many of its samples each domain has. Chapters 05 and 06.

    References
    ----------
    Caldarola, Mancini, Galasso, Ciccone, Rodolà, Caputo. Cluster-driven graph federated learning over multiple domains.
    CVPR workshops 2021.
    """

    net: DomainNet = None  # type: ignore[assignment]  # comes after fields with defaults; checked below
    teacher: str | Callable[[ClientData, Key], Tensor] = "argmax"
    refresh: int = 0
    student_lr: float = 0.1
    weights: str = "hard"
    own_prior: bool = True
    gcn: DomainGCN | None = DomainGCN()  # noqa: RUF009  (it is frozen)
    adjacency: str | Sequence[Sequence[float]] = "distance"
    first: str = "eye"
    warm_up: int = 20
    beta: float = 0.5
    by_count: bool = False
    frozen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.net, DomainNet) or self.net.classifier is None:
            raise ValueError("FedCG needs net=DomainNet(...) with a classifier, the student")
        if not callable(self.teacher) and self.teacher not in TEACHERS:
            raise ValueError(f"teacher must be a function or one of {TEACHERS}; got {self.teacher!r}")
        if self.weights not in ("hard", "soft", "student"):
            raise ValueError(f"weights must be 'hard', 'soft' or 'student'; got {self.weights!r}")
        if self.refresh < 0 or self.warm_up < 0 or not self.student_lr > 0:
            raise ValueError("refresh and warm_up must be 0 or more, and student_lr positive")
        if not 0 <= self.beta <= 1:
            raise ValueError(f"beta must be from 0 to 1; got {self.beta}")
        if not isinstance(self.adjacency, str):
            given, d = torch.as_tensor(self.adjacency, dtype=torch.float64), self.net.domains
            if given.shape != (d, d) or not given.isfinite().all():
                raise ValueError(f"adjacency must be {d} rows of {d} numbers; got {self.adjacency!r}")
            if (given < 0).any() or ((given.sum(1) - 1).abs() > 1e-6).any():
                raise ValueError(
                    f"each row of adjacency must be weights of 0 or more that add up to 1; got {given.tolist()}"
                )
            object.__setattr__(self, "adjacency", tuple(map(tuple, given.tolist())))
        self._first_adjacency(0)  # says what is wrong with it

    @classmethod
    def recipe(cls, name: str, rounds: int, **settings: Any) -> "FedCG":
        """FedCG with the settings of the paper ("paper") or with those that work ("book"), and `settings` on top.

        "paper": a random teacher that becomes the student ten times in `rounds`, the student's learning rate 1e-4, w_d
        one-hot, A the identity until the teacher changes for the first time, the prior of no client. "book": w_d from
        the student, A the identity for 20 rounds, each client's own prior; give it a `teacher` that finds domains,
        such as `fedlib.server.mixture.em_domains`.
        """
        if name not in ("paper", "book"):
            raise ValueError(f"the recipe is 'paper' or 'book', got {name!r}")
        each = max(1, rounds // 10)
        paper = {"teacher": "argmax", "refresh": each, "student_lr": 1e-4, "warm_up": each, "own_prior": False}
        return cls(**({**paper, **settings} if name == "paper" else {"weights": "student", **settings}))

    # ---- before round 1 ----

    def init(self, params: Params, data: ClientData, key: Key) -> FedCGState:
        """Everything as `DomainNet.init` gave it, W as `DomainGCN.init` says; the teacher starts from another draw."""
        student, device, domains = part(params, "student"), data.n.device, self.net.domains
        if not student or not part(params, "V"):
            raise ValueError("params must be those of net.init: they hold no student.* or no V.*")
        dtype = next(iter(params.values())).dtype
        graph: Params = {}
        for layer in self.net.layers if self.gcn is not None else ():
            q = sum(p[0].numel() for p in part(params, f"V.{layer}").values())
            graph |= {f"W.{layer}.{n}": w for n, w in self.gcn.init(q, key.seed, layer).items()}  # type: ignore[union-attr]
        network = self.teacher in TEACHERS and self.teacher != "loss"
        draw = int(key.bits(torch.zeros(1, dtype=torch.int64), "teacher")[0]) % 2**32  # no seed of a user's
        teacher = self.net.classifier.init(draw) if network else {}  # type: ignore[union-attr]
        return FedCGState(
            models=broadcast({n: p for n, p in params.items() if not n.startswith("student.")}, 1),
            graph=broadcast({n: p.to(device, dtype) for n, p in graph.items()}, 1),
            student=broadcast(student, 1),
            teacher=broadcast({n: p.to(device, dtype) for n, p in teacher.items()}, 1),
            bias=torch.zeros(domains, device=device, dtype=dtype),
            adjacency=self._first_adjacency(key.seed).to(device, dtype),
            share=torch.full((domains,), torch.nan, device=device, dtype=dtype),
            round=0,
            found=torch.zeros(len(data), 0, domains, device=device, dtype=dtype),
            prior=torch.ones(len(data), domains, device=device, dtype=dtype),
        )

    def _first_adjacency(self, seed: int) -> Tensor:
        kind, domains = (self.first if self.adjacency == "distance" else self.adjacency), self.net.domains
        if isinstance(kind, str):
            return adjacency(kind, domains, self.beta, seed)
        return torch.tensor(kind, dtype=torch.float64)

    def prepare(self, state: FedCGState, data: ClientData, key: Key) -> FedCGState:
        """A teacher that is a function says the domains of all training samples."""
        if not callable(self.teacher):
            return state
        w, wanted = self.teacher(data, key).to(state.bias), (*data.index.shape, len(state.bias))
        if w.shape != wanted:
            raise ValueError(f"the teacher must give weights of shape {wanted}; got {tuple(w.shape)}")
        if not w.isfinite().all() or (w < 0).any():
            raise ValueError("the teacher must give weights of 0 or more, not NaN")
        if ((w.sum(-1) - 1).abs()[_real(data) > 0] > 1e-3).any():
            raise ValueError("the teacher's weights of a sample must add up to 1 over the domains")
        w = w * _real(data)[..., None]
        share, _ = spread(w.sum((0, 1)))
        share = torch.where(share * int(data.n.sum()) < 1, 0, share)  # not one sample: its module learns nothing
        prior = _prior(w, data.n, share) if self.own_prior else state.prior
        return replace(state, found=w, share=share, prior=prior)

    # ---- clients ----

    def train(self, state: FedCGState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Theta_k and W_k learn their samples' labels (Eq. 1, 4, 5), and the student their domains (Eq. 3)."""
        everybody, n_max = torch.zeros_like(clients), data.y.shape[1]
        start = take(state.models | state.graph, everybody)
        target, sums = self._teach(state, data, clients)
        w_d = self._answers(state, data, clients) if self.weights == "student" else target
        w_d = F.one_hot(w_d.argmax(-1), w_d.shape[-1]).to(w_d) if self.weights == "hard" else w_d
        # Batches name places, so that the losses find y and the weights of the domains there.
        places = replace(data, y=torch.arange(n_max, device=data.n.device).expand(len(data), n_max))
        a = state.adjacency.to(w_d).expand(len(data), -1, -1)
        end = self.local_training(start, places, key, (data.y, w_d, a), self._task, self.frozen)
        pupil = replace(self, lr=self.student_lr, optimizer=torch.optim.SGD)
        learned = pupil.local_training(
            take(state.student, everybody), places, key, (target,), self._imitate, purpose=DOMAINS
        )
        heads: dict[str, Params] = {"V": {}, "W": {}, "": {}}
        for name, p in end.params.items():
            heads[name[0] if name[:2] in ("V.", "W.") else ""][name] = p
        means = {"models": heads[""], "graph": heads["W"], "student": learned.params}
        counts = target.sum(1) if self.by_count else data.n[:, None].to(target).expand(-1, target.shape[-1])
        sums |= {name: cluster_sums(p, everybody, data.n, models=1) for name, p in means.items() if p}
        return Update(
            clients,
            summed=sums | {"modules": _module_sums(heads["V"], counts)},
            log={"loss": end.loss, "student": learned.loss},
            purpose={"student": DOMAINS, "domains": DOMAINS, "graph": GRAPH},
        )

    def _teach(self, state: FedCGState, data: ClientData, clients: Tensor) -> tuple[Tensor, Sums]:
        """The teacher's weights (C, N, D), 0 for padding, and what it tells the server of them."""
        if callable(self.teacher):
            return state.found[clients], {}
        real = _real(data)
        z = -self._losses(state, data) if self.teacher == "loss" else self._logits(state.teacher, data) + state.bias
        w = assign(z, real)
        sums = {"count": w.sum((0, 1))[None]}
        if self.teacher in ("centred", "sinkhorn"):
            p = z if self.teacher == "centred" else (z / _TAU).softmax(-1)
            sums["bias"] = (p * real[..., None]).sum((0, 1))[None]
        return w, {"domains": sums}

    @torch.no_grad()
    def _logits(self, classifier: Params, data: ClientData) -> Tensor:
        """Logits (C, N, D) of one classifier for all rows."""
        rows, place = data.index.unique(return_inverse=True)
        one = row(classifier, 0)
        dtype = next(iter(one.values())).dtype
        parts = [self.net.classifier(one, to_features(data.x[r], dtype)) for r in rows.split(_ROWS)]  # type: ignore[misc]
        return torch.cat(parts)[place]

    def _answers(self, state: FedCGState, data: ClientData, clients: Tensor) -> Tensor:
        """The student's probabilities (C, N, D), times the clients' own shares."""
        return (self._logits(state.student, data) + state.prior[clients].log()[:, None]).softmax(-1)

    @torch.no_grad()
    def _losses(self, state: FedCGState, data: ClientData) -> Tensor:
        """Loss of each sample with each domain's module alone, (C, N, D)."""
        params = self._connect(row(state.models | state.graph, 0), state.adjacency)
        x, one = data.x[data.index.flatten()], torch.eye(len(state.bias)).to(state.bias)

        def loss(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
            return self.loss(params, (x[None], y[None], torch.ones_like(w[:1])), w[None])  # type: ignore[call-arg]

        each = torch.vmap(torch.vmap(loss, (None, None, 0)), (0, 0, None))
        parts = zip(x.split(_ROWS), data.y.flatten().split(_ROWS), strict=True)
        return torch.cat([each(to_features(a, one.dtype), b, one) for a, b in parts]).view(*data.index.shape, -1)

    def _task(self, params: Params, batch: Batch, y: Tensor, w_d: Tensor, a: Tensor) -> Tensor:
        """The task's loss with V-hat for V; y (N,) and w_d (N, D) are those of all samples of the client."""
        x, place, real = batch
        return self.loss(self._connect(params, a), (x, y[place], real), w_d[place])  # type: ignore[call-arg]

    def _imitate(self, params: Params, batch: Batch, target: Tensor) -> Tensor:
        """Cross-entropy between the teacher's domains and the student's (Eq. 3)."""
        x, place, real = batch
        log_g = self.net.classifier(params, x).log_softmax(-1)  # type: ignore[misc]
        return weighted_mean(-(target[place] * log_g).sum(-1), real)

    def _connect(self, params: Params, a: Tensor) -> Params:
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
        shared = {n: p for n, p in state.models.items() if not n.startswith("V.")}
        own = {n: p[0] for n, p in state.models.items() if n.startswith("V.")}
        count = {n: p[0] for n, p in sums["modules"]["params"].items()}, sums["modules"]["weight"][0]
        modules = cluster_means(dict(zip(("params", "weight"), count, strict=True)), own)
        student = cluster_means(sums["student"], state.student)
        renew = bool(state.teacher) and self.refresh > 0 and t % self.refresh == 0
        learn = self.adjacency == "distance" and t >= self.warm_up
        state = replace(
            state,
            models=(cluster_means(sums["models"], shared) if shared else {}) | broadcast(modules, 1),
            graph=cluster_means(sums["graph"], state.graph) if "graph" in sums else state.graph,
            student=student,
            teacher=student if renew else state.teacher,
            adjacency=domain_adjacency(modules, self.beta).to(state.adjacency) if learn else state.adjacency,
            round=t,
        )
        return self._watch(state, sums["domains"], renew) if "domains" in sums else state

    def _watch(self, state: FedCGState, sums: Sums, renew: bool) -> FedCGState:
        """The shares of the domains, with a warning if they collapsed, and the next bias; 0 for a new teacher."""
        begins = "bias" in sums and not state.bias.any()  # a teacher that is about to be balanced
        share, _ = spread(sums["count"][0], 0 if begins else 0.5)
        bias = torch.zeros_like(state.bias)
        if "bias" in sums and not renew:
            mean = (sums["bias"][0] / sums["count"].sum()).to(bias)
            bias = state.bias - (mean if self.teacher == "centred" else _TAU * mean.clamp(min=1e-30).log())
        return replace(state, share=share.to(state.share), bias=bias - bias.mean())

    def client_params(self, state: FedCGState, clients: Tensor) -> Params:
        """The model with V-hat computed, the student, and the client's own prior: what it needs to answer."""
        model = self._connect(row(state.models | state.graph, 0), state.adjacency)
        everybody = model | {f"student.{n}": p[0] for n, p in state.student.items()}
        own = {"prior": state.prior[clients]} if self.own_prior and callable(self.teacher) else {}
        return broadcast(everybody, len(clients)) | own

    def download(self, state: FedCGState, clients: Tensor) -> dict[str, Any]:
        """Model, W and A, student, and a teacher that is a network."""
        one = torch.zeros_like(clients)
        classifiers: dict[str, Any] = {"student": take(state.student, one)}
        if state.teacher:
            classifiers |= {"teacher": take(state.teacher, one), "bias": state.bias.expand(len(clients), -1)}
        graph = {"A": state.adjacency.expand(len(clients), -1, -1)} if self.gcn is not None else {}
        return {
            TRAINING: take(state.models, one),
            DOMAINS: classifiers,
            GRAPH: graph | (take(state.graph, one) if state.graph else {}),
        }

    def new_clients(self, state: FedCGState, data: ClientData, key: Key, rounds: int) -> FedCGState:
        """A new client holds the server's model; its shares of the domains come from the student, without labels."""
        d = len(state.bias)
        prior = torch.ones(len(data), d).to(state.bias)
        new = replace(state, found=state.found.new_zeros(len(data), 0, d), prior=prior)
        if not (self.own_prior and callable(self.teacher)):
            return new
        logits, prior = self._logits(state.student, data), prior * (state.share > 0)
        for _ in range(_EM_STEPS):
            w = (logits + prior.log()[:, None]).softmax(-1) * _real(data)[..., None]
            prior = _prior(w, data.n, state.share)
        return replace(new, prior=prior)


def _real(data: ClientData) -> Tensor:
    """Which places of a client's rows hold a sample, of shape (C, N)."""
    return torch.arange(data.index.shape[1], device=data.n.device) < data.n[:, None]


def _prior(w: Tensor, n: Tensor, share: Tensor) -> Tensor:
    """Shares (C, D) of the domains in w (C, N, D), as multiples of those in all samples; 0 where there are none.

    D samples more, which are as all samples are, keep clients with few samples near 1.
    """
    d, least = len(share), torch.finfo(share.dtype).tiny
    return (w.sum(1) / share.clamp(min=least) + d) / (n[:, None] + d) * (share > 0)


def _module_sums(modules: Params, counts: Tensor) -> Sums:
    """Sums of the domains' modules (C, D, ...), each with its own weight (C, D)."""
    wide = counts.to(torch.promote_types(counts.dtype, torch.float32))
    total = {n: torch.einsum("cd,cd...->d...", wide, p.to(wide))[None] for n, p in modules.items()}
    return {"params": total, "weight": wide.sum(0)[None]}
