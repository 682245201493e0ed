"""The loop of rounds: history, callbacks, evaluation sets, devices, other numeric types."""

import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from twins import TWINS, classification_loss, client_data, largest_difference, ragged_clients, twin

import fedlib
from fedlib import Update
from fedlib.aggregate import cluster_sums
from fedlib.algorithms import FedAvg


def run(rounds=4, clients_per_round=3, data=None, network="MLP", **settings):
    params, predict, _ = twin(network)
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
@pytest.mark.parametrize("network", TWINS)
def test_gpu_equals_cpu(network):
    a, b = (run(device=device, network=network).state.models for device in ("cuda", "cpu"))
    assert all(torch.allclose(a[n].cpu(), b[n], atol=1e-10) for n in a)


@dataclass(frozen=True)
class Proximal(FedAvg):
    """FedProx in ten lines: what a new algorithm needs of the base class."""

    mu: float = 0.5

    def prepare(self, state, data, key):
        return replace(state, models={name: p + 1 for name, p in state.models.items()})

    def cohort(self, state, ids, n, key):
        return super().cohort(state, ids, n, key).flip(0)

    def train(self, state, data, clients, key):
        def loss(params, batch, start):
            return self.loss(params, batch) + self.mu / 2 * sum((params[n] - start[n]).square().sum() for n in start)

        start = self.client_params(state, clients)
        end = self.local_training(start, data, key, extras=(start,), loss=loss, frozen=("dense1.bias",))
        return Update(clients, cluster_sums(end.params, torch.zeros_like(clients), data.n, 1), log={"loss": end.loss})


def test_a_new_algorithm_is_a_few_lines():
    """Loss terms, extras, frozen names, preparation: against a loop over clients."""
    params, predict, module = twin("MLP")
    clients = ragged_clients()
    algorithm = Proximal(classification_loss(predict), lr=0.1, batch_size=8, mu=0.7)
    result = fedlib.fit(algorithm, params, client_data(clients), 1, 3, seed=4, progress=False)
    key, ids = fedlib.Key(4, 1), torch.tensor(list(clients))
    start = {name: p + 1 for name, p in params.items()}
    total, examples = {name: 0 * p for name, p in params.items()}, 0
    for k in key.choose(ids, 3, "cohort"):
        x, y = clients[int(ids[k])]
        module.load_state_dict(start)
        trained = {name: p for name, p in module.named_parameters() if name != "dense1.bias"}
        for rows in key.permutations(ids[k][None], "batches", torch.tensor([len(x)]), 1, len(x))[0, 0].split(8):
            pull = 0.35 * sum((p - start[name]).square().sum() for name, p in trained.items())
            loss = torch.nn.functional.cross_entropy(module(x[rows]), y[rows]) + pull
            gradients = torch.autograd.grad(loss, list(trained.values()))
            with torch.no_grad():
                for p, g in zip(trained.values(), gradients, strict=True):
                    p -= 0.1 * g
        examples += len(x)
        for name, p in module.named_parameters():
            total[name] = total[name] + len(x) * p.detach()
    expected = {name: p / examples for name, p in total.items()}
    assert largest_difference({n: p[0] for n, p in result.state.models.items()}, expected) <= 1e-12


def test_algorithms_wait_until_they_are_asked_for():
    """Else a change in one would make the stored results of all others stale."""
    code = "import sys, fedlib as f; f.algorithms.FedAvg; print(*(m for m in sys.modules if 'fedlib.algorithms.' in m))"
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["fedlib.algorithms.fedavg"]
    with pytest.raises(AttributeError, match="no algorithm 'FedSGD'; it has .*FedAvg"):
        _ = fedlib.algorithms.FedSGD
    assert set(fedlib.algorithms.__all__) <= set(dir(fedlib.algorithms))


def test_heavy_packages_wait_until_they_are_needed():
    heavy = {"sklearn", "matplotlib", "torchvision", "torch_geometric", "mlxtend", "scipy"}
    code = f"import sys, fedlib; print(*({heavy!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
