"""Random numbers in a client's loss: seeded, the same in any chunk, of the right distribution."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from twins import client_data, ragged_clients

import fedlib
from fedlib import Key, augment, losses, stacked

SHAPE, CLIENTS = (400, 50), 3
SEEDS = Key(0, 1).bits(torch.tensor([5, 7, 9]), "loss")
ONE = torch.ones(SHAPE)


def rows(x):
    return x[:, :, None, None].expand(-1, -1, 2, 2)


DRAWS = {  # a function of the ones, and the mean and deviation of what it gives
    "rand": (lambda x: torch.rand(*x.shape), 0.5, 12**-0.5),
    "rand of a size": (lambda x: torch.rand(x.shape, dtype=x.dtype), 0.5, 12**-0.5),
    "rand_like": (torch.rand_like, 0.5, 12**-0.5),
    "randn": (lambda x: torch.randn(size=x.shape), 0, 1),
    "randn_like": (torch.randn_like, 0, 1),
    "normal": (lambda x: torch.normal(x, 2 * x), 1, 2),
    "normal of numbers": (lambda x: torch.normal(3.0, 2.0, x.shape), 3, 2),
    "randint": (lambda x: torch.randint(7, x.shape).float(), 3, 2),
    "randint with the name of size": (lambda x: torch.randint(7, size=x.shape).float(), 3, 2),
    "randint from": (lambda x: torch.randint(2, 9, x.shape).float(), 5, 2),
    "randint_like": (lambda x: torch.randint_like(x, 7), 3, 2),
    "bernoulli": (lambda x: torch.bernoulli(0.2 * x), 0.2, 0.4),
    "bernoulli in place": (lambda x: torch.empty(x.shape).bernoulli_(0.2), 0.2, 0.4),
    "uniform in place": (lambda x: x.new_empty(x.shape).uniform_(1, 3), 2, 3**-0.5),
    "normal in place": (lambda x: torch.empty_like(x).normal_(1, 2), 1, 2),
    "exponential in place": (lambda x: torch.empty_like(x).exponential_(2), 0.5, 0.5),
    "dropout": (lambda x: F.dropout(x, 0.2), 1, 0.5),
    "dropout of channels": (lambda x: F.dropout2d(rows(x), 0.2)[..., 1, 1], 1, 0.5),
    "alpha dropout of normal numbers": (lambda x: F.alpha_dropout(torch.randn_like(x), 0.3), 0, 1),
    "alpha dropout of channels": (lambda x: F.feature_alpha_dropout(rows(torch.randn_like(x)), 0.3)[..., 0, 0], 0, 1),
    "gumbel softmax": (lambda x: F.gumbel_softmax(rows(x), dim=3)[..., 0, 0], 0.5, 12**-0.5),
    "augment.noise": (lambda x: augment.noise(x, 0.5), 1, 0.5),
}


def draw(function, seeds=SEEDS, step=0, x=ONE):
    return stacked.vmap(function, seeds=seeds, step=step)(x.expand(len(seeds), *x.shape))


@pytest.mark.parametrize("name", DRAWS)
def test_distribution(name):
    """Twenty thousand draws of each client: mean and deviation to five standard errors; no two clients alike."""
    function, mean, deviation = DRAWS[name]
    found, error = draw(function), 5 / ONE.numel() ** 0.5
    assert found.shape == (CLIENTS, *SHAPE)
    for z in found:
        assert abs(float(z.mean()) - mean) <= error * deviation
        assert abs(float(z.std()) - deviation) <= 2 * error * deviation
    both = draw(lambda x: torch.stack([torch.randn_like(x), torch.randn_like(x)]))  # calls of one step
    for first, second, scale in ((found[0] - mean, found[1] - mean, deviation**2), (both[:, 0], both[:, 1], 1)):
        assert abs(float((first * second).mean())) <= error * scale


@pytest.mark.parametrize("name", DRAWS)
def test_a_client_draws_the_same_beside_others_and_behind_padding(name):
    function = DRAWS[name][0]
    found = draw(function)
    assert torch.equal(found, draw(function)) and torch.equal(found[1:2], draw(function, SEEDS[1:2]))
    with stacked._Kernels({}, fedlib.chance.Draws(SEEDS[2], 0, training=True)):
        assert torch.equal(found[2], function(ONE))
    assert torch.equal(found[:, :100], draw(function, x=ONE[:100]))  # a batch with fewer rows
    assert not torch.equal(found, draw(function, step=1))


def test_images_are_mirrored_and_shifted():
    image = torch.arange(1.0, 13).view(1, 3, 4).expand(200, 2, 3, 4)
    flipped = draw(augment.flip, x=image)
    straight = (flipped == image).flatten(2).all(2)
    assert torch.equal(flipped[~straight], image[:1].flip(-1).expand(int((~straight).sum()), 2, 3, 4))
    assert 0.4 < float(straight.float().mean()) < 0.6
    cut = draw(partial(augment.crop, padding=1), x=image)
    padded = F.pad(image[0], [1] * 4)
    windows = [padded[:, i : i + 3, j : j + 4] for i in range(3) for j in range(3)]
    which = torch.stack([(cut == w).flatten(2).all(2) for w in windows])
    assert bool((which.sum(0) == 1).all()) and bool((which.float().mean(2) > 0.05).all())


def test_scores_have_no_chance_in_them():
    """With dropout of all kinds between convolutions, in a network and in attention, and images that are changed."""
    attention = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.2, batch_first=True)
    layers = nn.Conv2d(1, 3, 3, padding=1), nn.Dropout2d(0.3), nn.Flatten(1, 2), attention, nn.Flatten()
    model = fedlib.models.Model(nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(108, 4)).double())

    def loss(params, batch):
        x = augment.noise(augment.crop(augment.flip(batch[0]), 1), 0.1)
        return losses.cross_entropy(model(params, x), *batch[1:])

    data, algorithm = client_data(ragged_clients()), fedlib.algorithms.FedAvg(loss, predict=model)
    result = fedlib.fit(algorithm, model.params, data, 1, progress=False)
    scores, again = (fedlib.evaluate(algorithm, result, data) for _ in range(2))
    assert scores.equals(again)
    params, (x, y, w) = fedlib.params.row(result.state.models, 0), data[:1].all_rows(torch.float64)
    right = model.to_module(params).eval()(x[0]).detach()
    close = {"atol": 1e-12, "rtol": 0}
    torch.testing.assert_close(scores["loss"][0], float(losses.cross_entropy(right, y[0], w[0])), **close)
    torch.testing.assert_close(model(params, x[0]), right, **close)


def test_an_order_of_the_real_rows():
    """What the refusal of torch.randperm recommends."""
    w = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])
    order = stacked.vmap(lambda w: (torch.rand(len(w)) - w).argsort(), seeds=SEEDS)(w.expand(3, 5))
    assert bool((order[:, :3].sort(1).values == torch.arange(3)).all())
    with pytest.raises(ValueError, match=r"randperm in a loss would shuffle padded rows .*argsort"):
        stacked.vmap(lambda w: w[torch.randperm(5)], seeds=SEEDS)(w.expand(3, 5))
