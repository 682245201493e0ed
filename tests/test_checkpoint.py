"""Checkpoints: read back to the bit, whole or not at all, refused for another run, resumed as if nothing had been."""

import json
import os
import pickle
import sys
import time
from collections import namedtuple
from dataclasses import dataclass, make_dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from every import NAMES, SPLITS, kind_of
from pandas.testing import assert_frame_equal
from safetensors.torch import save_file
from twins import classification_loss, client_data, ragged_clients, twin

import fedlib
from fedlib.algorithms import FedAvg, FedProx, LocalOnly, Scaffold
from fedlib.engines import checkpoint
from fedlib.engines.checkpoint import Checkpoint, load_state, save_state


@dataclass(frozen=True)
class Inner:
    p: torch.Tensor
    note: str


@dataclass(frozen=True)
class Outer:
    models: dict
    pair: tuple
    rest: object = None


Named = namedtuple("Named", "a b")


def same(a, b):
    """Equal in type and to the last bit, NaN included."""
    if isinstance(a, torch.Tensor):
        bits = [t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*bits)
    if type(a) is not type(b):
        return False
    if hasattr(a, "__dataclass_fields__"):
        return all(same(getattr(a, name), getattr(b, name)) for name in a.__dataclass_fields__)
    if isinstance(a, dict):
        return same([*a], [*b]) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(same(*pair) for pair in zip(a, b, strict=True))
    return a == b or (a != a and b != b)


def bits(dtype):
    """Every kind of entry, NaN, infinities and subnormal numbers included."""
    return torch.arange(-200, 200, dtype=torch.int16).view(torch.uint8).view(dtype).clone()


INNER = (Inner(torch.zeros(3), "é"), (Inner(torch.ones(1), ""), None))
STATES = {
    "nested": Outer({"w": torch.ones(2)}, INNER, {"a": [True]}),
    "whole-number keys": {1: torch.zeros(1), "1": torch.ones(1), -3: {0: 5}},
    "keys with a slash": {"a": {"b": torch.zeros(1)}, "a/b": torch.ones(1), "": {"": torch.ones(2)}},
    "plain values": [None, True, 3, -0.1, 1e-320, float("nan"), float("inf"), float("-inf"), "text", 2**80, (), [], {}],
    **{str(t): bits(t) for t in (torch.float64, torch.bfloat16, torch.int64)},
    "bool": torch.tensor([True, False]),
    "rows that are one": fedlib.params.broadcast({"w": torch.arange(3.0)}, 4),
    "transposed": torch.arange(6.0).view(2, 3).mT,
    "every second": torch.arange(6)[::2],
    "the same tensor twice": (lambda t: (t, t, t[1:]))(torch.arange(4.0)),
    "empty": torch.empty(0, 3),
    "scalar": torch.tensor(2.5, dtype=torch.float64),
    "a tensor with a gradient": torch.ones(2, requires_grad=True),
    "large": torch.ones(50_000),
}


@pytest.mark.parametrize("state", STATES)
def test_a_state_comes_back_to_the_bit(state, tmp_path):
    """And does not hang on the file."""
    meta, path = {"a": [1, 2.5, None, "x"], "nan": float("nan"), "inf": float("inf")}, tmp_path / "a.safetensors"
    save_state(path, STATES[state], meta)
    found, there = load_state(str(path))
    path.write_bytes(b"")
    assert same(found, STATES[state] if "gradient" not in state else torch.ones(2))
    assert same(there, meta) and os.listdir(tmp_path) == ["a.safetensors"]


UNKNOWN = {  # a state, what is said of it
    "an array": (Outer({}, (np.ones(2),)), r"pair/0, array\(\[1., 1.\]\) \(ndarray\)"),
    "a set": ({"a": {"b": {1}}}, r"a/b, \{1\} \(set\)"),
    "a class": (Inner, r"the state, <class"),
    "a class of no module": (make_dataclass("Own", ["p"])(1), "state, Own.* whose classes stand at the top of a"),
    "a function": ([print], "0, <built-in function print>"),
    "a named tuple": (Outer({}, (), Named(1, 2)), r"rest, Named\(a=1, b=2\) \(Named\)"),
    "keys that are neither": ({"a": {0.5: 1}}, r"a, \{0.5: 1\} \(dict\)"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_cannot_be_stored_is_named(case, tmp_path):
    state, message = UNKNOWN[case]
    with pytest.raises(TypeError, match=message):
        save_state(tmp_path / "a", state, {})
    assert os.listdir(tmp_path) == []


# Damaged and foreign files.


def write_bytes(change):
    def write(path):
        save_state(path, {"a": torch.arange(99.0)}, {"x": 1})
        path.write_bytes(change(path.read_bytes()))

    return write


def write_skeleton(text):
    return lambda path: save_file({"a": torch.ones(1)}, path, metadata=None if text is None else {"fedlib": text})


class Trap:
    """What a pickle would call."""

    def __reduce__(self):
        return os.abort, ()


BAD = {
    "empty": write_bytes(lambda b: b""),
    "cut in the tensors": write_bytes(lambda b: b[:-1]),
    "half": write_bytes(lambda b: b[: len(b) // 2]),
    "damaged skeleton": write_bytes(lambda b: b.replace(b"state", b"stats")),
    "text": lambda path: path.write_text("round,accuracy\n1,0.5\n" * 50),
    "a pickle": lambda path: path.write_bytes(pickle.dumps(Trap())),
    "safetensors of another library": write_skeleton(None),
    "an empty node": write_skeleton('{"state": {}, "meta": {}}'),
    "a tensor that is not there": write_skeleton('{"state": {"tensor": "b"}, "meta": {}}'),
    "a class that is a number": write_skeleton('{"state": {"class": 3, "fields": {}}, "meta": {}}'),
}


@pytest.mark.parametrize("case", BAD)
def test_a_damaged_or_foreign_file_is_named(case, tmp_path):
    BAD[case](path := tmp_path / "run.safetensors")
    words = r"run\.safetensors is damaged or is not a checkpoint of fedlib .*another path, or delete"
    with pytest.raises(ValueError, match=words):
        load_state(path)


NOT_HERE = ["os:system", "builtins:dict", "fedlib.federation:fit"]
NOT_HERE += ["this:Thing", "fedlib.evaluation:Result"]  # a module that prints when it is imported; other fields


@pytest.mark.parametrize("kind", NOT_HERE)
def test_a_class_that_is_not_here_is_named_and_nothing_is_imported_or_called(kind, tmp_path):
    text = {"state": {"class": kind, "fields": {"keys": ["command"], "items": [{"value": "false"}]}}, "meta": {}}
    write_skeleton(json.dumps(text))(tmp_path / "a.safetensors")
    before = set(sys.modules)
    with pytest.raises(ImportError, match=rf"holds a {kind} of \['command'\], and none such is imported"):
        load_state(tmp_path / "a.safetensors")
    assert set(sys.modules) == before and "this" not in before


# Resuming.

PARAMS, PREDICT, _ = twin("MLP")
LOSS, DATA = classification_loss(PREDICT), client_data(ragged_clients())


def norm_of_the_models(t, state, record):
    models = state.models if hasattr(state, "models") else state.local
    record |= {"norm": fedlib.params.norm(models)[0], "label": f"round {t}", "nothing": None}


def numbers(history):
    """The columns that are no times."""
    return history[[c for c in history if c != "seconds" and not c.startswith("server_seconds")]]


def fit(path=None, rounds=7, kind=FedAvg, data=DATA, params=PARAMS, loss=LOSS, **settings):
    """A run with everything that makes rounds differ; the settings of the algorithm and of fit."""
    ours = {"lr": 0.05, "batch_size": 8, "epochs": 2, "stragglers": 0.3, "predict": PREDICT}
    theirs = {"seed": 3, "lost": 0.3, "clients_per_round": 5, "eval_every": 2, "callbacks": [norm_of_the_models]}
    ours |= {name: settings.pop(name) for name in list(settings) if name in kind.__dataclass_fields__}
    theirs = {"eval_data": data[:4]} | theirs | settings
    where = path if path is None or isinstance(path, Checkpoint) else Checkpoint(path)
    return fedlib.fit(kind(loss, **ours), params, data, rounds, checkpoint=where, progress=False, **theirs)


class Killed(BaseException):
    pass


def interrupted(path, round, **settings):
    """Run, and be killed in a round, after every round before was stored."""

    def kill(t, state, record):
        if t == round:
            raise Killed

    with pytest.raises(Killed):
        fit(Checkpoint(path, every_seconds=0), callbacks=[norm_of_the_models, kill], **settings)


# These need a network of their own or validation rows: they resume in tests of their own.
OWN = ("FedCG", "FedSGCNN", "FedEM", "FedProto")


def one_that_draws(params, batch):
    x, *rest = batch
    return LOSS(params, (x + 0.1 * torch.randn_like(x), *rest))


@dataclass(frozen=True)
class Prepared(LocalOnly):
    """Work before round 1, entered in the costs."""

    def prepare(self, state, data, key):
        fedlib.costs.record("graph", bytes_up=7)
        return replace(state, local={name: p + 1 for name, p in state.local.items()})


FILTERS, FILTER, _ = twin("CNN")
CONVOLUTIONS = {"params": FILTERS, "predict": FILTER, "loss": classification_loss(FILTER), "dtype": torch.float32}
RESUMED = {name: {"kind": kind_of(name)} for name in NAMES if not name.startswith(OWN)}
RESUMED["CFL"] |= SPLITS
RESUMED |= {
    "convolutions": {"kind": Scaffold} | CONVOLUTIONS,
    "work before round 1": {"kind": Prepared},
    "a loss that draws": {"loss": one_that_draws},
}


@pytest.mark.filterwarnings("ignore:CFL tested no cluster")
@pytest.mark.filterwarnings("ignore:no client has fine-tuned")
@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_is_the_uninterrupted_one(name, tmp_path):
    run = partial(fit, **RESUMED[name])
    whole = run()
    for round in (3, 4):  # between evaluations and at one; and killed twice
        interrupted(tmp_path / "run", round, **RESUMED[name])
    run(tmp_path / "run", 4)  # a finished run can be made longer
    interrupted(tmp_path / "run", 6, **RESUMED[name])
    result = run(tmp_path / "run")
    assert same(result.state, whole.state) and torch.equal(result.ids, whole.ids)
    assert_frame_equal(numbers(result.history), numbers(whole.history), check_exact=True)
    assert list(result.history) == list(whole.history) and (result.history["seconds"] > 0).all()
    assert name != "work before round 1" or result.history["bytes_up (graph)"][0] == 7
    rounds = whole.history[whole.history["round"] > 0]  # without the work before round 1
    assert rounds["clients"].min() < 5 and rounds["test_accuracy"].isna().sum() == 3
    again = run(tmp_path / "run")  # finished: nothing is left to do
    assert same(again.state, whole.state)
    assert_frame_equal(again.history, result.history, check_exact=True)


def test_fewer_rounds_than_are_stored_is_an_error(tmp_path):
    """Folders are made, and strings are paths."""
    fit(str(tmp_path / "a" / "b" / "run"), 4)
    with pytest.raises(ValueError, match="checkpoint is at round 4, beyond rounds=3"):
        fit(tmp_path / "a" / "b" / "run", 3)


# Another run.


def changed(**fields):
    """The clients with one number changed in each of these fields."""
    copies = {name: getattr(DATA, name).clone() for name in fields}
    for name, value in fields.items():
        copies[name].view(-1)[value] += 1
    return replace(DATA, **copies)


def power(value):
    return lambda p, b: fedlib.losses.cross_entropy(PREDICT(p, b[0]), *b[1:]) ** value


SCALED = {name: 2 * p for name, p in PARAMS.items()}
MOMENTA = [{"optimizer": partial(torch.optim.SGD, momentum=momentum)} for momentum in (0.9, 0.8)]
X, Y = np.random.RandomState(0).randint(0, 256, (6, 36)).astype(np.uint8), np.arange(6) % 4


def takes_both(params, x):
    return PREDICT(params, x.to(PARAMS["dense1.weight"].dtype))


SMALL = {"loss": classification_loss(takes_both), "predict": takes_both, "clients_per_round": 2, "eval_data": {}}
IMAGES, WHOLE = ({"data": fedlib.stack_rows(X, Y, [[0, 1, 2], [3, 4, 5]], pixels=p)} | SMALL for p in (True, False))
ROWS, LABELS = ragged_clients()[31]
SHARED = [{"eval_data": fedlib.same_rows(ROWS, (LABELS + n) % 4, DATA.id)} for n in (0, 1)]
OTHERS = {  # settings of the first run, of the second, what the message says
    "algorithm": ({}, {"kind": FedProx}, "algorithm: FedAvg there, FedProx here"),
    "lr": ({}, {"lr": 0.06}, "FedAvg.lr: 0.05 there, 0.06 here"),
    "mu": ({"kind": FedProx}, {"kind": FedProx, "mu": 0.5}, "FedProx.mu: 0.01 there, 0.5 here"),
    "batch_size": ({}, {"batch_size": None}, "FedAvg.batch_size: 8 there, None here"),
    "lost": ({}, {"lost": 0.0}, "lost: 0.3 there, 0.0 here"),
    "optimizer": ({}, {"optimizer": torch.optim.Adam}, "FedAvg.optimizer: SGD there, Adam here"),
    "its momentum": (*MOMENTA, r"optimizer: \['SGD', {'momentum': 0.9}\] there, \['SGD', {'momentum': 0.8}\] here"),
    "what the loss computes": ({"loss": power(2)}, {"loss": power(3)}, "the loss at the start: .* there, "),
    "seed": ({}, {"seed": 4}, "seed: 3 there, 4 here"),
    "a pixel": ({}, {"data": changed(x=36 * 50 + 3), "eval_data": DATA[:4]}, r"\(data: #"),
    "a label": ({}, {"data": changed(y=3 * 97 + 2), "eval_data": DATA[:4]}, r"\(data: #"),
    "what bytes are": (IMAGES, WHOLE, r"\(data: #"),
    "initial parameters": ({}, {"params": SCALED}, r"\(params: #"),
    "an evaluation set": ({}, {"eval_data": DATA[1:5]}, r"\(evaluation set test: #"),
    "rows that all clients share": (*SHARED, r"\(evaluation set test: #"),
    "its name": ({}, {"eval_data": {"validation": DATA[:4]}}, "evaluation set validation: None there"),
    "no evaluation set": ({}, {"eval_data": {}}, "evaluation set test: #.* there, None here"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_run_is_refused_and_says_why(case, tmp_path):
    first, second, message = OTHERS[case]
    fit(tmp_path / "run.safetensors", 1, **first)
    before = (tmp_path / "run.safetensors").read_bytes()
    fit(tmp_path / "run.safetensors", 1, **first)  # the same run is not
    with pytest.raises(ValueError, match=rf"run\.safetensors is the checkpoint of another run .*{message}"):
        fit(tmp_path / "run.safetensors", 2, **second)
    assert (tmp_path / "run.safetensors").read_bytes() == before


ORDER = torch.tensor([5, 0, 7, 2, 1, 6, 4, 3])
SAME = {
    "chunk_size": {"chunk_size": 2},
    "the order of clients": {"data": DATA[ORDER], "eval_data": DATA[:4]},
    "the same loss defined again": {"loss": classification_loss(PREDICT)},
    "other callbacks": {"callbacks": []},
    "numbers of another type": {"seed": np.int64(3), "lr": np.float64(0.05), "lost": np.float64(0.3)},
    "memory laid out otherwise": {"params": {n: p.t().contiguous().t() for n, p in PARAMS.items()}},
}


@pytest.mark.parametrize("case", SAME)
def test_the_same_run_is_recognised(case, tmp_path):
    first = fit(tmp_path / "run", 2)
    result = fit(tmp_path / "run", 3, **SAME[case])
    assert result.history["round"].tolist() == [1, 2, 3]
    assert result.history["seconds"][:2].tolist() == first.history["seconds"].tolist()


def test_another_machine_is_a_warning(tmp_path, monkeypatch):
    fit(tmp_path / "run", 1)
    monkeypatch.setattr(torch, "__version__", "99.0.0")
    with pytest.warns(UserWarning, match="was written on .*, this is .*99.0.*: the run goes on, but its last bits"):
        result = fit(tmp_path / "run", 2)
    assert result.history["round"].tolist() == [1, 2]


# Writing.


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(function, tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    fit(path, 1)
    before = path.read_bytes()

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OSError, match="disk full"):
        fit(path, 2)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["run.safetensors"]
    monkeypatch.undo()
    assert same(fit(path, 3).state, fit(rounds=3).state)


def test_the_content_is_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    done, sync, rename = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda f: (done.append(("fsync", os.fstat(f).st_size)), sync(f)))
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append(("replace", os.stat(a).st_size)), rename(a, b)))
    save_state(tmp_path / "a", torch.ones(9), {})
    size = (tmp_path / "a").stat().st_size
    assert done == [("fsync", size), ("replace", size)]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_writing_takes_memory_for_at_most_two_more_states(run_python, tmp_path):
    code = f"""
import re, torch, pathlib
from fedlib.engines.checkpoint import save_state
bytes_of = lambda line: 1024 * int(re.search(line + r":\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
save_state({str(tmp_path / "small")!r}, torch.ones(9), {{}})
state = torch.ones(50_000_000)
pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
before = bytes_of("VmRSS")
save_state({str(tmp_path / "large")!r}, state, {{}})
print((bytes_of("VmHWM") - before) / state.nbytes)
"""
    assert 0.5 < float(run_python("-c", code)) < 2.3  # SCAFFOLD, a network of 26 MB, 160 clients: a state of 4 GB


SCHEDULES = {25: [3, 6, 7], 10: [1, 2, 3, 4, 5, 6, 7], 0: [1, 2, 3, 4, 5, 6, 7], 1000: [7]}


@pytest.mark.parametrize("seconds", SCHEDULES)
def test_when_a_run_is_written(seconds, tmp_path, monkeypatch):
    """Which of 7 rounds that take 10 seconds each."""
    written, clock = [], [0.0]
    monkeypatch.setattr(checkpoint, "save_state", lambda path, state, meta: written.append(meta["round"]))
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    tick = [lambda t, state, record: clock.__setitem__(0, clock[0] + 10)]
    fit(Checkpoint(tmp_path / "run", seconds), 7, callbacks=tick)
    assert written == [0, *SCHEDULES[seconds]]  # round 0: what cannot be written is said before the work


def test_what_callbacks_add_becomes_numbers_arrays_and_words_and_is_stored_as_such(tmp_path):
    def callback(t, state, record):
        record |= {"a": torch.tensor(t), "b": np.float32(t / 3), "c": np.int64(t)}
        record |= {"d": torch.arange(t), "e": np.bool_(1), "f": torch.ones(1), "g": None, "h": "x"}

    whole = fit(callbacks=[callback], rounds=3).history
    second = [2, float(np.float32(2 / 3)), 2, [0, 1], True, 1, None, "x"]
    assert whole.loc[1, [*"abcdefgh"]].tolist() == second and (whole["a"].dtype, whole["b"].dtype) == (int, float)
    fit(tmp_path / "run", 2, callbacks=[callback])
    history = fit(tmp_path / "run", 3, callbacks=[callback]).history
    assert_frame_equal(numbers(history), numbers(whole), check_exact=True)
    stored = load_state(tmp_path / "run")[1]["history"]
    assert [stored[1][c] for c in "abcdefgh"] == second
    unknown = [lambda t, state, record: record.update(model=print)]
    fit(rounds=1, callbacks=unknown)  # without a checkpoint it may be anything
    with pytest.raises(TypeError, match="cannot store the history: .*function.*Callbacks must put numbers, strings"):
        fit(tmp_path / "other", 1, callbacks=unknown)
    assert load_state(tmp_path / "other")[1]["round"] == 0


@pytest.mark.parametrize("name", ["algorithm", checkpoint.MEASURED])
def test_only_measured_losses_may_differ_by_rounding(name):
    equal = [([0.1, 2.0], [0.1, 2.0]), (None, None)]
    other = [([0.1], [0.11]), ([0.1], [0.1, 0.1]), ([0.1], None)]
    assert [checkpoint._same(name, *pair, 1e-3) for pair in equal + other] == [True] * 2 + [False] * 3
    for near in (1e-3, 1e-5):
        assert checkpoint._same(name, [0.1, 2.0], [0.1000005, 2.0], near) == (name == checkpoint.MEASURED)
    assert not checkpoint._same(name, [0.1], [0.1001], 1e-5)


def test_clients_are_known_by_their_numbers_and_not_by_their_names():
    x, y, known = np.random.RandomState(0).randint(0, 256, (6, 4)), np.arange(6) % 2, checkpoint._checksum
    numbered, named = (fedlib.partition.by_user(np.repeat(users, 3)).clients(x, y) for users in ([1, 0], ["b", "a"]))
    assert known(named) == known(numbered) != known(numbered[[1, 0]])
