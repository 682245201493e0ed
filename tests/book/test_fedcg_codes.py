"""Table 3 on other images: separate networks are the library's runs, and domains are what they say."""

import numpy as np
import torch
import torch.nn.functional as F

import fedlib
from book.experiments import fedcg_codes as chapter
from book.experiments.worlds import EXACT, loss_of


def test_separate_networks_are_federations_of_their_own():
    """With one batch of all rows a client's images of other domains have no part in it."""
    settings = chapter.SETTINGS | {"rounds": 2, "cohort": 5, "batch_size": 9, "rates": [0.2]}
    draw = np.random.RandomState(3)
    xs = [draw.randint(0, 256, (n, 1, 14, 14)).astype(np.uint8) for n in (9, 6, 3, 8, 5)]
    data = fedlib.stack_clients(xs, [draw.randint(10, size=len(x)) for x in xs], classes=10, pixels=True)
    w = F.one_hot(torch.as_tensor(draw.randint(chapter.D, size=(5, 9))), chapter.D) * data.real[..., None]
    data = data.with_columns(w_d=w.float())
    stack = chapter.train(settings, data, chapter.separate(settings, data, 2, torch.float64), 2, dtype=torch.float64)
    start, seen = chapter.NETWORK.init(2), 0
    for d in range(chapter.D):
        own = [(data.x[data.index[k][w[k, :, d] > 0]].numpy(), data.y[k][w[k, :, d] > 0].numpy()) for k in range(5)]
        own = [(x, y) for x, y in own if len(x)]
        if own:
            some = fedlib.stack_clients(*map(list, zip(*own, strict=True)), classes=10, pixels=True)
            rule = fedlib.algorithms.FedAvg(loss_of(chapter.NETWORK), lr=0.2, batch_size=None, epochs=1)
            wanted = fedlib.fit(rule, start, some, 2, **EXACT).state.models
            seen += len(own) > 1
        else:
            wanted = {n: p[None].double() for n, p in start.items()}
        for n, p in wanted.items():
            torch.testing.assert_close(stack[n][d], p[0], atol=1e-12, rtol=1e-9)
    assert seen > 3


def test_a_code_names_the_changes(monkeypatch):
    x = np.random.RandomState(0).randint(0, 256, (500, 1, 28, 28)).astype(np.uint8)
    for i, change in enumerate(chapter.CHANGES.values()):
        alone = chapter.changed(x[:2], np.array([1 << (4 - i)] * 2))
        assert np.array_equal(alone, chapter.shrunk(change(torch.as_tensor(x[:2]).float()).numpy()))
        assert np.abs(alone.astype(int) - chapter.changed(x[:2], np.array([0, 0]))).mean() > 3
    arrays = chapter.datasets.Arrays(x, np.arange(500) % 10, stats=chapter.datasets.stats("mnist5k"))
    monkeypatch.setattr(chapter.datasets, "load", lambda data: arrays)
    train, choose, test = chapter.groups(chapter.SETTINGS | {"clients": [9, 3, 2], "images": [40, 20, 15]}, "", 1)
    assert train.n.tolist() == [40] * 9 and len(choose) == 3 and test.x.shape[1:] == (1, 14, 14)
    codes = chapter.CODES[train.columns["w_d"].argmax(-1)]  # (K, N, 5)
    assert [len(mine.unique(dim=0)) for mine in codes] == [4] * 9
    assert len({tuple(mine[0].tolist()) for mine in codes}) > 4
