"""Settings that an algorithm cannot have are refused, by name, when it is made or at the latest when it runs."""

from functools import partial

import numpy as np
import pytest
import torch
from every import kind_of
from twins import fit, ragged_clients

SPLIT = {"eps1": 0.5, "eps2": 0.6}
ABOVE, AT_LEAST = "must be a number above 0; got", "must be a number of at least 0; got"
SHARE, COUNT = "must be a number of at least 0 and below 1; got", "must be a whole number of at least 1; got"
REFUSED = [
    ("FedProx", {"mu": -1}, f"mu {AT_LEAST} -1"),
    ("Scaffold", {"optimizer": partial(torch.optim.SGD, momentum=0.9)}, "SCAFFOLD needs plain SGD"),
    ("FedAvgM", {"server_lr": 0}, f"server_lr {ABOVE} 0"),
    ("FedAdam", {"beta1": 1}, f"beta1 {SHARE} 1"),
    ("FedYogi", {"beta2": 2}, f"beta2 {SHARE} 2"),
    ("FedAdagrad", {"tau": 0}, f"tau {ABOVE} 0"),
    ("IFCA", {"clusters": 0}, f"clusters {COUNT} 0"),
    ("ClusteredKMeans", {"clusters": 2.5}, f"clusters {COUNT} 2.5"),
    ("FedGroup", {"clusters": "3"}, f"clusters {COUNT} '3'"),
    ("FeSEM", {"warmup": 0}, f"warmup {COUNT} 0"),
    *((name, {"clusters": 9}, "number of clients, 8; got 9") for name in ("FeSEM", "FedGroup", "ClusteredKMeans")),
    ("PACFL", {"vectors": 0}, f"vectors {COUNT} 0"),
    ("PACFL", {"threshold": -1}, f"threshold {AT_LEAST} -1"),
    ("PFedGraph", {"alpha": 0}, f"alpha {ABOVE} 0"),
    ("PFedGraph", {"alpha": -1.0}, f"alpha {ABOVE} -1.0"),
    ("PFedGraph", {"lam": -0.1}, f"lam {AT_LEAST} -0.1"),
    ("CFL", {**SPLIT, "eps1": -1}, f"eps1 {AT_LEAST} -1"),
    ("CFL", {**SPLIT, "eps2": float("nan")}, f"eps2 {AT_LEAST} nan"),
    ("SplitHalfCFL", {"level": 1.0}, f"level {SHARE} 1.0"),
    ("SplitHalfCFL", {"level": -0.1}, f"level {SHARE} -0.1"),
    *(("SplitHalfCFL", {setting: 0}, f"{setting} {COUNT} 0") for setting in ("every", "test_epochs", "min_size")),
    ("LGCFL", {"local": ["dense3"]}, r"local names \['dense3'\], which no parameter has"),
    ("LGCFL", {"local": ["dense1", "dense2"]}, "leaves no layer to share"),
    ("LGFedAvg", {"local": ("dense",)}, r"local names \['dense'\], which no parameter has; there are \['dense1"),
    ("LGFedAvg", {"assignment": [0, 1]}, r"must give 8 clients clusters from 0 to 7; got \[0, 1\]"),
    ("LGFedAvg", {"assignment": [0, 1, -1, 0, 0, 0, 0, 0]}, "clusters from 0 to 7"),
    ("LGFedAvg", {"mmd": -1}, f"mmd {AT_LEAST} -1"),
    ("LGFedAvg", {"pool": 0}, f"pool {COUNT} 0"),
    ("Ditto", {"lam": -1}, f"lam {AT_LEAST} -1"),
    ("FedRep", {"head_epochs": 0}, f"head_epochs {COUNT} 0"),
    ("FedRep", {"local": ("head",)}, r"local names \['head'\], which no parameter has"),
    ("FedRep", {"local": ("dense1", "dense2")}, "leaves no layer to share; without one, take LocalOnly"),
    ("FineTunedFedAvg", {"fedavg_rounds": -1}, "fedavg_rounds must be a whole number of at least 0"),
    ("FineTunedFedAvg", {"finetune_lr": 0}, "finetune_lr must be a number above 0, or None; got 0"),
    ("FineTunedFedAvg", {"finetune_epochs": 0}, f"finetune_epochs {COUNT} 0"),
]


def test_numbers_of_numpy_are_as_good_as_pythons():
    _, plain = fit(kind_of("IFCA"), ragged_clients(), rounds=1, clusters=3, lr=0.5)
    _, given = fit(kind_of("IFCA"), ragged_clients(), rounds=1, clusters=np.int64(3), lr=np.float32(0.5))
    assert all(torch.equal(p, given.state.models[n]) for n, p in plain.state.models.items())


@pytest.mark.parametrize(("name", "wrong", "message"), REFUSED)
def test_settings_out_of_range_are_refused(name, wrong, message):
    with pytest.raises(ValueError, match=message):
        fit(kind_of(name), ragged_clients(), rounds=1, **wrong)


WRONG_KINDS = [
    ("LGFedAvg", {"local": "dense1"}, r"local must be a list of names, such as \['dense1'\]"),
    ("FedRep", {"local": "dense2"}, r"local must be a list of names, such as \['dense2'\]"),
    ("CFL", {}, "missing 2 required keyword-only arguments: 'eps1' and 'eps2'"),  # the paper gives no values
]


@pytest.mark.parametrize(("name", "wrong", "message"), WRONG_KINDS)
def test_settings_of_a_wrong_kind_are_refused(name, wrong, message):
    with pytest.raises(TypeError, match=message):
        fit(kind_of(name), ragged_clients(), rounds=1, **wrong)
