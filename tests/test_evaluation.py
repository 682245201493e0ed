"""Scores against a loop over clients."""

import numpy as np
import pandas as pd
import pytest
import torch
from twins import classification_loss, client_data, ragged_clients, twin

import fedlib
from fedlib import evaluation
from fedlib.algorithms import FedAvg, LocalOnly


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
    mean, half = evaluation.interval(values, 0.9)
    assert (mean - half, mean + half) == pytest.approx((low, high), abs=1e-12)
    assert evaluation.interval([0.5])[0] == 0.5 and evaluation.interval([0.5])[1] != evaluation.interval([0.5])[1]


@pytest.mark.parametrize(
    ("a", "verdict", "agree"),
    [([1.1, 1.2, 1.15], "holds", 3), ([0.8, 0.9, 0.85], "the opposite holds", 0), ([0.5, 1.5, 1.1], "undecided", 2)],
)
def test_compare_pairs_seeds(a, verdict, agree):
    found = evaluation.compare(dict(enumerate(a)), {2: 1.0, 1: 1.0, 0: 1.0})
    assert (found["verdict"], found["agree"], found["seeds"]) == (verdict, agree, 3)
    assert found["difference"] == pytest.approx(sum(a) / 3 - 1)


def test_compare_wants_the_same_seeds():
    with pytest.raises(ValueError, match="same seeds"):
        evaluation.compare({0: 1.0}, {1: 1.0})
