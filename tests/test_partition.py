"""Partitions: nothing lost, nothing twice, and the skew that was asked for."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_partition_properties import SEEDED as EXAMPLES
from test_partition_properties import fingerprint

from book.experiments import faces
from fedlib import Key, partition

Y = np.repeat(np.arange(10), 50)


def label_shares(parts):
    return np.array([np.bincount(Y[r], minlength=10) / len(r) for r in parts.rows])


def test_quantity():
    assert {len(r) for r in partition.quantity(Y, 10, sigma=0).rows} == {50}
    sizes = [len(r) for r in partition.quantity(Y, 10, sigma=2).rows]
    assert max(sizes) > 5 * min(sizes)
    assert min(len(r) for r in partition.quantity(Y, 10, sigma=1000).rows) == 1
    for y in (np.zeros(10), np.zeros((10, 3)), np.zeros(10, int)):  # rows of any y are shared out
        for make in (lambda y: partition.iid(y, 3, 1), lambda y: partition.quantity(y, 3, 0.5, 1)):
            assert all(map(np.array_equal, make(y).rows, make(np.arange(10)).rows))


def test_pathological_clients_see_few_classes():
    assert ((label_shares(partition.pathological(Y, 10, 2)) > 0).sum(1) <= 2).all()
    assert (label_shares(partition.pathological(Y, 10, 1)).max(1) == 1).all()


# -- draws that were always made so, and those that never come off -----------------------------------------------------


def first_draw(y, clients, alpha, seed, min_rows, attempts):
    """The rows of the first draw with enough rows for all, and how many draws it took; from the definition."""
    random = np.random.RandomState(seed)
    for draw in range(1, attempts + 1):
        rows = [[] for _ in range(clients)]
        for label in np.unique(y):
            members = random.permutation(np.flatnonzero(y == label))
            with np.errstate(invalid="ignore"):
                share = random.dirichlet(np.full(clients, alpha))
            if np.isnan(share).any():
                share = np.eye(clients)[random.randint(clients)]
            ends = np.round(np.cumsum(share)[:-1] * len(members)).astype(int)
            for held, part in zip(rows, np.split(members, ends), strict=True):
                held.extend(part)
        if min(map(len, rows)) >= min_rows:
            return [sorted(r) for r in rows], draw
    return None, attempts


def test_dirichlet_takes_the_largest_alpha():
    """A sum of gamma numbers of this shape overflows."""
    assert [len(rows) for rows in partition.dirichlet(np.arange(100) % 10, 5, alpha=1e308).rows] == [20] * 5


def test_dirichlet_gives_the_first_draw_with_enough_rows():
    """Bit by bit, however late it comes; it is given up only where the plain search finds nothing either."""
    late = given_up = 0
    for seed in range(150):
        random = np.random.RandomState(seed)
        y = random.randint(0, random.randint(1, 8), random.randint(60, 300))
        clients, alpha, least = random.randint(1, 15), 10 ** random.uniform(-4, 1), random.randint(0, 5)
        wanted, draws = first_draw(y, clients, alpha, seed, least, 200)
        late += wanted is not None and draws > 20
        try:
            found = partition.dirichlet(y, clients, alpha, seed, least, attempts=200)
        except ValueError as error:
            assert wanted is None, (seed, draws)
            given_up += "no draw of 200" not in str(error)
        else:
            assert [r.tolist() for r in found.rows] == wanted, seed
    assert late > 3 and given_up > 3


HOPELESS = {
    "10,000 clients": (60_000, 10_000, 0.5, 1, 3),
    "the papers' usual line": (5_000, 100, 0.1, 10, 300),
    "20 clients of two classes": (100, 20, 0.01, 1, 50),
    "400 clients of tens": (60_000, 400, 0.1, 100, 3),
}


@pytest.mark.parametrize("name", HOPELESS)
def test_what_never_comes_off_is_said_at_once(name):
    rows, clients, alpha, least, most = HOPELESS[name]
    y, short = np.arange(rows) % (2 if rows == 100 else 10), r"on average ([0-9.e+]+) .* short. Raise alpha, lower min"
    words = rf"no draw of (\d+) gave each of .* alpha = {alpha}; {short}"
    for seed in range(3):
        with pytest.raises(ValueError, match=words) as caught:
            partition.dirichlet(y, clients, alpha, seed, least)
        draws, short = map(float, re.search(words, str(caught.value)).groups())
        sizes = partition.dirichlet(y, clients, alpha, seed, 0)
        assert draws <= most and abs(sum(len(r) < least for r in sizes.rows) - short) < 5 * np.sqrt(short) + 1


@pytest.mark.parametrize("make", [partition.dirichlet, partition.pathological])
@pytest.mark.parametrize("kind", ["float64", "float32", object])
def test_targets_are_no_classes(make, kind):
    targets = np.random.RandomState(0).standard_normal(200).astype(kind)
    more = (0.5,) if make is partition.dirichlet else ()
    with pytest.raises(TypeError, match="each value would be a class; .*np.digitize"):
        make(targets, 5, *more)
    classes = np.digitize(targets.astype(float), np.quantile(targets.astype(float), [0.2, 0.4, 0.6, 0.8]))
    assert np.bincount(classes).tolist() == [40] * 5
    rows = make(classes, 5, *more).rows
    assert sorted(np.concatenate(rows)) == list(range(200))
    names = np.array(list("abcde"))[classes]
    assert all(map(np.array_equal, rows, make(names, 5, *more).rows))  # classes may have names
    assert all(map(np.array_equal, rows, make(names.astype(object), 5, *more).rows))


# -- names ------------------------------------------------------------------------------------------------------------


MAKE = {
    "list": list,
    "array": np.array,
    "object": lambda n: np.array(n, object),
    "series": pd.Series,
    "category": lambda n: pd.Series(n, dtype="category"),
    "string": lambda n: pd.Series(n, dtype="string"),
}
SOME_NAMES = st.lists(st.sampled_from(["ann", "bob", "Zoë", "", "10", "9", "eve é"]), min_size=1, max_size=40)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(names=SOME_NAMES, least=st.integers(1, 3), kind=st.sampled_from([*MAKE]))
def test_writers_may_have_names(names, least, kind):
    """Or be numbers of 64 bits."""
    known = sorted(set(names))
    numbers = np.array([known.index(n) for n in names])
    held = np.flatnonzero(np.bincount(numbers) >= least)
    if not len(held):
        return
    parts, plain = (partition.by_user(users, min_rows=least) for users in (MAKE[kind](names), numbers * 10**10 - 7))
    for some in (parts, plain):
        assert all(map(np.array_equal, some.rows, [np.flatnonzero(numbers == i) for i in held]))
    assert parts.id.tolist() == held.tolist() and plain.id.tolist() == (held * 10**10 - 7).tolist()
    assert parts.name.tolist() == [known[i] for i in held] and plain.name is None
    assert parts.clients(np.zeros((len(names), 1)), numbers).name.tolist() == parts.name.tolist()


def test_names_go_through_parts_and_groups():
    names = np.repeat(["d", "b", "a", "c"], 10)
    parts = partition.label_permutation(partition.by_user(names), 2, 3)
    for some in parts.split((0.5, 0.5)):
        for data in (some.clients(np.zeros((40, 2)), np.arange(40) % 3), some.tests(np.zeros((3, 2)), [0, 1, 2])):
            assert data.name.tolist() == ["a", "b", "c", "d"] and data[[2]].name.tolist() == ["c"]


# -- seeds ------------------------------------------------------------------------------------------------------------

SEEDED = EXAMPLES | {"split_users": lambda seed: faces.split_users(np.arange(60), (0.5,), seed=seed)}
WIDE = (2**32, 2**32 + 5, 5 * 2**32, 2**63 - 1, -1, -5, -(2**32), -(2**63))


def content(made):
    return [a.tolist() for a in made] if isinstance(made, tuple) else fingerprint(made)


@pytest.mark.parametrize("name", SEEDED)
def test_seeds_have_one_range(name):
    """That of Key, in the same words."""
    make, found = SEEDED[name], []
    for seed in (*range(6), 2**32 - 1, *WIDE):
        assert content(make(seed=seed)) == content(make(seed=np.int64(seed)))
        found.append(str(content(make(seed=seed))))
    assert len(set(found)) > 9  # 15 seeds; few clients have few groups
    for wrong, kind in ((2**63, ValueError), (-(2**63) - 1, ValueError), (0.5, TypeError), (None, TypeError)):
        with pytest.raises(kind) as known:
            Key(wrong)
        with pytest.raises(kind, match="a seed is a whole number") as caught:
            make(seed=wrong)
        assert str(caught.value) == str(known.value)
