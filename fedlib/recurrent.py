"""LSTM, GRU and RNN as plain matrix products, which a stack of clients can train; torch's kernels do not support vmap.

`fedlib.models.Model` replaces torch's layers by these. They are the same functions with the same parameters, so a
``state_dict`` of one can be loaded into the other.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "LSTM", "RNN", "STACKABLE"]

State = tuple[Tensor, ...]  # h, for an LSTM h and c; each (B, H)


def _lstm(
    layer: Any, given: Tensor, state: State, weight: Tensor, bias: Tensor | None, project: Tensor | None
) -> State:
    h, c = state
    i, f, g, o = (given + F.linear(h, weight, bias)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return h if project is None else F.linear(h, project), c


def _gru(layer: Any, given: Tensor, state: State, weight: Tensor, bias: Tensor | None, project: Tensor | None) -> State:
    (h,) = state
    (r, z, n), (own_r, own_z, own_n) = given.chunk(3, -1), F.linear(h, weight, bias).chunk(3, -1)
    n, z = (n + (r + own_r).sigmoid() * own_n).tanh(), (z + own_z).sigmoid()
    return (n + z * (h - n),)


def _rnn(layer: Any, given: Tensor, state: State, weight: Tensor, bias: Tensor | None, project: Tensor | None) -> State:
    z = given + F.linear(state[0], weight, bias)
    return (z.tanh() if layer.nonlinearity == "tanh" else z.relu(),)


def _over_positions(self: Any, input: Tensor, hx: Any = None) -> Any:
    """The forward pass of a recurrent layer, with the arguments and results of torch."""
    if isinstance(input, PackedSequence):
        raise TypeError("a stack of clients cannot train on packed sequences; give padded ones, and mask the loss")
    time, alone = 1 if self.batch_first else 0, input.ndim == 2
    x = input[:, None] if alone else input.transpose(0, time)  # (L, B, I)
    if hx is not None:
        hx = [s[:, None] if alone else s for s in (hx if self.states > 1 else (hx,))]
    directions = ("", "_reverse") if self.bidirectional else ("",)
    ends: list[State] = []
    for layer in range(self.num_layers):
        outputs = []
        for direction in directions:
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
            found: list[Any] = [getattr(self, f"{n}_l{layer}{direction}", None) for n in names]
            into, own, *biases, project = found
            given = F.linear(x.flatten(0, 1), into, biases[0]).unflatten(0, x.shape[:2]).unbind(0)
            sizes = (self.proj_size or self.hidden_size, self.hidden_size)
            state = tuple(x.new_zeros(x.shape[1], n) for n in sizes[: self.states])
            state = state if hx is None else tuple(s[len(ends)] for s in hx)
            out = []
            for z in reversed(given) if direction else given:
                state = self.step(z, state, own, biases[1], project)
                out.append(state[0])
            ends.append(state)
            outputs.append(torch.stack(out[::-1] if direction else out))
        x = torch.cat(outputs, -1)
        if layer < self.num_layers - 1:
            x = F.dropout(x, self.dropout, self.training)
    last = tuple(torch.stack(s)[:, 0] if alone else torch.stack(s) for s in zip(*ends, strict=True))
    return x[:, 0] if alone else x.transpose(0, time), last if self.states > 1 else last[0]


def _at_one(self: Any, input: Tensor, hx: Any = None) -> Any:
    """The forward pass of a recurrent cell, with the arguments and results of torch."""
    state = hx if self.states > 1 else (hx,)
    if hx is None:
        state = (input.new_zeros(*input.shape[:-1], self.hidden_size),) * self.states
    given = F.linear(input, self.weight_ih, self.bias_ih)
    state = self.step(given, state, self.weight_hh, self.bias_hh, None)
    return state if self.states > 1 else state[0]


class LSTM(nn.LSTM):
    """`torch.nn.LSTM` without packed sequences, equal to it up to rounding."""

    step, states, forward = _lstm, 2, _over_positions  # type: ignore[assignment]


class GRU(nn.GRU):
    """`torch.nn.GRU` without packed sequences, equal to it up to rounding."""

    step, states, forward = _gru, 1, _over_positions  # type: ignore[assignment]


class RNN(nn.RNN):
    """`torch.nn.RNN` without packed sequences, equal to it up to rounding."""

    step, states, forward = _rnn, 1, _over_positions  # type: ignore[assignment]


class _LSTMCell(nn.LSTMCell):
    step, states, forward = _lstm, 2, _at_one  # type: ignore[assignment]


class _GRUCell(nn.GRUCell):
    step, states, forward = _gru, 1, _at_one  # type: ignore[assignment]


class _RNNCell(nn.RNNCell):
    step, states, forward = _rnn, 1, _at_one  # type: ignore[assignment]


STACKABLE: dict[type, type] = {
    kind.__mro__[1]: kind for kind in (LSTM, GRU, RNN, _LSTMCell, _GRUCell, _RNNCell)
}  #: Torch's layers and their replacements.
