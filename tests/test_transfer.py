"""Transfer between pairs against federations of two, one after another; float64."""

from functools import partial
from itertools import combinations

import pytest
import torch
from refusals import refusals
from twins import close, normal, start_of

import fedlib
from fedlib.server.transfer import all_pairs, positive_transfer

NET = fedlib.models.MLP((3, 6, 4, 1))
CLASSIFIER = fedlib.models.MLP((3, 6, 4, 3))


def lg(net=NET, **settings):
    criterion = fedlib.losses.mse if net is NET else fedlib.losses.cross_entropy
    local = {"lr": 0.05, "batch_size": 4, "epochs": 2, "optimizer": partial(torch.optim.SGD, momentum=0.5)}
    loss = lambda params, batch: criterion(net(params, batch[0]), *batch[1:])  # noqa: E731
    return fedlib.algorithms.LGFedAvg(loss, **{**local, "predict": net, **settings})


def clients(ids, sizes, seed=0, classes=False):
    """Rows of each client; its targets belong to its id."""
    xs = [normal(n, 3, seed=seed + i) for i, n in zip(ids, sizes, strict=True)]
    ys = [(1 + i % 3) * x[:, 0] - x[:, (i + 1) % 3] for i, x in zip(ids, xs, strict=True)]
    return fedlib.stack_clients(xs, [(y > 0).long() + (y > 1).long() if classes else y for y in ys], ids)


TRAIN = clients([11, 3, 8, 5], [6, 9, 5, 7])
VALIDATION = clients([5, 11, 3, 20, 8], [4, 7, 3, 5, 6], seed=100)


def one_after_another(algorithm, start, train, validation, rounds, column, seed):
    """Each client alone, then each pair as a federation of its own; in ascending order of ids."""
    ids = sorted(train.id.tolist())

    def scores(algorithm, some):
        mine = train[torch.isin(train.id, torch.tensor(some))]
        result = fedlib.fit(algorithm, start, mine, rounds, seed=seed, progress=False)
        table = fedlib.evaluate(algorithm, result, validation[torch.isin(validation.id, torch.tensor(some))])
        return table.set_index("id")[column].loc[some].tolist()

    settings = ("loss", "lr", "batch_size", "epochs", "predict", "optimizer")
    alone = fedlib.algorithms.LocalOnly(**{name: getattr(algorithm, name) for name in settings})
    local = [scores(alone, [i])[0] for i in ids]
    federated = [scores(algorithm, list(pair)) for pair in combinations(ids, 2)]
    sign = -1 if column == "loss" else 1
    return sign * torch.tensor(local, dtype=torch.float64), sign * torch.tensor(federated, dtype=torch.float64)


CASES = [({}, "loss"), ({"optimizer": torch.optim.Adam, "batch_size": None}, "r2"), ({"net": CLASSIFIER}, "accuracy")]


@pytest.mark.parametrize(("settings", "column"), [*CASES, ({"mmd": 0.5, "pool": 10}, "loss")])
def test_all_pairs_at_once_equal_one_after_another(settings, column):
    algorithm = lg(**settings)
    classes = settings.get("net") is CLASSIFIER
    sizes = [5, 5, 5] if "pool" in settings else [6, 9, 5]  # all rows of a pair: a pool that no draw decides
    train = clients([11, 3, 8], sizes, classes=classes)
    validation = clients([5, 11, 3, 20, 8], [4, 7, 3, 5, 6], seed=100, classes=classes)
    starts = [start_of(settings.get("net", NET), seed) for seed in range(1 if settings else 2)]
    found = positive_transfer(algorithm, starts, train, validation, 2, score=column, seed=7)
    for r in range(len(starts)):
        local, federated = one_after_another(algorithm, starts[r], train, validation, 2, column, 7 + r)
        close(found.local[r], local)
        close(found.federated[r], federated)
        gain = [sum(pair) / 2 - (local[i] + local[j]) / 2 for pair, (i, j) in zip(federated, found.pairs, strict=True)]
        close(found.gain[r], torch.stack(gain))
    assert found.gain.dtype == torch.float64 and found.gain.abs().max() > 1e-3


def test_some_pairs():
    assert all_pairs(1).shape == (0, 2)
    with fedlib.costs.open_costs() as ledger:
        everything = positive_transfer(lg(), [start_of(NET)], TRAIN, VALIDATION, 2)
    some = positive_transfer(lg(), [start_of(NET)], TRAIN, VALIDATION, 2, pairs=torch.tensor([[3, 0], [0, 1]]))
    assert everything.pairs.tolist() == all_pairs(4).tolist() == [list(pair) for pair in combinations(range(4), 2)]
    close(some.gain, everything.gain[:, [2, 0]])
    close(some.federated, torch.stack([everything.federated[:, 2].flip(1), everything.federated[:, 0]], 1))
    assert some.local[0].isnan().tolist() == [False, False, True, False]
    close(some.local[0, [0, 1, 3]], everything.local[0, [0, 1, 3]])
    # each client trains alone and in three pairs, two rounds of two epochs
    assert ledger.entries["transfer"]["examples"] == 4 * 4 * int(TRAIN.n.sum()) and len(ledger.entries) == 1


REFUSED = {
    ValueError: {
        "rounds must be a whole number": {"rounds": 0},
        "two different clients": {"pairs": torch.tensor([[1, 1]])},
        r"no rows of clients \[3, 8\]": {"validation": VALIDATION[[0, 1, 3]]},
        "score 'accuracy' needs an algorithm with predict; there are mse, mae, r2": {"score": "accuracy"},
        "hold a client twice": {"train": VALIDATION[[0, 0]]},
        "the loss does not run.* with parameters": {"starts": [start_of(fedlib.models.MLP((4, 6, 4, 1)))]},
    },
    FloatingPointError: {r"client \d+ became NaN or infinite in round": {"algorithm": lg(lr=1e9)}},
}


GIVEN = {"algorithm": lg(), "starts": [start_of(NET)], "train": TRAIN, "validation": VALIDATION, "rounds": 5}
test_refuses = refusals(REFUSED, lambda change: positive_transfer(**{**GIVEN, **change}))
