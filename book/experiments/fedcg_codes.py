"""FedCG with thirty-two domains that are known: Caldarola et al. (2021), Section 4.2.1, Table 3, on other images.

The paper cuts CelebA by five attributes of a face. Here five changes are each made to an image or not: strokes are
thickened, the image is blurred, shifted, made pale, or inverted. The five answers are the code of its domain. A client
has three of them for good; two differ from image to image, so that it holds images of four domains. Images are digits
or photos of clothes, of 14 x 14 pixels; sixty clients train, twenty choose a learning rate, and twenty that nobody has
seen are the test.

As in the paper's table, "GCN" has convolutions that come from the graph alone (V-hat), "FedCG" adds them to shared ones
(Eq. 4), "separate" is a network for each domain, trained on its own images. A is uniform (U), or the inverse Hamming
distance of two codes (H), normalised; either has 1/2 on its diagonal. W is I + P R^T with sixteen columns, R from zero;
without it W = I. Two arms are not in the paper: "FedCG, no graph" (A = I), and FedCG without W.

All arms of a seed are trained side by side, each with two rates, on the same cohorts and batches. Modules start
equal, and models are averaged by n_k, those of "separate" by the images of their domain. An arm takes the rate with
which the clients who choose do best; its score is the mean of the last three, of all test images together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur

from book.experiments import running
from book.experiments.fedcg_femnist import EqualNet
from book.experiments.worlds import LowRank, Rows, by_seed, shrunk, together, with_parts
from fedlib import ClientData, Key, Params, datasets, models, stack_clients
from fedlib.losses import cross_entropy
from fedlib.params import broadcast

CHANGES: dict[str, Callable[[Tensor], Tensor]] = {  # of images from 0 to 255
    "thick": lambda x: F.max_pool2d(x, 3, 1, 1),
    "blurred": lambda x: gaussian_blur(x, [5, 5], [1.5, 1.5]),
    "shifted": lambda x: x.roll(5, -1),
    "pale": lambda x: 100 + x / 5,
    "inverted": lambda x: 255 - x,
}
CODES = torch.tensor([*product((0, 1), repeat=len(CHANGES))])  # (D, 5)
D = len(CODES)
NETWORK = models.CNN((1, 14, 14), (4, 8), (32, 10), 3, 1, pool=1, strides=(2, 2))
LAYERS = ("conv1", "conv2")
W = LowRank(relu=False)
SETTINGS: dict[str, Any] = {
    "data": ["mnist5k", "fashion_mnist"],
    "clients": [60, 20, 20],  # that train, that choose the rate, that test
    "images": [40, 25, 100],  # of each
    "every": 20,  # rounds between two scores
}
SETTINGS |= {"rounds": 300, "cohort": 10, "batch_size": 10, "rates": [0.1, 0.3], "seeds": [0, 1, 2, 3, 4]}
Settings = dict[str, Any]


@dataclass(frozen=True)
class Arm:
    """A line of Table 3: its shared layers, its modules, and the parts of the graph that are on."""

    name: str
    own: bool = True
    modules: bool = True
    A: str = "I"
    parts: tuple[str, ...] = ()


def _graphs(model: str, *parts: str) -> list[Arm]:
    sets = [s for n in range(len(parts) + 1) for s in combinations(parts, n)]
    return [Arm(" ".join((model, A, *s)), model == "FedCG", True, A, s) for s, A in product(sets, "UH")]


ARMS = [Arm("FedAvg", modules=False), *_graphs("GCN", "W"), Arm("FedCG, no graph"), *_graphs("FedCG", "W", "ReLU")]


def adjacency(kind: str) -> Tensor:
    """A (D, D): the identity, or one half on the diagonal and the rest by ones (U) or inverse Hamming distances (H)."""
    if kind == "I":
        return torch.eye(D)
    apart = (CODES[:, None] != CODES).sum(2).clamp(min=1)
    h = (torch.ones(D, D) if kind == "U" else 1 / apart).fill_diagonal_(0)
    return (h / h.sum(1, keepdim=True) / 2).fill_diagonal_(0.5)


# ---- the clients ----


def changed(x: np.ndarray, domain: np.ndarray) -> np.ndarray:
    """Images (N, 1, 28, 28) with the changes of their domains (N,), shrunk to half of their side."""
    out = torch.as_tensor(np.ascontiguousarray(x)).float()
    for i, change in enumerate(CHANGES.values()):
        on = CODES[torch.as_tensor(domain), i].bool()
        out[on] = change(out[on])
    return shrunk(out.numpy())


def groups(settings: Settings, data: str, seed: int) -> list[ClientData]:
    """Clients that train, choose and test; column ``w_d`` is 1 for the domain of an image."""
    draw, arrays, found = np.random.RandomState(seed), datasets.load(data), []
    rows = iter(draw.permutation(len(arrays.y)))
    for clients, size in zip(settings["clients"], settings["images"], strict=True):
        own = draw.randint(2, size=(clients, 1, 5))
        varies = np.argsort(draw.rand(clients, 1, 5)) < 2
        codes = np.where(varies, draw.randint(2, size=(clients, size, 5)), own)
        domain = codes @ (1 << np.arange(5)[::-1])
        mine = np.array([[next(rows) for _ in range(size)] for _ in range(clients)])
        xs = [changed(arrays.x[r], d) for r, d in zip(mine, domain, strict=True)]
        some = stack_clients(xs, [arrays.y[r] for r in mine], classes=10, pixels=True)
        found.append(some.with_columns(w_d=F.one_hot(torch.as_tensor(domain), D).float()))
    return found


# ---- training, all arms and rates side by side ----


def connected(params: Params, A: Tensor, flags: Mapping[str, Tensor]) -> Params:
    """What the network of an arm is called with: V-hat, and shared filters and lambda as far as on."""
    out = with_parts(params, LAYERS, A, flags)
    for n, p in out.items():
        if n.startswith("lam."):  # 0 in FedAvg, 1 without shared filters
            out[n] = flags["modules"] * torch.where(flags["own"] > 0, p, torch.ones_like(p))
        elif n.startswith(LAYERS):
            out[n] = flags["own"] * p
    return out


NET = EqualNet(NETWORK, D, LAYERS)


@dataclass(frozen=True)
class Models:
    """M models that are trained side by side; their rates are in the loss."""

    start: Params  # of one
    loss: Callable[..., Tensor]
    extras: tuple[Any, ...]  # of the loss, (M, ...)
    n: Tensor  # examples that each client has for each, (K, M)
    answers: Callable[[Params, ClientData], Tensor]  # classes (arms and rates, K, N) that a stack of M gives


def arms_of(settings: Settings, data: ClientData, arms: Sequence[Arm], seed: int, dtype: torch.dtype) -> Models:
    """Each arm with each rate."""
    trials = [(arm, rate) for arm in arms for rate in settings["rates"]]
    flags = {n: torch.tensor([float(n in arm.parts) for arm, _ in trials], dtype=dtype) for n in ("W", "ReLU")}
    flags |= {n: torch.tensor([float(getattr(arm, n)) for arm, _ in trials], dtype=dtype) for n in ("own", "modules")}
    flags["rate"] = torch.tensor([rate for _, rate in trials], dtype=dtype)
    A = torch.stack([adjacency(arm.A) for arm, _ in trials]).to(dtype)
    start = NET.init(seed)

    def loss(params: Params, batch: Any, A: Tensor, flags: Mapping[str, Tensor]) -> Tensor:
        x, y, real, w_d = batch
        return flags["rate"] * cross_entropy(NET(connected(params, A, flags), x, w_d), y, real)

    def answers(stack: Params, to: ClientData) -> Tensor:
        x, _, _, w_d = to.all_rows(dtype)
        params = torch.vmap(connected)(stack, A, flags)
        out = torch.vmap(NET, (0, None, None))(params, x.flatten(0, 1), w_d.flatten(0, 1))
        return out.argmax(-1).unflatten(1, x.shape[:2])

    n = data.n[:, None].expand(-1, len(trials)).to(dtype)
    return Models(start | W.start(start, LAYERS, seed), loss, (A, flags), n, answers)


def separate(settings: Settings, data: ClientData, seed: int, dtype: torch.dtype) -> Models:
    """With each rate a network for each domain, which learns from the images of this domain alone."""
    domain = torch.eye(D, dtype=dtype).repeat(len(settings["rates"]), 1)  # (M, D)
    rate = torch.tensor(settings["rates"], dtype=dtype).repeat_interleave(D)

    def loss(params: Params, batch: Any, domain: Tensor, rate: Tensor) -> Tensor:
        x, y, real, w_d = batch
        mine = real * (w_d @ domain)
        return rate * (F.cross_entropy(NETWORK(params, x), y, reduction="none") * mine).sum() / mine.sum().clamp(min=1)

    def answers(stack: Params, to: ClientData) -> Tensor:
        x, _, _, w_d = to.all_rows(dtype)
        out = torch.vmap(NETWORK, (0, None))(stack, x.flatten(0, 1)).argmax(-1).unflatten(0, (-1, D))
        return (out * w_d.flatten(0, 1).T).sum(1).long().unflatten(1, x.shape[:2])

    n = data.columns["w_d"].sum(1).to(dtype) @ domain.T
    return Models(NETWORK.init(seed), loss, (domain, rate), n, answers)


def train(
    settings: Settings,
    data: ClientData,
    models: Models,
    seed: int,
    watch: Callable[[int, Params], None] = lambda t, stack: None,
    dtype: torch.dtype = torch.float32,
) -> Params:
    """Rounds of FedAvg for all models."""
    stack = broadcast({n: p.to(dtype) for n, p in models.start.items()}, models.n.shape[1])
    for t in range(1, settings["rounds"] + 1):
        of_round = data, settings["cohort"], Key(seed, t), settings["batch_size"]
        stack = together(models.loss, stack, models.extras, *of_round, n=models.n)
        if t % settings["every"] == 0 or t == settings["rounds"]:
            watch(t, stack)
    return stack


# ---- the experiment ----


def scores(settings: Settings, data: str, seed: int) -> Rows:
    """Arm -> the rate it takes, and its accuracy on the images of the test clients, by round and late."""
    clients, dtype = groups(settings, data, seed), torch.float32
    names, curves = [arm.name for arm in ARMS] + ["separate"], []
    for found in (arms_of(settings, clients[0], ARMS, seed, dtype), separate(settings, clients[0], seed, dtype)):
        right: dict[int, Tensor] = {}

        def watch(t: int, stack: Params, found: Models = found, right: dict[int, Tensor] = right) -> None:
            each = [(found.answers(stack, c) == c.y).float().mean((1, 2)) for c in clients[1:]]  # no client is padded
            right[t] = torch.stack(each, 1).unflatten(0, (-1, len(settings["rates"])))  # (arms, rates, 2)

        train(settings, clients[0], found, seed, watch)
        curves.append(right)
    right = {t: torch.cat([c[t] for c in curves]) for t in curves[0]}
    late = torch.stack([*right.values()][-3:]).mean(0)
    rows: Rows = {}
    for m, name in enumerate(names):
        best = int(late[m, :, 0].argmax())
        rows[name] = {"accuracy": float(late[m, best, 1]), "rate": settings["rates"][best]}
        rows[name] |= {f"after {t}": float(r[m, best, 1]) for t, r in right.items() if t % 100 == 0}
    return rows


def measure(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """Data set -> arm -> score -> seed."""
    return {data: by_seed(settings, keep, data, scores, settings, data) for data in settings["data"]}


def probe() -> running.Probe:
    """Two rounds of each arm, of clients with generated images, in float64."""
    settings = SETTINGS | {"clients": [5], "images": [8], "rounds": 2, "cohort": 3, "batch_size": 3}
    draw = np.random.RandomState(0)
    xs = [draw.randint(0, 256, (n, 1, 14, 14)).astype(np.uint8) for n in (8, 6, 3, 8, 5)]
    some = stack_clients(xs, [draw.randint(10, size=len(x)) for x in xs], classes=10, pixels=True)
    domain = torch.as_tensor(draw.randint(D, size=(5, 8)))
    some = some.with_columns(w_d=(F.one_hot(domain, D) * some.real[..., None]).float())
    arms = {arm.name: arms_of(settings, some, [arm], 0, torch.float64) for arm in ARMS}
    arms["separate"] = separate(settings, some, 0, torch.float64)
    ends = {name: train(settings, some, found, 0, dtype=torch.float64) for name, found in arms.items()}
    return {name: [float(p.square().mean()) for p in stack.values()] for name, stack in ends.items()}


PRESETS = {"full": running.Experiment("fedcg_codes", SETTINGS, measure, probe, data=("mnist5k", "fashion_mnist"))}
