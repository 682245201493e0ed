"""A user's mistake gets a message that names the value and says what to do."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refusals
from scipy.sparse import csr_array
from twins import classification_loss

import fedlib
from fedlib import losses, new_clients, partition, plotting, same_rows, stack_clients, stack_rows, statistics
from fedlib.algorithm import held
from fedlib.algorithms import IFCA, FedAvg, FedEM, FedProto, FedSGCNN, LGFedAvg, LocalOnly
from fedlib.algorithms.fedem import Mixture
from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.client.mmd import mmd2
from fedlib.client.prototype_net import PrototypeNet
from fedlib.extensions import mixture
from fedlib.models import CNN, MLP, Model
from fedlib.server import clusters, model_graph
from fedlib.server.clusters import bipartition, cosine_similarity
from fedlib.server.domain_graph import DomainGCN, domain_adjacency

MODEL, ONE, NET = MLP((3, 4, 2)), MLP((3, 4, 1)), PrototypeNet((MLP((3, 4, 2)),))
LOSS = classification_loss(MODEL)
X, Y = np.zeros((6, 3), np.float32), np.array([0, 1, 0, 1, 0, 1])
NAN = np.where(np.arange(6)[:, None] == 4, np.nan, X)
MASKED = np.ma.masked_array(X, mask=np.arange(18).reshape(6, 3) == 4)
Y2, GONE = np.stack([Y, Y], 1), np.ma.masked_equal([0, 0, 9], 9)
TABLE = pd.DataFrame(X).assign(user=[5, 5, 5, 7, 7, 7])
AGES = pd.DataFrame({"age": [30.0, 40.0], "income": [1.0, 2.0]})
OTHER_AGES = [AGES, AGES[["income", "age"]]]
DATA = stack_rows(X, Y, [[0, 1], [2, 3], [4, 5]], ids=[4, 5, 6])
OTHERS = replace(DATA, id=DATA.id + 100)
MARKED, BYTES = (stack_rows(np.uint8(X), Y, [[0, 1]], ids=[4], pixels=marked) for marked in (True, False))
SEVERAL, REAL = (stack_rows(X, y, [[0, 1], [2, 3]]) for y in (np.stack([Y, Y], 1), Y.astype("float32")))
FOUR, NARROW = stack_rows(X, Y + 4, [[0]], ids=[4]), stack_rows(X[:, :2], Y, [[0, 1], [2, 3]], ids=[4, 5])
RELU = Model(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
ROWS = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
EVEN, ZEROS = partition.iid(Y, 2), torch.zeros(3)
TURNED = partition.rotation(EVEN, (0, 180))


def dropped(params, batch):
    return LOSS(params, (torch.nn.functional.dropout(batch[0], 1.2), *batch[1:]))


def fit(algorithm=None, params=None, data=DATA, rounds=1, **settings):
    algorithm = algorithm or FedAvg(LOSS)
    return fedlib.fit(algorithm, params or MODEL.init(0), data, rounds, progress=False, **settings)


def mean_over_padding(params, batch):
    return torch.nn.functional.cross_entropy(MODEL(params, batch[0]), batch[1])


def per_row(params, batch):
    return torch.nn.functional.cross_entropy(MODEL(params, batch[0]), batch[1], reduction="none")


def any_y(params, batch, h=None):
    net = NET if "known" in params else MODEL
    return losses.weighted_mean(net(params, batch[0]).square().sum(1), batch[2])


class Mine(torch.nn.LSTM):
    pass


def with_column(column):
    return lambda: DATA.with_columns(c=column)


def rule(**settings):
    return lambda: FedAvg(LOSS, **settings)


def answering(predict, y=Y, model=MODEL, loss=losses.cross_entropy):
    """A run whose `predict` does not fit y; the callback would say so of a round that was trained."""

    def call():
        rule = FedAvg(lambda p, b: loss(model(p, b[0]), b[1], b[2]), predict=predict)
        return fit(rule, model.init(0), stack_rows(X, y, [[0, 1], [2, 3]]), callbacks=[pytest.fail])

    return call


def scored_on(x, y=None, ids=(4,), data=DATA, **algorithm):
    """A run that is scored on one client's x and y, or on something else."""

    def call():
        test = x if y is None else stack_rows(x, y, [[0]], ids=ids)
        return fit(FedAvg(LOSS, **algorithm), data=data, eval_data=test, callbacks=[pytest.fail])

    return call


def outputs_for(y, outputs, test=None):
    """A run of a model with so many outputs, which is scored on other y than it is trained with."""

    def call():
        model = MLP((3, outputs))
        data, other = (stack_rows(X, some, [[0, 1], [2, 3]]) for some in (y, y if test is None else test))
        rule = FedAvg(lambda p, b: losses.weighted_mean(model(p, b[0]).sum(1), b[2]), predict=model)
        return fit(rule, model.init(0), data, eval_data=other)

    return call


def siamese(times=1.0, pairs=((0, 1), (1, 2)), gain=(1.0, 1.0), **settings):
    """Training on the graphs of three models, so many times as large."""

    def call():
        graphs = model_graph.model_graph({name: times * p for name, p in STACK.items()}, ["dense2"])
        return model_graph.train_siamese([graphs], torch.tensor(pairs), torch.tensor(gain), **settings)

    return call


def mirrored(above, below):
    """Similarities of three clients, of which only two differ from 0."""
    return np.eye(3) + [[0, 0, above], [0] * 3, [below, 0, 0]]


def updates(value, *clients):
    """Updates of thirteen clients, of which some hold only this value."""
    return {name: p.index_fill(0, torch.tensor(clients), value) for name, p in UPDATES.items()}


class Plain(FedAvg):
    new_clients = fedlib.Algorithm.new_clients


MIXED, HALF = FedEM(any_y, predict=Mixture(ONE)), FedEM(LOSS, predict=Mixture(MODEL))  # whose loss goes around it
STACK = fedlib.params.broadcast(MLP((3, 4, 5, 2)).init(0), 3)
GRAPH = model_graph.model_graph(STACK, ["dense2"])
IMAGES, PIXELS = CNN((1, 6, 6), (2, 3), (5, 4), kernel=3, padding=1), torch.zeros(2, 1, 6, 6)
UPDATES = {"weight": torch.ones(13, 3, 2), "scale": torch.ones(13), "none": torch.ones(13, 0)}
domains_of = partial(mixture.em_domains, key=fedlib.Key(0), domains=2, classes=2, features=lambda x: x)
LABELS = "needs class labels, whole numbers, one per row; y holds"
REFUSED = {
    ValueError: {
        # tables, columns and ids
        "client 1 has columns .*income.*, client 0 .*; give .*reindex": lambda: stack_clients(OTHER_AGES, [[0, 1]] * 2),
        "client 1 has columns": lambda: stack_clients([AGES, AGES], OTHER_AGES),
        r"column 'c' .* \(3, 2, '...'\); got \(3, 9\)": with_column(np.ones((3, 9))),
        r"column 'c' .* got \(9, 2\)": with_column(torch.ones(9, 2)),
        r"column 'c' .* got \(3,\)": with_column([1, 2, 3]),
        "column 'c' has a missing, NaN": with_column(np.full((3, 2), np.nan)),
        "x is masked in row 1; drop": lambda: stack_rows(MASKED, Y, [[0]]),
        "x has a missing, NaN or infinite value in row 4": lambda: stack_rows(NAN, Y, [[0]]),
        "x of client 0 is masked in row 1": lambda: stack_clients([list(MASKED)], [Y]),
        "x of client 0 is masked in row 1;": lambda: stack_clients([list(zip(MASKED, Y, strict=True))]),
        "user is masked in row 2": lambda: partition.by_user(GONE),
        "y is masked in row 2": lambda: partition.dirichlet(GONE, 2, 1.0, min_rows=0),
        "y has a missing, NaN": lambda: stack_rows(X, Y * np.nan, [[0]]),
        "below 2..63": lambda: stack_rows(X, Y, [[0]], ids=np.array([2**63 + 1], "u8")),
        "ids must be 1 different whole numbers": lambda: stack_rows(X, Y, [[0]], ids=3),
        "2 different whole numbers": lambda: stack_rows(X, Y, [[0], [1]], ids=[3, 3]),
        "different whole": lambda: stack_rows(X, Y, [[0], [1]], ids=["a", "b"]),
        r"hold a client twice; ids must differ, got \[4, 4, 5\]": lambda: fit(data=DATA[[0, 0, 1]]),
        # rows and their lengths
        "give at least one list of rows": lambda: stack_rows(X, Y, []),
        "client 1 has no examples": lambda: stack_clients([X, X[:0]], [Y, Y[:0]]),
        "client 9 has no examples": lambda: stack_rows(X, Y, [[0], []], ids=[8, 9]),
        "has no examples": lambda: same_rows(X[:0], Y[:0], ids=[0]),
        "2 arrays x and 1 y": lambda: stack_clients([X, X], [Y]),
        "0 arrays x and 0 y": lambda: stack_clients(np.zeros((0, 2)), np.zeros(0)),
        "x has 6 rows and y has 5": lambda: stack_rows(X, Y[:5], [[0]]),
        r"client 1 has x of shape \(6, 2\) .* pad narrower clients": lambda: stack_clients([X, X[:, :2]], [Y, Y]),
        r"client 1 has x of .* and y of shape \(6, 3\); give as many": lambda: stack_clients([X, X], [Y2, X]),
        "different lengths; pad to one length": lambda: stack_rows([[1, 2], [3]], [0, 1], [[0]]),
        "pad to one length": lambda: stack_rows([torch.zeros(2), torch.zeros(3)], [0, 1], [[0]]),
        "client 1: give a list of whole row numbers from 0 to 5": lambda: stack_rows(X, Y, [[0], [6]]),
        "client 0: give a list of whole": lambda: stack_rows(X, Y, [[0.5]]),
        "rows=list": lambda: stack_rows(X, Y, {3: [0]}),
        # labels and targets
        "label -1": lambda: stack_rows(X, Y - 1, [[0]]),
        "has the label -1": lambda: stack_rows(X[:1], [[0, -1]], [[0]], classes=3),
        "has the label 3; .* from 0 to 2": lambda: stack_rows(X[:1], [[0, 3]], [[0]], classes=3),
        r"leaves out all labels of row 0 \(-100\): drop": lambda: stack_rows(X[:1], [[-100, -100]], [[0]], classes=3),
        "has the label -100": lambda: stack_rows(X[:1], [-100], [[0]], classes=3),
        r"shape \(R,\) or \(R, ...\); got \(1, 0\)": lambda: stack_rows(X[:1], np.zeros((1, 0), int), [[0]], classes=3),
        "label 1; .* 0 to 0": lambda: stack_rows(X, Y, [[0]], classes=1),
        r"a label or target per row.*got \(\)": lambda: stack_rows(X, 3, [[0]]),
        r"predictions of shape \(3,\) do not fit y of shape \(3, 1\)": lambda: losses.mse(ZEROS, ZEROS[:, None], ZEROS),
        r"a logit for each class, .* give y.astype\('float32'\)": answering(ONE, model=ONE, loss=losses.bce),
        "a logit for each class": answering(lambda p, x: MODEL(p, x).argmax(-1)),
        # evaluation
        r"'test' has y of shape \(2,\), training \(\)": scored_on(X, np.eye(2, dtype=int)[Y]),
        "y of type floating": scored_on(X, Y * 1.0),
        "pixels = False, training True": scored_on(BYTES, data=MARKED),
        r"columns \[\], training \['c'\]": scored_on(DATA, data=DATA.with_columns(c=np.ones((3, 2)))),
        r"'test' has clients that are not in training: ids \[99\]": scored_on(X, Y, ids=[99]),
        'an evaluation set cannot be called "train"': scored_on({"train": DATA}),
        "predict does not run on the test data": scored_on(X[:, :2], Y, predict=MODEL),
        "predict does not run .*not callable": lambda: fit(FedAvg(LOSS, predict="accuracy")),
        "the val data have the label 4, but the model has 2 outputs": scored_on({"val": FOUR}, predict=MODEL),
        r"must give .*\(\d+, 4, 'classes'\) or one logit for each label.*, 3\)": outputs_for(np.zeros((6, 4), int), 3),
        r"predict must give .*a number.*got \(\d+, 3\)": outputs_for(np.zeros((6, 4)), 3),
        "the test data have the label 2, but the model has one logit for each label of 0 and 1": outputs_for(
            np.zeros((6, 3), int), 3, np.full((6, 3), 2)
        ),
        r"the models do not run on rows of shape \(2,\)": lambda: fedlib.evaluate(FedAvg(LOSS), fit(), NARROW),
        r"not the module's parameters: \['pi'\]": lambda: fedlib.evaluate(HALF, fit(HALF), DATA),
        # settings of a run
        "clients_per_round must be a whole number from 1 to 3; got 4": lambda: fit(clients_per_round=4),
        "rounds must be a whole number of at least 1; got 0": lambda: fit(rounds=0),
        "rounds must be a whole number .* got 0.5": lambda: new_clients(FedAvg(LOSS), fit(), OTHERS, 0.5),
        r"got tensor\(\[1., 1.\]\): it is one number for .* by a column .*; see the FAQ$": rule(lr=torch.ones(2)),
        r"epochs must be .* got \[1, 2\]: it is one number for all clients$": rule(epochs=[1, 2]),
        "lr=5.0 of the algorithm": rule(optimizer=partial(torch.optim.SGD, lr=5.0)),
        "LBFGS.* does not run on a stack of clients": rule(optimizer=torch.optim.LBFGS),
        "class such as torch.optim.SGD or a partial of it; got 'SGD'": rule(optimizer="SGD"),
        "lr must be .*shows a rate that depends on the round": rule(lr=lambda t: 0.1),
        "dropout must have a probability p from 0 to 1, got 1.2": lambda: fit(FedAvg(dropped)),
        "padding must be a whole number of at least 0": lambda: fedlib.augment.crop(torch.zeros(1, 4, 4), -1),
        "p must be a number .* at most 1; got 1.5": lambda: fedlib.augment.flip(torch.zeros(1, 4, 4), 1.5),
        "first layer must be a Linear named dense1": lambda: LGFedAvg(LOSS, local=(), mmd=1.0).init(
            {"dense1.weight": torch.zeros(2, 9)}, DATA, fedlib.Key(0)
        ),
        "lost must be .* and below 1; got 1.0": lambda: fit(lost=1.0),
        "whole number of 64 bits": lambda: fit(seed=2**64 + 3),
        "is a folder; give a file": lambda: fit(checkpoint=fedlib.Checkpoint("/")),
        "every_seconds .* got nan": lambda: fedlib.Checkpoint("a", every_seconds=float("nan")),
        # partitions
        r"channels first: x.transpose\(0, 3, 1, 2\)": lambda: TURNED.clients(np.zeros((6, 5, 5, 3)), Y),
        "alpha must be a number above 0; got 0": lambda: partition.dirichlet(Y, 2, 0),
        "min_rows must be a whole number": lambda: partition.dirichlet(Y, 2, 1, min_rows=None),
        "3 clients of at least 3": lambda: partition.dirichlet(Y, 3, 1, min_rows=3),
        "sigma must be a number .* got inf": lambda: partition.quantity(Y, 2, np.inf),
        "shards_per_client must be a whole number": lambda: partition.pathological(Y, 2, 1.5),
        "make 8 shards, but there are": lambda: partition.pathological(Y, 4, 2),
        "min_rows must be a whole number .* got 2.5": lambda: partition.by_user(Y, min_rows=2.5),
        "from 1 to the 6 rows there are; got 7": lambda: partition.iid(Y, 7),
        "columns must be a whole number": lambda: partition.feature_subsets(EVEN, 3.0, 1),
        # networks and losses
        r"does not run.* with parameters .*\(4, 5\).* rows of shape \(3,\)": lambda: fit(params=MLP((5, 4, 2)).init(0)),
        "dense1.weight": lambda: fit(params={"dense1.bias": torch.zeros(4)}),
        "does not run.* y \\[4.*Do the model's inputs fit x, and its outputs y": lambda: fit(data=FOUR),
        "the loss sees padded rows": lambda: fit(FedAvg(mean_over_padding)),
        "sees padded rows": lambda: fit(FedAvg(mean_over_padding), {n: 0 * p for n, p in MODEL.init(0).items()}),
        "must give one number": lambda: fit(FedAvg(per_row)),
        "convolution 3 leaves 0 x 0 pixels": lambda: CNN((1, 6, 6), (2, 2, 2, 2), (4,)).init(0),
        "inputs and the outputs": lambda: MLP((784,)),
        r"not the module's parameters: \['bias'\]": lambda: Model(torch.nn.Linear(3, 2))({"weight": X}, X),
        "layer '0' is a Mine, .*give a plain nn.LSTM": lambda: Model(torch.nn.Sequential(Mine(3, 4))),
        # networks with modules, and their graph
        r"layers must name some of \['conv1', 'conv2', 'dense1', 'dense2'\]; got": lambda: DomainNet(IMAGES, 3, ()),
        "got .*'dense9'": lambda: DomainNet(IMAGES, 3, ("conv2", "dense9")),
        "domains must be a whole number of at least 1; got 0": lambda: DomainNet(IMAGES, 0, ("conv2",)),
        "domains=4; got 3": lambda: DomainNet(IMAGES, 4, ("conv2",), DomainClassifier((1, 6, 6), 3)),
        "each call needs w_d": lambda: (net := DomainNet(IMAGES, 3, ("conv2",)))(net.init(0), PIXELS),  # no student
        "head must be 'pooled' or 'flatten', got 'mean'": lambda: DomainClassifier((1, 6, 6), 3, "mean"),
        "weights must be .full. or .bottleneck.; got 'W'": lambda: DomainGCN(weights="W"),
        "weights must be .full. or .bottleneck.; got None": lambda: DomainGCN(weights=None),
        "factor must be": lambda: DomainGCN(factor=0),
        "beta must be from 0 to 1; got -0.1": lambda: domain_adjacency(torch.zeros(2, 3), -0.1),
        "beta must be from 0 to 1; got 1.1": lambda: domain_adjacency(torch.zeros(2, 3), 1.1),
        "beta must be from 0 to 1; got nan": lambda: domain_adjacency(torch.zeros(2, 3), np.nan),
        # clusters and domains of clients
        r"positions \[2, 4\] hold NaN .* learning rate, or leave": partial(cosine_similarity, updates(np.nan, 2, 4)),
        r"positions \[3\] hold NaN or infinite": partial(cosine_similarity, updates(-np.inf, 3)),
        r"positions \[0, 5\] hold zeros only.* leave them out": partial(cosine_similarity, updates(0, 0, 5)),
        r"positions \[0, 1, 2, 3, 4, 5, 6, 7, 8, 9\] and 3 more": partial(cosine_similarity, torch.zeros(13, 2)),
        "zeros only": partial(cosine_similarity, {"none": torch.zeros(3, 0)}),
        "at least two clients; got 1": partial(cosine_similarity, torch.ones(1, 4)),
        "at least two clients; got 0": partial(cosine_similarity, torch.ones(0, 4)),
        **{
            f"square matrix of at least two clients; got shape {re.escape(str(s))}": partial(bipartition, np.zeros(s))
            for s in ((2, 3), (4,), (1, 1), (0, 0), (2, 2, 2))
        },
        "must be finite; did the training of a client diverge": lambda: bipartition(mirrored(np.nan, np.nan)),
        "similarity.* must be finite": lambda: bipartition(mirrored(np.inf, np.inf)),
        "symmetric; mirrored entries differ by up to 0.0001": lambda: bipartition(mirrored(0.5, 0.4999)),
        r"one of \['exact', 'complete', 'average'\]; got 'single'": lambda: bipartition(np.eye(3), "single"),
        "from 1 to the number of clients, 13; got 0": lambda: clusters.kmeans(UPDATES, 0, 0),
        "from 1 to the number of clients, 13; got 14": lambda: clusters.kmeans(UPDATES, 14, 0),
        r"positions \[4\] hold NaN": lambda: clusters.kmeans(updates(np.nan, 4), 2, 0),
        "1 to the number of clients, 3": lambda: domains_of(DATA, domains=7),
        "iterations must be a whole number": lambda: domains_of(DATA, iterations=0),
        "give 8 numbers, fewer than size=64": lambda: mixture.RandomFeatures((1, 4, 4), 0)(torch.ones(2, 1, 4, 4)),
        "one domain for each": lambda: mixture.nmi([np.array([0, 1, 1])], torch.zeros(2, 3, 3)),
        # algorithms and their parts
        r"architecture must number some of 1 nets; got \(0, 1\)": lambda: FedProto(any_y, net=NET, architecture=(0, 1)),
        r"architecture must number some of 1 nets; got \(\)": lambda: FedProto(any_y, net=NET, architecture=()),
        "last layers must have one shape": lambda: PrototypeNet((MODEL, MLP((3, 9, 2)))),
        "must be a tuple of Model of a torch.nn.Seq": lambda: PrototypeNet(()),
        "must be a tuple of Model of a torch.nn.Sequential": lambda: PrototypeNet((RELU,)),
        "of Model of a torch.nn.Sequential that ends with": lambda: PrototypeNet((Model(torch.nn.Linear(3, 2)),)),
        "held must be one of": lambda: held("clients"),
        "all models start equal": lambda: fit(IFCA(LOSS), {n: 0 * p for n, p in MODEL.init(0).items()}),
        "snapshots must be .* got 0": lambda: FedSGCNN(LOSS, snapshots=()),
        "score must be .* got 'acc'": lambda: FedSGCNN(LOSS, score="acc"),
        "with predict .* got 'r2'": lambda: FedSGCNN(LOSS, score="r2"),
        "pairs of clients; got a federation of one client": lambda: fit(FedSGCNN(LOSS), data=DATA[[0]]),
        "epochs must be .* of at least 1; got 0": siamese(epochs=0),
        "NaN or infinite": siamese(torch.nan),
        "two different clients": siamese(pairs=((0, 1), (2, 2))),
        "one finite gain for each pair": siamese(gain=[1.0] * 3),
        "one finite gain for each": siamese(pairs=np.zeros((0, 2), int), gain=[]),
        "one finite gain for": siamese(gain=[1.0, np.nan]),
        "shorter than|longer than": lambda: siamese(epochs=1)().score([GRAPH] * 2, torch.tensor([[0, 1]])),  # from zip
        "at least one; got": lambda: model_graph.model_graph(STACK, ()),
        "follow one another, .* got .'dense1', 'dense3'": lambda: model_graph.model_graph(STACK, ("dense1", "dense3")),
        "must be finite": lambda: clusters.nearest(torch.zeros(2, 2), torch.full((3, 2), torch.nan)),
        "must give 3 clients clusters from 0 to 2": lambda: fit(LGFedAvg(LOSS, local=(), assignment=[0, 1, 10**6])),
        "same seeds": lambda: statistics.compare({0: 1.0}, {1: 1.0}),
        "unknown data set 'mnist5'; known: mnist5k, boston": lambda: fedlib.datasets.load("mnist5"),
        "kernel must be 'rbf' or 'linear', got 'laplace'": lambda: mmd2(ZEROS[None], ZEROS[None], kernel="laplace"),
        "there are no values": lambda: statistics.interval([]),
        "one value for each seed": lambda: statistics.interval([[1.0, 2.0], [3.0, 4.0]]),
        "'mine' has no 'test_accuracy', only": lambda: plotting.curves({"mine": pd.DataFrame({"round": [1]})}),
    },
    TypeError: {
        # data
        "x must hold numbers, .*compl": lambda: stack_rows(torch.zeros(6, 1) + 1j, Y, [[0]]),
        "x must hold numbers": lambda: stack_rows(np.array([["a"]] * 6), Y, [[0]]),
        "x is sparse; give .*toarray": lambda: stack_rows(csr_array(X), Y, [[0]]),
        "client 0: without ys, .* got a DataFrame": lambda: stack_clients([TABLE]),
        "client 0: without ys, .* got a dict": lambda: stack_clients([{"x": X, "y": Y}]),
        r"give list\(xs\)": lambda: stack_clients((x for x in [X]), [Y]),
        "client 0 .*take .indices": lambda: stack_rows(X, Y, list(TABLE.groupby("user").groups.values())),
        "the number of classes": lambda: stack_rows(X, Y, [[0]], classes=[0, 1]),
        r"2\*\*63": lambda: stack_clients([torch.full((2, 1), 2**64 - 1, dtype=torch.uint64)], [[0, 1]]),
        "ids must be a list": lambda: same_rows(X, Y, ids=5),
        "fractions must be a list": lambda: EVEN.split(0.8),
        "below 2..63": lambda: partition.by_user(np.array([2**63 + 5, 7], "u8")),
        "index clients by .*, not by \\[False": lambda: DATA[DATA.n < 0],
        "data must be ClientData": lambda: fit(data=(X, Y)),
        "data must be .*got tuple": lambda: new_clients(FedAvg(LOSS), fit(), (X, Y)),
        "eval_data must be ClientData, or a dictionary .* got a list": scored_on([DATA]),
        # algorithms, their functions and results
        "give a tensor, got a tuple": answering(lambda p, x: (MODEL(p, x),)),
        "tensor, got a ndarray": answering(lambda p, x: MODEL(p, x).numpy()),
        "x of client 0 is a TensorDataset; .* leave ys out": lambda: stack_clients([ROWS], [Y]),
        "predict must handle M models": lambda: FedEM(LOSS, predict=MODEL),
        "loss must be a function .*, got 'mse'": lambda: FedAvg("mse"),
        "callbacks must be a list": lambda: fit(callbacks=print),
        "callbacks must be a list of functions": lambda: fit(callbacks=[3]),
        "params must be named tensors.*Linear": lambda: fit(params=torch.nn.Linear(3, 2)),
        "named tensors .*'n': torch.int64": lambda: fit(params={"n": torch.tensor(3)}),
        r"an instance such as FedAvg\(loss\)": lambda: fit(FedAvg),
        r"an object such as fedlib.Checkpoint\(path\), got 3": lambda: fit(checkpoint=3),
        "such as torch.float64, got 'float64'": lambda: fit(dtype="float64"),
        "a seed is a whole number; got 0.5": lambda: fit(seed=0.5),
        r"algorithm must be .* Result: give \(algorithm, result, data\)": lambda: fedlib.evaluate(fit(), LOSS, DATA),
        "FedAvg cannot read a LocalOnlyState; give the algorithm that made": lambda: fedlib.evaluate(
            FedAvg(LOSS), fit(LocalOnly(LOSS)), DATA
        ),
        "FedAvg cannot read a LocalOnlyState": lambda: new_clients(FedAvg(LOSS), fit(LocalOnly(LOSS)), OTHERS),
        # labels where y holds several, or numbers
        rf"FedProto {LABELS} torch.int64, \(2,\) per row": lambda: fit(FedProto(any_y, net=NET), NET.init(0), SEVERAL),
        f"FedProto {LABELS} torch.float32, one per row": lambda: fit(FedProto(any_y, net=NET), NET.init(0), REAL),
        rf"federated_em {LABELS} torch.int64, \(2,\) per row": lambda: domains_of(SEVERAL),
        f"federated_em {LABELS} torch.float32, one per row": lambda: domains_of(REAL),
        rf"FedEM with a Mixture {LABELS} torch.int64, \(2,\) per row": lambda: fit(FedEM(any_y), data=SEVERAL),
        f"FedEM with a Mixture {LABELS} torch.float32, one per row": lambda: fit(MIXED, ONE.init(0), REAL),
    },
    NotImplementedError: {
        "Plain does not say how .*never seen.*: define new_clients": lambda: new_clients(Plain(LOSS), fit(), OTHERS)
    },
    KeyError: {"dense9.weight": lambda: model_graph.model_graph(STACK, ("dense2", "dense9"))},
    RuntimeError: {"Expected one of cpu, cuda, .*gpuu": lambda: fit(device="gpuu")},
}


test_a_mistake_is_refused_in_words_that_help = refusals(REFUSED)


def target(params, batch):
    return fedlib.losses.mse(params["theta"].expand(len(batch[1])), batch[1], batch[2])


IN_THE_LAST_STEP = (1e3, 1e38, r"parameters among clients \[10, 11, 12, 13, 14\]")  # only the parameters overflow


@pytest.mark.parametrize(("y", "lr", "who"), [(1e30, 0.1, "the loss of client 14"), IN_THE_LAST_STEP])
@pytest.mark.parametrize("algorithm", [FedAvg, LocalOnly])
def test_divergence_names_client_and_round(algorithm, y, lr, who):
    targets = np.zeros((7, 1), np.float32)
    targets[4] = y
    data = stack_clients(np.zeros((7, 1, 3), np.float32), targets, ids=range(10, 17))
    with pytest.raises(FloatingPointError, match=f"{who} became NaN or infinite in round 1; lower the learning"):
        fit(algorithm(target, lr=lr), {"theta": torch.zeros(())}, data)


def test_targets_far_from_zero_are_warned_of():
    line, years = MLP((3, 1)), np.array([1e9, 1e9 + 1] * 3)
    regression = FedAvg(lambda p, b: losses.mse(line(p, b[0]), b[1], b[2]), lr=1e-30)
    data = stack_rows(X, years, [[0, 1], [2, 3], [4, 5]])
    with pytest.warns(UserWarning, match="lose their digits as torch.float32; subtract their mean"):
        fit(regression, line.init(0), data)
    fit(regression, line.init(0), data, dtype=torch.float64)
    fit(regression, line.init(0), stack_rows(X, np.full(6, 0.1), [[0, 1], [2, 3], [4, 5]]))
