"""Settings with which an algorithm is another one: each client holds the same, for the same bytes and operations."""

from itertools import cycle

import pytest
import torch
from every import kind_of
from twins import SEED, client_data, fit, largest_difference, make, ragged_clients, twin

import fedlib

COHORT = {"cohort": 5}
HUGE_TAU = {"tau": 1e6, "server_lr": 2e6, "beta1": 0.0}  # v starts at tau^2: the root of v plus tau is 2 tau
LIMITS = {  # the algorithm, its settings, its limit, the run, how far apart they may be, and whether they cost the same
    "FedProx without a pull": ("FedProx", {"mu": 0.0}, "FedAvg", COHORT, 1e-12, True),
    "SCAFFOLD in round 1": ("Scaffold", {}, "FedAvg", COHORT | {"rounds": 1}, 1e-12, False),
    "FedAvgM without momentum": ("FedAvgM", {"beta1": 0.0}, "FedAvg", COHORT, 1e-12, True),
    "FedAdagrad, huge tau": ("FedAdagrad", HUGE_TAU, "FedAvg", {"rounds": 2}, 1e-5, True),
    "FedAdam, huge tau": ("FedAdam", HUGE_TAU | {"beta2": 0.999999}, "FedAvg", {"rounds": 2}, 1e-5, True),
    "FedYogi, huge tau": ("FedYogi", HUGE_TAU | {"beta2": 0.999999}, "FedAvg", {"rounds": 2}, 1e-5, True),
    "LG-FedAvg, all shared": ("LGFedAvg", {"local": ()}, "FedAvg", COHORT, 0, True),
    "LG-FedAvg, nothing shared": ("LGFedAvg", {"local": ("conv1", "conv2", "dense1")}, "LocalOnly", COHORT, 0, True),
    "FedRep without a head": ("FedRep", {"local": ()}, "FedAvg", COHORT, 1e-12, True),
    "Ditto without a pull": ("Ditto", {"lam": 0}, "LocalOnly", COHORT, 1e-12, False),
    "fine-tuning to come": ("FineTunedFedAvg", {"fedavg_rounds": 9}, "FedAvg", COHORT, 0, True),
    "fine-tuning alone": ("FineTunedFedAvg", {"fedavg_rounds": 0, "finetune_epochs": 2}, "LocalOnly", {}, 0, True),
    "CFL, never split": ("CFL", {"eps1": 0, "eps2": 0}, "FedAvg", COHORT, 1e-12, True),
    "split-half CFL, never tested": ("SplitHalfCFL", {"level": 0}, "FedAvg", COHORT, 1e-12, True),
    "split-half CFL with local layers, never tested": ("LGCFL", {"level": 0}, "LGFedAvg", COHORT, 1e-12, True),
    "IFCA, one cluster": ("IFCA", {"clusters": 1}, "FedAvg", COHORT, 0, False),
    "k-means, one cluster": ("ClusteredKMeans", {"clusters": 1}, "FedAvg", COHORT, 0, True),
    "FedGroup, one cluster": ("FedGroup", {"clusters": 1}, "FedAvg", COHORT, 0, True),
    "FeSEM, one cluster": ("FeSEM", {"clusters": 1}, "FedAvg", COHORT, 1e-12, False),  # sums of 20 theta_k over 20 K
    "PACFL, one cluster": ("PACFL", {"threshold": 91}, "FedAvg", COHORT, 0, True),
    "PACFL, clusters of one": ("PACFL", {"threshold": 0}, "LocalOnly", COHORT, 1e-12, False),
    "pFedGraph, huge alpha": ("PFedGraph", {"alpha": 1e9, "lam": 0}, "FedAvg", {}, 1e-8, False),
    "pFedGraph, small alpha": ("PFedGraph", {"alpha": 1e-3, "lam": 0}, "LocalOnly", COHORT, 0, False),
}
PLACED_OTHERWISE = "Ditto", "FineTunedFedAvg", "PACFL", "PFedGraph"  # new clients train the server's model or mix


@pytest.mark.filterwarnings("ignore:no client has fine-tuned")
@pytest.mark.parametrize(("case", "network"), [*zip(LIMITS, cycle(["MLP", "CNN"]), strict=False)])
def test_in_the_limit_one_algorithm_is_another(case, network):
    """From where its models start: FeSEM's and FedGroup's from a first training."""
    name, settings, limit, run, tolerance, same_costs = LIMITS[case]
    kind, limit = kind_of(name), kind_of(limit)
    clients = ragged_clients((20,) * 8) if name == "FeSEM" else ragged_clients()  # FeSEM does not weigh by examples
    algorithm, ours = fit(kind, clients, network, **run, **settings)
    data, everybody, params = client_data(clients), torch.arange(8), twin(network)[0]
    begin = algorithm.prepare(algorithm.init(params, data, fedlib.Key(SEED)), data, fedlib.Key(SEED))
    start = fedlib.params.row(algorithm.client_params(begin, everybody), 0)
    assert (largest_difference(start, params) > 1e-3) == (name in ("FeSEM", "FedGroup"))
    run = {"rounds": run.get("rounds", 4), "clients_per_round": run.get("cohort"), "seed": SEED, "progress": False}
    other = make(limit, network)
    theirs = fedlib.fit(other, start, data, **run)
    pairs = ((algorithm, ours), (other, theirs))
    held = [a.client_params(result.state, everybody) for a, result in pairs]
    assert held[0].keys() == held[1].keys() and largest_difference(*held) <= tolerance
    a, b = (result.history.query("round > 0").reset_index(drop=True) for result in (ours, theirs))
    assert a["train_loss"].tolist() == pytest.approx(b["train_loss"].tolist(), rel=0, abs=10 * tolerance)
    if name not in PLACED_OTHERWISE:
        new = client_data({1000 + k: xy for k, xy in ragged_clients((3, 9), seed=5).items()})
        held = [a.client_params(fedlib.new_clients(a, r, new, 2).state, torch.arange(2)) for a, r in pairs]
        assert largest_difference(*held) <= tolerance
    costs = ["bytes_down", "bytes_up", "examples", "flops"]
    assert a[costs].equals(b[costs]) == same_costs
