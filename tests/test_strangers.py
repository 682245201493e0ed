"""Programs of people who did not write the library: right, or refused before round 1 in words that are true."""

import math
import random
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from differential import MEAN, Then
from torch import nn
from twins import classification_loss

import fedlib
from fedlib import losses
from fedlib.algorithms import IFCA, FedAvg, FedEM
from fedlib.losses import weighted_mean


def own(forward, **parts):
    """Somebody's class of modules: what each of its parts is made by, and what it does with x."""

    def begin(self):
        nn.Module.__init__(self)
        for name, make in {"layer": partial(nn.Linear, 5, 3), **parts}.items():
            setattr(self, name, make())

    return type("Own", (nn.Module,), {"__init__": begin, "forward": forward})


def parameter(*shape):
    return lambda: nn.Parameter(torch.rand(shape) + 0.5)


Base = own(lambda self, x: self.layer(x))


class Scaled(Base):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.scaled = lambda z: z * self.scale

    def forward(self, x):
        return self.scaled(self.layer(x))


def branch(self, x):
    return self.layer(x) if self.layer.bias.sum() > 0 else self.layer(-x)


def sometimes_mirrored(self, x):
    return self.layer(x.flip(-1) if self.training and random.random() < 0.05 else x)


def first_batch(self, x):
    if self.mean is None:
        self.mean = x.mean(0)
    return self.layer(x - self.mean)


def counted_in_a_dict(self, x):
    self.seen["calls"] += 1
    return self.layer(x)


def counted(self, x):
    self._calls += 1
    return self.layer(x)


def moving(self, x):
    z = self.layer(x)
    self.average.mul_(0.9).add_(z.detach().mean(0))
    return z


def hooked():
    layer = nn.Linear(5, 3)
    layer.weight.register_hook(lambda gradient: gradient * 0)
    return layer


def scattered(self, x):
    out = torch.zeros(len(x), 3)
    out[torch.arange(len(x))] = self.layer(x)
    return out


def added(self, x):
    out = torch.zeros(len(x), 3)
    out += self.layer(x)
    return out


def root(self, x):
    """Not a number, where the scale is moved far."""
    return self.layer(x * (0.05 * self.scale).log())


def task(module, loss=losses.cross_entropy, x=None, y=None, algorithm=FedAvg, **settings):
    """A round of three clients."""
    model = fedlib.models.Model(module)
    x = [torch.randn(n, 5) for n in (3, 1, 4)] if x is None else x
    data = fedlib.stack_clients(x, y or [torch.arange(len(rows)) % 3 for rows in x])
    algorithm = algorithm(lambda params, batch: loss(model(params, batch[0]), *batch[1:]), **settings)
    return fedlib.fit(algorithm, model.params, data, 1, progress=False)


def small_term(z, y, w):
    return losses.cross_entropy(z, y, w) + 1e-3 * z.square().mean()


class ByAxes(torch.optim.SGD):
    """The usual rule: no decay of biases."""

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if p.ndim > 1:
                p.data.mul_(0.5)
        return super().step(closure)


class Centred(torch.optim.SGD):
    """The mean of a gradient is left out, but not of a bias."""

    def __init__(self, params, lr, axes=1):
        super().__init__(params, lr)
        self.axes = axes

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if p.grad.ndim > self.axes:
                p.grad -= p.grad.mean(tuple(range(1, p.grad.ndim)), keepdim=True)
        return super().step(closure)


class Noisy(torch.optim.SGD):
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.grad += 1e-6 * torch.randn_like(p)
        return super().step(closure)


def tokens():
    return nn.Sequential(Then(nn.Embedding(10, 4), MEAN), nn.Linear(4, 3))


def ids_with(bad):
    """An id that an embedding does not have would be a row of another client."""
    ids = [torch.randint(10, (n, 6)) for n in (3, 2, 4)]
    ids[1][1, 3] = bad
    return ids


LSTM, TEACHER = nn.LSTM(3, 3, batch_first=True).requires_grad_(False), nn.Linear(3, 3)


def spread(z, y, w):
    """Of one row it is not a number."""
    return losses.cross_entropy(z, y, w) + F.relu(1 - z.std(0)).mean()


def hardest(z, y, w):
    return (F.cross_entropy(z, y, reduction="none") * w).topk(max(1, len(w) // 10)).values.mean()


def balanced(z, y, w):
    return weighted_mean(F.cross_entropy(z, y, reduction="none") * len(y) / F.one_hot(y, 3).sum(0)[y], w)


def clamped(z, y, w):
    return (F.cross_entropy(z, y, reduction="none") * w).sum() / w.sum().clamp(min=1)


def by_class(z, y, w):
    return losses.cross_entropy(z, y, w * torch.tensor([1.0, 2.0, 1.0])[y])


def unseeded(self, x):
    return self.layer(x * NUMPY.rand())


def poisson(self, x):
    return self.layer(x + torch.poisson(x.square()))


NUMPY = np.random.RandomState(0)
IN_A_LIST = own(lambda self, x: self.layer(x) * self.all[0], all=lambda: [nn.Parameter(torch.ones(3))])
AVERAGED, ROOT = own(moving, average=lambda: nn.Buffer(torch.zeros(3))), own(root, scale=parameter(5))
KEPT, PADDING = "keeps '{}' from one call to the next", "the loss sees padded rows"
NO_SUCH_ID, NO_MEAN = "out of range|was given ids from", "must be the mean of the rows' losses weighted by w"
MIXED = {"algorithm": partial(FedEM, components=2, batch_size=None)}
REFUSED = {
    "a parameter in a list": ("holds parameters in 'all'.*ParameterList", IN_A_LIST, {}),
    "a parameter in a closure": (r"holds a function \(scaled\) closed over it", Scaled, {}),
    "a hook on a gradient": ("parameter 'layer.weight' has a hook", own(Base.forward, layer=hooked), {}),
    "a counter in a dictionary": (KEPT.format("seen"), own(counted_in_a_dict, seen=lambda: {"calls": 0}), {}),
    "a private counter": (KEPT.format("_calls"), own(counted, _calls=lambda: 0), {}),
    "a counter in an array": (KEPT.format("_calls"), own(counted, _calls=lambda: np.zeros(1)), {}),
    "padding in a spread": (PADDING, Base, {"loss": spread}),
    "padding in the number of hard rows": (PADDING, Base, {"loss": hardest}),
    "padding in the counts of classes": (PADDING, Base, {"loss": balanced, "y": [[2, 0, 2], [1], [2, 1, 0, 2]]}),
    "a factored rule": ("looks at many entries at once", Base, {"optimizer": torch.optim.Adafactor}),
    "a mirror now and then": ("draws from Python's random by itself", own(sometimes_mirrored), {}),
    "a factor from NumPy": ("draws from something that changes by itself", own(unseeded), {}),
    "a draw without a seed": ("draws from torch in a way that cannot be seeded", own(poisson), {}),
    "the mean of the first batch": (KEPT.format("mean"), own(first_batch, mean=lambda: None), {}),
    "a moving average": ("layer '' " + KEPT.format("average"), AVERAGED, {}),
    "a branch": ("layer '', a Own cannot be trained in a stack .* take torch.where", own(branch), {}),
    "a hook": ("'weight' is computed by a hook", partial(nn.utils.weight_norm, nn.Linear(5, 3)), {}),
    "no parameters": ("without parameters to train", nn.RReLU, {}),
    "padding where the model has no logarithm": (PADDING, ROOT, {"loss": lambda z, y, w: F.cross_entropy(z, y)}),
    "padding in a small term": (PADDING, Base, {"loss": small_term}),
    "padding behind a large number": (PADDING, Base, {"loss": lambda z, y, w: 100 + 0.1 * F.cross_entropy(z, y)}),
    "a rule by the number of axes": ("by their number of axes", Base, {"optimizer": ByAxes}),
    "a rule of filters": ("by their number of axes", Base, {"optimizer": partial(Centred, axes=3)}),
    "a rule with noise": ("draws random numbers by itself", Base, {"optimizer": Noisy}),
    "a rule of rows by the number of axes": ("by their number of axes", Base, {"optimizer": Centred}),
    "values of one column": (r"values of shape \(1, 1\)", Base, {"loss": lambda z, y, w: weighted_mean(z[:, :1], w)}),
    "broadcast": (r"\(B, 1\) and \(B,\)", Base, {"loss": lambda z, y, w: ((z[:, :1] - y) ** 2 * w).sum() / w.sum()}),
    "rows written into zeros": ("writes into a tensor that all clients share", own(scattered), {}),
    "rows added to zeros": ("writes into a tensor that all clients share", own(added), {}),
    "an LSTM beside the model": ("take those of fedlib.rec", Base, {"loss": lambda z, y, w: LSTM(z)[0].sum(1) @ w}),
    "a teacher": (r"requires_grad_\(False\)", Base, {"loss": lambda z, y, w: TEACHER(z).sum(1) @ w / w.sum()}),
    "an id that is too large": (NO_SUCH_ID, tokens, {"x": ids_with(10)}),
    "an id below zero": (NO_SUCH_ID, tokens, {"x": ids_with(-1)}),
    "a sum of rows in FedEM": (NO_MEAN, Base, MIXED | {"loss": clamped}),
    "a mean by class in FedEM": (NO_MEAN, Base, MIXED | {"loss": by_class}),
}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:std")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_round_1(name):
    words, make, settings = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        task(make(), **settings)


def where(self, x):
    """Asks a parameter for its device and type."""
    mine = next(self.parameters())
    return self.layer(x + torch.arange(5, device=mine.device, dtype=mine.dtype))


def dropping(self, x):
    z = self.layer(x)
    self.drop(z)
    return z


def complex_numbers(self, x):
    return F.linear(torch.complex(x, x.cos()), torch.complex(self.layer.weight, self.imaginary)).abs()


def masked(self, ids):
    """Attention where a row may be padding alone."""
    z, mask = self.embedding(ids)[:, None], (ids != 0)[:, None, None, :]
    return self.out(F.scaled_dot_product_attention(z, z, z, attn_mask=mask)[:, 0].mean(1))


def wide(bias=True):
    """What a wide layer gives, which is kept in low-rank form, is written into."""
    return nn.Sequential(nn.Linear(200, 100, bias=bias), nn.ReLU(inplace=True), nn.Linear(100, 3))


def hyper(self, x):
    """A network whose parameters another one computes."""
    made = self.maker(self.code)
    return torch.func.functional_call(self.layer, {"weight": made[:15].view(3, 5), "bias": made[15:]}, (x,))


def measured(self, x):
    """Asks all parameters how large they are."""
    most = torch.stack([p.detach().abs().max() for p in self.parameters()]).max()
    return self.layer(x) * torch.where(most > 0.1, 0.5, 1.0)


def bag():
    return nn.Sequential(nn.EmbeddingBag(7, 4, mode="sum", sparse=True), nn.Linear(4, 3))


def viewed():
    return nn.Sequential(Then(nn.Conv2d(1, 4, 3), lambda z: z.relu().view(-1, 36)), nn.Linear(36, 3))


def normed():
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3).eval(), nn.Tanh(), nn.Flatten())


SCALES = {"scales": lambda: nn.ParameterList([torch.ones(3), torch.zeros(())])}
MAKER = {"maker": partial(nn.Linear, 2, 18), "code": parameter(2)}
ATTENTION = {"embedding": partial(nn.Embedding, 10, 4), "out": partial(nn.Linear, 4, 3)}
RIGHT = {  # a module, the shape of its rows; `test_layers` trains them beside the layers of the book's table
    "a view": (viewed, (1, 5, 5)),
    "BatchNorm in evaluation mode after a convolution": (normed, (2, 7, 7)),
    "a parameter that is looked at": (own(where), (5,)),
    "a list of parameters": (own(lambda self, x: self.layer(x) * self.scales[0] + self.scales[1], **SCALES), (5,)),
    "dropout in place": (own(dropping, drop=partial(nn.Dropout, 0.4, inplace=True)), (5,)),
    "complex numbers": (own(complex_numbers, imaginary=parameter(3, 5)), (5,)),
    "rows written into": (own(lambda self, x: self.layer(x.mul_(2).sub_(1))), (5,)),
    "attention where all is masked": (own(masked, **ATTENTION), None),
    "a wide layer written into": (wide, (200,)),
    "a wide layer without bias": (partial(wide, bias=False), (200,)),
    "computed parameters": (own(hyper, **MAKER), (5,)),
    "measured parameters": (own(measured), (5,)),
    "a vector": (own(lambda self, x: self.layer(x) * F.linear(x, self.vector)[:, None], vector=parameter(5)), (5,)),
    "a bag of ids": (bag, None),
}


def filled(self, x):
    out = x.new_zeros(len(x), 3)
    out[:, :] = self.layer(x)
    return out


def test_what_trains_in_one_algorithm_trains_in_ifca():
    assert math.isfinite(task(own(filled)(), algorithm=partial(IFCA, clusters=2)).history["train_loss"][0])


def test_a_column_may_have_any_name():
    model, x = fedlib.models.Model(Base()), torch.randn(3, 4, 5)
    ends = []
    for name in ("q", "r"):
        data = fedlib.stack_clients(x, torch.arange(12).view(3, 4) % 3).with_columns(**{name: x[..., 0].exp()})
        algorithm = FedEM(lambda p, b: losses.cross_entropy(model(p, b[0]) * b[3][:, None], *b[1:3]), components=2)
        ends.append(fedlib.fit(algorithm, model.params, data, 2, progress=False).state.models)
    assert all(torch.equal(p, ends[1][name]) for name, p in ends[0].items())


def broken(**methods):
    """FedAvg with somebody's methods."""
    return type("Broken", (FedAvg,), methods)


def nan_server(self, state, update, data=None, key=None):
    return type(state)({name: p * math.nan for name, p in state.models.items()})


def doubled(self, state, update):
    return replace(state, models={name: p.double() for name, p in state.models.items()})


def trained(**parts):
    """FedAvg's training, with some parts of the update replaced."""
    return lambda self, *args: replace(FedAvg.train(self, *args), **parts)


BROKEN = {
    "a client twice": ({"cohort": lambda *_: torch.tensor([0, 0])}, ValueError, "cohort must return different"),
    "a mask": ({"cohort": lambda *_: torch.tensor([True, False, True])}, ValueError, "cohort must return different"),
    "ids": ({"cohort": lambda *_: torch.tensor([7])}, ValueError, "positions from 0 to 2"),
    "nothing trained": ({"train": lambda *_: None}, TypeError, "train must return an Update, got NoneType"),
    "ids for positions": ({"train": trained(clients=torch.tensor([1, 2, 3]))}, ValueError, "given.*and not ids"),
    "a log of two columns": ({"train": trained(log={"a": torch.ones(3, 2)})}, ValueError, "number for each client"),
    "one number for all": ({"train": trained(log={"a": torch.tensor(1.0)})}, ValueError, "number for each client"),
    "a field that is not there": ({"train": trained(client_state={"own": torch.ones(3)})}, ValueError, "does not fit"),
    "a server that returns nothing": ({"aggregate": lambda *_: None}, TypeError, "aggregate must return the new state"),
    "a server of another type": ({"aggregate": doubled}, TypeError, "float64 in a run with torch.float32; cast in agg"),
    "a server without numbers": ({"aggregate": nan_server}, FloatingPointError, "server's model became NaN"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_algorithms_are_refused(name):
    methods, error, words = BROKEN[name]
    with pytest.raises(error, match=words):
        task(Base(), algorithm=broken(**methods))


@pytest.mark.parametrize("hidden", [{"epochs": 7}, {"predict": lambda self, params, x: x}])
def test_a_setting_that_is_written_like_an_attribute_is_not_lost(hidden):
    for kind in (broken(**hidden), dataclass(frozen=True)(broken(**hidden))):
        with pytest.raises(TypeError, match=f"sets '{next(iter(hidden))}' in its class"):
            kind(losses.cross_entropy)
    typed = dataclass(frozen=True)(broken(epochs=7, __annotations__={"epochs": int}))
    assert typed(losses.cross_entropy).epochs == 7 and typed(losses.cross_entropy, epochs=2).epochs == 2


@pytest.mark.parametrize("frozen", [("layer",), "layer.bias", ("layer.weight", "layer.bias")])
def test_a_name_that_freezes_nothing_or_all_is_refused(frozen):
    def train(self, state, data, clients, key):
        self.local_training(self.client_params(state, clients), data, key, frozen=frozen)

    with pytest.raises(ValueError, match="frozen must list names of parameters"):
        task(Base(), algorithm=broken(train=train))


def test_clients_that_share_a_model_do_not_speak_for_others():
    """Somebody's algorithm broadcasts where all that are asked for have one model."""

    def client_params(self, state, clients):
        one = {name: p[0] for name, p in state.models.items()}
        two = {name: -p for name, p in one.items()}
        chosen = [one if k < 2 else two for k in clients.tolist()]
        if len({id(c) for c in chosen}) == 1:
            return {name: p.expand(len(clients), *p.shape) for name, p in chosen[0].items()}
        return {name: torch.stack([c[name] for c in chosen]) for name in one}

    model, x = fedlib.models.Model(Base()), torch.randn(3, 9, 5)
    algorithm = broken(client_params=client_params)(classification_loss(model), lr=1e-30, predict=model)
    start = {name: p.clone() for name, p in model.params.items()}
    data = fedlib.stack_clients(x, model(start, x.flatten(0, 1)).argmax(1).view(3, 9))
    same = fedlib.fit(algorithm, start, data, 1, progress=False)
    *ours, other = fedlib.evaluate(algorithm, same, data)["accuracy"]
    assert ours == [1, 1] and other < 0.5
    in_place = broken(aggregate=lambda self, state, *_: [p.zero_() for p in state.models.values()] and state)
    fedlib.fit(in_place(algorithm.loss), model.params, data, 1, progress=False)
    assert all(torch.equal(p, start[name]) for name, p in model.params.items()), "the start is the caller's"


def test_attention_in_bfloat16_sees_no_padding():
    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.attend, self.out = nn.MultiheadAttention(16, 4, batch_first=True), nn.Linear(16, 3)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                z = self.out(self.attend(x, x, x, need_weights=False)[0].mean(1))
            return z.float()

    for seed in range(5):
        torch.manual_seed(seed)
        task(Attends(), x=list(torch.randn(3, 7, 10, 16)))


def test_draws_of_other_kinds():
    """Complex numbers have variance 1, whole channels of one image are dropped, and nothing is written outside."""
    with fedlib.stacked.one_client(torch.zeros((), dtype=torch.int64), training=True):
        z = torch.randn(4000, dtype=torch.complex64)
        dropped = F.dropout1d(torch.ones(400, 5), 0.5)
        assert torch.randint(high=5, size=(3,)).max() < 5
        with pytest.raises(ValueError, match="out="):
            torch.rand(3, out=torch.empty(3))
    assert z.imag.var() == pytest.approx(0.5, abs=0.05) and z.abs().square().mean() == pytest.approx(1, abs=0.08)
    assert set(dropped.sum(1).tolist()) == {0.0, 10.0}
