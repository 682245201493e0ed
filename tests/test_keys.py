"""Draws belong to a client: same numbers in any company, good ones, and the same for ever."""

import hashlib
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from fedlib import Key

GOLDEN, MASK = 0x9E3779B97F4A7C15, 2**64 - 1


def splitmix(state: int) -> int:
    """The generator as its paper prints it, in Python's integers."""
    z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def test_bits_are_splitmix():
    """Whose first outputs with seed 1234567 were published with the reference implementation."""
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [splitmix((1234567 + k * GOLDEN) & MASK) for k in (1, 2, 3)] == known
    seed, t, client, place = -5, 3, 12, (1, 4)
    z = int.from_bytes(hashlib.blake2b(b"batches", digest_size=8).digest(), "big") ^ (seed & MASK)
    for number in (0, t, client, *place):
        z = splitmix((z + (number + 1) * GOLDEN) & MASK)
    bits = Key(seed, t).bits(torch.tensor([3, client]), "batches", 2, 9)
    assert int(bits[1, 1, 4]) % 2**64 == z


def test_seeds_and_ids_of_numpy():
    ids = np.arange(3, dtype=np.int32)
    expected = Key(3, 1).bits(torch.arange(3), "a")
    assert torch.equal(Key(np.int64(3), np.int64(1)).bits(torch.from_numpy(ids), "a"), expected)


def test_uniform_and_normal_look_like_it():
    ids = torch.arange(200)
    assert stats.kstest(Key(0).uniform(ids, "u", 100).flatten(), "uniform").pvalue > 0.01
    assert stats.kstest(Key(0).normal(ids, "n", 100).flatten(), "norm").pvalue > 0.01
    across = np.corrcoef(Key(0).normal(ids, "n", 100).numpy())
    assert np.abs(across - np.eye(200)).max() < 0.5  # no two clients draw alike


def test_each_cohort_is_equally_likely():
    """Chi-squared over the 10 pairs out of 5 clients in 5,000 rounds."""
    ids = torch.tensor([3, 5, 8, 13, 21])
    counts = Counter(tuple(Key(1, t).choose(ids, 2, "cohort").tolist()) for t in range(5000))
    assert len(counts) == 10 and all(a < b for a, b in counts)
    assert stats.chisquare(list(counts.values())).pvalue > 0.01


def test_permutations_do_not_depend_on_size_and_are_all_equally_likely():
    ids, lengths = torch.arange(2000), torch.tensor([3, 4]).repeat(1000)
    small, large = (Key(0).permutations(ids, "p", lengths, 2, size) for size in (4, 9))
    assert torch.equal(small[1::2], large[1::2, :, :4]) and torch.equal(small[::2, :, :3], large[::2, :, :3])
    counts = Counter(map(tuple, small[::2, :, :3].flatten(0, 1).tolist()))
    assert len(counts) == 6 and stats.chisquare(list(counts.values())).pvalue > 0.01


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_same_on_a_gpu():
    ids = torch.arange(10)
    assert torch.equal(Key(0).bits(ids.cuda(), "a", 100).cpu(), Key(0).bits(ids, "a", 100))
