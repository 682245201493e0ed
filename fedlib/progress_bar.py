"""Progress bars, for one run or for all runs of a cell."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

__all__ = ["progress"]

_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
_open: list[tqdm] = []  # the bar of the current block


@contextmanager
def progress(name: str, runs: int) -> Iterator[None]:
    """Show one bar for several runs of `fedlib.federation.fit`.

    Parameters
    ----------
    name : str
        Description of the runs, shown before the bar.
    runs : int
        Number of runs of `fit` in the block.

    Examples
    --------
    >>> with fedlib.progress("two seeds", runs=2):  # doctest: +SKIP
    ...     results = [fedlib.fit(fedavg, model.init(s), data, rounds=20, seed=s) for s in (0, 1)]

    Notes
    -----
    After the bar, the last training loss and the last scores are shown.
    """
    with tqdm(total=runs, desc=name, bar_format=_FORMAT) as bar:
        _open.append(bar)
        try:
            yield
        finally:
            _open.pop()


@contextmanager
def rounds_of(name: str, rounds: int, show: bool) -> Iterator[Callable[..., None]]:
    """Give `fit` a function ``advance(rounds, entry)`` that moves the bar of the enclosing block, or else a new bar."""
    own = None if _open else tqdm(total=rounds, desc=name, unit="round", disable=not show)

    def advance(done: int, entry: Mapping[str, Any] | None = None) -> None:
        bar = own if own is not None else _open[-1]
        if not show:
            return
        scores = {k: v for k, v in (entry or {}).items() if k.endswith(("loss", "accuracy")) and isinstance(v, float)}
        if scores:  # only the first of many evaluation sets
            bar.set_postfix({k: f"{scores[k]:.3g}" for k in list(scores)[:2]}, refresh=False)
        bar.update(done if own is not None else min(done / rounds, bar.total - bar.n))  # rounding must not exceed it

    try:
        yield advance
    finally:
        if own is not None:
            own.close()
