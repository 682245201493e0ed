"""Clustered federated learning on toys: when lengths make it cut, what noise does to cosines, and three ways to cut.

Three studies, each with ten seeds.

- *Toys*: eight clients in two clusters, XOR or contradictory labels, a linear model or eight hidden units; FedAvg, CFL
  with relative lengths, and the first half of that rule.
- *Noise*: ten clients at the exact stationary point of the squared error, with 8 to 256 examples each: how often each
  linkage finds the true clusters, and the mean cosine inside them.
- *Linkages*: how often single (exact), complete and average linkage find the true clusters.

Preset ``full`` takes about four minutes on one core. ``paper`` has five times as many draws; the paper itself gives
pictures of its toys, and no numbers.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

import fedlib
from book.experiments import running
from book.experiments.cfl_variants import RELATIVE, RelativeCFL
from book.experiments.worlds import ON_CPU, Rows, by_seed, loss_of, rounded
from fedlib import ClientData, Key, models, statistics
from fedlib.params import norm
from fedlib.server.clusters import Bipartition, bipartition

KINDS = ("XOR", "diverging conditionals")
HIDDEN = {"linear": (2, 2), "8 hidden units": (2, 8, 2)}
LENGTHS = {"eps1": 0.15, "eps2": 0.4}  # of the rule that the chapter looks into
METHODS: dict[str, dict[str, Any]] = {"FedAvg": {"eps1": 0}, RELATIVE: LENGTHS}
LOCAL = {"lr": 0.2, "batch_size": 90, "epochs": 1}
SIZE = (440, 360)  # examples of a client, by cluster
PLANTED = np.repeat([0, 1], 4)
EXAMPLES = (8, 16, 32, 64, 128, 256)
LINKAGES = ("exact", "complete", "average")
NOISE = (0.5, 1.0, 1.5, 2.0, 3.0)
PLANTED10 = np.repeat([0, 1], 5)


def toy(kind: str, seed: int, size: tuple[int, int] = SIZE, spread: float = 0.72) -> tuple[list, list]:
    """Inputs and labels of each client: two blobs, 2 to the left and 2 to the right; clusters contradict each other."""
    random = np.random.RandomState(seed)
    xs, ys = [], []
    for g in PLANTED:
        y = np.arange(size[g]) % 2
        across = np.where(y == 1, 2, -2) * (1 - 2 * g)  # the other way round
        # of XOR the first cluster is above and the second below; otherwise both are everywhere
        up = np.full(len(y), 2 - 4 * g) if kind == "XOR" else random.choice([-2, 2], len(y))
        x = np.stack([across, up], 1) + spread * random.randn(len(y), 2)
        xs.append(x.astype(np.float32))
        ys.append(y)
    return xs, ys


def clients_of(kind: str, seed: int, size: tuple[int, int] = SIZE) -> ClientData:
    """The federation of a toy."""
    return fedlib.stack_clients(*toy(kind, seed, size))


def algorithm_of(hidden: str, **settings: Any) -> tuple[RelativeCFL, models.MLP]:
    """CFL with relative lengths, and a network for the toys."""
    model = models.MLP(HIDDEN[hidden])
    return RelativeCFL(loss_of(model), predict=model, **LOCAL | settings), model


def run(kind: str, hidden: str, seed: int, rounds: int, **settings: Any) -> fedlib.Result:
    """One federation, tested on new draws."""
    algorithm, model = algorithm_of(hidden, **settings)
    tested = {"eval_data": clients_of(kind, seed + 1_000_000), "eval_every": 10}
    data, start = clients_of(kind, seed), model.init(seed)
    return fedlib.fit(algorithm, start, data, rounds, seed=seed, **tested, **ON_CPU)


def toys(rounds: int, seed: int) -> Rows:
    """Accuracies and cuts for both toys and both networks, and for the rule without its second condition."""
    found: Rows = {}
    cases = {f"{kind}, {hidden}": (kind, hidden, METHODS) for kind, hidden in itertools.product(KINDS, HIDDEN)}
    cases["XOR, 8 hidden units, eps2=0"] = "XOR", "8 hidden units", {RELATIVE: LENGTHS | {"eps2": 0}}
    for case, (kind, hidden, methods) in cases.items():
        runs = {name: run(kind, hidden, seed, rounds, **settings) for name, settings in methods.items()}
        state = runs[RELATIVE].state
        row: dict[str, float] = {name: r.history["test_accuracy"].iloc[-1] for name, r in runs.items()}
        row["splits"] = len(state.splits)
        if state.splits:
            row["true clusters"] = statistics.cluster_scores(PLANTED, state.assignment)["ari"] == 1
        found[case] = row
    return rounded(found)


def noisy_xor(random: np.random.RandomState, n: int, extra: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (clients, n, features) and labels -1, 1 of ten clients; most inputs are pure noise."""
    y = random.choice([-1.0, 1.0], (10, n))
    side = 1.0 - 2 * PLANTED10[:, None]
    x = 0.7 * np.stack([y * side, np.broadcast_to(side, y.shape)], -1)
    x = x + 0.72 * random.randn(10, n, 2)
    return np.concatenate([x, random.randn(10, n, extra), np.ones((10, n, 1))], -1), y


def gradients_at_rest(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Gradient of each example (clients, n, features) where their mean is 0."""
    theta = np.linalg.lstsq(x.reshape(-1, x.shape[-1]), y.reshape(-1), rcond=None)[0]
    return (x @ theta - y)[..., None] * x


def cosine_matrix(vectors: np.ndarray) -> np.ndarray:
    """Cosines of all pairs of rows."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def noise_study(draws: int, seed: int, many: int = 4000, sizes: Sequence[int] = EXAMPLES) -> Rows:
    """For each number of examples: the mean cosine inside clusters, and how often each linkage finds the clusters."""
    random, rows = np.random.RandomState(seed), {}
    within = (PLANTED10[:, None] == PLANTED10) & ~np.eye(10, dtype=bool)
    noisy_xor(random, many)  # not used; the stored figures are of the draws that follow these
    for n in sizes:
        alphas = [cosine_matrix(gradients_at_rest(*noisy_xor(random, n)).mean(1)) for _ in range(draws)]
        row = {"within": np.mean([alpha[within].mean() for alpha in alphas])}
        for method in LINKAGES:
            parts = [bipartition(alpha, method).assignment.numpy() for alpha in alphas]
            row[method] = np.mean([(part == PLANTED10).all() for part in parts])
        rows[f"{n} examples"] = row
    return rounded(rows)


def linkage_draws(random: np.random.RandomState, noise: float, draws: int) -> list[dict[str, Bipartition]]:
    """What each linkage makes of noisy updates."""
    found = []
    for _ in range(draws):
        vectors = noise * random.randn(10, 20) / np.sqrt(20)
        vectors[:, 0] += 1 - 2 * PLANTED10
        alpha = cosine_matrix(vectors)
        found.append({method: bipartition(alpha, method) for method in LINKAGES})
    return found


def linkage_study(draws: int, seed: int) -> Rows:
    """For each linkage and amount of noise: share of draws with the true clusters, and with one client apart."""
    random, rows = np.random.RandomState(seed), {}
    for noise in NOISE:
        found = linkage_draws(random, noise, draws)
        for method in LINKAGES:
            parts = [draw[method].assignment.numpy() for draw in found]
            rows[f"{method}, noise {noise}"] = {
                "true clusters": np.mean([(part == PLANTED10).all() for part in parts]),
                "one client apart": np.mean([part.sum() in (1, 9) for part in parts]),
            }
    return rounded(rows)


def measure(settings: dict[str, Any], keep: running.Keep) -> dict[str, Any]:
    """All three studies, seed by seed."""
    figures = by_seed(settings, keep, "toys", toys, settings["rounds"])
    figures |= by_seed(settings, keep, "noise", noise_study, settings["draws"])
    return figures | by_seed(settings, keep, "linkages", linkage_study, settings["draws"])


def probe() -> running.Probe:
    """Small toys for two rounds, with a cut after the first where the rule cuts; a few draws of the other studies."""
    found = {}
    sooner = LENGTHS | {"rest": 1, "eps1": 9.0}  # the mean is short at once; the second condition is left to decide
    for kind, hidden in itertools.product(KINDS, HIDDEN):
        data = clients_of(kind, 0, size=(22, 18))
        for name, settings in {**METHODS, RELATIVE: sooner, "first condition only": sooner | {"eps2": 0}}.items():
            algorithm, model = algorithm_of(hidden, batch_size=9, **settings)
            start = {name: p.double() for name, p in model.init(0).items()}
            states = {0: algorithm.init(start, data, Key(0))}
            watch = {"callbacks": [lambda t, state, _, states=states: states.update({t: state})]}
            result = fedlib.fit(algorithm, start, data, 2, seed=0, device="cpu", progress=False, **watch)
            numbers = running.numbers_of(algorithm, result)
            for cut in result.state.splits:  # what the criterion and Equation 6 saw
                t, cluster, mean = result.state.norms.T[:3]
                before = states[cut.round - 1]  # the same updates once more, for their lengths
                again = algorithm.train(before, data[cut.members], cut.members, Key(0, cut.round))
                numbers += [float(mean[(t == cut.round) & (cluster == cut.model)])]
                numbers += [float(norm(again.per_client["update"]).sum())]
                numbers += [float((cut.similarity**2).sum()), cut.objective]
            found[f"{kind}, {hidden}, {name}"] = numbers
    standard = algorithm_of("linear", **LENGTHS)[0]
    found["default rule"] = [standard.eps1, standard.eps2, standard.rest, standard.min_size]
    for method in LINKAGES:
        cuts = linkage_draws(np.random.RandomState(0), 2.0, 5)
        found[f"{method} linkage"] = [draw[method].objective for draw in cuts]
    return found | {"noise": [row["within"] for row in noise_study(2, 0, many=100, sizes=(16, 64)).values()]}


SETTINGS = {"rounds": 100, "draws": 200, "seeds": 10, "seed": 0}

PRESETS = {
    "full": running.Experiment("cfl_geometry", SETTINGS, measure, probe),
    "paper": running.Experiment("cfl_geometry_paper", SETTINGS | {"draws": 1000}, measure, probe),
}
