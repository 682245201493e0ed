"""Do personal models need clusters? FedAvg, its fine-tuning, Ditto, FedRep, split-half CFL, IFCA and FedEM compared.

Three federations of handwriting at 14 x 14 pixels: label skew, groups with names of their own for the digits, and
writers of FEMNIST with its 62 classes. In each, a method chooses among three learning rates by the validation images of
a seed of its own (of writers: of people who are in no other seed), and among three values of its own setting (epochs of
fine-tuning, Ditto's lam, ...) by those of each of five other seeds. Fine-tuning chooses a second rate, that of the
epochs at home, from the same three, together with that of the training.
All methods have the same clients, all of them in every round, and the same rounds and local epochs.

Preset ``full`` has label skew, and names; ``writers`` needs femnist300, see `fedlib.datasets`. ``longer`` asks of the
same writers what three times the rounds change, and a longer list of rates for the epochs at home.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

import fedlib
from book.experiments import running
from book.experiments.cfl_variants import OURS, SteppedSplitHalfCFL
from book.experiments.worlds import EXACT, enter, loss_of, rounded, small_characters, small_digits
from fedlib import Algorithm, ClientData, Key, Result, evaluation, models, partition, statistics
from fedlib.algorithms import IFCA, Ditto, FedAvg, FedEM, FedRep, FineTunedFedAvg, LGFedAvg, LocalOnly
from fedlib.algorithms.fedem import Mixture
from fedlib.algorithms.local_only import LocalOnlyState
from fedlib.params import broadcast
from fedlib.params import row as row_of

SETTINGS: dict[str, Any] = {
    "worlds": ["label skew", "label names"],
    "tests of a class": 50,  # of the test with all classes
    "parts": [0.5, 0.2, 0.3],  # of each client's digits: training, validation, test
    "rest": 10,  # rounds between tests of split-half CFL, in place of 20, since there are few rounds
    "min_size": 2,  # of split-half CFL too
}
SETTINGS |= {"clients": 36, "new clients": 14, "rounds": 50, "epochs": 2, "batch_size": 20, "epochs of new clients": 10}
SETTINGS |= {"rates": [0.1, 0.3, 0.9], "seed that chooses rates": 9, "seeds": [0, 1, 2, 3, 4]}
WRITERS = SETTINGS | {"worlds": ["writers"], "clients": 60, "new clients": 30, "tests of a class": 10}
WRITERS |= {"clients of the seed that chooses": 45}
LONGER = WRITERS | {"rounds": 150, "rates at home": [0.9, 0.3, 0.1, 0.03]}
LONGER |= {"rate": 0.9, "IFCA": 4}  # what `WRITERS` chose for both methods, and clusters
TUNED = "FedAvg, fine-tuned"
EPOCHS = (1, 3, 10)  # of fine-tuning
OWN: dict[str, tuple[str, tuple[float, ...]]] = {  # a method's own setting, and what validation chooses from
    TUNED: ("epochs", EPOCHS),
    "Ditto": ("lam", (0.01, 0.1, 1.0)),
    "FedRep": ("head_epochs", (1, 3, 10)),
    OURS: ("level", (1e-4, 0.02, 0.3)),
    "IFCA": ("clusters", (2, 4, 8)),
    "FedEM": ("components", (2, 3, 4)),
}
USUAL = {"Ditto": 0.1, "FedRep": 3, OURS: 0.02, "IFCA": 4, "FedEM": 3}  # while the rate is chosen
KINDS = {"Ditto": Ditto, "FedRep": FedRep, OURS: SteppedSplitHalfCFL, "IFCA": IFCA, "FedEM": FedEM}
METHODS = ("alone", "FedAvg", *OWN)
GROUPS = 4
MIN_ROWS = 100  # of a writer

Settings = dict[str, Any]
Scores = dict[str, float]

model, model_of_characters = models.MLP((196, 32, 10)), models.MLP((196, 64, 62))
mixture = Mixture(model)  # of either: the parameters say how wide it is
loss = loss_of(mixture)
ALONE = LocalOnly(loss, predict=mixture)  # scores models that clients hold


# ---- the clients ----


@dataclass(frozen=True)
class World:
    """A federation: three parts of the digits of its clients, a test with all classes, and clients that come later."""

    train: ClientData
    validation: ClientData
    test: ClientData
    everything: ClientData
    new: ClientData
    new_test: ClientData
    group: np.ndarray | None = None
    new_group: np.ndarray | None = None
    model: models.MLP = model


def equal_shares(y: np.ndarray, each: int, seed: int) -> np.ndarray:
    """Rows drawn at random, `each` of every class."""
    order = np.random.RandomState(seed).permutation(len(y))
    return np.sort(np.concatenate([order[y[order] == c][:each] for c in np.unique(y)]))


def world_of(
    dealt: partition.Partition, x: np.ndarray, y: np.ndarray, held: np.ndarray, known: int, parts: Any, seed: int
) -> World:
    """The first clients of a partition of some digits, those that come later, and a test with the `held` digits."""
    train, validation, test = (part.clients(x, y, classes=10) for part in dealt.split(parts, seed))
    old, new = torch.arange(known), torch.arange(known, len(dealt.rows))
    everything = dealt.tests(*(digits[held] for digits in small_digits()), classes=10)[old]
    groups = () if dealt.change is None else (dealt.group[:known], dealt.group[known:])
    return World(train[old], validation[old], test[old], everything, train[new], test[new], *groups)


def dealt_world(settings: Settings, kind: str, seed: int) -> World:
    """Digits of mnist5k: some for a test with all classes, all others dealt to clients, the last of whom come later."""
    x, y = small_digits()
    held = equal_shares(y, settings["tests of a class"], seed)
    rest = np.setdiff1d(np.arange(len(y)), held)
    x, y, everybody = x[rest], y[rest], settings["clients"] + settings["new clients"]
    if kind == "label skew":
        dealt = partition.dirichlet(y, everybody, alpha=0.1, seed=seed, min_rows=10, attempts=5000)
    else:
        dealt = partition.label_permutation(partition.iid(y, everybody, seed), GROUPS, seed=seed)
    return world_of(dealt, x, y, held, settings["clients"], settings["parts"], seed)


def world_of_writers(settings: Settings, seed: int) -> World:
    """Writers who wrote enough: some known, some who come later, and all others, who wrote the test of all classes.

    The seed that chooses rates has people of its own.
    """
    x, y, writer = small_characters()
    everybody, written = np.unique(writer, return_counts=True)
    people = np.random.RandomState(0).permutation(everybody[written >= MIN_ROWS])
    mine = settings["clients of the seed that chooses"]
    if seed == settings["seed that chooses rates"]:
        people, known = people[:mine], mine * settings["clients"] // (settings["clients"] + settings["new clients"])
    else:
        people, known = np.random.RandomState(seed + 1).permutation(people[mine:]), settings["clients"]
    later = min(len(people), known + settings["new clients"])
    groups = people[:known], people[known:later], people[later:] if len(people) > later else people[known:]
    old, new, others = (np.flatnonzero(np.isin(writer, group)) for group in groups)
    parts = {}
    for name, rows in (("old", old), ("new", new)):
        dealt = partition.by_user(writer[rows]).split(settings["parts"], seed)
        parts[name] = [part.clients(x[rows], y[rows], classes=62) for part in dealt]
    held = others[equal_shares(y[others], settings["tests of a class"], seed)]
    everything = partition.by_user(writer[old]).tests(x[held], y[held], classes=62)
    return World(*parts["old"], everything, parts["new"][0], parts["new"][2], model=model_of_characters)


@lru_cache(maxsize=2)
def world_by_key(key: str, kind: str, seed: int) -> World:
    """`world`, once."""
    settings = json.loads(key)
    return world_of_writers(settings, seed) if kind == "writers" else dealt_world(settings, kind, seed)


def world(settings: Settings, kind: str, seed: int) -> World:
    """The federation of a kind that a seed draws."""
    return world_by_key(json.dumps(settings), kind, seed)


# ---- one run ----


class Tuning(NamedTuple):
    """A learning rate, a method's own setting, and for fine-tuned FedAvg the rate at home."""

    rate: float
    own: float | None = None
    at_home: float | None = None


def algorithm_of(settings: Settings, here: World, name: str, tuning: Tuning) -> Algorithm:
    """A method with its settings."""
    how = {"lr": tuning.rate, "predict": mixture, "batch_size": settings["batch_size"], "epochs": settings["epochs"]}
    if name == TUNED:
        more = {"fedavg_rounds": settings["rounds"], "finetune_epochs": 1, "finetune_lr": tuning.at_home}
        return FineTunedFedAvg(loss, **more, **how)
    if name == "true groups":
        assert here.group is not None
        return LGFedAvg(loss, local=(), assignment=here.group.tolist(), **how)
    if name in OWN and tuning.own is not None:
        how[OWN[name][0]] = tuning.own
    if name == OURS:
        how |= {"every": settings["rest"], "min_size": settings["min_size"]}
    return {"alone": LocalOnly, "FedAvg": FedAvg, **KINDS}[name](loss, **how)


def enrolled(settings: Settings, here: World, name: str, algorithm: Algorithm, result: Result, own: float) -> Result:
    """The new clients, by the rule of each method; those of true groups get the model of theirs."""
    if name == "true groups":
        group = torch.from_numpy(here.new_group).to(result.ids.device)
        return Result(replace(result.state, assignment=group), here.new.id, result.history)
    most = settings["epochs of new clients"]
    rounds = {"alone": settings["rounds"], "Ditto": most // settings["epochs"], TUNED: own}.get(name, most)
    if name == "FedRep":
        rounds = most // own
    return fedlib.new_clients(algorithm, result, here.new, rounds=max(1, int(rounds)))


def finetuned(algorithm: Algorithm, result: Result, data: ClientData, seed: int, rate: float) -> dict[int, Result]:
    """Each client trains the model that it holds at home: by the number of epochs."""
    alone = LocalOnly(loss, lr=rate, batch_size=algorithm.batch_size, epochs=1, predict=mixture)
    data, found = data.to(result.ids.device), {}
    params = algorithm.client_params(result.state, torch.arange(len(data), device=result.ids.device))
    for t in range(1, max(EPOCHS) + 1):
        params = alone.local_training(params, data, Key(seed, t)).params
        if t in EPOCHS:
            found[t] = Result(LocalOnlyState(params, broadcast(row_of(params, 0), 1)), data.id, result.history)
    return found


def scores_of(here: World, algorithm: Algorithm, result: Result, new: Result) -> Scores:
    """Accuracy on the clients' own digits, on all classes, and of new clients: means over clients."""
    own = fedlib.evaluate(algorithm, result, here.test)
    return {
        "own": statistics.summary(own)["mean"],
        "worst decile": statistics.summary(own)["worst decile"],
        "all classes": float(fedlib.evaluate(algorithm, result, here.everything)["accuracy"].mean()),
        "new": float(fedlib.evaluate(algorithm, new, here.new_test)["accuracy"].mean()),
        "validation": float(fedlib.evaluate(algorithm, result, here.validation)["accuracy"].mean()),
    }


def trained(
    settings: Settings, here: World, name: str, seed: int, tuning: Tuning, **more: Any
) -> tuple[Algorithm, dict[int, Result], Tuning]:
    """A method's results, by epochs of fine-tuning (0: none), and its rates: a third of both where it diverged."""
    algorithm, kept = algorithm_of(settings, here, name, tuning), {}

    def keep_state(t: int, state: Any, record: dict[str, Any]) -> None:
        if t - settings["rounds"] in EPOCHS:
            kept[t - settings["rounds"]] = state

    rounds = settings["rounds"] + (max(EPOCHS) if name == TUNED else 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # CFL that tests no cluster
            how = {"seed": seed, "progress": False, "callbacks": [keep_state], **more}
            end = fedlib.fit(algorithm, here.model.init(seed), here.train, rounds, **how)
    except FloatingPointError:
        rate, own, at_home = tuning
        return trained(settings, here, name, seed, Tuning(rate / 3, own, at_home and at_home / 3), **more)
    if not kept:
        return algorithm, {0: end}, tuning
    by_epochs = {e: Result(s, end.ids, end.history.head(settings["rounds"] + e)) for e, s in kept.items()}
    return algorithm, by_epochs, tuning


def arm(settings: Settings, kind: str, name: str, seed: int, tuning: Tuning) -> dict[str, Scores]:
    """The scores of a run; of fine-tuned FedAvg by epochs."""
    here = world(settings, kind, seed)
    algorithm, results, used = trained(settings, here, name, seed, tuning)
    rows = {}
    for epochs, result in results.items():
        new = enrolled(settings, here, name, algorithm, result, epochs or tuning.own or 0)
        at_home = {} if used.at_home is None else {"rate at home": used.at_home}
        found = scores_of(here, algorithm, result, new) | {"rate": used.rate} | at_home
        rows[f"epochs {epochs}" if epochs else "as trained"] = found
    return rounded(rows, 5)


def chosen(settings: Settings, kind: str, name: str, rate: float) -> tuple[World, Algorithm, Result]:
    """The federation of the seed that chooses rates, and a method's run in it."""
    seed = settings["seed that chooses rates"]
    here = world(settings, kind, seed)
    algorithm, results, _ = trained(settings, here, name, seed, Tuning(rate, USUAL.get(name)))
    return here, algorithm, results[0]


def validated(settings: Settings, kind: str, name: str, rate: float) -> float:
    """Accuracy on the validation digits of the seed that chooses rates."""
    here, algorithm, result = chosen(settings, kind, name, rate)
    return round(float(evaluation.evaluate(algorithm, result, here.validation)["accuracy"].mean()), 5)


def validated_at_home(settings: Settings, kind: str, name: str, rate: float) -> dict[str, float]:
    """The same of models that clients have fine-tuned for the best number of epochs, by the rate at home."""
    here, algorithm, result = chosen(settings, kind, name, rate)
    found = {}
    for at_home in settings["rates"]:
        tuned = finetuned(algorithm, result, here.train, settings["seed that chooses rates"], at_home).values()
        scores = [evaluation.evaluate(ALONE, end, here.validation)["accuracy"].mean() for end in tuned]
        found[str(at_home)] = round(float(max(scores)), 5)
    return found


# ---- the experiment ----


def best(rows: Mapping[Any, Scores]) -> Any:
    """The row of the highest accuracy on validation digits."""
    return max(rows, key=lambda row: rows[row]["validation"])


def fine_tuned_row(by_epochs: Mapping[str, Scores]) -> Scores:
    """Clients with the epochs that validation chooses; new ones with the most, as many as other methods give them."""
    choice = best(by_epochs)
    most = max(by_epochs, key=lambda row: float(row.split()[-1]))
    return {**by_epochs[choice], "new": by_epochs[most]["new"], "epochs": float(choice.split()[-1])}


def rows_of_seed(
    settings: Settings, keep: running.Keep, kind: str, seed: int, rates: Mapping[str, float], at_home: float | None
) -> Any:
    """The rows of the figures of one federation and seed, of the methods that have a rate."""
    rows: dict[str, Scores] = {}
    for name, rate in rates.items():
        part, needs = f"{kind}, seed {seed}: {name}", depends_on(kind, name)
        if name == TUNED:  # one run has all epochs
            how = settings, kind, name, seed, Tuning(rate, None, at_home)
            rows[name] = fine_tuned_row(keep(part, arm, *how, arms=needs))
            continue
        tried, (what, values) = {}, OWN.get(name, ("", (None,)))
        for value in values:
            label = part if value is None else f"{part}, {what} {value:g}"
            tried[value] = keep(label, arm, settings, kind, name, seed, Tuning(rate, value), arms=needs)["as trained"]
        choice = best(tried)
        rows[name] = tried[choice] | ({what: float(choice)} if what else {})
    return rows


def depends_on(kind: str, name: str) -> tuple[str, ...]:
    """The arms of the probe on which a method's figures depend: itself, and who holds what."""
    return (name, kind) if kind in SETTINGS["worlds"] else (name,)


def chosen_rates(
    settings: Settings, keep: running.Keep, kind: str, name: str, needs: Sequence[str]
) -> tuple[float, float | None]:
    """The rate of a method, and that at home of fine-tuning."""
    rates, part = settings["rates"], f"{kind}: {name}"
    if name == TUNED:
        pairs = {}
        for rate in rates:
            tuned = keep(f"{part} at {rate}", validated_at_home, settings, kind, "FedAvg", rate, arms=needs)
            pairs |= {(rate, float(at_home)): score for at_home, score in tuned.items()}
        return max(pairs, key=pairs.__getitem__)
    tried = {r: keep(f"{part} at {r}", validated, settings, kind, name, r, arms=needs) for r in rates}
    return max(tried, key=tried.__getitem__), None


def measure(settings: Settings, keep: running.Keep, arms: Sequence[str]) -> dict[str, Any]:
    """Choose rates, then run: federation -> row -> score -> seed; ``rates``, and ``rates at home``."""
    figures: dict[str, Any] = {"rates": {}, "rates at home": {}}
    for kind in settings["worlds"]:
        rates, at_home = figures["rates"].setdefault(kind, {}), None
        for name in METHODS + ("true groups",) * (kind == "label names"):
            needs = depends_on(kind, name)
            if set(needs) & set(arms):
                rates[name], second = chosen_rates(settings, keep, kind, name, needs)
                if second is not None:
                    at_home = figures["rates at home"].setdefault(kind, {})[name] = second
        figures[kind] = {}
        for seed in settings["seeds"]:
            enter(figures[kind], seed, rows_of_seed(settings, keep, kind, seed, rates, at_home))
    return figures


# ---- preset longer ----


def longer(settings: Settings, name: str, seed: int) -> dict[str, Scores]:
    """A method's scores, and those after epochs at home: by rate and number of epochs."""
    here = world(settings, "writers", seed)
    algorithm, results, _ = trained(settings, here, name, seed, Tuning(settings["rate"], settings.get(name)))
    new = enrolled(settings, here, name, algorithm, results[0], 0)
    rows = {"as trained": scores_of(here, algorithm, results[0], new)}
    for rate in settings["rates at home"]:
        known = finetuned(algorithm, results[0], here.train, seed, rate)
        later = finetuned(algorithm, new, here.new, seed, rate)
        rows |= {f"rate {rate:g}, epochs {e}": scores_of(here, ALONE, known[e], later[e]) for e in EPOCHS}
    return rounded(rows, 5)


def measure_longer(settings: Settings, keep: running.Keep) -> dict[str, Any]:
    """FedAvg and IFCA: at home with the training's rate and with the rate and epochs that validation chooses."""
    figures: dict[str, Any] = {}
    for seed in settings["seeds"]:
        for name in ("FedAvg", "IFCA"):
            tried = keep(f"{name}, seed {seed}", longer, settings, name, seed)
            home = {row: scores for row, scores in tried.items() if row != "as trained"}
            same = {row: scores for row, scores in home.items() if row.startswith(f"rate {settings['rate']:g},")}
            rows = {name: tried["as trained"], f"{name}, fine-tuned": home[best(home)]}
            rows |= {f"{name}, fine-tuned at the same rate": same[best(same)]}
            rows |= {f"{name}, {row}": scores for row, scores in home.items()}
            enter(figures, seed, rows)
    return {"writers": figures}


def probe_longer() -> running.Probe:
    """Two rounds, and an epoch at home at another rate."""
    settings, here = small()
    found = {}
    for name, own in (("FedAvg", None), ("IFCA", 2)):
        algorithm, results, _ = trained(settings, here, name, 0, Tuning(0.3, own), **EXACT)
        at_home = finetuned(algorithm, results[0], here.train, 0, 0.05)[1]
        found[name] = running.numbers_of(algorithm, results[0]) + running.scores_of(ALONE, at_home, here.test)
    return found


def small() -> tuple[Settings, World]:
    """A federation of six clients and two that come later, of unequal sizes and with two groups, and its settings."""
    settings = SETTINGS | {"rounds": 2, "rest": 1, "min_size": 1, "epochs of new clients": 2}
    x, y = (part[np.arange(0, 5000, 25)] for part in small_digits())
    dealt = partition.by_user(np.repeat(np.arange(8), [12, 14, 16, 18, 20, 30, 40, 50]), min_rows=10)
    dealt = partition.label_permutation(dealt, 2)
    return settings, world_of(dealt, x, y, np.arange(5), 6, (0.6, 0.2, 0.2), 0)


def probe_methods() -> running.Probe:
    """Two rounds of each method: what clients hold, how they answer, and what new clients get."""
    settings, here = small()
    found = {}
    for name in (*METHODS, "true groups"):
        own = {"IFCA": 2, OURS: 0.99, "FedRep": 2}.get(name, USUAL.get(name))  # 0.99: splits at nearly any test
        algorithm, results, _ = trained(settings, here, name, 0, Tuning(0.3, own, 0.1), **EXACT)
        end = results[max(results)]
        new = enrolled(settings, here, name, algorithm, end, max(results) or own or 0)
        found[name] = running.numbers_of(algorithm, end) + running.scores_of(algorithm, end, here.everything)
        found[name] += running.scores_of(algorithm, new, here.new_test)
        if name == OURS:
            found[name] += end.state.norms[:, 5].tolist()
    return found


def probe() -> running.Probe:
    """The methods, and who holds what."""
    found = probe_methods()
    for kind in SETTINGS["worlds"]:
        drawn = dealt_world(SETTINGS, kind, 0)
        parts = (drawn.train, drawn.test, drawn.everything, drawn.new, drawn.new_test)
        found[kind] = [float(part.y[part.real].double().var()) for part in parts]
    return found


FEMNIST = ("femnist300",)
PRESETS = {
    "full": running.Experiment("personal_models", SETTINGS, measure, probe, ("mnist5k",), by_arm=True),
    "writers": running.Experiment("personal_models_writers", WRITERS, measure, probe_methods, FEMNIST, by_arm=True),
    "longer": running.Experiment("personal_models_longer", LONGER, measure_longer, probe_longer, FEMNIST),
}
