"""Time a round of each work: fedlib through `fit` against a tuned loop over clients, in pairs on one core.

    python -m benchmarks [W2 ...] [--pairs 7]

Prints a table of ratios (loop / fedlib; above 1 fedlib is faster) with their spread, after checking in float64 that
both reach the same parameters.
"""

import argparse
import os
import platform
import statistics
import time
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm

import fedlib
from fedlib import losses
from fedlib.models import from_module

from .works import WORKS, Work

ROUNDS = 8  # a run; the checks before round 1 then weigh little


def stacked(work: Work, dtype: torch.dtype, model=None, params=None) -> tuple:
    """A function that runs `ROUNDS` rounds through `fit`."""
    model, params = model or work.model, params or work.model.init(0)
    criterion = losses.cross_entropy if work.classes else losses.mse
    algorithm = fedlib.algorithms.FedAvg(
        lambda p, b: criterion(model(p, b[0]), b[1], b[2]),
        lr=work.lr,
        batch_size=work.batch_size,
        epochs=work.epochs,
    )
    x, y = work.data()
    data = fedlib.stack_clients(list(x.to(dtype)), list(y if work.classes else y.to(dtype)))

    def run(rounds: int = ROUNDS) -> dict:
        result = fedlib.fit(algorithm, params, data, rounds, work.cohort, dtype=dtype, device="cpu", progress=False)
        return {name: p[0] for name, p in result.state.models.items()}

    return run


def any_module(work: Work, dtype: torch.dtype) -> tuple:
    """The same with a user's own torch module, through plain vmap."""
    params, predict = from_module(work.module())
    return stacked(work, dtype, predict, params)


def tuned_loop(work: Work, dtype: torch.dtype):
    """One client after another, without waste: one module, batches by index, no data loader, one sum for the average.

    Draws the same cohorts and the same order of examples as fedlib.
    """
    x, y = (t.to(dtype) if t.is_floating_point() else t for t in work.data())
    module: nn.Module = work.module().to(dtype)
    start = [p.detach().clone() for p in module.parameters()]
    criterion = F.cross_entropy if work.classes else lambda output, target: F.mse_loss(output[:, 0], target)

    def run(rounds: int = ROUNDS) -> dict:
        server = [p.clone() for p in start]
        parameters = list(module.parameters())
        for t in range(1, rounds + 1):
            key = fedlib.Key(0, t)
            cohort = key.choose(torch.arange(work.clients), work.cohort, "cohort")
            lengths = torch.full((work.cohort,), work.rows)
            order = key.permutations(cohort, "batches", lengths, work.epochs, work.rows)
            total = [torch.zeros_like(p) for p in server]
            for k, epochs in zip(cohort.tolist(), order, strict=True):
                with torch.no_grad():
                    torch._foreach_copy_(parameters, server)
                for epoch in epochs:
                    for rows in epoch.split(work.batch_size):
                        loss = criterion(module(x[k, rows]), y[k, rows])
                        gradients = torch.autograd.grad(loss, parameters)
                        with torch.no_grad():
                            torch._foreach_add_(parameters, gradients, alpha=-work.lr)
                with torch.no_grad():
                    torch._foreach_add_(total, parameters, alpha=1 / work.cohort)
            server = total
        return dict(zip((name for name, _ in module.named_parameters()), server, strict=True))

    return run


def seconds(run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", default=[], metavar="WORK", help=f"some of {', '.join(WORKS)}")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of neighbouring runs; the median is printed")
    options = parser.parse_args()
    unknown = set(options.works) - set(WORKS)
    if unknown or options.pairs < 1:
        parser.error(f"unknown works {sorted(unknown)}; there are {', '.join(WORKS)}" if unknown else "--pairs >= 1")
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(f"torch {torch.__version__}, {platform.processor() or platform.machine()}, one thread, {ROUNDS} rounds a run")
    print(
        f"{'work':5} {'contender':22} {'s a round':>10} {'loop / fedlib':>14} {'min':>6} {'max':>6}  largest difference"
    )
    for name in options.works or WORKS:
        work = WORKS[name]
        contenders = {"fedlib's layers": stacked, "any torch module": any_module}
        exact = tuned_loop(work, torch.float64)(1)
        for label, make in contenders.items():
            result = make(work, torch.float64)(1)
            difference = max(float((result[k] - exact[k]).abs().max()) for k in exact)
            assert difference < 1e-10, f"{name}, {label}: parameters differ by {difference}"
            run, loop = make(work, torch.float32), tuned_loop(work, torch.float32)
            seconds(partial(run, 1)), seconds(partial(loop, 1))
            pairs = [
                (seconds(run), seconds(loop)) for _ in tqdm(range(options.pairs), desc=f"{name}, {label}", leave=False)
            ]
            ratios = [b / a for a, b in pairs]
            each = statistics.median(a for a, _ in pairs) / ROUNDS
            print(
                f"{name:5} {label:22} {each:10.4f} {statistics.median(ratios):14.2f} {min(ratios):6.2f} "
                f"{max(ratios):6.2f}  {difference:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
