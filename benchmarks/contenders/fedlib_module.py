"""The library with a torch module of the user's own, through `fedlib.models.Model`."""

from fedlib.models import Model

from .fedlib_layers import fit
from .plain_torch import Net
from .worker import Job, Session, main


def run(job: Job, session: Session) -> None:
    predict = Model(Net(job))
    params = predict.params
    fit(job, session, predict, params)


if __name__ == "__main__":
    main(run, "torch")
