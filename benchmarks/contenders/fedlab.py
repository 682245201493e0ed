"""FedLab: its standalone pipeline with the serial trainer and the synchronous server that it calls FedAvg.

Set-up:

- It imports torchvision and PIL when it starts.
- Its trainer knows cross-entropy alone; for regression the loss is set after `setup_optim`.
- The evaluation after each round, which a user writes, is left out.
- It averages with float32 weights, so in float64 it agrees to about 1e-8.
"""

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline

from .plain_torch import Net, criterion, loader
from .worker import Job, Session, main


class Handler(SyncServerHandler):
    """The server with the cohorts that all contenders train; waits for the driver before each round."""

    def __init__(self, job: Job, session: Session):
        super().__init__(Net(job), global_round=10**6, sample_ratio=job.cohorts.shape[1] / len(job.x))
        self.job, self.session, self.t = job, session, 0

    def sample_clients(self):
        self.t = self.session.next_round(self.model.arrays)
        return self.job.cohort(self.t)


class Data:
    """The data loaders as the trainer asks for them."""

    def __init__(self, handler: Handler):
        self.handler = handler

    def get_dataloader(self, k, batch_size):
        return loader(self.handler.job, self.handler.t, k)


class Pipeline(StandalonePipeline):
    """Without evaluation."""

    def evaluate(self):
        pass


def run(job: Job, session: Session) -> None:
    handler = Handler(job, session)
    trainer = SGDSerialClientTrainer(Net(job), len(job.x))
    trainer.setup_dataset(Data(handler))
    trainer.setup_optim(job.epochs, job.batch_size, job.lr)
    trainer.criterion = criterion(job)
    Pipeline(handler, trainer).main()


if __name__ == "__main__":
    main(run, "fedlab", "torch")
