"""A whole federation from the command line: images or a table, shared out among clients, and an algorithm by its name.

    python examples/federate.py --data mnist5k --partition dirichlet --deal alpha=0.3 --cohort 10 --out history.csv
    python examples/federate.py --algorithm SplitHalfCFL --set every=10 --partition label_permutation
    torchrun --nproc-per-node 2 examples/federate.py --clients 100

Under `torchrun` all processes share the clients of each round. A run with a checkpoint, ``--checkpoint
run.safetensors``, goes on when it is typed again.
"""

import argparse
import ast
import inspect
import math

import numpy as np
import torch

import fedlib
from fedlib import algorithms, datasets, extensions, losses, models, partition
from fedlib.engines import processes

DEALING = [name for name in partition.__all__ if "y" in inspect.signature(getattr(partition, name)).parameters]


def setting(text: str) -> tuple[str, object]:
    """A setting by its name, such as ``alpha=0.3`` or ``local=("dense1",)``."""
    name, value = text.split("=", 1)
    return name, ast.literal_eval(value)


def arguments() -> argparse.ArgumentParser:
    """What the command accepts."""
    parser = argparse.ArgumentParser(description="Run a federation.")
    add, pairs = parser.add_argument, {"type": setting, "action": "append", "default": [], "metavar": "NAME=VALUE"}
    add("--data", default="digits", choices=datasets.names(), metavar="NAME", help="a data set with classes")
    add("--partition", default="iid", choices=(*DEALING, "label_permutation"))
    add("--deal", help="a setting of the partition", **pairs)
    add("--algorithm", default="FedAvg", choices=[*algorithms.__all__, *extensions.__all__])
    add("--set", help="a setting of the algorithm", **pairs)
    add("--hidden", type=int, nargs="*", default=[64], help="units of the hidden layers")
    add("--clients", type=int, default=40)
    add("--cohort", type=int, help="clients of a round; all by default")
    add("--rounds", type=int, default=20)
    add("--seed", type=int, default=0)
    add("--device", default="auto", help="such as cpu or cuda")
    add("--dtype", default="float32", choices=("float32", "float64"))
    add("--out", help="where to write the history, a CSV file")
    add("--checkpoint", help="if the file is there, the run goes on from it")
    return parser


def rows(args: argparse.Namespace) -> tuple[np.ndarray, ...]:
    """Training and test rows; where none are published for the test, a fifth. Tables are standardised."""
    arrays = datasets.load(args.data)
    x, y, x_test, y_test = arrays.x, arrays.y, arrays.x_test, arrays.y_test
    if x_test is None:
        test, train = np.split(np.random.RandomState(args.seed).permutation(len(x)), [len(x) // 5])
        x, y, x_test, y_test = x[train], y[train], x[test], y[test]
    if x.ndim == 2:
        mean, deviation = x.mean(0), x.std(0)
        x, x_test = (x - mean) / deviation, (x_test - mean) / deviation
    return x, y, x_test, y_test


def main(argv: list[str] | None = None) -> None:
    """Run a federation, and write its history."""
    args = arguments().parse_args(argv)
    x, y, x_test, y_test = rows(args)
    classes = int(y.max()) + 1
    if args.partition == "label_permutation":
        alike = partition.iid(y, args.clients, seed=args.seed)
        dealt = partition.label_permutation(alike, classes=classes, seed=args.seed, **dict(args.deal))
    else:
        dealt = getattr(partition, args.partition)(y, args.clients, seed=args.seed, **dict(args.deal))
    model = models.MLP((math.prod(x.shape[1:]), *args.hidden, classes))

    def loss(params, batch):
        return losses.cross_entropy(model(params, batch[0]), *batch[1:])

    place = algorithms if args.algorithm in algorithms.__all__ else extensions
    algorithm = getattr(place, args.algorithm)(loss, predict=model, **dict(args.set))
    processes.start()
    result = fedlib.fit(
        processes.over_processes(algorithm),
        model.init(args.seed),
        dealt.clients(x, y),
        args.rounds,
        args.cohort,
        seed=args.seed,
        eval_data=dealt.tests(x_test, y_test),
        device=args.device,
        dtype=getattr(torch, args.dtype),
        checkpoint=fedlib.Checkpoint(args.checkpoint) if args.checkpoint else None,
        progress=processes.rank() == 0,
    )
    if processes.rank() == 0:
        print(result.history[["round", "clients", "train_loss", "test_accuracy"]].tail().to_string(index=False))
        if args.out:
            result.history.to_csv(args.out, index=False)
    processes.stop()


if __name__ == "__main__":
    main()
