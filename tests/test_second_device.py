"""Every algorithm on a GPU, or else on a device that refuses what one does: mixed devices, NumPy without `.cpu()`."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from every import NAMES, federation, largest_gap, new_clients, numbers

import fedlib
from fedlib import algorithms, evaluation, losses, partition, statistics

emulated_device = pytest.importorskip("emulated_device", exc_type=ImportError)
DEVICE = emulated_device.second_device()
pytestmark = [pytest.mark.gpu] if DEVICE.type == "cuda" else []


def fit(name, device, rounds=2, **more):
    algorithm, params, data = federation(name)
    settings = {"seed": 3, "eval_data": data, "dtype": torch.float64, "device": device, "progress": False}
    return fedlib.fit(algorithm, params, data, rounds, **settings, **more)


def comparable(result):
    """The numbers of a state, without FedSGCNN's distances: hundreds of steps of Adam blow up rounding."""
    state = result.state
    return numbers(replace(state, distance=None) if hasattr(state, "distance") else state)


@pytest.mark.filterwarnings("ignore::UserWarning")  # tiny federations: one domain for all, one cluster for all
@pytest.mark.parametrize("name", NAMES)
def test_trains_there_as_on_the_cpu(name, tmp_path):
    algorithm, params, data = federation(name)
    for rounds in (2, 3):  # the third begins from a checkpoint
        there = fit(name, DEVICE, rounds, checkpoint=fedlib.Checkpoint(tmp_path / "run.safetensors"))
        held = algorithm.client_params(there.state, torch.arange(len(data), device=DEVICE))
        assert all(p.device == DEVICE for p in held.values())
    here = fit(name, "cpu", 3)
    near = 1e-5 if name == "FedCGKnownDomains" else 1e-9  # its domains are found in float32
    assert largest_gap(comparable(there), comparable(here)) <= near

    built = replace(there, ids=there.ids.cpu())  # as a callback builds a result, with the ids of data on the CPU
    scores = [evaluation.evaluate(algorithm, r, data).mean(numeric_only=True) for r in (built, here)]
    assert np.allclose(*scores, atol=max(near, 1e-7), equal_nan=True)  # targets are in float32, and their sums
    if name != "FedSGCNN":  # its new clients need validation rows
        new = new_clients(data)
        served = [fedlib.new_clients(algorithm, r, new, rounds=2).state for r in (built, here)]
        assert largest_gap(*map(numbers, served)) <= near
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


Y = np.arange(24) % 3
KINDS = {  # loss, x, y, outputs of the network
    "pixels": (losses.cross_entropy, np.arange(24 * 4).reshape(24, 4).astype(np.uint8), Y, 3),
    "tokens": (losses.cross_entropy, np.arange(24 * 4).reshape(24, 4), Y, 3),
    "positions": (losses.cross_entropy, np.eye(24)[:, :4], np.where(Y[:, None] > [0, 2], Y[:, None], -100)[Y > 0], 6),
    "labels": (losses.bce, np.eye(24)[:, :4], np.stack([Y % 2, Y // 2], 1), 2),
    "targets": (losses.mse, np.eye(24)[:, :4], np.stack([Y, Y]).T / 2, 2),
}


@pytest.mark.parametrize("algorithm", [algorithms.FedAvg, algorithms.LocalOnly])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_trains_there(kind, algorithm, tmp_path):
    loss, x, y, outputs = KINDS[kind]
    torch.manual_seed(0)
    net = [torch.nn.Linear(4, outputs), torch.nn.Unflatten(1, (2, 3))][: 1 + (kind == "positions")]
    if kind == "tokens":
        net = [torch.nn.Embedding(96, 2), torch.nn.Flatten(), torch.nn.Linear(8, outputs)]
    model = fedlib.models.Model(torch.nn.Sequential(*net).double())
    user = np.repeat(list("cabd"), (2, 3, 4, len(y) - 9))
    data = partition.by_user(user).clients(x[: len(y)], y, pixels=kind == "pixels")
    method = algorithm(lambda p, b: loss(model(p, b[0]), *b[1:]), lr=0.1, predict=model, batch_size=3)
    scores = []
    for device in (DEVICE, "cpu"):
        settings = {"eval_data": data, "checkpoint": fedlib.Checkpoint(tmp_path / str(device)), "progress": False}
        result = fedlib.fit(method, model.params, data, 2, device=device, **settings)
        scores.append(evaluation.evaluate(method, result, data))
    assert scores[0]["name"].tolist() == ["a", "b", "c", "d"]
    assert np.allclose(*(s.drop(columns="name").to_numpy(float) for s in scores), atol=1e-9, equal_nan=True)


def test_the_rounding_of_a_gpu_is_no_fault_of_the_loss():
    """Convolutions in TF32, torch's default, differ by the size of the batch."""
    algorithm, params, data = federation("FedAvg")
    plain = algorithm.loss

    def rounded(params, batch):
        return plain(params, batch) * (1 + 1e-3 * len(batch[0]))

    args, settings = (replace(algorithm, loss=rounded), params, data, 1), {"dtype": torch.float32, "progress": False}
    fedlib.fit(*args, device=DEVICE, **settings)
    with pytest.raises(ValueError, match="padded rows"):
        fedlib.fit(*args, device="cpu", **settings)


def test_the_device_refuses_what_a_gpu_refuses():
    x = torch.arange(3.0).to(DEVICE)
    assert (x * 2).cpu().tolist() == [0, 2, 4] and float(x.sum()) == 3 and x[torch.tensor([1])].tolist() == [1]
    for wrong in (lambda: x + torch.ones(3), lambda: torch.cat([x, torch.ones(3)])):
        with pytest.raises(RuntimeError, match="same device"):
            wrong()
    for wrong in (x.numpy, lambda: np.asarray(x)):
        with pytest.raises(TypeError, match="can't convert"):
            wrong()
