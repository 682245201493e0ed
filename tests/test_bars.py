"""One bar for a run, or one for all runs of a block."""

import pytest
from every import federation

import fedlib


def fit(rounds, **more):
    algorithm, params, data = federation("FedAvg")
    return fedlib.fit(algorithm, params, data, rounds, **more)


def test_a_run_has_a_bar_of_its_own(capsys):
    fit(3)
    assert "FedAvg: 100%" in capsys.readouterr().err
    fit(3, progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("rounds", [3, 7])
def test_a_block_has_one_bar_that_ends_full(rounds, capsys):
    """Fractions of a run add up to a little more or less than one; that must not be said."""
    with fedlib.progress("three seeds", runs=3):
        for seed in range(3):
            fit(rounds, seed=seed)
    shown = capsys.readouterr().err
    assert "FedAvg" not in shown and "three seeds: 100%" in shown and "train_loss=" in shown


def test_a_block_that_fails_closes_its_bar(capsys):
    with pytest.raises(ValueError, match="rounds"), fedlib.progress("none", runs=1):
        fit(0)
    fit(1)
    assert "FedAvg: 100%" in capsys.readouterr().err.split("none")[-1]
