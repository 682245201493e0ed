"""pfl (Apple): `SimulatedBackend` with `FederatedAveraging` and its PyTorch model.

Set-up:

- A dataset of ours gives the batches in the order that all contenders use.
- Clients are never scored, and metrics never reported.
- Differences from the server's model are float32 whatever the model is, so in float64 it agrees to about 1e-9.
"""

import itertools

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from .plain_torch import Net, criterion
from .worker import Job, Session, main


class NetWithLoss(Net):
    """A network as pfl asks for it."""

    def __init__(self, job: Job):
        super().__init__(job)
        self.criterion = criterion(job)

    def loss(self, x, y):
        return self.criterion(self(x), y)

    def metrics(self, x, y):
        return {}


class Ordered(Dataset):
    """One client's data in one round: each pass over it is an epoch, in the drawn order."""

    def __init__(self, job: Job, t: int, k: int):
        super().__init__([torch.from_numpy(job.x[k]), torch.from_numpy(job.y[k])], user_id=str(k))
        self.epochs = iter(torch.from_numpy(job.order(t, k)))

    def iter(self, batch_size):
        for rows in next(self.epochs).split(batch_size):
            yield [part[rows] for part in self.raw_data]


class Rounds(TrainingProcessCallback):
    """Waits for the driver before each round."""

    def __init__(self, session: Session):
        self.session, self.t = session, 0

    def on_train_begin(self, *, model):
        self.t = self.session.next_round(model.pytorch_model.arrays)
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.t = self.session.next_round(model.pytorch_model.arrays)
        return False, Metrics()


def run(job: Job, session: Session) -> None:
    rounds = Rounds(session)
    users = itertools.chain.from_iterable(iter(lambda: job.cohort(rounds.t), None))
    data = FederatedDataset(lambda k: Ordered(job, rounds.t, k), lambda: next(users))
    network = NetWithLoss(job)
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    fedavg = FederatedAveraging()
    fedavg._current_central_iteration = 1  # iteration 0 would score every client before and after its training
    fedavg.run(
        NNAlgorithmParams(10**6, evaluation_frequency=10**6, train_cohort_size=job.cohorts.shape[1], val_cohort_size=0),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(local_num_epochs=job.epochs, local_learning_rate=job.lr, local_batch_size=job.batch_size),
        callbacks=[rounds],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main(run, "pfl", "torch")
