"""Costs: bytes as safetensors would write them, operations by formula, purposes that add up."""

import time
from dataclasses import dataclass

import pytest
import torch
from reference import batches
from safetensors.torch import save
from twins import SIZES, fit, ragged_clients, twin

import fedlib
from fedlib import Update, costs
from fedlib.algorithms import FedAvg, FedProx, Scaffold


def run(algorithm, rounds=2, cohort=None, network="MLP", dtype=torch.float32, **settings):
    """A run on clients of different sizes; `settings` of the algorithm and of fit."""
    settings |= {"seed": 5, "dtype": dtype}
    return twin(network)[0], fit(algorithm, ragged_clients(), network, rounds, cohort, **settings)[1]


def stored_bytes(message):
    """Length of the file that safetensors writes, less its header and the 8 bytes that say how long this is."""
    content = save({name: p.clone() for name, p in message.items()})
    return len(content) - 8 - int.from_bytes(content[:8], "little")


def test_a_lost_client_costs_its_download_only():
    """Of SCAFFOLD: the model and c go down; what has become of both and the client's weight come up."""
    params, result = run(Scaffold, 6, 5, lost=0.4)
    model = {name: p.float() for name, p in params.items()}
    down = model | {f"c.{name}": p for name, p in model.items()}
    up = down | {"weight": torch.ones(1)}
    arrived = result.history["clients"]
    assert arrived.nunique() > 1 and arrived.min() < 5
    assert (result.history["bytes_down"] == 5 * stored_bytes(down)).all()
    assert (result.history["bytes_up"] == arrived * stored_bytes(up)).all()


@pytest.mark.parametrize(("cohort", "stragglers"), [(None, 0.0), (3, 0.0), (None, 0.7)])
def test_examples_are_those_of_the_steps(cohort, stragglers):
    """Of all epochs, or of those that a straggler has; counted batch by batch."""
    counted, ids = run(FedAvg, 3, cohort, stragglers=stragglers)[1].history["examples"], list(ragged_clients())
    for t, examples in enumerate(counted, 1):
        key, total = fedlib.Key(5, t), 0
        for k in key.choose(torch.tensor(ids), cohort, "cohort").tolist() if cohort else range(len(ids)):
            total += sum(map(len, batches(ids[k], SIZES[k], key, batch_size=8, epochs=2, stragglers=stragglers)))
        assert examples == total
    assert (counted.nunique() > 1) == bool(cohort or stragglers)


FORMULAS = {  # multiplications of one example
    "MLP": 36 * 8 + 8 * 4,
    "CNN": 36 * 3 * 1 * 9 + 9 * 2 * 3 * 9 + 2 * 4,  # positions x filters x channels x kernel; 6 x 6, then 3 x 3
    "torch module with GroupNorm": 4 * 4 * 1 * 9 + 16 * 4,
}


CASES = [*((FedAvg, network, 8) for network in FORMULAS), (FedProx, "CNN", None), (Scaffold, "MLP", 2**63)]


@pytest.mark.parametrize(("algorithm", "network", "batch_size"), CASES)
def test_operations_by_formula(algorithm, network, batch_size):
    """Whatever the chunks; a batch larger than any number is all rows."""
    for chunk_size in (3, "auto"):
        history = run(algorithm, network=network, batch_size=batch_size, chunk_size=chunk_size)[1].history
        assert (history["examples"] == 2 * sum(SIZES)).all()
        assert (history["flops"] == history["examples"] * 3 * 2 * FORMULAS[network]).all()


x, w, b = torch.ones(5, 4), torch.ones(3, 4), torch.ones(3)
PRODUCTS = {
    "@": lambda: x @ w.mT,
    "addmm by name": lambda: torch.addmm(b, mat1=x, mat2=w.mT),
    "baddbmm": lambda: torch.baddbmm(b, x[None], w.mT[None]),
    "einsum": lambda: torch.einsum("bi,oi->bo", x, w),
    "linear by name": lambda: torch.nn.functional.linear(x, weight=w, bias=b),
    "with a vector": lambda: torch.stack([x @ row for row in w]),
    "of two vectors": lambda: torch.stack([a @ c for a in x for c in w]),
    "conv1d": lambda: torch.nn.functional.conv1d(x[..., None], weight=w[..., None]),
    "conv3d": lambda: torch.nn.functional.conv3d(x[..., None, None, None], w[..., None, None, None]),
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_each_way_to_write_a_product_counts_the_same(product):
    assert costs.flops_of(PRODUCTS[product]) == 2 * 5 * 4 * 3
    x, w = torch.ones(2, 4, 6, 6), torch.ones(8, 2, 3, 3)  # a grouped convolution costs less
    assert costs.flops_of(torch.nn.functional.conv2d, x, w, None, 1, 0, 1, 2) == 2 * (2 * 8 * 4 * 4) * (2 * 9)


@dataclass(frozen=True)
class Several(FedAvg):
    """Several purposes: everything that an algorithm enters."""

    def prepare(self, state, data, key):
        costs.record("graph", bytes_up=7, bytes_down=11)
        with costs.server_time("graph"):
            time.sleep(0.01)
        return state

    def download(self, state, clients):
        model = self.client_params(state, clients)
        return {"training": model, "clustering": {"logits": torch.zeros(len(clients), 6, dtype=torch.float32)}}

    def train(self, state, data, clients, key):
        teacher = self.local_training(self.client_params(state, clients), data, key, purpose="teacher-student")
        end = self.local_training(teacher.params, data, key)
        costs.record("clustering", flops=5 * len(clients))
        sums = fedlib.aggregate.cluster_sums(end.params, torch.zeros_like(clients), data.n, models=1)
        rows = {"signature": torch.zeros(len(clients), 3, dtype=torch.float64)}
        return Update(clients, sums, rows, log={"loss": end.loss}, purpose={"signature": "clustering"})

    def aggregate(self, state, update):
        with costs.server_time("clustering"):
            time.sleep(0.02)
            with costs.server_time("graph"):
                time.sleep(0.03)
        return super().aggregate(state, update)


def test_purposes_have_columns_of_their_own_which_add_up():
    params, result = run(Several, 2, 3)
    history = result.history
    before, first = history.iloc[0], history.iloc[1]
    size = stored_bytes({name: p.float() for name, p in params.items()})
    assert history["round"].tolist() == [0, 1, 2] and before["clients"] == len(SIZES)
    assert (before["bytes_up"], before["bytes_down"]) == (before["bytes_up (graph)"], before["bytes_down (graph)"])
    assert (before["bytes_up"], before["bytes_down"], before["examples"]) == (7, 11, 0)
    assert 0.01 <= before["server_seconds"] == before["server_seconds (graph)"] < before["seconds"]
    assert first["bytes_down (clustering)"] == 3 * 24 and first["bytes_down"] == 3 * (24 + size)
    assert first["bytes_up (clustering)"] == 3 * 24 and first["bytes_up"] == 3 * (24 + size + 4)
    assert first["flops (clustering)"] == 15
    assert first["examples"] == 2 * first["examples (teacher-student)"] > 0
    assert first["flops"] == 2 * first["flops (teacher-student)"] + 15
    assert not [c for c in history if "(training)" in c]
    for column in costs.COLUMNS:
        parts = history[[c for c in history if c.startswith(f"{column} (")]].fillna(0).sum(axis=1)
        assert (parts <= history[column] + 1e-12).all()


def test_inner_server_time_is_not_counted_twice():
    first = run(Several, 1)[1].history.iloc[1]
    assert 0.02 <= first["server_seconds (clustering)"] < 0.05 + first["server_seconds (graph)"] - 0.03
    assert first["server_seconds (graph)"] >= 0.03 and 0.05 <= first["server_seconds"] < first["seconds"]
    assert first["server_seconds"] >= first["server_seconds (clustering)"] + first["server_seconds (graph)"]


def test_server_time_of_a_purpose_inside_itself_counts_once():
    with costs.open_costs() as opened, costs.server_time("graph"):
        start = time.perf_counter()
        with costs.server_time("graph"):
            time.sleep(0.02)
        longest = time.perf_counter() - start
    assert 0.02 <= opened.total("server_seconds") < longest + 0.015


def test_nothing_is_recorded_outside_a_run_and_an_inner_run_has_its_own_costs():
    costs.record("graph", bytes_up=3)
    with costs.server_time("graph"):
        assert costs.current_costs() is None
    with costs.open_costs() as outer:
        assert not any(outer.take().values())
        costs.record("graph", bytes_up=3)
        assert run(FedAvg)[1].history["round"].tolist() == [1, 2]  # a plain run has no round 0
        assert outer.take()["bytes_up (graph)"] == 3 and not any(outer.take().values())
    assert costs.current_costs() is None
