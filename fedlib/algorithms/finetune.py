"""Fine-tuned federated averaging, in which each client trains FedAvg's last model on its own data."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..algorithm import Update, held
from ..checks import number, whole
from ..data import ClientData
from ..keys import Key
from ..params import Params, broadcast, per_row, take
from .fedavg import FedAvg, FedAvgState

__all__ = ["FineTunedFedAvg", "FineTunedFedAvgState"]

_FINE_TUNING = "fine-tuning"  # in the costs


@dataclass(frozen=True)
class FineTunedFedAvgState(FedAvgState):
    """State of FedAvg, whose model no longer changes once fine-tuning begins, and the clients' models.

    Attributes
    ----------
    own : Params
        Stack of K rows with each client's fine-tuned model.
    tuned : Tensor of shape (K,), bool
        Whether each client has fine-tuned; a client that has not holds the server's model.
    round : int
        Rounds from which an update arrived.
    """

    own: Params = field(metadata=held("client"))
    tuned: Tensor = field(metadata=held("client"))
    round: int


@dataclass(frozen=True)
class FineTunedFedAvg(FedAvg):
    """FedAvg for `fedavg_rounds` rounds, after which every client fine-tunes the model and keeps the result.

    For example, ``fit(FineTunedFedAvg(loss, fedavg_rounds=100), params, data, 101, 10)`` runs 100 rounds of FedAvg with
    10 clients each. In round 101 every client, whether it was ever in a cohort or not, trains the last model for
    `finetune_epochs` epochs on its own examples, and from then on predicts with the result. The server keeps FedAvg's
    model. Each further round adds as many epochs, so the history shows how long to fine-tune.

    Parameters as in `fedlib.algorithm.Algorithm`, and

    Parameters
    ----------
    fedavg_rounds : int
        T, rounds of FedAvg. Run `fit` for more rounds than this; otherwise the algorithm is FedAvg and no client
        fine-tunes. With 0 it is `fedlib.algorithms.local_only.LocalOnly` with all clients in each cohort.
    finetune_epochs : int
        Local epochs of each client in a round of fine-tuning.
    finetune_lr : float, optional
        Learning rate of fine-tuning. None means `lr`, the rate of FedAvg. Near 0 the clients keep FedAvg's model.

    Raises
    ------
    ValueError
        A setting out of its range.

    Warns
    -----
    UserWarning
        At the end of a run of `fedavg_rounds` or fewer, in which no client has fine-tuned.

    Notes
    -----
    Fine-tuning costs operations, which the history lists separately as ``flops (fine-tuning)``, but no bytes, because
    clients send nothing back. Sending the last model to all clients is not counted either; neither is it for FedAvg,
    whose clients also predict with the last model. (It is counted over Flower, and in a run with a round in which all
    clients were lost.) No client is slow during fine-tuning. A client that is lost in that round continues with the
    server's model. A new client fine-tunes the server's model for as many rounds as it is given.

    The papers also fine-tune with other optimisers. For that, or to fine-tune one model in several ways, run FedAvg
    and then LocalOnly from ``params.row(result.state.models, 0)``, which gives the same result if settings and
    shuffles are equal.

    There is no equation beyond FedAvg's. The papers' texts were not available, so the code was checked against the
    baseline of that name in the program of Ditto's authors (litian96/ditto on GitHub). Chapter 04.

    References
    ----------
    Cheng, Chadha, Duchi. Fine-tuning is fine in federated learning. arXiv:2108.07313, 2021.
    Jiang, Konečný, Rush, Kannan. Improving federated learning personalization via model agnostic meta learning.
    arXiv:1909.12488, 2019.
    Yu, Bagdasaryan, Shmatikov. Salvaging federated learning by local adaptation. arXiv:2002.04758, 2020.

    Examples
    --------
    With ``loss``, ``model`` and ``data`` as in the example of `fedlib.federation.fit`:

    >>> from fedlib.algorithms import FineTunedFedAvg
    >>> algorithm = FineTunedFedAvg(loss, fedavg_rounds=3, predict=model)
    >>> result = fit(algorithm, model.init(0), data, rounds=4, progress=False)  # three of FedAvg, one at home
    >>> len(result.history)
    4
    """

    fedavg_rounds: int = whole(100, least=0)
    finetune_epochs: int = whole(1)
    finetune_lr: float | None = number(None, above=True)

    def init(self, params: Params, data: ClientData, key: Key) -> FineTunedFedAvgState:
        """One model for all clients, of which none has fine-tuned."""
        own = {name: p.clone() for name, p in broadcast(params, len(data)).items()}
        tuned = torch.zeros_like(data.n, dtype=torch.bool)
        return FineTunedFedAvgState(**vars(super().init(params, data, key)), own=own, tuned=tuned, round=0)

    def cohort(self, state: Any, ids: Tensor, n: int, key: Key) -> Tensor:
        """FedAvg's cohort, or all clients in a round of fine-tuning."""
        return super().cohort(state, ids, n if key.round <= self.fedavg_rounds else len(ids), key)

    def train(self, state: Any, data: ClientData, clients: Tensor, key: Key) -> Update:
        """FedAvg's training, or local training whose result stays on the client in a round of fine-tuning."""
        if key.round <= self.fedavg_rounds:
            return super().train(state, data, clients, key)
        end = self.at_home().local_training(self.client_params(state, clients), data, key, purpose=_FINE_TUNING)
        kept = {"own": end.params, "tuned": torch.ones_like(clients, dtype=torch.bool)}
        return Update(clients, client_state=kept, log={"loss": end.loss})

    def at_home(self) -> "FineTunedFedAvg":
        """The same algorithm with the settings of fine-tuning."""
        return replace(self, epochs=self.finetune_epochs, lr=self.finetune_lr or self.lr, stragglers=0.0)

    def aggregate(self, state: Any, update: Update) -> FineTunedFedAvgState:
        """FedAvg's mean, or the unchanged model if nothing was sent."""
        state = super().aggregate(state, update) if update.summed else state
        return replace(state, round=state.round + 1)

    def client_params(self, state: Any, clients: Tensor) -> Params:
        """The server's model, or the fine-tuned model of each client that has one."""
        shared = super().client_params(state, clients)
        if not state.tuned.any():
            return shared
        own, tuned = take(state.own, clients), state.tuned[clients]
        return {name: torch.where(per_row(tuned, p).bool(), own[name], p) for name, p in shared.items()}

    def download(self, state: Any, clients: Tensor) -> dict[str, Any]:
        """The server's model in FedAvg's rounds, and nothing in rounds of fine-tuning."""
        return super().download(state, clients) if state.round < self.fedavg_rounds else {}

    def unreached(self, state: Any, rounds: int) -> str:
        """Fine-tuning, if the run had too few rounds for it."""
        said = f"no client has fine-tuned: run more rounds than fedavg_rounds={self.fedavg_rounds}, or set it lower"
        return said if rounds <= self.fedavg_rounds else ""

    def new_clients(self, state: Any, data: ClientData, key: Key, rounds: int) -> FineTunedFedAvgState:
        """A new client starts from the server's model and fine-tunes it for `rounds` rounds."""
        start = super().client_params(state, torch.zeros_like(data.n))
        own = self.at_home().local_rounds(start, data, key, rounds, purpose=_FINE_TUNING)
        return replace(state, own=own, tuned=torch.ones_like(data.n, dtype=torch.bool))
