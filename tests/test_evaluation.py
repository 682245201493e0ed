"""Scores against a loop over clients and against scikit-learn."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from sklearn import metrics
from twins import classification_loss, client_data, ragged_clients, twin

import fedlib
from fedlib import evaluation, losses, partition
from fedlib.algorithms import FedAvg, LocalOnly, Scaffold


def result_and_expected(algorithm, clients, score):
    """A trained federation, and each client's score by a loop over clients."""
    params, predict, _ = twin("CNN")
    algorithm = algorithm(classification_loss(predict), lr=0.3, predict=predict if score == "accuracy" else None)
    result = fedlib.fit(algorithm, params, client_data(clients), 3, progress=False)
    expected = []
    for position, (x, y) in enumerate(clients.values()):
        own = {n: p[0] for n, p in algorithm.client_params(result.state, torch.tensor([position])).items()}
        logits = predict(own, x)
        if score == "accuracy":
            expected.append(float((logits.argmax(1) == y).double().mean()))
        else:
            expected.append(float(torch.nn.functional.cross_entropy(logits, y)))
    return algorithm, result, expected


@pytest.mark.parametrize("budget", [1, 10**9], ids=["one client a chunk", "all at once"])
@pytest.mark.parametrize("score", ["accuracy", "loss"])
@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])
def test_equals_a_loop_over_clients(algorithm, score, budget, clients, monkeypatch):
    monkeypatch.setattr(evaluation, "_CHUNK_ENTRIES", budget)
    algorithm, result, expected = result_and_expected(algorithm, clients, score)
    scores = fedlib.evaluate(algorithm, result, client_data(clients))
    assert scores["id"].tolist() == list(clients) and scores["n"].tolist() == [len(y) for _, y in clients.values()]
    assert scores[score].tolist() == pytest.approx(expected, abs=1e-12)
    assert len(set(expected)) > 3


def test_some_clients_only(clients):
    algorithm, result, expected = result_and_expected(LocalOnly, clients, "accuracy")
    scores = fedlib.evaluate(algorithm, result, client_data(clients)[[6, 2]])
    assert scores["accuracy"].tolist() == pytest.approx([expected[6], expected[2]])


def test_bytes_are_scaled_as_in_training():
    images = np.random.RandomState(0).randint(0, 256, (6, 3, 1, 6, 6)).astype(np.uint8)
    data = fedlib.stack_clients(images, np.zeros((6, 3), int), ids=[5, 1, 9, 2, 8, 4], pixels=True)
    params, predict, _ = twin("CNN")
    algorithm = FedAvg(classification_loss(predict), predict=predict)
    result = fedlib.fit(algorithm, params, data, 1, progress=False)
    logits = predict({n: p[0] for n, p in result.state.models.items()}, torch.tensor(images[2] / 255))
    expected = float((logits.argmax(1) == 0).double().mean())
    assert fedlib.evaluate(algorithm, result, data)["accuracy"][2] == expected
    scaled = fedlib.stack_clients(images / 255, np.zeros((6, 3), int), ids=[5, 1, 9, 2, 8, 4])
    for method in (FedAvg, LocalOnly):
        algorithm = method(classification_loss(predict), predict=lambda p, x: 50 * predict(p, x) - 2)
        result = fedlib.fit(algorithm, params, data, 1, progress=False)
        same = [fedlib.evaluate(algorithm, result, d)["accuracy"].tolist() for d in (data, scaled)]
        assert same[0] == same[1]


@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])
@pytest.mark.parametrize("column", [True, False], ids=["(B, 1)", "(B,)"])
@pytest.mark.parametrize("rows", [1, 3])
def test_outputs_of_regression_may_have_a_column(algorithm, column, rows):
    """Also where the number of clients equals the number of rows, so that a wrong shape would broadcast."""
    clients = {k: (x, x.flatten(1).sum(1)) for k, (x, _) in ragged_clients((rows,) * 3).items()}
    model = fedlib.models.MLP((36, 1))

    def loss(p, b):
        return fedlib.losses.mse(model(p, b[0]), b[1], b[2])

    algorithm = algorithm(loss, lr=0.01, predict=model if column else lambda p, x: model(p, x)[:, 0])
    data = client_data(clients)
    result = fedlib.fit(algorithm, model.init(0), data, 1, dtype=torch.float64, progress=False)
    for k, (x, y) in enumerate(clients.values()):
        own = {n: p[0] for n, p in algorithm.client_params(result.state, torch.tensor([k])).items()}
        expected = float((model(own, x)[:, 0] - y).square().mean())
        assert fedlib.evaluate(algorithm, result, data)["mse"][k] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])
def test_one_logit_for_two_classes_is_refused(algorithm):
    model = fedlib.models.MLP((36, 1))
    algorithm = algorithm(lambda p, b: fedlib.losses.mse(model(p, b[0]), b[1].to(b[0]), b[2]), predict=model)
    data = client_data(ragged_clients(classes=2))
    with pytest.raises(ValueError, match="a logit for each class"):
        fedlib.fit(algorithm, model.init(0), data, 1, eval_data=data, progress=False)


@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])
def test_clients_are_matched_by_id_in_any_order(algorithm, clients):
    algorithm, result, expected = result_and_expected(algorithm, clients, "accuracy")
    order = [5, 0, 7, 2, 1, 6, 4, 3]
    scores = fedlib.evaluate(algorithm, result, client_data(clients)[order])
    assert scores["accuracy"].tolist() == pytest.approx([expected[k] for k in order])
    stranger = fedlib.stack_clients([clients[10][0]], [clients[10][1]], ids=[99])
    with pytest.raises(ValueError, match=r"not in training: ids \[99\]"):
        fedlib.evaluate(algorithm, result, stranger)


def test_common_rows_are_not_copied_for_each_client(clients, monkeypatch):
    algorithm, result, _ = result_and_expected(FedAvg, clients, "accuracy")
    x, y = clients[31]
    common = fedlib.same_rows(x, y, list(clients))
    seen = []
    predict = algorithm.predict
    object.__setattr__(algorithm, "predict", lambda p, x: seen.append(len(x)) or predict(p, x))
    scores = fedlib.evaluate(algorithm, result, common)
    assert seen == [len(x)] and scores["accuracy"].nunique() == 1


def test_real_targets_are_scored_by_squared_error():
    clients = {k: (x, x.flatten(1)[:, 0]) for k, (x, _) in ragged_clients().items()}
    model = fedlib.models.MLP((36, 1))
    algorithm = FedAvg(lambda p, b: fedlib.losses.mse(model(p, b[0]), b[1], b[2]), lr=0.01, predict=model)
    data = client_data(clients)
    result = fedlib.fit(algorithm, model.init(0), data, 2, dtype=torch.float64, eval_data=data, progress=False)
    own = {n: p[0] for n, p in result.state.models.items()}
    expected = torch.cat([(model(own, x)[:, 0] - y).square() for x, y in clients.values()]).mean()
    assert result.history["test_mse"].iloc[-1] == pytest.approx(float(expected), abs=1e-12)


def test_pooled_counts_examples():
    scores = pd.DataFrame({"id": [0, 1], "n": [1, 3], "accuracy": [1.0, 0.0]})
    assert evaluation.pooled(scores) == {"accuracy": 0.25}


BUDGETS = pytest.mark.parametrize(
    "budget", [1, 3 * 97 * 36, 10**9], ids=["one a chunk", "three a chunk", "all at once"]
)


@BUDGETS
@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly, Scaffold])
def test_the_loss_stands_next_to_the_accuracy(algorithm, budget, clients, monkeypatch):
    """That of a loop over clients, each alone: without padding."""
    monkeypatch.setattr(evaluation, "_CHUNK_ENTRIES", budget)
    algorithm, result, _ = result_and_expected(algorithm, clients, "accuracy")
    scores = fedlib.evaluate(algorithm, result, client_data(clients))
    assert list(scores) == ["id", "n", "loss", "accuracy"]
    for k, (x, y) in enumerate(clients.values()):
        own = {n: p[0] for n, p in algorithm.client_params(result.state, torch.tensor([k])).items()}
        expected = torch.nn.functional.cross_entropy(algorithm.predict(own, x), y)
        assert scores["loss"][k] == pytest.approx(float(expected), abs=1e-12)


def regression(algorithm, clients, dtype=torch.float64):
    """A trained federation with real targets, and each client's targets and predictions by a loop."""
    model = fedlib.models.MLP((36, 5, 1))
    algorithm = algorithm(lambda p, b: fedlib.losses.mse(model(p, b[0]), b[1], b[2]), lr=0.01, predict=model)
    result = fedlib.fit(algorithm, model.init(0), client_data(clients), 2, dtype=dtype, progress=False)
    pairs = []
    for k, (x, y) in enumerate(clients.values()):
        own = {n: p[0] for n, p in algorithm.client_params(result.state, torch.tensor([k])).items()}
        pairs.append((y.numpy(), model(own, x.to(dtype))[:, 0].numpy()))
    return algorithm, result, pairs


def real_targets(seed=0):
    """Far from zero, so that a variance about zero would show."""
    return {k: (x, 100 + k + x.flatten(1)[:, :3].sum(1)) for k, (x, _) in ragged_clients(seed=seed).items()}


@BUDGETS
@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])
def test_regression_scores_are_those_of_scikit_learn(algorithm, budget, monkeypatch):
    monkeypatch.setattr(evaluation, "_CHUNK_ENTRIES", budget)
    clients = real_targets()
    algorithm, result, pairs = regression(algorithm, clients)
    scores = fedlib.evaluate(algorithm, result, client_data(clients))
    assert list(scores) == ["id", "n", "loss", "mse", "mae", "r2", "target_mean", "target_variance"]
    expected = {
        "loss": [metrics.mean_squared_error(*pair) for pair in pairs],
        "mse": [metrics.mean_squared_error(*pair) for pair in pairs],
        "mae": [metrics.mean_absolute_error(*pair) for pair in pairs],
        "r2": [metrics.r2_score(*pair) if len(pair[0]) > 1 else np.nan for pair in pairs],
        "target_mean": [y.mean() for y, _ in pairs],
        "target_variance": [y.var() for y, _ in pairs],
    }
    for name, values in expected.items():
        assert scores[name].tolist() == pytest.approx(values, rel=1e-9, nan_ok=True), name


@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])
def test_pooled_scores_are_those_of_all_examples_as_one_set(algorithm):
    clients = real_targets()
    algorithm, result, pairs = regression(algorithm, clients)
    pool = evaluation.pooled(fedlib.evaluate(algorithm, result, client_data(clients)))
    y, output = (np.concatenate(part) for part in zip(*pairs, strict=True))
    assert list(pool) == ["loss", "mse", "mae", "r2"]
    assert pool["r2"] == pytest.approx(metrics.r2_score(y, output), rel=1e-9)
    assert [pool["mse"], pool["loss"]] == pytest.approx([metrics.mean_squared_error(y, output)] * 2, rel=1e-9)
    assert pool["mae"] == pytest.approx(metrics.mean_absolute_error(y, output), rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 100.1])
def test_r2_of_constant_targets_is_not_a_number(value, dtype):
    """Also where the mean of equal numbers is not that number, because of rounding."""
    clients = {k: (x.to(dtype), torch.full((len(x),), value, dtype=dtype)) for k, (x, _) in ragged_clients().items()}
    algorithm, result, _ = regression(FedAvg, clients, dtype)
    scores = fedlib.evaluate(algorithm, result, client_data(clients))
    assert scores["r2"].isna().all() and (scores["target_variance"] == 0).all() and scores["mse"].notna().all()
    assert np.isnan(evaluation.pooled(scores)["r2"])
    other = scores.assign(target_mean=scores["target_mean"] + np.arange(8))  # constant within each client only
    assert np.isfinite(evaluation.pooled(other)["r2"])


@pytest.mark.parametrize("real", [True, False], ids=["targets", "labels"])
@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])
def test_padding_is_never_counted(algorithm, real):
    clients = real_targets() if real else ragged_clients()
    trained = regression(algorithm, clients) if real else result_and_expected(algorithm, clients, "accuracy")
    data = client_data(clients)
    longer = replace(
        data,
        index=torch.cat([data.index, data.index[:, :1].expand(-1, 50)], 1),
        y=torch.cat([data.y, data.y.new_full((len(data), 50), 3)], 1),
    )
    a, b = (fedlib.evaluate(trained[0], trained[1], d) for d in (data, longer))
    pd.testing.assert_frame_equal(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("real", [True, False], ids=["targets", "labels"])
@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])
def test_shared_test_rows_score_as_separate_ones(algorithm, real):
    clients = real_targets() if real else ragged_clients()
    trained = regression(algorithm, clients) if real else result_and_expected(algorithm, clients, "accuracy")
    x, y = clients[31]
    shared = fedlib.same_rows(x, y, list(clients))
    separate = fedlib.stack_clients([x] * 8, [y] * 8, ids=list(clients))
    a, b = (fedlib.evaluate(trained[0], trained[1], d) for d in (shared, separate))
    pd.testing.assert_frame_equal(a, b, rtol=1e-12, atol=1e-12)
    assert a["loss"].nunique() == (1 if algorithm is FedAvg else 8)


def test_shared_rows_with_columns_of_their_own_are_told_apart(clients):
    algorithm, result, _ = result_and_expected(FedAvg, clients, "accuracy")
    data = fedlib.same_rows(*clients[31], list(clients))
    data = data.with_columns(weight=10.0 ** torch.arange(8)[:, None].expand(data.y.shape))
    loss = algorithm.loss
    weighted = replace(algorithm, loss=lambda p, b: loss(p, b[:3]) * b[3].max())
    table = fedlib.evaluate(weighted, result, data)
    assert (table.loss / table.loss[0]).tolist() == pytest.approx((10.0 ** np.arange(8)).tolist())


def test_as_many_models_go_through_at_once_as_memory_allows(clients, monkeypatch):
    algorithm, result, _ = result_and_expected(LocalOnly, clients, "accuracy")
    data, held = client_data({k: (x[:1], y[:1]) for k, (x, y) in clients.items()}), []
    before = fedlib.evaluate(algorithm, result, data)
    parameters = sum(p.numel() for p in algorithm.client_params(result.state, torch.tensor([0])).values())
    monkeypatch.setattr(fedlib.evaluation, "_CHUNK_ENTRIES", 3 * parameters)
    whole = LocalOnly.client_params
    monkeypatch.setattr(LocalOnly, "client_params", lambda *args: held.append(len(args[2])) or whole(*args))
    pd.testing.assert_frame_equal(fedlib.evaluate(algorithm, result, data), before)
    assert max(held) == 3


def test_shared_rows_and_one_model_cost_one_loss(clients):
    algorithm, result, _ = result_and_expected(FedAvg, clients, "accuracy")
    seen = []
    loss = algorithm.loss
    object.__setattr__(algorithm, "loss", lambda p, b: seen.append(len(b[1])) or loss(p, b))
    fedlib.evaluate(algorithm, result, fedlib.same_rows(*clients[31], list(clients)))
    assert seen == [len(clients[31][1])]


# -- several labels or targets a row: losses and scores against torch's -----------------------------------------------


def torchs_mean(kind, output, y):
    """The loss that torch gives for real rows."""
    if kind == "positions":
        return F.cross_entropy(output.movedim(-1, 1), y)  # leaves out -100
    known = y != -100
    if kind == "labels":
        return F.binary_cross_entropy_with_logits(output[known], y[known].to(output.dtype))
    return F.mse_loss(output, y)


LOSSES = {"positions": losses.cross_entropy, "labels": losses.bce, "targets": losses.mse}


def several(kind, n, shape, random, left_out=0.3):
    """Outputs and y of n rows; at least one label of each row counts."""
    if kind == "targets":
        return tuple(torch.from_numpy(random.standard_normal((n, *shape))) for _ in range(2))
    y = random.randint(0, 2 if kind == "labels" else 5, (n, *shape))
    gone = random.rand(n, *shape) < left_out
    gone.reshape(n, -1)[:, 0] = False
    output = random.standard_normal((n, *shape) if kind == "labels" else (n, *shape, 5))
    return torch.from_numpy(output), torch.from_numpy(np.where(gone, -100, y))


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
        both = torch.func.vmap(LOSSES[kind])(output.detach()[None], y[None], w[None])
        assert both.item() == pytest.approx(torchs.item(), rel=1e-12)
        if kind != "positions":  # one output a label may have an axis of its own
            assert LOSSES[kind](output[..., None], y, w).item() == ours.item()


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_refuse_outputs_of_another_shape(kind):
    random = np.random.RandomState(0)
    output, y = several(kind, 4, (3,), random)
    wrong = [output.mT, output[:, :2], output[..., None, None]] + (
        [output.movedim(1, 2)] if kind == "positions" else []
    )
    for some in wrong:
        with pytest.raises(ValueError, match="do not fit y of shape \\(4, 3\\)"):
            LOSSES[kind](some, y, torch.ones(4))


class Several(torch.nn.Module):
    """One output for each of the L labels, or five for each of the L positions."""

    def __init__(self, kind):
        super().__init__()
        self.linear, self.kind = torch.nn.Linear(36, 15 if kind == "positions" else 3), kind

    def forward(self, x):
        output = self.linear(x.flatten(1))
        return output.unflatten(1, (3, 5)) if self.kind == "positions" else output


def federation_of(kind):
    """Ragged clients with several y a row, and a network."""
    random, clients = np.random.RandomState(3), ragged_clients((1, 2, 5, 7, 20))
    clients = {k: (x, several(kind, len(x), (3,), random)[1]) for k, (x, _) in clients.items()}
    torch.manual_seed(0)
    module = Several(kind).double()
    return clients, module, fedlib.models.Model(module)


@pytest.mark.parametrize("chunk", [1, 2, "auto"])
@pytest.mark.parametrize("kind", LOSSES)
def test_a_step_of_each_client_is_torchs(kind, chunk):
    clients, module, model = federation_of(kind)
    algorithm = LocalOnly(
        lambda p, b: LOSSES[kind](model(p, b[0]), *b[1:]), lr=0.5, batch_size=None, predict=model, chunk_size=chunk
    )
    result = fedlib.fit(algorithm, model.params, client_data(clients), 1, progress=False)
    for k, (x, y) in enumerate(clients.values()):
        gradients = torch.autograd.grad(torchs_mean(kind, module(x), y), list(module.parameters()))
        for (name, start), gradient in zip(module.named_parameters(), gradients, strict=True):
            torch.testing.assert_close(result.state.local[name][k], start.detach() - 0.5 * gradient, rtol=0, atol=1e-13)


@pytest.mark.parametrize("budget", [1, 10**9], ids=["one client a chunk", "all at once"])
@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])
@pytest.mark.parametrize("kind", LOSSES)
def test_scores_of_several_labels_or_targets_a_row(kind, algorithm, budget, monkeypatch):
    """Each client's, and those of all labels or targets as one set; no row of padding and nothing left out counts."""
    monkeypatch.setattr(evaluation, "_CHUNK_ENTRIES", budget)
    clients, _, model = federation_of(kind)
    data = client_data(clients)
    algorithm = algorithm(lambda p, b: LOSSES[kind](model(p, b[0]), *b[1:]), lr=0.02, batch_size=4, predict=model)
    result = fedlib.fit(algorithm, model.params, data, 2, eval_data=data, progress=False)
    scores = fedlib.evaluate(algorithm, result, data)
    numbers = ["labels", "accuracy"] if kind != "targets" else ["mse", "mae"]
    assert list(scores) == ["id", "n", "loss", *numbers]
    outputs = []
    for k, (x, y) in enumerate(clients.values()):
        own = {n: p[0] for n, p in algorithm.client_params(result.state, torch.tensor([k])).items()}
        outputs.append((model(own, x), y))
    outputs.append(tuple(torch.cat(part) for part in zip(*outputs, strict=True)))
    expected = []
    for output, y in outputs:
        counts = y.numpy() != -100
        if kind == "targets":
            error = (output - y).numpy()
            expected.append([np.square(error).mean(), np.abs(error).mean()])
        else:
            said = output.argmax(-1) if kind == "positions" else output > 0
            expected.append([counts.sum(), (said.numpy() == y.numpy())[counts].mean()])
    for i, name in enumerate(numbers):
        assert scores[name].tolist() == pytest.approx([e[i] for e in expected[:-1]], abs=1e-12)
        if name != "labels":
            assert result.history[f"test_{name}"].iloc[-1] == pytest.approx(expected[-1][i], abs=1e-12)
    assert scores["loss"].tolist() == pytest.approx([float(torchs_mean(kind, *o)) for o in outputs[:-1]], abs=1e-12)
    assert evaluation.pooled(scores)["loss"] == pytest.approx(float(torchs_mean(kind, *outputs[-1])), abs=1e-12)
    if kind != "targets":
        assert len(set(scores["accuracy"])) > 2


def test_labels_of_several_a_row_that_the_model_has_not():
    x = ragged_clients((6,))[10][0]
    for kind, largest, words in (("labels", 2, "one logit for each label of 0 and 1"), ("positions", 5, "5 outputs")):
        _, _, model = federation_of(kind)
        y = np.zeros((6, 3), int)
        y[4, 1] = largest
        algorithm = FedAvg(lambda p, b: model(p, b[0]).sum() * 0 + b[2].sum() / b[2].sum(), predict=model)
        good, bad = (fedlib.stack_clients([x], [some]) for some in (y * 0, y))
        with pytest.raises(ValueError, match=f"the test data have the label {largest}, but the model has {words}"):
            fedlib.fit(algorithm, model.params, good, 1, eval_data=bad, progress=False)


@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])
def test_outputs_that_fit_no_kind_of_y_are_refused(algorithm):
    x = ragged_clients((6,))[10][0]
    for y, words in (
        (np.zeros((6, 4), int), r"\(\d+, 4, 'classes'\) or one logit for each label"),
        (np.zeros((6, 4)), "a nu"),
    ):
        _, _, model = federation_of("labels")  # three outputs
        method = algorithm(lambda p, b: model(p, b[0]).sum() * 0 + b[2].sum() / b[2].sum(), predict=model)
        data = fedlib.stack_clients([x, x], [y, y])
        with pytest.raises(ValueError, match=f"predict must give .*{words}.*got \\(\\d+, 3\\)"):
            fedlib.fit(method, model.params, data, 1, eval_data=data, progress=False)


@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])
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
    x = np.random.RandomState(0).randn(70_000, 4).astype("float32")
    model, y = fedlib.models.MLP((4, 1)), x[:, 0] * 6
    data = fedlib.stack_clients([x], [y])
    algorithm = FedAvg(lambda p, b: losses.mse(model(p, b[0]), b[1], b[2]), lr=1e-3, batch_size=None, predict=model)
    half, full = (
        fedlib.fit(algorithm, model.init(0), data, 1, eval_data=data, dtype=kind, progress=False).history.iloc[0]
        for kind in (torch.float16, torch.float32)
    )
    for name in ("train_loss", "test_mse", "test_mae", "test_r2"):
        assert half[name] == pytest.approx(full[name], rel=0.01)


def test_a_whole_target_of_minus_100_counts():
    y, w = torch.tensor([[-100, 2]]), torch.ones(1)
    assert losses.mse(torch.zeros(1, 2), y, w) == (100**2 + 2**2) / 2


def test_columns_of_an_evaluation_set_stand_in_the_order_of_training(clients):
    params, predict, _ = twin("MLP")
    data = client_data(clients)
    one, two = np.ones(data.index.shape), np.full(data.index.shape, 7.0)

    def loss(params, batch):
        x, y, w, a, b = batch
        return losses.weighted_mean(F.cross_entropy(predict(params, x), y, reduction="none") * a, w) + b.mean()

    tests = {"same": data.with_columns(a=one, b=two), "other": data.with_columns(b=two, a=one)}
    history = fedlib.fit(FedAvg(loss), params, tests["same"], 1, eval_data=tests, progress=False).history
    assert history["same_loss"][0] == history["other_loss"][0]
