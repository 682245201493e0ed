"""How an experiment is run, resumed, stored, and told apart from one whose code behaves differently by now.

A module holds an `Experiment` for each of its result files. ``python -m book.experiments fedavg`` runs the preset
``full`` of `fedavg`, ``--preset paper`` the paper's own setting. What is measured so far lies in _build/experiments/,
so the same command goes on after an interruption.
"""

import dataclasses
import importlib
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import fedlib
from book import results
from fedlib import datasets, evaluation

ROOT = Path(__file__).resolve().parents[2]

Probe = dict[str, list[float]]
TOO_SHORT = ("CFL tested no cluster", "no client has fine-tuned", "FedCG ended with round")  # probes are; `fit` warns


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The runs behind one result file.

    Attributes
    ----------
    result : str
        Name of the result file, without folder and ending.
    settings : dict
        All that may be chosen: seeds, rounds, sizes. Plain values that JSON can hold.
    measure : callable
        ``measure(settings, keep) -> figures``. It computes each part as ``keep("name of the part", function, *args)``.
    probe : callable
        ``probe() -> {arm: numbers}``: each arm for two rounds on a few clients, in float64 on the CPU, seconds in all
        (see `trace`). Equal numbers mean that the stored result still belongs to the code.
    data : tuple of str
        Data sets of `fedlib.datasets` whose checksums are stored.
    by_arm : bool
        It is ``measure(settings, keep, arms)``, which measures the arms of the probe that are named, and no others: of
        those that compute what they did, the stored figures stay.
    """

    result: str
    settings: dict[str, Any]
    measure: Callable[..., dict[str, Any]]
    probe: Callable[[], Probe]
    data: tuple[str, ...] = ()
    by_arm: bool = False

    @property
    def path(self) -> Path:
        """The result file."""
        return ROOT / "book" / "results" / f"{self.result}.json"


class Keep:
    """What is measured so far, in a file: ``keep(name, function, *args)`` calls the function if nothing is kept yet.

    The function's value must be something that JSON can hold. Parts of other settings, or of code that computes other
    numbers, are not used. A part depends on the arms of the probe that are named with it, ``keep(..., arms=("CFL",))``,
    or on the arm whose name it bears; any other part on all of them.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], probe: Probe) -> None:
        self.path = path
        self.parts: dict[str, Any] = {}
        self.took: dict[str, float] = {}  # seconds, by part
        self.arms: dict[str, list[str]] = {}  # on which a part depends
        self.identity = {"settings": json.loads(json.dumps(settings)), "probe": probe}
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf8"))
            other = moved(stored["probe"], probe)
            if stored["settings"] == self.identity["settings"]:
                for name, value in stored["parts"].items():
                    arms = stored.get("arms", {}).get(name, [name])
                    if not other or set(arms) <= set(probe) - set(other):
                        self.parts[name], self.took[name], self.arms[name] = value, stored["took"][name], arms
                print(f"{path.name}: {len(self.parts)} parts are there already", flush=True)

    def __call__(
        self, name: str, function: Callable[..., Any], *args: Any, arms: Sequence[str] = (), **kwargs: Any
    ) -> Any:
        """The kept value of a part, or the function's."""
        if name not in self.parts:
            start = time.perf_counter()
            value = json.loads(json.dumps(function(*args, **kwargs), allow_nan=False))
            self.parts[name], self.took[name] = value, time.perf_counter() - start
            self.arms[name] = list(arms) or [name]
            content = {**self.identity, "parts": self.parts, "took": self.took, "arms": self.arms}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part = self.path.with_suffix(f".{os.getpid()}.part")
            part.write_text(json.dumps(content), encoding="utf8")
            os.replace(part, self.path)
            print(f"  {name}: {self.took[name]:.1f} s ({self.seconds / 60:.1f} min in all)", flush=True)
        return self.parts[name]

    @property
    def seconds(self) -> float:
        """Of all parts."""
        return sum(self.took.values())


def trace(
    algorithm: Any, params: Any, data: Any, rounds: int = 2, clients_per_round: int | None = None, **more: Any
) -> list[float]:
    """What a run computes, as a few numbers: for `Experiment.probe`.

    They come from what users see, so that no change of names or places in the library moves them: the parameters that
    each client holds at the end, the training loss and the scores of each round, and the bytes sent.
    """
    how = {"dtype": torch.float64, "device": "cpu", "progress": False, **more}
    return numbers_of(algorithm, fedlib.fit(algorithm, params, data, rounds, clients_per_round, **how))


def numbers_of(algorithm: Any, result: Any) -> list[float]:
    """The numbers of `trace`, of a finished run."""
    held = algorithm.client_params(result.state, torch.arange(len(result.ids)))
    found = [0.0, 0.0, 0.0]
    for p in held.values():
        flat = p.double().reshape(len(p), -1)
        weight = torch.arange(1, len(flat) + 1, dtype=torch.float64)
        for i, power in enumerate((1, 2, 3)):
            found[i] += float((weight * (flat**power).sum(1)).sum())
    history = result.history
    scored = sorted(c for c in history if c.split("_")[-1] in ("accuracy", "loss", "r2") and c != "train_loss")
    for column in ("train_loss", *scored, "bytes_down", "bytes_up"):
        if column in history:
            found += [float(v) for v in history[column].dropna()]
    return found


def scores_of(algorithm: Any, result: Any, data: Any) -> list[float]:
    """What `fedlib.evaluate` says of a finished run, as numbers."""
    return [float(v) for v in evaluation.evaluate(algorithm, result, data).mean(numeric_only=True).dropna()]


def moved(stored: Probe, now: Probe, tolerance: float = 1e-6) -> list[str]:
    """Arms whose numbers are not the same any more, new ones and lost ones included."""

    def same(a: Sequence[float], b: Sequence[float]) -> bool:
        return len(a) == len(b) and all(
            math.isclose(x, y, rel_tol=tolerance, abs_tol=tolerance) for x, y in zip(a, b, strict=True)
        )

    return [arm for arm in {**stored, **now} if arm not in stored or arm not in now or not same(stored[arm], now[arm])]


def probe_of(experiment: Experiment) -> Probe:
    """The experiment's probe, computed by the present code on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            for words in TOO_SHORT:
                warnings.filterwarnings("ignore", words)
            return {arm: [float(v) for v in numbers] for arm, numbers in experiment.probe().items()}
    finally:
        torch.set_num_threads(threads)


def state(experiment: Experiment) -> str:
    """What is to be said of the stored result: "current", "missing", "stale (arms)", or "without (new arms)".

    A new arm makes no result stale: figures that are there belong to the code all the same.
    """
    if not experiment.path.exists():
        return "missing"
    stored = results.load(experiment.path).get("probe", {})
    other = moved(stored, probe_of(experiment))
    if stale := [arm for arm in other if arm in stored]:
        return f"stale ({', '.join(stale)})"
    return f"without ({', '.join(other)})" if other else "current"


def took(experiment: Experiment) -> str:
    """How long the stored result took, in words."""
    if not experiment.path.exists():
        return ""
    made = results.load(experiment.path)["provenance"]
    return f"; it took {made['seconds'] / 60:,.1f} minutes on {made['device']}"


def merged(old: Any, new: Any) -> Any:
    """Figures in which new ones take the place of old ones."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}


def run(experiment: Experiment, again: bool = False) -> None:
    """Measure, and write the result file; arms that compute what they did keep their figures, but for `again`."""
    probe = probe_of(experiment)
    keep = Keep(ROOT / "_build" / "experiments" / f"{experiment.result}.json", experiment.settings, probe)
    stored = results.load(experiment.path) if experiment.path.exists() and not again else {}
    arms, earlier = moved(stored.get("probe", {}), probe), None
    if experiment.by_arm and set(arms) < set(probe) and stored["settings"] == keep.identity["settings"]:
        figures = merged(stored["figures"], experiment.measure(experiment.settings, keep, arms))
        earlier = stored["provenance"]
    else:
        figures = experiment.measure(experiment.settings, keep, *[[*probe]] * experiment.by_arm)
    checksums = {}
    for d in experiment.data:
        for name, value in datasets.stats(d).checksums.items():
            checksums[f"{d}: {name}" if len(experiment.data) > 1 else name] = value
    results.save(experiment.path, figures, experiment.settings, checksums, keep.seconds, probe, earlier)
    keep.path.unlink(missing_ok=True)
    print(f"wrote {experiment.path.relative_to(ROOT)}", flush=True)


def names() -> list[str]:
    """The experiments: the modules of this folder with ``PRESETS``."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return [path.stem for path in files if "\nPRESETS = " in path.read_text(encoding="utf8")]


def modules(name: str | None = None) -> dict[str, Any]:
    """The experiments by name, or one of them."""
    return {n: importlib.import_module(f"book.experiments.{n}") for n in ([name] if name else names())}
