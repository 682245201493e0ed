"""Random numbers that belong to a client, a round and a purpose.

A draw is a hash of (seed, round, purpose, client id, position), so there is no generator whose state has to be kept.
A client's draws therefore do not depend on which other clients are drawn or on the order, chunk or device, and do not
change after a resume. The draws of all clients are computed at once.
"""

import hashlib
import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Key"]


def _signed(number: int) -> int:
    """The int64 with the same 64 bits as `number`; torch's integers are signed and wrap around."""
    number = operator.index(number) & ((1 << 64) - 1)
    return number - (1 << 64) if number >> 63 else number


_GOLDEN = _signed(0x9E3779B97F4A7C15)  # splitmix64's step: 2^64 / golden ratio
_MULTIPLY1, _MULTIPLY2 = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical right shift; torch's >> of a negative number fills with ones."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _scramble(z: Tensor) -> Tensor:
    """The finaliser of splitmix64: a one-to-one map of 64 bits in which each input bit flips about half the output."""
    z = (z ^ _shift(z, 30)) * _MULTIPLY1
    z = (z ^ _shift(z, 27)) * _MULTIPLY2
    return z ^ _shift(z, 31)


def child(z: Tensor, number: int) -> Tensor:
    """The hash (...) of a hash and a whole number, for example for the i-th of several draws."""
    return _scramble(z + _signed((operator.index(number) + 1) * 0x9E3779B97F4A7C15))


def spread(z: Tensor, shape: Iterable[int]) -> Tensor:
    """64-bit integers (..., *shape) from hashes z (...), each of which depends on its position but not on the shape."""
    for length in shape:
        z = _scramble(z[..., None] + torch.arange(1, length + 1, device=z.device) * _GOLDEN)
    return z


def to_uniform(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """Integers of 64 random bits as numbers in [0, 1) of `dtype`, with as many bits as that type can hold."""
    kept = 1 - round(math.log2(torch.finfo(dtype).eps))
    return _shift(bits, 64 - kept).to(dtype) * 2.0**-kept


def to_normal(u: Tensor, v: Tensor) -> Tensor:
    """Standard normal numbers from two independent uniform ones in [0, 1) (Box and Muller)."""
    return torch.sqrt(-2 * torch.log1p(-u)) * torch.cos(2 * math.pi * v)


def whole_seed(seed: int) -> int:
    """A seed, checked to be a whole number of 64 bits, so that all functions with a seed accept the same."""
    try:
        fits = -(1 << 63) <= operator.index(seed) < 1 << 63
    except TypeError:
        raise TypeError(f"a seed is a whole number; got {seed!r}") from None
    if not fits:
        raise ValueError(f"a seed is a whole number of 64 bits, from -2**63 to 2**63 - 1; got {seed}")
    return operator.index(seed)


@dataclass(frozen=True)
class Key:
    """The source of all random numbers of one round of one run.

    Parameters
    ----------
    seed : int
        Seed of the run.
    round : int
        Number of the round, from 1; 0 is for draws before the first round.

    Raises
    ------
    TypeError
        The seed is not a whole number.
    ValueError
        The seed has more than 64 bits.

    Notes
    -----
    The generator is splitmix64 (Steele, Lea and Flood, 2014), applied in turn to seed, purpose, round, client id and
    each coordinate of the position. A number does not depend on the size of the array in which it is drawn, so padding
    does not change any draw.

    Used from chapter 01 on.

    References
    ----------
    Steele, Lea, Flood. Fast splittable pseudorandom number generators. OOPSLA 2014.

    Examples
    --------
    A client's draw depends on its id, not on the other clients:

    >>> import torch
    >>> from fedlib import Key
    >>> both = Key(seed=0, round=1).uniform(torch.tensor([3, 8]), "noise", 2)
    >>> bool((Key(seed=0, round=1).uniform(torch.tensor([8]), "noise", 2) == both[1]).all())
    True
    """

    seed: int
    round: int = 0

    def __post_init__(self) -> None:
        whole_seed(self.seed)

    def bits(self, ids: Tensor, purpose: str, *shape: int) -> Tensor:
        """Uniform 64-bit integers for each client.

        Parameters
        ----------
        ids : Tensor of shape (C,), int64
            Ids of the clients (not their positions).
        purpose : str
            Use of the numbers; draws for different purposes are independent.
        *shape : int
            Shape of each client's draw.

        Returns
        -------
        Tensor of shape (C, *shape), int64, on the device of `ids`
        """
        name = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "big")
        start = _scramble(torch.tensor(_signed(self.seed) ^ _signed(name)) + _GOLDEN)
        start = child(start, self.round)
        return spread(_scramble(start.to(ids.device) + (ids.long() + 1) * _GOLDEN), shape)

    def uniform(self, ids: Tensor, purpose: str, *shape: int) -> Tensor:
        """Uniform numbers in [0, 1), of shape ``(C, *shape)``, float64, with 53 random bits each."""
        bits = self.bits(ids.cpu() if ids.device.type == "mps" else ids, purpose, *shape)  # MPS has no float64
        return to_uniform(bits, torch.float64)

    def normal(self, ids: Tensor, purpose: str, *shape: int) -> Tensor:
        """Standard normal numbers, of shape ``(C, *shape)``, float64 (Box and Muller)."""
        u = self.uniform(ids, purpose, 2, *shape)
        return to_normal(u[:, 0], u[:, 1])

    def permutations(self, ids: Tensor, purpose: str, lengths: Tensor, repeats: int, size: int) -> Tensor:
        """Shuffles of 0, ..., length - 1 for each client.

        Parameters
        ----------
        ids : Tensor of shape (C,), int64
        purpose : str
        lengths : Tensor of shape (C,), int64
            Number of items that each client shuffles.
        repeats : int
            Number of shuffles that each client draws.
        size : int
            At least the largest length.

        Returns
        -------
        Tensor of shape (C, repeats, size), int64
            Entries past a client's length are padding. The shuffles do not depend on `size`.
        """
        bits = self.bits(ids, purpose, repeats, size) >> 1  # below the largest int64, which marks padding
        padding = torch.arange(size, device=ids.device) >= lengths[:, None]
        return bits.masked_fill_(padding[:, None], torch.iinfo(torch.int64).max).argsort(dim=2, stable=True)

    def shuffles(self, client: int, n: int, epochs: int) -> Tensor:
        """The orders in which one client visits its `n` examples in `fit`, one for each local epoch.

        Parameters
        ----------
        client : int
            Id of the client.
        n, epochs : int

        Returns
        -------
        Tensor of shape (epochs, n), int64
            On the CPU. ``shuffles(k, n, epochs)[e].split(batch_size)`` are the batches of epoch e.
        """
        ids, lengths = torch.tensor([client]), torch.tensor([n])
        return self.permutations(ids, "batches", lengths, epochs, n)[0]

    def choose(self, ids: Tensor, n: int, purpose: str) -> Tensor:
        """Positions of `n` different clients out of `ids`, each set equally likely; sorted, of shape (n,)."""
        return self.bits(ids, purpose).argsort(stable=True)[:n].sort().values
