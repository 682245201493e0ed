"""What the numbers of a run depend on: settings, data, and what its functions compute. Equal identities, equal runs.

`fedlib.checkpoint` compares them before it resumes. Functions are known by what they compute on a few rows, not by how
they are written: a cell may run again, a line may move, another release may compute the same in another way.
"""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Mapping
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .data import ClientData
from .federation import Algorithm, first_round
from .keys import Key
from .params import Params, row

__all__ = ["differences", "run_identity"]

FORMAT = 2  # of the checkpoint's content
_ROWS = 8  # of two clients, on which the loss is tried
_TOLERANCE = 1e-5  # another processor, or another order of the same sums, moves numbers by less

Identity = dict[str, Any]


def run_identity(
    algorithm: Algorithm,
    params: Params,
    data: ClientData | None,
    evaluations: Mapping[str, ClientData],
    **settings: Any,
) -> Identity:
    """Name of each thing that the numbers of a run depend on, to a text, or to the numbers that it computes.

    Parameters
    ----------
    algorithm : Algorithm
    params : Params
        One set of parameters.
    data : ClientData or None
        Training examples; a server that sees none computes nothing here.
    evaluations : mapping of str to ClientData
    **settings
        Of `fit`.

    Notes
    -----
    What is computed: the loss, its gradient and the prediction on a few rows, and the first round with two rows of
    each client, where the algorithm has no work before round 1.
    """
    kind = type(algorithm).__name__
    fields = {f.name: getattr(algorithm, f.name) for f in dataclasses.fields(algorithm) if f.name != "chunk_size"}
    found: Identity = {
        "format": str(FORMAT),
        "algorithm": kind,
        **{f"{kind}.{name}": _text(value) for name, value in fields.items()},
        **{name: _text(value) for name, value in settings.items()},
        "initial parameters": _hash(params),
    }
    if data is None:
        return found
    found |= {"data": _hash(data)} | {f"evaluation set {name}": _hash(some) for name, some in evaluations.items()}
    with torch.backends.cudnn.flags(allow_tf32=False):
        return found | _probe(algorithm, params, data, settings)


def differences(there: Identity, here: Identity) -> list[str]:
    """What differs between two identities, in words."""
    return [
        f"{name}: {_short(there.get(name))} there, {_short(here.get(name))} here"
        for name in {**here, **there}
        if not _same(there.get(name), here.get(name))
    ]


def _same(a: Any, b: Any) -> bool:
    if not (isinstance(a, list) and isinstance(b, list)):
        return a == b
    near = functools.partial(math.isclose, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return len(a) == len(b) and all(near(x, y) or (x != x and y != y) for x, y in zip(a, b, strict=True))


def _probe(algorithm: Algorithm, params: Params, data: ClientData, settings: Mapping[str, Any]) -> Identity:
    kind = type(algorithm).__name__
    one = torch.zeros(1, dtype=torch.int64)
    # Away from the start, where all outputs may be equal.
    moved = {n: p + 0.1 * Key(0).normal(one, n, *p.shape)[0].to(p) for n, p in params.items()}
    dtype = next(iter(params.values())).dtype
    few = dataclasses.replace(
        data[[0, len(data) - 1]], index=data.index[[0, -1], :_ROWS], y=data.y[[0, -1], :_ROWS], n=data.n[[0, -1]]
    )
    position = torch.arange(min(_ROWS, few.index.shape[1]), device=data.n.device)
    batch = few.batch(position.expand(2, -1), position < few.n[:, None], dtype)

    def losses() -> list[Tensor]:
        leaves = {n: p.clone().requires_grad_() for n, p in moved.items()}
        values = [algorithm.loss(leaves, tuple(part[k] for part in batch)) for k in (0, 1)]
        return [
            *values,
            *_moments(torch.autograd.grad(torch.stack(values).sum(), list(leaves.values()), allow_unused=True)),
        ]

    def predictions() -> list[Tensor]:
        with torch.no_grad():
            return _moments([algorithm.predict(moved, batch[0][k]) for k in (0, 1)]) if algorithm.predict else []

    def round() -> list[Tensor]:
        if type(algorithm).prepare is not Algorithm.prepare:
            return []
        small = dataclasses.replace(data, index=data.index[:, :2], y=data.y[:, :2], n=data.n.clamp(max=2))
        key = Key(settings.get("seed", 0), 1)
        state = first_round(algorithm, params, small, int(settings.get("clients_per_round", len(data))), key)
        clients = torch.arange(min(_ROWS, len(data)), device=data.n.device)
        return _moments(row(algorithm.client_params(state, clients[[k]]), 0) for k in clients.tolist())

    parts = {f"what {kind}.loss computes": losses, f"what {kind}.predict computes": predictions}
    parts[f"what a first round of {kind} computes"] = round
    return {name: _numbers(part) for name, part in parts.items()}


def _numbers(part: Callable[[], list[Tensor]]) -> list[float] | str:
    """The numbers of a part; of one that cannot run on so few rows, that it cannot."""
    try:
        return [float(value.detach()) for value in part()]
    except (ValueError, RuntimeError, ArithmeticError, IndexError) as error:
        return f"cannot run on few rows: {type(error).__name__}"


def _moments(trees: Any) -> list[Tensor]:
    """Sums of powers of all numbers of some tensors, in an order that does not depend on names."""
    found = []
    for tree in trees:
        parts = list(tree.values()) if isinstance(tree, dict) else [tree]
        flat = [p.detach().double().flatten() for p in parts if isinstance(p, Tensor)]
        found += [torch.stack([(f**power).sum() for f in flat]).sum() for power in (1, 2, 3)] if flat else []
    return found


def _text(value: Any) -> str:
    """A setting as a text. Of a function only the name: what it computes is tried."""
    if isinstance(value, (np.generic, Number)):
        number = value.item() if isinstance(value, np.generic) else value
        return repr(float(number) if isinstance(number, int) and not isinstance(number, bool) else number)
    if isinstance(value, (str, bytes, torch.dtype)) or value is None:
        return repr(value)
    if isinstance(value, (Tensor, np.ndarray, ClientData)):
        return _hash(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{k}={_text(v)}' for k, v in value.items())}}}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, functools.partial):
        return f"partial({_text(value.func)}, {_text(value.args)}, {_text(value.keywords)})"
    if isinstance(value, torch.nn.Module):
        return f"{type(value).__name__} {_hash(value.state_dict())}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return f"{type(value).__name__}{_text(fields)}"
    return "a function" if callable(value) else type(value).__name__


def _hash(value: Any) -> str:
    """Checksum of tensors, in whatever memory they lie."""
    digest = hashlib.sha256()
    if dataclasses.is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    for name, part in value.items() if isinstance(value, Mapping) else [("", value)]:
        if part is None:
            continue
        part = torch.as_tensor(part).detach()
        rows = part[:1] if part.ndim and len(part) > 1 and part.stride(0) == 0 else part  # stored once
        plain = torch.empty(rows.shape, dtype=rows.dtype).copy_(rows)
        digest.update(f"{name} {part.dtype} {tuple(part.shape)}".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return f"#{digest.hexdigest()[:12]}"


def _short(value: Any) -> str:
    text = (
        "nothing" if value is None else ", ".join(f"{v:.6g}" for v in value[:3]) if isinstance(value, list) else value
    )
    return text if len(text) <= 60 else f"{text[:40]}... #{hashlib.sha256(text.encode()).hexdigest()[:12]}"
