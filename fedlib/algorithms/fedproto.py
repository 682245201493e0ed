"""FedProto, in which clients share the mean embeddings of their classes instead of parameters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..aggregate import cluster_means, part_sums
from ..algorithm import Algorithm, Update, held
from ..checks import number
from ..client.prototype_net import PrototypeNet
from ..costs import flops_of, record
from ..data import Batch, ClientData, one_class
from ..keys import Key
from ..losses import weighted_mean
from ..params import Params, put, row, take
from ..stacked import vmap

__all__ = ["FedProto", "FedProtoState"]


@dataclass(frozen=True)
class FedProtoState:
    """State of FedProto.

    Attributes
    ----------
    prototypes : Params
        Stack of one row, with ``prototype`` (1, Y, h), the global prototype of each class, and ``known`` (1, Y), which
        is 1 for classes that have one.
    local : Params
        Stack of K rows, each client's own network, ``0.dense1.weight`` and so on, and ``architecture`` (K, A), which
        says which network that is. Parameters of other architectures keep their initialisation.
    start : Params
        Stack of one row, the initialisation of each architecture.
    """

    prototypes: Params = field(metadata=held("server and clients"))
    local: Params = field(metadata=held("client"))
    start: Params


@dataclass(frozen=True)
class FedProto(Algorithm):
    """Each client trains its own network, whose embeddings are pulled towards the mean embedding of their class.

    In a round, the server sends the global prototype of each class, and a client's loss grows with the distance of its
    embeddings from these prototypes. After training, the client sends its own prototypes, which are the mean embeddings
    of its classes, and the number of examples behind each; the server takes their mean, weighted by these numbers. No
    parameter crosses the network, so clients may have networks of different architectures.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    net : PrototypeNet
        The networks. `loss` is ``loss(params, batch, h=None)``, which calls ``net(params, x, h)``; `predict` is
        ``net.nearest``, the nearest global prototype (Eq. 4), or `net`, the client's own last layer.
    architecture : sequence of int
        The networks of the clients, counted from 0. The client with id k has ``architecture[k % len(architecture)]``,
        so ``(0, 1)`` alternates between two networks, for new clients as well.
    lam : float
        Weight lambda of the distance. With 0, each client trains alone, although prototypes are still sent.

    Raises
    ------
    ValueError
        A setting is out of its range, or `architecture` names a network that does not exist.

    Notes
    -----
    Algorithm 1 and Eq. 3 to 8 of the paper (arXiv:2105.00243). The atlas lists where the printed text and the authors'
    program (yuetan031/FedProto on GitHub) differ, and which of them is followed here.

    - The distance (Eq. 8) is the squared distance of each example's embedding from the global prototype of its class,
      as a mean over examples and over the h entries of an embedding. The paper's lambda, 1 for MNIST and FEMNIST and
      0.1 for CIFAR-10, refers to this distance. A class without a prototype does not contribute.
    - A client's prototypes (Eq. 3) are means over all its examples, with its network after training.
    - The global prototype (Eq. 6) is the mean over the cohort, weighted by examples of the class; a class that no
      client in the cohort has keeps its old prototype.
    - Clients with the same architecture have the same initialisation.

    If a client has one example of a class, the prototype that it sends is the embedding of that example. Prototypes of
    all classes are sent both ways, with zeros and the count 0 for classes that a client lacks. In the costs, embedding
    all examples after training has the purpose "prototypes". The training loss in the history includes the distance.
    Chapter 13.

    References
    ----------
    Tan, Long, Liu, Zhou, Lu, Jiang, Zhang. FedProto: federated prototype learning across heterogeneous clients. AAAI
    2022.
    """

    net: PrototypeNet = field(kw_only=True)
    architecture: Sequence[int] = (0,)
    lam: float = number(1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not set(self.architecture) <= set(range(len(self.net.nets))) or not len(self.architecture):
            raise ValueError(f"architecture must number some of {len(self.net.nets)} nets; got {self.architecture!r}")

    def init(self, params: Params, data: ClientData, key: Key) -> FedProtoState:
        """All clients at the initialisation of their architectures, and no class with a prototype yet."""
        start = {name: p[None] for name, p in params.items() if name not in ("prototype", "known")}
        prototypes = {name: torch.zeros_like(params[name])[None] for name in ("prototype", "known")}
        return FedProtoState(prototypes, self._at_start(start, data), start)

    def _at_start(self, start: Params, data: ClientData) -> Params:
        numbers = torch.tensor(self.architecture, device=data.id.device)[data.id % len(self.architecture)]
        chosen = F.one_hot(numbers, len(self.net.nets)).to(start["architecture"])
        return {name: p.repeat_interleave(len(data), 0) for name, p in start.items()} | {"architecture": chosen}

    # ---- clients, one architecture after another ----

    def _by_architecture(self, local: Params) -> Iterator[tuple[Tensor, Params]]:
        """For each architecture, the positions of its clients and a stack of its parameters alone."""
        for a in range(len(self.net.nets)):
            place = local["architecture"][:, a].nonzero()[:, 0]
            if len(place):
                yield place, {name: p[place] for name, p in local.items() if name.startswith(f"{a}.")}

    def train_networks(self, local: Params, prototypes: Params, data: ClientData, key: Key) -> tuple[Params, Tensor]:
        """Rows and losses (C,) of C clients after local training."""
        loss = prototypes["known"].new_zeros(len(data))
        for place, own in self._by_architecture(local):
            sent = take(prototypes, torch.zeros_like(place))
            end = self.local_training(own, data[place], key, (sent,), self.pulled_loss)
            local = local | put({name: local[name] for name in own}, place, end.params)
            loss = put(loss, place, end.loss)
        return local, loss

    def pulled_loss(self, params: Params, batch: Batch, prototypes: Params) -> Tensor:
        """L_S + lambda L_R (Eq. 7)."""
        x, y, w, *_ = batch
        h = self.net.embed(params, x)
        distance = (h - prototypes["prototype"][y]).square().mean(-1) * prototypes["known"][y]
        return self.loss(params, batch, h) + self.lam * weighted_mean(distance, w)

    @torch.no_grad()
    def local_prototypes(self, local: Params, data: ClientData) -> tuple[Tensor, Tensor]:
        """C_i^(j) (C, Y, h), the mean embedding of each class (Eq. 3), and n_ij (C, Y); 0 for a class with no data."""
        total = local["architecture"].new_zeros(len(data), *self.net.shape)
        member = (F.one_hot(data.y, self.net.shape[0]) * data.real[..., None]).to(total)  # (C, N, Y)
        for place, own in self._by_architecture(local):
            x, *_ = data[place].all_rows(total.dtype)
            total[place] = member[place].mT @ vmap(self.net.embed)(own, x)
            record("prototypes", flops=int(data.n[place].sum()) * flops_of(self.net.embed, row(own, 0), x[0, :1]))
        count = member.sum(1)
        return total / count.clamp(min=1)[..., None], count

    def train(self, state: FedProtoState, data: ClientData, clients: Tensor, key: Key) -> Update:
        """Train with the global prototypes, then send the client's own."""
        one_class(data.y, "FedProto", 2)
        local, loss = self.train_networks(take(state.local, clients), state.prototypes, data, key)
        prototypes, count = self.local_prototypes(local, data)
        sums = part_sums({"prototype": prototypes}, count)
        return Update(clients, sums, client_state={"local": local}, log={"loss": loss})

    # ---- the server ----

    def aggregate(self, state: FedProtoState, update: Update) -> FedProtoState:
        """The mean of each class's prototypes, weighted by examples (Eq. 6 without its first factor)."""
        means = cluster_means(update.summed, previous={"prototype": state.prototypes["prototype"]})
        known = state.prototypes["known"]
        return replace(state, prototypes=means | {"known": known.maximum((update.summed["weight"] > 0).to(known))})

    # ---- who holds what ----

    def client_params(self, state: FedProtoState, clients: Tensor) -> Params:
        """A client's own network and the global prototypes."""
        return take(state.local, clients) | take(state.prototypes, torch.zeros_like(clients))

    def new_clients(self, state: FedProtoState, data: ClientData, key: Key, rounds: int) -> FedProtoState:
        """A new client trains its network from the initialisation for `rounds` rounds, with the prototypes fixed."""
        local = self._at_start(state.start, data)
        for t in range(1, rounds + 1):
            local, _ = self.train_networks(local, state.prototypes, data, Key(key.seed, t))
        return replace(state, local=local)
