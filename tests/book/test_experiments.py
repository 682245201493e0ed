"""Experiments run, resume, and are stale exactly when what the code computes has changed."""

import dataclasses
import importlib
import itertools
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from every import federation

from book import results
from book.experiments import __main__ as command
from book.experiments import running

fedavg = importlib.import_module("fedlib.algorithms.fedavg")  # the module, not the class of this name


def scores(seed):
    return {str(seed): seed / 10}


def measure(settings, keep):
    return {"a": {k: v for s in settings["seeds"] for k, v in keep(f"seed {s}", scores, s).items()}}


def probe():
    algorithm, params, data = federation("FedAvg")
    return {"FedAvg": running.trace(algorithm, params, data, eval_data=data), "other": [1.0]}


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "ROOT", tmp_path)
    return running.Experiment("99_x", {"seeds": [1, 2, 3]}, measure, probe, ("mnist5k",))


def test_runs_and_stores(experiment, capsys):
    assert running.state(experiment) == "missing"
    running.run(experiment)
    stored = results.load(experiment.path)
    assert stored["figures"] == {"a": {"1": 0.1, "2": 0.2, "3": 0.3}}
    assert stored["data"] and stored["probe"]["other"] == [1]
    assert running.state(experiment) == "current" and "seed 3: 0.0 s" in capsys.readouterr().out
    assert not (running.ROOT / "_build/experiments/99_x.json").exists()


def test_goes_on_where_it_stopped(experiment, monkeypatch):
    done, plain = [], scores

    def broken(seed):
        if seed == 3 and "again" not in done:
            raise KeyboardInterrupt
        done.append(seed)
        return plain(seed)

    monkeypatch.setitem(globals(), "scores", broken)
    with pytest.raises(KeyboardInterrupt):
        running.run(dataclasses.replace(experiment))
    done.clear()
    done.append("again")
    running.run(experiment)
    assert done == ["again", 3], "seeds 1 and 2 were kept"
    running.run(dataclasses.replace(experiment, settings={"seeds": [1]}))
    assert done[-1] == 1, "other settings begin anew"


def test_an_arm_is_measured_alone(tmp_path, monkeypatch):
    """A new arm makes no result stale, and leaves the figures of the others as they are; so does one that moved."""
    monkeypatch.setattr(running, "ROOT", tmp_path)
    count, arms = itertools.count(), {"a": [1.0], "b": [2.0]}

    def measure(settings, keep, arms):
        return {"arms": {arm: {"score": {"0": keep(arm, lambda: next(count))}} for arm in arms}}

    def figures():
        running.run(experiment)
        return {arm: row["score"]["0"] for arm, row in results.load(experiment.path)["figures"]["arms"].items()}

    experiment = running.Experiment("99_x", {}, measure, lambda: arms, by_arm=True)
    assert figures() == {"a": 0, "b": 1}
    arms["c"] = [3.0]
    assert running.state(experiment) == "without (c)" and figures() == {"a": 0, "b": 1, "c": 2}
    earlier = results.load(experiment.path)["provenance"]["earlier"]
    assert earlier["date"] and running.state(experiment) == "current"
    arms["b"] = [2.5]
    assert running.state(experiment) == "stale (b)" and figures() == {"a": 0, "b": 3, "c": 2}
    del arms["a"]
    assert running.state(experiment) == "stale (a)" and figures() == {"b": 4, "c": 5}, "without what is gone"
    running.run(experiment, again=True)
    arms["d"] = [4.0]
    experiment = dataclasses.replace(experiment, settings={"rounds": 1})
    assert figures() == {"b": 8, "c": 9, "d": 10}, "other settings begin anew"


def test_other_weights_make_exactly_what_averages_stale(experiment, monkeypatch):
    running.run(experiment)
    sums = fedavg.cluster_sums

    def unweighted(stack, clusters, n, models):
        return sums(stack, clusters, torch.ones_like(n), models=models)

    monkeypatch.setattr(fedavg, "cluster_sums", unweighted)
    assert running.state(experiment) == "stale (FedAvg)"


def test_small_differences_of_rounding_do_not_count():
    assert running.moved({"a": [1.0, 1e-9]}, {"a": [1.0 + 1e-9, 0.0]}) == []
    assert running.moved({"a": [1.0]}, {"a": [1.0 + 1e-5]}) == ["a"] == running.moved({"a": [1.0]}, {"a": [1.0, 2.0]})
    assert running.moved({"a": [1.0]}, {"b": [1.0]}) == ["a", "b"]


def test_the_command_says_what_is_current(run_python):
    said = run_python("-m", "book.experiments", "cfl_geometry", cwd=running.ROOT)
    assert re.fullmatch(r"cfl_geometry --preset full \(cfl_geometry\): current; it took [\d.]+ minutes on .+\n", said)


def test_the_command_runs_one_experiment_or_all(monkeypatch, capsys):
    presets = {"full": "a", "longer": "b", "paper": "c"}
    there = {n: SimpleNamespace(PRESETS={p: SimpleNamespace(result=n + r) for p, r in presets.items()}) for n in "xy"}
    monkeypatch.setattr(running, "names", lambda: [*there])
    monkeypatch.setattr(running, "modules", lambda name: {name: there[name]} if name else there)
    monkeypatch.setattr(running, "state", lambda experiment: "current" if experiment.result == "xa" else "missing")
    monkeypatch.setattr(running, "took", lambda experiment: "")

    def run(experiment, again):
        ran.append(experiment.result)
        if experiment.result == "xb":
            raise FileNotFoundError("no data")

    monkeypatch.setattr(running, "run", run)
    for words, expected, end in (
        ("", ["xb", "ya", "yb"], "x --preset longer: no data"),
        ("--preset paper", ["xc", "yc"], None),
        ("--again", ["xa", "xb", "ya", "yb"], "x --preset longer: no data"),
        ("x", [], None),
        ("x --again", ["xa"], None),
        ("y --preset longer", ["yb"], None),
        ("y --preset wide", [], 2),
        ("--preset longer", [], 2),
        ("z", [], 2),
    ):
        ran = []
        monkeypatch.setattr(sys, "argv", ["experiments", *words.split()])
        with pytest.raises(SystemExit) as ended:
            command.main()
        assert (ran, ended.value.code) == (expected, end), words
    assert "there is no preset 'wide'; there are full, longer, paper" in capsys.readouterr().err
