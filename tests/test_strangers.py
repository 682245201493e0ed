"""Programs of people who did not write the library: right, or refused before round 1 in words that are true."""

import math
import random
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from differential import gap, three_clients
from torch import nn

import fedlib
from fedlib import losses
from fedlib.algorithms import IFCA, FedAvg
from fedlib.models import Model


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x):
        return self.layer(x)


class Scaled(Base):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.all, self.scaled = [self.scale], lambda z: z * self.scale


def own(name, forward, base=Base, **attributes):
    """Somebody's class of modules."""
    return type(name, (base,), {"forward": forward} | attributes)


InAList = own("InAList", lambda self, x: self.layer(x) * self.all[0], Scaled)
InAClosure = own("InAClosure", lambda self, x: self.scaled(self.layer(x)), Scaled)
Branch = own("Branch", lambda self, x: self.layer(x) if self.layer.bias.sum() > 0 else self.layer(-x))
InPlace = own("InPlace", lambda self, x: self.layer(x.mul_(2).sub_(1)))


class SometimesMirrored(Base):
    def forward(self, x):
        return self.layer(x.flip(-1) if self.training and random.random() < 0.05 else x)


class FirstBatch(Base):
    mean = None

    def forward(self, x):
        if self.mean is None:
            self.mean = x.mean(0)
        return self.layer(x - self.mean)


class Counter(Base):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x)


class Moving(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(3))

    def forward(self, x):
        z = self.layer(x)
        self.average.mul_(0.9).add_(z.detach().mean(0))
        return z


def task(module, loss=losses.cross_entropy, x=None, algorithm=FedAvg, **settings):
    """A round of three clients."""
    model = Model(module)
    x = [torch.randn(n, 5) for n in (3, 1, 4)] if x is None else x
    data = fedlib.stack_clients(x, [torch.arange(len(rows)) % 3 for rows in x])
    algorithm = algorithm(lambda params, batch: loss(model(params, batch[0]), *batch[1:]), **settings)
    return fedlib.fit(algorithm, model.params, data, 1, progress=False)


class Root(nn.Module):
    """Not a number, where its parameter is moved far."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(5, 3), nn.Parameter(torch.full((5,), 0.05))

    def forward(self, x):
        return self.layer(x * self.scale.log())


def small_term(z, y, w):
    return losses.cross_entropy(z, y, w) + 1e-3 * z.square().mean()


class ByAxes(torch.optim.SGD):
    """The usual rule: no decay of biases."""

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if p.ndim > 1:
                p.data.mul_(0.5)
        return super().step(closure)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(10, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.embedding(x).mean(1))


def ids_with(bad):
    """An id that an embedding does not have would be a row of another client."""
    ids = [torch.randint(10, (n, 6)) for n in (3, 2, 4)]
    ids[1][1, 3] = bad
    return ids


KEPT, NOT_ITS_OWN = "keeps '{}' from one call to the next", r"a parameter of shape \(3,\) that is not the client's"
PADDING, NO_SUCH_ID = "the loss sees padded rows", "out of range|was given ids from"
REFUSED = {
    "a parameter in a list": (NOT_ITS_OWN, InAList, {}),
    "a parameter in a closure": (NOT_ITS_OWN, InAClosure, {}),
    "a mirror now and then": ("draws from Python's random by itself", SometimesMirrored, {}),
    "the mean of the first batch": (KEPT.format("mean"), FirstBatch, {}),
    "a counter": (KEPT.format("calls"), Counter, {}),
    "a moving average": ("layer '' " + KEPT.format("average"), Moving, {}),
    "a branch": ("layer '', a Branch cannot be trained in a stack .* take torch.where", Branch, {}),
    "a hook": ("'weight' is computed by a hook", partial(nn.utils.weight_norm, nn.Linear(5, 3)), {}),
    "no parameters": ("without parameters to train", nn.RReLU, {}),
    "padding where the model has no logarithm": (PADDING, Root, {"loss": lambda z, y, w: F.cross_entropy(z, y)}),
    "padding in a small term": (PADDING, Base, {"loss": small_term}),
    "padding behind a large number": (PADDING, Base, {"loss": lambda z, y, w: 100 + 0.1 * F.cross_entropy(z, y)}),
    "a rule by the number of axes": ("by their number of axes", Base, {"optimizer": ByAxes}),
    "an id that is too large": (NO_SUCH_ID, Tokens, {"x": ids_with(10)}),
    "an id below zero": (NO_SUCH_ID, Tokens, {"x": ids_with(-1)}),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_round_1(name):
    words, make, settings = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        task(make(), **settings)


class Viewed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 4, 3), nn.Linear(36, 3)

    def forward(self, x):
        return self.out(self.conv(x).relu().view(-1, 36))


class Where(Base):
    """Asks a parameter for its device and type."""

    def forward(self, x):
        mine = next(self.parameters())
        return self.layer(x + torch.arange(5, device=mine.device, dtype=mine.dtype))


class Listed(Base):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([torch.ones(3), torch.zeros(())])

    def forward(self, x):
        return self.layer(x) * self.scales[0] + self.scales[1]


class Dropping(Base):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.4, inplace=True)

    def forward(self, x):
        z = self.layer(x)
        self.drop(z)
        return z


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.real, self.imaginary = (nn.Parameter(torch.randn(3, 5)) for _ in range(2))

    def forward(self, x):
        return F.linear(torch.complex(x, x.cos()), torch.complex(self.real, self.imaginary)).abs()


class Masked(Tokens):
    """Attention where a row may be padding alone."""

    def forward(self, ids):
        z, mask = self.embedding(ids)[:, None], (ids != 0)[:, None, None, :]
        return self.out(F.scaled_dot_product_attention(z, z, z, attn_mask=mask)[:, 0].mean(1))


RIGHT = {Viewed: (1, 5, 5), Where: (5,), Listed: (5,), Dropping: (5,), Complex: (5,), InPlace: (5,), Masked: None}


@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:TF32 acceleration")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("make", RIGHT, ids=lambda make: make.__name__)
def test_trains_as_in_a_loop(make, dtype):
    torch.manual_seed(0)
    for chunk_size in (1, "auto"):
        case = three_clients(make(), RIGHT[make], dtype, 2, chunk_size)
        if make is Masked:
            case.x[2][1] = 0
        assert gap(case) <= 1


class Filled(Base):
    def forward(self, x):
        out = x.new_zeros(len(x), 3)
        out[:, :] = self.layer(x)
        return out


def test_what_trains_in_one_algorithm_trains_in_ifca():
    assert math.isfinite(task(Filled(), algorithm=partial(IFCA, clusters=2)).history["train_loss"][0])
