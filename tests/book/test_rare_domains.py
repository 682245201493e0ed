"""What is averaged in the arms of rare domains."""

import numpy as np
import torch

import fedlib
from book.experiments import rare_domains as experiment
from book.experiments.worlds import EXACT
from fedlib.client.domain_net import part
from fedlib.params import row, to_matrix


def test_a_module_of_own_clients_is_what_these_clients_reach():
    """After a round with one client of each domain, in a mean over all it has a quarter of the way behind it."""
    data, _, _ = experiment.deal(experiment.SETTINGS | {"digits": 80, "clients": 4}, experiment.TURNS["four turns"], 0)
    found = {}
    for name in ("modules", experiment.OWN_CLIENTS):
        algorithm = experiment.method(name, data, np.arange(4), 99)
        start = algorithm.predict.init(0)
        end = fedlib.fit(algorithm, start, data, 1, **EXACT).state
        before = to_matrix(part(start, "V")).double()
        found[name] = to_matrix(row(end.modules, 0)) - before
    torch.testing.assert_close(found[experiment.OWN_CLIENTS], 4 * found["modules"])
    assert found["modules"].abs().max() > 1e-6
