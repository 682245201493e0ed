"""Algorithms served by Flower end where fedlib.fit ends: by hand, through Flower's messages, and after restarts."""

import sys
from dataclasses import fields, make_dataclass, replace
from functools import partial

import pytest
import torch
from every import NAMES, SPLITS, federation, numbers
from twins import NoisyFedAvg, classification_loss, client_data, ragged_clients, twin

import fedlib
from fedlib import Key, algorithms
from fedlib.engines import flower
from fedlib.engines.paths import flatten, unflatten

params, predict, _ = twin("MLP")
loss = classification_loss(predict)
data = client_data(ragged_clients(sizes=(1, 7, 20, 21, 40))).sorted()
K, ROUNDS, SEED = len(data), 4, 3

SERVED = {
    "FedAvg": algorithms.FedAvg(loss, batch_size=10, stragglers=0.4),
    "FedAvg with noise": NoisyFedAvg(loss, batch_size=10),
    "Scaffold": algorithms.Scaffold(loss, batch_size=10, epochs=2),
    "LocalOnly": algorithms.LocalOnly(loss),
    "CFL": algorithms.CFL(loss, **SPLITS),
    "LGFedAvg": algorithms.LGFedAvg(loss),
    "LGFedAvg in clusters": algorithms.LGFedAvg(loss, assignment=[0, 1, 0, 2, 1]),
    "LGFedAvg, all local": algorithms.LGFedAvg(loss, local=("dense1", "dense2")),
}
#: Those that look at the examples of all clients before round 1, with the settings of `every`.
LOOK_FIRST = {"ClusteredKMeans", "FeSEM", "FedGroup", "FedSGCNN", "FedCGKnownDomains", "LGFedAvg", "PACFL"}


def fit(algorithm, size, start=params, rounds=ROUNDS, data=data):
    return fedlib.fit(algorithm, start, data, rounds, size, seed=SEED, device="cpu", progress=False)


def by_hand(algorithm, size, start=params, data=data, lost=()):
    """A federation without Flower; `lost` names the (round, client) of which nothing is heard."""
    moved = data.to("cpu", next(iter(start.values())).dtype)
    state, kept = flower._start(algorithm, start, data.id, data.n, SEED), {}
    for t in range(1, ROUNDS + 1):
        key, answers = Key(SEED, t), {}
        for k in algorithm.cohort(state, data.id, size, key).sort().values.tolist():
            if (t, k) not in lost:
                sent = flower._message(state, k)
                answers[k], kept[k] = flower._train(algorithm, start, moved[[k]], sent, key, kept.get(k))
        state = flower._aggregate(algorithm, state, answers, key)
    return state, kept


def check_equal(state, kept, want, tolerance):
    """All fields of the state; those that clients keep, row by row. NaN equals nothing."""
    near = partial(torch.testing.assert_close, rtol=0, atol=tolerance)
    for field in fields(want):
        got, there = getattr(state, field.name), getattr(want, field.name)
        if field.name in fedlib.algorithm.held_fields(want, "client"):
            all_rows = numbers(there)
            assert [p.shape for p in numbers(got)] == [(len(p), 0) for p in all_rows]  # the server holds none of it
            for k, memory in kept.items():
                near([p[0] for p in numbers(memory[field.name])], [p[k] for p in all_rows])
        else:
            near(numbers(got), numbers(there))
            assert got == there if isinstance(there, (int, str)) else len(numbers(got)) == len(numbers(there))


# ---- without Flower ----


@pytest.mark.parametrize("name", SERVED)
def test_equal_to_fit(name):
    size = K if name == "CFL" else 3
    state, kept = by_hand(SERVED[name], size)
    want = fit(SERVED[name], size).state
    check_equal(state, kept, want, 1e-10)
    assert name != "CFL" or want.splits  # else the test would see nothing of clusters


def test_equal_to_fit_in_float32():
    start = {n: p.float() for n, p in params.items()}
    check_equal(*by_hand(SERVED["Scaffold"], K, start), fit(SERVED["Scaffold"], K, start).state, 1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:the domains collapsed")
def test_every_algorithm_is_served_as_fit_runs_it_or_refused(name):
    algorithm, start, clients = federation(name)
    start = {n: p.double() for n, p in start.items()}
    if name in LOOK_FIRST:
        with pytest.raises(ValueError, match=f"{name}, with these settings, cannot be served: before round 1"):
            flower._start(algorithm, start, clients.id, clients.n, 0)
        return
    state, kept = by_hand(algorithm, len(clients), start, clients)
    result = fit(algorithm, len(clients), start, data=clients)
    check_equal(state, kept, result.state, 1e-10)
    # Of what is sent down, test_invariances says the same: for all algorithms, those that are not served too.
    arrays = flower.leaves_client(algorithm, start, clients)
    up = int(arrays.bytes[~arrays.name.str.startswith("log/") & (arrays.name != "place")].sum())
    counted = int(result.history["bytes_up"].iloc[0]) // len(clients)
    assert up == counted, f"the costs count {counted:,} bytes up for a client, its message has {up:,}"


class Undeclared(algorithms.FedAvg):
    """Its state does not say who holds it."""

    def init(self, params, data, key):
        return make_dataclass("Silent", ["models"], frozen=True)(super().init(params, data, key).models)


def test_a_state_that_does_not_say_who_holds_it_is_refused():
    with pytest.raises(ValueError, match="Silent does not say who holds its fields; see fedlib.algorithm.held"):
        flower.leaves_client(Undeclared(loss), params, data)


def test_what_is_kept_does_not_leave():
    names = flower.leaves_client(SERVED["LGFedAvg"], params, data).name
    assert not names.str.contains("dense1").any() and names.str.contains("dense2").any()
    assert list(flower.leaves_client(SERVED["LocalOnly"], params, data).name) == ["log/loss", "place"]
    tree = {"a/b": {"~c": torch.ones(1), "d": {"~1": torch.zeros(2)}}, "a": torch.ones(3)}  # names with slashes
    assert len(flatten(tree)) == 3 and unflatten(flatten(tree)) == tree


def test_diverging_client_is_named():
    wild = algorithms.FedAvg(loss, lr=1e200, epochs=3)
    sent = flower._message(flower._start(wild, params, data.id, data.n, 0), 0)
    with pytest.raises(FloatingPointError, match="the loss of client 22 became NaN or infinite in round 1"):
        flower._train(wild, params, data[[4]], sent, Key(0, 1), None)


def test_without_flower_says_what_to_install(monkeypatch, tmp_path):
    for module in ["flwr", *(name for name in sys.modules if name.startswith("flwr."))]:
        monkeypatch.setitem(sys.modules, module, None)
    for app, more in ((flower.server_app, (K, 1, tmp_path / "run")), (flower.client_app, (lambda context: data[[0]],))):
        with pytest.raises(ImportError, match=r'pip install "flwr\[simulation\]"'):
            app(SERVED["FedAvg"], params, *more)


# ---- with Flower ----


@pytest.fixture
def flwr(monkeypatch):
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setenv("FLWR_DISABLE_UPDATE_CHECK", "1")
    monkeypatch.setattr(flower, "_LOOK_SECONDS", 0.0)
    pytest.importorskip("flwr.serverapp", reason="needs Flower", exc_type=ImportError)
    from flwr.supercore.task_identity import TaskIdentity

    for name, number in {"_run_id": 7, "_node_id": 1, "_task_id": 1}.items():  # else set by what starts an app
        monkeypatch.setattr(TaskIdentity, name, number)
    return flower._flwr()


class Wire:
    """A Grid in this process: real messages, which go through the bytes of Flower's protocol.

    `lose` says what becomes of a training message, by (round, client): "before" and "after" kill the client before or
    after it has trained, so that no answer comes; it is back at once under another node. "crash": only its program is
    gone, Flower says so, and the node stays; "wrong": its program cannot be loaded. "mute": one answer
    is lost on the way. "silent" never answers.
    """

    def __init__(self, flwr, client, lose, there):
        self.flwr, self.client, self.lose = flwr, client, dict(lose)
        self.node = {1000 + n: k for n, k in enumerate(there)}
        self.replies, self.count, self.trained = {}, 0, []

    def get_node_ids(self):
        return list(self.node)

    def context(self, node):
        app = self.flwr.app
        return app.Context(7, node, {"partition-id": self.node[node]}, app.RecordDict(), {})

    def push_messages(self, messages):
        from flwr.common.serde import recorddict_from_proto, recorddict_to_proto

        names = []
        for message in messages:
            self.count += 1
            name, node = str(self.count), message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = name
            names.append(name)
            fate = None
            if message.metadata.message_type == "train":
                where = message.content["config"]["round"], self.node[node]
                fate = self.lose.get(where)
                if fate != "silent":
                    self.lose.pop(where, None)
                self.trained.append(where)
            if code := {"crash": 8, "wrong": 1}.get(fate):
                error = self.flwr.app.Error(code, "no module named app")
                self.replies[name] = self.flwr.app.Message(error, reply_to=message)
            elif fate not in ("before", "silent"):
                message.content = recorddict_from_proto(recorddict_to_proto(message.content))
                reply = self.client(message, self.context(node))
                reply.content = recorddict_from_proto(recorddict_to_proto(reply.content))
                if fate is None:
                    self.replies[name] = reply
            if fate in ("before", "after"):
                self.node[node + 1000] = self.node.pop(node)
        return names

    def pull_messages(self, names):
        return [self.replies.pop(name) for name in names if name in self.replies]


def served(flwr, algorithm, folder, size=K, lose=(), rounds=ROUNDS, run=7, there=range(K), clients=K, **settings):
    """What the server's file holds after a run of as many clients as are `there`, and the wire."""
    path, number = folder / "server.safetensors", lambda context: data[[context.node_config["partition-id"]]]
    server = flower.server_app(algorithm, params, clients, rounds, path, size, seed=SEED, **settings)
    wire = Wire(flwr, flower.client_app(algorithm, params, number, folder / "clients", device="cpu"), lose, there)
    server(wire, flwr.app.Context(run, 0, {}, flwr.app.RecordDict(), {}))
    return flower.load_result(path), wire


def kept_by(folder):
    kept = {}
    for k, client in enumerate(data.id.tolist()):
        if (path := folder / "clients" / f"client{client}.safetensors").exists():
            rounds = fedlib.engines.checkpoint.load_state(path)[0]["rounds"]
            kept[k] = rounds[max(rounds)]
    return kept


@pytest.mark.filterwarnings("ignore:CFL tested no cluster")  # of three clients of a round it has no whole one
@pytest.mark.parametrize("size", [K, 3])
@pytest.mark.parametrize("name", ["FedAvg", "Scaffold", "CFL", "LGFedAvg", "LocalOnly"])
def test_apps_equal_fit(flwr, tmp_path, name, size):
    got, _ = served(flwr, SERVED[name], tmp_path, size)
    want = fit(SERVED[name], size)
    check_equal(got.state, kept_by(tmp_path), want.state, 1e-10)
    for column in ("round", "clients", "train_loss", "bytes_down", "bytes_up"):
        assert got.history[column].tolist() == pytest.approx(want.history[column].tolist(), abs=1e-10), column


@pytest.mark.parametrize("name", ["Scaffold", "CFL", "LGFedAvg"])
def test_clients_killed_in_mid_run_lose_nothing(flwr, tmp_path, name, monkeypatch):
    monkeypatch.setattr(flower, "_PATIENCE", 0.5)
    lose = {(2, 1): "before", (2, 3): "after", (3, 4): "after", (4, 0): "crash", (4, 2): "mute"}
    got, wire = served(flwr, SERVED[name], tmp_path, lose=lose)
    assert all(wire.trained.count(where) == 2 for where in lose) and len(wire.trained) == K * ROUNDS + 5
    check_equal(got.state, kept_by(tmp_path), fit(SERVED[name], K).state, 1e-10)


def test_client_that_is_lost_forgets_the_round(flwr, tmp_path):
    """As in fit: whoever trained but was not heard goes on from what it kept before."""
    got, _ = served(flwr, SERVED["Scaffold"], tmp_path, lose={(2, 1): "silent"}, timeout=1.0)
    assert got.history.clients.tolist() == [K, K - 1, K, K]
    state, _ = by_hand(SERVED["Scaffold"], K, lost={(2, 1)})
    torch.testing.assert_close(got.state.models, state.models, rtol=0, atol=1e-10)


def test_server_goes_on_from_its_checkpoint(flwr, tmp_path):
    algorithm = SERVED["Scaffold"]
    served(flwr, algorithm, tmp_path, rounds=2)
    got, wire = served(flwr, algorithm, tmp_path, run=8)
    assert {t for t, _ in wire.trained} == {3, 4}
    check_equal(got.state, kept_by(tmp_path), fit(algorithm, K).state, 1e-10)
    with pytest.raises(ValueError, match="checkpoint of another run .*lr"):
        served(flwr, replace(algorithm, lr=0.2), tmp_path)
    (tmp_path / "clients" / "client13.safetensors").unlink()
    with pytest.raises(RuntimeError, match="client13 has lost what it kept after round 4"):
        served(flwr, algorithm, tmp_path, rounds=5)


def test_a_run_goes_on_with_the_clients_that_it_began_with(flwr, tmp_path):
    """Of five clients four were there first; after a restart a fifth is quicker than one of them."""
    of_four = {"folder": tmp_path, "size": None, "clients": 4}
    served(flwr, SERVED["FedAvg"], rounds=2, there=range(4), **of_four)
    _, wire = served(flwr, SERVED["FedAvg"], rounds=3, there=(4, 3, 2, 1, 0), run=8, **of_four)
    assert sorted(k for _, k in wire.trained) == [0, 1, 2, 3]


def test_errors_of_a_client_end_the_run_and_show_no_data(flwr, tmp_path):
    def secret(params, batch):
        raise ArithmeticError("the patient is 42")

    with pytest.raises(RuntimeError, match="ArithmeticError; the log of this client says more") as error:
        served(flwr, algorithms.FedAvg(secret), tmp_path / "secret")
    assert "42" not in str(error.value)
    with pytest.raises(RuntimeError, match="Flower could not run a client's program: no module named app"):
        served(flwr, SERVED["FedAvg"], tmp_path, lose={(2, 1): "wrong"})


def test_settings_are_checked(flwr, tmp_path):
    with pytest.raises(ValueError, match="clients_per_round must be a whole number from 1 to 2; got 3"):
        flower.server_app(SERVED["FedAvg"], params, 2, 1, tmp_path / "run", 3)
    with pytest.raises(ValueError, match="FedGroup, with these settings, cannot be served"):
        flower.server_app(algorithms.FedGroup(loss), params, K, 1, tmp_path / "run")
    with pytest.raises(ValueError, match="Scaffold lets clients keep c_i; say in which folder"):
        flower.client_app(SERVED["Scaffold"], params, lambda context: data[[0]])
