"""A user's mistake gets a message that names the value and says what to do."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from twins import classification_loss

import fedlib
from fedlib import losses, partition, stack_clients, stack_rows, statistics
from fedlib.algorithms import FedAvg, FedEM, FedProto, FedSGCNN, LGFedAvg, LocalOnly
from fedlib.algorithms.fedem import Mixture
from fedlib.checks import check_settings, number, whole
from fedlib.client import mmd
from fedlib.client.prototype_net import PrototypeNet
from fedlib.engines.checkpoint import Checkpoint
from fedlib.extensions import mixture
from fedlib.federation import new_clients
from fedlib.models import CNN, MLP, Model
from fedlib.server import clusters, model_graph

MODEL = MLP((3, 4, 2))
X, Y = np.zeros((6, 3), np.float32), np.array([0, 1, 0, 1, 0, 1])
NAN = np.where(np.arange(6)[:, None] == 4, np.nan, X)
LOSS = classification_loss(MODEL)
DATA = stack_rows(X, Y, [[0, 1], [2, 3], [4, 5]], ids=[4, 5, 6])


def fit(algorithm=None, params=None, data=DATA, rounds=1, *args, **settings):
    algorithm = algorithm or FedAvg(LOSS)
    return fedlib.fit(algorithm, params or MODEL.init(0), data, rounds, *args, progress=False, **settings)


def mean_over_padding(params, batch):
    return torch.nn.functional.cross_entropy(MODEL(params, batch[0]), batch[1])


def per_row(params, batch):
    return torch.nn.functional.cross_entropy(MODEL(params, batch[0]), batch[1], reduction="none")


def with_column(column):
    return lambda: DATA.with_columns(c=column)


def tables(y=False):
    a = pd.DataFrame({"age": [30.0, 40.0], "income": [1.0, 2.0]})
    both = [a, a[["income", "age"]]]
    return stack_clients([a, a], both) if y else stack_clients(both, [[0, 1]] * 2)


def answering(predict, y=Y, model=MODEL, loss=losses.cross_entropy):
    """A run whose `predict` does not fit y; the callback would say so of a round that was trained."""

    def call():
        rule = FedAvg(lambda p, b: loss(model(p, b[0]), b[1], b[2]), predict=predict)
        return fit(rule, model.init(0), stack_rows(X, y, [[0, 1], [2, 3]]), callbacks=[pytest.fail])

    return call


def scored_on(test, algorithm=None, data=DATA):
    return lambda: fit(algorithm, data=data, eval_data=test, callbacks=[pytest.fail])


ONE, IMAGES = MLP((3, 4, 1)), np.zeros((6, 5, 5, 3), np.uint8)
BYTES = [stack_rows(np.uint8(X), Y, [[0, 1]], ids=[4], pixels=marked) for marked in (True, False)]
MASKED = np.ma.masked_array(X, mask=np.arange(18).reshape(6, 3) == 4)
TABLE = pd.DataFrame(X).assign(user=[5, 5, 5, 7, 7, 7])
DATA_DOOR = {
    "tables of other columns": (tables, ValueError, "client 1 has columns .*income.*, client 0 .*; give .*reindex"),
    "targets of other columns": (lambda: tables(y=True), ValueError, "client 1 has columns"),
    "a column too wide": (with_column(np.ones((3, 9))), ValueError, r"column 'c' .* \(3, 2, '...'\); got \(3, 9\)"),
    "a column of other clients": (with_column(torch.ones(9, 2)), ValueError, r"column 'c' .* got \(9, 2\)"),
    "a number a client": (with_column([1, 2, 3]), ValueError, r"column 'c' .* got \(3,\)"),
    "a column of NaN": (with_column(np.full((3, 2), np.nan)), ValueError, "column 'c' has a missing, NaN"),
    "masked entries": (lambda: stack_rows(MASKED, Y, [[0]]), ValueError, "x has a missing, .* in row 1"),
    "complex tensor": (lambda: stack_rows(torch.zeros(6, 1) + 1j, Y, [[0]]), TypeError, "x must hold numbers, .*compl"),
    "huge ids": (lambda: stack_rows(X, Y, [[0]], ids=np.array([2**63 + 1], "u8")), ValueError, "below 2..63"),
    "huge users": (lambda: partition.by_user(np.array([2**63 + 5, 7], "u8")), TypeError, "below 2..63"),
    "labels as rows": (
        lambda: stack_rows(X, Y, list(TABLE.groupby("user").groups.values())),
        TypeError,
        "client 0 .*take .indices",
    ),
    "an empty client": (lambda: stack_clients([X, X[:0]], [Y, Y[:0]]), ValueError, "client 1 has no examples"),
    "no rows for all": (lambda: fedlib.same_rows(X[:0], Y[:0], ids=[0]), ValueError, "has no examples"),
    "channels last": (
        lambda: partition.rotation(partition.iid(Y, 2), (0, 180)).clients(IMAGES, Y),
        ValueError,
        r"channels first: x.transpose\(0, 3, 1, 2\)",
    ),
    "one logit for classes": (
        answering(ONE, model=ONE, loss=losses.bce),
        ValueError,
        r"a logit for each class, .* for a regression give y.astype\('float32'\)",
    ),
    "classes for logits": (answering(lambda p, x: MODEL(p, x).argmax(-1)), ValueError, "a logit for each class"),
    "a tuple of answers": (
        answering(lambda p, x: (MODEL(p, x),)),
        TypeError,
        "give a tensor, got a tuple",
    ),
    "answers of numpy": (answering(lambda p, x: MODEL(p, x).numpy()), TypeError, "tensor, got a ndarray"),
    "scored on one-hot": (
        scored_on(stack_rows(X, np.eye(2, dtype=int)[Y], [[0]], ids=[4])),
        ValueError,
        r"'test' has y of shape \(2,\), training \(\)",
    ),
    "scored on targets": (
        scored_on(stack_rows(X, Y * 1.0, [[0]], ids=[4])),
        ValueError,
        "y of type floating",
    ),
    "scored on unmarked bytes": (scored_on(BYTES[1], data=BYTES[0]), ValueError, "pixels = False, training True"),
    "scored without a column": (
        scored_on(DATA, data=DATA.with_columns(c=np.ones((3, 2)))),
        ValueError,
        r"columns \[\], training \['c'\]",
    ),
    "scored on a list": (scored_on([DATA]), TypeError, "eval_data must be ClientData, or a dictionary .* got a list"),
    "scored on a pair": (scored_on((X, Y)), TypeError, "eval_data must be ClientData"),
    "a callback alone": (lambda: fit(callbacks=print), TypeError, "callbacks must be a list"),
    "a result for an algorithm": (
        lambda: fedlib.evaluate(fit(), FedAvg(LOSS), DATA),
        TypeError,
        r"algorithm must be .*, got Result: give \(algorithm, result, data\)",
    ),
    "new clients of arrays": (lambda: new_clients(FedAvg(LOSS), fit(), (X, Y)), TypeError, "data must be .*got tuple"),
    "a folder for a checkpoint": (lambda: fit(checkpoint=Checkpoint("/")), ValueError, "is a folder; give a file"),
    "a table without ys": (lambda: stack_clients([TABLE]), TypeError, "client 0: without ys, .* got a DataFrame"),
    "a dict without ys": (lambda: stack_clients([{"x": X, "y": Y}]), TypeError, "client 0: without ys, .* got a dict"),
    "a generator": (lambda: stack_clients((x for x in [X]), [Y]), TypeError, r"give list\(xs\)"),
    "sparse": (lambda: stack_rows(csr_array(X), Y, [[0]]), TypeError, "x is sparse; give .*toarray"),
    "ragged": (lambda: stack_rows([[1, 2], [3]], [0, 1], [[0]]), ValueError, "different lengths; pad to one length"),
    "ragged tensors": (
        lambda: stack_rows([torch.zeros(2), torch.zeros(3)], [0, 1], [[0]]),
        ValueError,
        "pad to one length",
    ),
    "a list of classes": (lambda: stack_rows(X, Y, [[0]], classes=[0, 1]), TypeError, "the number of classes"),
    "one id": (lambda: stack_rows(X, Y, [[0]], ids=3), ValueError, "ids must be 1 different whole numbers"),
    "ids by their number": (lambda: fedlib.same_rows(X, Y, ids=5), TypeError, "ids must be a list"),
    "alphas": (lambda: partition.dirichlet(Y, 2, [0.1, 0.2]), ValueError, "alpha must be a number above 0"),
    "no least number of rows": (
        lambda: partition.dirichlet(Y, 2, 1, min_rows=None),
        ValueError,
        "min_rows must be a whole number",
    ),
    "a text for sigma": (lambda: partition.quantity(Y, 2, "1"), ValueError, "sigma must be a number"),
    "half shards": (lambda: partition.pathological(Y, 2, 1.5), ValueError, "shards_per_client must be a whole number"),
    "half a client": (lambda: partition.by_user(Y, 2.5), ValueError, "n_clients must be a whole number"),
    "one fraction": (lambda: partition.iid(Y, 2).split(0.8), TypeError, "fractions must be a list"),
    "half columns": (
        lambda: partition.feature_subsets(partition.iid(Y, 2), 3.0, 1),
        ValueError,
        "columns must be a whole number",
    ),
}
MISTAKES = DATA_DOOR | {
    "no clients": (lambda: stack_rows(X, Y, []), ValueError, "give at least one list of rows"),
    "one y for two x": (lambda: stack_clients([X, X], [Y]), ValueError, "2 arrays x and 1 y"),
    "no arrays": (lambda: stack_clients(np.zeros((0, 2)), np.zeros(0)), ValueError, "0 arrays x and 0 y"),
    "client without samples": (lambda: stack_rows(X, Y, [[0], []], ids=[8, 9]), ValueError, "client 9 has no examples"),
    "x and y of different lengths": (lambda: stack_rows(X, Y[:5], [[0]]), ValueError, "x has 6 rows and y has 5"),
    "rows of different shapes": (
        lambda: stack_clients([X, X[:, :2]], [Y, Y]),
        ValueError,
        r"client 1 has x of shape \(6, 2\) .* pad narrower clients",
    ),
    "NaN features": (lambda: stack_rows(NAN, Y, [[0]]), ValueError, "x has a missing, NaN or infinite value in row 4"),
    "NaN targets": (lambda: stack_rows(X, Y * np.nan, [[0]]), ValueError, "y has a missing, NaN"),
    "negative label": (lambda: stack_rows(X, Y - 1, [[0]]), ValueError, "label -1"),
    "label too large": (lambda: stack_rows(X, Y, [[0]], classes=1), ValueError, "label 1; .* 0 to 0"),
    "row number too large": (
        lambda: stack_rows(X, Y, [[0], [6]]),
        ValueError,
        "client 1: give a list of whole row numbers from 0 to 5",
    ),
    "ids that repeat": (lambda: stack_rows(X, Y, [[0], [1]], ids=[3, 3]), ValueError, "2 different whole numbers"),
    "cohort too large": (
        lambda: fit(None, None, DATA, 1, 4),
        ValueError,
        "clients_per_round must be a whole number from 1 to 3; got 4",
    ),
    "zero rounds": (lambda: fit(rounds=0), ValueError, "rounds must be a whole number of at least 1; got 0"),
    "zero epochs": (lambda: FedAvg(LOSS, epochs=0), ValueError, "epochs must be a whole number of at least 1; got 0"),
    "zero batch": (
        lambda: FedAvg(LOSS, batch_size=0),
        ValueError,
        "batch_size must be a whole number of at least 1, or None",
    ),
    "zero learning rate": (lambda: FedAvg(LOSS, lr=0), ValueError, "lr must be a number above 0; got 0"),
    "zero chunk": (lambda: FedAvg(LOSS, chunk_size=0), ValueError, 'or "auto"; got 0'),
    "everybody slow": (lambda: FedAvg(LOSS, stragglers=1), ValueError, "stragglers must be .* and below 1; got 1"),
    "everybody lost": (lambda: fit(lost=1.0), ValueError, "lost must be .* and below 1; got 1.0"),
    "NaN lost": (lambda: fit(lost=float("nan")), ValueError, "lost .* got nan"),
    "a checkpoint that is none": (
        lambda: fit(checkpoint=3),
        TypeError,
        r"an object such as fedlib.Checkpoint\(path\), got 3",
    ),
    "checkpoints every 0 rounds": (lambda: Checkpoint("a", every_rounds=0), ValueError, "every_rounds .* got 0"),
    "checkpoints every NaN seconds": (
        lambda: Checkpoint("a", every_seconds=float("nan")),
        ValueError,
        "every_seconds .* got nan",
    ),
    "new clients for half a round": (
        lambda: new_clients(LocalOnly(LOSS), fit(LocalOnly(LOSS)), stack_rows(X, Y, [[0]], ids=[9]), 0.5),
        ValueError,
        "rounds must be a whole number .* got 0.5",
    ),
    "no function for a loss": (
        lambda: FedAvg("mse"),
        TypeError,
        "loss must be a function .*, got 'mse'",
    ),
    "alpha = 0": (lambda: partition.dirichlet(Y, 2, 0), ValueError, "alpha must be a number above 0; got 0"),
    "more clients than rows": (lambda: partition.iid(Y, 7), ValueError, "from 1 to the 6 rows there are; got 7"),
    "more shards than rows": (
        lambda: partition.pathological(Y, 4, 2),
        ValueError,
        "make 8 shards, but there are",
    ),
    "too few rows for all": (
        lambda: partition.dirichlet(Y, 3, 1, min_rows=3),
        ValueError,
        "3 clients of at least 3",
    ),
    "unlucky Dirichlet": (
        lambda: partition.dirichlet(np.arange(100) % 2, 20, 0.01, attempts=3),
        ValueError,
        "no draw of [123] .* alpha = 0.01; on average 1[0-9.]+ clients were short. Raise alpha",
    ),
    "parameters of another model": (
        lambda: fit(params=MLP((5, 4, 2)).init(0)),
        ValueError,
        r"does not run.* with parameters .*\(4, 5\).* rows of shape \(3,\)",
    ),
    "a parameter is missing": (lambda: fit(params={"dense1.bias": torch.zeros(4)}), ValueError, "dense1.weight"),
    "the loss sees padding": (lambda: fit(FedAvg(mean_over_padding)), ValueError, "the loss sees padded rows"),
    "the loss is no single number": (lambda: fit(FedAvg(per_row)), ValueError, "must give one number"),
    "unknown clients in evaluation": (
        lambda: fit(eval_data=stack_rows(X, Y, [[0]], ids=[99])),
        ValueError,
        r"'test' has clients that are not in training: ids \[99\]",
    ),
    "a mapping of rows": (lambda: stack_rows(X, Y, {3: [0]}), ValueError, "rows=list"),
    "row numbers that are not whole": (lambda: stack_rows(X, Y, [[0.5]]), ValueError, "client 0: give a list of whole"),
    "ids that are no numbers": (lambda: stack_rows(X, Y, [[0], [1]], ids=["a", "b"]), ValueError, "different whole"),
    "words as features": (lambda: stack_rows(np.array([["a"]] * 6), Y, [[0]]), TypeError, "x must hold numbers"),
    "labels without rows": (lambda: stack_rows(X, 3, [[0]]), ValueError, r"a label or target a row.*got \(\)"),
    "a rate for each client": (
        lambda: FedAvg(LOSS, lr=torch.tensor([0.1, 0.2])),
        ValueError,
        r"got tensor\(\[0.1000, 0.2000\]\): it is one number for all clients. .* by a column .*; see the FAQ$",
    ),
    "epochs for each client": (
        lambda: FedAvg(LOSS, epochs=[1, 2]),
        ValueError,
        r"epochs must be .* got \[1, 2\]: it is one number for all clients$",
    ),
    "batch sizes for each client": (
        lambda: FedAvg(LOSS, batch_size=np.array([10, 20])),
        ValueError,
        r"batch_size must be .* got array\(\[10, 20\]\): it is one number for all clients$",
    ),
    "infinite sigma": (lambda: partition.quantity(Y, 2, np.inf), ValueError, "got inf"),
    "a label that the model has not": (
        lambda: fit(data=stack_rows(X, Y + 4, [[0, 1], [2]])),
        ValueError,
        "does not run.* y \\[4.*Do the model's inputs fit x, and its outputs y",
    ),
    "the same in evaluation": (
        lambda: fit(FedAvg(LOSS, predict=MODEL), eval_data={"val": stack_rows(X, Y + 4, [[0]], ids=[4])}),
        ValueError,
        "the val data have the label 4, but the model has 2 outputs",
    ),
    "evaluation rows of another width": (
        lambda: fit(FedAvg(LOSS, predict=MODEL), eval_data=stack_rows(X[:, :2], Y, [[0]], ids=[4])),
        ValueError,
        "predict does not run on the test data",
    ),
    "padding unseen only at the start": (
        lambda: fit(FedAvg(mean_over_padding), {n: 0 * p for n, p in MODEL.init(0).items()}),
        ValueError,
        "the loss sees padded rows",
    ),
    "a client twice": (
        lambda: fit(data=DATA[[0, 0, 1]]),
        ValueError,
        r"hold a client twice; ids must differ, got \[4, 4, 5\]",
    ),
    "no parameters": (
        lambda: fedlib.fit(FedAvg(LOSS), {}, DATA, 1),
        TypeError,
        "params must be named tensors",
    ),
    "a module for parameters": (
        lambda: fit(params=torch.nn.Linear(3, 2)),
        TypeError,
        "params must be named tensors",
    ),
    "whole-number parameters": (
        lambda: fit(params={"n": torch.tensor(3)}),
        TypeError,
        "named tensors .*'n': torch.int64",
    ),
    "arrays for data": (lambda: fit(data=(X, Y)), TypeError, "data must be ClientData"),
    "a class for an algorithm": (lambda: fit(FedAvg), TypeError, r"an instance such as FedAvg\(loss\)"),
    "half a round": (lambda: fit(rounds=2.5), ValueError, "rounds must be a whole number .* got 2.5"),
    "a callback that is none": (lambda: fit(callbacks=[3]), TypeError, "callbacks must be a list of functions"),
    "predict that is none": (
        lambda: fit(FedAvg(LOSS, predict="accuracy")),
        ValueError,
        "predict does not run .*not callable",
    ),
    "a learning rate in two places": (
        lambda: FedAvg(LOSS, optimizer=partial(torch.optim.SGD, lr=5.0)),
        ValueError,
        "lr=5.0 of the algorithm",
    ),
    "an optimiser over whole tensors": (
        lambda: FedAvg(LOSS, optimizer=torch.optim.LBFGS),
        ValueError,
        "LBFGS.* does not run on a stack of clients",
    ),
    "images that shrink to nothing": (
        lambda: CNN((1, 6, 6), (2, 2, 2, 2), (4,)).init(0),
        ValueError,
        "convolution 3 leaves 0 x 0 pixels",
    ),
    "a network without outputs": (lambda: MLP((784,)), ValueError, "inputs and the outputs"),
    "a module's parameters are not all there": (
        lambda: Model(torch.nn.Linear(3, 2))({"weight": torch.zeros(2, 3)}, torch.zeros(1, 3)),
        ValueError,
        r"not the module's parameters: \['bias'\]",
    ),
    "BatchNorm": (lambda: Model(torch.nn.BatchNorm1d(3)), ValueError, "BatchNorm1d, .* use GroupNorm"),
    "BatchNorm without running statistics": (
        lambda: Model(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2, track_running_stats=False))),
        ValueError,
        "layer '1' is a BatchNorm1d, which takes statistics of the whole batch",
    ),
}


def any_y(params, batch, h=None):
    net = NET if "known" in params else MODEL
    return losses.weighted_mean(net(params, batch[0]).square().sum(1), batch[2])


NET = PrototypeNet((MODEL,))
ROWS = torch.zeros(3, 2)
SEVERAL, REAL = (stack_rows(X, y, [[0, 1], [2, 3]]) for y in (np.stack([Y, Y], 1), Y.astype("float32")))
NETWORKS = model_graph.model_graph({"a.weight": torch.ones(3, 2, 4), "a.bias": torch.ones(3, 2)}, ["a"])
DIVERGED = model_graph.model_graph({"a.weight": torch.full((3, 2, 4), torch.nan), "a.bias": torch.ones(3, 2)}, ["a"])
PAIRS = torch.tensor([[0, 1], [1, 2]])
CONFUSED = {
    "an evaluation set that hides the training loss": (
        lambda: fit(eval_data={"train": DATA}),
        ValueError,
        'an evaluation set cannot be called "train"',
    ),
    "a result of another algorithm": (
        lambda: fedlib.evaluate(FedAvg(LOSS), fit(LocalOnly(LOSS)), DATA),
        TypeError,
        "FedAvg cannot read a LocalOnlyState; give the algorithm that made this result",
    ),
    "new clients of another algorithm": (
        lambda: fedlib.new_clients(FedAvg(LOSS), fit(LocalOnly(LOSS)), replace(DATA, id=DATA.id + 100)),
        TypeError,
        "FedAvg cannot read a LocalOnlyState",
    ),
    "a mask of nobody": (lambda: DATA[DATA.n < 0], TypeError, "index clients by .*, not by \\[False"),
    "a single pair": (
        lambda: FedSGCNN(LOSS, trainers=2),
        ValueError,
        "trainers must be a whole number of at least 3; got 2",
    ),
    "a network of no epochs": (
        lambda: model_graph.train_siamese([NETWORKS], PAIRS, torch.ones(2), epochs=0),
        ValueError,
        "epochs must be a whole number of at least 1; got 0",
    ),
    "no snapshots": (lambda: FedSGCNN(LOSS, snapshots=()), ValueError, "snapshots must be .* got 0"),
    "a score that is none": (lambda: FedSGCNN(LOSS, score="acc"), ValueError, "score must be .* got 'acc'"),
    "a score without predict": (lambda: FedSGCNN(LOSS, score="r2"), ValueError, "with predict .* got 'r2'"),
    "pairs of one client": (
        lambda: fit(FedSGCNN(LOSS), data=DATA[[0]]),
        ValueError,
        "pairs of clients; got a federation of one client",
    ),
    "a device that is none": (lambda: fit(device="gpuu"), RuntimeError, "Expected one of cpu, cuda, .*gpuu"),
    "a type as text": (lambda: fit(dtype="float64"), TypeError, "such as torch.float64, got 'float64'"),
    "a seed that is no whole number": (lambda: fit(seed=0.5), TypeError, "a seed is a whole number; got 0.5"),
    "a seed of more than 64 bits": (lambda: fit(seed=2**64 + 3), ValueError, "whole number of 64 bits"),
    "half a client": (lambda: partition.iid(Y, 2.5), ValueError, "whole number from 1 to the 6 rows .* got 2.5"),
    "other rows than were shared out": (
        lambda: partition.iid(Y, 2).clients(np.zeros((7, 3)), np.zeros(7, int)),
        ValueError,
        "6 rows were shared out, but x has 7",
    ),
    "no values": (lambda: statistics.interval([]), ValueError, "there are no values"),
    "targets in a column": (
        lambda: losses.mse(torch.zeros(3), torch.zeros(3, 1), torch.ones(3)),
        ValueError,
        r"predictions of shape \(3,\) do not fit y of shape \(3, 1\)",
    ),
    "several labels a row for prototypes": (
        lambda: fit(FedProto(any_y, net=NET), NET.init(0), SEVERAL),
        TypeError,
        r"FedProto needs class labels, whole numbers, one a row; y holds torch.int64, \(2,\) a row",
    ),
    "targets for prototypes": (
        lambda: fit(FedProto(any_y, net=NET), NET.init(0), REAL),
        TypeError,
        "FedProto needs class labels, whole numbers, one a row; y holds torch.float32, one a row",
    ),
    "several labels a row for a teacher": (
        lambda: mixture.em_domains(SEVERAL, fedlib.Key(0), 2, 2, features=lambda x: x),
        TypeError,
        r"federated_em needs class labels, whole numbers, one a row; y holds torch.int64, \(2,\) a row",
    ),
    "targets for a teacher": (
        lambda: mixture.em_domains(REAL, fedlib.Key(0), 2, 2, features=lambda x: x),
        TypeError,
        "federated_em needs class labels, .* torch.float32, one a row",
    ),
    "several labels a row for a mixture of models": (
        lambda: fit(FedEM(any_y), MODEL.init(0), SEVERAL),
        TypeError,
        r"FedEM with a Mixture needs class labels, .* y holds torch.int64, \(2,\) a row",
    ),
    "targets for a mixture of probabilities": (
        lambda: fit(FedEM(any_y, predict=Mixture(one := MLP((3, 4, 1)))), one.init(0), REAL),
        TypeError,
        "FedEM with a Mixture needs class labels, .* y holds torch.float32, one a row",
    ),
    "the nearest centre of NaN": (
        lambda: clusters.nearest(torch.zeros(2, 2), torch.full((3, 2), torch.nan)),
        ValueError,
        "must be finite",
    ),
    "graphs of networks that diverged": (
        lambda: model_graph.train_siamese([DIVERGED], PAIRS, torch.ones(2)),
        ValueError,
        "NaN or infinite",
    ),
    "a client with itself": (
        lambda: model_graph.train_siamese([NETWORKS], torch.tensor([[0, 1], [2, 2]]), torch.ones(2)),
        ValueError,
        "two different clients",
    ),
    "a cluster far beyond the clients": (
        lambda: fit(LGFedAvg(LOSS, local=(), assignment=[0, 1, 10**6])),
        ValueError,
        "must give 3 clients clusters from 0 to 2",
    ),
}


@pytest.mark.parametrize("confusion", CONFUSED)
def test_what_looks_right_and_is_not(confusion):
    call, kind, message = CONFUSED[confusion]
    with pytest.raises(kind, match=message):
        call()


def test_samples_without_a_real_row_give_no_nan():
    assert mmd.mmd2(ROWS, ROWS + 1, wx=torch.zeros(3)) == 0
    assert mmd.mmd2(ROWS, ROWS + 1, torch.zeros(3), torch.zeros(3), kernel="linear") == 0


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(mistake):
    call, kind, message = MISTAKES[mistake]
    with pytest.raises(kind, match=message):
        call()


def target(params, batch):
    return fedlib.losses.mse(params["theta"].expand(len(batch[1])), batch[1], batch[2])


@pytest.mark.parametrize(
    ("y", "lr", "who"),
    [(1e30, 0.1, "the loss of client 14"), (1e3, 1e38, r"parameters among clients \[10, 11, 12, 13, 14\]")],
    ids=["the loss overflows", "only the parameters do, in the last step"],
)
@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])
def test_divergence_names_client_and_round(algorithm, y, lr, who):
    targets = np.zeros((7, 1), np.float32)
    targets[4] = y
    data = stack_clients(np.zeros((7, 1, 3), np.float32), targets, ids=range(10, 17))
    with pytest.raises(FloatingPointError, match=f"{who} became NaN or infinite in round 1; lower the learning"):
        fit(algorithm(target, lr=lr), {"theta": torch.zeros(())}, data)


@dataclass
class Ranges:
    share: float = number(0.5, most=1)
    rate: float | None = number(None, above=True)
    size: int | Literal["auto"] = whole("auto")
    rule: Literal["one", "two"] = "one"

    def __post_init__(self):
        check_settings(self)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"share": 2}, "share must be a number of at least 0 and at most 1; got 2"),
        ({"share": None}, "share must be a number of at least 0 and at most 1; got None"),
        ({"rate": 0}, "rate must be a number above 0, or None; got 0"),
        ({"rule": "three"}, 'rule must be "one" or "two"; got \'three\''),
        ({"size": "all"}, 'size must be a whole number of at least 1, or "auto"; got '),
        ({"rule": None}, 'rule must be "one" or "two"; got None'),
    ],
)
def test_ranges_stand_beside_the_fields(settings, words):
    assert Ranges(share=1, rate=None, rule="two").share == 1
    with pytest.raises(ValueError, match=words):
        Ranges(**settings)


def test_targets_far_from_zero_are_warned_of():
    line, years = MLP((3, 1)), np.array([1e9, 1e9 + 1] * 3)
    regression = FedAvg(lambda p, b: losses.mse(line(p, b[0]), b[1], b[2]), lr=1e-30)
    data = stack_rows(X, years, [[0, 1], [2, 3], [4, 5]])
    with pytest.warns(UserWarning, match="lose their digits as torch.float32; subtract their mean"):
        fit(regression, line.init(0), data)
    fit(regression, line.init(0), data, dtype=torch.float64)
    fit(regression, line.init(0), stack_rows(X, np.full(6, 0.1), [[0, 1], [2, 3], [4, 5]]))


def test_a_layer_built_on_torchs_lstm():
    class Mine(torch.nn.LSTM):
        pass

    with pytest.raises(ValueError, match="layer '1' is a Mine, .*give a plain nn.LSTM"):
        Model(torch.nn.Sequential(torch.nn.Linear(3, 3), Mine(3, 4)))


@pytest.mark.parametrize("predict", [MODEL, None])
def test_scores_of_rows_that_are_too_narrow(predict):
    algorithm = FedAvg(LOSS, predict=predict)
    with pytest.raises(ValueError, match=r"the models do not run on rows of shape \(2,\)"):
        fedlib.evaluate(algorithm, fit(algorithm), stack_rows(X[:, :2], Y, [[0, 1], [2, 3]], ids=[4, 5]))
