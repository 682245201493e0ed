"""One round of `fit` against a plain loop over clients in torch, for networks, data and settings drawn at random.

A case follows from its number alone. ``python -m tests.differential 1234`` tries that one and says what it is;
``python -m tests.differential`` tries one after another until it is stopped (``make differential``).
"""

import copy
import random
import sys
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

import fedlib
from fedlib.stacked import _Kernels

CLASSES, SIDE, LENGTH, WORDS = 3, 5, 4, 7
MEAN, OVER_TIME = partial(torch.mean, dim=1), partial(torch.mean, dim=2)
SMALL = {"eps": 1e-2}  # where a gradient is zero but for rounding, Adam's steps must be too
OPTIMIZERS = {
    "SGD": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9, weight_decay=0.1),
    "Adam": partial(torch.optim.Adam, **SMALL),
    "AdamW": partial(torch.optim.AdamW, **SMALL),
    "RMSprop": partial(torch.optim.RMSprop, **SMALL),
}


# A network and the way to train it; x and y are lists of one tensor a client.
Case = namedtuple("Case", "number module x y dtype settings optimizer onednn threads")


class Then(nn.Module):
    """A module and what is done to its output."""

    def __init__(self, module, function):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, x):
        return self.function(self.module(x))


class Plus(nn.Module):
    """A module around which its input is carried."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return x + self.module(x)


class Noisy(nn.Module):
    """Random numbers without a layer."""

    def forward(self, x):
        if not self.training:
            return x
        scale = torch.empty(x.shape[1:], dtype=x.dtype, device=x.device).uniform_(0.5, 1.5)
        return x * scale + 0.1 * torch.randn_like(x) * torch.bernoulli(torch.full_like(x, 0.5))


class Augmented(nn.Module):
    def forward(self, x):
        return fedlib.augment.noise(fedlib.augment.crop(fedlib.augment.flip(x), 1), 0.1)


class LoRA(nn.Module):
    """A frozen dense layer with an update of low rank."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.base = frozen(nn.Linear(inputs, outputs))
        self.low = nn.Sequential(nn.Linear(inputs, 2, False), nn.Linear(2, outputs, False))

    def forward(self, x):
        return self.base(x) + self.low(x)


class Attention(nn.Module):
    def __init__(self, width, **settings):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True, **settings)
        self.causal = random.random() < 0.5

    def forward(self, x):
        square = nn.Transformer.generate_square_subsequent_mask
        mask = square(x.shape[1], x.device, x.dtype) if self.causal else None
        return self.attention(x, x, x, attn_mask=mask, need_weights=self.causal)[0]


class Rolled(nn.Module):
    """A recurrent cell over the positions of a sequence."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state = None
        for z in x.unbind(1):
            state = self.cell(z, state)
        return state[0] if isinstance(state, tuple) else state


class Tied(nn.Module):
    """One matrix in two layers."""

    def __init__(self, width):
        super().__init__()
        self.there, self.back = nn.Linear(width, width), nn.Linear(width, width)
        self.back.weight = self.there.weight

    def forward(self, x):
        return self.back(self.there(x).tanh())


def frozen(module):
    return module.requires_grad_(False)


def pick(*options):
    return random.choice(options)


def activation():
    return pick(nn.ReLU, nn.Tanh, nn.ELU, nn.GELU, nn.SiLU, nn.PReLU, nn.Softplus)()


def on_vectors(width):
    """A layer (B, width) -> (B, other width)."""
    out = pick(1, 2, 4, 6)
    return pick(
        lambda: (nn.Linear(width, out, bias=pick(True, False)), out),
        lambda: (LoRA(width, out), out),
        lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(width, out)), out),
        lambda: (frozen(nn.Linear(width, out)), out),
        lambda: (Tied(width), width),
        lambda: (pick(nn.LayerNorm, nn.RMSNorm)(width, eps=0.1), width),  # less would blow up the rounding of a zero
        lambda: (Plus(nn.Linear(width, width)), width),
        lambda: (pick(nn.Dropout, nn.AlphaDropout)(0.4), width),
        lambda: (Noisy(), width),
        lambda: (nn.Sequential(nn.Linear(width, width), activation()), width),
    )()


def on_images(c, side):
    """A layer (B, c, side, side) -> (B, other c, other side, other side)."""
    groups, k, out = pick(1, c), pick(1, min(3, side)), pick(1, 2, 3)
    stride, padding, dilation = pick(1, 2), pick(0, 1), pick(1, 1, 2)
    dilation = dilation if dilation * (k - 1) < side + 2 * padding else 1
    after = (side + 2 * padding - dilation * (k - 1) - 1) // stride + 1
    grown = (side - 1) * stride + k
    norms = [partial(nn.GroupNorm, pick(1, c), c), partial(nn.InstanceNorm2d, c, affine=pick(True, False))]

    def convolution():
        wide = out * groups
        return nn.Conv2d(c, wide, k, stride, padding, dilation, groups, pick(True, False)), wide, after

    return pick(
        *[convolution] * 3,
        lambda: (nn.Conv2d(c, out, k, padding="same", padding_mode=pick("zeros", "circular")), out, side),
        lambda: (nn.ConvTranspose2d(c, out * groups, k, stride, groups=groups), out * groups, grown),
        lambda: (frozen(nn.Conv2d(c, out, k)), out, side - k + 1),
        lambda: (pick(nn.MaxPool2d, nn.AvgPool2d)(k, stride=1), c, side - k + 1),
        lambda: (nn.AdaptiveAvgPool2d(pick(1, 2)), c, None),
        lambda: (Plus(nn.Conv2d(c, c, 3, padding=1)), c, side),
        lambda: (pick(*norms)() if side > 1 else nn.Identity(), c, side),
        lambda: (pick(nn.Dropout2d, nn.Dropout)(0.4), c, side),
        lambda: (Augmented(), c, side),
        lambda: (activation(), c, side),
    )()


def on_sequences(width):
    """A layer (B, L, width) -> (B, other width)."""
    out, layers, both, last = pick(2, 4), pick(1, 2), pick(True, False), lambda z: z[0][:, -1]
    recurrent = {"num_layers": layers, "bidirectional": both, "batch_first": True}
    return pick(
        lambda: (Then(pick(nn.GRU, nn.LSTM, nn.RNN)(width, out, **recurrent), last), out * (1 + both)),
        lambda: (Then(nn.LSTM(width, 4, proj_size=3, **recurrent), last), 3 * (1 + both)),
        lambda: (Rolled(pick(nn.GRUCell, nn.LSTMCell, nn.RNNCell)(width, out)), out),
        lambda: (Then(Attention(width, dropout=pick(0.0, 0.3)), MEAN), width),
        lambda: (Then(nn.TransformerEncoderLayer(width, 2, 5, pick(0.0, 0.2), batch_first=True), MEAN), width),
        lambda: (nn.Sequential(nn.Flatten(), nn.Linear(LENGTH * width, out)), out),
        lambda: (Then(nn.Sequential(Transposed(), nn.Conv1d(width, out, pick(1, 3)), activation()), OVER_TIME), out),
    )()


class Transposed(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)


def on_volumes():
    """A layer of rows (B, 2, 3, 3, 3) or (B, 2, 6), and the shape of a row."""
    k, out = pick(1, 2), pick(1, 2)
    return pick(
        lambda: (nn.Conv3d(2, out, k), (2, 3, 3, 3)),
        lambda: (nn.Sequential(nn.ConvTranspose3d(2, out, k), nn.MaxPool3d(2)), (2, 3, 3, 3)),
        lambda: (nn.Sequential(nn.Conv1d(2, 2 * out, k, groups=2), pick(nn.MaxPool1d, nn.AvgPool1d)(2)), (2, 6)),
        lambda: (nn.Sequential(nn.ConvTranspose1d(2, out, k), nn.Dropout1d(0.4)), (2, 6)),
    )()


def network():
    """A module, the shape of a row, whether rows are ids."""
    kind, layers = pick("vectors", "images", "images", "ids", "sequences", "volumes"), []
    if kind == "vectors":
        shape = (width := pick(1, 3, 5),)
    elif kind == "images":
        shape, c, side = (c := pick(1, 2, 3), SIDE, SIDE), c, SIDE
        for _ in range(pick(1, 2, 2, 3)):
            layer, c, after = on_images(c, side)
            layers.append(layer)
            side = layer.output_size if after is None else after
        layers.append(nn.Flatten())
        width = c * side**2
    elif kind == "volumes":
        layer, shape = on_volumes()
        layers += [layer, nn.Flatten()]
        width = layers[0](torch.zeros(1, *shape)).numel()
    else:
        width, shape = 4, (LENGTH,) if kind == "ids" else (LENGTH, 4)
        if kind == "ids":
            layers.append(nn.Embedding(WORDS, width, padding_idx=pick(None, 0, 3, -1), sparse=pick(True, False)))
        layer, width = on_sequences(width)
        layers.append(layer)
    for _ in range(pick(0, 1, 1, 2)):
        layer, width = on_vectors(width)
        layers.append(layer)
    return nn.Sequential(*layers, nn.Linear(width, CLASSES)), shape, kind == "ids"


def case(number):
    """Everything follows from the number."""
    random.seed(number)
    torch.manual_seed(number)
    dtype, batch_size = pick(torch.float64, torch.float64, torch.float32), pick(1, 2, 3, None)
    module, shape, ids = network()
    sizes = [pick(1, 1, 2, 3, 4, 7) for _ in range(pick(1, 2, 3, 4))]
    if batch_size not in (1, None) and random.random() < 0.3:  # one row for all in the last step
        sizes = [batch_size * pick(1, 2) + 1] * len(sizes)
    x = [torch.randint(WORDS, (n, *shape)) if ids else torch.randn(n, *shape) for n in sizes]
    y = [torch.randint(CLASSES, (n,)) for n in sizes]
    settings = {"batch_size": batch_size, "epochs": pick(1, 1, 2), "chunk_size": pick(1, 2, "auto")}
    return Case(number, module, x, y, dtype, settings, pick(*OPTIMIZERS), pick(True, True, False), pick(1, 1, 1, 2))


def rows(shape, size):
    """Random rows of a shape; without one, rows of four ids."""
    return torch.randint(WORDS, (size, LENGTH)) if shape is None else torch.randn(size, *shape)


def three_clients(module, shape, dtype, batch_size, chunk_size):
    """A federation of ragged clients for a module that somebody gives."""
    sizes = (3, 1, 4)
    y = [torch.randint(CLASSES, (n,)) for n in sizes]
    settings = {"batch_size": batch_size, "epochs": 1, "chunk_size": chunk_size}
    return Case(0, module, [rows(shape, n) for n in sizes], y, dtype, settings, "SGD", True, 1)


def by_fit(one, device):
    """The server's model after a round, and the rounds of as many threads with the same model."""
    data = fedlib.stack_clients(one.x, one.y)
    model = fedlib.models.Model(one.module)

    def loss(params, batch):
        return fedlib.losses.cross_entropy(model(params, batch[0]), *batch[1:])

    def run(_):
        with torch.random.fork_rng([]):
            algorithm = fedlib.algorithms.FedAvg(loss, lr=0.1, optimizer=OPTIMIZERS[one.optimizer], **one.settings)
            how = {"seed": one.number, "dtype": one.dtype, "device": device, "progress": False}
            return fedlib.fit(algorithm, model.params, data, 1, **how).state.models

    if one.threads == 1:
        return [run(0)]
    with ThreadPoolExecutor(one.threads) as pool:
        return list(pool.map(run, range(one.threads)))


def by_loop(one):
    """The same by torch alone; only random numbers and orders are fedlib's."""
    module, key = copy.deepcopy(one.module).to(one.dtype), fedlib.Key(one.number, 1)
    drawn = any(
        isinstance(m, (Noisy, Augmented)) or any(getattr(m, n, 0) for n in ("p", "dropout")) for m in module.modules()
    )
    total, sizes = {}, torch.tensor([len(x) for x in one.x])
    for k, (x, y) in enumerate(zip(one.x, one.y, strict=True)):
        own, x = copy.deepcopy(module), x.to(one.dtype) if x.is_floating_point() else x
        trained = {name: p for name, p in own.named_parameters() if p.requires_grad}
        for layer in own.modules():
            layer.sparse = False  # dense gradients of the same numbers, which every rule takes
        rule = OPTIMIZERS[one.optimizer](list(trained.values()), lr=0.1)
        me, epochs, step = torch.tensor([k]), one.settings["epochs"], 0
        seed = key.bits(me, "loss")[0]
        for order in key.permutations(me, "batches", sizes[[k]], epochs, len(x))[0]:
            for rows in order.split(one.settings["batch_size"] or len(x)):
                rule.zero_grad()
                with _Kernels({}, fedlib.chance.Draws(seed, step, training=True)) if drawn else nullcontext():
                    value = F.cross_entropy(own(x[rows]), y[rows])
                value.backward()
                rule.step()
                step += 1
        for name, p in trained.items():
            total[name] = total.get(name, 0) + p.detach() * len(x) / sizes.sum()
    return total


def gap(one, device="cpu"):
    """The largest distance of a parameter by the two ways, in units of what rounding explains."""
    thin = 0 if one.number % 2 else fedlib.local._THIN  # every matrix, or wide ones only, in low-rank form
    with torch.backends.mkldnn.flags(enabled=one.onednn), mock.patch.object(fedlib.local, "_THIN", thin):
        found, right = by_fit(one, device), by_loop(one)
    single = device != "cpu" and any(map(is_parametrized, one.module.modules()))  # weight norm's root on CUDA
    rounding = 1e-2 if single or one.dtype != torch.float64 else 1e-8  # Adam enlarges what should be zero
    start = dict(one.module.named_parameters())
    allowed = {name: rounding * (float((p - start[name].detach()).norm()) + 1e-2) for name, p in right.items()}
    ratios = [(m[name][0].cpu() - p).norm() / allowed[name] for name, p in right.items() for m in found]
    return float(torch.stack(ratios).max())  # which NaN is, if there is one


def try_case(number, device="cpu"):
    """Raise an AssertionError that names the case if the two ways differ."""
    one = case(number)
    found = gap(one, device)
    assert found <= 1, f"case {number} differs by {found:.3g} times what rounding explains: {one}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        print(one := case(int(sys.argv[1])))
        print(f"differs by {gap(one):.3g} times what rounding explains")
        sys.exit()
    first = number = int(time.time())  # others each time; those from 0 are what `make test` tries
    while True:
        try_case(number)
        number += 1
        if number % 100 == 0:
            print(f"\r{number - first} cases, no difference", end="", flush=True)
