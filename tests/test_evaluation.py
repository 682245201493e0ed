"""Scores against a loop over clients, torch and scikit-learn."""

from dataclasses import replace
from math import prod

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from pandas.testing import assert_frame_equal
from sklearn import metrics
from torch import nn
from twins import SIZES, classification_loss, client_data, ragged_clients, twin

import fedlib
from fedlib import evaluation, losses, partition
from fedlib.algorithms import FedAvg, LocalOnly
from fedlib.costs import flops_of

LOSSES = {"positions": losses.cross_entropy, "labels": losses.bce, "targets": losses.mse}
KINDS = {  # what y is, the shape of a row of it
    "a class": ("positions", ()),
    "classes": ("positions", (3,)),
    "labels": ("labels", (3,)),
    "a number": ("targets", ()),
    "numbers": ("targets", (3,)),
}
both = pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])


def torchs_mean(kind, output, y):
    """The loss that torch gives for real rows."""
    if kind == "positions":
        return F.cross_entropy(output.movedim(-1, 1), y)  # leaves out -100
    known = y != -100
    if kind == "labels":
        return F.binary_cross_entropy_with_logits(output[known], y[known].to(output.dtype))
    return F.mse_loss(output.reshape(y.shape), y)


def several(kind, n, shape, random, left_out=0.3):
    """Outputs and y of n rows; at least one label of each row counts."""
    if kind == "targets":
        return tuple(torch.from_numpy(random.standard_normal((n, *shape))) for _ in range(2))
    y = random.randint(0, 2 if kind == "labels" else 5, (n, *shape))
    gone = random.rand(n, *shape) < left_out
    gone.reshape(n, -1)[:, 0] = False
    output = random.standard_normal((n, *shape) if kind == "labels" else (n, *shape, 5))
    return torch.from_numpy(output), torch.from_numpy(np.where(gone, -100, y))


def clients_of(kind, sizes=SIZES):
    """Ragged clients; single numbers are far from zero, so that a variance about zero would show."""
    (what, shape), random = KINDS[kind], np.random.RandomState(3)
    far = 100 if kind == "a number" else 0
    rows = {k: (x, several(what, len(x), shape, random)[1]) for k, (x, _) in ragged_clients(sizes).items()}
    return {k: (x, y + (far + k if far else 0)) for k, (x, y) in rows.items()}


def network(outputs):
    """A network whose output of one row has this shape."""
    torch.manual_seed(0)
    last = nn.Linear(5, prod(outputs)), nn.Unflatten(1, outputs)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.Tanh(), *last).double()


def network_of(kind):
    what, shape = KINDS[kind]
    return network((*shape, 5) if what == "positions" else shape or (1,))


def trained(kind, algorithm, clients=None, lr=0.02, rounds=2, module=None, batch_size=4, **settings):
    """An algorithm that trains on y of this kind, its result, the clients and their data."""
    model, loss = fedlib.models.Model(module or network_of(kind)), LOSSES[KINDS[kind][0]]
    settings |= {"lr": lr, "batch_size": batch_size, "predict": model}
    algorithm = algorithm(lambda p, b: loss(model(p, b[0]), *b[1:]), **settings)
    clients = clients or clients_of(kind)
    data = client_data(clients)
    return algorithm, fedlib.fit(algorithm, model.params, data, rounds, eval_data=data, progress=False), clients, data


def scores_of(kind, output, y):
    """The scores of some rows."""
    what, shape = KINDS[kind]
    loss = {"loss": float(torchs_mean(what, output, y))}
    if what != "targets":
        said, counts = output.argmax(-1) if what == "positions" else output > 0, y != -100
        labels = {"labels": int(counts.sum())} if shape else {}
        return loss | labels | {"accuracy": float((said == y)[counts].double().mean())}
    y, output = y.numpy().ravel(), output.numpy().ravel()
    found = loss | {"mse": metrics.mean_squared_error(y, output), "mae": metrics.mean_absolute_error(y, output)}
    if shape:
        return found
    r2 = metrics.r2_score(y, output) if len(y) > 1 else np.nan
    return found | {"r2": r2, "target_mean": y.mean(), "target_variance": y.var()}


def by_hand(kind, algorithm, result, clients):
    """The table of scores by a loop over clients, each alone; and the scores of all rows as one set."""
    rows, outputs = [], []
    for position, (k, (x, y)) in enumerate(clients.items()):
        model = fedlib.params.row(algorithm.client_params(result.state, torch.tensor([position])), 0)
        outputs.append((algorithm.predict(model, x), y))
        rows.append({"id": k, "n": len(y)} | scores_of(kind, *outputs[-1]))
    return pd.DataFrame(rows), scores_of(kind, *(torch.cat(part) for part in zip(*outputs, strict=True)))


def assert_scores(found, expected, kind):
    assert_frame_equal(found, expected, rtol=1e-9 if kind == "a number" else 0, atol=1e-12)


@pytest.mark.parametrize("budget", [1, 3 * 97 * 36, 10**9], ids=["one a chunk", "three a chunk", "all at once"])
@both
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_a_loop_over_clients(kind, algorithm, budget, monkeypatch):
    """Each client's, in any order, and those of all examples as one set; no row of padding or left out counts."""
    monkeypatch.setattr(evaluation, "_CHUNK_ENTRIES", budget)
    algorithm, result, clients, data = trained(kind, algorithm)
    expected, pool = by_hand(kind, algorithm, result, clients)
    for order in ([5, 0, 7, 2, 1, 6, 4, 3], [6, 2]):
        assert_scores(fedlib.evaluate(algorithm, result, data[order]), expected.loc[order].reset_index(drop=True), kind)
    scores = fedlib.evaluate(algorithm, result, data)
    assert_scores(scores, expected, kind)
    unscored = fedlib.evaluate(replace(algorithm, predict=None), result, data)
    assert_scores(unscored, expected[[c for c in ("id", "n", "loss", "labels") if c in expected]], kind)
    assert expected.iloc[:, -1].nunique() > 2
    pool = {name: pool[name] for name in ("loss", "accuracy", "mse", "mae", "r2") if name in pool}
    near = {"rel": 1e-9} if kind == "a number" else {"abs": 1e-12}
    assert evaluation.pooled(scores) == pytest.approx(pool, **near)
    assert evaluation.pooled(unscored) == pytest.approx({"loss": pool["loss"]}, **near)
    history = result.history.filter(like="test_").iloc[-1].to_dict()
    assert history == pytest.approx({f"test_{name}": pool[name] for name in pool if name != "loss"}, **near)


@both
def test_bytes_are_scaled_as_in_training(algorithm):
    images, ids = np.random.RandomState(0).randint(0, 256, (6, 3, 1, 6, 6)).astype(np.uint8), [5, 1, 9, 2, 8, 4]
    data = fedlib.stack_clients(images, np.zeros((6, 3), int), ids=ids, pixels=True)
    params, predict, _ = twin("CNN")
    algorithm = algorithm(classification_loss(predict), predict=lambda p, x: 50 * predict(p, x) - 2)
    result = fedlib.fit(algorithm, params, data, 1, progress=False)
    scaled = fedlib.stack_clients(images / 255, np.zeros((6, 3), int), ids=ids)
    assert_frame_equal(*(fedlib.evaluate(algorithm, result, d) for d in (data, scaled)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 100.1])
def test_r2_of_constant_targets_is_not_a_number(value, dtype):
    """Also where the mean of equal numbers is not that number, because of rounding."""
    clients = {k: (x.to(dtype), torch.full((len(x),), value, dtype=dtype)) for k, (x, _) in ragged_clients().items()}
    algorithm, result, _, data = trained("a number", FedAvg, clients, module=network((1,)).to(dtype))
    flat = replace(algorithm, predict=lambda params, x: algorithm.predict(params, x)[:, 0])  # without a column
    scores = fedlib.evaluate(flat, result, data)
    assert_frame_equal(scores, fedlib.evaluate(algorithm, result, data))
    assert scores["r2"].isna().all() and (scores["target_variance"] == 0).all() and scores["mse"].notna().all()
    assert np.isnan(evaluation.pooled(scores)["r2"])
    other = scores.assign(target_mean=scores["target_mean"] + np.arange(8))  # constant within each client only
    assert np.isfinite(evaluation.pooled(other)["r2"])


@pytest.mark.parametrize("kind", ["a class", "a number"])
@both
def test_shared_test_rows_score_as_separate_ones(algorithm, kind):
    trainer, result, clients, _ = trained(kind, algorithm)
    x, y = clients[31]
    shared = fedlib.same_rows(x, y, list(clients))
    separate = fedlib.stack_clients([x] * 8, [y] * 8, ids=list(clients))
    a, b = (fedlib.evaluate(trainer, result, d) for d in (shared, separate))
    assert_frame_equal(a, b, rtol=1e-12, atol=1e-12)
    assert a["loss"].nunique() == (1 if algorithm is FedAvg else 8)
    one, two, work = (flops_of(fedlib.evaluate, trainer, result, shared[:n]) for n in (1, 2, 8))
    assert work - one == 7 * (two - one) and (two > one > 0) == (algorithm is LocalOnly)  # through each model once


def test_shared_rows_with_columns_of_their_own_are_told_apart():
    algorithm, result, clients, _ = trained("a class", FedAvg)
    data = fedlib.same_rows(*clients[31], list(clients))
    data = data.with_columns(weight=10.0 ** torch.arange(8)[:, None].expand(data.y.shape))
    weighted = replace(algorithm, loss=lambda p, b: algorithm.loss(p, b[:3]) * b[3].max())
    table = fedlib.evaluate(weighted, result, data)
    assert (table.loss / table.loss[0]).tolist() == pytest.approx((10.0 ** np.arange(8)).tolist())


def test_as_many_models_go_through_at_once_as_memory_allows(clients, monkeypatch):
    data, held = client_data({k: (x[:1], y[:1]) for k, (x, y) in clients.items()}), []
    algorithm, result, *_ = trained("a class", LocalOnly)
    before = fedlib.evaluate(algorithm, result, data)
    parameters = sum(p.numel() for p in algorithm.predict.params.values())
    monkeypatch.setattr(evaluation, "_CHUNK_ENTRIES", 3 * parameters)
    whole = LocalOnly.client_params
    monkeypatch.setattr(LocalOnly, "client_params", lambda *args: held.append(len(args[2])) or whole(*args))
    assert_frame_equal(fedlib.evaluate(algorithm, result, data), before)
    assert max(held) == 3


# -- losses of several labels or targets a row against torch's --------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3)])
@pytest.mark.parametrize("kind", LOSSES)
def test_losses_are_torchs_means_over_the_real_rows(kind, shape):
    """Also their gradients; what a padded row holds moves neither, alone and under vmap."""
    random = np.random.RandomState(len(shape))
    for seed in range(10):
        n, real = random.randint(1, 6), random.randint(1, 4)
        output, y = several(kind, n + real, shape, random)
        w = torch.tensor([1.0] * real + [0.0] * n, dtype=torch.float64)[random.permutation(n + real)]
        output.requires_grad_()
        ours, torchs = LOSSES[kind](output, y, w), torchs_mean(kind, output[w > 0], y[w > 0])
        assert ours.item() == pytest.approx(torchs.item(), rel=1e-12), seed
        grads = [torch.autograd.grad(value, output)[0] for value in (ours, torchs)]
        torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-14)
        together = torch.func.vmap(LOSSES[kind])(output.detach()[None], y[None], w[None])
        assert together.item() == pytest.approx(torchs.item(), rel=1e-12)
        if kind != "positions":  # one output a label may have an axis of its own
            assert LOSSES[kind](output[..., None], y, w).item() == ours.item()


# -- what is refused ---------------------------------------------------------------------------------------------------


@both
def test_clients_with_names_are_scored_by_name(algorithm):
    params, predict, _ = twin("MLP")
    random = np.random.RandomState(0)
    x, y, user = random.standard_normal((40, 36)), random.randint(0, 4, 40), np.repeat(["eve", "bob", "zoe", "ann"], 10)
    train, test = (p.clients(x, y) for p in partition.by_user(user).split((0.5, 0.5)))
    algorithm = algorithm(classification_loss(predict), predict=predict)
    result = fedlib.fit(algorithm, params, train[[0, 3, 1]], 1, eval_data=test[[3, 0]], progress=False)
    scores = fedlib.evaluate(algorithm, result, test[[3, 0, 1]])
    assert list(scores) == ["id", "name", "n", "loss", "accuracy"]
    assert scores["name"].tolist() == ["zoe", "ann", "bob"] and scores["id"].tolist() == [3, 0, 1]
    served = fedlib.new_clients(algorithm, result, train[[2]])
    assert fedlib.evaluate(algorithm, served, test[[2]])["name"].tolist() == ["eve"]
    strangers = partition.by_user(["bob", "zoe"]).clients(x[:2], y[:2])  # numbered apart, from 0
    with pytest.raises(ValueError, match="clients \\['bob' 'zoe'\\] with ids that others have in training; number"):
        fedlib.evaluate(algorithm, result, strangers)
    with pytest.raises(ValueError, match="evaluation set 'test' has clients \\['zoe'\\] with ids that others have"):
        strangers = partition.by_user(["ann", "zoe"]).clients(x[:2], y[:2])
        fedlib.fit(algorithm, params, train[[0, 1]], 1, eval_data=strangers, progress=False)


def test_sums_of_float16_do_not_overflow():
    x, model = np.random.RandomState(0).randn(70_000, 4).astype("float32"), fedlib.models.MLP((4, 1))
    data, names = fedlib.stack_clients([x], [x[:, 0] * 6]), ["train_loss", "test_mse", "test_mae", "test_r2"]
    algorithm = FedAvg(lambda p, b: losses.mse(model(p, b[0]), b[1], b[2]), lr=1e-3, batch_size=None, predict=model)
    how = {"eval_data": data, "progress": False}
    half, full = (
        fedlib.fit(algorithm, model.init(0), data, 1, dtype=kind, **how).history.loc[0, names].tolist()
        for kind in (torch.float16, torch.float32)
    )
    assert half == pytest.approx(full, rel=0.01)


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_refuse_outputs_of_another_shape(kind):
    output, y = several(kind, 4, (3,), np.random.RandomState(0))
    turned = [output.movedim(1, 2)] if kind == "positions" else []
    for wrong in [output.mT, output[:, :2], output[..., None, None], *turned]:
        with pytest.raises(ValueError, match="do not fit y of shape \\(4, 3\\)"):
            LOSSES[kind](wrong, y, torch.ones(4))
    y = torch.tensor([[-100, 2]])  # a whole target of -100 counts
    assert losses.mse(torch.zeros(1, 2), y, torch.ones(1)) == (100**2 + 2**2) / 2


def test_rows_that_see_each_other_in_predict_are_refused(clients):
    params, predict, _ = twin("MLP")
    algorithm = FedAvg(classification_loss(predict), predict=lambda p, x: predict(p, x - x.mean(0)))
    result = fedlib.fit(algorithm, params, client_data(clients), 1, progress=False)
    with pytest.raises(ValueError, match="another answer beside other rows"):
        fedlib.evaluate(algorithm, result, client_data(clients))
    with pytest.raises(ValueError, match="another answer beside other rows"):
        fedlib.fit(algorithm, params, client_data(clients), 1, eval_data=client_data(clients), progress=False)


def test_columns_stand_in_the_order_of_training(clients):
    params, predict, _ = twin("MLP")
    data = client_data(clients)
    one, two = np.ones(data.index.shape), np.full(data.index.shape, 7.0)

    def loss(params, batch):
        x, y, w, a, b = batch
        return losses.weighted_mean(F.cross_entropy(predict(params, x), y, reduction="none") * a, w) + b.mean()

    tests = {"same": data.with_columns(a=one, b=two), "other": data.with_columns(b=two, a=one)}
    for algorithm in (FedAvg(loss), LocalOnly(loss)):
        result = fedlib.fit(algorithm, params, tests["same"], 1, eval_data=tests, progress=False)
        assert result.history["same_loss"][0] == result.history["other_loss"][0]
        assert fedlib.evaluate(algorithm, result, tests["same"]).equals(
            fedlib.evaluate(algorithm, result, tests["other"])
        )
        new = (replace(data, id=data.id + 99) for data in tests.values())
        ends = [fedlib.new_clients(algorithm, result, data) for data in new]
        assert all(map(torch.equal, *(algorithm.client_params(e.state, torch.arange(8)).values() for e in ends)))
