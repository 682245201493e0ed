"""What local training takes besides the oracle's cases: extras, frozen names, stragglers, chunks of unequal clients."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from twins import classification_loss, client_data, count, largest_difference, ragged_clients, twin

import fedlib
from fedlib import Key, local, local_batches, local_update
from fedlib.local import _chunks, clients_at_once
from fedlib.params import broadcast, row

SGD = partial(torch.optim.SGD, lr=0.1)
TASK = classification_loss(twin("MLP")[1])
STRENGTH = torch.linspace(0, 2, 8, dtype=torch.float64)


def proximal(params, batch, strength, centre):
    """Cross-entropy, plus a pull of each client's own strength to its own centre."""
    pull = sum((p - centre[name]).square().sum() for name, p in params.items())
    return TASK(params, batch) + strength * pull


def start_and_batches(steps=None):
    params, _, _ = twin("MLP")
    data = client_data(ragged_clients())
    start = {name: p + 0.1 * Key(1).normal(data.id, name, *p.shape[1:]) for name, p in broadcast(params, 8).items()}
    batches = local_batches(data, 8, 2, Key(0, 1))
    return start, batches if steps is None else replace(batches, steps=steps)


@pytest.mark.parametrize("chunk_size", [1, 3, "auto"])
def test_each_client_has_its_own_extras(chunk_size):
    start, batches = start_and_batches()
    centre = {name: p.flip(0) for name, p in start.items()}
    together = local_update(proximal, start, batches, SGD, extras=(STRENGTH, centre), chunk_size=chunk_size)
    for k in range(8):
        only = torch.tensor([k])
        extras = (STRENGTH[only], {name: p[only] for name, p in centre.items()})
        alone = local_update(proximal, {n: p[only] for n, p in start.items()}, batches[only], SGD, extras=extras)
        assert largest_difference(row(together.params, k), row(alone.params, 0)) <= 1e-12
        assert float(together.loss[k]) == pytest.approx(float(alone.loss[0]), abs=1e-12)


def test_rows_must_match_clients():
    start, batches = start_and_batches()
    longer = {name: torch.cat([p, p[:1]]) for name, p in start.items()}
    for loss, params, extras in ((TASK, longer, ()), (proximal, start, (STRENGTH[:5], start))):
        with pytest.raises(ValueError, match="one row for each of the 8 clients"):
            local_update(loss, params, batches, SGD, extras=extras)


def test_frozen_parameters_and_those_that_the_loss_does_not_use_stay():
    start, batches = start_and_batches()
    used, start["unused"] = set(start), torch.ones(8, 3, dtype=torch.float64)
    task = lambda p, b: TASK({n: p[n] for n in used}, b)  # noqa: E731
    for frozen in ((), ("dense1.weight", "dense1.bias")):
        trained = local_update(task, start, batches, SGD, frozen=frozen).params
        assert {name for name in start if torch.equal(trained[name], start[name])} == {"unused", *frozen}


@pytest.mark.parametrize("optimizer", [SGD, partial(torch.optim.SGD, lr=0.1, momentum=0.9), torch.optim.Adam])
def test_a_client_that_is_done_stands_still(optimizer):
    """Cut each client after some steps: as if it had been trained alone for so many."""
    steps = torch.tensor([1, 1, 2, 1, 4, 2, 6, 13])
    start, batches = start_and_batches(steps)
    assert local_update(TASK, start, batches, optimizer).steps.tolist() == [1, 1, 2, 1, 4, 2, 6, 13]
    together = local_update(TASK, start, batches, optimizer, chunk_size=8).params
    for k in range(8):
        params = {name: p[k].clone().requires_grad_() for name, p in start.items()}
        rule = optimizer(list(params.values()))
        for s, (x, y, w) in enumerate(batches[torch.tensor([k])].iterate(torch.float64)):
            assert s < steps[k]
            rule.zero_grad()
            TASK(params, (x[0], y[0], w[0])).backward()
            rule.step()
        assert largest_difference(row(together, k), params) <= 1e-12


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_chunks_take_each_client_once_and_waste_less_than_half(chunk_size):
    _, batches = start_and_batches()
    chunks = list(_chunks(batches, chunk_size))
    assert sorted(torch.cat(chunks).tolist()) == list(range(8)) and all(len(c) <= chunk_size for c in chunks)
    assert all(2 * batches.steps[c].min() > batches.steps[c].max() for c in chunks)


def test_chunks_keep_to_the_memory(monkeypatch):
    start, _ = start_and_batches()
    data = client_data(ragged_clients(sizes=(8,) * 8))
    client = 4 * 8 * count(row(start, 0)) + 30 * 8 * 36 * 8
    for memory, batch_size, clients in ((3 * client, 20, 3), (1, None, 1)):
        monkeypatch.setattr("fedlib.local._CHUNK_BYTES", memory)
        assert clients_at_once(start, data, batch_size) == clients


@pytest.mark.parametrize("network", ["MLP", "CNN", "torch module with GroupNorm"])
def test_a_loss_may_compute_in_16_bits(network, monkeypatch):
    """Autocast inside the loss, with kernels and with the low-rank form."""
    monkeypatch.setattr(local, "_THIN", 0)
    params, predict, _ = twin(network)
    task = classification_loss(predict)
    start = {name: p.float().expand(8, *p.shape) for name, p in params.items()}
    data = client_data({k: (x.float(), y) for k, (x, y) in ragged_clients().items()})
    batches = local_batches(data, 8, 1, Key(0, 1))

    def in_16_bits(params, batch):
        with torch.autocast("cpu", torch.bfloat16):
            output = predict(params, batch[0])
        assert output.dtype == torch.bfloat16
        return fedlib.losses.cross_entropy(output.float(), *batch[1:])

    ends = [local_update(f, start, batches, SGD).params for f in (task, in_16_bits)]
    with torch.autocast("cpu", torch.bfloat16):
        assert largest_difference(local_update(in_16_bits, start, batches, SGD).params, ends[1]) < 1e-6
    assert 0 < largest_difference(*({n: p.double() for n, p in end.items()} for end in ends)) < 0.02
    assert all(p.dtype == torch.float32 for p in ends[1].values())
