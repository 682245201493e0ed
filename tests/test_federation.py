"""The loop of rounds: history, callbacks, evaluation sets, devices, other numeric types."""

import subprocess
import sys

import pytest
import torch
from twins import classification_loss, client_data, ragged_clients, twin

import fedlib
from fedlib.algorithms import FedAvg


def run(rounds=4, clients_per_round=3, data=None, **settings):
    params, predict, _ = twin("MLP")
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
    from fedlib.federation import _works_on, choose_device

    expected = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert choose_device("auto").type in (expected, "cpu") and choose_device("cpu").type == "cpu"
    assert _works_on(torch.device("cpu"))
    assert not _works_on(torch.device("meta"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpu_equals_cpu():
    a, b = run(device="cuda").state.models, run(device="cpu").state.models
    assert all(torch.allclose(a[n].cpu(), b[n], atol=1e-10) for n in a)


def test_algorithms_wait_until_they_are_asked_for():
    """Else a change in one would make the stored results of all others stale."""
    code = "import sys, fedlib as f; f.algorithms.FedAvg; print(*(m for m in sys.modules if 'fedlib.algorithms.' in m))"
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["fedlib.algorithms.fedavg"]
    with pytest.raises(AttributeError, match="no algorithm 'FedSGD'; it has FedAvg"):
        _ = fedlib.algorithms.FedSGD
    assert set(fedlib.algorithms.__all__) <= set(dir(fedlib.algorithms))


def test_heavy_packages_wait_until_they_are_needed():
    heavy = {"sklearn", "matplotlib", "torchvision", "torch_geometric", "mlxtend", "scipy"}
    code = f"import sys, fedlib; print(*({heavy!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
