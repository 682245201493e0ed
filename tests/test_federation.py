"""The loop of rounds: devices, slow and lost clients, clients never seen, runs that end early."""

import builtins
import math

import pytest
import torch
from every import numbers
from reference import batches, trained
from twins import client_data, fit, largest_difference, ragged_clients, twin

import fedlib
from fedlib.algorithms import FedAdam, FedAvg, FedAvgM, LocalOnly, Scaffold
from fedlib.federation import choose_device, new_clients

DATA = client_data(ragged_clients())


def run(kind=FedAvg, rounds=4, clients_per_round=None, data=DATA, **settings):
    return fit(kind, data, rounds=rounds, cohort=clients_per_round, **settings)[1]


def equal(state, other):
    """Whether two states are the same to the bit."""
    return all(torch.equal(*pair) for pair in zip(numbers(state), numbers(other), strict=True))


def test_dtype_and_device_are_explicit():
    models = run(dtype=torch.float32, device="cpu").state.models
    assert {p.dtype for p in models.values()} == {torch.float32}
    assert largest_difference(models, run().state.models) <= 1e-5
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert choose_device("auto").type == expected and choose_device("cpu").type == "cpu"


def test_heavy_packages_wait_until_they_are_needed(run_python):
    heavy = {"sklearn", "matplotlib", "torchvision", "torch_geometric", "mlxtend", "scipy"}
    code = f"import sys, fedlib, fedlib.server.clusters\nfrom fedlib import *\nprint(*({heavy!r} & set(sys.modules)))"
    assert run_python("-W", "ignore", "-c", code) == "\n"


# Slow clients.

SLOW = {"stragglers": 0.6, "batch_size": 8, "epochs": 2}


@pytest.mark.parametrize("network", ["MLP", "CNN"])
@pytest.mark.parametrize("chunk_size", [1, 3, "auto"])
def test_a_straggler_stops_after_its_steps(network, chunk_size, clients):
    """Against a loop over clients and steps."""
    params, _, module = twin(network)
    state = run(LocalOnly, 1, network=network, chunk_size=chunk_size, seed=3, **SLOW).state
    key, slow = fedlib.Key(3, 1), 0
    for position, (k, (x, y)) in enumerate(clients.items()):
        slow += len(batches(k, len(x), key, **SLOW)) < 2 * math.ceil(len(x) / 8)
        end = trained(module, params, (x, y), k, key, **SLOW)
        assert largest_difference(fedlib.params.row(state.local, position), end) <= 1e-12
    assert 1 < slow < len(clients)


# Lost clients.


def lost(seed, t, ids, share):
    return [float(fedlib.Key(seed, t).uniform(torch.tensor([k]), "drop-out")) < share for k in ids]


@pytest.mark.parametrize("cohort", [None, 5])
def test_the_mean_is_over_the_clients_that_arrived(cohort):
    settings = {"network": "CNN", "batch_size": 8, "seed": 2}
    result, key = run(FedAvg, 1, cohort, lost=0.4, **settings), fedlib.Key(2, 1)
    drawn = key.choose(DATA.id, cohort, "cohort") if cohort else torch.arange(len(DATA))
    arrived = drawn[~torch.tensor(lost(2, 1, DATA.id[drawn], 0.4))]
    assert 0 < len(arrived) < len(drawn) and result.history["clients"].tolist() == [len(arrived)]
    there = run(FedAvg, 1, data=DATA[arrived], **settings)
    assert largest_difference(result.state.models, there.state.models) <= 1e-12
    assert result.history["train_loss"][0] == pytest.approx(there.history["train_loss"][0], abs=1e-12)


@pytest.mark.parametrize(("algorithm", "memory"), [(Scaffold, "c_i"), (LocalOnly, "local")])
def test_a_lost_client_forgets_the_round(algorithm, memory):
    states = []
    run(algorithm, 2, seed=2, lost=0.5, callbacks=[lambda t, state, record: states.append(getattr(state, memory))])
    before, after = states
    gone = lost(2, 2, DATA.id.tolist(), 0.5)
    assert 0 < sum(gone) < len(gone)
    for k, away in enumerate(gone):
        assert equal(fedlib.params.row(before, k), fedlib.params.row(after, k)) == away


@pytest.mark.parametrize("algorithm", [FedAvg, FedAdam, Scaffold, LocalOnly])
def test_a_round_without_clients_changes_nothing(algorithm):
    states, data = [], DATA[:2]
    note = [lambda t, state, record: states.append(state)]
    history = run(algorithm, 12, 1, data, lost=0.7, eval_data=data, callbacks=note).history
    empty = [t for t in range(1, 12) if history["clients"][t] == 0]
    assert 3 < len(empty) < 11 and history["test_accuracy"].notna().all()
    assert all(equal(states[t - 1], states[t]) for t in empty)


# Clients never seen.

NEW = {k + 500: client for k, client in ragged_clients((3, 9, 30), seed=9).items()}
NEW_DATA = client_data(NEW)


@pytest.mark.parametrize("algorithm", [FedAvg, Scaffold, FedAvgM])
def test_a_new_client_holds_the_model_of_the_server(algorithm):
    """And of SCAFFOLD no control variate yet."""
    algorithm, result = fit(algorithm, DATA, rounds=3, cohort=5)
    new = new_clients(algorithm, result, NEW_DATA[[2, 0, 1]])
    held = algorithm.client_params(new.state, torch.arange(3))
    assert new.ids.tolist() == list(NEW)
    assert all(torch.equal(p, result.state.models[n].expand_as(p)) and len(p) == 3 for n, p in held.items())
    if isinstance(algorithm, Scaffold):
        assert all(len(p) == 3 and not p.any() for p in new.state.c_i.values()) and equal(new.state.c, result.state.c)
    with pytest.raises(ValueError, match=r"clients \[13, 31\] were in training"):
        new_clients(algorithm, result, client_data(ragged_clients() | NEW)[[1, 9, 7]])


# Runs that end early.


def raising(error, last):
    """A callback that raises this in round `last`."""

    def callback(t, state, record):
        record["said"] = t
        if t == last:
            raise error

    return callback


def test_a_callback_can_end_the_run(tmp_path):
    """The round in which it says so is the last one, also of the checkpoint, and is scored."""
    settings = {"eval_data": DATA, "eval_every": 5}
    stored = settings | {"checkpoint": fedlib.Checkpoint(tmp_path / "run")}
    result = run(rounds=9, callbacks=[raising(StopIteration, 2)], **stored)
    assert result.history["said"].tolist() == [1, 2]
    found, expected = (some.history["test_accuracy"].tolist() for some in (result, run(rounds=2, **settings)))
    assert found == pytest.approx(expected, nan_ok=True) and found[1] > 0
    same = run(rounds=9, callbacks=[raising(StopIteration, 2)], **stored)
    assert same.history["said"].tolist() == [1, 2], "the same call does not train on"
    assert run(rounds=3, **stored).history["round"].tolist() == [1, 2, 3]


def test_an_interruption_carries_the_rounds_before_it(monkeypatch):
    """In a notebook it is the result."""
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(rounds=5, callbacks=[raising(KeyboardInterrupt, 3)])
    found, expected = stopped.value.result, run(rounds=2)
    columns = ["round", "train_loss", "bytes_up", "examples"]
    assert found.history[columns].equals(expected.history[columns]) and equal(found.state, expected.state)
    monkeypatch.setattr(builtins, "get_ipython", lambda: None, raising=False)
    with pytest.warns(UserWarning, match="interrupted: the result holds 2 rows"):
        result = run(rounds=5, callbacks=[raising(KeyboardInterrupt, 3)])
    assert result.history["round"].tolist() == [1, 2]
