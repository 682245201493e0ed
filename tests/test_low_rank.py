"""Wide dense layers without a matrix for each client: the numbers of plain SGD, in float64.

`test_differential` takes every second case in this form, and `test_invariances` every algorithm.
"""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from twins import classification_loss, client_data, largest_difference, ragged_clients, start_of, twin

import fedlib
from fedlib import Key, local, local_batches, local_update
from fedlib.low_rank import LowRank
from fedlib.params import broadcast

SGD = partial(torch.optim.SGD, lr=0.1)
SETTINGS = {"batch_size": 8, "epochs": 2}


@pytest.fixture
def taken(monkeypatch):
    """Every matrix from which all clients start is taken in low-rank form; the shapes of the steps taken in it."""
    shapes, step = [], LowRank.step
    monkeypatch.setattr(local, "_THIN", 0)
    monkeypatch.setattr(LowRank, "step", lambda self, g, *more: shapes.append(self.start.shape) or step(self, g, *more))
    return shapes


PARAMS, PREDICT, _ = twin("MLP")
LOSS, START = classification_loss(PREDICT), broadcast(PARAMS, 8)
BATCHES = local_batches(client_data(ragged_clients()), 8, 1, Key(0, 1))


@pytest.fixture
def both(monkeypatch):
    """Local training in low-rank form, and with matrices."""

    def train(loss, start=START, batches=BATCHES, **settings):
        thin = local_update(loss, start, batches, SGD, **settings)
        with monkeypatch.context() as dense:
            dense.setattr(local, "_THIN", float("inf"))
            return thin, local_update(loss, start, batches, SGD, **settings)

    return train


def test_what_becomes_of_a_client_that_is_done_does_not_matter():
    weights = LowRank.of(torch.zeros(2, 3), clients=2, rows=1)
    weights.linear(torch.tensor([[[1.0, 2.0, 3.0]], [[torch.nan, torch.inf, 0.0]]]))
    weights.step(torch.ones(2, 1, 2), lr=0.5, clients=1)
    assert weights.dense()[0].tolist() == [[-0.5, -1.0, -1.5]] * 2 and not weights.dense()[1].any()


def layer(params, number, x):
    return F.linear(x, params[f"dense{number}.weight"], params[f"dense{number}.bias"])


def score(params, hidden, batch):
    """The loss of what comes out of the first layer."""
    return fedlib.losses.cross_entropy(layer(params, 2, hidden.relu()), *batch[1:])


def norm_of_all(params, batch):
    return LOSS(params, batch) + 0.1 * sum(p.square().sum() for p in params.values())


def twice(params, batch):
    x, y, w = batch
    return LOSS(params, batch) + LOSS(params, (x + 1, y, w))


def by_hand(params, batch):
    """The weights are multiplied, but not by `F.linear`."""
    h = torch.relu(batch[0].flatten(1) @ params["dense1.weight"].T + params["dense1.bias"])
    return fedlib.losses.cross_entropy(h @ params["dense2.weight"].mT + params["dense2.bias"], *batch[1:])


def in_a_list(params, batch):
    return LOSS(params, batch) + torch.cat([params["dense1.weight"], torch.ones(1, 36)]).sum()


def of_a_gradient(params, batch):
    """A step ahead, by `torch.func.grad` inside the loss."""
    gradient = torch.func.grad(LOSS)(params, batch)
    return LOSS({name: p - 0.1 * gradient[name] for name, p in params.items()}, batch)


def gradient_norm(params, batch):
    """A penalty on the gradient, whose weight is wrapped by `torch.func.grad`."""
    gradient = torch.func.grad(lambda w: LOSS(params | {"dense1.weight": w}, batch))(params["dense1.weight"])
    return LOSS(params, batch) + gradient.square().sum()


def still(params, batch):
    """A first layer that no gradient shall reach."""
    with torch.no_grad():
        hidden = layer(params, 1, batch[0].flatten(1))
    return score(params, hidden, batch)


def detached(params, batch):
    """The same, in another way."""
    return score(params, layer(params, 1, batch[0].flatten(1)).detach(), batch)


def on_its_device(params, batch):
    """The examples go where the weights are."""
    return score(params, layer(params, 1, batch[0].flatten(1).to(params["dense1.weight"].device)), batch)


FUNCTIONS = [norm_of_all, twice, by_hand, in_a_list, of_a_gradient, gradient_norm, still, detached, on_its_device]


@pytest.mark.parametrize("loss", FUNCTIONS)
def test_a_loss_that_needs_the_matrix_gets_it(loss, taken, both):
    thin, dense = both(loss)
    assert not taken and largest_difference(thin.params, dense.params) == 0
    for name, p in thin.params.items():
        assert torch.equal(p, START[name]) == (loss in (still, detached) and name.startswith("dense1"))


def test_a_wrong_loss_is_called_once_and_reported_as_its_own(taken):
    calls = []
    with pytest.raises(KeyError, match="dense9"):
        local_update(lambda p, batch: calls.append(0) or p["dense9.weight"].sum(), START, BATCHES, SGD)
    assert calls == [0]


def test_a_layer_that_the_loss_leaves_out_stays(taken):
    """And shapes may be asked for."""
    start = START | broadcast({"other": torch.ones(5, 6, dtype=torch.float64)}, 8)
    loss = lambda p, b: LOSS({n: p[n] for n in PARAMS}, b) * p["dense1.weight"].shape[0]  # noqa: E731
    end = local_update(loss, start, BATCHES, SGD)
    assert taken and isinstance(end.ends["other"], LowRank)
    assert torch.equal(end.params["other"], start["other"])


def test_a_network_of_one_matrix_in_16_bits(taken, monkeypatch):
    dtype = torch.bfloat16
    torch.manual_seed(0)
    model = fedlib.models.Model(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 4, bias=False)))
    algorithm = fedlib.algorithms.FedAvg(classification_loss(model), lr=0.05, **SETTINGS)
    fit = partial(fedlib.fit, algorithm, model.params, client_data(ragged_clients()), 2, dtype=dtype, progress=False)
    thin = fit().state.models
    assert taken and thin["1.weight"].dtype == dtype
    monkeypatch.setattr(local, "_THIN", float("inf"))
    assert float((thin["1.weight"] - fit().state.models["1.weight"]).abs().max()) <= 0.01


def test_thin_steps_of_a_wide_matrix_are_taken_so_by_themselves(both):
    model = fedlib.models.MLP((36, 400, 300, 4))
    batches = local_batches(client_data(ragged_clients((3, 9, 5))), 4, 1, Key(0, 1))
    thin, dense = both(classification_loss(model), broadcast(start_of(model), 3), batches)
    assert [name for name, p in thin.ends.items() if isinstance(p, LowRank)] == ["dense1.weight", "dense2.weight"]
    assert largest_difference(thin.params, dense.params) <= 1e-12
    assert float((thin.loss - dense.loss).abs().max()) <= 1e-12
