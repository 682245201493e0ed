"""The library with a torch module of the user's own, through `fedlib.models.from_module`."""

from fedlib.models import from_module

from .fedlib_layers import fit
from .plain_torch import Net
from .worker import Job, Session, main


def run(job: Job, session: Session) -> None:
    params, predict = from_module(Net(job))
    fit(job, session, predict, params)


if __name__ == "__main__":
    main(run, "torch")
