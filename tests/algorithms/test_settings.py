"""Settings that an algorithm cannot have are refused, by name, when it is made or at the latest when it runs."""

from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
import torch
from every import NAMES, federation, kind_of
from refusals import refusals
from twins import fit, ragged_clients

COUNTS = ["components", "epochs", "every", "finetune_epochs", "head_epochs"]
COUNTS += ["min_size", "pair_rounds", "pool", "test_epochs", "vectors"]
RANGES = {  # what is said, and of which settings, each with a value out of its range
    "a number above 0": {"lr": 0, "server_lr": 0, "student_lr": 0, "tau": 0, "alpha": -1.0},
    "a number above 0, or None": {"finetune_lr": 0},
    "a number of at least 0": {"mu": -1, "lam": -0.1, "mmd": -1, "threshold": -1, "eps1": -1, "eps2": float("nan")},
    "a number of at least 0 and below 1": {"stragglers": 1, "beta1": 1, "beta2": 2, "level": -0.1},
    "a number of at least 0 and at most 1": {"beta": 2},
    "a whole number of at least 0": {"refresh": -1, "warm_up": -1, "fedavg_rounds": -1},
    "a whole number of at least 1": {"clusters": 2.5, "warmup": "3"} | dict.fromkeys(COUNTS, 0),
    "a whole number of at least 1, or None": {"batch_size": 0},
    'a whole number of at least 1, or "auto"': {"chunk_size": 0},
    "a whole number of at least 3": {"trainers": 2},
}
SETTINGS = {name: (wrong, words) for words, some in RANGES.items() for name, wrong in some.items()}
REFUSED = {
    ValueError: {
        "SCAFFOLD needs plain SGD": ("Scaffold", {"optimizer": partial(torch.optim.SGD, momentum=0.9)}),
        "from 1 to the number of clients, 8; got 9": ("FeSEM", {"clusters": 9}),
        "leaves no layer to share": ("LGCFL", {"local": ["dense1", "dense2"]}),
        r"local names \['dense'\], which no parameter has; there are \['dense1": ("LGFedAvg", {"local": ("dense",)}),
        r"must give 8 clients clusters from 0 to 7; got \[0, 1\]": ("LGFedAvg", {"assignment": [0, 1]}),
        "clusters from 0 to 7": ("LGFedAvg", {"assignment": [0, 1, -1, 0, 0, 0, 0, 0]}),
        "leaves no layer to share; without one, take LocalOnly": ("FedRep", {"local": ("dense1", "dense2")}),
    },
    TypeError: {
        r"local must be a list of names, such as \['dense1'\]": ("LGFedAvg", {"local": "dense1"}),
        # the paper gives no values
        "missing 2 required keyword-only arguments: 'eps1' and 'eps2'": ("CFL", {}),
    },
}
test_refused = refusals(REFUSED, lambda given: fit(kind_of(given[0]), ragged_clients(), rounds=1, **given[1]))


@pytest.mark.parametrize("name", NAMES)
def test_each_number_has_its_range(name):
    algorithm = federation(name)[0]
    for field in (f for f in fields(algorithm) if f.init and (f.name in SETTINGS or f.type in (int, float))):
        wrong, words = SETTINGS[field.name]
        with pytest.raises(ValueError, match=f"{field.name} must be {words}; got {wrong!r}"):
            replace(algorithm, **{field.name: wrong})


def test_numbers_of_numpy_are_as_good_as_pythons():
    _, plain = fit(kind_of("IFCA"), ragged_clients(), rounds=1, clusters=3, lr=0.5)
    _, given = fit(kind_of("IFCA"), ragged_clients(), rounds=1, clusters=np.int64(3), lr=np.float32(0.5))
    assert all(torch.equal(p, given.state.models[n]) for n, p in plain.state.models.items())
