"""One client after another, as people write it: a copy of the model, a data loader and an optimiser for each client."""

import copy

from .plain_torch import Net, loader, train
from .worker import Job, Session, main


def run(job: Job, session: Session) -> None:
    server = Net(job)
    while True:
        t = session.next_round(server.arrays)
        states = []
        for k in job.cohort(t):
            client = copy.deepcopy(server)
            train(job, client, loader(job, t, k))
            states.append(client.state_dict())
        server.load_state_dict({name: sum(s[name] for s in states) / len(states) for name in states[0]})


if __name__ == "__main__":
    main(run, "torch")
