"""Fine-tuned FedAvg, Ditto and FedRep against slow loops written from their papers, in float64 on ragged clients."""

import pytest
import torch
from reference import averaged, cohort, mean_by_examples, trained
from twins import LOCAL, SEED, SIZES, client_data, fit, largest_difference, ragged_clients, rows_differ, twin

import fedlib
from fedlib.algorithms import Ditto, FedRep, FineTunedFedAvg, LGFedAvg

ROUNDS, COHORT = 4, 3
KEYS = [fedlib.Key(SEED, t) for t in range(1, ROUNDS + 2)]
NETWORKS = pytest.mark.parametrize(("network", "size"), [("MLP", len(SIZES)), ("CNN", COHORT)])
HEAD = {"MLP": "dense2", "CNN": "dense1"}
NEW = {900 + k: rows for k, rows in ragged_clients((4, 19), seed=5).items()}
T, TUNED = 3, {"fedavg_rounds": 3, "finetune_epochs": 3}


def towards(w, lam):
    """The pull of Ditto, lam / 2 ||v - w||^2."""
    return lambda v: lam / 2 * sum((p - w[name]).square().sum() for name, p in v.items())


def held(algorithm, result):
    return algorithm.client_params(result.state, torch.arange(len(result.ids)))


# --- against the papers -----------------------------------------------------------------------------------------------


@NETWORKS
def test_ditto(network, size, clients):
    """Algorithm 1 of Li et al. (2021): w by FedAvg, and v_k <- v_k - lr (grad F_k(v_k) + lambda (v_k - w^t))."""
    algorithm, result = fit(Ditto, clients, network, cohort=size, lam=0.6)
    w, _, module = twin(network)
    v = dict.fromkeys(clients, w)
    for key in KEYS[:ROUNDS]:
        drawn = cohort(clients, size, key)
        v |= {k: trained(module, v[k], clients[k], k, key, penalty=towards(w, 0.6)) for k in drawn}
        w = averaged(module, w, clients, cohort(clients, size, key), key)
    assert rows_differ(result.state.models, [w]) <= 1e-10
    assert rows_differ(result.state.own, v.values()) <= 1e-10
    assert rows_differ(held(algorithm, result), v.values()) <= 1e-10


@NETWORKS
@pytest.mark.parametrize("together", [False, True], ids=["FedRep", "FedPer"])
def test_fedrep(network, size, together, clients):
    """Algorithm 1 of Collins et al. (2021); and FedPer, which trains both parts at once, is LG-FedAvg of the head."""
    name = HEAD[network]
    kind, settings = (LGFedAvg, {}) if together else (FedRep, {"head_epochs": 3})
    algorithm, result = fit(kind, clients, network, cohort=size, local=(name,), **settings)
    phi, _, module = twin(network)

    def is_head(n):
        return n.startswith(f"{name}.")

    head = {k: {n: p for n, p in phi.items() if is_head(n)} for k in clients}
    for key in KEYS[:ROUNDS]:
        ends = {}
        for k in cohort(clients, size, key):
            steps = [{}] if together else [{"epochs": 3, "moving": is_head}, {"moving": lambda n: not is_head(n)}]
            end = phi | head[k]
            for step in steps:
                end = trained(module, end, clients[k], k, key, **step)
            head[k] = {n: p for n, p in end.items() if is_head(n)}
            ends[k] = {n: p for n, p in end.items() if not is_head(n)}
        phi = phi | mean_by_examples(ends, clients)
    assert rows_differ(result.state.local, head.values()) <= 1e-10
    assert rows_differ(held(algorithm, result), [phi | head[k] for k in clients]) <= 1e-10


@pytest.mark.parametrize(("network", "size", "rate"), [("MLP", len(SIZES), None), ("CNN", COHORT, 0.03)])
def test_fine_tuning(network, size, rate, clients):
    """FedAvg to the end, then every client trains the last model; one round more goes on from there."""
    w, _, module = twin(network)
    for key in KEYS[:T]:
        w = averaged(module, w, clients, cohort(clients, size, key), key)
    v = dict.fromkeys(clients, w)
    never = set(clients).difference(*(cohort(clients, size, key) for key in KEYS[:T]))
    assert never or size == len(clients)
    for t, key in enumerate(KEYS[T : T + 2], T + 1):
        v = {k: trained(module, v[k], clients[k], k, key, epochs=3, lr=rate or LOCAL["lr"]) for k in clients}
        algorithm, result = fit(FineTunedFedAvg, clients, network, t, size, finetune_lr=rate, **TUNED)
        assert rows_differ(result.state.models, [w]) <= 1e-10
        assert rows_differ(held(algorithm, result), v.values()) <= 1e-10
    assert result.history["clients"].tolist() == [size] * T + [len(clients)] * 2


# --- new clients ------------------------------------------------------------------------------------------------------

ENROLLED = {  # settings; what a client trains in a round from the server's model w
    "Ditto": (Ditto, {"lam": 0.6}, lambda w: {"penalty": towards(w, 0.6)}),
    "FedRep": (FedRep, {"head_epochs": 3}, lambda w: {"epochs": 3, "moving": lambda name: name not in w}),
    "fine-tuning": (FineTunedFedAvg, {"rounds": T + 1, **TUNED}, lambda w: {"epochs": 3}),
}


@pytest.mark.parametrize("case", ENROLLED)
def test_a_new_client_trains_from_the_servers_model(case, clients):
    """Ditto's towards it; FedRep's a head of the start, on the representation as it is."""
    kind, settings, training = ENROLLED[case]
    algorithm, result = fit(kind, clients, cohort=COHORT, **settings)
    (start, _, module), w = twin("MLP"), fedlib.params.row(result.state.models, 0)
    v = dict.fromkeys(NEW, start | w)
    for t in (1, 2):
        v = {k: trained(module, v[k], NEW[k], k, fedlib.Key(11, t), **training(w)) for k in NEW}
    served = fedlib.new_clients(algorithm, result, client_data(NEW), rounds=2, seed=11)
    assert rows_differ(held(algorithm, served), v.values()) <= 1e-10


# --- the rounds of fine-tuning ----------------------------------------------------------------------------------------


def test_a_run_too_short_to_fine_tune_says_so(clients):
    with pytest.warns(UserWarning, match="no client has fine-tuned: run more rounds than fedavg_rounds=3"):
        fit(FineTunedFedAvg, clients, rounds=3, fedavg_rounds=3)


def test_who_is_lost_while_fine_tuning_goes_on_with_the_servers_model(clients):
    """And is scored with it, beside others who have one of their own; here it is the first two, and more."""
    data, seed, module = client_data(clients), 8, twin("MLP")[2]
    algorithm, result = fit(FineTunedFedAvg, clients, rounds=T + 1, seed=seed, lost=0.4, **TUNED)
    there = fedlib.Key(seed, T + 1).uniform(data.id, "drop-out") >= 0.4
    assert torch.equal(result.state.tuned, there) and there.any() and not there[:2].any()
    own, accuracy = held(algorithm, result), fedlib.evaluate(algorithm, result, data)["accuracy"]
    for k, (x, y) in enumerate(clients.values()):
        theta = fedlib.params.row(own, k)
        assert (largest_difference(theta, fedlib.params.row(result.state.models, 0)) > 1e-6) == there[k]
        module.load_state_dict(theta)
        assert accuracy[k] == pytest.approx(float((module(x).argmax(1) == y).double().mean()))
