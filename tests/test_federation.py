"""The loop of rounds: history, callbacks, evaluation sets, devices, slow and lost clients, clients never seen."""

import builtins
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from every import numbers
from torch.nn.functional import cross_entropy
from twins import TWINS, classification_loss, client_data, largest_difference, ragged_clients, twin

import fedlib
from fedlib import Algorithm, Update
from fedlib.aggregate import cluster_sums
from fedlib.algorithms import FedAdam, FedAvg, FedAvgM, FedProx, LocalOnly, Scaffold
from fedlib.federation import choose_device, new_clients


def run(rounds=4, clients_per_round=3, data=None, network="MLP", **settings):
    params, predict, _ = twin(network)
    algorithm = FedAvg(classification_loss(predict), lr=0.1, predict=predict)
    data = client_data(ragged_clients()) if data is None else data
    return fedlib.fit(algorithm, params, data, rounds, clients_per_round, progress=False, **settings)


def test_history_has_one_row_a_round():
    data = client_data(ragged_clients())
    history = run(eval_data={"validation": data[:3], "test": data}, eval_every=3).history
    assert history["round"].tolist() == [1, 2, 3, 4] and history["clients"].tolist() == [3] * 4
    assert history["test_accuracy"].notna().tolist() == [False, False, True, True]
    assert history["validation_accuracy"].between(0, 1).tolist() == [False, False, True, True]
    assert (history["seconds"] > 0).all() and (history["train_loss"] > 0).all()


def test_evaluation_sets_are_matched_by_id():
    data = client_data(ragged_clients())
    a = run(eval_data=data[[6, 1, 3]]).history["test_accuracy"]
    b = run(eval_data=data[[1, 3, 6]]).history["test_accuracy"]
    assert a.tolist() == b.tolist() and a.nunique() > 1


def test_callbacks_see_each_round_and_add_columns():
    seen = []

    def callback(t, state, record):
        seen.append(t)
        record["norm"] = float(fedlib.params.norm(state.models))

    history = run(callbacks=[callback]).history
    assert seen == [1, 2, 3, 4] and history["norm"].nunique() == 4


def test_seed_decides():
    a, b, c = run(seed=1).state.models, run(seed=1).state.models, run(seed=2).state.models
    assert all(torch.equal(a[n], b[n]) for n in a) and not torch.equal(a["dense1.weight"], c["dense1.weight"])


def test_dtype_and_device_are_explicit():
    models = run(dtype=torch.float32, device="cpu").state.models
    assert {p.dtype for p in models.values()} == {torch.float32}
    torch.testing.assert_close(models["dense1.weight"].double(), run().state.models["dense1.weight"], atol=1e-5, rtol=0)


def test_choose_device():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert choose_device("auto").type == expected and choose_device("cpu").type == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("network", TWINS)
def test_gpu_equals_cpu(network):
    a, b = (run(device=device, network=network).state.models for device in ("cuda", "cpu"))
    assert all(torch.allclose(a[n].cpu(), b[n], atol=1e-10) for n in a)


@dataclass(frozen=True)
class Proximal(FedAvg):
    """FedProx in ten lines: what a new algorithm needs of the base class."""

    mu: float = 0.5

    def prepare(self, state, data, key):
        return replace(state, models={name: p + 1 for name, p in state.models.items()})

    def cohort(self, state, ids, n, key):
        return super().cohort(state, ids, n, key).flip(0)

    def train(self, state, data, clients, key):
        def loss(params, batch, start):
            return self.loss(params, batch) + self.mu / 2 * sum((params[n] - start[n]).square().sum() for n in start)

        start = self.client_params(state, clients)
        end = self.local_training(start, data, key, extras=(start,), loss=loss, frozen=("dense1.bias",))
        return Update(clients, cluster_sums(end.params, torch.zeros_like(clients), data.n, 1), log={"loss": end.loss})


def test_a_new_algorithm_is_a_few_lines():
    """Loss terms, extras, frozen names, preparation: against a loop over clients."""
    params, predict, module = twin("MLP")
    clients = ragged_clients()
    algorithm = Proximal(classification_loss(predict), lr=0.1, batch_size=8, mu=0.7)
    result = fedlib.fit(algorithm, params, client_data(clients), 1, 3, seed=4, progress=False)
    key, ids = fedlib.Key(4, 1), torch.tensor(list(clients))
    start = {name: p + 1 for name, p in params.items()}
    total, examples = {name: 0 * p for name, p in params.items()}, 0
    for k in key.choose(ids, 3, "cohort"):
        x, y = clients[int(ids[k])]
        module.load_state_dict(start)
        trained = {name: p for name, p in module.named_parameters() if name != "dense1.bias"}
        for rows in key.permutations(ids[k][None], "batches", torch.tensor([len(x)]), 1, len(x))[0, 0].split(8):
            pull = 0.35 * sum((p - start[name]).square().sum() for name, p in trained.items())
            loss = torch.nn.functional.cross_entropy(module(x[rows]), y[rows]) + pull
            gradients = torch.autograd.grad(loss, list(trained.values()))
            with torch.no_grad():
                for p, g in zip(trained.values(), gradients, strict=True):
                    p -= 0.1 * g
        examples += len(x)
        for name, p in module.named_parameters():
            total[name] = total[name] + len(x) * p.detach()
    expected = {name: p / examples for name, p in total.items()}
    assert largest_difference({n: p[0] for n, p in result.state.models.items()}, expected) <= 1e-12


def test_heavy_packages_wait_until_they_are_needed():
    heavy = {"sklearn", "matplotlib", "torchvision", "torch_geometric", "mlxtend", "scipy"}
    code = f"import sys; from fedlib import *; print(fit.__name__, *({heavy!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["fit"]


def test_callbacks_may_add_numbers_of_torch_and_numpy_and_arrays():
    def callback(t, state, record):
        record |= {
            "a": torch.tensor(t),
            "b": np.float32(0.5),
            "c": torch.ones(1),
            "d": np.arange(3),
            "e": None,
            "f": "x",
        }

    history = run(callbacks=[callback], rounds=2).history
    assert history.loc[1, ["a", "b", "c", "d", "e", "f"]].tolist() == [2, 0.5, 1.0, [0, 1, 2], None, "x"]
    assert history["a"].dtype == int and history["b"].dtype == float and history["c"].dtype == float


# Slow clients.

SLOW = {"stragglers": 0.6, "lr": 0.1, "batch_size": 8, "epochs": 2}


def steps_of(key, client, n):
    """How many steps of 8 examples a client takes in two epochs, if 60 % are slow."""
    one, most = torch.tensor([client]), 2 * -(-n // 8)
    if float(key.uniform(one, "slow")) >= 0.6:
        return most
    return 1 + int(float(key.uniform(one, "steps of the slow")) * most)


@pytest.mark.parametrize("network", ["MLP", "CNN"])
@pytest.mark.parametrize("chunk_size", [1, 3, "auto"])
def test_a_straggler_stops_after_its_steps(network, chunk_size, clients):
    """Against a loop over clients and steps."""
    params, predict, module = twin(network)
    algorithm = LocalOnly(classification_loss(predict), chunk_size=chunk_size, **SLOW)
    state = fedlib.fit(algorithm, params, client_data(clients), 1, seed=3, progress=False).state
    key, slow = fedlib.Key(3, 1), 0
    for position, (k, (x, y)) in enumerate(clients.items()):
        module.load_state_dict(params)
        orders = key.permutations(torch.tensor([k]), "batches", torch.tensor([len(x)]), 2, len(x))[0]
        batches = [rows for order in orders for rows in order.split(8)]
        steps = steps_of(key, k, len(x))
        slow += steps < len(batches)
        for rows in batches[:steps]:
            gradients = torch.autograd.grad(cross_entropy(module(x[rows]), y[rows]), list(module.parameters()))
            with torch.no_grad():
                for p, g in zip(module.parameters(), gradients, strict=True):
                    p -= 0.1 * g
        own = {name: p[position] for name, p in state.local.items()}
        assert largest_difference(own, dict(module.named_parameters())) <= 1e-12
    assert 1 < slow < len(clients)


def trained_steps(ids, rounds=1, stragglers=0.3, seed=0, chunk_size="auto"):
    """Steps that clients of 10 examples take, one example a step: counted by a loss whose gradient is 1."""
    data = fedlib.stack_rows(np.zeros((10, 1), np.float32), np.zeros(10), [np.arange(10)] * len(ids), ids=ids)
    algorithm = LocalOnly(
        lambda p, b: p["theta"] + 0 * b[2].sum(), lr=1, batch_size=1, stragglers=stragglers, chunk_size=chunk_size
    )
    result = fedlib.fit(algorithm, {"theta": torch.zeros(())}, data, rounds, seed=seed, progress=False)
    return dict(zip(result.ids.tolist(), (-result.state.local["theta"]).int().tolist(), strict=True))


def test_the_share_of_the_slow_and_their_steps():
    """Among 4000 clients; six standard deviations of the binomial, so that it fails once in 10^8 seeds."""
    steps = np.array(list(trained_steps(range(4000)).values()))
    counts = np.bincount(steps, minlength=11)
    assert steps.min() == 1 and steps.max() == 10 and len(counts) == 11
    expected = np.array([0] + [0.03] * 9 + [0.73])  # a slow client may take all of its steps
    assert (abs(counts / 4000 - expected) <= 6 * np.sqrt(expected * (1 - expected) / 4000)).all()


def test_who_is_slow_depends_on_id_round_and_seed_only():
    ids = list(range(40, 100))
    everybody = trained_steps(ids)
    assert trained_steps(ids[::-1], chunk_size=7) == everybody
    few = trained_steps([90, 41, 55])
    assert few == {k: everybody[k] for k in few}
    assert trained_steps(ids, seed=1) != everybody
    second = {k: total - everybody[k] for k, total in trained_steps(ids, rounds=2).items()}
    assert second != everybody and set(second.values()) <= set(range(1, 11))


# Lost clients.


def lost(seed, t, ids, share):
    return [float(fedlib.Key(seed, t).uniform(torch.tensor([k]), "drop-out")) < share for k in ids]


@pytest.mark.parametrize("cohort", [None, 5])
def test_the_mean_is_over_the_clients_that_arrived(cohort, clients):
    params, predict, _ = twin("CNN")
    algorithm, data = FedAvg(classification_loss(predict), batch_size=8), client_data(clients)
    result = fedlib.fit(algorithm, params, data, 1, cohort, seed=2, lost=0.4, progress=False)
    key = fedlib.Key(2, 1)
    drawn = key.choose(data.id, cohort, "cohort") if cohort else torch.arange(len(data))
    gone = torch.tensor(lost(2, 1, data.id[drawn], 0.4))
    arrived = drawn[~gone]
    assert 0 < len(arrived) < len(drawn) and result.history["clients"].tolist() == [len(arrived)]
    there = fedlib.fit(algorithm, params, data[arrived], 1, seed=2, progress=False)
    assert largest_difference(result.state.models, there.state.models) <= 1e-12
    assert result.history["train_loss"][0] == pytest.approx(there.history["train_loss"][0], abs=1e-12)


@pytest.mark.parametrize(("algorithm", "memory"), [(Scaffold, "c_i"), (LocalOnly, "local")])
def test_a_lost_client_forgets_the_round(algorithm, memory, clients):
    params, predict, _ = twin("MLP")
    data, algorithm = client_data(clients), algorithm(classification_loss(predict))
    states = []
    fedlib.fit(
        algorithm, params, data, 2, seed=2, lost=0.5, callbacks=[lambda t, s, r: states.append(s)], progress=False
    )
    before, after = (getattr(s, memory) for s in states)
    gone = lost(2, 2, data.id.tolist(), 0.5)
    assert 0 < sum(gone) < len(gone)
    for k, away in enumerate(gone):
        assert all(torch.equal(before[n][k], after[n][k]) for n in before) == away


@pytest.mark.parametrize("algorithm", [FedAvg, FedAdam, Scaffold, LocalOnly])
def test_a_round_without_clients_changes_nothing(algorithm):
    params, predict, _ = twin("MLP")
    data = client_data(ragged_clients())[:2]
    states = []
    result = fedlib.fit(
        algorithm(classification_loss(predict), predict=predict),
        params,
        data,
        12,
        1,
        lost=0.7,
        eval_data=data,
        callbacks=[lambda t, state, record: states.append(state)],
        progress=False,
    )
    empty = [t for t in range(1, 12) if result.history["clients"][t] == 0]
    assert 3 < len(empty) < 11 and result.history["test_accuracy"].notna().all()
    for t in empty:
        assert all(torch.equal(*pair) for pair in zip(numbers(states[t - 1]), numbers(states[t]), strict=True))


def test_the_share_of_the_lost_and_what_it_depends_on():
    """Each of 3000 clients alone; six standard deviations."""
    gone = lost(0, 1, range(3000), 0.3)
    assert abs(np.mean(gone) - 0.3) <= 6 * np.sqrt(0.3 * 0.7 / 3000)
    ids = list(range(40, 100))
    data = fedlib.stack_rows(np.zeros((1, 1), np.float32), np.zeros(1), [[0]] * 60, ids=ids)

    def arrived(data, chunk_size="auto"):
        algorithm = LocalOnly(lambda p, b: p["theta"] + 0 * b[2].sum(), lr=1, chunk_size=chunk_size)
        params = {"theta": torch.zeros(())}
        result = fedlib.fit(algorithm, params, data, 1, lost=0.3, progress=False)
        return result.ids[result.state.local["theta"] != 0].tolist()

    there = [k for k, away in zip(ids, lost(0, 1, ids, 0.3), strict=True) if not away]
    assert arrived(data) == arrived(data[torch.arange(60).flip(0)], 7) == there
    assert arrived(data[[50, 3, 17]]) == [k for k in (43, 57, 90) if k in there]


@pytest.mark.parametrize("algorithm", [FedProx, Scaffold, LocalOnly])
def test_nobody_slow_and_nobody_lost_is_the_plain_run_to_the_bit(algorithm, clients):
    params, predict, _ = twin("CNN")
    args = params, client_data(clients), 2, 5
    a = fedlib.fit(algorithm(classification_loss(predict)), *args, progress=False).state
    zero = algorithm(classification_loss(predict), stragglers=0)
    b = fedlib.fit(zero, *args, lost=0, progress=False).state
    almost = algorithm(classification_loss(predict), stragglers=1e-12)
    c = fedlib.fit(almost, *args, lost=1e-12, progress=False).state
    assert all(torch.equal(*pair) for other in (b, c) for pair in zip(numbers(a), numbers(other), strict=True))


# Clients never seen.

NEW = {k + 500: client for k, client in ragged_clients((3, 9, 30), seed=9).items()}


def trained(algorithm, **settings):
    params, predict, _ = twin("MLP")
    algorithm = algorithm(classification_loss(predict), predict=predict, batch_size=8, **settings)
    return algorithm, fedlib.fit(algorithm, params, client_data(ragged_clients()), 3, 5, seed=1, progress=False), params


@pytest.mark.parametrize("algorithm", [FedAvg, Scaffold, FedAvgM])
def test_a_new_client_holds_the_model_of_the_server(algorithm):
    algorithm, result, _ = trained(algorithm)
    new = new_clients(algorithm, result, client_data(NEW)[[2, 0, 1]])
    held = algorithm.client_params(new.state, torch.arange(3))
    assert new.ids.tolist() == list(NEW)
    assert all(torch.equal(p, result.state.models[n].expand_as(p)) and len(p) == 3 for n, p in held.items())


def test_a_new_client_of_scaffold_has_no_control_variate_yet():
    algorithm, result, _ = trained(Scaffold)
    state = new_clients(algorithm, result, client_data(NEW)).state
    assert all(len(p) == 3 and not p.any() for p in state.c_i.values())
    assert all(torch.equal(p, result.state.c[n]) for n, p in state.c.items())


@pytest.mark.parametrize(
    ("settings", "rounds"), [({"stragglers": 0.5}, 1), ({"epochs": 2, "optimizer": torch.optim.Adam}, 4)]
)
def test_a_new_local_client_trains_as_it_would_have_alone(settings, rounds):
    algorithm, result, params = trained(LocalOnly, **settings)
    new = new_clients(algorithm, result, client_data(NEW), rounds, seed=6)
    scratch = fedlib.fit(algorithm, params, client_data(NEW), rounds, seed=6, progress=False)
    assert all(torch.equal(p, scratch.state.local[n]) for n, p in new.state.local.items())
    assert len(result.state.local["dense1.bias"]) == 8


@pytest.mark.parametrize("algorithm", [FedAvg, Scaffold, LocalOnly])
def test_new_clients_are_scored_as_others(algorithm):
    algorithm, result, _ = trained(algorithm)
    new = new_clients(algorithm, result, client_data(NEW), 2)
    scores = fedlib.evaluate(algorithm, new, client_data(NEW)[[1, 2]])
    for position, (id, accuracy) in enumerate(zip(scores["id"], scores["accuracy"], strict=True), 1):
        own = {n: p[0] for n, p in algorithm.client_params(new.state, torch.tensor([position])).items()}
        x, y = NEW[id]
        assert accuracy == pytest.approx(float((algorithm.predict(own, x).argmax(1) == y).double().mean()))
    with pytest.raises(ValueError, match="not in training"):
        fedlib.evaluate(algorithm, new, client_data(ragged_clients()))


def test_new_clients_refuses_clients_of_the_training():
    algorithm, result, _ = trained(FedAvg)
    with pytest.raises(ValueError, match=r"clients \[13, 31\] were in training"):
        new_clients(algorithm, result, client_data(ragged_clients() | NEW)[[1, 9, 7]])


def test_an_algorithm_without_a_rule_for_new_clients_says_so():
    @dataclass(frozen=True)
    class Plain(FedAvg):
        new_clients = Algorithm.new_clients

    algorithm, result, _ = trained(Plain)
    with pytest.raises(
        NotImplementedError, match="Plain does not say how it serves clients never seen.*: define new_clients"
    ):
        new_clients(algorithm, result, client_data(NEW))


def test_the_round_in_which_a_callback_ends_the_run_is_scored():
    def stop(t, state, record):
        if t == 2:
            raise StopIteration

    params, predict, _ = twin("MLP")
    algorithm, data = FedAvg(classification_loss(predict), predict=predict), client_data(ragged_clients())
    settings = {"eval_data": data, "eval_every": 5, "progress": False}
    result = fedlib.fit(algorithm, params, data, 9, callbacks=[stop], **settings)
    want = fedlib.fit(algorithm, params, data, 2, **settings)
    found, expected = (run.history["test_accuracy"].tolist() for run in (result, want))
    assert found == pytest.approx(expected, nan_ok=True) and found[1] > 0


def test_a_callback_can_end_the_run(tmp_path):
    """The round in which it says so is the last one, also of the checkpoint."""

    def stop(t, state, record):
        record["said"] = t
        if t == 2:
            raise StopIteration

    params, predict, _ = twin("MLP")
    algorithm, data = FedAvg(classification_loss(predict)), client_data(ragged_clients())
    settings = {"callbacks": [stop], "checkpoint": fedlib.Checkpoint(tmp_path / "run"), "progress": False}
    result = fedlib.fit(algorithm, params, data, 5, **settings)
    assert result.history["said"].tolist() == [1, 2]
    same = fedlib.fit(algorithm, params, data, 5, **settings)
    assert same.history["said"].tolist() == [1, 2], "the same call does not train on"
    again = fedlib.fit(algorithm, params, data, 3, checkpoint=fedlib.Checkpoint(tmp_path / "run"), progress=False)
    assert again.history["round"].tolist() == [1, 2, 3]


def interrupted_after(rounds):
    def callback(round, state, record):
        if round == rounds:
            raise KeyboardInterrupt

    return callback


def test_an_error_carries_the_rounds_before_it(clients):
    """A loss that explodes in round 3, and an interruption."""
    params, predict, _ = twin("MLP")
    data, loss = client_data(clients), classification_loss(predict)
    run = partial(fedlib.fit, FedAvg(loss, lr=0.1), params, data, progress=False)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(5, callbacks=[interrupted_after(3)])
    columns = ["round", "train_loss", "bytes_up", "examples"]
    assert stopped.value.result.history[columns].equals(run(2).history[columns])
    models = [numbers(result.state) for result in (stopped.value.result, run(2))]
    assert all(map(torch.equal, *models))


def test_in_a_notebook_an_interrupted_run_gives_its_rounds(clients, monkeypatch):
    monkeypatch.setattr(builtins, "get_ipython", lambda: None, raising=False)
    params, predict, _ = twin("MLP")
    with pytest.warns(UserWarning, match="interrupted: the result holds 2 rows"):
        result = fedlib.fit(
            FedAvg(classification_loss(predict)), params, client_data(clients), 5, progress=False,
            callbacks=[interrupted_after(3)],
        )  # fmt: skip
    assert result.history["round"].tolist() == [1, 2]
