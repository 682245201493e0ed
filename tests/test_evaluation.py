"""Scores against a loop over clients and against scikit-learn."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import metrics
from twins import classification_loss, client_data, ragged_clients, twin

import fedlib
from fedlib import evaluation
from fedlib.algorithms import FedAvg, LocalOnly, Scaffold
from fedlib.reports import statistics


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
    data = fedlib.stack_clients(images, np.zeros((6, 3), int), ids=[5, 1, 9, 2, 8, 4])
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


def test_interval_is_that_of_student():
    from scipy import stats

    values = [0.3, 0.5, 0.9, 0.4]
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    mean, half = statistics.interval(values, 0.9)
    assert (mean - half, mean + half) == pytest.approx((low, high), abs=1e-12)
    assert statistics.interval([0.5])[0] == 0.5 and statistics.interval([0.5])[1] != statistics.interval([0.5])[1]


@pytest.mark.parametrize(
    ("a", "verdict", "agree"),
    [([1.1, 1.2, 1.15], "holds", 3), ([0.8, 0.9, 0.85], "the opposite holds", 0), ([0.5, 1.5, 1.1], "undecided", 2)],
)
def test_compare_pairs_seeds(a, verdict, agree):
    found = statistics.compare(dict(enumerate(a)), {2: 1.0, 1: 1.0, 0: 1.0})
    assert (found["verdict"], found["agree"], found["seeds"]) == (verdict, agree, 3)
    assert found["difference"] == pytest.approx(sum(a) / 3 - 1)


def test_compare_wants_the_same_seeds():
    with pytest.raises(ValueError, match="same seeds"):
        statistics.compare({0: 1.0}, {1: 1.0})


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
    assert pool["mse"] == pool["loss"] == pytest.approx(metrics.mean_squared_error(y, output), rel=1e-9)
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


def test_shared_rows_and_one_model_cost_one_loss(clients):
    algorithm, result, _ = result_and_expected(FedAvg, clients, "accuracy")
    seen = []
    loss = algorithm.loss
    object.__setattr__(algorithm, "loss", lambda p, b: seen.append(len(b[1])) or loss(p, b))
    fedlib.evaluate(algorithm, result, fedlib.same_rows(*clients[31], list(clients)))
    assert seen == [len(clients[31][1])]


def table(**columns):
    values = next(iter(columns.values()))
    return pd.DataFrame({"id": range(len(values)), "n": 1} | columns)


@pytest.mark.parametrize(
    ("values", "column", "expected"),
    [
        (np.arange(10) / 10, "accuracy", (0.45, 0.0, 0.0)),
        (np.arange(11)[::-1] / 10, "accuracy", (0.5, 0.05, 0.0)),  # a tenth of eleven is two, rounded up
        ([0.5, 0.1, 0.9, 0.3, 0.2], "accuracy", (0.4, 0.1, 0.1)),
        ([0.5, 0.1, 0.9, 0.3, 0.2], "r2", (0.4, 0.1, 0.1)),
        (np.arange(20.0), "loss", (9.5, 18.5, 19.0)),
        (np.arange(11.0), "mse", (5.0, 9.5, 10.0)),
        ([3.0, 1.0], "mae", (2.0, 3.0, 3.0)),
        ([np.nan, 3.0, np.nan, 1.0], "r2", (2.0, 1.0, 1.0)),
        (np.r_[np.arange(10.0), np.nan], "r2", (4.5, 0.0, 0.0)),  # ten clients have a score
    ],
)
def test_summary(values, column, expected):
    found = statistics.summary(table(**{column: values}), column)
    assert list(found) == ["mean", "worst decile", "worst"]
    assert tuple(found.values()) == pytest.approx(expected)


def test_ecdf_is_a_count():
    values = np.random.RandomState(0).randint(0, 8, 40) / 8
    found, share = statistics.ecdf(values)
    assert found.tolist() == sorted(set(values.tolist()))
    assert share.tolist() == [sum(v <= x for v in values) / 40 for x in found] and share[-1] == 1
    assert statistics.ecdf([2, 1, 2])[1].tolist() == pytest.approx([1 / 3, 1])


@pytest.mark.parametrize(("column", "expected"), [("accuracy", 0.25), ("r2", 0.25), ("loss", 0.5), ("mse", 0.5)])
def test_negative_transfer(column, expected):
    """One client falls, two rise and one stays as it is; the order of rows does not matter."""
    ours, alone = (table(**{column: v}) for v in ([0.1, 0.5, 0.6, 0.9], [0.2, 0.5, 0.4, 0.8]))
    assert statistics.negative_transfer(ours, alone, column) == expected
    assert statistics.negative_transfer(ours.iloc[[2, 0, 3, 1]], alone.iloc[::-1], column) == expected


def test_negative_transfer_wants_the_same_clients():
    with pytest.raises(ValueError, match=r"different clients: \[2\] differ"):
        statistics.negative_transfer(table(accuracy=[1, 1, 1]), table(accuracy=[1, 1]))


HISTORY = pd.DataFrame(
    {
        "round": [0, 1, 2, 3, 4, 5, 6],
        "validation_accuracy": [np.nan, np.nan, 0.5, 0.7, 0.7, np.nan, 0.6],
        "test_accuracy": [np.nan, np.nan, 0.8, 0.6, 0.5, np.nan, 0.8],
    }
)


@pytest.mark.parametrize("column", ["accuracy", "loss"])
def test_three_readings_of_one_run(column):
    """Ties take the first round, rounds without scores count for nothing, a low loss is good."""
    history = HISTORY.rename(columns=lambda name: name.replace("accuracy", column))
    if column == "loss":
        history.loc[:, ["validation_loss", "test_loss"]] = 1 - history[["validation_loss", "test_loss"]]
    found = statistics.readings(history, column)
    assert found.index.tolist() == ["last round", "chosen by validation", "max on test"]
    assert found["round"].tolist() == [6, 3, 2] and list(found) == ["round", "test"]
    accuracy = found["test"] if column == "accuracy" else 1 - found["test"]
    assert accuracy.tolist() == pytest.approx([0.8, 0.6, 0.8])


def test_readings_of_a_run_that_is_scored_now_and_then(clients):
    params, predict, _ = twin("MLP")
    data = client_data(clients)
    algorithm = FedAvg(classification_loss(predict), lr=0.3, predict=predict)
    sets = {"validation": data[:4], "test": data[4:]}
    history = fedlib.fit(algorithm, params, data, 7, eval_data=sets, eval_every=3, progress=False).history
    found = statistics.readings(history)
    assert set(found["round"]) <= {3, 6, 7} and found["round"]["last round"] == 7
    for t, score in found.itertuples(index=False):
        assert score == history.set_index("round")["test_accuracy"][t]


@pytest.mark.parametrize("missing", ["validation", "test"])
def test_readings_need_both_sets(missing):
    with pytest.raises(ValueError, match=rf"no \['{missing}_accuracy'\], only .*: give fit eval_data=.*'validation': "):
        statistics.readings(HISTORY.drop(columns=f"{missing}_accuracy"))


def test_cluster_scores_are_those_of_scikit_learn():
    random = np.random.RandomState(0)
    true, found = random.randint(0, 3, 40), random.randint(0, 5, 40)
    scores = statistics.cluster_scores(true, found)
    assert scores["ari"] == pytest.approx(metrics.adjusted_rand_score(true, found))
    assert scores["ami"] == pytest.approx(metrics.adjusted_mutual_info_score(true, found))
    counts = [max(np.sum((found == c) & (true == g)) for g in range(3)) for c in range(5)]
    assert scores["purity"] == pytest.approx(sum(counts) / 40)
    names = np.array([7, 0, 3, 9, 1])
    assert statistics.cluster_scores(2 - true, names[found]) == pytest.approx(scores)


@pytest.mark.parametrize(
    ("found", "ari", "purity"),
    [([5, 5, 2, 2, 0, 0], 1, 1), ([0, 1, 2, 3, 4, 5], 0, 1), ([0] * 6, 0, 1 / 3)],
    ids=["the groups", "each client alone", "all in one"],
)
def test_cluster_scores_at_the_ends(found, ari, purity):
    scores = statistics.cluster_scores([0, 0, 1, 1, 2, 2], torch.tensor(found))
    assert (scores["ari"], scores["ami"], scores["purity"]) == pytest.approx((ari, ari, purity), abs=1e-12)


@dataclass(frozen=True)
class Assigned:
    models: dict
    assignment: torch.Tensor


@dataclass(frozen=True)
class Alternate(FedAvg):
    """After round t, client k is in cluster k modulo t + 1."""

    def init(self, params, data, key):
        return Assigned(super().init(params, data, key).models, torch.arange(len(data)))

    def aggregate(self, state, update):
        state = super().aggregate(state, update)
        most = int(state.assignment.max()) + 1
        return replace(state, assignment=torch.arange(8) % (2 if most == 8 else most + 1))


def test_clusters_over_rounds_adds_columns(clients):
    params, predict, _ = twin("MLP")
    true = np.arange(8) % 3
    history = fedlib.fit(
        Alternate(classification_loss(predict)),
        params,
        client_data(clients),
        3,
        callbacks=[statistics.clusters_over_rounds(true)],
        progress=False,
    ).history
    assert history["clusters"].tolist() == [2, 3, 4]
    assert history["ari"][1] == history["ami"][1] == history["purity"][1] == 1
    for t, row in history.iterrows():
        expected = statistics.cluster_scores(true, np.arange(8) % (t + 2))
        assert row[["ari", "ami", "purity"]].tolist() == pytest.approx(list(expected.values()))
