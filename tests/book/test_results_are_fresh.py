"""Each stored result still belongs to the code: its probe, computed anew, gives the same numbers."""

import functools
from types import SimpleNamespace

import pytest

from book import results
from book.experiments import running

EXPERIMENTS = {
    f"{name} {preset}": experiment
    for name, module in running.modules().items()
    for preset, experiment in module.PRESETS.items()
    if experiment.path.exists()
}


def test_every_stored_result_has_an_experiment():
    stored = {path.stem for path in (running.ROOT / "book/results").glob("*.json")}
    assert {experiment.result for experiment in EXPERIMENTS.values()} == stored


GROUPED = [pytest.param(name, marks=pytest.mark.xdist_group(name.split()[0])) for name in EXPERIMENTS]


@functools.cache
def computed(probe):
    """Several presets of a module have one probe."""
    return running.probe_of(SimpleNamespace(probe=probe))


@pytest.mark.parametrize("which", GROUPED)
def test_the_code_behaves_as_when_it_was_measured(which):
    experiment = EXPERIMENTS[which]
    stored = results.load(experiment.path)["probe"]
    assert stored, "no probe is stored"
    other = [arm for arm in running.moved(stored, computed(experiment.probe)) if arm in stored]
    command = "python -m book.experiments {} --preset {}".format(*which.split())
    assert not other, f"these arms compute something else now: {', '.join(other)}; `{command}` measures them again"
