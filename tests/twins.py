"""Networks in two forms, fedlib's and plain torch's, and ragged clients to train them on."""

from collections import OrderedDict
from dataclasses import asdict, replace

import numpy as np
import torch
from torch import nn

import fedlib


def named(**layers):
    """A sequence of layers, whose parameters have these names."""
    return nn.Sequential(OrderedDict(layers))


def plain_mlp():
    """The twin of fedlib.models.MLP((36, 8, 4)) in plain torch."""
    return named(flat=nn.Flatten(), dense1=nn.Linear(36, 8), relu=nn.ReLU(), dense2=nn.Linear(8, 4))


class PlainCNN(nn.Module):
    """The twin of fedlib.models.CNN((1, 6, 6), (3, 2), (4,), kernel=3, padding=1) in plain torch."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 2, 3, padding=1)
        self.dense1 = nn.Linear(2, 4)

    def forward(self, x):
        for conv in (self.conv1, self.conv2):
            x = nn.functional.max_pool2d(torch.relu(conv(x)), 2)
        return self.dense1(x.flatten(1))


def group_norm_cnn():
    """A user's own network, of layers that fedlib does not bring."""
    layers = {"conv": nn.Conv2d(1, 4, 3, stride=2), "norm": nn.GroupNorm(2, 4), "elu": nn.ELU()}
    return named(**layers, flat=nn.Flatten(), out=nn.Linear(16, 4))


TWINS = {
    "MLP": (fedlib.models.MLP((36, 8, 4)), plain_mlp),
    "CNN": (fedlib.models.CNN((1, 6, 6), channels=(3, 2), widths=(4,), kernel=3, padding=1), PlainCNN),
    "torch module with GroupNorm": (None, group_norm_cnn),
}


def twin(name):
    """Parameters, fedlib's prediction and a torch module that starts with the same parameters, all float64."""
    model, make = TWINS[name]
    torch.manual_seed(0)
    module = make().double()
    if model is None:
        model = fedlib.models.Model(module)
        return model.params, model, module
    params = start_of(model)
    module.load_state_dict(params)
    return params, model, module


def start_of(net, seed=0):
    """Parameters in float64."""
    return {name: p.double() for name, p in net.init(seed).items()}


def regression_loss(predict):
    return lambda params, batch: fedlib.losses.mse(predict(params, batch[0]), *batch[1:])


def classification_loss(predict):
    """What comes after the batch, such as FedCG's weights, goes to the network."""
    return lambda params, batch, *more: fedlib.losses.cross_entropy(predict(params, batch[0], *more), *batch[1:3])


SIZES = (1, 2, 5, 7, 20, 21, 40, 97)  # ragged clients


def ragged_clients(sizes=SIZES, shape=(1, 6, 6), classes=4, seed=0):
    """Arrays x and y of each client, float64; ids are not 0, 1, 2, ..."""
    random = np.random.RandomState(seed)
    return {
        10 + 3 * k: (
            torch.from_numpy(random.standard_normal((n, *shape))),
            torch.from_numpy(random.randint(0, classes, n)),
        )
        for k, n in enumerate(sizes)
    }


def client_data(clients):
    xs, ys = zip(*clients.values(), strict=True)
    return fedlib.stack_clients(xs, ys, ids=list(clients))


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(shape))


def close(a, b, atol=1e-10):
    torch.testing.assert_close(a, b, atol=atol, rtol=0, equal_nan=True)


LOCAL, SEED = {"lr": 0.1, "batch_size": 8, "epochs": 2}, 7


def make(kind, network="MLP", **settings):
    """An algorithm that trains one of the networks above."""
    predict = twin(network)[1]
    return kind(classification_loss(predict), **({"predict": predict} | LOCAL | settings))


def fit(kind, clients, network="MLP", rounds=4, cohort=None, **settings):
    """An algorithm and its run on these clients, or their data, with settings of either."""
    data = client_data(clients) if isinstance(clients, dict) else clients
    ours = {name: settings.pop(name) for name in list(settings) if name in kind.__dataclass_fields__}
    algorithm, settings = make(kind, network, **ours), {"seed": SEED, "progress": False} | settings
    return algorithm, fedlib.fit(algorithm, twin(network)[0], data, rounds, cohort, **settings)


def assert_same(a, b, atol=0):
    """Whether two states hold the same, by default to the last bit."""
    torch.testing.assert_close(asdict(a), asdict(b), rtol=0, atol=atol, equal_nan=True)


class NoisyFedAvg(fedlib.algorithms.FedAvg):
    """A user's server that adds noise to each new model, as for differential privacy."""

    def aggregate(self, state, update):
        server, models = torch.tensor([0]), super().aggregate(state, update).models
        noise = {name: update.key.normal(server, f"noise of {name}", *p.shape[1:]) for name, p in models.items()}
        return replace(state, models={name: p + 0.1 * noise[name].to(p) for name, p in models.items()})


def count(params):
    """How many numbers one set of parameters holds."""
    return sum(p.numel() for p in params.values())


def largest_difference(a, b):
    return max(float((a[name].detach().double() - b[name].detach().double()).abs().max()) for name in b)


def rows_differ(stack, rows):
    """Largest difference of a stack from dictionaries of the same names, one for each row."""
    rows = list(rows)
    assert all(len(p) == len(rows) for p in stack.values())
    return largest_difference(stack, {name: torch.stack([row[name] for row in rows]) for name in stack})
