"""Modules for domains, and a graph between them (FedCG), where domains contradict each other and where they are alike.

Turned digits: forty clients, four turns, two turns at half of the clients. Styles: sixty clients with twenty digits, or
photos of clothes, in one of four styles. The domains are known, or found by federated EM, or by teacher and student as
printed. A seed splits the images, deals them to the clients and draws the start. Scores are accuracies on
held-out images of the same clients: of all ("accuracy"), and of the rarest domain.

Preset ``full`` has five seeds. It needs Fashion-MNIST (Debian has it as the package
dataset-fashion-mnist). ``paper`` is the setting of Caldarola et al. (2021), Section 4, for whichever of CelebA and
FEMNIST lies in the folder that the environment variable FEDLIB_DATA names; it wants a GPU, and keeps checkpoints in the
folder FEDLIB_CHECKPOINTS, by default _build/experiments.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import fedlib
from book.experiments import faces, running
from book.experiments.celeba import CelebACNN, CelebANet, scores_by_client
from book.experiments.worlds import EXACT, EqualStart, checkpoints, enter, loss_of, quiet, seeds_of
from fedlib import Checkpoint, ClientData, Params, datasets, evaluation, models, partition
from fedlib.algorithms import FedAvg, FedCG
from fedlib.client.domain_net import DomainClassifier, DomainNet
from fedlib.data import Pixels
from fedlib.datasets.registry import data_folder
from fedlib.extensions import FedCGKnownDomains
from fedlib.extensions.mixture import RandomFeatures, em_domains
from fedlib.losses import cross_entropy
from fedlib.server.domain_graph import DomainGCN

DEGREES, SHARES = (0, 90, 180, 270), (0.4, 0.3, 0.2, 0.1)
STYLE_SHARES = (0.45, 0.3, 0.2, 0.05)  # plain, inverted, noisy, low contrast
EACH = 20  # images of a client with a style
KINDS = {"digits": "mnist5k", "fashion": "fashion_mnist"}  # of images with styles
NETWORK = models.CNN((1, 28, 28), (8, 16), (32, 10), 3, 1, pool=1, strides=(2, 2))

Arm = Mapping[str, Any]
Settings = dict[str, Any]


# ---- variants, for the ablation ----


class EqualNet(EqualStart, DomainNet):
    """All modules start from one draw."""


# An arm is what differs from FedCG with known domains: "told" says who knows which domains (the truth by default),
# "net" is another class, the rest is for the algorithm. None is FedAvg.
EQUAL = {"net": EqualNet}
TURNED: dict[str, Arm | None] = {"FedAvg": None, "residual, no graph": {"gcn": None}}
FOUND: dict[str, Arm | None] = {
    "FedAvg": None,
    "residual, w from the student": {"told": "EM", "gcn": None, "weights": "student"},
    "FedCG, as printed": {"told": "as printed"},
}
STYLED: dict[str, Arm | None] = {
    "FedAvg": None,
    "FedCG": EQUAL,
    "residual, no graph": EQUAL | {"gcn": None},
    "FedCG, random start": {},
    "residual, random start": {"gcn": None},
}


# ---- federations ----


class Images(NamedTuple):
    """Images (R, 1, H, W) and their labels (R,)."""

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class World:
    """A federation with true domains, and held-out images of its clients."""

    train: ClientData
    test: ClientData
    domains: Sequence[np.ndarray]  # of each training image, client by client
    test_domains: Sequence[np.ndarray]
    local: Mapping[str, Any]  # settings of local training
    network: models.CNN = NETWORK

    @property
    def cohort(self) -> int:
        """Clients in a round."""
        return min(10, len(self.train) // 2)


@cache
def images_of(kind: str) -> Images:
    """The images of a kind, from which each seed takes some."""
    arrays = datasets.load(KINDS[kind])
    return Images(arrays.x, arrays.y)


def cut(images: Images, seed: int, train: int, test: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """So many images to train and to test, with their labels."""
    order = np.random.RandomState(seed).permutation(len(images.y))[: train + test]
    return [(images.x[r], images.y[r]) for r in (order[:train], order[train:])]


def turned_deal(y: np.ndarray, clients: int, seed: int) -> partition.Partition:
    """Dealt at random, and turned by client; half of the clients have two turns."""
    deal = partition.rotation(partition.iid(y, clients, seed), DEGREES, shares=SHARES, seed=seed)
    return partition.mixture(deal, 0.5, 0.3, seed)


def styled_deal(y: np.ndarray, clients: int, seed: int) -> partition.Partition:
    """Dealt at random, with a style for each client."""
    return partition.style(partition.iid(y, clients, seed), shares=STYLE_SHARES, seed=seed)


def turned_world(settings: Settings, seed: int, images: Images | None = None, network: models.CNN = NETWORK) -> World:
    """Turned digits; half of the clients have two turns."""
    parts = cut(images or images_of("digits"), seed, settings["train"], settings["test"])
    deals = [turned_deal(y, settings["clients"], seed) for _, y in parts]
    return world_of(parts, deals, settings["conflict"], network)


def styled_world(
    settings: Settings, seed: int, kind: str, images: Images | None = None, network: models.CNN = NETWORK
) -> World:
    """Images in four styles, twenty a client, one style a client."""
    clients = settings["scarce clients"]
    parts = cut(images or images_of(kind), seed, EACH * clients, settings["scarce test"])
    return world_of(parts, [styled_deal(y, clients, seed) for _, y in parts], settings["scarce"], network)


def world_of(
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
    deals: Sequence[partition.Partition],
    local: Mapping[str, Any],
    network: models.CNN,
) -> World:
    """The federation of a partition of training images and one of test images."""
    train, test = deals
    if not np.array_equal(train.group, test.group):
        raise ValueError("a client must have the same domain in training and at test")
    data = [deal.clients(x, y) for deal, (x, y) in zip(deals, parts, strict=True)]
    return World(*data, train.sample_group, test.sample_group, local, network)


# ---- domains ----


def one_hot(domains: Sequence[np.ndarray], data: ClientData) -> Tensor:
    """The weights w (K, N, D) of given domains; zeros for padding."""
    w = torch.zeros(*data.index.shape, 4)
    for k, mine in enumerate(domains):
        w[k, torch.arange(len(mine)), torch.as_tensor(mine)] = 1
    return w


def shuffled(domains: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """The same domains, dealt to the images at random."""
    mixed = np.random.RandomState(seed).permutation(np.concatenate(domains))
    return np.split(mixed, np.cumsum([len(g) for g in domains])[:-1])


def told(world: World, kind: str, seed: int) -> list[Tensor]:
    """Weights in training and at test: the truth, or domains at random."""
    both = (world.domains, world.train), (world.test_domains, world.test)
    return [one_hot(shuffled(domains, seed) if kind == "random" else domains, data) for domains, data in both]


# ---- algorithms ----


def student_of(world: World, kind: str = "flatten") -> DomainClassifier:
    """The student of found domains; "unused" is tiny, since nobody asks it where domains are known."""
    if kind == "unused":
        return DomainClassifier(world.network.image, 4, "pooled", (1,), (7,))
    return DomainClassifier(world.network.image, 4, kind, (8, 16), (2, 1))


def fedcg(
    world: World,
    student: DomainClassifier,
    kind: type[FedCG] = FedCGKnownDomains,
    net: type[DomainNet] = DomainNet,
    **settings: Any,
) -> FedCG:
    """FedCG on this world, with modules in the last layer."""
    network = net(world.network, 4, ("dense2",), student)
    return kind(loss_of(network), net=network, predict=network, **world.local, **settings)


def method(world: World, seed: int, arm: Arm | None, rounds: int, **em: Any) -> tuple[FedAvg | FedCG, Tensor | None]:
    """The algorithm of an arm, and the weights of the domains at test; None: as its student says."""
    if arm is None:
        return FedAvg(loss_of(world.network), predict=world.network, **world.local), None
    settings = {"told": "true", "weights": "teacher", **arm}
    who = settings.pop("told")
    if who == "true":
        w, w_test = told(world, who, seed)
        return fedcg(world, student_of(world, "unused"), teacher=lambda data, key: w, **settings), w_test
    if who == "as printed":
        each = max(1, rounds // 10)
        return fedcg(world, student_of(world, "pooled"), FedCG, refresh=each, warm_up=each), None
    return fedcg(world, student_of(world), teacher=partial(em_domains, domains=4, classes=10, **em), **settings), None


# ---- runs and their scores ----


def trained(world: World, seed: int, arm: Arm | None, rounds: int) -> tuple[dict[str, float], Any]:
    """The scores of an arm after so many rounds, and where it ended."""
    algorithm, w_test = method(world, seed, arm, rounds)
    start = (world.network if isinstance(algorithm, FedAvg) else algorithm.net).init(seed)
    with quiet():  # as printed the domains collapse
        end = fedlib.fit(algorithm, start, world.train, rounds, world.cohort, seed=seed, progress=False)
    right = right_answers(algorithm, end.state, world.test, w_test)
    return score(right, world.test, world.test_domains), end.state


def right_answers(algorithm: Any, state: Any, test: ClientData, w: Tensor | None) -> Tensor:
    """Whether each held-out image (K, N) gets the right class."""
    return outputs(algorithm, state, test, w).argmax(-1) == test.y


@torch.no_grad()
def outputs(algorithm: Any, state: Any, test: ClientData, w: Tensor | None) -> Tensor:
    """What each client's model says of its held-out images (K, N, classes), by the weights w or the student's."""
    params = algorithm.client_params(state, torch.arange(len(test)))
    params = {name: p.cpu() for name, p in params.items()}
    x = test.all_rows(next(iter(params.values())).dtype)[0]
    given = (w.to(x.dtype),) if w is not None and isinstance(algorithm, FedCG) else ()
    return torch.vmap(algorithm.predict)(params, x, *given)


def score(right: Tensor, test: ClientData, domains: Sequence[np.ndarray]) -> dict[str, float]:
    """Accuracy on all held-out images, and on those of the rarest domain."""
    hit = right[test.real].double().numpy()
    return {"accuracy": float(hit.mean()), "domain 3": float(hit[np.concatenate(domains) == 3].mean())}


@torch.no_grad()
def students_weights(algorithm: Any, state: Any, data: ClientData, prior: bool = True) -> Tensor:
    """What the student says of images, with or without the clients' own shares of the domains; 0 for padding."""
    params = algorithm.client_params(state, torch.arange(len(data)))
    params = {n: p.cpu() for n, p in params.items() if prior or n != "prior"}
    x, _, real = data.all_rows(next(iter(params.values())).dtype)
    return torch.vmap(algorithm.net.weights)(params, x) * (real > 0)[..., None]


# ---- preset full: parts that are kept ----


def turned(settings: Settings, seed: int, arm: Arm | None) -> dict[str, float]:
    """Domains that contradict each other."""
    return trained(turned_world(settings, seed), seed, arm, settings["rounds"])[0]


def styled(settings: Settings, seed: int, kind: str, arm: Arm | None) -> tuple[dict[str, float], Any]:
    """Domains that are alike, with few images, and known; and their graph."""
    scores, state = trained(styled_world(settings, seed, kind), seed, arm, settings["scarce rounds"])
    return scores, None if arm is None else state.adjacency.tolist()


def measure(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """All runs, seed by seed; a run is what is kept."""
    for kind in KINDS:
        images_of(kind)  # what is missing is said before the first run
    figures: dict[str, Any] = {}
    graphs = []
    for s in seeds_of(settings):
        for where, arms in (("turned", TURNED), (f"found, {settings['rounds']} rounds", FOUND)):
            for name, arm in arms.items():
                scores = keep(f"{where}: {name}, seed {s}", turned, settings, s, arm)
                enter(figures, s, {f"{where}: {name}": scores}, 4)
        for kind, (name, arm) in product(KINDS, STYLED.items()):
            scores, graph = keep(f"styles, {kind}: {name}, seed {s}", styled, settings, s, kind, arm)
            enter(figures, s, {f"styles, {kind}: {name}": scores}, 4)
            if (kind, name) == ("digits", "FedCG"):
                graphs.append(graph)
    return figures | {"adjacency": {"digits: FedCG": np.round(np.mean(graphs, 0), 3).tolist()}}


# ---- preset paper ----


def folder_of(name: str) -> Path | None:
    """Where CelebA or FEMNIST lies: in a folder of its own, or where LEAF puts it. None, and a line, if nowhere."""
    files = {"CelebA": ["identity_CelebA.txt", "list_attr_celeba.txt", "img_align_celeba"], "FEMNIST": ["train"]}[name]
    home = data_folder() / name.lower()
    for folder in (home, home / ("data/raw" if name == "CelebA" else "data")):
        if all((folder / file).exists() for file in files):
            return folder
    print(f"{name} is skipped: {home} must hold {', '.join(files)}", flush=True)
    return None


def printed(net: DomainNet, gcn: DomainGCN, rounds: int, **local: Any) -> dict[str, tuple[Any, Any]]:
    """FedAvg and FedCG as printed: network and algorithm of each."""
    plain, each = net.net, max(1, rounds // 10)

    def settings(network: Callable[..., Tensor]) -> dict[str, Any]:
        def loss(params: Params, batch: Sequence[Tensor], *w_d: Tensor) -> Tensor:
            x, y, real = batch
            padding = {"real": real} if isinstance(plain, CelebACNN) else {}
            return cross_entropy(network(params, x, *w_d, **padding), y, real)

        return {"loss": loss, "predict": network, "epochs": 1, **local}

    return {
        "FedAvg": (plain, FedAvg(**settings(plain))),
        "FedCG": (net, FedCG(net=net, gcn=gcn, refresh=each, warm_up=each, **settings(net))),
    }


def on_new_clients(
    name: str, net: DomainNet, gcn: DomainGCN, train: ClientData, test: ClientData, settings: Settings, seed: int
) -> dict[str, float]:
    """Accuracy of both methods on clients that were not in training; a run goes on from its checkpoint."""
    chunk = "auto" if torch.cuda.is_available() else 1
    how = {"lr": settings["lr"], "batch_size": settings["batch_size"], "chunk_size": chunk}
    out = {}
    for title, (network, algorithm) in printed(net, gcn, settings["rounds"], **how).items():
        path = checkpoints() / f"06_{name.lower()}_{title}_{seed}.safetensors"
        saved = {"seed": seed, "checkpoint": Checkpoint(path, every_seconds=600)}
        rounds, cohort = settings["rounds"], settings["cohort"]
        result = fedlib.fit(algorithm, network.init(seed), train, rounds, cohort, **saved)
        served = fedlib.new_clients(algorithm, result, test, seed=seed)
        if isinstance(net, CelebANet):  # as in LEAF, all photos of a client are one batch
            scores = scores_by_client(network, algorithm, served, test)
        else:
            scores = evaluation.evaluate(algorithm, served, test)
        out[title] = float(evaluation.pooled(scores)["accuracy"])
    (layer,) = net.layers
    return out | {"lambda": float(result.state.models[f"lam.{layer}"][0])}


def celeba_figures(settings: Settings, seed: int) -> dict[str, float]:
    """Smiling or not: 10 % of the celebrities train, 20 % test. W has 347 MB for each client of the cohort."""
    figures = faces.client_statistics(faces.identities(), min_rows=5)
    photos = faces.celeba_clients(fraction=tuple(settings["fraction"]), seed=seed)
    train = partition.by_user(photos.writer).clients(photos.x, photos.y, classes=2)
    test = partition.by_user(photos.writer_test).clients(photos.x_test, photos.y_test, classes=2)
    plain = CelebACNN()
    net = CelebANet(plain, settings["domains"], ("conv4",), DomainClassifier(plain.image, settings["domains"]))
    return figures | on_new_clients("CelebA", net, DomainGCN(), train, test, settings, seed)


def femnist_figures(arrays: datasets.Arrays, settings: Settings, seed: int) -> dict[str, float]:
    """Which of 62 characters: 60 % of the writers train, 20 % test. W has 1.3 GB for each client of the cohort."""
    parts = [(arrays.x, arrays.y, arrays.writer)]
    if arrays.x_test is not None:  # LEAF's own split does not matter
        parts.append((arrays.x_test, arrays.y_test, arrays.writer_test))
    x, y, writer = (np.concatenate(part) for part in zip(*parts, strict=True))
    people = partition.by_user(writer).clients(x, y, classes=62)
    train, _, test = (  # the second part is for validation, and nothing is chosen here
        people[torch.isin(people.id, torch.from_numpy(group))]
        for group in faces.split_users(writer, tuple(settings["fraction"]), seed=seed)
    )
    student = DomainClassifier((1, 28, 28), settings["domains"])
    net = DomainNet(models.femnist_cnn(), settings["domains"], ("conv2",), student)
    gcn = DomainGCN("bottleneck", factor=settings["factor"])
    figures = faces.client_statistics(writer, 1)
    return figures | on_new_clients("FEMNIST", net, gcn, train, test, settings, seed)


def measure_paper(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """CelebA and FEMNIST, as far as they are here."""
    folders = {name: folder_of(name) for name in ("CelebA", "FEMNIST")}
    if not any(folders.values()):
        raise FileNotFoundError("neither CelebA nor FEMNIST is here, and the book may not ship them")
    figures, seed = {}, settings["seed"]
    if folders["CelebA"]:
        figures["CelebA"] = keep("CelebA", celeba_figures, settings["CelebA"], seed)
    if femnist := folders["FEMNIST"]:
        figures["FEMNIST"] = keep("FEMNIST", femnist_figures, datasets.leaf(femnist), settings["FEMNIST"], seed)
    return figures


# ---- probes ----


def generated(count: int, shape: tuple[int, int, int], classes: int) -> Images:
    """Random images, each class a little brighter than the one before."""
    draw, y = np.random.RandomState(0), np.arange(count) % classes
    x = draw.randint(0, 160, (count, *shape)) + (90 * y // classes)[:, None, None, None]
    return Images(x.astype(np.uint8).view(Pixels), y.astype(np.int64))


def traced(algorithm: Any, start: Params, train: ClientData, test: ClientData, w_test: Tensor | None) -> list[float]:
    """What two rounds compute; then what is answered to held-out images, and what a student says of them."""
    with quiet():
        result = fedlib.fit(algorithm, start, train, 2, len(train) // 2, **EXACT)
    answers = outputs(algorithm, result.state, test, w_test)
    numbers = running.numbers_of(algorithm, result)
    numbers += [float(answers.square().mean()), float(answers.logsumexp(-1).mean())]
    if isinstance(algorithm, FedCG):
        numbers += students_weights(algorithm, result.state, test).square().mean((0, 1)).tolist()
    return numbers


def sums_of(data: ClientData, domains: Iterable[np.ndarray]) -> list[float]:
    """Which images a federation has, in which order, and of which domains."""
    x, y, real = data.all_rows(torch.float64)
    place = real * torch.linspace(0, 1, real.numel(), dtype=torch.float64).reshape(real.shape)
    pixel = torch.linspace(0, 1, x[0, 0].numel(), dtype=torch.float64)
    mixed = np.concatenate(list(domains))
    means = ((x.flatten(2) @ pixel) * place).mean(), (y * place).mean(), (mixed * np.linspace(0, 1, len(mixed))).mean()
    return [float(mean) for mean in means]


def uneven(world: World) -> World:
    """The world with some clients' last images left out, so that means must be weighted."""
    less = torch.arange(len(world.train)) % 4
    domains = [g[: len(g) - int(few)] for g, few in zip(world.domains, less, strict=True)]
    return replace(world, train=replace(world.train, n=world.train.n - less), domains=domains)


def probe() -> running.Probe:
    """Two rounds of each arm on a small network and eight clients with generated images."""
    images = generated(250, (1, 8, 8), 10)
    network = models.CNN((1, 8, 8), (2, 2), (4, 10), 3, 1, pool=1, strides=(2, 2))
    settings = SETTINGS | {"train": 72, "test": 40, "clients": 8, "scarce clients": 8, "scarce test": 40}
    settings["scarce"] = SETTINGS["scarce"] | {"epochs": 2}
    turned = uneven(turned_world(settings, 0, images=images, network=network))
    styled = uneven(styled_world(settings, 0, "digits", images, network))
    numbers = {
        "world: turned": sums_of(turned.train, turned.domains) + sums_of(turned.test, turned.test_domains),
        "world: styles": sums_of(styled.train, styled.domains) + sums_of(styled.test, styled.test_domains),
    }
    arms = {f"turned: {name}": (turned, arm) for name, arm in TURNED.items()}
    arms |= {f"styles: {name}": (styled, arm) for name, arm in STYLED.items()}
    arms |= {f"found: {name}": (turned, arm) for name, arm in FOUND.items() if arm is not None}
    em = {"features": lambda x: x.flatten(1)[:, ::4], "dtype": torch.float64}  # its random view is in float32
    for name, (world, arm) in arms.items():
        early = arm if arm is None else {"warm_up": 1, **arm}  # A is computed after round 1
        algorithm, w_test = method(world, 0, early, 2, **em)
        start = (network if arm is None else algorithm.net).init(0)
        numbers[name] = traced(algorithm, start, world.train, world.test, w_test)
    view = RandomFeatures((1, 8, 8), 0, size=8)(torch.from_numpy(images.x[:20] / 255).float())
    numbers["EM: random view"] = (view.double().square().mean(0) / 100).tolist()  # float32: rounding does not count
    return numbers


def probe_paper() -> running.Probe:
    """Two rounds of both methods on small networks and six clients with generated images."""
    students = [DomainClassifier(image, 2, "pooled", (2, 2)) for image in ((3, 16, 16), (1, 8, 8))]
    portraits = CelebANet(CelebACNN((3, 16, 16), filters=2), 2, ("conv4",), students[0])
    characters = DomainNet(models.CNN((1, 8, 8), (2, 2), (4, 4)), 2, ("conv2",), students[1])
    both = {"CelebA": (portraits, DomainGCN(), 2), "FEMNIST": (characters, DomainGCN("bottleneck", factor=4), 4)}
    numbers = {}
    for name, (net, gcn, classes) in both.items():
        x, y = generated(60, net.net.image, classes)
        data = partition.iid(y[:57], 6, 0).clients(x[:57], y[:57])
        for title, (own, algorithm) in printed(net, gcn, 2, lr=0.1, batch_size=5).items():
            with quiet():
                numbers[f"{name}: {title}"] = running.trace(algorithm, own.init(0), data, 2, 3)
    return numbers


SETTINGS: dict[str, Any] = {"seeds": 5, "seed": 100, "rounds": 100, "scarce rounds": 100}
SETTINGS |= {"train": 4000, "test": 1000, "clients": 40, "conflict": {"lr": 0.1, "batch_size": 20, "epochs": 1}}
SETTINGS |= {"scarce clients": 60, "scarce test": 2000, "scarce": {"lr": 0.1, "batch_size": 10, "epochs": 5}}
BOTH = {"lr": 1e-3, "domains": 4}
PAPER = {
    "seed": 0,
    "CelebA": BOTH | {"rounds": 100, "cohort": 10, "batch_size": 5, "fraction": [0.1, 0.2]},
    "FEMNIST": BOTH | {"rounds": 1000, "cohort": 5, "batch_size": 10, "fraction": [0.6, 0.2, 0.2], "factor": 16},
}


PRESETS = {
    "full": running.Experiment("fedcg_graph", SETTINGS, measure, probe, data=("mnist5k", "fashion_mnist")),
    "paper": running.Experiment("fedcg_graph_paper", PAPER, measure_paper, probe_paper),
}
