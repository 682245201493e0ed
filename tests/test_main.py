"""The command line runs what a program would, keeps what it wrote, and says mistakes in one line."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import fedlib
from fedlib import __main__ as command_line
from fedlib import algorithms, datasets, evaluation, federation, losses, models, partition
from fedlib.__main__ import ALGORITHMS, PARTITIONS, main, parser, run
from fedlib.checkpoint import Writer

pytest.importorskip("sklearn")
ROOT = Path(__file__).parent.parent
SMALL = "run --data digits --hidden 8 --clients 6 --rounds 2 --test-rows 99 --dtype float64 --device cpu"
TIMES = ["seconds", "server_seconds", "server_seconds (clustering)"]


def read(path, drop=TIMES):
    history = pd.read_csv(path, dtype=str).astype(float)  # to the last bit, unlike read_csv's own numbers
    return history.drop(columns=drop, errors="ignore")


def assert_equal(one, other):
    pd.testing.assert_frame_equal(one, other, check_exact=True, check_dtype=False)  # 2 and 2.0 are equal


def program(name, clients, test, model, rounds, cohort, measure=losses.cross_entropy, **settings):
    """What a user of the library would write."""
    algorithm = getattr(algorithms, name)(lambda p, b: measure(model(p, b[0]), *b[1:]), predict=model, **settings)
    quiet = {"device": "cpu", "dtype": torch.float64, "progress": False}
    result = fedlib.fit(algorithm, model.init(3), clients, rounds, cohort, seed=3, eval_data=test, **quiet)
    return result, evaluation.evaluate(algorithm, result, test)


def test_equals_the_program(tmp_path, capsys):
    out = tmp_path / "new" / "history.csv"
    text = f"{SMALL} --algorithm localonly --partition dirichlet --alpha 0.5 --cohort 4 --epochs 2 --batch-size 7"
    assert main(f"{text} --lr 0.2 --seed 3 --set stragglers=0.5 --out {out}".split()) == 0
    arrays = datasets.load("digits")
    order = np.random.RandomState(3).permutation(1797)
    x, y = arrays.x[order], arrays.y[order]
    clients = partition.dirichlet(y[:-99], 6, alpha=0.5, seed=3).clients(x[:-99], y[:-99])
    test = fedlib.same_rows(x[-99:], y[-99:], range(6))
    settings = {"epochs": 2, "batch_size": 7, "lr": 0.2, "stragglers": 0.5}
    result, scores = program("LocalOnly", clients, test, models.MLP((64, 8, 10)), 2, 4, **settings)
    assert_equal(read(out), result.history.drop(columns=TIMES, errors="ignore"))
    # Each client has its own model, so that the worst tenth differs from the mean.
    printed, pool, worst = capsys.readouterr().out, evaluation.pooled(scores), evaluation.summary(scores)
    assert worst["worst decile"] < pool["accuracy"]
    assert f"{pool['accuracy']:.4f}   worst tenth of clients {worst['worst decile']:.4f}" in printed
    assert "4 of 6 clients" in printed and "dirichlet, alpha 0.5" in printed and "610 parameters" in printed


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_runs(name, tmp_path, capsys):
    out = tmp_path / "h.csv"
    further = "--set warmup=1" if "warmup" in getattr(algorithms, name).__dataclass_fields__ else ""
    assert main(f"{SMALL} --algorithm {name.upper()} {further} --out {out}".split()) == 0
    history, printed = read(out), capsys.readouterr().out
    assert history["round"].iloc[-1] == 2 and history["test_accuracy"].iloc[-1] > 0
    assert printed.startswith(f"{name} on digits") and f"{history['test_accuracy'].iloc[-1]:.4f}" in printed
    assert f"{history['bytes_down'].sum() / 1e6:.1f} down, {history['bytes_up'].sum() / 1e6:.1f} up" in printed


class Stop(Exception):
    pass


def asked_for(monkeypatch, text):
    """What the command hands to `fit`."""

    def keep(*args, **kwargs):
        raise Stop(args, kwargs)

    with monkeypatch.context() as patch, pytest.raises(Stop) as stop:
        patch.setattr(federation, "fit", keep)
        run(parser().parse_args(text.split()))
    return stop.value.args


def test_settings_have_the_types_of_their_fields(monkeypatch):
    text = "--algorithm cfl --set schedule=3,5 --set trigger=schedule --set eps1=1 --set rest=4 --set method=average"
    cfl = asked_for(monkeypatch, f"{SMALL} {text} --set chunk_size=7 --batch-size all")[0][0]
    assert list(cfl.schedule) == [3, 5] and cfl.trigger == "schedule" and cfl.method == "average"
    assert (cfl.rest, cfl.chunk_size, cfl.batch_size) == (4, 7, None) and isinstance(cfl.eps1, float)
    fesem = asked_for(monkeypatch, f"{SMALL} --algorithm fesem --set by_examples=true --set chunk_size=auto")[0][0]
    assert fesem.by_examples is True and fesem.chunk_size == "auto"
    assert asked_for(monkeypatch, f"{SMALL} --algorithm fedprox --mu 0.7")[0][0].mu == 0.7


PARTS = {
    "iid": ("", lambda y: partition.iid(y, 6, seed=3)),
    "dirichlet": ("", lambda y: partition.dirichlet(y, 6, 0.3, seed=3)),
    "pathological": ("--shards 3", lambda y: partition.pathological(y, 6, 3, seed=3)),
    "quantity": ("--sigma 0.5", lambda y: partition.quantity(y, 6, 0.5, seed=3)),
    "label_permutation": ("--groups 3", lambda y: partition.label_permutation(partition.iid(y, 6, seed=3), 3, seed=3)),
    "rotation": ("--degrees 0 90", lambda y: partition.rotation(partition.iid(y, 6, seed=3), (0, 90), seed=3)),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_partitions(name, monkeypatch):
    text, make = PARTS[name]
    args, kwargs = asked_for(monkeypatch, f"{SMALL} --seed 3 --partition {name} {text}")
    arrays, order = datasets.load("digits"), np.random.RandomState(3).permutation(1797)
    x, y = arrays.x[order], arrays.y[order]
    parts = make(y[:-99])
    expected = parts.clients(x[:-99], y[:-99]), parts.tests(x[-99:], y[-99:])  # as each client's group sees them
    for found, wanted in zip((args[2], kwargs["eval_data"]), expected, strict=True):
        for field in ("n", "id", "y"):
            assert getattr(found, field).equal(getattr(wanted, field))
        assert found.x[found.index].equal(wanted.x[wanted.index])


def test_a_published_test_split_is_used(monkeypatch):
    digits = datasets.load("digits")
    arrays = datasets.Arrays(digits.x[:90], digits.y[:90], digits.x[90:130], digits.y[90:130], stats=digits.stats)
    monkeypatch.setattr(datasets, "load", lambda name, download: arrays)
    for text, rows in (("", 40), ("--test-rows 30", 30)):
        args, kwargs = asked_for(monkeypatch, f"run --data digits --clients 6 {text}")
        test = kwargs["eval_data"]
        assert int(args[2].n.sum()) == 90 and test.n.tolist() == [rows] * 6
        shown = {row.numpy().tobytes() for row in test.x}
        assert len(shown) == rows and shown <= {row.tobytes() for row in arrays.x_test}


@pytest.mark.parametrize("name", ["wine", "diabetes"])
def test_tables_are_standardised_by_the_training_rows(name, monkeypatch, capsys):
    text = f"run --data {name} --clients 4 --rounds 3 --test-rows 50 --device cpu --dtype float64"
    args, kwargs = asked_for(monkeypatch, text)
    for values in [args[2].x, *([args[2].y[args[2].index >= 0]] if name == "diabetes" else [])]:
        assert values.mean(0).abs().max() < 0.02 and (values.std(0) - 1).abs().max() < 0.02
    x = datasets.load(name).x.astype(float)
    order = np.random.RandomState(0).permutation(len(x))
    expected = (x[order[-50:]] - x[order[:-50]].mean(0)) / x[order[:-50]].std(0)
    np.testing.assert_allclose(kwargs["eval_data"].x.numpy(), expected, atol=1e-12)
    assert main(text.split()) == 0
    assert ("test r2" if name == "diabetes" else "test accuracy") in capsys.readouterr().out


NETWORKS = {
    "run --data digits": models.MLP((64, 64, 10)),
    "run --data digits --hidden 9 7": models.MLP((64, 9, 7, 10)),
    "run --data mnist5k --hidden": models.MLP((784, 10)),
    "run --data boston": models.MLP((13, 64, 1)),
    "run --data mnist5k --model cnn": models.femnist_cnn(10),
    "run --data cifar10_jpeg --model cnn": models.CNN((3, 32, 32), (32, 64), (2048, 10)),
}


@pytest.mark.parametrize("text", NETWORKS)
def test_networks(text):
    args = parser().parse_args(text.split())
    assert command_line._model(args, datasets.stats(args.data)) == NETWORKS[text]


def test_float64():
    result = run(parser().parse_args(SMALL.split()))
    assert {p.dtype for p in result.state.models.values()} == {torch.float64}


def test_a_longer_run_and_a_finished_one(tmp_path):
    text = f"{SMALL} --algorithm ifca --cohort 4"
    assert main(f"{text} --rounds 4 --out {tmp_path / 'whole.csv'}".split()) == 0
    for rounds in (2, 4, 4):
        again = f"{text} --rounds {rounds} --resume {tmp_path / 'run'} --out {tmp_path / f'{rounds}.csv'}"
        before = (tmp_path / "4.csv").read_bytes() if (tmp_path / "4.csv").exists() else None
        assert main(again.split()) == 0
    assert (tmp_path / "4.csv").read_bytes() == before  # seconds too: nothing ran again
    assert_equal(read(tmp_path / "4.csv"), read(tmp_path / "whole.csv"))
    first, both = (read(tmp_path / name, drop=[]) for name in ("2.csv", "4.csv"))
    assert first["seconds"].tolist() == both["seconds"].tolist()[:2]


def test_control_c_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    path = tmp_path / "a run.safetensors"
    argv = [*f"{SMALL} --algorithm scaffold --rounds 4 --cohort 3 --out".split(), str(tmp_path / "h.csv")]
    assert main(argv) == 0
    whole, original, write = read(tmp_path / "h.csv"), federation._round, Writer.write
    (tmp_path / "h.csv").unlink()

    def interrupted(algorithm, state, data, size, drop_out, key, ledger):
        if key.round == 3:
            raise KeyboardInterrupt
        return original(algorithm, state, data, size, drop_out, key, ledger)

    with monkeypatch.context() as patch:
        patch.setattr(federation, "_round", interrupted)
        patch.setattr(Writer, "write", lambda self, *args, last, **more: write(self, *args, last=True, **more))
        assert main(argv) == 130
        assert "nothing was kept; with --resume" in capsys.readouterr().err
        assert main([*argv, "--resume", str(path)]) == 130
    line = capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "h.csv").exists()
    start = "fedlib: interrupted; go on with: python -m fedlib "
    assert line.startswith(start) and fedlib.checkpoint.load_state(path)[1]["round"] == 2
    assert main(shlex.split(line.removeprefix(start))) == 0
    assert_equal(read(tmp_path / "h.csv"), whole)


def test_parquet(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    text = f"{SMALL} --resume {tmp_path / 'run'} --out"
    assert main([*text.split(), str(tmp_path / "h.csv")]) == main([*text.split(), str(tmp_path / "h.parquet")]) == 0
    assert_equal(pd.read_parquet(tmp_path / "h.parquet"), read(tmp_path / "h.csv", drop=[]))
    monkeypatch.setattr(command_line, "find_spec", lambda name: None)
    monkeypatch.setattr(federation, "fit", None)  # said before the run
    assert main([*text.split(), str(tmp_path / "h.parquet")]) == 2
    assert "pip install pyarrow" in capsys.readouterr().err


def test_a_failed_write_leaves_the_old_history(tmp_path, monkeypatch, capsys):
    out = tmp_path / "h.csv"
    out.write_text("old")

    def full(self, path, **options):
        Path(path).write_text("half")
        raise OSError("no space left")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    assert main(f"{SMALL} --out {out}".split()) == 2
    captured = capsys.readouterr()
    assert "fedlib: error: no space left" in captured.err and "test accuracy" in captured.out
    assert out.read_text() == "old" and list(tmp_path.iterdir()) == [out]


MISTAKES = {
    "no command": ("", "required: COMMAND"),
    "no data": ("run", "required: --data"),
    "unknown option": ("run --data digits --speed 3", "unrecognized arguments: --speed 3"),
    "abbreviated option": ("run --data digits --round 3", "unrecognized arguments: --round 3"),
    "no number": ("run --data digits --rounds two", "--rounds: invalid int value: 'two'"),
    "unknown data": ("run --data digit", "unknown data set 'digit'. Did you mean 'digits'?"),
    "data that are not there": ("run --data mnist10k", "mnist_train10k_by_writer.npz is not there"),
    "unknown algorithm": ("run --data digits --algorithm fedcg", "there are CFL, IFCA"),
    "unknown setting": ("run --data digits --set mu=1", "FedAvg has chunk_size, stragglers; lr"),
    "setting with an option": ("run --data digits --set lr=1", "lr, batch_size, epochs have options of their own"),
    "setting that is no text": ("run --data digits --algorithm ifca --set starts=none", "IFCA has chunk_size"),
    "setting without a value": ("run --data digits --set mu", "give name=value"),
    "--mu of another algorithm": ("run --data digits --algorithm cfl --mu 1", "CFL has chunk_size, stragglers, trig"),
    "setting of another type": ("run --data digits --algorithm cfl --set rest=1.5", "--set rest=1.5: expected int"),
    "setting out of its choices": ("run --data digits --algorithm cfl --set trigger=x", "'relative', 'norm'"),
    "setting out of range": ("run --data digits --set stragglers=2", "stragglers must be a number from 0"),
    "no epochs": ("run --data digits --epochs 0", "epochs must be a whole number of at least 1"),
    "no rounds": ("run --data digits --rounds 0", "rounds must be a whole number of at least 1"),
    "unknown partition": ("run --data digits --partition skew", "choose from"),
    "number of another partition": ("run --data digits --alpha 1", "--alpha does not belong to --partition iid"),
    "number out of range": ("run --data digits --partition dirichlet --alpha 0", "alpha must be a positive number"),
    "classes of a regression": ("run --data diabetes --partition dirichlet", "diabetes has none: use iid or quantity"),
    "table that is turned": ("run --data wine --partition rotation", "rotation needs images"),
    "network for images": ("run --data wine --model cnn", "wine has rows (13,): use mlp"),
    "units of a cnn": ("run --data digits --model cnn --hidden 3", "no --hidden"),
    "too many test rows": ("run --data digits --test-rows 1797", "between 1 and 1796 for digits; got 1797"),
    "no test rows": ("run --data digits --test-rows 0", "between 1 and 1796 for digits; got 0"),
    "too large a cohort": ("run --data digits --clients 5 --cohort 6", "between 1 and the 5 of --clients; got 6"),
    "too many clients": ("run --data wine --clients 999", "n_clients must be a whole number from 1 to the 143 rows"),
    "seed": ("run --data digits --seed -1", "Seed must be between 0"),
    "device": ("run --data digits --device toaster", 'one of torch, such as "cpu" or "cuda"; got \'toaster\''),
    "ending": ("run --data digits --out h.txt", "ends in .csv or .parquet; got h.txt"),
    "folder": ("run --data digits --resume {tmp}", "is a folder"),
    "no checkpoint": (SMALL + " --resume {tmp}/other", "is not a checkpoint of fedlib"),
    "checkpoint of another run": (SMALL + " --lr 0.2 --resume {tmp}/run", "FedAvg.lr: 0.1 there, 0.2 here"),
    "too few rounds": (SMALL + " --rounds 1 --resume {tmp}/run", "the checkpoint is at round 2"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "other").write_text("no checkpoint")
    assert main(f"{SMALL} --resume {folder / 'run'}".split()) == 0
    return folder


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_said_in_one_line(mistake, folder, monkeypatch, capsys):
    monkeypatch.setenv("FEDLIB_DATA", str(folder))
    text, expected = MISTAKES[mistake]
    assert main(text.format(tmp=folder).split()) == 2
    captured = capsys.readouterr()
    assert not captured.out and captured.err.startswith("fedlib: error: ") and expected in captured.err
    assert captured.err.count("\n") == 1


def test_diverging(capsys):
    assert main(f"{SMALL} --lr 1e200".split()) == 2
    assert "lower the learning rate" in capsys.readouterr().err.splitlines()[-1]


def test_data_are_listed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    monkeypatch.setattr(datasets, "_DEBIAN", tmp_path / "none")

    def listed():
        assert main(["data"]) == 0
        head, *lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
        place = head.index("at hand")
        assert [line.split()[0] for line in lines] == list(datasets.names())
        return {line.split()[0]: line[place:].split()[0] for line in lines}, "\n".join(lines)

    here, text = listed()
    assert here["digits"] == "yes" and here["mnist10k"] == here["wine_quality"] == here["mnist"] == "no"
    assert "5,000" in text and "CC BY 4.0" in text and "https://github.com/zalandoresearch/fashion-mnist" in text
    for name in ("mnist_train10k_by_writer.npz", "winequality-red.csv", "winequality-white.csv"):
        (tmp_path / name).touch()
    here, _ = listed()
    assert here["wine_quality"] == "yes" and here["mnist10k"] == "no"  # one of two files
    (tmp_path / "mnist_t10k_by_writer.npz").touch()
    assert listed()[0]["mnist10k"] == "yes"


def python(*arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=600)


def test_help_does_not_wait_for_torch():
    code = "import sys, runpy; sys.argv = ['fedlib', '--help']\ntry: runpy.run_module('fedlib', run_name='__main__')\n"
    code += "finally: print({'torch', 'numpy', 'pandas'} & set(sys.modules))"
    done = python("-c", code)
    assert done.stdout.endswith("set()\n") and "examples:" in done.stdout, done.stderr


def test_as_a_process(tmp_path):
    done = python("-m", "fedlib", *SMALL.split(), "--out", str(tmp_path / "h.csv"), "--resume", str(tmp_path / "run"))
    assert done.returncode == 0 and done.stdout.startswith("FedAvg on digits"), done.stderr
    assert "2/2" in done.stderr and "Warning" not in done.stderr  # the progress
    main([*SMALL.split(), "--out", str(tmp_path / "here.csv")])
    assert_equal(read(tmp_path / "h.csv"), read(tmp_path / "here.csv"))
