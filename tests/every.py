"""A tiny federation for every algorithm of the library, for tests that none may be missing from."""

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from cfl_worlds import conflicting
from twins import classification_loss, client_data, ragged_clients, regression_loss, twin

import fedlib
from book.experiments import tabular
from book.experiments.pair_predictors import train_on_gains
from fedlib import algorithms, extensions, models
from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.extensions.mixture import em_domains
from fedlib.server.distance_clusters import linkage

SIZES = (3, 2, 5, 7, 20, 33)
DATA = client_data(ragged_clients(SIZES))
GROUPS = client_data(conflicting(2, 4, 8))  # of which split-half CFL makes two clusters
NAMES = [*algorithms.__all__, *extensions.__all__]
SPLITS = {"eps1": 1e9, "eps2": 0.0}  # CFL splits at once
TESTS = {"level": 0.99, "every": 1, "test_epochs": 1, "min_size": 1}  # split-half CFL at nearly every test
SETTINGS = {
    "CFL": SPLITS,
    "LGCFL": TESTS,
    "SplitHalfCFL": TESTS,
    "FedProx": {"mu": 0.5},
    "Ditto": {"lam": 0.5},
    "FedRep": {"local": ("dense1",), "head_epochs": 2},
    "FineTunedFedAvg": {"fedavg_rounds": 1, "finetune_epochs": 2},
    "IFCA": {"clusters": 3},
    "ClusteredKMeans": {"clusters": 2, "warmup": 1},
    "FeSEM": {"clusters": 2, "warmup": 1},
    "FedGroup": {"clusters": 2, "warmup": 1},
    "LGFedAvg": {"mmd": 0.5},
    "PFedGraph": {"lam": 0.1},
    "PACFL": {"threshold": 70.0},  # degrees; makes two clusters of these clients
}
TRAINING = {"lr": 0.1, "batch_size": 8, "epochs": 1}
PAIRS = TRAINING | {"batch_size": None, "trainers": 4, "pair_rounds": 2, "snapshots": (2,)}  # FedSGCNN


def domains(known=True):
    """FedCG in small, with domains found by EM before round 1, or as printed."""
    student = DomainClassifier((1, 6, 6), 3, "flatten", (2, 3), (2, 1))
    net = DomainNet(models.CNN((1, 6, 6), (3, 2), (4,), 3, 1), 3, ("conv2", "dense1"), student)
    loss, settings = classification_loss(net), {"net": net, "predict": net, "warm_up": 1, **TRAINING}
    if not known:
        return algorithms.FedCG(loss, refresh=2, **settings), net.init(0), DATA
    teacher = partial(em_domains, domains=3, classes=4, features=lambda x: x.flatten(1)[:, :8])
    return extensions.FedCGKnownDomains(loss, teacher=teacher, student_lr=0.2, **settings), net.init(0), DATA


def columns():
    """FedSGCNN with the book's settings in small."""
    deal = tabular.deal(tabular.table("diabetes"), 6, 8, 4, seed=0)
    model = models.MLP((deal.train.x.shape[1], 8, 4, 1))

    book = {"learn": train_on_gains, "cluster": lambda distance: [linkage(distance, m) for m in (1, 2)]}
    return algorithms.FedSGCNN(regression_loss(model), predict=model, **book, **PAIRS), model.init(0), deal.train


def prototypes():
    """FedProto with two architectures, which clients have in turn."""
    images = models.CNN((1, 6, 6), (3, 2), (8, 4), kernel=3, padding=1)
    net = fedlib.client.prototype_net.PrototypeNet((models.MLP((36, 8, 4)), images))
    settings = {"net": net, "predict": net.nearest, "architecture": (0, 1), **TRAINING}
    return algorithms.FedProto(classification_loss(net), **settings), net.init(0), DATA


def kind_of(name):
    """The class of this name."""
    return getattr(algorithms if name in algorithms.__all__ else extensions, name)


def federation(name, network=None, **training):
    """An algorithm of the registry, one set of parameters, the clients' data; perhaps with another network."""
    if name.startswith("FedCG"):
        return domains(known=name == "FedCGKnownDomains")
    if name == "FedSGCNN":
        return columns()
    if name == "FedProto":
        return prototypes()
    params, predict, _ = twin(network or ("MLP" if name in ("LGFedAvg", "LGCFL", "SplitHalfCFL") else "CNN"))
    predict = fedlib.algorithms.fedem.Mixture(predict) if name == "FedEM" else predict
    data = GROUPS if name in ("LGCFL", "SplitHalfCFL") else DATA
    settings = {"predict": predict, **TRAINING, **training, **SETTINGS.get(name, {})}
    return kind_of(name)(classification_loss(predict), **settings), params, data


def new_clients(data):
    """Two clients with other ids."""
    some = data[: min(2, len(data))]
    return replace(some, id=some.id + 1000)


def numbers(state):
    """All tensors of a state, on the CPU."""
    if isinstance(state, torch.Tensor):
        return [state.detach().cpu().double()]
    if hasattr(state, "__dataclass_fields__"):
        state = [getattr(state, name) for name in state.__dataclass_fields__]
    if isinstance(state, dict):
        state = list(state.values())
    return [n for part in state for n in numbers(part)] if isinstance(state, (list, tuple)) else []


def largest_gap(a, b):
    """Largest difference of two lists of tensors; NaN where shapes differ."""
    if [t.shape for t in a] != [t.shape for t in b]:
        return float("nan")
    return max((float(np.nan_to_num((x - y).abs().numpy()).max()) for x, y in zip(a, b, strict=True) if x.numel()))
