"""The library through `fedlib.fit`. It draws cohorts and batches itself; that is in its time."""

import torch

import fedlib
from fedlib import losses
from fedlib.algorithms import FedAvg

from ..works import WORKS
from .worker import Job, Session, main


def run(job: Job, session: Session) -> None:
    predict, criterion = WORKS[job.name].model, losses.cross_entropy if job.classes else losses.mse

    def loss(params, batch):  # of ONE client
        x, y, w = batch
        return criterion(predict(params, x), y, w)

    def callback(t, state, record):
        session.next_round(lambda: {name: p[0].numpy() for name, p in state.models.items()})

    fedavg = FedAvg(loss, lr=job.lr, batch_size=job.batch_size, epochs=job.epochs)
    start = {name: torch.from_numpy(p) for name, p in job.start.items()}
    data, cohort, rounds = fedlib.stack_clients(job.x, job.y), job.cohorts.shape[1], 10**6
    session.next_round(lambda: job.start)
    fedlib.fit(fedavg, start, data, rounds, cohort, callbacks=[callback], device="cpu", progress=False)


if __name__ == "__main__":
    main(run, "torch")
