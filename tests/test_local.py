"""What local training takes besides the cases of the oracles: rows that do not fit, memory, losses in 16 bits."""

from functools import partial

import pytest
import torch
from twins import classification_loss, client_data, count, largest_difference, ragged_clients, twin

import fedlib
from fedlib.params import broadcast, row

SGD = partial(torch.optim.SGD, lr=0.1)
TASK = classification_loss(twin("MLP")[1])
START = broadcast(twin("MLP")[0], 8)


def test_rows_must_match_clients():
    batches = fedlib.local_batches(client_data(ragged_clients()), 8, 2, fedlib.Key(0, 1))
    for rows, extras in ((9, ()), (8, (torch.ones(5), START))):
        with pytest.raises(ValueError, match="one row for each of the 8 clients"):
            fedlib.local_update(TASK, broadcast(row(START, 0), rows), batches, SGD, extras=extras)


def test_chunks_keep_to_the_memory(monkeypatch):
    data = client_data(ragged_clients(sizes=(8,) * 8))
    client = 4 * 8 * count(row(START, 0)) + 30 * 8 * 36 * 8
    for memory, batch_size, clients in ((3 * client, 20, 3), (1, None, 1)):
        monkeypatch.setattr("fedlib.local._CHUNK_BYTES", memory)
        assert fedlib.local.clients_at_once(START, data, batch_size) == clients


@pytest.mark.parametrize("network", ["MLP", "CNN", "torch module with GroupNorm"])
def test_a_loss_may_compute_in_16_bits(network, monkeypatch):
    """Autocast inside the loss, with kernels and with the low-rank form."""
    monkeypatch.setattr(fedlib.local, "_THIN", 0)
    params, predict, _ = twin(network)
    task = classification_loss(predict)
    start = {name: p.float().expand(8, *p.shape) for name, p in params.items()}
    data = client_data({k: (x.float(), y) for k, (x, y) in ragged_clients().items()})
    batches = fedlib.local_batches(data, 8, 1, fedlib.Key(0, 1))

    def in_16_bits(params, batch):
        with torch.autocast("cpu", torch.bfloat16):
            output = predict(params, batch[0])
        assert output.dtype == torch.bfloat16
        return fedlib.losses.cross_entropy(output.float(), *batch[1:])

    ends = [fedlib.local_update(f, start, batches, SGD).params for f in (task, in_16_bits)]
    with torch.autocast("cpu", torch.bfloat16):
        assert largest_difference(fedlib.local_update(in_16_bits, start, batches, SGD).params, ends[1]) < 1e-6
    assert 0 < largest_difference(*({n: p.double() for n, p in end.items()} for end in ends)) < 0.02
    assert all(p.dtype == torch.float32 for p in ends[1].values())
