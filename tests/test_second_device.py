"""Every algorithm on a device that refuses what a GPU refuses: mixed devices and NumPy without `.cpu()`."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from every import federation, largest_gap, new_clients, numbers

import fedlib
from fedlib import algorithms, evaluation
from fedlib.reports import statistics

emulated_device = pytest.importorskip("emulated_device", exc_type=ImportError)
emulated_device.install()
DEVICE = torch.device(emulated_device.NAME, 0)


def fit(name, device, rounds=2, **more):
    algorithm, params, data = federation(name)
    return fedlib.fit(
        algorithm,
        params,
        data,
        rounds,
        seed=3,
        eval_data=data,
        dtype=torch.float64,
        device=device,
        progress=False,
        **more,
    )


def comparable(result):
    """The numbers of a state, without FedSGCNN's distances: hundreds of steps of Adam blow up rounding."""
    state = result.state
    return numbers(replace(state, distance=None) if hasattr(state, "distance") else state)


@pytest.mark.filterwarnings("ignore::UserWarning")  # tiny federations: one domain for all, one cluster for all
@pytest.mark.parametrize("name", algorithms.__all__)
def test_trains_there_as_on_the_cpu(name, tmp_path):
    algorithm, params, data = federation(name)
    there, here = fit(name, DEVICE, checkpoint=fedlib.Checkpoint(tmp_path / "run.safetensors")), fit(name, "cpu")
    held = algorithm.client_params(there.state, torch.arange(len(data), device=DEVICE))
    assert all(p.device == DEVICE for p in held.values())
    assert largest_gap(comparable(there), comparable(here)) <= 1e-9
    longer, whole = (
        fit(name, DEVICE, 3, checkpoint=fedlib.Checkpoint(tmp_path / "run.safetensors")),
        fit(name, "cpu", 3),
    )
    assert largest_gap(comparable(longer), comparable(whole)) <= 1e-9

    scores = [evaluation.evaluate(algorithm, r, data).mean(numeric_only=True) for r in (there, here)]
    assert np.allclose(*scores, atol=1e-9, equal_nan=True)
    if name != "FedSGCNN":  # its new clients need validation rows
        new = new_clients(data)
        served = [fedlib.new_clients(algorithm, r, new, rounds=2).state for r in (there, here)]
        assert largest_gap(*map(numbers, served)) <= 1e-9
    if isinstance(getattr(there.state, "assignment", None), torch.Tensor):
        group = np.arange(len(data)) % 2
        found = [statistics.cluster_scores(group, r.state.assignment) for r in (there, here)]
        assert found[0] == found[1]


def test_parameters_of_an_earlier_result_may_lie_there():
    algorithm, params, data = federation("FedAvg")
    earlier = fit("FedAvg", DEVICE).state.models
    begin = {name: p[0] for name, p in earlier.items()}
    assert begin["dense1.weight"].device == DEVICE
    for device in ("cpu", DEVICE):
        result = fedlib.fit(algorithm, begin, data.to(DEVICE), 1, device=device, progress=False)
        assert result.state.models["dense1.weight"].device.type == torch.device(device).type


def test_the_device_refuses_what_a_gpu_refuses():
    x = torch.arange(3.0).to(DEVICE)
    assert (x * 2).cpu().tolist() == [0, 2, 4] and float(x.sum()) == 3 and x[torch.tensor([1])].tolist() == [1]
    for wrong in (lambda: x + torch.ones(3), lambda: torch.cat([x, torch.ones(3)])):
        with pytest.raises(RuntimeError, match="same device"):
            wrong()
    for wrong in (x.numpy, lambda: np.asarray(x)):
        with pytest.raises(TypeError, match="can't convert"):
            wrong()
