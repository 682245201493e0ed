"""Try a loss and an optimiser on a few rows before a run begins, and refuse those that clients cannot train with."""

import random
from collections.abc import Callable, Hashable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .chance import Refused
from .checks import answer
from .data import Batch, ClientData
from .params import Params, row
from .stacked import one_client, still, vmap

__all__ = ["check_loss", "check_optimizer", "check_predict", "check_weighted_mean"]

_WRONG = (RuntimeError, KeyError, IndexError, TypeError, ValueError, AttributeError)  # of a loss that does not fit
_WHOLE = (
    " x holds whole numbers ({}), which reach the model as int64, as ids of tokens do; say pixels=True for images of "
    "bytes, or give x.astype('float32') for numbers"
)


def check_loss(
    loss: Callable[..., Tensor],
    predict: Callable[..., Tensor] | None,
    params: Params,
    data: ClientData,
    evaluations: Mapping[str, ClientData],
) -> None:
    """Try the loss and `predict` on a few rows before the first round.

    Parameters and labels must fit, padding must have no effect, and the gradients of two clients in a stack must equal
    those of each alone.
    """
    dtype, some = next(iter(params.values())).dtype, data
    # Four real rows, with the largest and the smallest label among them, because padding consists of real rows.
    labels = data.y.reshape(*data.index.shape, -1)
    extremes = (divmod(int(at), data.index.shape[1]) for at in (labels.amax(2).argmax(), labels.amin(2).argmin()))
    places = [(0, 0), (len(data) - 1, int(data.n[-1]) - 1), *extremes]
    x = data.features(torch.stack([data.index[k, i] for k, i in places]), dtype)
    y, *more = (torch.stack([column[k, i] for k, i in places]) for column in (data.y, *data.columns.values()))
    shapes = {name: tuple(p.shape) for name, p in params.items()}

    def attempt(what: str, function: Callable[..., Tensor], *args: Any, training: bool = False) -> Tensor:
        try:
            with torch.set_grad_enabled(training), one_client(torch.zeros((), dtype=torch.int64), training):
                return function(*args)
        except Refused:
            raise
        except _WRONG as error:
            hint = "" if x.is_floating_point() else _WHOLE.format(str(some.x.dtype).removeprefix("torch."))
            hint += " Classes must be whole numbers: y.astype('int64')" if "to be Long" in str(error) else ""
            raise ValueError(
                f"{what}{_place(error, ', in ')}, with parameters {shapes} and rows of shape {tuple(x.shape[1:])}, y "
                f"{str(y.tolist()):.80} ({y.dtype}): {error}. Do the model's inputs fit x, and its outputs y?{hint}"
            ) from error

    kinds = _Kinds()

    def measured(at: Params, rows: list[int], w: list[float]) -> list[Tensor]:
        """The loss of some rows, and its gradients."""
        batch = x[rows], y[rows], torch.tensor(w, dtype=dtype, device=x.device), *(column[rows] for column in more)
        own = {name: p.detach().requires_grad_() for name, p in at.items()}
        with kinds:
            value = attempt("the loss does not run", loss, own, batch, training=True)
        if not isinstance(value, Tensor) or value.ndim != 0:
            raise ValueError(f"the loss must give one number (a tensor of shape ()), got {value!r:.200}")
        return [value.detach(), *_gradients(value, own)]

    for move in (0.1, 0.001, 0.0):  # off the initialisation, where equal losses could hide effects of padding
        stack = {n: p + move * torch.arange(2 * p.numel()).cos().view(2, *p.shape).to(p) for n, p in params.items()}
        try:
            once, other = (measured(row(stack, k), [0], [1.0]) for k in range(2))
        except ValueError:
            if not move:
                raise
        else:
            if all(t.isfinite().all() for t in (*once, *other)):
                break
    drawn = set(_generators())
    for _ in range(3):  # another thread may draw during one call
        before, again = _generators(), measured(row(stack, 0), [0], [1.0])
        drawn &= {name for name, state in _generators().items() if state != before[name]}
    coarsest = max([dtype, *kinds.seen], key=lambda kind: torch.finfo(kind).eps)  # under autocast
    allowed = _rounding(x.device, coarsest)
    other_order = 0.0 if x.device.type == "cpu" else allowed  # a GPU sums in any order
    same = partial(torch.allclose, rtol=other_order, atol=other_order, equal_nan=True)
    if drawn or not all(map(same, once, again)):
        raise ValueError(
            f"the loss draws from {min(drawn, default='something that changes')} by itself, so two calls on one row "
            "differ. Take torch.rand, torch.randn, dropout or fedlib.augment, which `fit` draws by client, "
            "round and step"
        )
    # A loss of pairs or of a spread has no value for one row, so padding is also tried next to two.
    # Many padded rows show a loss that takes a share of the rows, and rounds.
    pads = [1], [2, 0] * 2, [3] * 6, [0] * 38, [0], [1], [3]
    for real, pad in zip(([0], [1], [2], [0, 1], [1, 2], [2, 0], [2, 3]), pads, strict=True):
        w, none = [1.0] * len(real), [0.0] * len(pad)
        single, padded = measured(row(stack, 0), real, w), measured(row(stack, 0), real + pad, w + none)
        size = sum(g.norm() for g in single[1:])
        far = any(not (p - q).norm() <= allowed * (size + 1e-3) for p, q in zip(single[1:], padded[1:], strict=True))
        far = far or not torch.allclose(single[0], padded[0], rtol=10 * allowed, atol=10 * allowed)
        if far and all(t.isfinite().all() for t in (*single, *padded)):
            raise ValueError(
                f"the loss sees padded rows: rows with w = 0 moved it from {single[0]:.6g} to {padded[0]:.6g}, or its "
                "gradients. Take the mean weighted by w, (values * w).sum() / w.sum(), as "
                "fedlib.losses.cross_entropy(logits, y, w) does; from shapes (B, 1) and (B,), torch makes (B, B)"
            )
    if not x.is_floating_point():  # ids may be out of range in any row
        flat = data.x.reshape(len(data.x), -1)
        ends = torch.stack([flat.amin(1).argmin(), flat.amax(1).argmax()])
        ones, twice = torch.ones(2, dtype=dtype, device=x.device), [0, 0]
        given = data.features(ends, dtype), y[twice], ones, *(column[twice] for column in more)
        attempt("the loss does not run on the rows with the smallest and the largest id", loss, params, given)
    rows = torch.tensor([[0, 1], [1, 2]])
    batch = x[rows], y[rows], torch.ones(2, 2, dtype=dtype, device=x.device), *(column[rows] for column in more)
    _check_stack(loss, stack, batch, coarsest)
    if predict is None:
        return
    several = x
    for name, some in {"training": data, **evaluations}.items():
        x = some.features(some.index[0, :1], dtype)
        output = attempt(f"predict does not run on the {name} data", predict, params, x)
        answer(output, some.y[0, :1])
        yes_or_no = output.ndim < some.y.ndim  # a logit for each label, and not for each class
        classes = 2 if yes_or_no and some.y.ndim > 2 else output.shape[-1] if output.ndim == some.y.ndim else 0
        if not some.y.is_floating_point() and int(some.y.max()) >= classes >= 2:
            has = "one logit for each label of 0 and 1" if yes_or_no else f"{classes} outputs"
            raise ValueError(f"the {name} data have the label {int(some.y.max())}, but the model has {has}")
    if evaluations:
        check_predict(predict, params, several)


def check_predict(predict: Callable[..., Tensor], params: Params, x: Tensor) -> None:
    """Refuse a `predict` whose answer to a row depends on other rows, which may be padding or belong to others."""
    with torch.no_grad(), still():
        one, beside = predict(params, x[:1]), predict(params, x)[:1]
    near = min(10 * _rounding(one.device, one.dtype), 0.05) if one.is_floating_point() else 0.0
    if not torch.allclose(one, beside, rtol=near, atol=near, equal_nan=True):
        raise ValueError(
            "predict gives a row another answer beside other rows, which in evaluation may be padding, or other "
            "clients' rows. Let it treat each row alone: standardise by numbers of the training data, and put layers "
            "such as BatchNorm into .eval()"
        )


def _gradients(value: Tensor, params: Params) -> list[Tensor]:
    """Gradients of the value, with zeros for parameters that it does not depend on."""
    if not value.requires_grad:
        return [torch.zeros_like(p) for p in params.values()]
    return list(torch.autograd.grad(value, list(params.values()), materialize_grads=True))


def _rounding(device: torch.device, dtype: torch.dtype) -> float:
    """The relative error of rounding; a GPU's convolutions keep ten bits of float32 unless TF32 is switched off."""
    if dtype == torch.float64:
        return 1e-7
    return 1e-4 if dtype == torch.float32 and device.type == "cpu" else 0.05


def _generators() -> dict[str, Any]:
    """The states of the generators that a loss might draw from."""
    return {
        "Python's random": random.getstate(),
        "numpy.random": str(np.random.get_state()),  # noqa: NPY002
        "torch in a way that cannot be seeded": torch.get_rng_state().numpy().tobytes(),
    }


class _Kinds(TorchFunctionMode):
    """The floating-point types of the results of torch's functions while it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.is_floating_point():
            self.seen.add(result.dtype)
        return result


def _check_stack(loss: Callable[..., Tensor], stack: Params, batch: Batch, kind: torch.dtype) -> None:
    """Refuse a loss whose gradients for two clients in a stack differ from those of each alone."""
    seeds = torch.arange(2, device=batch[0].device)
    stack = {name: p.detach().requires_grad_() for name, p in stack.items()}
    try:
        value = vmap(loss, seeds=seeds)(stack, tuple(part.clone() for part in batch)).sum()
        if not value.requires_grad:
            raise Refused("the loss does not depend on the parameters, or detaches them")
        together, value = _gradients(value, stack), torch.zeros_like(value)
        for k in range(2):
            with one_client(seeds[k], training=True):
                value = value + loss(row(stack, k), tuple(part[k].clone() for part in batch))
        if stray := [p for p in _leaves(value) if not any(p is q for q in stack.values())]:
            raise Refused(
                f"the forward pass uses a parameter of shape {tuple(stray[0].shape)} that is not the client's; "
                "reach it as an attribute of its layer, not through a list, a closure or another module; freeze "
                "that of a teacher by requires_grad_(False)"
            )
        alone = _gradients(value, stack)
    except Refused:
        raise
    except Exception as error:
        place = _place(error, "") or "the loss"
        raise ValueError(f"{place} cannot be trained in a stack of clients: {_remedy(str(error))}") from error
    allowed = {1e-7: 1e-6, 1e-4: 0.02}.get(_rounding(seeds.device, kind), 0.2)
    size: Any = sum(g.norm() for g in alone)  # a gradient may be zero up to rounding
    for name, found, right in zip(stack, together, alone, strict=True):
        gap = (found - right).norm()
        if not gap <= allowed * (right.norm() + 1e-3 * size + 1e-5) and size.isfinite():
            raise ValueError(
                f"the parameter {name!r} gets different gradients in a stack of clients than alone (they differ by "
                f"{gap:.3g}, of a norm of {right.norm():.3g}): something in the loss mixes clients, or keeps numbers "
                "from one call to the next"
            )


def _leaves(value: Tensor) -> list[Tensor]:
    """The tensors that a value was computed from and that require gradients."""
    seen, todo, found = set(), [value.grad_fn], []
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            found += [node.variable] if hasattr(node, "variable") else []
            todo += [following for following, _ in node.next_functions]
    return found


def _place(error: BaseException, before: str) -> str:
    """The innermost module that an error came from, by its name in the model; empty if there is none."""
    modules, trace = [], error.__traceback__
    while trace is not None:
        owner, trace = trace.tb_frame.f_locals.get("self"), trace.tb_next
        modules += [owner] if isinstance(owner, torch.nn.Module) and owner not in modules else []
    if not modules:
        return ""
    names = {id(layer): name for name, layer in modules[0].named_modules()}
    return f"{before}layer {names.get(id(modules[-1]), '')!r}, a {type(modules[-1]).__name__}"


def check_weighted_mean(loss: Callable[..., Tensor], params: Params, data: ClientData) -> None:
    """Refuse a loss that is not the mean of its rows' losses weighted by w, even where w is a fraction.

    Parameters
    ----------
    loss : callable
    params : dict of Tensor
        One model.
    data : ClientData
        Up to nine rows of the largest client are tried, one of each label if there are so few.

    Raises
    ------
    ValueError
        It clamps the sum of w, weights the classes, or adds something that belongs to no row.
    """
    dtype, client = next(iter(params.values())).dtype, data[[int(data.n.argmax())]]
    if torch.finfo(dtype).bits < 32:  # too few digits to tell
        return
    y = client.y[0, : int(client.n)].flatten(1)[:, 0] if client.y.ndim > 2 else client.y[0, : int(client.n)]
    each = [(y == label).nonzero()[0, 0] for label in y.unique()[:7]]
    rows = torch.stack([*each, y.argmax(), torch.zeros_like(y.argmax())]).unique()
    x, y, _, *columns = (part[0, rows] for part in client.all_rows(dtype))
    w = torch.arange(1, len(rows) + 1).to(x.device, dtype)
    w = 0.6 * w / w.sum()
    with torch.no_grad(), still():
        alone = [loss(params, tuple(part[[i]] for part in (x, y, torch.ones_like(w), *columns))) for i in range(len(w))]
        found = loss(params, (x, y, w, *columns))
    wanted = w @ torch.stack(alone) / w.sum()
    if not torch.allclose(found, wanted, rtol=1e-3, atol=1e-5) and found.isfinite() and wanted.isfinite():
        raise ValueError(
            f"the loss must be the mean of the rows' losses weighted by w, even where w is a fraction: rows with "
            f"losses {[round(float(v), 4) for v in alone]} and w = {w.tolist()} have the mean {wanted:.4g}, but the "
            f"loss gives {found:.4g}. Take fedlib.losses.weighted_mean(values, w), and neither clamp the sum of w nor "
            "weight classes"
        )


_SHARED = "it writes into a tensor that all clients share; make it with x.new_zeros or torch.stack"
_REMEDIES = {
    "randomness": "it draws in a way that cannot be seeded; take torch.rand, torch.randn or dropout",
    ".item()": "it branches on a number of one client (if, float, .item()); take torch.where, and for a mask is_causal",
    "data-dependent": "it branches on a number of one client (if, float, .item(), a mask that is looked at); take "
    "torch.where, is_causal or a mask made with torch.full",
    "dynamic shape": "its shapes depend on numbers of one client, as with a boolean mask; take torch.where",
    "not being vmapped over": _SHARED,
    "the broadcast shape": _SHARED,
    ".input. We could not": "it calls torch's own LSTM, GRU or RNN; take those of fedlib.recurrent",
    "escaped": "it keeps a tensor from one call to the next, or computes it again (checkpoint); leave that out",
    "requires_grad_()": "it asks for gradients inside; take torch.func.grad",
    "setup_context": "its autograd.Function, or checkpoint with use_reentrant=True, has no rule for stacks; give it "
    "setup_context and generate_vmap_rule, or leave checkpoint out",
    "accessing `data`": "it uses .data; take p.detach() to read, and a function of the parameter to change it",
    "generate_vmap_rule": "its autograd.Function has no rule for stacks; give it setup_context and generate_vmap_rule",
}


def _remedy(said: str) -> str:
    remedies = [remedy for sign, remedy in _REMEDIES.items() if sign in said]
    return f"{remedies[0] if remedies else 'torch cannot map it over clients'} ({said.splitlines()[0]:.200})"


def check_optimizer(rule: Callable[..., torch.optim.Optimizer]) -> None:
    """Refuse a rule that trains two clients with very different gradients differently in a stack and alone."""
    (_check_rule if isinstance(rule, Hashable) else _check_rule.__wrapped__)(rule)


@cache
def _check_rule(rule: Callable[..., torch.optim.Optimizer]) -> None:
    def end(sizes: list[float], first: float = 1.0, alone: bool = False) -> list[Tensor]:
        """Take three steps from ones with gradients of these sizes, whose first entries are multiplied by `first`."""
        # Filters and as many numbers in a row, and a large matrix, which some rules treat otherwise.
        shapes = ((), (1,), (3,), (3, 4), (2, 3, 3, 3), (54,), (40, 40))
        params = [torch.ones(shape if alone else (len(sizes), *shape)).requires_grad_() for shape in shapes]
        optimizer = rule(params, lr=0.1)
        for step in range(3):
            for p in params:
                n = p.numel() if alone else p[0].numel()
                waves = 3 * torch.arange(n).cos()  # for one client only: a rank of one would hide a factored rule
                rows = [size * (torch.linspace(-1, 1 + step, n) + (waves if size < 1 else 0)) for size in sizes]
                gradient = torch.stack(rows)
                gradient[:, 0] *= first
                p.grad = gradient.view(p.shape)
            optimizer.step()
        return [p.detach() for p in params]

    def same(a: list[Tensor], b: list[Tensor]) -> bool:
        return all(torch.allclose(p, q, rtol=1e-4, atol=1e-7) for p, q in zip(a, b, strict=True))

    try:
        both, one, two = end([1e3, 1e-3]), end([1e3]), end([1e-3])
        entries = all(
            torch.allclose(p.flatten()[1:], q.flatten()[1:]) for p, q in zip(one, end([1e3], 9.0), strict=True)
        )
        plain = end([1e3], alone=True) if entries else []
    except Exception as error:
        raise ValueError(f"the optimizer {rule!r} does not run on a stack of clients: {error}") from error
    if not all(map(torch.equal, one, end([1e3]))):
        raise ValueError(f"the optimizer {rule!r} draws random numbers by itself, so a run could not be repeated")
    if not same(both, [torch.cat(own) for own in zip(one, two, strict=True)]):
        raise ValueError(
            f"the optimizer {rule!r} looks at many entries at once, so clients in a stack would mix; take a rule that "
            "treats each entry alone, such as SGD or Adam, or each row, which is a client: the questions and answers "
            "show how to clip the gradient of each client"
        )
    alike = same(one[:1], [one[1][:, 0]]) and same([one[4].flatten()], [one[5].flatten()])  # numbers, filters
    if (entries and not same([p[0] for p in one], plain)) or not alike:
        raise ValueError(
            f"the optimizer {rule!r} treats tensors by their number of axes; in a stack of clients each has one more: "
            "a bias has two"
        )
