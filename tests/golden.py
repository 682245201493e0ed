"""What every algorithm and engine computes, as a few numbers: tiny runs in float64.

The numbers are behaviour that users see: what each client holds, whom it shares a cluster with, losses, scores and
bytes. No change of names or places in the library moves them. ``make golden`` writes them to ``golden.json``.
"""

import json
import tempfile
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from every import GROUPS, NAMES, PAIRS, SPLITS, TRAINING, columns, domains, federation, prototypes
from twins import classification_loss, client_data, ragged_clients, twin

import fedlib

STORED = Path(__file__).with_name("golden.json")
DATA = client_data(ragged_clients((1, 2, 5, 7, 20, 33)))
NEW = client_data({1000 + k: rows for k, rows in ragged_clients((3, 9), seed=5).items()})
TWICE = TRAINING | {"epochs": 2}
OF_THEIR_OWN = {"FedCG", "FedCGKnownDomains", "FedProto", "FedSGCNN"}  # have other networks or data, see `federations`
TOLERANCE = 1e-6  # another processor moves numbers by at most 3e-8


def moments(tensors):
    """Sums that see values, signs and places, in an order of names that no renaming of fields changes."""
    found = [0.0, 0.0, 0.0]
    for t in tensors:
        flat = t.detach().double().reshape(-1)
        place = torch.arange(1, len(flat) + 1, dtype=torch.float64) / max(1, len(flat))
        for i, part in enumerate((flat.sum(), flat.square().sum(), (flat * place).sum())):
            found[i] += float(part)
    return found


def numbers(algorithm, result):
    """What a finished run has given."""
    held = algorithm.client_params(result.state, torch.arange(len(result.ids)))
    found = moments(held[name] for name in sorted(held))
    for name in ("assignment", "adjacency", "distance", "trainers"):
        if (value := getattr(result.state, name, None)) is not None:
            found += moments([value])
    for cut in getattr(result.state, "splits", ()):
        found += [cut.round, cut.model, cut.new, cut.objective, cut.gap]
        found += moments([cut.members, cut.part, cut.similarity])
    for column in sorted(result.history):
        if column.startswith(("train", "test", "bytes", "examples", "clients")):
            found += [float(v) for v in result.history[column].fillna(-1)]
    return found


def run(algorithm, params, data=DATA, new=None, cohort=4, rounds=3, **settings):
    """The numbers of one run, and of new clients after it."""
    fit = partial(fedlib.fit, seed=7, progress=False, dtype=torch.float64, device="cpu", eval_data=data)
    result = fit(algorithm, params, data, rounds, cohort, **settings)
    found = numbers(algorithm, result)
    if new is not None:
        placed = fedlib.new_clients(algorithm, result, new, rounds=2, seed=3)
        found += numbers(algorithm, placed)
        found += [float(v) for v in fedlib.evaluate(algorithm, placed, new).iloc[:, 2:].fillna(-1).sum()]
    return found


def federations():
    """Every algorithm of the registry, with dense and with convolutional networks."""
    found = {}
    for name in (n for n in NAMES if n not in OF_THEIR_OWN):
        for network in ("MLP",) if name in ("LGFedAvg", "LGCFL", "SplitHalfCFL") else ("MLP", "CNN"):
            algorithm, params, data = federation(name, network, **TWICE)
            data = data if data is GROUPS else DATA
            found[f"{name} {network}"] = run(algorithm, params, data, NEW, None if "CFL" in name else 4)
    algorithm, params, data = domains()
    found["FedCGKnownDomains"] = run(algorithm, params, data, NEW)
    narrow = replace(algorithm, gcn=replace(algorithm.gcn, weights="bottleneck"))
    found["FedCGKnownDomains bottleneck"] = run(narrow, params, data)
    found["FedCGKnownDomains without GCN"] = run(replace(algorithm, gcn=None), params, data)
    net = algorithm.net
    paper = fedlib.algorithms.FedCG(algorithm.loss, net=net, predict=net, refresh=2, warm_up=2, **TRAINING)
    found["FedCG as printed"] = run(paper, params, data, NEW)
    algorithm, params, _ = prototypes()
    found["FedProto two architectures"] = run(algorithm, params, new=NEW)
    algorithm, params, data = columns()
    found["FedSGCNN book"] = run(algorithm, params, data, cohort=None)
    paper = fedlib.algorithms.FedSGCNN(algorithm.loss, predict=algorithm.predict, **PAIRS)
    found["FedSGCNN paper"] = run(paper, params, data, cohort=None)
    return found


def engines():
    """Ways to run a federation that must not change what it computes, and what may go wrong in one."""
    found = {}
    params, predict, _ = twin("MLP")
    loss = classification_loss(predict)
    rule = TWICE | {"lr": 0.01, "optimizer": torch.optim.Adam, "stragglers": 0.5, "chunk_size": 2}
    chance = fedlib.algorithms.FedAvg(loss, predict=predict, **rule)
    found["FedAvg Adam, stragglers, lost clients"] = run(chance, params, lost=0.3)
    module, predict, _ = twin("torch module with GroupNorm")
    own = fedlib.algorithms.FedAvg(classification_loss(predict), predict=predict, **TWICE)
    found["FedAvg torch module"] = run(own, module)
    strided = fedlib.models.CNN((1, 6, 6), (3, 2), (5, 4), 3, 1, pool=1, strides=(1, 2))
    own = fedlib.algorithms.FedAvg(classification_loss(strided), predict=strided, **TWICE)
    found["FedAvg strided"] = run(own, strided.init(0))
    algorithm = fedlib.algorithms.CFL(loss, **TWICE, **SPLITS)
    with tempfile.TemporaryDirectory() as folder:
        file = fedlib.Checkpoint(Path(folder) / "run.safetensors", every_seconds=0)
        run(algorithm, params, cohort=None, rounds=2, checkpoint=file)
        found["CFL, interrupted after round 2"] = run(algorithm, params, cohort=None, rounds=4, checkpoint=file)
    return found


def compute():
    """All numbers, by the name of the run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # tiny federations end in one cluster, and say so
        found = federations() | engines()
    return {name: list(map(float, values)) for name, values in found.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    STORED.write_text(json.dumps(compute(), indent=1) + "\n", encoding="utf8")
    print(f"wrote {STORED.name}")
