"""Each stored result still belongs to the code: its probe, computed anew, gives the same numbers."""

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


@pytest.mark.parametrize("which", EXPERIMENTS)
def test_the_code_behaves_as_when_it_was_measured(which):
    experiment = EXPERIMENTS[which]
    stored = results.load(experiment.path)["probe"]
    assert stored, "no probe is stored"
    other = running.moved(stored, running.probe_of(experiment))
    assert not other, f"these arms compute something else now: {', '.join(other)}; `make results` measures them again"
