"""Progress bars: one for a run, or one for all runs of a cell."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

__all__ = ["progress"]

_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
_open: list[tqdm] = []  # the bar of the block that we are in


@contextmanager
def progress(name: str, runs: int) -> Iterator[None]:
    """Show one bar for several runs of `fedlib.federation.fit`.

    Parameters
    ----------
    name : str
        What is being done, shown before the bar.
    runs : int
        How many runs of `fit` the block makes.

    Examples
    --------
    >>> with fedlib.progress("two seeds", runs=2):  # doctest: +SKIP
    ...     results = [fedlib.fit(fedavg, model.init(s), data, rounds=20, seed=s) for s in (0, 1)]

    Notes
    -----
    Beside the bar stand the last training loss and the last scores.
    """
    with tqdm(total=runs, desc=name, bar_format=_FORMAT) as bar:
        _open.append(bar)
        try:
            yield
        finally:
            _open.pop()


@contextmanager
def rounds_of(name: str, rounds: int, show: bool) -> Iterator[Callable[..., None]]:
    """For `fit`: ``advance(rounds, entry)`` moves the bar of the block around it, or else a bar of its own."""
    own = None if _open else tqdm(total=rounds, desc=name, unit="round", disable=not show)

    def advance(done: int, entry: Mapping[str, Any] | None = None) -> None:
        bar = own if own is not None else _open[-1]
        if not show:
            return
        scores = {k: v for k, v in (entry or {}).items() if k.endswith(("loss", "accuracy")) and isinstance(v, float)}
        if scores:  # of many evaluation sets the first only
            bar.set_postfix({k: f"{scores[k]:.3g}" for k in list(scores)[:2]}, refresh=False)
        bar.update(done if own is not None else min(done / rounds, bar.total - bar.n))  # no more than all, by rounding

    try:
        yield advance
    finally:
        if own is not None:
            own.close()
