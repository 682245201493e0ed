"""Wide dense layers without a matrix for each client: the numbers of plain SGD, in float64."""

from dataclasses import dataclass, replace
from functools import partial

import pytest
import reference
import torch
import torch.nn.functional as F
from twins import classification_loss, client_data, largest_difference, ragged_clients, twin

import fedlib
from fedlib import Key, local, local_batches, local_update
from fedlib.algorithms import FedAvg, LGFedAvg, Scaffold
from fedlib.low_rank import LowRank
from fedlib.models import MLP, Model
from fedlib.params import broadcast, mix

SGD = partial(torch.optim.SGD, lr=0.1)
SETTINGS = {"batch_size": 8, "epochs": 2}


@pytest.fixture
def taken(monkeypatch):
    """Every matrix from which all clients start is taken in low-rank form; the shapes of the steps taken in it."""
    shapes, step = [], LowRank.step
    monkeypatch.setattr(local, "_THIN", 0)
    monkeypatch.setattr(local, "_NEED_MATRICES", type(local._NEED_MATRICES)())
    monkeypatch.setattr(LowRank, "step", lambda self, g, *more: shapes.append(self.start.shape) or step(self, g, *more))
    return shapes


def task(name):
    params, predict, module = twin(name)
    return params, classification_loss(predict), module


@pytest.mark.parametrize(
    ("network", "cohort", "matrices"),
    [("MLP", 8, {(8, 36), (4, 8)}), ("CNN", 3, {(4, 2)}), ("torch module with GroupNorm", 3, {(4, 16)})],
)
def test_fedavg_equals_the_reference(network, cohort, matrices, clients, taken):
    params, loss, module = task(network)
    algorithm = FedAvg(loss, lr=0.05, **SETTINGS)
    result = fedlib.fit(algorithm, params, client_data(clients), 5, cohort, seed=7, progress=False)
    rules = {"optimizer": partial(torch.optim.SGD, lr=0.05), "criterion": F.cross_entropy, **SETTINGS}
    server = reference.fedavg(module, clients, 5, cohort, seed=7, **rules)
    models = {name: p[0] for name, p in result.state.models.items()}
    assert {tuple(shape) for shape in taken} == matrices
    assert largest_difference(models, dict(server.named_parameters())) <= 1e-10
    assert largest_difference(models, params) > 1e-3


def both(monkeypatch, loss, start, batches, optimizer=SGD, **settings):
    """Local training in low-rank form, and with matrices."""
    thin = local_update(loss, start, batches, optimizer, **settings)
    with monkeypatch.context() as dense:
        dense.setattr(local, "_THIN", float("inf"))
        return thin, local_update(loss, start, batches, optimizer, **settings)


@pytest.mark.parametrize("chunk_size", [1, 3, "auto"])
def test_each_client_has_its_own_matrix_mean_and_loss(chunk_size, taken, monkeypatch):
    params, loss, _ = task("MLP")
    batches = local_batches(client_data(ragged_clients()), 8, 2, Key(0, 1))
    batches = replace(batches, steps=torch.tensor([1, 1, 2, 1, 4, 2, 6, 13]))  # stragglers
    thin, dense = both(monkeypatch, loss, broadcast(params, 8), batches, chunk_size=chunk_size)
    assert isinstance(thin.ends["dense1.weight"], LowRank)
    assert not any(isinstance(p, LowRank) for p in dense.ends.values())
    assert largest_difference(thin.params, dense.params) <= 1e-12
    assert float((thin.loss - dense.loss).abs().max()) <= 1e-12
    matrix = Key(3).uniform(torch.arange(2), "weights", 8)
    assert largest_difference(mix(matrix, thin.ends), mix(matrix, dense.ends)) <= 1e-12


def test_what_becomes_of_a_client_that_is_done_does_not_matter():
    weights = LowRank.of(torch.zeros(2, 3), clients=2, rows=1)
    x = torch.tensor([[[1.0, 2.0, 3.0]], [[torch.nan, torch.inf, 0.0]]])
    weights.linear(x)
    weights.step(torch.ones(2, 1, 2), lr=0.5, clients=1)
    assert weights.dense()[0].tolist() == [[-0.5, -1.0, -1.5]] * 2
    assert not weights.dense()[1].any()


def norm_of_all(loss):
    return lambda params, batch: loss(params, batch) + 0.1 * sum(p.square().sum() for p in params.values())


def twice(loss):
    def of_both(params, batch):
        x, y, w = batch
        return loss(params, batch) + loss(params, (x + 1, y, w))

    return of_both


def by_hand(params, batch):
    """The weights are multiplied, but not by `F.linear`."""
    h = torch.relu(batch[0].flatten(1) @ params["dense1.weight"].T + params["dense1.bias"])
    return fedlib.losses.cross_entropy(h @ params["dense2.weight"].mT + params["dense2.bias"], *batch[1:])


def stacked_weights(loss):
    """A matrix inside a list."""
    return lambda params, batch: loss(params, batch) + torch.cat([params["dense1.weight"], torch.ones(1, 36)]).sum()


def of_a_gradient(loss):
    """A step ahead, by `torch.func.grad` inside the loss."""

    def ahead(params, batch):
        gradient = torch.func.grad(loss)(params, batch)
        return loss({name: p - 0.1 * gradient[name] for name, p in params.items()}, batch)

    return ahead


def gradient_norm(loss):
    """A penalty on the gradient, whose weight is wrapped by `torch.func.grad`."""

    def penalised(params, batch):
        gradient = torch.func.grad(lambda w: loss(params | {"dense1.weight": w}, batch))(params["dense1.weight"])
        return loss(params, batch) + gradient.square().sum()

    return penalised


def still(params, batch):
    """A first layer that no gradient shall reach."""
    with torch.no_grad():
        h = F.linear(batch[0].flatten(1), params["dense1.weight"], params["dense1.bias"])
    return fedlib.losses.cross_entropy(F.linear(h.relu(), *(params[f"dense2.{n}"] for n in NAMES)), *batch[1:])


def detached(params, batch):
    """The same, in another way."""
    h = F.linear(batch[0].flatten(1), params["dense1.weight"], params["dense1.bias"]).relu().detach()
    return fedlib.losses.cross_entropy(F.linear(h, *(params[f"dense2.{n}"] for n in NAMES)), *batch[1:])


NAMES = "weight", "bias"


def on_its_device(params, batch):
    """The examples go where the weights are."""
    h = F.linear(batch[0].flatten(1).to(params["dense1.weight"].device), *(params[f"dense1.{n}"] for n in NAMES))
    return fedlib.losses.cross_entropy(F.linear(h.relu(), *(params[f"dense2.{n}"] for n in NAMES)), *batch[1:])


@pytest.mark.parametrize(
    "use",
    [
        norm_of_all,
        twice,
        lambda loss: by_hand,
        stacked_weights,
        of_a_gradient,
        gradient_norm,
        lambda loss: still,
        lambda loss: detached,
        lambda loss: on_its_device,
    ],
)
def test_a_loss_that_needs_the_matrix_gets_it(use, taken, monkeypatch):
    params, loss, _ = task("MLP")
    batches = local_batches(client_data(ragged_clients()), 8, 1, Key(0, 1))
    loss = use(loss)
    thin, dense = both(monkeypatch, loss, broadcast(params, 8), batches)
    assert not taken
    assert largest_difference(thin.params, dense.params) == 0
    assert loss in local._NEED_MATRICES
    monkeypatch.setattr(local, "_train_chunks", lambda *a: a[-1])
    assert local_update(loss, broadcast(params, 8), batches, SGD) == {}  # which is not tried again


@pytest.mark.parametrize("loss", [still, detached])
def test_a_layer_that_no_gradient_reaches_stays(loss, taken):
    params, _, _ = task("MLP")
    batches = local_batches(client_data(ragged_clients()), 8, 1, Key(0, 1))
    ends = local_update(loss, broadcast(params, 8), batches, SGD).params
    for name in NAMES:
        assert torch.equal(ends[f"dense1.{name}"], broadcast(params, 8)[f"dense1.{name}"])
        assert not torch.equal(ends[f"dense2.{name}"], broadcast(params, 8)[f"dense2.{name}"])


@dataclass
class NormOfAll:
    """A loss that Python cannot hash."""

    loss: object

    def __call__(self, params, batch):
        return norm_of_all(self.loss)(params, batch)


def test_a_loss_may_be_any_callable_object(taken, monkeypatch):
    params, loss, _ = task("MLP")
    batches = local_batches(client_data(ragged_clients()), 8, 1, Key(0, 1))
    for some in (NormOfAll(loss), partial(NormOfAll(loss).__call__)):
        thin, dense = both(monkeypatch, some, broadcast(params, 8), batches)
        assert largest_difference(thin.params, dense.params) == 0


def test_a_wrong_loss_is_called_once_and_reported_as_its_own(taken):
    params, _, _ = task("MLP")
    batches = local_batches(client_data(ragged_clients()), 8, 1, Key(0, 1))
    calls = []
    with pytest.raises(KeyError, match="dense9"):
        local_update(lambda p, batch: calls.append(0) or p["dense9.weight"].sum(), broadcast(params, 8), batches, SGD)
    assert calls == [0] and not local._NEED_MATRICES


def test_shapes_may_be_asked_for(taken):
    params, loss, _ = task("MLP")
    batches = local_batches(client_data(ragged_clients()), 8, 1, Key(0, 1))
    local_update(lambda p, b: loss(p, b) * p["dense1.weight"].shape[0], broadcast(params, 8), batches, SGD)
    assert taken


@pytest.mark.parametrize("bias", [True, False])
def test_without_bias_and_beside_frozen_layers(bias, taken, monkeypatch):
    torch.manual_seed(0)
    model = Model(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 4, bias=bias)).double())
    batches = local_batches(client_data(ragged_clients()), 8, 1, Key(0, 1))
    frozen = ("1.bias",) if bias else ()
    thin, dense = both(monkeypatch, classification_loss(model), broadcast(model.params, 8), batches, frozen=frozen)
    assert taken
    assert largest_difference(thin.params, dense.params) <= 1e-12


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_network_of_one_matrix_in_any_type(dtype, taken, monkeypatch):
    torch.manual_seed(0)
    model = Model(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 4, bias=False)))
    algorithm = FedAvg(classification_loss(model), lr=0.05, **SETTINGS)
    fit = partial(fedlib.fit, algorithm, model.params, client_data(ragged_clients()), 2, dtype=dtype, progress=False)
    thin = fit().state.models
    assert taken and thin["1.weight"].dtype == dtype
    monkeypatch.setattr(local, "_THIN", float("inf"))
    apart = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 0.01}[dtype]
    assert float((thin["1.weight"] - fit().state.models["1.weight"]).abs().max()) <= apart


def test_a_layer_that_the_loss_leaves_out_stays(taken):
    model = MLP((36, 4))
    params = {name: p.double() for name, p in model.init(0).items()}
    start = broadcast(params | {"other": torch.ones(5, 6, dtype=torch.float64)}, 8)
    batches = local_batches(client_data(ragged_clients()), 8, 1, Key(0, 1))
    loss = classification_loss(model)
    end = local_update(lambda p, b: loss({n: q for n, q in p.items() if n != "other"}, b), start, batches, SGD)
    assert isinstance(end.ends["other"], LowRank)
    assert torch.equal(end.params["other"], start["other"])


@pytest.mark.parametrize(
    ("optimizer", "own_start"),
    [(partial(torch.optim.SGD, lr=0.1, momentum=0.9), False), (partial(torch.optim.Adam, lr=0.1), False), (SGD, True)],
)
def test_other_rules_and_own_starts_keep_matrices(optimizer, own_start, taken):
    params, loss, _ = task("MLP")
    start = broadcast(params, 8)
    start = {name: p.clone() for name, p in start.items()} if own_start else start
    local_update(loss, start, local_batches(client_data(ragged_clients()), 8, 1, Key(0, 1)), optimizer)
    assert not taken


@pytest.mark.parametrize("algorithm", [partial(LGFedAvg, local=("dense1.weight", "dense1.bias")), Scaffold])
def test_algorithms_that_see_more_of_the_ends(algorithm, taken, monkeypatch):
    params, predict, _ = twin("MLP")
    make = algorithm(classification_loss(predict), predict=predict, lr=0.05, **SETTINGS)
    fit = partial(fedlib.fit, make, params, client_data(ragged_clients()), 3, 4, progress=False)
    thin = fit()
    monkeypatch.setattr(local, "_THIN", float("inf"))
    held = [make.client_params(r.state, torch.arange(8)) for r in (thin, fit())]
    assert largest_difference(*held) <= 1e-12


def test_thin_steps_of_a_wide_matrix_are_taken_so_by_themselves(monkeypatch):
    model = MLP((36, 400, 300, 4))
    params = {name: p.double() for name, p in model.init(0).items()}
    batches = local_batches(client_data(ragged_clients((3, 9, 5))), 4, 1, Key(0, 1))
    thin, dense = both(monkeypatch, classification_loss(model), broadcast(params, 3), batches)
    assert [name for name, p in thin.ends.items() if isinstance(p, LowRank)] == ["dense1.weight", "dense2.weight"]
    assert largest_difference(thin.params, dense.params) <= 1e-12
